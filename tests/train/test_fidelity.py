"""The table in docs/fidelity.md, line by line: the script against numbers found another way."""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv

from tests.train.plain_rnd import (
    PlainAdam,
    PlainAgent,
    PlainPredictor,
    ReturnScale,
    advantages,
    conv_trunk,
    dense,
    exact,
    leaky,
    ppo_losses,
    softmax,
    target_features,
    weights_of,
)
from tests.train.scripts import ROOT, read_metrics

SLOPE = 0.2
"""The negative side of Burda's leaky ReLUs: TensorFlow's default, which PyTorch does not share."""


def settings(ppo_rnd, folder, **changes):
    """Four poles for 32 steps, cut after twenty: ends of both kinds, eight Adam steps."""
    return ppo_rnd.Args(
        **{
            "env_id": "CartPole-v1",
            "run_dir": str(folder / "run"),
            "total_iterations": 1,
            "num_envs": 4,
            "num_steps": 32,
            "max_episode_steps": 20,
            "reward_scale": 0.25,
            "update_epochs": 2,
            "obs_norm_init_iterations": 3,
            "mlp_hidden": 16,
            "tensorboard": False,
            "torch_threads": 1,
            "cuda": False,
            "scale_adv": False,  # the default on Atari
            **changes,
        }
    )


@pytest.fixture
def recorded(ppo_rnd, monkeypatch):
    """Train with what the envs see and the order of minibatches noted down from outside."""

    def train(args):
        notes = SimpleNamespace(steps=[], orders=[], start=None, learner=None)
        step, reset, permute = SyncVectorEnv.step, SyncVectorEnv.reset, torch.randperm
        make_learner, gae = ppo_rnd.Learner.__init__, ppo_rnd.gae

        def note_reset(envs, **keywords):
            obs, info = reset(envs, **keywords)
            notes.obs = obs.copy()
            return obs, info

        def note_step(envs, actions):
            obs, reward, terminated, truncated, info = step(envs, actions)
            true_next = obs.copy()
            for row in np.flatnonzero(terminated | truncated):
                true_next[row] = info["final_obs"][row]
            ends = terminated.copy(), truncated.copy()
            before, notes.obs = notes.obs, obs.copy()
            taken = actions.copy(), reward.copy()
            notes.steps.append((before, *taken, *ends, true_next, notes.obs))
            return obs, reward, terminated, truncated, info

        def note_order(*arguments, **keywords):
            order = permute(*arguments, **keywords)
            notes.orders.append(order.numpy().copy())
            return order

        def note_learner(learner, *arguments):
            make_learner(learner, *arguments)
            notes.learner = learner
            networks = [learner.parts.get(name) for name in ("agent", "target", "predictor")]
            notes.start = [weights_of(network) for network in networks if network]

        def note_advantages(*arguments):
            notes.advantages = gae(*arguments)
            return notes.advantages

        monkeypatch.setattr(SyncVectorEnv, "reset", note_reset)
        monkeypatch.setattr(SyncVectorEnv, "step", note_step)
        monkeypatch.setattr(torch, "randperm", note_order)
        monkeypatch.setattr(ppo_rnd.Learner, "__init__", note_learner)
        monkeypatch.setattr(ppo_rnd, "gae", note_advantages)
        notes.rows = read_metrics(ppo_rnd.train(args))
        warm = args.obs_norm_init_iterations * args.num_steps
        notes.warm_up, notes.rollout = notes.steps[:warm], notes.steps[warm:]
        return notes

    return train


def columns(steps):
    """Return obs, actions, rewards, terminated, truncated, true and shown next obs."""
    return [np.stack(column) for column in zip(*steps, strict=True)]


# Returns


