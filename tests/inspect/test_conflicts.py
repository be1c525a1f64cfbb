from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers.inspect import Recording, ShapingRecorder, conflicts
from tests import toolkit as tk
from tests.inspect.stacks import CLAMP, run, stack


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    mode = AutoresetMode.NEXT_STEP
    env = ShapingRecorder(stack("adops-weighted", tk.make_vector("sync", mode)), tmp_path / "a.npz")
    run(env, mode, steps=200)
    return env.finish()


def test_conflicts_are_the_steps_where_raw_f_turns_the_sign(recording: Recording) -> None:
    found = {(c.time, c.row): c for c in conflicts(recording)}
    for t, i in np.ndindex(recording.reward.shape):
        a_ext, total = recording.advantage_ext[t, i], recording.total_raw[t, i]
        bad = a_ext < -CLAMP["tie_tolerance"]
        turned = bool(recording.valid[t, i]) and (total >= 0 if bad else total < 0)
        assert ((t, i) in found) == turned
        if turned:
            c = found[t, i]
            assert c.kind == ("tempts" if bad else "deters")
            distance = total + CLAMP["epsilon"] if bad else -total
            assert c.severity == pytest.approx(distance, rel=1e-12)
            assert (c.advantage_ext, c.total_raw) == (a_ext, total)
            assert c.total_shaped == pytest.approx(-CLAMP["epsilon"] if bad else 0.0, abs=1e-12)
            assert (c.reward, c.shaped) == (recording.reward[t, i], recording.shaped[t, i])
            assert (c.episode, c.step) == (recording.episode[t, i], recording.episode_step[t, i])
    assert {c.kind for c in found.values()} == {"tempts", "deters"}


def test_worst_first(recording: Recording) -> None:
    ranked = conflicts(recording)
    severities = [c.severity for c in ranked]
    assert severities == sorted(severities, reverse=True)
    assert conflicts(recording, top=5) == ranked[:5]
    assert conflicts(recording, top=0) == []
    with pytest.raises(ValueError, match="top"):
        conflicts(recording, top=-1)


def test_a_recording_without_values_says_how_to_get_them(tmp_path: Path) -> None:
    env = ShapingRecorder(stack("grm", tk.ScriptedEnv(), None), tmp_path / "a.npz")
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ValueError, match="Record with ShapingRecorder"):
        conflicts(env.finish())
