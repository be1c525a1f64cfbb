from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adops_wrappers
from adops_wrappers.envs import AtariRamVectorEnv
from adops_wrappers.training.args import EnvArgs
from adops_wrappers.training.envs import (
    MONTEZUMA,
    count_key,
    env_kind,
    find_spec,
    make_env,
    make_vector_env,
    refuse_import,
)
from adops_wrappers.training.statistics import (
    EpisodeHistory,
    EpisodeStatistics,
    Finished,
    RoomStatistics,
    with_statistics,
)

assert adops_wrappers  # registers the gallery


class Counting(gym.Env):
    """Pays 10 a step, and ends after three."""

    observation_space = gym.spaces.Box(0, 9, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, dtype=np.float32), 10, self.t == 3, False, {}


def statistics(scale=0.5):
    envs = SyncVectorEnv([Counting] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    return EpisodeStatistics(envs, scale)


def test_episodes_are_counted_unscaled_and_rewards_scaled():
    envs = statistics()
    envs.reset(seed=0)
    for _ in range(4):
        _, reward, *_ = envs.step(np.zeros(2, dtype=int))
        assert reward.tolist() == [5.0, 5.0]
    assert envs.take_finished() == [Finished(30.0, 3, (), 30.0, 30.0)] * 2
    assert envs.take_finished() == []
    assert envs.returns.tolist() == [10.0, 10.0]
    assert envs.lengths.tolist() == [1, 1]
    envs.reset(seed=0)
    assert envs.lengths.tolist() == [0, 0]


@pytest.mark.parametrize("end_at_truncation", [False, True])
def test_a_cut_episode_is_passed_on_as_cut_or_as_ended(end_at_truncation):
    envs = make_vector_env(EnvArgs(env_id="CartPole-v1", max_episode_steps=3), "other", 2)
    envs = with_statistics(envs, EnvArgs(), "other", end_at_truncation)
    envs.reset(seed=0)
    ends = [envs.step(np.array([0, 1]))[2:] for _ in range(3)]
    terminated, truncated, info = ends[-1]
    assert terminated.tolist() == [end_at_truncation] * 2
    assert truncated.tolist() == [not end_at_truncation] * 2
    assert len(info["final_obs"]) == 2
    assert not any(terminated.any() or truncated.any() for terminated, truncated, _ in ends[:2])
    assert [episode.length for episode in envs.take_finished()] == [3, 3]


def test_running_episodes_come_back():
    first, second = statistics(), statistics()
    first.reset(seed=0)
    second.reset(seed=0)
    first.step(np.zeros(2, dtype=int))
    second.load_state_dict(first.state_dict())
    for envs in (first, second):
        envs.step(np.zeros(2, dtype=int))
    assert second.returns.tolist() == first.returns.tolist() == [20.0, 20.0]
    assert second.weights.tolist() == first.weights.tolist() == [2.0, 2.0]
    assert second.to_go.tolist() == first.to_go.tolist() == [15.0, 15.0]


def test_running_episodes_of_version_0_2_0_come_back():
    envs = statistics()
    envs.reset(seed=0)
    state = envs.state_dict()
    del state["weights"], state["to_go"]
    envs.load_state_dict(state)
    assert envs.to_go.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("end_at_truncation", [False, True])
def test_returns_to_go_are_the_exact_sums_over_an_episode(end_at_truncation):
    """CartPole pays 1 a step. Halved and discounted by .9, the last k steps are worth
    5·(1 − .9^k); where a truncated episode goes on at that rate, every step is worth 5."""
    args = SimpleNamespace(**vars(EnvArgs(env_id="CartPole-v1", reward_scale=0.5)), gamma_ext=0.9)
    args.max_episode_steps = 12
    envs = with_statistics(make_vector_env(args, "other", 2), args, "other", end_at_truncation)
    envs.reset(seed=0)
    history, finished = EpisodeHistory(), []
    for step in range(60):
        # The first pole is pushed over, the second is kept up until it is cut off.
        envs.step(np.array([0, step % 2]))
        finished += envs.take_finished()
    assert {episode.length == 12 for episode in finished} == {True, False}
    for _, length, _, to_go, endless in finished:
        earned = sum(5 * (1 - 0.9**k) for k in range(1, length + 1))
        goes_on = length == 12 and not end_at_truncation
        assert to_go == pytest.approx(earned, rel=1e-12)
        assert endless == pytest.approx(5 * length if goes_on else earned, rel=1e-12)
    metrics, steps = history.metrics(finished), sum(episode.length for episode in finished)
    assert metrics["charts/return_to_go"] == sum(e.to_go for e in finished) / steps
    assert metrics["charts/return_to_go_endless"] == sum(e.to_go_endless for e in finished) / steps
    assert history.metrics([])["charts/return_to_go"] is None


def test_history_keeps_the_last_hundred_episodes():
    history = EpisodeHistory()
    assert history.recent_return is None
    history.add(Finished(float(i), 1) for i in range(150))
    assert history.episodes == 150
    assert history.recent_return == np.mean(range(50, 150))
    again = EpisodeHistory()
    again.load_state_dict(history.state_dict())
    again.add([Finished(1000.0, 1)])
    assert (again.episodes, len(again.recent)) == (151, 100)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_id": "Pendulum-v1"}, "needs Discrete actions"),
        ({"env_id": "NoSuchEnv-v0"}, "--env-id NoSuchEnv-v0 cannot be built"),
        ({"env_kwargs": '{"colour": 3}'}, "unexpected keyword argument 'colour'"),
    ],
)
def test_envs_that_cannot_be_used_are_refused(changes, message):
    args = EnvArgs(**{"env_id": "CartPole-v1", **changes})
    with pytest.raises(SystemExit, match=message):
        make_vector_env(args, "other", 2)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "adops/KeyDoorTV-v0"])
