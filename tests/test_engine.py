from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from omrl.learning.engine import ALIGN, Population, call, detached
from omrl.learning.nets import MLP

INPUTS, ROWS, TAU = 3, 7, 0.1
RATES = {"": 1e-2, "body": 3e-3, "body.weight.0": 3e-2, "gain": 1e-1}


class Toy(nn.Module):
    """A network with a target, one without, a scalar: sizes that no alignment divides."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.head = MLP(INPUTS, [5], 1, generator=generator)
        self.gain = nn.Parameter(torch.tensor(0.3))
        self.body = MLP(INPUTS, [5, 3], 1, generator=generator, copies=2)


TEMPLATE = Toy(0)


def toy_loss(params, targets, batch, noise):
    body = call(TEMPLATE, params, "body", batch["x"] + noise["x"])
    with_target = call(TEMPLATE, targets, "body", batch["x"]).amin(0)
    head = call(TEMPLATE, params, "head", batch["x"])
    error = (body - (batch["y"] + 0.5 * with_target).detach()).square().mean()
    loss = error + (head * params["gain"] - batch["y"]).square().mean() + batch["offset"]
    return loss, {"error": error.detach()}


def draws(learners: int, steps: int, seed: int = 0):
    """Batches and noise [P, ...] of every step."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = {
            "x": torch.randn(learners, ROWS, INPUTS, generator=g),
            "y": torch.randn(learners, ROWS, 1, generator=g),
            "offset": torch.zeros(learners),
        }
        yield batch, {"x": 0.1 * torch.randn(learners, ROWS, INPUTS, generator=g)}


def row(values, i):
    return {key: value[i] for key, value in values.items()}


def population(seeds, mode="eager", **options) -> Population:
    settings = {"learning_rate": RATES, "targets": ["body"], "tau": TAU, "mode": mode} | options
    return Population([Toy(seed) for seed in seeds], toy_loss, **settings)


def trained(seeds, steps=5, **options) -> Population:
    learners = population(seeds, **options)
    for drawn in draws(len(seeds), steps):
        learners.step(lambda _, drawn=drawn: drawn)
    return learners


def plain_training(seed: int, index: int, learners: int, steps: int):
    """The same learner as anyone would write it: modules, backward, torch's Adam, a lerp for the target."""
    model = Toy(seed)
    target = copy.deepcopy(model.body)
    optimizer = torch.optim.Adam(
        [
            {"params": model.head.parameters(), "lr": RATES[""]},
            {"params": [model.gain], "lr": RATES["gain"]},
            {"params": [model.body.weight[0]], "lr": RATES["body.weight.0"]},
            {"params": [*list(model.body.weight)[1:], *model.body.bias], "lr": RATES["body"]},
        ]
    )
    for batch, noise in draws(learners, steps):
        x, y = batch["x"][index], batch["y"][index]
        with torch.no_grad():
            wanted = y + 0.5 * target(x).amin(0)
        loss = (model.body(x + noise["x"][index]) - wanted).square().mean()
        loss = loss + (model.head(x) * model.gain - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), model.body.parameters(), strict=True):
                slow.lerp_(fast, TAU)
    return model, target


def assert_close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def assert_same_state(one: Population, other: Population) -> None:
    for name, tensor in one.state().items():
        assert torch.equal(tensor, other.state()[name]), name


# ----------------------------------------------------------------------------- the update


def test_a_population_equals_learners_trained_one_at_a_time():
    seeds = [3, 1, 4, 1]
    together = trained(seeds)
    for i, seed in enumerate(seeds):
        alone = population([seed])
        for batch, noise in draws(len(seeds), 5):
            one = {k: v[i : i + 1] for k, v in batch.items()}, {k: v[i : i + 1] for k, v in noise.items()}
            alone.step(lambda _, one=one: one)
        for name, value in alone.params.items():
            assert_close(together.params[name][i], value[0])


def test_parameters_follow_torchs_adam_with_a_rate_for_each_prefix():
    seeds, steps = [5, 6], 12
    together = trained(seeds, steps)
    for i, seed in enumerate(seeds):
        model, _ = plain_training(seed, i, len(seeds), steps)
        for name, value in model.named_parameters():
            assert_close(together.params[name][i], value.detach())
            assert not torch.equal(value.detach(), dict(Toy(seed).named_parameters())[name]), f"{name} never moved"


