from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch

from adops_wrappers import IntrinsicReturnNormalizer
from adops_wrappers.methods import trainable_methods
from adops_wrappers.training import checkpoint
from adops_wrappers.training.args import PRESETS
from adops_wrappers.training.encoding import Encoder
from adops_wrappers.training.progress import Clock
from scripts.advertised_runs import find_jobs
from tests.train.scripts import learned, load_script, read_metrics, run_script

pytest.importorskip("minigrid")

FROM_FIRST_REWARD = ("guarded", "adops-gated")
OTHERS = [name for name in trainable_methods() if name not in ("none", *FROM_FIRST_REWARD)]


def small(ppo_rnd, tmp_path, name="run", **changes):
    settings = {
        "env_id": "MiniGrid-Empty-5x5-v0",
        "run_dir": str(tmp_path / name),
        "total_iterations": 3,
        "num_envs": 4,
        "num_steps": 32,
        "max_episode_steps": 12,
        "learning_rate": 1e-3,
        "obs_norm_init_iterations": 2,
        "mlp_hidden": 16,
        "tensorboard": False,
        "torch_threads": 1,
        **changes,
    }
    return ppo_rnd.Args(**settings)


# Returns


def slow_gae(rewards, values, next_values, goes_on, gamma, lam):
    advantages = np.zeros_like(rewards)
    for stream in range(2):
        for env in range(rewards.shape[2]):
            for t in range(len(rewards)):
                weight = 1.0
                for k in range(t, len(rewards)):
                    delta = (
                        rewards[k, stream, env]
                        + gamma[stream, 0] * next_values[k, stream, env]
                        - values[k, stream, env]
                    )
                    advantages[t, stream, env] += weight * delta
                    weight *= gamma[stream, 0] * lam * goes_on[k, stream, env]
    return advantages


@pytest.mark.parametrize("settles_debt", [False, True])
@pytest.mark.parametrize("int_bootstrap", ["reset", "final", "none"])
def test_gae_of_two_discounts_equals_a_slow_loop(ppo_rnd, int_bootstrap, settles_debt):
    rng = np.random.default_rng(0)
    steps, envs = 20, 5
    rewards, final_values = rng.normal(size=(2, steps, 2, envs))
    values = rng.normal(size=(steps + 1, 2, envs))
    terminated = rng.random((steps, envs)) < 0.15
    truncated = ~terminated & (rng.random((steps, envs)) < 0.15)
    final_values *= (terminated | truncated)[:, None]
    gamma = np.array([[0.999], [0.99]])
    next_values, goes_on = ppo_rnd.bootstrap(
        values, final_values, terminated, truncated, int_bootstrap, settles_debt
    )
    fast = ppo_rnd.gae(rewards, values[:-1], next_values, goes_on, gamma, 0.95)
    slow = slow_gae(rewards, values[:-1], next_values, goes_on, gamma, 0.95)
    np.testing.assert_allclose(fast, slow, rtol=1e-12, atol=1e-12)


def test_bootstrap_at_every_kind_of_end(ppo_rnd):
    values = np.arange(8.0).reshape(4, 2, 1) + 1.0
    final_values = np.zeros((3, 2, 1))
    final_values[1:] = [[[50.0], [60.0]], [[70.0], [80.0]]]
    terminated = np.array([[False], [True], [False]])
    truncated = np.array([[False], [False], [True]])

    def rows(mode, settles_debt=False):
        next_values, goes_on = ppo_rnd.bootstrap(
            values, final_values, terminated, truncated, mode, settles_debt
        )
        return next_values[..., 0].T.tolist(), goes_on[..., 0].T.tolist()

    (ext, reset), (ext_on, reset_on) = rows("reset")
    assert ext == [3.0, 0.0, 70.0]  # terminated: nothing; truncated: the final observation
    assert ext_on == [1.0, 0.0, 0.0]
    assert reset == [4.0, 6.0, 8.0]  # non-episodic: the stream runs on
    assert reset_on == [1.0, 1.0, 1.0]
    assert rows("final")[0][1] == [4.0, 60.0, 80.0]
    assert rows("none")[0][1] == [4.0, 0.0, 80.0]
    for mode in ("reset", "final", "none"):
        (_, settled), (_, settled_on) = rows(mode, settles_debt=True)
        assert settled == [4.0, 0.0, 0.0]
        assert settled_on == [1.0, 0.0, 0.0]


