"""The flags shared by the training scripts, and how a command line becomes settings."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from adops_wrappers import __version__
from adops_wrappers.training.checkpoint import load
from adops_wrappers.training.distributed import silence_other_ranks
from adops_wrappers.training.envs import current_id, env_kind, find_spec
from adops_wrappers.training.exit import fail
from adops_wrappers.training.help_text import show_help
from adops_wrappers.training.rundir import read_config, require_run


@dataclass
class EnvArgs:
    """Which env, and how it is built."""

    env_id: str = "ALE/MontezumaRevenge-v5"
    """a Gymnasium id: an Atari game (ALE/...), a MiniGrid env, or any Box or Discrete env"""
    reward_scale: float = 0.0
    """factor on the extrinsic reward, never clipped; 0 means 0.001 on Atari, 1 elsewhere"""
    env_kwargs: str = "{}"
    """further arguments for the env as JSON, such as '{"horizon": 200}'"""
    max_episode_steps: int = 0
    """steps before an episode is truncated; 0 means 4,500 on Atari, the env's limit elsewhere"""
    sticky_action_prob: float = 0.25
    """Atari: probability, per frame, of repeating the previous action"""
    atari_backend: Literal["vector", "sync"] = "vector"
    """Atari images: ale-py's own vector env; or sync, slower, but it reads the room from RAM"""
    atari_obs: Literal["image", "ram"] = "image"
    """Atari: the screen, or the RAM as features, which is many times cheaper to learn from"""
    minigrid_obs: Literal["image", "flat"] = "image"
    """MiniGrid: the agent's 7x7 view, or the view with the mission text appended"""


@dataclass
class RunArgs:
    """How a run is carried out. This does not affect what is learned, so a resume may change it."""

    run_dir: str = ""
    """directory of this run; empty means runs/{env}__{exp}__{seed}__{time}"""
    exp_name: str = ""
    """{exp} in the default run_dir; empty means the names of the script and the method"""
    resume: str = ""
    """run directory to continue from its last checkpoint, with its settings"""
    checkpoint_every: int = 100
    """iterations between checkpoints; 0 means only at the end and on SIGINT or SIGTERM; one that
    cannot be written is tried again with the next"""
    save_model: bool = False
    """write the policy to model.pt at the end"""
    capture_video: bool = False
    """record an episode every video_every iterations (needs moviepy)"""
    video_every: int = 500
    """iterations between recorded episodes"""
    track: bool = False
    """also log to Weights & Biases (needs wandb)"""
    wandb_project: str = "adops-wrappers"
    """Weights & Biases project of --track"""
    tensorboard: bool = True
    """write TensorBoard events"""
    cuda: bool = True
    """use a GPU if there is one"""
    torch_threads: int = 0
    """CPU threads of torch; 0 means torch's default for images, 1 otherwise"""
    compile: bool = False
    """compile the networks with torch.compile; pays off in long runs on a GPU"""
    pin_memory: bool = False
    """copy observations to the GPU through pinned memory"""
    rank_timeout: float = 600.0
    """torchrun: seconds to wait for a rank that does not answer before the run fails"""


@dataclass
class PrecisionArgs:
    """Precision of the update. Acting, values and bonus are always computed in float32."""

    amp: bool = False
    """bfloat16 autocast in the update, for GPUs; many times slower on most CPUs"""
    tf32: bool = False
    """allow TensorFloat-32 in the update, for GPUs"""


@dataclass
class PresetArgs:
    """Whose code the hyperparameters follow where codes differ."""

    preset: Literal["default", "burda", "paper"] = "default"
    """follow Burda's code or the paper's (PPO-RND) where ours differs; this sets
    end_at_truncation, max_grad_norm, minibatch_rows and scale_adv, with paper also rnd_slope,
    restart_return_filter and root_gains; a flag overrides it"""


_BURDA = {
    "end_at_truncation": True,
    "max_grad_norm": 0.0,
    "minibatch_rows": "whole-envs",
    "scale_adv": False,
}
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "burda": _BURDA,
    "paper": {
        **_BURDA,
        "minibatch_rows": "with-replacement",
        "rnd_slope": 0.01,
        "restart_return_filter": True,
        "root_gains": True,
    },
}
"""What --preset changes; from Python: `Args(**PRESETS["burda"])`."""


