"""Evaluation: what logs alone can tell, which file holds which scores, bad arguments."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import omrl
from omrl.commands.evaluate import Evaluate
from omrl.data import MetaDataset
from omrl.data.manifest import Reference
from omrl.errors import OmrlError
from omrl.evaluation import command, given_context
from omrl.evaluation.logged import halves, identification, logged, noise_floor
from omrl.evaluation.summaries import context_words, summary
from omrl.evaluation.testing import evaluate
from omrl.families import FAMILIES
from omrl.runs.model import Model
from omrl.runs.records import read_scores
from omrl.runs.run import Run

SMALL = {
    "hidden": (16, 16),
    "encoder_hidden": (16, 16),
    "latent_dim": 2,
    "meta_batch": 3,
    "batch_size": 16,
    "context_size": 16,
    "log_every": 100,
    "device": "cpu",
}


def rows_of(rng, reward=0.0, episodes=4, steps=30, obs_dim=3):
    """Logs in which the first two observations are the actions, which lie in [0, 10]."""
    n = episodes * steps
    obs = rng.uniform(-1, 1, (n, obs_dim))
    return {
        "observations": obs,
        "actions": 5 + 5 * obs[:, :2],
        "rewards": reward + 0.1 * rng.normal(size=n),
        "next_observations": rng.uniform(-1, 1, (n, obs_dim)),
        "terminations": np.zeros(n, dtype=bool),
        "truncations": np.arange(n) % steps == steps - 1,
        "episode": np.repeat(np.arange(episodes), steps),
        "step": np.tile(np.arange(steps), episodes),
    }


def plants(folder, rewards, train=None, test=(), **sizes):
    """Logs of one's own: no family, and a mean reward that tells the tasks apart."""
    rng = np.random.default_rng(0)
    tasks = {f"plant-{i}": rows_of(rng, reward, **sizes) for i, reward in enumerate(rewards)}
    names = list(tasks)
    split = {"train": names if train is None else [names[i] for i in train], "test": [names[i] for i in test]}
    dataset = MetaDataset.from_arrays(tasks, action_low=[0, 0], action_high=[10, 10], varies="reward", split=split)
    return dataset.save(folder)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def run_of_plants(tmp_path_factory):
    """Three plants that are easily told apart, two seeds, trained for a little while."""
    folder = tmp_path_factory.mktemp("plants")
    plants(folder / "data", [-2, 0, 2], test=[0, 2])
    omrl.train("focal", folder / "data", folder / "run", seeds=2, seed=3, steps=200, **SMALL)
    return folder / "run"


# -- logs alone --------------------------------------------------------------------------------------------------------


