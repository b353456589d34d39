"""Property-based: what is written comes back, and no damaged byte goes unnoticed."""

import json
import tempfile
from pathlib import Path

import numpy as np
from example_logs import SETTINGS, assert_same_rows, make_dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omrl.data import MetaDataset
from omrl.data.arrays import ARRAYS
from omrl.errors import OmrlError

modest = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def task_arrays(draw, S, A, dense, checkpoints):
    """Any task that the format allows: odd episode numbers, extreme floats, -0.0, flags or none."""
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    ids = draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=len(lengths), max_size=len(lengths), unique=True))
    n = sum(lengths)
    last = np.zeros(n, bool)
    last[np.cumsum(lengths) - 1] = True

    def numbers(*shape):
        values = st.lists(floats, min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
        return np.array(draw(values), np.float32).reshape(shape)

    def flags():
        return last & np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))

    arrays = {
        "observations": numbers(n, S),
        "actions": np.clip(numbers(n, A), -2, 3),
        "rewards": numbers(n),
        "next_observations": numbers(n, S),
        "episode": np.repeat(np.array(ids, np.int32), lengths),
        "step": np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        "terminations": flags(),
        "truncations": flags(),
    }
    if dense:
        arrays["rewards_dense"] = numbers(n)
    if checkpoints:
        steps = draw(st.lists(st.integers(0, 2**31 - 1), min_size=len(lengths), max_size=len(lengths)))
        arrays["policy_step"] = np.repeat(np.array(steps, np.int32), lengths)
    return {name: arrays[name] for name in ARRAYS if name in arrays}


names = st.text(st.characters(categories=("L", "N", "P", "Zs")), min_size=1, max_size=8).filter(str.isprintable)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def logs(draw):
    S, A, dense, checkpoints = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        draw(st.booleans()),
        draw(st.booleans()),
    )
    tasks = draw(st.dictionaries(names, task_arrays(S, A, dense, checkpoints), min_size=1, max_size=3))
    order = draw(st.permutations(list(tasks)))
    about = {
        "action_low": -2,
        "action_high": 3,
        "varies": draw(st.sampled_from(["reward", "dynamics", "both"])),
        "split": {"train": list(order[:2]), "test": list(order[1:])},
        "params": {name: draw(st.dictionaries(st.text(max_size=5), json_values, max_size=2)) for name in tasks},
        "source": draw(st.dictionaries(st.text(max_size=5), json_values, max_size=2)),
        "horizon": draw(st.none() | st.integers(1, 5)),
    }
    return tasks, about


@modest
@given(logs())
def test_arrays_to_folder_and_back(case):
    tasks, about = case
    with tempfile.TemporaryDirectory() as folder:
        MetaDataset.from_arrays(tasks, **about).save(Path(folder) / "logs")
        dataset = MetaDataset.open(Path(folder) / "logs")
        dataset.validate()
        assert [task.name for task in dataset.tasks] == list(tasks)
        for name, arrays in tasks.items():
            assert_same_rows(dataset.rows(name), arrays)
        assert {task.name: dict(task.params) for task in dataset.tasks} == about["params"]
        assert dataset.manifest.source == about["source"] and dataset.manifest.horizon == about["horizon"]
        assert {part: list(members) for part, members in dataset.split.items()} == about["split"]


class Damaged:
    """A small saved dataset, one of whose files is damaged and restored."""

    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "logs"
        small = {name: values[:7] for name, values in make_dataset().rows("a").items()}
        make_dataset({"a": small, "b": small}, **{**SETTINGS, "split": None, "params": {"a": {"é": "ü"}}}).save(
            self.folder
        )
        self.files = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        self.manifest = MetaDataset.open(self.folder).manifest

    def survives(self, name, data):
        """Whether a file with these bytes passes validation unnoticed; only an OmrlError counts as noticing."""
        try:
            (self.folder / name).write_bytes(data)
            dataset = MetaDataset.open(self.folder)
            dataset.validate()
        except OmrlError as error:
            assert "\n" not in str(error)
            return False
        finally:
            (self.folder / name).write_bytes(self.files[name])
        assert dataset.manifest == self.manifest, "content changed without notice"
        return True


DAMAGED = Damaged()
damage = settings(max_examples=300, deadline=None)


@damage
@given(st.data())
def test_any_flipped_byte_in_a_task_file_is_noticed(data):
    original = DAMAGED.files["task-000.safetensors"]
    position = data.draw(st.integers(0, len(original) - 1))
    flip = data.draw(st.integers(1, 255))
    changed = bytearray(original)
    changed[position] ^= flip
    assert not DAMAGED.survives("task-000.safetensors", bytes(changed))


@damage
@given(st.data())
def test_any_flipped_byte_in_the_manifest_is_noticed_or_harmless(data):
    original = DAMAGED.files["manifest.json"]
    position = data.draw(st.integers(0, len(original) - 1))
    flip = data.draw(st.integers(1, 255))
    changed = bytearray(original)
    changed[position] ^= flip
    if DAMAGED.survives("manifest.json", bytes(changed)):
        assert json.loads(changed) == json.loads(original)


def test_every_position_of_the_manifest():
    original = DAMAGED.files["manifest.json"]
    for position in range(len(original)):
        changed = bytearray(original)
        changed[position] ^= 1
        if DAMAGED.survives("manifest.json", bytes(changed)):
            assert json.loads(changed) == json.loads(original)


@damage
@given(st.sampled_from(["manifest.json", "task-000.safetensors"]), st.data())
def test_truncation_at_any_length_is_noticed(name, data):
    original = DAMAGED.files[name]
    # The manifest's last byte is a line end, without which it is still whole.
    length = data.draw(st.integers(0, len(original) - (2 if name == "manifest.json" else 1)))
    assert not DAMAGED.survives(name, original[:length])


@damage
@given(st.sampled_from(["manifest.json", "task-000.safetensors"]), st.binary(max_size=200))
def test_rubbish_is_noticed(name, rubbish):
    assert not DAMAGED.survives(name, rubbish)
