"""Sources of intrinsic reward, and measures of knowledge, that need numpy alone."""

from adops_wrappers.intrinsic.counts import CountBonus, EpisodicCountBonus
from adops_wrappers.intrinsic.knowledge import LargestDisplacement, StatesSeen
from adops_wrappers.intrinsic.normalizer import IntrinsicReturnNormalizer
from adops_wrappers.intrinsic.simhash import SimHashCount

__all__ = [
    "CountBonus",
    "EpisodicCountBonus",
    "IntrinsicReturnNormalizer",
    "LargestDisplacement",
    "SimHashCount",
    "StatesSeen",
]
