"""Training end to end on a small dataset: the run folder, resuming, evaluation, bad arguments."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import omrl
from omrl import evaluation
from omrl.data import MetaDataset, Tensors
from omrl.errors import OmrlError
from omrl.families import FAMILIES
from omrl.run import Run
from omrl.sampling import MetaSampler, Normalisation, next_actions
from omrl.training import Learner, Train, Trained, run

SMALL = ("hidden=8,8", "encoder_hidden=8,8", "batch_size=8", "context_size=4", "meta_batch=3", "latent_dim=2")


def rollout(family, task, rng, episodes=4, steps=30):
    """Random walks of a task, logged as the format asks."""
    simulator = family.simulator([task] * episodes)
    simulator.reset(range(episodes), [rng] * episodes)
    log = []
    for _ in range(steps):
        obs, act = simulator.observe(), rng.uniform(-1, 1, (episodes, 2)).astype(np.float32)
        step = simulator.step(act)
        row = {"observations": obs, "actions": act, "rewards": step.rewards, "next_observations": step.obs}
        log.append({**row, **step.extras})
    stacked = {name: np.stack([row[name] for row in log], axis=1) for name in log[0]}  # [episode, step, ...]
    return {
        **{name: values.reshape(episodes * steps, *values.shape[2:]) for name, values in stacked.items()},
        "terminations": np.zeros(episodes * steps, dtype=bool),
        "truncations": np.arange(episodes * steps) % steps == steps - 1,
        "episode": np.repeat(np.arange(episodes), steps),
        "step": np.tile(np.arange(steps), episodes),
    }


def walks(family, folder):
    """A dataset of five tasks, two of them for testing."""
    rng = np.random.default_rng(0)
    tasks = family.tasks[:: len(family.tasks) // 5][:5]
    names = [task.name for task in tasks]
    dataset = MetaDataset.from_arrays(
        {task.name: rollout(family, task, rng) for task in tasks},
        action_low=[-1, -1],
        action_high=[1, 1],
        varies=family.varies,
        split={"train": names[:3], "test": names[3:]},
        params={task.name: dict(task.params) for task in tasks},
        family=family.name,
        horizon=family.horizon,
    )
    dataset.save(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return walks(FAMILIES["sparse-point-robot"], tmp_path_factory.mktemp("data") / "walks")


def arguments(data, out, **changes):
    base = Train("focal", data, out, set=SMALL, seeds=2, steps=12, level="mixed", log_every=4, save_every=5)
    return replace(base, **changes)


def test_a_run_is_a_folder_that_a_person_can_open(data, tmp_path):
    run(arguments(data, tmp_path / "run"))
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["hyperparameters"]["gamma"] == 0.9  # the paper's preset of the family
    assert config["hyperparameters"]["hidden"] == [8, 8]  # what --set changed
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {int(row["step"]) for row in rows} == {4, 8, 12}
    assert {row["seed"] for row in rows} == {"0", "1"}
    assert all(int(row["transitions"]) == int(row["step"]) * 3 * 8 for row in rows)
    assert np.isfinite([float(row["value"]) for row in rows]).all()
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["versions"]["torch"]


def test_an_interrupted_run_ends_with_the_same_bytes(data, tmp_path, monkeypatch):
    run(arguments(data, tmp_path / "whole"))
    step = Learner._draw
    calls = []

    def interrupted(self, generator):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return step(self, generator)

    monkeypatch.setattr(Learner, "_draw", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(arguments(data, tmp_path / "cut"))
    monkeypatch.setattr(Learner, "_draw", step)
    run(arguments(data, tmp_path / "cut"))
    for name in ("checkpoints/step-0000012.safetensors", "metrics.csv", "config.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_other_arguments_do_not_touch_a_run(data, tmp_path):
    run(arguments(data, tmp_path / "run", steps=5))
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(OmrlError, match="another steps"):
        run(arguments(data, tmp_path / "run", steps=6))
    assert (tmp_path / "run" / "config.json").read_bytes() == before
    run(arguments(data, tmp_path / "run", steps=6, force=True))
    assert Run.open(tmp_path / "run").load()[0] == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "nope"}, "no algorithm 'nope'"),
        ({"algorithm": "no.module:Thing"}, "cannot be loaded"),
        ({"preset": "nope"}, "no preset 'nope'"),
        ({"set": ("nope=1",)}, "--set takes name=value"),
        ({"set": ("gamma=blue",)}, "cannot be 'blue'"),
        ({"set": ("power=cubic",)}, "cannot be 'cubic'"),
        ({"seeds": 0}, "--seeds must be at least 1"),
        ({"level": "expert"}, "no level 'expert'"),
        ({"device": "tpu"}, "no device 'tpu'"),
    ],
)
def test_bad_arguments_get_one_sentence_and_leave_no_run(data, tmp_path, changes, message):
    with pytest.raises(OmrlError, match=message):
        run(arguments(data, tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_evaluation_scores_every_seed_task_and_episode(data, tmp_path):
    run(arguments(data, tmp_path / "run"))
    found = evaluation.evaluate(tmp_path / "run", context=10, episodes=3)
    with (tmp_path / "run" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    tasks = MetaDataset.open(data).split["test"]
    assert len(rows) == 2 * len(tasks) * 3 and {row["task"] for row in rows} == set(tasks)
    assert found["mean"]["value"] == pytest.approx(np.mean([float(row["return"]) for row in rows]))
    assert evaluation.evaluate(tmp_path / "run", context=10, episodes=3) == found


def test_given_context_returns_are_those_of_the_gymnasium_environment(tmp_path):
    family = FAMILIES["point-robot-wind"]  # its rewards are never zero
    data = walks(family, tmp_path / "walks")
    folder = run(arguments(data, tmp_path / "run", seeds=1))
    learner = Trained(folder)
    view = MetaDataset.open(data).select(MetaDataset.open(data).split["test"])
    found = evaluation.given_context(learner, view, context=10, episodes=1, seed=0)[0, :, 0]
    contexts = evaluation.draw_contexts(learner, view, 10, 0)
    params = {name: value[0] for name, value in learner.population.params.items()}
    for t, task in enumerate(view.tasks):
        env = family.make(task)
        obs, _ = env.reset(seed=0)
        z = learner.algorithm.infer(params, contexts[0, t : t + 1])
        total, done = 0.0, False
        while not done:
            with torch.no_grad():
                act = learner.algorithm.act(params, learner.normalise(torch.from_numpy(obs)[None]), z)
            obs, reward, terminated, truncated, _ = env.step(act[0].numpy())
            total, done = total + reward, terminated or truncated
        assert total < -1
        assert found[t] == pytest.approx(total, abs=1e-4)


# -- meta-batches ------------------------------------------------------------------------------------------------------


def tensors(tasks=4, rows=6):
    """Rows that say where they come from: obs = (task, row)."""
    task, row = np.meshgrid(np.arange(tasks), np.arange(rows), indexing="ij")
    obs = torch.tensor(np.stack([task, row], -1), dtype=torch.float32)
    episode, step = torch.tensor(row // 3, dtype=torch.int32), torch.tensor(row % 3, dtype=torch.int32)
    return Tensors(
        obs=obs,
        act=obs[..., 1:] / 10,
        rew=obs[..., 1],
        next_obs=obs + 0.5,
        term=torch.zeros(tasks, rows, dtype=torch.bool),
        episode=episode,
        step=step,
        length=torch.tensor([rows, rows, rows - 1, rows][:tasks]),
    )


PLAIN = Normalisation(torch.zeros(2), torch.ones(2))


def test_a_meta_batch_has_different_tasks_and_rows_of_its_own_task():
    sampler = MetaSampler(tensors(), PLAIN, learners=3, meta_batch=3, batch_size=50, context_size=20)
    batch = sampler.draw(torch.Generator().manual_seed(0))
    task = batch["obs"][..., 0]
    assert task.shape == (3, 3, 50)
    assert (task == task[..., :1]).all()
    for learner in task[..., 0]:
        assert len(set(learner.tolist())) == 3
    assert (batch["context"][..., 0] == task[..., :1, None]).all()
    assert batch["context"].shape == (3, 3, 2, 20, 2 + 1 + 1 + 2)
    assert (batch["next_obs"] == batch["obs"] + 0.5).all()
    short = batch["obs"][..., 1][task == 2]
    assert short.max() == 4  # the shorter task's padding is never drawn


def test_fewer_tasks_than_the_meta_batch_give_more_rows_each():
    sampler = MetaSampler(tensors(tasks=2), PLAIN, learners=1, meta_batch=4, batch_size=8, context_size=2)
    assert sampler.draw(torch.Generator())["obs"].shape == (1, 2, 16, 2)
    assert sampler.transitions_per_update == 32


def test_the_next_action_is_the_following_one_of_the_same_episode():
    act, there = next_actions(tensors(tasks=3))
    assert there[0].tolist() == [1, 1, 0, 1, 1, 0]
    assert there[2].tolist() == [1, 1, 0, 1, 0, 0]  # five rows: the last of them has no successor
    assert act[0, :, 0].tolist() == pytest.approx([0.1, 0.2, 0, 0.4, 0.5, 0])


def test_normalisation_is_that_of_the_rows_without_the_padding():
    data = tensors(tasks=3)
    found = Normalisation.of(data)
    rows = torch.cat([data.obs[i, :n] for i, n in enumerate(data.length.tolist())])
    torch.testing.assert_close(found.mean, rows.mean(0))
    torch.testing.assert_close(found.std, rows.std(0))


# -- adapting ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(arguments(data, folder))
    return folder


def test_adapting_equals_what_evaluation_does(data, trained):
    dataset = MetaDataset.open(data)
    task = dataset.split["test"][0]
    rows = dataset.rows(task)
    policy = omrl.load(trained).adapt(rows, seed=1)
    learner = Trained(Run.open(trained))
    params = learner.params(1)
    z = learner.algorithm.infer(params, learner.contexts(rows)[None])
    obs = np.array([0.3, -0.2], dtype=np.float32)
    wanted = learner.algorithm.act(params, learner.normalise(torch.from_numpy(obs)[None]), z)[0]
    np.testing.assert_allclose(policy.act(obs), wanted.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(policy.z, z.detach().numpy(), rtol=1e-6)


def test_a_policy_acts_on_one_observation_or_many_and_takes_tuples_or_arrays(data, trained):
    dataset = MetaDataset.open(data)
    rows = dataset.rows(0)
    columns = [rows[name] for name in ("observations", "actions", "rewards", "next_observations")]
    policy = omrl.load(trained).adapt(rows)
    same = omrl.load(trained).adapt(list(zip(*columns, strict=True)))
    many = policy.act(rows["observations"][:5])
    assert many.shape == (5, 2) and (np.abs(many) <= 1).all()
    np.testing.assert_allclose(policy.act(rows["observations"][3]), many[3], rtol=1e-5)
    np.testing.assert_allclose(same.act(rows["observations"][:5]), many, rtol=1e-5)


def test_actions_come_back_in_the_units_of_the_logs(tmp_path):
    rng = np.random.default_rng(0)
    logs = {
        f"pump-{i}": {
            "observations": rng.normal(size=(40, 3)),
            "actions": rng.uniform(10, 90, size=(40, 1)),
            "rewards": rng.normal(size=40),
            "next_observations": rng.normal(size=(40, 3)),
            "terminations": np.zeros(40, dtype=bool),
            "truncations": np.arange(40) == 39,
            "episode": np.zeros(40, dtype=int),
            "step": np.arange(40),
        }
        for i in range(3)
    }
    names = list(logs)
    split = {"train": names[:2], "test": names[2:]}
    MetaDataset.from_arrays(logs, action_low=[0], action_high=[100], varies="dynamics", split=split).save(
        tmp_path / "pumps"
    )
    folder = run(arguments(tmp_path / "pumps", tmp_path / "run"))  # no family: the algorithm's defaults
    policy = omrl.load(folder.folder).adapt(logs["pump-2"])
    assert 20 < policy.act([0.0, 0.0, 0.0])[0] < 80  # an untrained policy stays near the middle of its range
    with pytest.raises(OmrlError, match="without a simulator"):
        evaluation.evaluate(folder.folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": None}, "no 'rewards'"),
        ({"observations": np.zeros((4, 5))}, r"observations must have shape \[..., 2\]"),
        ({"actions": np.zeros((4, 2, 2))}, "actions must have shape"),
        ({"rewards": np.array([0, 1, np.nan, 0])}, "rewards has a value that is not finite in row 2"),
        ({"rewards": np.zeros(3)}, "differ in length"),
        ({"observations": np.zeros((0, 2))}, "observations is empty"),
        ({"observations": "pump"}, "observations must be numbers"),
    ],
)
def test_a_bad_context_gets_one_sentence(trained, change, message):
    context = {
        "observations": np.zeros((4, 2)),
        "actions": np.zeros((4, 2)),
        "rewards": np.zeros(4),
        "next_observations": np.zeros((4, 2)),
    } | change
    with pytest.raises(OmrlError, match=message):
        omrl.load(trained).adapt({name: value for name, value in context.items() if value is not None})


@pytest.mark.parametrize("transitions", [[], 3, [(1, 2)], "text"])
def test_a_context_of_another_kind_gets_one_sentence(trained, transitions):
    with pytest.raises(OmrlError):
        omrl.load(trained).adapt(transitions)


def test_adapting_and_acting_need_no_simulator(data, trained, tmp_path):
    code = f"""
import sys
for name in ("gymnasium", "mujoco"):
    sys.modules[name] = None
import numpy as np, omrl
rows = omrl.MetaDataset.open({str(data)!r}).rows(0)
print(omrl.load({str(trained)!r}).adapt(rows).act([0.0, 0.0]).shape)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "(2,)", found.stderr


def test_the_example_adapts_to_an_unseen_task(data, trained):
    example = Path(__file__).parents[1] / "examples" / "adapt.py"
    found = subprocess.run([sys.executable, example, trained], capture_output=True, text=True)
    assert MetaDataset.open(data).split["test"][0] in found.stdout, found.stderr
