from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from adops_wrappers import IntrinsicRewardWrapper, LargestDisplacement, StatesSeen, evaluation_mode
from tests import toolkit as tk

rows = st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=2, max_size=20)


@given(rows, st.integers(1, 9))
def test_states_seen_are_a_set_with_a_bound(walk: list[tuple[int, ...]], most: int) -> None:
    known, seen = StatesSeen(most, scale=0.5), set[int]()
    for now, then in pairwise(walk):
        valid = np.array([True, now[1] != 1, True])
        found: Any = known(np.array(now), None, np.array(then), valid=valid)
        seen |= {s for pair, ok in zip(zip(now, then, strict=True), valid, strict=True) if ok
                 for s in pair}  # fmt: skip
        assert found.tolist() == [0.5 * min(len(seen), most)] * 3
        assert len(known.counts) <= most + 5  # memory is bounded, too


def test_states_of_any_kind_one_or_many_and_a_key() -> None:
    known = StatesSeen(9, key=lambda obs: int(obs[0]))
    assert known(np.array([0.1]), 0, np.array([0.9])) == 1.0
    assert known(np.array([0.1]), 0, np.array([1.9]), valid=False) == 1.0
    texts = StatesSeen(9)
    assert texts({"a": np.zeros(2)}, 0, {"a": np.ones(2)}) == 2.0


@given(st.lists(st.tuples(*[st.floats(-5, 5)] * 2), min_size=2, max_size=12), st.integers(1, 4))
def test_displacement_is_from_where_each_episode_began(walk: Any, length: int) -> None:
    """Episodes of `length` steps; the second row begins a step later. Against a slow loop."""
    known, largest, begins = LargestDisplacement(4.0), 0.0, [0.0, 0.0]
    for t, (now, then) in enumerate(pairwise(walk)):
        valid = np.array([True, t > 0])
        for row in range(2):
            if valid[row]:
                if (t - row) % length == 0:
                    begins[row] = now[row]
                largest = max(largest, abs(then[row] - begins[row]))
        found: Any = known(np.array(now), None, np.array(then), valid=valid)
        assert found == pytest.approx(np.full(2, min(largest, 4.0)), rel=1e-12)
        ended = np.array([(t - row) % length == length - 1 and t >= row for row in range(2)])
        known.reset_episodes(ended)


def test_displacement_in_space_and_of_a_vector_env() -> None:
    known = LargestDisplacement(9.0, scale=2.0)
    assert known(np.zeros(2), 0, np.array([3.0, 4.0])) == 10.0
    env = tk.make_vector("sync", AutoresetMode.SAME_STEP)
    source = LargestDisplacement(1.0)
    env = IntrinsicRewardWrapper(env, source)
    env.reset(seed=0)
    phi = [env.step(np.ones(3, np.int64))[4]["intrinsic_reward"] for _ in range(20)]
    assert (np.diff(np.array(phi)[:, 0]) >= 0.0).all()
    assert phi[-1].tolist() == [1.0] * 3
    saved = source.state_dict()
    other = LargestDisplacement(1.0)
    other.load_state_dict(saved)
    assert other.largest == 1.0
    assert other.begun.tolist() == source.begun.tolist()


def test_nothing_new_is_known_in_evaluation() -> None:
    env = IntrinsicRewardWrapper(gym.make("CartPole-v1"), LargestDisplacement(9.0))
    env.reset(seed=0)
    first = env.step(0)[4]["intrinsic_reward"]
    with evaluation_mode(env):
        assert [env.step(0)[4]["intrinsic_reward"] for _ in range(3)] == [first] * 3
    assert env.step(0)[4]["intrinsic_reward"] > first


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="most must be a whole number of at least 1"):
        StatesSeen(0)
    with pytest.raises(ValueError, match="most must be a number greater than 0"):
        LargestDisplacement(0.0)
    with pytest.raises(TypeError, match="position must be a function of observations"):
        LargestDisplacement(1.0, position=3)  # type: ignore[arg-type]
    known = LargestDisplacement(1.0, position=lambda obs: np.zeros(3))
    with pytest.raises(ValueError, match="as many coordinates for each of 2 observations"):
        known(np.zeros((2, 3)), None, np.zeros((2, 3)), valid=np.ones(2, bool))


# The prediction error of RND


def prediction(**settings: Any) -> Any:
    pytest.importorskip("torch")
    from adops_wrappers import RND, PredictionKnowledge

    space = gym.spaces.Box(-1.0, 1.0, (3,))
    rnd = RND(space, seed=0, batch_size=4, learning_rate=0.01)
    return PredictionKnowledge(rnd, **settings)


def observations(steps: int, n: int = 4) -> Any:
    return np.random.default_rng(0).uniform(-1.0, 1.0, (steps, n, 3)).astype(np.float32)


def test_what_is_predicted_is_known_and_stays_known() -> None:
    known, batch, valid = prediction(probes=8, scale=2.0), observations(2), np.ones(4, bool)
    phi = []
    for t in range(300):
        phi.append(known(batch[0], None, batch[t % 2], valid=valid)[0])
    assert phi[0] == 0.0
    assert (np.diff(phi) >= 0.0).all()
    assert 1.0 < phi[-1] <= 2.0
    # Independently: the share of each probe's first error that is gone.
    left = known._errors(known.kept) / known.first_errors
    assert float(2.0 * (1.0 - left).clamp(min=0.0).mean()) <= phi[-1]
    # It forgets under other observations, and φ stays.
    for other in observations(200)[2:]:
        assert known(None, None, 5.0 * other, valid=valid)[0] >= phi[-1]
    assert len(known.first_errors) == 8


def test_only_real_transitions_are_probed_and_nothing_in_evaluation() -> None:
    known, batch = prediction(probes=3), observations(1)[0]
    valid = np.array([False, True, False, True])
    known(batch, None, batch, valid=valid)
    assert known.kept[0].tolist() == batch[valid].tolist()
    known.frozen = True
    before = known.state_dict()
    known(batch, None, -batch, valid=np.ones(4, bool))
    assert len(known.first_errors) == len(before["first_errors"]) == 2
    assert known.rnd.frozen
    known.frozen = False
    known(batch, None, -batch, valid=np.ones(4, bool))
    assert len(known.first_errors) == 3


def test_prediction_knowledge_resumes_bit_for_bit() -> None:
    batches, valid = observations(60), np.ones(4, bool)
    whole = prediction(probes=16)
    expected = [whole(b, None, b, valid=valid)[0] for b in batches]
    stopped, resumed = prediction(probes=16), prediction(probes=16)
    for b in batches[:30]:
        stopped(b, None, b, valid=valid)
    resumed.load_state_dict(stopped.state_dict())
    assert [resumed(b, None, b, valid=valid)[0] for b in batches[30:]] == expected[30:]
    assert expected[-1] > 0.0
    with pytest.raises(TypeError, match="rnd must be an RND"):
        type(whole)(3)
