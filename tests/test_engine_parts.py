"""Steps of one child before the step of all, compiled ones, states of other devices."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch
from torch._inductor.exc import InductorError

from omrl.learning import compiling
from omrl.learning.engine import Population, call
from test_engine import INPUTS, RATES, ROWS, TAU, TEMPLATE, Toy, assert_close, draws, population, row, toy_loss

EXTRA = 2  # steps of one child before each step of all


def head_loss(params, targets, batch, noise):
    """Reads other parameters without detaching them: the engine has to keep them still."""
    error = (call(TEMPLATE, params, "head", batch["x"]) * params["gain"] - batch["y"]).square().mean()
    return error + batch["offset"], {}


def body_loss(params, targets, batch, noise):
    """Trains the child that has targets, which must not move with it."""
    wanted = 0.5 * call(TEMPLATE, targets, "body", batch["x"]).amin(0) + params["gain"]
    return (call(TEMPLATE, params, "body", batch["x"]) - wanted).square().mean() + noise["x"].mean(), {
        "own": wanted.sum()
    }


LOSSES = {"head": head_loss, "body": body_loss}


def stepped(seeds, child, steps, **options):
    learners = population(seeds, child_steps=[(child, LOSSES[child])] * EXTRA, **options)
    fresh = draws(len(seeds), steps * (EXTRA + 1))
    for _ in range(steps):
        learners.step(lambda _: next(fresh))
    return learners


def plainly(seed, index, learners, child, steps):
    """The same as anyone would write it: two optimisers of torch's, one of which steps more often."""
    model = Toy(seed)
    target = copy.deepcopy(model)
    own = {name: p for name, p in model.named_parameters() if name.startswith(child)}
    rest = {name: p for name, p in model.named_parameters() if name not in own}

    def adam(params):
        rates = {name: RATES[max((key for key in RATES if name.startswith(key)), key=len)] for name in params}
        return torch.optim.Adam([{"params": [p], "lr": rates[name]} for name, p in params.items()])

    optimisers = {"own": adam(own), "rest": adam(rest)}
    fresh = draws(learners, steps * (EXTRA + 1))

    def step(loss, *moving):
        batch, noise = next(fresh)
        targets = {name: p.detach() for name, p in target.named_parameters()}
        model.zero_grad()
        loss(dict(model.named_parameters()), targets, row(batch, index), row(noise, index))[0].backward()
        for name in moving:
            optimisers[name].step()

    for _ in range(steps):
        for _ in range(EXTRA):
            step(LOSSES[child], "own")
        step(toy_loss, "own", "rest")
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, TAU)
    return model, target


@pytest.mark.parametrize("child", LOSSES)
def test_extra_steps_of_a_child_are_those_of_an_adam_of_its_own(child):
    seeds, steps = [5, 6], 7
    together = stepped(seeds, child, steps)
    for i, seed in enumerate(seeds):
        model, target = plainly(seed, i, len(seeds), child, steps)
        for name, value in model.named_parameters():
            assert_close(together.params[name][i], value.detach())
        for name, value in target.body.named_parameters():
            assert_close(together.targets[f"body.{name}"][i], value.detach())
    count = together.state()["adam.steps"]
    for name, value in together.params.items():
        start = value.storage_offset()
        wanted = steps * (EXTRA + 1 if name.startswith(child) else 1)
        assert (count[start : start + value[0].numel()] == wanted).all(), name


def test_steps_come_in_their_order_each_with_a_draw_of_its_own_and_the_last_one_is_reported():
    seen, drawn = [], []

    def noted(name, loss):
        def inner(params, targets, batch, noise):
            seen.append((name, batch["mark"]))
            return loss(params, targets, batch, noise)[0], {"from": batch["mark"]}

        return inner

    learners = Population(
        [Toy(1), Toy(2)],
        noted("all", toy_loss),
        learning_rate=RATES,
        targets=["body"],
        child_steps=[("head", noted("head", head_loss)), ("body", noted("body", body_loss))],
    )

    def draw(generator):
        batch, noise = next(draws(2, 1, seed=len(drawn)))
        drawn.append(len(drawn))
        return {**batch, "mark": torch.full((2,), float(drawn[-1]))}, noise

    info = learners.step(draw)
    assert [name for name, _ in seen] == ["head", "body", "all"]
    assert drawn == [0, 1, 2]
    assert info["from"].tolist() == [2.0, 2.0]
    assert set(info) == {"from"}


