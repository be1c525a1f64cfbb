"""Importing the package registers the envs and loads none of their code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adops_wrappers import envs


def loaded_after(code: str) -> set[str]:
    """Return the modules of the package that a fresh interpreter has loaded after `code`."""
    command = f"{code}\nimport sys\nprint(*(m for m in sys.modules if m.startswith('adops_')))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_ids_are_registered_without_the_code_of_the_envs() -> None:
    loaded = loaded_after(
        "import adops_wrappers.envs, gymnasium\n"
        "ids = (*adops_wrappers.envs.GALLERY_IDS, 'adops/MiniZuma-v0', 'adops/MontezumaRam-v0')\n"
        "assert all(id in gymnasium.registry for id in ids)"
    )
    assert {name for name in loaded if name.startswith("adops_wrappers.envs")} == {
        "adops_wrappers.envs"
    }


def test_making_an_env_loads_its_code_and_no_other() -> None:
    loaded = loaded_after(
        "import gymnasium, adops_wrappers.envs\n"
        "gymnasium.make('adops/KeyDoor-v0').reset(seed=0)\n"
        "gymnasium.make_vec('adops/KeyDoor-v0', num_envs=2).reset(seed=0)"
    )
    assert "adops_wrappers.envs.gallery" in loaded
    assert not any(name.startswith("adops_wrappers.tabular") for name in loaded)
    assert not any(name.startswith("adops_wrappers.envs.minizuma") for name in loaded)


def test_public_names_are_found_on_demand() -> None:
    assert tuple(f"adops/{name}-v0" for name in envs.LAYOUTS) == envs.GALLERY_IDS
    assert set(envs.__all__) <= set(dir(envs))
    assert all(getattr(envs, name) is not None for name in envs.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        envs.Nothing  # noqa: B018
