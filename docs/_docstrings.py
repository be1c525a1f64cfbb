"""Prepares docstrings for the site: "Example:" sections are code, and plain formulas are LaTeX."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import griffe

GREEK = {
    "α": r"\alpha",
    "β": r"\beta",
    "γ": r"\gamma",
    "δ": r"\delta",
    "ε": r"\varepsilon",
    "ζ": r"\zeta",
    "η": r"\eta",
    "λ": r"\lambda",
    "π": r"\pi",
    "ρ": r"\rho",
    "Φ": r"\Phi",
    "Ω": r"\Omega",
}
SIGNS = {"−": "-", "≤": r"\le ", "≥": r"\ge ", "Σ": r"\sum", "′": "'"}
# A letter with an exponent, or with an index in braces: γ^{i−t}, f_{t−D}, V_E^π. The other
# symbols of docstrings, such as V_E, are set once the page is HTML.
SCRIPT = r"\{[^{}\s]*(?: [≤<] [^{}\s]*)?\}|−?\w+"
FORMULA = re.compile(
    rf"(?<![\w`])[A-Za-zΣα-ωΦΩ]′?(?:_\w)?(?:\^(?:{SCRIPT})|_\{{[^{{}}]*\}})+(?![\w`])"
)
# V_E*, whose star would begin emphasis.
BEST = re.compile(r"(?<![\w`*])([A-Z](?:_\w)?)\*(?![\w*])")
CODE = re.compile(r"(`[^`]*`)")


class Docstrings(griffe.Extension):
    """Rewrites a docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            text = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
            obj.docstring.value = "\n\n".join(map(typeset, text.split("\n\n")))

    def on_module(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        """Show the names that wrap an `Env` and a `VectorEnv` as the functions that they are."""
        for obj in list(mod.members.values()):
            if wraps_either_kind(obj):
                function = as_it_runs(obj)
                mod.set_member(obj.name, function)
                self.on_object(obj=function)


def wraps_either_kind(obj: griffe.Object | griffe.Alias) -> bool:
    """Whether an object is a name that wraps an `Env` and a `VectorEnv`."""
    if obj.is_alias:
        return False
    if isinstance(obj, griffe.Function):
        return any("wrapper_of" in str(decorator.value) for decorator in obj.decorators)
    return isinstance(obj, griffe.Attribute) and str(obj.value).startswith("EitherWrapper(")


def as_it_runs(obj: Any) -> griffe.Function:
    """Return a function with the live object's signature, which writes `**settings` out."""
    live = getattr(import_module(obj.module.path), obj.name)
    _, text = live.__doc__.split("\n\n", 1)  # without the signature in its first line
    parameters = map(_parameter, live.__signature__.parameters.values())
    function = griffe.Function(
        obj.name,
        parameters=griffe.Parameters(*parameters),
        lineno=obj.lineno,
        endlineno=obj.endlineno,
        parent=obj.parent,
    )
    function.docstring = griffe.Docstring(text, parent=function, lineno=obj.lineno)
    return function


def _parameter(live: inspect.Parameter) -> griffe.Parameter:
    written = inspect.formatannotation(live.annotation)
    return griffe.Parameter(
        live.name,
        kind=getattr(griffe.ParameterKind, live.kind.name.lower()),
        annotation="Env | VectorEnv" if live.name == "env" else written,
        default=None if live.default is live.empty else repr(live.default),
    )


def typeset(paragraph: str) -> str:
    """Write the formulas of a paragraph as LaTeX, unless the paragraph is code."""
    if paragraph.startswith((" ", ">>>")) or "\n    >>>" in paragraph:
        return paragraph
    parts = CODE.split(paragraph)
    parts[::2] = [
        BEST.sub(r"$\1^*$", FORMULA.sub(lambda formula: f"${latex(formula[0])}$", text))
        for text in parts[::2]
    ]
    return "".join(parts)


def latex(formula: str) -> str:
    """Translate a formula as docstrings write it."""
    for sign, command in {**SIGNS, **GREEK}.items():
        formula = formula.replace(sign, command)
    formula = re.sub(r"\^(-?)(\w{2,})$", r"^{\1\\text{\2}}", formula)
    return re.sub(r"\^(-\w)$", r"^{\1}", formula)
