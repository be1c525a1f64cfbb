"""The core never imports torch; what needs it says how to get it."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_the_core_imports_no_torch() -> None:
    code = """
import sys
import adops_wrappers, adops_wrappers.wrappers, adops_wrappers.vector, adops_wrappers.intrinsic
from adops_wrappers import *
assert "torch" not in sys.modules
assert not hasattr(adops_wrappers, "Nothing")
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_missing_torch_is_named_with_the_remedy() -> None:
    # A finder, not sys.modules: the error must look like that of a package that is not there.
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Absent())
try:
    from adops_wrappers import TDCritic
except ModuleNotFoundError as error:
    assert error.name == "torch"
    print(error)
"""
    done = run(code)
    assert "TDCritic needs torch: pip install 'adops-wrappers[torch]'." in done.stdout


def test_an_error_inside_torch_is_not_hidden() -> None:
    code = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'libsomething'", name="libsomething")
sys.meta_path.insert(0, Broken())
import adops_wrappers
adops_wrappers.TDCritic
"""
    done = run(code)
    assert done.returncode != 0
    assert "libsomething" in done.stderr
    assert "pip install" not in done.stderr


def test_td_critic_is_there_with_torch() -> None:
    pytest.importorskip("torch")
    import adops_wrappers
    from adops_wrappers.td_critic import TDCritic

    assert adops_wrappers.TDCritic is TDCritic
