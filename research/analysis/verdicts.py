"""What the runs say about the paper's claims and about the questions of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from research.analysis.compact import METRICS
from research.analysis.statistics import (
    MIN_RUNS,
    SIGNIFICANT,
    Arm,
    Arms,
    Bootstrap,
    Comparison,
    adjust,
    compare,
    mean_text,
)
from research.analysis.text import TOO_FEW, env_name, equals_p, shown_p


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


def comparison_text(comparison: Comparison) -> str:
    """Return all numbers of a comparison in words."""
    first, second, metric = comparison.first, comparison.second, comparison.metric
    one, two = (arm.solved_text.replace("/", " of ") for arm in (first, second))
    means = [mean_text(arm.values(metric)) for arm in (first, second)]
    what = "mean" if metric == "final_return" else METRICS[metric]
    ahead = "better" if metric.endswith("_return") else "higher"
    text = f"{first.label} solved {one} ({what} {means[0]}), {second.label} {two} ({means[1]})"
    if comparison.welch is None:
        return f"{text}; {TOO_FEW} for a test"
    return (
        f"{text}; Welch p {equals_p(comparison.welch)}, corrected {shown_p(comparison.welch_holm)}"
        f"; Fisher p {equals_p(comparison.fisher)}"
        f"; P({first.label} {ahead}) = {comparison.improvement}"
    )


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


ANSWERS = ("supported", "contradicted", "undecided", TOO_FEW)


class Answer(NamedTuple):
    """A question of the study with what the runs say: a comparison, or why there is none."""

    question: Mapping[str, str]
    missing: str
    comparison: Comparison | None

    @property
    def round(self) -> str:
        """When the question was asked, if not at first."""
        return self.question.get("round", "")

    @property
    def verdict(self) -> str:
        """Whether the first arm is better, as the question claims."""
        if self.comparison is None or self.comparison.welch_holm is None:
            return TOO_FEW
        if self.comparison.welch_holm >= SIGNIFICANT:
            return "undecided"
        return "supported" if self.comparison.direction > 0 else "contradicted"

    @property
    def sentence(self) -> str:
        """The claim and all numbers in words."""
        claim, env = self.question["claim"].removesuffix("."), env_name(self.question["env"])
        numbers = comparison_text(self.comparison) if self.comparison else self.missing
        return f"{claim[:1].upper()}{claim[1:]} ({env}): {numbers}."


def answer(
    questions: Sequence[Mapping[str, str]], arms: Arms, bootstrap: Bootstrap
) -> list[Answer]:
    """Answer the study's questions; p-values are corrected over all of one round.

    A round is a set of questions that were asked at one time: later ones must not change the
    answers to earlier ones.
    """
    answers = []
    for question in questions:
        own = arms.get(question["env"], {})
        labels = question["better"], question["worse"]
        counts = {label: own[label].count if label in own else 0 for label in labels}
        few = [f"{label} has {count}" for label, count in counts.items() if count < MIN_RUNS]
        if few:
            missing = f"{' and '.join(few)} of the {MIN_RUNS} runs that a test needs"
            answers.append(Answer(question, missing, None))
        else:
            better, worse = (own[label] for label in labels)
            comparison = compare(better, worse, bootstrap, question["metric"])
            answers.append(Answer(question, "", comparison))
    for asked in {answer.round for answer in answers}:
        adjust([a.comparison for a in answers if a.comparison and a.round == asked])
    return answers