def test_advantages_of_both_streams_are_the_exact_sums(ppo_rnd):
    """Burda: V_E ends with the episode and V_I goes on into the next; exact fractions."""
    rng = np.random.default_rng(0)
    steps, envs, lam = 12, 3, 0.95
    rewards, final_values = rng.normal(size=(2, steps, 2, envs))
    values = rng.normal(size=(steps + 1, 2, envs))
    terminated = rng.random((steps, envs)) < 0.25
    discounts = np.array([[0.999], [0.99]])
    next_values, goes_on = ppo_rnd.bootstrap(
        values, final_values, terminated, np.zeros_like(terminated), "reset", False
    )
    ours = ppo_rnd.gae(rewards, values[:-1], next_values, goes_on, discounts, lam)
    for env in range(envs):
        for stream, ends in ((0, terminated[:, env]), (1, np.zeros(steps, dtype=bool))):
            ahead = np.where(ends, 0.0, values[1:, stream, env])
            mine = exact(rewards[:, stream, env]), exact(values[:-1, stream, env]), exact(ahead)
            gamma, decay = exact(np.array([discounts[stream, 0], lam]))
            truth = [float(a) for a in advantages(*mine, ends, gamma, decay)]
            np.testing.assert_allclose(ours[:, stream, env], truth, rtol=1e-12, atol=1e-13)


# One iteration, from the rewards to the weights


class PlainIteration:
    """The script's iteration once more, from its first weights and what its envs have seen."""

    def __init__(self, args, notes):
        agent, target, predictor = notes.start
        self.agent, self.predictor = PlainAgent(agent), PlainPredictor(predictor, SLOPE)
        obs, actions, rewards, terminated, truncated, true_next, _ = columns(notes.rollout)
        steps, envs = actions.shape

        # RND: whitened by the random steps alone; F divided by the spread that they left
        self.warm = np.concatenate([shown for *_, shown in notes.warm_up]).astype(np.float64)
        self.mean, self.std = self.moments(self.warm)
        white = self.whiten(true_next.astype(np.float64))
        features = target_features(target, white, SLOPE)
        scale = ReturnScale(args.gamma_int)
        for seen in self.whiten(self.warm)[-steps * envs :].reshape(steps, envs, -1):
            error = self.predictor(seen) - target_features(target, seen, SLOPE)
            scale.add((error**2).mean(-1))
        bonus = ((self.predictor(white) - features) ** 2).mean(-1)
        self.raw_bonus, self.bonus = bonus, bonus / scale.std

        # Values, returns, advantages
        old_logits, values = self.agent(obs.astype(np.float64))
        after = np.concatenate([values[1:], self.agent(notes.obs.astype(np.float64))[1][None]])
        final = self.agent(true_next.astype(np.float64))[1]
        ended = terminated | truncated
        worthless = ended if args.end_at_truncation else terminated
        ext_ahead = np.where(ended, np.where(worthless, 0.0, final[..., 0]), after[..., 0])
        streams = (
            (args.reward_scale * rewards, ext_ahead, ended, args.gamma_ext),
            (self.bonus, after[..., 1], np.zeros_like(ended), args.gamma_int),
        )
        self.advantages = np.zeros((steps, 2, envs))
        for stream, (reward, ahead, cut, gamma) in enumerate(streams):
            for env in range(envs):
                mine = reward[:, env], values[:, env, stream], ahead[:, env], cut[:, env]
                self.advantages[:, stream, env] = advantages(*mine, gamma, args.gae_lambda)
        combined = args.ext_coef * self.advantages[:, 0] + args.int_coef * self.advantages[:, 1]

        # Update
        rows = np.arange(steps * envs)
        flat = obs.reshape(len(rows), -1).astype(np.float64)
        taken = actions.reshape(-1)
        old = softmax(old_logits.reshape(len(rows), -1))[rows, taken]
        returns = self.advantages.transpose(0, 2, 1).reshape(-1, 2) + values.reshape(-1, 2)
        both = {f"agent.{name}": w for name, w in agent.items()}
        both |= {f"predictor.{name}": w for name, w in predictor.items()}
        adam = PlainAdam(both, args.learning_rate, args.adam_eps)
        self.losses = []
        for order in notes.orders:
            for batch in np.split(order, args.num_minibatches):
                data = flat[batch], taken[batch], old[batch], combined.reshape(-1)[batch]
                terms, by_agent = ppo_losses(
                    self.agent,
                    *data,
                    returns[batch],
                    clip=args.clip_coef,
                    vf_coef=args.vf_coef,
                    ent_coef=args.ent_coef,
                )
                error = self.predictor(white.reshape(len(rows), -1)[batch])
                error = error - features.reshape(len(rows), -1)[batch]
                terms["losses/fwd_loss"] = (error**2).mean()
                by_predictor = self.predictor.gradients(2.0 * error / error.size)
                gradients = {f"agent.{name}": g for name, g in by_agent.items()}
                gradients |= {f"predictor.{name}": g for name, g in by_predictor.items()}
                norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
                terms["losses/grad_norm"] = norm
                if args.max_grad_norm and norm > args.max_grad_norm:
                    gradients = {k: g * args.max_grad_norm / norm for k, g in gradients.items()}
                adam.step(gradients)
                self.agent.weights = self.part(adam.weights, "agent.")
                self.predictor.weights = self.part(adam.weights, "predictor.")
                self.losses.append(terms)
        self.adam_steps = adam.steps

    def whiten(self, x):
        return np.clip((x - self.mean) / self.std, -5.0, 5.0)

    @staticmethod
    def moments(rows):
        """Return mean and std, with Burda's start: a ten-thousandth of a row of variance 1."""
        total = len(rows) + 1e-4
        mean = rows.sum(0) / total
        squares = ((rows - mean) ** 2).sum(0) + 1e-4 * (1.0 + mean**2)
        return mean, np.sqrt(squares / total) + 1e-6

    @staticmethod
    def part(weights, prefix):
        return {k[len(prefix) :]: w for k, w in weights.items() if k.startswith(prefix)}