def test_debts_are_not_bootstrapped_over(ppo_rnd):
    # PBIM returns exactly what it gave: with V = 0 and lambda = 1 the advantage of the first
    # step is zero, whereas bootstrapping over the end would add the next episode's bonus.
    rng = np.random.default_rng(1)
    bonus, gamma = rng.random(6), 0.9
    shaped = bonus.copy()
    debt = 0.0
    for t in range(5):
        debt = (debt + bonus[t]) / gamma
    shaped[5] = -debt
    rewards = np.zeros((8, 2, 1))
    rewards[:6, 1, 0], rewards[6:, 1, 0] = shaped, 5.0
    truncated = np.zeros((8, 1), dtype=bool)
    truncated[5] = True
    values, final_values = np.zeros((9, 2, 1)), np.zeros((8, 2, 1))
    next_values, goes_on = ppo_rnd.bootstrap(
        values, final_values, ~truncated & False, truncated, "reset", True
    )
    discounts = np.array([[0.999], [gamma]])
    advantages = ppo_rnd.gae(rewards, values[:-1], next_values, goes_on, discounts, 1.0)
    assert advantages[0, 1, 0] == pytest.approx(0.0, abs=1e-12)


# RND


def make_bonus(ppo_rnd, num_envs=6, steps=4):
    torch.manual_seed(0)
    space = gym.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    encoder = Encoder(space, "other", torch.device("cpu"))
    return ppo_rnd.RNDBonus(encoder, 16, steps, num_envs)


def test_rnd_scores_and_trains_on_the_same_rows(ppo_rnd):
    bonus = make_bonus(ppo_rnd)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(4, 6, 5)).astype(np.float32)
    scores = np.array([bonus.reward(None, None, obs) for obs in observations])
    white = torch.from_numpy(observations).clamp(-5, 5)
    expected = (bonus.predictor(white) - bonus.target(white)).square().mean(-1)
    np.testing.assert_allclose(scores, expected.detach().numpy(), rtol=1e-5)
    # The loss over all rows is the mean of the scores: same s', same whitening, same target.
    assert bonus.loss(torch.arange(24), 24).item() == pytest.approx(scores.mean(), rel=1e-5)


def test_masked_rows_never_enter_and_the_gradient_is_the_masked_one(ppo_rnd):
    bonus = make_bonus(ppo_rnd)
    rng = np.random.default_rng(1)
    for _ in range(4):
        bonus.reward(None, None, rng.normal(size=(6, 5)).astype(np.float32))
    keep = torch.arange(24)[torch.rand(24, generator=torch.Generator().manual_seed(0)) < 0.5]
    bonus.loss(keep, len(keep)).backward()
    ours = [p.grad.clone() for p in bonus.predictor.parameters()]
    bonus.predictor.zero_grad()
    mask = torch.zeros(24).index_fill_(0, keep, 1.0)
    error = bonus.predictor(bonus.inputs.flatten(0, 1)) - bonus.targets.flatten(0, 1)
    ((error.square().mean(-1) * mask).sum() / mask.sum()).backward()
    for gradient, parameter in zip(ours, bonus.predictor.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-5, atol=1e-7)
    assert all(p.grad is None for p in bonus.target.parameters())


