from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

pytest.importorskip("matplotlib", reason="the report needs the extra 'analysis'")

from matplotlib.image import imread

from adops_wrappers.inspect import ShapingRecorder, diagnosis
from adops_wrappers.inspect.__main__ import main
from adops_wrappers.inspect.recording import Recording
from adops_wrappers.inspect.report import write_report
from tests import toolkit as tk
from tests.inspect import synthetic
from tests.inspect.stacks import run, stack
from tests.inspect.test_runs import make_run

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
VOID = {"meta", "link", "img", "br"}
FIGURES = ["Reward streams", "Sign plane", "All methods on this rollout"]
FIGURES += ["Histogram of corrections", "Film strip of the largest conflicts"]


class Page(HTMLParser):
    """Collects what a page shows and loads, and checks that every tag is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.pictures: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)
        given = dict(attrs)
        self.loads += [given[key] for key in ("src", "href") if key in given]
        if tag == "img":
            self.pictures.append(given["alt"])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "episode.npz"
    mode = AutoresetMode.NEXT_STEP
    rng = np.random.default_rng(0)
    env = ShapingRecorder(
        stack("adops", tk.make_vector("sync", mode, longest=40)),
        path,
        frames=lambda env, obs: rng.integers(0, 255, (3, 24, 16, 3), dtype=np.uint8),
    )
    run(env, mode, steps=150)
    env.close()
    return path


@pytest.fixture(scope="module")
def page(recorded: Path) -> Path:
    return write_report(recorded, recorded.with_name("page.html"))


def test_the_page_is_complete_and_loads_nothing(recorded: Path, page: Path) -> None:
    parsed = Page(page)
    assert parsed.pictures == FIGURES
    assert all(load.startswith("data:") for load in parsed.loads)
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page.read_text(encoding="utf-8"))
    recording = Recording.load(recorded)
    for line in diagnosis.summarize(recording):
        assert line in parsed.text
    for finding in diagnosis.diagnose(recording):
        assert finding.text in parsed.text


def test_a_recording_without_critic_or_pictures(tmp_path: Path) -> None:
    synthetic.make(tmp_path, critic=False, intrinsic=np.ones(20))
    parsed = Page(write_report(tmp_path / "synthetic.npz", tmp_path / "new" / "out.html"))
    assert parsed.pictures == ["Reward streams", FIGURES[2], "Histogram of corrections"]
    assert "No critic was recorded" in parsed.text
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["out.html"]


def test_a_recording_without_conflicts_says_so(tmp_path: Path) -> None:
    synthetic.make(tmp_path, intrinsic=np.ones(5))
    parsed = Page(write_report(tmp_path / "synthetic.npz", tmp_path / "out.html"))
    assert "There is no conflict" in parsed.text
    assert "Checked, and unremarkable" in parsed.text
    assert "how often the bonus fights the task (0 % of steps)" in parsed.text
    assert "Nothing looks broken" not in parsed.text


def test_a_run_directory_with_a_recording(tmp_path: Path) -> None:
    make_run(tmp_path, shaping__conflict_rate=np.linspace(0.5, 0.1, 20))
    parsed = Page(write_report(tmp_path, tmp_path / "out.html"))
    assert parsed.pictures == ["Training curves"]
    assert "fought the task at" in parsed.text
    synthetic.make(tmp_path, {"env": "<Maze> & co"}, intrinsic=np.ones(20))
    parsed = Page(write_report(tmp_path, tmp_path / "out.html"))
    assert parsed.pictures[:2] == ["Training curves", "Reward streams"]
    assert "<Maze> & co" in parsed.text  # escaped, or the parser would have seen a tag


def test_command_line(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    done = subprocess.run(
        [sys.executable, "-m", "adops_wrappers.inspect", recorded, "--out", out],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == str(out)
    assert Page(out).pictures == FIGURES
    options = ["--row", "1", "--episode", "2", "--methods", "grm"]
    assert main([str(recorded), "--out", str(out), *options]) == 0
    capsys.readouterr()
    for arguments, message in (
        ([str(tmp_path / "nothing.npz")], "no recording"),
        ([str(tmp_path)], r"no metrics\.csv"),
        ([str(recorded), "--row", "9"], "no environment 9"),
        ([str(recorded), "--methods", "gmr"], "Did you mean 'grm'"),
    ):
        assert main([*arguments, "--out", str(tmp_path / "bad.html")]) == 1
        assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "bad.html").exists()


PROBE = """<script>addEventListener("load", () => {
  const seen = {
    pictures: [...document.images].map(i => [i.alt, i.complete, i.naturalWidth, i.clientWidth]),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    loaded: performance.getEntriesByType("resource").map(e => e.name),
    warning: document.querySelectorAll(".warning, .note").length,
    height: document.documentElement.scrollHeight,
    text: document.body.innerText.length,
  };
  document.title = JSON.stringify(seen);
});</script>"""


def browse(page: Path, profile: Path, *flags: str) -> str:
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=900).stdout


@pytest.mark.skipif(not BROWSER, reason="no Chromium is installed: apt-get install chromium")
@pytest.mark.parametrize("width", [1000, 600])
def test_a_browser_shows_the_page(page: Path, tmp_path: Path, width: int) -> None:
    copy = tmp_path / "probed.html"
    text = page.read_text(encoding="utf-8")
    copy.write_text(text.replace("</head>", PROBE + "</head>"), encoding="utf-8")
    size = f"--window-size={width},900"
    dom = browse(copy, tmp_path / "a", size, "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert title is not None
    seen = json.loads(html.unescape(title[1]))
    assert [name for name, *_ in seen["pictures"]] == FIGURES
    for _, complete, natural, shown in seen["pictures"]:
        assert complete
        assert natural > 900
        assert 400 < shown <= width
    assert seen["wide"] == 0  # nothing sticks out sideways
    assert not [name for name in seen["loaded"] if not name.startswith("data:")]
    assert seen["warning"] >= 1
    shot = tmp_path / "shot.png"
    whole = f"--window-size={width},{seen['height']}"
    browse(page, tmp_path / "b", whole, f"--screenshot={shot}", "--hide-scrollbars")
    pixels = imread(shot)[..., :3]
    assert pixels.shape[1] == width
    # In every stretch of the page there is something to see, on white paper.
    for stretch in np.array_split(pixels, 12):
        assert (stretch.min(axis=-1) < 0.9).mean() > 0.004
    assert (pixels.min(axis=-1) > 0.95).mean() > 0.5