Auto = Annotated[
    bool, tyro.conf.arg(help_behavior_hint="(default: on outside Atari, unless --norm-adv)")
]
"""A flag whose default `scales_by_default` decides; from Python: None until the run starts."""


class ScriptArgs(RunArgs, PrecisionArgs, PresetArgs, EnvArgs):
    """Base of a script's `Args`, which adds hyperparameters; this package reads those below."""

    seed: int
    bonus: str
    total_iterations: int
    num_envs: int
    num_steps: int
    update_epochs: int
    num_minibatches: int
    minibatch_rows: str
    norm_adv: bool
    scale_adv: bool | None


Args = TypeVar("Args", bound=ScriptArgs)

FREE_ON_RESUME = frozenset(f.name for f in dataclasses.fields(RunArgs))
"""Settings that do not affect what is learned."""
LARGEST_SEED = 2**31 - 1
"""Emulators take seeds of 31 bits."""


def read_command_line(
    kind: type[Args],
    argv: Sequence[str] | None = None,
    about: str | None = None,
    readers: Mapping[str, Sequence[str]] | None = None,
) -> Args:
    """Return the settings; --resume takes the defaults from that run.

    Args:
        kind: The script's `Args`.
        argv: The flags; None means those of this process.
        about: The text above the flags in --help.
        readers: For a script with --shaping: the methods that read each of their flags.
    """
    silence_other_ranks()
    known: dict[str, Any] = {"scale_adv": False}
    if {"-h", "--help"} & set(sys.argv[1:] if argv is None else argv):
        show_help(kind(**known), about)
    args = tyro.cli(kind, args=argv, default=kind(**known), description=about)
    if args.resume:
        args = _resumed(kind, args.resume, argv, about)
    else:
        args.env_id = env_id = current_id(args.env_id)
        # Parsed again on top of the defaults that follow from flags, so that flags override them.
        known = {"scale_adv": scales_by_default(args), **PRESETS[args.preset]}
        args = tyro.cli(kind, args=argv, default=kind(**known), description=about)
        args.env_id = env_id
    check_args(args)
    refuse_unread_flags(args, readers or {})
    return args


def scales_by_default(args: ScriptArgs) -> bool:
    """Whether advantages are scaled unless the user says: where the paper's settings do not apply.

    Once a small env is solved, unscaled advantages are so small that the entropy bonus outweighs
    them, and the agent unlearns the task.
    """
    return not args.norm_adv and env_kind(args.env_id) != "atari"


def _resumed(kind: type[Args], run_dir: str, argv: Sequence[str] | None, about: str | None) -> Args:
    require_run(Path(run_dir))
    saved = read_settings(Path(run_dir))
    known = {f.name for f in dataclasses.fields(kind)}
    if saved.keys() - {"resume"} != known - {"resume"}:
        odd = ", ".join(sorted((saved.keys() ^ known) - {"resume"}))
        version = read_config(Path(run_dir)).get("versions", {}).get("adops-wrappers")
        if version not in (None, __version__):
            fail(
                f"--resume {run_dir}: adops-wrappers {version} wrote this run, and this is "
                f"{__version__}, whose scripts have other settings ({odd}). Continue it with "
                f"version {version}, or start a new run."
            )
        fail(f"--resume {run_dir}: another script wrote this run; its settings differ: {odd}.")
    # Parsed again on top of the run's settings: what differs now was typed by the user.
    args = tyro.cli(kind, args=argv, default=kind(**saved), description=about)
    args.env_id = current_id(args.env_id)
    different = [
        f"--{dashed(name)} is {value!r} there and {getattr(args, name)!r} here"
        for name, value in saved.items()
        if name not in FREE_ON_RESUME and getattr(args, name) != value
    ]
    if different:
        fail(
            f"--resume {run_dir}: the run has other settings: {'; '.join(different)}. "
            "Drop these flags, or start a new run."
        )
    args.run_dir = run_dir
    return args


