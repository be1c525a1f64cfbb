from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adops_wrappers.inspect.run_diagnosis import diagnose_run, summarize_run
from adops_wrappers.inspect.runs import Metrics
from tests.inspect.test_runs import make_run

EV = "losses__explained_variance_ext"
CHECKED = "Checked, and unremarkable"
FELL, RANDOM = "The return fell and stayed down", "The policy is as random as at the start"
DISAGREE, OFTEN = "V_E and the returns disagree", "The bonus often fights the task"
UNLEARNED = Path(__file__).with_name("unlearned_run.csv")
"""MiniGrid-DoorKey-5x5 with unscaled advantages, seed 1: solved at iteration 30, lost at 60."""


def titles(run: Metrics) -> dict[str, str]:
    return {f.title: f.kind for f in diagnose_run(run) if f.title != CHECKED}


def text(run: Metrics, title: str) -> str:
    return next(finding.text for finding in diagnose_run(run) if finding.title == title)


def unlearned(iterations: int = 60) -> Metrics:
    metrics = Metrics({"args": {"shaping": "adops"}})
    with UNLEARNED.open() as file:
        for row in list(csv.DictReader(file))[:iterations]:
            metrics.append({name: float(cell) if cell else None for name, cell in row.items()})
    return metrics


def test_a_run_that_unlearned_its_task_is_told_with_what_it_had_reached() -> None:
    run = unlearned()
    found = titles(run)
    assert {found[title] for title in (FELL, RANDOM, DISAGREE)} == {"warning"}
    assert "was 0.897 at iteration 30, and is 0.0272 now" in text(run, FELL)
    assert "from 1.94 to 1.53, and is back at 1.93, that of 6.91 equally" in text(run, RANDOM)
    assert "V_E averages 0.632, but from the same steps" in text(run, DISAGREE)
    assert "earned 0.0144 (discounted). It promises too much" in text(run, DISAGREE)
    summary = " ".join(summarize_run(run))
    assert "is 0.0272 at the end; the best was 0.897, at iteration 30." in summary


def test_the_same_run_is_left_alone_while_it_learns() -> None:
    for iterations in range(1, 47):
        assert "warning" not in titles(unlearned(iterations)).values(), iterations
    assert titles(unlearned(48)) == {DISAGREE: "warning"}


# The return


def course(returns: Any, per_iteration: int = 100, **columns: float) -> Metrics:
    """A run of these mean returns, of so many episodes each."""
    metrics, scores = Metrics({}), np.repeat(np.asarray(returns, float), per_iteration)
    for i, mean in enumerate(returns, 1):
        seen = i * per_iteration
        metrics.append(
            {
                "iteration": i,
                "charts/episodes": seen,
                "charts/episodic_return": mean,
                "charts/episodic_return_recent": scores[max(0, seen - 100) : seen].mean(),
                "losses/explained_variance_ext": 0.5,
                **{name.replace("__", "/"): value for name, value in columns.items()},
            }
        )
    return metrics


def rise_and_fall(start: float, best: float, end: float, stay: int = 5) -> Any:
    way = np.r_[np.linspace(start, best, 30), np.linspace(best, end, 20)[1:]]
    return np.r_[way, np.full(stay, end)]


@pytest.mark.parametrize(
    ("start", "best", "end", "told"),
    [
        (0.0, 1.0, 0.45, True),
        (0.0, 1.0, 0.55, False),
        (-200.0, -100.0, -160.0, True),
        (-200.0, -100.0, -140.0, False),
        (-500.0, 300.0, -110.0, True),
        (0.0, 0.0, 0.0, False),
    ],
)
def test_a_return_that_lost_half_of_its_gain_fell(
    start: float, best: float, end: float, told: bool
) -> None:
    run = course(rise_and_fall(start, best, end))
    assert (FELL in titles(run)) == told
    if not told:
        assert "return (" in text(run, CHECKED)


@pytest.mark.parametrize(("best", "end"), [(0.6, 0.2), (-100.0, -160.0)])
def test_a_return_that_was_best_at_the_start_falls_below_half_of_it(
    best: float, end: float
) -> None:
    assert FELL in titles(course(np.r_[np.linspace(best, end, 30), np.full(5, end)]))
    slightly = best - 0.4 * abs(best)
    assert FELL not in titles(course(np.r_[np.linspace(best, slightly, 30), np.full(5, slightly)]))


def test_a_fall_must_last_five_iterations_or_a_tenth_of_the_run() -> None:
    assert FELL not in titles(course(np.r_[np.linspace(0, 1, 40), np.zeros(4)]))
    assert FELL in titles(course(np.r_[np.linspace(0, 1, 40), np.zeros(5)]))
    assert FELL not in titles(course(np.r_[np.linspace(0, 1, 190), np.zeros(20)]))
    assert FELL in titles(course(np.r_[np.linspace(0, 1, 190), np.zeros(22)]))
    assert FELL not in titles(course(np.r_[np.linspace(0, 1, 15), np.zeros(20), np.ones(3)]))


