from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import (
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PBRSWrapper,
    make_shaping,
)
from adops_wrappers.arrays import stack_rows
from adops_wrappers.methods import METHODS
from adops_wrappers.replay import ReplayBatch, ReplayShaper
from tests import toolkit as tk

ROWS = 3
CLAMP = {"gamma_ext": tk.GAMMA_EXT, "gamma_int": tk.GAMMA_INT, "epsilon": 0.01}
SETTINGS: dict[str, dict[str, Any]] = {
    "adops": CLAMP,
    "adopes": {**CLAMP, "ramp_updates": 20, "update_every": 2},
    "adopes-half": {**CLAMP, "ramp_updates": 20, "update_every": 2},
    "pies": {"decay_updates": 20, "update_every": 2},
    "guarded": {"update_every": 2},
    "pbrs": {"potential": tk.potential, "gamma": 0.9},
}
CRITICS: dict[str, Any] = {
    "V": tk.critic,
    "Q": tk.critic_with_q,
    "Q of the action": tk.CriticOfActions(),
}
MODES = list(AutoresetMode)


PER_TRANSITION = [name for name, method in METHODS.items() if not method.remembers_episode]
PER_EPISODE = [name for name, method in METHODS.items() if method.remembers_episode]


def make_stack(
    name: str, mode: AutoresetMode | None, kind: str = "box", critic: Any = tk.critic, **more: Any
) -> Any:
    """A stack over one env (mode None) or over three."""
    env = (
        tk.ScriptedEnv(kind) if mode is None else tk.make_vector("sync", mode, ROWS, obs_kind=kind)
    )
    settings = {"add_to_reward": False, **SETTINGS.get(name, {}), **more}
    return make_shaping(name, IntrinsicRewardWrapper(env, tk.source), critic, **settings)


class Played:
    """What a replay buffer would hold of a run, row by row, with F′ as the wrapper emitted it."""

    def __init__(self, env: Any, steps: int = 60, seed: int = 0) -> None:
        self.env, self.rows = env, getattr(env, "num_envs", 1)
        self.batched = hasattr(env, "num_envs")
        self.space = env.single_observation_space if self.batched else env.observation_space
        self.columns: list[list[Any]] = [[] for _ in range(9)]
        self.emitted: list[float] = []
        self.states: list[Any] = []
        self.mode = env.core.layout.mode if self.batched else None
        rng = np.random.default_rng(seed)
        obs, _ = env.reset(seed=seed)
        dummy, elapsed = np.zeros(self.rows, bool), np.zeros(self.rows, int)
        for _ in range(steps):
            self.states.append(deepcopy(env.shaper.state_dict()))
            action = rng.integers(3, size=self.rows)
            after = env.step(action if self.batched else int(action[0]))
            self._store(obs, action, after, dummy, elapsed)
            obs, _, terminated, truncated, _ = after
            ended = np.atleast_1d(terminated) | np.atleast_1d(truncated)
            valid = ~dummy
            elapsed = np.where(ended | dummy, 0, elapsed + 1)
            dummy = ended & valid & (self.mode is AutoresetMode.NEXT_STEP)
            if not self.batched and ended.any():
                obs, _ = env.reset()
            elif self.mode is AutoresetMode.DISABLED and ended.any():
                obs, _ = env.reset(options={"reset_mask": ended})

    def _store(self, obs: Any, action: Any, after: Any, dummy: Any, elapsed: Any) -> None:
        next_obs, _, terminated, truncated, info = after
        here, there = self._split(obs), self._split(next_obs)
        for row in np.flatnonzero(~dummy):
            end = np.atleast_1d(terminated)[row], np.atleast_1d(truncated)[row]
            following, fresh = there[row], there[row]
            if any(end) and self.mode is AutoresetMode.SAME_STEP:
                following = info["final_obs"][row]
            keys = ("extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward")
            reward, bonus, shaped = (np.atleast_1d(info[key])[row] for key in keys)
            for column, value in zip(
                self.columns,
                (here[row], action[row], following, reward, bonus, *end, elapsed[row], fresh),
                strict=True,
            ):
                column.append(deepcopy(value))
            self.emitted.append(float(shaped))

    def _split(self, obs: Any) -> list[Any]:
        return tk.rows_of(obs, self.rows) if self.batched else [obs]

    def batch(self, rows: Any = None, **more: Any) -> ReplayBatch:
        rows = range(len(self.emitted)) if rows is None else rows
        picked = [[column[i] for i in rows] for column in self.columns]
        stack = partial(stack_rows, self.space)
        obs, action, next_obs, reward, bonus, terminated, truncated, elapsed, fresh = picked
        fields: dict[str, Any] = {
            "observation": stack(obs),
            "action": np.array(action),
            "next_observation": stack(next_obs),
            "reward": np.array(reward),
            "intrinsic": np.array(bonus),
            "terminated": np.array(terminated),
            "truncated": np.array(truncated),
            "elapsed": np.array(elapsed),
            "reset_observation": stack(fresh),
            **more,
        }
        return ReplayBatch(**fields)


