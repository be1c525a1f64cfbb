"""PBIM's debt: what the rows say is what the equation makes of the bonuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from research import pbim_debt
from research.rows import read_rows

SETTINGS = pbim_debt.Settings(
    env_id="adops/KeyDoorTV-v0", limits=(9,), random_steps=20, num_envs=3, warm_up=1
)


@pytest.mark.parametrize("policy", ["still", "random"])
def test_the_last_reward_pays_back_what_the_episode_got(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    wrap_stack, bonuses = pbim_debt.wrap_stack, []

    def spied(*stack: Any) -> Any:
        envs = wrap_stack(*stack)
        step = envs.step

        def noted(actions: Any) -> Any:
            answer = step(actions)
            bonuses.append(answer[4]["raw_intrinsic_reward"].copy())
            return answer

        envs.step = noted
        return envs

    monkeypatch.setattr(pbim_debt, "wrap_stack", spied)
    rows = list(pbim_debt.play(SETTINGS, "pbim", policy, 9, 18))
    assert len(rows) == 2 * 3
    raw = np.array(bonuses).reshape(2, 9, 3)
    # F'_{N-1} = F_{N-1} - sum of gamma^t F_t / gamma^{N-1}
    paid = -(0.99 ** np.arange(-8.0, 0.0)[:, None] * raw[:, :-1]).sum(1).ravel()
    assert [float(row["last_reward"]) for row in rows] == pytest.approx(paid, rel=1e-3)
    assert [float(row["raw_mean"]) for row in rows] == pytest.approx(raw.mean(1).ravel(), rel=1e-3)
    assert {(row["method"], row["policy"], row["episode_length"]) for row in rows} == {
        ("pbim", policy, "9")
    }


def test_all_policies_and_both_methods_are_played(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "new" / "debt.csv"
    monkeypatch.setattr(SETTINGS, "csv", str(table))
    pbim_debt.main(SETTINGS)
    rows = read_rows(table)
    played = {(row["method"], row["policy"]) for row in rows}
    assert played == {(m, p) for m in ("pbim", "pbim-norm") for p in ("still", "random")}
    assert list(rows[0]) == ["method", "policy", "episode_length", "last_reward", "raw_mean"]
