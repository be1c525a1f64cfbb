from __future__ import annotations

from fractions import Fraction
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers import (
    BAMPFWrapper,
    CountBonus,
    FiniteMDP,
    IntrinsicRewardWrapper,
    PBIMWrapper,
    ShapingRecorder,
    StatesSeen,
    audit,
    evaluation_mode,
    load_stack_state_dict,
    make_shaping,
    reshape,
    stack_state_dict,
)
from adops_wrappers.evaluation import load_learned
from adops_wrappers.shaping import BAMPF
from adops_wrappers.tabular import DistinctStates
from tests import toolkit as tk
from tests.shaping.transitions import random_transitions, transition

# Eighths and γ = 1/2: float64 is exact.
potentials = st.lists(st.integers(-80, 80).map(lambda i: i / 8), min_size=1, max_size=12)


@given(potentials, st.booleans(), st.integers(0, 2))
def test_f_is_the_difference_of_the_potentials_of_two_histories(
    phi: list[float], episodic: bool, kind: int
) -> None:
    """Every second step ends an episode: by its rules, by a time limit, or not at all."""
    shaper = BAMPF(gamma=0.5, episodic=episodic, initial=0.25)
    before = Fraction(1, 4)
    for t, now in enumerate(phi):
        ends = t % 2 == 1
        terminated, truncated = ends and kind == 0, ends and kind == 1
        found = shaper.step(transition([now], terminated=[terminated], truncated=[truncated]))
        counted = Fraction(0) if episodic and terminated else Fraction(now)
        assert Fraction(found[0]) == counted / 2 - before
        before = Fraction(now)  # goes on, whatever has ended


@given(potentials)
def test_a_life_is_worth_the_same_whatever_was_done_in_it(phi: list[float]) -> None:
    """Σ γ^t F′_t = γ^T·φ(h_T) − φ(h_0), over all episodes."""
    shaper, total = BAMPF(gamma=0.5), Fraction(0)
    for t, now in enumerate(phi):
        if t % 3 == 0:
            shaper.reset()
        shaped = shaper.step(transition([now], terminated=[t % 3 == 2]))
        total += Fraction(1, 2) ** t * Fraction(shaped[0])
    assert total == Fraction(1, 2) ** len(phi) * Fraction(phi[-1])


def test_an_episode_that_terminates_is_worth_minus_its_first_potential() -> None:
    shaper, total = BAMPF(gamma=0.5, episodic=True, initial=3.0), 0.0
    for t, now in enumerate([4.0, 5.0, 7.0]):
        total += 0.5**t * shaper.step(transition([now], terminated=[t == 2]))[0]
    assert total == -3.0
    assert shaper.known == 7.0  # the next episode begins with all that is known


def test_dummy_rows_change_nothing() -> None:
    shaper = BAMPF(2, gamma=0.5)
    assert shaper.step(transition([2.0, 8.0], valid=[True, False])).tolist() == [1.0, 0.0]
    # The second row's φ goes on from its own last step, and what was learned since is in it.
    assert shaper.step(transition([4.0, 8.0])).tolist() == [0.0, 4.0]


def test_settled_knowledge_costs_the_same_at_every_step() -> None:
    shaper = BAMPF(gamma=0.75, initial=2.0)
    assert [shaper.step(transition([2.0]))[0] for _ in range(3)] == [-0.5] * 3


def test_state_resumes_bit_for_bit_and_seeds_an_evaluation() -> None:
    transitions = random_transitions(np.random.default_rng(0), 20, 3)
    whole = BAMPF(3).rollout(transitions)
    stopped, resumed = BAMPF(3), BAMPF(3)
    cut = [
        type(transitions)(*[None if x is None else x[rows] for x in transitions])
        for rows in (slice(7), slice(7, None))
    ]
    stopped.rollout(cut[0])
    resumed.load_state_dict(stopped.state_dict())
    np.testing.assert_array_equal(resumed.rollout(cut[1]), whole[7:])
    one = BAMPF(1)
    one.load_learned({"known": np.array([2.0, 5.0, 4.0])})
    assert one.known.tolist() == [5.0]


def walks(env: Any, actions: list[int]) -> list[float]:
    env.reset(seed=0)
    return [float(env.step(action)[4]["intrinsic_reward"]) for action in actions]


