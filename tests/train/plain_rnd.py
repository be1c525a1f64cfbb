"""PPO with RND once more, in plain NumPy and float64: what the script's numbers are held against.

Written from the papers (Schulman et al. 2016 and 2017, Kingma and Ba 2015, Burda et al. 2019):
loops over single environments, sums instead of recursions, derivatives by hand. Networks are
those of vector observations, as dicts of arrays under PyTorch's names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]


def weights_of(module: Any) -> Weights:
    """Return a copy of a network's weights."""
    return {name: tensor.double().numpy() for name, tensor in module.state_dict().items()}


def advantages(
    rewards: Sequence[Any],
    values: Sequence[Any],
    bootstraps: Sequence[Any],
    cut: Sequence[bool],
    gamma: Any,
    lam: Any,
) -> list[Any]:
    """Return the advantages of one env's stream: the weighted sum of the TD errors ahead.

    `bootstraps` are the V(s') of each step and `cut` says after which the sum ends. Exact where
    the numbers are fractions.
    """
    errors = [r + gamma * b - v for r, b, v in zip(rewards, bootstraps, values, strict=True)]
    result = []
    for t in range(len(errors)):
        last = next((k for k in range(t, len(errors)) if cut[k]), len(errors) - 1)
        result.append(sum((gamma * lam) ** (k - t) * errors[k] for k in range(t, last + 1)))
    return result


def exact(numbers: np.ndarray) -> list[Fraction]:
    return [Fraction(float(number)) for number in numbers]


class ReturnScale:
    """Burda's divisor of F: a filter per env that runs over time, and the spread of all it gave."""

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.running: dict[int, float] = {}
        self.returns: list[float] = []

    def add(self, bonuses: Sequence[float]) -> None:
        """Take in one vector step."""
        for env, bonus in enumerate(bonuses):
            self.running[env] = self.gamma * self.running.get(env, 0.0) + float(bonus)
            self.returns.append(self.running[env])

    @property
    def std(self) -> float:
        mean = math.fsum(self.returns) / len(self.returns)
        squares = math.fsum((value - mean) ** 2 for value in self.returns)
        return math.sqrt(squares / len(self.returns))


