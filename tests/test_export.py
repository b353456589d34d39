"""Exported policies act as the run does, in programs that have neither torch nor omrl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections import deque
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


MASKED = np.ma.masked_array([0.0, 0.0, 0.0], mask=[0, 1, 0])


def test_the_runtime_is_short_and_needs_numpy_alone():
    source = Path(omrl_runtime.__file__).read_text()
    imports = {line.split()[1].split(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert imports <= {*sys.stdlib_module_names, "numpy", "omrl_runtime"}
    assert len(source.splitlines()) < 200


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rewards": None}, "no 'rewards'"),
        ({"observations": np.zeros((4, 5))}, r"observations must have shape \['N', 3\], not \[4, 5\]"),
        ({"rewards": np.array([0, 1, np.nan, 0])}, "rewards has a value that is not finite in row 2"),
        ({"rewards": np.zeros(3)}, "differ in length"),
        ({"observations": np.zeros((0, 3))}, "observations is empty"),
        ({"actions": "valve"}, "actions must be numbers"),
        ({"rewards": np.ma.masked_array(np.zeros(4), mask=[0, 1, 0, 0])}, r"rewards must be numbers \(one is masked\)"),
        ({"observations": [MASKED] * 4}, r"observations must be numbers \(one is masked\)"),
    ],
)
def test_the_runtime_says_what_is_wrong_with_a_context(change, sentence, runs, tmp_path):
    omrl.export(runs("focal"), "numpy", tmp_path / "out")
    rows = {"observations": np.zeros((4, 3)), "actions": np.zeros((4, 2)), "rewards": np.zeros(4)}
    rows |= {"next_observations": np.zeros((4, 3)), **change}
    with pytest.raises(ValueError, match=sentence):
        omrl_runtime.load(tmp_path / "out").adapt({name: value for name, value in rows.items() if value is not None})


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "focal"
    omrl.export(runs("focal"), "numpy", folder)
    return folder


ODD = {
    "masked": MASKED,
    "masked number": [0.0, np.ma.masked, 0.0],
    "gradient": torch.zeros(3, requires_grad=True),
    "words": ["1.5", "2", "3"],
    "too large": [10**400, 0, 0],
    **{
        f"{value!r} as an object": np.array([0.0, value, 0.0], dtype=object)
        for value in (np.datetime64(1, "s"), np.timedelta64(1, "s"), "1.5", b"1.5", np.complex128(1 + 2j), None)
    },
}


@pytest.mark.parametrize("name", ODD)
def test_the_runtime_takes_nothing_for_a_number_that_is_none(name, exported):
    model, odd, row = omrl_runtime.load(exported), ODD[name], (np.zeros(3), np.zeros(2), 0.0, np.zeros(3))
    policy = model.adapt([row])
    for call in (
        lambda: policy.act(odd),
        lambda: policy.act([np.zeros(3), odd]),
        lambda: policy.act(deque([np.zeros(3), odd])),
        lambda: policy.observe(odd, *row[1:]),
        lambda: model.adapt([row, (odd, *row[1:])]),
    ):
        with pytest.raises(ValueError, match=r"^(obs|observations) must be numbers \(.*\)\.$"):
            call()


def test_the_runtime_says_that_actions_lie_outside_their_bounds(exported):
    model, obs = omrl_runtime.load(exported), np.array([350.0, 0.02, -5.0])
    with pytest.warns(UserWarning, match="2 of 3 actions lie outside the bounds of the log") as said:
        model.adapt([(obs, [1e6, 0.0], 0.0, obs), (obs, [50.0, -3.1], 0.0, obs), (obs, [100.5, -3.0], 0.0, obs)])
    assert said[0].filename == __file__
    policy = model.adapt([(obs, [50.0, 0.0], 0.0, obs)])
    with pytest.warns(UserWarning, match="1 of 1 actions lie outside the bounds of the log") as said:
        policy.observe(obs, [50.0, 1e6], 0.0, obs)
    assert said[0].filename == __file__


def test_actions_that_are_not_finite_name_the_weights(exported, tmp_path):
    with np.load(exported / "weights.npz") as stored:
        arrays = dict(stored)
    np.savez(tmp_path / "weights.npz", **{**arrays, "actor.weight.0": np.full_like(arrays["actor.weight.0"], 1e38)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"weights\.npz .*gives an action that is not finite"):
            omrl_runtime.load(tmp_path).adapt([(np.ones(3), np.zeros(2), 0.0, np.ones(3))]).act(np.full(3, 1e30))
        policy = omrl_runtime.load(exported).adapt([(np.ones(3), np.zeros(2), 0.0, np.ones(3))])
        with pytest.raises(
            ValueError, match=r"^\S+weights\.npz gives an action that is not finite for this observation"
        ):
            policy.act(np.full(3, 3e38))


TWO = [{"values": [0.0, 100.0], "labels": ["shut", "open"]}, {"values": [-3.0, 1.0], "labels": None}]


def test_the_runtime_reads_and_gives_choices_of_any_number(exported, tmp_path):
    with np.load(exported / "weights.npz") as stored:
        arrays = dict(stored)
    about = json.dumps({**json.loads(str(arrays["about"])), "choices": TWO})
    np.savez(tmp_path / "weights.npz", **{**arrays, "about": np.array(about)})
    model = omrl_runtime.load(tmp_path)
    assert set(model.adapt([(np.zeros(3), ["open", 1], 0.0, np.zeros(3))]).act(np.zeros(3))) <= {
        "shut",
        "open",
        -3.0,
        1.0,
    }
    mixed = np.array([["open", 1.0], [0, True]], dtype=object)
    assert model.numbered(mixed).tolist() == [[100.0, 1.0], [0.0, 1.0]]
    for wrong, sentence in (
        ([["ajar", 1.0]], r"actions cannot be 'ajar'; they are one of \['shut', 'open'\]"),
        ([["open", 0.5]], "actions cannot be 0.5; they are one of"),
        ([["open", "1.0"]], "actions cannot be '1.0'; they are one of"),
        ([["open", 1.0, 1.0]], "actions must have shape"),
        (3, "actions must have shape"),
        ([["open", b"1"]], "actions must be numbers"),
        ([["open", 1 + 0j]], "actions must be numbers"),
        ([["open", np.timedelta64(1)]], "actions must be numbers"),
        ([["open", np.ma.masked]], "one is masked"),
        (torch.ones(1, 2, requires_grad=True), "actions must be numbers"),
    ):
        with pytest.raises(ValueError, match=sentence):
            model.numbered(wrong)


def test_the_runtime_takes_tuples_and_refuses_other_things(runs, logs, tmp_path):
    omrl.export(runs("focal"), "numpy", tmp_path / "out")
    model = omrl_runtime.load(tmp_path / "out" / "weights.npz")
    rows = [logs[1]["boiler-2"][name] for name in omrl_runtime.CONTEXT]
    arrays = model.adapt(dict(zip(omrl_runtime.CONTEXT, rows, strict=True)))
    np.testing.assert_array_equal(model.adapt(list(zip(*rows, strict=True))).z, arrays.z)
    for wrong in ([], [(1, 2)], 3, "text", [1, 2, 3, 4]):
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


GRAPHS = """
import sys

