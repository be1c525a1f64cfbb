from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers import (
    ADOPSWrapper,
    CountBonus,
    CriticHandle,
    IntrinsicRewardWrapper,
    make_shaping,
)
from adops_wrappers.critic import as_handle
from tests import toolkit as tk


class Counting:
    """A critic that notes the observations it was really evaluated on."""

    def __init__(self, fn: Callable[[Any], Any] = tk.critic) -> None:
        self.fn, self.seen = fn, []

    def __call__(self, obs: Any) -> Any:
        self.seen.append(np.array(obs))
        return self.fn(obs)


def vector_stack(critic: Any, mode: AutoresetMode, copy: bool = True, longest: int = 6) -> Any:
    env = SyncVectorEnv(
        [lambda: tk.ScriptedEnv(longest=longest)] * 3, copy=copy, autoreset_mode=mode
    )
    return ADOPSWrapper(
        IntrinsicRewardWrapper(env, tk.source),
        critic,
        gamma_ext=tk.GAMMA_EXT,
        gamma_int=tk.GAMMA_INT,
        add_to_reward=True,
    )


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("copy", [True, False])
def test_one_pass_per_vector_step_shared_with_the_agent(mode: AutoresetMode, copy: bool) -> None:
    fn, critic = Counting(), CriticHandle()
    env = vector_stack(critic, mode, copy)
    critic.register(fn)
    obs, _ = env.reset(seed=1)
    full, rollouts, steps = 0, 3, 16
    for _ in range(rollouts):
        for _ in range(steps):
            agent_sees = critic(obs)
            np.testing.assert_array_equal(agent_sees[0], tk.critic(obs)[0])
            obs, *_ = env.step(np.zeros(3, dtype=np.int64))
        np.testing.assert_array_equal(critic(obs)[0], tk.critic(obs)[0])
        full = sum(len(seen) == 3 for seen in fn.seen)
        critic.updated()
    assert full == rollouts * (steps + 1)


def test_only_the_rows_that_ended_are_evaluated_on_their_final_observation() -> None:
    fn = Counting()
    env = vector_stack(CriticHandle(fn), AutoresetMode.SAME_STEP)
    env.reset(seed=1)
    ends = 0
    for _ in range(40):
        fn.seen.clear()
        _, _, terminated, truncated, info = env.step(np.zeros(3, dtype=np.int64))
        ended = terminated | truncated
        if not ended.any():
            assert {len(seen) for seen in fn.seen} == {3}
            assert "final_value_ext" not in info
            continue
        ends += 1
        final = np.stack([info["final_obs"][i] for i in np.flatnonzero(ended)])
        np.testing.assert_array_equal(fn.seen[-2], final)
        value_ext, value_int = tk.critic(final)
        np.testing.assert_array_equal(info["final_value_ext"][ended], value_ext)
        np.testing.assert_array_equal(info["final_value_int"][ended], value_int)
        np.testing.assert_array_equal(info["_final_value_ext"], ended)
    assert ends > 10