def test_means_of_few_episodes_are_no_best_return() -> None:
    """The episodes that end first are those that succeed, on many tasks."""
    assert FELL not in titles(course(np.r_[1.0, np.zeros(40)], per_iteration=50))
    assert FELL in titles(course(np.r_[np.ones(4), np.zeros(40)], per_iteration=50))


@pytest.mark.parametrize("chance", [0.005, 0.02, 0.1, 0.5])
def test_luck_is_no_fall(chance: float) -> None:
    """Twenty episodes per iteration that succeed by chance, looked at in every tenth iteration."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        returns = rng.binomial(20, chance, 300) / 20
        for end in range(20, 301, 10):
            assert FELL not in titles(course(returns[:end], per_iteration=20))


def test_a_slow_noisy_rise_is_no_fall_but_its_loss_is() -> None:
    rng = np.random.default_rng(1)
    rise = rng.normal(np.linspace(-200, -110, 200), 30.0 / np.sqrt(20))
    for end in range(20, 201, 20):
        assert FELL not in titles(course(rise[:end], per_iteration=20))
    assert FELL in titles(course(np.r_[rise, rng.normal(-195, 7.0, 40)], per_iteration=20))


# Entropy


def test_an_entropy_that_came_down_and_went_back_is_that_of_a_uniform_policy() -> None:
    uniform = float(np.log(7))

    def run(entropies: Any) -> Metrics:
        metrics = Metrics({})
        for i, entropy in enumerate(entropies, 1):
            metrics.append({"iteration": i, "losses/entropy": entropy})
        return metrics

    down, back = np.linspace(uniform, 0.8 * uniform, 20), np.full(5, 0.99 * uniform)
    assert titles(run(np.r_[down, back]))[RANDOM] == "warning"
    assert "that of 6.87 equally probable actions" in text(run(np.r_[down, back]), RANDOM)
    assert RANDOM not in titles(run(np.r_[down, np.full(5, 0.9 * uniform)]))
    assert RANDOM not in titles(run(np.full(25, uniform)))  # never came down
    assert RANDOM not in titles(run(np.r_[np.linspace(uniform, 0.9 * uniform, 20), back]))


# V_E and the returns


@pytest.mark.parametrize(
    ("value", "earned", "endless", "told"),
    [
        (0.65, 0.0, 0.0, "too much"),
        (0.04, 0.0, 0.0, ""),  # as good as 0
        (0.9, 0.6, 0.6, ""),
        (0.2, 0.9, 0.9, "too little"),
        (1000.0, 230.0, 1000.0, ""),  # CartPole: V_E sees no time limit
        (300.0, 230.0, 1000.0, ""),
        (2100.0, 230.0, 1000.0, "too much"),
        (-20.0, -97.0, -1000.0, "too much"),
        (-500.0, -97.0, -1000.0, ""),
    ],
)
def test_v_e_is_compared_with_what_episodes_earn_and_could_go_on_to_earn(
    value: float, earned: float, endless: float, told: str
) -> None:
    columns = {"charts__value_ext": value, "charts__return_to_go": earned}
    run = course(np.ones(20), charts__return_to_go_endless=endless, **columns)
    assert (DISAGREE in titles(run)) == bool(told)
    assert f"It promises {told}" in text(run, DISAGREE) if told else CHECKED


# Conflicts


def conflicts(rate: float, config: Any = None, returns: float = 1.0, **columns: float) -> Metrics:
    more = {"shaping__conflict_rate": rate, "shaping__raw_mean": 0.1, **columns}
    run = course(np.full(30, returns), **more)
    run.config = {"args": config or {"shaping": "none"}}
    return run


def test_a_high_conflict_rate_is_a_warning_where_nothing_corrects_it() -> None:
    assert titles(conflicts(0.37)) == {OFTEN: "warning"}
    assert "turns the sign of A_E at 37 % of steps" in text(conflicts(0.37), OFTEN)
    assert titles(conflicts(0.25)) == {}
    assert "fights the task (25 % of steps)" in text(conflicts(0.25), CHECKED)
    assert titles(conflicts(0.37, {"shaping": "grm"})) == {OFTEN: "warning"}
    assert titles(conflicts(0.37, shaping__raw_mean=0.0)) == {}  # no bonus, no conflict


def test_what_a_clamp_did_about_conflicts_is_said() -> None:
    run = conflicts(0.37, {"shaping": "adops"}, shaping__zeta=1.0)
    assert titles(run) == {OFTEN: "note"}
    assert "The clamp corrects that, with ζ = 1." in text(run, OFTEN)
    assert titles(conflicts(0.6, {"shaping": "adopes"}, shaping__zeta=0.2)) == {OFTEN: "warning"}
    run = conflicts(0.37, shaping__advantage_intervention_rate=0.3)
    assert titles(run) == {OFTEN: "note"}
    assert "set it to 0 in 30 % of the batch" in text(run, OFTEN)


def test_conflicts_of_a_critic_that_never_saw_a_reward_are_a_note() -> None:
    run = conflicts(0.53, returns=0.0)
    assert titles(run) == {"Nothing to learn from yet": "note", OFTEN: "note"}
    assert "A_E is what V_E makes up" in text(run, OFTEN)


# F′, the critic and its values


def test_explosion(tmp_path: Path) -> None:
    run = make_run(tmp_path, shaping__shaped_min=[-1.0, -2e9, -1.0], **{EV: [0.5] * 3})
    assert titles(run) == {"F′ explodes": "warning"}
    assert "2.0·10⁹" in diagnose_run(run)[0].text


def test_critic_without_explained_variance_at_the_end(tmp_path: Path) -> None:
    values = np.r_[np.full(15, 0.9), np.full(5, -0.2)]
    assert titles(make_run(tmp_path, **{EV: values})) == {"The critic explains nothing": "warning"}
    assert titles(make_run(tmp_path, **{EV: values[::-1]})) == {}
    nothing = np.full(5, np.nan)
    assert titles(make_run(tmp_path, **{EV: nothing})) == {"Nothing to learn from yet": "note"}


def test_a_critic_that_is_right_on_average_is_not_blamed_for_a_steady_return() -> None:
    returns = {"charts__return_to_go": 0.9, "charts__return_to_go_endless": 0.9}
    columns = {**returns, EV: -0.5}
    close = course(np.full(30, 0.96), charts__value_ext=0.97, **columns)
    assert titles(close) == {"There is little for the critic to explain": "note"}
    off = course(np.full(30, 0.96), charts__value_ext=0.7, **columns)
    assert titles(off) == {"The critic explains nothing": "warning"}


def test_ratchet_is_a_faded_bonus_that_shaping_keeps_up(tmp_path: Path) -> None:
    raw, kept = np.linspace(1.0, 0.1, 50), np.linspace(1.0, 0.95, 50)
    common = {EV: 0.5, "shaping__raw_mean": raw}
    found = titles(make_run(tmp_path, shaping__shaped_mean=kept, **common))
    assert found == {"V_I is ratcheting": "warning"}
    assert titles(make_run(tmp_path, shaping__shaped_mean=raw, **common)) == {}
    assert titles(make_run(tmp_path, "grm", shaping__shaped_mean=kept, **common)) == {}


@pytest.mark.parametrize(("value_int", "told"), [(22.5, True), (2.9, False)])
def test_a_bonus_that_swamps_the_task_is_told(tmp_path: Path, value_int: float, told: bool) -> None:
    early, late = np.zeros(15), np.ones(5)  # only the last five iterations count
    run = make_run(
        tmp_path,
        charts__value_int=np.r_[early, value_int * late],
        charts__value_ext=np.r_[early, 0.75 * late],
    )
    found = {finding.title: finding.text for finding in diagnose_run(run)}
    assert ("The bonus is large" in found) == told
    if told:
        assert "V_I has a size of 22.5 beside 0.75 of V_E" in found["The bonus is large"]


# What is said otherwise


def test_summary(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        shaping__conflict_rate=np.r_[np.full(10, 0.5), np.full(10, 0.1)],
        shaping__intervention_rate=np.full(20, 0.3),
        charts__episodic_return_recent=np.r_[np.full(18, np.nan), 7.0, np.nan],
    )
    text = " ".join(summarize_run(run))
    assert "Maze-v0: ADOPS (…) has 20 iterations, 200 environment steps" in text
    assert "fought the task at 50 % of steps at the beginning, 10 % at the end" in text
    assert "changed the bonus at 30 % of steps at the beginning, 30 % at the end" in text
    assert "recent episodes is 7 at the end" in text


def test_what_was_checked_is_listed_and_nothing_else_is_claimed() -> None:
    run = course(np.linspace(0, 1, 40), losses__entropy=1.5, charts__value_int=0.5)
    (only,) = diagnose_run(run)
    assert (only.kind, only.title) == ("note", CHECKED)
    assert only.text == (
        "The return (1, 1 at best); the entropy (1.5, 1.5 at most); the explained variance of V_E "
        "(0.5). None of this says that the agent does well at its task."
    )


# The signs of A_E


@pytest.mark.parametrize(
    ("low", "high", "title", "kind"),
    [
        (0.3, 0.45, "The signs of A_E are mostly wrong", "warning"),
        (0.45, 0.55, "The signs of A_E may be chance", "note"),
    ],
)
def test_signs_of_a_e_that_the_returns_do_not_confirm_are_told_with_a_remedy(
    low: float, high: float, title: str, kind: str
) -> None:
    run = course(
        np.linspace(0.0, 1.0, 30),
        critic__agreement=(low + high) / 2,
        critic__low=low,
        critic__high=high,
    )
    assert titles(run)[title] == kind
    assert "--quiet-iterations" in text(run, title)
    assert "ADOPES" in text(run, title)


def test_signs_of_a_e_that_the_returns_confirm_are_among_what_was_checked() -> None:
    run = course(
        np.linspace(0.0, 1.0, 30), critic__agreement=0.7, critic__low=0.6, critic__high=0.8
    )
    assert "they agree at 70 % of steps, 95 % interval 60 % to 80 %" in text(run, CHECKED)
