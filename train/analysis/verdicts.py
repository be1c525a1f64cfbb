"""What the runs say about the paper's claims and about the questions of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from analysis.statistics import (
    MIN_RUNS,
    SIGNIFICANT,
    Arm,
    Arms,
    Bootstrap,
    Comparison,
    adjust,
    compare,
)
from analysis.text import TOO_FEW


class Claim(NamedTuple):
    """A comparison of the paper's, on its own env."""

    first: str
    relation: str
    second: str
    p: str


PAPER_CLAIMS = (
    Claim("GRM(1)", "below", "raw", ".031"),
    Claim("GRM-norm(1)", "below", "raw", ".009"),
    Claim("PIES", "not different from", "raw", ".059"),
    Claim("GRM(1)", "not different from", "GRM-norm(1)", ".37"),
    Claim("ADOPES", "above", "raw", ".038"),
    Claim("ADOPS", "above", "PIES", "4.4e-5"),
    Claim("ADOPES", "above", "PIES", "2.4e-6"),
    Claim("ADOPES F/2", "above", "PIES", "6.4e-5"),
    Claim("ADOPS", "above", "GRM(1)", ""),
    Claim("ADOPES", "above", "GRM(1)", ""),
)
PAPER_UNSOLVED = ("PBIM", "PBIM-norm")
"""Methods with which the paper's runs solve nothing."""


PAPER_VERDICTS = ("agrees", "contradicts", "undecided", TOO_FEW)


class Verdict(NamedTuple):
    """What the runs say about a statement."""

    verdict: str
    env: str
    statement: str
    sentence: str


def claim_verdict(relation: str, comparison: Comparison) -> str:
    """Say whether a comparison agrees with the paper's."""
    if comparison.welch_holm is None:
        return TOO_FEW
    significant = comparison.welch_holm < SIGNIFICANT
    if relation == "not different from":
        return "contradicts" if significant else "agrees"
    if not significant:
        return "undecided"
    return (
        "agrees" if comparison.direction == {"above": 1, "below": -1}[relation] else "contradicts"
    )


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
            p = f" (paper: p = {claim.p})" if claim.p else ""
            statement = f"{claim.first}{end} {claim.relation} {claim.second}{end}"
            verdict = claim_verdict(claim.relation, comparison)
            verdicts.append(Verdict(verdict, env, statement + p, f"{comparison.short}."))
        for arm in (arms[name + end] for name in PAPER_UNSOLVED if name + end in arms):
            sentence = f"{arm.label} solved {arm.solved_text}, mean return {arm.mean_text}"
            if f"raw{end}" in arms:
                sentence += f"; raw{end} solved {arms[f'raw{end}'].solved_text}"
            verdict = "contradicts" if arm.solved.any() else "agrees"
            verdicts.append(Verdict(verdict, env, f"{arm.label} solves nothing", f"{sentence}."))
    return verdicts


@dataclass(frozen=True)
class Answer:
    """A question of the study with what the runs say."""

    question: Mapping[str, str]
    verdict: str
    missing: str
    comparison: Comparison | None

    @property
    def headline(self) -> str:
        """The verdict, with what is missing for one."""
        return f"{self.verdict} (missing: {self.missing})" if self.missing else self.verdict

    @property
    def sentence(self) -> str:
        """The claim and all numbers in words."""
        numbers = f": {self.comparison.sentence}" if self.comparison else "."
        return f"{self.question['claim']} On {self.question['env']}{numbers}"


def answer(
    questions: Sequence[Mapping[str, str]], arms: Arms, bootstrap: Bootstrap
) -> list[Answer]:
    """Answer the study's questions; p-values are corrected over all of them."""
    pairs: list[tuple[Mapping[str, str], str, Comparison | None]] = []
    for question in questions:
        own = arms.get(question["env"], {})
        missing = []
        for label in (question["better"], question["worse"]):
            count = own[label].count if label in own else 0
            if count < MIN_RUNS:
                missing.append(f"{label} with {count} of at least {MIN_RUNS} runs")
        comparison = None
        if not missing:
            comparison = compare(own[question["better"]], own[question["worse"]], bootstrap)
        pairs.append((question, ", ".join(missing), comparison))
    adjust([comparison for _, _, comparison in pairs if comparison])
    return [
        Answer(question, question_verdict(comparison), missing, comparison)
        for question, missing, comparison in pairs
    ]


def question_verdict(comparison: Comparison | None) -> str:
    """Say whether the first arm is better, as the question claims."""
    if comparison is None or comparison.welch_holm is None:
        return "not run"
    if comparison.welch_holm >= SIGNIFICANT:
        return "undecided"
    return "supported" if comparison.direction > 0 else "contradicted"
