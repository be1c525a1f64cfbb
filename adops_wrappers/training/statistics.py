"""Counting the episodes of a run, and scaling their rewards."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from gymnasium.vector import VectorEnv

from adops_wrappers.training.envs import MONTEZUMA, ram_game
from adops_wrappers.training.metrics import Array, mean, ratio
from adops_wrappers.wrappers.base import VectorBase

if TYPE_CHECKING:
    from adops_wrappers.training.args import EnvArgs

ROOM_BYTE = 3
"""The byte of RAM in which Montezuma's Revenge keeps the room number."""
_RUNNING = ("returns", "lengths", "weights", "to_go")
COUNT_TAGS = {"stages": "charts/stages", "rooms": "charts/episodic_rooms", "bad": "charts/bad"}
"""The metrics of what an env counts in an episode."""


class Finished(NamedTuple):
    """A finished episode with its unscaled return."""

    score: float
    length: int
    counts: tuple[int, ...] = ()
    """What the env counted in it, in the order of `EpisodeStatistics.counts`."""
    to_go: float = 0.0
    """The sum, over its steps, of the discounted scaled return from there to its end."""
    to_go_endless: float = 0.0
    """The same, if a truncated episode went on with its mean reward."""


class EpisodeStatistics(VectorBase):
    """Records unscaled returns and lengths of episodes, and scales the reward.

    Args:
        env: The envs.
        scale: Factor on the reward.
        end_at_truncation: Whether to report truncated episodes as terminated.
        counts: The keys of `info` under which the env counts what an episode achieved.
        gamma: The discount of the returns-to-go.
    """

    rooms: set[int] | None = None
    """The rooms visited so far, if they can be read."""

    def __init__(
        self,
        env: VectorEnv,
        scale: float = 1.0,
        end_at_truncation: bool = False,
        counts: Sequence[str] = (),
        gamma: float = 1.0,
    ) -> None:
        super().__init__(env)
        self.scale, self.end_at_truncation, self.counts = scale, end_at_truncation, counts
        self.gamma = gamma
        self.returns = np.zeros(self.num_envs)
        self.lengths = np.zeros(self.num_envs, dtype=np.int64)
        self.weights, self.to_go = np.zeros((2, self.num_envs))
        """How often a reward counts in the returns-to-go of the steps so far, and their sum."""
        self._running = [getattr(self, name) for name in _RUNNING]
        self.finished: list[Finished] = []
        """The episodes that have ended since the last `take_finished`."""

    def reset(self, **kwargs: Any) -> Any:
        """Reset all rows."""
        for running in self._running:
            running[:] = 0
        result: Any = self.env.reset(**kwargs)
        return result

    def step(self, actions: Any) -> Any:
        """Step, record, scale."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        reward = np.asarray(reward, dtype=np.float64)
        self.returns += reward
        self.lengths += 1
        # This reward is in the return-to-go of every step so far: γ^k times it k steps ago.
        self.weights[:] = 1.0 + self.gamma * self.weights
        self.to_go += self.weights * reward * self.scale
        ended = np.logical_or(terminated, truncated)
        if ended.any():
            # The envs reset within this step: what an episode achieved is in its last info.
            counted = [info["final_info"][key][ended].tolist() for key in self.counts]
            counts = zip(*counted, strict=True) if counted else repeat(())
            columns = (self.returns, self.lengths, self.to_go, self._endless(terminated))
            scores, lengths, *to_go = (column[ended].tolist() for column in columns)
            self.finished += map(Finished, scores, lengths, counts, *to_go)
            for running in self._running:
                running[ended] = 0
        if self.end_at_truncation:
            terminated, truncated = ended, np.zeros_like(ended)
        return obs, reward * self.scale, terminated, truncated, info

    def _endless(self, terminated: Any) -> Array:
        """Return the sums of returns-to-go if episodes that do not terminate never ended."""
        following = self.scale * self.returns / self.lengths / max(1.0 - self.gamma, 1e-6)
        goes_on = ~np.asarray(terminated) & (not self.end_at_truncation)
        return self.to_go + goes_on * self.gamma * self.weights * following

    def take_finished(self) -> list[Finished]:
        """Return the episodes that have ended since the last call."""
        finished, self.finished = self.finished, []
        return finished

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the running episodes."""
        return {name: getattr(self, name).copy() for name in _RUNNING}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        state = {"weights": 0.0, "to_go": 0.0, **state}  # runs of version 0.2.0 have none
        for name in _RUNNING:
            getattr(self, name)[:] = state[name]


