"""Observations and actions by name: a run keeps what its data calls its columns."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import omrl
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.exporting import omrl_runtime
from omrl.runs.choices import as_numbers
from omrl.runs.config import RunConfig
from omrl.runs.run import Run
from training_helpers import pumps, some_config, train


def column(name, unit=None, category=None):
    return {"name": name, "unit": unit, "category": category, "low": -1000.0, "high": 1000.0}


COLUMNS = {
    "observations": [column("glucose", "mmol/l"), column("meal", category="none"), column("meal", category="lunch")],
    "actions": [column("insulin", "U/h")],
    "rewards": column("reward"),
}


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A run on data that names its columns, and rows of a task."""
    folder = tmp_path_factory.mktemp("named")
    logs = pumps(folder / "plain")
    rng = np.random.default_rng(0)
    for rows in logs.values():
        for part in ("observations", "next_observations"):
            lunch = rng.random(len(rows[part])) < 0.5
            rows[part] = np.stack([rows[part][:, 0], ~lunch, lunch], axis=-1)
    split = {"train": ["pump-0", "pump-1"], "test": ["pump-2"]}
    options = {"action_low": [0], "action_high": [100], "varies": "dynamics", "split": split}
    MetaDataset.from_arrays(logs, **options, columns=COLUMNS).save(folder / "data")
    return train(folder / "data", folder / "run"), logs["pump-2"]


def meals(obs):
    return ["lunch" if row[2] else "none" for row in obs]


def test_a_run_keeps_names_units_ranges_and_tasks(named):
    config = json.loads((named[0].folder / "config.json").read_text())
    kept = config["columns"]
    assert [(c["name"], c["category"]) for c in kept["observations"]] == [
        ("glucose", None),
        ("meal", "none"),
        ("meal", "lunch"),
    ]
    ends = {"low": -1000.0, "high": 1000.0}
    assert kept["actions"] == [{"name": "insulin", "unit": "U/h", "category": None, **ends}]
    assert config["tasks"] == ["pump-0", "pump-1"]


def test_observations_by_name_are_those_by_place(named):
    run, rows = named
    policy = omrl.load(run.folder).adapt(rows)
    wanted = policy.act([7.1, 0.0, 1.0])
    np.testing.assert_array_equal(policy.act({"glucose": 7.1, "meal": "lunch"}), wanted)
    np.testing.assert_array_equal(policy.act({"meal": "lunch", "glucose": 7.1}), wanted)
    assert (policy.act({"glucose": 7.1, "meal": "none"}) != wanted).any()
    obs = rows["observations"][:5]
    many = policy.act({"glucose": obs[:, 0], "meal": meals(obs)})
    np.testing.assert_array_equal(many, policy.act(obs))
    each = [{"glucose": row[0], "meal": meal} for row, meal in zip(obs, meals(obs), strict=True)]
    np.testing.assert_array_equal(policy.act(each), many)


def test_contexts_by_name_are_those_by_place(named):
    run, rows = named
    model, wanted = omrl.load(run.folder), omrl.load(run.folder).adapt(rows).z
    obs, after = (
        {"glucose": rows[part][:, 0], "meal": meals(rows[part])} for part in ("observations", "next_observations")
    )
    arrays = {"observations": obs, "actions": {"insulin": rows["actions"][:, 0]}, "rewards": rows["rewards"]}
    np.testing.assert_array_equal(model.adapt({**arrays, "next_observations": after}).z, wanted)
    tuples = [
        (
            {"glucose": obs["glucose"][i], "meal": obs["meal"][i]},
            {"insulin": rows["actions"][i, 0]},
            rows["rewards"][i],
            {"glucose": after["glucose"][i], "meal": after["meal"][i]},
        )
        for i in range(len(rows["rewards"]))
    ]
    np.testing.assert_array_equal(model.adapt(tuples).z, wanted)


def test_an_exported_policy_says_the_order_of_its_columns(named, tmp_path):
    omrl.export(named[0].folder, "numpy", tmp_path / "out")
    about = omrl_runtime.load(tmp_path / "out").about
    assert [column["name"] for column in about["columns"]["observations"]] == ["glucose", "meal", "meal"]


