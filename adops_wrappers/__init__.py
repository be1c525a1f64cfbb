"""Exploration bonuses that preserve the optimal policies of a task, as Gymnasium wrappers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adops_wrappers import envs
from adops_wrappers._renamed import keep_old_modules
from adops_wrappers.batched import BatchedEnv
from adops_wrappers.bootstrap import next_value_int
from adops_wrappers.critic import CriticHandle, ValueEstimates
from adops_wrappers.evaluation import evaluation_mode
from adops_wrappers.intrinsic import (
    CountBonus,
    EpisodicCountBonus,
    IntrinsicReturnNormalizer,
    LargestDisplacement,
    SimHashCount,
    StatesSeen,
)
from adops_wrappers.methods import METHODS, Method, declare, find_method
from adops_wrappers.recurrent import RecurrentCritic
from adops_wrappers.shaper import Shaper, Transition
from adops_wrappers.shaping.adops import ADOPES, ADOPS, ADOPESWrapper, ADOPSWrapper
from adops_wrappers.shaping.bampf import BAMPF, BAMPFWrapper
from adops_wrappers.shaping.bsrs import BSRS, BSRSWrapper
from adops_wrappers.shaping.grm import GRM, PBIM, GRMWrapper, MatchedGRM, PBIMWrapper
from adops_wrappers.shaping.guarded import GuardedScale, GuardedScaleWrapper
from adops_wrappers.shaping.none import NoShaping, NoShapingWrapper
from adops_wrappers.shaping.pbrs import PBRS, PBRSWrapper
from adops_wrappers.shaping.pies import PIES, PIESWrapper
from adops_wrappers.stack import find_layer, layers, load_stack_state_dict, stack_state_dict
from adops_wrappers.wrappers.bonus import IntrinsicRewardWrapper
from adops_wrappers.wrappers.named import WRAPPERS, make_shaping
from adops_wrappers.wrappers.shaping import ShapingWrapper, VectorShapingWrapper

if TYPE_CHECKING:
    from adops_wrappers.inspect.conflicts import Conflict, conflicts
    from adops_wrappers.inspect.recording import Recording
    from adops_wrappers.inspect.report import write_report
    from adops_wrappers.inspect.reshape import reshape
    from adops_wrappers.inspect.wrappers import ShapingRecorder
    from adops_wrappers.intrinsic.prediction import PredictionKnowledge as PredictionKnowledge
    from adops_wrappers.intrinsic.rllte import RLLTESource as RLLTESource
    from adops_wrappers.intrinsic.rnd import RND as RND
    from adops_wrappers.meter import CriticMeter
    from adops_wrappers.q_critic import QCritic as QCritic
    from adops_wrappers.replay import ReplayBatch, ReplayShaper
    from adops_wrappers.rollout import RolloutShaper as RolloutShaper
    from adops_wrappers.sb3 import AdvantageClampCallback as AdvantageClampCallback
    from adops_wrappers.sb3 import SB3VecEnv as SB3VecEnv
    from adops_wrappers.sb3 import ShapingCallback as ShapingCallback
    from adops_wrappers.sb3_replay import ShapedReplayBuffer as ShapedReplayBuffer
    from adops_wrappers.shaping.adops import adops_correction
    from adops_wrappers.shaping.advantage import (
        AdvantageFloor,
        ClampedAdvantage,
        clamp_advantage,
        clamp_by_sign,
    )
    from adops_wrappers.shaping.conflict import advantages, contradicts
    from adops_wrappers.shaping.explicit import ExplicitShaping
    from adops_wrappers.tabular import (
        AuditReport,
        FiniteMDP,
        OracleCritic,
        Origin,
        audit,
        ideal_critic,
        mdp_from_env,
        policy_critic,
    )
    from adops_wrappers.td_critic import TDCritic as TDCritic
    from adops_wrappers.td_critic import lambda_returns as lambda_returns

__version__ = "0.3.0"

SHAPINGS: tuple[str, ...] = tuple(METHODS)
"""The names that `make_shaping` takes; `raw` is an alias of `none`."""

_HOMES = {
    "AdvantageFloor": "shaping.advantage",
    "AuditReport": "tabular",
    "ClampedAdvantage": "shaping.advantage",
    "Conflict": "inspect",
    "CriticMeter": "meter",
    "ExplicitShaping": "shaping.explicit",
    "FiniteMDP": "tabular",
    "OracleCritic": "tabular",
    "Origin": "tabular",
    "Recording": "inspect",
    "ReplayBatch": "replay",
    "ReplayShaper": "replay",
    "RolloutShaper": "rollout",
    "ShapingRecorder": "inspect",
    "adops_correction": "shaping.adops",
    "advantages": "shaping.conflict",
    "audit": "tabular",
    "clamp_advantage": "shaping.advantage",
    "clamp_by_sign": "shaping.advantage",
    "conflicts": "inspect",
    "contradicts": "shaping.conflict",
    "ideal_critic": "tabular",
    "mdp_from_env": "tabular",
    "policy_critic": "tabular",
    "reshape": "inspect",
    "write_report": "inspect.report",
}
"""Where names are that are loaded on first use: a training script needs none of them."""
_NEED_TORCH = {
    "AdvantageClampCallback": "sb3",
    "PredictionKnowledge": "intrinsic.prediction",
    "QCritic": "q_critic",
    "RLLTESource": "intrinsic.rllte",
    "RND": "intrinsic.rnd",
    "SB3VecEnv": "sb3",
    "ShapedReplayBuffer": "sb3_replay",
    "ShapingCallback": "sb3",
    "TDCritic": "td_critic",
    "lambda_returns": "td_critic",
}
"""The same for names that need torch, or Stable-Baselines3. They are not in `__all__`, so that
`import *` needs neither."""

__all__ = [
    "ADOPES",
    "ADOPS",
    "BAMPF",
    "BSRS",
    "GRM",
    "METHODS",
    "PBIM",
    "PBRS",
    "PIES",
    "SHAPINGS",
    "WRAPPERS",
    "ADOPESWrapper",
    "ADOPSWrapper",
    "AdvantageFloor",
    "AuditReport",
    "BAMPFWrapper",
    "BSRSWrapper",
    "BatchedEnv",
    "ClampedAdvantage",
    "Conflict",
    "CountBonus",
    "CriticHandle",
    "CriticMeter",
    "EpisodicCountBonus",
    "ExplicitShaping",
    "FiniteMDP",
    "GRMWrapper",
    "GuardedScale",
    "GuardedScaleWrapper",
    "IntrinsicReturnNormalizer",
    "IntrinsicRewardWrapper",
    "LargestDisplacement",
    "MatchedGRM",
    "Method",
    "NoShaping",
    "NoShapingWrapper",
    "OracleCritic",
    "Origin",
    "PBIMWrapper",
    "PBRSWrapper",
    "PIESWrapper",
    "Recording",
    "RecurrentCritic",
    "ReplayBatch",
    "ReplayShaper",
    "RolloutShaper",
    "Shaper",
    "ShapingRecorder",
    "ShapingWrapper",
    "SimHashCount",
    "StatesSeen",
    "Transition",
    "ValueEstimates",
    "VectorShapingWrapper",
    "adops_correction",
    "advantages",
    "audit",
    "clamp_advantage",
    "clamp_by_sign",
    "conflicts",
    "contradicts",
    "declare",
    "envs",
    "evaluation_mode",
    "find_layer",
    "find_method",
    "ideal_critic",
    "layers",
    "load_stack_state_dict",
    "make_shaping",
    "mdp_from_env",
    "next_value_int",
    "policy_critic",
    "reshape",
    "stack_state_dict",
    "write_report",
]

keep_old_modules()


def __getattr__(name: str) -> Any:
    if name in WRAPPERS:  # of a method that is not named above
        return WRAPPERS[name]
    if name == "tabular":
        return import_module(f"{__name__}.tabular")
    home = _HOMES.get(name) or _NEED_TORCH.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        extra = {"torch": "torch", "stable_baselines3": "sb3"}.get(error.name or "")
        if extra is None:
            raise
        raise ModuleNotFoundError(
            f"{name} needs {error.name}: pip install 'adops-wrappers[{extra}]'.", name=error.name
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NEED_TORCH, *WRAPPERS})
