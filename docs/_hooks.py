"""Build hooks: formulas become MathML, with a font of the site's own: no network is needed."""

from __future__ import annotations

import html
import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _blocks import without_copy_button
from _docstrings import GREEK
from latex2mathml.converter import convert
from mkdocs.structure.files import File

FONT = "STIXTwoMath-Regular.ttf"
FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</(?:span|div)>', re.DOTALL
)
# A minus after an operator is a sign, unless that operator closes a bracket.
SIGN = re.compile(
    r"(<mo[^>]*>(?!&#x00029;|&#x0007C;|\])[^<]*</mo>(?:<mspace[^>]*>)?)<mo>(?=&#x02212;)"
)
# A prime in a superscript would be set tiny: fonts draw it raised already.
PRIMED = re.compile(
    r"<msup>(<mi>[^<]+</mi>)()<mi>&#x02032;</mi></msup>"
    r"|<msubsup>(<mi>[^<]+</mi>)(<m[in]>\S</m[in]>|<mrow>.*?</mrow>)<mi>&#x02032;</mi></msubsup>"
)
BARS = re.compile(r"<mo>&#x0007C;</mo>(.*?)<mo>&#x0007C;</mo>")
UNTOUCHED = re.compile(r"(<pre.*?</pre>|<code.*?</code>|<math.*?</math>|<[^>]+>)", re.DOTALL)
# A line must not break between a formula and the comma, "=0.01" or "/2" after it, nor after an
# opening bracket.
PUNCTUATED = re.compile(
    r"(\(?<math(?:(?!</math>).)*</math>(?:[=/][\w.]+|[.,;:)]+)|\(<math(?:(?!</math>).)*</math>)"
)
# What MathML sets apart and LaTeX does not: a relation that begins a formula, the two sides of a
# slash, and the name of a function from its bracket.
FIRST = re.compile(r"(<math[^>]*><mrow>)<mo>")
SLASH = re.compile(r"<mo>(?=&#x0002F;)")
FUNCTION = re.compile(
    r'(</mo>|<m(?:row|td)[^>]*>)?(<msub>)?<mo>([a-z]+)</mo>(?=(<mo stretchy="false">&#x00028;)?)'
)
SYMBOL = re.compile(
    rf"(?<![\w/])(?:([A-ZΩδγcfζ])(′?)_([EItin]|IE)|([FQVWs])′|F₂|([FR{''.join(GREEK)}]|W(?!&)))"
    "(?![\\w′\u0304-])"
)
# A line must not break after the dashes of a flag, within 4.4e-5, 0.3 ± 0.1 or [0.1, 0.4], nor
# before a percent sign.
FLAG = re.compile(r"--[a-z]+")
NUMBER = re.compile(r"(?:&lt; )?\b\d[\d.]*e-\d+|[\d.]+ ± [\d.]+\d|\[[\d.]+, [\d.]+\]")
PERCENT = re.compile(r"(?<=\d) (?=%)")
PICTURE = re.compile(r'<img [^>]*src="([^"]+)"[^>]*>')
TEST_NAME = re.compile(r"(?<=<code>)test_\w+(?=</code>)")
CITED = re.compile(r"\beq\. ([a-z0-9_]+)")
NUMBERED = re.compile(r'^\| <a id="eq-(\d+)"></a>\d+ \| `(\w+)`', re.MULTILINE)
ERRATA = Path(__file__).with_name("errata.md").read_text(encoding="utf-8")
NUMBERS = {label: number for number, label in NUMBERED.findall(ERRATA)}


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the font of the formulas, which ziamath brings along, to the site."""
    package = find_spec("ziamath")
    assert package is not None, "make docs installs ziamath"
    font = Path(str(package.origin)).parent / "fonts" / FONT
    files.append(File.generated(config, f"assets/{FONT}", content=font.read_bytes()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name files of the repository that are not part of the site instead of linking to them.

    Blocks of code that do not run by themselves lose their copy button.
    """
    named = re.sub(r"\[[^\]]+\]\((?:\.\./)+(notebooks/[^)]+)\)", r"`\1`", markdown)
    return without_copy_button(named)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Typeset $…$, $$…$$ and, outside of code, the symbols and citations of docstrings.

    The long names of tests in tables may break after an underscore. Pictures open in full size.
    """
    errata = "../" * page.url.count("/") + "errata.html"
    parts = UNTOUCHED.split(FORMULA.sub(_typeset, content))
    parts[::2] = [
        CITED.sub(
            partial(_cite, errata),
            SYMBOL.sub(_symbol, _unbroken(NUMBER, PERCENT.sub("\u00a0", text))),
        )
        for text in parts[::2]
    ]
    parts[1::2] = [
        _unbroken(FLAG, part)
        if part.startswith("<code")
        else PICTURE.sub(r'<a href="\1">\g<0></a>', part)
        for part in parts[1::2]
    ]
    shown = _unbroken(PUNCTUATED, "".join(parts))
    return TEST_NAME.sub(lambda name: name[0].replace("_", "_<wbr>"), shown)


def _unbroken(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(r'<span class="together">\g<0></span>', text)


def mathml(latex: str, display: str = "inline") -> str:
    r"""Convert LaTeX to MathML.

    Raises:
        ValueError: If a command is left over: latex2mathml copies what it does not know.
    """
    result = convert(latex, display=display)
    unknown = re.search(r"<m[a-z]+[^>]*>(\\[A-Za-z]+)", result)
    if unknown:
        raise ValueError(
            f"latex2mathml does not know {unknown[1]} in {latex!r}: reword the formula"
        )
    result = SIGN.sub(r'\1<mo form="prefix">', PRIMED.sub(_primed, result))
    result = result.replace("<mover>", '<mover accent="true">')
    bar = '<mo form="{}" stretchy="false">|</mo>'.format
    result = BARS.sub(rf"{bar('prefix')}\1{bar('postfix')}", result)
    result = FUNCTION.sub(_function, SLASH.sub('<mo lspace="0.08em" rspace="0.08em">', result))
    return FIRST.sub(r'\1<mo lspace="0">', result)


def _typeset(match: re.Match[str]) -> str:
    tag, latex = match[1], html.unescape(match[2]).strip()
    if tag == "span":
        return mathml(latex)
    return f'<div class="formula">{mathml(latex, "block")}</div>'


def _function(match: re.Match[str]) -> str:
    before, index, name, bracket = match.groups(default="")
    left, right = ("0" if near else "0.17em" for near in (before, bracket))
    return f'{before}{index}<mo lspace="{left}" rspace="{right}">{name}</mo>'


def _primed(match: re.Match[str]) -> str:
    letter, index = match[1] or match[3], match[4]
    primed = f'<mrow>{letter}<mo lspace="0" rspace="0">&#x02032;</mo></mrow>'
    return f"<msub>{primed}{index}</msub>" if index else primed


def _symbol(match: re.Match[str]) -> str:
    letter, prime, index, primed, alone = match.groups()
    if letter is None:
        return mathml(GREEK.get(alone, alone) if alone else f"{primed}'" if primed else "F_2")
    return mathml(f"{GREEK.get(letter, letter)}{prime and chr(39)}_{{{index}}}")


def _cite(errata: str, match: re.Match[str]) -> str:
    """Docstrings cite equations by their label; readers of the site get the number in print."""
    number = NUMBERS.get(match[1])
    return match[0] if number is None else f'<a href="{errata}#eq-{number}">eq. {number}</a>'