def test_normaliser_against_a_golden_array():
    # By hand: gamma = 1/2, two envs, F below; G = F0, F0/2 + F1, ...
    normalizer = IntrinsicReturnNormalizer(2, gamma=0.5, update="manual")
    bonuses = np.array([[4.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    assert [normalizer(f).tolist() for f in bonuses] == [[0.0, 0.0]] * 3  # no scale yet
    normalizer.update()
    golden = np.array([4.0, 0.0, 2.0, 2.0, 3.0, 3.0])
    assert normalizer.scale == pytest.approx(golden.std(), rel=1e-12)
    # Within the next rollout the scale stands still; its own returns count after update().
    scaled = normalizer(np.array([1.0, 3.0]))
    np.testing.assert_allclose(scaled, np.array([1.0, 3.0]) / golden.std())
    normalizer.update()
    golden = np.append(golden, [2.5, 4.5])
    assert normalizer.scale == pytest.approx(golden.std(), rel=1e-12)


def test_the_scale_after_a_rollout_is_that_of_its_own_returns(ppo_rnd, tmp_path, monkeypatch):
    """As in Burda et al., whose random steps never reach the scale of F."""
    scores, reward = [], ppo_rnd.RNDBonus.reward

    def note(bonus, *transition):
        scores.append(reward(bonus, *transition))
        return scores[-1]

    monkeypatch.setattr(ppo_rnd.RNDBonus, "reward", note)
    ppo_rnd.train(small(ppo_rnd, tmp_path, total_iterations=1))
    filtered, returns = np.zeros(4), []
    for bonus in scores:
        filtered = 0.99 * filtered + bonus
        returns.append(filtered)
    found = float(learned(tmp_path / "run")[0]["charts/intrinsic_scale"])
    assert found == pytest.approx(np.std(returns), rel=1e-6)


# Acting


def make_learner(ppo_rnd, num_envs=6, **changes):
    torch.manual_seed(0)
    space = gym.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    args = ppo_rnd.Args(num_envs=num_envs, num_steps=4, mlp_hidden=16, **changes)
    encoder = Encoder(space, "other", torch.device("cpu"))
    return ppo_rnd.Learner(args, encoder, 3, num_envs, Clock())


def test_autocast_turns_no_sign_of_an_advantage(ppo_rnd):
    """A walk in small steps: rounded to bfloat16, many one-step advantages change their sign."""
    rng = np.random.default_rng(0)
    walk = 3.0 * rng.normal(size=(6, 5)) + rng.normal(scale=0.01, size=(64, 6, 5)).cumsum(0)
    learners = [make_learner(ppo_rnd, amp=amp) for amp in (False, True)]
    signs = []
    for learner in learners:
        values = np.array([learner.critic(obs).value_ext for obs in walk.astype(np.float32)])
        signs.append(np.sign(0.999 * values[1:] - values[:-1]))
    assert (signs[0] != signs[1]).sum() == 0
    with torch.no_grad(), learners[1].autocast():
        rounded = learners[1].agent(torch.from_numpy(walk).float())[1][..., 0].float().numpy()
    turned = np.sign(0.999 * rounded[1:] - rounded[:-1]) != signs[0]
    assert turned.mean() > 0.05


def test_the_update_alone_computes_less_exactly(ppo_rnd, tmp_path, monkeypatch):
    passes, forward = set(), ppo_rnd.Agent.forward

    def note(self, features):
        backends = torch.backends.cuda.matmul, torch.backends.cudnn
        exact = not any(backend.allow_tf32 for backend in backends)
        exact &= not torch.is_autocast_enabled(features.device.type)
        passes.add((torch.is_inference_mode_enabled(), exact))
        return forward(self, features)

    monkeypatch.setattr(ppo_rnd.Agent, "forward", note)
    for flag in ("amp", "tf32"):
        passes.clear()
        ppo_rnd.train(small(ppo_rnd, tmp_path, flag, **{flag: True}, shaping="adops"))
        assert passes == {(True, True), (False, False)}, flag


def test_an_observation_seen_again_draws_a_new_action(ppo_rnd):
    learner, obs = make_learner(ppo_rnd), np.zeros((6, 5), dtype=np.float32)
    noise = torch.full((3, 6, 3), 1e9)
    for step, action in enumerate((2, 0, 1)):
        noise[step, :, action] = 1e-9
    learner.actor.start_rollout(noise)
    drawn = []
    for _ in range(3):
        answer = learner.critic(obs)
        drawn.append(learner.actor.act(answer).tolist())
    assert drawn == [[2] * 6, [0] * 6, [1] * 6]


def test_the_bonus_and_the_values_of_the_next_observation_share_a_copy(ppo_rnd):
    """One pass and one copy for both, unless an episode ends: then the agent sees another."""
    learner, rng = make_learner(ppo_rnd), np.random.default_rng(0)
    looks, look = [], learner.actor.look
    learner.actor.look = lambda *tensors: looks.append(len(tensors)) or look(*tensors)
    plain = make_bonus(ppo_rnd)
    plain.target, plain.predictor = learner.source.target, learner.source.predictor
    obs = rng.normal(size=(6, 5)).astype(np.float32)
    learner.prepare(obs)
    scores = learner.source.reward(None, None, obs)
    np.testing.assert_array_equal(scores, plain.reward(None, None, obs))
    answer = learner.critic(obs.copy())
    assert looks == [2]
    with torch.no_grad():
        logits, values = learner.agent(torch.from_numpy(obs))
    np.testing.assert_array_equal(answer.value_int, values[:, 1].numpy())
    assert torch.equal(answer.logits, logits)
    # What was prepared counts once.
    assert (learner.source.reward(None, None, obs + 1.0) != scores).all()
    assert looks == [2]
    learner.critic(obs + 2.0)
    assert looks == [2, 1]


# Burda's code and the paper's


def test_presets_are_what_burda_and_the_paper_have_otherwise(ppo_rnd):
    default, burda, paper = (
        ppo_rnd.parse_args(["--preset", name]) for name in ("default", "burda", "paper")
    )
    assert default == ppo_rnd.Args(scale_adv=False)
    assert burda == ppo_rnd.Args(preset="burda", **PRESETS["burda"])
    assert (burda.end_at_truncation, burda.max_grad_norm) == (True, 0.0)
    assert (burda.minibatch_rows, paper.minibatch_rows) == ("whole-envs", "with-replacement")
    assert (paper.rnd_slope, paper.restart_return_filter, paper.root_gains) == (0.01, True, True)
    chosen = ppo_rnd.parse_args(["--max-grad-norm", "0.3", "--preset", "paper"])
    assert chosen == dataclasses.replace(paper, max_grad_norm=0.3)
    small_env = ["--preset", "burda", "--env-id", "CartPole-v1"]
    assert not ppo_rnd.parse_args(small_env).scale_adv
    assert ppo_rnd.parse_args([*small_env, "--scale-adv"]).scale_adv


@pytest.mark.parametrize("preset", ["burda", "paper"])
def test_presets_train_and_resume(ppo_rnd, tmp_path, preset):
    args = small(ppo_rnd, tmp_path, shaping="adops", preset=preset, **PRESETS[preset])
    ppo_rnd.train(dataclasses.replace(args, total_iterations=2))
    assert ppo_rnd.parse_args(["--resume", str(tmp_path / "run")]).preset == preset
    assert len(learned(tmp_path / "run")) == 2


def test_slope_and_gains_reach_the_networks(ppo_rnd):
    for changes, slope, small_gain, tiny in (
        ({}, 0.2, 0.1, 0.01),
        (PRESETS["paper"], 0.01, 0.1**0.5, 0.1),
    ):
        learner = make_learner(ppo_rnd, **changes)
        for network in (learner.source.target, learner.source.predictor):
            leaky = [m for m in network.modules() if isinstance(m, torch.nn.LeakyReLU)]
            assert [layer.negative_slope for layer in leaky] == [slope]
        agent = learner.agent
        for layer, gain in ((agent.for_policy, small_gain), (agent.policy, tiny)):
            largest = torch.linalg.matrix_norm(layer.weight, 2).item()
            assert largest == pytest.approx(gain, rel=1e-5)


def test_envs_that_cannot_be_dealt_out_are_refused(ppo_rnd):
    with pytest.raises(SystemExit, match="whole-envs cannot divide --num-envs 6 among"):
        ppo_rnd.parse_args(["--preset", "burda", "--num-envs", "6"])


# Whole runs


@pytest.fixture(scope="module")
def runs(ppo_rnd, tmp_path_factory):
    folder = tmp_path_factory.mktemp("methods")
    for method in ("none", *OTHERS):
        ppo_rnd.train(small(ppo_rnd, folder, method, shaping=method))
    return folder


@pytest.mark.parametrize("method", OTHERS)
def test_every_method_differs_from_none(runs, method):
    none, ours = learned(runs / "none"), learned(runs / method)
    assert len(ours) == 3
    # The first rollout is the same for all, but for what the method does to F.
    same = ["charts/episodic_return", "charts/episodic_length", "charts/action_prob_max"]
    same += [] if method == "adopes-half" else ["shaping/raw_mean"]
    assert [ours[0][key] for key in same] == [none[0][key] for key in same]
    last = {key: float(ours[2][key] or "nan") for key in ours[2]}
    assert ours[2]["losses/policy_loss"] != none[2]["losses/policy_loss"]
    assert last["shaping/intervention_rate"] > 0.0
    assert last["shaping/correction_max"] != 0.0 or last["shaping/correction_min"] != 0.0
    assert 0.0 <= last["shaping/conflict_rate"] <= 1.0
    zetas = [float(row["shaping/zeta"]) for row in ours]
    expected = {"adopes": [0, 1, 1], "adopes-half": [0, 1, 1], "pies": [1, 0, 0]}
    assert zetas == expected.get(method, [1, 1, 1])


def test_what_none_reports(runs):
    rows = read_metrics(runs / "none")
    for row in rows:
        assert float(row["shaping/intervention_rate"]) == 0.0
        assert row["shaping/raw_mean"] == row["shaping/shaped_mean"]
        assert float(row["charts/SPS"]) > 0.0
    assert float(rows[0]["shaping/conflict_rate"]) > 0.0
    assert int(rows[2]["global_step"]) == 3 * 4 * 32
    config = json.loads((runs / "none" / "config.json").read_text())
    assert config["args"]["shaping"] == "none"
    assert config["versions"]["torch"] == torch.__version__
    assert json.loads((runs / "none" / "status.json").read_text())["finished"] is True


def test_adopes_half_halves_the_bonus(runs):
    whole, half = learned(runs / "adopes")[0], learned(runs / "adopes-half")[0]
    assert float(half["shaping/raw_mean"]) == pytest.approx(float(whole["shaping/raw_mean"]) / 2)


def test_bonus_sources(ppo_rnd, tmp_path):
    settings = {"total_iterations": 1, "normalize_intrinsic": "no"}
    for bonus in ("count", "none"):
        ppo_rnd.train(small(ppo_rnd, tmp_path, bonus, bonus=bonus, **settings))
    counted, silent = (learned(tmp_path / bonus)[0] for bonus in ("count", "none"))
    assert float(counted["shaping/raw_max"]) == 1.0  # a first visit
    assert float(counted["charts/intrinsic_scale"]) == 1.0
    assert float(silent["shaping/raw_max"]) == 0.0
    assert float(silent["losses/fwd_loss"]) == 0.0


@pytest.mark.parametrize(
    ("bonus", "flag", "rule"),
    [("rnd", "auto", "std"), ("count", "auto", "rms"), ("rnd", "rms", "rms"), ("count", "no", "")],
)
def test_every_bonus_is_normalised_unless_switched_off(ppo_rnd, bonus, flag, rule):
    normalizer = make_learner(ppo_rnd, bonus=bonus, normalize_intrinsic=flag).normalizer
    assert getattr(normalizer, "rule", "") == rule


def test_counts_pay_nothing_before_their_size_is_known(ppo_rnd, tmp_path, monkeypatch):
    """Counts of twice the size make the same run; its first rollout has no bonus."""
    make = ppo_rnd.CountBonus
    for name, scale in (("one", 1.0), ("two", 2.0)):
        monkeypatch.setattr(ppo_rnd, "CountBonus", partial(make, scale=scale))
        ppo_rnd.train(small(ppo_rnd, tmp_path, name, bonus="count"))
    one, two = learned(tmp_path / "one"), learned(tmp_path / "two")
    assert float(one[0]["shaping/shaped_max"]) == 0.0 < float(one[1]["shaping/shaped_max"])
    for first, second in zip(one, two, strict=True):
        scales = [float(row.pop("charts/intrinsic_scale")) for row in (first, second)]
        assert scales[1] == 2.0 * scales[0]
        assert first == second


@pytest.mark.parametrize("bonus", ["rnd", "count"])
def test_quiet_iterations_pay_no_bonus_and_resume_exactly(ppo_rnd, tmp_path, bonus):
    settings = {"bonus": bonus, "quiet_iterations": 3, "total_iterations": 5}
    ppo_rnd.train(small(ppo_rnd, tmp_path, checkpoint_every=2, **settings))
    expected = learned(tmp_path / "run")
    assert [float(row["shaping/raw_max"]) > 0.0 for row in expected] == [False] * 3 + [True] * 2
    assert float(expected[0]["charts/intrinsic_scale"]) != float(
        expected[2]["charts/intrinsic_scale"]
    )
    for done in ("00000004", "00000005"):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / done)
    ppo_rnd.train(ppo_rnd.parse_args(["--resume", str(tmp_path / "run")]))
    assert learned(tmp_path / "run") == expected


# ADOPS on the advantage


def test_clamp_begins_with_the_first_reward_and_resumes_exactly(ppo_rnd, tmp_path):
    args = small(
        ppo_rnd,
        tmp_path,
        clamp_advantage=True,
        scale_adv=True,
        total_iterations=8,
        checkpoint_every=4,
        seed=4,
    )
    ppo_rnd.train(args)
    expected = learned(tmp_path / "run")
    rewarded = False
    for row in expected:
        rewarded |= float(row["charts/episodic_return"] or 0.0) > 0.0
        clamped = float(row["shaping/advantage_intervention_rate"])
        assert (clamped > 0.0) == rewarded
        # What is clamped is what contradicts, where the sum is not 0 already.
        assert not rewarded or clamped == float(row["shaping/advantage_conflict_rate"])
    assert rewarded
    assert float(expected[0]["shaping/advantage_intervention_rate"]) == 0.0
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "00000008")
    ppo_rnd.train(ppo_rnd.parse_args(["--resume", str(tmp_path / "run")]))
    assert learned(tmp_path / "run") == expected
    state = checkpoint.load(tmp_path / "run").state["shared"]
    assert state["combine"] == {"rewarded": True}
    assert state["floor"]["updates"] == 8


def test_scaled_advantages_are_divided_by_no_less_than_the_floor(ppo_rnd, tmp_path, monkeypatch):
    """At a ratio of 1 the policy's loss is minus the mean of what PPO learns from."""
    sizes = {}

    def run(name, least):
        class Floor(ppo_rnd.AdvantageFloor):
            def after(self, advantages):
                sizes[name] = advantages.mean(), np.sqrt(np.square(advantages).mean())
                return least

        monkeypatch.setattr(ppo_rnd, "AdvantageFloor", Floor)
        one = {"update_epochs": 1, "num_minibatches": 1, "total_iterations": 1}
        ppo_rnd.train(small(ppo_rnd, tmp_path, name, scale_adv=True, **one))
        mean, size = sizes[name]
        found = float(learned(tmp_path / name)[0]["losses/policy_loss"])
        assert found == pytest.approx(-mean / max(size, least), rel=1e-4)
        return found

    assert abs(run("collapsed", 1e3)) < 1e-2 * abs(run("plain", 1e-8))
    assert sizes["collapsed"] == sizes["plain"]


def test_one_network_pass_per_vector_step(ppo_rnd, tmp_path, monkeypatch):
    calls = []
    forward = ppo_rnd.Agent.forward

    def counted(self, features):
        calls.append(len(features))
        return forward(self, features)

    monkeypatch.setattr(ppo_rnd.Agent, "forward", counted)
    passes = {}
    for method in ("none", "adops"):
        calls.clear()
        # Numbers that change at every step: an observation seen again needs no new pass.
        changes = {"env_id": "CartPole-v1", "num_envs": 5, "max_episode_steps": 100}
        changes |= {"shaping": method, "total_iterations": 1}
        ppo_rnd.train(small(ppo_rnd, tmp_path, f"{method}-passes", **changes))
        passes[method] = calls.count(5)  # full batches; ends evaluate fewer rows
    assert passes == {"none": 33, "adops": 33}


def test_run_is_reproducible(ppo_rnd, tmp_path, runs):
    ppo_rnd.train(small(ppo_rnd, tmp_path, "again", shaping="adops"))
    assert learned(tmp_path / "again") == learned(runs / "adops")


@pytest.mark.parametrize(
    ("env_id", "minigrid_obs"),
    [("FrozenLake-v1", "image"), ("CartPole-v1", "image"), ("MiniGrid-Empty-5x5-v0", "flat")],
)
def test_other_observations(ppo_rnd, tmp_path, env_id, minigrid_obs):
    args = small(ppo_rnd, tmp_path, env_id=env_id, minigrid_obs=minigrid_obs, shaping="adops")
    ppo_rnd.train(args)
    rows = learned(tmp_path / "run")
    assert float(rows[-1]["losses/entropy"]) > 0.0
    assert float(rows[-1]["losses/fwd_loss"]) < float(rows[0]["losses/fwd_loss"])


def test_the_run_that_the_pages_advertise_solves_its_task_even_when_it_is_small(tmp_path):
    """A quarter of its envs and two thirds of its iterations; unscaled advantages reach 0.24."""
    (job,) = (
        j for j in find_jobs() if "--shaping adops --env-id MiniGrid-DoorKey-5x5" in j.command
    )
    flags = [*job.command.split()[2:], "--num-envs", "8", "--no-tensorboard"]
    flags[flags.index("--total-iterations") + 1] = "40"
    run_script("ppo_rnd.py", *flags, "--run-dir", str(tmp_path / "run"))
    final = [float(row["charts/episodic_return"]) for row in learned(tmp_path / "run")[-5:]]
    assert np.mean(final) >= 0.7, final


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_id": "Pendulum-v1"}, "needs Discrete actions"),
        ({"env_id": "NoSuchEnv-v0"}, "--env-id NoSuchEnv-v0 cannot be built"),
        ({"env_kwargs": '{"colour": 3}'}, "unexpected keyword argument 'colour'"),
        ({"env_id": "Blackjack-v1"}, "not supported, only Box and Discrete"),
        ({"shaping": "adops", "gamma_int": 0.9999}, "is above gamma_ext"),
        ({"shaping": "grm", "delay": -1}, "delay must be"),
    ],
)
def test_impossible_runs_say_why(ppo_rnd, tmp_path, changes, message):
    with pytest.raises(SystemExit, match=message):
        ppo_rnd.train(small(ppo_rnd, tmp_path, **changes))


