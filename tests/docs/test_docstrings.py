"""Formulas in docstrings reach the site as LaTeX; their code stays as it is."""

from __future__ import annotations

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