class Preallocated:
    """A network that writes every answer into the same memory, as `out=` or a CUDA graph does."""

    def __init__(self, rows: int, as_tensor: bool) -> None:
        self.memory = np.zeros((3, rows))
        if as_tensor:
            self.memory = pytest.importorskip("torch").zeros((3, rows)).double()

    def __call__(self, obs: Any) -> Any:
        out = self.memory[:, : len(obs)]
        for row, values in zip(out, [*tk.critic(obs), tk.numbers(obs)], strict=True):
            row[:] = values if isinstance(out, np.ndarray) else out.new_tensor(values)
        return SimpleNamespace(value_ext=out[0], value_int=out[1], logits=out[2])

    def q_ext_of(self, obs: Any, action: Any) -> Any:
        out = self.memory[0, : len(obs)]
        values = tk.CriticOfActions().q_ext_of(obs, action)
        out[:] = values if isinstance(out, np.ndarray) else out.new_tensor(values)
        return out


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("order", ["one wrapper", "a second one above", "a second one below"])
def test_the_agent_gets_the_answer_for_its_own_observation(
    mode: AutoresetMode, as_tensor: bool, order: str
) -> None:
    critic = CriticHandle(Preallocated(3, as_tensor))
    env: Any = SyncVectorEnv([lambda: tk.ScriptedEnv(longest=6)] * 3, autoreset_mode=mode)
    env, twin = (IntrinsicRewardWrapper(env, tk.source) for env in (env, deepcopy(env)))
    # GRM consults the critic about final observations alone.
    second = partial(make_shaping, "grm", critic=critic)
    env = second(env) if order == "a second one below" else env
    env = ADOPSWrapper(env, critic)
    env = second(env) if order == "a second one above" else env
    twin = ADOPSWrapper(twin, tk.CriticOfActions())
    obs, _ = env.reset(seed=1)
    twin.reset(seed=1)
    actions = np.random.default_rng(0).integers(0, 3, (300, 3))
    for action in actions:
        answer = critic(obs)
        np.testing.assert_array_equal(answer.value_ext, tk.critic(obs)[0])
        np.testing.assert_array_equal(answer.value_int, tk.critic(obs)[1])
        np.testing.assert_array_equal(answer.logits, tk.numbers(obs))
        obs, _, terminated, truncated, info = env.step(action)
        expected = twin.step(action)[4]
        if order == "one wrapper":
            np.testing.assert_array_equal(info["intrinsic_reward"], expected["intrinsic_reward"])
        if "final_value_ext" in expected:
            np.testing.assert_array_equal(info["final_value_ext"], expected["final_value_ext"])
        if mode is AutoresetMode.DISABLED and (ended := terminated | truncated).any():
            obs, _ = env.reset(options={"reset_mask": ended.copy()})
            twin.reset(options={"reset_mask": ended.copy()})


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_bare_function_is_asked_about_s_and_about_the_next_s(mode: AutoresetMode) -> None:
    fn = Counting()
    env = vector_stack(fn, mode, longest=1000)
    env.reset(seed=1)
    for _ in range(5):
        env.step(np.zeros(3, dtype=np.int64))
    assert len(fn.seen) == 2 * 5


def test_updated_refreshes_the_value_of_the_current_state() -> None:
    bias = 0.0
    critic = CriticHandle(lambda obs: (np.full(3, bias), np.zeros(3)))
    env = vector_stack(critic, AutoresetMode.SAME_STEP, copy=False, longest=1000)
    env.reset(seed=1)
    env.step(np.zeros(3, dtype=np.int64))
    bias = 50.0
    critic.updated()
    # V_E(s) and V_E(s′) both come from the new parameters: A_E = R − 50·(1 − γ_E).
    _, reward, _, _, info = env.step(np.zeros(3, dtype=np.int64))
    a_ext = info["extrinsic_reward"] - 50.0 * (1.0 - tk.GAMMA_EXT)
    raw = info["raw_intrinsic_reward"]
    expected = np.where(a_ext < 0, np.minimum(raw, -a_ext - 1e-7), np.maximum(raw, -a_ext))
    np.testing.assert_allclose(info["intrinsic_reward"], expected, atol=1e-12)
    np.testing.assert_allclose(reward, info["extrinsic_reward"] + expected, atol=1e-12)


def test_bare_callable_is_never_stale() -> None:
    """Nobody says when its parameters change, so V(s) is asked for anew at every step."""
    bias = 0.0
    env = vector_stack(
        lambda obs: (np.full(3, bias), np.zeros(3)), AutoresetMode.SAME_STEP, longest=1000
    )
    env.reset(seed=1)
    env.step(np.zeros(3, dtype=np.int64))
    bias = 50.0
    info = env.step(np.zeros(3, dtype=np.int64))[4]
    a_ext = info["extrinsic_reward"] - 50.0 * (1.0 - tk.GAMMA_EXT)
    shaped_total = a_ext + info["intrinsic_reward"]
    assert ((a_ext < 0) == (shaped_total < 0)).all()


def test_overwritten_buffer_is_not_mistaken_for_the_old_observation() -> None:
    fn = Counting(lambda obs: (obs.sum(-1), obs.sum(-1)))
    critic = CriticHandle(fn)
    buffer = np.ones((2, 3))
    first = critic(buffer)
    buffer += 1.0
    assert critic(buffer)[0].tolist() == [6.0, 6.0]
    assert first[0].tolist() == [3.0, 3.0]
    assert len(fn.seen) == 2


