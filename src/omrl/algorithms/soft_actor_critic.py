"""Soft actor-critic (Haarnoja et al., ICML 2018) for an inferred task, kept near the data as in BRAC (Wu et al., 2019).

The control that FOCAL and Batch PEARL have in common: actor, twin critics and discriminator see [s, z], whoever made z.
Each loss moves its own network alone: it reads the others with detached parameters. Only the critic's loss lets
gradients through to z, for those that pass a z that has any.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from omrl.algorithms.algorithm import Algorithm, BatchSpec, MetaConfig
from omrl.algorithms.common import per_row, task_reward, transition_dim, twin_q
from omrl.algorithms.divergences import Divergence, Penalty, gaussian_deviation
from omrl.algorithms.heads import Critics, make_head
from omrl.algorithms.regularisers import CLOSED_FORMS, Net, regulariser
from omrl.errors import OmrlError
from omrl.learning.engine import Batch, Info, Loss, Params, call, detached
from omrl.learning.nets import MLP
from omrl.schema import Count, Fraction, Layers, NearBounds, NotNegative, Positive, Several, settings


@settings
class SoftActorCriticConfig(MetaConfig):
    """Hyperparameters; each is a flag. FOCAL's symbol stands in brackets."""

    encoder_hidden: Layers = (200, 200, 200)
    """Widths of the context encoder."""
    hidden: Layers = (300, 300, 300)
    """Widths of actor, critics and discriminator."""
    next_obs_in_context: bool = True
    """Whether a context transition is (s, a, r, s') or (s, a, r)."""
    regularisation: Literal["policy", "value", "none"] = "policy"
    """Divergence in the actor's loss alone, also in the critic's target, or nowhere."""
    divergence: Divergence = "kl"
    """Which divergence."""
    penalty: Penalty = "gradient"
    """What keeps the discriminator smooth."""
    near_bounds: NearBounds = 0.0
    """Share of an action's range from each bound in which `gaussian-kl` takes a logged action for "here or beyond"."""
    alpha: NotNegative = 50.0
    """Strength of the regularisation [alpha]; where it starts when it is adapted."""
    alpha_rate: NotNegative = 0.0
    """Step of the adapted strength once Q counts, alpha += rate * (mean D - target); 0 keeps it fixed."""
    alpha_min: NotNegative = 0.0
    """Smallest strength that it is adapted to: what a nat of divergence must at least be worth, in scaled rewards."""
    alpha_max: float = 2000.0
    """Largest strength that is used."""
    target_divergence: float = 0.05
    """Divergence that an adapted strength aims for."""
    warm_up: Count = 0
    """First updates in which the actor approaches the data alone, before Q counts."""
    critic_input: Literal["action", "deviation"] = "action"
    """What critics read of an action: itself, or where a behaviour is fitted how far it is from that, by its noise."""
    slowing: Fraction = 0.0
    """Share of the updates, at the end, in which all step sizes fall to nothing."""
    gamma: Fraction = 0.99
    """Discount [gamma]."""
    reward_scale: Positive = 5.0
    """Factor on rewards in the critic's target; the entropy coefficient is 1, so this is the inverse temperature."""
    dense_reward: bool = False
    """Train actor and critic on `rewards_dense`; contexts keep the logged reward."""
    tau: Fraction = 0.005
    """Step of the target critics."""
    actor_lr: Positive = 1e-3
    """Adam step size of the actor [alpha_2]."""
    critic_lr: Positive = 1e-3
    """Adam step size of the critics [alpha_3]."""
    regulariser_lr: Positive = 1e-4
    """Adam step size of the discriminator."""
    regulariser_steps: Several = 1
    """Discriminator steps in an update, each on a fresh batch."""

    def __post_init__(self) -> None:
        if self.warm_up and self.regularisation == "none":
            raise OmrlError("warm_up is about approaching the data, which needs a regularisation; give --warm-up 0.")
        if self.regularisation != "none" and not self.least_alpha <= self.alpha <= self.alpha_max:
            bounds = f"{self.least_alpha} to {self.alpha_max} (alpha_min and alpha_max)"
            raise OmrlError(f"alpha is {self.alpha}, and must be from {bounds}.")

    @property
    def critics_read_deviations(self) -> bool:
        """Without a fitted behaviour there is nothing to deviate from."""
        fitted = self.regularisation != "none" and self.divergence in CLOSED_FORMS
        return self.critic_input == "deviation" and fitted

    @property
    def least_alpha(self) -> float:
        """One that is fixed may be anything."""
        return self.alpha_min if self.alpha_rate else 0.0


