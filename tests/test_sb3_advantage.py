from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList

from adops_wrappers import CountBonus, IntrinsicRewardWrapper, NoShapingWrapper, TDCritic
from adops_wrappers.sb3 import AdvantageClampCallback, SB3VecEnv
from tests import toolkit as tk

STEPS, ENVS, GAMMA, LAM = 48, 3, 0.9, 0.8


def value_ext(obs: Any) -> Any:
    """A critic that is wrong, so that all signs occur."""
    return np.sin(np.asarray(obs, dtype=float).reshape(len(obs), -1).sum(1))


def critic(obs: Any) -> Any:
    return value_ext(obs), np.zeros(len(obs))


class Watch(BaseCallback):
    """Keeps what SB3 computed and what the clamp made of it, with the steps behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[Any, ...]] = []
        self.before: list[Any] = []
        self.after: list[Any] = []

    def _on_step(self) -> bool:
        last = self.model._last_obs.copy()
        local = self.locals
        self.rows.append((last, local["new_obs"].copy(), local["dones"].copy(), local["infos"]))
        return True

    def _on_rollout_end(self) -> None:
        keep = self.before if len(self.before) == len(self.after) else self.after
        keep.append(self.model.rollout_buffer.advantages.copy())


def make_model(env: Any, **settings: Any) -> PPO:
    return PPO(
        "MlpPolicy", SB3VecEnv(env), n_steps=STEPS, batch_size=STEPS, n_epochs=1, gamma=GAMMA,
        gae_lambda=LAM, normalize_advantage=False, seed=0, device="cpu", **settings,
    )  # fmt: skip


def make_stack(env_fn: Any) -> Any:
    envs = SyncVectorEnv([env_fn] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
    return NoShapingWrapper(IntrinsicRewardWrapper(envs, tk.source))


def advantages_by_hand(rows: Any) -> Any:
    """A_E as the definition has it: one env and one step at a time, from SB3's own infos."""
    result = np.zeros((len(rows), ENVS))
    for env in range(ENVS):
        for t in range(len(rows)):
            weight = 1.0
            for last, new, dones, infos in rows[t:]:
                info = infos[env]
                after = value_ext(new)[env]
                if dones[env]:
                    cut = info["TimeLimit.truncated"]
                    after = value_ext(info["terminal_observation"][None])[0] if cut else 0.0
                delta = info["extrinsic_reward"] + GAMMA * after - value_ext(last)[env]
                result[t, env] += weight * delta
                if dones[env]:
                    break
                weight *= GAMMA * LAM
    return result


def test_clamps_sb3_s_advantages_by_the_sign_of_gae_over_the_task() -> None:
    """Exactly: terminations, truncations and rollouts that end in mid-episode included."""
    watch, clamp = Watch(), AdvantageClampCallback(critic, scale=False)
    both = CallbackList([watch, clamp])
    model = make_model(make_stack(partial(tk.ScriptedEnv, longest=9)))
    both.callbacks.append(after := Watch())
    model.learn(2 * STEPS * ENVS, callback=both)
    assert sum(row[2].sum() for row in watch.rows) > 10
    for rollout in range(2):
        rows = watch.rows[rollout * STEPS : (rollout + 1) * STEPS]
        ext = advantages_by_hand(rows)
        total = (watch.before + watch.after)[rollout]
        expected = np.where(ext < 0.0, np.minimum(total, 0.0), np.maximum(total, 0.0))
        sure = np.abs(ext) > 1e-5  # SB3 and this test differ in rounding
        found = (after.before + after.after)[rollout]
        np.testing.assert_array_equal(found[sure], expected[sure])
        assert sure.mean() > 0.95
        assert 0.05 < np.mean(found != total) < 0.95


class Delayed(tk.ScriptedEnv):
    """Pays nothing before its 100th step."""

    def step(self, action: Any) -> Any:
        self.made = getattr(self, "made", 0) + 1
        obs, reward, *rest = super().step(action)
        return (obs, reward if self.made > STEPS + 10 else 0.0, *rest)


def test_begins_with_the_first_reward_and_scales_with_a_floor() -> None:
    watch, after = Watch(), Watch()
    clamp = AdvantageClampCallback(critic)
    model = make_model(make_stack(Delayed))
    model.learn(2 * STEPS * ENVS, callback=CallbackList([watch, clamp, after]))
    first, second = watch.before + watch.after
    found_first, found_second = after.before + after.after
    rms = lambda x: float(np.sqrt(np.square(x).mean()))  # noqa: E731
    np.testing.assert_allclose(found_first, first / rms(first), rtol=1e-5)
    assert (found_second == 0.0).mean() > (second == 0.0).mean() + 0.05
    assert rms(found_second) == pytest.approx(1.0, rel=1e-5)
    model.learn(STEPS * ENVS, callback=clamp)  # again, with the same callback
    assert clamp not in model.get_env().env.core.observers


def test_learns_beside_a_td_critic() -> None:
    env = gym.make_vec("adops/LoopFarm-v0", num_envs=ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
    env = NoShapingWrapper(IntrinsicRewardWrapper(env, CountBonus(), normalizer="rms"))
    learning = TDCritic(
        env.single_observation_space, gamma_ext=GAMMA, gamma_int=GAMMA, batch_size=32, seed=0
    )
    make_model(env).learn(2 * STEPS * ENVS, callback=AdvantageClampCallback(learning))
    assert learning.updates > 0


def test_errors() -> None:
    clamp = AdvantageClampCallback(critic)
    stack = make_stack(tk.ScriptedEnv)
    normalising = PPO("MlpPolicy", SB3VecEnv(stack), n_steps=8, batch_size=8, device="cpu")
    with pytest.raises(ValueError, match="Build the model with normalize_advantage=False"):
        normalising.learn(8, callback=clamp)
    with pytest.raises(ValueError, match="DQN learns from a replay buffer"):
        DQN("MlpPolicy", SB3VecEnv(stack), buffer_size=10, device="cpu").learn(8, callback=clamp)
    bare = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, normalize_advantage=False)
    with pytest.raises(ValueError, match="reads the steps of a shaping wrapper"):
        bare.learn(8, callback=clamp)
