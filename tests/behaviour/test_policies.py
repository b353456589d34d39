from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from behaviour_helpers import SPARSE, random_policy, some_tasks
from safetensors import safe_open

from omrl.behaviour.policies import INDEX, PolicyFiles, checkpoint_file, sample_actions, to_half
from omrl.errors import OmrlError
from omrl.learning.nets import squashed_gaussian

SOURCE = {"algorithm": "none", "seed": 3, "agents": {"checkpoints": [0, 40]}}
TASKS = some_tasks(SPARSE, 3)


def stacked(seed: int, shared: bool = False):
    weights, biases = random_policy(SPARSE, 3, seed=seed)
    named = {f"weight.{i}": w for i, w in enumerate(weights)} | {f"bias.{i}": b for i, b in enumerate(biases)}
    if shared:
        named = {name: np.repeat(value[:1], 3, axis=0) for name, value in named.items()}
    return named


@pytest.fixture
def stored(tmp_path) -> PolicyFiles:
    checkpoints = {0: to_half(stacked(0, shared=True), shared=True), 40: to_half(stacked(1), shared=False)}
    return PolicyFiles.write(tmp_path / "policies", SPARSE, TASKS, checkpoints, SOURCE)


def edit(stored: PolicyFiles, change) -> None:
    path = stored.folder / INDEX
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


def test_what_is_written_is_what_opens(stored):
    again = PolicyFiles.open(stored.folder)
    assert again.family is SPARSE
    assert again.tasks == tuple(TASKS)
    assert again.steps == (0, 40)
    assert again.source == SOURCE
    weights, biases = again.weights(40)
    original = stacked(1)
    for kind, layers in (("weight", weights), ("bias", biases)):
        assert len(layers) == 2
        for i, layer in enumerate(layers):
            assert layer.dtype == np.float32
            np.testing.assert_array_equal(layer, original[f"{kind}.{i}"].astype(np.float16).astype(np.float32))


def test_the_files_hold_half_precision(stored):
    with safe_open(stored.folder / checkpoint_file(40), framework="np") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {np.dtype(np.float16)}  # noqa: SIM118


def test_policies_that_all_tasks_share_are_stored_once(stored):
    with safe_open(stored.folder / checkpoint_file(0), framework="np") as file:
        assert {file.get_tensor(name).shape[0] for name in file.keys()} == {1}  # noqa: SIM118
    weights, biases = stored.weights(0)
    for layer in (*weights, *biases):
        assert layer.shape[0] == 3
        np.testing.assert_array_equal(layer[0], layer[2])


def test_written_policies_can_be_read_by_others(stored):
    modes = {path.stat().st_mode & 0o044 for path in stored.folder.iterdir()}
    assert modes == {(stored.folder / INDEX).stat().st_mode & 0o044}


def drop(*keys):
    def change(index):
        for key in keys[:-1]:
            index = index[key]
        del index[keys[-1]]

    return change


def put(value, *keys):
    def change(index):
        for key in keys[:-1]:
            index = index[key]
        index[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put(2, "schema"), "schema 2"),
        (drop("schema"), "schema"),
        (drop("tasks"), "tasks"),
        (put([], "tasks"), "no task"),
        (put("task-000", "tasks"), "task"),
        (put({"name": "task-000", "params": {}}, "tasks", 0), "not a task of"),
        (put("no-such-family", "family"), "no-such-family"),
        (put("point-robot-wind", "family"), "not a task of point-robot-wind"),
        (put([1, 2], "checkpoints"), "not a valid index"),
        (put({}, "checkpoints"), "no checkpoint"),
        (put({}, "checkpoints", "soon"), "not a valid index"),
        (put({}, "checkpoints", "80"), "step-0000080.safetensors, which is missing"),
        (drop("checkpoints", "40", "sha256"), "sha256"),
        (put("0" * 64, "checkpoints", "40", "sha256"), "step-0000040.safetensors does not match"),
        (drop("source"), "source"),
        (put(7, "source"), "not a valid index"),
    ],
)
def test_a_damaged_index_is_one_sentence(stored, change, says):
    edit(stored, change)
    with pytest.raises(OmrlError) as caught:
        PolicyFiles.open(stored.folder)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\udcff"])
def test_an_index_that_is_not_a_json_object_is_one_sentence(stored, text):
    (stored.folder / INDEX).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(OmrlError, match=r"policies\.json is not "):
        PolicyFiles.open(stored.folder)


def test_an_altered_file_is_refused(stored):
    path = stored.folder / checkpoint_file(40)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(OmrlError, match=r"step-0000040\.safetensors does not match .* it was altered"):
        PolicyFiles.open(stored.folder)


def test_a_truncated_file_and_a_missing_one_are_refused(stored):
    path = stored.folder / checkpoint_file(40)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(OmrlError, match="does not match"):
        PolicyFiles.open(stored.folder)
    path.unlink()
    with pytest.raises(OmrlError, match=r"names step-0000040\.safetensors, which is missing"):
        PolicyFiles.open(stored.folder)


def test_a_folder_without_policies_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(OmrlError, match=r"holds no behaviour policies \(policies\.json is missing\)"):
            PolicyFiles.open(folder)


def test_sampled_actions_equal_torchs_squashed_gaussian():
    weights, biases = random_policy(SPARSE, 3)
    rng = np.random.default_rng(5)
    obs, noise = rng.normal(size=(2, 3, 6, 2)).astype(np.float32)
    found, _ = sample_actions(weights, biases, obs, noise)
    for t in range(3):
        x = torch.relu(torch.from_numpy(obs[t]) @ torch.from_numpy(weights[0][t]) + torch.from_numpy(biases[0][t]))
        outputs = x @ torch.from_numpy(weights[1][t]) + torch.from_numpy(biases[1][t])
        expected, _ = squashed_gaussian(outputs, torch.from_numpy(noise[t]))
        np.testing.assert_allclose(found[t], expected.numpy(), atol=1e-6)
    assert found.dtype == np.float32


@pytest.mark.parametrize("hidden", [8, 64, 128])
def test_actions_of_a_task_have_the_same_bits_whichever_tasks_are_beside_it(hidden):
    weights, biases = random_policy(SPARSE, 9, hidden=hidden)
    rng = np.random.default_rng(6)
    obs, noise = rng.normal(size=(2, 9, 5, 2)).astype(np.float32)
    together, _ = sample_actions(weights, biases, obs, noise)
    for chosen in ([4], [8, 0], [2, 4, 6]):
        own = [w[chosen] for w in weights], [b[chosen] for b in biases]
        alone, _ = sample_actions(*own, obs[chosen], noise[chosen])
        np.testing.assert_array_equal(alone, together[chosen])
