from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from adops_wrappers import (  # noqa: E402
    ADOPSWrapper,
    IntrinsicRewardWrapper,
    QCritic,
    TDCritic,
    evaluation_mode,
)
from adops_wrappers.replay import ReplayBatch, ReplayShaper  # noqa: E402
from tests import toolkit as tk  # noqa: E402

GAMMA_EXT, GAMMA_INT = 0.95, 0.9
STATES, ACTIONS = 6, 3
STREAMS: dict[str, Any] = {
    "gamma_ext": GAMMA_EXT,
    "gamma_int": GAMMA_INT,
    "int_bootstrap": "none",
}

ERROR_BOUND = 0.1
"""The promise: the largest error over all states and actions, as a share of the largest exact
value, after 800 gradient steps on 20,000 transitions of a random policy."""

pytestmark = pytest.mark.usefixtures("one_thread")


class RandomMDP:
    """A random finite MDP, transitions of its uniformly random policy, and exact values."""

    def __init__(self, seed: int, size: int = 20_000) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.moves = rng.dirichlet(np.full(STATES, 0.3), size=(STATES, ACTIONS))
        self.reward = rng.normal(size=(STATES, ACTIONS))
        self.bonus = rng.normal(size=(STATES, ACTIONS))
        self.end = 0.3 * rng.random((STATES, ACTIONS))
        state, action = rng.integers(STATES, size=size), rng.integers(ACTIONS, size=size)
        draws = rng.random(size)[:, None]
        following = (self.moves[state, action].cumsum(axis=1) < draws).sum(axis=1)
        terminated = rng.random(size) < self.end[state, action]
        self.data = ReplayBatch(
            state,
            action,
            following.clip(0, STATES - 1),
            self.reward[state, action],
            self.bonus[state, action],
            terminated,
            ~terminated & (rng.random(size) < 0.1),
        )

    def batch(self, size: int = 512) -> ReplayBatch:
        rows = self.rng.integers(len(self.data.reward), size=size)
        return ReplayBatch(*(None if part is None else part[rows] for part in self.data))

    def best(self) -> Any:
        """Q_E of the best policy, by value iteration."""
        q = np.zeros((STATES, ACTIONS))
        for _ in range(2000):
            q = self.reward + GAMMA_EXT * (1 - self.end) * (self.moves @ q.max(axis=1))
        return q

    def values(self, policy: Any, rewards: Any, gamma: float) -> tuple[Any, Any]:
        """V and Q of a policy, by a linear solve."""
        goes_on = (policy * (1 - self.end))[..., None] * self.moves
        v = np.linalg.solve(
            np.eye(STATES) - gamma * goes_on.sum(axis=1), (policy * rewards).sum(axis=1)
        )
        return v, rewards + gamma * (1 - self.end) * (self.moves @ v)


def make_critic(**settings: Any) -> QCritic:
    spaces = gym.spaces.Discrete(STATES), gym.spaces.Discrete(ACTIONS)
    defaults: dict[str, Any] = {
        **STREAMS,
        "hidden": (),
        "learning_rate": 0.03,
        "averaging": 0.05,
        "seed": 0,
    }
    return QCritic(*spaces, **{**defaults, **settings})


def taught(mdp: RandomMDP, critic: QCritic, updates: int = 800) -> Any:
    for _ in range(updates):
        critic.learn(mdp.batch())
    return critic.estimate(np.arange(STATES), STATES)


