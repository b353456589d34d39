"""Writing: atomic, resumable, never a damaged dataset under the final name."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from example_logs import SETTINGS, assert_same_dataset, make_dataset, make_logs, make_task, tree

from omrl.data import MetaDataset, MetaDatasetWriter
from omrl.data.manifest import Reference, Told
from omrl.errors import OmrlError
from omrl.families import Task


def make_writer(path, **changes):
    settings = {key: value for key, value in SETTINGS.items() if key != "params"}
    tasks = [Task(name, SETTINGS["params"].get(name, {})) for name in make_logs()]
    return MetaDatasetWriter(path, **{"tasks": tasks, "observation_dim": 3, "action_dim": 2, **settings, **changes})


def write_rest(writer):
    for name, arrays in make_logs().items():
        if not writer.done(name):
            writer.write(name, arrays)
    return writer.finish()


def test_task_by_task_equals_at_once(tmp_path):
    written = write_rest(make_writer(tmp_path / "logs"))
    assert_same_dataset(written, make_dataset())
    assert tree(tmp_path) == [
        "logs",
        "logs/.omrl.json",
        "logs/manifest.json",
        *(f"logs/task-00{i}.safetensors" for i in range(3)),
    ]


def test_reference_returns_are_kept(tmp_path):
    writer = make_writer(tmp_path / "logs")
    writer.write("a", make_logs()["a"], Told(Reference(random=-3.0, expert=7.0)))
    writer.write("b", make_logs()["b"], Told(Reference(expert=1.5)))
    dataset = write_rest(writer)
    assert [(e.reference.random, e.reference.expert) for e in dataset.manifest.tasks] == [
        (-3.0, 7.0),
        (None, 1.5),
        (None, None),
    ]


def test_nothing_is_written_before_the_first_good_task(tmp_path):
    writer = make_writer(tmp_path / "logs")
    with pytest.raises(OmrlError):
        writer.write("a", {})
    assert tree(tmp_path) == []


@pytest.mark.parametrize("moment", range(12))
def test_going_on_after_an_interruption_at_any_file_operation(tmp_path, monkeypatch, moment):
    """Die at the n-th rename or replace; what comes after must find nothing damaged and end with the same bytes."""
    whole = write_rest(make_writer(tmp_path / "whole"))
    left = [moment]

    def dying(operation):
        def call(self, *args):
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return operation(self, *args)

        return call

    target = tmp_path / "logs"
    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(Path, name, dying(getattr(Path, name)))
        try:
            write_rest(make_writer(target))
            finished = True
        except KeyboardInterrupt:
            finished = False
    if finished:
        assert moment >= 10  # marker, header, 3 x (file, record), manifest, folder
    else:
        assert not target.exists()
        writer = make_writer(target)
        assert sum(map(writer.done, make_logs())) == max(0, moment - 2) // 2
        write_rest(writer)
    assert tree(target) == tree(whole.path)
    assert all((target / name).read_bytes() == (whole.path / name).read_bytes() for name in tree(target))


def test_killed_for_good(tmp_path):
    """SIGKILL while a process writes the same dataset over and over under --force."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_writer import *
while True:
    write_rest(make_writer({str(tmp_path / "logs")!r}, force=True))
    print("written", flush=True)
