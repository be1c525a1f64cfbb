"""The wrappers for a `gymnasium.vector.VectorEnv`, twins of `adops_wrappers.wrappers`."""

from adops_wrappers.vector.adops import ADOPESWrapper, ADOPSWrapper
from adops_wrappers.vector.base import ShapingWrapper
from adops_wrappers.vector.grm import GRMWrapper, PBIMWrapper
from adops_wrappers.vector.guarded import GuardedScaleWrapper
from adops_wrappers.vector.intrinsic import IntrinsicRewardWrapper
from adops_wrappers.vector.none import NoShapingWrapper
from adops_wrappers.vector.pbrs import PBRSWrapper
from adops_wrappers.vector.pies import PIESWrapper

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
