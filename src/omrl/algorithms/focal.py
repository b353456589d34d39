"""FOCAL (Li, Yang, Luo; ICLR 2021): offline meta-RL by distance metric learning and behaviour regularisation.

A deterministic encoder q maps a context, a handful of logged transitions of one task, to z in (-1, 1)^l. It is trained
by a distance-metric loss alone: embeddings of the same task attract, those of different tasks repel with an inverse
power of their distance. Actor and critic are conditioned on z, cut off from its gradients, and kept near the data by a
divergence in dual form. Equations below are the paper's; every loss is a pure function for one learner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from omrl.divergences import Discriminator, Divergence, Penalty, behaviour_loss, dual_loss, estimate, gaussian_kl
from omrl.engine import Batch, Info, Loss, Params, call, detached
from omrl.errors import OmrlError
from omrl.nets import MLP, gaussian, squashed_gaussian

Power = Literal["inverse-square", "inverse", "linear", "square"]
# The paper's weights: at a distance of 0.5 per dimension all four repulsions are equal (its table of the power study).
BETA: Mapping[str, float] = {"inverse-square": 1.0, "inverse": 2.0, "linear": 8.0, "square": 16.0}


@dataclass(frozen=True)
class FOCALConfig:
    """Hyperparameters; each is a flag. The paper's symbol stands in brackets."""

    latent_dim: int = 20
    """Length of the task embedding [l]."""
    encoder_hidden: tuple[int, ...] = (200, 200, 200)
    """Widths of the context encoder."""
    hidden: tuple[int, ...] = (300, 300, 300)
    """Widths of actor, critics and discriminator."""
    half: bool = False
    """Products between hidden layers in bfloat16: faster on a GPU."""
    encoder: Literal["deterministic", "probabilistic"] = "deterministic"
    """z as the mean of the transitions' codes, or drawn from a product of Gaussians."""
    next_obs_in_context: bool = True
    """Whether a context transition is (s, a, r, s') or (s, a, r)."""
    power: Power = "inverse-square"
    """How different tasks repel [n]."""
    beta: float = 1.0
    """Weight of the repulsion, on top of the power's own [beta]."""
    epsilon: float = 0.1
    """Softening of the inverse powers [epsilon]."""
    kl_weight: float = 0.1
    """Weight of the probabilistic encoder's KL to its N(0, 1) prior."""
    coupled: bool = False
    """Let the critic's loss train the encoder too."""
    regularisation: Literal["policy", "value", "none"] = "policy"
    """Divergence in the actor's loss alone, also in the critic's target, or nowhere."""
    divergence: Divergence = "kl"
    """Which divergence."""
    penalty: Penalty = "gradient"
    """What keeps the discriminator smooth."""
    alpha: float = 50.0
    """Strength of the regularisation [alpha]; where it starts when it is adapted."""
    alpha_rate: float = 0.0
    """Step of the adapted strength, alpha += rate * (mean D - target); 0 keeps it fixed."""
    alpha_max: float = 2000.0
    """Largest strength that is used."""
    target_divergence: float = 0.05
    """Divergence that an adapted strength aims for."""
    gamma: float = 0.99
    """Discount [gamma]."""
    reward_scale: float = 5.0
    """Factor on rewards in the critic's target; the entropy coefficient is 1, so this is the inverse temperature."""
    dense_reward: bool = False
    """Train actor and critic on `rewards_dense`; contexts keep the logged reward."""
    tau: float = 0.005
    """Step of the target critics."""
    actor_lr: float = 1e-3
    """Adam step size of the actor [alpha_2]."""
    critic_lr: float = 1e-3
    """Adam step size of the critics [alpha_3]."""
    dml_lr: float = 1e-3
    """Adam step size of the encoder [alpha_1]."""
    g_lr: float = 1e-4
    """Adam step size of the discriminator."""
    g_steps: int = 1
    """Discriminator steps in an update, each on a fresh batch."""
    meta_batch: int = 16
    """Tasks in a batch [M]."""
    batch_size: int = 256
    """Transitions per task for actor and critic."""
    context_size: int = 100
    """Transitions per context set."""

    def __post_init__(self) -> None:
        for name in ("latent_dim", "meta_batch", "batch_size", "context_size", "g_steps"):
            if getattr(self, name) < 1:
                raise OmrlError(f"{name} must be at least 1, not {getattr(self, name)}.")


