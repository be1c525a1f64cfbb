"""Tables of several runs: what they take from a run directory, and what they write."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from research.rows import write_rows

DATA = Path(__file__).parents[3] / "docs" / "data"


def write_run(folder: Path, method: str, rows: list[str]) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"args": {"shaping": method}}))
    lines = ["iteration,global_step,charts/episodes,charts/return,losses/entropy", *rows]
    (folder / "metrics.csv").write_bytes("".join(f"{line}\r\n" for line in lines).encode())
    return str(folder)


def test_chosen_columns_of_runs_with_their_method(tmp_path: Path) -> None:
    tables = import_module("research.figures.run_tables")
    runs = [
        write_run(tmp_path / "a", "none", ["1,10240000,0,,2.5", "2,20480000,3,-1.23456789,2.4"]),
        write_run(tmp_path / "b", "adops", ["1,10240000,1,7.0,2.5"]),
    ]
    columns = ("global_step", "charts/episodes", "charts/return")
    rows = tables.chosen_rows(runs, columns)
    names = ("method", "iteration", *columns)
    expected = [
        ("none", "1", "10240000", "0", ""),
        ("none", "2", "20480000", "3", "-1.23457"),
        ("adops", "1", "10240000", "1", "7"),
    ]
    assert rows == [dict(zip(names, row, strict=True)) for row in expected]
    assert tables.rows_by_method(rows) == {"none": rows[:2], "adops": rows[2:]}
    write_rows(tmp_path / "new" / "table.csv", rows)
    assert tables.chosen_rows([str(tmp_path / "new" / "table.csv")], columns) == rows


def test_two_runs_of_one_method_are_refused(tmp_path: Path) -> None:
    tables = import_module("research.figures.run_tables")
    first, second = (write_run(tmp_path / name, "none", ["1,8,0,,2.5"]) for name in "ab")
    with pytest.raises(SystemExit, match=r"a and .*b are both runs of none. Give one run of each"):
        tables.chosen_rows([first, second], ("global_step",))


def test_a_table_is_written_as_it_was_read(tmp_path: Path) -> None:
    tables = import_module("research.figures.run_tables")
    committed, again = DATA / "montezuma_action_prob.csv", tmp_path / "again.csv"
    write_rows(again, tables.chosen_rows([str(committed)], ()))
    assert again.read_bytes() == committed.read_bytes()
