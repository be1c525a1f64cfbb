"""Writes docs/gallery.md and its picture: `python -m research.figures.gallery`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from inspect import getdoc
from typing import Any

from adops_wrappers.envs.atari_ram import AtariRamEnv
from adops_wrappers.envs.deep_sea import DeepSeaEnv
from adops_wrappers.envs.fountain import FountainEnv
from adops_wrappers.envs.gridworld import ACTIONS, World, get_world
from adops_wrappers.envs.layouts import LAYOUTS
from adops_wrappers.envs.minizuma import MiniZumaEnv
from adops_wrappers.envs.noisy_tv import ShowsNoise
from adops_wrappers.tabular import AuditReport, audit
from adops_wrappers.tabular.auditor import verdicts
from research import ROOT

GAMMA = 0.99
SMALL_SCALE = 0.001
_HEAD = """# The gallery

Small worlds in which a persistent bonus leads away from the goal. They are registered when you
import `adops_wrappers`: `gymnasium.make("adops/KeyDoor-v0")` creates one env, and
`gymnasium.make_vec("adops/KeyDoor-v0", num_envs=64)` an exact vector env that steps by table
lookup. Both take `horizon=`; the vector env also takes `autoreset_mode=`.
`adops_wrappers.envs.GalleryTensorEnv(4096, "KeyDoor", device="cuda")` steps them in torch, on a
[GPU](guides/gpu_envs.md) too.

- **Actions**: up, right, down, left. `use` picks up the key in the agent's cell, or opens a door
  next to the agent if it holds the key. Walls and the closed door block moves.
- **Reward**: $1 - 0.9\\,t/H$ for reaching the goal after $t$ steps, which ends the episode; 0.1
  for the coin, once; otherwise 0. After $H$ steps the episode is truncated, not terminated.
- **Observation** (float32): the cell as one-hot, key held, door open, coin taken (in the coin
  world), and 16 image bits. These are 0, except on the TV and on the dance floor, where they are
  random ±1 at every step.
- **Audit**: `env.unwrapped.to_mdp(gamma)` exports the MDP, with the goal worth 1 at any time and
  no time limit; `env.unwrapped.tempting_bonus()` returns the bonus of the table below; and
  `env.unwrapped.state_of(obs)` maps observations to states of the MDP, for oracle critics.

Symbols: `S` start, `G` goal, `K` key, `D` door, `T` noisy TV, `C` coin, `B` bell, `~` dance
floor, `X` skull, `#` wall.
"""
_FORMULAS = {
    "[−1, 1]²": "[-1, 1]^2",
    "[−1, 1]": "[-1, 1]",
    "1 − 0.9·t/H": "1 - 0.9 t / H",
    "H = 100": "H = 100",
}
"""How the page sets the formulas of the Fountain's docstring."""
_FOUNTAIN = """## adops/Fountain-v0

Continuous actions, for SAC and TD3.

"""
_MINIZUMA = """
## adops/MiniZuma-v0

Montezuma's Revenge in miniature. The worlds above need exploration once; this one needs it to the
end. `gymnasium.make("adops/MiniZuma-v0")` creates one env, and
`gymnasium.make_vec("adops/MiniZuma-v0", num_envs=128)` the vector env. Both take `horizon=` and
`lives=`; the vector env also takes `autoreset_mode=`.

![The temple at the start; rooms that the agent has not visited are darker](images/minizuma.png)

Random actions open the first door in fewer than one episode in a thousand. A player who knows the
map collects everything in about 190 steps without losing a life. Tests verify both. To train on
it:

```bash
python train/ppo_rnd.py --env-id adops/MiniZuma-v0 --reward-scale 0.001 --num-envs 128 \\
    --num-steps 64 --update-epochs 2 --learning-rate 2e-3 --clip-coef 0.2 --ent-coef 0.003 \\
    --ext-coef 20 --int-coef 10 --no-scale-adv --obs-norm-init-iterations 4 \\
    --total-iterations 600
```
"""
_DEEP_SEA = """## adops/DeepSea-v0

The exploration task of [bsuite](https://github.com/google-deepmind/bsuite), which dithering does
not solve: a random walk reaches the treasure in one episode of $2^N$.

"""
_NOISY_TV = """## A noisy TV for any env

`adops_wrappers.envs.NoisyTV` wraps an env of your own, one or many, in every autoreset mode:

```python
import gymnasium as gym
from adops_wrappers.envs import NoisyTV

env = gym.make_vec("adops/KeyDoor-v0", num_envs=8)
env = NoisyTV(env, action=4, channels=30)  # `use` also changes the channel
```

"""
_NOISY_TV_AUDIT = """
The noise is in what the agent sees, not in the state. The audit therefore reads an env that
exports its MDP as if the TV were not there; for any other env, give it a `key` that the noise
does not reach (`mdp_from_env(env, gamma, key=…)`)."""

