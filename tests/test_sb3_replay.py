from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
)
from stable_baselines3.common.save_util import load_from_pkl, save_to_pkl
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from adops_wrappers import (
    ADOPSWrapper,
    IntrinsicRewardWrapper,
    PBIMWrapper,
    PBRSWrapper,
    make_shaping,
)
from adops_wrappers.q_critic import QCritic
from adops_wrappers.replay import ReplayShaper
from adops_wrappers.sb3 import SB3VecEnv, ShapedReplayBuffer
from tests import toolkit as tk

CLAMP: dict[str, Any] = {
    "gamma_ext": 0.97,
    "gamma_int": 0.9,
    "epsilon": 0.01,
    "int_bootstrap": "none",
    "add_to_reward": False,
}

pytestmark = pytest.mark.usefixtures("one_thread")


class Reach(gym.Env[Any, Any]):
    """Ten steps of a number that an action pushes; `kind` says how it is seen and pushed."""

    def __init__(self, kind: str = "box", actions: str = "discrete") -> None:
        box = gym.spaces.Box(-20.0, 20.0, (2,), np.float32)
        self.kind = kind
        self.observation_space = {
            "box": box,
            "dict": gym.spaces.Dict({"a": box, "b": gym.spaces.Discrete(7)}),
            "discrete": gym.spaces.Discrete(41),
            "image": gym.spaces.Box(0, 255, (36, 36, 1), np.uint8),
        }[kind]
        self.action_space = (
            gym.spaces.Discrete(3)
            if actions == "discrete"
            else gym.spaces.Box(-2.0, 3.0, (1,), np.float32)
        )

    def _obs(self) -> Any:
        state = np.array([self.x, self.t], dtype=np.float32)
        if self.kind == "dict":
            return {"a": state, "b": int(abs(self.x)) % 7}
        if self.kind == "discrete":
            return np.int64(np.clip(self.x + 20, 0, 40))
        if self.kind == "image":
            return np.full((36, 36, 1), int(8 * self.x + 128) % 256, np.uint8)
        return state

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.normal()), 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        push = float(np.ravel(action)[0])
        self.x = float(np.clip(self.x + push - 1.0, -15, 15))
        self.t += 1
        reward = float(np.float32(np.sin(self.x)))
        return self._obs(), reward, self.x > 4.0, self.t >= 10, {}


def source(obs: Any, action: Any, next_obs: Any) -> Any:
    if isinstance(next_obs, dict):
        next_obs = next_obs["a"]
    values = np.asarray(next_obs, dtype=np.float64)
    return np.float64(np.cos(values.reshape(-1)[0]))


def vector_source(obs: Any, action: Any, next_obs: Any) -> Any:
    if isinstance(next_obs, dict):
        next_obs = next_obs["a"]
    return np.cos(np.asarray(next_obs, dtype=np.float64).reshape(len(next_obs), -1)[:, 0])


def stack_of(
    kind: str = "box", actions: str = "discrete", n: int = 2, name: str = "adops", **more: Any
) -> Any:
    env = SyncVectorEnv([lambda: Reach(kind, actions)] * n, autoreset_mode=AutoresetMode.SAME_STEP)
    source = IntrinsicRewardWrapper(env, vector_source)
    if name == "adops":
        settings = {**CLAMP, **more}
        critic = settings.pop("critic", None) or QCritic(
            env.single_observation_space, env.single_action_space, seed=0, hidden=(16,)
        )
        return ADOPSWrapper(source, critic, **settings)
    return make_shaping(name, source, **{"add_to_reward": False, **more})


def agent(algorithm: Any, env: Any, policy: str = "MlpPolicy", **more: Any) -> Any:
    kwargs = {"shaper": ReplayShaper(env), **more.pop("buffer", {})}
    vec_env = env if isinstance(env, gym.Env) else SB3VecEnv(env)
    return algorithm(
        policy,
        vec_env,
        replay_buffer_class=ShapedReplayBuffer,
        replay_buffer_kwargs=kwargs,
        **{"learning_starts": 20, "buffer_size": 200, "batch_size": 16, "seed": 3, **more},
        device="cpu",
        policy_kwargs={"net_arch": [16]},
    )