class SoftActorCriticNets(nn.Module):
    """The trained parts of one learner; `codes` is how many numbers the encoder makes of a transition."""

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        codes: int,
        config: SoftActorCriticConfig,
        generator: torch.Generator,
        choices: Sequence[float] = (),
    ) -> None:
        super().__init__()
        state = obs_dim + config.latent_dim
        self.head = make_head(act_dim, choices, config.near_bounds)
        self.regulariser = regulariser(config.divergence, config.penalty, self.head)
        mlp = partial(MLP, generator=generator)
        self.encoder = mlp(transition_dim(obs_dim, act_dim, config.next_obs_in_context), config.encoder_hidden, codes)
        self.actor = mlp(state, config.hidden, self.head.outputs, last_scale=0.01)
        self.critic = mlp(state + self.head.critic_reads, config.hidden, self.head.critic_outputs, copies=2)
        self.g = self.regulariser.network(state, act_dim, config.hidden, generator)
        self.alpha = nn.Parameter(torch.tensor(config.alpha))
        if config.warm_up:
            self.clock = nn.Parameter(torch.tensor(0.0))  # updates so far


C = TypeVar("C", bound=SoftActorCriticConfig)


class SoftActorCritic(Algorithm[C]):
    """Losses of one learner's control. Shapes: M tasks, B rows; `batch` and z are [M, B, ...]."""

    targets = ("critic",)
    plain_descent = ("alpha", "clock")
    has_values = True

    def __init__(self, nets: SoftActorCriticNets, config: C) -> None:
        super().__init__(nets, config)
        self.head, self.regulariser = nets.head, nets.regulariser

    @property
    def learning_rate(self) -> dict[str, float]:
        """Step size by network; an algorithm adds its encoder's."""
        config = self.config
        return {
            "actor": config.actor_lr,
            "critic": config.critic_lr,
            "g": config.regulariser_lr,
            "alpha": config.alpha_rate,
            "clock": 1.0,
        }

    def noise(self, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """The random numbers of one update of all learners: batch [P, M, B, ...]."""
        act, device = batch["act"], batch["act"].device
        names = ("act", "next_act") if self.head.draws else ()
        drawn = {name: torch.randn(act.shape, generator=generator, device=device) for name in names}
        if self.regularised:
            drawn["mix"] = torch.rand((*act.shape[:-1], 1), generator=generator, device=device)
        return drawn

    @property
    def regularised(self) -> bool:
        """Whether straying from the data costs anything."""
        return self.config.regularisation != "none"

    @property
    def tau(self) -> float:
        """Step of the target critics."""
        return self.config.tau

    @property
    def slowing(self) -> float:
        """As the config has it."""
        return self.config.slowing

    @property
    def batch_spec(self) -> BatchSpec:
        """A value penalty in dual form asks what was done at the next state."""
        next_actions = self.config.regularisation == "value" and self.regulariser.reads_actions
        return BatchSpec(next_actions=next_actions, dense_rewards=self.config.dense_reward)

    # -- the task: what an algorithm adds ----------------------------------------------------------------------------

    @abstractmethod
    def task(self, params: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Tensor, Info]:
        """The loss of the encoder alone, z of a batch's tasks [M, l] as control sees it, and what to log."""

    @property
    def critic_trains_encoder(self) -> bool:
        """Whether the critic's loss reaches the encoder through z."""
        return False

    def z_of(self, params: Params, batch: Batch, noise: Batch) -> Tensor:
        """z of a batch's tasks [M, l] alone."""
        _, z, _ = self.task(params, batch, noise)
        return z

    # -- control ---------------------------------------------------------------------------------------------------

    def policy(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """pi(a | s, z): mean and raw log-std of a tanh-squashed Gaussian, or a number for each choice."""
        return call(self.nets, params, "actor", torch.cat([obs, z], -1))

    def act(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """The deterministic action tanh(mean), or the likeliest choice."""
        return self.head.act(self.policy(params, obs, z))

    def q(self, params: Params, obs: Tensor, z: Tensor, act: Tensor) -> Tensor:
        """Both critics [2, ...]."""
        return self.head.q(self._critics(params, params, obs, z), act)

    def _critics(self, params: Params, behaviour: Params, obs: Tensor, z: Tensor) -> Critics:
        """With somebody's parameters; those of the fitted behaviour are always the current ones.

        In a narrow log an action is nearly a function of the state. Critics that read the action itself cannot tell
        which of both a value is due to; what the logger did by chance says nothing of the state.
        """
        critics = partial(twin_q, self.nets, params, obs, z)
        if not (self.config.critics_read_deviations and self.head.critic_reads):
            return critics
        usual = self._g(detached(behaviour))(torch.cat([obs, z], -1)).detach()
        return lambda act: critics(gaussian_deviation(act, usual))

    def L_critic(self, params: Params, targets: Params, batch: Batch, z: Tensor, noise: Batch) -> Tensor:
        """FOCAL's Eqn 27: squared Bellman error; with the value penalty the target pays for straying at s' too."""
        config, detached_params = self.config, detached(params)
        detached_z = z.detach()
        policy = self.policy(detached_params, batch["next_obs"], detached_z)
        critics = self._critics(targets, params, batch["next_obs"], detached_z)
        own = self.head.expected(policy, critics, noise.get("next_act"))
        value = own.value - own.log_prob
        weight = torch.ones_like(value)
        if config.regularisation == "value":
            data_act = batch["next_act"] if self.regulariser.reads_actions else own.act
            divergence = self.D(detached_params, batch["next_obs"], detached_z, policy, own.act, data_act)
            value = value - self._alpha(detached_params) * divergence
            if self.regulariser.reads_actions:
                # The behaviour's action at s' is the next logged one; rows without it are left out.
                weight = torch.maximum(batch["has_next"], batch["term"])
        target = config.reward_scale * task_reward(config, batch) + config.gamma * (1.0 - batch["term"]) * value
        error = self.q(params, batch["obs"], z, batch["act"]) - target.detach()
        return (error.square() * weight).sum((-1, -2)).sum() / weight.sum().clamp(min=1.0)

    def L_actor(self, params: Params, batch: Batch, z: Tensor, noise: Batch) -> tuple[Tensor, Info]:
        """FOCAL's Eqn 28: value and entropy of the policy's own actions, minus what it pays for straying."""
        detached_params, detached_z = detached(params), z.detach()
        policy = self.policy(params, batch["obs"], detached_z)
        critics = self._critics(detached_params, params, batch["obs"], detached_z)
        value, log_prob, act = self.head.expected(policy, critics, noise.get("act"))
        loss = (log_prob - self._counts(params) * value).mean()
        info = {"act": act.detach(), "q": value.mean(), "entropy": -log_prob.mean()}
        info |= self.head.watched(info["act"], batch["act"])
        if self.regularised:
            info["divergence"] = self.D(detached_params, batch["obs"], detached_z, policy, act, batch["act"]).mean()
            loss = loss + self._alpha(detached_params) * info["divergence"]
        return loss, info

    def _counts(self, params: Params) -> Tensor:
        """1 where Q counts, 0 while the actor approaches the data alone."""
        if not self.config.warm_up:
            return torch.ones_like(params["alpha"].detach())
        return (params["clock"].detach() >= self.config.warm_up).float()

    def _alpha(self, params: Params) -> Tensor:
        return params["alpha"].clamp(self.config.least_alpha, self.config.alpha_max)

    # -- behaviour regularisation ----------------------------------------------------------------------------------

    def D(self, params: Params, obs: Tensor, z: Tensor, policy: Tensor, policy_act: Tensor, data_act: Tensor) -> Tensor:
        """Per-state divergence between the policy, given by its outputs and an action of it, and the data."""
        return self.regulariser.divergence(self._g(params), torch.cat([obs, z], -1), policy, policy_act, data_act)

    def L_g(self, params: Params, batch: Batch, z: Tensor, policy_act: Tensor, noise: Batch) -> Tensor:
        """What the regulariser learns from a batch."""
        state = torch.cat([batch["obs"], z], -1)
        return self.regulariser.loss(self._g(params), state, policy_act, batch["act"], noise["mix"])

    def _g(self, params: Params) -> Net:
        return partial(call, self.nets, params, "g")

    # -- the update ------------------------------------------------------------------------------------------------

    @property
    def child_steps(self) -> Sequence[tuple[str, Loss]]:
        """Discriminator steps beyond the one that the update itself makes."""
        return [("g", self.regulariser_step)] * (self.config.regulariser_steps - 1 if self.regularised else 0)

    def regulariser_step(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """A step of the discriminator alone, on a batch of its own."""
        detached_params = detached({name: value for name, value in params.items() if not name.startswith("g.")})
        z = per_row(self.z_of(detached_params, batch, noise), batch)
        policy = self.policy(detached_params, batch["obs"], z)
        return self.L_g(params, batch, z, self.head.drawn(policy, noise.get("act")), noise), {}

    def L_control(self, params: Params, targets: Params, batch: Batch, z: Tensor, noise: Batch) -> tuple[Tensor, Info]:
        """The sum of the losses of critic, actor and discriminator, each of which moves its own network alone."""
        critic = self.L_critic(params, targets, batch, z, noise)
        actor, info = self.L_actor(params, batch, z, noise)
        act = info.pop("act")
        info |= {"critic_loss": critic, "actor_loss": actor}
        total = critic + actor
        if self.regularised:
            info["alpha"] = self._alpha(params)
            total = total + self.L_g(params, batch, z.detach(), act, noise)
            # Plain gradient descent on this term is alpha += rate * (mean D - target).
            beyond = (info["divergence"] - self.config.target_divergence).detach()
            total = total - params["alpha"] * self._counts(params) * beyond
        if self.config.warm_up:
            # In the same way the clock goes on by one.
            total = total - params["clock"]
        return total, info

    def loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """The sum of all losses; each moves its own network alone, but for a critic that trains the encoder."""
        task_loss, z, info = self.task(params, batch, noise)
        rows = per_row(z if self.critic_trains_encoder else z.detach(), batch)
        control, of_control = self.L_control(params, targets, batch, rows, noise)
        return task_loss + control, {**of_control, **info}
