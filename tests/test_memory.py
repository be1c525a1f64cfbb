"""What goes out of a stack belongs to the agent alone: it shares memory with nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import ClipReward

from adops_wrappers import (
    SHAPINGS,
    CriticHandle,
    EpisodicCountBonus,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    Transition,
    make_shaping,
)
from tests import toolkit as tk

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
KEYS = ("extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward", "shaping_correction")
WRITTEN = (*KEYS, "final_value_ext", "final_value_int")
SETTINGS: dict[str, dict[str, Any]] = {
    "pbrs": {"potential": tk.potential, "gamma": 0.9},
    "grm-norm": {"delay": 3},
    "grm-matching": {"matching": tk.halves},
}
METHODS = [*SHAPINGS, "grm-matching"]
GARBAGE = {"b": True, "f": -777.0, "i": 1, "u": 1}


class Reuses(gym.vector.VectorWrapper):
    """Writes what it returns into the same arrays at every step, F and its mask among them."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        numbers, flags = np.zeros((2, env.num_envs)), np.zeros((3, env.num_envs), np.bool_)
        self.arrays = [*numbers, *flags]

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        news = [reward, np.tanh(obs.sum(-1)), terminated, truncated, np.ones(self.num_envs)]
        for array, new in zip(self.arrays, news, strict=True):
            array[:] = new
        reward, bonus, *ends, mask = self.arrays
        return obs, reward, *ends, {**info, "intrinsic_reward": bonus, "_intrinsic_reward": mask}


class Remembers:
    """A function that keeps every array that it gives, as an agent's own buffers would be."""

    def __init__(self, function: Any) -> None:
        self.function, self.given = function, []

    def __call__(self, *args: Any) -> Any:
        answer = self.function(*args)
        self.given += arrays_in(answer)
        return answer


class Watches:
    """An observer that keeps what it is shown."""

    needs_observations = True

    def __init__(self) -> None:
        self.seen: list[Transition] = []

    def reset(self, mask: Any) -> None:
        pass

    def observe(self, transition: Transition) -> None:
        self.seen.append(transition)


