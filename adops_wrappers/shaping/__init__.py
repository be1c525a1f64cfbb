"""The maths of every method: streaming, vectorised over environments, free of Gymnasium."""

from adops_wrappers.shaping.adops import ADOPES, ADOPS, adops_correction
from adops_wrappers.shaping.base import Shaper, Transition
from adops_wrappers.shaping.grm import GRM, PBIM, MatchedGRM, make_grm
from adops_wrappers.shaping.guarded import GuardedScale
from adops_wrappers.shaping.none import NoShaping
from adops_wrappers.shaping.pbrs import PBRS
from adops_wrappers.shaping.pies import PIES

__all__ = [
    "ADOPES",
    "ADOPS",
    "GRM",
    "PBIM",
    "PBRS",
    "PIES",
    "GuardedScale",
    "MatchedGRM",
    "NoShaping",
    "Shaper",
    "Transition",
    "adops_correction",
    "make_grm",
]
