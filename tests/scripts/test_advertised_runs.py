from __future__ import annotations

import json
import math
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")

from scripts import advertised_runs
from scripts.advertised_runs import Job, Promise, commands_in, find_jobs

PAGE = """
```bash
# About a minute:
python train/ppo_rnd.py --shaping adops \\
    --total-iterations 3

python train/demo.py        # three minutes
python -m research.study --tier smoke
python -m research.analyze runs/study
python train/evaluate.py runs/NAME
for method in none pbim; do
    python train/ppo_rnd.py --shaping $method \\
        --total-iterations 5
done
```

`python train/demo.py --iterations 4`, or `python train/ppo_rnd_pies.py
--total-iterations 2`, writes into `runs`.

A first run:
    python SCRIPT --env-id CartPole-v1
        --num-envs 3
"""


def test_commands_are_read_from_pages_and_help_texts():
    assert [" ".join(command.split()) for command in commands_in(PAGE)] == [
        "python train/ppo_rnd.py --shaping adops --total-iterations 3",
        "python train/demo.py",
        "python -m research.study --tier smoke",
        "python train/ppo_rnd.py --shaping none --total-iterations 5",
        "python train/ppo_rnd.py --shaping pbim --total-iterations 5",
        "python train/demo.py --iterations 4",
        "python train/ppo_rnd_pies.py --total-iterations 2",
        "python train/ppo_rnd.py --env-id CartPole-v1 --num-envs 3",
    ]


def test_every_promise_is_kept_for_one_command_of_the_pages():
    kept = Counter(promise for job in find_jobs() for promise in [job.promise] if promise)
    assert kept == Counter(advertised_runs.PROMISES)


def test_every_command_is_known_to_its_script():
    jobs = find_jobs()
    assert len(jobs) > 30
    for job in jobs:
        _, script, *flags = job.argv(3, 5)
        if script == "-m":
            assert find_spec(flags[0]), flags[0]
        else:
            assert Path(script).is_file()
        assert ("--seed 3" in " ".join(flags)) == ("{seed}" in job.added)


def test_the_commands_of_notebooks_are_those_that_they_run():
    root, known = advertised_runs.ROOT, advertised_runs.NOTEBOOKS
    pages = (root / "notebooks").glob("[0-9]*.py")
    trains = {str(page.relative_to(root)) for page in pages if "train/ppo_rnd" in page.read_text()}
    assert trains == known.keys()
    for page, command in known.items():
        words = set(re.findall(r"[\w./-]+", (root / page).read_text()))
        assert set(command.split()[1:]) <= words
        assert not Job(command, [page]).long


def result(final, **changes):
    return {"code": 0, "seconds": 9, "done": 4, "finals": {"": [final]}, **changes}


@pytest.mark.parametrize(
    ("results", "end"),
    [
        ([result(0.95), result(0.5), result(0.9)], "| 0.8 | 3 | 0.50 | 0.90 | 9 s | **broken"),
        ([result(0.95), result(0.85)], "| 0.8 | 2 | 0.85 | 0.90 | 9 s |  |"),
        ([result(0.95, code=1)], "exit code 1 |"),
        ([result(math.nan)], "**broken promise** |"),
    ],
)
def test_the_table_holds_the_worst_seed_to_the_promise(monkeypatch, results, end):
    monkeypatch.setattr(advertised_runs, "PROMISES", (Promise("ppo_rnd.py --env-id X", 0.8),))
    job = Job("python train/ppo_rnd.py --env-id X", ["page.md"])
    assert end in advertised_runs.row(job, results)


def test_a_run_ends_where_its_last_tenth_does(tmp_path):
    (tmp_path / "metrics.csv").write_text(
        "iteration,charts/episodic_return\r\n" + "".join(f"{i},{i}\r\n" for i in range(1, 21)),
        newline="",
    )
    assert advertised_runs.finals(tmp_path, "") == {"": [19.5]}
    log = "5 steps  extrinsic return 0.250\n9 steps  extrinsic return 0.750\n"
    assert advertised_runs.finals(tmp_path / "none", log) == {"": [0.75]}


def test_what_has_been_run_is_not_run_again(tmp_path, monkeypatch):
    job = Job("python train/ppo_rnd.py --env-id X", ["page.md"])
    (tmp_path / "2.json").write_text(json.dumps(result(1.0)))
    monkeypatch.setattr(advertised_runs.subprocess, "Popen", None)
    advertised_runs.run(job, 2, 5, tmp_path, 1.0)


