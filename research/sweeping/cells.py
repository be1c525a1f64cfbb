"""Cells: the runs of methods × grid × seeds, each with its own name."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence

from adops_wrappers.methods import trainable_methods
from adops_wrappers.training.exit import fail
from research.design import Cell, tidy, tidy_pairs
from train import ppo_rnd

SHAPINGS = trainable_methods()
OWN_FLAGS = ("seed", "shaping", "run_dir", "resume", "exp_name")
"""Flags of ppo_rnd.py that the grid sets."""
PAPER_SEEDS = {
    **dict.fromkeys(("none", "pies", "adops", "adopes", "adopes-half"), 20),
    **dict.fromkeys(("grm", "grm-norm"), 10),
    **dict.fromkeys(("pbim", "pbim-norm"), 1),
}
"""The paper's nine configurations with their numbers of seeds; none is plain RND."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" Did you mean {near[0]}?" if near else ""


def read_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Split name=value texts and check the names."""
    known = [f.name for f in dataclasses.fields(ppo_rnd.Args)]
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not equals or not value:
            fail(f"{option} takes name=value, got {text!r}.")
        if name in OWN_FLAGS:
            fail(f"{option}: {name} is set by the sweep itself.")
        if name not in known:
            fail(f"{option}: ppo_rnd.py has no setting {name}.{did_you_mean(name, known)}")
        if name in pairs:
            fail(f"{option} names {name} twice.")
        pairs[name] = value
    return pairs


def read_seeds(texts: Iterable[str]) -> list[int]:
    """Read seeds such as 7 or 1-20."""
    seeds: dict[int, None] = {}
    for text in texts:
        first, dash, last = text.partition("-")
        try:
            numbers = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            fail(f"--seeds takes numbers and ranges such as 1-20, got {text!r}.")
        if not numbers:
            fail(f"--seeds: the range {text} is empty.")
        seeds.update(dict.fromkeys(numbers))
    return list(seeds)


def reads(method: str, setting: str) -> bool:
    """Whether a method uses a setting."""
    methods = ppo_rnd.METHOD_FLAGS.get(setting)
    return methods is None or method in methods


def expand(
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: Mapping[str, str] | None = None,
    grid: Mapping[str, Sequence[str]] | None = None,
) -> list[Cell]:
    """Return the cells of methods × grid × seeds.

    A setting that only some methods read (epsilon, delay, ...) goes to those alone, so that one
    grid serves all methods.
    """
    cells: dict[Cell, None] = {}
    for method in methods:
        if method not in SHAPINGS:
            known = ", ".join(SHAPINGS)
            fail(f"unknown method {method!r}; there are {known}.{did_you_mean(method, SHAPINGS)}")
        fixed = tidy_pairs({k: v for k, v in (settings or {}).items() if reads(method, k)})
        axes = [
            [(name, tidy(value)) for value in values]
            for name, values in sorted((grid or {}).items())
            if reads(method, name)
        ]
        for varied in itertools.product(*axes):
            cells.update({Cell(method, seed, varied, fixed): None for seed in seeds})
    return list(cells)


def paper_cells(settings: Mapping[str, str] | None = None) -> list[Cell]:
    """Return the paper's 122 runs."""
    return [
        cell
        for method, seeds in PAPER_SEEDS.items()
        for cell in expand([method], range(1, seeds + 1), settings)
    ]
