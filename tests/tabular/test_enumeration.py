"""MDPs of envs that are stepped: chance of every kind, hidden state, layouts."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
import pytest

from adops_wrappers import audit
from adops_wrappers.tabular import mdp_from_env

MODULE_GENERATOR = np.random.default_rng(7)


OWN = {
    "own Generator": lambda: np.random.default_rng(3),
    "own RandomState": lambda: np.random.RandomState(3),
    "own random.Random": lambda: random.Random(3),
    "nested Generator": lambda: {"deep": [np.random.default_rng(4)]},
}
SEEN = {"random": random.random, "np.random": np.random.random}
UNSEEN = {
    "the system": random.SystemRandom().random,
    "a new generator": lambda: np.random.default_rng().random(),
    "a module's generator": MODULE_GENERATOR.random,
}
SHARED = SEEN | UNSEEN


class Slippery(gym.Env):
    """0 … 4 on a line, the goal at 4; a move fails with probability `slip`."""

    observation_space = gym.spaces.Discrete(5)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, slip, source="np_random"):
        self.slip, self.source = slip, source
        self.own = OWN[source]() if source in OWN else None

    def draw(self):
        own = self.own["deep"][0] if isinstance(self.own, dict) else self.own
        return SHARED.get(self.source, (own or self.np_random).random)()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.place, {}

    def step(self, action):
        if self.draw() >= self.slip:
            self.place = max(0, self.place + (1 if action else -1))
        return self.place, float(self.place == 4), self.place == 4, False, {}


@pytest.mark.parametrize("slip", [0.01, 0.05, 0.4])
def test_a_slip_is_estimated_as_well_as_the_model_says(slip):
    mdp = mdp_from_env(Slippery(slip), 0.9)
    origin = mdp.origin
    assert (mdp.num_states, origin.pairs) == (5, 8)
    # Walking left from 0 leads to 0, slip or not.
    assert origin.random_pairs == 7
    assert origin.fewest_samples >= 1000
    assert origin.probability_error <= 0.01
    moved = mdp.transition[range(4), 1, range(1, 5)]
    assert np.abs(moved - (1 - slip)).max() <= 4 * origin.probability_error
    # V = (1 − slip)·(1 or 0.9·V′) + slip·0.9·V along the line.
    value = 1.0
    for steps in range(4):
        value = (1 - slip) * (0.9 if steps else 1.0) * value / (1 - 0.9 * slip)
    assert mdp.solve().v[0] == pytest.approx(value, rel=0.05)


@pytest.mark.parametrize("source", [*OWN, *SEEN])
def test_every_generator_that_can_be_found_is_reseeded(source):
    mdp = mdp_from_env(Slippery(0.4, source), 0.9, accuracy=0.04)
    assert np.abs(mdp.transition[range(4), 1, range(1, 5)] - 0.6).max() < 0.16
    assert mdp.origin.random_pairs == 7


@pytest.mark.parametrize("slip", [0.01, 0.4])
@pytest.mark.parametrize("source", UNSEEN)
def test_chance_that_no_generator_shows_is_refused(source, slip):
    with pytest.raises(ValueError, match=r"random numbers that the import cannot control"):
        mdp_from_env(Slippery(slip, source), 0.9)


class HiddenStream(Slippery):
    """Its slips come from a counter, which copies share with their original."""

    def __deepcopy__(self, memo):
        twin = HiddenStream(self.slip)
        twin.__dict__ |= self.__dict__
        return twin

    def draw(self):
        self.count = getattr(self, "count", 0) + 1
        return (self.count * 0.618034) % 1.0


def test_a_stream_that_is_copied_with_the_env_is_found_by_the_walks():
    with pytest.raises(ValueError, match="does not describe the env"):
        mdp_from_env(HiddenStream(0.4), 0.9)


def test_more_accuracy_takes_more_samples():
    rough = mdp_from_env(Slippery(0.4), 0.9, accuracy=0.04).origin
    fine = mdp_from_env(Slippery(0.4), 0.9, accuracy=0.02).origin
    assert rough.most_samples < fine.most_samples
    assert fine.probability_error <= 0.02 < rough.probability_error <= 0.04
    with pytest.raises(ValueError, match="accuracy"):
        mdp_from_env(Slippery(0.4), 0.9, accuracy=0.0)


def test_equal_chances_stay_tied():
    """Every pair is tried with the same random numbers."""

    class Circle(Slippery):
        def step(self, action):
            if self.draw() >= self.slip:
                self.place = (self.place + (1 if action else -1)) % 5
            return self.place, 0.0, False, False, {}

    mdp = mdp_from_env(Circle(0.3), 0.9, accuracy=0.04)
    assert len(np.unique(mdp.transition[mdp.transition > 0])) == 2


def test_the_global_generators_are_left_as_they_were():
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = random.random(), np.random.random()  # noqa: NPY002
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    mdp_from_env(Slippery(0.4, "random"), 0.9, accuracy=0.04)
    mdp_from_env(Slippery(0.4, "np.random"), 0.9, accuracy=0.04)
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002


def test_the_env_itself_is_left_as_it_was():
    env = Slippery(0.4)
    env.reset(seed=1)
    env.step(1)
    before = env.np_random.bit_generator.state, env.place
    mdp_from_env(env, 0.9, accuracy=0.04)
    assert (env.np_random.bit_generator.state, env.place) == before


class Coin(gym.Env):
    """Action 0 pays 0.2 and ends; action 1 pays 1 or 0, equally often, and ends."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        reward = float(self.np_random.random() < 0.5) if action else 0.2
        return 1, reward, True, False, {}


