"""Whose a folder is: what is deleted, what is written into, and what is refused and stays as it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

import omrl
from omrl.commands.data import Import
from omrl.commands.tune import Tune
from omrl.data import MetaDataset, interchange
from omrl.data.writer import DATASET
from omrl.errors import OmrlError
from omrl.reporting import REPORT
from omrl.runs.run import Run
from omrl.storage import folders
from omrl.storage.adopting import CHECKS, adopt
from omrl.storage.folders import MARKER, Kind
from omrl.tuning.command import run as tune
from omrl.tuning.rows import COMPARISONS
from training_helpers import pumps, train

# Where kinds of folders are named.
MODULES = (
    *("omrl.runs.run", "omrl.data.writer", "omrl.data.interchange", "omrl.reporting", "omrl.exporting.command"),
    *("omrl.studies", "omrl.studies.cutting", "omrl.behaviour.collect"),
)
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
    folders.clear_up(tmp_path / "thing", THING)
    assert (tmp_path / "thing" / "thing.json").read_text() == "old"
    make(tmp_path / ".thing.old", "older")
    make(tmp_path / ".thing.deleted", "oldest")
    folders.clear_up(tmp_path / "thing", THING)
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_somebody_elses_folder_under_a_name_of_ours_is_kept(tmp_path):
    (tmp_path / ".thing.old").mkdir()
    (tmp_path / ".thing.old" / "thesis.tex").touch()
    with pytest.raises(OmrlError, match=r"\.thing\.old is in the way"):
        folders.clear_up(tmp_path / "thing", THING)


@pytest.mark.parametrize("end", ["old", "deleted", "tmp"])
@pytest.mark.parametrize("kind", [THING, Kind("run", "config.json", ("config.json",))])
def test_files_of_somebody_else_under_a_hidden_name_of_ours_are_kept(tmp_path, end, kind):
    hidden = tmp_path / f".thing.{end}"
    folders.claim(hidden, kind)
    (hidden / "thesis.tex").write_text("years of work")
    with pytest.raises(OmrlError, match=rf"\.thing\.{end}"), folders.replacing(tmp_path / "thing", THING) as new:
        (new / "thing.json").touch()
    assert (hidden / "thesis.tex").read_text() == "years of work" and not (tmp_path / "thing").exists()


def test_nothing_is_deleted_on_the_way_of_what_is_deleted(tmp_path):
    thing = make(tmp_path / "thing")
    (tmp_path / ".thing.deleted").mkdir()
    (tmp_path / ".thing.deleted" / "thesis.tex").touch()
    with pytest.raises(OmrlError, match=r"\.thing\.deleted is in the way"):
        folders.discard(thing, THING)
    assert (tmp_path / ".thing.deleted" / "thesis.tex").exists() and (thing / "thing.json").exists()


@pytest.mark.parametrize("end", ["old", "deleted", "tmp"])
def test_a_hidden_name_that_is_a_link_is_not_followed(tmp_path, end):
    theirs = make(tmp_path / "theirs")
    (tmp_path / f".thing.{end}").symlink_to(theirs)
    before = tree(theirs)
    with pytest.raises(OmrlError, match="it is a link"), folders.replacing(tmp_path / "thing", THING) as new:
        (new / "thing.json").touch()
    assert tree(theirs) == before


def test_a_link_is_followed_and_stays(tmp_path):
    target = make(tmp_path / "thing", "old")
    (tmp_path / "link").symlink_to(target)
    with folders.replacing(tmp_path / "link", THING) as new:
        (new / "thing.json").write_text("new")
    assert (tmp_path / "link").is_symlink() and (target / "thing.json").read_text() == "new"
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "loop").symlink_to("loop")
    for name, leads in (("nowhere", "missing"), ("nowhere/x", "missing"), ("loop", "loop"), ("loop/x/y", "loop")):
        for refused in (folders.place, lambda path: folders.keep_apart(path, tmp_path / "other")):
            with pytest.raises(OmrlError, match=f"link to {leads}, which does not exist"):
                refused(tmp_path / name)


@pytest.mark.parametrize(("out", "given"), [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("link", "a/b")])
def test_an_output_is_apart_from_its_inputs(tmp_path, out, given):
    (tmp_path / "a").mkdir()
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
    (tmp_path / "index.html").write_text("my home page")
    with pytest.raises(OmrlError, match="not the page of a report"):
        adopt(tmp_path)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return train(data, tmp_path_factory.mktemp("folders") / "run", steps=4).folder


def make_report(run, data, out):
    (out / "tables").mkdir(parents=True)
    page = '<div class="muted">Made on 2026-11-18 08:00 UTC with omrl 0.1.0 in 1 s.</div>'
    (out / "index.html").write_text(page)
    folders.mark(out, REPORT)


WRITERS = {
    "report": (make_report, lambda run, data, out: omrl.report(run, out)),
    "exported policy": [lambda run, data, out: omrl.export(run, "numpy", out)] * 2,
    "Minari export": [
        lambda run, data, out: interchange.write(MetaDataset.open(data), out.parent.parent, "minari", force=True)
    ]
    * 2,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_whoever_is_promised_an_adoption_gets_one(run, data, tmp_path, kind):
    out = tmp_path / "omrl" / "pumps"
    first, again = WRITERS[kind]
    first(run, data, out)
    (out / MARKER).unlink()
    with pytest.raises(OmrlError, match=r"`omrl adopt .*pumps` checks it"):
        again(run, data, out)
    assert adopt(out) == kind
    folders.check_replaceable(out, next(one for one in CHECKS if one.name == kind))


def test_every_kind_that_is_promised_an_adoption_is_known():
    kinds = [value for name in MODULES for value in vars(import_module(name)).values() if isinstance(value, Kind)]
    assert len({kind.name for kind in kinds}) == 9
    assert {kind for kind in kinds if kind.adopted and kind.name != "progress of a study"} == set(CHECKS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("logged.json", '{"protocol": 3}'),
        ("logged.csv", "seed,task,split,metric,value\n0,a,test,other,1\n"),
        ("scores.csv", "seed,task,split,episode,return\n0,a,test,0,much\n"),
        ("selected.json", "["),
        ("calibration.safetensors", "junk"),
        ("stages/x/result.safetensors", "plain text"),
        ("stages/x/metrics.csv", "a,b\n1,2\n"),
        ("timings.json", '{"seconds": 1}'),
        ("checkpoints/step-0000002.safetensors", "junk"),
    ],
)
def test_a_run_is_adopted_only_when_all_that_is_in_it_can_be_read(run, tmp_path, name, content):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / MARKER).unlink()
    (copy / name).parent.mkdir(parents=True, exist_ok=True)
    (copy / name).write_text(content)
    with pytest.raises(OmrlError, match=name.rpartition("/")[2].replace(".", r"\.")):
        adopt(copy)
    assert not (copy / MARKER).exists()


@pytest.mark.parametrize("content", ['{"experiment": 1, "rows": 2, "claims": 3}', "{}", '{"experiment": "x"}'])
def test_results_are_adopted_only_where_they_are_some(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(OmrlError, match=r"results\.json"):
        adopt(tmp_path)


# -- where outputs go --------------------------------------------------------------------------------------------------

OUTPUTS = {
    "train": lambda run, data, out: train(data, out, steps=4),
    "report": lambda run, data, out: omrl.report(run, out),
    "export": lambda run, data, out: omrl.export(run, "numpy", out),
    "data import": lambda run, data, out: interchange.read(Import(data, out, "npy")),
    "data export --to hdf5": lambda run, data, out: interchange.write(MetaDataset.open(data), out, "hdf5", force=True),
    "data export --to minari": lambda run, data, out: interchange.write(
        MetaDataset.open(data), out, "minari", force=True
    ),
    "tune": lambda run, data, out: tune(Tune(Path(COMPARISONS), data, out, steps=2, device="cpu")),
}


@pytest.mark.parametrize("command", OUTPUTS)
@pytest.mark.parametrize("leads_to", ["missing", "link"])
def test_a_link_that_leads_nowhere_is_refused_by_all(run, data, tmp_path, command, leads_to):
    (tmp_path / "link").symlink_to(leads_to)
    with pytest.raises(OmrlError, match=f"link to {leads_to}, which does not exist"):
        OUTPUTS[command](run, data, tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["link"] and (tmp_path / "link").is_symlink()


def test_an_hdf5_file_behind_a_link_is_replaced_and_no_other_file(data, tmp_path):
    dataset, thesis = MetaDataset.open(data), tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    (tmp_path / "to-thesis").symlink_to(thesis)
    for out in (thesis, tmp_path / "to-thesis"):
        with pytest.raises(OmrlError, match=r"thesis\.tex is no HDF5 file that omrl wrote"):
            interchange.write(dataset, out, "hdf5", force=True)
    assert thesis.read_text() == "years of work"
    interchange.write(dataset, tmp_path / "logs.hdf5", "hdf5")
    (tmp_path / "to-logs").symlink_to(tmp_path / "logs.hdf5")
    before = (tmp_path / "logs.hdf5").stat().st_ino
    interchange.write(dataset, tmp_path / "to-logs", "hdf5", force=True)
    assert (tmp_path / "to-logs").is_symlink() and (tmp_path / "logs.hdf5").stat().st_ino != before
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex", "to-thesis", "logs.hdf5", "to-logs"}


def test_an_import_deletes_nothing_under_its_hidden_name(data, tmp_path):
    dataset = MetaDataset.open(data)
    for name in ("thesis.tex", ".build/thesis.tex"):
        hidden = tmp_path / ".logs.partial"
        folders.claim(hidden, DATASET)
        (hidden / name).parent.mkdir(exist_ok=True)
        (hidden / name).touch()
        with pytest.raises(OmrlError, match=r"\.logs\.partial holds .*thesis\.tex"):
            dataset.save(tmp_path / "logs")
        assert (hidden / name).exists()


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


def a_link(path, precious):
    path.symlink_to(precious)


def a_hard_link(path, precious):
    path.hardlink_to(precious)


def a_copy(path, precious):
    path.write_text(precious.read_text())


@pytest.mark.parametrize("disguise", [a_link, a_hard_link, a_copy])
def test_a_lock_is_never_written_into_a_file_of_somebody_else(tmp_path, disguise):
    thing, precious = make(tmp_path / "thing"), tmp_path / "precious"
    precious.write_text("years of work")
    disguise(thing / ".logged.lock", precious)
    with (
        pytest.raises(OmrlError, match=r"\.logged\.lock is in the way"),
        folders.only_writer(thing, ".logged.lock"),
    ):
        pass
    assert precious.read_text() == (thing / ".logged.lock").read_text() == "years of work"


@pytest.mark.parametrize("left", ["", "proc", "process 123456 on elsewhere"])
def test_a_lock_that_a_kill_left_is_taken(tmp_path, left):
    thing = make(tmp_path / "thing")
    (thing / folders.LOCK).write_text(left)
    with folders.only_writer(thing):
        assert (thing / folders.LOCK).read_text().startswith(f"process {os.getpid()} on")


def test_links_in_a_run_lead_no_command_to_a_foreign_file(run, data, tmp_path):
    copy, precious = tmp_path / "run", tmp_path / "precious"
    shutil.copytree(run, copy)
    precious.write_text("years of work")
    for name in (".logged.csv.tmp", ".logged.json.tmp", "logged.csv"):
        (copy / name).symlink_to(precious)
    omrl.evaluate(copy, device="cpu")
    assert precious.read_text() == "years of work" and not (copy / "logged.csv").is_symlink()
    for name in (".config.json.tmp", "checkpoints/.latest.tmp", "checkpoints/.step-0000005.safetensors.tmp"):
        (copy / name).symlink_to(precious)
    (copy / "metrics.csv").unlink()
    (copy / "metrics.csv").symlink_to(precious)
    train(data, copy, steps=4)
    (copy / ".lock").symlink_to(precious)
    with pytest.raises(OmrlError, match=r"\.lock is in the way"):
        train(data, copy, steps=4)
    assert precious.read_text() == "years of work"


@pytest.mark.parametrize("command", ["data export --to hdf5", "tune"])
def test_a_file_that_is_being_written_is_not_written_by_another(run, data, tmp_path, command):
    with folders.only_writer_of(tmp_path / "out"):
        with pytest.raises(OmrlError, match=f"out is being written by process {os.getpid()} on"):
            OUTPUTS[command](run, data, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_readers_work_beside_a_run_that_is_being_trained(data, tmp_path):
    run = tmp_path / "run"
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from training_helpers import train
train({str(data)!r}, {str(run)!r}, steps=1_000_000, save_every=100, log_every=100)
"""
    training = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        while not (run / "checkpoints" / "latest").exists():
            assert training.poll() is None
            time.sleep(0.05)
        assert omrl.evaluate(run, device="cpu")["protocol"] == "logged"
        assert omrl.export(run, "numpy", tmp_path / "exported")[0].is_file()
        assert omrl.report(run, tmp_path / "page").is_file()
        with pytest.raises(OmrlError, match=f"run is being written by process {training.pid} on"):
            train(data, run, steps=1_000_000)
        assert training.poll() is None
    finally:
        training.kill()
        training.wait()
    assert Run.open(run).logged is not None


def test_a_run_that_is_being_trained_is_not_trained_by_another(data, tmp_path):
    run = train(data, tmp_path / "run", steps=4).folder
    with folders.only_writer(run):
        with pytest.raises(OmrlError, match=f"run is being written by process {os.getpid()} on"):
            train(data, run, steps=4)
        with pytest.raises(OmrlError, match="is being written by"):
            train(data, run, steps=5, force=True)
    assert train(data, run, steps=4).step == 4
