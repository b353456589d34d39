"""MBML's two stages, and runs from end to end."""

from __future__ import annotations

import shutil
from contextlib import closing
from functools import partial

import numpy as np
import pytest
import torch
from references import A, B, S
from safetensors.torch import load_file
from test_mbml import TINY, mbml
from torch.func import functional_call

import omrl
from cut_helpers import Cut
from omrl.algorithms import read_preset
from omrl.algorithms.algorithm import BatchSpec
from omrl.algorithms.mbml import MBMLConfig
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.families import FAMILIES
from omrl.learning import loop, stages
from omrl.learning.engine import Population
from omrl.learning.nets import MLP
from omrl.learning.sampling import Normalisation, OnDisk, make_sampler
from training_helpers import metrics, walks

STAGES = {"teacher_steps": 6, "reward_steps": 6, "next_obs_steps": 6}
LOOP = {"seeds": 2, "steps": 12, "level": "mixed", "log_every": 4, "save_every": 5, "eval_every": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return walks(FAMILIES["sparse-point-robot"], tmp_path_factory.mktemp("data") / "walks")


@pytest.fixture(scope="module")
def windy(tmp_path_factory):
    return walks(FAMILIES["point-robot-wind"], tmp_path_factory.mktemp("data") / "windy")


@pytest.mark.parametrize("stream", [False, True])
def test_every_learner_gets_rows_of_its_own_task_in_order(data, tmp_path, stream):
    logged = MetaDataset.open(data)
    tasks = {task.name: {**logged.rows(task.name), "rewards": np.full(120, i)} for i, task in enumerate(logged.tasks)}
    numbered = MetaDataset.from_arrays(tasks, action_low=[-1, -1], action_high=[1, 1], varies="reward")
    numbered.save(tmp_path / "numbered")
    view = MetaDataset.open(tmp_path / "numbered")
    rows = OnDisk(view) if stream else view.to("cpu")
    sizes = {"learners": 2, "meta_batch": 5, "batch_size": 7, "context_size": 0}
    with closing(make_sampler(rows, Normalisation.of(rows), spec=BatchSpec(), **sizes)) as sampler:
        sampler.prepare(0)
        batch = sampler.draw(torch.Generator().manual_seed(0))
    assert (batch["task"].float() == batch["rew"][..., 0]).all()
    assert (batch["task"] != torch.arange(5)).any()
    batch = stages.by_task(batch)
    assert batch["rew"].shape == (10, 7)
    assert (batch["rew"] == torch.arange(5.0).repeat(2)[:, None]).all()
    assert not torch.equal(batch["obs"][0], batch["obs"][5])  # two seeds draw rows of their own


def stored(seeds, tasks):
    """What stages could end with: networks of two copies, and something that is no network."""
    generator = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(seeds, tasks, *shape, generator=generator)

    of_network = {"rew_model.weight.0": normal(2, 5, 6), "rew_model.bias.0": normal(2, 1, 6)}
    of_network |= {"rew_model.weight.1": normal(2, 6, 3), "rew_model.bias.1": normal(2, 1, 3)}
    return {**of_network, "centre": normal(7), "other.weight.0": normal(4, 4), "visits": normal(1).long()}


@pytest.mark.parametrize(("seeds", "room"), [(2, 1), (2, 16), (1, 16)])
def test_what_stages_ended_with_is_there_for_the_tasks_of_a_batch(seeds, room):
    tensors, tasks = stored(seeds, 4), torch.tensor([[3, 0, 1], [2, 2, 0]])
    found = stages.Frozen(tensors, room=room).of(tasks)
    for name, value in stages.of_tasks({n: v.expand(2, *v.shape[1:]) for n, v in tensors.items()}, tasks).items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name][(..., *map(slice, value.shape[2:]))], value)
        if name.startswith("rew_model."):  # the rest is room, and zero
            assert float(found[name].abs().sum()) == pytest.approx(float(value.abs().sum()), rel=1e-5)
        else:
            assert found[name].shape == value.shape
    assert (found["rew_model.weight.0"].shape[-2:] == (16, 16)) == (room == 16)
    net = MLP(5, [6], 3, generator=torch.Generator(), copies=2)
    rows = torch.randn(2, 3, 1, 9, 5, generator=torch.Generator().manual_seed(4))
    answers = [
        functional_call(net, {n.removeprefix("rew_model."): v for n, v in own.items() if "rew_" in n}, (rows,))
        for own in (found, stages.of_tasks({n: v.expand(2, *v.shape[1:]) for n, v in tensors.items()}, tasks))
    ]
    torch.testing.assert_close(*answers)


