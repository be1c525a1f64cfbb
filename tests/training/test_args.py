from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

import pytest

from adops_wrappers.training.args import (
    FREE_ON_RESUME,
    Auto,
    RunArgs,
    ScriptArgs,
    check_args,
    read_command_line,
)


@dataclass
class Args(ScriptArgs):
    """Settings of a script."""

    env_id: str = "CartPole-v1"
    """the env"""
    seed: int = 1
    """the seed"""
    bonus: str = "rnd"
    """source of F"""
    total_iterations: int = 10
    """iterations"""
    num_envs: int = 4
    """envs"""
    num_steps: int = 8
    """steps"""
    update_epochs: int = 4
    """passes"""
    num_minibatches: int = 4
    """minibatches"""
    minibatch_rows: str = "shuffled"
    """rows of a minibatch"""
    obs_norm_init_iterations: int = 1
    """warm-up"""
    update_proportion: float = 0.0
    """share of rows"""
    learning_rate: float = 1e-3
    """step size"""
    gamma_ext: float = 0.999
    """discount"""
    gamma_int: float = 0.99
    """discount"""
    gae_lambda: float = 0.95
    """lambda"""
    norm_adv: bool = False
    """standardise"""
    scale_adv: Auto = None
    """scale"""
    shaping: str = "none"
    """method"""
    delay: int = 1
    """a flag of one method"""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_minibatches": 7}, "cannot be cut into --num-minibatches 7"),
        ({"num_envs": 0}, "--num-envs must be at least 1, got 0"),
        ({"video_every": 0}, "--video-every must be at least 1"),
        ({"gamma_int": 1.5}, r"--gamma-int must lie in \[0, 1\]"),
        ({"update_proportion": 2.0}, r"--update-proportion must lie in \[0, 1\]"),
        ({"checkpoint_every": -1}, "--checkpoint-every must not be negative"),
        ({"learning_rate": 0.0}, "--learning-rate must be above 0"),
        ({"rank_timeout": 0.0}, "--rank-timeout must be above 0"),
        ({"env_kwargs": "horizon=3"}, "--env-kwargs must be a JSON object"),
        ({"env_kwargs": "[3]"}, "--env-kwargs must be a JSON object"),
        ({"norm_adv": True, "scale_adv": True}, "choose --norm-adv or --scale-adv"),
        ({"env_id": "CartPole-v1", "atari_obs": "ram"}, "is for Atari games; CartPole-v1 is none"),
        ({"seed": -1}, r"--seed must lie in \[0, 2147483644\] with 4 envs, got -1"),
        ({"seed": 2**31 - 3}, r"--seed must lie in \[0, 2147483644\] with 4 envs"),
        (
            {"norm_adv": True, "num_minibatches": 32},
            r"minibatches of at least 2 rows: one row has no spread\. Lower --num-minibatches 32",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_with_what_can(changes, message):
    with pytest.raises(SystemExit, match=message):
        check_args(Args(**changes))


def test_an_atari_game_without_a_vector_env_is_refused_with_the_way_out():
    pytest.importorskip("ale_py")
    game = ["--env-id", "PongNoFrameskip-v4"]
    with pytest.raises(SystemExit, match=r"no vector env.*ALE/Pong-v5, or add --atari"):
        read_command_line(Args, game)
    for way_out in (["--atari-backend", "sync"], ["--atari-obs", "ram"]):
        assert read_command_line(Args, [*game, *way_out]).env_id == game[1]


def test_settings_at_the_border_are_accepted():
    check_args(Args(seed=2**31 - 4, num_minibatches=32, scale_adv=True, gamma_ext=1.0))
    check_args(Args(seed=0, num_minibatches=16, norm_adv=True, checkpoint_every=0))


def test_a_flag_that_the_method_ignores_is_refused():
    readers = {"delay": ("grm", "grm-norm")}
    with pytest.raises(SystemExit, match=r"--delay is a setting of grm, grm-norm; --shaping pbim"):
        read_command_line(Args, ["--shaping", "pbim", "--delay", "3"], readers=readers)
    args = read_command_line(Args, ["--shaping", "grm", "--delay", "3"], readers=readers)
    assert args.delay == 3
    assert read_command_line(Args, ["--shaping", "pbim"], readers=readers).delay == 1


def test_flags_of_a_run_are_inherited_and_free_on_resume():
    names = [f.name for f in dataclasses.fields(Args)]
    assert set(names) >= FREE_ON_RESUME == {f.name for f in dataclasses.fields(RunArgs)}
    assert not FREE_ON_RESUME & {"env_id", "seed", "num_envs", "learning_rate", "reward_scale"}
    assert read_command_line(Args, ["--no-cuda", "--run-dir", "here"]).run_dir == "here"


def test_the_paper_s_id_is_translated_and_said(capsys):
    assert read_command_line(Args, ["--env-id", "ALE/Pong-v4"]).env_id == "ALE/Pong-v5"
    assert "Running ALE/Pong-v5 instead" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "scaled"),
    [
        ([], True),
        (["--no-scale-adv"], False),
        (["--scale-adv"], True),
        (["--norm-adv"], False),
        (["--env-id", "ALE/Pong-v5"], False),
        (["--env-id", "ale_py:ALE/Pong-v5"], False),
        (["--env-id", "ALE/Pong-v5", "--scale-adv"], True),
    ],
)
def test_advantages_are_scaled_outside_atari_unless_the_user_says(flags, scaled):
    pytest.importorskip("ale_py")
    assert read_command_line(Args, flags).scale_adv is scaled


@pytest.mark.parametrize("scaled", [True, False])
def test_a_resumed_run_scales_as_it_began(tmp_path, scaled):
    write_config(tmp_path, scale_adv=scaled)
    resume = ["--resume", str(tmp_path)]
    assert read_command_line(Args, resume).scale_adv is scaled
    other = "--no-scale-adv" if scaled else "--scale-adv"
    with pytest.raises(SystemExit, match=f"--scale-adv is {scaled} there and {not scaled} here"):
        read_command_line(Args, [*resume, other])


def test_only_a_run_can_be_resumed(tmp_path):
    with pytest.raises(SystemExit, match="is not a run directory"):
        read_command_line(Args, ["--resume", str(tmp_path)])


def write_config(folder, **changes):
    args = {**dataclasses.asdict(Args(scale_adv=True)), **changes}
    (folder / "config.json").write_text(json.dumps({"args": args}))


def test_a_resumed_run_keeps_what_is_learned_and_frees_the_rest(tmp_path):
    write_config(tmp_path, learning_rate=0.25, checkpoint_every=3)
    args = read_command_line(Args, ["--resume", str(tmp_path), "--no-tensorboard"])
    assert (args.learning_rate, args.checkpoint_every, args.tensorboard) == (0.25, 3, False)
    assert args.run_dir == args.resume == str(tmp_path)
    with pytest.raises(SystemExit) as refused:
        read_command_line(Args, ["--resume", str(tmp_path), "--learning-rate", "0.5"])
    assert "--learning-rate is 0.25 there and 0.5 here" in str(refused.value)


def test_settings_of_another_script_are_refused_by_name(tmp_path):
    write_config(tmp_path, balance=0.1)
    with pytest.raises(SystemExit, match=r"another script wrote this run; .* differ: .*balance"):
        read_command_line(Args, ["--resume", str(tmp_path)])
