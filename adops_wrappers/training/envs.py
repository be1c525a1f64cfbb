"""Building the environments of a run."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from adops_wrappers.training.exit import fail

if TYPE_CHECKING:
    from adops_wrappers.training.args import EnvArgs

MONTEZUMA = "montezuma_revenge"
"""The game that has rooms."""
RAM_IDS = ("adops/AtariRam-v0", "adops/MontezumaRam-v0")


def env_kind(env_id: str) -> str:
    """Return atari, minigrid or other; import the package that registers the env."""
    spec = find_spec(env_id)
    module = str(getattr(spec.entry_point, "__module__", spec.entry_point))
    package = _package(spec.id) or module.split(".")[0]
    return {"ale_py": "atari", "minigrid": "minigrid"}.get(package, "other")


def find_spec(env_id: str) -> EnvSpec:
    """Return what is registered as `[module:]id`, or end the script with a message."""
    module, colon, name = env_id.rpartition(":")
    package = _package(name)
    if package:
        _import(package, env_id)
    if colon:
        _import(module, env_id)
    elif name not in gym.registry:
        with contextlib.suppress(ImportError):
            gym.register_envs(importlib.import_module("ale_py"))
    versions = [known for known in gym.registry if name and known.rpartition("-v")[0] == name]
    if versions and name not in gym.registry:
        fail(f"--env-id {env_id} names no version. Choose one of {', '.join(sorted(versions))}.")
    try:
        return gym.spec(name)
    except gym.error.Error as error:
        fail(f"--env-id {env_id} cannot be built: {error}")


def _package(name: str) -> str:
    """Return the package that registers an id, if its beginning tells."""
    packages = {"ALE": "ale_py", "MiniGrid": "minigrid", "BabyAI": "minigrid"}
    return packages.get("ALE" if name in RAM_IDS else name.replace("-", "/").split("/")[0], "")


def _import(module: str, env_id: str) -> None:
    """Import a module that registers envs, or end the script with a message."""
    try:
        gym.register_envs(importlib.import_module(module))
    except (ImportError, TypeError, ValueError) as error:
        extra = {"ale_py": "atari", "minigrid": "minigrid"}.get(module)
        if extra:
            fail(f'{env_id} needs a package: pip install "adops-wrappers[{extra}]"')
        fail(
            f"--env-id {env_id} cannot be built: importing {module!r} failed: {error}. Install it, "
            "or put its folder on PYTHONPATH."
        )


def current_id(env_id: str) -> str:
    """Replace the paper's ALE/...-v4, which no longer exists, and print a message."""
    if env_id.rpartition(":")[2].startswith("ALE/") and env_id.endswith("-v4"):
        newer = env_id[:-1] + "5"
        print(
            f"{env_id} does not exist in today's ale-py. Running {newer} instead, with the "
            "settings of this script: frameskip 4, max over two frames, sticky actions."
        )
        return newer
    return env_id


def refuse_import(env_id: str, source: Path) -> None:
    """End the script if an env_id read from a file would import a module and run its code."""
    if ":" in env_id:
        module = env_id.split(":")[0]
        fail(
            f"{source} names the env {env_id!r}, which imports the module {module!r} and runs its "
            "code. If you trust it, add --import-env."
        )


