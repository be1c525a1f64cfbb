"""PPO with random network distillation and a shaped intrinsic reward, in one file.

Reads top to bottom: settings, networks, environments, storage, rollout, returns, update, log,
checkpoint. The defaults are the paper's experiment on Montezuma's Revenge; `--env-id` takes any
Gymnasium env with discrete actions. Scripts of this family differ in their wrapper stack alone.

A first run of some minutes on a laptop:
    python SCRIPT --env-id MiniGrid-DoorKey-5x5-v0 --total-iterations 60 --learning-rate 1e-3
        --ent-coef 0.01 --obs-norm-init-iterations 2
The same run on K processes or GPUs, its envs split among them:
    torchrun --standalone --nproc-per-node K SCRIPT ...
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import dataclasses
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import io
import json
import math
import os
import pickle
import platform
import random
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cloudpickle
import gymnasium as gym
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import tyro
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from torch import nn
from tqdm import tqdm

# --- wrapper stack: imports
from adops_wrappers import (
    CountBonus,
    CriticHandle,
    GRMWrapper,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
)

# --- end of wrapper stack: imports


@dataclass
class Args:
    """Settings of one run."""

    env_id: str = "ALE/MontezumaRevenge-v5"
    """a Gymnasium id: an Atari game (ALE/...), a MiniGrid env, or any Box or Discrete env"""
    seed: int = 1
    """seed of networks, actions, minibatches and envs"""
    run_dir: str = ""
    """directory of this run; empty: runs/{env}__{exp}__{seed}__{time}"""
    exp_name: str = ""
    """name of the experiment in run_dir; empty: this script's name and method"""
    resume: str = ""
    """run directory to continue from its last checkpoint; settings are read from there"""
    checkpoint_every: int = 100
    """iterations between checkpoints; 0: only at the end and on SIGINT or SIGTERM"""
    save_model: bool = False
    """write the policy to model.pt at the end"""
    capture_video: bool = False
    """play and record an episode every video_every iterations (needs moviepy)"""
    video_every: int = 500
    """iterations between recorded episodes"""
    track: bool = False
    """log to Weights & Biases as well (needs wandb)"""
    wandb_project: str = "adops-wrappers"
    """project of --track"""
    tensorboard: bool = True
    """write TensorBoard events"""

    # --- wrapper stack: flags
    intrinsic_scale: float = 1.0
    """F is multiplied by it before shaping"""
    normalize: bool = False
    """subtract the running mean of F before shaping"""
    delay: int = 1
    """steps after which a bonus is taken back"""
    alpha: float = 0.05
    """smoothing of the running mean of F"""
    # --- end of wrapper stack: flags

    bonus: Literal["rnd", "count", "none"] = "rnd"
    """source of F: random network distillation, 1/sqrt(visits), or no bonus at all"""
    normalize_intrinsic: Literal["auto", "yes", "no"] = "auto"
    """divide F by the running std of its discounted return; auto: for rnd alone"""
    int_bootstrap: Literal["reset", "final", "none"] = "reset"
    """V_I at an episode end, for learner and shaping alike: of the next episode's first
    observation (non-episodic, as in RND), of the final observation, or 0 where terminated"""

    total_iterations: int = 30_000
    """iterations of one rollout and one update"""
    num_envs: int = 32
    """environments side by side, those of all ranks together"""
    num_steps: int = 128
    """steps of each environment per rollout"""
    update_epochs: int = 4
    """passes over each rollout"""
    num_minibatches: int = 4
    """minibatches per pass"""
    learning_rate: float = 1e-4
    """Adam's step size, constant"""
    adam_eps: float = 1e-8
    """Adam's epsilon"""
    gamma_ext: float = 0.999
    """discount of the extrinsic stream"""
    gamma_int: float = 0.99
    """discount of the intrinsic stream"""
    gae_lambda: float = 0.95
    """lambda of the advantage estimate, both streams"""
    clip_coef: float = 0.1
    """PPO's clip range of the probability ratio"""
    ent_coef: float = 0.001
    """weight of the entropy bonus"""
    vf_coef: float = 0.5
    """weight of the squared error of both value heads"""
    ext_coef: float = 2.0
    """weight of the extrinsic advantage"""
    int_coef: float = 1.0
    """weight of the intrinsic advantage"""
    norm_adv: bool = False
    """standardise the combined advantage in each minibatch"""
    scale_adv: bool = False
    """divide the combined advantage by its root mean square in each minibatch: signs stay"""
    max_grad_norm: float = 0.5
    """largest norm of the gradient; 0: no clipping"""
    update_proportion: float = 0.0
    """share of rows that train the RND predictor; 0: min(1, 32/num_envs)"""
    obs_norm_init_iterations: int = 50
    """rollouts of random actions that start RND's whitening and the scale of F"""

    reward_scale: float = 0.0
    """factor on the extrinsic reward, which is never clipped; 0: 0.001 on Atari, 1 elsewhere"""
    env_kwargs: str = "{}"
    """JSON of further arguments for the env, such as '{"horizon": 200}'"""
    max_episode_steps: int = 0
    """steps after which an episode is cut; 0: 4,500 on Atari, the env's own limit elsewhere"""
    sticky_action_prob: float = 0.25
    """Atari: probability per frame that the previous action is repeated"""
    atari_backend: Literal["vector", "sync"] = "vector"
    """Atari: vector is ale-py's own vector env; sync is slower and reads the rooms from RAM"""
    minigrid_obs: Literal["image", "flat"] = "image"
    """MiniGrid: the agent's 7x7 view, or the view with the mission text appended"""
    mlp_hidden: int = 64
    """width of the hidden layers where observations are no images"""

    cuda: bool = True
    """use a GPU where there is one"""
    torch_threads: int = 0
    """CPU threads of torch; 0: torch's own choice for images, 1 elsewhere"""
    amp: bool = False
    """bfloat16 autocast; for GPUs, many times slower on most CPUs"""
    compile: bool = False
    """torch.compile the networks; pays off on GPUs in long runs"""
    pin_memory: bool = False
    """copy observations to the GPU through pinned memory"""
    rank_timeout: float = 600.0
    """torchrun: seconds after which a rank that does not answer ends the run with an error"""


# --- wrapper stack
def method_name(args: Args) -> str:
    """Return the name of this run's method."""
    return "grm"


def check_method_flags(args: Args) -> None:
    """Every flag of this script belongs to its method."""


def wrap_stack(
    args: Args,
    envs: VectorEnv,
    source: Any,
    normalizer: IntrinsicReturnNormalizer | None,
    critic: CriticHandle,
) -> Any:
    """Put the source of F and the shaping method on top of the envs."""
    envs = IntrinsicRewardWrapper(envs, source, normalizer=normalizer)
    return GRMWrapper(
        envs,
        critic=critic,
        intrinsic_scale=args.intrinsic_scale,
        add_to_reward=False,
        delay=args.delay,
        gamma=args.gamma_int,
        normalize=args.normalize,
        alpha=args.alpha,
    )


# --- end of wrapper stack


def fail(message: str) -> None:
    """End the script with a message and exit code 1."""
    sys.exit(f"error: {message}")


def check_args(args: Args) -> None:
    """Refuse settings that cannot work, saying what is allowed."""
    for name in ("num_envs", "num_steps", "total_iterations", "update_epochs", "num_minibatches"):
        if getattr(args, name) < 1:
            fail(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}.")
    for name in ("gamma_ext", "gamma_int", "gae_lambda"):
        if not 0.0 <= getattr(args, name) <= 1.0:
            fail(f"--{name.replace('_', '-')} must lie in [0, 1], got {getattr(args, name)}.")
    for name in ("checkpoint_every", "obs_norm_init_iterations", "torch_threads", "reward_scale"):
        if getattr(args, name) < 0:
            fail(f"--{name.replace('_', '-')} must not be negative, got {getattr(args, name)}.")
    if args.rank_timeout <= 0.0:
        fail(f"--rank-timeout must be above 0, got {args.rank_timeout}.")
    if args.learning_rate <= 0.0:
        fail(f"--learning-rate must be above 0, got {args.learning_rate}.")
    if not 0.0 <= args.update_proportion <= 1.0:
        fail(f"--update-proportion must lie in [0, 1], got {args.update_proportion}.")
    if args.num_envs * args.num_steps % args.num_minibatches:
        fail(
            f"a rollout of num_envs*num_steps = {args.num_envs}*{args.num_steps} = "
            f"{args.num_envs * args.num_steps} rows cannot be cut into --num-minibatches "
            f"{args.num_minibatches} equal parts. Choose a divisor."
        )
    try:
        keywords = json.loads(args.env_kwargs)
    except json.JSONDecodeError:
        keywords = None
    if not isinstance(keywords, dict):
        fail(
            f"--env-kwargs must be a JSON object like '{{\"horizon\": 200}}', got {args.env_kwargs}"
        )
    if args.norm_adv and args.scale_adv:
        fail("choose --norm-adv or --scale-adv: standardising divides by the spread already.")
    if args.video_every < 1:
        fail(f"--video-every must be at least 1, got {args.video_every}.")
    check_method_flags(args)