"""
    rng = np.random.default_rng(0)
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        time.sleep(rng.uniform(0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        visible = [path for path in (tmp_path / "logs", tmp_path / ".logs.old") if path.exists()]
        assert visible
        for path in visible[:1]:
            MetaDataset.open(path).validate()
    assert_same_dataset(write_rest(make_writer(tmp_path / "logs", force=True)), make_dataset())
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_a_damaged_leftover_is_written_again(tmp_path):
    writer = make_writer(tmp_path / "logs")
    writer.write("a", make_logs()["a"])
    writer.write("b", make_logs()["b"])
    file = tmp_path / ".logs.partial" / "task-000.safetensors"
    data = bytearray(file.read_bytes())
    data[500] ^= 1
    file.write_bytes(data)
    again = make_writer(tmp_path / "logs")
    assert not again.done("a") and again.done("b")
    assert_same_dataset(write_rest(again), make_dataset())


def test_a_leftover_of_other_arguments_is_refused_unless_forced(tmp_path):
    make_writer(tmp_path / "logs").write("a", make_logs()["a"])
    with pytest.raises(OmrlError, match=r"\.logs\.partial is an unfinished dataset made with other arguments"):
        make_writer(tmp_path / "logs", horizon=3)
    forced = make_writer(tmp_path / "logs", horizon=3, force=True)
    assert not forced.done("a")
    assert write_rest(forced).manifest.horizon == 3


def test_an_existing_dataset_is_refused_and_replaced_only_at_the_end(tmp_path):
    old = make_dataset(horizon=5).save(tmp_path / "logs")
    before = (old.path / "manifest.json").read_bytes()
    with pytest.raises(OmrlError, match="logs exists already; use --force"):
        make_writer(old.path)
    with pytest.raises(OmrlError, match="exists already"):
        make_dataset().save(old.path)
    writer = make_writer(old.path, force=True)
    writer.write("a", make_logs()["a"])
    assert (old.path / "manifest.json").read_bytes() == before
    assert write_rest(writer).manifest.horizon == 2
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_force_never_removes_a_folder_of_something_else(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "thesis.tex").touch()
    with pytest.raises(OmrlError, match="is not a meta-dataset; nothing in it is touched"):
        make_writer(tmp_path / "logs", force=True)
    (tmp_path / "file").touch()
    with pytest.raises(OmrlError, match="is not a meta-dataset"):
        make_writer(tmp_path / "file", force=True)
    (tmp_path / "empty").mkdir()
    write_rest(make_writer(tmp_path / "empty", force=True))


def test_a_missing_task_and_an_unknown_one(tmp_path):
    writer = make_writer(tmp_path / "logs")
    writer.write("a", make_logs()["a"])
    with pytest.raises(OmrlError, match=r"task 'b' is missing \(2 of 3 are\)"):
        writer.finish()
    with pytest.raises(OmrlError, match="there is no task 'z'"):
        writer.write("z", make_logs()["a"])
    assert not (tmp_path / "logs").exists()


def test_optional_arrays_are_there_for_all_tasks_or_none(tmp_path):
    writer = make_writer(tmp_path / "logs")
    writer.write("a", make_logs()["a"])
    for missing in ({"dense": False}, {"checkpoints": ()}):
        with pytest.raises(OmrlError, match="only one of the tasks 'a' and 'b' has this array"):
            writer.write("b", make_task(**missing))
        with pytest.raises(OmrlError, match="only one of the tasks 'a' and 'b' has this array"):
            make_dataset({"a": make_task(), "b": make_task(**missing)}, split=None, params=None)


def test_a_full_disk(tmp_path, monkeypatch):
    writer = make_writer(tmp_path / "logs")

    def full(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OmrlError, match=r"logs: task 'a' could not be written: .*No space left"):
        writer.write("a", make_logs()["a"])
    assert not (tmp_path / "logs").exists()


def test_save_leaves_nothing_when_it_fails(tmp_path):
    dataset = make_dataset().save(tmp_path / "logs")
    data = bytearray((dataset.path / "task-001.safetensors").read_bytes())
    data[-1] ^= 1
    (dataset.path / "task-001.safetensors").write_bytes(data)
    with pytest.raises(OmrlError, match="does not match its checksum"):
        MetaDataset.open(dataset.path).save(tmp_path / "copy")
    shutil.rmtree(dataset.path)
    assert tree(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": [Task("a", {}), Task("a", {})]}, "task 'a' is there twice"),
        ({"tasks": []}, "there are no tasks"),
        ({"tasks": [Task("a\n", {})]}, "cannot be a task name"),
        ({"split": {"train": ["a"], "test": ["z"]}}, "split.test names task 'z', which is missing"),
        ({"split": {"train": ["a", "a"], "test": []}}, "split.train names task 'a' twice"),
        ({"split": {"train": ["a"]}}, "key 'split.test' is missing"),
        ({"varies": "colour"}, "key 'varies' must be one of reward, dynamics, both, not 'colour'"),
        ({"action_low": [0.0]}, "action_low has 1 numbers for 2 action dimensions"),
        ({"action_low": 3.0}, "action_low 3.0 is not below action_high 3.0 in dimension 0"),
        ({"action_high": float("inf")}, r"key 'action_high\[0\]' must be a finite number"),
        ({"action_high": "much"}, "action_high must be one number or one for each action dimension"),
        ({"horizon": 0}, "horizon 0 must be at least 1 or null"),
        ({"observation_dim": 0}, "must be at least 1"),
        ({"source": {"when": object()}}, "source cannot be written as JSON"),
        ({"tasks": [Task("a", {"x": float("nan")})]}, "params cannot be written as JSON"),
    ],
)
def test_bad_headers(tmp_path, change, message):
    split = {"split": {"train": [], "test": []}} if "tasks" in change else {}
    with pytest.raises(OmrlError, match=message):
        make_writer(tmp_path / "logs", **split, **change)
    assert tree(tmp_path) == []
