"""Networks that are fitted to targets in steps that cost little more than their arithmetic.

A gradient step of a small network takes torch many times as long as its products of matrices: what
takes time is its graph, its optimiser and the search for both. So all weights lie in one array,
which one optimiser moves, and where a network is a plain MLP on the CPU, numpy evaluates and
differentiates it. Everything else goes through torch's autograd. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from adops_wrappers.networks import InputNetwork
from adops_wrappers.packing import Packed

_BLOCK = 256
"""Rows of a pass: more do not fit into the processor's cache."""

Array32 = npt.NDArray[np.float32]


class Layer(NamedTuple):
    """A linear layer: views of its weights and of their gradients."""

    weight: Array32
    bias: Array32
    weight_gradient: Array32
    bias_gradient: Array32


class Mlp:
    """Linear layers with ReLU between them, evaluated and differentiated by numpy.

    It keeps the memory of what leaves the hidden layers, for as many rows as it has been given at
    once: memory that is new at every pass costs as much as the arithmetic.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self._reserve(0)

    def _reserve(self, rows: int) -> None:
        widths = [len(layer.bias) for layer in self.layers[:-1]]
        self.rows = rows
        self._found, self._slopes = (
            [np.empty((rows, width), np.float32) for width in widths] for _ in range(2)
        )
        self._positive = [np.empty((rows, width), np.bool_) for width in widths]

    def values(self, x: Array32) -> Array32:
        """Return the outputs for inputs of shape (rows, features)."""
        if len(x) <= _BLOCK:
            return self._outputs(x)
        return np.concatenate([self._outputs(x[i : i + _BLOCK]) for i in range(0, len(x), _BLOCK)])

    def _outputs(self, x: Array32) -> Array32:
        rows = len(x)
        if rows > self.rows:
            self._reserve(rows)
        for layer, found in zip(self.layers, self._found, strict=False):
            x = np.matmul(x, layer.weight.T, out=found[:rows])
            x += layer.bias
            np.maximum(x, 0.0, out=x)
        last = self.layers[-1]
        x = x @ last.weight.T
        x += last.bias
        return x

    def differentiate(self, x: Array32, gradient_of: Callable[[Array32], Array32]) -> None:
        """Write the gradients of all weights, given the gradient of the loss at the outputs."""
        slope, rows = gradient_of(self._outputs(x)), len(x)
        for place in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[place]
            before = self._found[place - 1][:rows] if place else x
            np.matmul(slope.T, before, out=layer.weight_gradient)
            slope.sum(axis=0, out=layer.bias_gradient)
            if place:
                positive = np.greater(before, 0.0, out=self._positive[place - 1][:rows])
                slope = np.matmul(slope, layer.weight, out=self._slopes[place - 1][:rows])
                slope *= positive


class Adam(NamedTuple):
    """Adam (Kingma and Ba 2015) by numpy, in the memory of torch's."""

    weights: Array32
    gradient: Array32
    mean: Array32
    square: Array32
    steps: Array32

    def step(self, settings: dict[str, Any]) -> None:
        """Move the weights, under the settings of one of torch's `param_groups`."""
        (first, second), (weights, slope, mean, square, steps) = settings["betas"], self
        steps[...] += 1.0
        room = np.subtract(slope, mean)
        room *= 1.0 - first
        mean += room
        np.multiply(slope, slope, out=room)
        room *= 1.0 - second
        square *= second
        square += room
        np.sqrt(square, out=room)
        room *= (1.0 - second ** float(steps)) ** -0.5
        room += settings["eps"]
        np.divide(mean, room, out=room)
        room *= settings["lr"] / (1.0 - first ** float(steps))
        weights -= room


class Evaluated:
    """A network whose weights are views of one array, `vector`.

    Args:
        network: The network. It keeps its `state_dict`.
        groups: Its parameters; each group has a stretch of the array to itself.
    """

    def __init__(
        self, network: InputNetwork, groups: Sequence[Sequence[nn.Parameter]] | None = None
    ) -> None:
        self.network = network
        self._groups = [list(g) for g in groups] if groups else [list(network.parameters())]
        self.device = self._groups[0][0].device
        self._bind()

    def _bind(self) -> None:
        """Move all weights into one array, and find what numpy can do with it."""
        weights = [weight for group in self._groups for weight in group]
        with torch.no_grad():
            flat = torch.cat([weight.reshape(-1) for weight in weights])
            self.vector = nn.Parameter(flat, weights[0].requires_grad)
            self.gradient = torch.zeros_like(flat)
            ends = np.cumsum([0, *(weight.numel() for weight in weights)]).tolist()
            for weight, (start, end) in zip(weights, pairwise(ends), strict=True):
                weight.data = flat[start:end].view_as(weight)
                if weight.requires_grad:
                    # Autograd adds to a gradient that is there.
                    weight.grad = self.gradient[start:end].view_as(weight)
        if weights[0].requires_grad:
            self.vector.grad = self.gradient
        self.mlp = None if self.device.type != "cpu" else _mlp_of(self.network)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the views out of a copy: a copied view is a view of nothing."""
        state = {name: value for name, value in self.__dict__.items() if name != "mlp"}
        del state["vector"], state["gradient"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the views again."""
        self.__dict__.update(state)
        self._bind()

    def inputs(self, packed: Packed) -> list[Any]:
        """Return what `values` and `step` take: the observations before any weight."""
        encoder = self.network.encoder
        if self.mlp is not None:
            return [encoder.features_of(packed)]
        return encoder.inputs([torch.from_numpy(part).to(self.device) for part in packed])

    def values(self, inputs: Sequence[Any]) -> Array32:
        """Return the network's outputs."""
        if self.mlp is not None:
            return self.mlp.values(inputs[0])
        with torch.inference_mode():
            answer: Array32 = self.network(inputs).cpu().numpy()
        return answer

    def follow(self, other: Evaluated, share: float) -> None:
        """Move all weights towards those of a network of the same kind, by this share."""
        with torch.no_grad():
            self.vector.lerp_(other.vector, share)


