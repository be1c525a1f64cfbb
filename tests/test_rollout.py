"""Whole rollouts at once: what the wrappers give step by step, on arrays and on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers import GRMWrapper, RolloutShaper

torch = pytest.importorskip("torch")

from tests.vector.tensor_world import no_look_at_values  # noqa: E402
from tests.vector.test_backends import (  # noqa: E402
    METHODS,
    TensorEnv,
    critic,
    critic_with_q,
    scripted,
    wrap,
)

STEPS, ROWS, LENGTH = 96, 3, 16
LONGER = ("values_ext", "values_int", "potentials")
"""Have a row for what follows the last step, too."""
SAME_STEP, NEXT_STEP = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP
CASES = [
    (case, mode)
    for case in METHODS
    for mode in (SAME_STEP, NEXT_STEP)
    if case != "adops-reset" or mode is SAME_STEP
]


def play(case: str, mode: AutoresetMode, tensors: bool) -> dict[str, Any]:
    """Step a wrapped env; return what a learner would keep of it, and F′ of the wrapper."""
    env = scripted(mode)
    env = wrap(case, TensorEnv(env, "cpu", "batch") if tensors else env, add_to_reward=False)
    rng, steps = np.random.default_rng(5), []
    obs, _ = env.reset(seed=3)
    fn = critic_with_q if case == "adops-q" else critic
    potential = METHODS[case][1].get("potential")
    t: Any = torch.zeros(ROWS) if tensors else np.zeros(ROWS)
    for _ in range(STEPS):
        action = rng.integers(0, 3, ROWS)
        values, time = fn(obs), t
        next_obs, reward, terminated, truncated, info = env.step(action)
        last = final_obs(info, next_obs) if mode is SAME_STEP else next_obs
        valid = np.asarray(info["_intrinsic_reward"])
        goes_on = valid if mode is NEXT_STEP else ~np.asarray(terminated | truncated)
        step = {
            "reward": reward,
            "intrinsic": info["raw_intrinsic_reward"],
            "terminated": terminated,
            "truncated": truncated,
            "values_ext": values[0],
            "values_int": values[1],
            "final_values_ext": fn(last)[0],
            "final_values_int": fn(last)[1],
            "shaped": info["intrinsic_reward"],
        }
        if len(values) == 3:
            step["advantages_ext"] = values[2][range(ROWS), action] - values[0]
        if potential is not None:
            step["potentials"] = potential(obs, time)
            step["final_potentials"] = potential(last, time + 1)
        t = (t + 1) * torch.as_tensor(goes_on) if tensors else (t + 1) * goes_on
        obs = next_obs
        steps.append(step)
    stack = torch.stack if tensors else np.stack
    kept = {name: stack([step[name] for step in steps]) for name in steps[0]}
    for name, last in (("values_ext", fn(obs)[0]), ("values_int", fn(obs)[1])):
        kept[name] = stack([*kept[name], last])
    if potential is not None:
        kept["potentials"] = stack([*kept["potentials"], potential(obs, t)])
    return kept


def final_obs(info: dict[str, Any], obs: Any) -> Any:
    if "final_obs" not in info:
        return obs
    last, reported = info["final_obs"], np.asarray(info["_final_obs"])
    rows = [last[i] if reported[i] else obs[i] for i in range(ROWS)]
    return torch.stack(rows) if isinstance(obs, torch.Tensor) else np.stack(rows)


def in_rollouts(shape: RolloutShaper, kept: dict[str, Any]) -> list[Any]:
    """Shape a recording rollout by rollout."""
    found = []
    for start in range(0, STEPS, LENGTH):
        part = {k: v[start : start + LENGTH + (k in LONGER)] for k, v in kept.items()}
        del part["shaped"]
        found.append(shape(**part))
    return found


def shaper_of(case: str, mode: AutoresetMode) -> RolloutShaper:
    name, settings = METHODS[case]
    own = {k: v for k, v in settings.items() if k not in ("add_to_reward", "potential")}
    return RolloutShaper(name, ROWS, autoreset_mode=mode, **own)


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize(("case", "mode"), CASES)
def test_rollouts_are_shaped_as_steps_are(case: str, mode: AutoresetMode, tensors: bool) -> None:
    kept = play(case, mode, tensors)
    found = in_rollouts(shaper_of(case, mode), kept)
    np.testing.assert_array_equal(np.concatenate([np.asarray(f) for f in found]), kept["shaped"])
    assert isinstance(found[0], torch.Tensor) == tensors


def test_float32_differs_by_its_own_rounding_alone() -> None:
    kept = play("adops", SAME_STEP, True)
    small = {k: v.float() if v.is_floating_point() else v for k, v in kept.items()}
    found = in_rollouts(shaper_of("adops", SAME_STEP), small)
    assert found[0].dtype == torch.float32
    np.testing.assert_allclose(torch.cat(found), kept["shaped"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", ["pbim-norm", "grm-2-norm", "adopes", "guarded"])
def test_state_goes_on_in_another_shaper(case: str) -> None:
    kept = play(case, NEXT_STEP, True)
    shapers = shaper_of(case, NEXT_STEP), shaper_of(case, NEXT_STEP)
    half = STEPS // 2
    first, second = ({k: v[a:b] for k, v in kept.items()} for a, b in ((0, half + 1), (half, None)))
    cut = {k: v if k in LONGER else v[:half] for k, v in first.items() if k != "shaped"}
    shapers[0](**cut)
    shapers[1].load_state_dict(shapers[0].state_dict())
    found = shapers[1](**{k: v for k, v in second.items() if k != "shaped"})
    np.testing.assert_array_equal(found, kept["shaped"][half:])


def test_without_final_values_ends_are_valued_as_rsl_rl_does() -> None:
    no, yes = torch.zeros((1, 2), dtype=torch.bool), torch.tensor([[True, False]])
    shape = RolloutShaper("adops", 2, gamma_ext=0.5, gamma_int=0.5)
    values = torch.tensor([[4.0, 4.0], [100.0, 100.0]])
    zero = torch.zeros((1, 2))
    found = shape(zero, zero, terminated=yes, truncated=~yes, values_ext=values, values_int=values)
    # δ_E = 0 − 4 and 0.5·4 − 4, δ_I the same by "final": both bad, and the total is below −ε.
    assert found.tolist() == [[0.0, 0.0]]
    lifted = shape(
        zero + 9.0, zero, terminated=no, truncated=no | True, values_ext=values, values_int=values
    )
    # δ_E = 9 + 2 − 4 = 7, δ_I = −2: a total of 5 is no conflict.
    assert lifted.tolist() == [[0.0, 0.0]]


def test_a_reset_by_the_user_drops_debts() -> None:
    shape, no = RolloutShaper("grm", 2, gamma=0.5), np.zeros((1, 2), dtype=bool)
    one = np.ones((1, 2))
    shape(one, one, terminated=no, truncated=no)
    shape.reset(np.array([True, False]))
    assert shape(one, one, terminated=no, truncated=no).tolist() == [[1.0, -1.0]]


def test_the_wrapper_of_the_same_name_takes_the_same_settings() -> None:
    import gymnasium as gym

    env = GRMWrapper(gym.make_vec("CliffWalking-v1", num_envs=2), delay=3, gamma=0.5)
    assert RolloutShaper("grm", 2, delay=3, gamma=0.5).shaper.settings == env.shaper.settings


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"reward": np.zeros((4, 2))},
        r"must have shape \(T, 3\), one row for each step; got",
    ),
    ({"values_ext": None}, r"ADOPS needs values_ext, of shape \(T \+ 1, n\)"),
    ({"values_int": np.zeros((4, 3))}, r"values_int must have shape \(5, 3\), got \(4, 3\)"),
    ({"terminated": np.zeros(3, bool)}, r"terminated must have shape \(4, 3\), got \(3,\)"),
    ({"intrinsic": np.full((4, 3), np.nan)}, r"ADOPS .* emitted an F' that is not finite"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_wrong_arrays(wrong: dict[str, Any], message: str) -> None:
    never, zeros, values = np.zeros((4, 3), bool), np.zeros((4, 3)), np.zeros((5, 3))
    right = {"reward": zeros, "intrinsic": zeros, "terminated": never, "truncated": never}
    right |= {"values_ext": values, "values_int": values}
    with pytest.raises(ValueError, match=message):
        RolloutShaper("adops", 3)(**{**right, **wrong})


def test_state_of_another_method_is_refused() -> None:
    state = RolloutShaper("pies", 2).state_dict()
    with pytest.raises(ValueError, match="state of 'pies' into a RolloutShaper of 'grm'"):
        RolloutShaper("grm", 2).load_state_dict(state)


def test_reset_bootstraps_need_the_next_episode() -> None:
    with pytest.raises(ValueError, match="which NEXT_STEP does not give"):
        RolloutShaper("adops", 2, int_bootstrap="reset", autoreset_mode="NextStep")


def test_a_rollout_waits_for_the_device_once() -> None:
    shape, no = RolloutShaper("pbim", 2), torch.zeros((8, 2), dtype=torch.bool)
    with pytest.raises(pytest.fail.Exception, match="__bool__"), no_look_at_values():
        shape(torch.ones((8, 2)), torch.ones((8, 2)), terminated=no, truncated=no)
