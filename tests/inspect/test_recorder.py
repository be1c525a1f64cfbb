from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import textwrap
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import Autoreset, TimeLimit

from adops_wrappers import (
    ADOPSWrapper,
    CriticHandle,
    GRMWrapper,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PBIMWrapper,
    make_shaping,
)
from adops_wrappers.inspect import Recording, ShapingRecorder, storage
from adops_wrappers.inspect.recorder import as_image, downscale
from tests import toolkit as tk
from tests.inspect.stacks import CLAMP, GAMMAS, METHODS, MODES, run, stack


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", METHODS)
def test_the_recorder_changes_nothing_and_writes_what_info_says(
    case: str, mode: AutoresetMode, tmp_path: Path
) -> None:
    expected = run(stack(case, tk.make_vector("sync", mode)), mode)
    env = ShapingRecorder(stack(case, tk.make_vector("sync", mode)), tmp_path / "a.npz")
    seen = run(env, mode)
    for key in expected:
        np.testing.assert_array_equal(seen[key], expected[key])
    recording = env.finish()
    np.testing.assert_array_equal(recording.shaped, seen["shaped"])
    np.testing.assert_array_equal(recording.intrinsic, seen["raw"])
    np.testing.assert_array_equal(recording.valid, seen["valid"])
    np.testing.assert_array_equal(recording.ended, seen["done"] & seen["valid"])
    scale = {"none": 0.3, "adopes-half": 0.5}.get(case, 1.0)
    assert recording.scale == scale
    np.testing.assert_array_equal(
        recording.correction, np.where(seen["valid"], seen["shaped"] - scale * seen["raw"], 0.0)
    )
    env.close()


def true_steps(mode: AutoresetMode) -> list[list[tk.Step]]:
    acts = np.random.default_rng(5).integers(0, 3, (60, 3))
    return tk.record(tk.make_vector("sync", mode), acts, 11, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ["none", "adops", "grm", "pies"])
def test_values_deltas_and_f2_equal_a_slow_reference(
    case: str, mode: AutoresetMode, tmp_path: Path
) -> None:
    env = stack(case, tk.make_vector("sync", mode))
    env = ShapingRecorder(env, tmp_path / "a.npz", tk.critic, **GAMMAS)
    run(env, mode, interrupt=False)
    recording = env.finish()
    seen = 0
    for i, steps in enumerate(true_steps(mode)):
        for s in steps:
            place = (s.time, i)
            v, after = tk.critic(s.obs), tk.critic(s.next_obs)
            next_ext = 0.0 if s.terminated else float(after[0])
            bonus = recording.scale * float(tk.source(s.obs, s.action, s.next_obs))
            delta_ext = s.reward + tk.GAMMA_EXT * next_ext - v[0]
            delta_int = bonus + tk.GAMMA_INT * after[1] - v[1]
            f2 = tk.adops_f2(
                s.reward, bonus, (v[0], v[1]), (next_ext, after[1]), None,
                c_ext=1.0, c_int=1.0, epsilon=1e-7,
            )  # fmt: skip
            assert recording.valid[place]
            assert recording.reward[place] == s.reward
            assert recording.value_ext[place] == v[0]
            assert recording.value_int[place] == v[1]
            assert recording.next_value_int[place] == after[1]
            assert recording.delta_ext[place] == pytest.approx(delta_ext, abs=1e-12)
            assert recording.delta_int[place] == pytest.approx(delta_int, abs=1e-12)
            assert recording.f2[place] == pytest.approx(f2, abs=1e-12)
            assert recording.total_raw[place] == pytest.approx(delta_ext + delta_int, abs=1e-12)
            assert recording.action is not None
            assert recording.action[place] == s.action
            assert recording.episode_step[place] == s.t
            assert recording.terminated[place] == s.terminated
            assert recording.truncated[place] == s.truncated
            seen += 1
    assert seen == recording.valid.sum() > 60
    np.testing.assert_array_equal(recording.f2[~recording.valid], 0.0)
    if case == "adops":
        # F₂ is recomputed from the columns, the correction is F′ − F: equal up to one rounding.
        np.testing.assert_allclose(recording.f2, recording.correction, rtol=0, atol=1e-15 * 8)