def test_a_random_reward_is_its_mean():
    mdp = mdp_from_env(Coin(), 0.9)
    assert mdp.num_states == 2
    assert mdp.solve().v[0] == pytest.approx(0.5, abs=0.04)
    assert mdp.origin.random_pairs == 1
    assert 0.009 < mdp.origin.reward_error <= 0.01
    assert mdp.origin.probability_error == 0.0
    # A bonus of 1 for the poor action costs 0.5 − 0.2 on average, which a constant 0 would hide.
    report = audit(mdp, [[1.0, 0.0], [0.0, 0.0]], "raw")
    assert report.regret == pytest.approx(0.3, abs=0.04)
    assert audit(mdp, [[1.0, 0.0], [0.0, 0.0]], "adops").preserved


def test_a_reward_without_two_equal_values():
    class Gaussian(Coin):
        def step(self, action):
            return 1, float(self.np_random.normal(2.0, 3.0)), True, False, {}

    mdp = mdp_from_env(Gaussian(), 0.9)
    assert mdp.solve().v[0] == pytest.approx(2.0, abs=4 * mdp.origin.reward_error)


def test_a_random_end():
    class Fragile(Slippery):
        """Staying alive in one place: each step ends the episode with probability 0.2."""

        def step(self, action):
            return 0, 1.0, bool(self.np_random.random() < 0.2), False, {}

    mdp = mdp_from_env(Fragile(0.0), 0.9)
    assert mdp.terminal.tolist() == [False, True]
    assert mdp.transition[0, :, 1] == pytest.approx([0.2, 0.2], abs=0.03)
    assert mdp.solve().v[0] == pytest.approx(1 / (1 - 0.8 * 0.9), rel=0.1)


