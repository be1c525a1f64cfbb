"""Exact answers on finite MDPs: optimal sets before and after shaping, oracles, counterexamples."""

from adops_wrappers.tabular.auditor import audit
from adops_wrappers.tabular.bonuses import EpisodicCount, FutureBonus, HistoryBonus
from adops_wrappers.tabular.importers import bonus_table, mdp_from_env
from adops_wrappers.tabular.mdp import FiniteMDP, GridView, Solution
from adops_wrappers.tabular.methods import METHODS
from adops_wrappers.tabular.oracle import OracleCritic, ideal_critic, policy_critic
from adops_wrappers.tabular.report import AuditReport, Step

__all__ = [
    "METHODS",
    "AuditReport",
    "EpisodicCount",
    "FiniteMDP",
    "FutureBonus",
    "GridView",
    "HistoryBonus",
    "OracleCritic",
    "Solution",
    "Step",
    "audit",
    "bonus_table",
    "ideal_critic",
    "mdp_from_env",
    "policy_critic",
]
