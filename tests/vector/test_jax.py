"""Vector envs in JAX: stacks compute there, in float64 or, by JAX's default, in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from adops_wrappers import CriticHandle, IntrinsicRewardWrapper, make_shaping  # noqa: E402
from adops_wrappers.methods import METHODS  # noqa: E402
from tests import toolkit as tk  # noqa: E402

ROWS, STEPS = 3, 40
SETTINGS: dict[str, dict[str, Any]] = {
    "pbrs": {"potential": lambda obs, t: obs[:, 1] + 0.25 * t, "gamma": 0.75},
    "pies": {"decay_updates": 10, "update_every": 4},
    "adopes": {"ramp_updates": 10, "update_every": 4},
    "adopes-half": {"ramp_updates": 10, "update_every": 4},
}


class InJax(VectorWrapper):
    """Takes and returns arrays of JAX."""

    def reset(self, **settings: Any) -> Any:
        return jnp.asarray(self.env.reset(**settings)[0]), {}

    def step(self, actions: Any) -> Any:
        *rest, below = self.env.step(np.asarray(actions))
        info: dict[str, Any] = {}
        if "final_obs" in below:
            final = rest[0].copy()
            for row, last in enumerate(below["final_obs"]):
                final[row] = rest[0][row] if last is None else last
            info = {"final_obs": jnp.asarray(final), "_final_obs": jnp.asarray(below["_final_obs"])}
        return *map(jnp.asarray, rest), info


def critic(obs: Any) -> tuple[Any, Any]:
    return 3.0 * obs[:, 0] - obs[:, 1], 0.5 * obs[:, 2] * obs[:, 0] + 1.0


def source(obs: Any, action: Any, next_obs: Any) -> Any:
    return next_obs[:, 0] * next_obs[:, 1] - 0.5 * obs[:, 2]


def stack(method: str, env: Any, **settings: Any) -> Any:
    env = IntrinsicRewardWrapper(env, source, normalizer="rms")
    given = {"critic": CriticHandle(critic), **SETTINGS.get(method, {}), **settings}
    return make_shaping(method, env, **given)


def play(env: Any, mode: AutoresetMode, steps: int = STEPS, seed: int | None = 0) -> np.ndarray:
    if seed is not None:
        env.reset(seed=seed)
    rng, found = np.random.default_rng(1), []
    for _ in range(steps):
        _, reward, over, cut, info = env.step(rng.integers(0, 3, ROWS))
        if isinstance(env.env.env, InJax):
            assert isinstance(reward, jax.Array)
            assert isinstance(info["intrinsic_reward"], jax.Array)
            assert isinstance(info["_intrinsic_reward"], jax.Array)
        found.append([np.asarray(reward), np.asarray(info["intrinsic_reward"])])
        ended = np.asarray(over) | np.asarray(cut)
        if mode is AutoresetMode.DISABLED and ended.any():
            env.reset(options={"reset_mask": ended})
    return np.array(found)


def scripted(mode: AutoresetMode) -> VectorEnv:
    return tk.make_vector("sync", mode, ROWS)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("x64", [True, False])
def test_jax_gives_what_numpy_gives(method: str, mode: AutoresetMode, x64: bool) -> None:
    with jax.enable_x64(x64):
        tensors, arrays = (stack(method, e) for e in (InJax(scripted(mode)), scripted(mode)))
        tolerance = 1e-12 if x64 else 2e-5
        np.testing.assert_allclose(play(tensors, mode), play(arrays, mode), atol=tolerance)
        for env in (tensors, arrays):
            env.load_state_dict(env.state_dict())
        found, expected = (play(env, mode, 5, seed=None) for env in (tensors, arrays))
        np.testing.assert_allclose(found, expected, atol=tolerance)
        assert found.dtype == (np.float64 if x64 else np.float32)


def test_switching_x64_on_later_counts() -> None:
    """A process may run one stack in float32 and the next in float64."""
    mode = AutoresetMode.NEXT_STEP
    for x64 in (False, True):
        with jax.enable_x64(x64):
            found = play(stack("adops", InJax(scripted(mode))), mode, 12)
            error = np.abs(found - play(stack("adops", scripted(mode)), mode, 12)).max()
    assert error < 1e-12


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_comes_back_as_it_came(dtype: str) -> None:
    class Half(InJax):
        def step(self, actions: Any) -> Any:
            obs, reward, *rest = super().step(actions)
            return obs, reward.astype(dtype), *rest

    mode = AutoresetMode.SAME_STEP
    half = stack("adops", Half(scripted(mode)), gamma=0.9)
    half.reset(seed=0)
    for _ in range(5):
        _, reward, _, _, info = half.step(np.zeros(ROWS, dtype=np.int64))
        assert reward.dtype == info["intrinsic_reward"].dtype == jnp.dtype(dtype)
        total = (info["extrinsic_reward"] + info["intrinsic_reward"]).astype(np.float32)
        np.testing.assert_allclose(np.asarray(reward, np.float32), total, rtol=0.03, atol=0.03)


def test_a_critic_in_torch_above_an_env_in_jax_is_an_error_that_names_both() -> None:
    torch = pytest.importorskip("torch")

    def in_torch(obs: Any) -> Any:
        return torch.zeros(ROWS), torch.zeros(ROWS)

    env = make_shaping("adops", InJax(scripted(AutoresetMode.NEXT_STEP)), in_torch, bonus=source)
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"value_ext .* it is torch on cpu and .* are JAX on cpu:0"):
        env.step(np.zeros(ROWS, dtype=np.int64))


def test_a_critic_in_jax_above_an_env_in_torch_is_an_error_that_names_both() -> None:
    torch = pytest.importorskip("torch")
    from tests.vector.tensor_world import TensorWorld

    def in_jax(obs: Any) -> Any:
        return jnp.zeros(8), jnp.zeros(8)

    env = make_shaping("adops", TensorWorld(), in_jax, bonus=lambda s, a, after: after[:, 0])
    env.reset()
    with pytest.raises(TypeError, match=r"value_ext .* it is JAX on cpu:0 .* are torch on cpu"):
        env.step(torch.zeros(8, dtype=torch.long))


def test_gymnasiums_converters_of_jax() -> None:
    """Above and below: an env in JAX for an agent in torch, and for one in NumPy."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    from gymnasium.wrappers.vector import JaxToNumpy, JaxToTorch

    mode = AutoresetMode.SAME_STEP
    expected = play(stack("adops", scripted(mode)), mode, 12)
    for make in (
        lambda env: stack("adops", JaxToTorch(env)),
        lambda env: JaxToTorch(stack("adops", env)),
        lambda env: stack("adops", JaxToNumpy(env)),
    ):
        env: Any = make(InJax(scripted(mode)))
        env.reset(seed=0)
        rng, found = np.random.default_rng(1), []
        for _ in range(12):
            actions: Any = torch.tensor(rng.integers(0, 3, ROWS))
            if "JaxToNumpy" in str(env):
                actions = actions.numpy()
            _, reward, _, _, info = env.step(actions)
            assert type(reward) is type(actions)
            found.append([np.asarray(reward), np.asarray(info["intrinsic_reward"])])
        np.testing.assert_allclose(np.array(found), expected, atol=2e-5)