def test_targets_follow_by_linear_interpolation_and_only_where_asked_for():
    seeds, steps = [5, 6], 12
    together = trained(seeds, steps)
    assert {name.split(".")[0] for name in together.targets} == {"body"}
    for i, seed in enumerate(seeds):
        _, target = plain_training(seed, i, len(seeds), steps)
        for name, value in target.named_parameters():
            assert_close(together.targets[f"body.{name}"][i], value)


def test_plain_parameters_move_by_gradient_descent_and_the_others_by_adam():
    found, adam = population([0, 1], plain_descent=["gain"]), population([0, 1])
    batch, noise = next(iter(draws(2, 1)))
    before = found.params["gain"].clone()
    for p in (found, adam):
        p.step(lambda _: (batch, noise))
    for i in range(2):
        learner = Toy(i)
        loss, _ = toy_loss(dict(learner.named_parameters()), row(adam.targets, i), row(batch, i), row(noise, i))
        slope = torch.autograd.grad(loss, learner.gain)[0]
        assert_close(found.params["gain"][i], before[i] - RATES["gain"] * slope)
    for name, value in adam.params.items():
        assert torch.equal(found.params[name], value) == (name != "gain")


def test_slower_steps_are_adams_alone():
    slow, usual = (population([0, 1], plain_descent=["gain"]) for _ in range(2))
    before = {name: value.clone() for name, value in usual.params.items()}
    batch, noise = next(iter(draws(2, 1)))
    slow.slow_down(0.5)
    slow.slow_down(0.25)  # of the full size, not of the last
    for p in (slow, usual):
        p.step(lambda _: (batch, noise))
    for name, value in usual.params.items():
        factor = 1.0 if name == "gain" else 0.25
        assert_close(slow.params[name] - before[name], factor * (value - before[name]))


