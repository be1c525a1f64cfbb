"""The wrappers for one `gymnasium.Env`."""

from adops_wrappers.wrappers.adops import ADOPESWrapper, ADOPSWrapper
from adops_wrappers.wrappers.base import ShapingWrapper
from adops_wrappers.wrappers.grm import GRMWrapper, PBIMWrapper
from adops_wrappers.wrappers.guarded import GuardedScaleWrapper
from adops_wrappers.wrappers.intrinsic import IntrinsicRewardWrapper
from adops_wrappers.wrappers.none import NoShapingWrapper
from adops_wrappers.wrappers.pbrs import PBRSWrapper
from adops_wrappers.wrappers.pies import PIESWrapper

__all__ = [
    "ADOPESWrapper",
    "ADOPSWrapper",
    "GRMWrapper",
    "GuardedScaleWrapper",
    "IntrinsicRewardWrapper",
    "NoShapingWrapper",
    "PBIMWrapper",
    "PBRSWrapper",
    "PIESWrapper",
    "ShapingWrapper",
]
