"""Building the environments of a run, and counting their episodes."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from adops_wrappers.training.exit import fail
from adops_wrappers.training.metrics import Array, mean, ratio
from adops_wrappers.vector.base import AnyVectorWrapper

if TYPE_CHECKING:
    from adops_wrappers.training.args import EnvArgs

ROOM_BYTE = 3
"""The byte of RAM in which Montezuma's Revenge keeps the room number."""
MONTEZUMA = "montezuma_revenge"
"""The game that has rooms."""
RAM_IDS = ("adops/AtariRam-v0", "adops/MontezumaRam-v0")
COUNT_TAGS = {"stages": "charts/stages", "rooms": "charts/episodic_rooms"}
"""The metrics of what an env counts in an episode."""


def env_kind(env_id: str) -> str:
    """Return atari, minigrid or other; import the package that registers the env."""
    spec = find_spec(env_id)
    package = _package(spec.id)
    module = str(getattr(spec.entry_point, "__module__", spec.entry_point))
    kinds = {"ale_py": "atari", "minigrid": "minigrid"}
    return kinds.get(package) or kinds.get(module.split(".")[0], "other")


def find_spec(env_id: str) -> EnvSpec:
    """Return what is registered as `[module:]id`, or end the script with a message."""
    module, colon, name = env_id.rpartition(":")
    package = _package(name)
    if package:
        _import(package, env_id)
    if colon:
        _import(module, env_id)
    elif name not in gym.registry:
        with contextlib.suppress(ImportError):
            gym.register_envs(importlib.import_module("ale_py"))
    versions = [known for known in gym.registry if known.rpartition("-v")[0] == name]
    if versions:
        fail(f"--env-id {env_id} names no version. Choose one of {', '.join(sorted(versions))}.")
    try:
        return gym.spec(name)
    except gym.error.Error as error:
        fail(f"--env-id {env_id} cannot be built: {error}")


def _package(name: str) -> str:
    """Return the package that registers an id, if its beginning tells."""
    packages = {"ALE": "ale_py", "MiniGrid": "minigrid", "BabyAI": "minigrid"}
    return packages.get("ALE" if name in RAM_IDS else name.replace("-", "/").split("/")[0], "")


def _import(module: str, env_id: str) -> None:
    """Import a module that registers envs, or end the script with a message."""
    try:
        gym.register_envs(importlib.import_module(module))
    except (ImportError, ValueError) as error:
        extra = {"ale_py": "atari", "minigrid": "minigrid"}.get(module)
        if extra:
            fail(f'{env_id} needs a package: pip install "adops-wrappers[{extra}]"')
        fail(
            f"--env-id {env_id} cannot be built: importing {module!r} failed: {error}. Install it, "
            "or put its folder on PYTHONPATH."
        )


def current_id(env_id: str) -> str:
    """Replace the paper's ALE/...-v4, which no longer exists, and print a message."""
    if env_id.rpartition(":")[2].startswith("ALE/") and env_id.endswith("-v4"):
        newer = env_id[:-1] + "5"
        print(
            f"{env_id} does not exist in today's ale-py. Running {newer} instead, with the "
            "settings of this script: frameskip 4, max over two frames, sticky actions."
        )
        return newer
    return env_id


def refuse_import(env_id: str, source: Path) -> None:
    """End the script if an env_id read from a file would import a module and run its code."""
    if ":" in env_id:
        module = env_id.split(":")[0]
        fail(
            f"{source} names the env {env_id!r}, which imports the module {module!r} and runs its "
            "code. If you trust it, add --import-env."
        )


