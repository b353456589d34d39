"""Files of a run that are cut, damaged or edited: noticed, mended where they can be, never taken for whole."""

from __future__ import annotations

import shutil

import pytest
import torch

import omrl
from omrl.errors import OmrlError
from omrl.runs.checkpoints import CHECKSUM
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


def test_a_checkpoint_without_a_checksum_opens_as_ever(run):
    step, state = Run.open(run).load()
    write_tensors(newest(run), {name: value.numpy() for name, value in state.items()}, {"step": str(step)})
    assert CHECKSUM.encode() not in newest(run).read_bytes()
    assert omrl.load(run).step == 12


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


def test_random_numbers_that_cannot_be_gone_on_with_name_their_file(run):
    made = Run.open(run)
    step, state = made.load()
    made.save(step, {**state, "generator": torch.full_like(state["generator"], 255)})
    with pytest.raises(OmrlError, match=r"step-0000012\.safetensors has random numbers that cannot be gone on with"):
        omrl.load(run)


def test_a_whole_number_will_do_where_a_number_is_asked_for(made, tmp_path):
    whole, point = (train(made / "pumps", tmp_path / str(alpha), alpha=alpha, steps=2) for alpha in (1, 1.0))
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


def test_a_name_of_the_newest_checkpoint_in_another_encoding_is_none(run):
    (run / "checkpoints" / "latest").write_bytes(b"\xff\xfes\x00")
    with pytest.raises(OmrlError, match="does not name a checkpoint"):
        _ = Run.open(run).step
