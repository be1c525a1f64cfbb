from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

pytest.importorskip("stable_baselines3")
import torch
from stable_baselines3 import DQN, PPO, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from adops_wrappers import (
    ADOPSWrapper,
    CountBonus,
    CriticHandle,
    GRMWrapper,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PIESWrapper,
    TDCritic,
    VectorShapingWrapper,
    evaluation_mode,
    make_shaping,
)
from adops_wrappers.sb3 import SB3VecEnv, ShapingCallback
from tests import toolkit as tk

GAMMA = 0.95

pytestmark = pytest.mark.usefixtures("one_thread")


class Bandit(gym.Env[Any, Any]):
    """Five steps; action 0 earns 1 at each. Action 1 leads to ever new observations."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
        self.action_space = gym.spaces.Discrete(2)

    def _obs(self) -> Any:
        noise = self.np_random.uniform(-1.0, 1.0) if self.watching else 0.0
        return np.array([self.t / 5, noise], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.watching = 0, False
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.watching = bool(action == 1)
        return self._obs(), float(action == 0), self.t == 5, False, {}


def shape(env: Any, method: str, total_steps: int) -> Any:
    """F = 1.5 for watching the noise: more than the task pays, and it never fades."""
    source = lambda obs, action, next_obs: 1.5 * np.equal(action, 1)  # noqa: E731
    env = IntrinsicRewardWrapper(env, source)
    if method == "none":
        return make_shaping("none", env)
    if method == "pies":
        return PIESWrapper(env, decay_updates=total_steps // 2 // 16, update_every=16)
    if method == "grm":
        return GRMWrapper(env, gamma=GAMMA)
    space = env.single_observation_space if hasattr(env, "num_envs") else env.observation_space
    critic = TDCritic(space, seed=0, learning_rate=3e-3, lam=0.0, replay_ratio=8.0)
    return ADOPSWrapper(env, critic, gamma=GAMMA, epsilon=0.1)


def vector_env(make: Callable[[], gym.Env[Any, Any]], n: int, **kwargs: Any) -> SyncVectorEnv:
    return SyncVectorEnv([make] * n, autoreset_mode=AutoresetMode.SAME_STEP, **kwargs)


def mean_return(model: Any) -> float:
    env = DummyVecEnv([lambda: Monitor(Bandit())])
    return float(evaluate_policy(model, env, n_eval_episodes=5, deterministic=True)[0])


@pytest.mark.parametrize("method", ["pies", "grm", "adops"])
def test_ppo_learns_the_task_that_the_raw_bonus_hides(method: str) -> None:
    steps, n = 6144, 8
    env = SB3VecEnv(shape(vector_env(Bandit, n), method, steps // n))
    log = ShapingCallback()
    model = PPO(
        "MlpPolicy", env, n_steps=32, batch_size=128, n_epochs=6, learning_rate=3e-3,
        gamma=GAMMA, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(steps, callback=log)
    assert model.num_timesteps >= steps
    assert mean_return(model) == 5.0
    assert log.history[-1]["extrinsic_return"] > 4.0


def test_ppo_with_the_raw_bonus_forgets_the_task() -> None:
    env = SB3VecEnv(shape(vector_env(Bandit, 8), "none", 1))
    model = PPO(
        "MlpPolicy", env, n_steps=32, batch_size=128, n_epochs=6, learning_rate=3e-3,
        gamma=GAMMA, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(6144)
    assert mean_return(model) == 0.0


@pytest.mark.parametrize("method", ["pies", "grm", "adops"])
def test_dqn_learns_the_task_through_a_single_wrapped_env(method: str) -> None:
    steps = 3000
    log = ShapingCallback(log_every=500, at_rollout_end=False)
    # A small replay: F′ is as old as its transition, and the first ones were shaped by a critic
    # that knew nothing.
    model = DQN(
        "MlpPolicy", shape(Bandit(), method, steps), learning_starts=200, train_freq=8,
        gradient_steps=4, learning_rate=2e-3, target_update_interval=100, buffer_size=1000,
        exploration_fraction=0.5, gamma=GAMMA, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(steps, callback=log)
    assert mean_return(model) == 5.0
    assert [entry["timesteps"] for entry in log.history] == [500.0 * k for k in range(1, 7)]


@pytest.mark.parametrize("copy", [True, False])
def test_adapter_shows_true_ends_and_returns(copy: bool) -> None:
    n, mode = 3, AutoresetMode.SAME_STEP

    def make() -> Any:
        return vector_env(tk.ScriptedEnv, n, copy=copy)

    stack = GRMWrapper(IntrinsicRewardWrapper(make(), tk.source), gamma=0.9)
    env = SB3VecEnv(stack)
    assert env.seed(7) == [7, 8, 9]
    acts = np.random.default_rng(0).integers(0, 3, (40, n))
    observations, infos, rewards, dones = [env.reset()], [], [], []
    for action in acts:
        obs, reward, done, info = env.step(action)
        observations.append(obs)
        rewards.append(reward)
        dones.append(done)
        infos.append(info)
    assert rewards[0].dtype == np.float32
    twin = GRMWrapper(IntrinsicRewardWrapper(make(), tk.source), gamma=0.9)
    twin.reset(seed=7)
    expected = np.array([twin.step(action)[1] for action in acts])
    np.testing.assert_allclose(rewards, expected, rtol=1e-6)
    ends = 0
    for i, steps in enumerate(tk.record(make(), acts, 7, mode)):
        total = length = 0.0
        for step in steps:
            info = infos[step.time][i]
            np.testing.assert_array_equal(observations[step.time][i], step.obs)
            assert dones[step.time][i] == step.ended
            assert info["extrinsic_reward"] == step.reward
            assert type(info["intrinsic_reward"]) is float
            total, length = total + step.reward, length + 1
            if step.ended:
                ends += 1
                np.testing.assert_array_equal(info["terminal_observation"], step.next_obs)
                np.testing.assert_array_equal(observations[step.time + 1][i], step.reset_obs)
                assert info["TimeLimit.truncated"] == step.truncated
                assert info["episode"]["r"] == pytest.approx(total)
                assert info["episode"]["l"] == length
                total = length = 0.0
            else:
                assert "terminal_observation" not in info
    assert ends > 15


def test_dict_observations_and_sub_env_infos() -> None:
    class Talking(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, info = self.env.step(action)
            return obs, reward, terminated, truncated, {**info, "said": 3, "deep": {"x": 1.5}}

    env = vector_env(lambda: Talking(tk.ScriptedEnv("dict")), 2)
    adapted = SB3VecEnv(GRMWrapper(IntrinsicRewardWrapper(env, tk.source)))
    adapted.reset()
    ended = False
    for _ in range(20):
        _, _, dones, infos = adapted.step(np.zeros(2, dtype=np.int64))
        for done, info in zip(dones, infos, strict=True):
            assert info["said"] == 3
            assert info["deep"] == {"x": 1.5}
            if done:
                ended = True
                assert set(info["terminal_observation"]) == {"a", "b"}
    assert ended


def test_vec_env_methods() -> None:
    stack = GRMWrapper(IntrinsicRewardWrapper(vector_env(Bandit, 2), CountBonus()))
    env = SB3VecEnv(stack)
    assert env.env_is_wrapped(GRMWrapper) == [True, True]
    assert env.env_is_wrapped(PIESWrapper, indices=[0]) == [False]
    assert env.get_attr("num_envs", indices=1) == [2]
    assert env.has_attr("shaper")
    assert not env.has_attr("nothing")
    assert len(env.env_method("state_dict")) == 2
    assert env.get_images() == [None, None]
    assert env.seed() == [None, None]
    with pytest.raises(NotImplementedError, match=r"SB3VecEnv\.env"):
        env.set_attr("add_to_reward", False)
    env.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_other_autoreset_modes_are_refused(mode: AutoresetMode) -> None:
    env = tk.make_vector("sync", mode)
    with pytest.raises(ValueError, match=f"runs {mode.name}.*AutoresetMode.SAME_STEP"):
        SB3VecEnv(env)


class Masked(Bandit):
    """A bandit that allows action 1 at even times only, and can be told a level."""

    level = 1

    def action_masks(self) -> Any:
        return np.array([True, self.t % 2 == 0])

    def raised(self, by: int) -> int:
        self.level += by
        return self.level


def masked_stack(n: int = 3, kind: Any = SyncVectorEnv) -> SB3VecEnv:
    env = kind([Masked] * n, autoreset_mode=AutoresetMode.SAME_STEP)
    return SB3VecEnv(NoShapingWrapper(IntrinsicRewardWrapper(env, CountBonus())))


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_methods_and_attributes_of_the_sub_envs_are_reached(kind: Any) -> None:
    env = masked_stack(kind=kind)
    env.reset()
    assert env.has_attr("action_masks")
    assert not env.has_attr("nothing")  # and the workers live on
    for allowed in (True, False, True):
        # What sb3-contrib's MaskablePPO asks for before each step.
        masks = np.stack(env.env_method("action_masks"))
        assert masks.tolist() == [[True, allowed]] * 3
        env.step(np.zeros(3, dtype=np.int64))
    env.set_attr("level", 5, indices=[0, 2])
    assert env.get_attr("level") == [5, 1, 5]
    assert env.get_attr("level", indices=1) == [1]
    env.set_attr("level", 7)
    assert env.env_method("raised", 1) == [8, 8, 8]
    for ask in (env.get_attr, env.env_method):
        with pytest.raises(AttributeError, match="each of its sub-envs has 'nothing'"):
            ask("nothing")
    env.close()


def test_a_method_is_called_for_the_named_sub_envs_alone() -> None:
    env = masked_stack()
    assert env.env_method("raised", 2, indices=[2, 0]) == [3, 3]
    assert env.get_attr("level") == [3, 1, 3]
    workers = masked_stack(kind=AsyncVectorEnv)
    with pytest.raises(NotImplementedError, match=r"of all its environments at once, not of \[1\]"):
        workers.env_method("raised", 2, indices=1)
    assert workers.get_attr("level") == [1, 1, 1]
    workers.close()


def test_wrappers_of_the_sub_envs_are_found() -> None:
    env = SB3VecEnv(vector_env(lambda: TimeLimit(Bandit(), 3), 2))
    assert env.env_is_wrapped(TimeLimit) == [True, True]
    assert env.env_is_wrapped(GRMWrapper.__class__) == [False, False]


def test_maskable_ppo_masks_the_actions_of_the_sub_envs() -> None:
    maskable = pytest.importorskip("sb3_contrib").MaskablePPO
    env = masked_stack()
    model = maskable("MlpPolicy", env, n_steps=16, batch_size=48, n_epochs=1, device="cpu")
    model.learn(48)
    buffer = model.rollout_buffer
    at_odd_times = (buffer.observations.reshape(-1, 2)[:, 0] * 5).round() % 2 == 1
    assert at_odd_times.any()
    assert (buffer.actions.reshape(-1)[at_odd_times] == 0).all()


class Balancer:
    """Holds CartPole's pole up for all of its 500 steps."""

    def predict(self, obs: Any, **_: Any) -> Any:
        return (obs @ np.array([0.1, 0.3, 3.0, 1.0]) > 0.0).astype(np.int64), None