def arrays_in(value: Any) -> list[np.ndarray]:
    """Return the arrays in a value, in containers and in the attributes of this package."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return [value]
    if isinstance(value, dict):
        return [array for part in value.values() for array in arrays_in(part)]
    if isinstance(value, np.ndarray | list | tuple):
        return [array for part in value for array in arrays_in(part)]
    if type(value).__module__.startswith("adops_wrappers"):
        return arrays_in(vars(value))
    return []


class Stack:
    """A stack with all that it was given and has given."""

    def __init__(self, method: str, mode: AutoresetMode, below: str, *, adds: bool) -> None:
        self.mode, self.watches = mode, Watches()
        self.base = Reuses(tk.make_vector("sync", mode))
        self.source, self.critic = Remembers(tk.source), Remembers(tk.critic)
        env: Any = self.base
        if below != "the env's own bonus":
            scale = IntrinsicReturnNormalizer(3, warm_up=2)
            env = IntrinsicRewardWrapper(env, self.source, normalizer=scale)
        if below == "two methods":
            env = NoShapingWrapper(env, add_to_reward=adds)
        name = "grm" if method == "grm-matching" else method
        settings = SETTINGS.get(method, {})
        handle = CriticHandle(self.critic)
        self.env = make_shaping(name, env, handle, add_to_reward=adds, **settings)
        self.env.core.join(self.watches)
        self.obs, _ = self.env.reset(seed=3)

    def step(self, action: Any) -> dict[str, np.ndarray]:
        """Step, and return what went out by name, observations left out."""
        self.obs, *rest, self.info = self.env.step(action)
        out = dict(zip(("reward", "terminated", "truncated"), rest, strict=True))
        for key in WRITTEN:
            if key in self.info:
                out |= {key: self.info[key], f"_{key}": self.info[f"_{key}"]}
        return out

    def reset_ended(self, ended: Any) -> None:
        if self.mode is AutoresetMode.DISABLED and ended.any():
            self.obs, _ = self.env.reset(options={"reset_mask": ended})

    def held(self) -> Iterator[np.ndarray]:
        """Yield all that the stack was given and all that it holds itself."""
        yield from self.base.arrays
        yield from self.source.given
        yield from self.critic.given
        yield from arrays_in(self.watches.seen)
        layer = self.env
        while layer is not self.base:
            yield from arrays_in(getattr(layer, "core", None) or layer.runner)
            layer = layer.env


BELOW = ["source", "the env's own bonus", "two methods"]


def actions(steps: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 3, (steps, 3))


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("method", METHODS)
def test_what_goes_out_shares_memory_with_nothing(
    method: str, below: str, mode: AutoresetMode, adds: bool
) -> None:
    stack, out = Stack(method, mode, below, adds=adds), []
    for t, action in enumerate(actions(8)):
        step = stack.step(action)
        out += [(f"{name} of step {t}", array) for name, array in step.items()]
        held = list(stack.held())
        for name, array in step.items():
            assert not any(np.shares_memory(array, other) for other in held), name
        stack.reset_ended(step["terminated"] | step["truncated"])
    assert len(out) >= 8 * 11
    for (first, left), (second, right) in combinations(out, 2):
        assert not np.shares_memory(left, right), (first, second)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("method", METHODS)
def test_overwriting_all_that_went_out_and_in_changes_nothing_later(
    method: str, below: str, mode: AutoresetMode, adds: bool
) -> None:
    def play(*, overwrites: bool) -> list[list[np.ndarray]]:
        stack, seen, shown = Stack(method, mode, below, adds=adds), [], []
        for action in actions(30):
            action = action.copy()
            step = stack.step(action)
            seen.append([array.copy() for array in step.values()])
            shown.append([array.copy() for array in arrays_in(stack.watches.seen[-1][:10])])
            ended = step["terminated"] | step["truncated"]
            if overwrites:
                given = stack.base.arrays + stack.source.given + stack.critic.given
                for array in [action, *arrays_in((stack.obs, stack.info)), *step.values(), *given]:
                    array[...] = GARBAGE[array.dtype.kind]
            stack.reset_ended(ended)
        kept = [arrays_in(transition[:10]) for transition in stack.watches.seen]
        for now, then in zip(kept, shown, strict=True):
            np.testing.assert_array_equal(now, then)  # nor what an observer has kept
        return seen

    for left, right in zip(play(overwrites=True), play(overwrites=False), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("mode", MODES)
def test_what_a_source_alone_lets_out_shares_memory_with_nothing(mode: AutoresetMode) -> None:
    source = Remembers(tk.source)
    base = Reuses(tk.make_vector("sync", mode, longest=10**6))
    env = IntrinsicRewardWrapper(base, source)
    env.reset(seed=0)
    out: list[np.ndarray] = []
    for _ in range(3):
        _, *step, info = env.step(np.zeros(3, dtype=np.int64))
        out += [*step, info["intrinsic_reward"], info["_intrinsic_reward"]]
        held = [*base.arrays, *source.given, *arrays_in(env.runner)]
        assert not any(np.shares_memory(array, other) for array in out for other in held)
    assert not any(np.shares_memory(*pair) for pair in combinations(out, 2))


def test_clipping_the_reward_above_leaves_the_extrinsic_reward_as_it_was() -> None:
    env = gym.make_vec(tk.CLIFF, num_envs=2, vectorization_mode="sync")
    env = IntrinsicRewardWrapper(env, lambda obs, action, next_obs: np.zeros(2))
    env = ClipReward(NoShapingWrapper(env, add_to_reward=False), -1.0, 1.0)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.array([1, 0]))  # over the cliff, and up
    assert reward.tolist() == [-1.0, -1.0]
    assert info["extrinsic_reward"].tolist() == [-100.0, -1.0]


def test_an_env_that_reuses_its_reward_does_not_rewrite_earlier_infos() -> None:
    class Counts(gym.vector.VectorWrapper):
        reward = np.zeros(3)

        def step(self, actions: Any) -> Any:
            obs, _, *rest = self.env.step(actions)
            self.reward += 1.0
            return obs, self.reward, *rest

    env = Counts(tk.make_vector("sync", AutoresetMode.DISABLED, longest=10**6))
    env = NoShapingWrapper(IntrinsicRewardWrapper(env, tk.source), add_to_reward=False)
    env.reset(seed=0)
    steps = [env.step(np.zeros(3, dtype=np.int64)) for _ in range(3)]
    assert [info["extrinsic_reward"][0] for *_, info in steps] == [1.0, 2.0, 3.0]
    assert [step[1][0] for step in steps] == [1.0, 2.0, 3.0]


class Arrays(gym.Wrapper):
    """A single env that writes its numbers into the same arrays at every step."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.reward, self.bonus = np.zeros((2, 1))
        self.ends = np.zeros((2, 1), np.bool_)

    def step(self, action: Any) -> Any:
        obs, self.reward[:], self.ends[0], self.ends[1], info = self.env.step(action)
        self.bonus[:] = np.tanh(obs.sum())
        info = {**info, "intrinsic_reward": self.bonus}
        return obs, self.reward, self.ends[0], self.ends[1], info


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_single_env_that_reuses_its_arrays_rewrites_nothing(method: str, adds: bool) -> None:
    env: Any = Arrays(tk.ScriptedEnv())
    name = "grm" if method == "grm-matching" else method
    settings = SETTINGS.get(method, {})
    shaped = make_shaping(name, env, CriticHandle(tk.critic), add_to_reward=adds, **settings)
    shaped.reset(seed=0)
    kept, copies = [], []
    for _ in range(12):
        _, *step, info = shaped.step(0)
        kept.append([*step, *(info[key] for key in KEYS)])
        copies.append([float(value) for value in kept[-1]])
        if step[1] or step[2]:
            shaped.reset()
    assert [[float(value) for value in step] for step in kept] == copies
    assert not any(isinstance(value, np.ndarray) for step in kept for value in step)


