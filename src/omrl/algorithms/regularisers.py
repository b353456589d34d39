"""What keeps a policy near the data: two regularisers with one interface, each with a network `g` of its own.

`Dual` learns a divergence by a discriminator, as FOCAL's paper and BRAC do; `ClosedForm` fits a behaviour policy to the
log and has the divergence to it in closed form. The formulas are in `omrl.algorithms.divergences`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from omrl.algorithms.divergences import Discriminator, Divergence, Penalty, dual_loss, estimate
from omrl.algorithms.heads import Head
from omrl.learning.nets import MLP

CLOSED_FORMS = ("gaussian-kl", "categorical-kl")

Net = Callable[[Tensor], Tensor]
"""The regulariser's network with somebody's parameters."""


class Regulariser(ABC):
    """Shapes: states [..., X] are [s, z], actions [..., A]; `policy` are a policy's outputs at the states."""

    @abstractmethod
    def network(self, state_dim: int, act_dim: int, hidden: Sequence[int], generator: torch.Generator) -> MLP:
        """What is learnt."""

    @property
    @abstractmethod
    def reads_actions(self) -> bool:
        """Whether a divergence needs the logged action, which at a next state there need not be."""

    @abstractmethod
    def divergence(self, g: Net, state: Tensor, policy: Tensor, policy_act: Tensor, data_act: Tensor) -> Tensor:
        """How far the policy strays at each state [...]."""

    @abstractmethod
    def loss(self, g: Net, state: Tensor, policy_act: Tensor, data_act: Tensor, mix: Tensor) -> Tensor:
        """What trains the network; the policy's action comes detached, `mix` [..., 1] is uniform in (0, 1)."""


@dataclass(frozen=True)
class Dual(Regulariser):
    """A discriminator of states and actions climbs the estimate of a divergence, kept smooth by a penalty."""

    kind: Divergence
    penalty: Penalty
    reads_actions = True

    def network(self, state_dim: int, act_dim: int, hidden: Sequence[int], generator: torch.Generator) -> MLP:
        """(s, z, a) to one number."""
        return MLP(state_dim + act_dim, hidden, 1, generator=generator)

    def divergence(self, g: Net, state: Tensor, policy: Tensor, policy_act: Tensor, data_act: Tensor) -> Tensor:
        """Its estimate from one action of each side."""
        return estimate(self.kind, _at(g, state), policy_act, data_act)

    def loss(self, g: Net, state: Tensor, policy_act: Tensor, data_act: Tensor, mix: Tensor) -> Tensor:
        """Minus the estimate, plus the penalty."""
        return dual_loss(self.kind, self.penalty, _at(g, state), policy_act, data_act, mix)


@dataclass(frozen=True)
class ClosedForm(Regulariser):
    """A behaviour policy with the actor's own head fits the log; the KL divergence to it is known."""

    head: Head
    reads_actions = False

    def network(self, state_dim: int, act_dim: int, hidden: Sequence[int], generator: torch.Generator) -> MLP:
        """(s, z) to a policy's outputs."""
        return MLP(state_dim, hidden, self.head.outputs, generator=generator)

    def divergence(self, g: Net, state: Tensor, policy: Tensor, policy_act: Tensor, data_act: Tensor) -> Tensor:
        """KL(policy || behaviour)."""
        return self.head.kl(policy, g(state))

    def loss(self, g: Net, state: Tensor, policy_act: Tensor, data_act: Tensor, mix: Tensor) -> Tensor:
        """Negative log-likelihood of the logged actions."""
        return self.head.imitation(g(state), data_act)


def regulariser(divergence: Divergence, penalty: Penalty, head: Head) -> Regulariser:
    """By the names that configs have."""
    return ClosedForm(head) if divergence in CLOSED_FORMS else Dual(divergence, penalty)


def _at(g: Net, state: Tensor) -> Discriminator:
    return lambda act: g(torch.cat([state, act], -1)).squeeze(-1)
