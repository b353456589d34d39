"""Networks: products between hidden layers in half precision."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, vmap

from omrl.nets import MLP

INPUTS, ROWS = 7, 400


def pair(outputs=3, copies=None, hidden=(32, 32, 32)):
    """The same network in full and in half precision, and rows to put in."""
    full, half = (
        MLP(INPUTS, hidden, outputs, generator=torch.Generator().manual_seed(0), copies=copies, half=half)
        for half in (False, True)
    )
    return full, half, torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(1))


def assert_near(found, wanted, tolerance=0.02):
    """Equal within a few roundings to 8 bits; as a whole, since a rounding may switch a ReLU of a single row."""
    assert found.dtype == wanted.dtype == torch.float32 and found.shape == wanted.shape
    assert (found - wanted).norm() < tolerance * wanted.norm()


@pytest.mark.parametrize(("outputs", "copies"), [(3, None), (1, None), (1, 2), (4, 2)])
def test_half_is_near_full_in_values_and_gradients(outputs, copies):
    full, half, x = pair(outputs, copies)
    x_full, x_half = x.clone().requires_grad_(), x.clone().requires_grad_()
    wanted, found = full(x_full), half(x_half)
    assert_near(found, wanted)
    assert not torch.equal(found, wanted)  # it really is another precision
    wanted.sum().backward()
    found.sum().backward()
    assert_near(x_half.grad, x_full.grad, 0.1)
    for (name, p), q in zip(full.named_parameters(), half.parameters(), strict=True):
        assert torch.equal(p, q), name
        assert q.grad.abs().sum() > 0, name
        assert_near(q.grad, p.grad, 0.05)


def test_half_works_for_stacked_learners():
    _, half, x = pair(1, 2)
    params = {name: torch.stack([p.detach(), 0.5 * p.detach()]) for name, p in half.named_parameters()}

    def loss(params, x):
        return functional_call(half, params, (x,)).square().mean()

    together = vmap(grad(loss), in_dims=(0, None))(params, x)
    for i in range(2):
        alone = grad(loss)({name: value[i] for name, value in params.items()}, x)
        for name, value in alone.items():
            assert_near(together[name][i], value, 0.05)


def test_only_products_between_hidden_layers_are_in_half():
    full, half, x = pair(hidden=(16,))  # there are none
    assert torch.equal(full(x), half(x))


def test_a_single_output_is_the_product_it_stands_for():
    full, _, x = pair(outputs=1, hidden=(16,))
    hidden = torch.relu(x @ full.weight[0] + full.bias[0])
    torch.testing.assert_close(full(x), hidden @ full.weight[1] + full.bias[1])
