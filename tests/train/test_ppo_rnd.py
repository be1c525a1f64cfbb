from __future__ import annotations

import dataclasses
import json
import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from train_scripts import learned, read_metrics, run_script

from adops_wrappers import IntrinsicReturnNormalizer

pytest.importorskip("minigrid")

METHODS = ["none", "adops", "adopes", "adopes-half", "pies", "pbim", "pbim-norm", "grm", "grm-norm"]


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


def test_explained_variance(ppo_rnd):
    returns = np.array([1.0, 2.0, 4.0])
    assert ppo_rnd.explained_variance(returns, returns) == 1.0
    assert ppo_rnd.explained_variance(np.zeros(3), returns) == 0.0
    assert math.isnan(ppo_rnd.explained_variance(returns, np.ones(3)))


def test_conflict_and_intervention_rates(ppo_rnd):
    # Four steps of one env with V = 0: R decides A_E, raw F decides A_I.
    rewards = np.array([[-1.0, 0.5], [-1.0, 1.0], [1.0, -3.0], [1.0, 2.0]])[:, :, None]
    raw = np.array([[2.0], [0.5], [-3.0], [2.0]])
    correction = rewards[:, 1] - raw
    zeros = np.zeros((4, 2, 1))
    gamma = np.array([[0.999], [0.99]])
    metrics = ppo_rnd.shaping_metrics(rewards, raw, correction, zeros, zeros, gamma)
    assert metrics["shaping/conflict_rate"] == 0.5  # the first and the third step
    assert metrics["shaping/intervention_rate"] == 0.5  # the first and the second
    assert metrics["shaping/raw_min"] == -3.0
    assert metrics["shaping/correction_max"] == 0.5


# RND


def make_bonus(ppo_rnd, num_envs=6, steps=4):
    torch.manual_seed(0)
    space = gym.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    encoder = ppo_rnd.Encoder(space, "other", torch.device("cpu"), False)
    target, predictor = ppo_rnd.make_rnd_networks(encoder.rnd_shape, 16)
    clock = {"bonus": 0.0}
    return ppo_rnd.RNDBonus(encoder, target, predictor, steps, num_envs, clock)


def test_rnd_scores_and_trains_on_the_same_rows(ppo_rnd):
    bonus = make_bonus(ppo_rnd)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(4, 6, 5)).astype(np.float32)
    scores = np.array([bonus.reward(None, None, obs) for obs in observations])
    white = torch.from_numpy(observations).clamp(-5, 5)
    expected = (bonus.predictor(white) - bonus.target(white)).square().mean(-1)
    np.testing.assert_allclose(scores, expected.detach().numpy(), rtol=1e-5)
    # The loss over all rows is the mean of the scores: same s', same whitening, same target.
    assert bonus.loss(torch.arange(24)).item() == pytest.approx(scores.mean(), rel=1e-5)


def test_masked_rows_never_enter_and_the_gradient_is_the_masked_one(ppo_rnd):
    bonus = make_bonus(ppo_rnd)
    rng = np.random.default_rng(1)
    for _ in range(4):
        bonus.reward(None, None, rng.normal(size=(6, 5)).astype(np.float32))
    keep = torch.arange(24)[torch.rand(24, generator=torch.Generator().manual_seed(0)) < 0.5]
    bonus.loss(keep).backward()
    ours = [p.grad.clone() for p in bonus.predictor.parameters()]
    bonus.predictor.zero_grad()
    mask = torch.zeros(24).index_fill_(0, keep, 1.0)
    error = bonus.predictor(bonus.inputs.flatten(0, 1)) - bonus.targets.flatten(0, 1)
    ((error.square().mean(-1) * mask).sum() / mask.sum()).backward()
    for gradient, parameter in zip(ours, bonus.predictor.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-5, atol=1e-7)
    assert all(p.grad is None for p in bonus.target.parameters())


def test_whitening_equals_the_moments_of_all_that_was_seen(ppo_rnd):
    whitening = ppo_rnd.Whitening((3,), torch.device("cpu"))
    rng = np.random.default_rng(2)
    batches = [rng.normal(5.0, 3.0, (8, 3)).astype(np.float32) for _ in range(5)]
    for number, batch in enumerate(batches):
        before = whitening.mean.clone()
        whitening.observe(torch.from_numpy(batch))
        assert torch.equal(whitening.mean, before)  # still within a rollout
        if number % 2:
            whitening.update()
    whitening.update()
    everything = np.concatenate(batches).astype(np.float64)
    np.testing.assert_allclose(whitening.mean, everything.mean(0), rtol=1e-4)
    np.testing.assert_allclose(whitening.var, everything.var(0), rtol=1e-4)
    far = whitening(torch.full((1, 3), 1e6))
    assert far.tolist() == [[5.0, 5.0, 5.0]]


