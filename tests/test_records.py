"""Files of a run that are cut, damaged or edited: noticed, mended where they can be, never taken for whole."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import torch

import omrl
from omrl.algorithms.focal import FOCAL
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.runs import model
from omrl.runs.checkpoints import CHECKSUM, NOTES, save_checkpoint
from omrl.runs.config import FIRST_BATCHES
from omrl.runs.run import Run
from omrl.storage.files import read_json, write_json, write_tensors
from training_helpers import metrics, pumps, train


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Data and a run of twelve updates that is not finished: its steps are then said to be more."""
    folder = tmp_path_factory.mktemp("records")
    pumps(folder / "pumps")
    train(folder / "pumps", folder / "run")
    omrl.evaluate(folder / "run", device="cpu")
    return folder


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made / "run", tmp_path / "run")
    return tmp_path / "run"


def newest(run):
    return run / "checkpoints" / "step-0000012.safetensors"


def test_no_bit_of_a_checkpoint_can_change_unnoticed(run):
    whole = newest(run).read_bytes()
    places = range(0, len(whole), max(len(whole) // 60, 1))
    silent = []
    for place in places:
        newest(run).write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            omrl.load(run)
        except OmrlError as error:
            assert "step-0000012.safetensors is" in str(error)
        else:
            silent.append(place)
    assert silent == []


def test_a_checkpoint_without_a_checksum_opens_as_ever_with_a_note(run, capsys):
    step, state = Run.open(run).load()
    assert "note" not in capsys.readouterr().err
    write_tensors(newest(run), {name: value.numpy() for name, value in state.items()}, {"step": str(step)})
    assert CHECKSUM.encode() not in newest(run).read_bytes()
    assert omrl.load(run).step == omrl.load(run).step == 12
    said = capsys.readouterr().err
    assert said.count("note: ") == 1 and f"{newest(run)} has no checksum" in said


def test_a_checksum_that_says_nothing_is_none(run):
    _, state = Run.open(run).load()
    arrays = {name: value.numpy() for name, value in state.items()}
    write_tensors(newest(run), arrays, {NOTES: json.dumps({"step": 12, CHECKSUM: None})})
    with pytest.raises(OmrlError, match="does not match its checksum"):
        omrl.load(run)


@pytest.mark.parametrize("step", [-1, 10**20])
def test_steps_of_a_checkpoint_are_counts(run, step):
    _, state = Run.open(run).load()
    save_checkpoint(newest(run), state, {"step": step})
    with pytest.raises(OmrlError, match=r"step-0000012\.safetensors is damaged \(its steps are no counts\)"):
        omrl.load(run)


def test_scores_that_somebody_edited_are_said_to_be(run):
    assert not Run.open(run).scores_changed("logged")
    text = (run / "logged.csv").read_text()
    (run / "logged.csv").write_text(text.replace("test", "Test", 1))
    assert Run.open(run).scores_changed("logged")
    from omrl.reporting.gather import gather

    assert any("logged.csv is not as omrl evaluate wrote it" in note for note in gather([run])[0].notes)


@pytest.mark.parametrize("kept", [0, 5, 20, 0.3, 0.7, 0.99])
def test_metrics_that_were_cut_are_mended_and_what_is_lost_is_said(made, run, kept, capsys):
    before = metrics(run)
    text = (run / "metrics.csv").read_bytes()
    (run / "metrics.csv").write_bytes(text[: kept if isinstance(kept, int) else int(kept * len(text))])
    Run.open(run).curves
    train(made / "pumps", run)
    after = metrics(run)
    assert (run / "metrics.csv").read_bytes().startswith(b"step,transitions,seed,name,value\r\n")
    assert after == before[: len(after)] and len(after) < len(before)
    said = capsys.readouterr().err
    assert f"metrics.csv has lost {len(before) - len(after)} row" in said


def test_metrics_that_are_whole_lose_nothing(made, run, capsys):
    before = (run / "metrics.csv").read_bytes()
    train(made / "pumps", run)
    assert (run / "metrics.csv").read_bytes() == before and "lost" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b"\xff\xfes\x00t\x00", b"step,transitions,seed,name,value\n" + b"9" * 200_000 + b",\n"]
)
@pytest.mark.parametrize("name", ["metrics.csv", "logged.csv", "scores.csv"])
def test_what_is_no_table_gets_one_sentence(run, name, content):
    (run / name).write_bytes(content + b"\n")
    opened = Run.open(run)
    with pytest.raises(OmrlError, match=name):
        _ = opened.curves, opened.logged, opened.scores


