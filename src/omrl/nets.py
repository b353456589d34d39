"""Networks: multi-layer perceptrons and the tanh-squashed Gaussian, written to be stacked over learners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


class MLP(nn.Module):
    """ReLU layers. `copies` independent networks share one module (twin critics): [B, in] -> [copies, B, out].

    With `half` the products between hidden layers, nearly all of the work, are in bfloat16; inputs and outputs keep
    their precision.
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
        half: bool = False,
    ) -> None:
        super().__init__()
        self._half = half
        sizes = [inputs, *hidden, outputs]
        lead = () if copies is None else (copies,)
        self.weight = nn.ParameterList()
        self.bias = nn.ParameterList()
        for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            bound = 1.0 / math.sqrt(fan_in) * (last_scale if i == len(sizes) - 2 else 1.0)
            weight = torch.empty(*lead, fan_in, fan_out).uniform_(-bound, bound, generator=generator)
            self.weight.append(nn.Parameter(weight))
            self.bias.append(nn.Parameter(torch.zeros(*lead, 1, fan_out)))

    def forward(self, x: Tensor) -> Tensor:
        last = len(self.weight) - 1
        for i, (weight, bias) in enumerate(zip(self.weight, self.bias, strict=True)):
            if self._half and 0 < i < last:
                x = x.bfloat16() @ weight.bfloat16() + bias.bfloat16()
            elif i == last and weight.shape[-1] == 1:
                # A single output is a sum, which matrix units are bad at.
                x = (x * weight.transpose(-1, -2)).sum(-1, keepdim=True) + bias
            else:
                x = x.to(weight.dtype) @ weight + bias
            if i < last:
                x = torch.relu(x)
        return x


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
