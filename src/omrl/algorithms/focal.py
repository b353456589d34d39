"""FOCAL (Li, Yang, Luo; ICLR 2021): offline meta-RL by distance metric learning and behaviour regularisation.

A deterministic encoder q maps a context, a handful of logged transitions of one task, to z in (-1, 1)^l. It is trained
by a distance-metric loss alone: embeddings of the same task attract, those of different tasks repel with an inverse
power of their distance. Actor and critic are conditioned on z, cut off from its gradients, and kept near the data by a
divergence in dual form. Equations below are the paper's; every loss is a pure function for one learner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from omrl.algorithms.algorithm import BatchSpec, Recipe
from omrl.algorithms.common import drawn, encode, gaussian_evidence, kl, product_of_gaussians
from omrl.algorithms.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig, SoftActorCriticNets
from omrl.errors import OmrlError
from omrl.learning.engine import Batch, Info, Params
from omrl.schema import Floats, NotNegative, Positive, settings

Power = Literal["inverse-square", "inverse", "linear", "square"]
# The paper's weights: at a distance of 0.5 per dimension all four repulsions are equal (its table of the power study).
BETA: Mapping[str, float] = {"inverse-square": 1.0, "inverse": 2.0, "linear": 8.0, "square": 16.0}


def distance_metric_loss(z: Tensor, other: Tensor, power: Power, beta: float, epsilon: float) -> Tensor:
    """Eqn 13 over all ordered pairs: z [M, l] from one context set per task, `other` from the second set.

    Distances are per dimension (m is the mean square difference), which is what the paper's weights are balanced for.
    """
    m = (z[:, None] - other[None, :]).square().mean(-1)
    same = torch.eye(len(z), device=z.device)
    weight = beta * BETA[power]
    distance = torch.sqrt(m + 1e-12)
    repulsion = {
        "inverse-square": lambda: weight / (m + epsilon),
        "inverse": lambda: weight / (distance + epsilon),
        "linear": lambda: -weight * distance,
        "square": lambda: -weight * m,
    }[power]()
    different = 1.0 - same
    return (m * same).sum() / same.sum() + (repulsion * different).sum() / different.sum().clamp(min=1.0)


@settings
class FOCALConfig(SoftActorCriticConfig):
    """Hyperparameters beside those of its control; each is a flag. The paper's symbol stands in brackets."""

    encoder: Literal["deterministic", "probabilistic"] = "deterministic"
    """z as the mean of the transitions' codes, or drawn from a product of Gaussians."""
    power: Power = "inverse-square"
    """How different tasks repel [n]."""
    beta: NotNegative = 1.0
    """Weight of the repulsion, on top of the power's own [beta]."""
    epsilon: Positive = 0.1
    """Softening of the inverse powers [epsilon]."""
    kl_weight: NotNegative = 0.1
    """Weight of the probabilistic encoder's KL to its N(0, 1) prior, per task and dimension, as distances are."""
    coupled: bool = False
    """Let the critic's loss train the encoder too."""
    dml_lr: Positive = 1e-3
    """Adam step size of the encoder [alpha_1]."""
    choices: Floats = ()
    """Where actions are choices: their numbers in [-1, 1]. The data says it, and leaving it out is right."""

    def __post_init__(self) -> None:
        if self.regularisation != "none" and (self.divergence == "categorical-kl") != bool(self.choices):
            raise OmrlError(
                "divergence must be categorical-kl where actions are choices, and only there; "
                f"it is {self.divergence}, and the actions are {'choices' if self.choices else 'amounts'}."
            )
        super().__post_init__()


class FOCALNets(SoftActorCriticNets):
    """The trained parts of one learner."""

    def __init__(self, obs_dim: int, act_dim: int, config: FOCALConfig, generator: torch.Generator) -> None:
        codes = config.latent_dim * (2 if config.encoder == "probabilistic" else 1)
        super().__init__(obs_dim, act_dim, codes, config, generator, config.choices)