def test_q_values_are_the_recorded_advantage(tmp_path: Path) -> None:
    mode = AutoresetMode.NEXT_STEP
    env = stack("adops", tk.make_vector("sync", mode), tk.critic_with_q)
    env = ShapingRecorder(env, tmp_path / "a.npz", tk.critic_with_q)
    run(env, mode)
    recording = env.finish()
    assert not np.array_equal(recording.advantage_ext, recording.delta_ext)
    shaped = recording.total()[recording.valid]
    bad = recording.advantage_ext[recording.valid] < 0
    assert (shaped[bad] <= -1e-7 + 1e-14).all()
    assert (shaped[~bad] >= -1e-14).all()


@pytest.mark.parametrize("case", ["adops", "grm", "none"])
def test_single_env_is_the_vector_env_of_one(case: str, tmp_path: Path) -> None:
    env = ShapingRecorder(stack(case, tk.ScriptedEnv()), tmp_path / "a.npz", tk.critic)
    twin = stack(case, tk.make_vector("sync", AutoresetMode.DISABLED, num_envs=1))
    twin = ShapingRecorder(twin, tmp_path / "b.npz", tk.critic)
    env.reset(seed=4)
    twin.reset(seed=4)
    for action in np.random.default_rng(0).integers(0, 3, 40):
        _, _, terminated, truncated, _ = env.step(int(action))
        twin.step(np.array([action]))
        if terminated or truncated:
            env.reset()
            twin.reset(options={"reset_mask": np.array([True])})
    a, b = env.finish().table(), twin.finish().table()
    assert a.keys() == b.keys()
    assert len(a["time"]) == 40
    for key in a:
        np.testing.assert_array_equal(a[key], b[key])


def test_a_stack_without_shaping_is_left_untouched_and_recorded(tmp_path: Path) -> None:
    mode = AutoresetMode.SAME_STEP

    def sub_env() -> Any:
        env = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
        return ADOPSWrapper(env, tk.critic, **GAMMAS)

    for make in (
        lambda: tk.make_vector("sync", mode),
        lambda: IntrinsicRewardWrapper(tk.make_vector("sync", mode), tk.source),
        lambda: SyncVectorEnv([sub_env] * 3, autoreset_mode=mode),
    ):
        bare, env = make(), ShapingRecorder(make(), tmp_path / "a.npz", tk.critic, **GAMMAS)
        bare.reset(seed=1)
        env.reset(seed=1)
        for action in np.random.default_rng(0).integers(0, 3, (30, 3)):
            want, got = bare.step(action), env.step(action)
            for a, b in zip(want[:4], got[:4], strict=True):
                np.testing.assert_array_equal(a, b)
            assert want[4].keys() == got[4].keys()
        recording = env.finish()
    # F′ of wrappers inside the sub-envs is found, and is what a wrapper outside would have made.
    outside = ShapingRecorder(stack("adops", tk.make_vector("sync", mode)), tmp_path / "b.npz")
    outside.reset(seed=1)
    for action in np.random.default_rng(0).integers(0, 3, (30, 3)):
        outside.step(action)
    expected = outside.finish()
    np.testing.assert_allclose(recording.shaped, expected.shaped, rtol=0, atol=1e-12)
    np.testing.assert_allclose(recording.correction, expected.correction, rtol=0, atol=1e-12)


def test_single_stack_without_shaping(tmp_path: Path) -> None:
    env = ShapingRecorder(tk.ScriptedEnv(), tmp_path / "a.npz")
    env.reset(seed=0)
    reward = env.step(0)[1]
    recording = env.finish()
    assert recording.reward[0, 0] == reward
    assert recording.intrinsic[0, 0] == recording.shaped[0, 0] == 0.0
    assert not recording.has_critic
    with pytest.raises(ValueError, match="without a critic"):
        _ = recording.value_ext


