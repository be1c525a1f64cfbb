from __future__ import annotations

import base64
import re

import pytest
from analysis.report import gap_blocks
from run_dirs import ENV, computed, files_of, write_run, write_study
from train_scripts import load_script


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    write_study(root / "runs")
    flags = ["--out", str(root / "out"), "--reps", "200"]
    assert load_script("analyze").main([str(root / "runs"), *flags]) == 0
    return files_of(root / "out")


def test_missing_and_unfinished_runs_are_named_and_left_out(ppo_rnd, tmp_path):
    sweep = load_script("sweep")
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
    _, paragraph, table = gap_blocks(analysis.compact.expected)
    assert paragraph.text.startswith(
        "Of 12 runs: 6 finished, 1 no return, 2 unfinished, 3 missing."
    )
    assert table.rows == [
        [ENV, "raw", "5/6", "", "6"],
        [
            *(ENV, "GRM(2)", "1/6"),
            "grm__delay=2__seed2 (SIGTERM), "
            "grm__delay=2__seed3 (no episode ended in the last 10 iterations), "
            "grm__delay=2__seed4 (no status)",
            "5–6",
        ],
    ]


def test_report_begins_with_verdicts_and_says_how_it_was_made(report, tmp_path_factory):
    text = report["report.md"].decode()
    headings = [line for line in text.splitlines() if line.startswith(("# ", "## "))]
    assert headings == [
        "# Results of the study, tier t",
        "## Questions of the study",
        "## Agreement with the paper",
        "## Missing and unfinished runs",
        "## adops/KeyDoor-v0",
        f"## {ENV}",
        "## How this was made",
    ]
    assert "**H1 supported:**" in text
    assert f"{ENV}, GRM-norm(1) below raw (paper: p = .009):" in text
    assert "| adops/KeyDoorTV-v0 | PIES | 0/1 |  | 1 |" in text
    assert "| ADOPS | 5 | 5/5 | 0.92 ± 0.037 | 0.9 | 0.8 to 1 |" in text
    assert "from 17 finished runs" in text
    assert "200 bootstrap resamples of the runs, seed 0" in text
    assert str(tmp_path_factory.getbasetemp()) not in text
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert len(pictures) == 7
    assert set(pictures) < set(report)


def test_page_escapes_names_and_carries_its_pictures(report):
    page = report["report.html"].decode()
    assert "<img src=x" not in page
    assert "<script" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;|`*[a](b)" in page
    assert "ADOPS &lt; raw &amp; &lt;script&gt;alert(2)&lt;/script&gt;." in page
    sources = re.findall(r'(?:src|href)="(.*?)"', page)
    assert all(source.startswith("data:") for source in sources)
    pictures = [s.removeprefix("data:image/png;base64,") for s in sources if "png" in s]
    drawn = {content for name, content in report.items() if name.endswith(".png")}
    assert {base64.b64decode(picture) for picture in pictures} == drawn
    markdown = report["report.md"].decode()
    assert r"&lt;img src=x onerror=alert(1)&gt;\|\`\*\[a\](b)" in markdown
    assert "<" not in markdown


def test_html_and_markdown_hold_the_same_tables(report):
    page, text = report["report.html"].decode(), report["report.md"].decode()
    rows = [re.findall(r"<t[hd]>(.*?)</t[hd]>", line) for line in page.splitlines()]
    in_page = [row for row in rows if row]
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    in_text = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    unescaped = [[re.sub(r"\\(.)", r"\1", cell).strip() for cell in row] for row in in_text]
    assert unescaped == in_page
    assert len(in_page) > 20
