from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import Autoreset, TimeLimit

from adops_wrappers import CountBonus, IntrinsicReturnNormalizer, IntrinsicRewardWrapper
from tests import toolkit as tk

ZERO = np.zeros(3, dtype=np.int64)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("obs_kind", ["box", "discrete", "dict", "tuple"])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_source_sees_true_transitions(mode: AutoresetMode, obs_kind: str, copy: bool) -> None:
    seen: list[Any] = []

    def spy(obs: Any, action: Any, next_obs: Any, valid: Any) -> Any:
        assert valid.dtype == np.bool_
        seen.append((tk.rows_of(obs, 3), action.copy(), tk.rows_of(next_obs, 3), valid))
        return np.zeros(3)

    def make() -> Any:
        envs = [lambda: tk.ScriptedEnv(obs_kind)] * 3
        return SyncVectorEnv(envs, copy=copy, autoreset_mode=mode)

    acts = np.random.default_rng(0).integers(0, 3, (30, 3))
    env = IntrinsicRewardWrapper(make(), spy)
    env.reset(seed=5)
    for action in acts:
        env.step(action)
    total = 0
    for i, steps in enumerate(tk.record(make(), acts, 5, mode)):
        valid_times = [t for t in range(30) if seen[t][3][i]]
        assert valid_times == [step.time for step in steps]
        for step in steps:
            obs, action, next_obs, _ = seen[step.time]
            assert tk.numbers(obs[i]) == tk.numbers(step.obs)
            assert tk.numbers(next_obs[i]) == tk.numbers(step.next_obs)
            assert action[i] == step.action
            total += 1
    assert total > 60


def test_single_env_source_gets_what_the_env_gives() -> None:
    seen = []

    def spy(obs: Any, action: Any, next_obs: Any, valid: Any) -> float:
        seen.append((obs.copy(), action, next_obs.copy(), valid))
        return 1.0

    env: Any = Autoreset(TimeLimit(tk.ScriptedEnv(longest=10**6), 2))
    env = IntrinsicRewardWrapper(env, spy)
    first, _ = env.reset(seed=0)
    second, *_ = env.step(2)
    np.testing.assert_array_equal(seen[0][0], first)
    np.testing.assert_array_equal(seen[0][2], second)
    assert seen[0][1] == 2
    assert seen[0][0].shape == (3,)
    env.step(0)
    assert "intrinsic_reward" not in env.step(0)[4]
    assert [entry[3] for entry in seen] == [True, True, False]
    assert all(type(entry[3]) is bool for entry in seen)


def test_object_with_a_reward_method() -> None:
    class Curiosity:
        def reward(self, obs: Any, action: Any, next_obs: Any) -> Any:
            return np.asarray(action) * 2.0

    env = IntrinsicRewardWrapper(tk.ScriptedEnv(), Curiosity())
    env.reset(seed=0)
    assert env.step(2)[4]["intrinsic_reward"] == 4.0


def test_torch_source() -> None:
    torch = pytest.importorskip("torch")
    env = IntrinsicRewardWrapper(
        tk.make_vector("sync", AutoresetMode.DISABLED, longest=10**6),
        lambda o, a, n: torch.ones(3, 1, requires_grad=True) * 2,
    )
    env.reset(seed=0)
    assert env.step(ZERO)[4]["intrinsic_reward"].tolist() == [2.0] * 3


def test_normalizer_scales_what_the_source_gives() -> None:
    normalizer = IntrinsicReturnNormalizer(3, gamma=0.5, warm_up=3)
    env = IntrinsicRewardWrapper(
        tk.make_vector("sync", AutoresetMode.SAME_STEP), tk.source, normalizer=normalizer
    )
    plain = IntrinsicRewardWrapper(tk.make_vector("sync", AutoresetMode.SAME_STEP), tk.source)
    twin = IntrinsicReturnNormalizer(3, gamma=0.5, warm_up=3)
    env.reset(seed=0), plain.reset(seed=0)
    for _ in range(10):
        f, raw = (e.step(ZERO)[4]["intrinsic_reward"] for e in (env, plain))
        np.testing.assert_array_equal(f, twin(raw))


