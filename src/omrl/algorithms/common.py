"""What several algorithms call: a context's posterior, the reward to learn from, twin critics."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from omrl.learning.engine import Batch, Params, call
from omrl.learning.nets import MLP

# Smallest variance of one transition's Gaussian, as in PEARL.
MIN_VARIANCE = 1e-7
# An action this large has all but no gradient left through tanh.
AT_BOUNDS = 0.99


def transition_dim(obs_dim: int, act_dim: int, next_obs: bool) -> int:
    """Numbers of a context's transition that an encoder sees: (s, a, r, s') or (s, a, r)."""
    return obs_dim + act_dim + 1 + (obs_dim if next_obs else 0)


def encode(nets: nn.Module, params: Params, context: Tensor) -> Tensor:
    """The child `encoder` on every transition; contexts are (s, a, r, s'), of which it may see (s, a, r) alone."""
    encoder = nets.get_submodule("encoder")
    assert isinstance(encoder, MLP)
    return call(nets, params, "encoder", context[..., : encoder.inputs])


def product_of_gaussians(mean: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance [..., l] of a product of C Gaussians, given by their means and raw variances [..., C, l]."""
    weights = precision(raw)
    variance = 1.0 / weights.sum(-2)
    return (mean * weights).sum(-2) * variance, variance


def precision(raw: Tensor) -> Tensor:
    """Of a Gaussian, from its raw variance."""
    return 1.0 / softplus(raw).clamp(min=MIN_VARIANCE)


def gaussian_evidence(codes: Tensor) -> tuple[Tensor, Tensor]:
    """Means and precisions [..., C, l] of the transitions' Gaussians: z is their weighted mean."""
    mean, raw = codes.chunk(2, dim=-1)
    return mean, precision(raw)


def posterior(codes: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and variance [..., l] of q(z | c) from the codes [..., C, 2 l] of its transitions, or of `rows` [..., C]."""
    mean, raw = codes.chunk(2, dim=-1)
    if rows is not None:
        # A transition of infinite variance says nothing.
        raw = torch.where(rows[..., None], raw, torch.inf)
    return product_of_gaussians(mean, raw)


def drawn(mean: Tensor, variance: Tensor, noise: Tensor | None) -> Tensor:
    """A sample of a Gaussian by standard normal noise, or its mean without."""
    return mean if noise is None else mean + variance.sqrt() * noise


def kl(
    mean: Tensor, variance: Tensor, other_mean: Tensor | float = 0.0, other_variance: Tensor | float = 1.0
) -> Tensor:
    """KL of diagonal Gaussians [..., l], of the first to the other or to the prior N(0, 1), summed over dimensions."""
    ratio = variance / other_variance
    return 0.5 * (ratio - 1.0 - ratio.log() + (mean - other_mean).square() / other_variance).sum(-1)


def per_row(z: Tensor, batch: Batch) -> Tensor:
    """z of tasks [M, l] for every row of theirs in a batch [M, B, l]."""
    return z[:, None].expand(-1, batch["obs"].shape[1], -1)


class HasDenseReward(Protocol):
    """Settings of an algorithm whose control may learn from the log's second reward."""

    @property
    def dense_reward(self) -> bool:
        """Whether it does."""


def task_reward(config: HasDenseReward, batch: Batch) -> Tensor:
    """The reward that control learns from; contexts keep the logged one."""
    return batch["rew_dense"] if config.dense_reward else batch["rew"]


def saturated(act: Tensor, data_act: Tensor) -> dict[str, Tensor]:
    """Share of actions at their bounds, the policy's and the logged ones: what a person should watch."""
    shares = [(values.abs() > AT_BOUNDS).float().mean() for values in (act, data_act)]
    return dict(zip(("saturated", "saturated_logged"), shares, strict=True))


def twin_q(nets: nn.Module, params: Params, *inputs: Tensor) -> Tensor:
    """Both copies of the child `critic` on inputs [..., dim] side by side: [2, ...], or [2, ..., K] of K values."""
    rows = torch.cat(inputs, -1)
    values = call(nets, params, "critic", rows.flatten(0, -2))
    values = values.view(len(values), *rows.shape[:-1], -1)
    return values.squeeze(-1) if values.shape[-1] == 1 else values


def first_q(nets: nn.Module, params: Params, *inputs: Tensor) -> Tensor:
    """The same of the first copy alone: [...], or [..., K]."""
    own = {name: value[:1] for name, value in params.items() if name.startswith("critic.")}
    return twin_q(nets, own, *inputs).squeeze(0)
