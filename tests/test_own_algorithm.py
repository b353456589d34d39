"""The algorithm that docs/own-algorithm.md shows: a user's own trains, is tested and adapts like the others."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import omrl
from omrl import cli
from omrl.evaluation.testing import evaluate
from omrl.learning import starting
from omrl.learning.engine import Population
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


WRONG = {
    "batch_spec = None": r"Wrong\.batch_spec must be a BatchSpec, not None",
    "Nets = 3": r"Wrong\.Nets must be a class of networks, not 3",
    "Nets = dict": r"Wrong\.Nets must take \(obs_dim, act_dim, config, generator\)",
    "Nets = lambda *_: 3": r"Wrong\.Nets must make a module that has parameters, not 3",
    "learning_rate = 'x'": r"Wrong\.learning_rate must be step sizes by prefix.*, not 'x'",
    "learning_rate = {'encoder': 'x'}": r"Wrong\.learning_rate must be step sizes by prefix",
    "learning_rate = {'encoder': 0.1}": r"Wrong\.learning_rate has no step size for ",
    "targets = 3": r"Wrong\.targets must be names of children of the networks, not 3",
    "targets = 'encoder'": r"Wrong\.targets must be names of children",
    "plain_descent = (3,)": r"Wrong\.plain_descent must be names of parameters",
    "child_steps = (('nobody', print),)": r"Wrong\.child_steps must be pairs of a child and a loss",
    "tau = 'x'": r"Wrong\.tau must be a number between 0 and 1, not 'x'",
    "slowing = 2": r"Wrong\.slowing must be a number between 0 and 1, not 2",
    "child_steps = 3": r"Wrong\.child_steps must be pairs of a child and a loss, not 3",
    "has_values = None": r"Wrong\.has_values must be true or false",
    "loss = lambda *_: 1": "must return a scalar tensor and a dict of such tensors, not 1",
    "def loss(self, *_): return 1": r"Wrong\.loss must return a scalar tensor and a dict of such tensors, not 1",
    "def loss(self, *_): return torch.zeros(2), {}": r"Wrong\.loss must return a scalar tensor",
    "def loss(self, *_): return torch.zeros(()), {'x': 1.0}": r"Wrong\.loss must return a scalar tensor",
}


@pytest.mark.parametrize("part", WRONG)
def test_parts_that_are_something_else_are_named(module, logs, tmp_path, monkeypatch, part):
    code = f"import torch\nfrom cloning import Cloning\nclass Wrong(Cloning):\n    {part}\n"
    (tmp_path / "wrong.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wrong", raising=False)
    with pytest.raises(omrl.OmrlError, match=WRONG[part]):
        omrl.train("wrong:Wrong", logs[0], tmp_path / "run", steps=2, seeds=1, device="cpu")
    sys.modules.pop("wrong", None)


def test_the_compiler_does_not_hide_what_a_loss_says():
    nets = torch.nn.Linear(2, 1)
    population = Population([nets], lambda *_: 1, learning_rate={"": 0.1}, mode="compiled")
    with pytest.raises(omrl.OmrlError, match="must return a scalar tensor"):
        population.step(lambda _: ({"x": torch.zeros(1, 2)}, {}))
