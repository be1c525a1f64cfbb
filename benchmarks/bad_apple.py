"""Our shaping against the code of the paper's co-author: `python -m benchmarks.bad_apple CHECKOUT`.

    git clone https://github.com/lyonva/bad-apple && git -C bad-apple checkout 2ae7ad1
    python -m benchmarks.bad_apple bad-apple

Both sides get the same random stream: ours through the wrappers, theirs as their learner calls it.
The exit code is 1 where a method differs by more than rounding.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from adops_wrappers import IntrinsicRewardWrapper, make_shaping
from adops_wrappers.arrays import BoolArray, FloatArray

FOLDER = "src.algo.reward_shaping"
METHODS = ("ADOPES", "GRM", "PBIM", "PIES")
BUFFER = "src.algo.buffers.ppo_buffer"
GAMMA = 0.99
LAMBDA = 0.95
ROWS = 8
ROLLOUT = 32
UPDATES = 10
"""The rollouts after which the ζ of PIES is 0 and that of ADOPES is 1."""
TOLERANCE = 1e-13
"""Of the larger of 1 and |F′|: what the order of a few sums can change."""
CONVENTIONS = "γ_E = 1 in Q_E; V_E(s′) = V_I(s′) = 0 at every `done`"


class Stream(NamedTuple):
    """T steps of n rows; the values have T + 1, and `done` is a termination."""

    reward: FloatArray
    intrinsic: FloatArray
    done: BoolArray
    value_ext: FloatArray
    value_int: FloatArray


class Line(NamedTuple):
    """One comparison."""

    method: str
    settings: str
    difference: float
    """The largest one, as a share of the larger of 1 and |F′|."""
    remark: str = ""
    expected: bool = False
    """Whether a difference is expected, and no failure."""


def random_stream(steps: int) -> Stream:
    rng = np.random.default_rng(0)

    def noise(times: int) -> FloatArray:
        return rng.normal(size=(times, ROWS))

    done = rng.random((steps, ROWS)) < 0.05
    return Stream(noise(steps), noise(steps), done, noise(steps + 1), noise(steps + 1))


class StreamEnv(VectorEnv):
    """Plays a stream. An observation is the index of its state among all T + 1 times n."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.num_envs = ROWS
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = gym.spaces.Discrete(stream.value_ext.size)
        self.single_action_space = gym.spaces.Discrete(1)
        self.observation_space = gym.spaces.MultiDiscrete([stream.value_ext.size] * ROWS)
        self.action_space = gym.spaces.MultiDiscrete([1] * ROWS)
        self.t = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return self._states(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        reward, done = self.stream.reward[self.t], self.stream.done[self.t]
        self.t += 1
        states = self._states()
        info = {"final_obs": states, "_final_obs": done}
        return states, reward, done, np.zeros_like(done), info

    def _states(self) -> Any:
        return self.t * ROWS + np.arange(ROWS)


def ours(stream: Stream, name: str, **settings: Any) -> FloatArray:
    """Return F′ of one of our wrappers, shape (T, n)."""

    def critic(states: Any) -> tuple[FloatArray, FloatArray]:
        return stream.value_ext.ravel()[states], stream.value_int.ravel()[states]

    env = IntrinsicRewardWrapper(
        StreamEnv(stream), lambda states, action, after: stream.intrinsic.ravel()[states]
    )
    if name in ("adops", "adopes"):
        common = {"gamma_ext": 1.0, "gamma_int": GAMMA, "int_bootstrap": "none", "epsilon": 1e-6}
        settings = {**common, "add_to_reward": False, **settings}
    env = make_shaping(name, env, critic, **settings)
    env.reset()
    idle = np.zeros(ROWS, dtype=np.int64)
    return np.array([env.step(idle)[4]["intrinsic_reward"] for _ in stream.reward])


def theirs(shaper: Any, stream: Stream, arguments: Callable[[int], tuple[Any, ...]]) -> FloatArray:
    """Return F′ of one of their classes, shape (T, n), called once a step and once a rollout."""
    shaped = []
    for t in range(len(stream.reward)):
        shaped.append(shaper.shape_rewards(*arguments(t)))
        if (t + 1) % ROLLOUT == 0 and hasattr(shaper, "on_rollout_end"):
            shaper.on_rollout_end()
    return np.array(shaped)


def our_advantages(stream: Stream, zeta: float) -> FloatArray:
    """Return the sum of both streams' GAE with the F′ of our wrapper, shape (T, n).

    F₂ takes V_I(s′) as it is at a `done`, and GAE takes 0: that is what their buffer does.
    """
    settings = {"gamma_ext": GAMMA, "int_bootstrap": "final"}
    shaped = ours(stream, "adops", **settings)
    bonus = stream.intrinsic + zeta * (shaped - stream.intrinsic)
    lives = np.where(stream.done, 0.0, GAMMA)
    value = stream.value_ext + stream.value_int
    delta = stream.reward + bonus + lives * value[1:] - value[:-1]
    advantages, after = np.empty_like(delta), np.zeros(ROWS)
    for t in reversed(range(len(delta))):
        after = advantages[t] = delta[t] + LAMBDA * lives[t] * after
    return advantages


def their_advantages(buffer: Any, stream: Stream, zeta: float) -> FloatArray:
    """Return the advantages of their rollout buffer, which adds ζ·F₂ within the recursion."""
    steps, spaces = len(stream.reward), (gym.spaces.Box(0, 1), gym.spaces.Discrete(2))
    settings = {"gamma": GAMMA, "gae_lambda": LAMBDA, "adopes_coef_max_rollout": 100}
    rollout = buffer(steps, *spaces, n_envs=ROWS, adops_enabled=True, **settings)
    rollout.n_rollout = round(100 * zeta)
    for name in ("advantages", "ext_advantages", "int_advantages", "cost_advantages"):
        setattr(rollout, name, np.zeros((steps, ROWS)))  # theirs are float32
    rollout.rewards, rollout.intrinsic_rewards = stream.reward.copy(), stream.intrinsic.copy()
    rollout.ext_values, rollout.int_values = stream.value_ext[:-1], stream.value_int[:-1]
    rollout.episode_starts = np.roll(stream.done, 1, axis=0).astype(np.float64)
    last = [torch.from_numpy(values[-1]) for values in (stream.value_ext, stream.value_int)]
    done = stream.done[-1].astype(np.float64)
    rollout.compute_returns_and_advantage(*last, torch.zeros(ROWS), done, 0.0)
    return np.asarray(rollout.advantages, dtype=np.float64)


def import_theirs(checkout: Path) -> dict[str, Any]:
    """Return their classes. They import each other from `src`, so the checkout joins the path."""
    sys.path.insert(0, str(checkout.resolve()))
    try:
        modules = [importlib.import_module(f"{FOLDER}.{name.lower()}") for name in METHODS]
        buffer = importlib.import_module(BUFFER).PPORolloutBuffer
    finally:
        sys.path.pop(0)
    found = {name: getattr(module, name) for name, module in zip(METHODS, modules, strict=True)}
    return {**found, "buffer": buffer}


def compare(shapers: dict[str, Any], stream: Stream) -> Iterator[Line]:
    """Yield the comparisons."""
    done = stream.done.astype(np.float64)

    def bonus_and_done(t: int) -> tuple[Any, ...]:
        return stream.intrinsic[t], done[t]

    def everything(t: int) -> tuple[Any, ...]:
        values = [v[i] for i in (t, t + 1) for v in (stream.value_ext, stream.value_int)]
        columns = [torch.from_numpy(v)[:, None] for v in values]
        return stream.reward[t], stream.intrinsic[t], *columns, done[t]

    for delay in (1, 2, 3, 7):
        their = theirs(shapers["GRM"](GAMMA, ROWS, grm_delay=delay), stream, bonus_and_done)
        our = ours(stream, "grm", gamma=GAMMA, delay=delay)
        yield Line("GRM", f"D = {delay}", difference(our, their))

    falling = shapers["PIES"](GAMMA, ROWS, pies_decay=UPDATES)
    their = theirs(falling, stream, lambda t: (stream.intrinsic[t],))
    our = ours(stream, "pies", decay_updates=UPDATES, update_every=ROLLOUT)
    yield Line("PIES", f"ζ = 0 after {UPDATES} rollouts", difference(our, their))

    their = theirs(shapers["ADOPES"](GAMMA, ROWS), stream, everything)
    yield Line("ADOPS", "", difference(ours(stream, "adops"), their), CONVENTIONS)
    rising = shapers["ADOPES"](GAMMA, ROWS, adopes_coef_inc=1 / UPDATES)
    their = theirs(rising, stream, everything)
    our = ours(stream, "adopes", ramp_updates=UPDATES, update_every=ROLLOUT)
    yield Line("ADOPES", f"ζ = 1 after {UPDATES} rollouts", difference(our, their), CONVENTIONS)

    for zeta in (0.5, 1.0):
        their = their_advantages(shapers["buffer"], stream, zeta)
        our = our_advantages(stream, zeta)
        remark = "F′ of ADOPS, then GAE; F₂ takes V_I(s′) at a `done`, GAE 0"
        yield Line("F₂ inside GAE", f"ζ = {zeta:g}", difference(our, their), remark)

    their = theirs(shapers["PBIM"](GAMMA, ROWS), stream, bonus_and_done)
    our = ours(stream, "pbim", gamma=GAMMA)
    remark = f"F′ = 0 in {np.mean(their == 0):.0%} of the steps, ours in {np.mean(our == 0):.0%}"
    yield Line("PBIM", "as it is", difference(our, their), remark, expected=True)
    turned = theirs(
        shapers["PBIM"](GAMMA, ROWS), stream, lambda t: (stream.intrinsic[t], 1 - done[t])
    )
    remark = "the last F′ of an episode is 1/γ times as large"
    yield Line("PBIM", "`dones` negated", difference(our, turned), remark, expected=True)
    mended = np.where(stream.done, GAMMA * turned, turned)
    yield Line("PBIM", "`dones` negated, last F′ times γ", difference(our, mended))


def difference(our: FloatArray, their: FloatArray) -> float:
    """Return the largest difference as a share of the larger of 1 and |F′|."""
    return float(np.max(np.abs(our - their) / np.maximum(1.0, np.abs(our))))


def commit_of(checkout: Path) -> str:
    """Return the commit that is checked out, as far as git knows."""
    ask = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    known = (checkout / ".git").exists()
    return subprocess.check_output(ask, text=True).strip() if known else "an unknown commit"


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 if a method differs."""
    line = argparse.ArgumentParser(
        prog="python -m benchmarks.bad_apple",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    line.add_argument("checkout", type=Path, help="a clone of github.com/lyonva/bad-apple")
    line.add_argument("--steps", type=int, default=4000)
    given = line.parse_args(arguments)
    try:
        shapers = import_theirs(given.checkout)
    except ModuleNotFoundError as error:
        line.error(f"{given.checkout} is no clone of github.com/lyonva/bad-apple: {error}")
    stream = random_stream(given.steps)
    print(f"bad-apple at {commit_of(given.checkout)}, {ROWS} rows × {given.steps} steps\n")
    print("| method | settings | largest difference | remark |")
    print("| --- | --- | ---: | --- |")
    failed = []
    for one in compare(shapers, stream):
        print(f"| {one.method} | {one.settings} | {one.difference:.1e} | {one.remark} |")
        if not one.expected and not one.difference <= TOLERANCE:
            failed.append(f"{one.method} {one.settings}".strip())
    if failed:
        print(f"\nMore than rounding ({TOLERANCE:g}): {'; '.join(failed)}.", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
