"""Every kind of bad input: one sentence with file, task, array and row, and nothing written."""

import json
import os

import numpy as np
import pytest
from example_logs import edit_manifest, make_dataset, make_logs, make_task, tree

from omrl.data import MetaDataset
from omrl.errors import OmrlError


def put(name, index, value):
    def change(arrays):
        arrays[name] = arrays[name].astype(np.result_type(arrays[name], np.asarray(value).dtype))
        arrays[name][index] = value

    return change


def replace(name, make):
    def change(arrays):
        arrays[name] = make(arrays[name])

    return change


def swap_episodes(arrays):
    arrays["episode"][:] = np.where(arrays["episode"] == 2, 0, arrays["episode"])


BAD_ARRAYS = {
    "nan": (put("observations", (7, 1), np.nan), "observations, row 7: nan is not a finite"),
    "inf": (put("rewards", 3, np.inf), "rewards, row 3: inf is not a finite"),
    "nan dense": (put("rewards_dense", 0, np.nan), "rewards_dense, row 0: nan is not a finite"),
    "too big": (put("next_observations", (2, 0), 1e300), r"next_observations, row 2: 1e\+300 is not a finite 32-bit"),
    "wrong dims": (replace("observations", lambda a: a[:, :2]), r"observations: its shape is \[25, 2\] but must be"),
    "flat": (replace("actions", np.ravel), r"actions: its shape is \[50\] but must be \[25, 2\]"),
    "wide rewards": (replace("rewards", lambda a: a[:, None]), r"rewards: its shape is \[25, 1\] but must be \[25\]"),
    "scalar": (replace("rewards", lambda a: 1.0), r"rewards: its shape is \[\] but must be \[25\]"),
    "strings": (replace("rewards", lambda a: a.astype(str)), "rewards: its dtype is <U32 but must be a number"),
    "objects": (replace("actions", lambda a: a.astype(object)), "actions: its dtype is object"),
    "complex": (replace("rewards", lambda a: a + 1j), "rewards: its dtype is complex64"),
    "ragged": (replace("observations", lambda a: [[1, 2, 3], [1]]), "observations: it is not an array"),
    "short": (replace("rewards", lambda a: a[:-1]), "rewards: it has 24 rows but observations has 25"),
    "missing": (lambda a: a.pop("terminations"), "terminations: the array is missing"),
    "unknown": (lambda a: a.update(colour=a["rewards"]), "colour: there is no such array"),
    "out of bounds": (
        put("actions", (9, 1), 3.5),
        r"actions, row 9: 3.5 in dimension 1 is outside the bounds \[-2, 3\]",
    ),
    "torn episode": (swap_episodes, "episode, row 7: the rows of episode 0 do not lie together"),
    "fractional": (replace("episode", lambda a: a + 0.5), "episode, row 0: 0.5 is not a whole 32-bit number"),
    "too large": (put("policy_step", 4, 2**40), "policy_step, row 4: 1099511627776 is not a whole 32-bit number"),
    "negative": (put("policy_step", slice(0, 4), -1), "policy_step, row 0: -1 is negative"),
    "two policies": (put("policy_step", 1, 5), "policy_step, row 1: it changes inside episode 0"),
    "step skips": (put("step", 2, 3), "step, row 2: step 3 does not follow on"),
    "step from 1": (replace("step", lambda a: a + 1), "step, row 0: step 1 does not follow on"),
    "flag inside": (put("terminations", 1, True), "terminations, row 1: the flag is set but episode 0 goes on"),
    "timeout inside": (put("truncations", 5, True), "truncations, row 5: the flag is set but episode 1 goes on"),
    "half a flag": (replace("terminations", lambda a: a * 0.5), "terminations, row 3: 0.5 is not a truth value"),
}


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_bad_arrays(kind, tmp_path):
    change, message = BAD_ARRAYS[kind]
    logs = make_logs()
    logs["a"] = logs.pop("a")  # the first task's dimensions are taken as the right ones
    change(logs["a"])
    with pytest.raises(OmrlError, match="^arrays: task 'a', " + message) as caught:
        make_dataset(logs).save(tmp_path / "logs")
    assert "\n" not in str(caught.value)
    assert tree(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace("observations", np.ravel), r"observations: its shape is \[75\] but must be \[rows, dims\]"),
        (replace("actions", lambda a: [[1, 2], [1]]), "actions: it is not an array"),
        (lambda a: a.pop("actions"), "actions: the array is missing"),
        (replace("observations", lambda a: None), "observations: its dtype is object"),
    ],
)
def test_bad_arrays_in_the_first_task(change, message):
    logs = make_logs()
    change(logs["a"])
    with pytest.raises(OmrlError, match="^arrays: task 'a', " + message):
        make_dataset(logs)


def test_no_tasks_and_unknown_names():
    with pytest.raises(OmrlError, match="there are no tasks"):
        make_dataset({}, split=None)
    with pytest.raises(OmrlError, match=r"split.test names task 'c d/é', which is missing"):
        make_dataset({"a": make_task(), "b": make_task()})


