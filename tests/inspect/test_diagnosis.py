from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from adops_wrappers.inspect import ShapingRecorder, diagnosis, findings, size
from tests import toolkit as tk
from tests.inspect import synthetic
from tests.inspect.stacks import GAMMAS, run, stack

CHECKED = "Checked, and unremarkable"


def titles(recording: Any, **more: Any) -> dict[str, str]:
    found = diagnosis.diagnose(recording, **more)
    return {f.title: f.kind for f in found if f.title not in (CHECKED, "No episode ended")}


def text(recording: Any, title: str) -> str:
    return next(f.text for f in diagnosis.diagnose(recording) if f.title == title)


def test_explained_variance_equals_a_slow_reference(tmp_path: Path) -> None:
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        env = stack("adops", tk.make_vector("sync", mode))
        env = ShapingRecorder(env, tmp_path / "a.npz")
        run(env, mode, interrupt=False)
        acts = np.random.default_rng(5).integers(0, 3, (60, 3))
        returns, values = [], []
        for steps in tk.record(tk.make_vector("sync", mode), acts, 11, mode):
            for episode in tk.episodes_of(steps):
                last = episode[-1]
                future = 0.0 if last.terminated else float(tk.critic(last.next_obs)[0])
                for step in reversed(episode):
                    future = step.reward + tk.GAMMA_EXT * future
                    returns.append(future)
                    values.append(float(tk.critic(step.obs)[0]))
        expected = 1 - np.var(np.array(returns) - values) / np.var(returns)
        assert diagnosis.explained_variance(env.finish()) == pytest.approx(expected, rel=1e-9)


def test_an_exact_critic_explains_everything(tmp_path: Path) -> None:
    steps, gamma = 40, 0.9
    values = gamma ** np.arange(steps - 1, -1, -1.0)
    recording = synthetic.make(
        tmp_path,
        reward=np.arange(steps) == steps - 1,
        terminated=np.arange(steps) == steps - 1,
        value_ext=values,
        next_value_ext=np.r_[values[1:], 0.0],
    )
    assert diagnosis.explained_variance(recording) == pytest.approx(1.0)
    assert "The critic explains nothing" not in titles(recording)
    noise = np.random.default_rng(0).normal(size=steps)
    recording = synthetic.make(
        tmp_path,
        reward=np.arange(steps) == steps - 1,
        terminated=np.arange(steps) == steps - 1,
        value_ext=noise,
        next_value_ext=np.r_[noise[1:], 0.0],
    )
    assert titles(recording)["The critic explains nothing"] == "warning"


def test_a_recording_without_reward_cannot_judge_its_critic(tmp_path: Path) -> None:
    found = titles(synthetic.make(tmp_path, intrinsic=np.full(20, 0.1)))
    assert found["How much V_E explains could not be checked"] == "note"
    assert found["The critic sees no bad action"] == "note"
    assert "warning" not in found.values()


def test_explosion_names_length_and_discount(tmp_path: Path) -> None:
    shaped = np.r_[np.ones(299), -3e9]
    meta = {"method": "pbim", "gamma_int": 0.9}
    recording = synthetic.make(tmp_path, meta, intrinsic=np.ones(300), shaped=shaped)
    finding = diagnosis.diagnose(recording)[0]
    assert (finding.kind, finding.title) == ("warning", "F′ explodes")
    assert "−3.0·10⁹ after 300 steps" in finding.text
    assert "γ_I = 0.9" in finding.text
    shaped[-1] = -5e3
    recording = synthetic.make(tmp_path, meta, intrinsic=np.ones(300), shaped=shaped)
    assert titles(recording)["F′ has a long tail"] == "note"
    shaped[-1] = -500
    recording = synthetic.make(tmp_path, meta, intrinsic=np.ones(300), shaped=shaped)
    assert not {"F′ has a long tail", "F′ explodes"} & titles(recording).keys()


def ratchet(folder: Path, value: float, bonus: float, method: str = "adops") -> Any:
    """A state that ties for ever: the clamp lifts δ_I to 0 and so pays (1 − γ)·V_I per step."""
    shaped = max(bonus, (1 - 0.9) * value)
    return synthetic.make(
        folder,
        {"method": method},
        intrinsic=np.full(30, bonus),
        shaped=np.full(30, shaped),
        value_int=np.full(30, value),
        next_value_int=np.full(30, value),
    )


