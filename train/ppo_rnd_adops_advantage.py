"""PPO with random network distillation and a shaped intrinsic reward, in one file.

The defaults are the paper's experiment on Montezuma's Revenge; `--env-id` takes any Gymnasium env
with discrete actions. The scripts of this family differ only in their wrapper stack. What surrounds
the algorithm (ranks, envs, run directory, checkpoints, log) is in `adops_wrappers.training`.

A first run that takes two minutes on a laptop:
    python SCRIPT --env-id MiniGrid-DoorKey-5x5-v0 --total-iterations 60 --learning-rate 1e-3
        --ent-coef 0.01 --obs-norm-init-iterations 2

To split the envs among K processes or GPUs: torchrun --standalone --nproc-per-node K SCRIPT ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.vector import VectorEnv
from torch import nn
from tqdm import tqdm

# --- wrapper stack: imports
from adops_wrappers import (
    CountBonus,
    CriticHandle,
    IntrinsicReturnNormalizer,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    next_value_int,
)
from adops_wrappers.shaping.advantage import AdvantageFloor, ClampedAdvantage

# --- end of wrapper stack: imports
from adops_wrappers.training.acting import Actor, LooksAhead
from adops_wrappers.training.args import Auto, ScriptArgs, read_command_line
from adops_wrappers.training.distributed import Ranks
from adops_wrappers.training.encoding import Encoder, Whitening
from adops_wrappers.training.exit import exit_on
from adops_wrappers.training.metrics import conflicts, critic_fit, mean, streams, sum_conflicts
from adops_wrappers.training.progress import Clock
from adops_wrappers.training.run import Run
from adops_wrappers.training.statistics import EpisodeHistory, with_statistics
from adops_wrappers.training.update import allow_tf32, clip_gradients, order_of_other_codes, upload

Array = np.ndarray
Shape = tuple[int, ...]
Activation = Callable[[], nn.Module]


@dataclass
class Args(ScriptArgs):
    """Settings of one run; those of the env and of its execution are inherited."""

    seed: int = 1
    """seed of networks, actions, minibatches and envs"""

    # --- wrapper stack: flags
    intrinsic_scale: float = 1.0
    """factor on F"""
    # --- end of wrapper stack: flags

    bonus: Literal["rnd", "count", "none"] = "rnd"
    """source of F: random network distillation, 1/sqrt(visits), or none"""
    normalize_intrinsic: Literal["auto", "std", "rms", "no"] = "auto"
    """divide F by the std or rms of its discounted return so far; auto: std with rnd, rms else"""
    quiet_iterations: int = 0
    """iterations at the start in which F is 0, to learn first what the task pays without a bonus"""
    int_bootstrap: Literal["reset", "final", "none"] = "reset"
    """V_I at an episode's end, for learner and shaping: that of the next episode's first
    observation (non-episodic, as in RND), of the final observation, or 0 if terminated"""

    total_iterations: int = 30_000
    """number of iterations, each one rollout and one update"""
    num_envs: int = 32
    """number of environments, all ranks together"""
    num_steps: int = 128
    """steps per environment and rollout"""
    update_epochs: int = 4
    """passes over each rollout"""
    num_minibatches: int = 4
    """minibatches per pass"""
    learning_rate: float = 1e-4
    """Adam's step size, kept constant"""
    adam_eps: float = 1e-8
    """Adam's epsilon"""
    gamma_ext: float = 0.999
    """discount of the extrinsic stream"""
    gamma_int: float = 0.99
    """discount of the intrinsic stream"""
    gae_lambda: float = 0.95
    """lambda of the advantage estimates of both streams"""
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
    scale_adv: Auto = None
    """divide it by its root mean square, at least a tenth of that of all updates; signs stay"""
    max_grad_norm: float = 0.5
    """largest gradient norm; 0 means no clipping"""
    update_proportion: float = 0.0
    """share of rows that train the RND predictor; 0 means min(1, 32/num_envs)"""
    obs_norm_init_iterations: int = 50
    """rollouts of random actions that initialise RND's whitening and the scale of F"""
    mlp_hidden: int = 64
    """width of the hidden layers unless observations are images"""
    end_at_truncation: bool = False
    """treat truncation as termination, for learner and shaping: V_E is 0 there (Burda); for tasks
    that are lost at the time limit (MiniGrid), not where play would go on (CartPole)"""
    minibatch_rows: Literal["shuffled", "whole-envs", "with-replacement"] = "shuffled"
    """rows of a minibatch: a random partition, whole envs (Burda), or drawn with replacement"""
    rnd_slope: float = 0.2
    """negative slope of the leaky ReLUs in RND's networks; PPO-RND uses 0.01"""
    restart_return_filter: bool = False
    """restart the intrinsic return that scales F at 0 in every rollout (PPO-RND)"""
    root_gains: bool = False
    """initialise the agent's last layers with gains sqrt(0.1), sqrt(0.01) (PPO-RND)"""


