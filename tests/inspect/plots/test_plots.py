from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

pytest.importorskip("matplotlib", reason="plots need the extra 'analysis'")

import matplotlib
from matplotlib.colors import to_rgba

from adops_wrappers.inspect import (
    Recording,
    ShapingRecorder,
    conflicts,
    findings,
    plots,
    reshape,
)
from adops_wrappers.inspect.conflicts import conflict_mask
from adops_wrappers.inspect.plots import style
from adops_wrappers.inspect.plots.conflicts import action_name, apart
from adops_wrappers.inspect.plots.streams import episode_steps
from adops_wrappers.inspect.runs import Run
from tests import toolkit as tk
from tests.inspect import synthetic
from tests.inspect.stacks import run, stack


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    mode = AutoresetMode.NEXT_STEP
    env = stack("adops", tk.make_vector("sync", mode, longest=40))
    env = ShapingRecorder(env, tmp_path / "a.npz")
    run(env, mode, steps=200)
    return env.finish()


def lines(axis: Any, color: str) -> list[Any]:
    return [line for line in axis.lines if to_rgba(line.get_color()) == to_rgba(color)]


def test_sign_plane_shows_every_conflict_before_and_none_after(recording: Recording) -> None:
    before, after = plots.plot_sign_plane(recording).axes
    crosses = lines(before, style.VERMILION)[0]
    wrong = conflict_mask(recording)
    np.testing.assert_array_equal(crosses.get_xdata(), recording.advantage_ext[wrong])
    np.testing.assert_array_equal(crosses.get_ydata(), recording.total_raw[wrong])
    assert len(crosses.get_xdata()) == len(conflicts(recording)) > 20
    assert len(lines(after, style.VERMILION)[0].get_xdata()) == 0
    assert len(lines(after, style.BLUE)[0].get_xdata()) == recording.valid.sum()
    share = findings.share(wrong.sum() / recording.valid.sum())
    assert share in before.get_title(loc="left")
    assert ": 0 % of" in after.get_title(loc="left")


def test_sign_plane_of_another_method(recording: Recording) -> None:
    raw = reshape(recording, ["none"])["none"]
    before, after = plots.plot_sign_plane(recording, raw).axes
    for color in (style.BLUE, style.VERMILION):
        np.testing.assert_array_equal(
            lines(before, color)[0].get_xydata(), lines(after, color)[0].get_xydata()
        )


def test_streams_shade_exactly_the_correction(recording: Recording) -> None:
    figure = plots.plot_streams(recording, row=1, episode=2)
    times = episode_steps(recording, 1, 2)
    assert set(recording.episode[times, 1]) == {2}
    middle = figure.axes[1]
    drawn = {round(bar.get_x() + 0.5): bar for bar in middle.patches}
    correction = recording.correction[times, 1]
    t = recording.episode_step[times, 1]
    assert sorted(drawn) == t[correction != 0].tolist()
    for step, change in zip(t, correction, strict=True):
        if change:
            bar = drawn[step]
            assert bar.get_height() == pytest.approx(change)
            color = style.GREEN if change > 0 else style.VERMILION
            assert bar.get_facecolor()[:3] == to_rgba(color)[:3]
    shaped = lines(middle, style.BLUE)[0]
    np.testing.assert_array_equal(shaped.get_ydata(), recording.shaped[times, 1])


def test_streams_default_to_the_worst_conflict(recording: Recording) -> None:
    worst = next(c for c in conflicts(recording) if c.row == 0)
    assert worst.time in episode_steps(recording, 0)
    short = episode_steps(recording, 0, window=5)
    assert len(short) == 5
    assert worst.time in short
    assert len(episode_steps(recording, 0, int(recording.episode[worst.time, 0]), window=5)) == 5
    with pytest.raises(ValueError, match="no recorded episode 99"):
        episode_steps(recording, 0, 99)


def test_streams_without_a_critic_have_two_panels(tmp_path: Path) -> None:
    recording = synthetic.make(tmp_path, critic=False, intrinsic=np.ones(9), shaped=np.zeros(9))
    figure = plots.plot_streams(recording)
    assert len(figure.axes) == 2
    assert len(figure.axes[1].patches) == 9


def test_methods_are_logarithmic_only_where_one_explodes(tmp_path: Path) -> None:
    steps = 1500
    terminated = np.arange(steps) == steps - 1
    recording = synthetic.make(
        tmp_path, {"gamma_int": 0.99}, intrinsic=np.ones(steps), terminated=terminated
    )
    shaped = reshape(recording, ["none", "pbim", "grm", "adops"])
    figure = plots.plot_methods(recording, shaped)
    scales = {
        axis.get_title(loc="left").split(":")[0]: axis.get_yscale()
        for axis in figure.axes
        if axis.get_visible()
    }
    assert scales == {"none": "linear", "pbim": "symlog", "grm": "linear", "adops": "linear"}
    title = next(a.get_title(loc="left") for a in figure.axes if "pbim" in a.get_title(loc="left"))
    debt = sum(0.99 ** -(k + 1.0) for k in range(steps - 1))
    assert findings.number(-debt) in title
    assert "t = 1499" in title


def test_methods_that_leave_float64_say_so(tmp_path: Path) -> None:
    recording = synthetic.make(tmp_path, intrinsic=np.ones(5))
    shaped = {"pbim": np.array([[1.0], [1.0], [1.0], [1.0], [-np.inf]])}
    (axis,) = plots.plot_methods(recording, shaped).axes
    assert "leaves float64 at t = 4" in axis.get_title(loc="left")