@pytest.mark.parametrize("limit", [0, 7])
def test_envs_reset_themselves_within_the_last_step(env_id, limit):
    envs = make_vector_env(EnvArgs(env_id=env_id, max_episode_steps=limit), env_kind(env_id), 3)
    assert envs.unwrapped.autoreset_mode is AutoresetMode.SAME_STEP
    assert envs.num_envs == 3
    envs.reset(seed=0)
    if limit:
        truncated = [envs.step(np.array([0, 1, 0]))[3].any() for _ in range(limit)]
        assert truncated[-1] or env_id == "CartPole-v1"
    envs.close()


def test_minigrid_shows_its_view_or_the_mission_as_well():
    pytest.importorskip("minigrid")
    env_id = "MiniGrid-Empty-5x5-v0"
    assert env_kind(env_id) == "minigrid"
    view = make_env(EnvArgs(env_id=env_id), "minigrid")
    assert view.observation_space.shape == (7, 7, 3)
    flat = make_env(EnvArgs(env_id=env_id, minigrid_obs="flat"), "minigrid")
    assert len(flat.observation_space.shape) == 1


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    import importlib

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SystemExit, match=r'pip install "adops-wrappers\[atari\]"'):
        env_kind("ALE/Pong-v5")
    with pytest.raises(SystemExit, match=r'pip install "adops-wrappers\[minigrid\]"'):
        env_kind("BabyAI-GoToLocal-v0")


def test_an_id_from_a_file_imports_no_module():
    refuse_import("ALE/Pong-v5", Path("run"))
    with pytest.raises(SystemExit, match=r"imports the module 'evil' .* add --import-env"):
        refuse_import("evil:Env-v0", Path("run"))


@pytest.mark.parametrize(
    ("kind", "backend", "scale", "expected"),
    [
        ("atari", "vector", 0.0, (EpisodeStatistics, 0.001)),
        ("atari", "sync", 0.0, (RoomStatistics, 0.001)),
        ("other", "sync", 0.0, (EpisodeStatistics, 1.0)),
        ("other", "vector", 0.25, (EpisodeStatistics, 0.25)),
    ],
)
def test_rooms_are_counted_where_they_can_be_seen(kind, backend, scale, expected):
    args = EnvArgs(reward_scale=scale, atari_backend=backend)
    envs = with_statistics(statistics().env, args, kind)
    assert (type(envs), envs.scale) == expected


def test_what_minizuma_counts_is_logged():
    args = EnvArgs(env_id="adops/MiniZuma-v0", env_kwargs='{"horizon": 60}')
    envs = with_statistics(make_vector_env(args, "other", 3), args, "other")
    assert EpisodeHistory().metrics([], envs.counts)["charts/stages"] is None
    actions = np.random.default_rng(0).integers(1, 3, (60, 3)) + 1  # right and down: into new rooms
    envs.reset(seed=0)
    for row in actions:
        envs.step(row)
    finished = envs.take_finished()
    alone = []
    for seed in range(3):
        env = make_env(args, "other")
        env.reset(seed=seed)
        for action in actions[:, seed]:
            *_, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                break
        alone.append((info["stages"], info["rooms"]))
    assert sorted(episode.counts for episode in finished) == sorted(alone)
    stages, rooms = np.mean(alone, axis=0)
    assert rooms > 1
    metrics = EpisodeHistory().metrics(finished, envs.counts)
    assert (metrics["charts/stages"], metrics["charts/episodic_rooms"]) == (stages, rooms)


RAM = {"atari_obs": "ram", "max_episode_steps": 9, "sticky_action_prob": 0.5}


