from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import (
    ADOPSWrapper,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    ShapingRecorder,
)
from adops_wrappers.inspect.diagnosis import critic_reading
from adops_wrappers.meter import CriticMeter, Reading
from tests import toolkit as tk

GAMMA, STATES, ACTIONS, HORIZON = 0.9, 3, 2, 4


class Gambles:
    """A random finite MDP that ends at a state or after four steps, and a critic of it."""

    def __init__(self, seed: int, error: float) -> None:
        rng = np.random.default_rng(seed)
        self.moves = rng.dirichlet(np.ones(STATES + 1), size=(STATES, ACTIONS))  # the last: the end
        self.reward = rng.normal(size=(STATES, ACTIONS, STATES + 1))
        self.policy = rng.dirichlet(np.ones(ACTIONS), size=STATES)
        chance = self.policy[..., None] * self.moves
        gain = (chance * self.reward).sum(axis=(1, 2))
        exact = np.linalg.solve(np.eye(STATES) - GAMMA * chance.sum(axis=1)[:, :STATES], gain)
        self.value = np.append(exact + error * rng.normal(size=STATES), 0.0)

    def q(self, state: int, action: int) -> float:
        """Return Q_E by the critic's V_E."""
        after = self.reward[state, action] + GAMMA * self.value
        return float(self.moves[state, action] @ after)

    def exact(self) -> tuple[float, float]:
        """Return E[agreed]/E[decided] and E[decided]/E[steps], summed over all trajectories."""
        steps = decided = agreed = 0.0

        def follow(state: int, past: list[tuple[float, float, float]], chance: float) -> None:
            nonlocal steps, decided, agreed
            if state == STATES or len(past) == HORIZON:
                earned = self.value[state]  # 0 at the end
                for advantage, value, reward in reversed(past):
                    earned = reward + GAMMA * earned
                    steps += chance
                    decided += chance * (advantage * (earned - value) != 0.0)
                    agreed += chance * (advantage * (earned - value) > 0.0)
                return
            for action in range(ACTIONS):
                advantage = self.q(state, action) - self.value[state]
                for after in range(STATES + 1):
                    part = self.policy[state, action] * self.moves[state, action, after]
                    step = advantage, self.value[state], self.reward[state, action, after]
                    follow(after, [*past, step], chance * part)

        follow(0, [], 1.0)
        return agreed / decided, decided / steps

    def play(self, meter: CriticMeter, rows: int, seed: int) -> None:
        """Play one episode in each row."""
        rng = np.random.default_rng(seed)
        state, over = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.bool_)
        q = np.array([[self.q(s, a) for a in range(ACTIONS)] for s in range(STATES)])
        for t in range(HORIZON):
            action = (rng.random(rows) > self.policy[state, 0]).astype(np.int64)
            draw = rng.random(rows)[:, None]
            after = (self.moves[state, action].cumsum(axis=1) < draw).sum(axis=1).clip(0, STATES)
            ends = after == STATES
            meter.step(
                q[state, action] - self.value[state],
                self.value[state],
                self.reward[state, action, after],
                self.value[after],
                ends,
                ~ends & (t == HORIZON - 1),
                ~over,
            )
            over |= ends
            state = np.where(over, 0, after)


