from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from adops_wrappers._files import write_json
from adops_wrappers.inspect.diagnosis import diagnose_run, summarize_run
from adops_wrappers.inspect.runs import Run


def make_run(folder: Path, shaping: str = "adops", **columns: object) -> Run:
    names = {name: name.replace("__", "/") for name in columns}
    table = {names[name]: np.atleast_1d(values) for name, values in columns.items()}
    length = max(len(values) for values in table.values())
    full = {"iteration": np.arange(1, length + 1), "global_step": 10 * np.arange(1, length + 1)}
    full.update({name: np.broadcast_to(values, length) for name, values in table.items()})
    rows = [",".join(full)]
    for i in range(length):
        rows.append(",".join("" if np.isnan(v[i]) else str(v[i].item()) for v in full.values()))
    (folder / "metrics.csv").write_bytes("".join(f"{row}\r\n" for row in rows).encode())
    config = {"method": "ADOPS (…)", "args": {"env_id": "Maze-v0", "shaping": shaping}}
    (folder / "config.json").write_text(json.dumps(config))
    return Run(folder)


def titles(run: Run) -> dict[str, str]:
    return {finding.title: finding.kind for finding in diagnose_run(run)}


EV = "losses__explained_variance_ext"


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


def test_ratchet_is_a_faded_bonus_that_shaping_keeps_up(tmp_path: Path) -> None:
    raw, kept = np.linspace(1.0, 0.1, 50), np.linspace(1.0, 0.95, 50)
    common = {EV: 0.5, "shaping__raw_mean": raw}
    found = titles(make_run(tmp_path, shaping__shaped_mean=kept, **common))
    assert found == {"V_I is ratcheting": "warning"}
    assert titles(make_run(tmp_path, shaping__shaped_mean=raw, **common)) == {}
    assert titles(make_run(tmp_path, "grm", shaping__shaped_mean=kept, **common)) == {}


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


def test_directories_without_metrics_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no metrics\.csv"):
        Run(tmp_path)
    (tmp_path / "metrics.csv").write_bytes(b"iteration,x\r\n")
    with pytest.raises(ValueError, match="no complete iteration"):
        Run(tmp_path)
    (tmp_path / "metrics.csv").write_bytes(b"iteration,x\r\n2,0.5\r\n")
    with pytest.raises(ValueError, match="Rows are lost"):
        Run(tmp_path)
    (tmp_path / "metrics.csv").write_bytes(b"iteration,x\r\n1,0.5\r\n2,0.")
    run = Run(tmp_path)
    assert run.x.tolist() == [1.0]
    assert run.title == tmp_path.name


@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_damaged_settings_label_no_page(tmp_path: Path, damage: str) -> None:
    (tmp_path / "metrics.csv").write_bytes(b"iteration,x\r\n1,0.5\r\n")
    config = tmp_path / "config.json"
    write_json(config, {"method": "ADOPS", "args": {"env_id": "Maze-v0"}})
    assert Run(tmp_path).title == "Maze-v0: ADOPS"
    text = config.read_text()
    config.write_text(text[:-9] if damage == "cut off" else text.replace("Maze", "Made"))
    with pytest.raises(ValueError, match=r"config\.json .*Restore it, or delete it"):
        Run(tmp_path)


@pytest.mark.parametrize(("value_int", "told"), [(22.5, True), (2.9, False)])
def test_a_bonus_that_swamps_the_task_is_told(tmp_path: Path, value_int: float, told: bool) -> None:
    early = np.zeros(18)  # only the last tenth counts
    run = make_run(
        tmp_path,
        charts__value_int=np.r_[early, value_int, value_int],
        charts__value_ext=np.r_[early, 0.75, 0.75],
    )
    found = {finding.title: finding.text for finding in diagnose_run(run)}
    assert ("The bonus is large" in found) == told
    if told:
        assert "V_I has a size of 22.5 beside 0.75 of V_E" in found["The bonus is large"]
