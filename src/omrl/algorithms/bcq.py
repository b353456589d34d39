"""BCQ (Fujimoto, Meger, Precup; ICML 2019): Q-learning whose policy only chooses among actions like the logged ones.

A variational autoencoder imitates the logged actions. The policy generates candidates with its decoder, moves each a
little by a perturbation network, and takes the one of the largest Q. Every function here is pure, for one learner, and
takes the state as it is given: s for a single task, [s, z] where the task is inferred.

`nets` is a module with the children of `BCQNets`, and maybe others; `params` are its parameters by name. Shapes: states
[..., X], actions [..., A], latents [..., L] with L twice the length of an action; K candidates stand before the last
axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from omrl.algorithms.common import first_q, saturated, twin_q
from omrl.learning.engine import Batch, Info, Params, call, detached
from omrl.learning.nets import MLP

# Candidates that the policy and the Bellman target choose from.
CANDIDATES = 10
# Seed of the latents that a policy acts by: the same ones for every state, learner and run.
ACT_SEED = 0
# Latents that actions are generated from stay this near to zero, where the decoder has seen most of the data.
LATENT_BOUND = 0.5
LOG_STD_MIN, LOG_STD_MAX = -4.0, 15.0


class BCQNets(nn.Module):
    """Perturbation `actor`, twin `critic`, and `vae.encoder` and `vae.decoder` over actions."""

    def __init__(
        self,
        state_dim: int,
        act_dim: int,
        *,
        actor_hidden: Sequence[int],
        critic_hidden: Sequence[int],
        vae_hidden: Sequence[int],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.act_dim = act_dim
        mlp = partial(MLP, generator=generator)
        latent = latent_dim(act_dim)
        self.actor = mlp(state_dim + act_dim, actor_hidden, act_dim)
        self.critic = mlp(state_dim + act_dim, critic_hidden, 1, copies=2)
        encoder = mlp(state_dim + act_dim, vae_hidden, 2 * latent)
        self.vae = nn.ModuleDict({"encoder": encoder, "decoder": mlp(state_dim + latent, vae_hidden, act_dim)})


def latent_dim(act_dim: int) -> int:
    """Length of the autoencoder's latent."""
    return 2 * act_dim


def act_latents(act_dim: int) -> Tensor:
    """The latents [K, L] of the candidates that a policy chooses from when it acts."""
    return torch.randn(CANDIDATES, latent_dim(act_dim), generator=torch.Generator().manual_seed(ACT_SEED))


def bounded(latents: Tensor) -> Tensor:
    """Standard normal latents, as near to zero as they have to be."""
    return latents.clamp(-LATENT_BOUND, LATENT_BOUND)


# -- actions like the logged ones --------------------------------------------------------------------------------------


def decode(nets: nn.Module, params: Params, state: Tensor, latent: Tensor) -> Tensor:
    """The action in (-1, 1) of a latent."""
    return torch.tanh(call(nets, params, "vae.decoder", torch.cat([state, latent], -1)))


def L_vae(nets: nn.Module, params: Params, state: Tensor, act: Tensor, noise: Tensor) -> Tensor:
    """Squared error of the reconstructed action plus half the KL to N(0, 1), both means over rows and dimensions."""
    mean, log_std = call(nets, params, "vae.encoder", torch.cat([state, act], -1)).chunk(2, dim=-1)
    log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    error = decode(nets, params, state, mean + log_std.exp() * noise) - act
    kl = 0.5 * (mean.square() + (2.0 * log_std).exp() - 1.0 - 2.0 * log_std)
    return error.square().mean() + 0.5 * kl.mean()


def change(nets: nn.Module, params: Params, state: Tensor, act: Tensor) -> Tensor:
    """How far the perturbation moves an action, as a share of the limit, in (-1, 1)."""
    return torch.tanh(call(nets, params, "actor", torch.cat([state, act], -1)))


def perturb(nets: nn.Module, params: Params, state: Tensor, act: Tensor, limit: float) -> Tensor:
    """The action moved by at most `limit` in every dimension, within the bounds."""
    return (act + limit * change(nets, params, state, act)).clamp(-1.0, 1.0)


