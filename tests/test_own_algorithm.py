"""The algorithm that docs/own-algorithm.md shows: a user's own trains, is tested and adapts like the others."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import omrl
from omrl import cli
from omrl.evaluation.testing import evaluate
from omrl.learning import starting
from omrl.runs.run import Run
from training_helpers import metrics, pumps

PAGE = Path(__file__).resolve().parents[1] / "docs" / "own-algorithm.md"
NAME = "cloning:Cloning"


def shown():
    """The code of the page."""
    return re.search(r"<!-- save as: cloning.py -->\n```python\n(.*?)^```$", PAGE.read_text(), re.S | re.M)[1]


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """The code as a module that can be imported."""
    folder = tmp_path_factory.mktemp("module")
    (folder / "cloning.py").write_text(shown())
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("cloning", None)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Pumps of two kinds: what to do at an observation depends on the kind, which the rewards show."""
    folder = tmp_path_factory.mktemp("data") / "pumps"
    return folder, pumps(folder, tasks=6, rows=200)


@pytest.fixture(scope="module")
def run(module, logs, tmp_path_factory):
    options = {"hidden": (32, 32), "learning_rate": 3e-3, "seeds": 2, "steps": 400, "log_every": 50, "device": "cpu"}
    return omrl.train(NAME, logs[0], tmp_path_factory.mktemp("runs") / "run", **options)


def test_it_is_short():
    assert len(shown().splitlines()) < 100


def test_another_representation_loss_is_one_short_file():
    """A successor of FOCAL, whose control and presets it keeps."""
    code = re.search(r"<!-- save as: foretelling.py -->\n```python\n(.*?)^```$", PAGE.read_text(), re.S | re.M)[1]
    assert 0 < len(code.splitlines()) < 60


def test_it_learns(run):
    rows = [row for row in metrics(run.folder) if row["name"] == "cloning_loss"]
    assert [row["step"] for row in rows[::2]] == [str(step) for step in range(50, 401, 50)]
    losses = [float(row["value"]) for row in rows]
    assert max(losses[-2:]) < 0.1 * min(losses[:2])


def test_it_is_tested_on_a_pump_that_it_has_not_seen(run):
    found = evaluate(run.folder, context=50, trust=NAME)
    assert found["protocol"] == "logged" and found["seeds"] == 2 and found["tasks"] == 1
    assert found["action_error"]["value"] < 0.3 * found["constant_error"]["value"]


def test_it_adapts_to_both_kinds_of_pumps(run, logs):
    obs = np.array([[-1.0, 0, 0], [0, 0, 0], [1.0, 0, 0]])
    for name, sign in (("pump-4", -1), ("pump-5", 1)):  # the second has not been seen
        for seed in (0, 1):
            found = omrl.load(run.folder, trust=NAME).adapt(logs[1][name], seed=seed).act(obs)
            np.testing.assert_allclose(found[:, 0], 50 + sign * 40 * np.tanh(obs[:, 0]), atol=8)


def test_its_fields_are_flags(run, logs, monkeypatch):
    found = []
    monkeypatch.setattr(starting, "run", lambda *parts: found.append(parts))
    words = ["--data", str(logs[0]), "--out", "run", "--hidden", "4", "--learning-rate", "0.5", "--steps", "3"]
    monkeypatch.setattr(sys, "argv", ["omrl", "train", NAME, *words])
    cli.main()
    ((train, config),) = found
    assert (train.algorithm, train.steps) == (NAME, 3)
    assert (config.hidden, config.learning_rate, config.latent_dim) == ((4,), 0.5, 5)
    assert Run.open(run.folder).config.hyperparameters["hidden"] == [32, 32]


def test_the_command_finds_it_in_the_working_directory(module, logs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in (str(module), "", str(Path.cwd()))])
    monkeypatch.delitem(sys.modules, "cloning", raising=False)
    monkeypatch.chdir(module)
    words = ["--data", str(logs[0]), "--out", str(tmp_path / "run"), "--dry-run"]
    monkeypatch.setattr(sys, "argv", ["omrl", "train", NAME, *words])
    cli.main()
    assert '"algorithm": "cloning:Cloning"' in capsys.readouterr().out
