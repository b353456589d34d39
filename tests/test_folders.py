"""Whose a folder is: what is deleted, what is written into, and what is refused and stays as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.storage import folders
from omrl.storage.adopting import adopt
from omrl.storage.folders import MARKER, Kind
from training_helpers import pumps, train

THING = Kind("thing", "thing.json", ("thing.json", "parts/*.csv"))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def make(folder: Path, text: str = "{}") -> Path:
    folders.claim(folder, THING)
    (folder / "thing.json").write_text(text)
    (folder / "parts").mkdir()
    (folder / "parts" / "one.csv").write_text(text)
    return folder


# -- the mechanism -----------------------------------------------------------------------------------------------------


def test_a_folder_of_ours_is_deleted_and_leaves_nothing(tmp_path):
    folders.discard(make(tmp_path / "thing"), THING)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("thing.json", "{}", "omrl adopt"),
        ("notes.txt", "x", "exists and is not a thing"),
        (MARKER, '{"omrl": "report", "schema": 1}', "is a report and is not a thing"),
        (MARKER, '{"omrl": "thing", "schema": 2}', "of a newer omrl"),
        (MARKER, "{}", "Marker needs"),
        (MARKER, "[" * 200_000, "nested too deeply"),
    ],
)
def test_what_is_not_ours_is_not_deleted(tmp_path, name, text, sentence):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text(text)
    before = tree(tmp_path)
    for refused in (folders.discard, folders.check_replaceable):
        with pytest.raises(OmrlError, match=sentence):
            refused(tmp_path / "mine", THING)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "place", ["notes.txt", "parts/notes.txt", "more/one.csv", "parts/deep/one.csv", "link", "one.csv"]
)
def test_files_of_somebody_else_in_it_are_named_and_kept(tmp_path, place):
    folder = make(tmp_path / "thing")
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(tmp_path) if place == "link" else path.write_text("years of work")
    with pytest.raises(OmrlError, match=place.split("/")[0]):
        folders.discard(folder, THING)
    assert path.exists() and (folder / "thing.json").is_file()


def test_what_a_kill_left_of_a_file_belongs_to_it(tmp_path):
    folder = make(tmp_path / "thing")
    (folder / "parts" / ".one.csv.tmp").write_text("half")
    assert folders.foreign(folder, THING) == []


def test_a_replacement_takes_the_place_of_its_kind_alone(tmp_path):
    target = make(tmp_path / "thing", "old")
    with folders.replacing(target, THING) as new:
        (new / "thing.json").write_text("new")
        assert (target / "thing.json").read_text() == "old"
    assert tree(target).keys() == {MARKER, "thing.json"} and (target / "thing.json").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_the_old_one_comes_back_where_the_new_one_did_not_come(tmp_path):
    make(tmp_path / "thing", "old").rename(tmp_path / ".thing.old")
    folders.clear_up(tmp_path / "thing")
    assert (tmp_path / "thing" / "thing.json").read_text() == "old"
    make(tmp_path / ".thing.old", "older")
    make(tmp_path / ".thing.deleted", "oldest")
    folders.clear_up(tmp_path / "thing")
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_somebody_elses_folder_under_a_name_of_ours_is_kept(tmp_path):
    (tmp_path / ".thing.old").mkdir()
    (tmp_path / ".thing.old" / "thesis.tex").touch()
    with pytest.raises(OmrlError, match=r"\.thing\.old is in the way"):
        folders.clear_up(tmp_path / "thing")


def test_a_link_is_followed_and_stays(tmp_path):
    target = make(tmp_path / "thing", "old")
    (tmp_path / "link").symlink_to(target)
    with folders.replacing(tmp_path / "link", THING) as new:
        (new / "thing.json").write_text("new")
    assert (tmp_path / "link").is_symlink() and (target / "thing.json").read_text() == "new"
    (tmp_path / "nowhere").symlink_to("missing")
    with pytest.raises(OmrlError, match="link to missing, which does not exist"):
        folders.place(tmp_path / "nowhere")


@pytest.mark.parametrize(("out", "given"), [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("link", "a/b")])
def test_an_output_is_apart_from_its_inputs(tmp_path, out, given):
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(OmrlError, match="choose another folder"):
        folders.keep_apart(tmp_path / out, tmp_path / given)
    folders.keep_apart(tmp_path / "ab", tmp_path / "a")


# -- the commands ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folders") / "pumps"
    pumps(folder)
    return folder


def test_train_replaces_runs_that_are_marked_and_nothing_else(data, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.json").write_text('{"editor": "vim"}')
    with pytest.raises(OmrlError, match="omrl adopt"):
        train(data, mine, force=True)
    with pytest.raises(OmrlError, match="RunConfig has no editor"):
        train(data, mine)
    assert tree(mine) == {"config.json": b'{"editor": "vim"}'}
    run = train(data, tmp_path / "run", steps=4).folder
    assert json.loads((run / MARKER).read_text()) == {"omrl": "run", "schema": 1}
    (run / MARKER).unlink()
    train(data, run, steps=4)  # it opens as ever
    with pytest.raises(OmrlError, match="omrl adopt"):
        train(data, run, steps=5, force=True)
    assert adopt(run) == "run"
    (run / "thesis.tex").touch()
    with pytest.raises(OmrlError, match=r"holds thesis.tex"):
        train(data, run, steps=5, force=True)
    (run / "thesis.tex").unlink()
    train(data, run, steps=5, force=True)
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "run"}


def test_train_does_not_delete_its_own_data(tmp_path):
    run = tmp_path / "run"
    pumps(run / "data")
    (run / "config.json").write_text("{}")
    before = tree(run)
    for out in (run, run / "data", run / "data" / "inside"):
        with pytest.raises(OmrlError, match="choose another folder"):
            train(run / "data", out, force=True)
    assert tree(run) == before


def test_a_dataset_without_a_marker_is_replaced_after_it_was_adopted(data, tmp_path):
    dataset = MetaDataset.open(data)
    saved = dataset.save(tmp_path / "logs").path
    (saved / MARKER).unlink()
    with pytest.raises(OmrlError, match="omrl adopt"):
        dataset.save(saved, force=True)
    task = saved / "task-000.safetensors"
    whole = task.read_bytes()
    task.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(OmrlError):
        adopt(saved)
    task.write_bytes(whole)
    (saved / "notes.txt").touch()
    with pytest.raises(OmrlError, match=r"holds notes\.txt"):
        adopt(saved)
    (saved / "notes.txt").unlink()
    assert adopt(saved) == "meta-dataset"
    dataset.save(saved, force=True)


def test_what_omrl_does_not_make_is_not_adopted(tmp_path):
    with pytest.raises(OmrlError, match="nothing that omrl makes"):
        adopt(tmp_path)


# -- one writer at a time ----------------------------------------------------------------------------------------------


def test_a_second_writer_is_told_who_the_first_is_until_that_dies(tmp_path):
    make(tmp_path / "thing")
    code = f"""
import time
from pathlib import Path
from omrl.storage import folders
with folders.only_writer(Path({str(tmp_path / "thing")!r})):
    print("writing", flush=True)
    time.sleep(60)
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "writing\n"
    with (
        pytest.raises(OmrlError, match=f"thing is being written by process {other.pid} on"),
        folders.only_writer(tmp_path / "thing"),
    ):
        pass
    with pytest.raises(OmrlError, match=f"process {other.pid}"):
        folders.discard(tmp_path / "thing", THING)
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    with folders.only_writer(tmp_path / "thing"):
        pass
    assert not (tmp_path / "thing" / folders.LOCK).exists()


def test_a_run_that_is_being_trained_is_not_trained_by_another(data, tmp_path):
    run = train(data, tmp_path / "run", steps=4).folder
    with folders.only_writer(run):
        with pytest.raises(OmrlError, match=f"run is being written by process {os.getpid()} on"):
            train(data, run, steps=4)
        with pytest.raises(OmrlError, match="is being written by"):
            train(data, run, steps=5, force=True)
    assert train(data, run, steps=4).step == 4