FAR = {"learning_rate": 1e-2, "ent_coef": 0.3, "clip_coef": 0.02, "max_grad_norm": 1e3}
"""Steps large enough for ratios to leave the clip range, and a norm that does not bind."""


CASES = {"clip": {}, "free": {"max_grad_norm": 0.0}, "end": {"end_at_truncation": True}, "far": FAR}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_an_iteration_equals_plain_numpy(ppo_rnd, recorded, tmp_path, changes):
    """Whitening, F, its scale, R's scale, values, GAE, losses, clipping, eight Adam steps."""
    args = settings(ppo_rnd, tmp_path, **changes)
    notes = recorded(args)
    plain = PlainIteration(args, notes)
    terminated, truncated = columns(notes.rollout)[3:5]
    assert terminated.any(), "choose a seed with ends of both kinds"
    assert truncated.any(), "choose a seed with ends of both kinds"
    assert plain.adam_steps == 8

    np.testing.assert_allclose(notes.advantages, plain.advantages, rtol=2e-4, atol=2e-5)
    row = {name: float(value) for name, value in notes.rows[0].items() if value}
    assert row["shaping/raw_mean"] == pytest.approx(plain.bonus.mean(), rel=1e-4)
    assert changes != FAR or row["losses/clipfrac"] > 0.1
    for name in plain.losses[0]:
        truth = np.mean([terms[name] for terms in plain.losses])
        assert row[name] == pytest.approx(truth, rel=1e-4, abs=1e-6), name
    networks = notes.learner.agent, notes.learner.source.predictor
    plain_weights = plain.agent.weights, plain.predictor.weights
    for module, first, truth in zip(networks, notes.start[::2], plain_weights, strict=True):
        for name, weight in weights_of(module).items():
            # Adam makes full steps of gradients that are rounding errors, so the norm decides.
            moved, astray = (np.linalg.norm(weight - other) for other in (first[name], truth[name]))
            assert astray <= 0.01 * moved + 1e-9, name


def test_minibatches_are_a_partition(ppo_rnd, recorded, tmp_path):
    """Each row once per epoch, in a new order; the paper's codebase draws with replacement."""
    args = settings(ppo_rnd, tmp_path)
    orders = recorded(args).orders
    assert len(orders) == args.update_epochs
    assert all(sorted(order) == list(range(128)) for order in orders)
    assert not np.array_equal(*orders)


# RND


