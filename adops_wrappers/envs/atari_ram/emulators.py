"""Emulators of Atari games that are stepped in turn, and their RAM as features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from adops_wrappers.arrays import BoolArray
from adops_wrappers.envs.base import Image, IntArray, Moved, Observations

RAM_SIZE = 128
Ram = npt.NDArray[np.uint8]
"""The bytes of n emulators, shape (n, 128)."""
_NOOP = 0
INEXACT = frozenset({"miniature_golf", "pitfall2", "qbert", "tetris"})
"""The games that ale-py, up to 0.12.1, does not restore as they were saved."""


class AtariRamDynamics:
    """n emulators of one game; see `AtariRamEnv` for what they show and do.

    Args:
        num_rows: The number of emulators.
        game: The name of a game in ale-py.
        frameskip: The number of frames for which a step repeats its action.
        repeat_action_probability: The chance, per frame, of repeating the action before.
        horizon: The number of steps after which an episode is truncated.
    """

    observation_size = RAM_SIZE + 8 * RAM_SIZE
    count_key: Callable[[Any], bytes] | None = None
    """Maps an observation to what counts count of it; None where nothing is named."""

    def __init__(
        self,
        num_rows: int,
        game: str,
        frameskip: int,
        repeat_action_probability: float,
        horizon: int,
    ) -> None:
        self.num_rows, self.game, self.frameskip = num_rows, game, frameskip
        self.repeat_action_probability, self.horizon = repeat_action_probability, horizon
        self.emulators = [switch_on(game) for _ in range(num_rows)]
        self._legal = [action.value for action in self.emulators[0].getMinimalActionSet()]
        self.generators: list[Any] = [None] * num_rows
        self.held = [_NOOP] * num_rows
        """The action of each row's last frame, which stickiness repeats."""
        self.ram: Ram = np.zeros((num_rows, RAM_SIZE), dtype=np.uint8)
        self.time: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.score: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.lives: IntArray = np.zeros(num_rows, dtype=np.int64)

    @property
    def actions(self) -> int:
        """The number of actions."""
        return len(self._legal)

    def seed(self, row: int, generator: np.random.Generator) -> None:
        """Use this generator for the stickiness of a row's actions."""
        self.generators[row] = generator

    def restart(self, rows: BoolArray) -> None:
        """Begin new episodes in the given rows."""
        for row in np.flatnonzero(rows).tolist():
            self.emulators[row].reset_game()
            self._read(row)
            self.held[row] = _NOOP
        self.time[rows] = self.score[rows] = 0

    def observe(self, rows: BoolArray) -> Observations:
        """Return the features of all rows."""
        return self.encode(self.ram)

    def encode(self, ram: Ram) -> Observations:
        """Return the features of these bytes, shape (n, observation_size)."""
        return np.concatenate([ram / np.float32(255), np.unpackbits(ram, axis=1)], axis=1)

    def move(self, actions: Any, rows: BoolArray) -> Moved:
        """Step the given rows."""
        reward = np.zeros(self.num_rows)
        terminated = np.zeros(self.num_rows, dtype=np.bool_)
        for row in np.flatnonzero(rows).tolist():
            reward[row] = self._act(row, self._legal[actions[row]])
            terminated[row] = self.emulators[row].game_over()
            self._read(row)
        self.time += rows
        self.score += reward.astype(np.int64)
        truncated = rows & ~terminated & (self.time >= self.horizon)
        return Moved(self.observe(rows), reward, terminated, truncated)

    def _act(self, row: int, action: int) -> int:
        act, held, points = self.emulators[row].act, self.held[row], 0
        chances = self.generators[row].random(self.frameskip)
        for moves_on in (chances >= self.repeat_action_probability).tolist():
            held = action if moves_on else held
            points += act(held)
        self.held[row] = held
        return points

    def _read(self, row: int) -> None:
        emulator = self.emulators[row]
        emulator.getRAM(self.ram[row])
        self.lives[row] = emulator.lives()

    def progress(self) -> dict[str, IntArray]:
        """Return what `info` says about the running episodes."""
        return {"lives": self.lives, "score": self.score}

    def draw(self, row: int, obs: Observations) -> Image:
        """Return the screen of a row."""
        screen: Image = self.emulators[row].getScreenRGB()
        return screen

    # An emulator pickles without an error and comes back switched off, so its state goes instead.

    def __getstate__(self) -> dict[str, Any]:
        if self.game in INEXACT:
            raise TypeError(f"ale-py does not restore {self.game} as it was: it cannot be saved.")
        states = [emulator.cloneState(include_rng=True) for emulator in self.emulators]
        return {**self.__dict__, "emulators": states}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.emulators = [switch_on(self.game) for _ in range(self.num_rows)]
        for emulator, saved in zip(self.emulators, state["emulators"], strict=True):
            emulator.restoreState(saved)


def switch_on(game: str) -> Any:
    """Return an emulator of a game, an `ale_py.ALEInterface` without stickiness or frame skip."""
    try:
        import ale_py
    except ImportError as error:
        raise gym.error.DependencyNotInstalled(
            f'{game} needs ale-py: pip install "adops-wrappers[atari]"'
        ) from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    emulator = ale_py.ALEInterface()

    def rom(name: str) -> str:
        return str(ale_py.roms.get_rom_path(name))

    names = ale_py.roms.get_all_rom_ids()
    # Loading a game for two players only would end the process.
    if game not in names or emulator.isSupportedROM(rom(game)) is None:
        known = [name for name in sorted(names) if emulator.isSupportedROM(rom(name))]
        raise ValueError(f"game must be one of {', '.join(known)}; got {game!r}.")
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.setInt("random_seed", 0)
    emulator.loadROM(rom(game))
    return emulator
