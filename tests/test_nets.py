"""Networks: precision of the weights, room to spare."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, vmap

from omrl.learning.nets import MLP

INPUTS, ROWS = 7, 400


def network(outputs=3, copies=None, hidden=(33, 30, 31), inputs=INPUTS):
    """A network, its parameters, and rows to put in."""
    net = MLP(inputs, hidden, outputs, generator=torch.Generator().manual_seed(0), copies=copies)
    rows = torch.randn(ROWS, inputs, generator=torch.Generator().manual_seed(1))
    return net, {name: p.detach() for name, p in net.named_parameters()}, rows


def half(params):
    return {name: value.bfloat16() for name, value in params.items()}


def roomy(net, params, multiple=16):
    """The parameters stored with room to spare."""
    wide = {name: torch.zeros(shape) for name, shape in net.room(multiple).items()}
    for name, value in params.items():
        wide[name][tuple(map(slice, value.shape))] = value
    return wide


def assert_near(found, wanted, tolerance):
    """Equal within a few roundings to 8 bits; as a whole, since a rounding may switch a ReLU of a single row."""
    assert found.dtype == wanted.dtype == torch.float32 and found.shape == wanted.shape
    assert (found - wanted).norm() < tolerance * wanted.norm()


SHAPES = [(3, None), (1, None), (1, 2), (4, 2)]


@pytest.mark.parametrize(("outputs", "copies"), SHAPES)
def test_half_is_near_full_in_values_and_gradients(outputs, copies):
    net, params, x = network(outputs, copies)

    def total(params, x):
        return functional_call(net, params, (x,)).sum()

    found, wanted = (functional_call(net, p, (x,)) for p in (half(params), params))
    assert_near(found, wanted, 0.02)
    assert not torch.equal(found, wanted)  # it really is another precision
    slopes, exact = (grad(total, argnums=(0, 1))(p, x) for p in (half(params), params))
    assert_near(slopes[1], exact[1], 0.1)
    for name, value in exact[0].items():
        assert slopes[0][name].dtype == torch.bfloat16
        assert_near(slopes[0][name].float(), value, 0.05)


def test_half_works_for_stacked_learners():
    net, params, x = network(1, 2)
    stacked = half({name: torch.stack([p, 0.5 * p]) for name, p in params.items()})

    def loss(params, x):
        return functional_call(net, params, (x,)).square().mean()

    together = vmap(grad(loss), in_dims=(0, None))(stacked, x)
    for i in range(2):
        alone = grad(loss)({name: value[i] for name, value in stacked.items()}, x)
        for name, value in alone.items():
            assert_near(together[name][i].float(), value.float(), 0.05)


# Some layers have room for their bias's gradient and others, whose input has a width of 16, have not.
WIDTHS = [(7, (33, 30, 31)), (7, (16, 20)), (16, (20, 16)), (16, (20,)), (7, ()), (16, ())]


@pytest.mark.parametrize(("inputs", "hidden"), WIDTHS)
@pytest.mark.parametrize(("outputs", "copies"), SHAPES)
def test_room_to_spare_changes_no_value_and_gets_no_gradient_but_that_of_a_bias(outputs, copies, inputs, hidden):
    net, params, x = network(outputs, copies, hidden, inputs)
    wide = roomy(net, params)
    assert {value.shape[-1] % 16 for value in wide.values() if value.shape[-1] > 1} <= {0}
    torch.testing.assert_close(functional_call(net, wide, (x,)), functional_call(net, params, (x,)))

    def loss(params, x):
        # As the gradient penalty does: a gradient in what was put in, too.
        slope = grad(lambda x: functional_call(net, params, (x,)).sum())(x)
        return functional_call(net, params, (x,)).square().mean() + slope.square().mean()

    wanted, by_input = grad(loss)(params, x), grad(loss, argnums=1)(params, x)
    torch.testing.assert_close(grad(loss, argnums=1)(wide, x), by_input)
    found = {name: value.clone() for name, value in grad(loss)(wide, x).items()}
    for name, value in wanted.items():
        assert value.any(), name
        inside = tuple(map(slice, value.shape))
        torch.testing.assert_close(found[name][inside], value)
        found[name][inside] = 0.0
        if name.startswith("weight.") and value.shape[-1] > 1 and found[name].shape[-2] > value.shape[-2]:
            of_bias = wanted[name.replace("weight", "bias")]
            row = (..., value.shape[-2], slice(value.shape[-1]))
            torch.testing.assert_close(found[name][row], of_bias[..., 0, :])
            found[name][row] = 0.0
        assert not found[name].any(), name


def test_rows_of_any_shape_may_have_room():
    net, params, _ = network()
    wide = roomy(net, params)
    for shape in ((INPUTS,), (4, INPUTS), (2, 3, 4, INPUTS), (0, INPUTS)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
        torch.testing.assert_close(functional_call(net, wide, (x,)), functional_call(net, params, (x,)))


def test_values_keep_all_digits_where_a_single_output_is_all_there_is():
    net, params, x = network(1, hidden=())
    found = functional_call(net, half(params), (10 * x,))
    weight, bias = (half(params)[name].float() for name in ("weight.0", "bias.0"))
    torch.testing.assert_close(found, 10 * x @ weight + bias)


def test_a_single_output_is_the_product_it_stands_for():
    net, _, x = network(outputs=1, hidden=(16,))
    hidden = torch.relu(x @ net.weight[0] + net.bias[0])
    torch.testing.assert_close(net(x), hidden @ net.weight[1] + net.bias[1])
