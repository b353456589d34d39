"""MBML (Li, Vuong, Liu, Liu, Ciosek, Christensen, Su; NeurIPS 2020): multi-task batch RL with metric learning.

FOCAL's third baseline learns in two stages. First, every training task alone gets a BCQ teacher, and an ensemble that
predicts its rewards (and one for its next states where the dynamics vary): `mbml_teachers.py`. Then one learner for all
tasks, this file, distils the teachers: a probabilistic encoder infers z from a context, and a Q function, a decoder of
candidate actions and a perturbation, all conditioned on z, imitate those of the task's teacher. What the encoder must
not do is to tell tasks by the states they visit. So the contexts of other tasks are relabelled with what the ensembles
of task i say would have happened in it, where its members agree, and count as contexts of task i: they are part of the
context that z is inferred from, and anchors of a triplet loss on the posteriors. Every loss is a pure function for one
learner.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from omrl.algorithms import bcq, mbml_teachers
from omrl.algorithms.algorithm import Algorithm, MetaConfig, Recipe, Stage
from omrl.algorithms.common import (
    drawn,
    encode,
    gaussian_evidence,
    kl,
    per_row,
    posterior,
    saturated,
    transition_dim,
)
from omrl.errors import OmrlError
from omrl.learning.engine import Batch, Info, Params, call, detached
from omrl.learning.nets import MLP
from omrl.schema import AtLeastOne, Fraction, Layers, NotNegative, Positive, Size, settings


@settings
class MBMLConfig(MetaConfig):
    """Hyperparameters; each is a flag."""

    encoder_hidden: Layers = (200, 200, 200)
    """Widths of the context encoder."""
    actor_hidden: Layers = (300, 300, 300)
    """Widths of the perturbation network."""
    critic_hidden: Layers = (300, 300, 300)
    """Widths of the Q function [Q_S]."""
    decoder_hidden: Layers = (300, 300, 300)
    """Widths of the decoder of candidate actions."""
    margin: float = 2.0
    """By how much the KL divergence to another task's posterior shall be the larger one [m]."""
    kl_weight: NotNegative = 0.1
    """Weight of the KL to the N(0, 1) prior, summed over the tasks of a batch."""
    reward_scale: Positive = 1.0
    """Factor of the rewards that teachers and ensembles learn; contexts keep the logged ones."""
    reward_std: NotNegative = 0.1
    """A relabelled reward is used where the ensemble's standard deviation, of scaled rewards, is below this."""
    next_obs_std: NotNegative = 0.2
    """The same for the standard deviation of a relabelled next state, a mean over its normalised dimensions."""
    perturbation: NotNegative = 0.05
    """How far a candidate action is moved at most."""
    soft_clipping: Fraction = 0.75
    """Teachers: weight of the smaller of the two target critics; the larger has the rest."""
    gamma: Fraction = 0.99
    """Teachers: discount."""
    dense_reward: bool = False
    """Train the teachers on `rewards_dense`; contexts and ensembles keep the logged reward."""
    tau: Fraction = 0.005
    """Teachers: step of the target critics and the target perturbation."""
    teacher_hidden: Layers = (400, 300)
    """Teachers: widths of critics and perturbation network."""
    teacher_vae_hidden: Layers = (750, 750)
    """Teachers: widths of the autoencoder's encoder and decoder."""
    teacher_batch_size: Size = 100
    """Teachers: transitions of the task in an update."""
    teacher_steps: AtLeastOne = 50_000
    """Teachers: updates."""
    teacher_lr: Positive = 3e-4
    """Teachers: Adam step size."""
    members: int = 20
    """Networks in an ensemble."""
    reward_hidden: Layers = (128,)
    """Widths of a reward model."""
    reward_steps: AtLeastOne = 4_000
    """Updates of the reward models."""
    next_obs_hidden: Layers = (256, 256, 256, 256, 256, 256)
    """Widths of a next-state model."""
    next_obs_steps: AtLeastOne = 20_000
    """Updates of the next-state models."""
    model_batch_size: Size = 128
    """Transitions of the task in an update of its ensembles."""
    model_lr: Positive = 3e-4
    """Adam step size of the ensembles."""
    lr: Positive = 3e-4
    """Adam step size of all that is distilled."""
    batch_size: Size = 256
    """Transitions per task that are distilled."""
    context_size: Size = 64
    """Transitions per context set; as many relabelled ones join them."""

    def __post_init__(self) -> None:
        if self.members < 2:
            raise OmrlError(f"members must be at least 2, not {self.members}: one model agrees with itself.")


