"""What the runs say about the paper's claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from research.analysis.questions import comparison_text
from research.analysis.statistics import (
    MIN_RUNS,
    SIGNIFICANT,
    Arm,
    Bootstrap,
    Comparison,
    adjust,
    compare,
)
from research.analysis.text import TOO_FEW, equals_p


class Claim(NamedTuple):
    """A comparison of the paper's, on its own env."""

    first: str
    relation: str
    second: str
    p: str


PAPER_CLAIMS = (
    Claim("GRM(1)", "below", "raw", "0.031"),
    Claim("GRM-norm(1)", "below", "raw", "0.009"),
    Claim("PIES", "not different from", "raw", "0.059"),
    Claim("GRM(1)", "not different from", "GRM-norm(1)", "0.37"),
    Claim("ADOPES", "above", "raw", "0.038"),
    Claim("ADOPS", "above", "PIES", "4.4e-5"),
    Claim("ADOPES", "above", "PIES", "2.4e-6"),
    Claim("ADOPES F/2", "above", "PIES", "6.4e-5"),
    Claim("ADOPS", "above", "GRM(1)", ""),
    Claim("ADOPES", "above", "GRM(1)", ""),
)
PAPER_UNSOLVED = ("PBIM", "PBIM-norm")
"""Methods with which the paper's runs solve nothing."""


class Verdict(NamedTuple):
    """What the runs of an env with a kind of bonus say about a claim of the paper's."""

    verdict: str
    env: str
    bonus: str
    claim: str
    paper_p: str
    numbers: str
    short: str
    """The most important numbers."""


def claim_verdict(relation: str, comparison: Comparison) -> str:
    """Say whether a comparison agrees with the paper's."""
    if comparison.welch_holm is None:
        return TOO_FEW
    significant = comparison.welch_holm < SIGNIFICANT
    if relation == "not different from":
        return "contradicts" if significant else "agrees"
    if not significant:
        return "undecided"
    above = comparison.direction > 0
    return "agrees" if above == (relation == "above") else "contradicts"


def paper_verdicts(env: str, arms: Mapping[str, Arm], bootstrap: Bootstrap) -> list[Verdict]:
    """Hold the paper's claims against an env's runs at scale 1, for each bonus there is."""
    verdicts = []
    for end in ("", " (RND)"):
        held = [
            (claim, compare(arms[claim.first + end], arms[claim.second + end], bootstrap))
            for claim in PAPER_CLAIMS
            if claim.first + end in arms and claim.second + end in arms
        ]
        adjust([comparison for _, comparison in held])
        for claim, comparison in held:
            first, second = comparison.first, comparison.second
            short = f"{first.solved_text} vs {second.solved_text}"
            if comparison.welch_holm is not None:
                short += f", p {equals_p(comparison.welch_holm)}"
            verdicts.append(
                Verdict(
                    *(claim_verdict(claim.relation, comparison), env, first.bonus),
                    *(f"{claim.first} {claim.relation} {claim.second}", claim.p),
                    *(comparison_text(comparison), short),
                )
            )
        for name in PAPER_UNSOLVED:
            if name + end in arms:
                arm = arms[name + end]
                agreed = "agrees" if arm.count >= MIN_RUNS else TOO_FEW
                verdict = "contradicts" if arm.solved.any() else agreed
                verdicts.append(
                    Verdict(
                        *(verdict, env, arm.bonus, f"{name} solves nothing", ""),
                        *(f"solved {arm.solved_text}, mean {arm.mean_text}", arm.solved_text),
                    )
                )
    return verdicts