def test_normaliser_against_a_golden_array():
    # By hand: gamma = 1/2, two envs, F below; G = F0, F0/2 + F1, ...
    normalizer = IntrinsicReturnNormalizer(2, gamma=0.5, update="manual")
    bonuses = np.array([[4.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    assert [normalizer(f).tolist() for f in bonuses] == bonuses.tolist()  # no scale yet
    normalizer.update()
    golden = np.array([4.0, 0.0, 2.0, 2.0, 3.0, 3.0])
    assert normalizer.std == pytest.approx(golden.std(), rel=1e-12)
    # Within the next rollout the scale stands still; its own returns count after update().
    scaled = normalizer(np.array([1.0, 3.0]))
    np.testing.assert_allclose(scaled, np.array([1.0, 3.0]) / golden.std())
    normalizer.update()
    golden = np.append(golden, [2.5, 4.5])
    assert normalizer.std == pytest.approx(golden.std(), rel=1e-12)


def test_overflowing_gradients_are_clipped_not_lost(ppo_rnd):
    parameter = torch.nn.Parameter(torch.zeros(2))
    for gradient in ([3.0, 4.0], [3e30, 4e30]):
        parameter.grad = torch.tensor(gradient)
        ppo_rnd.clip_gradients([parameter], 0.5)
        np.testing.assert_allclose(parameter.grad, [0.3, 0.4], rtol=1e-5)
    parameter.grad = torch.tensor([3e30, 4e30])
    ppo_rnd.clip_gradients([parameter], 0.0)
    np.testing.assert_allclose(parameter.grad, [3e30, 4e30], rtol=1e-5)


# Whole runs


@pytest.fixture(scope="module")
def runs(ppo_rnd, tmp_path_factory):
    folder = tmp_path_factory.mktemp("methods")
    for method in METHODS:
        ppo_rnd.train(small(ppo_rnd, folder, method, shaping=method))
    return folder


@pytest.mark.parametrize("method", METHODS[1:])
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
    for bonus in ("count", "none"):
        ppo_rnd.train(small(ppo_rnd, tmp_path, bonus, bonus=bonus, total_iterations=1))
    counted, silent = (learned(tmp_path / bonus)[0] for bonus in ("count", "none"))
    assert float(counted["shaping/raw_max"]) == 1.0  # a first visit
    assert float(counted["charts/intrinsic_std"]) == 1.0
    assert float(silent["shaping/raw_max"]) == 0.0
    assert float(silent["losses/fwd_loss"]) == 0.0


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
        changes = {"total_iterations": 1, "num_envs": 5, "max_episode_steps": 100}
        ppo_rnd.train(small(ppo_rnd, tmp_path, f"{method}-passes", shaping=method, **changes))
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


def test_doorkey_is_solved(ppo_rnd, tmp_path):
    args = small(
        ppo_rnd,
        tmp_path,
        env_id="MiniGrid-DoorKey-5x5-v0",
        max_episode_steps=0,
        total_iterations=45,
        num_envs=16,
        num_steps=128,
        ent_coef=0.01,
        gamma_ext=0.99,
        mlp_hidden=64,
        shaping="adops",
    )
    ppo_rnd.train(args)
    final = [float(row["charts/episodic_return"]) for row in learned(tmp_path / "run")[-5:]]
    assert np.mean(final) >= 0.8, final


# Bad flags


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_minibatches": 7}, "cannot be cut into --num-minibatches 7"),
        ({"num_envs": 0}, "--num-envs must be at least 1"),
        ({"gamma_int": 1.5}, r"--gamma-int must lie in \[0, 1\]"),
        ({"env_kwargs": "horizon=3"}, "--env-kwargs must be a JSON object"),
        ({"learning_rate": 0.0}, "--learning-rate must be above 0"),
        ({"update_proportion": 2.0}, "--update-proportion must lie in"),
        ({"shaping": "adops", "delay": 5}, "--delay is a setting of grm, grm-norm"),
        ({"epsilon": 0.1}, "--epsilon is a setting of adops"),
    ],
)
def test_bad_flags_are_refused(ppo_rnd, tmp_path, changes, message):
    with pytest.raises(SystemExit, match=message):
        ppo_rnd.check_args(small(ppo_rnd, tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_id": "Pendulum-v1"}, "needs Discrete actions"),
        ({"env_id": "NoSuchEnv-v0"}, "--env-id NoSuchEnv-v0 cannot be built"),
        ({"env_kwargs": '{"colour": 3}'}, "unexpected keyword argument 'colour'"),
        ({"env_id": "Blackjack-v1"}, "not supported: Box and Discrete are"),
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
    usage = ppo_rnd.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(ppo_rnd.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(SystemExit, match="MB free, the run needs about"):
        ppo_rnd.train(small(ppo_rnd, tmp_path))


def test_nan_stops_and_keeps_the_last_good_checkpoint(ppo_rnd, tmp_path, monkeypatch):
    original, calls = ppo_rnd.clip_gradients, []

    def spoil(parameters, largest):
        calls.append(1)
        if len(calls) > 2 * 16:  # in the third iteration
            return torch.tensor(math.nan)
        return original(parameters, largest)

    monkeypatch.setattr(ppo_rnd, "clip_gradients", spoil)
    with pytest.raises(SystemExit, match="became NaN in iteration 3"):
        ppo_rnd.train(small(ppo_rnd, tmp_path, checkpoint_every=1))
    state, _ = ppo_rnd.load_checkpoint(tmp_path / "run")
    assert state["iteration"] == 2
    assert all(torch.isfinite(w).all() for w in state["networks"]["agent"].values())
    assert json.loads((tmp_path / "run" / "status.json").read_text())["reason"] == "NaN"


def test_duration_is_announced_without_a_trace(ppo_rnd, capsys):
    torch.manual_seed(0)
    space = gym.spaces.Box(0, 255, (4, 36, 36), np.uint8)
    encoder = ppo_rnd.Encoder(space, "atari", torch.device("cpu"), False)
    agent = ppo_rnd.Agent(encoder.shape, 3, 16)
    before, state = [p.clone() for p in agent.parameters()], torch.get_rng_state()
    ppo_rnd.announce_duration(ppo_rnd.Args(num_envs=2), agent, None, encoder)
    text = capsys.readouterr().out
    assert "30000 iterations will take about" in text
    assert "--env-id MiniGrid-DoorKey-5x5-v0" in text
    assert torch.equal(torch.get_rng_state(), state)
    for parameter, old in zip(agent.parameters(), before, strict=True):
        assert parameter.grad is None
        assert torch.equal(parameter, old)


def test_videos_do_not_disturb_training(ppo_rnd, tmp_path, runs):
    pytest.importorskip("moviepy")
    changes = {"shaping": "adops", "capture_video": True, "video_every": 2}
    ppo_rnd.train(small(ppo_rnd, tmp_path, "filmed", **changes))
    assert [p.name for p in (tmp_path / "filmed" / "videos").iterdir()] == ["00000002.mp4"]
    assert learned(tmp_path / "filmed") == learned(runs / "adops")


def test_command_line(tmp_path):
    text = run_script("ppo_rnd.py", "--help")
    for wanted in ("--shaping", "--resume", "--bonus", "settings are read from there"):
        assert wanted in text
    text = run_script("ppo_rnd.py", "--shaping", "nonsense", code=2)
    assert "adopes-half" in text


def test_every_flag_is_explained(ppo_rnd):
    source = ppo_rnd.inspect.getsource(ppo_rnd.Args)
    fields = dataclasses.fields(ppo_rnd.Args)
    helps = source.split('"""')[2:][1::2]  # after the class docstring: text, help, text, ...
    assert len(helps) == len(fields)
    assert all(len(text.strip()) > 10 for text in helps)


@pytest.mark.parametrize("balance", [0.1, 0.0])
def test_guarded_scale_turns_the_bonus_down_once_the_task_pays(ppo_rnd, tmp_path, balance):
    args = small(
        ppo_rnd,
        tmp_path,
        env_id="MountainCar-v0",  # pays at every step, and no episode ends so soon
        max_episode_steps=200,
        bonus="count",
        shaping="guarded",
        balance=balance,
    )
    rows = read_metrics(ppo_rnd.train(args))
    zeta = [float(row["shaping/zeta"]) for row in rows]
    assert zeta[0] == 1.0
    assert zeta[1] == 0.0 if balance == 0.0 else 0.0 < zeta[1] < 1.0
    ratio = float(rows[1]["shaping/shaped_max"]) / float(rows[1]["shaping/raw_max"])
    assert ratio == pytest.approx(zeta[1])


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


def test_advantages_cannot_be_normalised_twice(ppo_rnd):
    with pytest.raises(SystemExit, match="choose --norm-adv or --scale-adv"):
        ppo_rnd.parse_args(["--norm-adv", "--scale-adv"])
