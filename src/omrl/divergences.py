"""How far a policy strays from the data: divergences in dual form, learned by a discriminator g.

Both are estimated per state from one action of the policy and the logged one; the discriminator climbs the estimate,
the policy's loss descends it through its own action.

    kl             log T(s, a~) - T(s, a) + 1 with T = softplus(g): the dual form of KL(policy || behaviour), whose
                   supremum over T is the KL divergence itself
    wasserstein    g(s, a~) - g(s, a), with g kept 1-Lipschitz in the action by the gradient penalty
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

Divergence = Literal["kl", "wasserstein"]
Penalty = Literal["gradient", "output", "none"]
Discriminator = Callable[[Tensor], Tensor]
"""Actions [N, A] to values [N], at fixed states."""

PENALTY_WEIGHT = 5.0
# Keeps the logarithm finite where softplus underflows.
TINY = 1e-8


def estimate(kind: Divergence, g: Discriminator, policy_act: Tensor, data_act: Tensor) -> Tensor:
    """Per-sample divergence estimate [N]."""
    if kind == "wasserstein":
        return g(policy_act) - g(data_act)
    return torch.log(softplus(g(policy_act)) + TINY) - softplus(g(data_act)) + 1.0


def penalty(kind: Penalty, g: Discriminator, policy_act: Tensor, data_act: Tensor, mix: Tensor) -> Tensor:
    """What keeps g smooth between the two actions; `mix` [N, 1] in (0, 1) says where on the line it is asked.

    `gradient` is the norm of g's gradient in the action above 1. `output` is |g| above 1, which is what the paper's
    public code computes under that name and what its regularisation strengths were tuned on.
    """
    if kind == "none":
        return torch.zeros((), device=mix.device)
    between = policy_act + mix * (data_act - policy_act)
    if kind == "output":
        excess = torch.sqrt(g(between).square() + TINY) - 1.0
    else:
        slope = torch.func.grad(lambda act: g(act).sum())(between)
        excess = torch.sqrt(slope.square().sum(-1) + TINY) - 1.0
    return PENALTY_WEIGHT * excess.clamp(min=0.0).square().mean()


def dual_loss(
    kind: Divergence, penalty_kind: Penalty, g: Discriminator, policy_act: Tensor, data_act: Tensor, mix: Tensor
) -> Tensor:
    """The discriminator's loss: minus the estimate, plus the penalty. The policy's action comes detached."""
    return -estimate(kind, g, policy_act, data_act).mean() + penalty(penalty_kind, g, policy_act, data_act, mix)