class NoisyScreen(Slippery):
    """Draws a picture at every step, which changes nothing."""

    observation_space = gym.spaces.Box(0, 255, (4,), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(0, 256, 4, dtype=np.uint8), {}

    def step(self, action):
        _, *rest = super().step(action)
        return (self.np_random.integers(0, 256, 4, dtype=np.uint8), *rest)


def test_a_generator_that_moves_without_effect_is_no_chance():
    mdp = mdp_from_env(NoisyScreen(0.0), 0.9, key=lambda env, obs: env.place, accuracy=0.04)
    assert mdp.num_states == 5
    assert mdp.origin.random_pairs == 0
    assert mdp.solve().v[0] == pytest.approx(0.9**3, abs=1e-12)


def test_a_deterministic_env_says_that_nothing_was_estimated():
    origin = mdp_from_env(Slippery(0.0, "own Generator"), 0.9).origin
    assert (origin.random_pairs, origin.probability_error, origin.reward_error) == (0, 0.0, 0.0)
    assert origin.walk_steps >= 10_000
    assert not origin.layout_drawn


class HiddenKey(gym.Env):
    """A line of 6 with a key at 0 and a door at 5, which opens for who holds the key.

    The start is 3, and the observation is the place alone: the key shows not before five
    steps after it was taken.
    """

    observation_space = gym.spaces.Discrete(6)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.has_key = 3, False
        return self.place, {}

    def step(self, action):
        self.place = min(5, max(0, self.place + (1 if action else -1)))
        self.has_key = self.has_key or self.place == 0
        done = self.place == 5 and self.has_key
        return self.place, float(done), done, False, {}


def test_moments_with_equal_observations_and_unequal_futures_are_refused():
    with pytest.raises(ValueError, match=r"(?s)does not describe the env.*reset\(seed=.*key="):
        mdp_from_env(HiddenKey(), 0.99)
    mdp = mdp_from_env(HiddenKey(), 0.99, key=lambda env, obs: (obs, env.has_key))
    # Three steps to the key, and the fifth from there opens the door.
    assert mdp.solve().v[0] == pytest.approx(0.99**7, abs=1e-12)


class Clock(Slippery):
    """An episode is over after seven steps, in one way or the other."""

    def __init__(self, truncates):
        super().__init__(0.0)
        self.truncates = truncates

    def reset(self, *, seed=None, options=None):
        self.step_count = 0
        return super().reset(seed=seed)

    def step(self, action):
        self.step_count += 1
        obs, reward, terminated, _, info = super().step(action)
        late = self.step_count >= 7
        ended = terminated or (late and not self.truncates)
        return obs, reward, ended, late and self.truncates, info


def test_a_clock_that_ends_the_episode_is_part_of_the_state():
    with pytest.raises(ValueError, match="does not describe the env"):
        mdp_from_env(Clock(truncates=False), 0.9)
    mdp = mdp_from_env(Clock(truncates=False), 0.9, key=lambda env, obs: (obs, env.step_count))
    value = float(mdp.solve().v[0])
    assert value == pytest.approx(0.9**3)
    late = mdp_from_env(Clock(truncates=True), 0.9)
    assert (late.num_states, float(late.solve().v[0])) == (5, pytest.approx(0.9**3))


def test_hidden_state_that_changes_only_how_often():
    class Mood(Slippery):
        """Slips with 0.2 before the far end was seen, with 0.6 after."""

        def reset(self, *, seed=None, options=None):
            self.seen = False
            return super().reset(seed=seed)

        def step(self, action):
            self.slip = 0.6 if self.seen else 0.2
            if self.draw() >= self.slip:
                self.place = min(4, max(0, self.place + (1 if action else -1)))
            self.seen |= self.place == 4
            return self.place, 0.0, False, False, {}

    with pytest.raises(ValueError, match=r"does not describe the env.*% of"):
        mdp_from_env(Mood(0.2), 0.9, accuracy=0.02)
    whole = mdp_from_env(Mood(0.2), 0.9, key=lambda env, obs: (obs, env.seen), accuracy=0.04)
    assert whole.num_states == 9


class DrawnGoal(gym.Env):
    """The goal is at one end of a line of 5, drawn at reset; `shown` in the observation or not."""

    observation_space = gym.spaces.MultiDiscrete([5, 5])
    action_space = gym.spaces.Discrete(2)

    def __init__(self, shown):
        self.shown = shown

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = 2, int(self.np_random.choice([0, 4]))
        return self.observe(), {}

    def observe(self):
        return np.array([self.place, self.goal if self.shown else 0])

    def step(self, action):
        self.place += 1 if action else -1
        done = self.place in (0, 4)
        return self.observe(), float(self.place == self.goal), done, False, {}


def test_a_layout_that_is_drawn_is_said_to_be_that_of_seed_0():
    mdp = mdp_from_env(DrawnGoal(shown=True), 0.9)
    assert mdp.origin.layout_drawn
    assert mdp.num_states == 5
    assert mdp.solve().v[0] == pytest.approx(0.9)
    report = audit(mdp, np.zeros((5, 2)), "raw")
    assert "layout of seed 0" in str(report)
    assert report.to_dict()["origin"]["layout_drawn"] is True


def test_a_layout_that_is_drawn_and_not_shown_is_refused():
    with pytest.raises(ValueError, match="does not describe the env"):
        mdp_from_env(DrawnGoal(shown=False), 0.9)


def test_a_start_that_is_drawn_becomes_a_distribution():
    class Anywhere(Slippery):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place = int(self.np_random.random() < 0.3)
            return self.place, {}

    mdp = mdp_from_env(Anywhere(0.0, "own Generator"), 0.9)
    places = mdp.solve().v.round(6).tolist()
    assert mdp.start[places.index(0.9**2)] == pytest.approx(0.3, abs=0.04)
    assert mdp.start[places.index(round(0.9**3, 6))] == pytest.approx(0.7, abs=0.04)
    assert not mdp.origin.layout_drawn


def test_the_report_says_how_the_model_was_made():
    mdp = mdp_from_env(Slippery(0.05), 0.9)
    report = audit(mdp, np.zeros((5, 2)), "adops")
    origin = mdp.origin
    assert f"7 of 8 pairs of state and action are random, from {origin.fewest_samples}" in str(
        report
    )
    assert f"standard errors up to {origin.probability_error:.2g}" in str(report)
    facts = report.to_dict()["origin"]
    assert facts["random_pairs"] == 7
    assert facts["probability_error"] == origin.probability_error


def test_minigrid_says_whose_layout_it_is():
    pytest.importorskip("minigrid")
    assert mdp_from_env(gym.make("MiniGrid-LavaGapS5-v0"), 0.9).origin.layout_drawn
    assert not mdp_from_env(gym.make("MiniGrid-Empty-5x5-v0"), 0.9).origin.layout_drawn


def test_an_env_whose_copies_begin_anew_is_refused():
    class Anew(Slippery, gym.utils.EzPickle):
        def __init__(self):
            Slippery.__init__(self, 0.0)
            gym.utils.EzPickle.__init__(self)

    with pytest.raises(ValueError, match=r"cannot be enumerated.*begin"):
        mdp_from_env(Anew(), 0.9)