class Regression(Evaluated):
    """A network, and Adam on the array of its weights.

    Args:
        network: The network.
        learning_rate: Adam's step size.
        max_grad_norm: The norm to which the gradient of each group is clipped.
        groups: The parameters that are clipped together.
    """

    def __init__(
        self,
        network: InputNetwork,
        learning_rate: float,
        max_grad_norm: float,
        groups: Sequence[Sequence[nn.Parameter]] | None = None,
    ) -> None:
        super().__init__(network, groups)
        self.max_grad_norm = max_grad_norm
        ends = np.cumsum([0, *(sum(w.numel() for w in group) for group in self._groups)]).tolist()
        self._stretches = [slice(*ends) for ends in pairwise(ends)]
        self.optimizer = torch.optim.Adam([self.vector], lr=learning_rate, fused=True)
        self._share()

    def _share(self) -> None:
        """Give the optimiser the memory that numpy's Adam works in."""
        state = self.optimizer.state[self.vector]
        if not state:
            state["step"] = torch.zeros((), device=self.device)
            state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(self.vector) for _ in "mv")
        if self.mlp is not None:
            self.adam = Adam(
                self.vector.detach().numpy(),
                self.gradient.numpy(),
                *(state[name].detach().numpy() for name in ("exp_avg", "exp_avg_sq", "step")),
            )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the optimiser's hold of the array out of a copy."""
        state = {**super().__getstate__(), "optimizer": self.state_dict()}
        state.pop("adam", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the optimiser again."""
        super().__setstate__(state)
        self.optimizer = torch.optim.Adam([self.vector], fused=True)
        self.load_state_dict(state["optimizer"])

    def step(self, inputs: Sequence[Any], gradient_of: Callable[[Array32], Array32]) -> None:
        """Make one gradient step.

        Args:
            inputs: From `inputs`.
            gradient_of: The gradient of the loss with respect to the outputs that it is given.
        """
        if self.mlp is not None:
            self.mlp.differentiate(inputs[0], gradient_of)
            for stretch in self._stretches:
                part = self.adam.gradient[stretch]
                norm = float(np.sqrt(part @ part))
                if norm > self.max_grad_norm:
                    part *= self.max_grad_norm / (norm + 1e-6)
            self.adam.step(self.optimizer.param_groups[0])
            return
        self.gradient.zero_()
        outputs = self.network(inputs)
        slope = gradient_of(outputs.detach().cpu().numpy())
        outputs.backward(torch.from_numpy(slope).to(self.device))
        for stretch in self._stretches:
            slopes = self.gradient[stretch]
            norms = torch.linalg.vector_norm(slopes)
            slopes.mul_((self.max_grad_norm / (norms + 1e-6)).clamp_(max=1.0))
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state; the weights are the network's."""
        return deepcopy(self.optimizer.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()`, or that of an Adam with one entry for each parameter."""
        mine, saved = self.optimizer.state_dict(), deepcopy(state)
        order = {id(weight): place for place, weight in enumerate(self.network.parameters())}
        places = [order[id(weight)] for group in self._groups for weight in group]
        if len(saved["param_groups"][0]["params"]) > 1 and saved["state"]:
            one = saved["state"][places[0]]
            saved["state"] = {
                0: {
                    name: torch.cat([saved["state"][place][name].reshape(-1) for place in places])
                    if name != "step"
                    else one[name]
                    for name in one
                }
            }
        settings = {**saved["param_groups"][0], "params": [0], "fused": True}
        self.optimizer.load_state_dict(
            {"state": saved["state"], "param_groups": [{**mine["param_groups"][0], **settings}]}
        )
        self._share()


def _mlp_of(network: InputNetwork) -> Mlp | None:
    """Return a plain MLP on the same weights; None for any other network."""
    body = getattr(network, "body", None)
    if body is None or not network.encoder.plain:
        return None
    layers = []
    for module in body:
        if isinstance(module, nn.Linear):
            pair = module.weight, module.bias
            slopes = [torch.empty(0) if w.grad is None else w.grad for w in pair]
            layers.append(Layer(*(w.detach().numpy() for w in (*pair, *slopes))))
        elif not isinstance(module, nn.ReLU):
            return None
    return Mlp(layers)
