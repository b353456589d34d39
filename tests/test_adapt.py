"""Testing and adapting a trained run: scores, policies, contexts that cannot be used."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import warnings
from collections import deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import omrl
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.evaluation.contexts import draw_contexts
from omrl.evaluation.given_context import given_context
from omrl.evaluation.testing import evaluate
from omrl.families import FAMILIES
from omrl.runs.model import Model, StrangeContext
from omrl.runs.policy import CONTEXT
from omrl.runs.run import Run
from training_helpers import pumps, train, walks


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return walks(FAMILIES["sparse-point-robot"], tmp_path_factory.mktemp("data") / "walks")


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(data, folder)
    return folder


# -- testing -----------------------------------------------------------------------------------------------------------


def test_evaluation_scores_every_seed_task_and_episode(data, trained):
    found = evaluate(trained, context=10, episodes=3)
    with (trained / found["file"]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    tasks = MetaDataset.open(data).split["test"]
    assert len(rows) == 2 * len(tasks) * 3 and {row["task"] for row in rows} == set(tasks)
    assert found["mean"]["value"] == pytest.approx(np.mean([float(row["return"]) for row in rows]))
    assert evaluate(trained, context=10, episodes=3) == found


def test_given_context_returns_are_those_of_the_gymnasium_environment(tmp_path):
    family = FAMILIES["point-robot-wind"]  # its rewards are never zero
    data = walks(family, tmp_path / "walks")
    learner = Model(train(data, tmp_path / "run", seeds=1))
    view = MetaDataset.open(data).select(MetaDataset.open(data).split["test"])
    found = given_context(learner, view, context=10, episodes=1, seed=0)[0, :, 0]
    contexts = draw_contexts(learner, view, 10, 0)
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


# -- adapting ----------------------------------------------------------------------------------------------------------


def test_adapting_equals_what_evaluation_does(data, trained):
    dataset = MetaDataset.open(data)
    task = dataset.split["test"][0]
    rows = dataset.rows(task)
    policy = omrl.load(trained).adapt(rows, seed=1)
    learner = Model(Run.open(trained))
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
    logs = pumps(tmp_path / "pumps")
    folder = train(tmp_path / "pumps", tmp_path / "run")  # no family: the algorithm's defaults
    policy = omrl.load(folder.folder).adapt(logs["pump-2"])
    assert 20 < policy.act([0.0, 0.0, 0.0])[0] < 80  # an untrained policy stays near the middle of its range
    with pytest.raises(OmrlError, match="without a simulator"):
        evaluate(folder.folder, protocol="given-context")


def test_a_seed_that_is_not_there_gets_one_sentence(data, trained):
    rows = MetaDataset.open(data).rows(0)
    for seed in (2, -1):
        with pytest.raises(OmrlError, match=f"no seed {seed}; the run has 2"):
            omrl.load(trained).adapt(rows, seed=seed)


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


NO_NUMBERS = (np.datetime64(1, "s"), np.timedelta64(1, "s"), "1.5", b"1.5", np.complex128(1 + 2j), None)
ODD = {
    "complex": np.zeros((4, 2)) + 1j,
    "masked": np.ma.masked_array(np.zeros((4, 2)), mask=[[0, 0], [0, 1], [0, 0], [0, 0]]),
    "times": np.full((4, 2), np.datetime64("2020-01-01")),
    "words": np.full((4, 2), "1.5"),
    "records": np.zeros((4, 2), dtype=[("a", "f4")]),
    "too large": [[10**400, 0]] * 4,
    "masked rows": [np.zeros(2), np.ma.masked_array([0.0, 0.0], mask=[0, 1]), np.zeros(2), np.zeros(2)],
    "masked rows of a deque": deque([np.zeros(2), np.ma.masked_array([0.0, 0.0], mask=[0, 1])] * 2),
    "masked numbers": [[0.0, 0.0], [0.0, np.ma.masked], [0.0, 0.0], [0.0, 0.0]],
    **{f"{value!r} as an object": np.array([[0.0, value]] * 4, dtype=object) for value in NO_NUMBERS},
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_number_is_not_taken_for_one(trained, name):
    rows = {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 2)), "rewards": np.zeros(4)}
    model = omrl.load(trained)
    policy = model.adapt({**rows, "next_observations": rows["observations"]})
    for call in (lambda: policy.act(ODD[name]), lambda: model.adapt({**rows, "next_observations": ODD[name]})):
        with pytest.raises(OmrlError, match=r"must be numbers, not|has a masked value in row 1"):
            call()


def test_tensors_with_a_gradient_are_numbers(trained):
    rows = {"observations": np.ones((4, 2)), "actions": np.zeros((4, 2)), "rewards": np.zeros(4)}
    policy = omrl.load(trained).adapt({**rows, "next_observations": rows["observations"]})
    with_gradient = torch.ones(4, 2, requires_grad=True)
    for given in (with_gradient, list(with_gradient), [list(row) for row in with_gradient]):
        assert np.array_equal(policy.act(given), policy.act(rows["observations"]))
    row = (with_gradient[0], torch.zeros(2), torch.tensor(0.0, requires_grad=True), with_gradient[0])
    np.testing.assert_allclose(omrl.load(trained).adapt([row] * 4).z, policy.z, rtol=1e-6)


def test_numbers_of_other_kinds_are_numbers(trained):
    rows = {"observations": np.ones((4, 2)), "actions": np.zeros((4, 2)), "rewards": np.zeros(4)}
    policy = omrl.load(trained).adapt({**rows, "next_observations": rows["observations"]})
    nothing_masked = np.ma.masked_array([1.0, 2.0], mask=False)
    for given in ([True, Decimal(2)], [Fraction(1), 2], np.array([np.float32(1), 2], dtype=object), nothing_masked):
        assert np.array_equal(policy.act(given), policy.act([1.0, 2.0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": "0"}, "There is no seed '0'"),
        ({"seed": 0.5}, "There is no seed 0.5"),
        ({"seed": True}, "There is no seed True"),
        ({"window": 2.5}, "window must be at least 1 row, not 2.5"),
        ({"window": True}, "window must be at least 1 row, not True"),
        ({"window": np.timedelta64(3)}, "window must be at least 1 row, not"),
        ({"forget": True}, "forget must lie above 0 and be at most 1, not True"),
        ({"forget": "x"}, "forget must lie above 0 and be at most 1, not 'x'"),
    ],
)
def test_odd_options_of_adapting_get_one_sentence(trained, options, message):
    rows = {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 2)), "rewards": np.zeros(4)}
    with pytest.raises(OmrlError, match=message):
        omrl.load(trained).adapt({**rows, "next_observations": rows["observations"]}, **options)


def test_actions_outside_their_bounds_are_said_to_be(trained):
    rows = {"observations": np.zeros((4, 2)), "rewards": np.zeros(4), "next_observations": np.zeros((4, 2))}
    actions = np.array([[0.0, 0.0], [1.0, -1.0], [1.001, 0.0], [7.0, 0.0]])
    model = omrl.load(trained)
    with pytest.warns(StrangeContext, match="1 of 4 actions lie outside the bounds of the log"):
        model.adapt({**rows, "actions": actions})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.adapt({**rows, "actions": actions[:3].repeat(2, 0)[:4]})
        model.adapt({**rows, "actions": actions}, on_strange="ignore")


@pytest.mark.parametrize("transitions", [[], 3, [(1, 2)], "text", [1, 2, 3], [np.array(3.0)], [torch.tensor(3.0)]])
def test_a_context_of_another_kind_gets_one_sentence(trained, transitions):
    with pytest.raises(OmrlError):
        omrl.load(trained).adapt(transitions)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: omrl.load(3), "A run is given by its path, not by 3"),
        (lambda: omrl.load(None), "A run is given by its path, not by None"),
        (lambda: omrl.report(["run"], 3), "A report is given by its path, not by 3"),
        (lambda: omrl.report(3, "out"), "A run is given by its path, not by 3"),
        (lambda: omrl.report(["run", None], "out"), "A run is given by its path, not by None"),
    ],
)
def test_what_is_no_path_gets_one_sentence(call, sentence):
    with pytest.raises(OmrlError, match=sentence):
        call()


def test_adapting_and_acting_need_no_simulator(data, trained, tmp_path):
    code = f"""
import sys
import warnings
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
    level = MetaDataset.open(data).level(json.loads((Path(trained) / "config.json").read_text())["level"])
    name = level.split["test"][0]
    assert found.stdout.startswith(name), found.stderr
    # The context is of the quality that was trained on.
    assert found.stdout.strip().endswith(f"the logs' mean {level.returns(name).mean():.2f}")


BARE = """
import sys
import warnings

for name in ("tyro", "rich", "gymnasium", "mujoco", "matplotlib", "h5py", "pyarrow", "minari"):
    sys.modules[name] = None  # as where it is not installed
import numpy as np
import omrl
rows = dict(np.load(sys.argv[2]))
print(omrl.load(sys.argv[1]).adapt(rows).act(rows["observations"][0]).tolist())
"""


def test_a_policy_needs_no_command_line_no_terminal_and_no_simulator(trained, data, tmp_path):
    rows = {name: np.array(MetaDataset.open(data).rows(0)[name]) for name in CONTEXT}
    np.savez(tmp_path / "rows.npz", **rows)
    words = [sys.executable, "-c", BARE, str(trained), str(tmp_path / "rows.npz")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = omrl.load(trained).adapt(rows).act(rows["observations"][0])
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-5)
