"""What a run tells while it trains: returns on unseen tasks, where the time goes, TensorBoard, Weights & Biases."""

from __future__ import annotations

import json
import struct
import time
from functools import partial

import numpy as np
import pytest
import torch

from cut_helpers import Cut, checkpoint, cut_at, same_files
from omrl.commands.evaluate import CONTEXT_ROWS
from omrl.data import MetaDataset
from omrl.evaluation.given_context import given_context
from omrl.families import FAMILIES
from omrl.learning import looks
from omrl.learning import training as learning
from omrl.runs.model import Model
from omrl.runs.run import Run
from training_helpers import metrics, pumps, train, walks


@pytest.fixture(scope="module")
def windy(tmp_path_factory):
    """A family whose rewards are never zero."""
    return walks(FAMILIES["point-robot-wind"], tmp_path_factory.mktemp("data") / "windy")


# -- the learning curve ------------------------------------------------------------------------------------------------


def test_the_return_on_unseen_tasks_is_logged_as_evaluation_gives_it(windy, tmp_path):
    train(windy, tmp_path / "run", eval_every=5, seed=3)
    rows = [row for row in metrics(tmp_path / "run") if row["name"] == "return"]
    assert [(row["step"], row["seed"]) for row in rows] == [(s, p) for s in ("5", "10", "12") for p in ("3", "4")]
    dataset = MetaDataset.open(windy)
    unseen = dataset.select(dataset.split["test"])
    for step in (5, 10, 12):
        shorter = train(windy, tmp_path / f"until-{step}", steps=step, seed=3)
        wanted = given_context(Model(shorter), unseen, CONTEXT_ROWS, episodes=1, seed=0)
        found = [row["value"] for row in rows if row["step"] == str(step)]
        assert found == [f"{value:.6g}" for value in wanted.mean((1, 2))]
        assert wanted.max() < -1
        assert not any(row["name"] == "return" for row in metrics(tmp_path / f"until-{step}"))
    # Looking does not change what is learned.
    (_, looked), (_, alone) = (Run.open(tmp_path / name).load() for name in ("run", "until-12"))
    assert looked.keys() == alone.keys() and all(torch.equal(looked[name], alone[name]) for name in alone)


def looks_of(folder):
    return [(row["step"], row["seed"], row["value"]) for row in metrics(folder) if row["name"] == "return"]


def test_looks_beside_the_updates_have_the_numbers_of_looks_between_them(windy, tmp_path, monkeypatch):
    """As on a GPU: each is about the parameters of its own update, however late it is done."""
    train(windy, tmp_path / "between", eval_every=2)
    monkeypatch.setattr(learning, "Looks", partial(looks.Looks, beside=True))
    slow = looks.given_context
    monkeypatch.setattr(looks, "given_context", lambda *a, **k: (time.sleep(0.2), slow(*a, **k))[1])
    train(windy, tmp_path / "beside", eval_every=2)
    assert looks_of(tmp_path / "beside") == looks_of(tmp_path / "between")
    assert len({value for _, _, value in looks_of(tmp_path / "beside")}) > 6
    same_files(tmp_path / "beside", tmp_path / "between", "checkpoints/step-0000012.safetensors")
    rows = metrics(tmp_path / "beside")
    assert rows[-1]["name"] == "return"  # updates did not wait for it


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_looks_go_on_beside_the_updates_and_have_the_same_numbers(windy, tmp_path, monkeypatch):
    train(windy, tmp_path / "beside", eval_every=2, device="cuda")
    monkeypatch.setattr(learning, "Looks", partial(looks.Looks, beside=False))
    train(windy, tmp_path / "between", eval_every=2, device="cuda")
    found, wanted = looks_of(tmp_path / "beside"), looks_of(tmp_path / "between")
    assert [look[:2] for look in found] == [look[:2] for look in wanted]
    values = [[float(value) for _, _, value in looks] for looks in (found, wanted)]
    np.testing.assert_allclose(*values, rtol=1e-3)  # updates of two runs may add up in another order


def test_a_look_that_an_interruption_cut_off_is_made_again(windy, tmp_path, monkeypatch):
    train(windy, tmp_path / "whole", eval_every=5)
    monkeypatch.setattr(learning, "Looks", partial(looks.Looks, beside=True))
    honest = looks.given_context

    def late(*given, **named):
        time.sleep(1.0)  # the run is saved and goes on meanwhile
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(looks, "given_context", late)
        with pytest.raises(Cut):  # an error in a look is not lost
            train(windy, tmp_path / "cut", eval_every=5, save_every=5)
    # It is found out when the next checkpoint waits for it: no look is lost between two of them.
    assert looks_of(tmp_path / "cut") == [] and checkpoint(tmp_path / "cut")[0] == 5
    monkeypatch.setattr(looks, "given_context", honest)
    train(windy, tmp_path / "cut", eval_every=5, save_every=5)
    assert looks_of(tmp_path / "cut") == looks_of(tmp_path / "whole")


