"""What a policy's outputs mean: amounts from a Gaussian through tanh, or one of a few choices.

Control and cloning call a head for all that depends on the kind of action, and read the same for both. Actions are in
[-1, 1] in either case: a choice is a point there, and no other point is ever taken. Expectations over choices are
exact, so that nothing has to be drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from omrl.algorithms.common import saturated
from omrl.algorithms.divergences import behaviour_loss, categorical_kl, categorical_loss, gaussian_kl
from omrl.learning.nets import gaussian, squashed_gaussian

Critics = Callable[..., Tensor]
"""Both critics at fixed states: of actions [..., A], or without them of all choices [2, ..., K]."""


class Expected(NamedTuple):
    """Of a policy's own action at each state, by a sample or exactly."""

    value: Tensor
    """The smaller critic's."""
    log_prob: Tensor
    act: Tensor
    """One such action."""


class Head(ABC):
    """Shapes: outputs [..., X] of a policy, actions [..., A]."""

    outputs: int
    """Numbers that a policy has for a state."""
    critic_reads: int
    """Numbers of an action that a critic reads beside the state."""
    critic_outputs: int
    """Values that it gives."""
    draws: bool
    """Whether expectations need random numbers."""

    @abstractmethod
    def act(self, outputs: Tensor) -> Tensor:
        """The deterministic action."""

    @abstractmethod
    def drawn(self, outputs: Tensor, noise: Tensor | None) -> Tensor:
        """An action of the policy."""

    @abstractmethod
    def expected(self, outputs: Tensor, critics: Critics, noise: Tensor | None) -> Expected:
        """Value and log-probability of the policy's own action."""

    @abstractmethod
    def q(self, critics: Critics, act: Tensor) -> Tensor:
        """Both critics of actions [2, ...]."""

    @abstractmethod
    def kl(self, policy: Tensor, behaviour: Tensor) -> Tensor:
        """KL divergence [...] of two policies by their outputs."""

    @abstractmethod
    def imitation(self, outputs: Tensor, data_act: Tensor) -> Tensor:
        """Negative log-likelihood of logged actions, up to a constant."""

    @abstractmethod
    def watched(self, act: Tensor, data_act: Tensor) -> dict[str, Tensor]:
        """What a person should watch of the policy's actions."""


class Amounts(Head):
    """tanh of a Gaussian."""

    critic_outputs, draws = 1, True

    def __init__(self, act_dim: int, near_bounds: float = 0.0) -> None:
        self.outputs, self.critic_reads, self.near_bounds = 2 * act_dim, act_dim, near_bounds

    def act(self, outputs: Tensor) -> Tensor:
        """tanh(mean)."""
        mean, _ = gaussian(outputs)
        return torch.tanh(mean)

    def drawn(self, outputs: Tensor, noise: Tensor | None) -> Tensor:
        """By standard normal noise."""
        assert noise is not None
        act, _ = squashed_gaussian(outputs, noise)
        return act

    def expected(self, outputs: Tensor, critics: Critics, noise: Tensor | None) -> Expected:
        """By one sample."""
        assert noise is not None
        act, log_prob = squashed_gaussian(outputs, noise)
        return Expected(critics(act).amin(0), log_prob, act)

    def q(self, critics: Critics, act: Tensor) -> Tensor:
        """The critics read the action."""
        return critics(act)

    def kl(self, policy: Tensor, behaviour: Tensor) -> Tensor:
        """Before tanh, which changes neither side of it."""
        return gaussian_kl(policy, behaviour)

    def imitation(self, outputs: Tensor, data_act: Tensor) -> Tensor:
        """Before tanh."""
        return behaviour_loss(outputs, data_act, self.near_bounds)

    def watched(self, act: Tensor, data_act: Tensor) -> dict[str, Tensor]:
        """How many are at their bounds."""
        return saturated(act, data_act)


class Choices(Head):
    """A categorical policy: a number for each choice, and critics that give the value of each."""

    critic_reads, draws = 0, False

    def __init__(self, choices: Sequence[Sequence[float]]) -> None:
        """The choices [K, A], in [-1, 1]."""
        self.outputs = self.critic_outputs = len(choices)
        self._choices, self._tables = choices, dict[torch.device, Tensor]()

    def table(self, device: torch.device) -> Tensor:
        """The choices [K, A] on a device; kept, as a captured graph must find them in place."""
        if device not in self._tables:
            self._tables[device] = torch.tensor(self._choices, device=device)
        return self._tables[device]

    def which(self, act: Tensor) -> Tensor:
        """Ones at the choices that actions are [..., K]: the nearest, as units are rounded."""
        nearest = (act[..., None, :] - self.table(act.device)).square().sum(-1).argmin(-1)
        return (nearest[..., None] == torch.arange(self.outputs, device=act.device)).to(act)

    def act(self, outputs: Tensor) -> Tensor:
        """The likeliest choice."""
        chosen = self.table(outputs.device)[outputs.argmax(-1)]
        # Where an output is not finite, nothing is chosen.
        return chosen + 0.0 * outputs.sum(-1, keepdim=True).to(chosen)

    def drawn(self, outputs: Tensor, noise: Tensor | None) -> Tensor:
        """The likeliest: nobody who learns from choices needs another."""
        return self.act(outputs)

    def expected(self, outputs: Tensor, critics: Critics, noise: Tensor | None) -> Expected:
        """Over all choices."""
        log_probs = log_softmax(outputs, -1)
        probs = log_probs.exp()
        return Expected((probs * critics().amin(0)).sum(-1), (probs * log_probs).sum(-1), self.act(outputs))

    def q(self, critics: Critics, act: Tensor) -> Tensor:
        """Of all values that of the choice."""
        return (critics() * self.which(act)).sum(-1)

    def kl(self, policy: Tensor, behaviour: Tensor) -> Tensor:
        """Over all choices."""
        return categorical_kl(policy, behaviour)

    def imitation(self, outputs: Tensor, data_act: Tensor) -> Tensor:
        """Cross-entropy."""
        return categorical_loss(outputs, self.which(data_act))

    def watched(self, act: Tensor, data_act: Tensor) -> dict[str, Tensor]:
        """A choice has no bounds."""
        return {}


def make_head(act_dim: int, choices: Sequence[float], near_bounds: float) -> Head:
    """As configs say it: the choices' numbers one after the other; without any an action is an amount."""
    if not choices:
        return Amounts(act_dim, near_bounds)
    return Choices([choices[first : first + act_dim] for first in range(0, len(choices), act_dim)])