def test_structured_observations_are_compared_by_content() -> None:
    calls = []
    critic = CriticHandle(lambda obs: calls.append(obs) or (0.0, 0.0))
    obs = {"a": np.ones(2), "b": (np.zeros(1), np.int64(3))}
    same = {"a": np.ones(2), "b": (np.zeros(1), np.int64(3))}
    critic(obs), critic(same)
    assert len(calls) == 1
    critic({"a": np.ones(2), "b": (np.zeros(1), np.int64(4))})
    critic({"a": np.ones(2)})
    critic((np.ones(2),))
    critic((np.ones(2), np.ones(2)))
    critic(np.ones(2))
    assert len(calls) == 6


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    calls = []

    def fn(obs: Any) -> Any:
        calls.append(obs)
        x = torch.as_tensor(obs, dtype=torch.float32)
        return SimpleNamespace(
            value_ext=x.sum(-1, keepdim=True).requires_grad_(),
            value_int=x.mean(-1).to(torch.bfloat16),
            q_ext=torch.stack([x.sum(-1)] * 2, -1),
            logits="untouched",
        )

    critic = CriticHandle(fn)
    obs = np.arange(6, dtype=np.uint8).reshape(2, 3)
    estimates = critic.estimate(obs, num_envs=2)
    assert estimates.value_ext.tolist() == [3.0, 12.0]
    assert estimates.value_int.tolist() == [1.0, 4.0]
    assert estimates.q_ext is not None
    assert estimates.q_ext.tolist() == [[3.0, 3.0], [12.0, 12.0]]
    assert estimates.value_ext.dtype == np.float64
    answer = critic(torch.as_tensor(obs))
    assert answer.logits == "untouched"
    assert len(calls) == 1
    buffer = torch.zeros(2, 3)
    critic(buffer)
    buffer += 1
    assert critic.estimate(buffer, 2).value_ext.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("registered", ["module", "method", "function"])
def test_the_agents_own_loop_needs_no_no_grad(registered: str) -> None:
    torch = pytest.importorskip("torch")
    network = torch.nn.Linear(4, 2)

    class Agent(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, obs: Any) -> Any:
            return self.network(torch.as_tensor(obs)).unbind(-1)

    agent = Agent()
    kinds = {"module": agent, "method": agent.forward, "function": lambda obs: agent(obs)}
    critic = CriticHandle()
    env = gym.make_vec("CartPole-v1", num_envs=2)
    env = ADOPSWrapper(IntrinsicRewardWrapper(env, CountBonus()), critic)
    critic.register(kinds[registered])
    obs, _ = env.reset(seed=0)
    for _ in range(3):
        value_ext, _ = critic(obs)
        assert value_ext.numpy().shape == (2,)  # raises for a tensor with a graph
        obs, *_ = env.step(np.zeros(2, dtype=np.int64))
    assert agent(obs)[0].requires_grad


def assert_steps_are_noticed(device: str, **settings: Any) -> None:
    """Of the optimiser of these parameters, whatever it does to their versions, and of no other."""
    torch = pytest.importorskip("torch")
    agent, other = torch.nn.Linear(4, 2).to(device), torch.nn.Linear(4, 2).to(device)
    own, foreign = (
        torch.optim.Adam(network.parameters(), lr=0.1, **settings) for network in (agent, other)
    )
    critic = CriticHandle(agent)
    obs = torch.ones(3, 4, device=device)
    for optimizer, network, noticed in ((foreign, other, False), (own, agent, True)) * 2:
        before = critic(obs)
        network(obs).sum().backward()
        optimizer.step()
        assert (critic(obs) is not before) == noticed
        assert torch.equal(critic(obs), agent(obs))


@pytest.mark.parametrize("settings", [{}, {"foreach": True}, {"fused": True}])
def test_steps_of_all_kinds_of_optimisers_are_noticed(settings: dict[str, Any]) -> None:
    assert_steps_are_noticed("cpu", **settings)


