"""Builds wheel and sdist, installs them into clean environments, and runs a smoke test in each.

    python scripts/test_package.py               # core (wheel and sdist), then every extra
    python scripts/test_package.py core torch    # these only

The core's environment must hold neither torch nor ale-py, and everything there still works.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CORE = """
import importlib.util, sys
for absent in ("torch", "ale_py", "stable_baselines3"):
    assert importlib.util.find_spec(absent) is None, absent
import gymnasium as gym, numpy as np
import adops_wrappers
from adops_wrappers import *
from adops_wrappers import SHAPINGS, audit, make_shaping
from adops_wrappers.tabular import mdp_from_env
cliff = "CliffWalking-v1" if "CliffWalking-v1" in gym.registry else "CliffWalking-v0"
for name in SHAPINGS:
    settings = {"potential": lambda obs, t: 0.0 * np.asarray(obs), "gamma": 0.99}
    env = IntrinsicRewardWrapper(gym.make_vec(cliff, num_envs=2), CountBonus())
    critic = lambda obs: (np.zeros(2), np.zeros(2))
    env = make_shaping(name, env, critic, **(settings if name == "pbrs" else {}))
    env.reset(seed=0)
    info = env.step(np.zeros(2, dtype=np.int64))[4]
    assert info["intrinsic_reward"].shape == (2,), name
env = IntrinsicRewardWrapper(gym.make("adops/KeyDoor-v0"), EpisodicCountBonus())
env = GRMWrapper(env, gamma=0.5)
env.reset(seed=0)
assert [env.step(0)[4]["intrinsic_reward"] for _ in range(2)] == [1.0, 2**-0.5 - 2.0]
mdp = mdp_from_env(gym.make(cliff), gamma=0.99)
bonus = np.zeros((48, 4, 48)); bonus[:, :, 0] = 1.0
assert not audit(mdp, bonus, "raw").preserved and audit(mdp, bonus, "adops").preserved
try:
    from adops_wrappers import TDCritic
except ImportError as error:
    assert "pip install 'adops-wrappers[torch]'" in str(error), error
else:
    raise AssertionError("TDCritic was imported without torch")
assert "torch" not in sys.modules
"""
TORCH = """
import gymnasium as gym, numpy as np
from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper, TDCritic
from adops_wrappers.intrinsic.rnd import RND
env = gym.make_vec("CartPole-v1", num_envs=4)
space = env.single_observation_space
critic = TDCritic(space, seed=0)
env = ADOPSWrapper(IntrinsicRewardWrapper(env, RND(space, seed=0)), critic)
env.reset(seed=0)
for _ in range(80):
    env.step(env.action_space.sample())
assert critic.updates > 0
"""
SB3 = """
import gymnasium as gym
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO
from adops_wrappers import ADOPSWrapper, CountBonus, IntrinsicRewardWrapper, TDCritic
from adops_wrappers.sb3 import SB3VecEnv, ShapingCallback
env = gym.make_vec("adops/LoopFarm-v0", num_envs=4, autoreset_mode=AutoresetMode.SAME_STEP)
env = IntrinsicRewardWrapper(env, CountBonus())
env = ADOPSWrapper(env, TDCritic(env.single_observation_space), int_bootstrap="none")
log = ShapingCallback()
PPO("MlpPolicy", SB3VecEnv(env), n_steps=32, batch_size=64, device="cpu").learn(256, callback=log)
assert log.history
"""
ATARI = """
import ale_py, gymnasium as gym, numpy as np
from adops_wrappers import GRMWrapper, IntrinsicRewardWrapper
gym.register_envs(ale_py)
env = gym.make_vec("ALE/MontezumaRevenge-v5", num_envs=2)
env = GRMWrapper(IntrinsicRewardWrapper(env, lambda s, a, n: np.ones(2)))
env.reset(seed=0)
assert env.step(np.zeros(2, dtype=np.int64))[4]["intrinsic_reward"].tolist() == [1.0, 1.0]
"""
MINIGRID = """
import gymnasium as gym, minigrid
from adops_wrappers import CountBonus, IntrinsicRewardWrapper, PIESWrapper
env = PIESWrapper(IntrinsicRewardWrapper(gym.make("MiniGrid-DoorKey-5x5-v0"), CountBonus()))
env.reset(seed=0)
assert env.step(0)[4]["intrinsic_reward"] == 1.0
"""
TRAIN = "import filelock, rich, tensorboard, torch, tqdm, tyro\n" + TORCH
ANALYSIS = "import markdown, matplotlib, scipy, adops_wrappers\n"
CLUSTER = "import submitit, adops_wrappers\n"
NOTEBOOKS = "import ipykernel, jupytext, nbclient, nbformat\n" + ANALYSIS
DOCS = "import mkdocs, material, mkdocstrings, adops_wrappers\n"
SMOKE = {
    "torch": TORCH,
    "sb3": SB3,
    "atari": ATARI,
    "minigrid": MINIGRID,
    "train": TRAIN,
    "analysis": ANALYSIS,
    "cluster": CLUSTER,
    "notebooks": NOTEBOOKS,
    "docs": DOCS,
}


def run(*command: str, cwd: Path) -> None:
    """Run a command; show its output only if it fails."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)[:200]}\n{done.stdout}\n{done.stderr}")


def keep_torch(folder: Path) -> Path:
    """Write a constraints file with the torch of this environment, if it has one.

    The default build of the newest torch brings gigabytes of CUDA.
    """
    constraints = folder / "constraints.txt"
    try:
        public = importlib.metadata.version("torch").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        public = ""
    constraints.write_text(f"torch=={public}\n" if public else "", encoding="utf-8")
    return constraints


def check(what: str, artefact: Path, extra: str, code: str, folder: Path) -> None:
    """Install `artefact[extra]` into a new environment, away from the sources, and run `code`."""
    start = time.perf_counter()
    home = folder / what.replace(" ", "-")
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    requirement = f"{artefact}[{extra}]" if extra else str(artefact)
    pip = (python, "-m", "pip", "install", "--quiet", "--constraint", str(keep_torch(folder)))
    run(*pip, requirement, cwd=folder)
    run(python, "-m", "pip", "check", cwd=folder)
    run(python, "-W", "error::DeprecationWarning:adops_wrappers", "-c", code, cwd=folder)
    print(f"{what}: works ({time.perf_counter() - start:.0f} s)", flush=True)


def main() -> None:
    """Build, install, test."""
    line = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    line.add_argument("only", nargs="*", metavar="PART", help=f"core, {', '.join(SMOKE)}")
    wanted = line.parse_args().only or ["core", *SMOKE]
    unknown = set(wanted) - {"core", *SMOKE}
    if unknown:
        line.error(f"there is no part {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT), cwd=folder)
        (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
        print(f"built {wheel.name} and {sdist.name}", flush=True)
        if "core" in wanted:
            check("wheel, core alone", wheel, "", CORE, folder)
            check("sdist, core alone", sdist, "", CORE, folder)
        for extra, code in SMOKE.items():
            if extra in wanted:
                check(f"extra {extra}", wheel, extra, code, folder)


if __name__ == "__main__":
    main()
