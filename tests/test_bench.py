"""`omrl bench update` at sizes that take no time: what is measured and written, never how long it takes."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from omrl import Algorithm, BatchSpec, MetaConfig, cli, settings
from omrl.algorithms.focal import FOCAL, FOCALConfig
from omrl.commands.bench import Update
from omrl.learning import bench
from omrl.schema import AtLeastOne, Layers


@settings
class TinyConfig(FOCALConfig):
    hidden: Layers = (8, 8)
    encoder_hidden: Layers = (8, 8)
    latent_dim: AtLeastOne = 2
    meta_batch: AtLeastOne = 3
    batch_size: AtLeastOne = 4
    context_size: AtLeastOne = 5


class Tiny(FOCAL):
    Config = TinyConfig


@settings
class FixedConfig(MetaConfig):
    meta_batch: AtLeastOne = 3
    batch_size: AtLeastOne = 4
    context_size: AtLeastOne = 5


class Fixed(Algorithm):
    """An algorithm that has no discriminator, and multiplies once in its loss."""

    Config = FixedConfig
    learning_rate = {"": 1e-3}  # noqa: RUF012

    def Nets(obs_dim, act_dim, config, generator):
        return torch.nn.Linear(obs_dim, act_dim, bias=False)

    def loss(self, params, targets, batch, noise):
        return (batch["obs"].flatten(0, 1) @ params["weight"].T).square().mean(), {}

    def infer(self, params, context):
        raise NotImplementedError

    act = infer


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(bench, "TASKS", 4)
    monkeypatch.setattr(bench, "ROWS", 50)
    monkeypatch.setattr(bench, "LONG", 1)  # compiling would take a minute


QUICK = {"repeats": 2, "seconds": 0.0, "device": "cpu"}
FAST = ["--repeats", "2", "--seconds", "0", "--device", "cpu"]


def test_every_combination_has_a_row_with_its_times(capsys):
    found = bench.update(Update(algorithms=(f"{__name__}:Tiny",), seeds=(1, 2), regulariser_steps=(1, 3), **QUICK))
    assert [(row["seeds"], row["regulariser_steps"]) for row in found["updates"]] == [(1, 1), (2, 1), (1, 3), (2, 3)]
    for row in found["updates"]:
        assert row["mode"] == "eager" and row["algorithm"] == f"{__name__}:Tiny"
        assert row["ms"] > 0 and row["products_ms"] > 0 and row["first_update_s"] > 0
        assert row["hyperparameters"]["regulariser_steps"] == row["regulariser_steps"]
    assert "CPU threads" in found["hardware"] and found["torch"] == torch.__version__
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all("ms per update" in line and "matrix products alone" in line for line in lines)
    assert "2 seeds, 3 discriminator steps" in lines[3]


def test_an_algorithm_without_a_discriminator_has_no_steps_of_it(capsys):
    found = bench.update(Update(algorithms=(f"{__name__}:Fixed",), seeds=(2,), **QUICK))
    assert [row["regulariser_steps"] for row in found["updates"]] == [None]
    assert "discriminator" not in capsys.readouterr().out


def test_half_precision_is_that_of_the_algorithm(capsys):
    for half in (False, True):
        found = bench.update(Update(algorithms=(f"{__name__}:Tiny",), seeds=(1,), bfloat16=half, **QUICK))
        assert found["updates"][0]["hyperparameters"]["bfloat16"] is half


def test_products_are_those_of_one_update():
    weight = torch.randn(3, 4, 5, requires_grad=True)
    flat = torch.randn(4, 6, requires_grad=True)

    def step():
        x = torch.randn(3, 2, 4) @ weight  # a batched product
        y = torch.addmm(torch.zeros(2, 6), torch.randn(2, 4), flat)  # a product with a sum
        (x.exp().sum() + y.tanh().sum()).backward()  # and one for each gradient

    found = bench._products(step)
    assert {operation for operation, _ in found} <= {torch.mm, torch.bmm}
    shapes = [tuple(tuple(x.shape) for x in operands) for _, operands in found]
    assert sorted(shapes, key=str) == sorted(
        [((3, 2, 4), (3, 4, 5)), ((2, 4), (4, 6)), ((3, 4, 2), (3, 2, 5)), ((4, 2), (2, 6))], key=str
    )
    bench._replay(found)  # they can be run again
    assert all(torch.isfinite(x).all() for _, operands in found for x in operands)


def test_more_discriminator_steps_have_more_products():
    counts = []
    record = bench._products
    for regulariser_steps in (1, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench, "_products", lambda step: (found := record(step), counts.append(len(found)))[0])
            bench.update(
                Update(algorithms=(f"{__name__}:Tiny",), seeds=(1,), regulariser_steps=(regulariser_steps,), **QUICK)
            )
    assert 0 < counts[0] < counts[1]


def test_the_data_has_the_shapes_of_the_family():
    sampler = bench._sampler(TinyConfig(), BatchSpec(context_sets=2), 2, bench._rows("cpu"))
    batch = sampler.draw(torch.Generator().manual_seed(0))
    assert batch["obs"].shape == (2, 3, 4, 20) and batch["act"].shape == (2, 3, 4, 6)
    assert batch["context"].shape == (2, 3, 2, 5, 20 + 6 + 1 + 20)
    assert batch["act"].abs().max() <= 1


def test_the_command_writes_its_figures(tmp_path, monkeypatch, capsys):
    words = ["--algorithms", f"{__name__}:Tiny", "--seeds", "1", "--json", str(tmp_path / "update.json"), *FAST]
    monkeypatch.setattr(sys, "argv", ["omrl", "bench", "update", *words])
    cli.main()
    (row,) = json.loads((tmp_path / "update.json").read_text())["updates"]
    assert row["seeds"] == 1 and row["ms"] > 0 and row["build_s"] > 0 and row["first_update_s"] > 0
    assert f"{row['ms']:.2f} ms per update" in capsys.readouterr().out


def test_an_algorithm_that_is_not_there_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["omrl", "bench", "update", "--algorithms", "nope", *FAST])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("error: There is no algorithm 'nope'")
