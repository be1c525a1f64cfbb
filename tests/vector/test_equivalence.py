"""Every method × autoreset mode × vector env against a slow reference and single envs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adops_wrappers import CriticHandle, IntrinsicRewardWrapper, make_shaping
from adops_wrappers.methods import METHODS as DECLARED
from tests import toolkit as tk
from tests.declared import Cases, with_declared

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
STEPS, SEED, UPDATE_EVERY, UPDATES = 60, 11, 4, 10
ADOPS = {"gamma_ext": tk.GAMMA_EXT, "gamma_int": tk.GAMMA_INT, "add_to_reward": True}
RAMP = {"ramp_updates": UPDATES, "update_every": UPDATE_EVERY}
METHODS: Cases = {
    "none": ("none", {"intrinsic_scale": 0.3}),
    "adops": ("adops", ADOPS),
    "adops-weighted": ("adops", {**ADOPS, "ext_coef": 2.0, "int_coef": 0.5, "epsilon": 0.01}),
    "adops-none": ("adops", {**ADOPS, "int_bootstrap": "none"}),
    "adops-reset": ("adops", {**ADOPS, "int_bootstrap": "reset"}),
    "adops-q": ("adops", ADOPS),
    "adopes": ("adopes", {**ADOPS, **RAMP}),
    "adopes-half": ("adopes-half", {**ADOPS, **RAMP}),
    "pies": ("pies", {"decay_updates": UPDATES, "update_every": UPDATE_EVERY}),
    "pbim": ("pbim", {"gamma": tk.GAMMA_INT}),
    "pbim-norm": ("pbim-norm", {"gamma": tk.GAMMA_INT, "alpha": 0.2}),
    "grm": ("grm", {"gamma": tk.GAMMA_INT}),
    "grm-2-norm": ("grm-norm", {"gamma": tk.GAMMA_INT, "delay": 2, "alpha": 0.2}),
    "grm-inf": ("grm", {"gamma": tk.GAMMA_INT, "delay": math.inf}),
    "grm-halves": ("grm", {"gamma": tk.GAMMA_INT, "matching": tk.halves}),
    "pbrs": ("pbrs", {"gamma": tk.GAMMA_INT, "potential": tk.potential}),
    "bsrs": ("bsrs", {**ADOPS, "eta": 0.05}),
    "bampf": ("bampf", {"gamma": tk.GAMMA_INT}),
    "bampf-episodic": ("bampf", {"gamma": tk.GAMMA_INT, "episodic": True, "initial": 0.5}),
}
SCHEDULED = {"adopes", "adopes-half", "pies"}
EVERY = {
    case: (name, settings)
    for case, (name, settings) in with_declared(METHODS).items()
    if not DECLARED[name].one_process_only  # it learns from all rows together
}


def actions(n: int = 3, steps: int = STEPS) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).integers(0, 3, (steps, n))


def critic_of(case: str) -> Any:
    return tk.critic_with_q if case == "adops-q" else tk.critic


def wrap(case: str, env: Any, handle: bool = True) -> Any:
    name, settings = EVERY[case]
    critic = CriticHandle(critic_of(case)) if handle else critic_of(case)
    return make_shaping(name, IntrinsicRewardWrapper(env, tk.source), critic, **settings)


def reference(case: str, steps: list[tk.Step]) -> dict[int, float]:
    """F′ of one row by vector time, computed with plain Python from the bare transitions."""
    out: dict[int, float] = {}
    mean, settings = 0.0, METHODS[case][1]
    known = settings.get("initial", 0.0)
    for episode in tk.episodes_of(steps):
        bonuses = [float(tk.source(s.obs, s.action, s.next_obs)) for s in episode]
        if METHODS[case][0] in ("pbim", "pbim-norm", "grm", "grm-norm"):
            f = bonuses
            if METHODS[case][0].endswith("norm"):
                f, mean = tk.centred(bonuses, mean, settings["alpha"])
            delay = settings.get("delay", 1) if case.startswith("grm") else math.inf
            weight = settings.get("matching") or tk.delay_weight(
                10**6 if delay == math.inf else delay
            )
            # An unfinished episode has no final step yet: pad one and drop it.
            padded = f if episode[-1].ended else [*f, 0.0]
            shaped = tk.matched(padded, tk.GAMMA_INT, weight)[: len(f)]
        elif METHODS[case][0] == "bampf":
            ends = [settings.get("episodic", False) and step.terminated for step in episode]
            shaped = [
                (0.0 if end else tk.GAMMA_INT * after) - before
                for before, after, end in zip([known, *bonuses], bonuses, ends, strict=False)
            ]
            known = bonuses[-1]
        else:
            shaped = [
                stepwise(case, step, bonus) for step, bonus in zip(episode, bonuses, strict=True)
            ]
        out.update({step.time: value for step, value in zip(episode, shaped, strict=True)})
    return out


def stepwise(case: str, step: tk.Step, bonus: float) -> float:
    settings = METHODS[case][1]
    updates = step.time // UPDATE_EVERY
    if case == "none":
        return 0.3 * bonus
    if case == "pies":
        return max(0.0, 1.0 - updates / UPDATES) * bonus
    if case == "pbrs":
        after = 0.0 if step.terminated else float(tk.potential(step.next_obs, step.t + 1))
        return bonus + tk.GAMMA_INT * after - float(tk.potential(step.obs, step.t))
    v, next_v = critic_of(case)(step.obs), critic_of(case)(step.next_obs)
    next_ext = 0.0 if step.terminated else float(next_v[0])
    if case == "bsrs":
        return bonus + 0.05 * (tk.GAMMA_INT * next_ext - float(v[0]))
    next_int = float(next_v[1])
    if settings.get("int_bootstrap") == "reset" and step.ended:
        next_int = float(critic_of(case)(step.reset_obs)[1])
    if settings.get("int_bootstrap") == "none" and step.terminated:
        next_int = 0.0
    bonus = 0.5 * bonus if case == "adopes-half" else bonus
    zeta = min(1.0, updates / UPDATES) if case in SCHEDULED else 1.0
    f2 = tk.adops_f2(
        step.reward,
        bonus,
        (float(v[0]), float(v[1])),
        (next_ext, next_int),
        float(v[2][step.action]) if len(v) == 3 else None,
        c_ext=settings.get("ext_coef", 1.0),
        c_int=settings.get("int_coef", 1.0),
        epsilon=settings.get("epsilon", 1e-7),
    )
    return bonus + zeta * f2


def run(env: Any, acts: Any, mode: AutoresetMode, seed: int | None = SEED) -> list[dict[str, Any]]:
    """Step a wrapped vector env; return per step reward, masks and the four info arrays."""
    env.reset(seed=seed)
    log = []
    for action in acts:
        _, reward, terminated, truncated, info = env.step(action)
        done = np.logical_or(terminated, truncated)
        log.append({"reward": reward, "done": done, "info": info})
        if mode is AutoresetMode.DISABLED and done.any():
            env.reset(options={"reset_mask": done})
    return log


def check_against_reference(
    case: str, log: list[dict[str, Any]], rows: list[list[tk.Step]]
) -> None:
    scale = {"none": 0.3, "adopes-half": 0.5}.get(case, 1.0)
    seen = 0
    for i, steps in enumerate(rows):
        expected = reference(case, steps)
        by_time = {step.time: step for step in steps}
        for time, entry in enumerate(log):
            info = entry["info"]
            assert bool(info["_intrinsic_reward"][i]) == (time in by_time)
            if time not in by_time:
                assert entry["reward"][i] == 0.0
                assert info["intrinsic_reward"][i] == info["shaping_correction"][i] == 0.0
                continue
            step, seen = by_time[time], seen + 1
            raw = float(tk.source(step.obs, step.action, step.next_obs))
            shaped = info["intrinsic_reward"][i]
            assert shaped == pytest.approx(expected[time], rel=1e-9, abs=1e-9)
            assert info["extrinsic_reward"][i] == step.reward
            assert info["raw_intrinsic_reward"][i] == pytest.approx(raw, rel=1e-12)
            assert info["shaping_correction"][i] == pytest.approx(shaped - scale * raw, abs=1e-9)
            assert entry["reward"][i] == pytest.approx(step.reward + shaped, rel=1e-12)
    assert seen > STEPS  # the comparison has really covered all rows


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("case", METHODS)
def test_wrapper_of_vector_env_equals_reference(case: str, kind: str, mode: AutoresetMode) -> None:
    if case == "adops-reset" and mode is not AutoresetMode.SAME_STEP:
        with pytest.raises(ValueError, match="SAME_STEP"):
            wrap(case, tk.make_vector("sync", mode))
        return
    env = wrap(case, tk.make_vector(kind, mode))
    log = run(env, actions(), mode)
    env.close()
    bare = tk.make_vector("sync", mode)
    check_against_reference(case, log, tk.record(bare, actions(), SEED, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", EVERY)
def test_vector_env_of_wrappers_equals_wrapper_of_vector_env(
    case: str, mode: AutoresetMode
) -> None:
    if case == "adops-reset":
        with pytest.raises(ValueError, match="one environment at a time"):
            wrap(case, tk.ScriptedEnv())
        return
    acts = actions()
    outside = run(wrap(case, tk.make_vector("sync", mode)), acts, mode)
    inside_env = SyncVectorEnv(
        [lambda: wrap(case, tk.ScriptedEnv(), handle=False)] * 3, autoreset_mode=mode
    )
    inside = run(inside_env, acts, mode)
    if DECLARED[EVERY[case][0]].schedule and mode is AutoresetMode.NEXT_STEP:
        # Inside, a sub-env's counter misses the dummy steps: only the sums R + F are the same.
        keys = ["extrinsic_reward", "raw_intrinsic_reward"]
    else:
        keys = ["extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward"]
    for a, b in zip(outside, inside, strict=True):
        np.testing.assert_array_equal(a["done"], b["done"])
        for key in keys:
            mask = a["info"][f"_{key}"]
            values = np.zeros(3)
            for place in (b["info"], b["info"].get("final_info", {})):
                if key in place:
                    values = np.where(place[f"_{key}"], place[key], values)
            np.testing.assert_allclose(a["info"][key][mask], values[mask], rtol=1e-9, atol=1e-9)
        if "intrinsic_reward" in keys:
            np.testing.assert_allclose(a["reward"], b["reward"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["discrete", "dict", "tuple"])
@pytest.mark.parametrize("case", ["adops", "adops-none", "grm", "pbrs"])
def test_observation_spaces(case: str, kind: str, mode: AutoresetMode) -> None:
    env = wrap(case, tk.make_vector("sync", mode, obs_kind=kind))
    log = run(env, actions(), mode)
    rows = tk.record(tk.make_vector("sync", mode, obs_kind=kind), actions(), SEED, mode)
    check_against_reference(case, log, rows)


@pytest.mark.parametrize("case", METHODS)
def test_source_in_the_sub_envs(case: str) -> None:
    """F that a sub-env's wrapper wrote stands in `final_info` at SAME_STEP ends."""
    mode = AutoresetMode.SAME_STEP
    sub_envs = [lambda: IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)] * 3
    name, settings = METHODS[case]
    env = make_shaping(
        name, SyncVectorEnv(sub_envs, autoreset_mode=mode), critic_of(case), **settings
    )
    rows = tk.record(tk.make_vector("sync", mode), actions(), SEED, mode)
    check_against_reference(case, run(env, actions(), mode), rows)


