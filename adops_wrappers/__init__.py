"""Intrinsic rewards that cannot make an agent forget its task, as Gymnasium wrappers."""

from typing import TYPE_CHECKING, Any

from adops_wrappers import envs
from adops_wrappers.critic import CriticHandle, ValueEstimates
from adops_wrappers.evaluation import evaluation_mode
from adops_wrappers.factories import (
    SHAPINGS,
    ADOPESWrapper,
    ADOPSWrapper,
    GRMWrapper,
    GuardedScaleWrapper,
    IntrinsicRewardWrapper,
    NoShapingWrapper,
    PBIMWrapper,
    PBRSWrapper,
    PIESWrapper,
    make_shaping,
)
from adops_wrappers.intrinsic import CountBonus, EpisodicCountBonus, IntrinsicReturnNormalizer
from adops_wrappers.shaping.base import Transition
from adops_wrappers.tabular import AuditReport, FiniteMDP, audit

if TYPE_CHECKING:
    from adops_wrappers.td_critic import TDCritic as TDCritic

__version__ = "0.1.0"

__all__ = [
    "SHAPINGS",
    "ADOPESWrapper",
    "ADOPSWrapper",
    "AuditReport",
    "CountBonus",
    "CriticHandle",
    "EpisodicCountBonus",
    "FiniteMDP",
    "GRMWrapper",
    "GuardedScaleWrapper",
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


def __getattr__(name: str) -> Any:
    # Lazily and not in __all__, so that the core and `import *` need no torch.
    if name == "TDCritic":
        try:
            from adops_wrappers.td_critic import TDCritic
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ModuleNotFoundError(
                "TDCritic needs torch: pip install 'adops-wrappers[torch]'.", name="torch"
            ) from error
        return TDCritic
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