def test_empty_task():
    logs = {"b": make_task(), "a": {name: values[:0] for name, values in make_task().items()}}
    with pytest.raises(OmrlError, match="task 'a', observations: the task is empty"):
        make_dataset(logs, split=None, params=None)


def test_numbers_of_other_types_are_taken():
    arrays = make_task(checkpoints=(0, 1))
    wide = {name: values.astype(np.float64) for name, values in arrays.items()}
    wide["terminations"] = arrays["terminations"].astype(np.uint8)
    wide["rewards"] = wide["rewards"].tolist()
    found = make_dataset({"a": wide}, split=None, params=None).rows("a")
    for name, values in arrays.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)


@pytest.fixture
def folder(tmp_path):
    return make_dataset().save(tmp_path / "logs").path


def task_entry(**changes):
    return lambda content: content["tasks"][1].update(changes)


def named(S, A, name=None, low=-1, reward="r"):
    """Descriptions of so many columns."""

    def column(name):
        return {"name": name, "unit": None, "category": None, "low": low, "high": 1}

    columns = {part: [column(name or f"{part[0]}{i}") for i in range(n)] for part, n in (("obs", S), ("act", A))}
    return {"observations": columns["obs"], "actions": columns["act"], "rewards": column(reward)}


BAD_MANIFESTS = {
    "schema": (lambda c: c.update(schema=99), "schema version 99 is unknown; this omrl reads versions 1 and 2"),
    "no schema": (lambda c: c.pop("schema"), "schema version None is unknown"),
    "true schema": (lambda c: c.update(schema=True), "schema version True is unknown"),
    "unknown key": (lambda c: c.update(colour=1), "key 'colour' is unknown"),
    "missing key": (lambda c: c.pop("varies"), "key 'varies' is missing"),
    "nested unknown": (task_entry(colour=1), r"key 'tasks\[1\].colour' is unknown"),
    "nested missing": (lambda c: c["tasks"][2]["returns"].pop("std"), r"key 'tasks\[2\].returns.std' is missing"),
    "wrong type": (task_entry(rows="many"), r"key 'tasks\[1\].rows' must be a whole number, not 'many'"),
    "true is no number": (task_entry(rows=True), r"key 'tasks\[1\].rows' must be a whole number, not True"),
    "no list": (lambda c: c.update(tasks={}), r"key 'tasks' must be a list, not {}"),
    "no object": (task_entry(params=[]), r"key 'tasks\[1\].params' must be an object"),
    "no dataclass": (task_entry(returns=1), r"key 'tasks\[1\].returns' must be an object"),
    "no tasks": (lambda c: c.update(tasks=[]), "there are no tasks"),
    "duplicate task": (task_entry(name="a"), "task 'a' is there twice"),
    "missing task": (lambda c: c["tasks"].pop(), "split.test names task 'c d/é', which is missing"),
    "empty task": (task_entry(rows=0), "task 'b' is empty"),
    "checkpoints": (
        lambda c: c["tasks"][1]["checkpoints"].pop(),
        "checkpoints of task 'b' do not add up to its 24 rows",
    ),
    "same file": (task_entry(file="task-000.safetensors"), "two tasks name the same file"),
    "rows": (
        task_entry(rows=23, checkpoints=[]),
        r"observations: its shape is \[24, 3\] but the manifest says \[23, 3\]",
    ),
    "size": (task_entry(bytes=17), "the file of task 'b' has 1992 bytes, the manifest says 17"),
    "dims": (lambda c: c.update(observation_dim=4), r"its shape is \[25, 3\] but the manifest says \[25, 4\]"),
    "columns": (lambda c: c.update(columns=[]), "key 'columns' must be an object"),
    "columns of nothing": (
        lambda c: c.update(columns=named(2, 2)),
        "columns.observations describes 2 numbers, but there",
    ),
    "columns twice": (lambda c: c.update(columns=named(3, 2, "x")), "columns.observations names 'x' twice"),
    "columns without names": (lambda c: c.update(columns=named(3, 2, reward="")), "'' cannot be a column's name"),
    "columns upside down": (lambda c: c.update(columns=named(3, 2, low=9)), "column 'o0' goes from 9 to 1"),
    "choices": (
        lambda c: c.update(discrete_actions=[{"values": [1.0]}]),
        r"key 'discrete_actions\[0\].labels' is missing",
    ),
    "gone": (task_entry(file="task-007.safetensors"), "task-007.safetensors: the file of task 'b' is missing"),
    "long": (task_entry(file="x" * 5000), "x: the file of task 'b' is missing"),
}
BAD_MANIFESTS |= {
    f"leaves: {path}": (task_entry(file=path), "of task 'b' leaves the folder")
    for path in ("../x.safetensors", "/etc/passwd", "..", ".", "", "sub/task.safetensors", "..\\x")
}