def make_env(args: EnvArgs, kind: str, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Build one env, preprocessed like the vector envs."""
    keywords = json.loads(args.env_kwargs)
    if kind == "atari" and ram_game(args):
        return gym.make(RAM_IDS[0], render_mode=render_mode, **_ram_keywords(args))
    if kind == "atari":
        env: Any = gym.make(
            args.env_id,
            frameskip=1,
            repeat_action_probability=args.sticky_action_prob,
            max_num_frames_per_episode=4 * (args.max_episode_steps or 4500),
            render_mode=render_mode,
            **keywords,
        )
        env = gym.wrappers.AtariPreprocessing(env, noop_max=0, frame_skip=4)
        return gym.wrappers.FrameStackObservation(env, 4, padding_type="zero")
    if args.max_episode_steps:
        keywords["max_episode_steps"] = args.max_episode_steps
    env = gym.make(args.env_id, render_mode=render_mode, **keywords)
    if kind == "minigrid":
        wrappers = importlib.import_module("minigrid.wrappers")
        flat = args.minigrid_obs == "flat"
        env = (wrappers.FlatObsWrapper if flat else wrappers.ImgObsWrapper)(env)
    return env  # type: ignore[no-any-return]


def make_vector_env(args: EnvArgs, kind: str, num_envs: int) -> VectorEnv:
    """Build the envs, which reset in the step that ends an episode (SAME_STEP)."""
    try:
        envs = _build(args, kind, num_envs)
    except (gym.error.Error, ImportError, TypeError) as error:
        fail(f"--env-id {args.env_id} cannot be built: {error}")
    require_discrete(args.env_id, envs.single_action_space)
    return envs


def require_discrete(env_id: str, space: gym.Space[Any]) -> None:
    """End the script with a message if the actions are not Discrete."""
    if not isinstance(space, gym.spaces.Discrete):
        fail(
            f"--env-id {env_id} has the action space {space}; this script needs Discrete actions. "
            "Choose another env, or wrap it to discretise its actions."
        )


def _build(args: EnvArgs, kind: str, num_envs: int) -> VectorEnv:
    mode, keywords = AutoresetMode.SAME_STEP, json.loads(args.env_kwargs)
    from_ram = kind == "atari" and ram_game(args)
    make_vec = partial(
        gym.make_vec,
        RAM_IDS[0] if from_ram else args.env_id,
        num_envs=num_envs,
        vectorization_mode="vector_entry_point",
        autoreset_mode=mode,
    )
    if from_ram:
        return make_vec(**_ram_keywords(args))
    if kind == "atari" and args.atari_backend == "vector":
        return make_vec(
            frameskip=4,
            repeat_action_probability=args.sticky_action_prob,
            max_num_frames_per_episode=4 * (args.max_episode_steps or 4500),
            reward_clipping=False,
            noop_max=0,
            use_fire_reset=False,
            **keywords,
        )
    entry: Any = find_spec(args.env_id).vector_entry_point
    if isinstance(entry, str):
        entry = gym.envs.registration.load_env_creator(entry)
    own = inspect.signature(entry).parameters if kind == "other" and entry else {}
    # --max-episode-steps puts a TimeLimit around each copy of the env.
    if "autoreset_mode" in own and not args.max_episode_steps:
        return make_vec(**keywords)
    return SyncVectorEnv([partial(make_env, args, kind)] * num_envs, autoreset_mode=mode)


def ram_game(args: EnvArgs) -> str | None:
    """Return the Atari game whose RAM is observed; None if its screen is."""
    in_ram = args.atari_obs == "ram" or args.env_id in RAM_IDS
    return _keywords_of(args).get("game") if in_ram else None


def _keywords_of(args: EnvArgs) -> dict[str, Any]:
    return {**find_spec(args.env_id).kwargs, **json.loads(args.env_kwargs)}


def _ram_keywords(args: EnvArgs) -> dict[str, Any]:
    return {
        "game": ram_game(args),
        "repeat_action_probability": args.sticky_action_prob,
        "horizon": args.max_episode_steps or 4500,
        **json.loads(args.env_kwargs),
    }


def count_key(envs: VectorEnv) -> Callable[[Any], Hashable] | None:
    """Return what the envs offer as `count_key`: what to count of an observation."""
    base: Any = envs.unwrapped
    one = base.envs[0].unwrapped if hasattr(base, "envs") else base
    return getattr(one, "count_key", None)


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


class EpisodeStatistics(AnyVectorWrapper):
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
        self.finished: list[Finished] = []
        """The episodes that have ended since the last `take_finished`."""
        self.last_obs: Any = None
        """The observations for the next action."""

    def reset(self, **kwargs: Any) -> Any:
        """Reset all rows."""
        for running in (self.returns, self.lengths, self.weights, self.to_go):
            running[:] = 0
        self.last_obs, info = self.env.reset(**kwargs)
        return self.last_obs, info

    def step(self, actions: Any) -> Any:
        """Step, record, scale."""
        self.last_obs, reward, terminated, truncated, info = self.env.step(actions)
        reward = np.asarray(reward, dtype=np.float64)
        self.returns += reward
        self.lengths += 1
        self.weights = 1.0 + self.gamma * self.weights
        self.to_go += self.weights * reward * self.scale
        ended = np.logical_or(terminated, truncated)
        if ended.any():
            counted = [info["final_info"][key][ended].tolist() for key in self.counts]
            counts = zip(*counted, strict=True) if counted else repeat(())
            columns = (self.returns, self.lengths, self.to_go, self._endless(terminated))
            scores, lengths, *to_go = (column[ended].tolist() for column in columns)
            self.finished += map(Finished, scores, lengths, counts, *to_go)
            for running in (self.returns, self.lengths, self.weights, self.to_go):
                running[ended] = 0
        if self.end_at_truncation:
            terminated, truncated = ended, np.zeros_like(ended)
        return self.last_obs, reward * self.scale, terminated, truncated, info

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
        """Return the state of the running episodes and their last observations."""
        return {
            "returns": self.returns.copy(),
            "lengths": self.lengths.copy(),
            "weights": self.weights.copy(),
            "to_go": self.to_go.copy(),
            "last_obs": self.last_obs,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`."""
        self.returns[:], self.lengths[:] = state["returns"], state["lengths"]
        # Runs of version 0.2.0 have none.
        self.weights[:], self.to_go[:] = state.get("weights", 0.0), state.get("to_go", 0.0)
        self.last_obs = state["last_obs"]


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
    counted = {"MiniZuma": ("stages", "rooms"), MONTEZUMA: ("rooms",)}
    counts = counted.get("MiniZuma" if "MiniZuma" in args.env_id else str(game), ())
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
