"""What an import loads: no torch, no audit, no gallery, until they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import adops_wrappers


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_the_core_imports_no_torch() -> None:
    code = """
import sys
import adops_wrappers, adops_wrappers.wrappers.shaping, adops_wrappers.intrinsic
from adops_wrappers import *
assert "torch" not in sys.modules
assert not hasattr(adops_wrappers, "Nothing")
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_an_import_loads_neither_the_audit_nor_the_gallery() -> None:
    code = """
import sys
import adops_wrappers, gymnasium
loaded = [name for name in sys.modules if name.startswith("adops_wrappers.")]
assert not [name for name in loaded if name.startswith("adops_wrappers.tabular")], loaded
assert [n for n in loaded if n.startswith("adops_wrappers.envs")] == ["adops_wrappers.envs"], loaded
for heavy in ("inspect", "training", "td_critic", "networks", "sb3"):
    assert f"adops_wrappers.{heavy}" not in loaded
assert {"audit", "AuditReport", "FiniteMDP", "TDCritic", "make_shaping"} <= set(dir(adops_wrappers))
assert "adops_wrappers.tabular" not in sys.modules
assert gymnasium.make("adops/KeyDoor-v0").reset(seed=0)
assert adops_wrappers.tabular.FiniteMDP is adops_wrappers.FiniteMDP
from adops_wrappers import FiniteMDP, audit
assert adops_wrappers.audit is audit is sys.modules["adops_wrappers.tabular"].audit
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


def test_type_checkers_and_the_site_find_every_name_that_is_loaded_on_first_use() -> None:
    tree = ast.parse(Path(adops_wrappers.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    found = {alias.asname or alias.name for node in imports for alias in node.names}
    assert {*adops_wrappers._HOMES, *adops_wrappers._NEED_TORCH} <= found