# --- wrapper stack
METHOD_FLAGS: dict[str, tuple[str, ...]] = {}
"""Every flag of this script belongs to its method."""


def method_name(args: Args) -> str:
    """Return the name of this run's method."""
    return "none"


def wrap_stack(args: Args, envs: VectorEnv, learner: Learner) -> Any:
    """Put the source of F and the shaping method on top of the envs."""
    quiet = {"quiet_steps": args.quiet_iterations * args.num_steps}
    envs = IntrinsicRewardWrapper(envs, learner.source, normalizer=learner.normalizer, **quiet)
    return NoShapingWrapper(
        envs,
        critic=learner.critic,
        intrinsic_scale=args.intrinsic_scale,
        add_to_reward=False,
    )


def add_streams(args: Args) -> ClampedAdvantage:
    """Return what makes one advantage of the two: ADOPS, at the only place it acts here."""
    return ClampedAdvantage(args.ext_coef, args.int_coef)


# --- end of wrapper stack


def parse_args(argv: list[str] | None = None) -> Args:
    """Read the command line; --resume takes the defaults from that run."""
    return read_command_line(Args, argv, __doc__, METHOD_FLAGS)


def layer_init(layer: nn.Module, gain: float = 2**0.5) -> nn.Module:
    """Initialise a layer like Burda et al.: orthogonal weights, zero biases."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def linear(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Module:
    """Return an initialised linear layer."""
    return layer_init(nn.Linear(inputs, outputs), gain)


class ConvTrunk(nn.Module):
    """Three convolutions; the output is flattened in memory order (channels last), not copied."""

    def __init__(self, channels: int, activation: Activation) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after, size, stride in ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)):
            layers += [layer_init(nn.Conv2d(before, after, size, stride)), activation()]
        self.convs = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images of shape (n, height, width, channels) to features."""
        return self.convs(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1)


