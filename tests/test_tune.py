"""The trials that algorithms are compared by: as many for each, and each learner with its own trial alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import tune

from omrl import training
from omrl.algorithms import read_preset
from omrl.data import MetaDataset
from omrl.families import FAMILIES
from omrl.learning import training as learning
from omrl.runs.run import Run
from training_helpers import walks

ROOT = Path(__file__).resolve().parents[1]

SIZES = {
    "focal": {"hidden": (8, 8), "encoder_hidden": (8, 8)},
    "batch-pearl": {"hidden": (8, 8), "encoder_hidden": (8, 8)},
    "contextual-bcq": dict.fromkeys(("actor_hidden", "critic_hidden", "vae_hidden", "encoder_hidden"), (8, 8)),
    "contextual-bc": {"hidden": (8, 8), "encoder_hidden": (8, 8)},
}
SMALL = {"batch_size": 8, "context_size": 4, "meta_batch": 3}


@pytest.fixture(scope="module")
def winds(tmp_path_factory):
    return walks(FAMILIES["point-robot-wind"], tmp_path_factory.mktemp("winds") / "data")


def learner(folder, data, algorithm, preset, seeds, **changes):
    """Learners of small networks that have not learnt anything yet."""
    start = training.Train(algorithm, data, folder, preset=preset)
    train, config = training.starting_point(start)
    config = replace(config, **SIZES[algorithm], **SMALL, **changes)
    dataset = MetaDataset.open(data)
    train = replace(train, seeds=seeds, level="mixed")
    run = Run.create(folder, learning.run_config(train, config, dataset), {})
    return learning.Training(run, dataset.select(dataset.split["train"]).to("cpu"), "cpu")


def test_every_row_has_six_trials_over_two_numbers_and_a_preset_of_equal_length_for_every_family():
    for algorithm, preset, trials in tune.ROWS.values():
        assert len({json.dumps(trial) for trial in trials}) == len(trials) == 6
        assert len(tune.axes(trials)) == 2
        steps = {read_preset(algorithm, preset, family)["steps"] for family in FAMILIES}
        assert steps == {20_000}


def test_a_choice_on_the_edge_of_what_was_tried_gets_one_more_step_beyond_it():
    trials = tune.with_rates(tune.grid(alpha=(1.0, 10.0, 100.0), lr=(1e-3, 2e-4)), "actor_lr", "critic_lr")
    assert tune.axes(trials) == [(("alpha",), [1.0, 10.0, 100.0]), (("actor_lr", "critic_lr"), [2e-4, 1e-3])]
    inside = {"alpha": 10.0, "actor_lr": 1e-3, "critic_lr": 1e-3}
    assert tune.beyond(trials, inside) == [
        {**inside, "actor_lr": pytest.approx(5e-3), "critic_lr": pytest.approx(5e-3)}
    ]
    corner = {"alpha": 100.0, "actor_lr": 2e-4, "critic_lr": 2e-4}
    assert tune.beyond(trials, corner) == [
        {**corner, "alpha": pytest.approx(1000.0)},
        {**corner, "actor_lr": pytest.approx(4e-5), "critic_lr": pytest.approx(4e-5)},
    ]


@pytest.mark.parametrize("row", [row for row in tune.ROWS if row != "MBML"])
def test_a_learner_of_a_trial_is_one_with_these_hyperparameters(row, winds, tmp_path):
    algorithm, preset, trials = tune.ROWS[row]
    chosen = [trials[0], trials[-1]]
    varied = learner(tmp_path / "varied", winds, algorithm, preset, len(chosen))
    tune.vary(varied, chosen, "cpu")
    context = torch.randn(2, 5, 4, 7)
    for _ in range(4):
        varied.population.step(varied._draw)
    for i, trial in enumerate(chosen):
        alone = learner(tmp_path / str(i), winds, algorithm, preset, len(chosen), **trial)
        for _ in range(4):
            alone.population.step(alone._draw)
        for name, value in alone.population.params.items():
            torch.testing.assert_close(varied.population.params[name][i], value[i], msg=name)
        both = [
            one.algorithm.act(one.params(i), context[0, :, 0, :2], one.algorithm.infer(one.params(i), context[0]))
            for one in (varied, alone)
        ]
        torch.testing.assert_close(*both)
        # Not a hyperparameter that makes no difference.
        other = learner(tmp_path / f"not {i}", winds, algorithm, preset, len(chosen), **chosen[1 - i])
        for _ in range(4):
            other.population.step(other._draw)
        moved = [name for name, value in other.population.params.items() if name != "alpha"]
        assert any(
            not torch.allclose(other.population.params[name][i], varied.population.params[name][i]) for name in moved
        )


def test_trials_of_mbml_share_their_first_stage(winds, monkeypatch):
    sizes = dict.fromkeys(("actor_hidden", "critic_hidden", "decoder_hidden", "encoder_hidden"), (8, 8))
    first = {"teacher_hidden": (8,), "teacher_vae_hidden": (8,), "reward_hidden": (8,), "next_obs_hidden": (8,)}
    steps = {"teacher_steps": 2, "reward_steps": 2, "next_obs_steps": 2, "members": 2}

    def small(args, start=training.starting_point):
        train, config = start(args)
        return replace(train, level="mixed"), replace(config, **sizes, **first, **steps, **SMALL)

    learnt = []

    def once(stages, run, *rest, learn=tune.learn_stages):
        found = learn(stages, run, *rest)
        learnt.append({name: len(value) for name, value in found.items()})
        return found

    monkeypatch.setattr(training, "starting_point", small)
    monkeypatch.setattr(tune, "learn_stages", once)
    found = tune.measure(tune.Args(winds, Path(), steps=2, episodes=1, device="cpu"), "MBML")
    tried = tune.ROWS["MBML"][2]
    best = max(found[:6], key=lambda one: one["return"])["trial"]
    assert [one["trial"] for one in found] == [*tried, *tune.beyond(tried, best)]
    assert len({one["return"] for one in found}) == len(found) > 6 and {one["held_out"] for one in found} == {3}
    assert {one["seeds"] for one in found[6:]} == {6 // len(found[6:])}
    (one_run,) = learnt
    assert set(one_run.values()) == {1}  # a single seed's stages


def published(name):
    """The trials of a file by family and row."""
    found = {}
    for one in json.loads((ROOT / "results" / "tuning" / f"{name}.json").read_text()):
        found.setdefault((one["family"], one["row"]), []).append(one["trial"])
    return found


def test_all_rows_of_a_family_had_as_many_trials():
    first = published("tuning")
    assert set(first) == {(family, row) for family, _ in first for _, row in first}
    assert {len(trials) for trials in first.values()} == {6}


def test_nothing_lies_beyond_zero():
    trials = tune.grid(alpha=(0.0, 10.0, 100.0), actor_lr=(1e-3, 3e-4, 1e-4))
    assert tune.beyond(trials, {"alpha": 0.0, "actor_lr": 3e-4}) == []