def test_a_child_that_fails_in_its_own_step_freezes_the_learner():
    spoiled, healthy = (population([1, 2], child_steps=[("head", head_loss)]) for _ in range(2))
    for t, (batch, noise) in enumerate(draws(2, 6)):
        before = {name: value.clone() for name, value in spoiled.params.items()}
        turn = []

        def draw(_, t=t, batch=batch, noise=noise, turn=turn):
            turn.append(1)
            if t == 3 and len(turn) == 1:
                return {**batch, "offset": torch.tensor([0.0, float("inf")])}, noise
            return batch, noise

        healthy.step(lambda _, drawn=(batch, noise): drawn)
        spoiled.step(draw)
        assert spoiled.alive.tolist() == [True, t < 3]
        for name, value in spoiled.params.items():
            assert torch.equal(value[1], before[name][1]) == (t >= 3), name
            assert torch.equal(value[0], healthy.params[name][0]), name


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on CPU")
@pytest.mark.parametrize("room", [1, 16])
def test_compiled_parts_equal_eager_ones(room):
    eager, compiled = (stepped([1, 2], "body", 3, mode=mode, room=room) for mode in ("eager", "compiled"))
    for name, tensor in eager.state().items():
        torch.testing.assert_close(compiled.state()[name], tensor, rtol=1e-4, atol=1e-6)


def test_where_the_compiler_fails_parts_run_as_they_are(monkeypatch):
    def fail(*_):
        raise InductorError(ValueError("no room"), None)

    monkeypatch.setattr(compiling, "compile_traced", fail)
    eager, compiled = (stepped([1, 2], "head", 3, mode=mode) for mode in ("eager", "compiled"))
    for name, tensor in eager.state().items():
        assert torch.equal(compiled.state()[name], tensor), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_graph_of_several_parts_equals_eager():
    def run(mode):
        learners = population([1, 2], child_steps=[("head", head_loss)] * EXTRA, mode=mode, device="cuda", seed=9)
        data = {k: v.cuda() for k, v in next(draws(2, 1))[0].items()}

        def draw(generator):
            rows = torch.randint(ROWS, (2, ROWS, 1), generator=generator, device="cuda")
            batch = {**data, "x": data["x"].gather(1, rows.expand(-1, -1, INPUTS)), "y": data["y"].gather(1, rows)}
            return batch, {"x": torch.randn(2, ROWS, INPUTS, generator=generator, device="cuda")}

        for _ in range(6):
            learners.step(draw)
        return learners.state()

    eager = run("eager")
    for name, tensor in run("graph").items():
        torch.testing.assert_close(tensor, eager[name], rtol=2e-2, atol=2e-3)


# ----------------------------------------------------------------------------- states of other devices


def test_a_state_of_another_kind_of_device_is_loaded_without_its_random_numbers():
    first, second = population([1, 2], seed=4), population([7, 8], seed=5)
    for drawn in draws(2, 3):
        first.step(lambda _, drawn=drawn: drawn)
    untouched = second.generator.get_state()
    state = {name: value.clone() for name, value in first.state().items()}
    state["generator"] = torch.zeros(16, dtype=torch.uint8)  # as long as a GPU's
    second.load_state(state)
    for name, value in first.state().items():
        if name == "generator":
            assert torch.equal(second.generator.get_state(), untouched)
        else:
            assert torch.equal(second.state()[name], value), name
    for drawn in draws(2, 3, seed=1):
        first.step(lambda _, drawn=drawn: drawn)
        second.step(lambda _, drawn=drawn: drawn)
    assert torch.equal(first.state()["params"], second.state()["params"])


def test_a_call_needs_all_parameters_of_the_network():
    module, inputs = torch.nn.ModuleDict({"net": torch.nn.Linear(2, 1)}), torch.ones(3, 2)
    params = {name: torch.zeros_like(value) for name, value in module.named_parameters()}
    assert torch.equal(call(module, params, "net", inputs), torch.zeros(3, 1))
    for missing in ({}, {"net.weight": params["net.weight"]}):
        with pytest.raises(RuntimeError, match=r"[Mm]issing"):
            call(module, missing, "net", inputs)