def test_an_autoreset_above_the_shaping_wrapper_leaves_out_its_dummy_steps(tmp_path: Path) -> None:
    env = Autoreset(stack("pbim", tk.ScriptedEnv()))
    env = ShapingRecorder(env, tmp_path / "a.npz")
    env.reset(seed=0)
    done, dummies, ends = False, 0, 0
    for _ in range(50):
        dummies += done
        _, _, terminated, truncated, _ = env.step(0)
        done = terminated or truncated
        ends += done
    recording = env.finish()
    assert recording.steps == 50 - dummies
    assert recording.valid.all()
    assert recording.ended.sum() == ends > 5
    np.testing.assert_array_equal(
        np.flatnonzero(recording.begins[1:, 0]), np.flatnonzero(recording.ended[:-1, 0])
    )


def test_ends_that_the_shaping_wrapper_cannot_see_are_counted(tmp_path: Path) -> None:
    inner = stack("pbim", tk.ScriptedEnv(longest=10**6))
    env = ShapingRecorder(TimeLimit(inner, max_episode_steps=5), tmp_path / "a.npz")
    for _ in range(2):
        env.reset(seed=0)
        for _ in range(5):
            env.step(0)
    with pytest.warns(RuntimeWarning, match="Two episodes in a row"):
        env.reset(seed=0)
    for _ in range(5):
        env.step(0)
    recording = env.finish()
    assert recording.meta["hidden_ends"] == 3
    assert not recording.ended.any()
    assert recording.episode[:, 0].tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert recording.episode_step[:, 0].tolist() == [*range(5)] * 3


def test_one_network_pass_per_step_with_a_handle(tmp_path: Path) -> None:
    calls = []

    def counting(obs: Any) -> Any:
        calls.append(1)
        return tk.critic(obs)

    critic = CriticHandle(counting)
    env = IntrinsicRewardWrapper(tk.make_vector("sync", AutoresetMode.NEXT_STEP), tk.source)
    env = ShapingRecorder(GRMWrapper(env), tmp_path / "a.npz", critic)
    obs, _ = env.reset(seed=0)
    for _ in range(20):
        critic(obs)  # the agent's own look
        obs, *_ = env.step(np.zeros(3, dtype=np.int64))
    assert len(calls) == 21


def test_names_settings_and_repr(tmp_path: Path) -> None:
    env = ShapingRecorder(
        stack("adops-weighted", tk.make_vector("sync", AutoresetMode.SAME_STEP)),
        tmp_path / "new" / "a.npz",
    )
    assert isinstance(env, ShapingRecorder)
    assert env.shaper is env.core.shaper
    run(env, AutoresetMode.SAME_STEP, steps=3)
    recording = env.finish()
    assert {key: recording.meta[key] for key in CLAMP} == CLAMP
    assert recording.method == "adops"
    assert "ScriptedEnv" in repr(recording) or "SyncVectorEnv" in repr(recording)
    assert "3 steps of 3" in repr(recording)
    single = ShapingRecorder(stack("grm", tk.ScriptedEnv()), tmp_path / "b.npz", gamma_ext=0.9)
    single.reset(seed=0)
    single.step(0)
    recording = single.finish()
    assert recording.meta["gamma_ext"] == 0.9
    assert recording.meta["gamma_int"] == tk.GAMMA_INT  # GRM's own


def test_refusals(tmp_path: Path) -> None:
    env = stack("adops", tk.ScriptedEnv())
    path = tmp_path / "a.npz"
    with pytest.raises(ValueError, match="a different critic"):
        ShapingRecorder(env, path, tk.critic_with_q)
    with pytest.raises(ValueError, match=r"gamma_int=0\.9, not 0\.5"):
        ShapingRecorder(env, path, gamma_int=0.5)
    with pytest.raises(ValueError, match="gamma_ext must be"):
        ShapingRecorder(stack("none", tk.ScriptedEnv()), path, gamma_ext=2.0)
    with pytest.raises(ValueError, match="render_mode='rgb_array'"):
        ShapingRecorder(env, path, frames="render")
    with pytest.raises(ValueError, match="frames must be"):
        ShapingRecorder(env, path, frames="film")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="frame_size"):
        ShapingRecorder(env, path, frames="observation", frame_size=0)
    assert not list(tmp_path.iterdir())


