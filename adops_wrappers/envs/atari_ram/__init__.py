"""Atari games seen through their RAM: `adops/AtariRam-v0` and `adops/MontezumaRam-v0`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium.vector import AutoresetMode

from adops_wrappers.envs.atari_ram.emulators import AtariRamDynamics
from adops_wrappers.envs.atari_ram.montezuma import MontezumaRamDynamics, montezuma_key
from adops_wrappers.envs.base import DynamicsEnv, DynamicsVectorEnv

__all__ = ["AtariRamEnv", "AtariRamVectorEnv", "montezuma_key"]

_OF_GAME = {"montezuma_revenge": MontezumaRamDynamics}
"""The games whose RAM has named features."""


class AtariRamEnv(DynamicsEnv):
    """An Atari game seen through the 128 bytes of its RAM.

    Far cheaper to learn from than the screen, and saved exactly: what `pickle` and
    `copy.deepcopy` return goes on bit for bit, also in another process. (Four games, which ale-py
    does not restore exactly, refuse to be saved: Q*bert, Tetris, Miniature Golf and Pitfall II.)
    Needs the extra `atari`.

    - **Actions**: the game's minimal set, 18 for Montezuma's Revenge. In each emulated frame the
      action of the frame before is kept with probability `repeat_action_probability`, as in
      ALE. The chance is drawn here, because ALE does not save the action that it repeats.
    - **Reward**: the points, neither clipped nor scaled.
    - **End**: terminated when the game is over, truncated after `horizon` steps.
    - **Observation** (1,152 floats in [0, 1]): the 128 bytes divided by 255, then their 1,024
      bits, those of byte 0 first and its highest bit first of all.
    - **Observation of Montezuma's Revenge** (260 floats in [0, 1]): one-hot room (24), the bits of
      13 bytes that say where things are (104), x and y within the screen and within 16 points
      (4), and the 128 bytes divided by 255. `adops_wrappers.envs.atari_ram.montezuma.BYTES` says
      what the 13 bytes mean: room, place and pose, the room's object and enemy, the rolling
      skull, lives, clock, items, and what is left in the room.
    - **info**: `lives`, and `score`, the points of this episode. In Montezuma's Revenge also
      `room` (0 to 23), `x`, `y`, `items` (the byte of the inventory) and `rooms`, the number of
      rooms visited in this episode.
    - **Counts**: for Montezuma's Revenge `env.unwrapped.count_key` maps an observation to room,
      position in eights and items, for `CountBonus(key=...)`. It is None for other games.

    Args:
        game: The name of a game in ale-py, such as "pong".
        frameskip: The number of frames for which a step repeats its action.
        repeat_action_probability: The chance, per frame, of repeating the action before.
        horizon: The number of steps after which an episode is truncated.
        render_mode: None or "rgb_array".
    """

    dynamics: AtariRamDynamics
    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        frameskip: int = 4,
        repeat_action_probability: float = 0.25,
        horizon: int = 4500,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(
            _dynamics(1, game, frameskip, repeat_action_probability, horizon), render_mode
        )

    @property
    def ale(self) -> Any:
        """The emulator, an `ale_py.ALEInterface`."""
        return self.dynamics.emulators[0]

    @property
    def count_key(self) -> Callable[[Any], bytes] | None:
        """What to count of an observation, or None."""
        return self.dynamics.count_key


class AtariRamVectorEnv(DynamicsVectorEnv):
    """`num_envs` emulators in this process; row i seeded s + i is the single env seeded s + i.

    See `AtariRamEnv`. What `info` names are arrays; under SAME_STEP those of an episode that has
    just ended are in `info["final_info"]`, at the rows of `info["_final_info"]`.

    Args:
        num_envs: The number of rows.
        game: The name of a game in ale-py, such as "pong".
        frameskip: The number of frames for which a step repeats its action.
        repeat_action_probability: The chance, per frame, of repeating the action before.
        horizon: The number of steps after which an episode is truncated.
        autoreset_mode: NEXT_STEP, SAME_STEP or DISABLED (reset rows with
            `options={"reset_mask": mask}`).
        render_mode: None or "rgb_array".
    """

    dynamics: AtariRamDynamics

    def __init__(
        self,
        num_envs: int,
        game: str,
        frameskip: int = 4,
        repeat_action_probability: float = 0.25,
        horizon: int = 4500,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        dynamics = _dynamics(num_envs, game, frameskip, repeat_action_probability, horizon)
        super().__init__(dynamics, autoreset_mode, render_mode)

    @property
    def count_key(self) -> Callable[[Any], bytes] | None:
        """What to count of an observation, or None."""
        return self.dynamics.count_key


def _dynamics(num_rows: int, game: str, *settings: Any) -> AtariRamDynamics:
    return _OF_GAME.get(game, AtariRamDynamics)(num_rows, game, *settings)