def test_ratcheting_is_a_value_that_corrections_pay_for(tmp_path: Path) -> None:
    assert titles(ratchet(tmp_path, value=10.0, bonus=0.01))["V_I is ratcheting"] == "warning"
    # A bonus of 1 supports a value of 1/(1 − γ) = 10.
    assert "V_I is ratcheting" not in titles(ratchet(tmp_path, value=10.0, bonus=1.0))
    assert "V_I is ratcheting" not in titles(ratchet(tmp_path, 10.0, 0.01, method="grm"))


def test_epsilon_below_float32_is_measured(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 4000
    value, after = rng.uniform(1, 2, n), rng.uniform(1, 2, n)
    for epsilon, expected in ((1e-7, True), (1e-4, False)):
        # The clamp: R − V_E + F′ + γ·V_I′ − V_I = −ε with R = −1.
        shaped = 1.0 - epsilon - 0.9 * after + value
        recording = synthetic.make(
            tmp_path,
            {"epsilon": epsilon},
            reward=-1.0,
            intrinsic=shaped + 1.0,
            shaped=shaped,
            value_int=value,
            next_value_int=after,
        )
        assert ("ε is below float32" in titles(recording)) == expected


def test_hidden_ends_and_exploding_others_are_told(tmp_path: Path) -> None:
    recording = synthetic.make(tmp_path, {"hidden_ends": 2}, intrinsic=np.ones(9))
    assert titles(recording)["Episode ends are hidden from the shaping wrapper"] == "warning"
    others = {"pbim": np.full((9, 1), -1e9), "grm": np.ones((9, 1)), "adops": np.full((9, 1), 1e9)}
    found = diagnosis.diagnose(recording, others)
    text = next(f.text for f in found if f.title.startswith("Other methods"))
    assert text == "pbim (|F′| up to 1.0·10⁹)."
    assert [f.kind for f in found] == sorted((f.kind for f in found), reverse=True)


def test_summary_counts_what_happened(tmp_path: Path) -> None:
    recording = synthetic.make(
        tmp_path,
        reward=[-1, -1, 1, 0, -1],
        intrinsic=[3, 0, -3, 1, 0.5],
        shaped=[0.9, 0, -1, 1, 0.5],
        terminated=[0, 0, 0, 0, 1],
    )
    text = " ".join(diagnosis.summarize(recording))
    assert "5 steps of 1 environment of Synthetic-v0 with ADOPS (gamma_ext=0.9" in text
    assert "; 1 episode ended." in text
    assert "The task paid −2 in all (80 % of steps paid)" in text
    assert "fights the task at 40 % of steps: at 20 % it makes an action that the critic" in text
    assert "considers bad look good, at 20 % it makes a good or neutral action look bad" in text
    assert "changed the bonus at 40 % of steps" in text
    assert "told the opposite of the task at 0 % of steps" in text
    plain = synthetic.make(tmp_path, critic=False, intrinsic=np.ones(3))
    text = " ".join(diagnosis.summarize(plain))
    assert "The raw bonus was never changed." in text
    assert "fights" not in text
    assert titles(plain) == {"No critic was recorded": "note"}


def test_real_adops_is_never_told_to_contradict(tmp_path: Path) -> None:
    mode = AutoresetMode.SAME_STEP
    env = ShapingRecorder(
        stack("adops", tk.make_vector("sync", mode)), tmp_path / "a.npz", **GAMMAS
    )
    run(env, mode, steps=200)
    assert "opposite of the task at 0 % of steps" in " ".join(diagnosis.summarize(env.finish()))


# The size of the bonus


def large(folder: Path, bonus: float, steps: int = 60, **columns: Any) -> Any:
    """With γ_I = 0.9 a constant bonus has a return of ten times its size."""
    return synthetic.make(folder, intrinsic=np.full(steps, bonus), **columns)


def test_size_of_the_return_by_hand(tmp_path: Path) -> None:
    recording = large(tmp_path, 2.0)
    filled = 20.0 * (1.0 - 0.9 ** np.arange(11, 61))  # after one horizon of ten steps
    assert size.return_size(recording) == pytest.approx(np.sqrt(np.mean(filled**2)), rel=1e-9)
    scaled = large(tmp_path, 2.0, meta={"intrinsic_scale": 0.5})
    assert size.return_size(scaled) == pytest.approx(size.return_size(large(tmp_path, 1.0)))
    assert np.isnan(size.return_size(large(tmp_path, 2.0, steps=19)))


def test_dummy_resets_do_not_move_the_size(tmp_path: Path) -> None:
    valid = np.ones(60, dtype=bool)
    valid[30] = False
    with_dummy = synthetic.make(tmp_path, intrinsic=np.where(valid, 2.0, 0.0), valid=valid)
    assert size.return_size(with_dummy) == pytest.approx(
        size.return_size(large(tmp_path, 2.0, steps=59))
    )


def test_a_bonus_far_from_unit_size_is_told_with_the_values_it_makes(tmp_path: Path) -> None:
    values = {"value_int": np.full(60, 20.0), "value_ext": np.full(60, 0.5)}
    finding = next(
        f for f in diagnosis.diagnose(large(tmp_path, 2.0, **values)) if "bonus is" in f.title
    )
    assert (finding.kind, finding.title) == ("warning", "The bonus is large")
    assert "root mean square of 18.8" in finding.text
    assert "V_I has a size of 20 beside 0.5 of V_E" in finding.text
    assert 'normalizer="rms"' in finding.text
    assert titles(large(tmp_path, 0.001))["The bonus is small"] == "note"
    for fine in (large(tmp_path, 0.1), large(tmp_path, 2.0, steps=19), large(tmp_path, 0.0)):
        assert not any("bonus is" in title for title in titles(fine))
    text = next(
        f.text
        for f in diagnosis.diagnose(large(tmp_path, 2.0, critic=False))
        if "is large" in f.title
    )
    assert "V_I has" not in text


# What episodes earn, and what V_E promises


def episodes(folder: Path, earned: Any, value: float, *, cut: bool = True, steps: int = 10) -> Any:
    """Episodes of so many steps, each paid at its last one; V_E is the same everywhere."""
    ends = np.tile(np.arange(steps) == steps - 1, len(earned))
    return synthetic.make(
        folder,
        reward=np.repeat(earned, steps) * ends,
        truncated=ends & cut,
        terminated=ends & (not cut),
        value_ext=np.full(len(ends), value),
        next_value_ext=np.full(len(ends), value),
    )


DISAGREE = "V_E and the returns disagree"
NOTHING = "The episodes earn nothing"


def test_episodes_that_earn_nothing_while_v_e_promises_much_are_told(tmp_path: Path) -> None:
    recording = episodes(tmp_path, [0.0] * 4, 0.65)
    found = titles(recording)
    assert (found[NOTHING], found[DISAGREE]) == ("warning", "warning")
    assert "In 4 of 4 episodes that ended, R was 0" in text(recording, NOTHING)
    assert "V_E averages 0.65, but from the same steps" in text(recording, DISAGREE)
    assert "earned 0 (discounted). It promises too much" in text(recording, DISAGREE)
    assert DISAGREE not in titles(episodes(tmp_path, [0.0] * 4, 0.05))  # as good as 0


def test_episodes_earn_nothing_if_more_than_half_of_them_do(tmp_path: Path) -> None:
    assert NOTHING in titles(episodes(tmp_path, [0.0, 0.0, 1.0], 0.0))
    half = episodes(tmp_path, [0.0, 1.0], 0.0)
    assert NOTHING not in titles(half)
    assert "a mean return of 0.5, and nothing in 1 of 2" in text(half, CHECKED)
    unfinished = synthetic.make(tmp_path, intrinsic=np.full(20, 0.1))
    assert NOTHING not in titles(unfinished)
    kinds = {f.title: f.kind for f in diagnosis.diagnose(unfinished)}
    assert kinds["No episode ended"] == "note"


def test_a_reward_that_cancels_out_is_not_nothing(tmp_path: Path) -> None:
    ends = np.arange(4) == 3
    recording = synthetic.make(tmp_path, reward=[1.0, 0.0, 0.0, -1.0], terminated=ends)
    assert NOTHING not in titles(recording)


@pytest.mark.parametrize(
    ("value", "cut", "told"),
    [(0.5, False, ""), (3.0, False, "too much"), (0.1, False, "too little"), (1.0, True, "")],
)
def test_v_e_may_go_on_past_a_truncation_but_not_past_an_end(
    tmp_path: Path, value: float, cut: bool, told: str
) -> None:
    """With γ = .9 the steps of an episode are worth .651 on average; going on at .1 a step adds
    γ^(steps left) each, .586 on average."""
    recording = episodes(tmp_path, [1.0, 1.0], value, cut=cut)
    assert (DISAGREE in titles(recording)) == bool(told)
    if told:
        words = text(recording, DISAGREE)
        assert f"earned {0.1 * (1 - 0.9**10) / 0.1:.3g} (discounted)" in words
        assert f"promises {told}" in words


def test_returns_to_go_equal_a_slow_reference(tmp_path: Path) -> None:
    """On several rows, in every autoreset mode, with episodes that end both ways."""
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        env = ShapingRecorder(stack("adops", tk.make_vector("sync", mode)), tmp_path / "a.npz")
        run(env, mode, interrupt=False)
        recording = env.finish()
        assert recording.truncated.any()
        assert recording.terminated.any()
        acts = np.random.default_rng(5).integers(0, 3, (60, 3))
        earned, endless, values = [], [], []
        for steps in tk.record(tk.make_vector("sync", mode), acts, 11, mode):
            for episode in tk.episodes_of(steps):
                if not (episode[-1].terminated or episode[-1].truncated):
                    continue
                rate = sum(step.reward for step in episode) / len(episode)
                after = 0.0 if episode[-1].terminated else rate / (1 - tk.GAMMA_EXT)
                now = 0.0
                for step in reversed(episode):
                    now = step.reward + tk.GAMMA_EXT * now
                    after = step.reward + tk.GAMMA_EXT * after
                    earned.append(now)
                    endless.append(after)
                    values.append(float(tk.critic(step.obs)[0]))
        expected = findings.value_against_returns(*map(np.mean, (values, earned, endless)))
        assert expected in list(diagnosis._promises(recording))


# Conflicts


def test_a_high_conflict_rate_is_told_with_what_is_left_of_it(tmp_path: Path) -> None:
    fights = np.arange(100) < 37
    columns = {"reward": -1.0, "intrinsic": np.where(fights, 2.0, 0.5)}
    often = "The bonus often fights the task"
    raw = synthetic.make(tmp_path, {"method": "none"}, **columns)
    assert titles(raw)[often] == "warning"
    assert "A_E at 37 % of steps" in text(raw, often)
    assert "told the opposite of the task at 37 % of steps" in text(raw, often)
    clamped = synthetic.make(tmp_path, **columns, shaped=np.where(fights, 0.9, 0.5))
    assert titles(clamped)[often] == "note"
    assert "told the opposite of the task at 0 % of steps" in text(clamped, often)
    columns["intrinsic"] = np.where(np.arange(100) < 25, 2.0, 0.5)
    seldom = synthetic.make(tmp_path, {"method": "none"}, **columns)
    assert often not in titles(seldom)
    assert "how often the bonus fights the task (25 % of steps)" in text(seldom, CHECKED)


def test_nothing_is_called_fine_without_having_been_checked(tmp_path: Path) -> None:
    plain = synthetic.make(tmp_path, critic=False, intrinsic=np.ones(3))
    assert text(plain, CHECKED) == (
        "The size of F′ (at most 1). None of this says that the agent does well at its task."
    )


def test_without_a_method_the_summary_speaks_of_the_raw_bonus(tmp_path: Path) -> None:
    meta = {"method": "none", "description": "none", "num_envs": 1}
    recording = synthetic.make(tmp_path, meta, intrinsic=[1.0])
    text = " ".join(diagnosis.summarize(recording))
    assert "holds 1 step of 1 environment of Synthetic-v0 with the raw bonus; 0 episodes" in text
    assert "The raw bonus was never changed." in text
    assert " none" not in text
    assert "1 step of 1 environment, the raw bonus>" in repr(recording)
