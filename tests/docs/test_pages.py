"""Every Python block of the pages runs; those with a copy button run by themselves."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs._blocks import FENCE, missing, stands_alone, without_copy_button

torch = pytest.importorskip("torch")
for _needed in ("stable_baselines3", "minigrid", "envpool"):
    pytest.importorskip(_needed)

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if not path.name.startswith("_") and re.search(r"(?<!-->\n)```python", path.read_text())
)


def python_blocks(page: Path) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the blocks of a page that are run, each with the output that the page shows below."""
    text = page.read_text(encoding="utf-8")
    for block in FENCE.finditer(text):
        if block["language"] == "python" and "not run" not in (block["mark"] or ""):
            below = re.match(
                r"\n*```text\n(.*?)^```", text[block.end() :], re.DOTALL | re.MULTILINE
            )
            yield block, below[1] if below else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
def test_blocks_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch.set_num_threads(1)
    names: dict[str, Any] = {}
    ran = 0
    for block, shown in python_blocks(page):
        code, ran = block["code"], ran + 1
        line = block.string[: block.start("code")].count("\n")
        alone = stands_alone(block)
        if alone:  # nothing from the blocks before it, neither names nor files
            (tmp_path / str(ran)).mkdir()
            monkeypatch.chdir(tmp_path / str(ran))
        namespace = {"__name__": "__docs__"} if alone else names
        if ">>>" in code:
            test = doctest.DocTestParser().get_doctest(code, namespace, page.name, str(page), line)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(test, clear_globs=False)
            names |= test.globs
            assert runner.failures == 0
            continue
        capsys.readouterr()
        # As many empty lines as stand before it: a traceback names the page's own line.
        exec(compile("\n" * line + code, str(page), "exec"), namespace)
        names |= namespace
        if shown:
            assert capsys.readouterr().out == shown
    assert ran > 0


def test_blocks_that_do_not_run_by_themselves_have_no_copy_button() -> None:
    whole, part = "```python\nx = len('a')\n```\n", "```python\nprint(x)\n```\n"
    shown = without_copy_button(f"{whole}\n{part}\n<!-- continues -->\n{whole}")
    assert shown.startswith(whole)
    assert shown.count(".no-copy") == 2
    assert ".no-copy" in without_copy_button("```bash\npython a.py runs/NAME\n```\n")
    assert ".no-copy" not in without_copy_button("```bash\nmake demo\n```\n")
    assert missing("def f(a):\n    return [a + b + len(c) for c in a]\n") == {"b"}
    pages = ("cheat_sheet.md", "troubleshooting.md")
    blocks = [b for page in pages for b, _ in python_blocks(ROOT / "docs" / page)]
    assert len(blocks) >= 9
    assert all(map(stands_alone, blocks))


def test_printed_results_are_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`print(x)  # [result]` on the method pages prints that result."""
    checked = 0
    for page in sorted((ROOT / "docs" / "methods").glob("*.md")):
        namespace: dict[str, Any] = {}
        for block, _ in python_blocks(page):
            code = block["code"]
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