@pytest.mark.parametrize(
    ("obs", "sentence"),
    [
        ({"glucose": 7.1}, "obs lacks 'meal'; it has glucose, meal"),
        ({"glucos": 7.1, "meal": "none"}, r"obs has no column 'glucos' \(did you mean 'glucose'\?\)"),
        ({"glucose": 7.1, "meal": "supper"}, "meal of obs cannot be 'supper'; it is one of none, lunch"),
        ({"glucose": "high", "meal": "none"}, "glucose of obs must be numbers, not 'high'"),
        ({"glucose": [7.1, 7.2], "meal": ["none"]}, "columns of obs differ in shape"),
        ({"glucose": float("nan"), "meal": "none"}, "obs has a value that is not finite"),
        ({"glucose": np.ma.masked, "meal": "none"}, "glucose of obs has a masked value"),
        ([{"glucose": np.ma.masked, "meal": "none"}], "glucose of obs has a masked value"),
        ({"glucose": [7.1, np.ma.masked], "meal": ["none"] * 2}, "glucose of obs has a masked value in row 1"),
        ({"glucose": 7.1, "meal": np.ma.masked}, "meal of obs has a masked value"),
        (
            {"glucose": [7.1, 7.2], "meal": np.ma.masked_array(["none", "lunch"], mask=[0, 1])},
            "meal of obs has a masked value in row 1",
        ),
        ({"glucose": 7.1, "meal": [np.zeros(2), np.zeros(3)]}, "meal of obs cannot be"),
        ({"glucose": 7.1, "meal": [np.zeros((2, 2)), np.zeros((2, 3))]}, "meal of obs must be rows of the same length"),
        (
            [{"glucose": 7.1, "meal": "none"}, {"glucose": [7.1, 7.2], "meal": ["none", "lunch"]}],
            r"The rows of obs differ in shape: row 0 has \[3\], row 1 \[2, 3\]",
        ),
    ],
)
def test_a_missing_or_unknown_name_gets_one_sentence(obs, sentence, named):
    with pytest.raises(OmrlError, match=sentence):
        omrl.load(named[0].folder).adapt(named[1]).act(obs)


def test_a_run_whose_data_has_no_names_says_so(tmp_path):
    logs = pumps(tmp_path / "pumps")
    run = train(tmp_path / "pumps", tmp_path / "run")
    with pytest.raises(OmrlError, match="did not name its columns: obs must be numbers in order"):
        omrl.load(run.folder).adapt(logs["pump-0"]).act({"flow": 1.0})


def test_names_of_other_numbers_than_there_are_get_one_sentence():
    with pytest.raises(OmrlError, match=r"columns names \[1, 1\] numbers of \[2, 1\]"):
        one = [{"name": "x", "unit": None, "category": None}]
        some_config(columns={"observations": one, "actions": one})


def test_a_run_from_before_there_were_names_opens_and_goes_on(named, tmp_path):
    run = Run.open(named[0].folder)
    config = json.loads((run.folder / "config.json").read_text())
    for column in (*config["columns"]["observations"], *config["columns"]["actions"]):
        del column["low"], column["high"]
    del config["tasks"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    older = RunConfig.open(tmp_path / "config.json")
    assert older.tasks is None and older.columns["actions"] == [{"name": "insulin", "unit": "U/h", "category": None}]
    del config["columns"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    old = RunConfig.open(tmp_path / "config.json")
    assert old.columns is None
    for config in (old, older):
        assert config.differences(run.config, {}) == run.config.differences(config, {}) == ""


def test_a_run_from_before_ranges_and_tasks_were_kept_goes_on(tmp_path):
    pumps(tmp_path / "pumps")
    run = train(tmp_path / "pumps", tmp_path / "run")
    path = run.folder / "config.json"
    config = json.loads(path.read_text())
    assert config.pop("tasks") == ["pump-0", "pump-1"]
    path.write_text(json.dumps(config))
    assert Run.open(train(tmp_path / "pumps", tmp_path / "run").folder).step == 12


CHOICES = [{"values": [0.0, 1.0], "labels": ["shut", "open"]}]


@pytest.mark.parametrize(
    ("actions", "sentence"),
    [
        (np.ma.masked_array([["shut"], ["open"]], mask=[[0], [1]]), "actions has a masked value in row 1"),
        ([["shut"], [np.ma.masked]], "actions has a masked value in row 1"),
        ([[np.timedelta64(1)]], "actions cannot be .*; it is one of shut, open"),
        ([[b"1"]], "actions cannot be b'1'; it is one of shut, open"),
        ([[1 + 0j]], "actions cannot be"),
        ([[10**400]], "actions cannot be 1000"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], "actions must be rows of the same length"),
    ],
)
def test_what_is_no_choice_is_not_taken_for_one(actions, sentence):
    with pytest.raises(OmrlError, match=sentence):
        as_numbers(actions, "actions", CHOICES)


def test_choices_may_be_tensors_with_a_gradient():
    chosen = torch.ones(3, 1, requires_grad=True)
    for given in (chosen, list(chosen)):
        assert as_numbers(given, "actions", CHOICES).tolist() == [[1.0]] * 3
