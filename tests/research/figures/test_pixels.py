"""The learning curve on pixels: its means, and the random policy beside it."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from pathlib import Path
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest

DOCS = Path(__file__).parents[3] / "docs"
TABLE = DOCS / "data" / "pixels_kung_fu_master.csv"


@pytest.fixture
def pixels() -> ModuleType:
    return import_module("research.figures.pixels")


def row(iteration: int, episodes: int, mean: str) -> dict[str, str]:
    return {
        "method": "none",
        "global_step": str(1000 * iteration),
        "charts/episodes": str(episodes),
        "charts/episodic_return": mean,
    }


def test_curve_is_the_mean_of_the_last_twenty_episodes(pixels: ModuleType) -> None:
    # 15 episodes of mean 1, none, 3 of mean 8, 4 of mean 11: of the first 15, two drop out.
    rows = [row(1, 15, "1"), row(2, 15, ""), row(3, 18, "8"), row(4, 22, "11")]
    steps, means = pixels.curve(rows)
    exact = [Fraction(1), Fraction(15 + 3 * 8, 18), Fraction(13 + 3 * 8 + 4 * 11, 20)]
    assert steps.tolist() == [1000, 3000, 4000]
    np.testing.assert_allclose(means, [float(mean) for mean in exact], rtol=1e-15)


def test_random_returns_are_those_of_first_episodes_played_one_by_one(pixels: ModuleType) -> None:
    args = pixels.EnvArgs(env_id="CartPole-v1", reward_scale=0.01)
    found = pixels.random_returns(args, 6, seed=3)
    actions = np.random.default_rng(3).integers(0, 2, (500, 6))
    expected = []
    for place in range(6):
        env, score, ended, t = gym.make("CartPole-v1"), 0.0, False, 0
        env.reset(seed=3 + place)
        while not ended:
            _, reward, terminated, truncated, _ = env.step(actions[t, place])
            score, ended, t = score + reward, terminated or truncated, t + 1
        expected.append(score)
    assert len(set(expected)) > 1  # of different length: some envs begin a second episode
    assert found.tolist() == expected


def test_committed_runs_learn_and_the_page_quotes_them(pixels: ModuleType) -> None:
    rows = pixels.rows_by_method(pixels.chosen_rows([str(TABLE)], pixels.COLUMNS))
    random = [float(row["charts/episodic_return"]) for row in rows.pop("random")]
    assert len(random) >= 30
    assert list(rows) == ["none", "adops"]
    steps = [[int(row["global_step"]) for row in own] for own in rows.values()]
    iterations = len(steps[0])
    assert steps == [[8 * 128 * (i + 1) for i in range(iterations)]] * 2
    ends = [pixels.curve(own)[1][-1] for own in rows.values()]
    assert min(ends) > max(random)
    page = (DOCS / "training_demos.md").read_text("utf-8")
    _, _, after = page.partition("## Learning from pixels\n")
    section, _, _ = after.partition("\n## ")
    for quoted in (np.mean(random), *ends):
        assert f"{quoted:,.0f}" in section
    assert f"--total-iterations {iterations} " in section
