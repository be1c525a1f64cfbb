"""The maths of every method: streaming, vectorised over environments, free of Gymnasium.

A file in this folder that declares a method is all that the package needs to know it.
"""

# The order of these imports is that of the methods in every list and table.
# isort: off
from importlib import import_module
from pkgutil import iter_modules

from adops_wrappers.shaper import Shaper, Transition
from adops_wrappers.shaping.none import NoShaping
from adops_wrappers.shaping.adops import ADOPES, ADOPS, adops_correction
from adops_wrappers.shaping.pies import PIES
from adops_wrappers.shaping.grm import GRM, PBIM, MatchedGRM, make_grm
from adops_wrappers.shaping.pbrs import PBRS
from adops_wrappers.shaping.bsrs import BSRS
from adops_wrappers.shaping.bampf import BAMPF
from adops_wrappers.shaping.guarded import GuardedScale
from adops_wrappers.shaping.gated import GatedADOPS
from adops_wrappers.methods import ALIASES, METHODS, Method, declare, find_method

__all__ = [
    "ADOPES",
    "ADOPS",
    "ALIASES",
    "BAMPF",
    "BSRS",
    "GRM",
    "METHODS",
    "PBIM",
    "PBRS",
    "PIES",
    "GatedADOPS",
    "GuardedScale",
    "MatchedGRM",
    "Method",
    "NoShaping",
    "Shaper",
    "Transition",
    "adops_correction",
    "declare",
    "find_method",
    "make_grm",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
