"""Contextual behaviour cloning: FOCAL's encoder, and a policy that imitates the log; no reinforcement learning.

What remains of FOCAL when nothing is improved: whoever is not better than this has learnt nothing from rewards but
which task it is. A deterministic encoder is trained by FOCAL's distance-metric loss (see `focal.py`), a policy
on [s, z] by the likelihood of the logged actions, cut off from the encoder's gradients. Every loss is a pure function
for one learner.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from omrl.algorithms.algorithm import Algorithm, BatchSpec, MetaConfig, Recipe
from omrl.algorithms.common import encode, per_row, transition_dim
from omrl.algorithms.focal import Power, distance_metric_loss
from omrl.algorithms.heads import make_head
from omrl.learning.engine import Batch, Info, Params, call
from omrl.learning.nets import MLP
from omrl.schema import Floats, Layers, NearBounds, NotNegative, Positive, settings


@settings
class ContextualBCConfig(MetaConfig):
    """Hyperparameters; each is a flag. FOCAL's symbol stands in brackets."""

    encoder_hidden: Layers = (200, 200, 200)
    """Widths of the context encoder."""
    hidden: Layers = (300, 300, 300)
    """Widths of the policy."""
    next_obs_in_context: bool = True
    """Whether a context transition is (s, a, r, s') or (s, a, r)."""
    power: Power = "inverse-square"
    """How different tasks repel [n]."""
    beta: NotNegative = 1.0
    """Weight of the repulsion, on top of the power's own [beta]."""
    epsilon: Positive = 0.1
    """Softening of the inverse powers [epsilon]."""
    near_bounds: NearBounds = 0.0
    """Share of an action's range from each bound in which a logged action is taken for "here or beyond"."""
    actor_lr: Positive = 1e-3
    """Adam step size of the policy [alpha_2]."""
    dml_lr: Positive = 1e-3
    """Adam step size of the encoder [alpha_1]."""
    choices: Floats = ()
    """Where actions are choices: their numbers in [-1, 1]. The data says it, and leaving it out is right."""


class ContextualBCNets(nn.Module):
    """The trained parts of one learner."""

    def __init__(self, obs_dim: int, act_dim: int, config: ContextualBCConfig, generator: torch.Generator) -> None:
        super().__init__()
        transition = transition_dim(obs_dim, act_dim, config.next_obs_in_context)
        self.encoder = MLP(transition, config.encoder_hidden, config.latent_dim, generator=generator)
        self.head = make_head(act_dim, config.choices, config.near_bounds)
        state = obs_dim + config.latent_dim
        self.actor = MLP(state, config.hidden, self.head.outputs, generator=generator, last_scale=0.01)


class ContextualBC(Algorithm[ContextualBCConfig]):
    """Losses of one learner, and what it knows how to do: `infer` a task, `act` in it.

    Shapes: M tasks, B rows, C context transitions. Contexts [M, 2, C, ...] are two independent sets per task, so that
    every task meets its positive pair in every step.
    """

    Config = ContextualBCConfig
    Nets = ContextualBCNets
    batch_spec = BatchSpec(context_sets=2)
    discrete_actions = True

    def __init__(self, nets: ContextualBCNets, config: ContextualBCConfig) -> None:
        super().__init__(nets, config)
        self.head = nets.head

    @property
    def recipe(self) -> Recipe:
        """FOCAL's, without its control."""
        return Recipe("mean", squashed=True, actions="choices" if self.config.choices else "gaussian")

    @property
    def learning_rate(self) -> dict[str, float]:
        """Step size by network."""
        return {"encoder": self.config.dml_lr, "actor": self.config.actor_lr}

    def infer(self, params: Params, context: Tensor) -> Tensor:
        """z of each context set [..., C, transition]; the order of its transitions does not matter."""
        return torch.tanh(encode(self.nets, params, context)).mean(-2)

    def evidence(self, params: Params, context: Tensor) -> tuple[Tensor, Tensor]:
        """Codes that all count alike."""
        codes = torch.tanh(encode(self.nets, params, context))
        return codes, torch.ones_like(codes)

    def policy(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """Mean and raw log-std of the actions before tanh, or a number for each choice."""
        return call(self.nets, params, "actor", torch.cat([obs, z], -1))

    def act(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """The deterministic action tanh(mean), or the likeliest choice."""
        return self.head.act(self.policy(params, obs, z))

    def loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """The sum of both losses, each of which moves its own network alone."""
        config = self.config
        z_pair = self.infer(params, batch["context"])  # [M, 2, l]
        L_dml = distance_metric_loss(z_pair[:, 0], z_pair[:, 1], config.power, config.beta, config.epsilon)
        policy = self.policy(params, batch["obs"], per_row(z_pair[:, 0], batch).detach())
        actor = self.head.imitation(policy, batch["act"])
        info = {"dml_loss": L_dml, "actor_loss": actor, **self.head.watched(self.head.act(policy), batch["act"])}
        return L_dml + actor, info
