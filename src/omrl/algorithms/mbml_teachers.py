"""MBML's first stage: for every training task alone a BCQ teacher, and ensembles that predict what the task would do.

Every learner sees the rows of its own task only. The teachers are those of the last update: nothing is chosen by
simulated returns, of which logs have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from omrl.algorithms import bcq
from omrl.algorithms.algorithm import Stage
from omrl.algorithms.common import task_reward
from omrl.learning.engine import Batch, Info, Params, call
from omrl.learning.nets import MLP

if TYPE_CHECKING:
    from omrl.algorithms.mbml import MBMLConfig

# What the distillation reads of a teacher: its perturbation, its first critic and the decoder of its candidates.
KEPT = ("actor.", "critic.", "vae.decoder.")


def build_teacher(obs_dim: int, act_dim: int, config: MBMLConfig, generator: torch.Generator) -> bcq.BCQNets:
    """One task's BCQ."""
    return bcq.BCQNets(
        obs_dim,
        act_dim,
        actor_hidden=config.teacher_hidden,
        critic_hidden=config.teacher_hidden,
        vae_hidden=config.teacher_vae_hidden,
        generator=generator,
    )


def build_model(
    target: str, obs_dim: int, act_dim: int, config: MBMLConfig, generator: torch.Generator
) -> nn.ModuleDict:
    """One task's ensemble: (s, a) to the reward, `rew`, or to the next state, `next_obs`."""
    hidden, outputs = (config.reward_hidden, 1) if target == "rew" else (config.next_obs_hidden, obs_dim)
    net = MLP(obs_dim + act_dim, hidden, outputs, generator=generator, copies=config.members)
    return nn.ModuleDict({f"{target}_model": net})


def teacher_loss(
    nets: bcq.BCQNets, config: MBMLConfig, params: Params, targets: Params, batch: Batch, noise: Batch
) -> tuple[Tensor, Info]:
    """BCQ on rows [B, ...] of one task."""
    state = {"state": batch["obs"], "next_state": batch["next_obs"]}
    reward = config.reward_scale * task_reward(config, batch)
    return bcq.loss(nets, params, targets, batch, noise, **state, reward=reward, config=config)


def teacher_result(params: Params) -> dict[str, Tensor]:
    """Of teachers [learners, ...] what is distilled."""
    kept = {name: value for name, value in params.items() if name.startswith(KEPT)}
    return {f"teacher.{name}": value[:, 0] if name.startswith("critic.") else value for name, value in kept.items()}


def model_loss(
    nets: nn.Module, target: str, config: MBMLConfig, params: Params, targets: Params, batch: Batch, noise: Batch
) -> tuple[Tensor, Info]:
    """Mean squared error of each member of an ensemble, summed over them: each moves by its own alone.

    Members see the same rows and differ by where they began.
    """
    wanted = config.reward_scale * batch["rew"][..., None] if target == "rew" else batch[target]
    predicted = call(nets, params, f"{target}_model", torch.cat([batch["obs"], batch["act"]], -1))  # [members, B, out]
    errors = (predicted - wanted).square().flatten(1).mean(1)
    return errors.sum(), {"error": errors.mean().sqrt(), "spread": predicted.std(0).mean()}


def no_noise(batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
    """For losses that need none."""
    return {}


def stages(obs_dim: int, act_dim: int, config: MBMLConfig, varies: str) -> list[Stage]:
    """Teachers and reward ensembles; next-state ensembles where the dynamics vary."""
    nets = build_teacher(obs_dim, act_dim, config, torch.Generator())
    teacher = Stage(
        name="teacher",
        build=partial(build_teacher, obs_dim, act_dim, config),
        loss=partial(teacher_loss, nets, config),
        noise=bcq.noise,
        result=teacher_result,
        lr=config.teacher_lr,
        batch_size=config.teacher_batch_size,
        steps=config.teacher_steps,
        targets=("actor", "critic"),
        dense_rewards=config.dense_reward,
        tau=config.tau,
    )
    steps = {"rew": config.reward_steps} | ({} if varies == "reward" else {"next_obs": config.next_obs_steps})
    models = [
        Stage(
            name={"rew": "reward-model", "next_obs": "next-state-model"}[target],
            build=partial(build_model, target, obs_dim, act_dim, config),
            loss=partial(model_loss, build_model(target, obs_dim, act_dim, config, torch.Generator()), target, config),
            noise=no_noise,
            result=dict,
            lr=config.model_lr,
            batch_size=config.model_batch_size,
            steps=count,
        )
        for target, count in steps.items()
    ]
    return [teacher, *models]