def test_info_has_one_value_per_learner():
    learners = population([1, 2, 3])
    info = learners.step(lambda _: next(draws(3, 1)))
    batch, noise = next(draws(3, 1))
    fresh = population([1, 2, 3])
    for i in range(3):
        _, expected = toy_loss(row(fresh.params, i), row(fresh.targets, i), row(batch, i), row(noise, i))
        assert_close(info["error"][i], expected["error"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_graph_equals_eager_with_sampling_inside():
    def run(mode):
        learners = population([1, 2], mode=mode, device="cuda", seed=9)
        data = {k: v.cuda() for k, v in next(draws(2, 1))[0].items()}

        def draw(generator):
            return data, {"x": torch.randn(2, ROWS, INPUTS, generator=generator, device="cuda")}

        for _ in range(6):
            learners.step(draw)
        return learners.state()

    eager = run("eager")
    for name, tensor in run("graph").items():
        torch.testing.assert_close(tensor, eager[name], rtol=2e-2, atol=2e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("half", [False, True])
def test_on_cuda_networks_have_room_and_learn_what_they_learn_on_a_cpu(half):
    def run(device):
        learners = population([1, 2], mode=None, device=device, bfloat16=half)
        fixed = [{k: v.to(device) for k, v in part.items()} for part in next(draws(2, 1))]
        for _ in range(20):
            learners.step(lambda _: tuple(fixed))
        return learners

    here, there = run("cpu"), run("cuda")
    assert there.mode == "graph" and everything_stored(there)["params"]["body.weight.1"].shape == (2, 2, 16, 16)
    tolerance = 0.2 if half else 0.02
    for name, value in here.params.items():
        start = torch.stack([dict(Toy(seed).named_parameters())[name].detach() for seed in (1, 2)])
        found = there.params[name].cpu()
        assert found.shape == value.shape
        assert (found - value).norm() < tolerance * (value - start).norm(), name
    for kind, stored in everything_stored(there).items():
        for name, value in stored.items():
            spare = value.clone()
            spare[(slice(None), *map(slice, here.params[name].shape[1:]))] = 0.0
            assert not spare.any(), (kind, name)


# ----------------------------------------------------------------------------- state


def test_a_saved_population_goes_on_with_the_same_bytes(tmp_path):
    def draw(generator):
        batch = {
            "x": torch.randn(3, ROWS, INPUTS, generator=generator),
            "y": torch.randn(3, ROWS, 1, generator=generator),
            "offset": torch.zeros(3),
        }
        return batch, {"x": torch.randn(3, ROWS, INPUTS, generator=generator)}

    first = population([1, 2, 3], seed=4)
    for _ in range(4):
        first.step(draw)
    save_file(first.state(), tmp_path / "state.safetensors")
    second = population([7, 8, 9], seed=5)
    second.load_state(load_file(tmp_path / "state.safetensors"))
    assert_same_state(first, second)
    for _ in range(4):
        first.step(draw)
        second.step(draw)
    assert_same_state(first, second)
    assert torch.equal(first.params["gain"], second.params["gain"])


def test_the_seed_decides_what_draw_gets():
    def first_numbers(seed):
        seen = []
        learners = population([1], seed=seed)
        drawn = next(draws(1, 1))
        learners.step(lambda generator: (seen.append(torch.rand(4, generator=generator)), drawn)[1])
        return seen[0]

    assert torch.equal(first_numbers(1), first_numbers(1))
    assert not torch.equal(first_numbers(1), first_numbers(2))


def test_initial_weights_are_those_of_the_learners_equal_or_not():
    learners = population([1, 1, 2])
    for name, value in Toy(1).named_parameters():
        assert torch.equal(learners.params[name][0], value)
        assert torch.equal(learners.params[name][1], value)
    for name, value in Toy(2).named_parameters():
        assert torch.equal(learners.params[name][2], value)
    assert not torch.equal(learners.params["body.weight.0"][0], learners.params["body.weight.0"][2])
    for name, value in learners.targets.items():
        assert torch.equal(value, learners.params[name])


def test_parameters_of_odd_size_are_aligned_and_apart_and_the_padding_stays_zero():
    learners = trained([1, 2], steps=3)
    flat = learners.state()["params"]
    used = torch.zeros(flat.shape[1], dtype=torch.int64)
    for name, value in learners.params.items():
        start = value.storage_offset()
        assert start % ALIGN == 0, name
        assert value[0].shape == dict(TEMPLATE.named_parameters())[name].shape
        used[start : start + value[0].numel()] += 1
    assert used.max() == 1
    assert used.sum() == sum(p.numel() for p in TEMPLATE.parameters())
    padding = used == 0
    assert padding.any()
    for name in ("params", "adam.first_moment", "adam.second_moment"):
        assert (learners.state()[name][:, padding] == 0).all(), name


# ----------------------------------------------------------------------------- room to spare, and half precision


def everything_stored(learners: Population) -> dict[str, dict[str, torch.Tensor]]:
    """All parameters, their moments and targets by name, with the room that they are stored with."""
    flats = {
        "params": learners._flat,
        "first": learners._first_moment,
        "second": learners._second_moment,
        "targets": learners._target_flat,
    }
    return {kind: learners._views(flat) for kind, flat in flats.items()}


def assert_near_states(one: Population, other: Population, **tolerance) -> None:
    used = torch.cat(
        [
            torch.nn.functional.pad(p[0].flatten() * 0 + 1, (0, -p[0].numel() % ALIGN))
            for p in [other.params[name] for name in other._slots]
        ]
    ).bool()
    for name, tensor in other.state().items():
        found = one.state()[name]
        assert found.shape == tensor.shape, name
        if name == "adam.steps":  # between parameters it counts or not, as it likes
            found, tensor = found[used], tensor[used]
        torch.testing.assert_close(found, tensor, **tolerance, msg=lambda m, n=name: f"{n}: {m}")


def test_room_to_spare_changes_no_result_and_stays_zero():
    roomy, exact = trained([1, 2], steps=1000, room=16), trained([1, 2], steps=1000)
    assert_near_states(roomy, exact, rtol=1e-3, atol=1e-4)
    assert {name: value.shape for name, value in roomy.params.items()} == {
        name: value.shape for name, value in exact.params.items()
    }
    for kind, stored in everything_stored(roomy).items():
        for name, value in stored.items():
            inside = (slice(None), *map(slice, exact.params[name].shape[1:]))
            spare = value.clone()
            spare[inside] = 0.0
            assert not spare.any(), (kind, name)
            assert value[inside].any(), (kind, name)
    assert everything_stored(roomy)["params"]["body.weight.1"].shape == (2, 2, 16, 16)


@pytest.mark.parametrize(("before", "after"), [(1, 16), (16, 1), (16, 16), (16, 8)])
def test_what_is_saved_with_one_room_goes_on_with_another(before, after):
    steps = list(draws(2, 8))

    def go(learners, drawn):
        for pair in drawn:
            learners.step(lambda _, pair=pair: pair)
        return learners

    whole = go(population([1, 2]), steps)
    first = go(population([1, 2], room=before), steps[:4])
    second = population([7, 8], room=after)
    second.load_state({name: value.clone() for name, value in first.state().items()})
    go(second, steps[4:])
    assert_near_states(second, whole, rtol=1e-4, atol=1e-6)


def test_with_half_losses_read_networks_in_bfloat16_and_the_rest_in_full():
    seen = {}

    def loss(params, targets, batch, noise):
        seen.update({name: value.dtype for name, value in params.items()})
        seen.update({f"target {name}": value.dtype for name, value in targets.items()})
        return toy_loss(params, targets, batch, noise)

    learners = Population([Toy(1)], loss, learning_rate=RATES, targets=["body"], bfloat16=True)
    learners.step(lambda _: next(draws(1, 1)))
    assert seen.pop("gain") == torch.float32
    assert set(seen.values()) == {torch.bfloat16}
    assert {value.dtype for value in learners.params.values()} == {torch.float32}


@pytest.mark.parametrize("room", [1, 16])
def test_half_learns_what_full_precision_learns(room):
    half, full = trained([1, 2], steps=50, bfloat16=True, room=room), trained([1, 2], steps=50)
    for name, value in full.params.items():
        start = torch.stack([dict(Toy(seed).named_parameters())[name].detach() for seed in (1, 2)])
        moved, apart = (value - start).norm(), (half.params[name] - value).norm()
        assert 0 < apart < 0.2 * moved, name


def test_copies_in_half_precision_follow_every_step_and_what_is_loaded():
    learners = trained([1, 2], steps=3, bfloat16=True, room=16)
    other = population([3, 4], bfloat16=True, room=16)
    other.load_state(learners.state())
    for one in (learners, other):
        assert torch.equal(one._low, learners._flat.bfloat16())
        assert torch.equal(one._low_targets, learners._target_flat.bfloat16())


# ----------------------------------------------------------------------------- learners that fail


def nan_row(batch, _noise):
    batch["x"][1, 2, 0] = float("nan")


def infinite_reward(batch, _noise):
    batch["y"][1, 0] = float("inf")


def infinite_loss_with_a_finite_gradient(batch, _noise):
    batch["offset"][1] = float("inf")


@pytest.mark.parametrize("spoil", [nan_row, infinite_reward, infinite_loss_with_a_finite_gradient])
def test_a_learner_that_fails_is_frozen_and_the_others_do_not_notice(spoil):
    spoiled, healthy = population([1, 2, 3]), population([1, 2, 3])
    for t, (batch, noise) in enumerate(draws(3, 8)):
        healthy.step(lambda _, drawn=(batch, noise): drawn)
        if t == 3:
            before = {name: value[1].clone() for name, value in spoiled.params.items()}
            before_targets = {name: value[1].clone() for name, value in spoiled.targets.items()}
            batch = {name: value.clone() for name, value in batch.items()}
            spoil(batch, noise)
        spoiled.step(lambda _, drawn=(batch, noise): drawn)
        assert spoiled.alive.tolist() == [True, t < 3, True]
    for name, value in spoiled.params.items():
        assert torch.equal(value[1], before[name]), name
        assert torch.equal(value[[0, 2]], healthy.params[name][[0, 2]]), name
    for name, value in spoiled.targets.items():
        assert torch.equal(value[1], before_targets[name]), name
        assert torch.equal(value[[0, 2]], healthy.targets[name][[0, 2]]), name


# ----------------------------------------------------------------------------- reading parameters


def test_call_uses_the_given_parameters_and_not_the_modules_own():
    model, other = Toy(1), Toy(2)
    x = torch.randn(4, INPUTS)
    params = dict(other.named_parameters())
    torch.testing.assert_close(call(model, params, "head", x), other.head(x))
    torch.testing.assert_close(call(model, params, "body", x), other.body(x))


def test_detached_cuts_gradients_to_the_parameters_but_not_to_the_inputs():
    model = Toy(1)
    params = dict(model.named_parameters())
    x = torch.randn(4, INPUTS, requires_grad=True)
    call(model, detached(params), "head", x).sum().backward()
    assert all(value.grad is None for value in params.values())
    assert x.grad.abs().sum() > 0
    call(model, params, "head", x).sum().backward()
    assert params["head.weight.0"].grad.abs().sum() > 0
