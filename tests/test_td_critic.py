from __future__ import annotations

import pickle
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit, vector

torch = pytest.importorskip("torch")

from adops_wrappers import (  # noqa: E402
    ADOPESWrapper,
    ADOPSWrapper,
    CountBonus,
    IntrinsicRewardWrapper,
    PIESWrapper,
    TDCritic,
    Transition,
    evaluation_mode,
)
from adops_wrappers.td_critic import lambda_returns  # noqa: E402
from tests import toolkit as tk  # noqa: E402

GAMMA_EXT, GAMMA_INT = 0.95, 0.9
STATES, ACTIONS, ROWS = 6, 2, 64

ERROR_BOUND = 0.1
"""The promise: the largest error over all states, as a share of the largest exact value. What is
left is the sampling error of some 32,000 transitions."""

pytestmark = pytest.mark.usefixtures("one_thread")


class RandomMDP:
    """A random finite MDP, a random policy in it, and its exact values by a linear solve."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.moves = self.rng.dirichlet(np.full(STATES, 0.5), size=(STATES, ACTIONS))
        self.reward = self.rng.normal(size=(STATES, ACTIONS))
        self.bonus = self.rng.normal(size=(STATES, ACTIONS))
        self.end = 0.3 * self.rng.random((STATES, ACTIONS))
        self.policy = 0.25 + 0.5 * self.rng.dirichlet(np.ones(ACTIONS), size=STATES)
        self.state = self.rng.integers(STATES, size=ROWS)

    def step(self) -> Transition:
        """Act in all rows; an episode ends as the MDP says, or is cut off with probability .05."""
        rng, state = self.rng, self.state
        action = (rng.random(ROWS) > self.policy[state, 0]).astype(np.int64)
        draws = rng.random(ROWS)[:, None]
        following = (self.moves[state, action].cumsum(axis=1) < draws).sum(axis=1)
        following = following.clip(0, STATES - 1)
        terminated = rng.random(ROWS) < self.end[state, action]
        truncated = ~terminated & (rng.random(ROWS) < 0.05)
        restart = rng.integers(STATES, size=ROWS)
        self.state = np.where(terminated | truncated, restart, following)
        return shown(
            state,
            action,
            following,
            self.reward[state, action],
            self.bonus[state, action],
            terminated,
            truncated,
        )

    def values(self, rewards: Any, gamma: float) -> tuple[Any, Any]:
        goes_on = (self.policy * (1 - self.end))[..., None] * self.moves
        v = np.linalg.solve(
            np.eye(STATES) - gamma * goes_on.sum(axis=1), (self.policy * rewards).sum(axis=1)
        )
        return v, rewards + gamma * (1 - self.end) * (self.moves @ v)


def shown(
    obs: Any,
    action: Any,
    next_obs: Any,
    reward: Any,
    bonus: Any,
    terminated: Any = None,
    truncated: Any = None,
    valid: Any = None,
) -> Transition:
    """A transition as the wrapper shows it to a learning critic."""
    n = len(reward)
    zeros, never = np.zeros(n), np.zeros(n, dtype=np.bool_)
    return Transition(
        reward=np.asarray(reward, dtype=np.float64),
        intrinsic=np.asarray(bonus, dtype=np.float64),
        value_ext=zeros,
        value_int=zeros,
        next_value_ext=zeros,
        next_value_int=zeros,
        advantage_ext=None,
        terminated=never if terminated is None else terminated,
        truncated=never if truncated is None else truncated,
        valid=~never if valid is None else valid,
        shaped=np.asarray(bonus, dtype=np.float64),
        observation=np.asarray(obs),
        action=np.asarray(action),
        next_observation=np.asarray(next_obs),
    )


def make_critic(**settings: Any) -> TDCritic:
    defaults: dict[str, Any] = {
        "observation_space": gym.spaces.Discrete(STATES),
        "gamma_ext": GAMMA_EXT,
        "gamma_int": GAMMA_INT,
        "int_bootstrap": "none",
        "seed": 0,
    }
    return TDCritic(**{**defaults, **settings})


def relative_error(found: Any, exact: Any) -> float:
    return float(np.abs(found - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize("lam", [0.0, 0.9])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_values_of_random_mdps_within_the_stated_bound(seed: int, lam: float) -> None:
    mdp = RandomMDP(seed)
    critic = make_critic(
        action_space=gym.spaces.Discrete(ACTIONS),
        hidden=(),
        learning_rate=0.03,
        lam=lam,
        replay_size=32768,
        seed=seed,
    )
    for step in range(512):
        if step == 384:  # then average the noise out
            critic.optimizer.param_groups[0]["lr"] = 0.003
        critic.observe(mdp.step())
    found = critic(np.arange(STATES))
    v_ext, q_ext = mdp.values(mdp.reward, GAMMA_EXT)
    v_int, _ = mdp.values(mdp.bonus, GAMMA_INT)
    assert relative_error(found.value_ext, v_ext) < ERROR_BOUND
    assert relative_error(found.value_int, v_int) < ERROR_BOUND
    assert relative_error(found.q_ext, q_ext) < ERROR_BOUND


def test_default_networks_within_twice_the_bound() -> None:
    mdp = RandomMDP(1)
    critic = make_critic()
    for _ in range(500):
        critic.observe(mdp.step())
    found = critic(np.arange(STATES))
    for values, rewards, gamma in (
        (found.value_ext, mdp.reward, GAMMA_EXT),
        (found.value_int, mdp.bonus, GAMMA_INT),
    ):
        assert relative_error(values, mdp.values(rewards, gamma)[0]) < 2 * ERROR_BOUND


@pytest.mark.parametrize("target", ["raw", "shaped"])
@pytest.mark.parametrize("lam", [0.0, 0.9])
@pytest.mark.parametrize("mode", ["none", "final", "reset"])
def test_deterministic_chain_is_learned_tightly(mode: str, lam: float, target: str) -> None:
    """0 → 1 → 2 (terminal) → 0, R = 1 and F = 1 a step: no noise, so the bound is 1 %."""
    critic = make_critic(
        observation_space=gym.spaces.Discrete(3),
        int_bootstrap=mode,
        intrinsic_target=target,
        lam=lam,
        gamma_ext=0.8,
        gamma_int=0.5,
        hidden=(),
        learning_rate=0.02,
        batch_size=64,
        replay_ratio=8.0,
    )
    state = np.tile([0, 1], 8)
    for k in range(250):
        s = (state + k) % 2
        step = shown(s, s, s + 1, np.ones(16), np.ones(16), terminated=s == 1)
        if target == "shaped":
            step = step._replace(intrinsic=np.full(16, 99.0))
        critic.observe(step)
    found = critic(np.arange(3))
    after_end = {"none": 0.0, "final": found.value_int[2], "reset": found.value_int[0]}
    last = 1.0 + 0.5 * after_end[mode]
    np.testing.assert_allclose(found.value_int[:2], [1 + 0.5 * last, last], rtol=0.01)
    np.testing.assert_allclose(found.value_ext[:2], [1.8, 1.0], rtol=0.01)
    if mode == "reset":
        np.testing.assert_allclose(found.value_int[:2], [2.0, 2.0], rtol=0.01)


class Chain(gym.Env[Any, Any]):
    """States 0 … 4 in a line from a random start; reward 1 a step, the end ends the episode."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Discrete(5)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.s = int(self.np_random.integers(4))
        return self.s, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.s += 1
        return self.s, 1.0, self.s == 4, False, {}