ANSWERS_LATE = """
import pathlib, signal, sys, time
def stop(*_):
    pathlib.Path("stopped").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
out = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
out.mkdir()
(out / "config.json").write_text('{"args": {"total_iterations": 100}}')
rows = "".join(f"{i},0.5\\r\\n" for i in range(1, LOGGED + 1))
(out / "metrics.csv").write_text("iteration,charts/episodic_return\\r\\n" + rows, newline="")
time.sleep(SECONDS)
"""


@pytest.mark.parametrize(
    ("env", "logged", "seconds", "longest", "stopped"),
    [
        ("ALE/KungFuMaster-v5", 1, 60, 2.0, True),
        ("ALE/KungFuMaster-v5", 5, 60, 1e9, True),
        ("X-v0", 5, 3, 1.0, False),
    ],
    ids=["long, over its time", "long, five per cent", "short"],
)
def test_only_long_commands_are_cut_off(
    tmp_path, monkeypatch, env, logged, seconds, longest, stopped
):
    script = tmp_path / "train" / "ppo_rnd.py"
    script.parent.mkdir()
    script.write_text(ANSWERS_LATE.replace("LOGGED", str(logged)).replace("SECONDS", str(seconds)))
    monkeypatch.setattr(advertised_runs, "ROOT", tmp_path)
    job = Job(f"python train/ppo_rnd.py --env-id {env}", ["page.md"])
    advertised_runs.run(job, 1, 5, tmp_path / "out", longest)
    assert (tmp_path / "out" / "stopped").exists() == stopped
    said = json.loads((tmp_path / "out" / "1.json").read_text())
    assert (said["code"], said["done"], said["finals"]) == (0, logged, {"": [0.5]})


@pytest.mark.parametrize(
    ("flags", "seeds"),
    [
        ([], {"long": [1, 2, 3, 4, 5], "short": [1, 2, 3, 4, 5], "sweep": [1]}),
        (["--seeds", "2"], {"long": [1, 2], "short": [1, 2], "sweep": [1]}),
        (["--long-seeds", "1"], {"long": [1], "short": [1, 2, 3, 4, 5], "sweep": [1]}),
    ],
)
def test_the_long_commands_can_have_fewer_seeds_and_another_limit(
    tmp_path, monkeypatch, flags, seeds
):
    jobs = {
        "long": Job("python train/ppo_rnd.py", ["page.md"]),
        "short": Job("python train/ppo_rnd.py --env-id X", ["page.md"]),
        "sweep": Job("python -m research.study --tier laptop", ["page.md"]),
    }
    monkeypatch.setattr(advertised_runs, "find_jobs", lambda: list(jobs.values()))
    called = []
    monkeypatch.setattr(advertised_runs, "run", lambda *call: called.append(call))
    line = ["advertised_runs.py", "--out", str(tmp_path), "--longest", "7", *flags]
    monkeypatch.setattr(advertised_runs.sys, "argv", line)
    assert advertised_runs.main() == 0
    assert {n: [c[1] for c in called if c[0] == job] for n, job in jobs.items()} == seeds
    assert {call[-1] for call in called} == {7.0}


def test_a_run_below_the_folder_of_its_seed_is_found(tmp_path):
    run = tmp_path / "1" / "seed1"
    run.mkdir(parents=True)
    (run / "config.json").write_text('{"args": {"total_iterations": 1500}}')
    rows = "iteration,charts/episodic_return\r\n1,2.0\r\n"
    (run / "metrics.csv").write_text(rows, newline="")
    out = tmp_path / "1"
    assert advertised_runs.total_of(out) == 1500
    assert advertised_runs.iterations_done(out) == 1
    assert advertised_runs.finals(out, "") == {"": [2.0]}


def test_a_command_that_has_not_ended_is_not_in_the_table(tmp_path):
    begun, done = (Job(f"python train/demo.py --iterations {n}", ["page.md"]) for n in (1, 2))
    for job in (begun, done):
        (tmp_path / job.folder).mkdir()
        (tmp_path / job.folder / "sweep.json").write_text("{}")
    (tmp_path / done.folder / "1.json").write_text(json.dumps(result(1.0)))
    _, _, *lines = advertised_runs.rows(tmp_path, [begun, done])
    assert [done.command in line for line in lines] == [True]
