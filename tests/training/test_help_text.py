from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

import pytest

from adops_wrappers.training.args import EnvArgs
from adops_wrappers.training.help_text import FIRST, explanations, show_help
from tests.train.scripts import load_script

SCRIPTS = ("ppo_rnd", "ppo_rnd_adops_advantage", "ppo_rnd_pies", "eipo_rnd")


def boxes(capsys: pytest.CaptureFixture[str], defaults: object) -> dict[str, list[str]]:
    """The settings in each box of the help, in their order."""
    with pytest.raises(SystemExit) as ending:
        show_help(defaults, "About.")
    assert ending.value.code == 0
    title, found = "", dict[str, list[str]]()
    for line in capsys.readouterr().out.split("\n"):
        if box := re.match(r"(?:╭─)? (\S.*)?options ", line):  # without a frame, as pytest's stdout
            title = (box[1] or "first").strip()
            found[title] = []
        elif flag := re.match(r"[│ ] ?--([a-z][a-z0-9-]*)", line):
            found[title].append(flag[1].replace("-", "_"))
    return found


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_flags_that_matter_come_first_and_every_other_in_one_group(script, capsys):
    kind = load_script(script).Args
    names = [field.name for field in dataclasses.fields(kind)]
    found = boxes(capsys, kind(scale_adv=False))
    first = found.pop("first")
    assert first == [name for name in FIRST if name in names]
    assert 3 <= len(first) <= 7
    groups = [name for box in found.values() for name in box]
    assert sorted([*first, *groups]) == sorted(names)
    assert found["env"][0] == "reward_scale"
    assert found["learning"][:3] == ["preset", "num_envs", "num_steps"]
    assert {"run_dir", "checkpoint_every", "amp"} < set(found["run"])
    assert {"bonus", "int_bootstrap"} <= set(found["bonus"])


def test_a_default_of_the_instance_is_shown(capsys):
    kind = load_script("ppo_rnd").Args
    with pytest.raises(SystemExit):
        show_help(kind(seed=71, gae_lambda=0.625, scale_adv=False))
    text = capsys.readouterr().out
    assert "(default: 71)" in text
    assert "(default: 0.625)" in text


def test_explanations_are_the_texts_under_the_settings_of_all_bases():
    @dataclass
    class Mine(EnvArgs):
        """Settings."""

        mine: int = 1
        """what
        is mine"""
        silent: int = 2
        env_id: str = "CartPole-v1"
        """which env"""

    found = explanations(Mine)
    assert found["mine"] == "what is mine"
    assert "silent" not in found
    assert found["env_id"] == "which env"
    assert found["minigrid_obs"].startswith("MiniGrid: the agent's")