def with_bonus(env: Any) -> Any:
    """F = 1 at each step."""
    source = lambda obs, action, next_obs: np.ones(np.shape(action))  # noqa: E731
    return NoShapingWrapper(IntrinsicRewardWrapper(env, source))


@pytest.mark.parametrize("adapter", ["SB3VecEnv", "SB3VecEnv of single stacks", "DummyVecEnv"])
def test_evaluate_policy_reports_the_return_of_the_task(adapter: str) -> None:
    make = partial(gym.make, "CartPole-v1")
    if adapter == "SB3VecEnv":
        env: Any = SB3VecEnv(with_bonus(vector_env(make, 2)))
    elif adapter == "SB3VecEnv of single stacks":  # their last words are in final_info
        env = SB3VecEnv(vector_env(lambda: with_bonus(make()), 2))
    else:  # Monitor below what adds F'
        env = DummyVecEnv([lambda: with_bonus(Monitor(make()))])
    env.seed(0)
    returns, lengths = evaluate_policy(
        Balancer(), env, n_eval_episodes=2, return_episode_rewards=True
    )
    assert returns == [500.0, 500.0]
    assert lengths == [500, 500]


class Tilt(BaseCallback):
    """Makes the policy take action 0, and action 1 after the first evaluation."""

    def _on_step(self) -> bool:
        head = self.model.policy.action_net
        with torch.no_grad():
            head.weight.zero_()
            head.bias.copy_(torch.tensor([9.0, 0.0] if self.n_calls <= 4 else [0.0, 9.0]))
        return True


