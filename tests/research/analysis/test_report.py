from __future__ import annotations

import base64
import html
import re
from importlib import import_module

import pytest

from research.analysis.page import heading, markdown_text, table
from research.analysis.report import gap_blocks, paper_blocks, progress_text
from research.analysis.verdicts import Verdict
from tests.research.run_dirs import ENV, computed, files_of, write_run, write_study


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    write_study(root / "runs")
    flags = ["--out", str(root / "out"), "--reps", "200"]
    assert import_module("research.analyze").main([str(root / "runs"), *flags]) == 0
    return files_of(root / "out")


def test_missing_and_unfinished_runs_are_named_and_left_out(ppo_rnd, tmp_path):
    sweep = import_module("research.sweep")
    settings = {"env_id": ENV, "bonus": "count", "total_iterations": "12"}
    cells = sweep.expand(["none", "grm"], range(1, 7), settings, {"delay": ["2"]})
    sweep.write_cells(sweep.check(cells, tmp_path))
    for cell in cells[:5]:
        write_run(tmp_path / cell.name, [0.5] * 12, seed=cell.seed)
    partial = tmp_path / "grm__delay=2__seed2"
    write_run(
        *(partial, [9.0] * 4),
        **{"seed": 2, "shaping": "grm", "delay": 2, "finished": False, "reason": "SIGTERM"},
    )
    (partial / "metrics.csv").write_text("iteration,global_")  # torn by a crash
    broken = {"seed": 3, "shaping": "grm", "delay": 2}
    write_run(tmp_path / "grm__delay=2__seed3", [None] * 12, **broken)
    write_run(tmp_path / "grm__delay=2__seed4", [0.0] * 12, **{**broken, "seed": 4})
    (tmp_path / "grm__delay=2__seed4" / "status.json").unlink()
    write_run(tmp_path / "grm__delay=2__seed1", [0.1] * 12, **{**broken, "seed": 1})
    analysis = computed(tmp_path)
    arms = analysis.arms[ENV]
    assert {label: list(arm.finals) for label, arm in arms.items()} == {
        "raw": [0.5] * 5,
        "GRM(2)": [0.1],
    }
    assert progress_text(analysis.compact.expected).startswith(
        "Of 12 runs: 6 finished, 1 no return, 2 unfinished, 3 missing."
    )
    _, gaps = gap_blocks(analysis.compact.expected)
    assert gaps.splitlines()[2:] == [
        "| KeyDoorTV | raw | 5/6 |  | 6 |",
        "| KeyDoorTV | GRM(2) | 1/6 | 2 (SIGTERM), 3 (no episode ended in the last 10 iterations), "
        "4 (no status) | 5–6 |",
    ]


def test_arms_that_lack_the_same_share_a_row_and_complete_sets_have_none():
    def row(arm, seed, state):
        return {"env": ENV, "arm": arm, "seed": str(seed), "state": state, "reason": ""}

    expected = [row(arm, seed, "missing") for arm in ("raw", "PIES") for seed in (1, 2)]
    _, gaps = gap_blocks([*expected, row("ADOPS", 1, "finished")])
    assert gaps.splitlines()[2:] == ["| KeyDoorTV | raw, PIES | 0/2 |  | 1–2 |"]
    finished = [row("ADOPS", seed, "finished") for seed in (1, 2)]
    assert gap_blocks(finished) == []
    assert progress_text(finished) == "All 2 runs finished."


def test_paper_is_a_table_of_claims_by_env_for_each_bonus():
    def verdict(name, env, bonus, claim, p="", short="1/5 vs 0/5, p = 1"):
        return Verdict(name, env, bonus, claim, p, "", short)

    _, paragraph, *tables = paper_blocks(
        [
            verdict("undecided", "adops/KeyDoor-v0", "count", "GRM(1) below raw", "0.031"),
            verdict("contradicts", "adops/KeyDoor-v0", "count", "PBIM solves nothing", short="1/5"),
            verdict("undecided", ENV, "count", "GRM(1) below raw", "0.031"),
            verdict("agrees", ENV, "rnd", "PBIM solves nothing", short="0/5"),
        ]
    )
    assert paragraph.startswith(
        "Of 4 comparisons at scale 1, 1 agrees with the paper, 1 contradicts it, 2 are undecided."
    )
    assert tables == [
        heading(3, "Bonus: count"),
        table(
            ("claim of the paper", "its p", "KeyDoor", "KeyDoorTV"),
            [
                ["GRM(1) below raw", "0.031", *["undecided (1/5 vs 0/5, p = 1)"] * 2],
                ["PBIM solves nothing", "", "contradicts (1/5)", "–"],
            ],
        ),
        heading(3, "Bonus: RND"),
        table(
            ("claim of the paper", "its p", "KeyDoorTV"),
            [["PBIM solves nothing", "", "agrees (0/5)"]],
        ),
    ]


def test_report_begins_with_verdicts_and_says_how_it_was_made(report, tmp_path_factory):
    text = report["report.md"].decode()
    headings = [line for line in text.splitlines() if line.startswith(("# ", "## "))]
    assert headings == [
        "# Results of the study, tier t",
        "## Questions of the study",
        "## Agreement with the paper",
        "## KeyDoor",
        "## KeyDoorTV",
        "## Missing and unfinished runs",
        "## How this was made",
    ]
    assert "\nSupported: H1.\n\n- **H1, supported.** ADOPS < raw & " in text
    assert "| GRM-norm(1) below raw | 0.009 | undecided (1/4 vs 0/5, p = " in text
    assert "| KeyDoorTV | PIES | 0/1 |  | 1 |" in text
    assert "| ADOPS | 5/5 | 0.92 ± 0.04 |" in text
    assert "adops/" not in text
    assert "from 17 finished runs" in text
    assert "200 bootstrap resamples of the runs, seed 0" in text
    assert str(tmp_path_factory.getbasetemp()) not in text
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert len(pictures) == 8
    assert set(pictures) < set(report)


def test_page_escapes_names_and_carries_its_pictures(report):
    page = report["report.html"].decode()
    assert "<img src=x" not in page
    assert "<script" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;|`*[a](b)" in page
    assert "ADOPS &lt; raw &amp; &lt;script&gt;alert(2)&lt;/script&gt; (KeyDoorTV): " in page
    sources = re.findall(r'(?:src|href)="(.*?)"', page)
    assert all(source.startswith("data:") for source in sources)
    pictures = [s.removeprefix("data:image/png;base64,") for s in sources if "png" in s]
    drawn = {content for name, content in report.items() if name.endswith(".png")}
    assert {base64.b64decode(picture) for picture in pictures} == drawn
    markdown = report["report.md"].decode()
    assert r"&lt;img src=x onerror=alert(1)>\|\`\*[a\](b)" in markdown
    assert "ADOPS < raw & &lt;script>alert(2)&lt;/script> (KeyDoorTV)" in markdown
    assert not re.search(r"<[a-zA-Z/!?]", markdown)
    assert markdown_text("p < 0.05 & 1 > 0, [0, 1]") == "p < 0.05 & 1 > 0, [0, 1]"
    assert markdown_text("&lt;b>") == "&amp;lt;b>"


def test_html_and_markdown_hold_the_same_tables(report):
    page, text = report["report.html"].decode(), report["report.md"].decode()
    rows = re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
    in_page = [
        list(map(html.unescape, re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row))) for row in rows
    ]
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    in_text = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    unescaped = [
        [html.unescape(re.sub(r"\\(.)", r"\1", cell)).strip() for cell in row] for row in in_text
    ]
    assert unescaped == in_page
    assert len(in_page) > 20
