"""Writes the page of the gallery: `python -m adops_wrappers.envs.gallery --out docs/gallery.md`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from adops_wrappers.envs.layouts import LAYOUTS
from adops_wrappers.envs.world import ACTIONS, World, get_world
from adops_wrappers.tabular import AuditReport, audit
from adops_wrappers.tabular.table import verdicts

GAMMA = 0.99
SMALL_SCALE = 0.001
_HEAD = """# The gallery

Small grid worlds in which a persistent bonus leads away from the goal. They are registered when
`adops_wrappers` is imported: `gymnasium.make("adops/KeyDoor-v0")` gives one env,
`gymnasium.make_vec("adops/KeyDoor-v0", num_envs=64)` an exact vector env stepped by table
lookups. Both take `horizon=`, the vector env `autoreset_mode=` too.

- **Actions**: up, right, down, left; `use` takes the key underfoot, or opens a door beside the
  agent once the key is held. Walls and the closed door stop a move.
- **Reward**: 1 − 0.9·t/H for reaching the goal after t steps, which ends the episode; 0.1 for the
  coin, once; else 0. After H steps the episode is truncated, not terminated.
- **Observation** (float32): the one-hot cell, key held, door open, in the coin world coin taken,
  and 16 image bits: 0, but random ±1 at every step on the TV and on the dance floor.
- **Audit**: `env.unwrapped.to_mdp(gamma)` exports the MDP with the goal worth 1 at any time and
  without the time limit, `env.unwrapped.tempting_bonus()` the bonus of the table below, and
  `env.unwrapped.state_of(obs)` turns observations into its states, for oracle critics.

Symbols: `S` start, `G` goal, `K` key, `D` door, `T` noisy TV, `C` coin, `B` bell, `~` dance
floor, `X` skull, `#` wall.
"""


def page() -> str:
    """Return the page as Markdown."""
    worlds = {name: get_world(name) for name in LAYOUTS}
    parts = [_HEAD, *(_section(name, world) for name, world in worlds.items())]
    return "\n".join([*parts, *_table(worlds)])


def _section(name: str, world: World) -> str:
    plan = "\n".join(world.plan)
    actions = ", ".join(ACTIONS[: world.num_actions])
    return (
        f"## adops/{name}-v0\n\n{world.layout.story}\n\n```\n{plan}\n```\n\n"
        f"{world.num_states} states; H = {world.layout.horizon}; actions: {actions}; "
        f"{world.observation_size} entries in an observation.\n"
    )


def _table(worlds: dict[str, World]) -> Iterator[str]:
    columns = {}
    for name, world in worlds.items():
        print(f"Auditing {name} …", file=sys.stderr)
        mdp = world.to_mdp(GAMMA)
        small = audit(mdp, world.tempting_bonus(SMALL_SCALE), "raw")
        columns[name] = {
            f"raw, bonus × {SMALL_SCALE:g}": small,
            **verdicts(mdp, world.tempting_bonus()),
        }
    yield "## The audit's verdict\n"
    yield (
        "The bonus pays 1 for every arrival in a tempting cell, forever (γ = 0.99). *kept*: the "
        "shaped task has the same optimal actions in every state that can be reached. *changed "
        "(n; r)*: n states have others, and the worst policy that is now optimal has an "
        "extrinsic return from the start that is r below the best. PBIM is audited on a short "
        "horizon, because its debts are too many to list on a long one. ADOPS and ADOPES are the "
        "ideal forms, with exact critics.\n"
    )
    yield "| method | " + " | ".join(columns) + " |"
    yield "| --- |" + " --- |" * len(columns)
    for method in next(iter(columns.values())):
        cells = (_cell(column[method]) for column in columns.values())
        yield f"| {method} | " + " | ".join(cells) + " |"
    yield "\nMade by `python -m adops_wrappers.envs.gallery --out docs/gallery.md`.\n"


def _cell(answer: AuditReport | str) -> str:
    if isinstance(answer, str):
        return "too large"
    if answer.preserved:
        return "kept"
    return f"changed ({len(answer.changed_states)}; {answer.regret:.2g})"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m adops_wrappers.envs.gallery",
        description="Write the page of the gallery, with the audit of every method on every env.",
    )
    parser.add_argument("--out", type=Path, help="the file to write; without it, print")
    args = parser.parse_args(argv)
    text = page()
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text, encoding="utf-8")
        print(f"Wrote {args.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
