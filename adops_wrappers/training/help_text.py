"""What --help of a training script shows: the flags that matter first, the rest in groups."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from typing import Annotated, Any, NoReturn, get_type_hints

import tyro

FIRST = (
    "env_id",
    "shaping",
    "clamp_advantage",
    "quiet_iterations",
    "total_iterations",
    "seed",
    "resume",
)
"""The flags at the top: which task, by which recipe, for how long, and how to go on."""
GROUPS = {
    "method": ("seed",),
    "bonus": ("bonus",),
    "learning": ("preset", "total_iterations"),
    "env": ("env_id",),
    "run": ("run_dir", "amp"),
}
"""The groups in their order, each with the settings of `Args` at which a part of it begins."""


def show_help(defaults: Any, about: str | None = None) -> NoReturn:
    """Print the help of a script with these settings, and exit.

    Only this view of the settings is nested; those that a script reads stay flat.

    Args:
        defaults: An instance of the script's `Args`.
        about: The text above the flags.
    """
    kind = type(defaults)
    hints, texts = get_type_hints(kind, include_extras=True), explanations(kind)
    begins = {setting: group for group, settings in GROUPS.items() for setting in settings}
    first: list[tuple[str, Any, Any]] = []
    groups: dict[str, list[tuple[str, Any, Any]]] = {group: [] for group in GROUPS}
    group = ""
    for field in dataclasses.fields(kind):
        name, group = field.name, begins.get(field.name, group)
        hint: Any = Annotated[hints[name], tyro.conf.arg(help=texts.get(name))]
        value = dataclasses.field(default=getattr(defaults, name))
        (first if name in FIRST else groups[group]).append((name, hint, value))
    first.sort(key=lambda entry: FIRST.index(entry[0]))
    for group, entries in groups.items():
        if entries:
            part = dataclasses.make_dataclass(group, entries)
            flat: Any = tyro.conf.OmitArgPrefixes
            value = dataclasses.field(default_factory=part)
            first.append((group, flat[Annotated[part, tyro.conf.arg(help="")]], value))
    tyro.cli(dataclasses.make_dataclass("Flags", first), args=["--help"], description=about)
    raise AssertionError("tyro exits after --help")


def explanations(kind: type[Any]) -> dict[str, str]:
    """Return the text under each setting of a dataclass and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for setting, text in zip(body.body, body.body[1:], strict=False):
            match setting, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    found[name] = " ".join(words.split())
    return found