# Ranks


class Ranks:
    """The processes of one run under torchrun; without torchrun there is one, and nothing to do.

    Every rank steps its share of the envs and computes the gradient of its own rows. Random
    numbers for actions, minibatches and masks are drawn for all envs alike on every rank, each of
    which takes its part: so the run is the one that a single process would make, up to rounding.
    """

    def __init__(self, args: Args) -> None:
        self.launched = dist.is_available() and dist.is_torchelastic_launched()
        self.rank = int(os.environ["RANK"]) if self.launched else 0
        self.world = int(os.environ["WORLD_SIZE"]) if self.launched else 1
        self.main = self.rank == 0
        self.launcher = os.getppid()
        if args.num_envs % self.world:
            fail(
                f"--num-envs {args.num_envs} cannot be split over {self.world} ranks. Choose a "
                "multiple of the number of ranks."
            )
        if self.world > 1 and args.bonus == "count":
            fail("--bonus count keeps its counts in one process; use --bonus rnd with torchrun.")
        if self.world > 1 and method_name(args) == "guarded":
            fail("the guarded scale has one beta for all envs of a process: do not use torchrun.")
        self.all_envs = args.num_envs
        self.num_envs = args.num_envs // self.world
        self.first_env = self.rank * self.num_envs
        self.envs = slice(self.first_env, self.first_env + self.num_envs)
        self.device = torch.device("cpu")
        cuda = args.cuda and torch.cuda.is_available()
        if cuda:
            local = int(os.environ["LOCAL_RANK"]) if self.launched else 0
            if local >= torch.cuda.device_count():
                fail(
                    f"rank {self.rank} wants GPU {local} of this machine, which has "
                    f"{torch.cuda.device_count()}. Start fewer ranks here, or add --no-cuda."
                )
            self.device = torch.device("cuda", local)
            torch.cuda.set_device(self.device)
        if self.world > 1:
            # Small things travel between CPUs, gradients between GPUs.
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                timeout=timedelta(seconds=args.rank_timeout),
            )

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value, in the order of ranks."""
        if self.world == 1:
            return [value]
        values = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def side_by_side(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Return arrays whose last axis holds the envs of all ranks."""
        return [np.concatenate(parts, -1) for parts in zip(*self.gather(arrays), strict=True)]

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: list[nn.Parameter], also: torch.Tensor) -> torch.Tensor:
        """Sum the gradients over all ranks, and return the sum of a vector that travels along."""
        if self.world == 1:
            return also
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.sum(torch.cat([*(g.reshape(-1) for g in gradients), also]))
        *parts, total = flat.split([*(g.numel() for g in gradients), len(also)])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view(gradient.shape))
        return total

    def same_weights(self, networks: dict[str, nn.Module]) -> None:
        """Start all ranks from the weights of the first: initialisation may differ by machine."""
        if self.world > 1:
            for network in networks.values():
                for weights in network.state_dict().values():
                    dense = weights.contiguous()  # not channels last
                    dist.broadcast(dense, 0)
                    weights.copy_(dense)

    def own_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Return which of the rows of the whole rollout are this rank's, as rows of its own."""
        if self.world == 1:
            return rows
        step, env = rows // self.all_envs, rows % self.all_envs - self.first_env
        own = (env >= 0) & (env < self.num_envs)
        return step[own] * self.num_envs + env[own]

    def close(self) -> None:
        """Leave the group."""
        if self.world > 1:
            dist.destroy_process_group()


# Networks


def layer_init(layer: nn.Module, gain: float = math.sqrt(2)) -> nn.Module:
    """Initialise a layer as Burda et al. do: orthogonal weights, no bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class ConvTrunk(nn.Module):
    """Three convolutions, output flattened in memory order (channels last), without a copy."""

    def __init__(self, shape: tuple[int, int, int], activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        height, width, channels = shape
        self.convs = nn.Sequential(
            layer_init(nn.Conv2d(channels, 32, 8, stride=4)),
            activation(),
            layer_init(nn.Conv2d(32, 64, 4, stride=2)),
            activation(),
            layer_init(nn.Conv2d(64, 64, 3, stride=1)),
            activation(),
        )
        with torch.no_grad():
            self.size = self.convs(torch.zeros(1, channels, height, width)).numel()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images of shape (n, height, width, channels) to features."""
        x = x.permute(0, 3, 1, 2)
        return self.convs(x).permute(0, 2, 3, 1).flatten(1)


def make_trunk(
    shape: tuple[int, ...], hidden: int, activation: Callable[[], nn.Module]
) -> tuple[nn.Module, int]:
    """Return the layers that turn one kind of observation into features, and their number."""
    if len(shape) == 3:
        trunk = ConvTrunk(shape, activation)
        return trunk, trunk.size
    layers = nn.Sequential(layer_init(nn.Linear(shape[0], hidden)), activation())
    return layers, hidden


class Agent(nn.Module):
    """Policy and two value heads on one trunk."""

    def __init__(self, shape: tuple[int, ...], actions: int, hidden: int) -> None:
        super().__init__()
        relu = partial(nn.ReLU, inplace=True)
        trunk, size = make_trunk(shape, hidden, relu)
        if len(shape) == 3:
            wide = 448
            body = [layer_init(nn.Linear(size, 256)), relu(), layer_init(nn.Linear(256, wide))]
        else:
            wide = hidden
            body = [layer_init(nn.Linear(size, wide))]
        self.body = nn.Sequential(trunk, *body, relu())
        self.for_policy = layer_init(nn.Linear(wide, wide), 0.1)
        self.for_values = layer_init(nn.Linear(wide, wide), 0.1)
        self.policy = layer_init(nn.Linear(wide, actions), 0.01)
        self.values = layer_init(nn.Linear(wide, 2), 0.01)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits, and V_E and V_I as two columns."""
        x = self.body(features)
        logits = self.policy(x + F.relu(self.for_policy(x)))
        return logits, self.values(x + F.relu(self.for_values(x)))


def make_rnd_networks(shape: tuple[int, ...], hidden: int) -> tuple[nn.Module, nn.Module]:
    """Return the fixed random target and the predictor that learns to imitate it."""
    leaky = partial(nn.LeakyReLU, inplace=True)
    relu = partial(nn.ReLU, inplace=True)
    out = 512 if len(shape) == 3 else hidden
    trunk, size = make_trunk(shape, hidden, leaky)
    target = nn.Sequential(trunk, layer_init(nn.Linear(size, out)))
    target.requires_grad_(False)
    trunk, size = make_trunk(shape, hidden, leaky)
    predictor = nn.Sequential(
        trunk,
        layer_init(nn.Linear(size, out)),
        relu(),
        layer_init(nn.Linear(out, out)),
        relu(),
        layer_init(nn.Linear(out, out)),
    )
    return target, predictor


# Environments


class Encoder:
    """Turns observations into the tensors that are stored and fed to the networks.

    Images are stored as uint8 with channels last, the layout in which convolutions run fastest;
    all else as flat float32 rows.
    """

    def __init__(self, space: gym.Space, kind: str, device: torch.device, pin: bool) -> None:
        self.device, self.pin = device, pin
        self.one_hot = self.image = self.channels_first = False
        self.scale = 1.0
        self.frames = slice(None)
        if isinstance(space, gym.spaces.Discrete):
            self.one_hot = True
            self.start, self.shape = int(space.start), (int(space.n),)
        elif isinstance(space, gym.spaces.Box):
            shape = space.shape
            self.image = space.dtype == np.uint8 and len(shape) == 3 and min(sorted(shape)[1:]) > 35
            self.channels_first = self.image and shape[0] == min(shape)
            if self.image:
                self.shape = (*shape[1:], shape[0]) if self.channels_first else shape
                # RND looks at the newest frame of a stack alone.
                self.frames = slice(-1, None) if kind == "atari" else slice(None)
            else:
                self.shape = (int(np.prod(shape)),)
                self.scale = (
                    {"minigrid": 0.1}.get(kind, 1 / 255) if space.dtype == np.uint8 else 1.0
                )
        else:
            fail(
                f"observations of {space} are not supported: Box and Discrete are. Wrap the env "
                "with gymnasium.wrappers.FlattenObservation under an id of your own."
            )
        self.dtype = torch.uint8 if self.image else torch.float32
        self.rnd_shape = (*self.shape[:2], 1) if self.frames.start else self.shape

    def encode(self, obs: np.ndarray) -> torch.Tensor:
        """Return a batch of observations in the layout of storage."""
        if self.image:
            tensor = torch.from_numpy(obs)
            if self.channels_first:
                tensor = tensor.permute(0, 2, 3, 1).contiguous()
        elif self.one_hot:
            rows = torch.from_numpy(np.asarray(obs, dtype=np.int64) - self.start)
            tensor = F.one_hot(rows, self.shape[0]).float()
        else:
            flat = np.asarray(obs).reshape(len(obs), -1)
            tensor = torch.from_numpy(flat.astype(np.float32))
            if self.scale != 1.0:
                tensor *= self.scale
        if self.pin and self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def features(self, stored: torch.Tensor) -> torch.Tensor:
        """Return the agent's input."""
        return stored.float().mul_(1 / 255) if self.image else stored

    def novelty(self, obs: np.ndarray) -> torch.Tensor:
        """Return RND's input before whitening: the newest frame, or the whole observation."""
        if self.frames.start and self.channels_first:
            obs = obs[:, self.frames]
        return self.encode(obs).float()


