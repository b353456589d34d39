"""The divergence to a fitted behaviour policy against closed forms, sampling and a known answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from omrl.algorithms.divergences import LARGEST_ACT, behaviour_loss, gaussian_kl
from omrl.learning.nets import gaussian, squashed_gaussian

N, A = 6, 3


def outputs(seed, rows=N, scale=0.4):
    """What a policy network returns: mean and raw log-std side by side."""
    return scale * torch.randn(rows, 2 * A, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def raw_of(mean, std):
    """The outputs of a policy with this mean and standard deviation before tanh."""
    raw = np.arctanh((np.log(std) + 5) / 3.5 - 1)
    return torch.tensor(np.concatenate([mean, raw], -1))


def moments(values):
    mean, raw = np.split(values.numpy(), 2, -1)
    return mean, np.exp(-5 + 3.5 * (np.tanh(raw) + 1))


def test_gaussian_kl_equals_the_closed_form():
    policy, behaviour = outputs(0), outputs(1)
    (m, s), (m_b, s_b) = moments(policy), moments(behaviour)
    wanted = (np.log(s_b / s) + (s**2 + (m - m_b) ** 2) / (2 * s_b**2) - 0.5).sum(-1)
    found = gaussian_kl(policy, behaviour)
    assert found.shape == (N,)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10)
    assert (found > 0.01).all()
    assert not torch.allclose(found, gaussian_kl(behaviour, policy))  # which of the two is the policy matters
    np.testing.assert_allclose(gaussian_kl(policy, policy).numpy(), 0, atol=1e-12)


def test_gaussian_kl_by_hand():
    policy = raw_of(np.full((1, 1), 0.5), np.full((1, 1), 1.0))
    behaviour = raw_of(np.zeros((1, 1)), np.full((1, 1), 2.0))
    assert gaussian_kl(policy, behaviour).item() == pytest.approx(np.log(2) + 1.25 / 8 - 0.5)


def test_gaussian_kl_is_that_of_the_squashed_actions():
    """tanh changes neither side: sampled from the actions' own densities, the divergence is the same."""
    policy, behaviour = outputs(0, rows=1), outputs(1, rows=1)
    noise = torch.randn(200_000, A, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    act, log_prob = squashed_gaussian(policy, noise)
    mean, log_std = gaussian(behaviour)
    again, other = squashed_gaussian(behaviour, (torch.atanh(act) - mean) / log_std.exp())
    torch.testing.assert_close(again, act)
    assert gaussian_kl(policy, behaviour).item() == pytest.approx((log_prob - other).mean().item(), rel=0.02)


def test_gaussian_kl_gradients_equal_finite_differences():
    policy, behaviour = outputs(0).requires_grad_(), outputs(1).requires_grad_()
    assert torch.autograd.gradcheck(gaussian_kl, (policy, behaviour))


def test_behaviour_loss_is_the_likelihood_up_to_a_constant():
    act = torch.rand(N, A, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 1.8 - 0.9

    def negative_log_likelihood(behaviour):
        mean, std = moments(behaviour)
        u = np.arctanh(act.numpy())
        density = np.exp(-((u - mean) ** 2) / (2 * std**2)) / (std * np.sqrt(2 * np.pi)) / (1 - act.numpy() ** 2)
        return -np.log(density).sum(-1).mean()

    one, other = outputs(0), outputs(1)
    found = behaviour_loss(one, act) - behaviour_loss(other, act)
    assert found.item() == pytest.approx(negative_log_likelihood(one) - negative_log_likelihood(other), rel=1e-9)
    mean, std = moments(one)
    by_hand = (np.log(std) + (np.arctanh(act.numpy()) - mean) ** 2 / (2 * std**2)).sum(-1).mean()
    assert behaviour_loss(one, act).item() == pytest.approx(by_hand, rel=1e-9)


def test_the_optimum_is_the_policy_that_acted():
    mean, std = np.array([[0.4, -0.7, 0.0]]), np.array([[0.3, 0.6, 1.0]])
    noise = torch.randn(50_000, A, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    act, _ = squashed_gaussian(raw_of(mean, std), noise)
    fitted = torch.zeros(1, 2 * A, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([fitted], max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = behaviour_loss(fitted, act)
        loss.backward()
        return loss

    optimiser.step(closure)
    found_mean, found_std = moments(fitted.detach())
    np.testing.assert_allclose(found_mean, mean, atol=0.02)
    np.testing.assert_allclose(found_std, std, rtol=0.02)  # the bounds of the actions cut off a little of the last one
    assert gaussian_kl(raw_of(mean, std), fitted.detach()).item() < 1e-3


def test_actions_at_their_bounds_give_finite_numbers():
    act = torch.tensor([[1.0, -1.0, LARGEST_ACT]])
    behaviour = outputs(0, rows=1).float().requires_grad_()
    loss = behaviour_loss(behaviour, act)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(behaviour.grad).all()
    torch.testing.assert_close(loss, behaviour_loss(behaviour, act.clamp(-LARGEST_ACT, LARGEST_ACT)))
