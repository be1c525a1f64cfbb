"""Gymnasium's own converters below and above the wrappers, wherever they run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from gymnasium.wrappers.vector import ArrayConversion, NumpyToTorch  # noqa: E402

from adops_wrappers import ADOPSWrapper, CriticHandle, IntrinsicRewardWrapper  # noqa: E402
from tests import toolkit as tk  # noqa: E402
from tests.vector.test_conventions import critic, source  # noqa: E402

ROWS, STEPS = 3, 40


class WholeBatch(VectorWrapper):
    """Tells last observations as one batch: the converters cannot read an object array."""

    def step(self, actions: Any) -> Any:
        obs, *rest, info = self.env.step(actions)
        if "final_obs" in info:
            final = obs.copy()
            for row, last in enumerate(info["final_obs"]):
                final[row] = obs[row] if last is None else last
            info = {"final_obs": final, "_final_obs": info["_final_obs"]}
        return obs, *rest, info


def scripted(mode: AutoresetMode) -> VectorEnv:
    env = SyncVectorEnv([lambda: tk.ScriptedEnv(longest=5)] * ROWS, autoreset_mode=mode)
    return WholeBatch(env)


def stack(env: Any) -> Any:
    env = IntrinsicRewardWrapper(env, source, normalizer="rms")
    return ADOPSWrapper(env, CriticHandle(critic), gamma=0.9)


def play(env: Any, mode: AutoresetMode, convert: Any = np.asarray, steps: int = STEPS) -> Any:
    """Return rewards and F' of random actions; `convert` makes what the agent works with."""
    env.reset(seed=0)
    rng, found = np.random.default_rng(0), []
    for _ in range(steps):
        answer = env.step(convert(rng.integers(0, 3, ROWS)))
        assert {type(part) for part in answer[:4]} == {type(convert(np.zeros(1)))}
        assert type(answer[4]["intrinsic_reward"]) is type(answer[1])
        found.append([np.asarray(part) for part in (answer[1], answer[4]["intrinsic_reward"])])
        ended = np.asarray(answer[2]) | np.asarray(answer[3])
        if mode is AutoresetMode.DISABLED and ended.any():
            env.reset(options={"reset_mask": convert(ended)})
    return np.array(found)


TORCH: dict[str, Any] = {
    "NumpyToTorch below": lambda env: stack(NumpyToTorch(env)),
    "NumpyToTorch above": lambda env: NumpyToTorch(stack(env)),
    "ArrayConversion below": lambda env: stack(ArrayConversion(env, np, torch)),
    "ArrayConversion above": lambda env: ArrayConversion(stack(env), np, torch),
}


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("name", TORCH)
def test_converters_to_torch_change_no_value(name: str, mode: AutoresetMode) -> None:
    found = play(TORCH[name](scripted(mode)), mode, torch.as_tensor)
    np.testing.assert_array_equal(found, play(stack(scripted(mode)), mode))


@pytest.mark.parametrize("mode", AutoresetMode)
def test_there_and_back_again(mode: AutoresetMode) -> None:
    """Tensors below the wrappers, arrays above: the stack computes in torch between the two."""
    env = ArrayConversion(stack(NumpyToTorch(scripted(mode))), torch, np)
    np.testing.assert_array_equal(play(env, mode), play(stack(scripted(mode)), mode))


def test_the_converters_cannot_read_object_arrays_themselves() -> None:
    """Why the guide advises NEXT_STEP for envs that report last observations so."""
    env = SyncVectorEnv(
        [lambda: tk.ScriptedEnv(longest=2)] * ROWS, autoreset_mode=AutoresetMode.SAME_STEP
    )
    plain, still = NumpyToTorch(env), torch.zeros(ROWS, dtype=torch.int64)
    plain.reset(seed=0)
    with pytest.raises(BufferError):
        [plain.step(still) for _ in range(3)]