@pytest.mark.parametrize("error", [0.0, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_agreement_is_that_of_all_trajectories(seed: int, error: float) -> None:
    """100,000 episodes against the sum over every trajectory: within four standard errors."""
    mdp = Gambles(seed, error)
    exact, decided = mdp.exact()
    meter = CriticMeter(100_000, gamma_ext=GAMMA, probes=HORIZON, episodes=100_000)
    mdp.play(meter, 100_000, seed=5)
    found = meter.reading()
    assert found.agreement is not None
    assert found.low is not None
    assert abs(found.agreement - exact) < 2.1 * (found.agreement - found.low)
    assert found.decided == pytest.approx(decided, abs=1e-9)
    assert exact < 0.98  # of one draw, the sign is not certain


def test_the_interval_covers_the_exact_share_as_often_as_it_says() -> None:
    mdp = Gambles(1, 0.5)
    exact, _ = mdp.exact()
    covered = []
    for seed in range(500):
        meter = CriticMeter(40, gamma_ext=GAMMA, probes=HORIZON)
        mdp.play(meter, 40, seed)
        low, high = meter.reading()[2:4]
        covered.append(low <= exact <= high)  # type: ignore[operator]
    # 95 % of 500 is 475, with a standard deviation of 5.
    assert 460 <= sum(covered) <= 490


def test_few_probes_of_long_episodes_estimate_the_same_share() -> None:
    rng = np.random.default_rng(0)
    rows, steps = 400, 200
    advantage, reward = rng.normal(size=(2, steps, rows))
    reward[:60] += 1.0  # the beginning differs from the end
    readings = []
    for probes in (8, steps):
        meter = CriticMeter(rows, gamma_ext=0.9, probes=probes, episodes=rows)
        zeros, never = np.zeros(rows), np.zeros(rows, dtype=np.bool_)
        for t in range(steps):
            meter.step(advantage[t], zeros, reward[t], zeros, never | (t == steps - 1), never)
        readings.append(meter.reading())
    few, all_ = readings
    assert few.agreement is not None
    assert few.low is not None
    assert abs(few.agreement - all_.agreement) < 2 * (few.agreement - few.low)
    # G has a standard deviation of 4.4 over the 3,200 probes.
    assert few.earned == pytest.approx(all_.earned, abs=4 * 4.4 / 3200**0.5)
    assert few.explained == pytest.approx(0.0, abs=1e-9)  # V_E = 0 explains nothing


def test_an_episode_by_hand() -> None:
    """R = 1, 0, −2 at γ_E = ½; G = ½, −1, −2 beside V_E = 0, −1, −1."""
    meter = CriticMeter(1, gamma_ext=0.5)
    no = np.array([False])
    for reward, advantage, value in ((1.0, 1.0, 0.0), (0.0, 1.0, -1.0), (-2.0, 1.0, -1.0)):
        numbers = (np.array([x]) for x in (advantage, value, reward, 7.0))
        meter.step(*numbers, np.array([reward < 0.0]), no)
    found = meter.reading()
    # The second step is undecided: G = V_E.
    assert found == Reading(
        1, 0.5, None, None, 2 / 3, -2 / 3, -2.5 / 3, pytest.approx(found.explained)
    )
    earned, error = np.array([0.5, -1.0, -2.0]), np.array([0.5, 0.0, -1.0])
    assert found.explained == pytest.approx(1.0 - error.var() / earned.var())


def test_a_cut_episode_goes_on_with_the_value_of_its_last_observation() -> None:
    meter = CriticMeter(1, gamma_ext=0.5)
    yes, no = np.array([True]), np.array([False])
    meter.step(np.ones(1), np.ones(1), np.ones(1), np.array([4.0]), no, yes)
    assert meter.reading().earned == 3.0


@pytest.mark.parametrize("mode", ["single", *AutoresetMode])
def test_joins_a_stack_of_any_kind(mode: Any) -> None:
    env: Any = tk.ScriptedEnv() if mode == "single" else tk.make_vector("sync", mode)
    rows = 1 if mode == "single" else 3
    env = IntrinsicRewardWrapper(env, tk.source)
    env = ADOPSWrapper(env, lambda obs: (np.zeros(np.atleast_2d(obs).shape[0]),) * 2, gamma=0.9)
    meter = CriticMeter.joined(env, probes=2, episodes=3)
    env.reset(seed=0)
    action: Any = 0 if rows == 1 else np.zeros(rows, dtype=np.int64)
    ends = 0
    for _ in range(40):
        _, _, terminated, truncated, _ = env.step(action)
        done = np.logical_or(terminated, truncated)
        ends += int(np.sum(done))
        if mode == "single" and done:
            env.reset()
        elif mode is AutoresetMode.DISABLED and done.any():
            env.reset(options={"reset_mask": done})
    assert meter.finished == ends > 3
    assert meter.reading().episodes == 3


def test_a_state_dict_goes_on_as_the_meter_would() -> None:
    rng = np.random.default_rng(0)
    first, second = (CriticMeter(2, gamma_ext=0.9, probes=3, seed=s) for s in (0, 1))
    no = np.zeros(2, dtype=np.bool_)

    def step(meters: list[CriticMeter], ends: bool) -> None:
        numbers = rng.normal(size=(4, 2))
        for meter in meters:
            meter.step(*numbers, no | ends, no)

    for _ in range(7):
        step([first], False)
    second.load_state_dict(first.state_dict())
    for t in range(20):
        step([first, second], t % 10 == 9)
    assert first.reading() == second.reading()
    with pytest.raises(ValueError, match="num_envs, probes"):
        CriticMeter(3, gamma_ext=0.9, probes=3).load_state_dict(first.state_dict())


def test_what_cannot_be_measured_is_said() -> None:
    env = IntrinsicRewardWrapper(gym.make("FrozenLake-v1"), lambda s, a, n: 0.0)
    with pytest.raises(ValueError, match="needs a stack with a shaping wrapper"):
        CriticMeter.joined(env)
    plain = NoShapingWrapper(env)
    with pytest.raises(ValueError, match="consults no critic"):
        CriticMeter.joined(plain)
    with pytest.raises(ValueError, match="Pass gamma_ext"):
        CriticMeter.joined(plain, lambda obs: (0.0, 0.0))
    assert CriticMeter(1, gamma_ext=0.9).reading().agreement is None


def test_a_recording_of_the_same_steps_says_the_same(tmp_path: Path) -> None:
    env: Any = tk.make_vector("sync", AutoresetMode.SAME_STEP)
    weights = np.linspace(-0.5, 0.5, int(np.prod(env.single_observation_space.shape)))

    def values(obs: Any) -> Any:
        value = np.asarray(obs, dtype=np.float64).reshape(len(obs), -1) @ weights
        return value, 0.0 * value

    env = ADOPSWrapper(IntrinsicRewardWrapper(env, tk.source), values, gamma=0.9)
    env = ShapingRecorder(env, tmp_path / "steps.npz")
    meter = CriticMeter.joined(env)
    env.reset(seed=0)
    for _ in range(60):
        env.step(np.zeros(3, dtype=np.int64))
    recording = env.finish()
    mine, theirs = meter.reading(), critic_reading(recording)
    assert mine.episodes == theirs.episodes > 5
    assert mine.agreement is not None
    assert theirs == pytest.approx(mine)
