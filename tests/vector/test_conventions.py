"""Envs of simulators, each with its own convention, are shaped as the NumPy env behind them is."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import OrderEnforcing

torch = pytest.importorskip("torch")

from adops_wrappers import (  # noqa: E402
    ADOPSWrapper,
    BatchedEnv,
    GRMWrapper,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
)
from tests.vector.conventions import (  # noqa: E402
    ROWS,
    IsaacLike,
    ManiSkillLike,
    RslRlLike,
    same_step,
)

SAME_STEP = AutoresetMode.SAME_STEP
GAMMA_EXT, GAMMA_INT = 0.9, 0.75
DISCOUNTS: dict[str, Any] = {"gamma_ext": GAMMA_EXT, "gamma_int": GAMMA_INT, "add_to_reward": True}
STEPS = 60
KEYS = ("extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward")


def numbers(obs: Any) -> Any:
    return obs["policy"] if isinstance(obs, dict) else obs


def critic(obs: Any) -> tuple[Any, Any]:
    x = numbers(obs)
    return 3.0 * x[:, 0] - x[:, 1], 0.5 * x[:, 2] * x[:, 0] + 1.0


def source(obs: Any, action: Any, next_obs: Any) -> Any:
    s, after = numbers(obs), numbers(next_obs)
    return after[:, 0] * after[:, 1] - 0.5 * s[:, 2]


def stack(env: Any, **settings: Any) -> Any:
    return ADOPSWrapper(IntrinsicRewardWrapper(env, source, **settings), critic, **DISCOUNTS)


def play(env: Any, *, seed: int | None = 0) -> dict[str, np.ndarray]:
    """Return the columns of an episode of random actions, as NumPy arrays."""
    env.reset(seed=seed)
    rng, found = np.random.default_rng(1), []
    arrays = isinstance(env.unwrapped, gym.vector.SyncVectorEnv)
    for _ in range(STEPS):
        actions = rng.integers(0, 3, ROWS)
        obs, reward, terminated, truncated, info = env.step(
            actions if arrays else torch.tensor(actions)
        )
        if not arrays:
            assert isinstance(reward, torch.Tensor)
            assert all(isinstance(info[key], torch.Tensor) for key in KEYS)
        columns = {"obs": numbers(obs), "reward": reward, "terminated": terminated}
        columns |= {"truncated": truncated, **{key: info[key] for key in KEYS}}
        found.append({key: torch.as_tensor(v).clone().numpy() for key, v in columns.items()})
    env.state_dict()  # what was noted on a device is said
    return {key: np.stack([step[key] for step in found]) for key in found[0]}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for key, values in found.items():
        np.testing.assert_array_equal(values, expected[key], err_msg=key)


ENVS: dict[str, Any] = {
    "ManiSkill": lambda: stack(ManiSkillLike(), autoreset_mode=SAME_STEP),
    "IsaacLab, a batch": lambda: stack(BatchedEnv(IsaacLike("batch"))),
    "IsaacLab, rows": lambda: stack(BatchedEnv(IsaacLike("rows"))),
    "IsaacLab, undeclared": lambda: stack(BatchedEnv(IsaacLike("batch", False), SAME_STEP)),
    "IsaacLab, by name": lambda: stack(BatchedEnv(IsaacLike("batch", False), "SameStep")),
    "IsaacLab, wrapped": lambda: stack(BatchedEnv(OrderEnforcing(IsaacLike("batch")))),
}


@pytest.mark.parametrize("name", ENVS)
def test_final_observations_count_however_they_are_told(name: str) -> None:
    assert_same(play(ENVS[name]()), play(stack(same_step())))


def test_the_mode_of_an_env_like_maniskills_can_be_declared_at_any_innermost_wrapper() -> None:
    env = ADOPSWrapper(
        ManiSkillLike(), critic, bonus=source, autoreset_mode="SameStep", gamma=GAMMA_EXT
    )
    assert env.autoreset_mode is SAME_STEP
    env.reset(seed=0)
    assert env.step(torch.zeros(ROWS, dtype=torch.long))[1].shape == (ROWS,)


def by_hand(found: dict[str, np.ndarray], obs_before: np.ndarray, fs: np.ndarray) -> np.ndarray:
    """Return F' of ADOPS, written out, where nobody says what ended rows saw last."""
    before, after = (np.stack(critic(o.reshape(-1, 3))) for o in (obs_before, found["obs"]))
    before, after = (values.reshape(2, STEPS, ROWS) for values in (before, after))
    after = np.where(found["truncated"], before, np.where(found["terminated"], 0.0, after))
    advantage = found["extrinsic_reward"] + GAMMA_EXT * after[0] - before[0]
    total = advantage + fs + GAMMA_INT * after[1] - before[1]
    clamped = np.where(advantage < 0.0, np.minimum(total, -1e-7), np.maximum(total, 0.0))
    return fs + clamped - total


