from __future__ import annotations

import signal

import pytest

from tests.train.scripts import learned, load_script

pytest.importorskip("ale_py")

SMALL = ("--num-envs", "2", "--num-steps", "24", "--max-episode-steps", "8", "--no-tensorboard")


@pytest.fixture
def laptop(monkeypatch):
    script = load_script("laptop")
    monkeypatch.setattr(script, "RECIPE", (*script.RECIPE, *SMALL, "--checkpoint-every", "2"))
    return script


@pytest.mark.parametrize("method", ["make_envs", "iterations"])
def test_laptop_stopped_before_its_first_iteration_draws_nothing(
    laptop, tmp_path, monkeypatch, capsys, method
):
    run = getattr(laptop.ppo_rnd.Run, method)

    def stopped(self):
        signal.raise_signal(signal.SIGINT)
        return run(self)

    monkeypatch.setattr(laptop.ppo_rnd.Run, method, stopped)
    laptop.main(laptop.Settings(iterations=3, out=str(tmp_path)))
    assert "SIGINT: stopped before an iteration began" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.png"))


def test_laptop_continues_and_leaves_a_picture(laptop, tmp_path, monkeypatch, capsys):
    settings = laptop.Settings(iterations=3, seed=4, out=str(tmp_path))
    save, picture = laptop.ppo_rnd.Run.log, tmp_path / "seed4.png"

    def fail_late(run, metrics):
        save(run, metrics)
        if run.iteration == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(laptop.ppo_rnd.Run, "log", fail_late)
        with pytest.raises(KeyboardInterrupt):
            laptop.main(settings)
    assert not picture.exists()
    laptop.main(settings)
    output = capsys.readouterr().out
    assert "Resuming" in output
    assert output.splitlines()[-1] == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = learned(tmp_path / "seed4")
    assert [int(row["iteration"]) for row in rows] == [1, 2, 3]
    assert [int(row["charts/rooms"]) for row in rows] == [1, 1, 1]
    laptop.main(settings)  # of a finished run, the picture again
    assert learned(tmp_path / "seed4") == rows
