"""Batch PEARL's losses against independent numpy implementations, and what trains its encoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from references import (
    A,
    B,
    C,
    L,
    M,
    S,
    example,
    gradients,
    np_divergence,
    np_policy,
    np_posterior,
    np_q,
    numpy_of,
    params_of,
    slope,
)

from omrl.algorithms.batch_pearl import BatchPEARL, BatchPEARLConfig, BatchPEARLNets
from omrl.algorithms.common import kl, product_of_gaussians
from omrl.learning.engine import Population

SMALL = BatchPEARLConfig(latent_dim=L, encoder_hidden=(8, 8), hidden=(8, 8), meta_batch=M, batch_size=B, context_size=C)


def batch_pearl(**changes: object) -> BatchPEARL:
    config = replace(SMALL, **changes)  # type: ignore[arg-type]
    return BatchPEARL(BatchPEARLNets(S, A, config, torch.Generator().manual_seed(0)).double(), config)


def problem(algorithm: BatchPEARL):
    """Parameters, targets, batch and noise in double precision; z has one draw per task."""
    params, (batch, noise) = params_of(algorithm.nets), example()
    targets = {name: value + 0.05 for name, value in params.items() if name.startswith("critic")}
    return params, targets, batch, {**noise, "z": noise["z"][:, 0]}


def np_z(params, batch, noise) -> np.ndarray:
    mean, variance = np_posterior(params, batch["context"][:, 0])
    return np.repeat((mean + np.sqrt(variance) * noise["z"])[:, None], B, axis=1)


# -- values ------------------------------------------------------------------------------------------------------------


def test_posterior_equals_numpy():
    algorithm = batch_pearl()
    params, _, batch, _ = problem(algorithm)
    for found, wanted in zip(
        algorithm.posterior(params, batch["context"]), np_posterior(params, batch["context"].numpy()), strict=True
    ):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9)


def test_kl_equals_torch_distributions():
    algorithm = batch_pearl()
    params, _, batch, _ = problem(algorithm)
    context = batch["context"][:, 0]
    mean, variance = algorithm.posterior(params, context)
    own = torch.distributions.Normal(mean, variance.sqrt())
    prior = torch.distributions.Normal(torch.zeros_like(mean), 1.0)
    wanted = torch.distributions.kl_divergence(own, prior).sum()  # over tasks and dimensions
    torch.testing.assert_close(kl(mean, variance).sum(), wanted)


@pytest.mark.parametrize("regularisation", ["none", "policy", "value"])
def test_the_whole_loss_equals_numpy(regularisation):
    algorithm = batch_pearl(regularisation=regularisation, alpha=3.0, penalty="none")
    params, targets, batch, noise = problem(algorithm)
    b, n = numpy_of(batch), numpy_of(noise)
    z = np_z(params, b, n)
    next_act, next_log_prob = np_policy(params, b["next_obs"], z, n["next_act"])
    value, counted = np_q(targets, b["next_obs"], z, next_act).min(0) - next_log_prob, np.ones((M, B))
    if regularisation == "value":
        value = value - 3.0 * np_divergence(params, b["next_obs"], z, next_act, b["next_act"])
        counted = np.maximum(b["has_next"], b["term"])
    y = 5.0 * b["rew"] + 0.99 * (1 - b["term"]) * value
    critic = (((np_q(params, b["obs"], z, b["act"]) - y) ** 2).sum(0) * counted).sum() / counted.sum()
    act, log_prob = np_policy(params, b["obs"], z, n["act"])
    actor = (log_prob - np_q(params, b["obs"], z, act).min(0)).mean()
    divergence = np_divergence(params, b["obs"], z, act, b["act"]).mean()
    mean, variance = np_posterior(params, b["context"][:, 0])
    kl = 0.5 * (variance + mean**2 - 1 - np.log(variance)).sum()
    total = 0.1 * kl + critic + actor
    if regularisation != "none":
        # The actor pays, the discriminator climbs, and the strength looks at the divergence above its target.
        total += 3.0 * divergence - divergence - 3.0 * (divergence - 0.05)
    found, info = algorithm.loss(params, targets, batch, noise)
    assert float(found) == pytest.approx(float(total), rel=1e-8)
    wanted = {"kl": kl / M, "critic_loss": critic, "q": np_q(params, b["obs"], z, act).min(0).mean()}
    wanted |= {"entropy": -log_prob.mean()}
    if regularisation != "none":
        wanted |= {"divergence": divergence, "alpha": 3.0}
    for name, value in wanted.items():
        assert float(info[name]) == pytest.approx(float(value), rel=1e-8), name
    assert info.keys() - wanted.keys() == {"actor_loss", "saturated", "saturated_logged"}


def test_a_transition_that_is_all_but_certain_keeps_the_posterior_finite():
    mean, raw = torch.tensor([[1.0], [3.0]]), torch.tensor([[-200.0], [-200.0]])
    found, variance = product_of_gaussians(mean, raw)
    assert found.item() == pytest.approx(2.0) and variance.item() == pytest.approx(0.5e-7)


def test_without_noise_z_is_the_mean_of_the_posterior():
    algorithm = batch_pearl()
    params, _, batch, noise = problem(algorithm)
    mean, variance = algorithm.posterior(params, batch["context"][:, 0])
    assert torch.equal(algorithm.infer(params, batch["context"][:, 0]), mean)
    drawn = algorithm.infer(params, batch["context"][:, 0], noise["z"])
    torch.testing.assert_close(drawn, mean + variance.sqrt() * noise["z"])


# -- gradients ---------------------------------------------------------------------------------------------------------


def parts(algorithm: BatchPEARL, leaves, targets, batch, noise):
    """The losses one by one, with z as the update has it."""
    context = batch["context"][:, 0]
    z = algorithm.infer(leaves, context, noise["z"])[:, None].expand(-1, B, -1)
    actor, info = algorithm.L_actor(leaves, batch, z, noise)
    return {
        "kl": algorithm.config.kl_weight * kl(*algorithm.posterior(leaves, context)).sum(),
        "critic": algorithm.L_critic(leaves, targets, batch, z, noise),
        "actor": actor,
        "g": algorithm.L_g(leaves, batch, z.detach(), info["act"], noise),
    }


@pytest.mark.parametrize("regularisation", ["none", "policy", "value"])
def test_the_encoder_is_trained_by_the_bellman_error_and_the_kl_alone(regularisation):
    algorithm = batch_pearl(regularisation=regularisation, alpha=2.0)
    params, targets, batch, noise = problem(algorithm)
    leaves = {name: value.requires_grad_() for name, value in params.items()}
    joint = gradients(algorithm.loss(leaves, targets, batch, noise)[0], leaves)
    own = {kind: gradients(loss, leaves) for kind, loss in parts(algorithm, leaves, targets, batch, noise).items()}
    for name in (name for name in leaves if name.startswith("encoder.")):
        assert own["critic"][name].abs().sum() > 0 and own["kl"][name].abs().sum() > 0
        assert not own["actor"][name].any() and not own["g"][name].any()
        torch.testing.assert_close(joint[name], own["kl"][name] + own["critic"][name])


@pytest.mark.parametrize("regularisation", ["none", "policy", "value"])
def test_joint_gradient_gives_each_network_its_own(regularisation):
    algorithm = batch_pearl(regularisation=regularisation, alpha=2.0)
    params, targets, batch, noise = problem(algorithm)
    leaves = {name: value.requires_grad_() for name, value in params.items()}
    joint = gradients(algorithm.loss(leaves, targets, batch, noise)[0], leaves)
    own = {kind: gradients(loss, leaves) for kind, loss in parts(algorithm, leaves, targets, batch, noise).items()}
    for name, gradient in joint.items():
        kind = name.split(".")[0]
        if kind in ("critic", "actor"):
            assert gradient.abs().sum() > 0
            torch.testing.assert_close(gradient, own[kind][name])
        elif kind == "g":
            torch.testing.assert_close(gradient, own["g"][name] * (regularisation != "none"))


def test_the_encoder_s_gradient_is_the_slope_of_the_bellman_error():
    algorithm = batch_pearl()
    params, targets, batch, noise = problem(algorithm)
    still = algorithm.infer(params, batch["context"][:, 0], noise["z"])[:, None].expand(-1, B, -1)
    b, n = numpy_of(batch), numpy_of(noise)
    # The Bellman target is a constant: computed once, from z as it is.
    next_act, log_prob = np_policy(params, b["next_obs"], still.numpy(), n["next_act"])
    value = np_q(targets, b["next_obs"], still.numpy(), next_act).min(0) - log_prob
    y = 5.0 * b["rew"] + 0.99 * (1 - b["term"]) * value

    def critic(moved) -> float:
        return ((np_q(moved, b["obs"], np_z(moved, b, n), b["act"]) - y) ** 2).sum(0).mean()

    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    z = algorithm.infer(leaves, batch["context"][:, 0], noise["z"])[:, None].expand(-1, B, -1)
    found = gradients(algorithm.L_critic(leaves, targets, batch, z, noise), leaves)
    for name in ("encoder.weight.0", "encoder.weight.2", "critic.weight.1"):
        direction = torch.randn(params[name].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        wanted = slope(critic, params, name, direction)
        assert abs(wanted) > 1e-4
        assert float((found[name] * direction).sum()) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("kl_weight", [0.0, 0.1])
def test_an_update_moves_the_encoder_even_without_the_kl(kl_weight):
    algorithm = batch_pearl(kl_weight=kl_weight)
    _, _, batch, noise = problem(algorithm)
    learners, algorithm = BatchPEARL.build(S, A, algorithm.config, [0])
    population = Population(
        learners,
        algorithm.loss,
        learning_rate=algorithm.learning_rate,
        targets=algorithm.targets,
        plain_descent=algorithm.plain_descent,
    )
    before = {name: value.clone() for name, value in population.params.items()}
    population.step(lambda _: tuple({k: v.float()[None] for k, v in part.items()} for part in (batch, noise)))
    for name in ("encoder.weight.0", "encoder.weight.2"):
        assert (population.params[name] != before[name]).any()
    # Without regularisation nothing trains the discriminator or its strength.
    assert all(torch.equal(before[name], population.params[name]) for name in before if name[0] == "g")
    assert torch.equal(before["alpha"], population.params["alpha"])