@pytest.mark.parametrize("kind", ["five values", "four values"])
def test_without_final_observations_v_is_0_or_that_of_the_state_before(kind: str) -> None:
    """As rsl_rl takes it; a source, which needs s', pays nothing there. Said once."""
    inner: Any = IsaacLike() if kind == "five values" else RslRlLike()
    spaces = same_step()
    env = BatchedEnv(
        inner,
        SAME_STEP,
        single_observation_space=None if kind == "five values" else spaces.single_observation_space,
    )
    env = stack(env)
    seed = 0 if kind == "five values" else None
    env.reset(seed=seed)
    first = numbers(inner.policy if kind == "five values" else inner.restart(0)).numpy().copy()
    with pytest.warns(RuntimeWarning, match=r"does not say what it saw last.*rsl_rl") as caught:
        found = play(env, seed=seed)
    assert len([w for w in caught if "saw last" in str(w.message)]) == 1
    ended = found["terminated"] | found["truncated"]
    assert found["terminated"].any() and found["truncated"].any()  # noqa: PT018
    before = np.concatenate([first[None], found["obs"][:-1]])
    paid = found["obs"][..., 0] * found["obs"][..., 1] - 0.5 * before[..., 2]
    np.testing.assert_array_equal(found["raw_intrinsic_reward"], np.where(ended, 0.0, paid))
    expected = by_hand(found, before, found["raw_intrinsic_reward"])
    np.testing.assert_allclose(found["intrinsic_reward"], expected, atol=1e-12)
    np.testing.assert_array_equal(
        found["reward"], found["extrinsic_reward"] + found["intrinsic_reward"]
    )


@pytest.mark.parametrize("dtype", [torch.bool, torch.long, torch.float32])
def test_dones_are_split_by_the_time_outs_that_belong_to_them(dtype: torch.dtype) -> None:
    """Time-outs of an earlier step, left in the extras, end nothing."""
    space = same_step().single_observation_space
    env = BatchedEnv(RslRlLike(dtype=dtype), SAME_STEP, single_observation_space=space)
    rng, kinds = np.random.default_rng(1), set()
    env.reset()
    reference = same_step()
    reference.reset(seed=0)
    for _ in range(STEPS):
        actions = rng.integers(0, 3, ROWS)
        _, _, terminated, truncated, info = env.step(torch.tensor(actions))
        _, _, over, cut, _ = reference.step(actions)
        assert terminated.dtype == truncated.dtype == torch.bool
        np.testing.assert_array_equal(terminated, over)
        np.testing.assert_array_equal(truncated, cut)
        stale = "time_outs" in info and not (over | cut).any() and info["time_outs"].any()
        kinds |= {"stale"} if stale else set()
    assert kinds == {"stale"}


def test_without_time_outs_every_end_is_a_termination() -> None:
    space = same_step().single_observation_space
    env = BatchedEnv(RslRlLike(time_outs=False), SAME_STEP, single_observation_space=space)
    env.reset()
    ends = 0
    for _ in range(STEPS):
        _, _, terminated, truncated, _ = env.step(torch.zeros(ROWS, dtype=torch.long))
        assert not truncated.any()
        ends += int(terminated.sum())
    assert ends > 10


class RslRlWrapper:
    """Reads of the env below what IsaacLab's wrapper for rsl_rl reads, which must be outermost."""

    def __init__(self, env: Any) -> None:
        if not isinstance(env.unwrapped, IsaacLike):
            raise ValueError("The environment must be inherited from ManagerBasedRLEnv.")
        self.env, inner = env, env.unwrapped
        self.num_envs, self.device = inner.num_envs, inner.device
        self.max_episode_length = inner.max_episode_length
        self.num_actions = gym.spaces.flatdim(inner.single_action_space)
        self.spaces = env.observation_space, env.action_space, env.render_mode
        env.reset()

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, extras = self.env.step(actions)
        extras["time_outs"] = truncated
        return obs, reward, (terminated | truncated).long(), extras