def test_cliff_walking_by_hand_over_two_episodes() -> None:
    env = BAMPFWrapper(gym.make(tk.CLIFF, max_episode_steps=3), StatesSeen(most=5), gamma=0.5)
    # Cells 36 → 24 → 12 → 24: φ = 2, 3, 3.
    assert walks(env, [0, 0, 2]) == [1.0, -0.5, -1.5]
    # A new episode knows these cells: 36 → 24 → 25 → 26, φ = 3, 4, 5.
    assert walks(env, [0, 1, 1]) == [-1.5, -1.0, -1.5]
    assert walks(env, [0, 0, 1]) == [-2.5] * 3  # φ has reached its bound
    assert env.env.runner.source.most == 5


def test_all_envs_share_what_is_known() -> None:
    """Both rows are paid for what either finds: each row's own sum still telescopes."""
    env = gym.make_vec(tk.CLIFF, num_envs=2)
    env = BAMPFWrapper(env, StatesSeen(most=9), gamma=0.5)
    env.reset(seed=0)
    first = env.step(np.array([0, 3]))[4]["intrinsic_reward"]  # cells {36, 24}, and 36 again
    second = env.step(np.array([0, 3]))[4]["intrinsic_reward"]  # cell 12
    assert (first.tolist(), second.tolist()) == ([1.0, 1.0], [-0.5, -0.5])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_stack_with_its_knowledge_resumes(mode: AutoresetMode) -> None:
    def make() -> Any:
        env = tk.make_vector("sync", mode, obs_kind="discrete")
        env = BAMPFWrapper(env, StatesSeen(most=20), gamma=0.9, intrinsic_scale=0.5)
        env.reset(seed=3)
        return env

    def play(env: Any, steps: int) -> list[Any]:
        seen = []
        for _ in range(steps):
            _, reward, terminated, truncated, info = env.step(np.zeros(3, np.int64))
            seen.append([reward, info["intrinsic_reward"]])
            if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
                env.reset(options={"reset_mask": terminated | truncated})
        return seen

    whole = play(make(), 25)
    stopped, resumed = make(), make()
    np.testing.assert_array_equal(play(stopped, 10), whole[:10])
    play(resumed, 10)  # brings the env itself to the same place
    resumed.env.runner.source.counts.clear()
    resumed.shaper.known[:] = 0.0
    load_stack_state_dict(resumed, stack_state_dict(stopped))
    np.testing.assert_array_equal(play(resumed, 15), whole[10:])


def test_evaluation_learns_nothing_and_another_stack_takes_over_what_is_known() -> None:
    env = BAMPFWrapper(gym.make(tk.CLIFF), StatesSeen(most=5), gamma=0.5)
    walks(env, [0, 0])
    with evaluation_mode(env):
        assert walks(env, [0, 1, 1]) == [-1.5] * 3
    other = BAMPFWrapper(gym.make_vec(tk.CLIFF, num_envs=3), StatesSeen(most=5), gamma=0.5)
    load_learned(other, stack_state_dict(env))
    other.reset(seed=0)
    assert other.step(np.array([0, 0, 0]))[4]["intrinsic_reward"].tolist() == [-1.5] * 3


def test_a_recording_is_replayed_and_no_other_method_takes_phi_for_a_bonus(tmp_path: Any) -> None:
    env = BAMPFWrapper(gym.make(tk.CLIFF), StatesSeen(most=5), gamma=0.5)
    walks(env, [0, 0])  # the recording begins in mid-life
    env = ShapingRecorder(env, tmp_path / "a.npz")
    walks(env, [0, 1, 1, 3])
    recording = env.finish()
    shaped = reshape(recording)
    assert list(shaped) == ["bampf"]
    np.testing.assert_array_equal(shaped["bampf"], recording.shaped)