def error(found: Any, exact: Any) -> float:
    return float(np.abs(found - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize("seed", [7, 19])  # no second-best action within 0.7 of the best
def test_by_default_it_learns_the_best_policys_values_from_a_random_policys_steps(
    seed: int,
) -> None:
    mdp = RandomMDP(seed)
    q = mdp.best()
    greedy = np.eye(ACTIONS)[q.argmax(axis=1)]
    bonus, _ = mdp.values(greedy, mdp.bonus, GAMMA_INT)
    found = taught(mdp, make_critic())
    assert error(found.q_ext, q) < ERROR_BOUND
    assert error(found.value_ext, q.max(axis=1)) < ERROR_BOUND
    assert error(found.value_int, bonus) < ERROR_BOUND
    np.testing.assert_array_equal(found.q_ext.argmax(axis=1), q.argmax(axis=1))


def test_with_a_policy_it_learns_that_policys_values() -> None:
    mdp = RandomMDP(1)
    policy = mdp.rng.dirichlet(np.ones(ACTIONS), size=STATES)
    found = taught(mdp, make_critic(policy=lambda obs: policy[obs]))
    value_ext, q_ext = mdp.values(policy, mdp.reward, GAMMA_EXT)
    value_int, _ = mdp.values(policy, mdp.bonus, GAMMA_INT)
    assert error(found.value_ext, value_ext) < ERROR_BOUND
    assert error(found.value_int, value_int) < ERROR_BOUND
    assert error(found.q_ext, q_ext) < ERROR_BOUND


def test_a_deterministic_policy_may_answer_with_actions() -> None:
    mdp = RandomMDP(5)
    choice = mdp.rng.integers(ACTIONS, size=STATES)
    found = taught(mdp, make_critic(policy=lambda obs: choice[obs]))
    value_ext, _ = mdp.values(np.eye(ACTIONS)[choice], mdp.reward, GAMMA_EXT)
    assert error(found.value_ext, value_ext) < ERROR_BOUND
    with pytest.raises(ValueError, match=r"must return 6 actions, or probabilities"):
        make_critic(policy=lambda obs: np.zeros((6, 2))).estimate(np.arange(STATES), STATES)


def test_td_critic_learns_the_policy_that_made_the_steps_and_not_the_best_one() -> None:
    from tests.test_td_critic import shown

    mdp = RandomMDP(0)
    critic = TDCritic(
        gym.spaces.Discrete(STATES), **STREAMS, hidden=(), lam=0.0, seed=0, learning_rate=0.005
    )
    for _ in range(1000):
        batch = mdp.batch(64)
        critic.observe(
            shown(
                batch.observation,
                batch.action,
                batch.next_observation,
                batch.reward,
                batch.intrinsic,
                batch.terminated,
                batch.truncated,
            )
        )
    found = critic.estimate(np.arange(STATES), STATES)
    uniform = np.full((STATES, ACTIONS), 1 / ACTIONS)
    behaviour, _ = mdp.values(uniform, mdp.reward, GAMMA_EXT)
    assert error(found.value_ext, behaviour) < 1.5 * ERROR_BOUND
    assert error(found.value_ext, mdp.best().max(axis=1)) > 0.5


def test_ties_have_the_mean_or_the_largest_bonus_value() -> None:
    for ties, expected in {"mean": 0.5, "max": 1.0}.items():
        critic = make_critic(ties=ties, tie_tolerance=0.05)
        state, action = np.zeros(64, dtype=np.int64), np.arange(64) % 3
        ends = np.full(64, True)
        reward = np.where(action == 2, 0.0, 1.0)
        bonus = np.where(action == 1, 1.0, 0.0) + np.where(action == 2, 7.0, 0.0)
        for _ in range(500):
            critic.learn(ReplayBatch(state, action, state, reward, bonus, ends, ~ends))
        found = critic.estimate(np.zeros(1, dtype=np.int64), 1)
        assert found.value_ext[0] == pytest.approx(1.0, abs=0.02)
        assert found.value_int[0] == pytest.approx(expected, abs=0.02)


def test_before_the_first_reward_all_actions_tie_exactly() -> None:
    mdp = RandomMDP(0)
    mdp.data = mdp.data._replace(reward=np.zeros_like(mdp.data.reward))
    found = taught(mdp, make_critic(hidden=(16,)), updates=50)
    assert not found.q_ext.any()
    assert found.value_int.any()


@pytest.mark.parametrize("bootstrap", ["final", "reset", "none"])
def test_the_bonus_at_an_episodes_end_follows_the_wrapper(bootstrap: str) -> None:
    """One state that ends at once, and starts again in another one worth 1 or so."""
    critic = make_critic(int_bootstrap=bootstrap, gamma_ext=0.9)
    state = np.arange(64) % 2
    ends, bonus = np.full(64, True), np.where(state == 0, 0.0, 1.0)
    batch = ReplayBatch(
        state, np.zeros(64, dtype=np.int64), state, bonus, bonus, ends, ~ends,
        reset_observation=np.ones(64, dtype=np.int64),
    )  # fmt: skip
    for _ in range(800):
        critic.learn(batch)
    inputs = critic.averaged.inputs([np.arange(2)])
    q = critic.averaged.values(inputs)[:, :2]
    fixed_point = {"final": (0.0, 10.0), "reset": (9.0, 10.0), "none": (0.0, 1.0)}[bootstrap]
    np.testing.assert_allclose(q[:, 0], (0.0, 1.0), atol=0.05)
    # The two untaught actions keep Q_I = 0 and, having Q_E = 0, tie only in state 0.
    assert q[1, 1] == pytest.approx(fixed_point[1], rel=0.1)
    assert q[0, 1] == pytest.approx(fixed_point[0], rel=0.1, abs=0.1)


class Line(gym.Env[Any, Any]):
    """A point on [−1, 1], pushed by a Box action; the right end pays and ends the episode."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = np.float32(self.np_random.uniform(-1, 1))
        return np.array([self.x]), {}

    def step(self, action: Any) -> Any:
        self.x = np.clip(np.float32(self.x + 0.1 * action[0]), -1, 1)
        return np.array([self.x]), float(self.x >= 1.0), bool(self.x >= 1.0), False, {}


def line_data(size: int = 20_000) -> ReplayBatch:
    rng = np.random.default_rng(0)
    x, push = rng.uniform(-1, 1, size), rng.uniform(-2, 2, (size, 1))
    after = np.clip(x + 0.1 * push[:, 0], -1, 1)
    ends = after >= 1.0
    columns = (x[:, None], push, after[:, None])
    obs, action, following = (column.astype(np.float32) for column in columns)
    return ReplayBatch(obs, action, following, ends * 1.0, 0.1 * after, ends, ~ends & False)


@pytest.mark.parametrize("with_policy", [False, True])
def test_box_actions(with_policy: bool) -> None:
    policy = (lambda obs: np.full((len(obs), 1), 2.0)) if with_policy else None
    critic = QCritic(
        Line.observation_space, Line.action_space, **STREAMS, policy=policy, seed=0,
        candidates=16, averaging=0.05,
    )  # fmt: skip
    data = line_data()
    rng = np.random.default_rng(1)
    for _ in range(600):
        rows = rng.integers(len(data.reward), size=128)
        critic.learn(ReplayBatch(*(None if part is None else part[rows] for part in data)))
    x = np.linspace(-1.0, 0.95, 40, dtype=np.float32)[:, None]
    found = critic.estimate(x, 40)
    best = GAMMA_EXT ** (np.ceil((1.0 - x[:, 0]) / 0.2 - 1e-4) - 1)  # steps of at most 0.2
    assert found.q_ext is None
    assert np.abs(found.value_ext - best).max() < 0.15
    assert np.abs(found.value_ext - best).mean() < 0.06


def test_the_value_of_a_box_state_is_that_of_its_best_candidate() -> None:
    critic = QCritic(Line.observation_space, Line.action_space, **STREAMS, seed=0, candidates=16)
    data = line_data(256)
    for _ in range(30):
        critic.learn(data)
    x = data.observation[:20]
    of_actions = [
        critic.q_ext_of(x, np.broadcast_to(2.0 * code, (20, 1)))
        for code in critic.actions.candidates  # in [−1, 1], the env's actions in [−2, 2]
    ]
    value_ext = critic.estimate(x, 20).value_ext
    np.testing.assert_allclose(np.max(of_actions, axis=0), value_ext, rtol=1e-5)
    assert np.ptp(of_actions, axis=0).min() > 1e-4
    assert float(critic.q_ext_of(x[0], 2.0 * critic.actions.candidates[3])[0]) == pytest.approx(
        float(of_actions[3][0]), rel=1e-5
    )
    assert numbers_critic().q_ext_of(numbers().observation, numbers().action) is None


@pytest.mark.parametrize(
    "space",
    [gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Box(0, 255, (3, 12, 12), np.uint8)],
    ids=["numbers", "image"],
)
def test_what_is_learned_of_the_task_from_box_actions_does_not_depend_on_the_bonus(
    space: gym.spaces.Box,
) -> None:
    rng = np.random.default_rng(0)
    box = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    obs, following = (np.stack([space.sample() for _ in range(64)]) for _ in range(2))
    ends = rng.random(64) < 0.2
    columns = rng.uniform(-1, 1, (64, 2)).astype(np.float32), following, rng.normal(size=64)
    bonus = rng.normal(size=64)
    poor, rich = (
        QCritic(space, box, **STREAMS, seed=0, candidates=8, max_grad_norm=0.5) for _ in range(2)
    )
    for critic, scale in ((poor, 0.0), (rich, 1000.0)):
        for _ in range(20):
            critic.learn(ReplayBatch(obs, *columns, scale * bonus, ends, ~ends & False))
    one, other = (critic.estimate(obs, 64) for critic in (poor, rich))
    np.testing.assert_array_equal(one.value_ext, other.value_ext)
    np.testing.assert_array_equal(poor.q_ext_of(obs, columns[0]), rich.q_ext_of(obs, columns[0]))
    assert one.value_ext.any()
    assert not one.value_int.any()
    assert other.value_int.any()


def test_q_ext_of_a_box_action_is_the_smaller_of_two_estimates() -> None:
    critic = QCritic(Line.observation_space, Line.action_space, **STREAMS, seed=0)
    data = line_data(256)
    for _ in range(30):
        critic.learn(data)
    inputs = critic.average.encoder.inputs([torch.from_numpy(data.observation)])
    pairs = torch.cat([critic.average.encoder.embed(inputs), torch.from_numpy(data.action / 2)], 1)
    both = [body(pairs)[:, 0].numpy() for body in (critic.average.ext, critic.average.twin)]
    found = critic.q_ext_of(data.observation, data.action)
    np.testing.assert_allclose(found, np.minimum(*both), rtol=1e-5, atol=1e-7)
    assert 0.05 < (both[0] < both[1]).mean() < 0.95


def numbers(rows: int = 64, seed: int = 0, **changes: Any) -> ReplayBatch:
    """Transitions between points of three numbers, with an end here and there."""
    rng = np.random.default_rng(seed)
    obs, following = rng.normal(3.0, 2.0, (2, rows, 3)).astype(np.float32)
    ends = rng.random(rows) < 0.2
    columns = rng.integers(ACTIONS, size=rows), following, *rng.normal(size=(2, rows)), ends
    return ReplayBatch(obs, *columns, ~ends & False)._replace(**changes)


def numbers_critic(**settings: Any) -> QCritic:
    box = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    return QCritic(box, gym.spaces.Discrete(ACTIONS), **{**STREAMS, "seed": 0, **settings})


def test_shaping_is_one_pass_and_a_gradient_step_three(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
    critic = QCritic(inner.observation_space, inner.action_space, seed=0)
    shaper = ReplayShaper(ADOPSWrapper(inner, critic, add_to_reward=False, int_bootstrap="none"))
    passes: list[tuple[str, int]] = []
    whitened = []

    def count(name: str, mlp: Any) -> None:
        outputs = mlp._outputs
        monkeypatch.setattr(mlp, "_outputs", lambda x: passes.append((name, len(x))) or outputs(x))

    count("network", critic.regression.mlp)
    count("average", critic.averaged.mlp)
    whitening: Any = critic.network.encoder.parts[0].whitening
    by_numpy = whitening.by_numpy
    monkeypatch.setattr(whitening, "by_numpy", lambda x: whitened.append(len(x)) or by_numpy(x))
    shaper.shape(numbers())
    assert passes == [("average", 128)]
    assert whitened == [128]
    shaper.learn(numbers())
    assert passes[1:] == [("network", 64), ("average", 64), ("network", 64)]
    assert whitened == [128, 64, 64]


def test_batches_are_left_as_they_were() -> None:
    critic, batch = numbers_critic(), numbers()
    for _ in range(3):
        critic.learn(batch)
        critic.evaluate(batch.observation)
    for mine, before in zip(batch, numbers(), strict=True):
        np.testing.assert_array_equal(mine, before)


def test_rows_that_are_no_transition_teach_nothing() -> None:
    valid = np.arange(64) % 3 > 0
    spoilt = numbers(valid=valid)
    spoilt.reward[~valid] = np.nan
    first, second = numbers_critic(), numbers_critic()
    first.learn(spoilt)
    second.learn(numbers(valid=valid))
    first.learn(numbers(valid=np.zeros(64, dtype=np.bool_)))
    assert (first.updates, second.updates) == (1, 1)
    assert torch.equal(first.regression.vector, second.regression.vector)


def test_sampled_steps_are_shaped_as_the_wrapper_shapes_them() -> None:
    inner = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
    critic = QCritic(inner.observation_space, inner.action_space, seed=0)
    env = ADOPSWrapper(inner, critic, add_to_reward=False, int_bootstrap="none", epsilon=0.01)
    shaper = ReplayShaper(env)
    for seed in range(20):
        shaper.learn(numbers(seed=seed))
    steps, emitted = [], []
    obs, _ = env.reset(seed=0)
    for t in range(60):
        after, reward, terminated, truncated, info = env.step(t % ACTIONS)
        bonus = info["raw_intrinsic_reward"]
        steps.append((obs, t % ACTIONS, after, reward, bonus, terminated, truncated))
        emitted.append(info["intrinsic_reward"])
        obs = env.reset()[0] if terminated or truncated else after
    shaped = shaper.shape(ReplayBatch(*map(np.array, zip(*steps, strict=True))))
    # The order in which a product of matrices is summed depends on the number of rows.
    np.testing.assert_allclose(shaped, emitted, rtol=1e-5, atol=1e-6)
    assert np.unique(shaped).size > 20


def test_both_networks_see_observations_through_one_whitening() -> None:
    critic = numbers_critic()
    critic.learn(numbers())
    state = critic.state_dict()
    assert {"encoder.parts.0.whitening.mean"} <= state["average"].keys()
    for copied in (deepcopy(critic), numbers_critic(seed=5)):
        copied.load_state_dict(state)
        parts = copied.network.encoder.parts[0], copied.average.encoder.parts[0]
        assert parts[0].whitening is parts[1].whitening
        critic_answer, answer = (
            one.estimate(numbers().observation, 64) for one in (critic, copied)
        )
        np.testing.assert_array_equal(answer.q_ext, critic_answer.q_ext)
        assert answer.q_ext.any()


def test_a_state_dict_restores_values_and_the_next_step() -> None:
    mdp = RandomMDP(1)
    first, second = make_critic(), make_critic(seed=9)
    taught(mdp, first, updates=30)
    second.load_state_dict(first.state_dict())
    batch = mdp.batch()
    for critic in (first, second):
        critic.learn(batch)
    one, two = (critic.estimate(np.arange(STATES), STATES) for critic in (first, second))
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_nothing_is_learned_in_evaluation_mode() -> None:
    inner = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
    critic = QCritic(inner.observation_space, inner.action_space, seed=0)
    env = ADOPSWrapper(inner, critic, add_to_reward=False)
    obs = np.zeros((4, 3))
    zeros, never = np.zeros(4), np.zeros(4, dtype=np.bool_)
    batch = ReplayBatch(obs, np.zeros(4, dtype=np.int64), obs, zeros + 1, zeros, never, never)
    with evaluation_mode(env):
        ReplayShaper(env).learn(batch)
    assert critic.updates == 0
    ReplayShaper(env).learn(batch)
    assert critic.updates == 1


def test_f_reaches_the_critic_scaled() -> None:
    inner = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
    seen: list[Any] = []
    critic = QCritic(inner.observation_space, inner.action_space, seed=0)
    env = ADOPSWrapper(inner, critic, add_to_reward=False, intrinsic_scale=0.25)
    critic.learn = lambda batch: seen.append(batch.intrinsic)  # type: ignore[method-assign]
    obs, ones, never = np.zeros((4, 3)), np.ones(4), np.zeros(4, dtype=np.bool_)
    ReplayShaper(env).learn(ReplayBatch(obs, ones, obs, ones, ones, never, never))
    assert seen[0].tolist() == [0.25] * 4


def test_wrong_spaces_and_settings_are_refused() -> None:
    inner = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
    box = gym.spaces.Box(-1.0, 1.0, (7,))
    with pytest.raises(ValueError, match="made for observations of"):
        ADOPSWrapper(inner, QCritic(box, inner.action_space))
    with pytest.raises(ValueError, match="made for actions of"):
        ADOPSWrapper(inner, QCritic(inner.observation_space, gym.spaces.Discrete(9)))
    with pytest.raises(TypeError, match="Discrete actions and for bounded Box actions"):
        QCritic(box, gym.spaces.Box(-np.inf, np.inf, (2,)))
    with pytest.raises(ValueError, match="ties must be one of"):
        QCritic(box, gym.spaces.Discrete(2), ties="min")
    critic = QCritic(box, gym.spaces.Discrete(2))
    zeros, never = np.zeros(2), np.zeros(2, dtype=np.bool_)
    obs = np.zeros((2, 7))
    batch = ReplayBatch(obs, np.zeros(2, dtype=np.int64), obs, zeros, zeros, never, never)
    with pytest.raises(RuntimeError, match="does not know what to learn"):
        critic.learn(batch)
    reset = QCritic(box, gym.spaces.Discrete(2), **{**STREAMS, "int_bootstrap": "reset"})
    with pytest.raises(ValueError, match="reset_observation"):
        reset.learn(batch)
