"""Every Python block of the documentation runs, block after block in one namespace per page."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
for _needed in ("stable_baselines3", "minigrid", "envpool"):
    pytest.importorskip(_needed)

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if not path.name.startswith("_") and re.search(r"(?<!-->\n)```python", path.read_text())
)
BLOCK = re.compile(
    r"(<!-- not run:[^>]*-->\n)?^```python[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    text = page.read_text()
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    ran = 0
    for match in BLOCK.finditer(text):
        not_run, code = match.groups()
        if not_run:
            continue
        line = text[: match.start(2)].count("\n")
        ran += 1
        if ">>>" in code:
            test = doctest.DocTestParser().get_doctest(code, namespace, page.name, str(page), line)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(test, clear_globs=False)
            namespace = test.globs
            assert runner.failures == 0
            continue
        # As many empty lines as stand before it: a traceback names the page's own line.
        exec(compile("\n" * line + code, str(page), "exec"), namespace)
    assert ran > 0


def test_printed_results_are_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`print(x)  # [result]` on the method pages prints that result."""
    checked = 0
    for page in sorted((ROOT / "docs" / "methods").glob("*.md")):
        namespace: dict[str, Any] = {}
        for _, code in BLOCK.findall(page.read_text()):
            wanted = re.findall(r"^print\(.*\)\s+# (\[.*\]|[-\d.]+)$", code, re.MULTILINE)
            capsys.readouterr()
            exec(compile(code, str(page), "exec"), namespace)
            if wanted:
                assert capsys.readouterr().out.split("\n")[: len(wanted)] == wanted, page.name
                checked += len(wanted)
    assert checked >= 6


def test_the_site_has_three_parts_and_every_page_one_place() -> None:
    yaml = pytest.importorskip("yaml")
    [use, research, internals] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert [*use, *research, *internals] == ["Use", "Research", "Internals"]
    placed = re.findall(r"'([\w/]+\.md)'", str([use, research, internals]))
    docs = ROOT / "docs"
    assert sorted(placed) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


def test_pages_show_committed_pictures_and_pages() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text()):
            if page.name.startswith("_"):
                assert (ROOT / target).exists(), f"{page.name} links to {target}"
            else:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