@pytest.mark.parametrize(
    "content", [b"[" * 200_000, b"\xff\xfe", b"[1]", b'{"seconds": 3}', b'{"seconds": {"a": "b"}}']
)
def test_timings_that_make_no_sense_get_one_sentence(run, content):
    (run / "timings.json").write_bytes(content)
    with pytest.raises(OmrlError, match=r"timings\.json"):
        _ = Run.open(run).seconds


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("environment.json", '{"versions": {"torch": 3}}'),
        ("environment.json", '{"cores": "many"}'),
        ("environment.json", '{"python": "\\ud800"}'),
        ("logged.json", '{"esr": 0.5}'),
        ("logged.json", '{"action_error": {"value": "small", "low": 0, "high": 1}}'),
        ("logged.json", '{"updates": "12"}'),
        ("logged.json", '{"action_error": {"value": 1.0, "low": 0.0, "high": 1.0, "split": "test"}}'),
    ],
)
def test_types_in_what_stands_beside_a_run_are_checked(run, name, content):
    (run / name).write_text(content)
    with pytest.raises(OmrlError, match=name):
        _ = Run.open(run).environment, Run.open(run).summary("logged")


@pytest.mark.parametrize("cell", ["1e20", "9" * 400, "-1", "1_000", "NaN", ""])
def test_steps_that_are_no_counts_get_one_sentence(run, cell):
    (run / "metrics.csv").write_text(f"step,transitions,seed,name,value\n{cell},1,0,q,1.0\n")
    with pytest.raises(OmrlError, match=r"metrics\.csv has .* where a whole number belongs"):
        _ = Run.open(run).curves


def test_settings_that_do_not_fit_the_checkpoint_are_told_from_damage(run):
    config = (run / "config.json").read_text()
    (run / "config.json").write_text(config.replace('"latent_dim": 2', '"latent_dim": 3'))
    with pytest.raises(OmrlError, match=r"does not fit its settings: params is float32 \[2, \d+\] and should be"):
        omrl.load(run)


@pytest.mark.parametrize(
    "absurd",
    [
        {"seeds": 1_000_000},
        {"observation_dim": 1_000_000},
        {"latent_dim": 1_000_000},
        {"hidden": [1_000_000, 1_000_000]},
        {"hidden": [10**9]},
        {"hidden": [8] * 10_000},
        {"regulariser_steps": 10**6},
        {"batch_size": 10**20},
        {"cpu": {"threads": 0, "mode": "eager"}},
        {"cpu": {"threads": 10**6, "mode": "eager"}},
        {"batch": {**FIRST_BATCHES, "context_sets": 10**9}},
    ],
)
def test_settings_of_absurd_size_are_refused_before_memory_is_taken(run, absurd, monkeypatch):
    path, config = run / "config.json", read_json(run / "config.json")
    own = {name: value for name, value in absurd.items() if name in config["hyperparameters"]}
    write_json(path, {**config, **(absurd if not own else {}), "hyperparameters": {**config["hyperparameters"], **own}})
    monkeypatch.setattr(model, "populate", lambda *_: pytest.fail("networks are built"))
    with pytest.raises(OmrlError, match=r"does not fit its settings|cannot|at most 100 layers|between . and 1024"):
        omrl.load(run)


@pytest.mark.parametrize(("name", "value"), [("context_sets", 1), ("context_sets", 0)])
def test_a_run_does_not_go_on_with_less_than_its_algorithm_reads(made, run, name, value):
    path, config = run / "config.json", read_json(run / "config.json")
    write_json(path, {**config, "batch": {**config["batch"], name: value}})
    with pytest.raises(OmrlError, match=rf"config\.json is damaged: batch\.{name} is {value}, and focal reads 2"):
        train(made / "pumps", run)


def test_networks_that_need_numbers_to_be_made_are_checked_when_they_are_there(run, monkeypatch):
    class Counting(FOCAL.Nets):
        def __init__(self, *args):
            super().__init__(*args)
            assert sum(param.sum().item() for param in self.parameters())

    monkeypatch.setattr(FOCAL, "Nets", Counting)
    assert omrl.load(run).step == 12
    path = run / "config.json"
    path.write_text(path.read_text().replace('"latent_dim": 2', '"latent_dim": 3'))
    with pytest.raises(OmrlError, match="does not fit its settings: params is"):
        omrl.load(run)