def hold_schedule(env: Any) -> None:
    """Put ζ or β somewhere in the middle and keep it there."""
    state = env.shaper.state_dict()
    if "ticks" in state:
        state["ticks"] = 14
    if "beta" in state:
        state["beta"] = 0.3
    env.shaper.load_state_dict(state)
    env.shaper.frozen = True


@pytest.mark.parametrize("kind", ["box", "dict", "tuple", "discrete"])
@pytest.mark.parametrize("name", PER_TRANSITION)
def test_a_sampled_batch_is_shaped_as_the_wrapper_shaped_it(name: str, kind: str) -> None:
    for mode in (None, *MODES):
        env = make_stack(name, mode, kind, intrinsic_scale=0.7)
        hold_schedule(env)
        played = Played(env)
        rows = np.random.default_rng(1).integers(len(played.emitted), size=200)
        shaped = ReplayShaper(env).shape(played.batch(rows))
        assert shaped.tolist() == [played.emitted[row] for row in rows]
        assert np.unique(shaped).size > 20


@pytest.mark.parametrize("critic", list(CRITICS))
@pytest.mark.parametrize("bootstrap", ["final", "reset", "none"])
@pytest.mark.parametrize("name", [name for name in PER_TRANSITION if name.startswith("adop")])
def test_every_critic_and_every_bootstrap_is_the_wrappers(
    name: str, bootstrap: str, critic: str
) -> None:
    for mode in [AutoresetMode.SAME_STEP] if bootstrap == "reset" else [None, *MODES]:
        env = make_stack(name, mode, critic=CRITICS[critic], int_bootstrap=bootstrap)
        hold_schedule(env)
        played = Played(env)
        batch = played.batch()
        assert (batch.terminated | batch.truncated).sum() > 10
        assert ReplayShaper(env).shape(batch).tolist() == played.emitted


def test_q_of_the_action_alone_is_as_good_as_q_of_all() -> None:
    for mode in (None, *MODES):
        emitted = [
            Played(make_stack("adops", mode, critic=CRITICS[critic])).emitted
            for critic in ("Q", "Q of the action", "V")
        ]
        assert emitted[0] == emitted[1] != emitted[2]


@pytest.mark.parametrize(
    ("answer", "message"),
    [([0.0, 1.0], "one value for each of 1 obs"), ([np.nan], "must be finite")],
)
def test_a_bad_q_of_the_action_is_refused(answer: list[float], message: str) -> None:
    class Wrong(tk.CriticOfActions):
        def q_ext_of(self, obs: Any, action: Any) -> Any:
            return answer

    env = make_stack("adops", None, critic=Wrong())
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(0)


