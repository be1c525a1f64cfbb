"""The formulas of the site: LaTeX becomes MathML, and docstrings' plain text does too."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("griffe")
pytest.importorskip("latex2mathml")
pytest.importorskip("mkdocs")

DOCS = Path(__file__).parents[2] / "docs"
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.delitem(sys.modules, "_hooks", raising=False)
    import _hooks  # type: ignore[import-not-found]

    return _hooks


def test_every_formula_of_the_pages_is_understood(hooks: Any) -> None:
    found = 0
    for page in DOCS.rglob("*.md"):
        text = CODE.sub("", page.read_text(encoding="utf-8"))
        for block, inline in re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", text, re.DOTALL):
            assert "<math" in hooks.mathml(block or inline), page.name
            found += 1
    assert found > 200


def test_an_unknown_command_ends_the_build(hooks: Any) -> None:
    with pytest.raises(ValueError, match=r"does not know \\foo in 'x \\\\foo'"):
        hooks.mathml(r"x \foo")


@pytest.mark.parametrize(
    ("latex", "signs"),
    [(r"x \le -1", 1), ("f(x) - 1", 0), (r"\lvert x \rvert - 1", 1), ("a - b", 0)],
)
def test_a_sign_is_told_from_a_difference(hooks: Any, latex: str, signs: int) -> None:
    # The opening bar of |x| is a prefix as well.
    assert hooks.mathml(latex).count('form="prefix"') == signs


def test_plain_text_is_typeset_but_not_code(hooks: Any) -> None:
    page = SimpleNamespace(url="api/wrappers.html")
    text = "<p>V_E, F′ of <code>V_E</code>, ε = 0.1, R-squared, For (eq. f_2_weak)</p>"
    shown = hooks.on_page_content(text, page=page)
    assert "<code>V_E</code>" in shown
    assert shown.count("<math") == 3
    assert hooks.mathml(r"\varepsilon") in shown
    assert '<a href="../errata.html#eq-16">eq. 16</a>' in shown


def test_names_of_tests_may_break(hooks: Any) -> None:
    page = SimpleNamespace(url="training.html")
    shown = hooks.on_page_content("<td><code>test_a_b</code> <code>a_b</code></td>", page=page)
    assert shown == "<td><code>test_<wbr>a_<wbr>b</code> <code>a_b</code></td>"


def test_lines_do_not_break_within_a_flag_or_before_a_percent_sign(hooks: Any) -> None:
    page = SimpleNamespace(url="training.html")
    shown = hooks.on_page_content("<p>5 % of <code>--num-envs 8</code></p>", page=page)
    flag = '<span class="together">--num</span>-envs 8'
    assert shown == f"<p>5\u00a0% of <code>{flag}</code></p>"


@pytest.mark.parametrize("number", ["4.4e-5", "&lt; 1e-15", "0.30 ± 0.08", "[0.16, 0.45]"])
def test_lines_do_not_break_within_a_number(hooks: Any, number: str) -> None:
    page = SimpleNamespace(url="study/report.html")
    shown = hooks.on_page_content(f"<td>p = {number}.</td>", page=page)
    assert shown == f'<td>p = <span class="together">{number}</span>.</td>'


def test_pictures_open_in_full_size(hooks: Any) -> None:
    page = SimpleNamespace(url="training.html")
    shown = hooks.on_page_content('<p><img alt="" src="images/a.png" /></p>', page=page)
    assert shown == '<p><a href="images/a.png"><img alt="" src="images/a.png" /></a></p>'


@pytest.mark.parametrize(
    ("latex", "operator"),
    [
        (r"\ge 0", '<mo lspace="0">&#x02265;</mo>'),
        (r"x = \max(0, x)", '<mo lspace="0" rspace="0">max</mo>'),
        (r"c \max_b b", '<mo lspace="0.17em" rspace="0.17em">max</mo>'),
        ("x/y", '<mo lspace="0.08em" rspace="0.08em">&#x0002F;</mo>'),
    ],
)
def test_operators_are_set_as_in_latex(hooks: Any, latex: str, operator: str) -> None:
    assert operator in hooks.mathml(latex)
