"""What an audit found, for people and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from adops_wrappers.arrays import BoolArray, FloatArray
from adops_wrappers.tabular.graph import IntArray
from adops_wrappers.tabular.mdp import FiniteMDP
from adops_wrappers.tabular.verdict import Verdict

_SHOWN_STATES = 6


class Step(NamedTuple):
    """One transition of a counterexample."""

    state: int
    action: int
    next_state: int
    reward: float
    """R."""
    bonus: float
    """F."""
    shaped: float
    """F′."""


@dataclass(frozen=True)
class AuditReport:
    """Whether a shaped bonus keeps the optimal policies of an MDP, and if not, where it fails."""

    preserved: bool
    """Whether every state has the same optimal actions before and after shaping."""
    changed_states: IntArray
    """The states whose optimal set changed."""
    gained: BoolArray
    """Actions that became optimal, shape (S, A). With a horizon or a memory: at some time, after
    some history."""
    lost: BoolArray
    """Actions that are no longer optimal, shape (S, A)."""
    regret: float
    """V_E* less V_E of the worst policy that the shaped task calls optimal, from the start
    distribution, or in the worst start state where none was given."""
    counterexample: tuple[Step, ...] | None
    """A shortest trajectory, along shaped-optimal actions where one exists, whose last action
    was gained, or lost if none was gained there. None if the set is preserved."""
    shaped_bonus: FloatArray | None
    """F′ of shape (S, A), or (S, A, S) where it depends on s′; its mean over s′ of shape
    (H, S, A) with a horizon, NaN where no policy is at that time. None if F′ has a memory."""
    method: str
    nodes: int
    """The number of decision points compared: states, times the times and histories."""
    horizon: int | None
    optimal_before: BoolArray = field(repr=False)
    """The extrinsically optimal actions, shape (S, A)."""
    optimal_after: BoolArray = field(repr=False)
    """The actions optimal after shaping, shape (S, A)."""
    mdp: FiniteMDP = field(repr=False)

    def __str__(self) -> str:
        lines = [f"{self.label}: optimal policies {'PRESERVED' if self.preserved else 'CHANGED'}"]
        size = f"{self.nodes} decision points, gamma={self.mdp.gamma}"
        lines.append(f"  compared    {size}" + _horizon_text(self.horizon))
        if self.preserved:
            return "\n".join(lines)
        lines.append(f"  changed     {len(self.changed_states)} states")
        for state in self.changed_states[:_SHOWN_STATES].tolist():
            gained, lost = self._names(self.gained[state]), self._names(self.lost[state])
            lines.append(f"    state {state:>4}  gained: {gained or '-'}   lost: {lost or '-'}")
        if len(self.changed_states) > _SHOWN_STATES:
            lines.append(f"    … and {len(self.changed_states) - _SHOWN_STATES} more")
        lines.append(f"  regret      {self.regret:.6g} (of the worst newly optimal policy)")
        if self.counterexample:
            last = self.counterexample[-1]
            kind = "now optimal" if self.gained[last.state, last.action] else "no longer optimal"
            lines.append(f"  shortest counterexample (its last action is {kind})")
            lines.extend(f"    {self._step_text(step)}" for step in self.counterexample)
        return "\n".join(lines)

    @property
    def label(self) -> str:
        """The method's name for people."""
        return "raw bonus" if self.method == "none" else self.method

    def to_dict(self) -> dict[str, Any]:
        """Return all but the arrays of optimal sets as plain Python values, fit for JSON."""
        return {
            "method": self.method,
            "preserved": self.preserved,
            "changed_states": self.changed_states.tolist(),
            "gained": _by_state(self.gained),
            "lost": _by_state(self.lost),
            "regret": self.regret,
            "counterexample": (
                None
                if self.counterexample is None
                else [step._asdict() for step in self.counterexample]
            ),
            "nodes": self.nodes,
            "horizon": self.horizon,
            "gamma": self.mdp.gamma,
            "states": self.mdp.num_states,
            "actions": list(self.mdp.action_names),
        }

    def _names(self, actions: BoolArray) -> str:
        return ", ".join(self.mdp.action_names[a] for a in np.flatnonzero(actions))

    def _step_text(self, step: Step) -> str:
        return (
            f"{step.state} --{self.mdp.action_names[step.action]}--> {step.next_state}   "
            f"R={step.reward:g}  F={step.bonus:g}  F'={step.shaped:.6g}"
        )


def make_report(
    mdp: FiniteMDP,
    verdict: Verdict,
    state: IntArray,
    optimal: tuple[BoolArray, BoolArray],
    *,
    steps: Sequence[Step],
    shaped_bonus: FloatArray | None,
    method: str,
    horizon: int | None,
) -> AuditReport:
    """Gather a verdict on nodes into a report on states.

    Args:
        mdp: The task.
        verdict: The comparison, node by node.
        state: The MDP's state of each node.
        optimal: The optimal actions of each node before and after shaping.
        steps: The counterexample.
        shaped_bonus: F′ as a table, where it is one.
        method: The method's name.
        horizon: The horizon, if there was one.
    """
    gained, lost, before, after = (
        _per_state(mdp, state, table) for table in (verdict.gained, verdict.lost, *optimal)
    )
    return AuditReport(
        preserved=verdict.preserved,
        changed_states=np.flatnonzero((gained | lost).any(axis=1)),
        gained=gained,
        lost=lost,
        regret=verdict.regret,
        counterexample=tuple(steps) or None,
        shaped_bonus=shaped_bonus,
        method=method,
        nodes=verdict.compared,
        horizon=horizon,
        optimal_before=before,
        optimal_after=after,
        mdp=mdp,
    )


def _per_state(mdp: FiniteMDP, state: IntArray, table: BoolArray) -> BoolArray:
    """Return which (state, action) is True in some node."""
    pairs = (state[:, None] * mdp.num_actions + np.arange(mdp.num_actions))[table]
    flat = np.zeros(mdp.num_states * mdp.num_actions, dtype=np.bool_)
    flat[pairs] = True
    return flat.reshape(mdp.num_states, mdp.num_actions)


def _horizon_text(horizon: int | None) -> str:
    return "" if horizon is None else f", horizon={horizon}"


def _by_state(table: BoolArray) -> dict[str, list[int]]:
    return {
        str(state): np.flatnonzero(table[state]).tolist()
        for state in np.flatnonzero(table.any(axis=1)).tolist()
    }
