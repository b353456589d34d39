"""Exported policies act as the run does, in programs that have neither torch nor omrl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import omrl
from omrl.algorithms.focal import FOCAL
from omrl.errors import OmrlError
from omrl.exporting import omrl_runtime
from service_helpers import KINDS, boilers, trained


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "boilers"
    return folder, boilers(folder)


@pytest.fixture(scope="module")
def runs(logs, tmp_path_factory):
    """Each kind's run, trained when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def run(kind: str) -> Path:
        if kind not in made:
            made[kind] = trained(kind, logs[0], folder / kind)
        return made[kind]

    return run


def agree(found: np.ndarray, wanted: np.ndarray) -> None:
    """Within 1e-5 of an action's range, and not because all actions are the same."""
    span = np.array([100.0, 4.0])
    np.testing.assert_allclose(found / span, wanted / span, atol=1e-5)
    assert (wanted.std(0) / span > 1e-3).any()


# -- numpy -------------------------------------------------------------------------------------------------------------

BARE = """
import sys

for name in ("torch", "omrl", "gymnasium", "mujoco", "safetensors", "pydantic"):
    sys.modules[name] = None  # as where it is not installed
import numpy as np

sys.path.insert(0, sys.argv[1])
import omrl_runtime

rows = dict(np.load(sys.argv[2]))
policy = omrl_runtime.load().adapt(rows)
np.savez(sys.argv[3], many=policy.act(rows["observations"]), one=policy.act(rows["observations"][3]), z=policy.z)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_the_numpy_runtime_acts_as_the_run_does_without_torch_and_omrl(kind, runs, logs, tmp_path):
    rows = {name: logs[1]["boiler-2"][name] for name in omrl_runtime.CONTEXT}
    np.savez(tmp_path / "rows.npz", **rows)
    paths = omrl.export(runs(kind), "numpy", tmp_path / "out", seed=1)
    assert {path.name for path in paths} == {path.name for path in (tmp_path / "out").iterdir()} - {".omrl.json"}
    words = [sys.executable, "-c", BARE, tmp_path / "out", tmp_path / "rows.npz", tmp_path / "found.npz"]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path, env=bare)
    assert done.returncode == 0, done.stderr
    found, policy = np.load(tmp_path / "found.npz"), omrl.load(runs(kind)).adapt(rows, seed=1)
    np.testing.assert_allclose(found["z"], policy.z[0], atol=1e-5)
    agree(found["many"], policy.act(rows["observations"]))
    np.testing.assert_allclose(found["one"], found["many"][3], rtol=1e-5)


@pytest.mark.parametrize("kind", ["focal", "mbml"])
def test_the_runtime_learns_row_after_row_what_it_learns_at_once(kind, runs, logs, tmp_path):
    omrl.export(runs(kind), "numpy", tmp_path / "out")
    rows = list(zip(*(logs[1]["boiler-2"][name] for name in omrl_runtime.CONTEXT), strict=True))
    policy = omrl_runtime.load(tmp_path / "out").adapt(rows[:2])
    for row in rows[2:]:
        policy.observe(*row)
    np.testing.assert_allclose(policy.z, omrl.load(runs(kind)).adapt(rows).z[0], atol=1e-5)


def test_the_runtime_is_short_and_needs_numpy_alone():
    source = Path(omrl_runtime.__file__).read_text()
    imports = {line.split()[1].split(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert imports <= {*sys.stdlib_module_names, "numpy", "omrl_runtime"}
    assert len(source.splitlines()) < 220


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rewards": None}, "no 'rewards'"),
        ({"observations": np.zeros((4, 5))}, r"observations must have shape \['N', 3\], not \[4, 5\]"),
        ({"rewards": np.array([0, 1, np.nan, 0])}, "rewards has a value that is not finite in row 2"),
        ({"rewards": np.zeros(3)}, "differ in length"),
        ({"observations": np.zeros((0, 3))}, "observations is empty"),
        ({"actions": "valve"}, "actions must be numbers"),
    ],
)
def test_the_runtime_says_what_is_wrong_with_a_context(change, sentence, runs, tmp_path):
    omrl.export(runs("focal"), "numpy", tmp_path / "out")
    rows = {"observations": np.zeros((4, 3)), "actions": np.zeros((4, 2)), "rewards": np.zeros(4)}
    rows |= {"next_observations": np.zeros((4, 3)), **change}
    with pytest.raises(ValueError, match=sentence):
        omrl_runtime.load(tmp_path / "out").adapt({name: value for name, value in rows.items() if value is not None})


def test_the_runtime_takes_tuples_and_refuses_other_things(runs, logs, tmp_path):
    omrl.export(runs("focal"), "numpy", tmp_path / "out")
    model = omrl_runtime.load(tmp_path / "out" / "weights.npz")
    rows = [logs[1]["boiler-2"][name] for name in omrl_runtime.CONTEXT]
    arrays = model.adapt(dict(zip(omrl_runtime.CONTEXT, rows, strict=True)))
    np.testing.assert_array_equal(model.adapt(list(zip(*rows, strict=True))).z, arrays.z)
    for wrong in ([], [(1, 2)], 3):
        with pytest.raises(ValueError):
            model.adapt(wrong)
    with pytest.raises(ValueError, match="obs must have shape"):
        arrays.act([1.0, 2.0])


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_damaged_weights_get_one_sentence(content, tmp_path):
    if content is not None:
        (tmp_path / "weights.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"weights\.npz cannot be read as an exported policy"):
        omrl_runtime.load(tmp_path / "weights.npz")


def test_weights_that_do_not_fit_together_are_refused(runs, tmp_path):
    omrl.export(runs("focal"), "numpy", tmp_path / "out")
    path = tmp_path / "out" / "weights.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    for name, value in (("actor.bias.0", np.zeros((3, 1), np.float32)), ("action_low", np.full(2, np.nan))):
        np.savez(path, **{**arrays, name: value})
        with pytest.raises(ValueError, match=r"weights\.npz cannot be read as an exported policy"):
            omrl_runtime.load(path)
    np.savez(path, **{name: value for name, value in arrays.items() if name != "actor.weight.1"})
    with pytest.raises(ValueError, match=r"weights\.npz cannot be read as an exported policy"):
        omrl_runtime.load(path)


def test_weights_of_another_format_are_refused(tmp_path):
    np.savez(tmp_path / "weights.npz", about=np.array(json.dumps({"format": 99})))
    with pytest.raises(ValueError, match="has format 99, and this file reads 1"):
        omrl_runtime.load(tmp_path)


# -- ONNX --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_graphs_act_as_the_run_does_for_any_number_of_rows_and_transitions(kind, runs, logs, tmp_path):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    paths = omrl.export(runs(kind), "onnx", tmp_path / "out", seed=1)
    assert [path.name for path in paths] == ["encoder.onnx", "actor.onnx"]
    for path in paths:
        graph = onnx.load(path)
        assert [(opset.domain, opset.version) for opset in graph.opset_import] == [("", 18)]
        assert json.loads(graph.metadata_props[0].value)["algorithm"] == KINDS[kind][0]
    encoder, actor = (runtime.InferenceSession(path) for path in paths)
    rows = {name: logs[1]["boiler-2"][name].astype(np.float32) for name in omrl_runtime.CONTEXT}
    whole = np.concatenate([values.reshape(len(values), -1) for values in rows.values()], -1)
    for count, tasks in ((1, 1), (40, 1), (10, 4)):
        (z,) = encoder.run(None, {"context": whole.reshape(-1, count, whole.shape[-1])[:tasks]})
        for task in range(tasks):
            part = slice(task * count, (task + 1) * count)
            policy = omrl.load(runs(kind)).adapt({name: values[part] for name, values in rows.items()}, seed=1)
            np.testing.assert_allclose(z[task], policy.z[0], atol=1e-5)
            obs = rows["observations"]
            (actions,) = actor.run(None, {"obs": obs, "z": np.repeat(policy.z, len(obs), axis=0)})
            agree(actions, policy.act(obs))
            (action,) = actor.run(None, {"obs": obs[:1], "z": policy.z})
            np.testing.assert_allclose(action, actions[:1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("missing", ["onnx", "onnxscript"])
def test_a_missing_package_is_one_sentence_that_names_the_extra(missing, runs, tmp_path, monkeypatch):
    if missing == "onnxscript":
        pytest.importorskip("onnx")
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "omrl.exporting.to_onnx", raising=False)
    with pytest.raises(OmrlError, match=rf"needs {missing}: pip install 'omrl\[onnx\]'"):
        omrl.export(runs("focal"), "onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_replaces_what_it_wrote_and_refuses_a_folder_of_somebody_else(runs, tmp_path):
    words = [sys.executable, "-m", "omrl", "export", runs("focal"), "--to", "numpy", "--out", tmp_path / "out"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(tmp_path / "out" / name) for name in ("omrl_runtime.py", "weights.npz")]
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr
    (tmp_path / "out" / "notes.txt").write_text("mine")
    third = subprocess.run(words, capture_output=True, text=True, check=False)
    assert third.returncode == 2 and "holds notes.txt, which omrl did not write" in third.stderr
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_what_cannot_be_exported_gets_one_sentence(runs, tmp_path):
    with pytest.raises(OmrlError, match="no seed 2; the run has 2"):
        omrl.export(runs("focal"), "numpy", tmp_path / "out", seed=2)
    with pytest.raises(OmrlError, match="exported to numpy or onnx, not to 'pickle'"):
        omrl.export(runs("focal"), "pickle", tmp_path / "out")
    with pytest.raises(OmrlError, match="is not a run"):
        omrl.export(tmp_path, "numpy", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_algorithm_that_acts_otherwise_than_its_recipe_is_refused(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(FOCAL, "act", lambda self, params, obs, z: torch.sin(7.0 * obs[..., :2]))
    with pytest.raises(OmrlError, match="otherwise than its recipe says; export it with --to onnx"):
        omrl.export(runs("focal"), "numpy", tmp_path / "out")


def test_an_algorithm_without_a_recipe_is_refused(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(FOCAL, "recipe", None)
    with pytest.raises(OmrlError, match="does not say in a recipe"):
        omrl.export(runs("focal"), "numpy", tmp_path / "out")