def test_q_values_must_come_always_or_never(tmp_path: Path) -> None:
    critic = CriticHandle(tk.critic)
    env = ShapingRecorder(stack("adops", tk.ScriptedEnv(), critic), tmp_path / "a.npz")
    env.reset(seed=0)
    env.step(0)
    critic.register(tk.critic_with_q)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="advantage_ext appeared or disappeared"):
        env.step(0)


def test_the_file_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    env = ShapingRecorder(stack("none", tk.ScriptedEnv()), path)
    env.reset(seed=0)
    env.step(0)
    assert not path.exists()
    assert len(list(tmp_path.iterdir())) == 1  # the temporary one
    env.close()
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
    before = path.read_bytes()
    env = ShapingRecorder(stack("none", tk.ScriptedEnv()), path)
    env.close()  # no step: nothing replaces what was there
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match="no step was recorded"):
        env.finish()
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]


def test_the_file_needs_neither_pickle_nor_the_package(tmp_path: Path) -> None:
    env = ShapingRecorder(stack("adops", tk.ScriptedEnv()), tmp_path / "a.npz")
    env.reset(seed=0)
    env.step(0)
    recording = env.finish()
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        for name in arrays.files:
            if name != "meta.json":
                assert arrays[name].dtype != object
        np.testing.assert_array_equal(arrays["shaped/000000"], recording.shaped)
    with zipfile.ZipFile(tmp_path / "a.npz") as file:
        assert json.loads(file.read("meta.json"))["method"] == "adops"