def test_eval_callback_keeps_the_model_that_is_best_at_the_task(tmp_path: Path) -> None:
    """Action 0 earns 5 in an episode; action 1 earns nothing, and a bonus of 7.5."""
    env, eval_env = (SB3VecEnv(shape(vector_env(Bandit, 2), "none", 1)) for _ in range(2))
    evaluation = EvalCallback(
        eval_env, n_eval_episodes=4, eval_freq=4, best_model_save_path=str(tmp_path), verbose=0
    )
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, n_epochs=1, device="cpu", seed=0)
    model.learn(16, callback=[Tilt(), evaluation])
    assert (evaluation.best_mean_reward, evaluation.last_mean_reward) == (5.0, 0.0)
    best = PPO.load(tmp_path / "best_model", device="cpu")
    assert best.predict(np.zeros(2, np.float32), deterministic=True)[0] == 0


def learn_64_steps_and_evaluate(reading: Callable[[TDCritic], Any]) -> TDCritic:
    critic = TDCritic(Bandit().observation_space, seed=0)

    def stack(critic: Any) -> SB3VecEnv:
        env = IntrinsicRewardWrapper(vector_env(Bandit, 1), CountBonus())
        return SB3VecEnv(ADOPSWrapper(env, critic, int_bootstrap="none"))

    evaluation = EvalCallback(stack(reading(critic)), n_eval_episodes=20, eval_freq=8, verbose=0)
    model = PPO("MlpPolicy", stack(critic), n_steps=64, n_epochs=1, device="cpu", seed=0)
    model.learn(64, callback=evaluation)
    return critic