def test_the_kind_of_source_is_checked() -> None:
    with pytest.raises(ValueError, match=r"bampf was given bonus=.* shapes is a knowledge\. Give"):
        make_shaping("bampf", tk.ScriptedEnv(), bonus=CountBonus())
    with pytest.raises(ValueError, match=r"pbim was given knowledge=.*Give bonus= in its place"):
        make_shaping("pbim", tk.ScriptedEnv(), knowledge=StatesSeen(most=3))
    with pytest.raises(ValueError, match=r"already has a source of F\. Leave knowledge= out"):
        BAMPFWrapper(IntrinsicRewardWrapper(tk.ScriptedEnv(), tk.source), StatesSeen(most=3))
    below = IntrinsicRewardWrapper(gym.make(tk.CLIFF), StatesSeen(most=5))
    assert walks(make_shaping("bampf", below, gamma=0.5), [0, 0]) == [1.0, -0.5]
    with pytest.raises(ValueError, match="gamma must be a discount"):
        BAMPF(gamma=0.0)
    with pytest.raises(ValueError, match="initial must be a finite number"):
        BAMPF(initial=float("nan"))
    assert not isinstance(below, PBIMWrapper)


# The theorem and its conditions


def stay_or_leave(reward: float) -> FiniteMDP:
    """In state 0: leave for the end, which pays 1, or stay, which pays `reward`."""
    ways = np.zeros((2, 2, 2))
    ways[0, 0, 1] = ways[0, 1, 0] = ways[1, :, 1] = 1.0
    return FiniteMDP(ways, [[1.0, reward], [0.0, 0.0]], gamma=0.5, terminal=[1], start=0)


def test_a_constant_phi_hurries_an_agent_whose_value_ends_unless_phi_ends_too() -> None:
    """φ = 2 costs 1 at every step that goes on, and 1 at the last: staying is worth 2·0.75 − 2."""
    mdp, phi = stay_or_leave(0.75), np.full((2, 2), 2.0)
    going_on = audit(mdp, phi, "bampf", gamma=0.5, initial=2.0)
    assert not going_on.preserved
    # Staying pays 1.5 and leaving 1; with φ −0.5 and 0.
    assert going_on.regret == pytest.approx(0.5, abs=1e-12)
    assert audit(mdp, phi, "bampf", gamma=0.5, initial=2.0, episodic=True).preserved


def test_a_life_that_ends_must_count_its_last_phi_as_nothing() -> None:
    """Work pays 1/8, looking around shows a new state: at the end of a short life it pays off."""
    ways = np.zeros((2, 2, 2))
    ways[:, 0, 0] = ways[:, 1, 1] = 1.0
    mdp = FiniteMDP(ways, [[0.125, 0.0], [0.125, 0.0]], gamma=0.5, start=0)
    life = {"bonus": DistinctStates(), "shaping": "bampf", "horizon": 2, "gamma": 0.5}
    kept = audit(mdp, **life)
    assert not kept.preserved
    assert kept.regret <= 0.5**2 * (2 - 1)
    assert audit(mdp, **life, episodic=True).preserved


@pytest.mark.parametrize(("size", "hacked"), [(2.5, True), (1.5, False)])
def test_a_learner_that_forgets_hacks_where_its_critic_does_not_see_phi(
    size: float, hacked: bool
) -> None:
    """A TV that is known (φ = size) until the agent works again: γ·size against the work's 1.

    A critic that sees φ(h) takes it back in the next state; a one-step critic of the state alone
    takes γ·φ(h′) for a reward of the TV. That is what the condition *never falls* is for.
    """
    ways = np.ones((1, 2, 1))
    mdp = FiniteMDP(ways, [[1.0, 0.0]], gamma=0.5)
    phi = np.array([[0.0, size]])
    assert audit(mdp, phi, "bampf", gamma=0.5).preserved
    assert audit(mdp, 0.5 * phi, "raw").preserved != hacked
    for sees_phi in (True, False):
        worth = np.zeros((2, 2))  # of (φ is 0, φ is size) and (work, TV), by exact iteration
        for _ in range(200):
            value = worth.max(axis=1)
            after = np.array([value[0], value[1]]) if sees_phi else np.full(2, value.mean())
            known = np.array([0.0, size])
            worth = np.array([1.0, 0.0]) + 0.5 * known - known[:, None] + 0.5 * after
            if not sees_phi:
                worth = np.broadcast_to(worth.mean(axis=0), (2, 2))
        assert (worth.argmax(axis=1) == int(hacked and not sees_phi)).all()


def test_the_discount_is_the_learners() -> None:
    mdp, phi = stay_or_leave(0.25), np.array([[0.0, 9.0], [0.0, 0.0]])
    assert audit(mdp, phi, "bampf", episodic=True).preserved  # γ of the task
    assert not audit(mdp, phi, "bampf", episodic=True, gamma=0.9).preserved