@pytest.mark.parametrize(
    "names", [{"env_id": "adops/MontezumaRam-v0"}, {"env_id": "ALE/MontezumaRevenge-v5"}]
)
def test_montezuma_from_ram_follows_the_settings_of_atari(names):
    pytest.importorskip("ale_py")
    args = EnvArgs(**names, **RAM)
    kind = env_kind(args.env_id)
    assert kind == "atari"
    envs = make_vector_env(args, kind, 2)
    assert type(envs.unwrapped) is AtariRamVectorEnv
    dynamics = envs.unwrapped.dynamics
    assert (dynamics.game, dynamics.frameskip, dynamics.horizon) == (MONTEZUMA, 4, 9)
    assert dynamics.repeat_action_probability == 0.5
    single = make_env(args, kind)
    assert (single.unwrapped.dynamics.horizon, single.spec.kwargs["game"]) == (9, MONTEZUMA)
    counted = with_statistics(envs, args, kind)
    assert (counted.scale, counted.counts, counted.rooms) == (0.001, ("rooms",), set())
    counted.reset(seed=0)
    for _ in range(9):
        _, _, terminated, truncated, _ = counted.step(np.zeros(2, dtype=int))
    assert truncated.all()
    assert not terminated.any()
    assert counted.take_finished() == [Finished(0.0, 9, (1,))] * 2
    assert counted.rooms == {1}
    default = EnvArgs(**names, atari_obs="ram")
    assert make_vector_env(default, kind, 1).unwrapped.dynamics.horizon == 4500


def test_a_room_entered_in_the_last_step_of_an_episode_is_counted():
    class Rooms(SyncVectorEnv):
        def step(self, actions):
            *rest, info = super().step(actions)
            seen = np.array([True, False])
            info = {"room": np.array([1, 4]), "_room": ~seen | True}
            info["final_info"] = {"room": np.array([7, 0]), "_room": seen}
            return *rest, info

    envs = RoomStatistics(Rooms([lambda: gym.make("CartPole-v1")] * 2))
    envs.reset(seed=0)
    envs.step(np.zeros(2, dtype=int))
    assert envs.rooms == {1, 4, 7}


def test_ram_of_any_other_game_has_no_rooms_and_no_key():
    pytest.importorskip("ale_py")
    args = EnvArgs(env_id="ALE/Pong-v5", atari_obs="ram", atari_backend="sync")
    envs = make_vector_env(args, env_kind(args.env_id), 2)
    assert envs.single_observation_space.shape == (1152,)
    counted = with_statistics(envs, args, "atari")
    assert (type(counted), counted.counts) == (EpisodeStatistics, ())
    assert count_key(envs) is None