def test_evaluation_teaches_a_shared_critic_nothing() -> None:
    critic = learn_64_steps_and_evaluate(lambda critic: critic.evaluate)
    assert critic.replay is not None
    assert (critic.updates, critic.replay.stored) == (0, 64)


def test_an_evaluation_stack_that_would_teach_a_shared_critic_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"another stack.*as for evaluation.*critic\.evaluate"):
        learn_64_steps_and_evaluate(lambda critic: critic)


def test_evaluation_mode_reaches_the_env_that_sb3_has_wrapped() -> None:
    bonus = CountBonus()
    model = DQN("MlpPolicy", IntrinsicRewardWrapper(Bandit(), bonus), device="cpu")
    with evaluation_mode(model.get_env()):
        assert bonus.frozen
        evaluate_policy(model, model.get_env(), n_eval_episodes=1)
    assert not bonus.frozen
    assert not bonus.counts


class Fifty(gym.Env[Any, Any]):
    """Episodes of fifty steps that earn 1 each."""

    observation_space = gym.spaces.Box(0.0, 50.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.full(1, self.t, dtype=np.float32), 1.0, self.t == 50, False, {}


@pytest.mark.parametrize("adapter", ["SB3VecEnv", "DummyVecEnv"])
def test_callback_logs_true_returns_over_several_calls_of_learn(adapter: str) -> None:
    if adapter == "SB3VecEnv":
        env: Any = SB3VecEnv(with_bonus(vector_env(Fifty, 1)))
    else:
        env = DummyVecEnv([lambda: with_bonus(Fifty())])
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu", seed=0)
    log, joined = ShapingCallback(), ShapingCallback()

    def returns_of(log: ShapingCallback) -> list[float]:
        found = [e["extrinsic_return"] for e in log.history if "extrinsic_return" in e]
        log.history.clear()
        return found

    model.learn(32, callback=log)  # SB3 resets the env when the next one begins
    assert returns_of(log) == []
    model.learn(64, callback=log)
    assert returns_of(log) == [50.0]
    model.learn(64, callback=log, reset_num_timesteps=False)  # the episode goes on
    assert returns_of(log) == [50.0]
    # At step 128, 28 steps into an episode, of which a callback that joins knows nothing.
    model.learn(96, callback=joined, reset_num_timesteps=False)
    assert returns_of(joined) == [50.0]


class Reach(gym.Env[Any, Any]):
    """A goal env: ten steps along a line, and a penalty of 1 away from the goal."""

    def __init__(self) -> None:
        line = gym.spaces.Box(-10.0, 10.0, (1,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gym.spaces.Dict(dict.fromkeys(names, line))
        self.action_space = gym.spaces.Discrete(2)

    def _obs(self) -> Any:
        at = np.array([self.x], dtype=np.float32)
        return {"observation": at, "achieved_goal": at, "desired_goal": self.goal}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.t = 0.0, 0
        self.goal = self.np_random.integers(-5, 6, 1).astype(np.float32)
        return self._obs(), {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -(np.abs(achieved - desired)[..., 0] > 0.5).astype(np.float64)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.x += 2.0 * float(action) - 1.0
        obs = self._obs()
        reward = float(self.compute_reward(obs["achieved_goal"], obs["desired_goal"], {}))
        return obs, reward, False, self.t == 10, {}


@pytest.mark.parametrize("adapter", ["SB3VecEnv", "DummyVecEnv"])
@pytest.mark.parametrize("add_to_reward", [True, False])
def test_hindsight_never_samples_rewards_that_lack_the_bonus(
    adapter: str, add_to_reward: bool
) -> None:
    """HER computes the rewards of four in five sampled steps anew: R, without F'."""
    source = lambda obs, action, next_obs: np.full(np.shape(action), 7.0)  # noqa: E731
    settings = {"add_to_reward": add_to_reward}
    if adapter == "SB3VecEnv":
        stack = NoShapingWrapper(IntrinsicRewardWrapper(vector_env(Reach, 1), source), **settings)
        env: Any = SB3VecEnv(stack)
    else:
        make = lambda: NoShapingWrapper(IntrinsicRewardWrapper(Reach(), source), **settings)  # noqa: E731
        env = DummyVecEnv([make])
    model = DQN(
        "MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, learning_starts=20,
        buffer_size=200, device="cpu", seed=0,
    )  # fmt: skip
    if add_to_reward:
        with pytest.raises(ValueError, match=r"compute_reward: hindsight.*HER without a bonus"):
            model.learn(30)
    else:
        model.learn(30)
        assert set(model.replay_buffer.sample(50).rewards.unique().tolist()) <= {-1.0, 0.0}


class Kept(KVWriter):
    """Keeps the last values that SB3 wrote into its log."""

    def write(self, key_values: Any, key_excluded: Any, step: int = 0) -> None:
        self.values = dict(key_values)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("adapter", ["SB3VecEnv", "DummyVecEnv"])
def test_callback_logs_what_the_infos_say(adapter: str) -> None:
    def single() -> Any:
        return TimeLimit(tk.ScriptedEnv(longest=10**6), 4)

    if adapter == "SB3VecEnv":
        stack = PIESWrapper(
            IntrinsicRewardWrapper(vector_env(single, 2), tk.source),
            decay_updates=4,
            update_every=4,
        )
        env: Any = SB3VecEnv(stack)
    else:
        make = lambda: PIESWrapper(  # noqa: E731
            IntrinsicRewardWrapper(single(), tk.source), decay_updates=4, update_every=4
        )
        env = DummyVecEnv([make, make])
    seen: list[Any] = []
    step_wait = env.step_wait

    def spy() -> Any:
        result = step_wait()
        seen.extend(result[3])
        return result

    env.step_wait = spy
    log = ShapingCallback(log_every=10**6)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, n_epochs=1, device="cpu", seed=0)
    writer = Kept()
    model.set_logger(Logger(None, [writer]))
    model.learn(16, callback=log)
    (entry,) = log.history
    for key in ("extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward"):
        assert entry[key] == pytest.approx(np.mean([info[key] for info in seen]))
    corrected = np.mean([info["shaping_correction"] != 0.0 for info in seen])
    assert entry["corrected_share"] == pytest.approx(corrected)
    assert 0.0 < corrected < 1.0  # ζ is 1 for the first four steps
    assert entry["zeta"] == 0.5  # eight steps are two updates of four
    returns = np.sum([info["extrinsic_reward"] for info in seen]) / 4  # 2 rows × 2 episodes
    assert entry["extrinsic_return"] == pytest.approx(returns)
    assert all(writer.values[f"shaping/{k}"] == v for k, v in entry.items() if k != "timesteps")


def test_callback_without_shaping_logs_nothing() -> None:
    log = ShapingCallback(log_every=1)
    settings = {"n_steps": 8, "batch_size": 16, "n_epochs": 1, "device": "cpu"}
    model = PPO("MlpPolicy", SB3VecEnv(vector_env(Bandit, 2)), **settings)
    model.learn(16, callback=log)
    assert log.history == []


def test_images_of_envs_that_render() -> None:
    env = gym.make_vec(
        "adops/LoopFarm-v0",
        num_envs=2,
        autoreset_mode=AutoresetMode.SAME_STEP,
        render_mode="rgb_array",
    )
    adapted = SB3VecEnv(env)
    adapted.reset()
    images = adapted.get_images()
    assert len(images) == 2
    assert all(image.ndim == 3 and image.shape[2] == 3 for image in images)


def test_batched_dict_of_final_observations() -> None:
    """A vector env may batch the final observations of a Dict space instead of listing them."""

    class Batched(VectorShapingWrapper):
        def step(self, actions: Any) -> Any:
            *rest, info = super().step(actions)
            final = info.get("final_obs")
            if final is not None:
                blank = {"a": np.zeros(3), "b": np.int64(0)}
                rows = [blank if row is None else row for row in final]
                info = {**info, "final_obs": {k: np.stack([r[k] for r in rows]) for k in blank}}
            return *rest, info

    listed = NoShapingWrapper(
        IntrinsicRewardWrapper(vector_env(lambda: tk.ScriptedEnv("dict"), 2), tk.source)
    )
    batched = Batched(
        IntrinsicRewardWrapper(vector_env(lambda: tk.ScriptedEnv("dict"), 2), tk.source), "none"
    )
    envs = [SB3VecEnv(listed), SB3VecEnv(batched)]
    for env in envs:
        env.seed(0)
        env.reset()
    ends = 0
    for _ in range(20):
        (_, _, dones, first), (_, _, _, second) = (env.step(np.zeros(2, int)) for env in envs)
        for row in np.flatnonzero(dones):
            ends += 1
            left, right = (infos[row]["terminal_observation"] for infos in (first, second))
            np.testing.assert_array_equal(left["a"], right["a"])
            assert left["b"] == right["b"]
    assert ends > 4


class Optional(tk.ScriptedEnv):
    """Notes the options of its resets."""

    options: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.options = options
        return super().reset(seed=seed, options=options)


def test_options_reach_the_next_reset_and_only_that() -> None:
    base = vector_env(Optional, 2)
    env = SB3VecEnv(NoShapingWrapper(IntrinsicRewardWrapper(base, tk.source)))
    env.set_options({"level": 3})
    env.reset()
    assert [sub.unwrapped.options for sub in base.envs] == [{"level": 3}] * 2
    env.reset()
    assert [sub.unwrapped.options for sub in base.envs] == [None] * 2
    env.set_options([{"level": np.ones(2)}] * 2)
    env.reset()
    assert base.envs[1].unwrapped.options["level"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="one set of options for all its environments"):
        env.set_options([{"level": 1}, {"level": 2}])


@pytest.mark.parametrize("kind", ["handle", "function", "learning"])
@pytest.mark.filterwarnings("ignore")
def test_critic_in_a_subprocess_worker_is_noticed(kind: str, capfd: Any) -> None:
    critic: Any = {
        "handle": CriticHandle(tk.critic),
        "function": tk.critic,
        "learning": TDCritic(tk.ScriptedEnv().observation_space),
    }[kind]

    def make() -> Any:
        return ADOPSWrapper(IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source), critic)

    env = SubprocVecEnv([make] * 2, start_method="fork")
    with pytest.raises((EOFError, ConnectionError)):
        env.reset()
    assert "adops_wrappers.sb3.SB3VecEnv" in capfd.readouterr().err
    for process in env.processes:
        process.terminate()
        process.join()


@pytest.mark.filterwarnings("ignore")
def test_learning_critic_made_inside_a_worker_learns_there() -> None:
    def make() -> Any:
        env = tk.ScriptedEnv()
        critic = TDCritic(env.observation_space, batch_size=16)
        env = ADOPSWrapper(IntrinsicRewardWrapper(env, tk.source), critic)
        env.critic = critic
        return env

    env = SubprocVecEnv([make] * 2, start_method="fork")
    env.reset()
    for _ in range(40):
        env.step(np.zeros(2, dtype=np.int64))
    assert all(critic.updates > 0 for critic in env.get_attr("critic"))
    env.close()