class FOCAL(SoftActorCritic[FOCALConfig]):
    """Losses of one learner, and what it knows how to do: `infer` a task, `act` in it.

    Shapes: M tasks, B rows, C context transitions. Contexts [M, 2, C, ...] are two independent sets per task, so that
    every task meets its positive pair in every step.
    """

    Config = FOCALConfig
    Nets = FOCALNets
    discrete_actions = True

    @property
    def learning_rate(self) -> dict[str, float]:
        """Step size by network."""
        return {"encoder": self.config.dml_lr, **super().learning_rate}

    @property
    def batch_spec(self) -> BatchSpec:
        """Two context sets of each task."""
        return replace(super().batch_spec, context_sets=2)

    @property
    def critic_trains_encoder(self) -> bool:
        """Only in the ablation that couples them."""
        return self.config.coupled

    def noise(self, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """The random numbers of one update of all learners: batch [P, M, B, ...]."""
        control = super().noise(batch, generator)
        if self.config.encoder == "deterministic":
            return control
        shape = (*batch["act"].shape[:2], 2, self.config.latent_dim)
        return {**control, "z": torch.randn(shape, generator=generator, device=batch["act"].device)}

    # -- the task --------------------------------------------------------------------------------------------------

    def posterior(self, params: Params, context: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the probabilistic encoder: the product of one Gaussian per transition."""
        mean, raw = encode(self.nets, params, context).chunk(2, dim=-1)
        return product_of_gaussians(torch.tanh(mean), raw)

    def infer(self, params: Params, context: Tensor, noise: Tensor | None = None) -> Tensor:
        """z of each context set [..., C, transition]; the order of its transitions does not matter."""
        if self.config.encoder == "deterministic":
            return torch.tanh(encode(self.nets, params, context)).mean(-2)
        return drawn(*self.posterior(params, context), noise)

    def evidence(self, params: Params, context: Tensor) -> tuple[Tensor, Tensor]:
        """Codes that count alike, or Gaussians' means by their precisions."""
        codes = encode(self.nets, params, context)
        if self.config.encoder == "deterministic":
            return torch.tanh(codes), torch.ones_like(codes)
        mean, weights = gaussian_evidence(codes)
        return torch.tanh(mean), weights

    @property
    def recipe(self) -> Recipe:
        """Either encoder bounds its codes."""
        codes: Literal["mean", "gaussians"] = "mean" if self.config.encoder == "deterministic" else "gaussians"
        return Recipe(codes, squashed=True, actions="choices" if self.config.choices else "gaussian")

    def z_of(self, params: Params, batch: Batch, noise: Batch) -> Tensor:
        """z of a batch's tasks [M, l] from the first context set of each, which is what control sees."""
        sample = noise["z"][:, 0] if "z" in noise else None
        return self.infer(params, batch["context"][:, 0], sample)

    def L_dml(self, z: Tensor, other: Tensor) -> Tensor:
        """Eqn 13 with this learner's power and weight."""
        return distance_metric_loss(z, other, self.config.power, self.config.beta, self.config.epsilon)

    def task(self, params: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Tensor, Info]:
        """The distance-metric loss of both context sets' z, and the first one. A successor's loss goes here."""
        if self.config.encoder == "deterministic":
            z = self.infer(params, batch["context"])  # [M, 2, l]
            loss = self.L_dml(z[:, 0], z[:, 1])
        else:
            mean, variance = self.posterior(params, batch["context"])
            z = drawn(mean, variance, noise["z"])
            L_kl = kl(mean, variance).mean() / self.config.latent_dim
            loss = self.L_dml(z[:, 0], z[:, 1]) + self.config.kl_weight * L_kl
        return loss, z[:, 0], {"dml_loss": loss}

    # -- control: `policy`, `act`, `q`, `D`, `L_g`, `L_critic` (Eqn 27) and `L_actor` (Eqn 28) of SoftActorCritic, whose
    # -- `loss` is Algorithm 1's step: the sum of all losses
