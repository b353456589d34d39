"""Importing flat tables: csv, npz, hdf5, parquet; the hdf5 export."""

import json
import pickle
import sys

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from example_logs import assert_same_dataset, assert_same_rows, make_dataset, make_logs, make_task, tree
from hypothesis import HealthCheck, given, settings
from test_properties import logs

from omrl.commands.data import Import
from omrl.data import MetaDataset, interchange
from omrl.data.arrays import ARRAYS
from omrl.errors import OmrlError

FLAGS = {"action_low": (-2.0,), "action_high": (3.0,), "varies": "reward", "test_tasks": ("b",)}


def spread(arrays):
    """2-d arrays as columns name_0, name_1, ..."""
    columns = {}
    for name, values in arrays.items():
        columns |= {f"{name}_{i}": values[:, i] for i in range(values.shape[1])} if values.ndim == 2 else {name: values}
    return columns


def write_csv(path, columns):
    columns = spread(columns)
    lines = [",".join(columns), *(",".join(str(value) for value in row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")


def write_npz(path, columns):
    np.savez_compressed(path, **columns)


def write_hdf5(path, columns):
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file[name] = values.astype("S") if values.dtype.kind == "U" else values


def write_parquet(path, columns):
    table = {name: values.tolist() if values.ndim == 2 else values for name, values in columns.items()}
    pyarrow.parquet.write_table(pyarrow.table(table), path)


WRITERS = {"csv": write_csv, "npz": write_npz, "hdf5": write_hdf5, "parquet": write_parquet}
formats = pytest.mark.parametrize("kind", WRITERS)


def without_levels():
    return {name: make_task(seed=seed) for seed, name in enumerate(("a", "b", "c"))}


def as_table(tasks):
    table = {name: np.concatenate([arrays[name] for arrays in tasks.values()]) for name in ARRAYS}
    return {"task": np.repeat(list(tasks), [len(arrays["rewards"]) for arrays in tasks.values()]), **table}


def run(kind, src, dst, **flags):
    return interchange.read(Import(src=src, dir=dst, format=kind, **{**FLAGS, **flags}))


@formats
def test_one_file_with_a_task_column(kind, tmp_path, capsys):
    tasks = without_levels()
    WRITERS[kind](tmp_path / f"logs.{kind}", as_table(tasks))
    dataset = run(kind, tmp_path / f"logs.{kind}", tmp_path / "out")
    dataset.validate()
    assert [task.name for task in dataset.tasks] == ["a", "b", "c"]
    for name, arrays in tasks.items():
        assert_same_rows(dataset.rows(name), {array: arrays[array] for array in ARRAYS})
    assert dataset.split == {"train": ("a", "c"), "test": ("b",)} and dataset.family is None
    assert dataset.manifest.source == {"imported_from": f"logs.{kind}", "format": kind}
    shown = capsys.readouterr().out
    assert "observations      <- observations" in shown and "task              <- task" in shown


@formats
def test_one_file_per_task(kind, tmp_path):
    tasks = without_levels()
    (tmp_path / "logs").mkdir()
    for name, arrays in tasks.items():
        WRITERS[kind](tmp_path / "logs" / f"{name}.{kind}", arrays)
    (tmp_path / "logs" / "README.txt").touch()
    dataset = run(kind, tmp_path / "logs", tmp_path / "out")
    for name, arrays in tasks.items():
        assert_same_rows(dataset.rows(name), {array: arrays[array] for array in ARRAYS})


@formats
def test_d4rl_names(kind, tmp_path):
    arrays = make_task(checkpoints=(), dense=False)
    table = {"task": np.repeat(["a"], len(arrays["rewards"]))}
    table |= {name: arrays[name] for name in ("observations", "actions", "rewards", "next_observations")}
    table |= {"terminals": arrays["terminations"], "timeouts": arrays["truncations"]}
    WRITERS[kind](tmp_path / f"d4rl.{kind}", table)
    dataset = run(kind, tmp_path / f"d4rl.{kind}", tmp_path / "out", test_tasks=())
    assert_same_rows(dataset.rows("a"), {array: arrays[array] for array in ARRAYS if array in arrays})


def test_csv_with_names_of_all_kinds(tmp_path, capsys):
    """Interleaved tasks, text flags, episode names, numbers as task names, other prefixes, quotes."""
    (tmp_path / "logs.csv").write_text(
        'Task_ID,traj_id,"state_1",state_0,act_0,Reward,terminated,note\n'
        '007,x,1,0,0.5,1,false,"a, b"\n'
        "8,x,11,10,0.5,2,False,\n"
        "007,x,2,1,0.5,3,true,\n"
        "8,x,12,11,0.5,4,FALSE,\n"
        "007,y,3,2,0.25,5,0,\n"
        "8,x,13,12,0.5,6,1,\n"
        "007,y,4,3,0.5,7,0,\n"
    )
    dataset = run(
        "csv", tmp_path / "logs.csv", tmp_path / "out", test_tasks=("8",), action_low=(0.0,), action_high=(1.0,)
    )
    assert [task.name for task in dataset.tasks] == ["007", "8"]
    first = dataset.rows("007")
    assert first["observations"].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert first["next_observations"].tolist() == [[1, 2], [1, 2], [3, 4]]
    assert first["terminations"].tolist() == [False, True, False] and first["truncations"].tolist() == [
        False,
        False,
        True,
    ]
    assert first["episode"].tolist() == [0, 0, 1] and first["step"].tolist() == [0, 1, 0]
    assert first["rewards"].tolist() == [1, 3, 5]
    assert dataset.rows("8")["rewards"].tolist() == [2, 4, 6]
    shown = capsys.readouterr().out
    assert "observations      <- state_0, state_1" in shown and "next_observations <- (the next row's" in shown
    assert "1 rows without a successor were dropped" in shown and "2 terminal rows were kept" in shown


def test_columns_named_by_flags(tmp_path):
    arrays = make_task(checkpoints=(0, 5))
    names = {"observations": "x", "actions": "u", "rewards": "gain", "next_observations": "x2", "terminations": "end"}
    names |= {"truncations": "cut", "episode": "run", "policy_step": "age", "rewards_dense": "shaped", "step": "k"}
    table = {names[name]: values for name, values in arrays.items()} | {"who": np.repeat(["a"], 25)}
    write_npz(tmp_path / "logs.npz", table)
    wide = ("observations", "actions", "next_observations")
    flags = {name: (column,) if name in wide else column for name, column in names.items()}
    dataset = run("npz", tmp_path / "logs.npz", tmp_path / "out", test_tasks=(), task="who", **flags)
    assert_same_rows(dataset.rows("a"), {array: arrays[array] for array in ARRAYS})


def test_episodes_that_never_end_by_themselves(tmp_path):
    table = {"obs": np.arange(8.0)[:, None], "action": np.zeros(8), "reward": np.ones(8), "episode": np.arange(8) // 4}
    write_npz(tmp_path / "logs.npz", {**table, "task": np.repeat(["a"], 8)})
    flags = {"test_tasks": (), "terminations": "none"}
    dataset = run("npz", tmp_path / "logs.npz", tmp_path / "out", **flags)
    rows = dataset.rows("a")
    assert not rows["terminations"].any() and rows["truncations"].tolist() == [False, False, True] * 2
    assert rows["observations"][:, 0].tolist() == [0, 1, 2, 4, 5, 6]
    assert rows["next_observations"][:, 0].tolist() == [1, 2, 3, 5, 6, 7]


def test_an_unflagged_end_of_the_log_is_a_truncation(tmp_path):
    arrays = make_task(checkpoints=(), dense=False)
    arrays["truncations"][:] = False
    write_npz(tmp_path / "logs.npz", {**arrays, "task": np.repeat(["a"], 25)})
    rows = run("npz", tmp_path / "logs.npz", tmp_path / "out", test_tasks=()).rows("a")
    np.testing.assert_array_equal(rows["truncations"], make_task()["truncations"])


def test_split_and_parameters(tmp_path):
    tasks = {f"t{i}": make_task(seed=i) for i in range(10)}
    write_npz(tmp_path / "logs.npz", as_table(tasks))
    (tmp_path / "params.json").write_text(json.dumps({"t3": {"mass": 2.5}}))
    flags = {"test_tasks": None, "test_fraction": 0.2, "task_params": tmp_path / "params.json", "horizon": 2}
    first = run("npz", tmp_path / "logs.npz", tmp_path / "one", **flags)
    again = run("npz", tmp_path / "logs.npz", tmp_path / "two", **flags)
    other = run("npz", tmp_path / "logs.npz", tmp_path / "three", **flags, seed=1)
    assert first.split == again.split != other.split
    assert len(first.split["test"]) == 2 and set(first.split["train"]) | set(first.split["test"]) == set(tasks)
    assert first.tasks[3].params == {"mass": 2.5} and first.tasks[0].params == {} and first.manifest.horizon == 2


def test_questions_are_asked_at_a_terminal(tmp_path, monkeypatch):
    write_npz(tmp_path / "logs.npz", as_table(without_levels()))
    answers = iter(["-2, -3", "3", "dynamics", "0.34"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    empty = {"action_low": (), "action_high": (), "varies": None, "test_tasks": None}
    dataset = run("npz", tmp_path / "logs.npz", tmp_path / "out", **empty)
    assert dataset.manifest.action_low == (-2, -3) and dataset.manifest.action_high == (3, 3)
    assert dataset.manifest.varies == "dynamics" and len(dataset.split["test"]) == 1


def drop(*names):
    return lambda table: {name: values for name, values in table.items() if name not in names}


def change(name, row, value):
    def changed(table):
        values = table[name].astype(np.float64)
        values[row] = value
        return {**table, name: values}

    return changed


# What is wrong with the table, the flags, and the sentence. Row 30 of the file is row 5 of task b.
BAD_TABLES = {
    "no termination": (drop("terminations"), {}, "no termination flags; name their column with --terminations COLUMN"),
    "only done": (
        lambda t: {**drop("terminations")(t), "done": t["terminations"]},
        {},
        "or say --terminations none if episodes never end by themselves",
    ),
    "no task": (drop("task"), {}, "no task column; name it with --task, or give a folder with one file per task"),
    "no rewards": (drop("rewards"), {}, "no column for the rewards; name it with --rewards"),
    "no actions": (drop("actions"), {}, "no column for the actions; name it with --actions"),
    "wrong flag": (dict, {"rewards": "gain"}, "has no column 'gain'; its columns are task, observations"),
    "no bounds": (
        dict,
        {"action_low": ()},
        r"logs\.npz does not say the smallest possible action .*; give --action-low",
    ),
    "no upper bound": (dict, {"action_high": ()}, "give --action-high"),
    "bounds": (dict, {"action_low": (1.0, 2.0, 3.0)}, "action_low has 3 numbers for 2 action dimensions"),
    "no varies": (dict, {"varies": None}, "give --varies"),
    "no split": (dict, {"test_tasks": None}, "give --test-tasks or --test-fraction"),
    "two splits": (dict, {"test_fraction": 0.5}, "give --test-tasks or --test-fraction, not both"),
    "bad fraction": (dict, {"test_tasks": None, "test_fraction": 1.5}, "--test-fraction is 1.5 but must be"),
    "missing task": (dict, {"test_tasks": ("z",)}, "split.test names task 'z', which is missing"),
    "nan": (
        change("rewards", 30, np.nan),
        {},
        r"logs.npz: 1 value is missing: rewards 1 \(first in task 'b', row 30\); say --missing drop",
    ),
    "inf": (change("rewards", 30, np.inf), {}, "logs.npz: task 'b', rewards, row 30: inf is not a finite"),
    "bounds broken": (change("actions", (30, 1), 9), {}, r"task 'b', actions, row 30: 9 of actions\[1\] is outside"),
    "half a flag": (
        change("terminations", 30, 0.5),
        {},
        r"task 'b', terminations, row 30: .*0.5.* is not a truth value",
    ),
    "flag inside": (change("terminations", 30, 1), {}, "task 'b', terminations, row 30: the flag is set but episode 1"),
    "not in order": (change("step", 30, 7), {}, "task 'b', step, row 30: the rows of the episode are not in order"),
    "episode nan": (
        change("episode", 30, np.nan),
        {},
        r"1 value is missing: episode 1 \(first in task 'b', row 30\)",
    ),
    "no order": (
        drop("episode", "step"),
        {},
        "does not say in which order its rows are: give --time COLUMN, --episode",
    ),
    "no order, a date": (
        lambda t: {**drop("episode", "step")(t), "logged_at": t["rewards"]},
        {},
        r"give --time COLUMN \(perhaps logged_at\), --episode COLUMN or --step COLUMN, or say --in-order",
    ),
    "gap without time": (dict, {"gap": 5.0}, "--gap is about times; name their column with --time"),
    "episodes twice": (dict, {"episode_length": 5}, "--episode-length is for rows without an episode or a time"),
    "skipped": (dict, {"skip_tasks": ("z",)}, "there is no task 'z' to skip"),
    "all skipped": (dict, {"skip_tasks": ("a", "b", "c")}, "every task is skipped"),
    "no such category": (dict, {"categories": ("z",)}, "--categories names 'z', which is no column of the observation"),
    "no unit": (dict, {"units": ("rewards",)}, "--units 'rewards' does not say NAME=UNIT"),
    "unit of nothing": (dict, {"units": ("z=bar",)}, "--units names 'z', which is no column"),
    "torn episode": (
        change("episode", 30, 0),
        {},
        "task 'b', episode, row 30: the rows of episode 0 do not lie together",
    ),
    "lengths": (lambda t: {**t, "rewards": t["rewards"][:-1]}, {}, "column 'rewards' has 74 rows but 'task' has 75"),
    "three dims": (lambda t: {**t, "actions": np.zeros((75, 2, 2))}, {}, r"column 'actions' has shape \[75, 2, 2\]"),
    "text": (
        lambda t: {**t, "rewards": np.repeat(["much"], 75)},
        {},
        "task 'a', rewards, row 0: 'much' is not a number",
    ),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables(kind, tmp_path):
    damage, flags, message = BAD_TABLES[kind]
    write_npz(tmp_path / "logs.npz", damage(as_table(without_levels())))
    with pytest.raises(OmrlError, match=message) as caught:
        run("npz", tmp_path / "logs.npz", tmp_path / "out", **flags)
    assert "\n" not in str(caught.value)
    assert tree(tmp_path) == ["logs.npz"]


def test_a_task_of_which_nothing_is_left(tmp_path):
    table = {"task": np.array(["a", "b"]), "obs": np.zeros((2, 1)), "action": np.zeros(2), "reward": np.zeros(2)}
    write_npz(tmp_path / "logs.npz", {**table, "terminals": np.array([True, False])})
    with pytest.raises(OmrlError, match="task 'b', next_observations: no row has a successor, the task is empty"):
        run("npz", tmp_path / "logs.npz", tmp_path / "out", in_order=True)
    assert tree(tmp_path) == ["logs.npz"]


def test_bad_task_parameters(tmp_path):
    write_npz(tmp_path / "logs.npz", as_table(without_levels()))
    for text, message in {
        '{"z": {}}': "task 'z' is missing from",
        '{"a": 1}': "the parameters of task 'a' must be an object",
        "{": "it is not JSON",
        '{"a": {"size": 1e400}}': r"params\.json: it is not JSON \(1e400 is not JSON\)",
        '{"a": {"size": -Infinity}}': r"params\.json: it is not JSON \(-Infinity is not JSON\)",
    }.items():
        (tmp_path / "params.json").write_text(text)
        with pytest.raises(OmrlError, match=message):
            run("npz", tmp_path / "logs.npz", tmp_path / "out", task_params=tmp_path / "params.json")
    with pytest.raises(OmrlError, match=r"nowhere.json cannot be read"):
        run("npz", tmp_path / "logs.npz", tmp_path / "out", task_params=tmp_path / "nowhere.json")
    assert not (tmp_path / "out").exists()


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("pickle was loaded",))


@pytest.mark.parametrize("name", ["rewards", "infos"])
def test_pickled_objects_are_refused_unread(tmp_path, name):
    objects = np.empty(75, object)
    objects[0] = Bomb()
    np.savez(tmp_path / "logs.npz", **{**as_table(without_levels()), name: objects})
    with pytest.raises(OmrlError, match=f"logs.npz: array '{name}' carries pickled objects, which are not read"):
        run("npz", tmp_path / "logs.npz", tmp_path / "out")
    (tmp_path / "logs.npz").write_bytes(pickle.dumps({"rewards": 1}))
    with pytest.raises(OmrlError, match=r"logs.npz cannot be read as npz"):
        run("npz", tmp_path / "logs.npz", tmp_path / "out")
    assert tree(tmp_path) == ["logs.npz"]


@formats
@pytest.mark.parametrize("damage", ["empty", "rubbish", "truncated", "flipped"])
def test_damaged_source_files(kind, damage, tmp_path):
    path = tmp_path / f"logs.{kind}"
    WRITERS[kind](path, as_table(without_levels()))
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 0x80]) + data[middle + 1 :]
    path.write_bytes(
        {"empty": b"", "rubbish": b"\x93\xff" * 99, "truncated": data[:middle], "flipped": flipped}[damage]
    )
    try:
        run(kind, path, tmp_path / "out")
    except OmrlError as error:
        assert str(path) in str(error)
        assert tree(tmp_path) == [path.name]
    else:  # formats without checksums cannot notice every changed byte
        assert damage == "flipped" or (kind, damage) == ("csv", "truncated")
        MetaDataset.open(tmp_path / "out").validate()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "logs.csv has no task column"),
        ("task,obs,action,reward,terminated\n", "logs.csv holds no rows"),
        ("task,task,obs\n", "two columns of the same name"),
        ("task,obs,action,reward,terminated\na,1,2,3\n", "row 0 has 4 values for 5 columns"),
        ("task,obs,action,reward,terminated\na,1,2,3,0\n\na,1,2,3\n", "row 1 has 4 values for 5 columns"),
        (
            "task,obs,action,reward,terminated\na,1,2,3,0\na,1,zwei,3,0\n",
            "task 'a', action, row 1: 'zwei' is not a number",
        ),
    ],
)
def test_bad_csv(tmp_path, text, message):
    (tmp_path / "logs.csv").write_text(text)
    with pytest.raises(OmrlError, match=message):
        run("csv", tmp_path / "logs.csv", tmp_path / "out", test_tasks=(), in_order=True)
    assert tree(tmp_path) == ["logs.csv"]


def test_bad_folders(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    with pytest.raises(OmrlError, match=r"logs holds no .hdf5 or .h5 file"):
        run("hdf5", folder, tmp_path / "out")
    with pytest.raises(OmrlError, match="nowhere does not exist"):
        run("hdf5", tmp_path / "nowhere", tmp_path / "out")
    write_hdf5(folder / "a.h5", make_task())
    write_hdf5(folder / "b.h5", drop("rewards")(make_task()))
    with pytest.raises(OmrlError, match=r"b.h5 has no column 'rewards', which the first file has"):
        run("hdf5", folder, tmp_path / "out")
    write_hdf5(folder / "a.hdf5", make_task())
    with pytest.raises(OmrlError, match=r"task 'a' is there twice, as a.h5 and a.hdf5"):
        run("hdf5", folder, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs"]


def test_bad_parquet(tmp_path):
    table = {"task": ["a"] * 3, "obs": [[1.0], [2.0], [3.0, 4.0]], "action": [0.0] * 3, "reward": [1.0, None, 2.0]}
    path = tmp_path / "logs.parquet"
    pyarrow.parquet.write_table(pyarrow.table({**table, "terminals": [False] * 3}), path)
    with pytest.raises(OmrlError, match="column 'obs', row 2: 2 values where row 0 has 1"):
        run("parquet", path, tmp_path / "out", test_tasks=(), in_order=True)
    pyarrow.parquet.write_table(pyarrow.table({**table, "obs": [1.0] * 3, "terminals": [False] * 3}), path)
    with pytest.raises(OmrlError, match=r"1 value is missing: reward 1 \(first in task 'a', row 1\)"):
        run("parquet", path, tmp_path / "out", test_tasks=(), in_order=True)


@pytest.mark.parametrize(("kind", "module", "extra"), [("hdf5", "h5py", "hdf5"), ("parquet", "pyarrow", "parquet")])
def test_missing_extras_are_named(kind, module, extra, tmp_path, monkeypatch):
    (tmp_path / f"logs.{kind}").touch()
    # The module of a format is imported when it is first needed, and the extra with it.
    monkeypatch.delitem(sys.modules, f"omrl.data.interchange.{kind}", raising=False)
    for name in (module, f"{module}.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(OmrlError, match=rf"needs {module}: pip install 'omrl\[{extra}\]'"):
        run(kind, tmp_path / f"logs.{kind}", tmp_path / "out")


def test_hdf5_and_back_needs_no_flags_and_loses_nothing(tmp_path):
    dataset = make_dataset().save(tmp_path / "logs")
    interchange.write(dataset, tmp_path / "sub" / "logs.hdf5", "hdf5")
    plain = Import(src=tmp_path / "sub" / "logs.hdf5", dir=tmp_path / "back", format="hdf5")
    assert_same_dataset(interchange.read(plain), dataset)
    assert (tmp_path / "back" / "manifest.json").read_bytes() == (tmp_path / "logs" / "manifest.json").read_bytes()
    with pytest.raises(OmrlError, match="describes itself; leave out --varies, --seed"):
        interchange.read(Import(src=plain.src, dir=tmp_path / "x", format="hdf5", varies="both", seed=1))
    with h5py.File(plain.src) as file:
        assert file["task"][:].tolist() == [0] * 25 + [1] * 24 + [2] * 13
        assert file["rewards"].dtype == np.float32 and len(file["observations"]) == 62


def test_a_changed_hdf5_export_is_noticed(tmp_path):
    interchange.write(make_dataset().save(tmp_path / "logs"), tmp_path / "logs.hdf5", "hdf5")
    with h5py.File(tmp_path / "logs.hdf5", "a") as file:
        file["rewards"][30] += 1
    with pytest.raises(OmrlError, match=r"logs.hdf5: the rows of task 'b' do not match their checksum"):
        interchange.read(Import(src=tmp_path / "logs.hdf5", dir=tmp_path / "back", format="hdf5"))
    with h5py.File(tmp_path / "logs.hdf5", "a") as file:
        del file["rewards"]
        file["rewards"] = np.zeros(3)
    with pytest.raises(OmrlError, match=r"logs.hdf5: rewards has 3 rows but the manifest says 62"):
        interchange.read(Import(src=tmp_path / "logs.hdf5", dir=tmp_path / "back", format="hdf5"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "logs.hdf5"]


def test_hdf5_export_refuses_what_exists_and_views(tmp_path):
    dataset = make_dataset().save(tmp_path / "logs")
    (tmp_path / "logs.hdf5").write_text("precious")
    with pytest.raises(OmrlError, match=r"logs.hdf5 exists already; use --force"):
        interchange.write(dataset, tmp_path / "logs.hdf5", "hdf5")
    assert (tmp_path / "logs.hdf5").read_text() == "precious"
    with pytest.raises(OmrlError, match=r"logs.hdf5 is no HDF5 file that omrl wrote"):
        interchange.write(dataset, tmp_path / "logs.hdf5", "hdf5", force=True)
    assert (tmp_path / "logs.hdf5").read_text() == "precious"
    (tmp_path / "logs.hdf5").unlink()
    for force in (False, True):
        interchange.write(dataset, tmp_path / "logs.hdf5", "hdf5", force=force)
    for view in (dataset.level("expert"), dataset.select(["a"]), dataset.select(["c d/é", "b", "a"])):
        with pytest.raises(OmrlError, match="save this view first"):
            interchange.write(view, tmp_path / "x.hdf5", "hdf5")


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(case=logs())
def test_any_dataset_through_hdf5_npz_and_parquet(tmp_path_factory, case):
    tasks, about = case
    folder = tmp_path_factory.mktemp("case")
    dataset = MetaDataset.from_arrays(tasks, **about).save(folder / "logs")
    interchange.write(dataset, folder / "logs.hdf5", "hdf5")
    back = interchange.read(Import(src=folder / "logs.hdf5", dir=folder / "hdf5", format="hdf5"))
    assert_same_dataset(back, dataset)
    for kind in ("npz", "parquet", "csv"):
        (folder / kind).mkdir()
        for position, arrays in enumerate(tasks.values()):
            WRITERS[kind](folder / kind / f"{position}.{kind}", arrays)
        flags = {"test_tasks": (), "action_low": (-2.0,), "action_high": (3.0,), "varies": "both"}
        back = run(kind, folder / kind, folder / f"{kind}-back", **flags)
        for position, arrays in enumerate(tasks.values()):
            # The import closes episodes that were left without a flag; the rest is equal to the bit.
            last = np.append(np.diff(arrays["episode"]) != 0, True)
            wanted = {**arrays, "truncations": arrays["truncations"] | (last & ~arrays["terminations"])}
            assert_same_rows(back.rows(str(position)), wanted)


def test_large_manifests_fit_into_an_hdf5_attribute(tmp_path):
    params = {"a": {"body": np.zeros(20_000).tolist()}}
    dataset = make_dataset({"a": make_task()}, split=None, params=params).save(tmp_path / "logs")
    interchange.write(dataset, tmp_path / "logs.hdf5", "hdf5")
    back = interchange.read(Import(src=tmp_path / "logs.hdf5", dir=tmp_path / "back", format="hdf5"))
    assert_same_dataset(back, dataset)


def test_csv_keeps_every_bit_of_a_float(tmp_path):
    tasks = {"a": make_logs()["a"]}
    write_csv(tmp_path / "logs.csv", as_table(tasks))
    rows = run("csv", tmp_path / "logs.csv", tmp_path / "out", test_tasks=()).rows("a")
    assert rows["observations"].tobytes() == tasks["a"]["observations"].tobytes()