def test_key_of_counts_is_that_of_the_envs_within():
    class Named(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

        def count_key(self, obs):
            return obs // 2

    single = SyncVectorEnv([lambda: gym.wrappers.TimeLimit(Named(), 5)] * 2)
    assert count_key(single)(5) == 2
    assert count_key(SyncVectorEnv([lambda: gym.make("CartPole-v1")])) is None


def test_sync_backend_sees_what_the_vector_backend_sees():
    pytest.importorskip("ale_py")
    args = EnvArgs(sticky_action_prob=0.0)
    kind = env_kind(args.env_id)
    assert kind == "atari"
    vector = make_vector_env(args, kind, 2)
    args.atari_backend = "sync"
    sync = make_vector_env(args, kind, 2)
    for envs in (vector, sync, make_env(args, kind)):
        first = envs.reset(seed=0)[0].reshape(-1, 4, 84, 84)
        # The stack begins with zeros, as Burda's does.
        assert not first[:, :3].any()
        assert first[:, 3].any()
    rng = np.random.default_rng(0)
    for _ in range(8):
        action = rng.integers(0, 18, 2)
        ours, theirs = vector.step(action)[0], sync.step(action)[0]
    assert ours.shape == theirs.shape == (2, 4, 84, 84)
    # Two resizing libraries differ in the last bits of a pixel.
    assert np.abs(ours.astype(int) - theirs.astype(int)).mean() < 2.0
    counted = with_statistics(sync, args, kind)
    counted.reset(seed=0)
    counted.step(np.array([0, 0]))
    assert counted.rooms == {1}
    again = RoomStatistics(sync)
    again.load_state_dict(counted.state_dict())
    assert again.rooms == {1}
    vector.close()
    sync.close()


# Ids


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """The name of a module that registers Own-v0 when it is imported."""
    name = "module_with_an_env"
    (tmp_path / f"{name}.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Own(CartPoleEnv):\n"
        "    pass\n"
        "gym.register('Own-v0', Own, max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)
    gym.registry.pop("Own-v0", None)


def test_an_env_of_a_module_is_imported_and_built(own_module):
    env_id = f"{own_module}:Own-v0"
    assert env_kind(env_id) == "other"
    envs = make_vector_env(EnvArgs(env_id=env_id), "other", 2)
    assert type(envs.envs[0].unwrapped).__name__ == "Own"
    assert make_env(EnvArgs(env_id=env_id), "other").spec.max_episode_steps == 9


def test_an_env_that_takes_no_render_mode_is_built(monkeypatch):
    def make():
        return gym.make("CartPole-v1").unwrapped

    spec = gym.envs.registration.EnvSpec("WithoutRendering-v0", entry_point=make)
    monkeypatch.setitem(gym.registry, spec.id, spec)
    envs = make_vector_env(EnvArgs(env_id=spec.id), "other", 2)
    envs.reset(seed=0)
    assert make_env(EnvArgs(env_id=spec.id), "other").spec.id == spec.id
    with pytest.raises(SystemExit, match=r"built with render_mode=.rgb_array.: .*--no-frames"):
        make_env(EnvArgs(env_id=spec.id), "other", "rgb_array")


@pytest.mark.parametrize(
    ("env_id", "package", "kind"),
    [
        ("ale_py:ALE/Pong-v5", "ale_py", "atari"),
        ("minigrid:MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
        ("adops_wrappers:adops/KeyDoor-v0", "gymnasium", "other"),
        ("gymnasium:CartPole-v1", "gymnasium", "other"),
    ],
)
def test_naming_the_module_does_not_change_the_kind(env_id, package, kind):
    pytest.importorskip(package)
    assert env_kind(env_id) == env_kind(env_id.split(":")[1]) == kind


def test_atari_named_with_its_module_has_atari_s_pipeline():
    pytest.importorskip("ale_py")
    args = EnvArgs(env_id="ale_py:ALE/Pong-v5")
    envs = make_vector_env(args, env_kind(args.env_id), 2)
    assert envs.single_observation_space.shape == (4, 84, 84)
    assert with_statistics(envs, args, env_kind(args.env_id)).scale == 0.001
    envs.close()


def test_an_env_from_ram_named_with_its_module_is_seen_through_its_ram():
    pytest.importorskip("ale_py")
    args = EnvArgs(env_id="adops_wrappers.envs:adops/MontezumaRam-v0")
    envs = make_vector_env(args, env_kind(args.env_id), 2)
    assert envs.single_observation_space == make_env(args, "atari").observation_space
    assert type(with_statistics(envs, args, "atari")) is RoomStatistics
    envs.close()


def test_an_env_from_ram_without_a_game_says_so():
    pytest.importorskip("ale_py")
    args = EnvArgs(env_id="adops/AtariRam-v0")
    for build in (make_env, partial(make_vector_env, num_envs=2)):
        with pytest.raises(SystemExit, match=r'needs a game: --env-kwargs .{"game": "pong"}'):
            build(args, "atari")


def test_a_users_env_is_not_taken_for_one_of_the_gallery(own_module):
    gym.register("mine/DeepSea-v0", find_spec(f"{own_module}:Own-v0").entry_point)
    args = EnvArgs(env_id="mine/DeepSea-v0")
    envs = make_vector_env(args, "other", 2)
    assert with_statistics(envs, args, "other").counts == ()
    gym.registry.pop("mine/DeepSea-v0")


def test_an_id_that_was_registered_without_a_version_needs_none(monkeypatch):
    for name in ("Bare", "Bare-v1"):
        monkeypatch.setitem(gym.registry, name, gym.envs.registration.EnvSpec(name, Counting))
    assert env_kind("Bare") == "other"
    assert find_spec("Bare").id == "Bare"


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPole", r"CartPole names no version\. Choose one of CartPole-v0, CartPole-v1"),
        ("gymnasium:CartPole", "names no version"),
        ("NoSuchEnv", "--env-id NoSuchEnv cannot be built: .*NoSuchEnv"),
        ("CartPole-v7", "cannot be built: Environment version `v7`"),
        ("no_such_module:Env-v0", r"No module named 'no_such_module'\. Install it, or put"),
        (":Env-v0", "cannot be built: importing '' failed"),
        ("..above:Env-v0", "cannot be built: importing '..above' failed"),
        ("two:colons:Env-v0", "cannot be built: importing 'two:colons' failed"),
        ("gymnasium:", "cannot be built: Malformed environment ID"),
    ],
)
def test_an_id_that_names_no_env_is_refused(monkeypatch, env_id, message):
    unversioned = gym.envs.registration.EnvSpec("Bare", Counting)
    monkeypatch.setitem(gym.registry, "Bare", unversioned)
    with pytest.raises(SystemExit, match=message):
        env_kind(env_id)


def test_a_package_that_an_env_lacks_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.phys2d.cartpole", raising=False)
    with pytest.raises(SystemExit, match=r"phys2d/CartPole-v1 cannot be built: .*jax"):
        make_vector_env(EnvArgs(env_id="phys2d/CartPole-v1"), "other", 2)
