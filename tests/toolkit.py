"""Scripted envs, a critic, a source, and slow references that share no code with the package."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

GAMMA_EXT, GAMMA_INT = 0.97, 0.9
CLIFF = "CliffWalking-v1" if "CliffWalking-v1" in gym.registry else "CliffWalking-v0"


class ScriptedEnv(gym.Env[Any, Any]):
    """Random walk of three numbers; episodes of 1 to `longest` steps end or are cut off."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, obs_kind: str = "box", longest: int = 6, start: int = 0) -> None:
        self.obs_kind, self.longest = obs_kind, longest
        box = gym.spaces.Box(-10.0, 10.0, (3,), np.float64)
        self.observation_space = {
            "box": box,
            "discrete": gym.spaces.Discrete(1000),
            "dict": gym.spaces.Dict({"a": box, "b": gym.spaces.Discrete(1000)}),
            "tuple": gym.spaces.Tuple((box, gym.spaces.Discrete(1000))),
        }[obs_kind]
        self.action_space = gym.spaces.Discrete(3, start=start)

    def _obs(self) -> Any:
        number = int(abs(self.state[0]) * 99) % 1000
        return {
            "box": self.state,
            "discrete": np.int64(number),
            "dict": {"a": self.state, "b": np.int64(number)},
            "tuple": (self.state, np.int64(number)),
        }[self.obs_kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1.0, 1.0, 3)
        self.left = int(self.np_random.integers(1, self.longest + 1))
        self.cut = bool(self.np_random.random() < 0.5)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        noise = self.np_random.normal(0.0, 0.5, 3)
        self.state = np.clip(self.state + noise + 0.1 * float(action), -10.0, 10.0)
        reward = float(self.np_random.normal())
        ended = self.left == 0
        return self._obs(), reward, ended and not self.cut, ended and self.cut, {}


def numbers(obs: Any) -> np.ndarray[Any, Any]:
    """Reduce an observation, or a batch of them, to one number each."""
    if isinstance(obs, dict):
        return numbers(obs["a"]) + 0.01 * numbers(obs["b"])
    if isinstance(obs, tuple):
        return numbers(obs[0]) + 0.01 * numbers(obs[1])
    array = np.asarray(obs, dtype=np.float64)
    return array if np.issubdtype(np.asarray(obs).dtype, np.integer) else array.sum(-1)


def critic(obs: Any) -> tuple[Any, Any]:
    x = numbers(obs)
    return np.sin(3.0 * x), 0.5 * np.cos(2.0 * x)


def critic_with_q(obs: Any) -> tuple[Any, Any, Any]:
    x = numbers(obs)
    q = np.sin(np.stack([x, 2.0 * x, 3.0 * x + 1.0], axis=-1))
    return np.sin(3.0 * x), 0.5 * np.cos(2.0 * x), q


class CriticOfActions:
    """`critic_with_q`, asked for the Q_E of one action at a time."""

    def __call__(self, obs: Any) -> tuple[Any, Any]:
        return critic(obs)

    def q_ext_of(self, obs: Any, action: Any) -> Any:
        q = critic_with_q(obs)[2]
        return np.take_along_axis(q, np.asarray(action, dtype=np.int64)[..., None], axis=-1)[..., 0]


def source(obs: Any, action: Any, next_obs: Any) -> Any:
    return np.tanh(numbers(next_obs) - 0.5 * numbers(obs)) + 0.1 * np.asarray(action)


def potential(obs: Any, t: Any) -> Any:
    return np.sin(numbers(obs)) + 0.25 * np.asarray(t)


def halves(t: int, t_prime: int, final: bool) -> float:
    """Half is taken back after two steps, the rest after four, or all that is left at the end."""
    age = t - t_prime
    if age < 0:
        return 0.0
    if final:
        return 1.0 if age <= 2 else 0.5 if age <= 4 else 0.0
    return 0.5 if age in (2, 4) else 0.0


def make_vector(kind: str, mode: AutoresetMode, num_envs: int = 3, **env: Any) -> Any:
    cls = {"sync": SyncVectorEnv, "async": AsyncVectorEnv}[kind]
    return cls([partial(ScriptedEnv, **env)] * num_envs, autoreset_mode=mode)


