"""Exact answers on finite MDPs: optimal sets before and after shaping, oracles, counterexamples."""

from adops_wrappers.shaping import METHODS as DECLARED
from adops_wrappers.tabular.auditor import audit
from adops_wrappers.tabular.bonuses import DistinctStates, EpisodicCount, FutureBonus, HistoryBonus
from adops_wrappers.tabular.importers import bonus_table, mdp_from_env
from adops_wrappers.tabular.mdp import FiniteMDP, GridView, Origin, Solution
from adops_wrappers.tabular.oracle import OracleCritic, ideal_critic, policy_critic
from adops_wrappers.tabular.report import AuditReport, Step

METHODS = tuple(DECLARED)
"""The names that `audit` takes; `raw` is an alias of `none`."""

__all__ = [
    "METHODS",
    "AuditReport",
    "DistinctStates",
    "EpisodicCount",
    "FiniteMDP",
    "FutureBonus",
    "GridView",
    "HistoryBonus",
    "OracleCritic",
    "Origin",
    "Solution",
    "Step",
    "audit",
    "bonus_table",
    "ideal_critic",
    "mdp_from_env",
    "policy_critic",
]