def test_networks_that_stages_ended_with_are_read_in_bfloat16_and_nothing_else():
    tensors, tasks = stored(2, 4), torch.tensor([[3, 0, 1], [2, 2, 0]])
    found = stages.Frozen(tensors, bfloat16=True).of(tasks)
    low = {name for name, value in found.items() if value.dtype == torch.bfloat16}
    assert low == {name for name in tensors if name.startswith("rew_model.")}
    whole = stages.of_tasks(tensors, tasks)
    for name in tensors:
        assert torch.equal(found[name], whole[name].to(found[name].dtype))


def test_teachers_learn_at_once_what_each_would_learn_alone():
    stage = mbml().stages("reward")[0]
    generators = [torch.Generator().manual_seed(i) for i in range(3)]
    learners = [stage.build(generator) for generator in generators]
    rng = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(5):
        batch = {
            "obs": torch.randn(3, B, S, generator=rng),
            "act": torch.rand(3, B, A, generator=rng) * 2 - 1,
            "rew": torch.randn(3, B, generator=rng),
            "next_obs": torch.randn(3, B, S, generator=rng),
            "term": torch.zeros(3, B),
        }
        batches.append((batch, stage.noise(batch, rng)))

    def trained(of):
        options = {"learning_rate": {"": 1e-2}, "targets": stage.targets}
        population = Population([learners[i] for i in of], stage.loss, **options)
        for batch in batches:
            population.step(lambda _, batch=batch: tuple({k: v[of] for k, v in part.items()} for part in batch))
        return population.params

    together = trained([0, 1, 2])
    for i in range(3):
        for name, value in trained([i]).items():
            torch.testing.assert_close(value[0], together[name][i], rtol=1e-4, atol=1e-6)


def mbml_run(data, out, **changes):
    """A run of a few updates of tiny networks."""
    return omrl.train("mbml", data, out, **{**TINY, **STAGES, **LOOP, **changes})


def test_ensembles_learn_rewards_and_next_states(windy, tmp_path):
    changes = {"reward_steps": 200, "next_obs_steps": 200, "model_lr": 1e-2, "model_batch_size": 32}
    mbml_run(windy, tmp_path / "run", **changes, seeds=1, steps=1, log_every=10)
    for stage in ("reward-model", "next-state-model"):
        rows = [row for row in metrics(tmp_path / "run" / "stages" / stage) if row["name"] == "error"]
        first, last = (np.mean([float(r["value"]) for r in rows if r["step"] == step]) for step in ("10", "200"))
        assert last < 0.5 * first


# -- runs --------------------------------------------------------------------------------------------------------------


FILES = (
    "checkpoints/step-0000012.safetensors",
    "metrics.csv",
    "config.json",
    *(f"stages/{stage}/metrics.csv" for stage in ("teacher", "reward-model", "next-state-model")),
    *(f"stages/{stage}/result.safetensors" for stage in ("teacher", "reward-model", "next-state-model")),
)


def test_in_a_run_in_bfloat16_the_first_stage_computes_in_it_too(windy, tmp_path, monkeypatch):
    low = []
    honest = stages.Population

    def seen(*given, **named):
        low.append(named["bfloat16"])
        return honest(*given, **named)

    monkeypatch.setattr(stages, "Population", seen)
    changes = {"teacher_steps": 60, "reward_steps": 60, "next_obs_steps": 60, "teacher_lr": 1e-2, "model_lr": 1e-2}
    for name in ("full", "low"):
        mbml_run(windy, tmp_path / name, **changes, bfloat16=name == "low")
    assert low == [False] * 3 + [True] * 3
    for stage in ("teacher", "reward-model", "next-state-model"):
        ends = [metrics(tmp_path / name / "stages" / stage) for name in ("full", "low")]
        wanted = {"teacher": "vae_loss"}.get(stage, "error")
        full, half = ([float(row["value"]) for row in rows if row["name"] == wanted] for rows in ends)
        np.testing.assert_allclose(half, full, rtol=0.1)
        assert half[-1] < half[0]  # it learns
        kept = load_file(tmp_path / "low" / "stages" / stage / stages.RESULT)
        assert all(value.dtype != torch.bfloat16 for value in kept.values())


def cut_at(monkeypatch, step):
    """Make the population's step of that number fail, counted over all stages."""
    original, calls = Population.step, []

    def failing(self, draw):
        calls.append(1)
        if len(calls) == step:
            raise Cut
        return original(self, draw)

    monkeypatch.setattr(Population, "step", failing)