def test_a_source_above_a_single_env_that_reuses_its_arrays_rewrites_nothing() -> None:
    env = IntrinsicRewardWrapper(Arrays(tk.ScriptedEnv()), tk.source)
    env.reset(seed=0)
    kept, copies = [], []
    for _ in range(3):
        _, *step, info = env.step(0)
        kept.append([*step, info["intrinsic_reward"]])
        copies.append([float(np.asarray(value).item()) for value in kept[-1]])
    assert [[float(np.asarray(value).item()) for value in step] for step in kept] == copies


@pytest.mark.parametrize("warm_up", [1, 100])
def test_the_normalizer_gives_arrays_of_its_own(warm_up: int) -> None:
    normalizer = IntrinsicReturnNormalizer(3, warm_up=warm_up)
    given = [np.array([1.0, 2.0, 4.0]) for _ in range(3)]
    out = [normalizer(values, np.ones(3, np.bool_)) for values in given]
    held = [*given, normalizer.returns]
    assert not any(np.shares_memory(array, other) for array in out for other in held)
    assert not any(np.shares_memory(*pair) for pair in combinations(out, 2))


def test_masks_that_a_source_keeps_are_its_own() -> None:
    class Keeps(EpisodicCountBonus):
        def __init__(self) -> None:
            super().__init__()
            self.masks: list[np.ndarray] = []

        def reset_episodes(self, mask: Any) -> None:
            self.masks.append(mask)
            super().reset_episodes(mask)

    source = Keeps()
    env = IntrinsicRewardWrapper(tk.make_vector("sync", AutoresetMode.SAME_STEP), source)
    env = NoShapingWrapper(env)
    env.reset(seed=0)
    out = [arrays_in(env.step(np.zeros(3, dtype=np.int64))[1:]) for _ in range(9)]
    held = arrays_in(env.core)
    assert len(source.masks) > 3
    for mask in source.masks:
        assert not any(np.shares_memory(mask, array) for array in [*held, *arrays_in(out)])
