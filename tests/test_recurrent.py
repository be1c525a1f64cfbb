from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers import (
    ADOPSWrapper,
    IntrinsicRewardWrapper,
    PIESWrapper,
    RecurrentCritic,
    make_shaping,
)
from adops_wrappers.replay import ReplayShaper
from tests import toolkit as tk

MODES = list(AutoresetMode)


def advance(state: Any, obs: Any) -> Any:
    """One row's hidden state after `obs`; also of many rows at once."""
    return np.tanh(0.7 * state + tk.numbers(obs))


def values(state: Any) -> tuple[Any, Any]:
    return np.sin(3.0 * state), 0.5 * np.cos(2.0 * state)


class Agent:
    """A recurrent agent in numpy, which notes its calls and writes into what it is given."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any]] = []
        self.memory = np.zeros(3)
        self.bias = 0.0

    def __call__(self, obs: Any, state: Any, begins: Any) -> Any:
        self.calls.append((np.array(obs), np.array(begins)))
        state = np.zeros(np.shape(begins)) if state is None else state
        state *= ~np.asarray(begins)
        result = advance(state, obs)
        out = self.memory[: np.size(result)].reshape(np.shape(result))
        out[...] = result
        value_ext, value_int = values(out)
        return (value_ext + self.bias, value_int), out


class TorchAgent:
    """An LSTM as in CleanRL's PPO: it masks the state where an episode begins."""

    def __init__(self, rows: int) -> None:
        torch = pytest.importorskip("torch")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.lstm = torch.nn.LSTM(3, 5).double()
            self.heads = torch.nn.Linear(5, 2).double()
        self.rows, self.torch = rows, torch

    def __call__(self, obs: Any, state: Any, begins: Any) -> Any:
        torch = self.torch
        x = torch.as_tensor(np.reshape(obs, (1, self.rows, 3)))
        if state is None:
            state = (torch.zeros(1, self.rows, 5).double(),) * 2
        goes_on = 1.0 - torch.as_tensor(np.reshape(begins, (1, self.rows, 1)).astype(float))
        with torch.no_grad():
            hidden, state = self.lstm(x, tuple(goes_on * part for part in state))
            return tuple(self.heads(hidden[0]).unbind(1)), state

    def of_episode(self, observations: list[Any]) -> list[tuple[float, float]]:
        """V_E and V_I along one episode, by one call of the LSTM."""
        with self.torch.no_grad():
            hidden, _ = self.lstm(self.torch.as_tensor(np.stack(observations))[:, None])
            return [tuple(pair) for pair in self.heads(hidden[:, 0]).tolist()]


def of_episode(observations: list[Any]) -> list[tuple[float, float]]:
    state, found = 0.0, []
    for obs in observations:
        state = advance(state, obs)
        found.append(values(state))
    return found


def make_env(critic: Any, mode: AutoresetMode, shaping: str = "adops", **settings: Any) -> Any:
    env = IntrinsicRewardWrapper(tk.make_vector("sync", mode), tk.source)
    if shaping == "adops":
        settings = {"gamma_ext": tk.GAMMA_EXT, "gamma_int": tk.GAMMA_INT, **settings}
    return make_shaping(shaping, env, critic, **settings)


def play(env: Any, actions: Any, mode: AutoresetMode, act: Callable[[Any], Any]) -> list[Any]:
    """Step through `actions`, resetting ended rows by hand where the mode asks for it."""
    obs, _ = env.reset(seed=5)
    infos = []
    for action in actions:
        act(obs)
        obs, _, terminated, truncated, info = env.step(action)
        infos.append(info)
        if mode is AutoresetMode.DISABLED and (ended := terminated | truncated).any():
            obs, _ = env.reset(options={"reset_mask": ended.copy()})
    act(obs)
    return infos


ACTIONS = np.random.default_rng(0).integers(0, 3, (80, 3))


