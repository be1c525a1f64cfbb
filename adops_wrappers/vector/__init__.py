"""The wrappers for a `gymnasium.vector.VectorEnv`, under the same names."""

from adops_wrappers.vector.base import ShapingWrapper
from adops_wrappers.vector.intrinsic import IntrinsicRewardWrapper
from adops_wrappers.vector.methods import (
    ADOPESWrapper,
    ADOPSWrapper,
    GRMWrapper,
    GuardedScaleWrapper,
    NoShapingWrapper,
    PBIMWrapper,
    PBRSWrapper,
    PIESWrapper,
)

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
