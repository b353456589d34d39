"""How far a policy strays from the data.

Two divergences in dual form, learned by a discriminator g. Both are estimated per state from one action of the policy
and the logged one; the discriminator climbs the estimate, the policy's loss descends it through its own action.

    kl             log T(s, a~) - T(s, a) + 1 with T = softplus(g): the dual form of KL(policy || behaviour), whose
                   supremum over T is the KL divergence itself
    wasserstein    g(s, a~) - g(s, a), with g kept 1-Lipschitz in the action by the gradient penalty

One in primal form, where g is a policy fitted to the logged actions:

    gaussian-kl    KL(policy || g) of the two Gaussians before tanh, in closed form: tanh changes neither side of it
    categorical-kl the same of two categorical policies, where actions are choices
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, softplus

from omrl.learning.nets import gaussian

Divergence = Literal["kl", "wasserstein", "gaussian-kl", "categorical-kl"]
Penalty = Literal["gradient", "output", "none"]
Discriminator = Callable[[Tensor], Tensor]
"""Actions [N, A] to values [N], at fixed states."""

PENALTY_WEIGHT = 5.0
# Keeps the logarithm finite where softplus underflows.
TINY = 1e-8
# A logged action at its bound came from somewhere beyond this.
LARGEST_ACT = 1.0 - 1e-3
# Deviations from the logger are squeezed below this many of its standard deviations.
FURTHEST = 4.0
# From here on the series is better than 0.001, and above it single precision has all digits.
FAR_DOWN = -5.0


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


def gaussian_kl(policy: Tensor, behaviour: Tensor) -> Tensor:
    """KL(policy || behaviour) per state [N], from the outputs of two Gaussian policies."""
    mean, log_std = gaussian(policy)
    centre, log_scale = gaussian(behaviour)
    spread = (2.0 * (log_std - log_scale)).exp() + ((mean - centre) * (-log_scale).exp()).square()
    return (log_scale - log_std + 0.5 * (spread - 1.0)).sum(-1)


def gaussian_deviation(act: Tensor, behaviour: Tensor) -> Tensor:
    """How far actions [N, A] are from what a fitted Gaussian policy usually does, in units of its own noise."""
    centre, log_scale = gaussian(behaviour)
    u = torch.atanh(act.clamp(-LARGEST_ACT, LARGEST_ACT))
    return FURTHEST * torch.tanh((u - centre) * (-log_scale).exp() / FURTHEST)


def behaviour_loss(behaviour: Tensor, data_act: Tensor, near_bounds: float = 0.0) -> Tensor:
    """Negative log-likelihood of the logged actions before tanh, up to a constant.

    An action within the share `near_bounds` of its range from a bound tells only that it lies there. By their values,
    logs of valves that are often shut would pull the behaviour far out: tanh reaches a bound at infinity.
    """
    centre, log_scale = gaussian(behaviour)
    bound = 1.0 - 2.0 * near_bounds if near_bounds else LARGEST_ACT
    u = torch.atanh(data_act.clamp(-bound, bound))
    loss = log_scale + 0.5 * ((u - centre) * (-log_scale).exp()).square()
    if near_bounds:
        beyond = -log_mass_below((centre - u) * data_act.sign() * (-log_scale).exp())
        # The density's constant, so that both kinds of rows are on one scale.
        loss = torch.where(data_act.abs() > bound, beyond - 0.5 * math.log(2.0 * math.pi), loss)
    return loss.sum(-1).mean()


def log_mass_below(x: Tensor) -> Tensor:
    """log of the standard normal distribution function; far down by its asymptotic series, where that underflows.

    torch's own does the same, and is slow for stacked learners.
    """
    near, far = x.clamp(min=FAR_DOWN), x.clamp(max=FAR_DOWN)
    series = torch.log1p(-1.0 / far.square() + 3.0 / far.pow(4)) - 0.5 * far.square() - torch.log(-far)
    tail = series - 0.5 * math.log(2.0 * math.pi)
    return torch.where(x > FAR_DOWN, torch.log(0.5 * torch.erfc(-near / math.sqrt(2.0))), tail)


def categorical_kl(policy: Tensor, behaviour: Tensor) -> Tensor:
    """KL(policy || behaviour) per state [N], from the outputs [N, K] of two categorical policies."""
    own, other = log_softmax(policy, -1), log_softmax(behaviour, -1)
    return (own.exp() * (own - other)).sum(-1)


def categorical_loss(behaviour: Tensor, which: Tensor) -> Tensor:
    """Negative log-likelihood of the logged choices, given as ones among zeros [N, K]."""
    return -(log_softmax(behaviour, -1) * which).sum(-1).mean()