def read_settings(run_dir: Path, free: Container[str] = FREE_ON_RESUME) -> dict[str, Any]:
    """Return the settings of a run to resume: those of its checkpoint.

    Where an earlier resume may have changed them (`free`), those of config.json count. If that file
    differs in others or is damaged, a message says so, and the run will rewrite it.
    """
    # Without a word: the run itself reports skipped checkpoints, once it holds the lock.
    with contextlib.redirect_stdout(None):
        checkpoint = load(run_dir)
    config, problem = {}, ""
    try:
        config = read_config(run_dir)["args"]
    except FileNotFoundError as error:
        problem = f"{error.filename} is missing"
    except (OSError, ValueError) as error:
        problem = str(error)
    if checkpoint is None:
        if problem:
            fail(f"--resume {run_dir}: {problem}, and there is no checkpoint. Start a new run.")
        return config
    saved = checkpoint.state["args"]
    changed = [
        f"{name} is {config.get(name)!r} there and {value!r} in the checkpoint"
        for name, value in saved.items()
        if config and name not in free and config.get(name) != value
    ]
    if changed:
        problem = f"{run_dir / 'config.json'} was changed: {'; '.join(changed)}"
    if problem:
        print(f"{problem}. Using the checkpoint's settings and rewriting config.json.")
    return {k: config.get(k, v) if k in free else v for k, v in saved.items()}


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "be at least 1": (
        lambda x: x >= 1,
        "num_envs num_steps total_iterations update_epochs num_minibatches video_every",
    ),
    "lie in [0, 1]": (
        lambda x: 0.0 <= x <= 1.0,
        "gamma_ext gamma_int gae_lambda update_proportion",
    ),
    "not be negative": (
        lambda x: x >= 0,
        "checkpoint_every obs_norm_init_iterations torch_threads reward_scale",
    ),
    "be above 0": (lambda x: x > 0.0, "rank_timeout learning_rate"),
}


def check_args(args: ScriptArgs) -> None:
    """Refuse settings that cannot work, saying what is allowed."""
    for rule, (is_allowed, names) in _RULES.items():
        for name in names.split():
            if not is_allowed(getattr(args, name)):
                fail(f"--{dashed(name)} must {rule}, got {getattr(args, name)}.")
    # Env i is seeded with seed + i.
    last = LARGEST_SEED - args.num_envs + 1
    if not 0 <= args.seed <= last:
        fail(f"--seed must lie in [0, {last}] with {args.num_envs} envs, got {args.seed}.")
    batch = args.num_envs * args.num_steps
    if batch % args.num_minibatches:
        fail(
            f"a rollout of num_envs*num_steps = {args.num_envs}*{args.num_steps} = {batch} rows "
            f"cannot be cut into --num-minibatches {args.num_minibatches} equal parts. Choose a "
            "divisor."
        )
    if args.minibatch_rows == "whole-envs" and args.num_envs % args.num_minibatches:
        fail(
            f"--minibatch-rows whole-envs cannot divide --num-envs {args.num_envs} among "
            f"--num-minibatches {args.num_minibatches}. Choose a divisor."
        )
    if args.norm_adv and batch == args.num_minibatches:
        fail(
            "--norm-adv needs minibatches of at least 2 rows: one row has no spread. Lower "
            f"--num-minibatches {args.num_minibatches}, or use --scale-adv."
        )
    if args.atari_obs == "ram" and env_kind(args.env_id) != "atari":
        fail(f"--atari-obs ram is for Atari games; {args.env_id} is none. Drop the flag.")
    images = env_kind(args.env_id) == "atari" and args.atari_obs == "image"
    if images and args.atari_backend == "vector" and not find_spec(args.env_id).vector_entry_point:
        fail(
            f"--env-id {args.env_id} has no vector env. Choose a game of ALE/…, such as "
            "ALE/Pong-v5, or add --atari-backend sync."
        )
    if args.norm_adv and args.scale_adv:
        fail("choose --norm-adv or --scale-adv: standardising divides by the spread already.")
    try:
        keywords = json.loads(args.env_kwargs)
    except json.JSONDecodeError:
        keywords = None
    if not isinstance(keywords, dict):
        fail(
            f"--env-kwargs must be a JSON object like '{{\"horizon\": 200}}', got {args.env_kwargs}"
        )


def refuse_unread_flags(args: ScriptArgs, readers: Mapping[str, Sequence[str]]) -> None:
    """Refuse a flag that the chosen method would silently ignore."""
    defaults = {f.name: f.default for f in dataclasses.fields(args)}
    for name, methods in readers.items():
        chosen = getattr(args, "shaping", "")
        if chosen not in methods and getattr(args, name) != defaults[name]:
            fail(
                f"--{dashed(name)} is a setting of {', '.join(methods)}; --shaping {chosen} does "
                "not read it. Drop the flag or change --shaping."
            )


def dashed(name: str) -> str:
    """Return a setting's name as typed on the command line."""
    return name.replace("_", "-")