def test_scale_of_the_bonus_is_burdas_one_rollout_late(ppo_rnd, recorded, tmp_path, monkeypatch):
    """After k rollouts the std is what Burda divides rollout k by; ours divides rollout k + 1."""
    errors, scores = [], ppo_rnd.RNDBonus.reward

    @functools.wraps(scores)
    def note(*transition, **keywords):
        errors.append(scores(*transition, **keywords))
        return errors[-1]

    monkeypatch.setattr(ppo_rnd.RNDBonus, "reward", note)
    args = settings(ppo_rnd, tmp_path, total_iterations=4, update_epochs=1, learning_rate=1e-2)
    rows = recorded(args).rows
    scale = ReturnScale(args.gamma_int)
    rollouts = np.array(errors, dtype=np.float64).reshape(4, args.num_steps, args.num_envs)
    for row, before, rollout in zip(rows, [None, *rows], rollouts, strict=False):
        if before is not None:
            used = rollout.mean() / float(row["shaping/raw_mean"])
            assert used == pytest.approx(float(before["charts/intrinsic_scale"]), rel=1e-6)
        for bonuses in rollout:
            scale.add(bonuses)
        assert float(row["charts/intrinsic_scale"]) == pytest.approx(scale.std, rel=1e-9)


def test_whitening_equals_the_moments_of_all_inputs(ppo_rnd, recorded, tmp_path):
    """Random steps by what they show, rollouts by the true next observation; clipped to +-5."""
    notes = recorded(settings(ppo_rnd, tmp_path, total_iterations=3, update_epochs=1))
    shown = [shown for *_, shown in notes.warm_up]
    seen = np.concatenate([*shown, *(true for *_, true, _ in notes.rollout)]).astype(np.float64)
    whitening = notes.learner.source.whitening
    # Burda's moments start as those of a ten-thousandth of a standard normal row.
    np.testing.assert_allclose(whitening.mean.numpy(), seen.mean(0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(whitening.var.numpy(), seen.var(0), rtol=1e-4)
    probe = seen.mean(0) + np.linspace(-8.0, 8.0, 33)[:, None] * seen.std(0)
    white = whitening(torch.from_numpy(probe).float()).numpy()
    expected = np.repeat(np.clip(np.linspace(-8.0, 8.0, 33), -5.0, 5.0)[:, None], 4, axis=1)
    np.testing.assert_allclose(white, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("num_envs", [32, 64])
def test_share_of_rows_that_train_the_predictor(ppo_rnd, tmp_path, monkeypatch, num_envs):
    """Burda: all rows of 32 envs, and as many of more envs."""
    trained, loss = [], ppo_rnd.RNDBonus.loss

    def count(bonus, rows, total):
        trained.append(len(rows))
        return loss(bonus, rows, total)

    monkeypatch.setattr(ppo_rnd.RNDBonus, "loss", count)
    ppo_rnd.train(settings(ppo_rnd, tmp_path, num_envs=num_envs))
    rows, share = 2 * num_envs * 32, 32 / num_envs
    assert abs(sum(trained) - share * rows) <= 4.0 * (rows * share * (1.0 - share)) ** 0.5


def test_networks_of_images_equal_plain_convolutions(ppo_rnd):
    """Sizes, strides, activations, residual heads and the slope of RND's leaky ReLUs."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    frames = rng.random((2, 84, 84, 4))
    agent = ppo_rnd.Agent((84, 84, 4), 18, 64)
    with torch.no_grad():
        logits, values = agent(torch.from_numpy(frames).float())
    w = weights_of(agent)
    x = leaky(dense(w, "body.1", conv_trunk(w, "body.0", frames)))
    x = leaky(dense(w, "body.3", x))
    assert x.shape == (2, 448)
    policy = dense(w, "policy", x + leaky(dense(w, "for_policy", x)))
    both = dense(w, "values", x + leaky(dense(w, "for_values", x)))
    np.testing.assert_allclose(logits.numpy(), policy, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(values.numpy(), both, rtol=1e-4, atol=1e-6)

    white = rng.normal(size=(2, 84, 84, 1))
    target, predictor = ppo_rnd.make_rnd_networks((84, 84, 1), 64)
    with torch.no_grad():
        outputs = [net(torch.from_numpy(white).float()).numpy() for net in (target, predictor)]
    w = weights_of(target)
    truth = dense(w, "1", conv_trunk(w, "0", white, SLOPE))
    assert truth.shape == (2, 512)
    np.testing.assert_allclose(outputs[0], truth, rtol=1e-3, atol=1e-4)
    w = weights_of(predictor)
    x = leaky(dense(w, "1", conv_trunk(w, "0", white, SLOPE)))
    truth = dense(w, "5", leaky(dense(w, "3", x)))
    np.testing.assert_allclose(outputs[1], truth, rtol=1e-3, atol=1e-4)


def test_weights_start_orthogonal_with_burdas_gains(ppo_rnd):
    torch.manual_seed(0)
    agent = ppo_rnd.Agent((84, 84, 4), 18, 64)
    networks = [agent, *ppo_rnd.make_rnd_networks((84, 84, 1), 64)]
    small = {"for_policy": 0.1, "for_values": 0.1, "policy": 0.01, "values": 0.01}
    for network in networks:
        for name, weight in weights_of(network).items():
            layer, kind = name.rsplit(".", 1)
            if kind == "bias":
                assert not weight.any(), name
                continue
            rows = weight.reshape(len(weight), -1)
            rows = rows if rows.shape[0] <= rows.shape[1] else rows.T
            gain = small.get(layer, 2**0.5)
            np.testing.assert_allclose(rows @ rows.T, gain**2 * np.eye(len(rows)), atol=1e-5)


# Actions


def test_actions_follow_the_softmax(ppo_rnd, recorded, tmp_path, monkeypatch):
    """Chi-square of 8,192 actions at fixed logits, three degrees of freedom, p = 0.001."""
    logits = torch.tensor([0.0, 1.0, -1.5, 0.5])
    make_agent = ppo_rnd.Agent.__init__

    def fixed_policy(agent, *arguments):
        make_agent(agent, *arguments)
        agent.policy.weight.data.zero_()
        agent.policy.bias.data.copy_(logits)

    monkeypatch.setattr(ppo_rnd.Agent, "__init__", fixed_policy)
    changes = {"env_id": "FrozenLake-v1", "num_envs": 64, "num_steps": 128}
    changes |= {"bonus": "none", "learning_rate": 1e-12, "obs_norm_init_iterations": 0}
    actions = [step[1] for step in recorded(settings(ppo_rnd, tmp_path, **changes)).steps]
    counts = np.bincount(np.concatenate(actions), minlength=4)
    assert counts.sum() == 8192
    expected = 8192 * softmax(logits.double().numpy())
    assert ((counts - expected) ** 2 / expected).sum() < 16.27


# Settings


def test_defaults_are_burdas(ppo_rnd):
    """Those of his paper's table and of the command in his README, with 32 envs."""
    burda = {
        "num_envs": 32,
        "num_steps": 128,
        "update_epochs": 4,
        "num_minibatches": 4,
        "learning_rate": 1e-4,
        "adam_eps": 1e-8,
        "gamma_ext": 0.999,
        "gamma_int": 0.99,
        "gae_lambda": 0.95,
        "clip_coef": 0.1,
        "ent_coef": 0.001,
        "vf_coef": 0.5,
        "ext_coef": 2.0,
        "int_coef": 1.0,
        "norm_adv": False,
        "scale_adv": False,
        "int_bootstrap": "reset",
        "obs_norm_init_iterations": 50,
        "sticky_action_prob": 0.25,
    }
    args = ppo_rnd.parse_args([])
    assert {name: getattr(args, name) for name in burda} == burda


def test_the_table_names_tests_that_exist():
    table = (ROOT / "docs" / "fidelity.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", table))
    written = "\n".join(path.read_text() for path in (ROOT / "tests" / "train").glob("test_*.py"))
    assert len(named) > 15
    assert {name for name in named if f"def {name}(" not in written} == set()