@pytest.mark.parametrize("rule", ["std", "rms"])
@pytest.mark.parametrize("mode", [None, *AutoresetMode])
def test_one_word_normalizes_single_and_vector_envs(mode: Any, rule: Any) -> None:
    """As by an object of the same rule, dummy resets left out, and on after a resume."""

    def build(normalizer: Any) -> Any:
        env = tk.ScriptedEnv() if mode is None else tk.make_vector("sync", mode)
        return IntrinsicRewardWrapper(env, tk.source, normalizer=normalizer)

    rows = 1 if mode is None else 3
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, (160, rows))
    word, twin, raw = build(rule), IntrinsicReturnNormalizer(rows, rule=rule), build(None)
    word.reset(seed=0), raw.reset(seed=0)
    paid = []
    for t, action in enumerate(actions):
        action = int(action[0]) if mode is None else action
        results = [env.step(action) for env in (word, raw)]
        infos = [result[4] for result in results]
        valid = np.ones(rows, dtype=bool) if mode is None else infos[0]["_intrinsic_reward"]
        found, given = (np.atleast_1d(info["intrinsic_reward"]) for info in infos)
        np.testing.assert_array_equal(found, twin(given, valid))
        paid.append(found.any())
        ended = np.atleast_1d(results[0][2] | results[0][3])
        if mode in (None, AutoresetMode.DISABLED) and ended.any():
            options = {} if mode is None else {"options": {"reset_mask": ended}}
            word.reset(**options), raw.reset(**options)
        if t == 120:
            state = word.state_dict()["normalizer"]
            word.runner.normalizer = IntrinsicReturnNormalizer(rows, rule=rule)
            word.runner.normalizer.load_state_dict(state)
    assert not any(paid[:99])
    assert np.mean(paid[150:]) > 0.5


def test_the_word_is_kept_in_the_spec_and_checked() -> None:
    env = IntrinsicRewardWrapper(gym.make(tk.CLIFF), CountBonus(), normalizer="rms")
    assert gym.make(env.spec).runner.normalizer.rule == "rms"
    assert gym.envs.registration.EnvSpec.from_json(env.spec.to_json()) is not None
    with pytest.raises(ValueError, match=r"rule must be one of \('std', 'rms'\), got 'return'"):
        IntrinsicRewardWrapper(gym.make(tk.CLIFF), CountBonus(), normalizer="return")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [None, *AutoresetMode])
def test_the_bonus_starts_late_as_large_as_without_quiet_steps(mode: Any) -> None:
    """The source and its scale learn meanwhile, and a resumed run is quiet for the rest alone."""

    def build(quiet: int) -> Any:
        env = tk.ScriptedEnv() if mode is None else tk.make_vector("sync", mode)
        normalizer = IntrinsicReturnNormalizer(1 if mode is None else 3, warm_up=1)
        settings = {"normalizer": normalizer, "quiet_steps": quiet}
        return IntrinsicRewardWrapper(env, CountBonus(), **settings)

    late, early, resumed = build(6), build(0), build(6)
    action = 0 if mode is None else ZERO
    late.reset(seed=0), early.reset(seed=0)
    for t in range(12):
        results = [env.step(action) for env in (late, early)]
        found, plain = (result[4]["intrinsic_reward"] for result in results)
        np.testing.assert_array_equal(found, np.zeros_like(plain) if t < 6 else plain)
        assert t < 1 or np.any(plain)
        ended = np.atleast_1d(results[0][2] | results[0][3])
        if mode in (None, AutoresetMode.DISABLED) and ended.any():
            options = {} if mode is None else {"options": {"reset_mask": ended}}
            late.reset(**options), early.reset(**options)
        if t == 3:
            resumed.load_state_dict(late.state_dict())
            late.runner = resumed.runner


def test_quiet_steps_are_kept_in_the_spec_and_checked() -> None:
    env = IntrinsicRewardWrapper(gym.make(tk.CLIFF), CountBonus(), quiet_steps=7)
    assert gym.make(env.spec).runner.quiet_steps == 7
    for wrong in (-1, 1.5):
        with pytest.raises((ValueError, TypeError), match="quiet_steps must be"):
            IntrinsicRewardWrapper(gym.make(tk.CLIFF), CountBonus(), quiet_steps=wrong)  # type: ignore[arg-type]