def test_unwritable_and_full_run_directories(ppo_rnd, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(SystemExit, match="cannot write to"):
        ppo_rnd.train(small(ppo_rnd, tmp_path, "file/run"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(SystemExit, match="MB free, the run needs about"):
        ppo_rnd.train(small(ppo_rnd, tmp_path))


def test_nan_stops_and_keeps_the_last_good_checkpoint(ppo_rnd, tmp_path, monkeypatch):
    original, calls = ppo_rnd.clip_gradients, []

    def spoil(parameters, largest):
        calls.append(1)
        if len(calls) > 2 * 16:  # in the third iteration
            return torch.tensor(math.nan, device=parameters[0].device)
        return original(parameters, largest)

    monkeypatch.setattr(ppo_rnd, "clip_gradients", spoil)
    with pytest.raises(SystemExit, match="became NaN in iteration 3"):
        ppo_rnd.train(small(ppo_rnd, tmp_path, checkpoint_every=1))
    found = checkpoint.load(tmp_path / "run")
    assert found.iteration == 2
    assert all(torch.isfinite(w).all() for w in found.state["shared"]["agent"].values())
    assert json.loads((tmp_path / "run" / "status.json").read_text())["reason"] == "NaN"


def test_videos_do_not_disturb_training(ppo_rnd, tmp_path, runs):
    pytest.importorskip("moviepy")
    changes = {"shaping": "adops", "capture_video": True, "video_every": 2}
    ppo_rnd.train(small(ppo_rnd, tmp_path, "filmed", **changes))
    assert [p.name for p in (tmp_path / "filmed" / "videos").iterdir()] == ["00000002.mp4"]
    assert learned(tmp_path / "filmed") == learned(runs / "adops")


def test_command_line(tmp_path):
    text = run_script("ppo_rnd.py", "--help")
    for wanted in ("--shaping", "--resume", "--bonus", "from its last checkpoint"):
        assert wanted in text
    text = run_script("ppo_rnd.py", "--shaping", "nonsense", code=2)
    assert "adopes-half" in text


@pytest.mark.parametrize("script", ["ppo_rnd.py", "ppo_rnd_adopes.py"])
def test_every_flag_is_explained(script):
    module = load_script(script.removesuffix(".py"))
    text = re.sub("[│─╭╮╰╯]", "", run_script(script, "--help"))
    found = {}
    for part in re.split(r"\n\s*--(?=[a-z])", text)[1:]:
        flag, explanation = re.split(r"[ ,\n]", part, maxsplit=1)
        explanation = re.sub(r"^(STR|INT|FLOAT|\{.*?\}| --no-\S+)", "", explanation)
        found[flag.replace("-", "_")] = explanation.split("(default")[0].strip()
    for field in dataclasses.fields(module.Args):
        assert len(found[field.name]) > 10, field.name


def test_guarded_scale_pauses_once_the_task_pays(ppo_rnd, tmp_path):
    args = small(
        ppo_rnd,
        tmp_path,
        env_id="MountainCar-v0",  # pays at every step, and no episode ends so soon
        max_episode_steps=200,
        bonus="count",
        normalize_intrinsic="no",
        shaping="guarded",
        pause=0.03,
    )
    rows = read_metrics(ppo_rnd.train(args))
    zeta = [float(row["shaping/zeta"]) for row in rows]
    assert zeta[:2] == [1.0, 0.03]
    ratio = float(rows[1]["shaping/shaped_max"]) / float(rows[1]["shaping/raw_max"])
    assert ratio == pytest.approx(0.03)


def test_conflict_rate_is_the_clamp_s_own(ppo_rnd, tmp_path):
    """With a huge weight on A_E no bonus turns its sign; with a huge tolerance nothing is bad."""
    rates = {}
    for name, changes in {
        "plain": {},
        "weight": {"clamp_ext_coef": 1e9},
        "tolerance": {"tie_tolerance": 1e9, "clamp_int_coef": 1e-9},
    }.items():
        args = small(ppo_rnd, tmp_path, name, shaping="adops", total_iterations=1, **changes)
        row = read_metrics(ppo_rnd.train(args))[0]
        rates[name] = float(row["shaping/conflict_rate"])
    assert rates["plain"] > 0.0
    assert rates["weight"] == 0.0
    # All steps count as good, and the sign of the total is that of A_E.
    assert 0.0 < rates["tolerance"] < 1.0


# Advantages


@pytest.mark.parametrize("scaled", [True, False])
def test_scaled_advantages_forget_their_unit(ppo_rnd, tmp_path, scaled):
    losses = []
    for name, weight in (("one", 1.0), ("eight", 8.0)):
        args = small(
            ppo_rnd,
            tmp_path,
            name,
            total_iterations=1,
            ext_coef=weight,
            int_coef=weight,
            scale_adv=scaled,
        )
        losses.append(float(read_metrics(ppo_rnd.train(args))[0]["losses/policy_loss"]))
    assert (losses[0] == pytest.approx(losses[1], rel=1e-5)) == scaled