@pytest.fixture(scope="module")
def whole(windy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    mbml_run(windy, folder)
    return folder


@pytest.mark.parametrize("checkpoint_seconds", [0.0, 300.0])
@pytest.mark.parametrize("step", [4, 7, 10, 13, 18, 20, 26])
def test_a_run_cut_in_any_stage_ends_with_the_same_bytes(windy, whole, tmp_path, monkeypatch, step, checkpoint_seconds):
    monkeypatch.setattr(loop, "learn", partial(loop.learn, save_seconds=checkpoint_seconds))
    with monkeypatch.context() as cut, pytest.raises(Cut):
        cut_at(cut, step)
        mbml_run(windy, tmp_path / "run")
    mbml_run(windy, tmp_path / "run")
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes(), name
    assert not list((tmp_path / "run").rglob("checkpoint.safetensors"))


def test_a_finished_stage_is_not_learnt_again(windy, tmp_path, monkeypatch):
    with monkeypatch.context() as cut, pytest.raises(Cut):
        cut_at(cut, 19)  # the first update after three stages
        mbml_run(windy, tmp_path / "run")
    result = tmp_path / "run" / "stages" / "teacher" / "result.safetensors"
    before = result.stat().st_mtime_ns
    monkeypatch.setattr(stages, "_learn", lambda *_: pytest.fail("it was learnt"))
    mbml_run(windy, tmp_path / "run")
    assert result.stat().st_mtime_ns == before


def test_a_trained_run_needs_nothing_of_the_first_stage(windy, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "stages")
    dataset = MetaDataset.open(windy)
    rows = dataset.sample(dataset.split["test"][0], 10, np.random.default_rng(0))
    acts = [omrl.load(folder).adapt(rows, seed=1).act(np.zeros((3, 2))) for folder in (whole, tmp_path / "run")]
    assert acts[0].shape == (3, 2) and np.abs(acts[0]).max() <= 1
    np.testing.assert_array_equal(*acts)
    found = omrl.evaluate(tmp_path / "run", context=10, episodes=2)
    assert found["tasks"] == 2 and np.isfinite(found["mean"]["value"])
    mbml_run(windy, tmp_path / "run")  # finished: nothing to learn, and so no stage either
    assert not (tmp_path / "run" / "stages").exists()


def test_rewards_alone_are_relabelled_where_only_they_vary(data, tmp_path):
    mbml_run(data, tmp_path / "run")
    assert {path.name for path in (tmp_path / "run" / "stages").iterdir()} == {"teacher", "reward-model"}


def test_data_that_stay_on_disk_train_too(windy, tmp_path):
    mbml_run(windy, tmp_path / "run", stream=True)
    values = [float(row["value"]) for row in metrics(tmp_path / "run")]
    assert np.isfinite(values).all()


def test_a_run_without_a_row_that_qualifies_stays_finite(windy, tmp_path):
    mbml_run(windy, tmp_path / "run", reward_std=0.0)
    rows = metrics(tmp_path / "run")
    assert all(np.isfinite(float(row["value"])) for row in rows)
    assert {row["value"] for row in rows if row["name"] in ("relabelled", "triplet_loss")} == {"0"}
    assert {row["value"] for row in rows if row["name"] == "alive"} == {"1"}


def test_a_damaged_stage_is_named(windy, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "checkpoints").mkdir()
    (tmp_path / "run" / "stages" / "teacher" / "result.safetensors").write_bytes(b"half a file")
    with pytest.raises(OmrlError, match=r"teacher/result.safetensors is damaged"):
        mbml_run(windy, tmp_path / "run")


def test_a_teacher_that_fails_is_told_of(windy, tmp_path, capsys):
    with pytest.raises(OmrlError, match="is left at update"):  # what learns from it fails too
        mbml_run(windy, tmp_path / "run", teacher_lr=1e30)
    assert "met a number that is not finite" in capsys.readouterr().err


@pytest.mark.parametrize("preset", ["paper", "original"])
@pytest.mark.parametrize("family", FAMILIES)
def test_there_are_presets_for_every_family(preset, family):
    values = read_preset("mbml", preset, family)
    values = {name: value for name, value in values.items() if name != "level"}
    config = MBMLConfig(**values)
    focal = read_preset("focal", "paper", family)
    assert config.gamma == focal.get("gamma", 0.99) and config.dense_reward == focal.get("dense_reward", False)
    if preset == "original":
        depths = [len(hidden) for hidden in (config.critic_hidden, config.actor_hidden, config.decoder_hidden)]
        assert depths == [9, 8, 7] and set(config.critic_hidden) == {1024}
    else:
        assert config.critic_hidden == config.actor_hidden == config.decoder_hidden == (300, 300, 300)