@pytest.mark.parametrize("kind", ["box", "dict", "discrete"])
@pytest.mark.parametrize("algorithm", [DQN, SAC, TD3])
def test_algorithms_train_through_it_and_learn_from_r_plus_f(algorithm: Any, kind: str) -> None:
    env = stack_of(kind, "discrete" if algorithm is DQN else "box")
    policy = "MultiInputPolicy" if kind == "dict" else "MlpPolicy"
    model = agent(algorithm, env, policy, train_freq=4)
    model.learn(120)
    buffer = model.replay_buffer
    assert isinstance(buffer, ShapedReplayBuffer)
    assert isinstance(buffer, DictReplayBuffer) == (kind == "dict")
    assert env.core.critic.updates > 5
    samples = buffer.sample(32)
    assert samples.rewards.shape == (32, 1)
    assert samples.rewards.dtype == torch.float32


def test_sampled_rewards_are_those_that_the_wrapper_emits_with_this_critic() -> None:
    def critic(obs: Any) -> Any:
        x = np.asarray(obs, dtype=np.float64)[..., 0]
        return np.sin(3 * x), np.cos(2 * x)

    env = stack_of(critic=critic)
    model = agent(DQN, env)
    rewards, ends = [], 0
    vec_env = model.get_env()
    obs = vec_env.reset()
    buffer = model.replay_buffer
    for step in range(60):
        action = np.array([step % 3, (step // 2) % 3])
        next_obs, reward, done, infos = vec_env.step(action)
        following = next_obs.copy()
        for row in np.flatnonzero(done):
            following[row] = infos[row]["terminal_observation"]
        buffer.add(obs, following, action, reward, done, infos)
        rewards.append([info["extrinsic_reward"] + info["intrinsic_reward"] for info in infos])
        obs, ends = next_obs, ends + done.sum()
    assert ends > 8
    steps, rows = np.divmod(np.arange(120), 2)
    assert buffer.rewards[steps, rows].tolist() == np.float32(rewards).ravel().tolist()


@pytest.mark.parametrize(
    ("plain", "settings"),
    [
        (ReplayBuffer, {}),
        (ReplayBuffer, {"optimize_memory_usage": True, "handle_timeout_termination": False}),
        (ReplayBuffer, {"handle_timeout_termination": False}),
        (NStepReplayBuffer, {"n_steps": 3, "gamma": 0.9}),
        (DictReplayBuffer, {}),
    ],
)
def test_without_a_bonus_it_is_sb3s_own_buffer(plain: Any, settings: dict[str, Any]) -> None:
    kind = "dict" if plain is DictReplayBuffer else "box"
    inner = SyncVectorEnv([lambda: Reach(kind)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    zero = IntrinsicRewardWrapper(inner, lambda obs, action, following: np.zeros(2))
    env = make_shaping("none", zero, add_to_reward=False)
    space, actions = inner.single_observation_space, inner.single_action_space
    for size in (50, 300):  # full, and not
        ours = ShapedReplayBuffer(
            size, space, actions, device="cpu", n_envs=2, shaper=ReplayShaper(env), **settings
        )
        theirs = plain(size, space, actions, device="cpu", n_envs=2, **settings)
        fill([ours, theirs], SB3VecEnv(env), 100)
        for seed in range(3):
            np.random.seed(seed)  # noqa: NPY002
            mine = ours.sample(40)
            np.random.seed(seed)  # noqa: NPY002
            other = theirs.sample(40)
            for name, part in mine._asdict().items():
                expected = getattr(other, name)
                if isinstance(part, dict):
                    assert all(torch.equal(part[key], expected[key]) for key in part)
                elif part is not None:
                    assert torch.equal(part, expected), name


def fill(buffers: list[Any], vec_env: Any, steps: int) -> None:
    obs = vec_env.reset()
    for step in range(steps):
        if isinstance(vec_env.action_space, gym.spaces.Box):
            action = stored = np.full((vec_env.num_envs, 1), np.sin(step), np.float32)
        else:
            action = stored = np.array([step % 3, (step // 2) % 3])[: vec_env.num_envs]
        next_obs, reward, done, infos = vec_env.step(action)
        copied = {k: v.copy() for k, v in next_obs.items()} if isinstance(next_obs, dict) else None
        following = copied if copied is not None else next_obs.copy()
        for row in np.flatnonzero(done):
            last = infos[row]["terminal_observation"]
            if copied is not None:
                for key, part in last.items():
                    copied[key][row] = part
            else:
                following[row] = last
        for buffer in buffers:
            buffer.add(obs, following, stored, reward, done, infos)
        obs = next_obs


def test_n_step_returns_are_sums_of_shaped_rewards() -> None:
    env = stack_of()
    buffer = ShapedReplayBuffer(
        60, env.single_observation_space, env.single_action_space, device="cpu", n_envs=2,
        shaper=ReplayShaper(env), n_steps=3, gamma=0.9,
    )  # fmt: skip
    fill([buffer], SB3VecEnv(env), 25)  # not full: what follows the newest step is empty
    np.random.seed(0)  # noqa: NPY002
    samples = buffer._get_samples(np.arange(25))
    np.random.seed(0)  # noqa: NPY002
    rows = np.random.randint(0, 2, size=25)  # noqa: NPY002
    for start, row in enumerate(rows):
        total, discount = 0.0, 1.0
        for step in range(start, min(start + 3, 25)):
            total += discount * float(buffer.rewards[np.array([step]), np.array([row])][0])
            discount *= 0.9
            if buffer.dones[step, row]:
                break
        assert samples.rewards[start, 0].item() == pytest.approx(total, abs=1e-6)


def test_box_actions_reach_the_critic_as_the_env_takes_them() -> None:
    env = stack_of(actions="box")
    model = agent(TD3, env)
    model.learn(40)
    buffer = model.replay_buffer
    steps, rows = np.arange(20), np.zeros(20, dtype=np.int64)
    low, high = buffer.actions[steps, rows].min(), buffer.actions[steps, rows].max()
    assert -1.0 <= low < high <= 1.0
    unscaled = buffer.transitions(steps, rows).action
    np.testing.assert_allclose(
        unscaled, -2.0 + 2.5 * (buffer.actions[steps, rows] + 1.0), atol=1e-6
    )


def test_images_that_sb3_has_transposed_are_shown_as_the_wrapper_sees_them() -> None:
    env = stack_of("image", n=1, critic=lambda obs: (obs[..., 0, 0, 0] / 255.0, np.zeros(len(obs))))
    model = agent(DQN, env, "CnnPolicy", learning_starts=10)
    assert model.observation_space.shape == (1, 36, 36)
    model.learn(24)
    batch = model.replay_buffer.transitions(np.arange(20), np.zeros(20, dtype=np.int64))
    assert batch.observation.shape == (20, 36, 36, 1)
    assert np.isfinite(model.replay_buffer.sample(8).rewards.numpy()).all()


def test_saving_keeps_r_and_f_and_loading_asks_for_a_stack(tmp_path: Path) -> None:
    env = stack_of()
    model = agent(DQN, env)
    model.learn(60)
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    model.save(tmp_path / "model.zip")
    again = DQN.load(tmp_path / "model.zip", env=SB3VecEnv(env), device="cpu")
    again.load_replay_buffer(tmp_path / "buffer.pkl")
    old, new = model.replay_buffer, again.replay_buffer
    assert isinstance(new, ShapedReplayBuffer)
    np.testing.assert_array_equal(new.extrinsic, old.extrinsic)
    np.testing.assert_array_equal(new.intrinsic, old.intrinsic)
    with pytest.raises(RuntimeError, match=r"bind\(ReplayShaper\(env\)\)"):
        new.sample(4)
    new.bind(ReplayShaper(env))
    steps, rows = np.arange(30), np.zeros(30, dtype=np.int64)
    assert new.rewards[steps, rows].tolist() == old.rewards[steps, rows].tolist()
    again.learn(20, reset_num_timesteps=False)


def test_the_buffer_of_a_dict_space_is_saved_too() -> None:
    env = stack_of("dict")
    buffer = ShapedReplayBuffer(
        40, env.single_observation_space, env.single_action_space, device="cpu", n_envs=2,
        shaper=ReplayShaper(env),
    )  # fmt: skip
    fill([buffer], SB3VecEnv(env), 10)
    file = io.BytesIO()
    save_to_pkl(file, buffer)
    file.seek(0)
    loaded = load_from_pkl(file)
    assert isinstance(loaded, DictReplayBuffer)
    np.testing.assert_array_equal(loaded.intrinsic, buffer.intrinsic)


def test_debts_are_kept_as_they_were_emitted() -> None:
    inner = DummyVecEnv([lambda: pbim_env()])
    shaper = ReplayShaper(inner.envs[0])
    buffer = ShapedReplayBuffer(
        100, inner.observation_space, inner.action_space, device="cpu", shaper=shaper
    )
    emitted = []
    obs = inner.reset()
    for step in range(30):
        next_obs, reward, done, infos = inner.step(np.array([step % 3]))
        buffer.add(obs, next_obs, np.array([step % 3]), reward, done, infos)
        emitted.append(infos[0]["extrinsic_reward"] + infos[0]["intrinsic_reward"])
        obs = next_obs
    index = np.arange(30), np.zeros(30, dtype=np.int64)
    assert buffer.rewards[index].tolist() == np.float32(emitted).tolist()


def pbim_env() -> Any:
    return PBIMWrapper(IntrinsicRewardWrapper(Reach(), source), add_to_reward=False)


def test_potentials_get_the_time_within_the_episode() -> None:
    inner = IntrinsicRewardWrapper(
        SyncVectorEnv([Reach] * 2, autoreset_mode=AutoresetMode.SAME_STEP), vector_source
    )
    env = PBRSWrapper(
        inner, lambda obs, t: 0.5 * np.asarray(t) + obs[..., 0], gamma=0.9, add_to_reward=False
    )
    buffer = ShapedReplayBuffer(
        100, env.single_observation_space, env.single_action_space, device="cpu", n_envs=2,
        shaper=ReplayShaper(env),
    )  # fmt: skip
    fill([buffer], SB3VecEnv(env), 40)
    steps, rows = np.divmod(np.arange(80), 2)
    expected = buffer.extrinsic[steps, rows] + buffer.emitted[steps, rows]
    assert buffer.rewards[steps, rows].tolist() == np.float32(expected).tolist()


class Endless(gym.Env[Any, Any]):
    """Goes on for ever and pays nothing."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, dtype=np.float32), 0.0, False, False, {}


def squared_time(obs: Any, t: Any) -> Any:
    return np.zeros(len(obs)) + np.square(t)


@pytest.mark.parametrize("adapter", ["SB3VecEnv", "DummyVecEnv"])
@pytest.mark.parametrize("loaded", [False, True])
def test_the_time_of_a_step_is_the_wrappers_after_a_reset_in_mid_episode(
    adapter: str, loaded: bool, tmp_path: Path
) -> None:
    """With Φ = t² and γ = 1, the first steps of an episode earn F' = 1, 3, 5, 7."""
    if adapter == "SB3VecEnv":
        inner = SyncVectorEnv([Endless], autoreset_mode=AutoresetMode.SAME_STEP)
        stack: Any = PBRSWrapper(inner, squared_time, gamma=1.0, add_to_reward=False)
        vec_env: Any = SB3VecEnv(stack)
    else:
        stack = PBRSWrapper(Endless(), squared_time, gamma=1.0, add_to_reward=False)
        vec_env = DummyVecEnv([lambda: stack])
    settings: dict[str, Any] = {
        "replay_buffer_class": ShapedReplayBuffer,
        "replay_buffer_kwargs": {"shaper": ReplayShaper(stack)},
        "learning_starts": 10**6,
        "buffer_size": 100,
        "device": "cpu",
    }
    model = DQN("MlpPolicy", vec_env, **settings)
    model.learn(20)
    if loaded:
        model.save_replay_buffer(tmp_path / "buffer.pkl")
        model = DQN("MlpPolicy", vec_env, **settings)
        model.load_replay_buffer(tmp_path / "buffer.pkl")
        model.replay_buffer.bind(ReplayShaper(stack))
    model.learn(4)  # SB3 begins with a reset
    buffer: Any = model.replay_buffer
    steps, rows = np.arange(24), np.zeros(24, dtype=np.int64)
    assert buffer.emitted[20:24, 0].tolist() == [1.0, 3.0, 5.0, 7.0]
    assert buffer.rewards[steps, rows].tolist() == [*range(1, 41, 2), 1, 3, 5, 7]


def test_steps_that_lack_their_time_are_not_shaped_by_a_potential() -> None:
    inner = SyncVectorEnv([Endless] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    env = PBRSWrapper(inner, squared_time, gamma=1.0, add_to_reward=False)
    buffer = make(env)
    vec_env = SB3VecEnv(env)
    obs = vec_env.reset()
    next_obs, reward, done, infos = vec_env.step(np.zeros(2, dtype=np.int64))
    for info in infos:
        assert info.pop("potential_time") == 0
    buffer.add(obs, next_obs, np.zeros(2, dtype=np.int64), reward, done, infos)
    with pytest.raises(ValueError, match=r"without their time.*info\['potential_time'\]"):
        buffer.sample(2)


def make(env: Any, **settings: Any) -> Any:
    space, actions = env.single_observation_space, env.single_action_space
    return ShapedReplayBuffer(
        100, space, actions, device="cpu", n_envs=2, shaper=ReplayShaper(env), **settings
    )


def test_bad_settings_are_refused_with_the_way_out() -> None:
    env = stack_of()
    with pytest.raises(ValueError, match=r"goal_selection_strategy: .*HER without a bonus"):
        make(env, goal_selection_strategy="future")
    with pytest.raises(TypeError, match="takes no argument n_step"):
        make(env, n_step=3)
    with pytest.raises(ValueError, match="not offered for Dict observations"):
        make(stack_of("dict"), n_steps=3)
    with pytest.raises(ValueError, match="int_bootstrap='reset' looks at the first observation"):
        make(stack_of(int_bootstrap="reset"))
    memory = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    with pytest.raises(ValueError, match="forgets an episode's last observation"):
        make(stack_of(int_bootstrap="final"), **memory)
    other = gym.spaces.Box(-1.0, 1.0, (5,))
    with pytest.raises(ValueError, match=r"stores observations of Box.*\(5,\).*\(2,\)"):
        ShapedReplayBuffer(10, other, env.single_action_space, shaper=ReplayShaper(env))
    with pytest.raises(ValueError, match="stores actions of Discrete"):
        ShapedReplayBuffer(
            10, env.single_observation_space, gym.spaces.Discrete(9), shaper=ReplayShaper(env)
        )


def test_steps_without_f_and_rewards_with_f_in_them_are_refused() -> None:
    env = stack_of()
    buffer = make(env)
    vec_env = SB3VecEnv(env)
    obs = vec_env.reset()
    next_obs, reward, done, infos = vec_env.step(np.zeros(2, dtype=np.int64))
    bare: list[dict[str, Any]] = [{}, {}]
    action = np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match=r"infos\[0\] has no 'extrinsic_reward'"):
        buffer.add(obs, next_obs, action, reward, done, bare)
    half = [infos[0], {"extrinsic_reward": infos[1]["extrinsic_reward"]}]
    with pytest.raises(ValueError, match=r"infos\[1\] has no 'raw_intrinsic_reward'"):
        buffer.add(obs, next_obs, action, reward, done, half)
    added = [info["extrinsic_reward"] + 0.5 for info in infos]
    with pytest.raises(ValueError, match=r"counted twice.*add_to_reward=False"):
        buffer.add(obs, next_obs, action, np.array(added), done, infos)
    assert buffer.size() == 0


def test_a_buffer_filled_before_the_source_was_known_is_refused() -> None:
    buffer = make(stack_of())
    buffer.pos = 20  # as one does who copies observations of an old run into it
    with pytest.raises(ValueError, match="stored before the source of F was in the stack"):
        buffer.sample(8)


def test_vec_normalize_may_scale_observations_but_not_the_reward() -> None:
    env = stack_of()
    buffer = make(env)
    normal = VecNormalize(SB3VecEnv(env), norm_reward=False)
    fill([buffer], SB3VecEnv(env), 20)
    normal.reset()
    assert buffer.sample(8, env=normal).observations.shape == (8, 2)
    with pytest.raises(ValueError, match="norm_reward=False"):
        buffer.sample(8, env=VecNormalize(SB3VecEnv(env), norm_reward=True))


def test_scripted_single_env_trains_as_it_is() -> None:
    class Scripted(tk.ScriptedEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gym.spaces.Box(-10.0, 10.0, (3,), np.float32)

        def _obs(self) -> Any:
            return self.state.astype(np.float32)

    inner = IntrinsicRewardWrapper(Scripted(), tk.source)
    critic = QCritic(inner.observation_space, inner.action_space, seed=0, hidden=(16,))
    env = ADOPSWrapper(inner, critic, **CLAMP)
    model = agent(DQN, env)
    model.learn(60)
    assert critic.updates > 5