def test_tasks_that_differ_are_told_apart(run_of_plants):
    found = evaluate(run_of_plants, split="train", context=20)
    assert found["protocol"] == "logged"  # there is no simulator
    assert found["identification"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert found["chance"] == pytest.approx(1 / 3)
    rows = read(run_of_plants / "logged-split-train-context-20.csv")
    assert found["context_from"] == "20 rows of the task's own log"
    metrics = ["identification", "action_error", "constant_error", "noise_floor", "q_logged", "q_policy"]
    assert list(rows[0]) == ["seed", "task", "split", "metric", "value"]
    assert [(row["metric"], row["seed"], row["task"]) for row in rows] == [
        (metric, seed, f"plant-{i}") for metric in metrics for seed in ("3", "4") for i in range(3)
    ]
    for metric in metrics:
        values = [float(row["value"]) for row in rows if row["metric"] == metric]
        assert found[metric]["value"] == pytest.approx(np.mean(values), rel=1e-4)
        assert found[metric]["low"] <= found[metric]["value"] <= found[metric]["high"]
    assert evaluate(run_of_plants, split="train", context=20) == found


def test_tasks_that_do_not_differ_are_told_apart_by_chance(run_of_plants, tmp_path):
    # Few rows and long contexts: whoever drew both contexts from the same rows would recognise them.
    view = plants(tmp_path / "data", [0.0] * 40, episodes=4, steps=3)
    found = logged(Model(Run.open(run_of_plants)), view, context=200, seed=0)
    assert found["identification"].shape == (2, 40)
    assert found["identification"].mean() < 0.1  # chance is 0.025


def test_the_noise_floor_is_what_likest_rows_differ_by():
    rng = np.random.default_rng(0)
    obs, like = rng.normal(size=(30, 3)), rng.normal(size=(50, 3))
    act, of_like = rng.uniform(-1, 1, (30, 2)), rng.uniform(-1, 1, (50, 2))
    apart = [act[i] - of_like[np.square(like - obs[i]).sum(1).argmin()] for i in range(30)]
    found = noise_floor(*map(torch.from_numpy, (obs, act, like, of_like)))
    assert float(found) == pytest.approx(np.sqrt(np.square(apart).mean() / 2))


def test_the_noise_floor_of_dense_logs_is_their_author_s_noise():
    rng = np.random.default_rng(1)
    obs, like = rng.uniform(-1, 1, (2000, 1)), rng.uniform(-1, 1, (8000, 1))
    noisy = [torch.from_numpy(np.sin(2 * x) + rng.normal(0, 0.2, x.shape)) for x in (obs, like)]
    assert float(noise_floor(torch.from_numpy(obs), noisy[0], torch.from_numpy(like), noisy[1])) == pytest.approx(
        0.2, rel=0.05
    )


@pytest.mark.parametrize(
    ("level", "family", "words"),
    [
        ("expert", "ant-fwd-back", "200 rows logged by the task's own expert"),
        ("medium", "ant-fwd-back", "200 rows logged by the task's own medium agent"),
        ("mixed", "ant-fwd-back", "200 rows logged by the task's own agents, of all levels"),
        ("mixed", None, "200 rows of the task's own log"),
    ],
)
def test_a_score_says_whose_context_it_rests_on(level, family, words):
    assert context_words(200, level, family) == words


def test_identification_by_hand():
    known = torch.tensor([[[0.0], [0.2]], [[1.0], [1.2]]])  # [T, sets, l]
    held = torch.tensor([[[0.4], [0.9]], [[0.7], [0.5]]])  # nearest to 0.1, 1.1; 1.1, 0.1
    found = identification(torch.stack([known, held], dim=1)[None])
    assert found.tolist() == [[0.5, 0.5]]


class Copies:
    """An algorithm of someone's own: it repeats the logged action, which the observation shows. It has no Q."""

    has_values = False

    def __init__(self, normalise):
        self.normalise = normalise

    def infer(self, params, context):
        return context.mean(-2)

    def act(self, params, obs, z):
        return (obs * self.normalise.std + self.normalise.mean)[..., :2]


class Sums(Copies):
    """Q is the sum of the action; a second critic says one more."""

    has_values = True

    def q(self, params, obs, z, act):
        return torch.stack([act.sum(-1), act.sum(-1) + 1.0])


def test_a_policy_that_copies_has_no_action_error(run_of_plants):
    trained = Model(Run.open(run_of_plants))
    dataset = MetaDataset.open(trained.run.config.data)
    trained.algorithm = Copies(trained.normalise)
    found = logged(trained, dataset, context=10, seed=0)
    np.testing.assert_allclose(found["action_error"], 0, atol=1e-5)
    np.testing.assert_allclose(found["constant_error"], 3**-0.5, atol=0.06)  # of uniform numbers in [-1, 1]
    assert set(found) == {"identification", "action_error", "constant_error", "noise_floor"}
    trained.algorithm = Sums(trained.normalise)
    found = logged(trained, dataset, context=10, seed=0)
    np.testing.assert_allclose(found["q_logged"], found["q_policy"], atol=1e-5)
    held = halves(dataset.rows(1)["episode"], np.random.default_rng([0, 5, 1]))[1]
    unit = dataset.rows(1)["actions"][held] / 5 - 1
    np.testing.assert_allclose(found["q_logged"][:, 1], unit.sum(-1).mean() + 0.5, atol=1e-5)


def test_actions_are_compared_on_some_rows_of_a_long_task(run_of_plants, monkeypatch):
    monkeypatch.setattr("omrl.evaluation.logged.SCORED_ROWS", 7)
    trained = Model(Run.open(run_of_plants))
    scored = []

    class Spy(Copies):
        def act(self, params, obs, z):
            scored.append(obs.shape[-2])
            return super().act(params, obs, z)

    trained.algorithm = Spy(trained.normalise)
    logged(trained, MetaDataset.open(trained.run.config.data), context=10, seed=0)
    assert set(scored) == {7}


@pytest.mark.parametrize("lengths", [[5, 3, 9, 1], [2, 2], [1, 1, 1]])
def test_halves_are_of_different_episodes(lengths):
    episode = np.repeat(np.arange(len(lengths)) * 7, lengths)
    known, held = halves(episode, np.random.default_rng(0))
    assert sorted([*known, *held]) == list(range(len(episode)))
    assert len(known) and len(held)
    assert not set(episode[known]) & set(episode[held])


def test_a_single_episode_is_cut_in_two():
    known, held = halves(np.zeros(5), np.random.default_rng(0))
    assert known.tolist() == [0, 1] and held.tolist() == [2, 3, 4]


def test_one_task_is_scored_without_being_told_apart(run_of_plants, tmp_path):
    view = plants(tmp_path / "data", [0.0], episodes=1)
    found = logged(Model(Run.open(run_of_plants)), view, context=10, seed=0)
    assert "identification" not in found and found["action_error"].shape == (2, 1)


def test_a_task_with_a_single_row_gets_one_sentence(run_of_plants, tmp_path):
    view = plants(tmp_path / "data", [0.0], episodes=1, steps=1)
    with pytest.raises(OmrlError, match="'plant-0' has a single row"):
        logged(Model(Run.open(run_of_plants)), view, context=10, seed=0)


def test_the_command_says_that_returns_cannot_be_had(run_of_plants, capsys):
    command.run(Evaluate(run_of_plants, context=20))
    shown = capsys.readouterr().out
    assert "Returns cannot be had from logs alone" in shown
    assert "tasks told apart (chance 0.500)" in " ".join(shown.split())
    assert "2 of them trained on" in " ".join(shown.split())
    command.run(Evaluate(run_of_plants, context=20, json=True))
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == "logged-context-20.csv" and found["tasks_trained_on"] == 2


# -- given context -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_of_points(tmp_path_factory):
    """A family with a simulator; its rows are made up, by two policies."""
    folder = tmp_path_factory.mktemp("points")
    family, rng = FAMILIES["point-robot-wind"], np.random.default_rng(0)
    tasks = {}
    for task in family.tasks[:5]:
        rows = rows_of(rng, obs_dim=2)
        rows["policy_step"] = np.repeat([0, 0, 100, 100], 30)
        tasks[task.name] = {**rows, "actions": rows["actions"] / 5 - 1}
    names = list(tasks)
    dataset = MetaDataset.from_arrays(
        tasks,
        action_low=[-1, -1],
        action_high=[1, 1],
        varies="dynamics",
        split={"train": names[:3], "test": names[3:]},
        params={task.name: dict(task.params) for task in family.tasks[:5]},
        family=family.name,
        horizon=family.horizon,
    )
    dataset.save(folder / "data")
    omrl.train("focal", folder / "data", folder / "run", seeds=2, steps=3, level="mixed", eval_every=0, **SMALL)
    return folder / "run"


def test_other_options_do_not_replace_the_standard_scores(run_of_points):
    standard = evaluate(run_of_points)
    assert standard["file"] == "scores.csv" and standard["protocol"] == "given-context"
    before = (run_of_points / "scores.csv").read_bytes()
    for options, name in (
        ({"split": "train"}, "scores-split-train.csv"),
        ({"context_level": "random"}, "scores-context-level-random.csv"),
        ({"context_level": "expert", "context": 50}, "scores-context-level-expert-context-50.csv"),
        ({"episodes": 2, "seed": 1}, "scores-episodes-2-seed-1.csv"),
        ({"protocol": "logged", "episodes": 2}, "logged.csv"),  # it has no episodes
    ):
        assert evaluate(run_of_points, **options)["file"] == name
        assert (run_of_points / name).is_file()
    assert (run_of_points / "scores.csv").read_bytes() == before
    assert evaluate(run_of_points, context_level="mixed") == standard  # the level of training
    assert {row["split"] for row in read(run_of_points / "scores-split-train.csv")} == {"train"}


def test_returns_in_other_units_stand_beside_them(run_of_points, monkeypatch):
    def in_pairs(rewards):
        return rewards * rewards

    known = given_context.get_family
    monkeypatch.setattr(
        given_context, "get_family", lambda name: replace(known(name), units={"return_in_pairs": in_pairs})
    )
    found = evaluate(run_of_points, seed=3)
    scores = read_scores(run_of_points / "scores-seed-3.csv")
    other = scores.units["return_in_pairs"]
    assert list(scores.units) == ["return_in_pairs"] and other.shape == scores.returns.shape
    # Rewards are minus a distance: never above zero, and their squares never below; squares sum to at least this.
    assert (scores.returns < 0).all()
    assert (other >= scores.returns**2 / known("point-robot-wind").horizon - 1e-6).all()
    assert found["return_in_pairs"]["value"] == pytest.approx(other.mean(), rel=1e-5)
    assert "return_in_pairs" not in evaluate(run_of_points, seed=3, protocol="logged")


def test_a_run_that_is_not_finished_is_said_to_be_so(run_of_points, tmp_path, capsys):
    config = json.loads((run_of_points / "config.json").read_text())
    shutil.copytree(run_of_points, tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text(json.dumps(config | {"steps": 1_000_000}))
    for folder, said in ((run_of_points, False), (tmp_path / "run", True)):
        command.run(Evaluate(folder))
        assert ("of 1,000,000 updates" in capsys.readouterr().out) is said


def test_the_summary_has_every_statistic(run_of_points, capsys):
    command.run(Evaluate(run_of_points, json=True))
    found = json.loads(capsys.readouterr().out)
    rows = read(run_of_points / "scores.csv")
    returns = {
        task: np.mean([float(r["return"]) for r in rows if r["task"] == task]) for task in {r["task"] for r in rows}
    }
    assert found["seeds"] == 2 and found["tasks"] == 2 and len(rows) == 2 * 2 * 10
    assert found["mean"]["value"] == pytest.approx(np.mean(list(returns.values())), rel=1e-5)
    assert found["worst_task"]["task"] == min(returns, key=returns.get)
    assert found["best_task"]["return"] == pytest.approx(max(returns.values()), rel=1e-5)
    assert found["iqm"] == pytest.approx(np.mean(list(returns.values())), rel=0.5)
    assert found["mean"]["low"] < found["mean"]["value"] < found["mean"]["high"]
    assert len(found["esr"]) == len(found["rms"]) == 2
    assert found["tasks_trained_on"] == 0
    command.run(Evaluate(run_of_points))
    shown = capsys.readouterr().out
    for label in (
        "mean return",
        "95 % over 2 seeds, in 2 tasks",
        "IQM",
        "worst task",
        "best task",
        "ESR",
        "scores.csv",
    ):
        assert label in shown
    assert "cannot be had" not in shown


def test_the_score_is_normalised_where_there_are_references(run_of_points):
    dataset = MetaDataset.open(Run.open(run_of_points).config.data)
    test = dataset.select(dataset.split["test"])
    scores = np.array([[1.0, 3.0]])
    assert "normalised" not in summary(scores, test, 1)

    def with_references(random, expert):
        reference = Reference(random=random, expert=expert)
        tasks = tuple(replace(entry, reference=reference) for entry in test.manifest.tasks)
        return MetaDataset(replace(test.manifest, tasks=tasks), test._files).select(dataset.split["test"])

    found = summary(scores, with_references(-2.0, 6.0), 1)
    assert found["normalised"] == pytest.approx(0.5)
    assert "normalised" not in summary(scores, with_references(1.0, 1.0), 1)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "given-context"}, "without a simulator"),
        ({"protocol": "guess"}, "--protocol is given-context or logged"),
        ({"context": 0}, "--context must be a whole number of at least 1, not 0"),
        ({"context": 2.5}, "--context must be a whole number"),
        ({"context": "many"}, "--context must be a whole number"),
        ({"episodes": 0}, "--episodes must be"),
        ({"seed": -1}, "--seed must be"),
        ({"split": "../.."}, "--split is train or test"),
        ({"context_level": "../expert"}, "no level '../expert'"),
    ],
)
def test_bad_arguments_get_one_sentence_and_write_nothing(run_of_plants, options, message):
    before = sorted(run_of_plants.iterdir())
    with pytest.raises(OmrlError, match=message) as error:
        evaluate(run_of_plants, **options)
    assert "\n" not in str(error.value)
    assert sorted(run_of_plants.iterdir()) == before


