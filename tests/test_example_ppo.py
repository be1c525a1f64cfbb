"""examples/ppo.py: its marked lines, plain PPO without them, what it bootstraps from and learns."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

SOURCE = (Path(__file__).parent.parent / "examples" / "ppo.py").read_text()
MARK = re.compile(r"^.*  # bonus\b.*\n", re.MULTILINE)
PLAIN = MARK.sub("", SOURCE)
CODE = {"two heads": SOURCE, "one critic": SOURCE, "plain": PLAIN}
GOAL, LIMIT = 5, 12


class Line(gym.Env[Any, Any]):
    """Go right from 0 to 5, by a step or by an action in [-1, 1]."""

    observation_space = gym.spaces.Box(0.0, GOAL, (1,), np.float32)

    def __init__(self, *, box: bool) -> None:
        self.box = box
        interval = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = interval if box else gym.spaces.Discrete(2)

    def _obs(self) -> Any:
        return np.array([self.at], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0.0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = float(action[0]) if self.box else 2.0 * float(action) - 1.0
        self.at = min(max(self.at + move, 0.0), float(GOAL))
        return self._obs(), float(self.at == GOAL), self.at == GOAL, False, {}


@pytest.fixture(autouse=True)
def lines(one_thread: None) -> Iterator[None]:
    for name, box in (("Line-v0", False), ("BoxLine-v0", True)):
        gym.register(name, Line, max_episode_steps=LIMIT, kwargs={"box": box})
    yield
    for name in ("Line-v0", "BoxLine-v0"):
        del gym.registry[name]


def load(variant: str, **constants: Any) -> dict[str, Any]:
    """Run the file's text without its last lines, with other constants."""
    module: dict[str, Any] = {"__name__": "example"}
    exec(compile(CODE[variant], "examples/ppo.py", "exec"), module)
    module.update(constants)
    return module


def settings(variant: str, env_id: str, steps: int) -> Namespace:
    return Namespace(env_id=env_id, steps=steps, seed=0, one_critic=variant == "one critic")


def test_the_marked_lines_are_at_most_twenty_and_all_that_mentions_the_package() -> None:
    assert 1 <= len(MARK.findall(SOURCE)) <= 20
    assert len(SOURCE.split("\n")) <= 210
    code = PLAIN.split('"""', 2)[2]
    assert not re.findall(r"adops|bonus|intrinsic|critic|[Cc]lamp(?!\()|RND", code)


@pytest.mark.parametrize("env_id", ["Line-v0", "BoxLine-v0"])
@pytest.mark.parametrize("variant", CODE)
def test_it_learns_a_small_task(variant: str, env_id: str) -> None:
    module = load(variant, ENVS=8, ROLLOUT=32, LEARNING_RATE=3e-3)
    curve = list(module["train"](settings(variant, env_id, 8 * 32 * 20)))
    assert [steps for steps, _ in curve] == [8 * 32 * 2 * tenth for tenth in range(1, 11)]
    assert curve[0][1] < 0.7
    assert curve[-1][1] > 0.9


@pytest.mark.parametrize("variant", CODE)
def test_ends_and_the_late_start(variant: str) -> None:
    """V of an observation is the observation itself here, so that V(s') shows which one it is."""
    module = load(variant, ENVS=4, ROLLOUT=16)
    calls = []

    class Agent(module["Agent"]):  # type: ignore[misc]
        def forward(self, obs: Any) -> Any:
            chances, values = super().forward(obs)
            return chances, obs[:, 0].expand_as(values)

    def gae(rewards: Any, values: Any, following: Any, cut: Any) -> Any:
        calls.append([part.clone().numpy() for part in (rewards, values, following, cut)])
        return original(rewards, values, following, cut)

    original = module["gae"]
    module.update(Agent=Agent, gae=gae)
    list(module["train"](settings(variant, "Line-v0", 4 * 16 * 14)))

    rewards, values, following, cut = (
        np.concatenate([call[part] for call in calls]) for part in range(4)
    )
    task, over = rewards[:, 0], cut[:, 0]
    solved = over & (values[:, 0] == GOAL - 1) & (following[:, 0] == 0)
    timed_out = over & ~solved
    assert solved.sum() >= 3
    assert timed_out.sum() >= 3
    if variant != "one critic":  # whose reward has F' in it
        np.testing.assert_array_equal(task, solved)
    # A step leads from s to s ± 1, or stays at 0: not to the 0 of the next episode.
    moved = np.abs(following[:, 0] - values[:, 0])[~solved]
    assert set(moved) <= {0.0, 1.0}
    assert (following[:, 0][timed_out] > 0).any()
    quiet = len(rewards) * 10 // 14
    if variant == "two heads":
        assert not cut[:, 1].any()
        assert not following[:, 1][over].any()  # V_I of the next episode's first observation
        assert not rewards[:quiet, 1].any()
        assert rewards[quiet:, 1].any()
    if variant == "one critic":
        assert set(task[:quiet][~solved[:quiet]]) == {0.0}
        assert not set(task[quiet:].ravel()) <= {0.0, 1.0}
