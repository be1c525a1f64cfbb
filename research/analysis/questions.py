"""What the runs say about the questions of a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from research.analysis.statistics import (
    MIN_RUNS,
    SIGNIFICANT,
    Arms,
    Bootstrap,
    Comparison,
    adjust,
    compare,
    mean_text,
)
from research.analysis.text import TOO_FEW, env_name, equals_p, shown_p
from research.design import METRICS, Question

ANSWERS = ("supported", "contradicted", "undecided", TOO_FEW)


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


class Answer(NamedTuple):
    """A question with what the runs say: a comparison, or why there is none."""

    question: Question
    missing: str
    comparison: Comparison | None

    @property
    def verdict(self) -> str:
        """Whether the first arm is better, as the question claims."""
        if self.comparison is None or self.comparison.decisive is None:
            return TOO_FEW
        if self.comparison.decisive >= SIGNIFICANT:
            return "undecided"
        return "supported" if self.comparison.direction > 0 else "contradicted"

    @property
    def sentence(self) -> str:
        """The claim and all numbers in words."""
        claim, env = self.question.claim.removesuffix("."), env_name(self.question.env)
        numbers = comparison_text(self.comparison) if self.comparison else self.missing
        return f"{claim[:1].upper()}{claim[1:]} ({env}): {numbers}."


def answer(
    questions: Sequence[Question], arms: Arms, bootstrap: Bootstrap, min_runs: int = MIN_RUNS
) -> list[Answer]:
    """Answer the questions; p-values are corrected over all of one round.

    A round is a set of questions that were asked at one time: later ones must not change the
    answers to earlier ones. Nor must later runs: a question that lacks runs counts as a test.
    """
    answers = []
    for question in questions:
        own = arms.get(question.env, {})
        labels = question.better, question.worse
        counts = {label: own[label].count if label in own else 0 for label in labels}
        few = [f"{label} has {count}" for label, count in counts.items() if count < min_runs]
        if few:
            missing = f"{' and '.join(few)} of the {min_runs} runs that a test needs"
            answers.append(Answer(question, missing, None))
        else:
            better, worse = (own[label] for label in labels)
            comparison = compare(better, worse, bootstrap, question.metric)
            answers.append(Answer(question, "", comparison))
    for asked in {question.round for question in questions}:
        of_round = [answer for answer in answers if answer.question.round == asked]
        adjust([a.comparison for a in of_round if a.comparison], len(of_round))
    return answers