@pytest.mark.parametrize("kind", BAD_MANIFESTS)
def test_bad_manifests(kind, folder):
    change, message = BAD_MANIFESTS[kind]
    edit_manifest(folder, change)
    with pytest.raises(OmrlError, match=message) as caught:
        MetaDataset.open(folder)
    assert str(caught.value).startswith(str(folder)) and "\n" not in str(caught.value)


def test_a_manifest_edited_by_hand_is_noticed(folder):
    edit_manifest(folder, lambda content: content["source"].update(seed=8), resign=False)
    with pytest.raises(OmrlError, match=r"manifest.json: its content does not match its checksum"):
        MetaDataset.open(folder)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"NaN", b'{"schema": NaN}', b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_that_is_not_json(folder, text):
    (folder / "manifest.json").write_bytes(text)
    with pytest.raises(OmrlError, match=r"manifest.json: it is not (JSON|a JSON object)"):
        MetaDataset.open(folder)


def test_not_a_dataset(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(OmrlError, match=r"is not a meta-dataset: there is no .*manifest.json"):
            MetaDataset.open(path)


def test_a_link_that_leaves_the_folder(folder, tmp_path):
    file = folder / "task-001.safetensors"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OmrlError, match=r"'task-001.safetensors' of task 'b' leaves the folder"):
        MetaDataset.open(folder)


def test_a_missing_file(folder):
    (folder / "task-001.safetensors").unlink()
    with pytest.raises(OmrlError, match=r"task-001.safetensors: the file of task 'b' is missing"):
        MetaDataset.open(folder)


def test_a_truncated_file(folder):
    file = folder / "task-001.safetensors"
    size = file.stat().st_size
    os.truncate(file, size - 1)
    with pytest.raises(OmrlError, match=f"the file of task 'b' has {size - 1} bytes, the manifest says {size}"):
        MetaDataset.open(folder)
    for length in (0, 5, 100):
        os.truncate(file, length)
        edit_manifest(folder, task_entry(bytes=length))
        with pytest.raises(OmrlError, match=r"task-001.safetensors: it is not"):
            MetaDataset.open(folder)


def test_a_file_truncated_after_opening(folder):
    dataset = MetaDataset.open(folder)
    os.truncate(folder / "task-001.safetensors", 1000)
    with pytest.raises(OmrlError, match=r"task-001.safetensors: the file of task 'b' cannot be read"):
        dataset.rows("b")


@pytest.mark.parametrize("touch", ["rows", "sample", "to", "returns", "validate"])
def test_one_flipped_byte_is_found_by_whatever_reads_the_rows(folder, touch):
    file = folder / "task-001.safetensors"
    data = bytearray(file.read_bytes())
    data[-30] ^= 1
    file.write_bytes(data)
    dataset = MetaDataset.open(folder)
    dataset.rows("a")
    calls = {
        "rows": lambda: dataset.rows("b"),
        "sample": lambda: dataset.sample("b", 3, np.random.default_rng(0)),
        "to": dataset.to,
        "returns": lambda: dataset.returns("b"),
        "validate": dataset.validate,
    }
    with pytest.raises(OmrlError, match=r"task-001.safetensors: the file of task 'b' does not match its checksum"):
        calls[touch]()


def header_of(data):
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["rewards"].update(dtype="F64"), "rewards: its dtype is not F32"),
        (lambda h: h["rewards"].update(shape=[12, 2]), r"rewards: its shape is \[12, 2\]"),
        (lambda h: h["rewards"].update(data_offsets=[0, 96]), "rewards: its bytes do not lie where they should"),
        (lambda h: h.pop("rewards"), "rewards: the array is missing from the file"),
        (lambda h: h.pop("policy_step"), "terminations: its bytes do not lie where they should"),
        (lambda h: h.update(colour={}), "colour: the file holds an array that the format does not know"),
        (lambda h: h.update(rewards=[]), "rewards: its dtype is not F32"),
    ],
)
def test_headers_that_disagree(folder, change, message):
    file = folder / "task-001.safetensors"
    header, rows = header_of(file.read_bytes())
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + rows)
    edit_manifest(folder, task_entry(bytes=file.stat().st_size))
    with pytest.raises(OmrlError, match=r"task-001.safetensors: task 'b', " + message):
        MetaDataset.open(folder)


def test_bytes_after_the_last_array(folder):
    file = folder / "task-001.safetensors"
    file.write_bytes(file.read_bytes() + b"x")
    edit_manifest(folder, task_entry(bytes=file.stat().st_size))
    with pytest.raises(OmrlError, match="task 'b': it has 1993 bytes but its arrays need 1992"):
        MetaDataset.open(folder)


def test_statistics_that_are_not_those_of_the_rows(folder):
    edit_manifest(folder, lambda content: content["tasks"][1]["returns"].update(mean=1e6))
    dataset = MetaDataset.open(folder)
    with pytest.raises(OmrlError, match="the statistics of task 'b' are not those of the manifest"):
        dataset.validate()