class RoomStatistics(EpisodeStatistics):
    """Also collects the rooms, from `info` or from emulators in this process."""

    rooms: set[int]

    def __init__(self, env: VectorEnv, *settings: Any) -> None:
        super().__init__(env, *settings)
        self.rooms = set()

    def step(self, actions: Any) -> Any:
        """Step, record, scale, and collect the rooms."""
        result = super().step(actions)
        info, emulators = result[4], cast("Any", self.unwrapped)
        if "room" not in info:
            self.rooms.update(room_of(env) for env in emulators.envs)
            return result
        for seen in (info, info.get("final_info", info)):
            self.rooms.update(seen["room"][seen["_room"]].tolist())
        return result

    def state_dict(self) -> dict[str, Any]:
        """Return the running episodes and the rooms."""
        return {**super().state_dict(), "rooms": sorted(self.rooms)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        super().load_state_dict(state)
        self.rooms = set(state["rooms"])


def with_statistics(
    envs: VectorEnv, args: EnvArgs, kind: str, end_at_truncation: bool = False
) -> EpisodeStatistics:
    """Record the episodes of envs and scale their rewards according to the settings."""
    scale = args.reward_scale or (0.001 if kind == "atari" else 1.0)
    game = ram_game(args) if kind == "atari" else None
    has_rooms = game == MONTEZUMA if game else kind == "atari" and args.atari_backend == "sync"
    statistics = RoomStatistics if has_rooms else EpisodeStatistics
    gallery = {"adops/MiniZuma": ("stages", "rooms"), "adops/DeepSea": ("bad",)}
    counted = {**gallery, MONTEZUMA: ("rooms",)}
    counts = next((keys for name, keys in counted.items() if name in (game or args.env_id)), ())
    gamma = getattr(args, "gamma_ext", 1.0)  # of the learner, if there is one
    return statistics(envs, scale, end_at_truncation, counts, gamma)


def room_of(env: Any) -> int:
    """Return the room that an emulator of Montezuma's Revenge is in."""
    return int(env.unwrapped.ale.getRAM()[ROOM_BYTE])


class EpisodeHistory:
    """Counts the finished episodes of a run and keeps the returns of the last hundred."""

    def __init__(self) -> None:
        self.episodes = 0
        self.recent: deque[float] = deque(maxlen=100)

    def add(self, finished: Iterable[Finished]) -> None:
        """Add finished episodes."""
        scores = [episode.score for episode in finished]
        self.episodes += len(scores)
        self.recent.extend(scores)

    @property
    def recent_return(self) -> float | None:
        """The mean return of the last hundred episodes; None before the first."""
        return mean(self.recent)

    def metrics(
        self, finished: Sequence[Finished], counts: Sequence[str] = ()
    ) -> dict[str, float | None]:
        """Return what the episodes of an iteration scored and counted, and those so far."""
        steps = sum(episode.length for episode in finished)
        return {
            "charts/episodic_return": mean([episode.score for episode in finished]),
            "charts/episodic_length": mean([episode.length for episode in finished]),
            "charts/episodic_return_recent": self.recent_return,
            "charts/episodes": self.episodes,
            "charts/return_to_go": ratio(sum(e.to_go for e in finished), steps),
            "charts/return_to_go_endless": ratio(sum(e.to_go_endless for e in finished), steps),
            **{
                COUNT_TAGS[key]: mean([episode.counts[column] for episode in finished])
                for column, key in enumerate(counts)
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the count and the returns."""
        return {"episodes": self.episodes, "recent": list(self.recent)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.episodes = state["episodes"]
        self.recent = deque(state["recent"], maxlen=self.recent.maxlen)