for name in ("torch", "omrl", "onnx", "onnxscript", "safetensors", "pydantic"):
    sys.modules[name] = None  # as where it is not installed
import numpy as np
import onnxruntime

encoder, actor = (onnxruntime.InferenceSession(f"{sys.argv[1]}/{name}.onnx") for name in ("encoder", "actor"))
given = np.load(sys.argv[2])
(z,) = encoder.run(None, {"context": given["context"]})
(actions,) = actor.run(None, {"obs": given["obs"], "z": np.repeat(z, len(given["obs"]), axis=0)})
np.savez(sys.argv[3], actions=actions)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_run_without_torch_and_omrl(kind, runs, logs, tmp_path):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    omrl.export(runs(kind), "onnx", tmp_path / "out")
    rows = {name: logs[1]["boiler-2"][name].astype(np.float32) for name in omrl_runtime.CONTEXT}
    whole = np.concatenate([values.reshape(len(values), -1) for values in rows.values()], -1)
    np.savez(tmp_path / "given.npz", context=whole[None], obs=rows["observations"])
    paths = [str(tmp_path / name) for name in ("out", "given.npz", "found.npz")]
    subprocess.run([sys.executable, "-c", GRAPHS, *paths], check=True, env={**os.environ, "PYTHONPATH": ""})
    agree(np.load(tmp_path / "found.npz")["actions"], omrl.load(runs(kind)).adapt(rows).act(rows["observations"]))


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