@pytest.mark.parametrize("registered", ["module", "method"])
def test_an_update_that_nobody_announced_is_noticed(registered: str) -> None:
    torch = pytest.importorskip("torch")
    agent = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.5)

    class Pair(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.agent = agent

        def forward(self, obs: Any) -> Any:
            return self.agent(torch.as_tensor(obs)).unbind(-1)

    pair = Pair()
    told, untold = CriticHandle(), CriticHandle()
    for critic in (told, untold):
        critic.register(pair if registered == "module" else pair.forward)
    envs = [
        ADOPSWrapper(
            IntrinsicRewardWrapper(gym.make_vec("CartPole-v1", num_envs=2), CountBonus()), c
        )
        for c in (told, untold)
    ]
    obs = [env.reset(seed=0)[0] for env in envs]
    for update in range(6):
        if update % 2:
            optimizer.zero_grad()
            torch.stack(pair(obs[0])).sum().backward()
            optimizer.step()
            told.updated()
        assert untold(obs[1])[0].tolist() == told(obs[0])[0].tolist()
        steps = [env.step(np.array([0, 1])) for env in envs]
        obs = [step[0] for step in steps]
        bonus = [step[4]["intrinsic_reward"].tolist() for step in steps]
        assert bonus[0] == bonus[1]
    version = untold.version
    untold(obs[1])
    assert untold.version == version  # nothing changed, so nothing is asked again


def test_estimates_share_no_memory_with_the_agent() -> None:
    mine = np.zeros(2)
    estimates = CriticHandle(lambda obs: (mine, mine)).estimate(np.zeros(2), 2)
    mine += 1.0
    assert estimates.value_ext.tolist() == [0.0, 0.0]


def test_learning_critic_observes_true_transitions() -> None:
    class Learner(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.transitions: list[Any] = []

        def observe(self, transition: Any) -> None:
            self.transitions.append(transition)

    acts = np.random.default_rng(0).integers(0, 3, (30, 3))
    for critic in (Learner(), CriticHandle(Learner())):
        env = vector_stack(critic, AutoresetMode.SAME_STEP, copy=False)
        learner = critic if isinstance(critic, Learner) else critic._fn
        env.reset(seed=4)
        emitted = [env.step(action)[4]["intrinsic_reward"].copy() for action in acts]
        bare = tk.make_vector("sync", AutoresetMode.SAME_STEP)
        rows = tk.record(bare, acts, 4, AutoresetMode.SAME_STEP)
        assert len(learner.transitions) == 30
        for i, steps in enumerate(rows):
            for step in steps:
                seen = learner.transitions[step.time]
                np.testing.assert_array_equal(seen.observation[i], step.obs)
                np.testing.assert_array_equal(seen.next_observation[i], step.next_obs)
                assert seen.action[i] == step.action
                assert seen.reward[i] == step.reward
                assert seen.terminated[i] == step.terminated
                assert seen.shaped[i] == emitted[step.time][i]


def test_single_env_critic_may_answer_with_scalars_or_arrays_of_one() -> None:
    emitted = []
    for shape in ((), (1,), (1, 1)):
        env = ADOPSWrapper(
            IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source),
            lambda obs, shape=shape: tuple(np.reshape(v, shape) for v in tk.critic(obs)),
            gamma_ext=tk.GAMMA_EXT,
            gamma_int=tk.GAMMA_INT,
        )
        env.reset(seed=0)
        emitted.append(env.step(1)[4]["intrinsic_reward"])
    assert emitted[0] == emitted[1] == emitted[2]
    assert type(emitted[0]) is np.float64


def test_q_values_are_indexed_from_the_action_space_start() -> None:
    env = IntrinsicRewardWrapper(tk.ScriptedEnv(start=5), lambda s, a, ns: 3.0)
    env = ADOPSWrapper(env, lambda obs: (0.0, 0.0, [2.0, -1.0, 4.0]), epsilon=0.5)
    env.reset(seed=0)
    assert env.step(6)[4]["intrinsic_reward"] == 0.5  # A_E = −1: total clamped to −0.5
    env.reset(seed=0)
    assert env.step(5)[4]["intrinsic_reward"] == 3.0  # A_E = 2


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda obs: (np.zeros(3), np.full(3, np.nan)), ValueError, "value_int is not finite"),
        (lambda obs: (np.array([0, np.inf, 0]), np.zeros(3)), ValueError, "environment 1: inf"),
        (lambda obs: (np.zeros(2), np.zeros(3)), ValueError, r"each of 3 .* got shape \(2,\)"),
        (lambda obs: (np.zeros((1, 3)), np.zeros(3)), ValueError, "value_ext must hold one value"),
        (lambda obs: np.zeros(3), TypeError, "it returned a ndarray"),
        (lambda obs: (np.zeros(3),), TypeError, "it returned a tuple of 1"),
        (lambda obs: (np.zeros(3), np.zeros(3), np.zeros(3)), ValueError, "q_ext must have shape"),
        (lambda obs: (np.zeros(3),) * 2 + (np.zeros((3, 2)),), ValueError, "q_ext has 2 columns"),
        (lambda obs: (np.zeros(3),) * 2 + (np.full((3, 3), np.nan),), ValueError, "q_ext is not"),
    ],
)
def test_bad_answers_and_life_after_them(fn: Any, error: type[Exception], message: str) -> None:
    critic = CriticHandle(fn)
    env = vector_stack(critic, AutoresetMode.SAME_STEP, longest=1000)
    env.reset(seed=0)
    with pytest.raises(error, match=message):
        env.step(np.zeros(3, dtype=np.int64))
    critic.register(tk.critic)
    env.reset(seed=0)
    shaped = env.step(np.zeros(3, dtype=np.int64))[4]["intrinsic_reward"]
    fresh = vector_stack(tk.critic, AutoresetMode.SAME_STEP, longest=1000)
    fresh.reset(seed=0)
    expected = fresh.step(np.zeros(3, dtype=np.int64))[4]["intrinsic_reward"]
    np.testing.assert_array_equal(shaped, expected)


