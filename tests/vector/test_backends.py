"""Every method on tensors against NumPy, in all autoreset modes; nothing goes through the host."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

torch = pytest.importorskip("torch")

from adops_wrappers import CriticHandle, IntrinsicRewardWrapper, make_shaping  # noqa: E402
from adops_wrappers.arrays import to_host  # noqa: E402
from adops_wrappers.methods import METHODS as DECLARED  # noqa: E402
from tests import toolkit as tk  # noqa: E402
from tests.declared import Cases, with_declared  # noqa: E402
from tests.vector.tensor_world import TensorWorld, no_look_at_values  # noqa: E402
from tests.vector.test_tensors import TensorEnv  # noqa: E402

MODES = list(AutoresetMode)
STEPS = 150
RAMP: dict[str, Any] = {"ramp_updates": 10, "update_every": 4}
EPISODES: dict[str, Any] = {"ramp_updates": 10, "update_every": "episode"}
DISCOUNTS: dict[str, Any] = {"gamma_ext": 0.9, "gamma_int": 0.75, "add_to_reward": True}
LISTED: Cases = {
    "none": ("none", {"intrinsic_scale": 0.25}),
    "adops": ("adops", DISCOUNTS),
    "adops-weighted": ("adops", {**DISCOUNTS, "ext_coef": 2.0, "int_coef": 0.5, "epsilon": 0.01}),
    "adops-one-critic": ("adops", {"gamma": 0.9}),
    "adops-reset": ("adops", {**DISCOUNTS, "int_bootstrap": "reset"}),
    "adops-q": ("adops", DISCOUNTS),
    "adops-gated": ("adops-gated", {**DISCOUNTS, "gate": 0.5}),
    "adopes": ("adopes", {**DISCOUNTS, **RAMP}),
    "adopes-half": ("adopes-half", {**DISCOUNTS, **EPISODES}),
    "pies": ("pies", {"decay_updates": 10, "update_every": 4}),
    "pbim": ("pbim", {"gamma": 0.75}),
    "pbim-norm": ("pbim-norm", {"gamma": 0.75, "alpha": 0.25}),
    "grm": ("grm", {"gamma": 0.75}),
    "grm-none": ("grm", {"gamma": 0.75, "delay": 0}),
    "grm-2-norm": ("grm-norm", {"gamma": 0.75, "delay": 2, "alpha": 0.25}),
    "grm-inf": ("grm", {"gamma": 0.75, "delay": math.inf}),
    "grm-long": ("grm", {"gamma": 0.99, "delay": 200}),
    "guarded": ("guarded", {"update_every": 16}),
    "bampf": ("bampf", {"gamma": 0.75}),
    "bampf-episodic": ("bampf", {"gamma": 0.75, "episodic": True, "initial": 0.5}),
    "bsrs": ("bsrs", {**DISCOUNTS, "eta": 0.125}),
    "pbrs": ("pbrs", {"gamma": 0.75, "potential": lambda obs, t: obs[:, 1] + 0.25 * t}),
}
METHODS = {
    case: (name, settings)
    for case, (name, settings) in with_declared(LISTED, {**DISCOUNTS, "gamma": 0.75}).items()
    if not DECLARED[name].shaper.numpy_only
}
SUMMED_IN_ANOTHER_ORDER = {"adops-gated", "grm-long"}
"""Their means and long sums may differ in the last bits."""
KEYS = ("extrinsic_reward", "raw_intrinsic_reward", "intrinsic_reward", "shaping_correction")


def critic(obs: Any) -> tuple[Any, Any]:
    """Multiples and sums alone, which all libraries round alike."""
    return 3.0 * obs[:, 0] - obs[:, 1], 0.5 * obs[:, 2] * obs[:, 0] + 1.0


def critic_with_q(obs: Any) -> tuple[Any, Any, Any]:
    return *critic(obs), 2.0 * obs


def source(obs: Any, action: Any, next_obs: Any) -> Any:
    return next_obs[:, 0] * next_obs[:, 1] - 0.5 * obs[:, 2]


def scripted(mode: AutoresetMode, longest: int = 9) -> VectorEnv[Any, Any, Any]:
    return SyncVectorEnv([lambda: tk.ScriptedEnv(longest=longest)] * 3, autoreset_mode=mode)


def wrap(case: str, env: Any, **settings: Any) -> Any:
    name, own = METHODS[case]
    fn = critic_with_q if case == "adops-q" else critic
    env = IntrinsicRewardWrapper(env, source)
    return make_shaping(name, env, CriticHandle(fn), **{**own, **settings})


def run(env: Any, mode: AutoresetMode, steps: int = STEPS, seed: int | None = 3) -> list[Any]:
    """Return the rewards, the numbers of `info` and the masks of random actions."""
    if seed is not None:
        env.reset(seed=seed)
    rng, log = np.random.default_rng(5), []
    for _ in range(steps):
        _, reward, terminated, truncated, info = env.step(rng.integers(0, 3, 3))
        final = {key: info[key] for key in info if key.startswith(("final_value", "_final_value"))}
        masks = {f"_{key}": info[f"_{key}"] for key in KEYS}
        log.append({"reward": reward, **{key: info[key] for key in KEYS}, **masks, **final})
        ended = terminated | truncated
        if mode is AutoresetMode.DISABLED and ended.any():
            env.reset(options={"reset_mask": to_host(ended)})
    return log


def assert_equal(case: str, tensors: list[Any], arrays: list[Any], device: str) -> None:
    tolerance = 1e-12 if case in SUMMED_IN_ANOTHER_ORDER else 0.0
    for ours, expected in zip(tensors, arrays, strict=True):
        for key, values in expected.items():
            found = ours[key]
            assert isinstance(found, torch.Tensor)
            assert found.device.type == device
            assert found.dtype == (torch.bool if key[0] == "_" else torch.float64)
            np.testing.assert_allclose(
                found.cpu().numpy(), values, rtol=tolerance, atol=tolerance, err_msg=key
            )
        # A device is not asked whether a row ended: zeros and an empty mask where none did.
        for key in ours.keys() - expected.keys():
            assert not ours[key].any()


def assert_same_as_numpy(case: str, mode: AutoresetMode, device: str, final_obs: str) -> None:
    tensors = wrap(case, TensorEnv(scripted(mode), device, final_obs))
    arrays = wrap(case, scripted(mode))
    assert_equal(case, run(tensors, mode), run(arrays, mode), device)
    # State is saved in NumPy, wherever it was, and goes on in either.
    state = tensors.state_dict()
    assert not isinstance(state["shaper"].get("debt"), torch.Tensor)
    again = wrap(case, TensorEnv(scripted(mode), device, final_obs)), wrap(case, scripted(mode))
    for env, last_obs in zip(again, (state["last_obs"], to_host(state["last_obs"])), strict=True):
        env.reset(seed=4)
        env.load_state_dict({**state, "last_obs": last_obs})
    assert_equal(case, *(run(env, mode, 20, seed=None) for env in again), device)


CASES = [
    (case, mode)
    for case in METHODS
    for mode in MODES
    if case != "adops-reset" or mode is AutoresetMode.SAME_STEP
]


@pytest.mark.parametrize(("case", "mode"), CASES)
def test_tensors_are_shaped_as_arrays_are(case: str, mode: AutoresetMode) -> None:
    assert_same_as_numpy(case, mode, "cpu", "batch")


WAITS = {"adopes-half", "grm-long"}
"""They count episodes, and grow a long ring: one number a step is waited for."""


@pytest.mark.parametrize("final_obs", [True, False])
@pytest.mark.parametrize("case", [case for case in METHODS if case not in WAITS])
def test_nobody_looks_at_the_values_of_tensors(case: str, final_obs: bool) -> None:
    env = wrap(case, TensorWorld(final_obs=final_obs))
    actions = torch.zeros(8, dtype=torch.int64)
    with no_look_at_values():
        env.reset(seed=0)
        for _ in range(15 if case == "guarded" else 60):  # its updates look
            obs, reward, _, _, info = env.step(actions)
    assert obs.dtype == reward.dtype == info["intrinsic_reward"].dtype == torch.float32
    expected = pytest.warns(RuntimeWarning, match="as rsl_rl") if not final_obs else nullcontext()
    with expected:
        env.core.checks.report()