@dataclass
class Step:
    """One true transition of one row, as seen from the bare vector env."""

    time: int
    t: int
    obs: Any
    action: Any
    reward: float
    next_obs: Any
    terminated: bool
    truncated: bool
    reset_obs: Any = None

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


def record(env: Any, actions: Any, seed: int | None, mode: AutoresetMode) -> list[list[Step]]:
    """Step the bare vector env through `actions` (T, n); return the true transitions by row."""
    n = env.num_envs
    obs, _ = env.reset(seed=seed)
    obs = rows_of(obs, n)
    rows: list[list[Step]] = [[] for _ in range(n)]
    dummy, t = [False] * n, [0] * n
    for time, action in enumerate(actions):
        next_obs, reward, terminated, truncated, info = env.step(action)
        seen = rows_of(next_obs, n)
        for i in range(n):
            if dummy[i]:
                dummy[i], t[i] = False, 0
                continue
            ended = bool(terminated[i] or truncated[i])
            true_next, reset_obs = seen[i], None
            if ended and mode is AutoresetMode.SAME_STEP:
                true_next, reset_obs = info["final_obs"][i], seen[i]
            rows[i].append(
                Step(time, t[i], obs[i], action[i], float(reward[i]), true_next,
                     bool(terminated[i]), bool(truncated[i]), reset_obs)
            )  # fmt: skip
            t[i] += 1
            if ended:
                t[i] = 0
                dummy[i] = mode is AutoresetMode.NEXT_STEP
        obs = seen
        done = np.logical_or(terminated, truncated)
        if mode is AutoresetMode.DISABLED and done.any():
            fresh, _ = env.reset(options={"reset_mask": done.copy()})
            obs = rows_of(fresh, n)
    return rows


def rows_of(batch: Any, n: int) -> list[Any]:
    if isinstance(batch, dict):
        return [{key: rows_of(part, n)[i] for key, part in batch.items()} for i in range(n)]
    if isinstance(batch, tuple):
        return [tuple(rows_of(part, n)[i] for part in batch) for i in range(n)]
    return [np.array(batch[i]) for i in range(n)]


def adops_f2(
    reward: float,
    bonus: float,
    v: tuple[float, float],
    next_v: tuple[float, float],
    q_ext: float | None = None,
    *,
    c_ext: float = 1.0,
    c_int: float = 1.0,
    epsilon: float = 1e-7,
) -> float:
    """F₂ as the paper prints it (eq. f_2_weak), case by case; `next_v` is masked already."""
    if q_ext is None:
        q_ext = reward + GAMMA_EXT * next_v[0]
    omega = c_ext * (v[0] - q_ext) + c_int * (v[1] - GAMMA_INT * next_v[1] - bonus)
    if q_ext < v[0]:
        return min(0.0, omega - epsilon) / c_int
    return max(0.0, omega) / c_int


def matched(bonuses: list[Any], gamma: Any, weight: Any) -> list[Any]:
    """Eq. drawer over a whole finished episode; exact for Fractions."""
    last = len(bonuses) - 1
    return [
        bonuses[t]
        - sum(gamma ** (i - t) * bonuses[i] * weight(t, i, t == last) for i in range(t + 1))
        for t in range(len(bonuses))
    ]


def delay_weight(delay: int) -> Any:
    return lambda t, i, final: int(t - i == delay or (final and 0 <= t - i <= delay))


def centred(bonuses: list[Any], mean: Any, alpha: Any) -> tuple[list[Any], Any]:
    """Return F − F̄ with F̄ frozen at emission, and the F̄ that the next episode starts from."""
    out = []
    for bonus in bonuses:
        mean = mean + alpha * (bonus - mean)
        out.append(bonus - mean)
    return out, mean


def episodes_of(steps: list[Step]) -> list[list[Step]]:
    """Split a row's transitions at the ends; the last episode may be unfinished."""
    episodes: list[list[Step]] = [[]]
    for step in steps:
        episodes[-1].append(step)
        if step.ended:
            episodes.append([])
    return [episode for episode in episodes if episode]