def expected_bonuses(
    mode: AutoresetMode, of_episode: Callable[[list[Any]], Any]
) -> dict[tuple[int, int], float]:
    """F′ by time and row, from the values of whole episodes."""
    found = {}
    bare = tk.make_vector("sync", mode)
    for row, steps in enumerate(tk.record(bare, ACTIONS, 5, mode)):
        for episode in tk.episodes_of(steps):
            v = of_episode([step.obs for step in episode] + [episode[-1].next_obs])
            for t, step in enumerate(episode):
                bonus = float(tk.source(step.obs, step.action, step.next_obs))
                next_ext = 0.0 if step.terminated else v[t + 1][0]
                f2 = tk.adops_f2(step.reward, bonus, v[t], (next_ext, v[t + 1][1]))
                found[step.time, row] = bonus + f2
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("asks", [True, False])
def test_values_are_those_of_whole_episodes(mode: AutoresetMode, asks: bool) -> None:
    critic = RecurrentCritic(Agent())
    env = make_env(critic, mode)
    infos = play(env, ACTIONS, mode, critic if asks else lambda obs: None)
    expected = expected_bonuses(mode, of_episode)
    assert len(expected) > 150
    for (time, row), bonus in expected.items():
        assert infos[time]["intrinsic_reward"][row] == pytest.approx(bonus, abs=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_an_lstm_gives_the_values_of_its_pass_over_each_episode(mode: AutoresetMode) -> None:
    agent = TorchAgent(3)
    critic = RecurrentCritic(agent)
    infos = play(make_env(critic, mode), ACTIONS, mode, critic)
    for (time, row), bonus in expected_bonuses(mode, agent.of_episode).items():
        assert infos[time]["intrinsic_reward"][row] == pytest.approx(bonus, abs=1e-9)


def test_a_single_env_gets_single_observations_and_a_bool() -> None:
    agent = Agent()
    critic = RecurrentCritic(agent)
    env = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
    env = ADOPSWrapper(env, critic, gamma_ext=tk.GAMMA_EXT, gamma_int=tk.GAMMA_INT)
    for episode in range(4):
        obs, _ = env.reset(seed=episode)
        seen, found, ended = [obs.copy()], [critic(obs)], False
        while not ended:
            obs, _, terminated, truncated, _ = env.step(1)
            seen.append(obs.copy())
            found.append(critic(obs))
            ended = terminated or truncated
        np.testing.assert_allclose(found, of_episode(seen), atol=1e-12)
    assert len(agent.calls) == len([begins for _, begins in agent.calls if not begins]) + 4
    assert all(begins.shape == () for _, begins in agent.calls)


@pytest.mark.parametrize("mode", MODES)
def test_equal_observations_are_not_taken_for_the_same_step(mode: AutoresetMode) -> None:
    class Still(tk.ScriptedEnv):
        def _obs(self) -> Any:
            return np.ones(3)

    agent = Agent()
    critic = RecurrentCritic(agent)
    env: Any = SyncVectorEnv([lambda: Still(longest=10**6)] * 3, autoreset_mode=mode)
    env = ADOPSWrapper(IntrinsicRewardWrapper(env, tk.source), critic)
    obs, _ = env.reset(seed=0)
    state = 0.0
    for _ in range(13):
        state = advance(state, np.ones(3))
        for _ in range(2):
            np.testing.assert_array_equal(critic(obs)[0], np.full(3, values(state)[0]))
        obs, *_ = env.step(np.zeros(3, dtype=np.int64))
    assert len(agent.calls) == 13 + 1


@pytest.mark.parametrize("shaping", ["adops", "grm"])
def test_final_observations_are_valued_without_advancing(shaping: str) -> None:
    """GRM consults the critic at the ends alone, and even there finds the state of the moment."""
    mode = AutoresetMode.SAME_STEP
    critic = RecurrentCritic(Agent())
    infos = play(make_env(critic, mode, shaping), ACTIONS, mode, lambda obs: None)
    bare = tk.make_vector("sync", mode)
    ends = 0
    for row, steps in enumerate(tk.record(bare, ACTIONS, 5, mode)):
        for episode in tk.episodes_of(steps):
            if not (last := episode[-1]).ended:
                continue
            ends += 1
            v = of_episode([step.obs for step in episode] + [last.next_obs])[-1]
            info = infos[last.time]
            assert info["final_value_ext"][row] == pytest.approx(v[0], abs=1e-12)
            assert info["final_value_int"][row] == pytest.approx(v[1], abs=1e-12)
    assert ends > 50


@pytest.mark.parametrize("mode", MODES)
def test_new_parameters_value_the_present_anew_from_the_same_state(mode: AutoresetMode) -> None:
    agent = Agent()
    critic = RecurrentCritic(agent)
    env = make_env(critic, mode)
    states, biases = [], []

    def act(obs: Any) -> None:
        before = critic(obs)
        agent.bias += 1.0
        critic.updated()
        after = critic(obs)
        np.testing.assert_allclose(after[0], before[0] + 1.0, atol=1e-12)
        np.testing.assert_array_equal(after[1], before[1])
        states.append(critic.state)
        biases.append(agent.bias)

    play(env, ACTIONS, mode, act)
    untouched = RecurrentCritic(Agent())
    seen: list[Any] = []
    play(
        make_env(untouched, mode),
        ACTIONS,
        mode,
        lambda obs: (untouched(obs), seen.append(untouched.state)),
    )
    np.testing.assert_array_equal(np.array(states[1:]), np.array(seen[1:]))


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_run_continues_exactly(mode: AutoresetMode) -> None:
    critics = [RecurrentCritic(Agent()) for _ in range(2)]
    envs = [make_env(critic, mode) for critic in critics]

    def step(env: Any, action: Any) -> Any:
        _, _, terminated, truncated, info = env.step(action)
        if mode is AutoresetMode.DISABLED and (ended := terminated | truncated).any():
            env.reset(options={"reset_mask": ended.copy()})
        return info

    moved = [envs[0], envs[1].unwrapped]  # the second stack's state comes from the first
    for env in moved:
        env.reset(seed=3)
    for action in ACTIONS[:20]:
        for env in moved:
            step(env, action)
    critics[1].load_state_dict(critics[0].state_dict())
    envs[1].env.load_state_dict(envs[0].env.state_dict())
    envs[1].load_state_dict(envs[0].state_dict())
    for action in ACTIONS[20:]:
        infos = [step(env, action) for env in envs]
        np.testing.assert_array_equal(*(info["intrinsic_reward"] for info in infos))


def test_one_handle_for_two_wrappers_is_refused() -> None:
    critic = RecurrentCritic(Agent())
    both = PIESWrapper(make_env(critic, AutoresetMode.SAME_STEP))
    both = make_shaping("grm", both, critic)
    both.reset(seed=0)
    with pytest.raises(RuntimeError, match=r"Make one handle for each, RecurrentCritic\(fn\)"):
        both.step(ACTIONS[0])


def test_an_evaluation_env_with_a_handle_of_its_own_disturbs_nothing() -> None:
    agent, mode = Agent(), AutoresetMode.SAME_STEP
    critic, other = RecurrentCritic(agent), RecurrentCritic(agent)
    env, evaluation = make_env(critic, mode), make_env(other, mode)
    alone = play(make_env(RecurrentCritic(Agent()), mode), ACTIONS, mode, lambda obs: None)
    evaluation.reset(seed=9)
    infos = play(env, ACTIONS, mode, lambda obs: evaluation.step(ACTIONS[0]))
    for info, expected in zip(infos, alone, strict=True):
        np.testing.assert_array_equal(info["intrinsic_reward"], expected["intrinsic_reward"])


def test_what_cannot_be_right_is_refused() -> None:
    critic = RecurrentCritic()
    with pytest.raises(RuntimeError, match=r"call critic.register\(fn\) with"):
        critic(np.zeros((3, 3)))
    with pytest.raises(TypeError, match=r"cannot use q_ext_of"):
        critic.register(tk.CriticOfActions())
    with pytest.raises(TypeError, match="register takes a function"):
        critic.register(None)  # type: ignore[arg-type]
    critic.register(lambda obs, state, begins: np.zeros(3))
    env = make_env(critic, AutoresetMode.SAME_STEP, add_to_reward=False)
    obs, _ = env.reset(seed=0)
    with pytest.raises(TypeError, match=r"must return \(output, next_state\); .* a ndarray"):
        critic(obs)
    critic.register(Agent())
    critic(obs)
    with pytest.raises(ValueError, match="not those that its wrapper sees now"):
        critic(obs + 1.0)
    with pytest.raises(TypeError, match="computes every answer itself"):
        critic.remember(obs, (np.zeros(3), np.zeros(3)))
    with pytest.raises(TypeError, match="cannot value sampled transitions"):
        ReplayShaper(env)