def test_state_dict_round_trip() -> None:
    def build() -> Any:
        env = gym.make(tk.CLIFF)
        normalizer = IntrinsicReturnNormalizer(1, warm_up=2)
        return IntrinsicRewardWrapper(env, CountBonus(), normalizer=normalizer)

    first, second = build(), build()
    first.reset(seed=0)
    for action in (0, 1, 3):
        first.step(action)
    second.reset(seed=0)
    for action in (0, 1, 3):
        second.unwrapped.step(action)
    second.load_state_dict(first.state_dict())
    for action in (0, 1, 3, 3, 1):
        assert first.step(action)[4] == second.step(action)[4]
    bare = IntrinsicRewardWrapper(gym.make(tk.CLIFF), CountBonus())
    with pytest.raises(ValueError, match="must both have a normalizer"):
        bare.load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros(2), r"each of 3 environments.*got shape \(2,\) at step 0"),
        (np.zeros((3, 2)), r"got shape \(3, 2\)"),
        (np.array([0.0, 0.0, np.nan]), "nan for environment 2 at step 0 of its episode"),
        (1.0, r"got shape \(\)"),
    ],
)
def test_bad_answers_and_life_after_them(answer: Any, message: str) -> None:
    answers = [answer, np.ones(3)]
    env = IntrinsicRewardWrapper(
        tk.make_vector("sync", AutoresetMode.SAME_STEP), lambda o, a, n: answers.pop(0)
    )
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(ZERO)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(ZERO)
    env.reset(seed=0)
    assert env.step(ZERO)[4]["intrinsic_reward"].tolist() == [1.0] * 3


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="source must be a function"):
        IntrinsicRewardWrapper(tk.ScriptedEnv(), 3)
    with pytest.raises(ValueError, match=r"Build IntrinsicReturnNormalizer\(1\)"):
        IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source, normalizer=IntrinsicReturnNormalizer(2))


def test_builtin_without_a_signature() -> None:
    env = IntrinsicRewardWrapper(tk.ScriptedEnv("discrete", longest=10**6), max)
    obs, _ = env.reset(seed=0)
    next_obs, _, _, _, info = env.step(1)
    assert info["intrinsic_reward"] == max(obs, 1, next_obs)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_source_hears_of_ends_and_resets(mode: AutoresetMode) -> None:
    class Spy:
        def __init__(self) -> None:
            self.events: list[Any] = []

        def reward(self, obs: Any, action: Any, next_obs: Any, ended: Any) -> Any:
            self.events.append(("step", ended))
            return np.zeros(3)

        def reset_episodes(self, mask: Any) -> None:
            self.events.append(("over", mask.copy()))

    spy = Spy()
    env = IntrinsicRewardWrapper(tk.make_vector("sync", mode), spy)
    env.reset(seed=2)
    assert spy.events.pop()[1].all()
    acts = np.zeros((25, 3), dtype=np.int64)
    ends = np.zeros((25, 3), dtype=np.bool_)
    for i, steps in enumerate(tk.record(tk.make_vector("sync", mode), acts, 2, mode)):
        for step in steps:
            ends[step.time, i] = step.ended
    for t in range(25):
        _, _, terminated, truncated, _ = env.step(acts[t])
        expected = [("step", ends[t])] + [("over", ends[t])] * int(ends[t].any())
        if mode is AutoresetMode.DISABLED and ends[t].any():
            env.reset(options={"reset_mask": terminated | truncated})
            expected.append(("over", ends[t]))
        assert [name for name, _ in spy.events] == [name for name, _ in expected]
        for (_, found), (_, wanted) in zip(spy.events, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        spy.events.clear()
    assert ends.sum() > 10


def test_single_env_source_hears_of_ends() -> None:
    seen: list[Any] = []
    env = IntrinsicRewardWrapper(
        TimeLimit(tk.ScriptedEnv(longest=10**6), 2), lambda o, a, n, ended: seen.append(ended) or 0
    )
    env.reset(seed=0)
    env.step(0), env.step(0)
    assert seen == [False, True]
    assert all(type(value) is bool for value in seen)


@pytest.mark.parametrize("rule", ["std", "rms"])
def test_a_bonus_too_large_to_normalize_does_not_become_zero(rule: Any) -> None:
    env = IntrinsicRewardWrapper(tk.ScriptedEnv(), lambda s, a, next_s: 1e200, normalizer=rule)
    env.reset(seed=0)
    with pytest.raises(OverflowError, match=r"The discounted return of F is about 1e\+200 now"):
        env.step(0)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