class ExtrinsicReward(VectorWrapper):
    """Records unscaled returns and lengths of episodes, and scales the reward that it passes on.

    Where the sub-envs are emulators in this process it also records the rooms, RAM byte 3.
    """

    def __init__(self, env: VectorEnv, scale: float, count_rooms: bool) -> None:
        super().__init__(env)
        self.scale, self.count_rooms = scale, count_rooms
        self.returns = np.zeros(self.num_envs)
        self.lengths = np.zeros(self.num_envs, dtype=np.int64)
        self.finished: list[tuple[float, int]] = []
        self.rooms: set[int] = set()

    def reset(self, **kwargs: Any) -> Any:
        """Reset all rows."""
        self.returns[:] = 0.0
        self.lengths[:] = 0
        return self.env.reset(**kwargs)

    def step(self, actions: Any) -> Any:
        """Step, record, scale."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        reward = np.asarray(reward, dtype=np.float64)
        self.returns += reward
        self.lengths += 1
        ended = np.logical_or(terminated, truncated)
        if ended.any():
            scores, lengths = self.returns[ended].tolist(), self.lengths[ended].tolist()
            self.finished += zip(scores, lengths, strict=True)
            self.returns[ended] = 0.0
            self.lengths[ended] = 0
        if self.count_rooms:
            self.rooms.update(int(e.unwrapped.ale.getRAM()[3]) for e in self.unwrapped.envs)
        return obs, reward * self.scale, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """Return the running episodes and the rooms."""
        return {
            "returns": self.returns.copy(),
            "lengths": self.lengths.copy(),
            "rooms": sorted(self.rooms),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.returns[:], self.lengths[:] = state["returns"], state["lengths"]
        self.rooms = set(state["rooms"])


def env_kind(env_id: str) -> str:
    """Return atari, minigrid or other, after importing the package that registers the env."""
    package = {"ALE": "ale_py", "MiniGrid": "minigrid", "BabyAI": "minigrid"}
    prefix = env_id.replace("-", "/").split("/")[0]
    if prefix in package:
        try:
            module = importlib.import_module(package[prefix])
        except ImportError:
            extra = {"ale_py": "atari"}.get(package[prefix], package[prefix])
            fail(f'{env_id} needs a package: pip install "adops-wrappers[{extra}]"')
        gym.register_envs(module)
    elif env_id not in gym.registry:
        with contextlib.suppress(ImportError):
            gym.register_envs(importlib.import_module("ale_py"))
    spec = gym.registry.get(env_id)
    if prefix == "ALE" or (spec is not None and str(spec.entry_point).startswith("ale_py")):
        return "atari"
    return "minigrid" if package.get(prefix) == "minigrid" else "other"


def current_id(env_id: str) -> str:
    """Translate the paper's ALE/...-v4, which no longer exists, and say so."""
    if env_id.startswith("ALE/") and env_id.endswith("-v4"):
        newer = env_id[:-1] + "5"
        print(
            f"{env_id} does not exist in today's ale-py. Running {newer} instead, with the "
            "settings of this script: frameskip 4, max over two frames, sticky actions."
        )
        return newer
    return env_id


def make_env(args: Args, kind: str, render_mode: str | None = None) -> gym.Env:
    """Build one env, preprocessed as the vector envs are."""
    limit = {"max_episode_steps": args.max_episode_steps} if args.max_episode_steps else {}
    if kind == "atari":
        env = gym.make(
            args.env_id,
            frameskip=1,
            repeat_action_probability=args.sticky_action_prob,
            max_num_frames_per_episode=4 * (args.max_episode_steps or 4500),
            render_mode=render_mode,
            **json.loads(args.env_kwargs),
        )
        env = gym.wrappers.AtariPreprocessing(env, noop_max=0, frame_skip=4)
        return gym.wrappers.FrameStackObservation(env, 4)
    env = gym.make(args.env_id, render_mode=render_mode, **limit, **json.loads(args.env_kwargs))
    if kind == "minigrid":
        wrappers = importlib.import_module("minigrid.wrappers")
        env = (wrappers.ImgObsWrapper if args.minigrid_obs == "image" else wrappers.FlatObsWrapper)(
            env
        )
    return env


def make_vector_env(args: Args, kind: str) -> VectorEnv:
    """Build the envs; all of them reset within the step that ends an episode (SAME_STEP)."""
    mode = AutoresetMode.SAME_STEP
    try:
        if kind == "atari" and args.atari_backend == "vector":
            return gym.make_vec(
                args.env_id,
                num_envs=args.num_envs,
                vectorization_mode="vector_entry_point",
                autoreset_mode=mode,
                frameskip=4,
                repeat_action_probability=args.sticky_action_prob,
                max_num_frames_per_episode=4 * (args.max_episode_steps or 4500),
                reward_clipping=False,
                noop_max=0,
                use_fire_reset=False,
                **json.loads(args.env_kwargs),
            )
        spec = gym.spec(args.env_id)
        entry = spec.vector_entry_point
        if isinstance(entry, str):
            entry = gym.envs.registration.load_env_creator(entry)
        own = inspect.signature(entry).parameters if kind == "other" and entry else {}
        # Without a limit of its own an env is cut by a TimeLimit around each copy.
        if "autoreset_mode" in own and not args.max_episode_steps:
            return gym.make_vec(
                args.env_id,
                num_envs=args.num_envs,
                vectorization_mode="vector_entry_point",
                autoreset_mode=mode,
                **json.loads(args.env_kwargs),
            )
        return SyncVectorEnv([partial(make_env, args, kind)] * args.num_envs, autoreset_mode=mode)
    except (gym.error.Error, TypeError) as error:
        fail(f"--env-id {args.env_id} cannot be built: {error}")
        raise


# Intrinsic reward