def test_histogram_counts_every_changed_step_once(recording: Recording) -> None:
    (axis,) = plots.plot_corrections(recording).axes
    counts = sum(round(patch.get_height()) for patch in axis.patches)
    assert counts == (recording.correction != 0).sum()
    for patch in axis.patches:
        inside = patch.get_x() + patch.get_width() / 2
        color = style.GREEN if inside > 0 else style.VERMILION
        if patch.get_height():
            assert patch.get_facecolor()[:3] == to_rgba(color)[:3]


def test_histogram_of_no_change_and_of_a_wide_range(tmp_path: Path) -> None:
    bonus = np.ones(50)
    (axis,) = plots.plot_corrections(synthetic.make(tmp_path, intrinsic=bonus)).axes
    assert axis.texts[0].get_text() == "the raw bonus was never changed"
    shaped = np.r_[np.full(49, 0.9), -1e12]
    recording = synthetic.make(tmp_path, intrinsic=bonus, shaped=shaped)
    (axis,) = plots.plot_corrections(recording).axes
    assert axis.get_xscale() == "symlog"
    assert sum(round(patch.get_height()) for patch in axis.patches) == 50


def test_film_strip_shows_the_worst_moments_in_order(tmp_path: Path) -> None:
    steps, worst = 60, {10: 5.0, 11: 4.9, 40: 3.0, 25: 1.0}
    bonus = np.zeros(steps)
    for t, size in worst.items():
        bonus[t] = size
    frames = np.arange(steps)[:, None, None, None] * np.ones((steps, 6, 4, 3))
    recording = synthetic.make(
        tmp_path,
        {"action_meanings": ["WAIT", "JUMP"]},
        reward=-0.5,
        intrinsic=bonus,
        action=1,
        frames=frames,
    )
    figure = plots.plot_film_strip(recording, count=2, spacing=5)
    shown = [int(axis.images[0].get_array().max()) for axis in figure.axes]
    assert shown == [10, 40]  # 11 is the same moment as 10, 25 a lesser one
    caption = figure.axes[0].get_title(loc="left")
    assert "t = 10: JUMP" in caption
    assert "tempts" in caption
    assert len(plots.plot_film_strip(recording, spacing=1).axes) == 4
    nothing = synthetic.make(tmp_path, intrinsic=np.ones(4), frames=frames[:4])
    assert "no conflicts" in plots.plot_film_strip(nothing).axes[0].texts[0].get_text()


def test_film_strip_needs_pictures(recording: Recording) -> None:
    with pytest.raises(ValueError, match="frames='render'"):
        plots.plot_film_strip(recording)
    ranked = conflicts(recording)
    chosen = apart(ranked, 4, 10)
    assert chosen[0] == ranked[0]
    assert action_name(recording, 2) == "action 2"


def test_training_curves_show_the_logged_columns(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_bytes(
        b"iteration,global_step,shaping/conflict_rate,shaping/zeta,charts/episodic_return_recent"
        b"\r\n1,100,0.5,1.0,\r\n2,200,0.25,1.0,3.0\r\n3,300,0.125,1.0,4.0\r\n4,400,0"
    )
    run = Run(tmp_path)
    assert len(run) == 3  # the last line is still being written
    figure = plots.plot_training(run)
    share, returns = figure.axes
    labels = {line.get_label(): line for line in share.lines if line.get_label()[0] != "_"}
    assert set(labels) == {"bonus fights the task", "ζ"}
    line = labels["bonus fights the task"]
    assert line.get_xydata().tolist() == [[100, 0.5], [200, 0.25], [300, 0.125]]
    assert "environment steps" in figure.axes[-1].get_xlabel()
    assert np.isnan(returns.lines[0].get_ydata()[0])
    (tmp_path / "metrics.csv").write_bytes(b"iteration\r\n1\r\n")
    with pytest.raises(ValueError, match="none of the columns"):
        plots.plot_training(Run(tmp_path))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (1.0, "1"), (-0.25, "−0.25"), (12345.6, "12,346"), (-2.1e21, "−2.1·10²¹"),
        (1e-7, "1.0·10⁻⁷"), (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_numbers_read_well(value: float, text: str) -> None:
    assert findings.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 %"), (1e-5, "under 0.1 %"), (0.345, "34.5 %"), (1 - 1e-5, "over 99.9 %"),
        (1.0, "100 %"),
    ],
)  # fmt: skip
def test_shares_are_never_rounded_to_nothing_or_all(value: float, text: str) -> None:
    assert findings.share(value) == text


def test_the_users_style_and_figures_are_left_alone(recording: Recording) -> None:
    def open_figures() -> list[int]:
        pyplot = sys.modules.get("matplotlib.pyplot")
        return [] if pyplot is None else list(pyplot.get_fignums())

    before, figures_before = dict(matplotlib.rcParams), open_figures()
    figure = plots.plot_corrections(recording)
    assert dict(matplotlib.rcParams) == before
    assert figure.axes[0].title.get_fontsize() != before["axes.titlesize"]
    assert open_figures() == figures_before


def test_without_matplotlib_the_error_names_the_extra(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install adops-wrappers\[analysis\]"):
        plots.plot_streams(recording)


def test_recording_and_plots_import_without_matplotlib() -> None:
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import adops_wrappers.inspect, adops_wrappers.inspect.plots\n"
        "import adops_wrappers.inspect.report"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", script], check=True, cwd=root)
