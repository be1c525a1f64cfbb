"""One training run from start to end: everything around the algorithm."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib.metadata
import importlib.util
import os
import pickle
import platform
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import nn

from adops_wrappers import __version__
from adops_wrappers.inspect import runs
from adops_wrappers.meter import CriticMeter
from adops_wrappers.methods import find_method
from adops_wrappers.stack import load_stack_state_dict, stack_state_dict
from adops_wrappers.training import checkpoint
from adops_wrappers.training.args import ScriptArgs, scales_by_default
from adops_wrappers.training.distributed import Array, Ranks, silence_other_ranks
from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.envs import count_key, env_kind, make_env, make_vector_env
from adops_wrappers.training.exit import StopOnSignal, StoppedEarly, fail, fail_incomplete
from adops_wrappers.training.log import Log
from adops_wrappers.training.play import play_episode, write_video
from adops_wrappers.training.progress import Clock, ProgressBar, Watch, announce_duration
from adops_wrappers.training.rundir import RunDir, is_run
from adops_wrappers.training.update import allow_tf32

PACKAGES = ("gymnasium", "numpy", "ale-py", "minigrid")
"""Packages whose versions config.json records, besides torch and this one."""


class Run:
    """Ranks, directory, seeds, checkpoints, log, signals and progress of one run.

    A script calls, in this order: `make_envs`, `track` with everything that has a state, `restore`
    with its wrapper stack, and `log` once in each of `iterations`. As a context manager it releases
    the run directory however the script ends. (`inspect.runs.Run` reads what this one has written.)

    Args:
        args: The script's settings.
        script: The script's file.
        method: The name of the shaping method.
    """

    def __init__(self, args: ScriptArgs, script: str, method: str) -> None:
        keep_malloc_pages()
        silence_other_ranks()
        self.args, self.script, self.method = args, Path(script), method
        if args.scale_adv is None:
            args.scale_adv = scales_by_default(args)
        why_not = _indivisible(args, method)
        self.ranks = Ranks(
            args.num_envs, cuda=args.cuda, timeout=args.rank_timeout, indivisible=why_not
        )
        self.device = self.ranks.device
        allow_tf32(False)
        if args.capture_video and importlib.util.find_spec("moviepy") is None:
            fail("--capture-video needs moviepy: pip install moviepy")
        self.clock = Clock()
        self.iteration = 0
        """The current iteration; before the first one, the number already done."""
        self._meter = CriticMeter(args.num_envs, gamma_ext=getattr(args, "gamma_ext", 1.0))
        self._tracked: dict[str, Any] = {"meter": self._meter}
        self._log: Log | None = None
        self._last_save_failed = False
        self._cleanup = ExitStack()

    def __enter__(self) -> Run:
        """Lock the run directory and seed everything."""
        self._dir = self._open_dir() if self.ranks.main else None
        if self._dir is not None:
            self._cleanup.callback(self._dir.release)
        self.path: Path = self.ranks.gather(self._dir and self._dir.path)[0]
        # Torch draws for the envs of all ranks, each of which uses its part; the other generators
        # serve this rank's envs alone.
        seed, own_seed = self.args.seed, self.args.seed + self.ranks.first_env
        random.seed(own_seed)
        np.random.seed(own_seed)  # noqa: NPY002 (envs may use it)
        torch.manual_seed(seed)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        """Draws the actions."""
        self._stop = StopOnSignal(self.ranks)
        self._cleanup.callback(self._stop.restore)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        early = isinstance(error, StoppedEarly)
        if early:
            then = "Nothing is kept of this run."
            if is_run(self.path):
                # That of a finished run that was resumed stays.
                if self._dir is not None and not (self.path / "status.json").exists():
                    self._dir.write_status(self.iteration, False, f"stopped by {error}")
                then = f"Continue with --resume {self.path}"
            print(f"\n{error}: stopped before an iteration began. {then}", flush=True)
        self._cleanup.close()
        return early

    def _open_dir(self) -> RunDir:
        args = self.args
        if args.resume:
            return RunDir.reopen(args.resume)
        name = args.exp_name or f"{self.script.stem}_{self.method}"
        env_id = args.env_id.replace("/", "-").replace(":", "-")
        stamp = f"{env_id}__{name}__{args.seed}__{int(time.time())}"
        return RunDir.create(args.run_dir, stamp)

    # The start

    def make_envs(self) -> tuple[VectorEnv, Encoder]:
        """Return this rank's envs, from the checkpoint if possible, and their encoder."""
        args, self._kind = self.args, env_kind(self.args.env_id)
        self._checkpoint = self._load_checkpoint() if args.resume else None
        pickled = self._checkpoint.envs if self._checkpoint else None
        if pickled is None:
            self._envs = make_vector_env(args, self._kind, self.ranks.num_envs)
        else:
            self._envs = pickle.loads(pickled)
        self._cleanup.callback(self._envs.close)
        if args.capture_video and self.ranks.main:
            make_env(args, self._kind, "rgb_array").close()  # fails now rather than in mid-run
        space = self._envs.single_observation_space
        key = count_key(self._envs)
        self._encoder = Encoder(space, self._kind, self.device, args.pin_memory, key)
        if args.torch_threads or not self._encoder.image:
            # For small layers, the overhead of threads exceeds their gain.
            torch.set_num_threads(args.torch_threads or 1)
        return self._envs, self._encoder

    def _load_checkpoint(self) -> checkpoint.Checkpoint | None:
        found = checkpoint.load(self.path, self.ranks.rank)
        if found is None:
            print(f"{self.path} has no checkpoint yet: starting at iteration 1.")
        elif (ranks := len(found.state["ranks"])) != self.ranks.world:
            fail(
                f"--resume {self.args.resume}: the checkpoint was written by {ranks} ranks, this "
                f"run has {self.ranks.world}. Start it with torchrun --nproc-per-node {ranks}, or "
                "as one process if that is 1."
            )
        return found

    def track(self, **parts: Any) -> None:
        """Name the parts kept in checkpoints: each has a `state_dict`, equal on all ranks.

        `agent` is the part that plays in videos and is saved as model.pt.
        """
        self._tracked |= parts
        if self._dir is not None:
            modules = [part for part in parts.values() if isinstance(part, nn.Module)]
            self._dir.check_space(disk_needed(modules, self.args.total_iterations))

    def judge(self, delta: Array, value: Array, reward: Array, after: Array, *ends: Array) -> Any:
        """Return what the returns so far say of the critic, after a rollout of (steps, 2, envs)."""
        task = (part[: len(delta), 0] for part in (delta, value, reward, after))
        steps = self.ranks.side_by_side_on_main(*task, *ends)
        if self.ranks.main:
            self._meter.rollout(*steps)
        return self._meter.metrics()

    def restore(self, stack: Any) -> bool:
        """Restore all tracked parts and the wrapper stack from the checkpoint, if there is one.

        Returns:
            Whether there was a checkpoint; if not, the script must reset the envs.
        """
        self._stack = stack
        if self._dir is not None:
            self._dir.write_config(self._config())
        if self._checkpoint is None:
            self._announce_duration()
            return False
        state, self.iteration = self._checkpoint.state, self._checkpoint.iteration
        own = state["ranks"][self.ranks.rank]
        for name, part in self._tracked.items():
            part.load_state_dict(state["shared"][name])
        load_stack_state_dict(stack, checkpoint.from_plain(own["stack"]))
        said = f"Resuming {self.path} after iteration {self.iteration}."
        if self._checkpoint.envs is None:
            # Method, scale and counts continue; episodes start over.
            seed = (self.args.seed + 1_000_003 * self.iteration) % 2**30
            stack.reset(seed=seed + self.ranks.first_env)
            self._meter.reset()
            said += (
                " These environments cannot save their state: they start again from reset, and "
                "unfinished episodes are dropped."
            )
        print(said)
        checkpoint.restore_random_states(own["random"], self.generator)
        return True

    def _config(self) -> dict[str, Any]:
        # Only torch itself knows its build: PyPI's 2.15.0 is 2.15.0+cu132.
        versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
        # Not from the metadata, which an editable install keeps from an earlier version.
        versions["adops-wrappers"] = __version__
        for package in PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[package] = importlib.metadata.version(package)
        return {
            "script": self.script.name,
            "method": self._stack.shaper.describe(),
            "args": {**dataclasses.asdict(self.args), "resume": ""},
            "versions": versions,
            "machine": {"platform": platform.platform(), "cpus": os.cpu_count()},
        }

    def _announce_duration(self) -> None:
        long = self._encoder.image and self.args.total_iterations >= 1000
        if long and self.device.type == "cpu" and self.ranks.main:
            agent, predictor = self._tracked["agent"], self._tracked.get("predictor")
            announce_duration(self.args, self.ranks.num_envs, agent, predictor, self._encoder)

    # The iterations

    def iterations(self) -> Iterator[int]:
        """Count the iterations; after each, save, film or stop if due."""
        args, ranks = self.args, self.ranks
        self._log = self._open_log() if ranks.main else None
        self._saver = checkpoint.Saver(self.path, self.iteration or None)
        stop = self._stop
        stop.begin()
        self._progress = ProgressBar(self.iteration, args.total_iterations, ranks.mute)
        self._cleanup.callback(self._progress.close)
        if self._log is not None:
            done = runs.Metrics(self._config()) if self._checkpoint is None else runs.Run(self.path)
            self._watch = Watch(done, args.total_iterations, self._progress.say)
        several = f", {ranks.world} ranks" if ranks.world > 1 else ""
        method = self._stack.shaper.describe()
        print(f"{self.path}: {method} on {args.env_id}, {self.device}{several}", flush=True)
        for iteration in range(self.iteration + 1, args.total_iterations + 1):
            self.iteration = iteration
            self.clock.restart()
            yield iteration
            stop.agree()
            due = args.checkpoint_every and iteration % args.checkpoint_every == 0
            if due or stop.requested or iteration == args.total_iterations:
                self._save()
            if args.capture_video and iteration % args.video_every == 0 and ranks.main:
                self._film()
            if stop.requested:
                break
        self._finish(f"stopped by {stop.requested}" if stop.requested else "finished")

    def _open_log(self) -> Log:
        args, found = self.args, self._checkpoint
        wandb = {"project": args.wandb_project, "config": dataclasses.asdict(args)}
        log = Log(
            self.path,
            found.metrics if found else None,
            tensorboard=args.tensorboard,
            purge_step=self._steps(self.iteration + 1) if args.resume else None,
            wandb=wandb if args.track else None,
        )
        self._cleanup.callback(log.close)
        return log

    def draw_noise(self, actions: int) -> torch.Tensor:
        """Return Exp(1) noise for this rank's rollout, shape (steps, envs, actions).

        Every rank draws it for the envs of all ranks, so that their number changes nothing.
        """
        shape = (self.args.num_envs, actions)
        rows = (torch.empty(shape, device=self.device) for _ in range(self.args.num_steps))
        drawn = [row.exponential_(generator=self.generator) for row in rows]
        return torch.stack(drawn)[:, self.ranks.envs]

    def _steps(self, iteration: int) -> int:
        """Return the number of steps of all envs until the end of an iteration."""
        return iteration * self.args.num_envs * self.args.num_steps

    def log(self, metrics: dict[str, float | None]) -> None:
        """Write the metrics of this iteration; None is an empty cell."""
        if self._log is not None:
            step = self._steps(self.iteration)
            self._log.write(self.iteration, step, metrics)
            self._watch.add({"iteration": self.iteration, "global_step": step, **metrics})
        self._progress.show(
            self.iteration, metrics["charts/SPS"], metrics["charts/episodic_return_recent"]
        )

    def _save(self) -> None:
        own = {
            "stack": checkpoint.to_plain(stack_state_dict(self._stack)),
            "random": checkpoint.random_states(self.generator),
        }
        gathered = self.ranks.gather_on_main((own, checkpoint.pickle_envs(self._envs)))
        if self._log is None:
            return
        owns, envs = zip(*gathered, strict=True)
        state = {
            "args": dataclasses.asdict(self.args),
            "shared": {k: checkpoint.to_plain(v.state_dict()) for k, v in self._tracked.items()},
            "ranks": list(owns),
        }
        # The rows reach the disk before the checkpoint that counts on them.
        mark = self._log.sync()
        self._last_save_failed = not self._saver.save(self.iteration, state, list(envs), mark)

    def _film(self) -> None:
        agent, env = self._tracked["agent"], make_env(self.args, self._kind, "rgb_array")
        episode = play_episode(agent, self._encoder, env, self.args.seed, film=True)
        write_video(episode.frames, self.path / "videos" / f"{self.iteration:08d}.mp4")
        env.close()

    # The end

    def stop_if_nan(self, losses: torch.Tensor) -> None:
        """End the run with a message if one of these is NaN; all ranks must pass the same.

        Call this once per update, before any of it is saved: the host waits for the device.
        """
        if not losses.isnan().any():
            return
        self._write_status("NaN")
        fail(
            f"the loss or its gradient became NaN in iteration {self.iteration}. The last good "
            f"checkpoint is kept in {self.path / 'checkpoints'}. Lower --learning-rate, look at "
            "shaping/shaped_max in metrics.csv, and check the env for unscaled rewards."
        )

    def _finish(self, reason: str) -> None:
        if self._last_save_failed:
            self._write_status("its last checkpoint could not be written")
            fail(
                f"the last checkpoint of {self.path} could not be written, so everything learned "
                f"since the previous one is lost. Free some space and continue with --resume "
                f"{self.path}"
            )
        finished = reason == "finished"
        if finished and self.args.save_model and self.ranks.main:
            args = dataclasses.asdict(self.args)
            checkpoint.save_model(self.path, args, self._tracked["agent"])
        lost = self._write_status(reason)
        if self._log is not None:
            self._watch.summarize()
        said = f"Finished {self.iteration} iterations: {self.path}"
        if not finished:
            said = f"Run {reason} after iteration {self.iteration}. "
            said += f"Continue with --resume {self.path}"
        print(said)
        if lost:
            fail_incomplete(f"{self.path} {reason}, but {lost}. Its other files are complete.")

    def _write_status(self, reason: str) -> str:
        """Write status.json and leave the group; return what should be on disk and is not."""
        self._progress.close()
        lost = ""
        if self._dir is not None and self._log is not None:
            finished, mark = reason == "finished", self._log.sync()
            lost = checkpoint.find_loss(self.path)
            # Of a finished run only: readers refuse rows that differ from this mark.
            kept = mark if finished else None
            self._dir.write_status(self.iteration, finished, reason, kept, lost)
        self.ranks.close()
        return lost


def _indivisible(args: ScriptArgs, method: str) -> str:
    """Return why a run cannot be split over ranks, or an empty string."""
    if args.bonus == "count":
        return "--bonus count keeps its counts in one process; with torchrun use --bonus rnd."
    declared = find_method(method)
    if declared.one_process_only:
        return f"the {declared.shaper.name} learns from all envs of a process: do not use torchrun."
    return ""


def disk_needed(modules: Iterable[nn.Module], iterations: int) -> int:
    """Return how many bytes the checkpoints and logs of a run need."""
    weights = sum(p.numel() * 4 for module in modules for p in module.parameters())
    # Weights and two moments, in two checkpoints and a third being written; 2 kB of log per row.
    return 9 * weights + 2048 * iterations + 2**20


def keep_malloc_pages() -> None:
    """Let glibc reuse the pages of large tensors instead of mapping and zeroing new ones.

    Makes training 1.25 to 1.35 times as fast on a CPU. Has no effect with other C libraries.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
        libc.mallopt(m_top_pad, 2**28)