def dense(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def dense_back(
    weights: Weights, gradients: Weights, name: str, x: np.ndarray, slope: np.ndarray
) -> np.ndarray:
    """Note the derivatives by a dense layer's weights; return that by its input."""
    gradients[f"{name}.weight"], gradients[f"{name}.bias"] = slope.T @ x, slope.sum(0)
    return slope @ weights[f"{name}.weight"]


def leaky(x: np.ndarray, slope: float = 0.0) -> np.ndarray:
    return np.where(x > 0.0, x, slope * x)


def softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


class PlainAgent:
    """Policy and two values."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w = self.weights
        self.x, self.first = x, leaky(dense(w, "body.0.0", x))
        self.second = leaky(dense(w, "body.1", self.first))
        self.for_policy = leaky(dense(w, "for_policy", self.second))
        self.for_values = leaky(dense(w, "for_values", self.second))
        logits = dense(w, "policy", self.second + self.for_policy)
        return logits, dense(w, "values", self.second + self.for_values)

    def gradients(self, by_logits: np.ndarray, by_values: np.ndarray) -> Weights:
        """Return the derivatives by the weights, for the batch seen last."""
        w, found = self.weights, {}
        by_second = np.zeros_like(self.second)
        for head, branch, hidden, slope in (
            ("policy", "for_policy", self.for_policy, by_logits),
            ("values", "for_values", self.for_values, by_values),
        ):
            by_sum = dense_back(w, found, head, self.second + hidden, slope)
            by_second += by_sum + dense_back(w, found, branch, self.second, by_sum * (hidden > 0.0))
        by_first = dense_back(w, found, "body.1", self.first, by_second * (self.second > 0.0))
        dense_back(w, found, "body.0.0", self.x, by_first * (self.first > 0.0))
        return found


class PlainPredictor:
    """RND's predictor."""

    def __init__(self, weights: Weights, slope: float) -> None:
        self.weights, self.slope = weights, slope

    def __call__(self, x: np.ndarray) -> np.ndarray:
        w = self.weights
        self.x, self.first = x, leaky(dense(w, "0.0", x), self.slope)
        self.second = leaky(dense(w, "1", self.first))
        self.third = leaky(dense(w, "3", self.second))
        return dense(w, "5", self.third)

    def gradients(self, by_output: np.ndarray) -> Weights:
        w, found = self.weights, {}
        by_third = dense_back(w, found, "5", self.third, by_output) * (self.third > 0.0)
        by_second = dense_back(w, found, "3", self.second, by_third) * (self.second > 0.0)
        by_first = dense_back(w, found, "1", self.first, by_second)
        dense_back(w, found, "0.0", self.x, by_first * np.where(self.first > 0.0, 1.0, self.slope))
        return found


def target_features(weights: Weights, x: np.ndarray, slope: float) -> np.ndarray:
    return dense(weights, "1", leaky(dense(weights, "0.0", x), slope))


def ppo_losses(
    agent: PlainAgent,
    observations: np.ndarray,
    actions: np.ndarray,
    old_probabilities: np.ndarray,
    advantage: np.ndarray,
    returns: np.ndarray,
    *,
    clip: float,
    vf_coef: float,
    ent_coef: float,
) -> tuple[dict[str, float], Weights]:
    """Return the terms of PPO's loss on a minibatch, and the loss's derivatives."""
    rows, count = np.arange(len(actions)), len(actions)
    logits, values = agent(observations)
    p = softmax(logits)
    ratio = p[rows, actions] / old_probabilities
    clipped = np.clip(ratio, 1.0 - clip, 1.0 + clip)
    entropy = -(p * np.log(p)).sum(-1)
    losses = {
        "losses/policy_loss": -np.minimum(advantage * ratio, advantage * clipped).mean(),
        "losses/value_loss_ext": ((values - returns)[:, 0] ** 2).mean(),
        "losses/value_loss_int": ((values - returns)[:, 1] ** 2).mean(),
        "losses/entropy": entropy.mean(),
        "losses/clipfrac": (np.abs(ratio - 1.0) > clip).mean(),
    }
    held = np.where(advantage > 0.0, ratio > 1.0 + clip, ratio < 1.0 - clip)
    by_logprob = np.where(held, 0.0, -advantage * ratio) / count
    by_logits = -p * by_logprob[:, None]
    by_logits[rows, actions] += by_logprob
    by_logits += ent_coef * p * (np.log(p) + entropy[:, None]) / count
    by_values = vf_coef * 2.0 * (values - returns) / count
    return losses, agent.gradients(by_logits, by_values)


class PlainAdam:
    """Kingma and Ba's algorithm 1, epsilon added after the corrections of the moments."""

    def __init__(self, weights: Weights, rate: float, eps: float) -> None:
        self.weights, self.rate, self.eps, self.steps = weights, rate, eps, 0
        self.first = {name: np.zeros_like(w) for name, w in weights.items()}
        self.second = {name: np.zeros_like(w) for name, w in weights.items()}

    def step(self, gradients: Weights) -> None:
        self.steps += 1
        for name, gradient in gradients.items():
            self.first[name] = 0.9 * self.first[name] + 0.1 * gradient
            self.second[name] = 0.999 * self.second[name] + 0.001 * gradient**2
            mean = self.first[name] / (1.0 - 0.9**self.steps)
            square = self.second[name] / (1.0 - 0.999**self.steps)
            self.weights[name] = self.weights[name] - self.rate * mean / (
                np.sqrt(square) + self.eps
            )


def convolution(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    """Convolve images (n, height, width, channels) without padding."""
    size = weight.shape[-1]
    patches = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
    patches = patches[:, ::stride, ::stride]
    return np.einsum("nhwcij,ocij->nhwo", patches, weight, optimize=True) + bias


def conv_trunk(weights: Weights, name: str, x: np.ndarray, slope: float = 0.0) -> np.ndarray:
    """Burda's three convolutions, the third one of size 3; flattened row by row, channels last."""
    for layer, stride in ((0, 4), (2, 2), (4, 1)):
        weight, bias = (weights[f"{name}.convs.{layer}.{kind}"] for kind in ("weight", "bias"))
        x = leaky(convolution(x, weight, bias, stride), slope)
    return x.reshape(len(x), -1)