def make_env(args: EnvArgs, kind: str, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Build one env, preprocessed like the vector envs."""
    keywords = json.loads(args.env_kwargs)
    if kind == "atari" and ram_game(args):
        return gym.make(RAM_IDS[0], render_mode=render_mode, **_ram_keywords(args))
    if kind == "atari":
        env: Any = gym.make(
            args.env_id,
            frameskip=1,
            repeat_action_probability=args.sticky_action_prob,
            max_num_frames_per_episode=4 * (args.max_episode_steps or 4500),
            render_mode=render_mode,
            **keywords,
        )
        env = gym.wrappers.AtariPreprocessing(env, noop_max=0, frame_skip=4)
        return gym.wrappers.FrameStackObservation(env, 4, padding_type="zero")
    if args.max_episode_steps:
        keywords["max_episode_steps"] = args.max_episode_steps
    if render_mode is not None:  # an env that renders nothing need not take the argument
        keywords["render_mode"] = render_mode
    try:
        env = gym.make(args.env_id, **keywords)
    except TypeError as error:
        if render_mode is None:
            raise
        fail(
            f"{args.env_id} cannot be built with render_mode={render_mode!r}: {error}. Let it take "
            "that argument, or leave out --capture-video and --video, or add --no-frames."
        )
    if kind == "minigrid":
        wrappers = importlib.import_module("minigrid.wrappers")
        flat = args.minigrid_obs == "flat"
        env = (wrappers.FlatObsWrapper if flat else wrappers.ImgObsWrapper)(env)
    return env  # type: ignore[no-any-return]


def make_vector_env(args: EnvArgs, kind: str, num_envs: int) -> VectorEnv:
    """Build the envs, which reset in the step that ends an episode (SAME_STEP)."""
    try:
        envs = _build(args, kind, num_envs)
    except (gym.error.Error, ImportError, TypeError) as error:
        fail(f"--env-id {args.env_id} cannot be built: {error}")
    require_discrete(args.env_id, envs.single_action_space)
    return envs


def require_discrete(env_id: str, space: gym.Space[Any]) -> None:
    """End the script with a message if the actions are not Discrete."""
    if not isinstance(space, gym.spaces.Discrete):
        fail(
            f"--env-id {env_id} has the action space {space}; this script needs Discrete actions. "
            "Choose another env, or wrap it to discretise its actions."
        )


def _build(args: EnvArgs, kind: str, num_envs: int) -> VectorEnv:
    mode, keywords = AutoresetMode.SAME_STEP, json.loads(args.env_kwargs)
    from_ram = kind == "atari" and ram_game(args)
    make_vec = partial(
        gym.make_vec,
        RAM_IDS[0] if from_ram else args.env_id,
        num_envs=num_envs,
        vectorization_mode="vector_entry_point",
        autoreset_mode=mode,
    )
    if from_ram:
        return make_vec(**_ram_keywords(args))
    if kind == "atari" and args.atari_backend == "vector":
        return make_vec(
            frameskip=4,
            repeat_action_probability=args.sticky_action_prob,
            max_num_frames_per_episode=4 * (args.max_episode_steps or 4500),
            reward_clipping=False,
            noop_max=0,
            use_fire_reset=False,
            **keywords,
        )
    entry: Any = find_spec(args.env_id).vector_entry_point
    if isinstance(entry, str):
        entry = gym.envs.registration.load_env_creator(entry)
    own = inspect.signature(entry).parameters if kind == "other" and entry else {}
    # --max-episode-steps puts a TimeLimit around each copy of the env.
    if "autoreset_mode" in own and not args.max_episode_steps:
        return make_vec(**keywords)
    return SyncVectorEnv([partial(make_env, args, kind)] * num_envs, autoreset_mode=mode)


def ram_game(args: EnvArgs) -> str | None:
    """Return the Atari game whose RAM is observed; None if its screen is."""
    spec = find_spec(args.env_id)
    if args.atari_obs != "ram" and spec.id not in RAM_IDS:
        return None
    game = {**spec.kwargs, **json.loads(args.env_kwargs)}.get("game")
    if game is None and spec.id in RAM_IDS:
        fail(f"""--env-id {args.env_id} needs a game: --env-kwargs '{{"game": "pong"}}'.""")
    return game


def _ram_keywords(args: EnvArgs) -> dict[str, Any]:
    return {
        "game": ram_game(args),
        "repeat_action_probability": args.sticky_action_prob,
        "horizon": args.max_episode_steps or 4500,
        **json.loads(args.env_kwargs),
    }


def count_key(envs: VectorEnv) -> Callable[[Any], Hashable] | None:
    """Return what the envs offer as `count_key`: what to count of an observation."""
    base: Any = envs.unwrapped
    one = base.envs[0].unwrapped if hasattr(base, "envs") else base
    return getattr(one, "count_key", None)
