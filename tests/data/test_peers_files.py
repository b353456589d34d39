"""Files of other code bases: a folder of arrays per task, and trajectories of pickled objects, never unpickled."""

import builtins
import contextlib
import json
import pickle
import struct
import time

import numpy as np
import pytest

from omrl.commands.data import Import
from omrl.data import interchange
from omrl.data.interchange import objects
from omrl.errors import OmrlError
from omrl.families import FAMILIES

FLAGS = {"action_low": (-1.0,), "action_high": (1.0,), "varies": "reward", "test_tasks": ()}


def load(kind, path, **flags):
    return interchange.read(Import(src=path, dir=path.parent / "out", format=kind, force=True, **{**FLAGS, **flags}))


def steps(n, seed=0, S=3, A=2):
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(n + 1, S)).cumsum(0)
    return {
        "obs": obs[:-1],
        "actions": rng.uniform(-1, 1, (n, A)),
        "rewards": rng.normal(size=(n, 1)),
        "next_obs": obs[1:],
        "terminals": np.zeros((n, 1)),
    }


def save(folder, arrays):
    folder.mkdir(parents=True)
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)


def test_a_folder_of_arrays_per_task(tmp_path):
    for goal in range(11):
        save(tmp_path / "data" / f"goal_{goal}", steps(60, seed=goal))
    dataset = load("npy", tmp_path / "data", episode_length=20, test_tasks=("goal_10",))
    assert [task.name for task in dataset.tasks] == [f"goal_{goal}" for goal in range(11)]
    rows, truth = dataset.rows("goal_10"), steps(60, seed=10)
    np.testing.assert_array_equal(rows["observations"], truth["obs"].astype(np.float32))
    np.testing.assert_array_equal(rows["next_observations"], truth["next_obs"].astype(np.float32))
    np.testing.assert_array_equal(rows["rewards"], truth["rewards"][:, 0].astype(np.float32))
    assert dataset.manifest.tasks[0].episodes == 3 and rows["truncations"].nonzero()[0].tolist() == [19, 39, 59]
    with pytest.raises(OmrlError, match="goal_0 does not say in which order its rows are"):
        load("npy", tmp_path / "data")


def test_arrays_of_steps_by_episodes(tmp_path):
    every = [steps(20, seed=i) for i in range(3)]
    save(tmp_path / "data" / "a", {name: np.stack([e[name] for e in every], axis=1) for name in every[0]})
    dataset = load("npy", tmp_path / "data")
    assert dataset.manifest.tasks[0].episodes == 3
    for number, truth in enumerate(every):
        rows = dataset.rows("a", episode=number)
        np.testing.assert_array_equal(rows["observations"], truth["obs"].astype(np.float32))
        np.testing.assert_array_equal(rows["actions"], truth["actions"].astype(np.float32))
        assert rows["step"].tolist() == list(range(20))


