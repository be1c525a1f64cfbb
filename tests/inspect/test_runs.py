from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from adops_wrappers._files import write_json
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
