"""Actions that are choices: every loss against numpy, which goes through the choices one by one."""

from __future__ import annotations

from dataclasses import replace
from math import erfc, log, pi

import numpy as np
import pytest
import torch
from references import A, B, L, M, S, example, gradients, np_mlp, numpy_of, params_of

from omrl.algorithms.contextual_bc import ContextualBC, ContextualBCConfig
from omrl.algorithms.divergences import behaviour_loss, categorical_kl, categorical_loss, log_mass_below
from omrl.algorithms.focal import FOCAL, FOCALConfig
from omrl.errors import OmrlError
from omrl.learning.nets import gaussian

# Three choices of two numbers each.
CHOICES = ((-1.0, -1.0), (0.0, 1.0), (1.0, 0.25))
FLAT = tuple(np.ravel(CHOICES).tolist())
SIZES = {"hidden": (8, 8), "encoder_hidden": (8, 8), "latent_dim": L, "choices": FLAT}
CONFIG = FOCALConfig(**SIZES, divergence="categorical-kl", alpha=3.0)


def made(kind, config, seed=0):
    nets, algorithm = kind.build(S, A, config, [seed])
    params = {name: value.double() for name, value in params_of(nets[0]).items()}
    # A fresh actor is all but uniform: another one shows more.
    generator = torch.Generator().manual_seed(3)
    for name in params:
        if name.startswith("actor"):
            params[name] = params[name] + torch.randn(params[name].shape, generator=generator).double()
    return algorithm, params


def batch_of_choices():
    batch, noise = example()
    rng = np.random.default_rng(1)
    which = rng.integers(len(CHOICES), size=(M, B))
    return {**batch, "act": torch.tensor(np.array(CHOICES)[which])}, {"mix": noise["mix"]}, which


def np_log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def np_state(batch, z):
    return np.concatenate([batch, z], -1)


def rows_of(algorithm, params, batch):
    z = algorithm.infer(params, batch["context"][:, 0])
    return z[:, None].expand(-1, B, -1)


@pytest.mark.parametrize("regularisation", ["policy", "value"])
def test_the_critics_loss_takes_the_mean_over_all_choices(regularisation):
    algorithm, params = made(FOCAL, replace(CONFIG, regularisation=regularisation))
    _, targets = made(FOCAL, CONFIG, seed=5)
    batch, noise, which = batch_of_choices()
    z = rows_of(algorithm, params, batch)
    found = algorithm.L_critic(params, targets, batch, z, noise)

    b = numpy_of(batch)
    state, after = np_state(b["obs"], z.numpy()), np_state(b["next_obs"], z.numpy())
    logs = np_log_softmax(np_mlp(params, "actor", after))
    other = np_log_softmax(np_mlp(params, "g", after))
    expected = 0.0
    for m in range(M):
        for row in range(B):
            value = 0.0
            for k in range(len(CHOICES)):
                q = min(np_mlp(targets, "critic", after[m, row][None], copy)[0, k] for copy in (0, 1))
                penalty = 3.0 * (logs[m, row, k] - other[m, row, k]) if regularisation == "value" else 0.0
                value += np.exp(logs[m, row, k]) * (q - logs[m, row, k] - penalty)
            target = 5.0 * b["rew"][m, row] + 0.99 * (1 - b["term"][m, row]) * value
            for copy in (0, 1):
                own = np_mlp(params, "critic", state[m, row][None], copy)[0, which[m, row]]
                expected += (own - target) ** 2 / (M * B)
    assert found.item() == pytest.approx(expected, rel=1e-6)


def test_the_actors_loss_is_exact_and_moves_the_actor_alone():
    algorithm, params = made(FOCAL, CONFIG)
    batch, noise, _ = batch_of_choices()
    z = rows_of(algorithm, params, batch)
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    loss, info = algorithm.L_actor(leaves, batch, z.detach(), noise)

    state = np_state(numpy_of(batch)["obs"], z.numpy())
    logs, other = (np_log_softmax(np_mlp(params, name, state)) for name in ("actor", "g"))
    q = np.minimum(*(np_mlp(params, "critic", state, copy) for copy in (0, 1)))
    kl = (np.exp(logs) * (logs - other)).sum(-1)
    expected = (np.exp(logs) * (logs - q)).sum(-1).mean() + 3.0 * kl.mean()
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert info["divergence"].item() == pytest.approx(kl.mean(), rel=1e-6)
    moved = {name.split(".")[0] for name, value in gradients(loss, leaves).items() if value.abs().max() > 0}
    assert moved == {"actor"}


def test_the_behaviour_and_the_clone_fit_by_the_likelihood_of_the_logged_choices():
    batch, noise, which = batch_of_choices()
    for kind, config, network in ((FOCAL, CONFIG, "g"), (ContextualBC, ContextualBCConfig(**SIZES), "actor")):
        algorithm, params = made(kind, config)
        z = rows_of(algorithm, params, batch)
        logs = np_log_softmax(np_mlp(params, network, np_state(numpy_of(batch)["obs"], z.numpy())))
        expected = -np.take_along_axis(logs, which[..., None], -1).mean()
        if kind is FOCAL:
            found = algorithm.L_g(params, batch, z, batch["act"], noise)
        else:
            found = algorithm.loss(params, {}, batch, {})[1]["actor_loss"]
        assert found.item() == pytest.approx(expected, rel=1e-6)


