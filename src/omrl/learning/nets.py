"""Networks: multi-layer perceptrons and the tanh-squashed Gaussian, written to be stacked over learners."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


class MLP(nn.Module):
    """ReLU layers. `copies` independent networks share one module (twin critics): [B, in] -> [copies, B, out].

    It computes in the precision of the weights that it is called with and answers in that of its input. Those weights
    may be stored with room to spare, filled with zeros (see `room`): its answer is the same.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        generator: torch.Generator,
        copies: int | None = None,
        last_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.sizes = sizes = [inputs, *hidden, outputs]
        lead = () if copies is None else (copies,)
        self.weight = nn.ParameterList()
        self.bias = nn.ParameterList()
        for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            bound = 1.0 / math.sqrt(fan_in) * (last_scale if i == len(sizes) - 2 else 1.0)
            weight = torch.empty(*lead, fan_in, fan_out).uniform_(-bound, bound, generator=generator)
            self.weight.append(nn.Parameter(weight))
            self.bias.append(nn.Parameter(torch.zeros(*lead, 1, fan_out)))

    def room(self, multiple: int) -> dict[str, torch.Size]:
        """Shapes of the parameters with every width rounded up, as matrix units like them; a single output stays one.

        Zeros there meet units that are zero, or one where a bias has its gradient by it. What gradient they get is to
        be ignored: zeros they have to stay.
        """

        return {name: _roomy(name, param.shape, multiple) for name, param in self.named_parameters()}

    def forward(self, x: Tensor) -> Tensor:
        last, precision = len(self.weight) - 1, x.dtype
        if x.shape[-1] < self.weight[0].shape[-2]:
            x = torch.nn.functional.pad(x, (0, self.weight[0].shape[-2] - x.shape[-1]))
        if self._has_spare(0):
            x = x + _one_at(self.inputs, x)
        for i, (weight, bias) in enumerate(zip(self.weight, self.bias, strict=True)):
            if i < last and self._has_spare(i + 1):
                bias = bias + _one_at(self.sizes[i + 1], bias)
            if i == last and weight.shape[-1] == 1:
                # A single output is a sum, which matrix units are bad at; values need all digits.
                x = (x.to(precision) * weight.to(precision).mT).sum(-1, keepdim=True) + bias.to(precision)
            elif self._has_spare(i):
                x = _affine(x.to(weight.dtype), weight, bias, self.sizes[i])
            else:
                x = x.to(weight.dtype) @ weight + bias
            if i < last:
                x = torch.relu(x)
        return x[..., : self.outputs].to(precision)

    def _has_spare(self, layer: int) -> bool:
        """Whether a layer's input has room for a one beside it, by which its bias has its gradient: see `_Affine`."""
        weight = self.weight[layer]
        single = layer == len(self.weight) - 1 and weight.shape[-1] == 1
        return weight.shape[-2] > self.sizes[layer] and weight.ndim <= 3 and not single


class _Affine(torch.autograd.Function):
    """x @ weight + bias, where x has a one in the column `spare`, whose weights are zero.

    The product that gives the weights their gradient then has the bias's in that row, and rows need not be summed up by
    kernels of their own, a sixth of all that an update has. The spare weights get that gradient too: whoever gave room
    for them does not let them move.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, spare: int) -> Tensor:
        return x @ weight + bias

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int], output: Tensor) -> None:
        x, weight, _, ctx.spare = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        both = x.mT @ gradient
        return gradient @ weight.mT, both, both[..., ctx.spare : ctx.spare + 1, :], None


def _affine(x: Tensor, weight: Tensor, bias: Tensor, spare: int) -> Tensor:
    """For rows [..., in] of one network, or rows [B, in] and [copies, B, in] of several."""
    if weight.ndim == 3:
        rows = x.expand(len(weight), *x.shape[-2:])
        found: Tensor = _Affine.apply(rows, weight, bias, spare)  # type: ignore[no-untyped-call]
        return found
    found = _Affine.apply(x.reshape(-1, x.shape[-1]), weight, bias, spare)  # type: ignore[no-untyped-call]
    return found.view(*x.shape[:-1], weight.shape[-1]) if x.ndim > 1 else found


def _one_at(place: int, like: Tensor) -> Tensor:
    """A row of zeros with a one."""
    return (torch.arange(like.shape[-1], device=like.device) == place).to(like.dtype)


def _roomy(name: str, shape: torch.Size, multiple: int) -> torch.Size:
    """The shape of a weight [..., in, out] or bias [..., 1, out] with room to spare."""

    def wide(size: int) -> int:
        return -(-size // multiple) * multiple

    *lead, fan_in, fan_out = shape
    fan_out = fan_out if fan_out == 1 else wide(fan_out)
    return torch.Size([*lead, fan_in if "bias." in name else wide(fan_in), fan_out])


def stored_networks(shapes: Mapping[str, torch.Size], multiple: int) -> dict[str, torch.Size]:
    """Of shapes of tensors by name, those that are an MLP's parameters: as `room` has them.

    They are told by their names, and by layers that fit one another.
    """
    found: dict[str, torch.Size] = {}
    for prefix in [name.removesuffix("weight.0") for name in shapes if name.endswith("weight.0")]:
        count = sum(name.startswith(f"{prefix}weight.") for name in shapes)
        layers = [(f"{prefix}weight.{i}", f"{prefix}bias.{i}") for i in range(count)]
        names = [name for layer in layers for name in layer]
        if all(name in shapes for name in names) and _fit([(shapes[w], shapes[b]) for w, b in layers]):
            found |= {name: _roomy(name, shapes[name], multiple) for name in names}
    return found


def _fit(layers: Sequence[tuple[torch.Size, torch.Size]]) -> bool:
    """Whether pairs of a weight's and a bias's shape are the layers of one network."""
    own = all(len(w) >= 2 and (*w[:-2], 1, w[-1]) == tuple(b) for w, b in layers)
    return own and all(a[0][:-2] == b[0][:-2] and a[0][-1] == b[0][-2] for a, b in pairwise(layers))


def gaussian(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log-std of an action before tanh; `outputs` holds mean and raw log-std side by side."""
    mean, raw = outputs.chunk(2, dim=-1)
    return mean, LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (torch.tanh(raw) + 1.0)


def squashed_gaussian(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Action tanh(u) and its log-density, u = mean + std * noise."""
    mean, log_std = gaussian(outputs)
    u = mean + log_std.exp() * noise
    # log(1 - tanh(u)^2) in the form that does not cancel for large |u|
    log_jacobian = 2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))
    log_prob = (-0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi) - log_jacobian).sum(-1)
    return torch.tanh(u), log_prob
