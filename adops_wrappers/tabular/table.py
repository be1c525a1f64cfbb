"""One bonus under every method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adops_wrappers.tabular.auditor import audit
from adops_wrappers.tabular.mdp import FiniteMDP
from adops_wrappers.tabular.report import AuditReport

TABLE_HORIZON = 8
"""The horizon that `--all` gives to PBIM, whose debts are too many without one."""


def verdicts(
    mdp: FiniteMDP,
    bonus: Any,
    horizon: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, AuditReport | str]:
    """Audit every method; where a method cannot be audited the reason stands in its place."""
    potential = mdp.solve().v
    rows: dict[str, tuple[str, int | None, dict[str, Any]]] = {
        "raw": ("raw", horizon, {}),
        "PIES, ζ = 0.5": ("pies", horizon, {"zeta": 0.5}),
        "PIES, ζ = 0": ("pies", horizon, {"zeta": 0.0}),
        "PBRS, Φ = V*, added to F": ("pbrs", horizon, {"potential": potential}),
        "ADOPES, ζ = 0.5": ("adopes", horizon, {"zeta": 0.5}),
        "ADOPES, ζ = 1": ("adopes", horizon, {"zeta": 1.0}),
        "ADOPS": ("adops", horizon, {}),
        "ADOPS, sampled s′": ("adops", horizon, {"form": "trajectory"}),
        "GRM(1)": ("grm", horizon, {"delay": 1}),
        f"PBIM, horizon {horizon or TABLE_HORIZON}": ("pbim", horizon or TABLE_HORIZON, {}),
    }
    answers: dict[str, AuditReport | str] = {}
    for label, (method, limit, settings) in rows.items():
        progress(f"Auditing {label} …")
        try:
            answers[label] = audit(mdp, bonus, method, limit, **settings)
        except ValueError as error:
            answers[label] = str(error)
    return answers
