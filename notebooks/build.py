"""Keeps the notebooks in sync with their scripts, and runs them without a browser.

    python notebooks/build.py sync         # write each .ipynb from its .py
    python notebooks/build.py run          # run all in full, as a reader would
    python notebooks/build.py run 03 --short --keep out/

Edit and review the .py files (jupytext's percent format). The .ipynb files hold the same cells
without outputs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jupytext
import nbformat

HERE = Path(__file__).parent
SHORT = "ADOPS_NOTEBOOKS_SHORT"
"""Set to 1, it makes the notebooks run in seconds."""


def scripts() -> list[Path]:
    """Return the notebooks' scripts in order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def notebook_of(script: Path) -> Any:
    """Return the clean notebook of a script; the same script always gives the same notebook."""
    notebook = jupytext.read(script, fmt="py:percent")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
        cell["metadata"] = {}
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    notebook["metadata"] = {
        "jupytext": {"formats": "ipynb,py:percent"},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    return notebook


def text_of(script: Path) -> str:
    """Return the .ipynb file's content."""
    return nbformat.writes(notebook_of(script)) + "\n"


def sync() -> None:
    """Write every .ipynb."""
    for script in scripts():
        script.with_suffix(".ipynb").write_text(text_of(script), encoding="utf-8")


def run(path: Path, *, short: bool, folder: Path | None = None) -> Any:
    """Run one .ipynb in a fresh kernel and an empty directory; return it with its outputs."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    search = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "PYTHONPATH": search, SHORT: "1" if short else "0"}
    with tempfile.TemporaryDirectory() as working_directory:
        client = NotebookClient(
            notebook,
            timeout=3600,
            kernel_name="python3",
            resources={"metadata": {"path": working_directory}},
        )
        client.execute(env=variables)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, folder / path.name)
    return notebook


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("sync", help="write each .ipynb from its .py")
    runner = commands.add_parser("run", help="run notebooks without a browser")
    runner.add_argument("numbers", nargs="*", help="such as 01 03; all by default")
    runner.add_argument("--short", action="store_true", help="in the tests' short mode")
    runner.add_argument("--keep", type=Path, help="directory for the notebooks with outputs")
    given = parser.parse_args()
    if given.command == "sync":
        sync()
        return
    for script in scripts():
        if given.numbers and script.name[:2] not in given.numbers:
            continue
        started = time.perf_counter()
        run(script.with_suffix(".ipynb"), short=given.short, folder=given.keep)
        print(f"{script.stem}: {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
