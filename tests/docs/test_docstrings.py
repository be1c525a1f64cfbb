"""Formulas in docstrings reach the site as LaTeX; their code stays as it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("griffe")

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def docstrings(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.delitem(sys.modules, "_docstrings", raising=False)
    import _docstrings  # type: ignore[import-not-found]

    return _docstrings


@pytest.mark.parametrize(
    ("plain", "latex"),
    [
        ("γ^−D·f_{t−D}", r"$\gamma^{-D}$·$f_{t-D}$"),
        ("−Σ_{i ≤ t} γ^{i−t}·m(t, i)", r"−$\sum_{i \le  t}$ $\gamma^{i-t}$·m(t, i)"),
        ("V_E^π and Σ γ^t F′_t", r"$V_E^\pi$ and Σ $\gamma^t$ F′_t"),
        ("e^−shrink, e^`regrow`", r"$e^{-\text{shrink}}$, e^`regrow`"),
        ("Q_E* − V_E* and |J*|, `J*`", "$Q_E^*$ − $V_E^*$ and |$J^*$|, `J*`"),
        ("V_E, `f_{t}` and x_y", "V_E, `f_{t}` and x_y"),
        ("    G_t = V(s_{t+1})", "    G_t = V(s_{t+1})"),
        (">>> a^{b}", ">>> a^{b}"),
    ],
)
def test_formulas(docstrings: Any, plain: str, latex: str) -> None:
    assert docstrings.typeset(plain) == latex


def test_every_public_name_has_a_place_on_the_api_pages() -> None:
    import adops_wrappers

    pages = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    on_pages = re.findall(r"^::: adops_wrappers\.(\w+)$", pages, re.MULTILINE)
    public = {*adops_wrappers.__all__, *adops_wrappers._NEED_TORCH} - {"envs"}
    assert sorted(on_pages) == sorted(public)


def test_names_for_two_classes_are_documented_as_they_run(docstrings: Any) -> None:
    import griffe

    package = griffe.load(
        "adops_wrappers",
        search_paths=[str(DOCS.parent)],
        extensions=griffe.load_extensions(docstrings.Docstrings),
    )
    wrapper: Any = package["shaping.adops.ADOPSWrapper"]
    assert "(env: Env | VectorEnv, critic: " in wrapper.signature()
    assert "epsilon: float = 1e-07" in wrapper.signature()
    assert "add_to_reward: bool | None = None" in wrapper.signature()
    assert "add_to_reward: Whether the reward is R + F′" in wrapper.docstring.value
    assert wrapper.docstring.value.startswith("F′ = F + F₂")
    source: Any = package["wrappers.bonus.IntrinsicRewardWrapper"]
    assert "quiet_steps: The number of steps" in source.docstring.value
