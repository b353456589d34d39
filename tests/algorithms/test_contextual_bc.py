"""Contextual behaviour cloning: its loss against numpy, where gradients go, and that it imitates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from references import A, B, C, L, M, S, example, gradients, np_mlp, numpy_of, params_of

from omrl.algorithms.contextual_bc import ContextualBC, ContextualBCConfig, ContextualBCNets
from omrl.learning.engine import Population

SMALL = ContextualBCConfig(
    latent_dim=L, encoder_hidden=(8, 8), hidden=(8, 8), meta_batch=M, batch_size=B, context_size=C
)


def cloning(**changes) -> ContextualBC:
    config = replace(SMALL, **changes)
    return ContextualBC(ContextualBCNets(S, A, config, torch.Generator().manual_seed(0)).double(), config)


def test_the_loss_is_minus_the_log_likelihood_of_the_logged_actions_plus_the_metric_loss():
    algorithm = cloning(beta=1.7)
    params, (batch, _) = params_of(algorithm.nets), example()
    b = numpy_of(batch)
    z = np.tanh(np_mlp(params, "encoder", b["context"])).mean(-2)  # [M, 2, l]
    mean, raw = np.split(
        np_mlp(params, "actor", np.concatenate([b["obs"], np.broadcast_to(z[:, :1], (M, B, L))], -1)), 2, -1
    )
    std = np.exp(-5 + 3.5 * (np.tanh(raw) + 1))
    u = np.arctanh(b["act"])
    imitation = (np.log(std) + 0.5 * ((u - mean) / std) ** 2).sum(-1).mean()
    m = ((z[:, None, 0] - z[None, :, 1]) ** 2).mean(-1)
    same = np.eye(M, dtype=bool)
    metric = m[same].mean() + (1.7 / (m[~same] + 0.1)).mean()
    found, info = algorithm.loss(params, {}, batch, {})
    assert float(found) == pytest.approx(imitation + metric, rel=1e-9)
    assert float(info["actor_loss"]) == pytest.approx(imitation, rel=1e-9)
    assert float(info["dml_loss"]) == pytest.approx(metric, rel=1e-9)
    assert float(info["saturated"]) == np.mean(np.abs(np.tanh(mean)) > 0.99)
    assert float(info["saturated_logged"]) == np.mean(np.abs(b["act"]) > 0.99)


def test_imitation_does_not_move_the_encoder_and_the_metric_does_not_move_the_policy():
    algorithm = cloning()
    params, (batch, _) = params_of(algorithm.nets), example()
    leaves = {name: value.requires_grad_() for name, value in params.items()}
    _, info = algorithm.loss(leaves, {}, batch, {})
    for loss, own in (("actor_loss", "actor."), ("dml_loss", "encoder.")):
        for name, slope in gradients(info[loss], leaves).items():
            assert bool(slope.any()) == name.startswith(own), (loss, name)


def test_it_learns_which_task_acts_how():
    """Two tasks whose logs act in opposite ways: from a context of each, the policy does as that task did."""
    config = replace(SMALL, hidden=(32,), encoder_hidden=(32,), actor_lr=1e-2, dml_lr=1e-2, meta_batch=2)
    learners, algorithm = ContextualBC.build(S, A, config, [0])
    population = Population(learners, algorithm.loss, learning_rate=algorithm.learning_rate)
    generator = torch.Generator().manual_seed(1)
    sign = torch.tensor([1.0, -1.0])

    def draw(_):
        obs = torch.randn(1, 2, 16, S, generator=generator)
        act = 0.6 * sign[None, :, None, None].expand(1, 2, 16, A) + 0.05 * torch.randn(1, 2, 16, A, generator=generator)
        context = torch.randn(1, 2, 2, C, 2 * S + A + 1, generator=generator)
        context[..., S : S + A] = 0.6 * sign[None, :, None, None, None]
        return {"obs": obs, "act": act, "context": context}, {}

    for _ in range(300):
        population.step(draw)
    params = {name: value[0] for name, value in population.params.items()}
    batch, _ = draw(None)
    z = algorithm.infer(params, batch["context"][0, :, 0])
    for task in range(2):
        act = algorithm.act(params, batch["obs"][0, task], z[task].expand(16, -1))
        torch.testing.assert_close(act, 0.6 * sign[task].expand(16, A), atol=0.1, rtol=0)