def test_bad_folders_of_arrays(tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(OmrlError, match=r"data holds no folder with .npy files; give the folder above the tasks'"):
        load("npy", tmp_path / "data")
    (tmp_path / "file").touch()
    for kind in ("npy", "focal"):
        with pytest.raises(OmrlError, match="file is a file; give the folder"):
            load(kind, tmp_path / "file")
    save(tmp_path / "data" / "a", steps(20))
    np.save(tmp_path / "data" / "a" / "rewards.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(OmrlError, match=r"rewards.npy carries pickled objects, which are not read"):
        load("npy", tmp_path / "data", in_order=True)
    (tmp_path / "data" / "a" / "rewards.npy").write_bytes(b"rubbish")
    with pytest.raises(OmrlError, match=r"rewards.npy cannot be read as npy"):
        load("npy", tmp_path / "data", in_order=True)
    with (tmp_path / "data" / "a" / "rewards.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with pytest.raises(OmrlError, match=r"rewards.npy claims 8,000,000,000,000 bytes, but 0 are there"):
        load("npy", tmp_path / "data", in_order=True)


def trajectory(n, seed=0, scalar=float, dtype=np.float64):
    """As FOCAL's code makes one: rows of arrays and a number, of unequal length, in an array of objects."""
    truth = steps(n, seed)
    rows = np.empty((n, 4), dtype=object)
    for i in range(n):
        parts = (truth["obs"][i], truth["actions"][i], truth["rewards"][i, 0], truth["next_obs"][i])
        rows[i, 0], rows[i, 1], rows[i, 3] = (np.asarray(parts[k], dtype) for k in (0, 1, 3))
        rows[i, 2] = scalar(parts[2])
    return rows, truth


def dump(path, content, protocol=4):
    """What np.save writes, with any pickle protocol, of anything."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": (1, 4)})
        file.write(content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol))


def test_trajectories_of_focal(tmp_path):
    truths = {}
    for goal in (0, 2, 10):
        for step in (1000, 200):
            for k in range(2):
                path = tmp_path / "data" / f"goal_idx{goal}" / f"trj_evalsample{k}_step{step}.npy"
                path.parent.mkdir(parents=True, exist_ok=True)
                rows, truths[goal, step, k] = trajectory(15, seed=goal + step + k)
                np.save(path, rows, allow_pickle=True)
    (tmp_path / "data" / "goal_idx0" / "actor_step200.pkl").write_bytes(b"never read")
    dataset = load("focal", tmp_path / "data")
    assert [task.name for task in dataset.tasks] == ["goal_idx0", "goal_idx2", "goal_idx10"]
    assert [c.policy_step for c in dataset.manifest.tasks[0].checkpoints] == [200, 1000]
    rows = dataset.rows("goal_idx10")
    order = [truths[10, step, k] for step in (200, 1000) for k in range(2)]
    for ours, theirs in {"observations": "obs", "actions": "actions", "next_observations": "next_obs"}.items():
        np.testing.assert_array_equal(rows[ours], np.concatenate([t[theirs] for t in order]).astype(np.float32))
    np.testing.assert_array_equal(
        rows["rewards"], np.concatenate([t["rewards"][:, 0] for t in order]).astype(np.float32)
    )
    assert not rows["terminations"].any() and rows["truncations"].nonzero()[0].tolist() == [14, 29, 44, 59]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("scalar", [float, np.float64, np.float32])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ">f8"])
def test_every_way_in_which_numpy_writes_objects(protocol, scalar, dtype, tmp_path):
    rows, truth = trajectory(30, seed=3, scalar=scalar, dtype=dtype)
    dump(tmp_path / "data" / "goal_idx0" / "trj_eval0_step5.npy", rows, protocol)
    found = load("focal", tmp_path / "data").rows(0)
    np.testing.assert_array_equal(found["observations"], truth["obs"].astype(dtype).astype(np.float32))
    np.testing.assert_array_equal(found["rewards"], truth["rewards"][:, 0].astype(scalar).astype(np.float32))


class Calls:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


class Stateful:
    pass


def nested(depth):
    return b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b"."


def claims(shape, data=b"12345678"):
    """An array of a few bytes that says it is of this shape."""
    array = np.zeros(1)
    text = pickle.dumps(array, protocol=2)
    one, many = b"K\x01\x85", b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", n) for n in shape) + b"t"
    assert one in text
    return text.replace(one, many)


def rows_of(cell):
    rows, _ = trajectory(3)
    rows[1, 0] = cell
    return rows


HOSTILE = {
    "system": (lambda: rows_of(Calls(__import__("os").system, "touch /tmp/owned")), r"holds posix.system, where only"),
    "eval": (lambda: rows_of(Calls(eval, "1")), r"holds (builtins|__builtin__).eval, where only numbers"),
    "open": (lambda: rows_of(Calls(open, "/etc/passwd")), r"holds (io|_io).open, where only numbers"),
    "numpy's own": (lambda: rows_of(Calls(np.loadtxt, "/etc/passwd")), r"holds numpy.*loadtxt, where only numbers"),
    "array, called": (lambda: rows_of(Calls(np.ndarray, (10**9,))), "holds a call of numpy.ndarray, where only"),
    "an object": (lambda: rows_of(Stateful()), r"holds test_peers_files.Stateful, where only|holds copyreg"),
    "a dict": (lambda: rows_of({"a": 1}), "holds the instruction EMPTY_DICT, where only"),
    "a set": (lambda: rows_of({1}), "where only numbers and arrays of numbers are read"),
    "a function": (lambda: rows_of(len), r"holds (builtins|__builtin__).len, where only"),
    "words": (lambda: rows_of("much"), "row 1: its observations are not numbers"),
    "a list": (lambda: rows_of([1.0]), "row 1: its observations are not numbers"),
    "a matrix": (lambda: rows_of(np.zeros((2, 2))), "row 1: its observations are not numbers"),
    "strings": (lambda: rows_of(np.array(["a"])), "holds an array of type 'U1', where only"),
    "records": (lambda: rows_of(np.zeros(2, [("a", "f4")])), "where only numbers and arrays of numbers are read"),
    "ragged": (lambda: rows_of(np.zeros(9)), "the observations of its rows are not of one length"),
    "huge number": (lambda: rows_of(10**400), "row 1: its observations are not numbers"),
    "deep": (lambda: nested(100_000), "is not a trajectory of FOCAL's"),
    "huge shape": (lambda: claims((2**40, 2**40)), "is damaged: its objects cannot be read"),
    "negative shape": (lambda: claims((-1, -8)), "is damaged: its objects cannot be read"),
    "no end": (lambda: b"\x80\x04]", "is damaged: its objects cannot be read"),
    "no stack": (lambda: b"\x80\x040000.", "is damaged: its objects cannot be read"),
    "no mark": (lambda: b"\x80\x04]e.", "is damaged: its objects cannot be read"),
    "no memo": (lambda: b"\x80\x04h\x05.", "is damaged: its objects cannot be read"),
    "huge text": (lambda: b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"x.", "is damaged: its objects cannot be read"),
    "build of a list": (lambda: b"\x80\x04]]b.", "holds an object with a state of its own, where only"),
    "persistent": (lambda: b"Psome id\n.", "holds the instruction PERSID, where only"),
    "an extension": (lambda: b"\x80\x04\x82\x01.", "holds the instruction EXT1, where only"),
    "an instance": (lambda: b"(ios\nsystem\n.", "holds the instruction INST, where only"),
    "four numbers": (lambda: np.zeros(4), "is not a trajectory of FOCAL's: its rows are not of four parts"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_trajectories(kind, tmp_path, monkeypatch):
    make, message = HOSTILE[kind]
    dump(tmp_path / "data" / "goal_idx0" / "trj_eval0_step5.npy", make())
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, None)
    monkeypatch.setattr(builtins, "eval", None)
    started = time.monotonic()
    with pytest.raises(OmrlError, match=message) as caught:
        load("focal", tmp_path / "data")
    assert "\n" not in str(caught.value) and "trj_eval0_step5.npy" in str(caught.value)
    assert time.monotonic() - started < 5 and not (tmp_path / "out").exists()


def test_many_rows_that_share_one_long_array(tmp_path, monkeypatch):
    rows, _ = trajectory(2_000)
    rows[:, 0] = [np.zeros(20_000)] * 2_000  # one array, written once: 0.3 GB of rows from a file of some KB
    dump(tmp_path / "data" / "goal_idx0" / "trj_eval0_step5.npy", rows)
    with pytest.raises(OmrlError, match=r"is a file of .* that unpacks to 1.3 GB; if that is right, say --max-gb"):
        load("focal", tmp_path / "data")


def test_too_many_instructions(tmp_path, monkeypatch):
    monkeypatch.setattr(objects, "MAX_INSTRUCTIONS", 1_000)
    dump(tmp_path / "data" / "goal_idx0" / "trj_eval0_step5.npy", b"\x80\x04" + b"K\x01" * 2_000 + b".")
    with pytest.raises(OmrlError, match="holds more than 1,000 objects, where only"):
        load("focal", tmp_path / "data")


def test_random_bytes_never_do_more_than_raise():
    rows, _ = trajectory(5)
    data = pickle.dumps(rows, protocol=4)
    rng = np.random.default_rng(0)
    for _ in range(500):
        broken = bytearray(data)
        for at in rng.integers(0, len(data), 3):
            broken[at] = rng.integers(0, 256)
        with contextlib.suppress(OmrlError):
            objects.read_objects("x", bytes(broken))


def test_files_that_are_no_trajectories(tmp_path):
    save(tmp_path / "data" / "goal_idx0", steps(20))
    with pytest.raises(OmrlError, match=r"goal_idx0 holds no file such as trj_evalsample0_step1000.npy"):
        load("focal", tmp_path / "data")
    np.save(tmp_path / "data" / "goal_idx0" / "trj_eval0_step1.npy", np.zeros((3, 4)))
    with pytest.raises(OmrlError, match="is not a trajectory of FOCAL's; for arrays of numbers, say --from npy"):
        load("focal", tmp_path / "data")
    with pytest.raises(OmrlError, match="have no termination flags; leave out --terminations"):
        load("focal", tmp_path / "data", terminations="done")


def test_data_of_a_family(tmp_path):
    family = FAMILIES["sparse-point-robot"]
    for goal in range(2):
        save(tmp_path / "data" / f"g{goal}", steps(40, seed=goal, S=family.obs_dim, A=family.act_dim))
    flags = {"episode_length": 20, "family": family.name, "action_low": (), "action_high": (), "varies": None}
    with pytest.raises(OmrlError, match="nothing says what 'goal' is in task 'g0', and sparse-point-robot cannot be"):
        load("npy", tmp_path / "data", **flags)
    goals = {f"g{goal}": {"goal": [0.0, float(goal)]} for goal in range(2)}
    (tmp_path / "goals.json").write_text(json.dumps(goals))
    flags["task_params"] = tmp_path / "goals.json"
    dataset = load("npy", tmp_path / "data", **flags)
    about = dataset.manifest
    assert (about.family, about.varies, about.horizon) == (family.name, family.varies, family.horizon)
    assert about.action_low == (-1,) * family.act_dim and dataset.tasks[1].params == {"goal": [0.0, 1.0]}
    with pytest.raises(OmrlError, match="There is no family 'sparse-point'"):
        load("npy", tmp_path / "data", **{**flags, "family": "sparse-point"})
    with pytest.raises(OmrlError, match="an observation has 2 numbers, one of half-cheetah-vel has 20"):
        load("npy", tmp_path / "data", **{**flags, "family": "half-cheetah-vel"})
    with pytest.raises(OmrlError, match="in sparse-point-robot the reward varies; leave out --varies dynamics"):
        load("npy", tmp_path / "data", **{**flags, "varies": "dynamics"})