def make_trunk(shape: Shape, hidden: int, activation: Activation) -> tuple[nn.Module, int]:
    """Return the layers that turn observations into features, and the number of features."""
    if len(shape) == 3:
        trunk = ConvTrunk(shape[2], activation)
        return trunk, trunk(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(linear(shape[0], hidden), activation()), hidden


class Agent(nn.Module):
    """Policy and two value heads on one trunk."""

    def __init__(self, shape: Shape, actions: int, hidden: int, root_gains: bool = False) -> None:
        super().__init__()
        small, tiny = (0.1**0.5, 0.1) if root_gains else (0.1, 0.01)
        relu = partial(nn.ReLU, inplace=True)
        trunk, size = make_trunk(shape, hidden, relu)
        image = len(shape) == 3
        wide = 448 if image else hidden
        body = [linear(size, 256), relu(), linear(256, wide)] if image else [linear(size, wide)]
        self.body = nn.Sequential(trunk, *body, relu())
        self.for_policy, self.for_values = linear(wide, wide, small), linear(wide, wide, small)
        self.policy, self.values = linear(wide, actions, tiny), linear(wide, 2, tiny)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits, and V_E and V_I as two columns."""
        x = self.body(features)
        logits = self.policy(x + F.relu(self.for_policy(x)))
        return logits, self.values(x + F.relu(self.for_values(x)))


def make_rnd_networks(shape: Shape, hidden: int, slope: float = 0.2) -> list[nn.Module]:
    """Return the fixed random target and the predictor that learns to imitate it."""
    leaky, relu = partial(nn.LeakyReLU, slope, inplace=True), partial(nn.ReLU, inplace=True)
    out = 512 if len(shape) == 3 else hidden
    trunk, size = make_trunk(shape, hidden, leaky)
    target = nn.Sequential(trunk, linear(size, out))
    target.requires_grad_(False)
    trunk, size = make_trunk(shape, hidden, leaky)
    body = [linear(size, out), relu(), linear(out, out), relu(), linear(out, out)]
    return [target, nn.Sequential(trunk, *body)]


class RNDBonus:
    """F = mean squared error of the predictor on the true next observation.

    The predictor trains on the inputs that were scored, which are kept with the target's features:
    as bytes on a GPU, to save memory, and whitened on a CPU.
    """

    def __init__(
        self, encoder: Encoder, hidden: int, steps: int, num_envs: int, slope: float = 0.2
    ) -> None:
        networks = make_rnd_networks(encoder.rnd_shape, hidden, slope)
        to_device = {"device": encoder.device, "memory_format": torch.channels_last}
        self.target, self.predictor = (network.to(**to_device) for network in networks)
        self.encoder, self.steps, self.t = encoder, steps, 0
        self.prepared: Array | None = None
        self.whitening = Whitening(encoder.rnd_shape, encoder.device)
        make = partial(torch.zeros, device=encoder.device)
        dtype = torch.float32 if encoder.device.type == "cpu" else encoder.dtype
        self.inputs = make((steps, num_envs, *encoder.rnd_shape), dtype=dtype)
        self.targets = make((steps, num_envs, self.target[-1].out_features))

    def reward(self, obs: Array, action: Array, next_obs: Array) -> Array:
        """Return the scores of one vector step, which may have been prepared."""
        scores, self.prepared = self.prepared, None
        return self.score(next_obs)[1].cpu().numpy() if scores is None else scores

    @torch.inference_mode()
    def score(self, next_obs: Array) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the encoded observations and F, and keep what `loss` needs."""
        stored = self.encoder.encode(next_obs)
        x = self.encoder.novelty(stored)
        white = self.whitening(x)
        self.inputs[self.t] = white if self.inputs.is_floating_point() else x
        self.whitening.observe(x)
        self.targets[self.t] = target = self.target(white)
        self.t = (self.t + 1) % self.steps
        return stored, self.error(white, target)

    def error(self, white: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the predictor's mean squared error on each row."""
        return (self.predictor(white) - target).float().square().mean(-1)

    def loss(self, rows: torch.Tensor, count: int) -> torch.Tensor:
        """Return the loss of these rows of the rollout: their share of a mean over `count` rows."""
        inputs = self.inputs.flatten(0, 1).index_select(0, rows)
        if not inputs.is_floating_point():
            inputs = self.whitening(inputs.float())
        targets = self.targets.flatten(0, 1).index_select(0, rows)
        errors = F.mse_loss(self.predictor(inputs).float(), targets, reduction="sum")
        return errors / (count * targets.shape[1])


def warm_up(args: Args, envs: VectorEnv, learner: Learner, ranks: Ranks) -> None:
    """Initialise RND's whitening by random actions, and the scale of F by their last rollout."""
    # Below the source of F, so that counts, debts and schedules do not change
    bonus, normalizer = learner.source, learner.normalizer
    steps = args.obs_norm_init_iterations * args.num_steps
    print(f"Initialising RND's whitening with {steps * args.num_envs} random steps.", flush=True)
    rng, last = np.random.default_rng(args.seed), []
    first, n = envs.single_action_space.start, envs.single_action_space.n
    envs.reset(seed=args.seed + ranks.first_env)
    for step in tqdm(range(steps), "random steps for RND's whitening", disable=ranks.mute):
        obs = envs.step(first + rng.integers(0, n, args.num_envs)[ranks.envs])[0]
        x = bonus.encoder.novelty(bonus.encoder.encode(obs))
        bonus.whitening.observe(x)
        if step >= steps - args.num_steps:
            last.append(x)
    bonus.whitening.update(ranks)
    if normalizer is not None:
        with torch.inference_mode():
            for x in last:
                white = bonus.whitening(x)
                normalizer(bonus.error(white, bonus.target(white)).cpu().numpy())
        normalizer.update(ranks.gather(normalizer.collected))
        normalizer.restart()


class Learner:
    """The agent, the source of F and its scale, and the critic shared by agent and stack."""

    def __init__(self, args: Args, encoder: Encoder, actions: int, envs: int, clock: Clock) -> None:
        self.autocast = partial(torch.autocast, encoder.device.type, torch.bfloat16, args.amp)
        compiled = torch.compile if args.compile else (lambda network: network)
        self.agent = Agent(encoder.shape, actions, args.mlp_hidden, args.root_gains)
        self.agent.to(encoder.device, memory_format=torch.channels_last)
        self.forward = compiled(self.agent)
        self.critic = critic = CriticHandle()
        # The largest p/e with e ~ Exp(1) is a sample from p.
        self.actor = Actor(self.forward, lambda p, e: (p / e).argmax(-1), encoder, critic, clock)
        self.parts: dict[str, Any] = {"agent": self.agent}
        self.source: Any = lambda obs, action, next_obs: np.zeros(len(action))
        if args.bonus == "count":
            self.source = CountBonus(key=encoder.count_key)
        elif args.bonus == "rnd":
            rnd = RNDBonus(encoder, args.mlp_hidden, args.num_steps, envs, args.rnd_slope)
            self.source, rnd.score = rnd, clock.timed("bonus", rnd.score)
            for part in ("target", "predictor", "whitening"):
                self.parts[part] = getattr(rnd, part)
            rnd.predictor = compiled(rnd.predictor)
        auto, rule = "std" if args.bonus == "rnd" else "rms", args.normalize_intrinsic
        scale = partial(IntrinsicReturnNormalizer, envs, gamma=args.gamma_int, update="manual")
        self.normalizer = None if rule == "no" else scale(rule=auto if rule == "auto" else rule)

    def prepare(self, obs: Array) -> None:
        """Score and value what all envs show now: one pass of each network, one copy to the host.

        The stack asks for both before the step returns, and the agent acts on it in the next.
        """
        self.source.prepared = self.actor.prepare(obs, *self.source.score(obs))


def gae(
    rewards: Array, values: Array, next_values: Array, goes_on: Array, gamma: Array, lam: float
) -> Array:
    """Return the generalised advantages of both streams, shape (steps, 2, envs).

    `rewards` are R and F', `goes_on` is 0 where a trace stops, and `gamma` has shape (2, 1).
    """
    deltas = rewards + gamma * next_values - values
    decay = gamma * lam * goes_on
    advantages, running = np.empty_like(deltas), np.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        advantages[t] = running = deltas[t] + decay[t] * running
    return advantages


def bootstrap(
    values: Array, final: Array, terminated: Array, truncated: Array, mode: str, settles_debt: bool
) -> tuple[Array, Array]:
    """Return V(s') and the trace mask of both streams, shape (steps, 2, envs).

    The extrinsic stream ends with the episode: V = 0 where terminated, V of the `final`
    observation where truncated. The intrinsic stream follows `mode` (--int-bootstrap), but never
    bootstraps past an end at which the method settled its debt: that would count twice.
    """
    ended, fresh = terminated | truncated, values[1:]
    next_values = np.where(ended[:, None], final, fresh)
    goes_on = np.where(ended[:, None], 0.0, np.ones_like(final))
    next_ext, next_int = next_values[:, 0], next_values[:, 1]
    next_ext[terminated] = 0.0
    next_int[:] = next_value_int(mode, next_int, fresh[:, 1], terminated, truncated)
    if settles_debt:
        next_int[ended] = 0.0
    elif mode == "reset":
        goes_on[:, 1] = 1.0
    return next_values, goes_on


def train(args: Args) -> Path:
    """Run the experiment and return its directory."""
    with Run(args, __file__, method_name(args)) as run:
        learn(args, run)
    return run.path


def learn(args: Args, run: Run) -> None:
    """Alternate rollouts and updates."""
    ranks, device, clock, history = run.ranks, run.device, run.clock, EpisodeHistory()
    base, encoder = run.make_envs()
    first, num_actions = base.single_action_space.start, int(base.single_action_space.n)
    learner = Learner(args, encoder, num_actions, ranks.num_envs, clock)
    actor, critic, normalizer = learner.actor, learner.critic, learner.normalizer
    rnd: RNDBonus | None = learner.source if args.bonus == "rnd" else None
    networks = [part for part in learner.parts.values() if isinstance(part, nn.Module)]
    ranks.same_weights(networks)
    parameters = [p for network in networks for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=args.learning_rate, eps=args.adam_eps, fused=True)
    statistics = with_statistics(base, args, encoder.kind, args.end_at_truncation)
    below = statistics if rnd is None else LooksAhead(statistics, learner.prepare)
    with exit_on(ValueError):
        envs, combine = wrap_stack(args, below, learner), add_streams(args)
    floor = AdvantageFloor()

    # Start or resume
    run.track(**learner.parts, optimizer=optimizer, history=history, combine=combine, floor=floor)
    if not run.restore(envs):
        if rnd is not None and args.obs_norm_init_iterations:
            warm_up(args, base, learner, ranks)
        envs.reset(seed=args.seed + ranks.first_env)
    next_obs = envs.episodes.last_obs

    # Storage for this rank's envs; `batch` counts the rows of all ranks
    steps, num_envs, batch = args.num_steps, ranks.num_envs, args.num_steps * args.num_envs
    stored = torch.zeros((steps, num_envs, *encoder.shape), dtype=encoder.dtype, device=device)
    logits = torch.zeros((steps, num_envs, num_actions), device=device)
    actions = np.zeros((steps, num_envs), dtype=np.int64)
    rewards, final_values = np.zeros((2, steps, 2, num_envs))
    values = np.zeros((steps + 1, 2, num_envs))
    raw, correction = np.zeros((2, steps, num_envs))
    terminated, truncated = np.zeros((2, steps, num_envs), dtype=np.bool_)
    gamma = np.array([[args.gamma_ext], [args.gamma_int]])
    proportion = 1.0 if rnd is None else args.update_proportion or min(1.0, 32 / args.num_envs)
    to_device = partial(torch.as_tensor, dtype=torch.float32, device=device)

    for _ in run.iterations():
        # Rollout
        zeta, final_values[:] = envs.shaper.zeta, 0.0
        actor.start_rollout(run.draw_noise(num_actions))
        for t in range(steps):
            answer = critic(next_obs)
            stored[t], logits[t] = answer.stored, answer.logits
            values[t] = answer.value_ext, answer.value_int
            actions[t] = actor.act(answer)
            # Within the step, `prepare` runs; critic and bonus then have what the stack asks for.
            next_obs, _, terminated[t], truncated[t], info = envs.step(actions[t] + first)
            rewards[t] = info["extrinsic_reward"], info["intrinsic_reward"]
            raw[t], correction[t] = info["raw_intrinsic_reward"], info["shaping_correction"]
            if "final_value_ext" in info:
                final_values[t] = info["final_value_ext"], info["final_value_int"]
        answer = critic(next_obs)
        values[steps] = answer.value_ext, answer.value_int
        clock.lap("rollout")

        # Returns
        rule = args.int_bootstrap, envs.shaper.settles_debt
        next_values, goes_on = bootstrap(values, final_values, terminated, truncated, *rule)
        advantages = gae(rewards, values[:-1], next_values, goes_on, gamma, args.gae_lambda)
        returns = advantages + values[:-1]
        combine.observe(ranks.gather(rewards[:, 0].any()))
        combined = combine(advantages[:, 0], advantages[:, 1])
        clock.lap("returns")

        # Update
        allow_tf32(args.tf32)
        flat_stored, taken = stored.flatten(0, 1), torch.as_tensor(actions, device=device).flatten()
        flat_advantages = to_device(combined).flatten()
        of_ranks = ranks.side_by_side(combined)
        least, all_advantages = floor.after(of_ranks), to_device(of_ranks).flatten()
        flat_returns = to_device(returns.transpose(0, 2, 1)).flatten(0, 1)
        with torch.no_grad():
            old = logits.flatten(0, 1).log_softmax(-1)
            old_logprobs = old.gather(1, taken[:, None]).squeeze(1)
            certainty = torch.stack([old_logprobs.exp().mean(), old.exp().amax(-1).mean()])
            action_prob, action_prob_max = (ranks.sum(certainty) / ranks.world).tolist()
        minibatches, count = [], batch // args.num_minibatches
        for _ in range(args.update_epochs):
            # On the host: all ranks draw the same order and masks
            shuffled = args.minibatch_rows == "shuffled"
            order = torch.randperm(batch) if shuffled else order_of_other_codes(args, batch)
            epoch = []
            for everyone in order.split(count):
                masked = everyone if proportion == 1.0 else everyone[torch.rand(count) < proportion]
                epoch.append((everyone, masked, ranks.own_rows(everyone), ranks.own_rows(masked)))
            for everyone, masked, rows, trained in upload(epoch, device):
                # Sums over this rank's rows, divided by the rows of all ranks
                with learner.autocast():
                    features = encoder.features(flat_stored.index_select(0, rows))
                    new_logits, new_values = learner.forward(features)
                logprobs = new_logits.float().log_softmax(-1)
                logratio = logprobs.gather(1, taken[rows, None]).squeeze(1) - old_logprobs[rows]
                ratio = logratio.exp()
                advantage, of_all = flat_advantages[rows], all_advantages[everyone]
                if args.norm_adv:
                    advantage = (advantage - of_all.mean()) / (of_all.std() + 1e-8)
                elif args.scale_adv:
                    advantage = advantage / of_all.square().mean().sqrt().clamp(min=least)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                policy_loss = -torch.min(advantage * ratio, advantage * clipped).sum() / count
                value_losses = (new_values.float() - flat_returns[rows]).square().sum(0) / count
                entropy = -(logprobs.exp() * logprobs).sum() / count
                loss = policy_loss + args.vf_coef * value_losses.sum() - args.ent_coef * entropy
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                fwd_loss = loss.new_zeros(())
                if rnd is not None and len(masked):
                    # Rows masked out of the loss never enter the predictor.
                    with learner.autocast():
                        fwd_loss = rnd.loss(trained, len(masked))
                    fwd_loss.backward()
                with torch.no_grad():
                    excess = ratio - 1.0
                    terms = {
                        "losses/policy_loss": policy_loss,
                        "losses/value_loss_ext": value_losses[0],
                        "losses/value_loss_int": value_losses[1],
                        "losses/entropy": entropy,
                        "losses/old_approx_kl": -logratio.sum() / count,
                        "losses/approx_kl": (excess - logratio).sum() / count,
                        "losses/clipfrac": (excess.abs() > args.clip_coef).sum() / count,
                        "losses/fwd_loss": fwd_loss,
                        "losses/loss": loss,
                    }
                    sums = ranks.sum_gradients(parameters, torch.stack(list(terms.values())))
                norm = clip_gradients(parameters, args.max_grad_norm)
                minibatches.append(torch.cat([sums, norm[None]]))
                optimizer.step()
        allow_tf32(False)
        per_batch = torch.stack(minibatches)
        run.stop_if_nan(per_batch[:, -3:])  # fwd_loss, loss and norm
        losses = dict(zip((*terms, "losses/grad_norm"), per_batch.mean(0).tolist(), strict=True))
        del losses["losses/loss"]
        critic.updated()
        if normalizer is not None:
            normalizer.update(ranks.gather(normalizer.collected))
            if args.restart_return_filter:
                normalizer.returns[:] = 0.0
        if rnd is not None:
            rnd.whitening.update(ranks)
        clock.lap("update")

        # Log, on the first rank for all of them
        finished = ranks.join_on_main(statistics.take_finished())
        history.add(finished)
        bonus = raw * envs.core.intrinsic_scale
        deltas = np.stack([rewards[:, 0], bonus], 1) + gamma * next_values - values[:-1]
        one_step = conflicts(envs.shaper, deltas[:, 0], deltas[:, 1])
        sums, clamped = sum_conflicts(combine, advantages, combined)
        seen = (bonus, rewards[:, 1], correction, one_step, sums, clamped, values[:-1], returns)
        *flows, one_step, sums, clamped, v, g = ranks.side_by_side_on_main(*seen)
        metrics = {
            **history.metrics(finished, statistics.counts),
            "charts/learning_rate": args.learning_rate,
            "charts/action_prob": action_prob,
            "charts/action_prob_max": action_prob_max,
            "charts/intrinsic_scale": 1.0 if normalizer is None else normalizer.scale,
            **losses,
            "losses/value_loss": losses["losses/value_loss_ext"] + losses["losses/value_loss_int"],
            **critic_fit(v, g),
            **streams(*flows),
            "shaping/conflict_rate": mean(one_step),
            "shaping/advantage_conflict_rate": mean(sums),
            "shaping/advantage_intervention_rate": mean(clamped),
            "shaping/zeta": zeta,
            **clock.metrics(batch),
        }
        if statistics.rooms is not None:
            metrics["charts/rooms"] = len(set().union(*ranks.gather_on_main(statistics.rooms)))
        run.log(metrics | run.judge(deltas, values, rewards, next_values, terminated, truncated))


if __name__ == "__main__":
    train(parse_args())
