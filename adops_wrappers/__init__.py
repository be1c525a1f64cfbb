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
from adops_wrappers.recurrent import RecurrentCritic
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
    "RecurrentCritic",
    "Transition",
    "ValueEstimates",
    "audit",
    "envs",
    "evaluation_mode",
    "make_shaping",
]

_AUDIT = dict.fromkeys(("AuditReport", "FiniteMDP", "audit"), "tabular")
# Not in __all__: neither the core nor `import *` needs torch.
_CRITICS = {"TDCritic": "td_critic", "QCritic": "q_critic"}


def __getattr__(name: str) -> Any:
    # Loaded on first use: a training script needs none of these modules.
    if name == "tabular":
        return import_module(f"{__name__}.tabular")
    home = {**_AUDIT, **_CRITICS}.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"{name} needs torch: pip install 'adops-wrappers[torch]'.", name="torch"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_CRITICS})
