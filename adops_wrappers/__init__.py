"""Exploration bonuses that preserve the optimal policies of a task, as Gymnasium wrappers."""

from importlib import import_module
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

if TYPE_CHECKING:
    from adops_wrappers.q_critic import QCritic as QCritic
    from adops_wrappers.tabular import AuditReport, FiniteMDP, audit
    from adops_wrappers.td_critic import TDCritic as TDCritic

__version__ = "0.2.0"

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


_AUDIT = ("AuditReport", "FiniteMDP", "audit")
_CRITICS = {"TDCritic": "td_critic", "QCritic": "q_critic"}


def __getattr__(name: str) -> Any:
    # The audit loads when it is used: a training script needs none of its modules.
    if name in _AUDIT or name == "tabular":
        tabular = import_module("adops_wrappers.tabular")
        return tabular if name == "tabular" else getattr(tabular, name)
    # Not in __all__ either, so that the core and `import *` need no torch.
    if name in _CRITICS:
        try:
            return getattr(import_module(f"{__name__}.{_CRITICS[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ModuleNotFoundError(
                f"{name} needs torch: pip install 'adops-wrappers[torch]'.", name="torch"
            ) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_CRITICS})