def test_fitting_finds_the_frequencies_of_the_log_and_the_kl_is_that_of_its_definition():
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    which = torch.eye(3, dtype=torch.float64)[torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])]
    optimiser = torch.optim.LBFGS([logits], max_iter=100, tolerance_grad=1e-10)

    def closure():
        optimiser.zero_grad()
        loss = categorical_loss(logits.expand(10, 3), which)
        loss.backward()
        return loss

    optimiser.step(closure)
    torch.testing.assert_close(logits.softmax(-1), torch.tensor([0.5, 0.3, 0.2]).double(), atol=1e-5, rtol=0)
    p, q = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.1, 0.3])
    found = categorical_kl(torch.tensor(np.log(p) + 2.0), torch.tensor(np.log(q) - 1.0))
    assert found.item() == pytest.approx((p * np.log(p / q)).sum())
    assert categorical_kl(torch.tensor(np.log(p)), torch.tensor(np.log(p))).item() == pytest.approx(0.0, abs=1e-12)


def test_an_action_is_one_of_the_choices_the_likeliest_and_its_value_is_its_own():
    algorithm, params = made(FOCAL, CONFIG)
    batch, _, _ = batch_of_choices()
    z = rows_of(algorithm, params, batch)
    outputs = algorithm.policy(params, batch["obs"], z)
    act = algorithm.act(params, batch["obs"], z)
    assert (act.numpy() == np.array(CHOICES, np.float32)[outputs.argmax(-1).numpy()]).all()
    assert algorithm.head.act(torch.eye(3)).tolist() == [list(choice) for choice in CHOICES]
    state = np_state(numpy_of(batch)["obs"], z.numpy())
    for k, choice in enumerate(CHOICES):
        # Rounded, as units of a log are.
        near = torch.tensor(choice).expand(M, B, A) + 1e-6
        found = algorithm.q(params, batch["obs"], z, near)
        np.testing.assert_allclose(found[1].numpy(), np_mlp(params, "critic", state, 1)[..., k], rtol=1e-6)


def test_choices_go_with_their_own_divergence_alone():
    with pytest.raises(OmrlError, match="divergence must be categorical-kl where actions are choices"):
        FOCALConfig(choices=FLAT)
    with pytest.raises(OmrlError, match="divergence must be categorical-kl where actions are choices"):
        FOCALConfig(divergence="categorical-kl")
    FOCALConfig(choices=FLAT, regularisation="none")


# -- amounts that are often at their bounds ----------------------------------------------------------------------------


def np_near_bounds(mean, log_std, act, share):
    """Row by row: a density inside, the mass of a tail beyond."""
    bound, total = 1 - 2 * share, 0.0
    for m, s, a in zip(mean.ravel(), log_std.ravel(), act.ravel(), strict=True):
        if abs(a) > bound:
            away = (np.arctanh(bound) - np.sign(a) * m) / np.exp(s)
            total += -log(0.5 * erfc(away / np.sqrt(2))) - 0.5 * log(2 * pi)
        else:
            total += s + 0.5 * ((np.arctanh(a) - m) / np.exp(s)) ** 2
    return total / len(act)


def test_an_action_near_its_bound_says_only_that_it_is_there():
    rng = np.random.default_rng(0)
    # Spreads near 1: the tail of a narrow one is 0 in double precision.
    outputs, act = (
        np.c_[rng.normal(size=(40, 2)), rng.normal(0.4, 0.1, (40, 2))],
        np.clip(rng.normal(0, 0.8, (40, 2)), -1, 1),
    )
    assert (np.abs(act) == 1).any()
    mean, log_std = gaussian(torch.tensor(outputs))
    found = behaviour_loss(torch.tensor(outputs), torch.tensor(act), 0.05)
    assert found.item() == pytest.approx(np_near_bounds(mean.numpy(), log_std.numpy(), act, 0.05), rel=1e-6)
    inside = torch.tensor(act).clamp(-0.8, 0.8)
    assert behaviour_loss(torch.tensor(outputs), inside, 0.05) == behaviour_loss(torch.tensor(outputs), inside)


def test_the_mass_of_a_tail_is_that_of_torch_with_a_slope_everywhere():
    x = torch.linspace(-30, 8, 2_001, requires_grad=True)
    found = log_mass_below(x)
    exact = torch.special.log_ndtr(x.detach().double())
    torch.testing.assert_close(found.detach().double(), exact, atol=2e-3, rtol=1e-4)
    (slopes,) = torch.autograd.grad(found.sum(), x)
    assert torch.isfinite(slopes).all() and (slopes[x < 5] > 0).all()


def test_a_clipped_log_is_fitted_near_what_was_meant():
    """A hand that means -0.6 and slips by 0.4 is cut at -1 now and then: by value that pulls the fit far out."""
    meant = np.clip(-0.6 + 0.4 * np.random.default_rng(0).normal(size=(4000, 1)), -1, 1)
    fits = {}
    for share in (0.0, 0.05):
        outputs = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.Adam([outputs], lr=0.05)
        for _ in range(400):
            optimiser.zero_grad()
            behaviour_loss(outputs.expand(4000, 2), torch.tensor(meant), share).backward()
            optimiser.step()
        fits[share] = torch.tanh(outputs.detach()[0]).item()
    assert abs(fits[0.05] + 0.6) < 0.1
    assert abs(fits[0.0] + 0.6) > 0.2
