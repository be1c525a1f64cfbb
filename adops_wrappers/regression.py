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

from adops_wrappers.networks import InputNetwork, Packed

Array32 = npt.NDArray[np.float32]


class Layer(NamedTuple):
    """A linear layer: views of its weights and of their gradients."""

    weight: Array32
    bias: Array32
    weight_gradient: Array32
    bias_gradient: Array32


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
        self.layers = None if self.device.type != "cpu" else _layers(self.network, self.gradient)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the views out of a copy: a copied view is a view of nothing."""
        state = {name: value for name, value in self.__dict__.items() if name != "layers"}
        del state["vector"], state["gradient"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the views again."""
        self.__dict__.update(state)
        self._bind()

    def inputs(self, packed: Packed) -> list[Any]:
        """Return what `values` and `step` take: the observations before any weight."""
        encoder = self.network.encoder
        if self.layers is not None:
            return [encoder.features_of(packed)]
        return encoder.inputs([torch.from_numpy(part).to(self.device) for part in packed])

    def values(self, inputs: Sequence[Any]) -> Array32:
        """Return the network's outputs."""
        if self.layers is not None:
            return _outputs(self.layers, inputs[0])[-1]
        with torch.inference_mode():
            answer: Array32 = self.network(inputs).cpu().numpy()
        return answer


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
        self.optimizer = torch.optim.Adam([self.vector], lr=learning_rate, fused=True)
        ends = np.cumsum([0, *(sum(w.numel() for w in group) for group in self._groups)]).tolist()
        self._stretches = [slice(*ends) for ends in pairwise(ends)]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the optimiser's hold of the array out of a copy."""
        return {**super().__getstate__(), "optimizer": self.optimizer.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the optimiser again."""
        super().__setstate__(state)
        self.optimizer = torch.optim.Adam([self.vector], fused=True)
        self.optimizer.load_state_dict(deepcopy(state["optimizer"]))

    def step(self, inputs: Sequence[Any], gradient_of: Callable[[Array32], Array32]) -> None:
        """Make one gradient step.

        Args:
            inputs: From `inputs`.
            gradient_of: The gradient of the loss with respect to the outputs that it is given.
        """
        if self.layers is not None:
            hidden = _outputs(self.layers, inputs[0])
            _backward(self.layers, hidden, gradient_of(hidden[-1]))
        else:
            self.gradient.zero_()
            outputs = self.network(inputs)
            slope = gradient_of(outputs.detach().cpu().numpy())
            outputs.backward(torch.from_numpy(slope).to(self.device))
        for stretch in self._stretches:
            part = self.gradient[stretch]
            part.mul_((self.max_grad_norm / (torch.linalg.vector_norm(part) + 1e-6)).clamp_(max=1))
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


def _layers(network: InputNetwork, gradient: torch.Tensor) -> list[Layer] | None:
    """Return the layers of a plain MLP; None for any other network."""
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
    return layers


def _outputs(layers: Sequence[Layer], x: Array32) -> list[Array32]:
    """Return the input and what leaves each layer, after its ReLU; the last has none."""
    found = [x]
    for layer in layers:
        x = x @ layer.weight.T
        x += layer.bias
        if layer is not layers[-1]:
            np.maximum(x, 0.0, out=x)
        found.append(x)
    return found


def _backward(layers: Sequence[Layer], found: list[Array32], slope: Array32) -> None:
    """Write the gradients of all weights, given that of the last outputs."""
    for place in range(len(layers) - 1, -1, -1):
        layer, x = layers[place], found[place]
        np.matmul(slope.T, x, out=layer.weight_gradient)
        slope.sum(axis=0, out=layer.bias_gradient)
        if place:
            slope = slope @ layer.weight
            slope *= x > 0.0