class FOCALNets(nn.Module):
    """The trained parts of one learner."""

    def __init__(self, obs_dim: int, act_dim: int, config: FOCALConfig, generator: torch.Generator) -> None:
        super().__init__()
        transition = obs_dim + act_dim + 1 + (obs_dim if config.next_obs_in_context else 0)
        codes = config.latent_dim * (2 if config.encoder == "probabilistic" else 1)
        state = obs_dim + config.latent_dim
        mlp = partial(MLP, generator=generator, half=config.half)
        self.encoder = mlp(transition, config.encoder_hidden, codes)
        self.actor = mlp(state, config.hidden, 2 * act_dim, last_scale=0.01)
        self.critic = mlp(state + act_dim, config.hidden, 1, copies=2)
        is_policy = config.divergence == "gaussian-kl"
        self.g = mlp(state, config.hidden, 2 * act_dim) if is_policy else mlp(state + act_dim, config.hidden, 1)
        self.alpha = nn.Parameter(torch.tensor(config.alpha))


class FOCAL:
    """Losses of one learner, and what it knows how to do: `infer` a task, `act` in it.

    What training asks of an algorithm: `Config`, `targets`, `plain`, `learning_rate`, `build`, `noise`, `before`,
    `loss`, `infer` and `act`.

    Shapes: M tasks, B rows, C context transitions. `batch` has obs, act, rew, next_obs, term [M, B, ...], next_act and
    has_next for the value penalty, and context [M, 2, C, ...]: two independent sets per task, so that every task meets
    its positive pair in every step.
    """

    Config = FOCALConfig
    targets = ("critic",)
    plain = ("alpha",)

    def __init__(self, nets: FOCALNets, config: FOCALConfig) -> None:
        self.nets = nets
        self.config = config

    @classmethod
    def build(
        cls, obs_dim: int, act_dim: int, config: FOCALConfig, seeds: Sequence[int]
    ) -> tuple[list[nn.Module], FOCAL]:
        """One learner's networks per seed, and the losses they share."""
        nets = [FOCALNets(obs_dim, act_dim, config, torch.Generator().manual_seed(seed)) for seed in seeds]
        return list(nets), cls(nets[0], config)

    @property
    def learning_rate(self) -> dict[str, float]:
        """Step size by network."""
        config = self.config
        return {
            "encoder": config.dml_lr,
            "actor": config.actor_lr,
            "critic": config.critic_lr,
            "g": config.g_lr,
            "alpha": config.alpha_rate,
        }

    def noise(self, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """The random numbers of one update of all learners: batch [P, M, B, ...]."""
        act, device = batch["act"], batch["act"].device
        drawn = {name: torch.randn(act.shape, generator=generator, device=device) for name in ("act", "next_act")}
        if self.config.regularisation != "none":
            drawn["mix"] = torch.rand((*act.shape[:-1], 1), generator=generator, device=device)
        if self.config.encoder == "probabilistic":
            shape = (*act.shape[:2], 2, self.config.latent_dim)
            drawn["z"] = torch.randn(shape, generator=generator, device=device)
        return drawn

    # -- the task --------------------------------------------------------------------------------------------------

    def posterior(self, params: Params, context: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the probabilistic encoder: the product of one Gaussian per transition."""
        mean, raw = self._codes(params, context).chunk(2, dim=-1)
        precision = 1.0 / torch.nn.functional.softplus(raw).clamp(min=1e-7)
        variance = 1.0 / precision.sum(-2)
        return (torch.tanh(mean) * precision).sum(-2) * variance, variance

    def infer(self, params: Params, context: Tensor, noise: Tensor | None = None) -> Tensor:
        """z of each context set [..., C, transition]; the order of its transitions does not matter."""
        if self.config.encoder == "deterministic":
            return torch.tanh(self._codes(params, context)).mean(-2)
        mean, variance = self.posterior(params, context)
        return mean if noise is None else mean + variance.sqrt() * noise

    def _codes(self, params: Params, context: Tensor) -> Tensor:
        """The encoder on every transition; contexts are (s, a, r, s'), of which it may see (s, a, r) alone."""
        return call(self.nets, params, "encoder", context[..., : params["encoder.weight.0"].shape[0]])

    def L_dml(self, z: Tensor, other: Tensor) -> Tensor:
        """Eqn 13 over all ordered pairs: z [M, l] from one context set per task, `other` from the second set.

        Distances are per dimension (m is the mean square difference), which is what the paper's weights are
        balanced for.
        """
        config = self.config
        m = (z[:, None] - other[None, :]).square().mean(-1)
        same = torch.eye(len(z), device=z.device)
        weight = config.beta * BETA[config.power]
        distance = torch.sqrt(m + 1e-12)
        repulsion = {
            "inverse-square": lambda: weight / (m + config.epsilon),
            "inverse": lambda: weight / (distance + config.epsilon),
            "linear": lambda: -weight * distance,
            "square": lambda: -weight * m,
        }[config.power]()
        different = 1.0 - same
        return (m * same).sum() / same.sum() + (repulsion * different).sum() / different.sum().clamp(min=1.0)

    # -- control ---------------------------------------------------------------------------------------------------

    def policy(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """pi(a | s, z): mean and raw log-std of a tanh-squashed Gaussian."""
        return call(self.nets, params, "actor", torch.cat([obs, z], -1))

    def act(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """The deterministic action tanh(mean)."""
        mean, _ = gaussian(self.policy(params, obs, z))
        return torch.tanh(mean)

    def q(self, params: Params, obs: Tensor, z: Tensor, act: Tensor) -> Tensor:
        """Both critics [2, ...]."""
        rows = torch.cat([obs, z, act], -1)
        return call(self.nets, params, "critic", rows.flatten(0, -2)).view(2, *rows.shape[:-1])

    def D(self, params: Params, obs: Tensor, z: Tensor, policy: Tensor, policy_act: Tensor, data_act: Tensor) -> Tensor:
        """Per-state divergence between the policy, given by its outputs and an action of it, and the data."""
        if self.config.divergence == "gaussian-kl":
            return gaussian_kl(policy, self._behaviour(params, obs, z))
        return estimate(self.config.divergence, self._g(params, obs, z), policy_act, data_act)

    def _behaviour(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        return call(self.nets, params, "g", torch.cat([obs, z], -1))

    def _g(self, params: Params, obs: Tensor, z: Tensor) -> Discriminator:
        return lambda act: call(self.nets, params, "g", torch.cat([obs, z, act], -1)).squeeze(-1)

    def L_g(self, params: Params, batch: Batch, z: Tensor, policy_act: Tensor, noise: Batch) -> Tensor:
        """The discriminator climbs the estimate, kept smooth by a penalty; a behaviour policy fits the log."""
        if self.config.divergence == "gaussian-kl":
            return behaviour_loss(self._behaviour(params, batch["obs"], z), batch["act"])
        g, config = self._g(params, batch["obs"], z), self.config
        return dual_loss(config.divergence, config.penalty, g, policy_act, batch["act"], noise["mix"])

    def L_critic(self, params: Params, targets: Params, batch: Batch, z: Tensor, noise: Batch) -> Tensor:
        """Eqn 15: squared Bellman error; with the value penalty the target pays for straying at s' too."""
        config, fixed = self.config, detached(params)
        still = z.detach()
        policy = self.policy(fixed, batch["next_obs"], still)
        next_act, next_log_prob = squashed_gaussian(policy, noise["next_act"])
        value = self.q(targets, batch["next_obs"], still, next_act).amin(0) - next_log_prob
        counted = torch.ones_like(value)
        if config.regularisation == "value":
            divergence = self.D(fixed, batch["next_obs"], still, policy, next_act, batch["next_act"])
            value = value - self._alpha(fixed) * divergence
            if config.divergence != "gaussian-kl":
                # The behaviour's action at s' is the next logged one; rows without it are left out.
                counted = torch.maximum(batch["has_next"], batch["term"])
        reward = batch["rew_dense"] if config.dense_reward else batch["rew"]
        target = config.reward_scale * reward + config.gamma * (1.0 - batch["term"]) * value
        error = self.q(params, batch["obs"], z, batch["act"]) - target.detach()
        return (error.square() * counted).sum((-1, -2)).sum() / counted.sum().clamp(min=1.0)

    def L_actor(self, params: Params, batch: Batch, z: Tensor, noise: Batch) -> tuple[Tensor, Info]:
        """Eqn 16: value and entropy of the policy's own actions, minus what it pays for straying from the data."""
        fixed, still = detached(params), z.detach()
        policy = self.policy(params, batch["obs"], still)
        act, log_prob = squashed_gaussian(policy, noise["act"])
        value = self.q(fixed, batch["obs"], still, act).amin(0)
        divergence = self.D(fixed, batch["obs"], still, policy, act, batch["act"])
        loss = (log_prob - value).mean()
        if self.config.regularisation != "none":
            loss = loss + self._alpha(fixed) * divergence.mean()
        info = {"divergence": divergence.mean(), "q": value.mean(), "entropy": -log_prob.mean()}
        return loss, {"act": act.detach(), **info}

    def _alpha(self, params: Params) -> Tensor:
        return params["alpha"].clamp(0.0, self.config.alpha_max)

    # -- the update ------------------------------------------------------------------------------------------------

    @property
    def before(self) -> list[tuple[str, Loss]]:
        """Discriminator steps beyond the one that the update itself makes."""
        regularised = self.config.regularisation != "none"
        return [("g", self.g_loss)] * (self.config.g_steps - 1 if regularised else 0)

    def g_loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """A step of the discriminator alone, on a batch of its own."""
        fixed = detached({name: value for name, value in params.items() if not name.startswith("g.")})
        z = self.infer(fixed, batch["context"][:, 0]).unsqueeze(1).expand(-1, batch["obs"].shape[1], -1)
        act, _ = squashed_gaussian(self.policy(fixed, batch["obs"], z), noise["act"])
        return self.L_g(params, batch, z, act, noise), {}

    def loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """Algorithm 1's step: the sum of all losses, each of which moves its own network alone."""
        config = self.config
        z_pair = self.infer(params, batch["context"], noise.get("z"))  # [M, 2, l]
        task_loss = self.L_dml(z_pair[:, 0], z_pair[:, 1])
        if config.encoder == "probabilistic":
            mean, variance = self.posterior(params, batch["context"])
            kl = 0.5 * (variance + mean.square() - 1.0 - variance.log()).sum(-1).mean()
            task_loss = task_loss + config.kl_weight * kl
        z = z_pair[:, :1].expand(-1, batch["obs"].shape[1], -1)  # [M, B, l]
        z = z if config.coupled else z.detach()
        critic = self.L_critic(params, targets, batch, z, noise)
        actor, info = self.L_actor(params, batch, z, noise)
        total = task_loss + critic + actor
        if config.regularisation != "none":
            total = total + self.L_g(params, batch, z.detach(), info["act"], noise)
            # Plain gradient descent on this term is alpha += rate * (mean D - target).
            total = total - params["alpha"] * (info["divergence"] - config.target_divergence).detach()
        del info["act"]
        info |= {"dml_loss": task_loss, "critic_loss": critic, "actor_loss": actor, "alpha": self._alpha(params)}
        return total, {key: value.detach() for key, value in info.items()}
