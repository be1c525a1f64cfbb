"""Leaves modules out of the doctest run whose extra is not installed."""

from __future__ import annotations

from importlib.util import find_spec

_NEEDS = {
    "torch": ["networks.py", "td_critic.py", "intrinsic/rnd.py", "intrinsic/rllte.py", "training"],
    "stable_baselines3": ["sb3.py"],
}

collect_ignore = [
    f"adops_wrappers/{name}"
    for package, names in _NEEDS.items()
    if find_spec(package) is None
    for name in names
]