class MBMLNets(nn.Module):
    """The trained parts of one learner, named as those of BCQ: `actor` is the perturbation, `critic` the one Q."""

    def __init__(self, obs_dim: int, act_dim: int, config: MBMLConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.obs_dim, self.act_dim = obs_dim, act_dim
        mlp = partial(MLP, generator=generator)
        state = obs_dim + config.latent_dim
        self.encoder = mlp(transition_dim(obs_dim, act_dim, True), config.encoder_hidden, 2 * config.latent_dim)
        self.actor = mlp(state + act_dim, config.actor_hidden, act_dim)
        self.critic = mlp(state + act_dim, config.critic_hidden, 1)
        self.vae = nn.ModuleDict({"decoder": mlp(state + bcq.latent_dim(act_dim), config.decoder_hidden, act_dim)})


class MBML(Algorithm[MBMLConfig]):
    """Losses of one learner, and what it knows how to do: `infer` a task, `act` in it.

    Shapes: M tasks, B rows, C context transitions, K members of an ensemble. `batch` has from the first stage the
    parameters of the M tasks' teachers and ensembles too, [M, ...] and [M, K, ...] by name: networks of several tasks
    are called at once.
    """

    Config = MBMLConfig
    Nets = MBMLNets
    has_values = True

    def __init__(self, nets: MBMLNets, config: MBMLConfig) -> None:
        super().__init__(nets, config)
        obs_dim, act_dim = self.obs_dim, self.act_dim = nets.obs_dim, nets.act_dim
        self._latents = bcq.act_latents(act_dim)
        # How the first stage's networks are made; their parameters come with the batch.
        generator = torch.Generator()
        self._teacher = mbml_teachers.build_teacher(obs_dim, act_dim, config, generator)
        build = mbml_teachers.build_model
        models = [build(target, obs_dim, act_dim, config, generator) for target in ("rew", "next_obs")]
        self._models = nn.ModuleDict({name: net for model in models for name, net in model.items()})

    def stages(self, varies: str) -> list[Stage]:
        """What is learnt before: per task, for data in which the reward, the dynamics or both vary."""
        return mbml_teachers.stages(self.obs_dim, self.act_dim, self.config, varies)

    @property
    def learning_rate(self) -> dict[str, float]:
        """Step size by network."""
        return {"": self.config.lr}

    def noise(self, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """The random numbers of one update of all learners: batch [P, M, B, ...]."""
        context, rows, device = batch["context"], batch["act"].shape[:-1], batch["act"].device
        learners, tasks, _, size = context.shape[:4]
        normal = partial(torch.randn, generator=generator, device=device)
        return {
            "z": normal((learners, tasks, self.config.latent_dim)),
            "latent": normal((*rows, bcq.latent_dim(self.act_dim))),
            "pick": torch.rand((learners, tasks, tasks, size), generator=generator, device=device),
        }

    # -- the task --------------------------------------------------------------------------------------------------

    def infer(self, params: Params, context: Tensor) -> Tensor:
        """z of each context set [..., C, transition]: the mean of the posterior."""
        mean, _ = posterior(encode(self.nets, params, context))
        return mean

    def evidence(self, params: Params, context: Tensor) -> tuple[Tensor, Tensor]:
        """Means and precisions of the transitions' Gaussians."""
        return gaussian_evidence(encode(self.nets, params, context))

    def relabel(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Contexts [i, j, C, transition]: rows of task j with what task i's ensembles predict; where they agree.

        For i = j rows are as they were logged, and marked as not relabelled.
        """
        context = batch["context"][:, 0]  # [M, C, transition]
        tasks, size, width = context.shape
        known = self.obs_dim + self.act_dim
        rows = context[..., :known].reshape(1, 1, tasks * size, known)
        logged = context.expand(tasks, tasks, size, width)
        # [i, K, j C, outputs], then mean and spread over the members [i, j, C, ...]
        rewards = call(self._models, batch, "rew_model", rows).reshape(tasks, -1, tasks, size, 1)
        reward, next_obs = rewards.mean(1) / self.config.reward_scale, logged[..., known + 1 :]
        kept = rewards.std(1).squeeze(-1) < self.config.reward_std
        if any(name.startswith("next_obs_model.") for name in batch):
            predicted = call(self._models, batch, "next_obs_model", rows).reshape(tasks, -1, tasks, size, self.obs_dim)
            next_obs = predicted.mean(1)
            kept = kept & (predicted.std(1).mean(-1) < self.config.next_obs_std)
        same = torch.eye(tasks, dtype=torch.bool, device=context.device)[:, :, None]
        relabelled = torch.cat([logged[..., :known], reward, next_obs], -1)
        return torch.where(same[..., None], logged, relabelled), kept & ~same

    def L_triplet(self, codes: Tensor, kept: Tensor) -> Tensor:
        """Over ordered pairs (i, j): relu(KL(anchor, positive) - KL(anchor, negative) + margin), their mean.

        Anchor: j's rows relabelled for i. Positive: as many of i's own. Negative: the same rows of j, as logged. Codes
        [i, j, C, 2 l] are those of the relabelled contexts. A pair without a row that is kept counts as zero.
        """
        own = codes.diagonal(dim1=0, dim2=1).movedim(-1, 0)  # [M, C, 2 l]
        has_pairs = kept.any(-1)
        rows = kept | ~has_pairs[..., None]  # no product is empty, so that none is infinite
        # i's rows are drawn independently of j's, so that those at the same places are some at random.
        anchor, positive = posterior(codes, rows), posterior(own[:, None], rows)
        negative = posterior(own[None, :], rows)
        loss = torch.relu(kl(*anchor, *positive) - kl(*anchor, *negative) + self.config.margin)
        pairs = len(codes) * (len(codes) - 1)
        return (loss * has_pairs).sum() / max(pairs, 1)

    def joined(self, kept: Tensor, pick: Tensor) -> Tensor:
        """Which rows [i, j, C] are task i's context: its own, and C of the kept ones at random, or all if fewer."""
        tasks, _, size = kept.shape
        score = torch.where(kept, pick, -1.0)
        last = score.flatten(1).topk(size, dim=1).values[:, -1, None, None]
        own = torch.eye(tasks, dtype=torch.bool, device=kept.device)[:, :, None]
        return own | (kept & (score >= last))

    # -- control ---------------------------------------------------------------------------------------------------

    @property
    def recipe(self) -> Recipe:
        """The best of the same candidates."""
        return Recipe("gaussians", False, "candidates", self.config.perturbation, bcq.bounded(self._latents))

    def q(self, params: Params, *inputs: Tensor) -> Tensor:
        """Q_S [...] of obs, z and act side by side."""
        return call(self.nets, params, "critic", torch.cat(inputs, -1)).squeeze(-1)

    def act(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """Of ten perturbed candidates, which come from fixed latents, the one of the largest Q."""
        state = torch.cat([obs, z], -1)
        acts, states = bcq.candidates(self.nets, params, state, self._latents, self.config.perturbation)
        return bcq.best(acts, self.q(params, states, acts))

    def L_distil(
        self, params: Params, batch: Batch, z: Tensor, latent: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Squared errors of Q, candidates and perturbations against the teachers', the mean Q and actions; z [M, B, l].

        The Q function's error moves the encoder too.
        """
        teacher = {name.removeprefix("teacher."): value for name, value in batch.items() if name.startswith("teacher.")}
        obs, act = batch["obs"], batch["act"]
        latent = latent.clamp(-bcq.LATENT_BOUND, bcq.LATENT_BOUND)
        value = call(self._teacher, teacher, "critic", torch.cat([obs, act], -1)).squeeze(-1)
        candidate = bcq.decode(self._teacher, teacher, obs, latent)
        change = bcq.change(self._teacher, teacher, obs, candidate)
        state = torch.cat([obs, z.detach()], -1)
        own_value = self.q(params, obs, z, act)
        own_candidate = bcq.decode(self.nets, params, state, latent)
        own_change = bcq.change(self.nets, params, state, candidate)
        taken = bcq.perturb(self.nets, detached(params), state, own_candidate.detach(), self.config.perturbation)
        return (
            (own_value - value).square().mean(),
            (own_candidate - candidate).square().mean(),
            (own_change - change).square().mean(),
            own_value.mean(),
            taken,
        )

    # -- the update ------------------------------------------------------------------------------------------------

    def loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """The sum of all losses: triplet, prior and Q move the encoder, each of the others its own network alone."""
        contexts, kept = self.relabel(batch)
        codes = encode(self.nets, params, contexts)
        triplet = self.L_triplet(codes, kept)
        rows = self.joined(kept, noise["pick"])
        mean, variance = posterior(codes.flatten(1, 2), rows.flatten(1, 2))  # [M, l]
        L_kl = kl(mean, variance).sum()
        z = per_row(drawn(mean, variance, noise["z"]), batch)
        critic, candidate, perturbation, q, act = self.L_distil(params, batch, z, noise["latent"])
        pairs = max(len(kept) * (len(kept) - 1), 1)
        info = {
            "triplet_loss": triplet,
            "kl": L_kl / len(kept),
            "critic_loss": critic,
            "candidate_loss": candidate,
            "perturbation_loss": perturbation,
            "q": q,
            **saturated(act, batch["act"]),
            "relabelled": kept.sum() / (pairs * kept.shape[-1]),
        }
        total = triplet + self.config.kl_weight * L_kl + critic + candidate + perturbation
        return total, info
