"""One self-contained HTML page about a recording or a run."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adops_wrappers import __version__
from adops_wrappers._files import write_atomically
from adops_wrappers.inspect import diagnosis, plots, run_diagnosis
from adops_wrappers.inspect.conflicts import conflict_mask, conflicts
from adops_wrappers.inspect.findings import HELP, Finding, number, share
from adops_wrappers.inspect.plots.conflicts import action_name
from adops_wrappers.inspect.plots.style import require_matplotlib
from adops_wrappers.inspect.recording import Recording
from adops_wrappers.inspect.reshape import can_reshape, reshape
from adops_wrappers.inspect.runs import Run
from adops_wrappers.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 56rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin-bottom: .3rem; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; padding: 0; }
.tiles div { border: 1px solid #bbb; border-radius: .4rem; padding: .5rem .9rem; }
.tiles b { display: block; font-size: 1.35rem; }
.warning, .note { border-left: .35rem solid #d55e00; background: #fdf0e7; padding: .5rem .9rem;
                  margin: .7rem 0; }
.note { border-color: #0072b2; background: #eaf3f9; }
figure { margin: 1.4rem 0; }
img { max-width: 100%; height: auto; }
figcaption { color: #444; font-size: .92rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; }
th, td { padding: .2rem .7rem .2rem 0; text-align: right; white-space: nowrap; }
th { border-bottom: 1px solid #888; }
footer { margin-top: 2.5rem; color: #555; font-size: .85rem; }
@media print { body { max-width: none; margin: 0; } figure { break-inside: avoid; } }
"""

_CAPTIONS = {
    "Training curves": (
        "How often the raw bonus flipped the sign of the critic's extrinsic advantage, how "
        "often the method changed it, and whether the critic had learned enough for "
        "either to mean much. Thin lines are single iterations."
    ),
    "Reward streams": (
        "Top: the task's reward. Middle: the raw bonus F and what the agent got, F′; what the "
        "method took away or added is shaded. Bottom: the sign that the task gives to each "
        "action, and the sign that the agent learns from; a cross marks a conflict."
    ),
    "Sign plane": (
        "Each point is a step. In the hatched quadrants the agent is told the opposite of "
        "what the task says; left with the raw bonus, right with the recorded F′."
    ),
    "All methods on this rollout": (
        "The same steps and the same critic values under every method: what its wrapper would "
        "have emitted."
    ),
    "Histogram of corrections": (
        "How much the method changed the bonus, over the steps at which it did."
    ),
    "Film strip of the largest conflicts": (
        "What the agent saw when the raw bonus fought the task most, in order of time: "
        "the action that it took, what the task thinks of it, and the total advantage "
        "before and after shaping."
    ),
}


def write_report(
    target: str | os.PathLike[str],
    out: str | os.PathLike[str] = "report.html",
    *,
    row: int = 0,
    episode: int | None = None,
    methods: Sequence[str] | None = None,
) -> Path:
    """Write one HTML page about a recording, or about a run directory and its recordings.

    The page is self-contained: pictures are embedded, and nothing is loaded.

    Args:
        target: A file of `ShapingRecorder`, or a directory with `metrics.csv`, recordings
            (`*.npz`), or both.
        out: The page to write, replaced in one step.
        row: The environment whose episode is drawn.
        episode: Its episode; by default the one with the worst conflict.
        methods: Methods to compare; by default those without a schedule, whose F′ does not depend
            on how long training has lasted.

    Raises:
        FileNotFoundError: There is nothing to report on.
    """
    require_matplotlib()
    target, out = Path(target), Path(out)
    parts: list[str] = []
    if target.is_dir():
        recordings = sorted(target.glob("*.npz"))
        if (target / "metrics.csv").is_file():
            parts.append(_run_section(Run(target)))
        elif not recordings:
            Run(target)  # says what is missing
        parts += [_recording_section(path, row, episode, methods) for path in recordings]
        title = f"Shaped rewards of {target.resolve().name}"
    else:
        parts.append(_recording_section(target, row, episode, methods))
        title = f"Shaped rewards of {target.name}"
    title = html.escape(title)
    body = (
        f"<h1>{title}</h1>\n{''.join(parts)}"
        f"<footer>Made by adops_wrappers {html.escape(__version__)}. R is the task's reward, F the "
        "raw bonus, F′ the shaped one, A_E the critic's advantage of the task alone. "
        f"On notes and warnings: {HELP}</footer>"
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, html_page(title, _STYLE, body).encode())
    return out