def generate(
    nets: nn.Module, vae: Params, actor: Params, state: Tensor, latents: Tensor, limit: float
) -> tuple[Tensor, Tensor]:
    """Candidates [..., K, A] of states [..., X] from standard normal latents [..., K, L], and the states repeated."""
    states = state.unsqueeze(-2).expand(*state.shape[:-1], latents.shape[-2], -1)
    acts = decode(nets, vae, states, bounded(latents))
    return perturb(nets, actor, states, acts, limit), states


# -- control -----------------------------------------------------------------------------------------------------------


def soft_clipped(q: Tensor, weight: float) -> Tensor:
    """Of two critics [2, ...]: weight x the smaller + (1 - weight) x the larger."""
    return weight * q.amin(0) + (1.0 - weight) * q.amax(0)


def target_value(
    nets: nn.Module, params: Params, targets: Params, state: Tensor, latents: Tensor, limit: float, weight: float
) -> Tensor:
    """Value of a next state: the largest soft-clipped double Q among the target policy's candidates. No gradient."""
    acts, states = generate(nets, detached(params), targets, state.detach(), latents, limit)
    return soft_clipped(twin_q(nets, targets, states, acts), weight).amax(-1).detach()


def L_critic(nets: nn.Module, params: Params, state: Tensor, act: Tensor, target: Tensor) -> Tensor:
    """Squared Bellman error of both critics, summed over the two."""
    return (twin_q(nets, params, state, act) - target.detach()).square().flatten(1).mean(1).sum()


def L_actor(
    nets: nn.Module, params: Params, state: Tensor, latent: Tensor, limit: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Minus the first critic's value of a perturbed candidate, which moves the perturbation alone; value and action."""
    detached_params, detached_state = detached(params), state.detach()
    acts, states = generate(nets, detached_params, params, detached_state, latent.unsqueeze(-2), limit)
    value = first_q(nets, detached_params, states, acts).mean()
    return -value, value, acts.squeeze(-2).detach()


def noise(batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
    """The random numbers of one update of all learners: batch [P, ..., B, dim]."""
    act = batch["act"]
    latent = (*act.shape[:-1], latent_dim(act.shape[-1]))
    shapes = {"vae": latent, "latent": latent, "next_latents": (*latent[:-1], CANDIDATES, latent[-1])}
    return {name: torch.randn(shape, generator=generator, device=act.device) for name, shape in shapes.items()}


class Settings(Protocol):
    """What the losses read of an algorithm's hyperparameters."""

    @property
    def perturbation(self) -> float:
        """How far a candidate is moved."""

    @property
    def soft_clipping(self) -> float:
        """Weight of the smaller critic."""

    @property
    def gamma(self) -> float:
        """Discount."""


def loss(
    nets: nn.Module,
    params: Params,
    targets: Params,
    batch: Batch,
    noise: Batch,
    *,
    state: Tensor,
    next_state: Tensor,
    reward: Tensor,
    config: Settings,
) -> tuple[Tensor, Info]:
    """The sum of all losses. Those of autoencoder and critics send gradients to a state that has any."""
    limit = config.perturbation
    value = target_value(nets, params, targets, next_state, noise["next_latents"], limit, config.soft_clipping)
    target = reward + config.gamma * (1.0 - batch["term"]) * value
    vae = L_vae(nets, params, state, batch["act"], noise["vae"])
    critic = L_critic(nets, params, state, batch["act"], target)
    actor, q, act = L_actor(nets, params, state, noise["latent"], limit)
    info = {"vae_loss": vae, "critic_loss": critic, "actor_loss": actor, "q": q, **saturated(act, batch["act"])}
    return vae + critic + actor, info


# -- acting ------------------------------------------------------------------------------------------------------------


def candidates(nets: nn.Module, params: Params, state: Tensor, latents: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """The actions [..., K, A] that a policy chooses from, of latents [K, L] for all states; and the states repeated."""
    return generate(nets, params, params, state, latents.to(state).expand(*state.shape[:-1], *latents.shape), limit)


def best(acts: Tensor, values: Tensor) -> Tensor:
    """Of actions [..., K, A] the one of the largest value."""
    # Not take_along_dim: its graph would hold for one number of rows alone.
    index = values.argmax(-1)[..., None, None].expand(*acts.shape[:-2], 1, acts.shape[-1])
    return acts.gather(-2, index).squeeze(-2)
