"""Small MDPs that several test files use."""

from __future__ import annotations

from itertools import product

import gymnasium as gym
import numpy as np

from adops_wrappers import FiniteMDP

CLIFF = "CliffWalking-v1" if "CliffWalking-v1" in gym.registry else "CliffWalking-v0"
TAXI = "Taxi-v4" if "Taxi-v4" in gym.registry else "Taxi-v3"


def chain(gamma: float = 0.5, **kwargs) -> FiniteMDP:
    """0 -> 1 -> 2 (terminal); action 1 stays. Rewards 1 and 4 for moving on, 1 for staying in 1."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[1, 0, 2] = 1.0
    transition[0, 1, 0] = transition[1, 1, 1] = 1.0
    reward = np.array([[1.0, 0.0], [4.0, 1.0], [0.0, 0.0]])
    return FiniteMDP(transition, reward, gamma, terminal=[2], **kwargs)


def bandit(rewards, gamma: float = 0.9) -> FiniteMDP:
    transition = np.zeros((2, len(rewards), 2))
    transition[:, :, 1] = 1.0
    return FiniteMDP(transition, [rewards, [0.0] * len(rewards)], gamma, terminal=[1])


def bandit_bonus(values) -> np.ndarray:
    return np.array([values, [0.0] * len(values)])


def gamble() -> tuple[FiniteMDP, np.ndarray]:
    """G: action 0 is safe and worth 0; action 1 wins 1 or loses 1.2, and its bonus is 5."""
    transition = np.zeros((4, 2, 4))
    transition[0, 0, 1] = 1.0
    transition[0, 1, 2:] = 0.5
    reward = np.zeros((4, 2, 4))
    reward[0, 1, 2:] = 1.0, -1.2
    bonus = np.zeros((4, 2))
    bonus[0, 1] = 5.0
    return FiniteMDP(transition, reward, 0.9, terminal=[1, 2, 3]), bonus


def noisy_tv() -> tuple[FiniteMDP, np.ndarray]:
    """H: without end; action 0 goes to or stays at the job (R = 1), action 1 the TV (F = 2)."""
    transition = np.zeros((2, 2, 2))
    transition[:, 0, 0] = transition[:, 1, 1] = 1.0
    reward = np.array([[1.0, 0.0], [1.0, 0.0]])
    return FiniteMDP(transition, reward, 0.9), np.array([[0.0, 2.0], [0.0, 2.0]])


def two_steps() -> FiniteMDP:
    """J: s0 -> s1 -> end; both actions lead on, and in s1 action 0 is worth 1."""
    transition = np.zeros((3, 2, 3))
    transition[0, :, 1] = transition[1, :, 2] = 1.0
    return FiniteMDP(transition, [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], 0.9, [2], start=0)


def all_policies(mdp: FiniteMDP):
    """Yield every deterministic policy as an array of actions."""
    for choice in product(range(mdp.num_actions), repeat=mdp.num_states):
        yield np.array(choice)


def policy_value(mdp: FiniteMDP, policy: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """V^π of a deterministic policy, from the definition."""
    alive = ~mdp.terminal
    rows = (np.arange(mdp.num_states), policy)
    mean = reward if reward.ndim == 2 else (mdp.transition * reward).sum(axis=2)
    flow = mdp.transition[rows] * alive[:, None] * alive[None, :]
    matrix = np.eye(mdp.num_states) - mdp.gamma * flow
    return np.linalg.solve(matrix, mean[rows] * alive)


def optimal_policies(mdp: FiniteMDP, reward: np.ndarray, tolerance: float = 1e-8) -> set[tuple]:
    """The policies that no other beats in any state, by enumeration; terminal states aside."""
    values = {tuple(p): policy_value(mdp, p, reward) for p in all_policies(mdp)}
    best = np.max(list(values.values()), axis=0)
    alive = np.flatnonzero(~mdp.terminal)
    return {
        tuple(policy[s] for s in alive)
        for policy, value in values.items()
        if (value >= best - tolerance).all()
    }