_RAM = """
## adops/MontezumaRam-v0 and adops/AtariRam-v0

The paper's game itself, and with `game=` every other game of ale-py, seen through the 128 bytes of
RAM: `gymnasium.make_vec("adops/MontezumaRam-v0", num_envs=32)`. Both take `frameskip=`,
`repeat_action_probability=` and `horizon=`; the vector env also takes `autoreset_mode=`.
`make train-laptop` [trains on it](laptop.md).
"""


def page() -> str:
    """Return the page as Markdown."""
    worlds = {name: get_world(name) for name in LAYOUTS}
    parts = [_HEAD, *(_section(name, world) for name, world in worlds.items()), _fountain()]
    table = _table({**worlds, "Fountain": FountainEnv()})
    return "\n".join([*parts, *table, _deep_sea(), _noisy_tv(), _minizuma()])


def _section(name: str, world: World) -> str:
    plan = "\n".join(world.plan)
    actions = ", ".join(ACTIONS[: world.num_actions])
    return (
        f"## adops/{name}-v0\n\n{world.layout.story}\n\n```\n{plan}\n```\n\n"
        f"{world.num_states} states; $H = {world.layout.horizon}$; actions: {actions}; "
        f"{world.observation_size} entries in an observation.\n"
    )


def _fountain() -> str:
    story = (getdoc(FountainEnv) or "").split("\n\nArgs:")[0]
    for plain, formula in _FORMULAS.items():
        story = story.replace(plain, f"${formula}$")
    return f"{_FOUNTAIN}{story}\n\nThe audit uses the lattice of full strides: {_lattice_rules()}\n"


def _lattice_rules() -> str:
    lattice = FountainEnv().to_mdp(GAMMA)
    return (
        f"{lattice.num_states} points and nine actions, which are the corners and edge centres of "
        "the Box, and standing still. They lead from point to point, so this is the env itself, "
        "restricted to nine of its actions."
    )


def _table(worlds: dict[str, World | FountainEnv]) -> Iterator[str]:
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
        r"The bonus pays 1 for every arrival in a tempting cell, forever ($\gamma = 0.99$). "
        "*kept*: the shaped task has the same optimal actions in every reachable state. *changed "
        "(n; r)*: n states have different ones, and the worst policy that is now optimal has an "
        "extrinsic return from the start that is r below the best. PBIM is audited on a short "
        "horizon, because on a long one it has too many different debts to list. ADOPS and ADOPES "
        "are the ideal forms, with exact critics.\n"
    )
    yield "| method | " + " | ".join(columns) + " |"
    yield "| --- |" + " --- |" * len(columns)
    for method in next(iter(columns.values())):
        cells = (_cell(column[method]) for column in columns.values())
        yield f"| {method} | " + " | ".join(cells) + " |"


def _cell(answer: AuditReport | str) -> str:
    if isinstance(answer, str):
        return "too large"
    if answer.preserved:
        return "kept"
    return f"changed ({len(answer.changed_states)};\u00a0{answer.regret:.2g})"


def _deep_sea() -> str:
    story = (getdoc(DeepSeaEnv) or "").split("\n\nArgs:")[0]
    for plain in ("N × N", "2^N", "0.01/N", "N"):
        story = re.sub(rf"(?<![\w$]){re.escape(plain)}(?![\w$×])", f"${plain}$", story)
    return f"\n{_DEEP_SEA}{story}\n"


def _noisy_tv() -> str:
    story = (getdoc(ShowsNoise) or "").split("\n\nArgs:")[0]
    return f"{_NOISY_TV}{story}\n{_NOISY_TV_AUDIT}"


def _minizuma() -> str:
    _, rules = (getdoc(MiniZumaEnv) or "").split("\n\nArgs:")[0].split("\n\n", 1)
    _, ram = (getdoc(AtariRamEnv) or "").split("\n\nArgs:")[0].split("\n\n", 1)
    return f"{_MINIZUMA}\n{rules}\n{_RAM}\n{ram}\n\nMade by `python -m research.figures.gallery`.\n"


def picture() -> Any:
    """Return MiniZuma at the start."""
    env = MiniZumaEnv(render_mode="rgb_array")
    env.reset(seed=0)
    return env.render()


if __name__ == "__main__":
    from matplotlib.image import imsave

    docs = ROOT / "docs"
    (docs / "gallery.md").write_text(page(), encoding="utf-8")
    imsave(docs / "images" / "minizuma.png", picture())
    print(f"Wrote {docs / 'gallery.md'} and its picture.", file=sys.stderr)
