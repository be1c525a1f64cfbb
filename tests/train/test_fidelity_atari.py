"""Both Atari backends against ale-py's own emulator, driven frame by frame with the same seed."""

from __future__ import annotations

import numpy as np
import pytest

ale_py = pytest.importorskip("ale_py")
cv2 = pytest.importorskip("cv2")

from adops_wrappers.training.args import EnvArgs  # noqa: E402
from adops_wrappers.training.envs import env_kind, make_env, make_vector_env  # noqa: E402
from adops_wrappers.training.statistics import with_statistics  # noqa: E402

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
BACKENDS = ["vector", "sync"]
ROMS = {"ALE/Breakout-v5": "breakout", "ALE/Skiing-v5": "skiing"}


def start_emulator(rom, seed, sticky=0.25):
    emulator = ale_py.ALEInterface()
    emulator.setInt("random_seed", seed)
    emulator.setFloat("repeat_action_probability", sticky)
    emulator.setInt("frame_skip", 1)
    emulator.loadROM(ale_py.roms.get_rom_path(rom))
    emulator.reset_game()
    return emulator


class FrameByFrame:
    """Burda's preprocessing, written out: four frames an action, the brighter of the last two
    pixel by pixel, 84x84, a stack of four that starts black; an end only when the game is over.

    The frame at which an episode ends is never looked at, in his wrapper as in both backends: what
    takes its place is the picture of the step before.
    """

    def __init__(self, rom, seed, limit):
        self.emulator, self.limit = start_emulator(rom, seed), limit
        self.actions = self.emulator.getMinimalActionSet()
        self.fewest_lives = self.emulator.lives()
        self.start()

    def start(self):
        self.frames = 0
        self.stack = np.zeros((4, 84, 84), dtype=np.uint8)
        self.show(self.emulator.getScreenGrayscale())
        self.third = np.zeros_like(self.picture)

    def show(self, picture):
        self.picture = picture
        shrunk = cv2.resize(picture, (84, 84), interpolation=cv2.INTER_AREA)
        self.stack = np.concatenate([self.stack[1:], shrunk[None]])

    def step(self, action):
        """Return reward, game over, and cut by the limit."""
        reward, third, fourth = 0.0, self.third, self.picture
        over = cut = False
        for frame in (1, 2, 3, 4):
            reward += self.emulator.act(self.actions[action])
            self.frames += 1
            over = self.emulator.game_over()
            cut = not over and self.frames == 4 * self.limit
            if over or cut:
                break
            if frame == 3:
                third = self.emulator.getScreenGrayscale()
            elif frame == 4:
                fourth = self.emulator.getScreenGrayscale()
        self.third = third
        self.show(np.maximum(third, fourth))
        if not over:
            self.fewest_lives = min(self.fewest_lives, self.emulator.lives())
        return reward, over, cut

    def restart(self):
        self.emulator.reset_game()
        self.start()


def emulator_seed(backend, seed):
    """Gymnasium's single env derives the emulator's seed from the one that it is given."""
    if backend == "vector":
        return seed
    return int(np.random.SeedSequence(seed).generate_state(2)[1].astype(np.int32))