def test_the_look_at_the_end_is_made_again_too_and_a_finished_run_keeps_its_timings(windy, tmp_path):
    train(windy, tmp_path / "run", eval_every=5)
    whole, timings = looks_of(tmp_path / "run"), (tmp_path / "run" / "timings.json").read_bytes()
    path = tmp_path / "run" / "metrics.csv"
    path.write_text(
        "".join(
            line for line in path.read_text().splitlines(True) if not line.startswith("12,") or ",return," not in line
        )
    )
    assert len(looks_of(tmp_path / "run")) == 4
    train(windy, tmp_path / "run", eval_every=5)
    assert looks_of(tmp_path / "run") == whole
    assert (tmp_path / "run" / "timings.json").read_bytes() == timings


def test_without_a_simulator_there_is_no_return_to_log(tmp_path):
    pumps(tmp_path / "pumps")
    train(tmp_path / "pumps", tmp_path / "run", eval_every=2, steps=4)
    assert {row["name"] for row in metrics(tmp_path / "run")} >= {"q", "alive"}
    assert not any(row["name"] == "return" for row in metrics(tmp_path / "run"))


# -- where the time goes -----------------------------------------------------------------------------------------------


def test_timings_say_where_the_time_went(windy, tmp_path):
    train(windy, tmp_path / "run", eval_every=5)
    timings = json.loads((tmp_path / "run" / "timings.json").read_text())
    assert set(timings["seconds"]) == {"updates", "logging", "evaluation", "saving"}
    assert all(value > 0 for value in timings["seconds"].values())
    total = sum(timings["seconds"].values())
    assert timings["share_in_updates"] == pytest.approx(timings["seconds"]["updates"] / total)
    before = (tmp_path / "run" / "timings.json").read_bytes()
    train(windy, tmp_path / "run", eval_every=5)  # it is finished: nothing runs
    assert (tmp_path / "run" / "timings.json").read_bytes() == before


# -- TensorBoard -------------------------------------------------------------------------------------------------------


def events(folder):
    """Steps and values by tag that TensorBoard shows: a restart hides what came at or after its step."""
    from tensorboardX.proto import event_pb2

    shown: dict[str, list[tuple[int, float]]] = {}
    for path in sorted((folder / "events").iterdir()):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            event = event_pb2.Event.FromString(content[place + 12 : place + 12 + length])
            place += 16 + length
            if event.session_log.status == event_pb2.SessionLog.START:
                shown = {tag: [point for point in points if point[0] < event.step] for tag, points in shown.items()}
            for value in event.summary.value:
                shown.setdefault(value.tag, []).append((event.step, value.simple_value))
    return shown


def assert_events_are_metrics(folder):
    wanted: dict[str, list[tuple[int, float]]] = {}
    for row in metrics(folder):
        wanted.setdefault(f"{row['name']}/seed-{row['seed']}", []).append((int(row["step"]), float(row["value"])))
    found = events(folder)
    assert found.keys() == wanted.keys() and len(wanted) > 5
    for tag, points in wanted.items():
        np.testing.assert_allclose(found[tag], points, rtol=1e-4, err_msg=tag)


@pytest.mark.parametrize("save_every", [5, 50], ids=["from a checkpoint", "from the beginning"])
def test_tensorboard_shows_the_metrics_once_even_of_a_run_that_was_cut(windy, tmp_path, monkeypatch, save_every):
    pytest.importorskip("tensorboardX")
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        cut_at(patch, 10)
        with pytest.raises(Cut):
            train(windy, folder, seed=3, save_every=save_every, eval_every=6)
    assert_events_are_metrics(folder)
    (first,) = (folder / "events").iterdir()
    first.rename(first.with_name("events.out.tfevents.1"))  # names have seconds: two runs of one test may share them
    train(windy, folder, seed=3, save_every=save_every, eval_every=6)
    assert len(list((folder / "events").iterdir())) == 2
    assert_events_are_metrics(folder)
    assert [step for step, _ in events(folder)["return/seed-4"]] == [6, 12]


# -- Weights & Biases --------------------------------------------------------------------------------------------------


def told(path):
    """Values by name and update in a file of a run that was not sent: a log of records in blocks of 32 KB."""
    from wandb.proto import wandb_internal_pb2

    data, at, record, found = path.read_bytes(), 7, b"", {}
    while at + 7 <= len(data):
        if (room := 32_768 - at % 32_768) < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        record, at = record + data[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):  # whole, or the last part
            history = wandb_internal_pb2.Record.FromString(record).history
            values = {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in history.item}
            found |= {(n, values["update"]): v for n, v in values.items() if n[0] != "_" and n != "update"}
            record = b""
    return found


def test_weights_and_biases_is_told_the_metrics(windy, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    train(windy, tmp_path / "run", seed=3, eval_every=6, wandb="windy")
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    wanted = {
        (f"{row['name']}/seed-{row['seed']}", int(row["step"])): float(row["value"])
        for row in metrics(tmp_path / "run")
    }
    assert told(file) == pytest.approx(wanted, rel=1e-4) and len(wanted) > 20
    assert {step for name, step in wanted if name == "return/seed-3"} == {6, 12}