def html_page(title: str, style: str, body: str) -> str:
    """Return a page that needs nothing but itself, of a title and a body in HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{title}</title>\n<style>{style}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _run_section(run: Run) -> str:
    return "".join(
        [
            f"<h2>Training: {html.escape(run.title)}</h2>\n",
            _paragraph(run_diagnosis.summarize_run(run)),
            _findings(run_diagnosis.diagnose_run(run)),
            _figure(plots.plot_training(run), "Training curves"),
        ]
    )


def _recording_section(
    path: Path, row: int, episode: int | None, methods: Sequence[str] | None
) -> str:
    recording = Recording.load(path)
    if not 0 <= row < recording.num_envs:
        raise ValueError(f"There is no environment {row}: the recording has {recording.num_envs}.")
    if methods is None:
        methods = [
            method.name
            for method in METHODS.values()
            if not method.schedule and can_reshape(recording, method) and not method.needs_potential
        ]
    reshaped = reshape(recording, methods)
    parts = [
        f"<h2>Recording: {html.escape(path.name)}</h2>\n",
        _tiles(recording),
        _paragraph(diagnosis.summarize(recording)),
        _findings(diagnosis.diagnose(recording, reshaped)),
        _figure(plots.plot_streams(recording, row=row, episode=episode), "Reward streams"),
    ]
    if recording.has_critic:
        parts.append(_figure(plots.plot_sign_plane(recording), "Sign plane"))
    parts += [
        _figure(
            plots.plot_methods(recording, reshaped, row=row, episode=episode),
            "All methods on this rollout",
        ),
        _figure(plots.plot_corrections(recording), "Histogram of corrections"),
    ]
    if recording.has_critic:
        if recording.has_frames:
            parts.append(
                _figure(plots.plot_film_strip(recording), "Film strip of the largest conflicts")
            )
        parts.append(_conflict_table(recording))
    return "".join(parts)


def _tiles(recording: Recording) -> str:
    valid = recording.valid
    tiles = [(f"{int(valid.sum()):,}", "steps")]
    if recording.has_critic:
        tiles.append((share(float(conflict_mask(recording)[valid].mean())), "fight the task"))
    changed = float((recording.correction[valid] != 0.0).mean())
    tiles.append((share(changed), "bonus changed"))
    tiles.append((number(float(np.abs(recording.shaped).max())), "largest |F′|"))
    if recording.has_critic:
        explained = diagnosis.explained_variance(recording)
        shown = "–" if np.isnan(explained) else f"{explained:.2f}".replace("-", "−")
        tiles.append((shown, "explained variance of V_E"))
        agreement = diagnosis.critic_reading(recording).agreement
        shown = "–" if agreement is None else share(agreement)
        tiles.append((shown, "signs of A_E confirmed"))
    cells = "".join(
        f"<div><b>{html.escape(value)}</b>{html.escape(label)}</div>" for value, label in tiles
    )
    return f'<div class="tiles">{cells}</div>\n'


def _paragraph(lines: Sequence[str]) -> str:
    return f"<p>{html.escape(' '.join(lines))}</p>\n"


def _findings(findings: Sequence[Finding]) -> str:
    return "".join(
        f'<div class="{f.kind}"><strong>{"Warning: " if f.kind == "warning" else ""}'
        f"{html.escape(f.title)}.</strong> {html.escape(f.text)}</div>\n"
        for f in findings
    )


def _figure(figure: Figure, title: str) -> str:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=150)
    encoded = base64.b64encode(data.getvalue()).decode("ascii")
    caption = html.escape(_CAPTIONS[title])
    return (
        f'<figure><img alt="{html.escape(title)}" src="data:image/png;base64,{encoded}">'
        f"<figcaption><strong>{html.escape(title)}.</strong> {caption}</figcaption>"
        "</figure>\n"
    )


def _conflict_table(recording: Recording) -> str:
    worst = conflicts(recording, top=10)
    if not worst:
        return "<p>There is no conflict in this recording.</p>\n"
    header = ["env", "episode", "step", "action", "kind", "A_E", "R", "F", "F′", "total, raw F"]
    header += ["total, F′"]
    rows: list[list[Any]] = [
        [c.row, c.episode, c.step, action_name(recording, c.action), c.kind]
        + [number(v) for v in (c.advantage_ext, c.reward, c.intrinsic, c.shaped)]
        + [number(c.total_raw), number(c.total_shaped)]
        for c in worst
    ]
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return (
        f'<h3>The {len(rows)} largest conflicts</h3>\n<div class="wide"><table><tr>{cells}</tr>'
        f"{body}</table></div>\n"
    )