class Whitening:
    """Running mean and variance of RND's inputs, moved between iterations alone."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self.mean = torch.zeros(shape, dtype=torch.float64, device=device)
        self.var = torch.ones(shape, dtype=torch.float64, device=device)
        self.count = 1e-4
        self.sum, self.squares = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        self.rows = 0
        self._refresh()

    def observe(self, x: torch.Tensor) -> None:
        """Collect a batch; it counts from the next `update` on."""
        x = x.double()
        self.sum += x.sum(0)
        self.squares += x.square_().sum(0)
        self.rows += len(x)

    def share(self, ranks: Ranks) -> None:
        """Add up what all ranks have collected."""
        self.sum, self.squares = ranks.sum(self.sum), ranks.sum(self.squares)
        self.rows *= ranks.world

    def update(self) -> None:
        """Merge what was collected into the moments (Chan et al. 1979)."""
        if self.rows == 0:
            return
        mean = self.sum / self.rows
        var = (self.squares / self.rows - mean.square()).clamp_min_(0.0)
        total = self.count + self.rows
        gap = mean - self.mean
        weighted = self.var * self.count + var * self.rows
        self.var = (weighted + gap.square() * (self.count * self.rows / total)) / total
        self.mean = self.mean + gap * (self.rows / total)
        self.count = total
        self.sum.zero_()
        self.squares.zero_()
        self.rows = 0
        self._refresh()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return (x - mean)/std, clipped to +-5."""
        return ((x - self._shift) * self._scale).clamp_(-5.0, 5.0)

    def _refresh(self) -> None:
        self._shift = self.mean.float()
        self._scale = (1.0 / (self.var.sqrt() + 1e-6)).float()

    def state_dict(self) -> dict[str, Any]:
        """Return the moments."""
        return {"mean": self.mean.cpu(), "var": self.var.cpu(), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.mean = state["mean"].to(self.mean.device)
        self.var = state["var"].to(self.var.device)
        self.count = state["count"]
        self._refresh()


class RNDBonus:
    """F = mean squared error of the predictor on the true next observation.

    What was scored is kept, with the target's features: the predictor trains on the same
    inputs, and the target runs once per rollout.
    """

    def __init__(
        self,
        encoder: Encoder,
        target: nn.Module,
        predictor: nn.Module,
        steps: int,
        num_envs: int,
        clock: dict[str, float],
    ) -> None:
        self.encoder, self.target, self.predictor, self.clock = encoder, target, predictor, clock
        self.whitening = Whitening(encoder.rnd_shape, encoder.device)
        features = target[-1].out_features
        make = partial(torch.zeros, device=encoder.device)
        self.inputs = make((steps, num_envs, *encoder.rnd_shape))
        self.targets = make((steps, num_envs, features))
        self.steps, self.t = steps, 0

    def reward(self, obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        """Score one vector step."""
        started = time.perf_counter()
        with torch.inference_mode():
            x = self.encoder.novelty(next_obs)
            white = self.whitening(x)
            self.whitening.observe(x)
            target = self.target(white)
            error = (self.predictor(white) - target).float().square().mean(-1)
            self.inputs[self.t] = white
            self.targets[self.t] = target
            self.t = (self.t + 1) % self.steps
            answer = error.cpu().numpy()
        self.clock["bonus"] += time.perf_counter() - started
        return answer

    def loss(self, rows: torch.Tensor, count: int | None = None) -> torch.Tensor:
        """Return the predictor's loss on rows of the flattened rollout; only they are computed.

        Args:
            rows: The rows.
            count: Over how many rows to take the mean, if others sum up the rest.
        """
        inputs = self.inputs.flatten(0, 1).index_select(0, rows)
        targets = self.targets.flatten(0, 1).index_select(0, rows)
        errors = F.mse_loss(self.predictor(inputs).float(), targets, reduction="sum")
        return errors / ((count or len(rows)) * targets.shape[1])


def no_bonus(obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
    """Return F = 0."""
    return np.zeros(len(action))


def warm_up(
    args: Args,
    envs: VectorEnv,
    bonus: RNDBonus,
    normalizer: IntrinsicReturnNormalizer | None,
    ranks: Ranks,
) -> None:
    """Start RND's whitening with random actions, and F's scale with the last of their rollouts.

    Runs below the source, so that counts, debts and schedules do not move.
    """
    rng = np.random.default_rng(args.seed)
    first, n = envs.single_action_space.start, envs.single_action_space.n
    envs.reset(seed=args.seed + ranks.first_env)
    last: list[torch.Tensor] = []
    steps = args.obs_norm_init_iterations * args.num_steps
    quiet = None if ranks.main else True
    for step in tqdm(range(steps), "random steps that start RND's whitening", disable=quiet):
        obs = envs.step(first + rng.integers(0, n, args.num_envs)[ranks.envs])[0]
        x = bonus.encoder.novelty(obs)
        bonus.whitening.observe(x)
        if step >= steps - args.num_steps:
            last.append(x)
    bonus.whitening.share(ranks)
    bonus.whitening.update()
    if normalizer is not None:
        with torch.inference_mode():
            for x in last:
                white = bonus.whitening(x)
                error = bonus.predictor(white) - bonus.target(white)
                normalizer(error.float().square().mean(-1).cpu().numpy())
        normalizer.update(ranks.gather(normalizer.collected))


# Returns


def gae(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    goes_on: np.ndarray,
    gamma: np.ndarray,
    lam: float,
) -> np.ndarray:
    """Return the generalised advantages of both streams.

    Args:
        rewards: R and F', shape (steps, 2, envs), as all arrays but gamma.
        values: V(s).
        next_values: V(s') as each stream bootstraps it, zero where it does not.
        goes_on: 0 where the trace stops, 1 elsewhere.
        gamma: The two discounts, shape (2, 1).
        lam: lambda.
    """
    deltas = rewards + gamma * next_values - values
    decay = gamma * lam * goes_on
    advantages = np.empty_like(deltas)
    running = np.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        running = deltas[t] + decay[t] * running
        advantages[t] = running
    return advantages


def bootstrap(
    values: np.ndarray,
    final_values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    int_bootstrap: str,
    settles_debt: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return V(s') and the trace mask of both streams, shape (steps, 2, envs).

    The extrinsic stream ends with the episode: V = 0 where terminated, V of the final
    observation where truncated. The intrinsic stream does as `int_bootstrap` says, but never
    bootstraps over an end at which the method has settled its debt: that would count it twice.

    Args:
        values: V of every observation, one step more than the rollout.
        final_values: V of the final observations, zero where no episode ended.
        terminated: Shape (steps, envs).
        truncated: Shape (steps, envs).
        int_bootstrap: What V_I(s') is at an end.
        settles_debt: Whether the method pays back at every end.
    """
    ended = terminated | truncated
    next_values, goes_on = values[1:].copy(), np.ones_like(final_values)
    next_values[:, 0][ended] = np.where(terminated, 0.0, final_values[:, 0])[ended]
    goes_on[:, 0][ended] = 0.0
    if settles_debt:
        next_values[:, 1][ended] = 0.0
    elif int_bootstrap == "final":
        next_values[:, 1][ended] = final_values[:, 1][ended]
    elif int_bootstrap == "none":
        next_values[:, 1][ended] = np.where(terminated, 0.0, final_values[:, 1])[ended]
    if settles_debt or int_bootstrap != "reset":
        goes_on[:, 1][ended] = 0.0
    return next_values, goes_on


def explained_variance(values: np.ndarray, returns: np.ndarray) -> float:
    """Return 1 - Var(returns - values)/Var(returns); NaN for constant returns."""
    variance = np.var(returns)
    return float(1.0 - np.var(returns - values) / variance) if variance > 0.0 else math.nan


def clip_gradients(parameters: list[nn.Parameter], largest: float) -> torch.Tensor:
    """Scale all gradients down to a common norm of at most `largest`; return their norm.

    PBIM's debts make gradients whose squares leave float32: those are first divided by their
    largest entry, else clipping would turn them into zeros.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if not torch.isfinite(norm):
        peak = torch.stack([g.abs().max() for g in gradients]).max()
        if not torch.isfinite(peak):
            return norm
        torch._foreach_div_(gradients, peak)
        inner = nn.utils.get_total_norm(gradients)
        torch._foreach_mul_(gradients, (largest or float(peak)) / inner if largest else peak)
        return norm
    if largest:
        torch._foreach_mul_(gradients, torch.clamp(largest / (norm + 1e-6), max=1.0))
    return norm


# Log


LOSSES = [
    "losses/policy_loss",
    "losses/value_loss_ext",
    "losses/value_loss_int",
    "losses/entropy",
    "losses/old_approx_kl",
    "losses/approx_kl",
    "losses/clipfrac",
    "losses/fwd_loss",
    "losses/grad_norm",
]


def shaping_metrics(
    rewards: np.ndarray,
    raw: np.ndarray,
    correction: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    gamma: np.ndarray,
) -> dict[str, float]:
    """Return what the method did to F, and how often raw F contradicts the critic.

    A conflict is a step at which the raw bonus turns the sign of the extrinsic one-step
    advantage: A_E < 0 but A_E + A_I >= 0, or the other way round (the clamp of ADOPS).
    """
    advantage_ext = rewards[:, 0] + gamma[0] * next_values[:, 0] - values[:, 0]
    advantage_int = raw + gamma[1] * next_values[:, 1] - values[:, 1]
    conflict = (advantage_ext < 0.0) != (advantage_ext + advantage_int < 0.0)
    metrics = {}
    for name, array in (("raw", raw), ("shaped", rewards[:, 1]), ("correction", correction)):
        for statistic in ("mean", "min", "max"):
            metrics[f"shaping/{name}_{statistic}"] = float(getattr(array, statistic)())
    metrics["shaping/conflict_rate"] = float(conflict.mean())
    metrics["shaping/intervention_rate"] = float((correction != 0.0).mean())
    return metrics


class Log:
    """Writes every iteration once: metrics.csv, TensorBoard, and W&B through it."""

    def __init__(self, args: Args, run_dir: Path, start: int) -> None:
        self.path = run_dir / "metrics.csv"
        self.columns: list[str] = []
        if self.path.exists():
            self._keep_until(start)
        self.file = self.path.open("a", newline="")
        self.csv = csv.writer(self.file)
        self.writer = None
        if args.tensorboard or args.track:
            if args.track:
                start_wandb(args, run_dir)
            from torch.utils.tensorboard import SummaryWriter

            # Events beyond the checkpoint are written again: TensorBoard forgets the first ones.
            purge = (start + 1) * args.num_envs * args.num_steps if args.resume else None
            self.writer = SummaryWriter(str(run_dir), purge_step=purge)

    def _keep_until(self, iteration: int) -> None:
        with self.path.open(newline="") as file:
            rows = list(csv.reader(file))
        # The last row of a killed run may be cut short.
        whole = [row for row in rows[1:] if len(row) == len(rows[0])]
        kept = [row for row in whole if int(row[0]) <= iteration]
        text = io.StringIO()
        if kept:
            self.columns = rows[0]
            csv.writer(text).writerows([rows[0], *kept])
        write_atomically(self.path, text.getvalue().encode())

    def write(self, iteration: int, global_step: int, metrics: dict[str, float | None]) -> None:
        """Add one iteration; None is an empty cell."""
        if not self.columns:
            self.columns = ["iteration", "global_step", *metrics]
            self.csv.writerow(self.columns)
        cells = [metrics[name] for name in self.columns[2:]]
        try:
            self.csv.writerow(
                [iteration, global_step, *("" if c is None else repr(c) for c in cells)]
            )
            self.file.flush()
        except OSError as error:
            with contextlib.suppress(OSError):
                self.file.close()
            fail(
                f"cannot write to {self.path}: {error.strerror}. The last checkpoint is kept: free "
                f"some space and continue with --resume {self.path.parent}"
            )
        if self.writer is not None:
            for name, value in metrics.items():
                if value is not None:
                    self.writer.add_scalar(name, value, global_step)

    def close(self) -> None:
        """Flush and close."""
        self.file.close()
        if self.writer is not None:
            self.writer.close()


def start_wandb(args: Args, run_dir: Path) -> None:
    """Start W&B before TensorBoard, whose scalars it copies."""
    try:
        import wandb
    except ImportError:
        fail("--track needs Weights & Biases: pip install wandb")
    wandb.init(
        project=args.wandb_project,
        name=run_dir.name,
        id=hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:16],
        resume="allow",
        config=dataclasses.asdict(args),
        dir=str(run_dir),
        sync_tensorboard=True,
    )


# Checkpoints


KEPT_CHECKPOINTS = 2


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the system lets folders be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def to_plain(value: Any) -> Any:
    """Replace numpy arrays by tensors and bytes keys by a tensor: loading then runs no code."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict) and value and all(isinstance(key, bytes) for key in value):
        lengths = torch.tensor([len(key) for key in value])
        joined = torch.frombuffer(bytearray(b"".join(value)), dtype=torch.uint8)
        return {"bytes": joined, "lengths": lengths, "counts": torch.tensor(list(value.values()))}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(value: Any) -> Any:
    """Undo `to_plain`; what was a tuple stays a list."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, dict) and value.keys() == {"bytes", "lengths", "counts"}:
        joined, ends = value["bytes"].numpy().tobytes(), value["lengths"].cumsum(0).tolist()
        keys = (joined[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True))
        return dict(zip(keys, value["counts"].tolist(), strict=True))
    if isinstance(value, dict):
        return {key: from_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    return value


def random_states(generator: torch.Generator) -> dict[str, Any]:
    """Return the state of every random number generator of this process."""
    version, words, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "actions": generator.get_state(),
    }


def restore_random_states(state: dict[str, Any], generator: torch.Generator) -> None:
    """Take over what `random_states` returned."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    generator.set_state(state["actions"])


def pickle_envs(envs: VectorEnv, kind: str) -> bytes | None:
    """Return the envs as bytes, or None if they cannot be restored exactly."""
    base = envs.unwrapped
    # Emulators and EzPickle envs pickle without complaint and come back in another state.
    parts = [base, *(env.unwrapped for env in getattr(base, "envs", []))]
    if kind == "atari" or any(isinstance(part, gym.utils.EzPickle) for part in parts):
        return None
    try:
        return cloudpickle.dumps(envs)
    except Exception:
        return None


def env_file(rank: int) -> str:
    """Return the name of the file with the env state of one rank."""
    return f"envs{rank or ''}.pkl"


def save_checkpoint(run_dir: Path, state: dict[str, Any], envs: list[bytes | None]) -> None:
    """Write checkpoints/ITERATION in one step, then drop all but the last two."""
    folder = run_dir / "checkpoints"
    folder.mkdir(exist_ok=True)
    temporary = folder / ".writing"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    files = {"state.pt": buffer.getvalue()}
    files |= {env_file(rank): data for rank, data in enumerate(envs) if data is not None}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    files["sha256.json"] = json.dumps(hashes).encode()
    for name, data in files.items():
        write_atomically(temporary / name, data)
    final = folder / f"{state['iteration']:08d}"
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    sync_folder(folder)
    for old in sorted(p for p in folder.iterdir() if p.name.isdigit())[:-KEPT_CHECKPOINTS]:
        shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(run_dir: Path, rank: int = 0) -> tuple[dict[str, Any], bytes | None] | None:
    """Return the newest undamaged checkpoint and a rank's envs, or None if there is none at all."""
    folder = run_dir / "checkpoints"
    found = sorted((p for p in folder.glob("*") if p.name.isdigit()), reverse=True)
    for path in found:
        try:
            hashes = json.loads((path / "sha256.json").read_text())
            files = {name: (path / name).read_bytes() for name in hashes}
            for name, data in files.items():
                if hashlib.sha256(data).hexdigest() != hashes[name]:
                    raise ValueError(f"{name} does not match its checksum")
            state = torch.load(io.BytesIO(files["state.pt"]), weights_only=True, map_location="cpu")
            return state, files.get(env_file(rank))
        except Exception as error:
            print(f"Checkpoint {path} is damaged ({error}); trying the one before.")
    if found:
        fail(f"every checkpoint in {folder} is damaged. Start a new run.")
    return None


FREE_ON_RESUME = (
    *("resume", "run_dir", "exp_name", "checkpoint_every", "save_model", "capture_video"),
    *("video_every", "track", "wandb_project", "tensorboard", "torch_threads", "cuda"),
    *("compile", "pin_memory", "rank_timeout"),
)
"""Settings that do not change what is learned."""


def parse_args(argv: list[str] | None = None) -> Args:
    """Read the command line; with --resume the run's own settings are the defaults."""
    args = tyro.cli(Args, args=argv, description=__doc__)
    if not args.resume:
        args.env_id = current_id(args.env_id)
        check_args(args)
        return args
    path = Path(args.resume) / "config.json"
    if not path.is_file():
        fail(f"--resume {args.resume}: there is no {path}, so this is not a run directory.")
    saved = json.loads(path.read_text())["args"]
    known = {f.name for f in dataclasses.fields(Args)}
    if saved.keys() - {"resume"} != known - {"resume"}:
        odd = sorted(saved.keys() ^ known)
        fail(f"--resume {args.resume} was written by another script or version: {odd} differ.")
    original = Args(**saved)
    # Parsed again on top of the run's settings: what differs now was typed by the user.
    args = tyro.cli(Args, args=argv, default=original, description=__doc__)
    args.env_id = current_id(args.env_id)
    different = [
        f"--{name.replace('_', '-')} is {value!r} there and {getattr(args, name)!r} here"
        for name, value in saved.items()
        if name not in FREE_ON_RESUME and getattr(args, name) != value
    ]
    if different:
        fail(
            f"--resume {args.resume}: the checkpoint has other settings: {'; '.join(different)}. "
            "Drop these flags, or start a new run."
        )
    args.run_dir = args.resume
    check_args(args)
    return args


def open_run_dir(args: Args) -> Path:
    """Return the run directory, made and tried out."""
    name = args.exp_name or f"{Path(__file__).stem}_{method_name(args)}"
    stamp = f"{args.env_id.replace('/', '-')}__{name}__{args.seed}__{int(time.time())}"
    run_dir = Path(args.run_dir or Path("runs") / stamp)
    if not args.resume and (run_dir / "metrics.csv").exists():
        fail(
            f"{run_dir} holds a run already. Continue it with --resume {run_dir}, or choose "
            "another --run-dir."
        )
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        write_atomically(run_dir / ".try", b"x")
        (run_dir / ".try").unlink()
    except OSError as error:
        fail(f"cannot write to {run_dir}: {error.strerror}. Choose another --run-dir.")
    return run_dir


def disk_needed(modules: list[nn.Module], args: Args) -> int:
    """Return the bytes that a run needs: checkpoints and logs."""
    weights = sum(p.numel() * 4 for module in modules for p in module.parameters())
    # Weights and two moments, two checkpoints and the one being written, a kilobyte a row of log.
    return 9 * weights + 2048 * args.total_iterations + 2**20


def check_disk(run_dir: Path, modules: list[nn.Module], args: Args) -> None:
    """Stop before training if the disk cannot hold the checkpoints and logs."""
    needed, free = disk_needed(modules, args), shutil.disk_usage(run_dir).free
    if free < needed:
        fail(
            f"{run_dir} has {free / 2**20:.0f} MB free, the run needs about "
            f"{needed / 2**20:.0f} MB. Free some space or choose another --run-dir."
        )


def write_config(args: Args, run_dir: Path, method: str) -> None:
    """Write config.json: settings, versions and machine."""
    versions = {"python": platform.python_version()}
    for package in ("adops-wrappers", "gymnasium", "numpy", "torch", "ale-py", "minigrid"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    config = {
        "script": Path(__file__).name,
        "method": method,
        "args": {**dataclasses.asdict(args), "resume": ""},
        "versions": versions,
        "machine": {"platform": platform.platform(), "cpus": os.cpu_count()},
    }
    write_atomically(run_dir / "config.json", json.dumps(config, indent=2).encode())


def write_status(run_dir: Path, iteration: int, finished: bool, reason: str) -> None:
    """Say in status.json how far the run has come and why it stopped."""
    status = {"iteration": iteration, "finished": finished, "reason": reason}
    write_atomically(run_dir / "status.json", json.dumps(status).encode())


def save_model(run_dir: Path, args: Args, agent: nn.Module) -> None:
    """Write the policy alone, for evaluate.py and for sharing."""
    buffer = io.BytesIO()
    torch.save({"args": dataclasses.asdict(args), "agent": agent.state_dict()}, buffer)
    write_atomically(run_dir / "model.pt", buffer.getvalue())


class StopOnSignal:
    """Lets SIGINT and SIGTERM end the run after the current iteration; a second one at once.

    torchrun passes on the signal that the terminal has already sent; there it is the launcher,
    not the second signal, that ends ranks which take too long.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.received, self.requested = "", ""
        self.ranks = ranks
        self.before = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}

    def _handle(self, number: int, frame: Any) -> None:
        if not self.received:
            self.received = signal.Signals(number).name
            said = f"{self.received}: finishing this iteration and writing a checkpoint."
            print(f"\n{said}", flush=True)
        if not self.ranks.launched:
            self.restore()

    def agree(self) -> None:
        """Stop all ranks after the same iteration, also when only one has got the signal.

        A signal may come while the ranks talk: it then counts in the next iteration.
        """
        if self.ranks.launched and os.getppid() != self.ranks.launcher:
            self.received = "the death of its launcher"
        self.requested = next(filter(None, self.ranks.gather(self.received)), "")

    def restore(self) -> None:
        """Put back the handlers found at the start."""
        for number, handler in self.before.items():
            signal.signal(number, handler)


# Speed


def keep_malloc_pages() -> None:
    """Let glibc reuse the pages of large tensors; otherwise each is mapped and zeroed anew.

    Worth 1.25 to 1.35 of the whole on CPU. Other C libraries have no mallopt: nothing happens.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
        libc.mallopt(m_top_pad, 2**28)


def announce_duration(args: Args, agent: nn.Module, bonus: Any, encoder: Encoder) -> None:
    """Say up front what the full run takes on this machine, from one trial minibatch."""
    rows = args.num_envs * args.num_steps // args.num_minibatches
    for _ in range(2):  # the first pass also sets up the kernels
        started = time.perf_counter()
        stored = torch.zeros((rows, *encoder.shape), dtype=encoder.dtype)
        logits, values = agent(encoder.features(stored))
        (logits.sum() + values.sum()).backward()
        agent.zero_grad(set_to_none=True)
        if isinstance(bonus, RNDBonus):
            bonus.predictor(torch.zeros((rows, *encoder.rnd_shape))).sum().backward()
            bonus.predictor.zero_grad(set_to_none=True)
    # Learning takes about three quarters of an iteration.
    seconds = (time.perf_counter() - started) * args.update_epochs * args.num_minibatches / 0.75
    hours = seconds * args.total_iterations / 3600
    print(
        f"No GPU in use: {args.total_iterations} iterations will take about {hours:.0f} hours "
        f"({hours / 24:.1f} days) on this CPU, some {seconds:.0f} s each. For something smaller "
        "try --total-iterations 20, or an env that needs no images: "
        "--env-id MiniGrid-DoorKey-5x5-v0 --total-iterations 60 --learning-rate 1e-3 "
        "--ent-coef 0.01 --obs-norm-init-iterations 2 takes about a minute.",
        flush=True,
    )


class Answer(NamedTuple):
    """What the agent says of a batch of observations, through the critic handle."""

    value_ext: np.ndarray
    value_int: np.ndarray
    logits: torch.Tensor
    stored: torch.Tensor
    """The observations in the layout of storage."""


class Episode(NamedTuple):
    """One episode of evaluation."""

    score: float
    length: int
    rooms: set[int]
    frames: list[np.ndarray]


def play_episode(
    agent: nn.Module,
    encoder: Encoder,
    env: gym.Env,
    seed: int,
    greedy: bool = False,
    film: bool = False,
) -> Episode:
    """Play one episode; draws from a generator of its own, so that training is not disturbed."""
    generator = torch.Generator().manual_seed(seed)
    has_rooms = env.spec is not None and "Montezuma" in env.spec.id
    obs, _ = env.reset(seed=seed)
    score, length, rooms, frames, ended = 0.0, 0, set(), [], False
    while not ended:
        if film:
            frames.append(env.render())
        with torch.inference_mode():
            logits, _ = agent(encoder.features(encoder.encode(np.asarray(obs)[None])))
            probs = logits.float().softmax(-1).cpu()
            choice = probs.argmax() if greedy else torch.multinomial(probs, 1, generator=generator)
        obs, reward, terminated, truncated, _ = env.step(int(choice) + int(env.action_space.start))
        if has_rooms:
            rooms.add(int(env.unwrapped.ale.getRAM()[3]))
        score, length, ended = score + float(reward), length + 1, terminated or truncated
    return Episode(score, length, rooms, frames)


def write_video(frames: list[np.ndarray], path: Path, fps: float) -> None:
    """Write frames as an mp4."""
    from moviepy.video.io.ImageSequenceClip import ImageSequenceClip

    path.parent.mkdir(parents=True, exist_ok=True)
    ImageSequenceClip(frames, fps=fps).write_videofile(str(path), logger=None)


def train(args: Args) -> Path:
    """Run the experiment and return its directory."""
    keep_malloc_pages()
    ranks = Ranks(args)
    if not ranks.main:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (open as long as the process lives)
    run_dir = ranks.gather(open_run_dir(args) if ranks.main else None)[0]
    random.seed(args.seed + ranks.first_env)
    np.random.seed(args.seed + ranks.first_env)  # noqa: NPY002 (envs may use it)
    torch.manual_seed(args.seed)
    device = ranks.device
    autocast = partial(torch.autocast, device.type, dtype=torch.bfloat16, enabled=args.amp)
    if args.capture_video and importlib.util.find_spec("moviepy") is None:
        fail("--capture-video needs moviepy: pip install moviepy")
    clock = dict.fromkeys(("forward", "bonus", "rollout", "update"), 0.0)

    # Environments below the source of F
    kind = env_kind(args.env_id)
    own_args = dataclasses.replace(args, num_envs=ranks.num_envs)
    base = make_vector_env(own_args, kind)
    action_space = base.single_action_space
    if not isinstance(action_space, gym.spaces.Discrete):
        fail(
            f"--env-id {args.env_id} has the action space {action_space}; this script needs "
            "Discrete actions. Choose another env, or wrap it to discretise its actions."
        )
    reward_scale = args.reward_scale or (0.001 if kind == "atari" else 1.0)
    count_rooms = kind == "atari" and args.atari_backend == "sync"
    statistics = ExtrinsicReward(base, reward_scale, count_rooms)

    # Networks
    encoder = Encoder(base.single_observation_space, kind, device, args.pin_memory)
    if args.torch_threads or not encoder.image:
        # Small layers lose more to the handing over between threads than they win.
        torch.set_num_threads(args.torch_threads or 1)
    agent = Agent(encoder.shape, int(action_space.n), args.mlp_hidden)
    agent = agent.to(device, memory_format=torch.channels_last)
    networks: dict[str, nn.Module] = {"agent": agent}
    if args.bonus == "rnd":
        target, predictor = make_rnd_networks(encoder.rnd_shape, args.mlp_hidden)
        networks["target"] = target.to(device, memory_format=torch.channels_last)
        networks["predictor"] = predictor.to(device, memory_format=torch.channels_last)
        source: Any = RNDBonus(encoder, target, predictor, args.num_steps, ranks.num_envs, clock)
    elif args.bonus == "count":
        source = CountBonus()
    else:
        source = no_bonus
    if ranks.main:
        check_disk(run_dir, list(networks.values()), args)
    ranks.same_weights(networks)
    parameters = [p for net in networks.values() for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=args.learning_rate, eps=args.adam_eps, fused=True)
    forward = agent
    if args.compile:
        forward = torch.compile(agent)
        if args.bonus == "rnd":
            source.predictor = torch.compile(predictor)

    # The stack; one network pass serves the wrapper and the agent
    def evaluate(obs: np.ndarray) -> Answer:
        started = time.perf_counter()
        with torch.inference_mode(), autocast():
            stored = encoder.encode(obs)
            logits, values = forward(encoder.features(stored))
            value_ext, value_int = values.float().cpu().numpy().T
        clock["forward"] += time.perf_counter() - started
        return Answer(value_ext, value_int, logits.float(), stored)

    critic = CriticHandle(evaluate)
    normalizer = None
    if args.normalize_intrinsic == "yes" or (
        args.normalize_intrinsic == "auto" and args.bonus == "rnd"
    ):
        normalizer = IntrinsicReturnNormalizer(
            ranks.num_envs, gamma=args.gamma_int, update="manual"
        )
    try:
        envs = wrap_stack(args, statistics, source, normalizer, critic)
    except ValueError as error:
        fail(str(error))
    source_wrapper = envs.env

    # Storage of this rank's envs; a batch is that of all ranks
    steps, num_envs, batch = args.num_steps, ranks.num_envs, args.num_steps * args.num_envs
    stored = torch.zeros((steps, num_envs, *encoder.shape), dtype=encoder.dtype, device=device)
    logits = torch.zeros((steps, num_envs, int(action_space.n)), device=device)
    actions = torch.zeros((steps, num_envs), dtype=torch.int64, device=device)
    rewards = np.zeros((steps, 2, num_envs))
    values, final_values = np.zeros((steps + 1, 2, num_envs)), np.zeros((steps, 2, num_envs))
    raw, correction = np.zeros((steps, num_envs)), np.zeros((steps, num_envs))
    terminated = np.zeros((steps, num_envs), dtype=np.bool_)
    truncated = np.zeros((steps, num_envs), dtype=np.bool_)
    gamma = np.array([[args.gamma_ext], [args.gamma_int]])
    recent: deque[float] = deque(maxlen=100)
    proportion = args.update_proportion or min(1.0, 32 / args.num_envs)
    generator = torch.Generator(device).manual_seed(args.seed)

    # Start or resume
    if ranks.main:
        write_config(args, run_dir, envs.shaper.describe())
    start, episodes = 0, 0
    checkpoint = load_checkpoint(run_dir, ranks.rank) if args.resume else None
    if checkpoint is None:
        if args.resume:
            print(f"{run_dir} has no checkpoint yet: starting at iteration 1.")
        if device.type == "cpu" and encoder.image and args.total_iterations >= 1000 and ranks.main:
            announce_duration(own_args, agent, source, encoder)
        if args.bonus == "rnd" and args.obs_norm_init_iterations:
            random_steps = args.obs_norm_init_iterations * batch
            print(f"Starting RND's whitening with {random_steps} random steps.", flush=True)
            warm_up(args, base, source, normalizer, ranks)
        next_obs, _ = envs.reset(seed=args.seed + ranks.first_env)
    else:
        state, pickled = checkpoint
        if len(state["ranks"]) != ranks.world:
            fail(
                f"--resume {args.resume}: the checkpoint was written by {len(state['ranks'])} "
                f"ranks, this run has {ranks.world}. Start it with torchrun --nproc-per-node "
                f"{len(state['ranks'])}, or as one process if that is 1."
            )
        own = state["ranks"][ranks.rank]
        start, episodes = state["iteration"], state["episodes"]
        for name, net in networks.items():
            net.load_state_dict(state["networks"][name])
        optimizer.load_state_dict(state["optimizer"])
        if args.bonus == "rnd":
            source.whitening.load_state_dict(state["whitening"])
        recent.extend(state["recent"])
        if pickled is not None:
            statistics.env = pickle.loads(pickled)
            envs.load_state_dict(from_plain(own["shaping"]))
            source_wrapper.load_state_dict(from_plain(own["source"]))
            statistics.load_state_dict(from_plain(own["statistics"]))
            next_obs = from_plain(own["next_obs"])
            print(f"Resuming {run_dir} after iteration {start}.")
        else:
            # Method, scale and counts go on; the episodes begin anew.
            envs.load_state_dict(from_plain(own["shaping"]))
            source_wrapper.load_state_dict(from_plain(own["source"]))
            statistics.rooms = set(own["statistics"]["rooms"])
            next_obs, _ = envs.reset(seed=(args.seed + 1_000_003 * start) % 2**30 + ranks.first_env)
            print(
                f"Resuming {run_dir} after iteration {start}. The state of these environments "
                "cannot be saved: they restart from reset, running episodes are dropped."
            )
        restore_random_states(own["random"], generator)

    def checkpoint_now(iteration: int) -> None:
        own = {
            "shaping": to_plain(envs.state_dict()),
            "source": to_plain(source_wrapper.state_dict()),
            "statistics": to_plain(statistics.state_dict()),
            "next_obs": to_plain(next_obs),
            "random": random_states(generator),
        }
        owns, pickled = zip(*ranks.gather((own, pickle_envs(statistics.env, kind))), strict=True)
        if not ranks.main:
            return
        state = {
            "iteration": iteration,
            "episodes": episodes,
            "args": dataclasses.asdict(args),
            "networks": {name: net.state_dict() for name, net in networks.items()},
            "optimizer": optimizer.state_dict(),
            "whitening": source.whitening.state_dict() if args.bonus == "rnd" else None,
            "recent": list(recent),
            "ranks": list(owns),
        }
        try:
            save_checkpoint(run_dir, state, list(pickled))
        except OSError as error:
            print(f"Cannot write a checkpoint ({error}). The previous one is kept.")

    log = Log(args, run_dir, start) if ranks.main else None
    stop = StopOnSignal(ranks)
    bar = tqdm(
        total=args.total_iterations,
        initial=start,
        unit="it",
        disable=None if ranks.main else True,
        smoothing=0.05,
    )
    reason, iteration = "finished", start
    several = f", {ranks.world} ranks" if ranks.world > 1 else ""
    print(f"{run_dir}: {envs.shaper.describe()} on {args.env_id}, {device}{several}", flush=True)
    began = said = time.perf_counter()

    for iteration in range(start + 1, args.total_iterations + 1):
        # Rollout
        iteration_began = time.perf_counter()
        clock["forward"] = clock["bonus"] = 0.0
        statistics.finished.clear()
        zeta = envs.shaper.zeta
        final_values[:] = 0.0
        for t in range(steps):
            answer = critic(next_obs)
            stored[t] = answer.stored
            logits[t] = answer.logits
            values[t, 0], values[t, 1] = answer.value_ext, answer.value_int
            # The largest p/e with e ~ Exp(1) is a sample from p.
            noise = torch.empty((args.num_envs, int(action_space.n)), device=device)
            noise = noise.exponential_(generator=generator)[ranks.envs]
            action = (answer.logits.softmax(-1) / noise).argmax(-1)
            actions[t] = action
            next_obs, _, terminated[t], truncated[t], info = envs.step(
                action.cpu().numpy() + action_space.start
            )
            rewards[t, 0], rewards[t, 1] = info["extrinsic_reward"], info["intrinsic_reward"]
            raw[t], correction[t] = info["raw_intrinsic_reward"], info["shaping_correction"]
            if "final_value_ext" in info:
                final_values[t] = info["final_value_ext"], info["final_value_int"]
        answer = critic(next_obs)
        values[steps, 0], values[steps, 1] = answer.value_ext, answer.value_int
        clock["rollout"] = time.perf_counter() - iteration_began

        # Returns
        next_values, goes_on = bootstrap(
            values,
            final_values,
            terminated,
            truncated,
            args.int_bootstrap,
            envs.shaper.settles_debt,
        )
        advantages = gae(rewards, values[:-1], next_values, goes_on, gamma, args.gae_lambda)
        returns = advantages + values[:-1]
        combined = args.ext_coef * advantages[:, 0] + args.int_coef * advantages[:, 1]

        # Statistics of all ranks
        all_rewards, all_raw, all_correction, all_values, all_next, all_returns, all_combined = (
            ranks.side_by_side(
                rewards, raw, correction, values[:-1], next_values, returns, combined
            )
        )
        shaping = shaping_metrics(
            all_rewards,
            all_raw * envs.core.intrinsic_scale,
            all_correction,
            all_values,
            all_next,
            gamma,
        )

        # Update
        update_began = time.perf_counter()
        to_device = partial(torch.as_tensor, dtype=torch.float32, device=device)
        flat_stored, flat_actions = stored.flatten(0, 1), actions.flatten()
        flat_advantages, all_advantages = (
            to_device(array).flatten() for array in (combined, all_combined)
        )
        flat_returns = to_device(returns.transpose(0, 2, 1)).flatten(0, 1)
        with torch.no_grad():
            old = logits.flatten(0, 1).log_softmax(-1)
            old_logprobs = old.gather(1, flat_actions[:, None]).squeeze(1)
            certainty = torch.stack([old_logprobs.exp().mean(), old.exp().amax(-1).mean()])
            action_prob, action_prob_max = (ranks.sum(certainty) / ranks.world).tolist()
        losses: list[torch.Tensor] = []
        healthy = True
        for _ in range(args.update_epochs):
            order = torch.randperm(batch).to(device)
            for minibatch in order.split(batch // args.num_minibatches):
                # Sums over this rank's rows, divided by the rows of all ranks
                rows, count = ranks.own_rows(minibatch), len(minibatch)
                with autocast():
                    new_logits, new_values = forward(
                        encoder.features(flat_stored.index_select(0, rows))
                    )
                logprobs = new_logits.float().log_softmax(-1)
                logratio = logprobs.gather(1, flat_actions[rows, None]).squeeze(1)
                logratio = logratio - old_logprobs[rows]
                ratio = logratio.exp()
                advantage = flat_advantages[rows]
                if args.norm_adv:
                    everyone = all_advantages[minibatch]
                    advantage = (advantage - everyone.mean()) / (everyone.std() + 1e-8)
                elif args.scale_adv:
                    everyone = all_advantages[minibatch]
                    advantage = advantage / (everyone.square().mean().sqrt() + 1e-8)
                surrogate = torch.max(
                    -advantage * ratio,
                    -advantage * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef),
                )
                policy_loss = surrogate.sum() / count
                value_losses = (new_values.float() - flat_returns[rows]).square().sum(0) / count
                entropy = -(logprobs.exp() * logprobs).sum(-1).sum() / count
                loss = policy_loss + args.vf_coef * value_losses.sum() - args.ent_coef * entropy
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                fwd_loss = loss.new_zeros(())
                if args.bonus == "rnd":
                    trained = minibatch
                    if proportion < 1.0:
                        # Rows that are masked out of the loss never enter the predictor.
                        trained = minibatch[torch.rand(count).to(device) < proportion]
                    if len(trained):
                        with autocast():
                            fwd_loss = source.loss(ranks.own_rows(trained), len(trained))
                        fwd_loss.backward()
                with torch.no_grad():
                    summed = ranks.sum_gradients(
                        parameters,
                        torch.stack(
                            [
                                policy_loss,
                                value_losses[0],
                                value_losses[1],
                                entropy,
                                -logratio.sum() / count,
                                ((ratio - 1) - logratio).sum() / count,
                                ((ratio - 1.0).abs() > args.clip_coef).float().sum() / count,
                                fwd_loss,
                                loss,
                            ]
                        ),
                    )
                grad_norm = clip_gradients(parameters, args.max_grad_norm)
                losses.append(torch.stack([*summed[:-1], grad_norm]))
                if torch.isnan(summed[-2:]).any() or torch.isnan(grad_norm):
                    healthy = False
                    break
                optimizer.step()
            if not healthy:
                break
        if not healthy:
            reason = "NaN"
            break
        critic.updated()
        if normalizer is not None:
            normalizer.update(ranks.gather(normalizer.collected))
        if args.bonus == "rnd":
            source.whitening.share(ranks)
            source.whitening.update()
        clock["update"] = time.perf_counter() - update_began

        # Log
        global_step = iteration * batch
        finished = [episode for part in ranks.gather(statistics.finished) for episode in part]
        episodes += len(finished)
        recent.extend(score for score, _ in finished)
        means = torch.stack(losses).mean(0).tolist()
        seconds = time.perf_counter() - iteration_began
        metrics: dict[str, float | None] = {
            "charts/episodic_return": float(np.mean([r for r, _ in finished]))
            if finished
            else None,
            "charts/episodic_length": float(np.mean([n for _, n in finished]))
            if finished
            else None,
            "charts/episodic_return_recent": float(np.mean(recent)) if recent else None,
            "charts/episodes": episodes,
            "charts/learning_rate": args.learning_rate,
            "charts/action_prob": action_prob,
            "charts/action_prob_max": action_prob_max,
            "charts/intrinsic_std": 1.0 if normalizer is None else normalizer.std,
            **dict(zip(LOSSES, means, strict=True)),
            "losses/value_loss": means[1] + means[2],
            "losses/explained_variance_ext": explained_variance(
                all_values[:, 0], all_returns[:, 0]
            ),
            "losses/explained_variance_int": explained_variance(
                all_values[:, 1], all_returns[:, 1]
            ),
            **shaping,
            "shaping/zeta": zeta,
            "charts/SPS": batch / seconds,
            "time/env": clock["rollout"] - clock["forward"] - clock["bonus"],
            "time/forward": clock["forward"],
            "time/bonus": clock["bonus"],
            "time/update": clock["update"],
        }
        if count_rooms:
            metrics["charts/rooms"] = len(set().union(*ranks.gather(statistics.rooms)))
        if log is not None:
            log.write(iteration, global_step, metrics)
        shown = f"{np.mean(recent):.3g}" if recent else "-"
        bar.set_postfix_str(f"SPS {batch / seconds:.0f}, return {shown}", refresh=False)
        bar.update()
        if bar.disable and time.perf_counter() - said > 30.0:
            said = time.perf_counter()
            left = (said - began) / (iteration - start) * (args.total_iterations - iteration)
            print(
                f"iteration {iteration}/{args.total_iterations}, SPS {batch / seconds:.0f}, "
                f"return {shown}, {left / 60:.1f} min left",
                flush=True,
            )

        # Checkpoint
        stop.agree()
        if stop.requested:
            reason = f"stopped by {stop.requested}"
        if (
            iteration == args.total_iterations
            or stop.requested
            or (args.checkpoint_every and iteration % args.checkpoint_every == 0)
        ):
            checkpoint_now(iteration)
        if args.capture_video and iteration % args.video_every == 0 and ranks.main:
            film_env = make_env(args, kind, "rgb_array")
            episode = play_episode(agent, encoder, film_env, args.seed, film=True)
            write_video(episode.frames, run_dir / "videos" / f"{iteration:08d}.mp4", 30)
            film_env.close()
        if stop.requested:
            break

    bar.close()
    stop.restore()
    finished_all = reason == "finished"
    if log is not None:
        log.close()
        write_status(run_dir, iteration, finished_all, reason)
    envs.close()
    ranks.close()
    if reason == "NaN":
        fail(
            f"the loss or its gradient became NaN in iteration {iteration}. The last good "
            f"checkpoint is kept in {run_dir / 'checkpoints'}. Lower --learning-rate, look at "
            "shaping/shaped_max in metrics.csv, and check the env for unscaled rewards."
        )
    if args.save_model and finished_all and ranks.main:
        save_model(run_dir, args, agent)
    if finished_all:
        print(f"Finished {iteration} iterations: {run_dir}")
    else:
        print(f"Run {reason} after iteration {iteration}. Continue with --resume {run_dir}")
    return run_dir


if __name__ == "__main__":
    train(parse_args())
