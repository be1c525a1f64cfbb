from __future__ import annotations

from adops_wrappers.inspect.runs import Metrics
from adops_wrappers.training.progress import Watch
from tests.inspect.test_run_diagnosis import FELL, course


def rows(*returns):
    run = course(returns)
    columns = ("iteration", "charts/episodes", "charts/episodic_return")
    columns = (*columns, "charts/episodic_return_recent")
    return [{name: run[name][i] for name in columns} for i in range(len(run))]


UNLEARNED = rows(*[0.0] * 10, *[0.9] * 10, *[0.0] * 20)


def watch(done=(), total=40):
    metrics, said = Metrics({}), []
    for row in done:
        metrics.append(row)
    return Watch(metrics, total, said.append), said


def test_a_warning_is_said_once_when_it_first_holds():
    watched, said = watch()
    for row in UNLEARNED:
        before = len(said)
        watched.add(row)
        assert len(said) - before == (row["iteration"] == 25)
    assert said[0].startswith(f"Iteration 25: warning: {FELL}. The mean return of the last 100")
    assert "was 0.9 at iteration 11, and is 0 now" in said[0]


def test_a_resumed_run_says_what_holds_once_more_and_knows_what_was_before():
    watched, said = watch(UNLEARNED[:30])
    for row in UNLEARNED[30:]:
        watched.add(row)
    assert [line.partition(".")[0] for line in said] == [f"Iteration 31: warning: {FELL}"]
    assert "was 0.9 at iteration 11" in said[0]


def test_a_long_run_is_looked_at_a_hundred_times():
    watched, said = watch(total=1000)
    for row in UNLEARNED:
        watched.add(row)
    assert [line.partition(".")[0] for line in said] == [f"Iteration 30: warning: {FELL}"]


def test_the_end_says_what_was_reached_and_every_warning_that_holds():
    watched, said = watch()
    for row in UNLEARNED:
        watched.add(row)
    del said[:]
    watched.summarize()
    assert said[-3].endswith("is 0 at the end; the best was 0.9, at iteration 11.")
    assert said[-2].startswith(f"Warning: {FELL}.")
    assert "docs/troubleshooting.md" in said[-1]


def test_a_warning_that_no_longer_holds_is_not_in_the_summary():
    watched, said = watch()
    for row in rows(*[0.0] * 10, *[0.9] * 10, *[0.0] * 8, *[0.9] * 12):
        watched.add(row)
    assert len(said) == 1
    watched.summarize()
    assert not any(line.startswith("Warning") for line in said)
    assert not any("looks" in line for line in said)


def test_a_run_that_stopped_before_its_first_iteration_has_no_summary():
    watched, said = watch()
    watched.summarize()
    assert said == []