def test_data_that_moved_is_found_where_it_lies_now(run_of_plants, tmp_path):
    before = omrl.evaluate(run_of_plants)
    shutil.copytree(run_of_plants, tmp_path / "run")
    shutil.copytree(Run.open(run_of_plants).config.data, tmp_path / "elsewhere")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "data": str(tmp_path / "gone")}))
    assert omrl.evaluate(tmp_path / "run", data=str(tmp_path / "elsewhere")) == before
    # Nothing is changed by looking.
    assert Run.open(tmp_path / "run").config.data == str(tmp_path / "gone")


def test_data_that_is_gone_or_another_gets_one_sentence(run_of_plants, tmp_path):
    shutil.copytree(run_of_plants, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())

    def moved(data):
        (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "data": str(data)}))
        return tmp_path / "run"

    with pytest.raises(OmrlError, match=r"nowhere, the data of .*, is not there; --data says where it lies now"):
        evaluate(moved(tmp_path / "nowhere"))
    plants(tmp_path / "wider", [0, 1], test=[1], obs_dim=4)
    with pytest.raises(OmrlError, match=r"has observation_dim 4, but .*/run was trained with 3"):
        evaluate(moved(tmp_path / "wider"))
    plants(tmp_path / "untested", [0, 1])
    with pytest.raises(OmrlError, match="has no test tasks"):
        evaluate(moved(tmp_path / "untested"))


def test_a_run_without_a_checkpoint_gets_one_sentence(run_of_plants, tmp_path):
    shutil.copytree(run_of_plants, tmp_path / "run", ignore=shutil.ignore_patterns("latest"))
    with pytest.raises(OmrlError, match="no checkpoint yet"):
        evaluate(tmp_path / "run")
    with pytest.raises(OmrlError, match="is not a run"):
        evaluate(tmp_path)