def test_q_values_need_discrete_actions() -> None:
    env = IntrinsicRewardWrapper(gym.make("Pendulum-v1"), lambda s, a, ns: 0.0)
    env = ADOPSWrapper(env, lambda obs: (0.0, 0.0, [1.0]))
    env.reset(seed=0)
    with pytest.raises(TypeError, match="indexed by a Discrete action"):
        env.step(np.zeros(1, dtype=np.float32))


def test_unregistered_missing_and_wrong_critics() -> None:
    env = vector_stack(CriticHandle(), AutoresetMode.SAME_STEP)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match=r"critic\.register\(fn\)"):
        env.step(np.zeros(3, dtype=np.int64))
    with pytest.raises(TypeError, match=r"but critic is None. Pass a CriticHandle"):
        ADOPSWrapper(tk.ScriptedEnv())
    with pytest.raises(TypeError, match="critic must be a CriticHandle or a function"):
        ADOPSWrapper(tk.ScriptedEnv(), 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="register takes a function"):
        CriticHandle().register(None)  # type: ignore[arg-type]


def test_as_handle_keeps_a_handle() -> None:
    handle = CriticHandle()
    assert as_handle(handle) is handle


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_nan_in_observations_costs_no_second_pass(mode: AutoresetMode) -> None:
    class Holes(gym.ObservationWrapper):
        def observation(self, observation: Any) -> Any:
            return np.where([False, False, True], np.nan, observation)

    env: Any = SyncVectorEnv(
        [lambda: Holes(tk.ScriptedEnv(longest=10**6))] * 3, autoreset_mode=mode
    )
    fn = Counting(lambda obs: (obs[:, 0], obs[:, 1]))
    critic = CriticHandle(fn)
    env = ADOPSWrapper(IntrinsicRewardWrapper(env, lambda s, a, n: np.ones(3)), critic)
    obs, _ = env.reset(seed=0)
    for _ in range(10):
        critic(obs)
        obs, *_ = env.step(np.zeros(3, dtype=np.int64))
    assert len(fn.seen) == 11
    other = obs.copy()
    other[2, 2] = 0.0
    critic(other)
    assert len(fn.seen) == 12


def test_fixed_batch_always_gives_the_critic_all_rows() -> None:
    acts = np.random.default_rng(0).integers(0, 3, (40, 3))
    results = []
    for fixed in (False, True):
        fn = Counting()
        env = vector_stack(CriticHandle(fn, fixed_batch=fixed), AutoresetMode.SAME_STEP)
        env.reset(seed=2)
        infos = [env.step(action)[4] for action in acts]
        results.append(
            [(i["intrinsic_reward"].tolist(), str(i.get("final_value_ext"))) for i in infos]
        )
        assert ({len(obs) for obs in fn.seen} == {3}) == fixed
    assert results[0] == results[1]


def in_child(work: Any, start: str) -> str:
    """Run `work` in another process and return what it returns, or the error's text."""
    context = multiprocessing.get_context(start)
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_report, args=(cloudpickle.dumps(work), send))
    child.start()
    answer: str = receive.recv()
    child.join()
    return answer


def _report(work: bytes, send: Any) -> None:
    try:
        send.send(cloudpickle.loads(work)())
    except RuntimeError as error:
        send.send(str(error))


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_copy_of_a_critic_in_another_process_is_noticed(start: str) -> None:
    critic = CriticHandle(tk.critic)

    def play(register: bool) -> str:
        if register:
            critic.register(tk.critic)
        env = ADOPSWrapper(IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source), critic)
        env.reset(seed=0)
        env.step(0)
        return "played"

    assert "a copy that does not learn" in in_child(partial(play, False), start)
    assert in_child(partial(play, True), start) == "played"
    assert play(False) == "played"


def test_what_the_agent_has_said_elsewhere_is_not_asked_again() -> None:
    fn = Counting()
    critic, obs = CriticHandle(fn), np.ones((3, 2))
    critic.remember(obs, "said")
    obs[:] = 2.0
    assert critic(np.ones((3, 2))) == "said"
    assert not fn.seen
    critic.updated()
    critic(np.ones((3, 2)))
    assert len(fn.seen) == 1