def test_random_numbers_that_cannot_be_gone_on_with_name_their_file(run):
    made = Run.open(run)
    step, state = made.load()
    made.save(step, {**state, "generator": torch.full_like(state["generator"], 255)})
    with pytest.raises(OmrlError, match=r"step-0000012\.safetensors has random numbers that cannot be gone on with"):
        omrl.load(run)


def test_a_whole_number_will_do_where_a_number_is_asked_for(made, tmp_path):
    whole, point = (train(made / "pumps", tmp_path / str(alpha), alpha=alpha, steps=2) for alpha in (5, 5.0))
    assert torch.equal(whole.load()[1]["params"], point.load()[1]["params"])


def test_a_calibrated_run_may_be_replaced(made, tmp_path):
    train(made / "pumps", tmp_path / "run")
    (tmp_path / "run" / "calibration.safetensors").write_bytes(b"")
    train(made / "pumps", tmp_path / "run", force=True)
    assert not (tmp_path / "run" / "calibration.safetensors").exists()


def test_what_a_run_names_and_there_is_not_is_said_with_the_file(run):
    path, config = run / "config.json", read_json(run / "config.json")
    for key, value in (("algorithm", "99999"), ("level", "<script>"), ("seed", 10**30)):
        write_json(path, {**config, key: value})
        with pytest.raises(OmrlError, match=rf"config\.json.*{value}"):
            omrl.evaluate(run, device="cpu")


@pytest.mark.parametrize(
    "said", [b"\xff\xfes\x00", b"../../..", b"../step-0000012.safetensors", b"/etc/passwd", b"step-1.safetensors", b""]
)
def test_what_is_no_name_of_a_checkpoint_is_not_opened(run, said):
    (run / "checkpoints" / "latest").write_bytes(said)
    for opens in (lambda: Run.open(run).step, lambda: omrl.load(run), lambda: omrl.evaluate(run, device="cpu")):
        with pytest.raises(OmrlError, match="does not name a checkpoint"):
            opens()


@pytest.mark.parametrize("changes", [{"seeds": 1_000_000}, {"hyperparameters": {"hidden": [300_000] * 3}}])
def test_no_network_is_made_where_there_is_no_checkpoint(run, monkeypatch, changes):
    def build(*_):
        raise AssertionError("networks were made")

    monkeypatch.setattr(FOCAL, "build", build)
    monkeypatch.setattr(FOCAL, "Nets", build)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    config = read_json(run / "config.json")
    own = {**config["hyperparameters"], **changes.get("hyperparameters", {})}
    write_json(run / "config.json", {**config, **changes, "hyperparameters": own})
    words = (omrl.load, omrl.calibrate, lambda run: omrl.export(run, "numpy", run.parent / "out"))
    for opens in (*words, lambda run: omrl.evaluate(run, device="cpu")):
        with pytest.raises(OmrlError, match="no checkpoint yet: train it first"):
            opens(run)


@pytest.mark.parametrize(("low", "high"), [(100.0, 0.0), (5.0, 5.0)])
def test_bounds_of_actions_in_the_wrong_order_are_refused(run, low, high):
    config = read_json(run / "config.json")
    write_json(run / "config.json", {**config, "action_low": [low], "action_high": [high]})
    with pytest.raises(OmrlError, match=rf"config\.json: action_low {low} is not below action_high {high}"):
        omrl.load(run)


def test_a_path_that_no_file_can_hold_makes_no_run(made, tmp_path):
    data = tmp_path / os.fsdecode(b"d\xff")
    data.symlink_to(made / "pumps")
    with pytest.raises(OmrlError, match=r"data is .* no text in UTF-8"):
        train(data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_names_of_tasks_are_no_formulas_and_come_back(tmp_path):
    names = ["=1+1", "-2+cmd", "'=x", "pump"]
    logs = pumps(tmp_path / "pumps", tasks=4)
    named = dict(zip(names, logs.values(), strict=True))
    split = {"train": names[2:], "test": names}
    MetaDataset.from_arrays(named, action_low=[0], action_high=[100], varies="dynamics", split=split).save(
        tmp_path / "data"
    )
    run = train(tmp_path / "data", tmp_path / "run", steps=2)
    omrl.evaluate(run.folder, device="cpu")
    text = (run.folder / "logged.csv").read_text()
    assert ",'=1+1," in text and ",=1+1," not in text and ",''=x," in text
    assert list(run.logged.tasks) == names and not run.scores_changed("logged")
    # An older omrl wrote them as they are.
    (run.folder / "logged.csv").write_text(text.replace("'=1+1", "=1+1").replace("'-2", "-2"))
    assert list(run.logged.tasks) == names