@pytest.mark.parametrize(
    ("env_id", "limit", "steps"), [("ALE/Breakout-v5", 150, 420), ("ALE/Skiing-v5", 25, 60)]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_equal_the_emulator_frame_by_frame(backend, env_id, limit, steps):
    """Frame skip, pooling, stack, stickiness, rewards, ends, and no no-ops or fire at the start."""
    args = EnvArgs(env_id=env_id, max_episode_steps=limit, atari_backend=backend)
    kind = env_kind(env_id)
    base = make_vector_env(args, kind, 2)
    envs = with_statistics(base, args, kind)
    plain = [FrameByFrame(ROMS[env_id], emulator_seed(backend, 7 + row), limit) for row in (0, 1)]
    rng = np.random.default_rng(0)
    observation, _ = envs.reset(seed=7)
    ends, largest = {"over": 0, "cut": 0}, 0.0
    for step in range(steps):
        for row, game in enumerate(plain):
            np.testing.assert_array_equal(observation[row], game.stack, err_msg=f"{step}, {row}")
        actions = rng.integers(0, envs.single_action_space.n, 2)
        observation, reward, terminated, truncated, info = envs.step(actions)
        for row, game in enumerate(plain):
            raw, over, cut = game.step(actions[row])
            largest = max(largest, abs(raw))
            # Atari's R is divided by 1,000 and never clipped.
            assert reward[row] == pytest.approx(raw / 1000.0, rel=1e-12)
            assert (terminated[row], truncated[row]) == (over, cut)
            if over or cut:
                np.testing.assert_array_equal(info["final_obs"][row], game.stack)
                ends["over" if over else "cut"] += 1
                game.restart()
    envs.close()
    assert ends["cut"] > 0
    if env_id == "ALE/Breakout-v5":
        assert ends["over"] > 0, "choose a seed with ends of both kinds"
        assert min(game.fewest_lives for game in plain) < 5  # a life lost is no end
    else:
        assert largest > 1.0


def test_the_longest_episode_has_4500_steps():
    """18,000 frames, as in Burda's settings: nothing happens to one that stands still."""
    args = EnvArgs()
    kind = env_kind(args.env_id)
    envs = make_vector_env(args, kind, 1)
    envs.reset(seed=0)
    for step in range(1, 4501):
        _, _, terminated, truncated, _ = envs.step(np.zeros(1, dtype=np.int64))
        assert not terminated[0]
        assert truncated[0] == (step == 4500), step
    envs.close()
    single = make_env(args, kind)
    assert single.unwrapped.ale.getInt("max_num_frames_per_episode") == 18_000
    single.close()


def test_actions_stick_for_a_quarter_of_the_frames():
    """Each frame runs the chosen action, or with probability 1/4 the one that ran before it.

    Which of the two ran is found by trying both on an emulator that never sticks.
    """
    sticky = start_emulator("freeway", 3)
    certain = start_emulator("freeway", 3, sticky=0.0)
    rng = np.random.default_rng(0)
    ran_before = ale_py.Action.NOOP
    told_apart = stuck = 0
    for chosen in rng.choice(sticky.getLegalActionSet(), 3000):
        chosen = ale_py.Action(chosen)
        sticky.act(chosen)
        memory, here = sticky.getRAM(), certain.cloneState()
        certain.act(ran_before)
        repeats = np.array_equal(certain.getRAM(), memory)
        there = certain.cloneState()
        certain.restoreState(here)
        certain.act(chosen)
        follows = np.array_equal(certain.getRAM(), memory)
        assert repeats or follows
        if follows != repeats:
            told_apart += 1
            stuck += repeats
        if follows:
            ran_before = chosen
        else:
            certain.restoreState(there)
    assert told_apart > 2000
    assert abs(stuck - told_apart / 4) < 3.0 * (told_apart * 3 / 16) ** 0.5


@pytest.mark.parametrize("backend", BACKENDS)
def test_stickiness_reaches_the_emulator(backend):
    """Without stickiness, seeds do not matter; with it, they do."""

    def play(seed, sticky):
        args = EnvArgs(env_id="ALE/Breakout-v5", atari_backend=backend, sticky_action_prob=sticky)
        envs = make_vector_env(args, env_kind(args.env_id), 1)
        shown = [envs.reset(seed=seed)[0].copy()]
        for action in np.random.default_rng(0).integers(0, 4, 30):
            shown.append(envs.step(np.array([action]))[0].copy())
        envs.close()
        return np.stack(shown)

    assert np.array_equal(play(1, 0.0), play(2, 0.0))
    assert not np.array_equal(play(1, 0.25), play(2, 0.25))