@pytest.mark.parametrize("case", ["adops", "adops-reset", "pies", "pbim", "grm", "none"])
def test_atari_vector_env(case: str) -> None:
    pytest.importorskip("ale_py")
    import gymnasium as gym

    def make() -> Any:
        return gym.make_vec(
            "ALE/MontezumaRevenge-v5",
            num_envs=2,
            autoreset_mode=AutoresetMode.SAME_STEP,
            max_num_frames_per_episode=60,
            reward_clipping=False,
            img_height=8,
            img_width=8,
        )

    mode, acts = AutoresetMode.SAME_STEP, actions(2, 64)
    log = run(wrap_pixels(case, make()), acts, mode)
    assert sum(entry["done"].sum() for entry in log) >= 4
    check_against_reference(case, log, pixel_rows(tk.record(make(), acts, SEED, mode)))


@pytest.mark.parametrize("case", ["adops", "adops-none", "pies", "pbim", "grm-2-norm", "none"])
def test_envpool(case: str) -> None:
    envpool = pytest.importorskip("envpool")

    def make() -> Any:
        return envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=3)

    mode = AutoresetMode.NEXT_STEP
    acts = np.minimum(actions(), 1)
    log = run(wrap(case, make()), acts, mode, seed=None)
    assert sum(entry["done"].sum() for entry in log) >= 3
    check_against_reference(case, log, tk.record(make(), acts, None, mode))


def to_unit(obs: Any) -> Any:
    return np.asarray(obs, dtype=np.float64).reshape(*np.shape(obs)[:-3], -1) / 1e4


def wrap_pixels(case: str, env: Any) -> Any:
    name, settings = METHODS[case]
    handle = CriticHandle(lambda obs: critic_of(case)(to_unit(obs)))
    env = IntrinsicRewardWrapper(env, lambda s, a, ns: tk.source(to_unit(s), a, to_unit(ns)))
    return make_shaping(name, env, handle, **settings)


def pixel_rows(rows: list[list[tk.Step]]) -> list[list[tk.Step]]:
    for steps in rows:
        for step in steps:
            step.obs, step.next_obs = to_unit(step.obs), to_unit(step.next_obs)
            if step.reset_obs is not None:
                step.reset_obs = to_unit(step.reset_obs)
    return rows
