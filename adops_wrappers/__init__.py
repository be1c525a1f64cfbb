"""Intrinsic rewards that cannot make an agent forget its task, as Gymnasium wrappers."""

from adops_wrappers import envs
from adops_wrappers.critic import CriticHandle, ValueEstimates
from adops_wrappers.evaluation import evaluation_mode
from adops_wrappers.factories import (
    SHAPINGS,
    ADOPESWrapper,
    ADOPSWrapper,
    GRMWrapper,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PBIMWrapper,
    PBRSWrapper,
    PIESWrapper,
    make_shaping,
)
from adops_wrappers.intrinsic import CountBonus, IntrinsicReturnNormalizer
from adops_wrappers.shaping.base import Transition
from adops_wrappers.tabular import AuditReport, FiniteMDP, audit

__version__ = "0.1.0"

__all__ = [
    "SHAPINGS",
    "ADOPESWrapper",
    "ADOPSWrapper",
    "AuditReport",
    "CountBonus",
    "CriticHandle",
    "FiniteMDP",
    "GRMWrapper",
    "IntrinsicReturnNormalizer",
    "IntrinsicRewardWrapper",
    "NoShapingWrapper",
    "PBIMWrapper",
    "PBRSWrapper",
    "PIESWrapper",
    "Transition",
    "ValueEstimates",
    "audit",
    "envs",
    "evaluation_mode",
    "make_shaping",
]