@pytest.mark.parametrize("steps_before", [0, 1, 5])
def test_a_forked_copy_leaves_its_parents_file_alone(steps_before: int, tmp_path: Path) -> None:
    script = """
        import os, sys
        from adops_wrappers.inspect import Recording, ShapingRecorder, storage
        from tests import toolkit as tk
        from tests.inspect.stacks import stack
        storage._CHUNK_BYTES = 16  # chunks of two steps
        env = ShapingRecorder(stack("none", tk.ScriptedEnv(longest=99)), sys.argv[1])
        env.reset(seed=0)
        for _ in range(int(sys.argv[2])):
            env.step(0)
        if os.fork() == 0:
            if sys.argv[2] == "5":
                env.step(0)  # not recorded: the file is the parent's
                env.close()
            sys.exit(0)
        assert os.wait()[1] == 0
        for _ in range(int(sys.argv[2]), 8):
            env.step(0)
        recording = env.finish()
        assert recording.steps == len(recording.shaped) == 8
        assert os.listdir(os.path.dirname(sys.argv[1])) == ["a.npz"]
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    done = subprocess.run(
        [*command, str(tmp_path / "a.npz"), str(steps_before)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_any_number_of_recorders_may_listen(tmp_path: Path) -> None:
    mode = AutoresetMode.SAME_STEP
    first = ShapingRecorder(stack("grm", tk.make_vector("sync", mode)), tmp_path / "first.npz")
    run(first, mode, steps=4)
    second = ShapingRecorder(first, tmp_path / "second.npz", tk.critic)
    third = ShapingRecorder(second, tmp_path / "third.npz")
    run(third, mode, steps=5)
    a = first.finish()
    run(third, mode, steps=3)
    b, c = second.finish(), third.finish()
    assert (a.steps, b.steps, c.steps) == (9, 8, 8)
    assert (a.has_critic, b.has_critic, c.has_critic) == (False, True, True)
    np.testing.assert_array_equal(a.shaped[4:], b.shaped[:5])
    np.testing.assert_array_equal(b.shaped, c.shaped)
    assert third.core.observers == []


def test_recorders_share_the_probe_of_a_stack_without_shaping(tmp_path: Path) -> None:
    first = ShapingRecorder(tk.ScriptedEnv(), tmp_path / "first.npz")
    second = ShapingRecorder(first, tmp_path / "second.npz")
    assert second.core is first.core
    second.reset(seed=0)
    info = second.step(0)[4]
    assert "shaping_correction" not in info
    assert second.finish().steps == first.finish().steps == 1


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (gym.spaces.Box(-2.0, 2.0, (1,), np.float64), [[0], np.array([1.7]), [True]]),
        (gym.spaces.Discrete(300), [np.uint8(3), 299, np.int8(-0)]),
        (gym.spaces.MultiDiscrete([300, 300]), [np.array([1, 2], np.uint8), [299, 280], (0, 0)]),
    ],
)
def test_the_action_space_says_the_dtype(space: Any, actions: list[Any], tmp_path: Path) -> None:
    class Any_(tk.ScriptedEnv):
        def __init__(self) -> None:
            super().__init__(longest=99)
            self.action_space = space

        def step(self, action: Any) -> Any:
            return super().step(0)

    env = ShapingRecorder(Any_(), tmp_path / "a.npz")
    env.reset(seed=0)
    for action in actions:
        env.step(action)
    recorded = env.finish().action
    assert recorded is not None
    assert recorded.dtype == space.dtype
    expected = [np.asarray(action, dtype=space.dtype) for action in actions]
    np.testing.assert_array_equal(recorded[:, 0], expected)


class FullDisk(io.RawIOBase):
    """A raw file that takes so many bytes and then no more."""

    def __init__(self, path: Path, room: int) -> None:
        self.file, self.room = path.open("xb", buffering=0), room

    def write(self, data: Any) -> int:
        taken = min(len(data), self.room)
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= taken
        return self.file.write(bytes(data[:taken]))

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def fileno(self) -> int:
        return self.file.fileno()

    def close(self) -> None:
        self.file.close()
        super().close()


@pytest.mark.parametrize("room", [0, 100, 1500, 4000, 5500])
def test_a_full_disk_ends_the_recording_with_a_message_and_leaves_nothing(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_CHUNK_BYTES", 2**7)
    opened = Path.open

    def full(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if mode != "xb" or kwargs:
            return opened(path, mode, *args, **kwargs)
        return io.BufferedWriter(FullDisk(path, room))

    path = tmp_path / "a.npz"
    path.write_text("the recording of yesterday")
    monkeypatch.setattr(Path, "open", full)
    env = ShapingRecorder(stack("adops", tk.ScriptedEnv(longest=99)), path)
    env.reset(seed=0)

    def play() -> None:
        for _ in range(30):
            env.step(0)
        env.close()

    message = r"No space left.*The recording of \d+ steps? was abandoned.*a\.npz"
    with pytest.raises(OSError, match=message) as raised:
        play()
    assert raised.value.errno == errno.ENOSPC
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
    assert path.read_text() == "the recording of yesterday"
    env.reset(seed=0)
    env.step(0)  # the env lives on
    env.close()
    assert path.read_text() == "the recording of yesterday"
    with pytest.raises(ValueError, match="There is no recording to return"):
        env.finish()


def test_an_interruption_between_two_columns_leaves_them_equally_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = ShapingRecorder(stack("none", tk.ScriptedEnv(longest=99)), tmp_path / "a.npz")
    env.reset(seed=0)
    for _ in range(3):
        env.step(0)
    put = storage._Column.put

    def interrupted(column: Any, step: int, value: Any) -> None:
        if column.name == "valid":
            raise KeyboardInterrupt
        put(column, step, value)

    monkeypatch.setattr(storage._Column, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        env.step(0)
    monkeypatch.undo()
    env.step(0)
    assert env.finish().steps == 4


def test_a_gated_stack_is_recorded_with_its_own_discounts_and_coefficients(
    tmp_path: Path,
) -> None:
    own = {"gamma_ext": 0.9, "gamma_int": 0.8, "ext_coef": 2.0, "int_coef": 0.5}
    env = IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source)
    env = make_shaping("adops-gated", env, tk.critic, **own)
    env = ShapingRecorder(env, tmp_path / "a.npz")
    env.reset(seed=0)
    env.step(0)
    recording = env.finish()
    assert {name: recording.meta[name] for name in own} == own
    assert recording.method == "adops-gated"
    assert recording.meta["method_settings"]["ext_coef"] == 2.0
    with pytest.raises(ValueError, match=r"gated ADOPS below runs with ext_coef=2\.0, not 1"):
        ShapingRecorder(env, tmp_path / "b.npz", ext_coef=1.0)


def test_an_unfinished_program_leaves_its_recording_and_a_killed_one_none(tmp_path: Path) -> None:
    script = """
        import os, sys
        from tests import toolkit as tk
        from tests.inspect.stacks import stack
        from adops_wrappers.inspect import ShapingRecorder
        env = ShapingRecorder(stack("none", tk.ScriptedEnv()), sys.argv[1])
        env.reset(seed=0)
        env.step(0)
        if os.fork() == 0:
            sys.exit(0)  # a forked copy must not finish its parent's file
        os.wait()
        assert not os.path.exists(sys.argv[1])
        os.kill(os.getpid(), 9) if sys.argv[2] == "killed" else sys.exit(3)
    """
    root = Path(__file__).parents[2]
    for how, code in (("left", 3), ("killed", -9)):
        path = tmp_path / f"{how}.npz"
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), str(path), how]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root)})
        assert done.returncode == code
        assert path.exists() == (how == "left")
    assert Recording.load(tmp_path / "left.npz").steps == 1


def test_memory_is_flat_and_chunks_join_seamlessly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_CHUNK_BYTES", 2**14)
    peaks = []
    for steps in (200, 1400):
        env = ShapingRecorder(
            stack("adops", tk.make_vector("sync", AutoresetMode.NEXT_STEP)),
            tmp_path / f"{steps}.npz",
            frames=lambda env, obs: np.zeros((3, 20, 20), dtype=np.uint8) + 7,
        )
        env.reset(seed=0)
        acts = np.random.default_rng(0).integers(0, 3, (steps, 3))
        env.step(acts[0])
        tracemalloc.start()
        for action in acts[1:]:
            env.step(action)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        env.close()
    columns = 18
    per_entry = 2000  # a zip keeps its directory in memory: some hundred bytes for each chunk
    chunks = len(zipfile.ZipFile(tmp_path / "1400.npz").namelist())
    assert chunks > 6 * columns
    assert peaks[1] - peaks[0] < chunks * per_entry < 1400 * 3 * 20 * 20 * 3
    short, long = (Recording.load(tmp_path / f"{steps}.npz") for steps in (200, 1400))
    for name in ("reward", "shaped", "value_int", "valid", "begins"):
        np.testing.assert_array_equal(getattr(long, name)[:200], getattr(short, name))
    assert (long.frame(1399, 2) == 7).all()


class Pixels(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(0, 255, (9, 6), np.uint8)
    action_space = gym.spaces.Discrete(2)
    render_mode = "rgb_array"

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.brightness = 10
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.brightness += 5
        return self.observe(), 0.0, False, False, {}

    def observe(self) -> Any:
        return np.full((9, 6), self.brightness, dtype=np.uint8)

    def render(self) -> Any:
        return np.repeat(self.observe()[..., None], 3, axis=-1)


def test_pictures_are_of_the_state_before_the_action(tmp_path: Path) -> None:
    for frames in ("render", "observation", lambda env, obs: obs):
        env = NoShapingWrapper(IntrinsicRewardWrapper(Pixels(), lambda s, a, ns: 0.0))
        env = ShapingRecorder(env, tmp_path / "a.npz", frames=frames, frame_size=5)
        env.reset(seed=0)
        for _ in range(3):
            env.step(0)
        recording = env.finish()
        assert recording.frame(0).shape == (5, 3, 3)  # 9 × 6 in blocks of 2
        assert [int(recording.frame(t).max()) for t in range(3)] == [10, 15, 20]
        with pytest.raises(IndexError, match="no picture of step 3"):
            recording.frame(3)


@pytest.mark.parametrize("frames", ["observation", lambda env, obs: obs])
def test_an_agent_that_writes_into_the_observation_changes_no_picture(
    frames: Any, tmp_path: Path
) -> None:
    env = ShapingRecorder(Pixels(), tmp_path / "a.npz", frames=frames)
    obs, _ = env.reset(seed=0)
    for _ in range(3):
        obs[:] = 99
        obs, *_ = env.step(0)
    recording = env.finish()
    assert [int(recording.frame(t).max()) for t in range(3)] == [10, 15, 20]


def test_pictures_of_some_rows(tmp_path: Path) -> None:
    pictures = np.arange(3, dtype=np.uint8)[:, None, None, None] * np.ones((3, 4, 4, 3), np.uint8)
    env = stack("none", tk.make_vector("sync", AutoresetMode.NEXT_STEP))
    env = ShapingRecorder(env, tmp_path / "a.npz", frames=lambda e, o: pictures, frame_rows=2)
    run(env, AutoresetMode.NEXT_STEP, steps=2)
    recording = env.finish()
    assert (recording.frame(1, 1) == 1).all()
    with pytest.raises(IndexError, match=r"pictures of 2 environments"):
        recording.frame(0, 2)


def test_recording_goes_on_from_a_running_method(tmp_path: Path) -> None:
    inner = PBIMWrapper(IntrinsicRewardWrapper(tk.ScriptedEnv(longest=99), tk.source), gamma=0.9)
    inner.reset(seed=1)
    inner.step(0)
    env = ShapingRecorder(inner, tmp_path / "a.npz")
    env.step(0)  # no reset: the episode goes on
    recording = env.finish()
    assert recording.meta["initial_state"]["debt"][0] != 0.0
    assert not recording.begins.any()
    env.step(0)  # after finish the env lives on, unrecorded
    assert Recording.load(tmp_path / "a.npz").steps == 1


def test_actions_that_are_no_arrays_are_left_out(tmp_path: Path) -> None:
    class Structured(tk.ScriptedEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Dict({"move": gym.spaces.Discrete(3)})

        def step(self, action: Any) -> Any:
            return super().step(action["move"])

    env = IntrinsicRewardWrapper(Structured(), lambda s, a, ns: 1.0)
    env = ShapingRecorder(env, tmp_path / "a.npz")
    env.reset(seed=0)
    env.step({"move": 1})
    assert env.shaper.name == "none"
    recording = env.finish()
    assert recording.action is None
    assert "action" not in recording.table()


@pytest.mark.parametrize(
    ("shape", "newest", "result"),
    [
        ((8, 6), ..., (8, 6)),
        ((8, 6, 3), ..., (8, 6, 3)),
        ((8, 6, 1), (..., -1), (8, 6)),
        ((8, 6, 4), (..., -1), (8, 6)),
        ((4, 84, 84), -1, (84, 84)),
    ],
)
def test_the_newest_picture_of_a_stack_is_taken(shape, newest, result) -> None:
    array = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    image = as_image(array)
    assert image.shape == result
    np.testing.assert_array_equal(image, array[newest])


def test_what_is_no_picture_is_refused() -> None:
    for shape in ((5,), (7, 8, 9), (2, 3, 4, 5)):
        with pytest.raises(ValueError, match="is not a picture"):
            as_image(np.zeros(shape))


def test_downscaling_is_the_mean_over_blocks() -> None:
    image = np.random.default_rng(0).integers(0, 255, (9, 6, 3), dtype=np.uint8)
    small = downscale(image, 5)
    assert small.shape == (5, 3, 3)
    assert small.dtype == np.uint8
    block = image[2:4, 4:6].reshape(4, 3).mean(axis=0)
    np.testing.assert_array_equal(small[1, 2], np.rint(block))
    np.testing.assert_array_equal(small[4, 0], np.rint(image[8, 0:2].mean(axis=0)))
    same = downscale(image, 9)
    np.testing.assert_array_equal(same, image)
    assert not np.shares_memory(same, image)  # envs with copy=False overwrite theirs
    assert downscale(image[..., 0], 9).shape == (9, 6, 3)
