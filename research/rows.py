"""Small tables as CSV files, written whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from adops_wrappers._files import write_atomically

Row = dict[str, str]


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def csv_bytes(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows, whose columns are those of the first one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(rows[0])
    write_atomically(path, csv_bytes(columns, ([row[name] for name in columns] for row in rows)))