def test_a_wrapper_for_rsl_rl_above_finds_the_env_behind_the_stack() -> None:
    inner = IsaacLike("batch")
    env = RslRlWrapper(stack(BatchedEnv(inner)))
    assert env.env.unwrapped is inner
    inner.reset(seed=0)
    reference = stack(same_step())
    reference.reset(seed=0)
    env.env.reset(seed=0)
    for _ in range(STEPS):
        _, reward, dones, extras = env.step(torch.zeros(ROWS, dtype=torch.long))
        _, expected, over, cut, _ = reference.step(np.zeros(ROWS, dtype=np.int64))
        np.testing.assert_array_equal(reward, expected)
        np.testing.assert_array_equal(dones, over | cut)
        np.testing.assert_array_equal(extras["time_outs"], cut)
        assert extras["log"] == {"Episode/reward": 1.0}
        assert "intrinsic_reward" not in inner.extras
    env.env.close()
    assert inner.closed


WRAPPERS: dict[str, Any] = {
    "ADOPSWrapper": lambda env: ADOPSWrapper(env, critic),
    "NoShapingWrapper": NoShapingWrapper,
    "GRMWrapper, bonus": lambda env: GRMWrapper(env, bonus=source),
    "IntrinsicRewardWrapper": lambda env: IntrinsicRewardWrapper(env, source),
}


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("make", [IsaacLike, RslRlLike, lambda: OrderEnforcing(IsaacLike())])
def test_a_batched_env_without_the_adapter_is_an_error_that_names_it(name: str, make: Any) -> None:
    with pytest.raises(TypeError, match=rf"num_envs={ROWS} rows at once.*BatchedEnv\(env\)"):
        WRAPPERS[name](make())


class OneRow(gym.Wrapper):
    """Makes one env of a batched env of one row, as ManiSkill's CPUGymWrapper does."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space

    def reset(self, **settings: Any) -> Any:
        obs, info = self.env.reset(**settings)
        return {"policy": obs["policy"][0].numpy()}, info

    def step(self, action: Any) -> Any:
        obs, reward, over, cut, _ = self.env.step(torch.tensor([action]))
        return {"policy": obs["policy"][0].numpy()}, float(reward), bool(over), bool(cut), {}


def test_a_single_env_above_a_batched_one_is_a_single_env() -> None:
    env = IntrinsicRewardWrapper(OneRow(IsaacLike(rows=1)), lambda s, a, after: 1.0)
    env = NoShapingWrapper(env)
    env.reset(seed=0)
    assert env.step(0)[4]["intrinsic_reward"] == 1.0


def test_settings_of_the_adapter_that_make_no_sense_are_errors() -> None:
    with pytest.raises(ValueError, match=r"does not declare when.*SAME_STEP if"):
        BatchedEnv(IsaacLike(declared=False))
    with pytest.raises(ValueError, match="NEXT_STEP here, but the env declares SAME_STEP"):
        BatchedEnv(IsaacLike(), AutoresetMode.NEXT_STEP)
    with pytest.raises(TypeError, match=r"needs no adapter"):
        BatchedEnv(same_step())
    with pytest.raises(TypeError, match=r"needs no adapter"):
        BatchedEnv(gym.make("CartPole-v1"))
    inner = RslRlLike()
    del inner.single_action_space
    with pytest.raises(TypeError, match=r"has no single_action_space.*single_action_space="):
        BatchedEnv(inner, SAME_STEP)
    with pytest.raises(ValueError, match="'sometimes' is not a valid AutoresetMode"):
        BatchedEnv(IsaacLike(declared=False), "sometimes")


def test_what_the_env_cannot_do_is_an_error() -> None:
    env = BatchedEnv(IsaacLike())
    mask = torch.tensor([True, False, False])
    with pytest.raises(ValueError, match=r"resets its rows itself \(SAME_STEP\)"):
        env.reset(options={"reset_mask": mask})
    plain = BatchedEnv(RslRlLike(), SAME_STEP)
    with pytest.raises(ValueError, match="takes neither seed nor options"):
        plain.reset(seed=1)
    plain.env.step = lambda actions: (0, 1, 2)
    with pytest.raises(TypeError, match="returned 3 values"):
        plain.step(None)


def test_tensordicts_become_dicts() -> None:
    tensordict = pytest.importorskip("tensordict")

    class Groups(RslRlLike):
        def reset(self) -> Any:
            return tensordict.TensorDict({"policy": super().reset()}, batch_size=[ROWS])

        def step(self, actions: Any) -> Any:
            obs, *rest = super().step(actions)
            return tensordict.TensorDict({"policy": obs}, batch_size=[ROWS]), *rest

    space = IsaacLike().single_observation_space
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        groups, plain = (
            play(stack(BatchedEnv(inner, SAME_STEP, single_observation_space=space)), seed=None)
            for inner, space in ((Groups(), space), (RslRlLike(), space["policy"]))
        )
    assert_same(groups, plain)
