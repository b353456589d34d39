"""FOCAL's losses against independent numpy implementations, and where their gradients may and may not go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from references import A, B, C, L, M, S, example, np_divergence, np_mlp, np_policy, np_q, numpy_of, params_of

from omrl.algorithms.common import drawn, kl
from omrl.algorithms.divergences import dual_loss, estimate, penalty
from omrl.algorithms.focal import FOCAL, FOCALConfig, FOCALNets
from omrl.errors import OmrlError
from omrl.learning.engine import Population, call
from omrl.learning.nets import squashed_gaussian

SMALL = FOCALConfig(latent_dim=L, encoder_hidden=(8, 8), hidden=(8, 8), meta_batch=M, batch_size=B, context_size=C)


def focal(**changes: object) -> FOCAL:
    config = replace(SMALL, **changes)  # type: ignore[arg-type]
    nets = FOCALNets(S, A, config, torch.Generator().manual_seed(0)).double()
    return FOCAL(nets, config)


# -- numpy references --------------------------------------------------------------------------------------------------


def np_z(params: dict[str, torch.Tensor], context: np.ndarray) -> np.ndarray:
    return np.tanh(np_mlp(params, "encoder", context)).mean(-2)


def np_gaussian(params: dict[str, torch.Tensor], name: str, obs: np.ndarray, z: np.ndarray):
    """Mean and standard deviation of a policy before tanh."""
    mean, raw = np.split(np_mlp(params, name, np.concatenate([obs, z], -1)), 2, -1)
    return mean, np.exp(-5 + 3.5 * (np.tanh(raw) + 1))


def np_gaussian_kl(params: dict[str, torch.Tensor], obs: np.ndarray, z: np.ndarray) -> np.ndarray:
    (m, s), (m_g, s_g) = (np_gaussian(params, name, obs, z) for name in ("actor", "g"))
    return (np.log(s_g / s) + (s**2 + (m - m_g) ** 2) / (2 * s_g**2) - 0.5).sum(-1)


def np_dml(z: np.ndarray, other: np.ndarray, power: str, beta: float, epsilon: float) -> float:
    attract, repel = [], []
    for i in range(len(z)):
        for j in range(len(other)):
            m = float(np.mean((z[i] - other[j]) ** 2))
            d = float(np.sqrt(m + 1e-12))
            if i == j:
                attract.append(m)
            else:
                repel.append(
                    {
                        "inverse-square": beta * 1 / (m + epsilon),
                        "inverse": beta * 2 / (d + epsilon),
                        "linear": -beta * 8 * d,
                        "square": -beta * 16 * m,
                    }[power]
                )
    return float(np.mean(attract) + np.mean(repel))


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", ["inverse-square", "inverse", "linear", "square"])
def test_dml_loss_equals_the_double_loop(power: str) -> None:
    algorithm = focal(power=power, beta=1.7)
    rng = np.random.default_rng(1)
    z, other = rng.uniform(-1, 1, (2, 4, 2))
    found = algorithm.L_dml(torch.tensor(z), torch.tensor(other))
    assert float(found) == pytest.approx(np_dml(z, other, power, 1.7, 0.1), rel=1e-12)


def test_dml_loss_of_two_tasks_by_hand() -> None:
    # Task 1 sits at (0.5, 0.5) in both sets, task 2 at (-0.5, 0.5): m = 0 on the diagonal, 0.5 off it.
    z = torch.tensor([[0.5, 0.5], [-0.5, 0.5]], dtype=torch.float64)
    assert float(focal().L_dml(z, z)) == pytest.approx(1 / (0.5 + 0.1))
    # The second set of task 1 has moved to (0.5, 0.1): m = 0.08 with its first, (1 + 0.16) / 2 with task 2's.
    other = torch.tensor([[0.5, 0.1], [-0.5, 0.5]], dtype=torch.float64)
    expected = (0.08 + 0) / 2 + (1 / 0.6 + 1 / 0.68) / 2
    assert float(focal().L_dml(z, other)) == pytest.approx(expected)


def test_the_four_repulsions_are_equal_at_half_a_unit_per_dimension() -> None:
    z = torch.tensor([[0.25, 0.25], [-0.25, -0.25]], dtype=torch.float64)
    found = [float(focal(power=p, epsilon=1e-9).L_dml(z, z)) for p in ("inverse-square", "inverse", "linear", "square")]
    np.testing.assert_allclose(np.abs(found), 4.0, rtol=1e-6)


@pytest.mark.parametrize("regularisation", ["policy", "value", "none"])
@pytest.mark.parametrize("divergence", ["kl", "gaussian-kl"])
@pytest.mark.parametrize("dense", [False, True])
def test_critic_loss_equals_numpy(regularisation: str, divergence: str, dense: bool) -> None:
    algorithm = focal(regularisation=regularisation, divergence=divergence, alpha=3.0, dense_reward=dense)
    params, (batch, noise) = params_of(algorithm.nets), example()
    targets = {name: value + 0.05 for name, value in params.items() if name.startswith("critic")}
    b, n = numpy_of(batch), numpy_of(noise)
    z = np.broadcast_to(np_z(params, b["context"])[:, :1], (M, B, 2))
    next_act, log_prob = np_policy(params, b["next_obs"], z, n["next_act"])
    value = np_q(targets, b["next_obs"], z, next_act).min(0) - log_prob
    counted = np.ones((M, B))
    if regularisation == "value" and divergence == "kl":
        value -= 3.0 * np_divergence(params, b["next_obs"], z, next_act, b["next_act"])
        counted = np.maximum(b["has_next"], b["term"])
        assert 0 < counted.sum() < counted.size
    elif regularisation == "value":  # a fitted behaviour policy needs no next logged action: every row counts
        value -= 3.0 * np_gaussian_kl(params, b["next_obs"], z)
    y = 5.0 * b["rew_dense" if dense else "rew"] + 0.99 * (1 - b["term"]) * value
    expected = (
        sum((((np_q(params, b["obs"], z, b["act"])[k] - y) ** 2) * counted).sum() for k in range(2)) / counted.sum()
    )
    found = algorithm.L_critic(params, targets, batch, torch.tensor(np.array(z)), noise)
    assert float(found) == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize("divergence", ["kl", "gaussian-kl"])
@pytest.mark.parametrize("regularisation", ["policy", "none"])
def test_actor_loss_equals_numpy(regularisation: str, divergence: str) -> None:
    algorithm = focal(regularisation=regularisation, divergence=divergence, alpha=3.0)
    params, (batch, noise) = params_of(algorithm.nets), example()
    b, n = numpy_of(batch), numpy_of(noise)
    z = np.array(np.broadcast_to(np_z(params, b["context"])[:, :1], (M, B, 2)))
    act, log_prob = np_policy(params, b["obs"], z, n["act"])
    expected = (log_prob - np_q(params, b["obs"], z, act).min(0)).mean()
    if regularisation == "policy":
        both = {"kl": np_divergence, "gaussian-kl": lambda params, obs, z, *_: np_gaussian_kl(params, obs, z)}
        expected += 3.0 * both[divergence](params, b["obs"], z, act, b["act"]).mean()
    found, _ = algorithm.L_actor(params, batch, torch.tensor(z), noise)
    assert float(found) == pytest.approx(float(expected), rel=1e-8)


def test_gradient_penalty_equals_finite_differences() -> None:
    algorithm = focal()
    params, (batch, noise) = params_of(algorithm.nets), example()
    z = torch.zeros(M, B, 2, dtype=torch.float64)
    scaled = {name: value * 3.0 for name, value in params.items()}

    def g(act: torch.Tensor) -> torch.Tensor:
        return call(algorithm.nets, scaled, "g", torch.cat([batch["obs"], z, act], -1)).squeeze(-1)

    found = penalty("gradient", g, batch["act"], batch["next_act"], noise["mix"])
    between = batch["act"] + noise["mix"] * (batch["next_act"] - batch["act"])
    slopes = []
    for k in range(A):
        step = torch.zeros(A, dtype=torch.float64)
        step[k] = 1e-6
        slopes.append((g(between + step) - g(between - step)) / 2e-6)
    norm = torch.sqrt(sum(slope**2 for slope in slopes))  # type: ignore[arg-type]
    expected = 5 * ((norm - 1).clamp(min=0) ** 2).mean()
    assert float(expected) > 0
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_output_penalty_is_the_reference_one() -> None:
    values = torch.tensor([-3.0, 0.5, 2.0], dtype=torch.float64)
    found = penalty("output", lambda act: values, torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(3, 1))
    assert float(found) == pytest.approx(5 * (4 + 0 + 1) / 3, rel=1e-6)


def test_dual_kl_converges_to_the_closed_form_between_gaussians() -> None:
    # policy N(0.5, 1), behaviour N(0, 1): KL = 0.125. The optimal T is the density ratio, whose log is linear.
    generator = torch.Generator().manual_seed(0)
    weights = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=0.01)
    inverse_softplus = lambda t: t + torch.log(-torch.expm1(-t))  # noqa: E731

    def g(act: torch.Tensor) -> torch.Tensor:
        return inverse_softplus(torch.exp(weights[0] + weights[1] * act[:, 0]))

    for _ in range(1500):
        ours = torch.randn(2048, 1, generator=generator, dtype=torch.float64) + 0.5
        theirs = torch.randn(2048, 1, generator=generator, dtype=torch.float64)
        optimiser.zero_grad()
        dual_loss("kl", "none", g, ours, theirs, torch.zeros(1)).backward()
        optimiser.step()
    ours = torch.randn(400_000, 1, generator=generator, dtype=torch.float64) + 0.5
    theirs = torch.randn(400_000, 1, generator=generator, dtype=torch.float64)
    found = estimate("kl", g, ours, theirs).mean().item()
    assert found == pytest.approx(0.125, abs=0.01)


# -- gradients ---------------------------------------------------------------------------------------------------------

OWNER = {"encoder": "dml", "critic": "critic", "actor": "actor", "g": "g"}


def joint_and_own_gradients(algorithm: FOCAL) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    batch, noise = example()
    leaves = {name: value.requires_grad_() for name, value in params_of(algorithm.nets).items()}
    targets = {name: value.detach() for name, value in leaves.items() if name.startswith("critic")}
    total, _ = algorithm.loss(leaves, targets, batch, noise)
    joint = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values()), allow_unused=True), strict=True))
    z_pair = algorithm.infer(leaves, batch["context"], noise["z"])
    z = z_pair[:, :1].expand(-1, B, -1)
    dml = algorithm.L_dml(z_pair[:, 0], z_pair[:, 1])
    critic = algorithm.L_critic(leaves, targets, batch, z.detach(), noise)
    actor, info = algorithm.L_actor(leaves, batch, z.detach(), noise)
    g = algorithm.L_g(leaves, batch, z.detach(), info["act"], noise)
    own = {}
    for kind, loss in {"dml": dml, "critic": critic, "actor": actor, "g": g}.items():
        names = [name for name in leaves if OWNER.get(name.split(".")[0]) == kind]
        own |= dict(zip(names, torch.autograd.grad(loss, [leaves[n] for n in names], retain_graph=True), strict=True))
    return joint, own


@pytest.mark.parametrize("divergence", ["kl", "wasserstein", "gaussian-kl"])
@pytest.mark.parametrize("regularisation", ["policy", "value"])
def test_joint_gradient_gives_each_network_its_own(divergence: str, regularisation: str) -> None:
    joint, own = joint_and_own_gradients(focal(divergence=divergence, regularisation=regularisation, alpha=2.0))
    assert len(own) == len(joint) - 1  # all but alpha
    for name, gradient in own.items():
        # A constant added to g cancels in the Wasserstein estimate.
        assert gradient.abs().sum() > 0 or (divergence, name) == ("wasserstein", "g.bias.2")
        torch.testing.assert_close(joint[name], gradient)


def test_critics_may_read_how_far_an_action_is_from_the_behaviour_in_units_of_its_noise() -> None:
    algorithm = focal(divergence="gaussian-kl", critic_input="deviation")
    params, (batch, _) = params_of(algorithm.nets), example()
    z = torch.full((M, B, L), 0.3, dtype=torch.float64)
    mean, std = np_gaussian(params, "g", batch["obs"].numpy(), z.numpy())
    away = (np.arctanh(batch["act"].numpy().clip(-0.999, 0.999)) - mean) / std
    read = 4 * np.tanh(away / 4)
    assert np.abs(read - batch["act"].numpy()).max() > 0.1
    expected = np_q(params, batch["obs"].numpy(), z.numpy(), read)
    np.testing.assert_allclose(algorithm.q(params, batch["obs"], z, batch["act"]), expected)


@pytest.mark.parametrize("unfitted", [{"divergence": "kl"}, {"divergence": "gaussian-kl", "regularisation": "none"}])
def test_without_a_fitted_behaviour_critics_read_the_action(unfitted: dict[str, str]) -> None:
    algorithm = focal(critic_input="deviation", **unfitted)
    params, (batch, _) = params_of(algorithm.nets), example()
    z = torch.full((M, B, L), 0.3, dtype=torch.float64)
    expected = np_q(params, batch["obs"].numpy(), z.numpy(), batch["act"].numpy())
    np.testing.assert_allclose(algorithm.q(params, batch["obs"], z, batch["act"]), expected)


def test_critics_that_read_deviations_move_themselves_alone() -> None:
    joint, own = joint_and_own_gradients(focal(divergence="gaussian-kl", critic_input="deviation", alpha=2.0))
    for name, gradient in own.items():
        assert gradient.abs().sum() > 0
        torch.testing.assert_close(joint[name], gradient)


@pytest.mark.parametrize("divergence", ["kl", "wasserstein", "gaussian-kl"])
def test_actor_is_moved_through_q_and_through_g(divergence: str) -> None:
    algorithm = focal(alpha=2.0, divergence=divergence)
    batch, noise = example()
    z = torch.zeros(M, B, 2, dtype=torch.float64)
    leaves = {name: value.requires_grad_() for name, value in params_of(algorithm.nets).items()}
    policy = algorithm.policy(leaves, batch["obs"], z)
    act, _ = squashed_gaussian(policy, noise["act"])
    fixed = {name: value.detach() for name, value in leaves.items()}
    for part in (
        algorithm.q(fixed, batch["obs"], z, act),
        algorithm.D(fixed, batch["obs"], z, policy, act, batch["act"]),
    ):
        gradient = torch.autograd.grad(part.sum(), leaves["actor.weight.0"], retain_graph=True)[0]
        assert gradient.abs().sum() > 0


@pytest.mark.parametrize("divergence", ["kl", "wasserstein", "gaussian-kl"])
def test_g_loss_equals_numpy_and_moves_g_alone(divergence: str) -> None:
    algorithm = focal(divergence=divergence, penalty="output")
    params, (batch, noise) = params_of(algorithm.nets), example()
    # Such large outputs that the penalty counts.
    params["g.weight.2"] = params["g.weight.2"] * (1.0 if divergence == "gaussian-kl" else 30.0)
    b, n = numpy_of(batch), numpy_of(noise)
    z = np.array(np.broadcast_to(np_z(params, b["context"][:, 0])[:, None], (M, B, L)))
    act, _ = np_policy(params, b["obs"], z, n["act"])

    def g(act: np.ndarray) -> np.ndarray:
        return np_mlp(params, "g", np.concatenate([b["obs"], z, act], -1))[..., 0]

    if divergence == "gaussian-kl":
        mean, std = np_gaussian(params, "g", b["obs"], z)
        wanted = (np.log(std) + (np.arctanh(b["act"]) - mean) ** 2 / (2 * std**2)).sum(-1).mean()
    else:
        gain = np_divergence(params, b["obs"], z, act, b["act"]) if divergence == "kl" else g(act) - g(b["act"])
        excess = np.maximum(np.abs(g(act + n["mix"] * (b["act"] - act))) - 1, 0)
        assert excess.max() > 0
        wanted = 5 * (excess**2).mean() - gain.mean()
    leaves = {name: value.requires_grad_() for name, value in params.items()}
    found, info = algorithm.regulariser_step(leaves, {}, batch, noise)
    assert found.item() == pytest.approx(float(wanted), rel=1e-6) and info == {}
    reached = torch.autograd.grad(found, list(leaves.values()), allow_unused=True)
    assert {name.split(".")[0] for name, value in zip(leaves, reached, strict=True) if value is not None} == {"g"}


def test_g_steps_are_the_updates_own_and_those_before_it() -> None:
    assert focal().child_steps == []
    algorithm = focal(regulariser_steps=3)
    assert algorithm.child_steps == [("g", algorithm.regulariser_step)] * 2
    assert focal(regulariser_steps=3, regularisation="none").child_steps == []  # nothing is asked of the discriminator


def test_an_update_with_more_g_steps_moves_g_as_adam_does_on_the_fresh_batches() -> None:
    config = replace(SMALL, regulariser_steps=3, regulariser_lr=1e-2, alpha=2.0)
    learners, algorithm = FOCAL.build(S, A, config, [0])
    options = {
        "learning_rate": algorithm.learning_rate,
        "targets": algorithm.targets,
        "plain_descent": algorithm.plain_descent,
    }
    population = Population(learners, algorithm.loss, child_steps=algorithm.child_steps, **options)
    drawn = [tuple({k: v.float() for k, v in part.items()} for part in example(seed)) for seed in range(3)]
    leaves = {name: value[0].clone().requires_grad_() for name, value in population.params.items()}
    start = {name: value.clone() for name, value in population.params.items()}
    adam = torch.optim.Adam(
        [value for name, value in leaves.items() if name.startswith("g.")], lr=config.regulariser_lr
    )
    for batch, noise in drawn:  # actor and encoder move with the last of them, when g has seen their actions
        adam.zero_grad()
        algorithm.regulariser_step(leaves, {}, batch, noise)[0].backward()
        adam.step()
    fresh = iter(tuple({k: v[None] for k, v in part.items()} for part in parts) for parts in drawn)
    population.step(lambda _: next(fresh))
    for name, value in population.params.items():
        if name.startswith("g."):
            torch.testing.assert_close(value[0], leaves[name].detach(), rtol=1e-4, atol=1e-5)
        assert name == "alpha" or not torch.equal(value, start[name]), name


@pytest.mark.parametrize("coupled", [False, True])
def test_critic_reaches_the_encoder_only_when_coupled(coupled: bool) -> None:
    algorithm = focal(coupled=coupled)
    joint, own = joint_and_own_gradients(algorithm)
    names = [name for name in own if name.startswith("encoder")]
    equal = all(torch.equal(joint[name], own[name]) for name in names)
    assert equal is not coupled


@pytest.mark.parametrize("encoder", ["deterministic", "probabilistic"])
def test_encoder_does_not_see_the_order_of_a_context(encoder: str) -> None:
    algorithm = focal(encoder=encoder)
    params, (batch, _) = params_of(algorithm.nets), example()
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(
        algorithm.infer(params, batch["context"]), algorithm.infer(params, batch["context"][:, :, order])
    )
    assert algorithm.infer(params, batch["context"]).abs().max() < 1


def test_product_of_gaussians_equals_numpy() -> None:
    algorithm = focal(encoder="probabilistic")
    params, (batch, _) = params_of(algorithm.nets), example()
    codes = np_mlp(params, "encoder", batch["context"].numpy())
    mean, variance = np.tanh(codes[..., :2]), np.log1p(np.exp(codes[..., 2:]))
    precision = (1 / variance).sum(-2)
    found_mean, found_variance = algorithm.posterior(params, batch["context"])
    np.testing.assert_allclose(found_variance.numpy(), 1 / precision, rtol=1e-9)
    np.testing.assert_allclose(found_mean.numpy(), (mean / variance).sum(-2) / precision, rtol=1e-9)


def test_probabilistic_update_equals_numpy() -> None:
    algorithm = focal(encoder="probabilistic", beta=1.7, kl_weight=0.3)
    params, (batch, noise) = params_of(algorithm.nets), example()
    targets = {name: value + 0.05 for name, value in params.items() if name.startswith("critic")}
    codes = np_mlp(params, "encoder", batch["context"].numpy())
    precision = 1 / np.log1p(np.exp(codes[..., L:]))
    variance = 1 / precision.sum(-2)
    mean = (np.tanh(codes[..., :L]) * precision).sum(-2) * variance  # [M, 2, L]
    z = mean + np.sqrt(variance) * noise["z"].numpy()
    own_kl = 0.5 * (variance + mean**2 - 1 - np.log(variance)).sum(-1)
    task = np_dml(z[:, 0], z[:, 1], "inverse-square", 1.7, 0.1) + 0.3 * own_kl.mean() / L
    rows = torch.tensor(z[:, :1]).expand(-1, B, -1)
    control, _ = algorithm.L_control(params, targets, batch, rows, noise)
    found, info = algorithm.loss(params, targets, batch, noise)
    assert float(info["dml_loss"]) == pytest.approx(float(task), rel=1e-9)
    assert float(found) == pytest.approx(float(task + control), rel=1e-9)
    # Extra steps of the discriminator see the same sampled z.
    torch.testing.assert_close(algorithm.z_of(params, batch, noise), rows[:, 0])
    act, _ = squashed_gaussian(algorithm.policy(params, batch["obs"], rows), noise["act"])
    expected = algorithm.L_g(params, batch, rows, act, noise)
    assert float(algorithm.regulariser_step(params, {}, batch, noise)[0]) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("beta", [1.0, 10.0])
def test_by_default_a_probabilistic_encoder_gains_by_telling_tasks_apart(beta: float) -> None:
    """Against N(0, 1) for every task, whose draws are far apart too: with PEARL's weight that is the better choice.

    PEARL's KL is a sum over tasks and dimensions; here it is a mean over both, as the distances are.
    """
    config = FOCALConfig(encoder="probabilistic", beta=beta)
    rng, shape = torch.Generator().manual_seed(0), (config.meta_batch, config.latent_dim)
    corners = 0.9 * torch.randn(shape, generator=rng).sign()
    noise = torch.randn(200, 2, *shape, generator=rng)

    def loss(mean: torch.Tensor, variance: torch.Tensor, kl_weight: float) -> float:
        algorithm = focal(encoder="probabilistic", beta=beta)
        pairs = [[drawn(mean, variance, one) for one in pair] for pair in noise]
        distances = torch.stack([algorithm.L_dml(*pair) for pair in pairs]).mean()
        return float(distances + kl_weight * kl(mean, variance).mean() / config.latent_dim)

    apart, alike = (corners, torch.full(shape, 0.05)), (torch.zeros(shape), torch.ones(shape))
    assert loss(*apart, config.kl_weight) < loss(*alike, config.kl_weight) - 0.5
    pearl = 0.1 * config.meta_batch * config.latent_dim
    assert loss(*apart, pearl) > loss(*alike, pearl) + 10


def test_an_adapted_alpha_stays_within_its_bounds() -> None:
    algorithm = focal(alpha=3.0, alpha_min=1.0, alpha_max=10.0, alpha_rate=0.1)
    params, (batch, noise) = params_of(algorithm.nets), example()
    for alpha, used in ((50.0, 10.0), (-1.0, 1.0), (7.0, 7.0)):
        own = {**params, "alpha": torch.tensor(alpha, dtype=torch.float64)}
        _, info = algorithm.loss(own, params, batch, noise)
        assert float(info["alpha"]) == used
    for wrong, least in (({"alpha": 3000.0, "alpha_min": 60.0}, 0.0), ({"alpha_min": 60.0, "alpha_rate": 1.0}, 60.0)):
        with pytest.raises(OmrlError, match=f"alpha is .*, and must be from {least} to 2000"):
            focal(**wrong)


@pytest.mark.parametrize("warm_up", [0, 1])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_alpha_moves_by_its_rate_times_the_divergence_above_its_target_once_q_counts(rate: float, warm_up: int) -> None:
    config = replace(SMALL, alpha=3.0, alpha_rate=rate, warm_up=warm_up)
    learners, algorithm = FOCAL.build(S, A, config, [0])
    population = Population(
        learners,
        algorithm.loss,
        learning_rate=algorithm.learning_rate,
        targets=algorithm.targets,
        plain_descent=algorithm.plain_descent,
    )
    batch, noise = ({name: value.float()[None] for name, value in part.items()} for part in example())
    for _ in range(warm_up):
        population.step(lambda _: (batch, noise))
        assert population.params["alpha"].item() == 3.0
    info = population.step(lambda _: (batch, noise))
    excess = info["divergence"].item() - config.target_divergence
    assert abs(excess) > 1e-3
    assert population.params["alpha"].item() == pytest.approx(3.0 + rate * excess, abs=1e-6)


# -- warm-up and saturation --------------------------------------------------------------------------------------------


def test_before_q_counts_the_actor_only_approaches_the_data() -> None:
    algorithm = focal(warm_up=5, alpha=2.0)
    params, (batch, noise) = params_of(algorithm.nets), example()
    z = torch.zeros(M, B, L, dtype=torch.float64)

    def slopes(clock: float, scale: float) -> torch.Tensor:
        """The gradient of the actor's last layer, with critics that are `scale` times as steep."""
        own = {name: v * scale if name.startswith("critic") else v for name, v in params.items()}
        own["clock"] = torch.tensor(clock, dtype=torch.float64)
        leaf = own["actor.weight.2"].clone().requires_grad_()
        loss, _ = algorithm.L_actor({**own, "actor.weight.2": leaf}, batch, z, noise)
        return torch.autograd.grad(loss, leaf)[0]

    torch.testing.assert_close(slopes(4.0, 1.0), slopes(4.0, 3.0))
    assert not torch.allclose(slopes(5.0, 1.0), slopes(5.0, 3.0))
    assert not torch.allclose(slopes(4.0, 1.0), slopes(5.0, 1.0))


def test_the_clock_counts_updates_and_only_where_there_is_a_warm_up() -> None:
    config = replace(SMALL, warm_up=5)
    learners, algorithm = FOCAL.build(S, A, config, [0, 1])
    population = Population(
        learners,
        algorithm.loss,
        learning_rate=algorithm.learning_rate,
        targets=FOCAL.targets,
        plain_descent=FOCAL.plain_descent,
    )
    batch, noise = ({name: value.float().expand(2, *value.shape) for name, value in part.items()} for part in example())
    for _ in range(3):
        population.step(lambda _: (batch, noise))
    assert population.params["clock"].tolist() == [3.0, 3.0]
    assert "clock" not in dict(FOCALNets(S, A, SMALL, torch.Generator()).named_parameters())


def test_the_share_of_saturated_actions_is_logged() -> None:
    algorithm = focal()
    params, (batch, noise) = params_of(algorithm.nets), example()
    batch["act"][0] = -1.0
    z = torch.zeros(M, B, L, dtype=torch.float64)
    params["actor.bias.2"][..., :A] = 50.0
    _, info = algorithm.L_actor(params, batch, z, noise)
    assert float(info["saturated"]) == 1.0
    assert float(info["saturated_logged"]) == pytest.approx(1 / M)