@pytest.mark.parametrize("kind", ["single", "NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_learns_through_the_wrapper_terminated_and_truncated_told_apart(kind: str) -> None:
    """Episodes are cut after 2 steps: with a bootstrap there V_E is still the whole chain's."""
    exact = [sum(0.9**k for k in range(4 - s)) for s in range(4)]
    make = partial(TimeLimit, Chain(), 2) if kind == "single" else None
    if make is not None:
        env: Any = make()
        source: Any = lambda o, a, n: 0.0  # noqa: E731
        steps, rows = 1500, 1
    else:
        rows, steps = 8, 400
        env = SyncVectorEnv(
            [lambda: TimeLimit(Chain(), 2)] * rows, autoreset_mode=AutoresetMode[kind]
        )
        source = lambda o, a, n: np.zeros(rows)  # noqa: E731
    critic = TDCritic(
        gym.spaces.Discrete(5),
        seed=0,
        hidden=(),
        learning_rate=0.02,
        replay_ratio=16.0,
        batch_size=64,
    )
    env = ADOPSWrapper(
        IntrinsicRewardWrapper(env, source),
        critic,
        gamma_ext=0.9,
        gamma_int=0.9,
        epsilon=0.0,
        add_to_reward=True,
    )
    env.reset(seed=0)
    for _ in range(steps):
        action: Any = 0 if rows == 1 else np.zeros(rows, dtype=np.int64)
        _, _, terminated, truncated, _ = env.step(action)
        done = np.logical_or(terminated, truncated)
        if kind == "single" and done:
            env.reset()
        elif kind == "DISABLED" and done.any():
            env.reset(options={"reset_mask": done})
    found = critic(np.arange(4))
    np.testing.assert_allclose(found.value_ext, exact, rtol=0.02)
    np.testing.assert_allclose(found.value_int, 0.0, atol=1e-12)  # F = 0: nothing to learn


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_both_values_of_a_transition_come_from_one_parameter_version(mode: AutoresetMode) -> None:
    class Watched(TDCritic):
        checked = 0

        def observe(self, transition: Transition) -> None:
            now = self._evaluate(transition.observation)
            after = self._evaluate(transition.next_observation)
            for mine, shown in (
                (now.value_ext, transition.value_ext),
                (now.value_int, transition.value_int),
                (after.value_ext, transition.next_value_ext),
                (after.value_int, transition.next_value_int),
            ):
                rows = transition.valid
                # The final rows of SAME_STEP are evaluated in a smaller batch: one float32 ulp.
                np.testing.assert_allclose(shown[rows], mine[rows], rtol=1e-5, atol=1e-6)
            self.checked += 1
            super().observe(transition)

    env = tk.make_vector("sync", mode)
    settings: dict[str, Any] = {"batch_size": 32, "learning_rate": 0.05, "learn_every": 4}
    critic = Watched(env.single_observation_space, seed=0, **settings)
    env = ADOPSWrapper(IntrinsicRewardWrapper(env, tk.source), critic)
    env.reset(seed=0)
    versions = []
    for _ in range(60):
        env.step(np.zeros(3, dtype=np.int64))
        versions.append(critic.updates)
    assert critic.checked == 60
    assert versions[-1] > 10  # the parameters did move between the transitions


@pytest.mark.parametrize("kind", ["box", "image"])
@pytest.mark.parametrize("within", [torch.no_grad, torch.inference_mode])
def test_learns_where_an_agent_acts_without_gradients(kind: str, within: Any) -> None:
    """Learners step their envs so; an image has a CNN, which torch learns and not numpy."""
    found = []
    for mode in (None, within):
        env: Any = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
        if kind == "image":
            picture = gym.spaces.Box(-9.0, 9.0, (1, 16, 16), np.float32)
            make = partial(np.broadcast_to, shape=(2, 16, 16, 1))
            env = vector.TransformObservation(
                env,
                lambda obs, make=make: np.moveaxis(
                    make(obs[:, :1, None, None].copy()), 3, 1
                ).astype(np.float32),
                gym.vector.utils.batch_space(picture, 2),
                picture,
            )
        critic = TDCritic(env.single_observation_space, seed=0, batch_size=16, learn_every=4)
        env = ADOPSWrapper(IntrinsicRewardWrapper(env, lambda s, a, after: np.ones(2)), critic)
        env.reset(seed=0)
        with torch.enable_grad() if mode is None else mode():
            rewards = [env.step(np.array([0, 1]))[1] for _ in range(24)]
        assert critic.updates > 0
        found.append(np.array(rewards))
    np.testing.assert_array_equal(*found)


def test_values_of_a_clamped_bonus_stay_within_what_the_bonus_can_pay() -> None:
    """Before the first reward the target of V_I is max(F + γ·V_I(s′), V_I(s)): it only rises."""
    env = gym.make_vec("adops/KeyDoorTV-v0", num_envs=16, autoreset_mode=AutoresetMode.SAME_STEP)
    settings: dict[str, Any] = {"intrinsic_target": "shaped", "learning_rate": 0.01}
    critic = TDCritic(env.single_observation_space, seed=0, **settings)
    bonus = lambda o, a, n: np.where(np.arange(16) % 2, 1.0, 0.5)  # noqa: E731
    env = ADOPSWrapper(IntrinsicRewardWrapper(env, bonus), critic, gamma=0.9)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    largest = shaped = 0.0
    for _ in range(800):
        obs, *_, info = env.step(rng.integers(0, env.single_action_space.n, 16))
        largest = max(largest, float(critic(obs).value_int.max()))
        shaped = max(shaped, float(np.abs(info["intrinsic_reward"]).max()))
    assert 5.0 < largest <= 10.0 * (1 + 1e-12)  # 1/(1 − 0.9)
    assert shaped <= 10.0 * (1 + 1e-9)
    state = critic.state_dict()
    other = TDCritic(env.single_observation_space, seed=1, **settings)
    other.load_state_dict(state)
    np.testing.assert_array_equal(other.evaluate(obs).value_int, critic.evaluate(obs).value_int)


def test_expected_q_values_refuse_a_gamble_that_one_step_estimates_accept() -> None:
    """r = +1 or −1.2 at even odds with F = 5, against a safe 0 with F = 0."""
    rng = np.random.default_rng(0)
    outcomes: dict[bool, float] = {}
    for with_q in (False, True):
        space = gym.spaces.Discrete(2)
        critic = make_critic(
            observation_space=space,
            action_space=gym.spaces.Discrete(2) if with_q else None,
            gamma_ext=None,
            gamma_int=None,
            int_bootstrap=None,
            replay_size=8192,
        )
        env = ADOPSWrapper(
            IntrinsicRewardWrapper(Gamble(), lambda s, a, n: 5.0 * (a == 0)),
            critic,
            int_bootstrap="none",
            epsilon=0.01,
        )
        env.reset(seed=0)
        # The critic first learns V and Q of a policy that mostly plays safe.
        n = 64
        for _ in range(400):
            action = (rng.random(n) < 0.75).astype(np.int64)
            gain = np.where(action == 1, 0.0, np.where(rng.random(n) < 0.5, 1.0, -1.2))
            zeros = np.zeros(n, dtype=np.int64)
            critic.observe(shown(zeros, action, zeros + 1, gain, np.zeros(n), zeros == 0))
        with evaluation_mode(env):
            totals = []
            for _ in range(400):
                env.reset()
                totals.append(env.step(0)[1])
        outcomes[with_q] = float(np.mean(totals))
    assert outcomes[False] > 1.0  # the lucky half keeps its F = 5
    assert outcomes[True] < 0.0


class Gamble(gym.Env[Any, Any]):
    """One step: action 0 gambles, action 1 is safe."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Discrete(2)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        gain = 0.0 if action == 1 else (1.0 if self.np_random.random() < 0.5 else -1.2)
        return 1, gain, True, False, {}


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
def test_lambda_returns_are_the_mixture_of_n_step_returns(lam: float) -> None:
    rng = np.random.default_rng(0)
    length, gamma = 6, 0.9
    reward, value = rng.normal(size=(2, length))
    follows = np.ones(length, dtype=np.bool_)
    follows[3] = False

    def n_step(t: int, n: int) -> float:
        rewards = sum(gamma**k * reward[t + k] for k in range(n))
        return float(rewards + gamma**n * value[t + n - 1])

    found = lambda_returns(reward, value, follows, gamma, lam)
    for t in range(length):
        longest = (4 if t <= 3 else length) - t
        mixture = sum((1 - lam) * lam ** (n - 1) * n_step(t, n) for n in range(1, longest))
        mixture += lam ** (longest - 1) * n_step(t, longest)
        assert found[t] == pytest.approx(mixture, abs=1e-12)


def test_segments_never_join_different_episodes() -> None:
    """Row by row, `follows` says exactly where the next stored step continues this one."""
    critic = make_critic(replay_size=256, batch_size=16)
    obs = [[0, 1], [1, 2], [4, 3], [2, 3]]
    following = [[1, 2], [2, 3], [5, 4], [3, 4]]
    ended = [[False, False], [False, True], [False, False], [False, False]]
    valid = [[True, True], [True, True], [True, False], [True, True]]
    for s, n, e, v in zip(obs, following, ended, valid, strict=True):
        zeros = np.zeros(2)
        critic.observe(shown(s, [0, 0], n, zeros, zeros, truncated=np.array(e), valid=np.array(v)))
    assert critic.replay is not None
    follows = critic.replay.follows[:4]
    # Row 0 jumps from 2 to 4 (a reset in mid-episode) and from 5 to 2; row 1 ends, then resets.
    assert follows.tolist() == [[True, True], [False, False], [False, False], [False, False]]


def test_ring_keeps_the_newest_steps_in_order() -> None:
    critic = make_critic(replay_size=16, batch_size=8, segment=4)
    for k in range(23):
        zeros = np.zeros(2)
        critic.observe(shown([k % 6] * 2, [0, 0], [(k + 1) % 6] * 2, zeros + k, zeros))
    replay = critic.replay
    assert replay is not None
    assert replay.stored == replay.length == 8
    kept, follows = replay.take(np.arange(8)[None], np.zeros((1, 1), dtype=np.int64))
    assert kept.reward.tolist() == [list(range(15, 23))]
    assert kept.obs[0].tolist() == [k % 6 for k in range(15, 23)]
    assert follows.tolist() == [[True] * 7 + [False]]


def stack(critic: TDCritic, mode: AutoresetMode = AutoresetMode.SAME_STEP) -> Any:
    env = IntrinsicRewardWrapper(tk.make_vector("sync", mode), tk.source)
    return ADOPSWrapper(env, critic, int_bootstrap="none")


def test_evaluation_mode_freezes_what_the_critic_knows() -> None:
    space = tk.ScriptedEnv().observation_space
    critic = TDCritic(space, seed=0, batch_size=16, learn_every=4)
    env = stack(critic)
    obs, _ = env.reset(seed=0)
    for _ in range(30):
        obs, *_ = env.step(np.zeros(3, dtype=np.int64))
    before, updates = critic._evaluate(obs), critic.updates
    assert updates > 0
    with evaluation_mode(env):
        for _ in range(30):
            env.step(np.zeros(3, dtype=np.int64))
        assert critic.frozen
        assert critic.updates == updates
        np.testing.assert_array_equal(critic._evaluate(obs).value_ext, before.value_ext)
    env.step(np.zeros(3, dtype=np.int64))
    for _ in range(10):
        env.step(np.zeros(3, dtype=np.int64))
    assert critic.updates > updates


def stored_by(critic: TDCritic) -> Any:
    assert critic.replay is not None
    return [part[: critic.replay.stored] for column in critic.replay.columns for part in column]


def act(env: Any, steps: int = 10) -> None:
    env.reset(seed=0)
    for step in range(steps):
        env.step(np.full(3, step % 3))


def test_wrappers_of_one_stack_that_share_a_critic_show_it_each_step_once() -> None:
    space = tk.ScriptedEnv().observation_space
    alone, shared = TDCritic(space, seed=0), TDCritic(space, seed=0)
    act(stack(alone))
    # A wrapper between them, so that they share no more than the env at the bottom.
    between = vector.RecordEpisodeStatistics(stack(shared))
    act(ADOPESWrapper(between, shared, int_bootstrap="none", ramp_updates=4, update_every=1))
    assert shared.replay is not None
    assert shared.replay.stored == 10
    for mine, theirs in zip(stored_by(shared), stored_by(alone), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("evaluated_first", [False, True])
def test_a_second_stack_may_read_a_critic_but_not_teach_it(evaluated_first: bool) -> None:
    critic = TDCritic(tk.ScriptedEnv().observation_space, seed=0)
    first, second = stack(critic), stack(critic)
    if evaluated_first:
        with evaluation_mode(second):
            act(second)
        assert critic.replay is None
    act(first)
    with pytest.raises(RuntimeError, match=r"one critic learns from one.*evaluation_mode\(env\)"):
        act(second)
    with evaluation_mode(second):
        act(second)
    act(stack(critic.evaluate))
    assert critic.replay is not None
    assert critic.replay.stored == 10


def test_a_critic_goes_on_to_a_new_stack_when_the_old_one_is_closed_or_gone() -> None:
    critic = TDCritic(tk.ScriptedEnv().observation_space, seed=0)
    old = stack(critic)
    act(old)
    with evaluation_mode(old):
        old.close()
    act(stack(critic))  # not kept
    act(stack(critic))
    assert critic.replay is not None
    assert critic.replay.stored == 30


@pytest.mark.parametrize("copy", [deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copied_stack_teaches_its_own_copy_of_the_critic(copy: Any) -> None:
    critic = TDCritic(tk.ScriptedEnv().observation_space, seed=0)
    env = ADOPSWrapper(IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source), critic)
    env.reset(seed=0)
    env.step(0)
    copied = copy(env)
    copied.step(0)
    env.step(0)
    stored = [critic.replay.stored, copied.core.critic.replay.stored]  # type: ignore[union-attr]
    assert stored == [2, 2]


def test_state_dict_resumes_exactly() -> None:
    space = tk.ScriptedEnv().observation_space
    settings: dict[str, Any] = {"batch_size": 16, "action_space": gym.spaces.Discrete(3)}
    first = TDCritic(space, seed=0, **settings)
    second = TDCritic(space, seed=1, **settings)
    envs = [stack(first), stack(second)]
    acts = np.random.default_rng(0).integers(0, 3, (80, 3))
    for env in envs:
        env.reset(seed=3)
    for action in acts[:40]:
        envs[0].step(action)
        envs[1].unwrapped.step(action)
    envs[1].load_state_dict(envs[0].state_dict())
    envs[1].env.load_state_dict(envs[0].env.state_dict())
    second.load_state_dict(first.state_dict())
    for action in acts[40:]:
        results = [env.step(action) for env in envs]
        np.testing.assert_array_equal(results[0][1], results[1][1])
    assert first.updates == second.updates > 20
    light = first.state_dict(include_replay=False)
    assert light["replay"] is None
    second.load_state_dict(light)
    assert second.replay is None
    obs = space.sample()
    np.testing.assert_array_equal(first._evaluate(obs).q_ext, second._evaluate(obs).q_ext)


def test_whitening_makes_values_independent_of_the_scale_of_observations() -> None:
    errors = []
    for scale in (1e-3, 1e3):
        critic = make_critic(
            observation_space=gym.spaces.Box(-np.inf, np.inf, (2,)), replay_ratio=16.0
        )
        rng = np.random.default_rng(0)
        for _ in range(150):
            x = rng.normal(size=(32, 2))
            end = np.ones(32, dtype=np.bool_)
            obs = (scale * (x + 5.0)).astype(np.float32)
            critic.observe(shown(obs, np.zeros(32), obs, x[:, 0] - x[:, 1], x[:, 0], end))
        x = rng.normal(size=(500, 2))
        found = critic((scale * (x + 5.0)).astype(np.float32))
        errors.append(np.abs(found.value_ext - (x[:, 0] - x[:, 1])).mean())
    assert max(errors) < 0.1


def test_zero_rewards_leave_the_extrinsic_value_at_exactly_zero() -> None:
    """Before the first reward A_E is 0, not noise: ADOPS stays in its upper branch."""
    settings: dict[str, Any] = {"batch_size": 16, "replay_ratio": 8.0, "learn_every": 4}
    critic = TDCritic(tk.ScriptedEnv().observation_space, seed=0, **settings)
    env = tk.make_vector("sync", AutoresetMode.SAME_STEP)
    env = gym.wrappers.vector.TransformReward(env, lambda r: 0.0 * r)
    env = ADOPSWrapper(IntrinsicRewardWrapper(env, tk.source), critic)
    obs, _ = env.reset(seed=0)
    for _ in range(60):
        obs, *_ = env.step(np.zeros(3, dtype=np.int64))
    assert critic.updates > 20
    assert critic(obs).value_ext.tolist() == [0.0, 0.0, 0.0]
    assert np.abs(critic(obs).value_int).min() > 0.0


def test_discounts_and_ends_come_from_the_wrapper_or_agree_with_it() -> None:
    space = tk.ScriptedEnv().observation_space
    env = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
    critic = TDCritic(space)
    ADOPSWrapper(env, critic, gamma_ext=0.9, gamma_int=0.8, int_bootstrap="none")
    assert tuple(critic._streams) == (0.9, 0.8, "none")
    ADOPESWrapper(env, critic, gamma_ext=0.9, gamma_int=0.8, int_bootstrap="none")
    with pytest.raises(ValueError, match="one TDCritic for each kind of stack"):
        ADOPSWrapper(env, critic)
    with pytest.raises(ValueError, match=r"gamma_ext=0.9, the wrapper works with 0.999"):
        ADOPSWrapper(env, TDCritic(space, gamma_ext=0.9))
    with pytest.raises(ValueError, match=r"int_bootstrap='none', the wrapper works with 'final'"):
        ADOPSWrapper(env, TDCritic(space, int_bootstrap="none"))
    PIESWrapper(env)  # a method that consults no critic asks for nothing


def test_wrong_spaces_are_refused_at_construction() -> None:
    vector_env = tk.make_vector("sync", AutoresetMode.SAME_STEP)
    env = IntrinsicRewardWrapper(vector_env, tk.source)
    with pytest.raises(ValueError, match=r"env.single_observation_space of a VectorEnv"):
        ADOPSWrapper(env, TDCritic(env.observation_space))
    with pytest.raises(ValueError, match=r"env.single_action_space of a VectorEnv"):
        ADOPSWrapper(
            env,
            TDCritic(env.single_observation_space, action_space=gym.spaces.Discrete(7)),
        )
    with pytest.raises(TypeError, match="Q_E is learned for Discrete actions"):
        TDCritic(env.single_observation_space, action_space=env.single_observation_space)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lam": 1.5}, "lam must be a number from 0 to 1"),
        ({"gamma_ext": 0.0}, "gamma_ext must be a discount"),
        ({"gamma_int": 2.0}, "gamma_int must be a discount"),
        ({"int_bootstrap": "zero"}, "int_bootstrap must be one of"),
        ({"intrinsic_target": "F"}, "intrinsic_target must be one of"),
        ({"batch_size": 8}, "batch_size must be a whole number of at least 16"),
        ({"replay_size": 8}, "replay_size must be a whole number of at least 256"),
        ({"replay_ratio": 0.0}, "replay_ratio must be a number greater than 0"),
        ({"learning_rate": -1.0}, "learning_rate must be"),
        ({"hidden": [0]}, "hidden must be a whole number of at least 1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TDCritic(gym.spaces.Discrete(3), **settings)


def test_bad_transitions() -> None:
    critic = TDCritic(gym.spaces.Discrete(STATES))
    step = shown([0, 1], [0, 0], [1, 2], [0, 0], [0, 0])
    with pytest.raises(RuntimeError, match="does not know what to learn"):
        critic.observe(step)
    critic = make_critic()
    critic.observe(step)
    with pytest.raises(ValueError, match="learns from 2 environments and was shown 3"):
        critic.observe(shown([0, 1, 2], [0, 0, 0], [1, 2, 3], [0, 0, 0], [0, 0, 0]))
    with pytest.raises(ValueError, match="needs the fields shaped, observation"):
        critic.observe(step._replace(observation=None))
    with pytest.raises(ValueError, match="needs the fields shaped, observation"):
        make_critic(intrinsic_target="shaped").observe(step._replace(shaped=None))


def test_an_agent_needs_to_know_nothing_of_it() -> None:
    """The README's three lines, with an agent that only sees obs and reward."""
    env: Any = IntrinsicRewardWrapper(gym.make(tk.CLIFF, max_episode_steps=50), CountBonus())
    env = ADOPSWrapper(env, TDCritic(env.observation_space, seed=0))
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    shaped = []
    for _ in range(300):
        _, reward, terminated, truncated, info = env.step(int(rng.integers(4)))
        assert reward == info["extrinsic_reward"] + info["intrinsic_reward"]
        shaped.append(info["shaping_correction"])
        if terminated or truncated:
            env.reset()
    assert np.count_nonzero(shaped) > 10