@pytest.mark.parametrize("mode", [None, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("name", PER_TRANSITION)
def test_the_live_schedule_is_read_and_not_advanced(name: str, mode: Any) -> None:
    env = make_stack(name, mode)
    played = Played(env, steps=30)
    shaper = ReplayShaper(env)
    last = range(len(played.emitted) - played.rows, len(played.emitted))
    now = deepcopy(env.shaper.state_dict())
    shaper.shape(played.batch())
    np.testing.assert_equal(env.shaper.state_dict(), now)
    env.shaper.load_state_dict(played.states[-1])  # as it was when the last step was shaped
    assert shaper.shape(played.batch(last)).tolist() == [played.emitted[row] for row in last]
    assert not env.shaper.frozen


def test_a_later_critic_shapes_old_steps_anew() -> None:
    knows = {"all": False}

    def critic(obs: Any) -> Any:
        zeros = np.zeros(np.shape(obs)[:-1])
        return tk.critic(obs) if knows["all"] else (zeros, zeros)

    env = make_stack("adops", AutoresetMode.SAME_STEP, critic=critic)
    played = Played(env)
    knows["all"] = True
    shaped = ReplayShaper(env).shape(played.batch())
    assert (shaped != played.emitted).mean() > 0.3
    again = Played(make_stack("adops", AutoresetMode.SAME_STEP))
    assert shaped.tolist() == again.emitted


@pytest.mark.parametrize("name", PER_EPISODE)
def test_what_depends_on_the_episode_is_kept_as_it_was_emitted(name: str) -> None:
    env = make_stack(name, AutoresetMode.SAME_STEP)
    played, shaper = Played(env), ReplayShaper(env)
    assert shaper.keeps_stored
    stored = np.array(played.emitted)
    assert shaper.shape(played.batch(shaped=stored)).tolist() == played.emitted
    with pytest.raises(ValueError, match=r"depends on the episode.*ReplayBatch\.shaped"):
        shaper.shape(played.batch())


def test_a_matching_function_depends_on_the_episode_too() -> None:
    env = make_stack("grm", None, matching=tk.halves)
    assert ReplayShaper(env).keeps_stored


@pytest.mark.parametrize("name", PER_TRANSITION)
def test_what_depends_on_the_critic_alone_is_shaped_anew(name: str) -> None:
    env = make_stack(name, AutoresetMode.SAME_STEP)
    played, shaper = Played(env), ReplayShaper(env)
    assert not shaper.keeps_stored
    batch = played.batch()
    stored = batch._replace(shaped=np.full(len(batch.reward), 99.0))
    assert shaper.shape(stored).tolist() == shaper.shape(batch).tolist()


def test_rows_that_are_no_transition_emit_nothing() -> None:
    env = make_stack("adops", None)
    played = Played(env)
    valid = np.arange(len(played.emitted)) % 2 == 0
    batch = played.batch(valid=valid)
    batch.intrinsic[~valid] = np.nan
    shaped = ReplayShaper(env).shape(batch)
    assert shaped[valid].tolist() == np.array(played.emitted)[valid].tolist()
    assert not shaped[~valid].any()


def test_another_critic_and_potential_can_answer_for_a_batch() -> None:
    def one_at_a_time(obs: Any, *t: Any) -> Any:
        assert np.shape(obs) == (3,)
        return tk.critic(obs) if not t else tk.potential(obs, *t)

    adops = make_stack("adops", None, critic=one_at_a_time)
    played = Played(adops)
    assert ReplayShaper(adops, critic=tk.critic).shape(played.batch()).tolist() == played.emitted
    source = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
    pbrs = PBRSWrapper(source, one_at_a_time, gamma=0.9, add_to_reward=False)
    played = Played(pbrs)
    shaper = ReplayShaper(pbrs, potential=tk.potential)
    assert shaper.shape(played.batch()).tolist() == played.emitted


def test_torch_batches_of_shape_n_1_are_taken() -> None:
    torch = pytest.importorskip("torch")
    env = make_stack("adops", None)
    played = Played(env)
    batch = played.batch()
    columns = ("reward", "intrinsic", "terminated", "truncated", "action")
    tensors = {name: torch.as_tensor(getattr(batch, name))[:, None] for name in columns}
    assert ReplayShaper(env).shape(batch._replace(**tensors)).tolist() == played.emitted


def test_stacks_that_cannot_be_replayed_are_refused() -> None:
    source = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
    with pytest.raises(ValueError, match="no shaping wrapper"):
        ReplayShaper(source)
    with pytest.raises(ValueError, match=r"twice.*add_to_reward=False"):
        ReplayShaper(NoShapingWrapper(source))
    two = make_shaping("pies", NoShapingWrapper(source, add_to_reward=False), add_to_reward=False)
    with pytest.raises(ValueError, match="2 shaping wrappers, PIES over none"):
        ReplayShaper(two)


def test_bad_batches_are_refused_with_the_way_out() -> None:
    env = make_stack("adops", AutoresetMode.SAME_STEP, int_bootstrap="reset")
    played, shaper = Played(env), ReplayShaper(env)
    batch = played.batch()

    def error(message: str, **changes: Any) -> None:
        with pytest.raises(ValueError, match=message):
            shaper.shape(batch._replace(**changes))

    error(r"before the source of F was.*raw_intrinsic_reward", intrinsic=None)
    unknown = batch.intrinsic.copy()
    unknown[4] = np.nan
    error(r"intrinsic is nan in row 4.*before the source", intrinsic=unknown)
    error(r"Store R, info\['extrinsic_reward'\]", reward=batch.reward * np.inf)
    error(r"observations have shape \(180, 2\).*\(180, 3\)", observation=batch.observation[:, :2])
    error(r"one value for each of 180 .* shape \(179,\)", terminated=batch.terminated[1:])
    error(r"reset_observation", reset_observation=None)
    pbrs = make_stack("pbrs", None)
    with pytest.raises(ValueError, match=r"ReplayBatch\.elapsed"):
        ReplayShaper(pbrs).shape(Played(pbrs).batch(elapsed=None))


def test_a_critic_that_answers_for_one_observation_alone_is_an_error() -> None:
    env = make_stack("adops", None, critic=lambda obs: (0.0, 0.0))
    played = Played(env)
    with pytest.raises(ValueError, match="one value for each of 120 observations"):
        ReplayShaper(env).shape(played.batch())


def test_q_values_need_discrete_actions() -> None:
    class Continuous(tk.ScriptedEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    source = IntrinsicRewardWrapper(Continuous(), lambda obs, action, following: 0.0)
    env = make_shaping("adops", source, tk.critic, add_to_reward=False)
    played = Played(env)
    with pytest.raises(TypeError, match="indexed by a Discrete action"):
        ReplayShaper(env, critic=tk.critic_with_q).shape(played.batch())
