"""`omrl data ...` as the command line calls it."""

import json

import numpy as np
import pytest
import tyro
from example_logs import assert_same_dataset, make_dataset, make_task

from omrl.commands.data import DataCommand
from omrl.data import MetaDataset, command
from omrl.errors import OmrlError


def omrl_data(*arguments):
    command.run(tyro.cli(DataCommand, args=[str(argument) for argument in arguments]))


@pytest.fixture
def folder(tmp_path):
    return make_dataset().save(tmp_path / "logs").path


def test_info(folder, capsys):
    omrl_data("info", folder)
    shown = capsys.readouterr().out
    for text in ("own logs", "3 (2 train, 1 test)", "62 in 21 episodes", "3 numbers", "2 numbers in [-2, 3]", "reward"):
        assert text in shown
    assert "over 2 steps" in shown and "random" in shown and "expert" in shown
    assert "c d/é" not in shown


def test_info_with_tasks(folder, capsys):
    omrl_data("info", folder, "--tasks")
    shown = capsys.readouterr().out
    rows = [line for line in shown.splitlines() if '"goal": [0.1, 0.2]' in line]
    expert = MetaDataset.open(folder).level("expert").returns("a").mean()
    assert len(rows) == 1 and f"{expert:.2f}" in rows[0] and "train" in rows[0] and "25" in rows[0]
    assert "c d/é" in shown


def test_names_are_no_markup(tmp_path, capsys):
    make_dataset({"[red]x": make_task(), "b": make_task()}, split=None, params=None).save(tmp_path / "[bold]")
    omrl_data("info", tmp_path / "[bold]", "--tasks")
    shown = capsys.readouterr().out
    assert "[red]x" in shown and "[bold]" in shown


def test_info_for_programs(folder, capsys):
    omrl_data("info", folder, "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"] == 62 and len(facts["tasks"]) == 3
    dataset = MetaDataset.open(folder)
    for level in dataset.levels:
        means = [dataset.level(level).returns(task.name).mean() for task in dataset.tasks]
        np.testing.assert_allclose(facts["levels"][level]["mean_return"], np.mean(means), rtol=1e-6)


def test_info_reads_no_rows(folder, monkeypatch, capsys):
    monkeypatch.setattr(np, "memmap", None)
    omrl_data("info", folder, "--tasks")
    assert "tasks" in capsys.readouterr().out


def test_validate(folder, capsys):
    omrl_data("validate", folder)
    ok, *notes = capsys.readouterr().out.splitlines()
    assert ok == "OK: 3 tasks, 62 rows" and all(note.startswith("note: ") for note in notes)
    assert notes == ["note: 3 of 3 tasks have few rows (the median is 24): 'a' (25), 'b' (24), 'c d/é' (13)"]
    file = folder / "task-002.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(OmrlError, match=r"task-002.safetensors: the file of task 'c d/é' does not match its checksum"):
        omrl_data("validate", folder)


@pytest.mark.parametrize("kind", ["hdf5", "minari"])
def test_export_and_import(folder, tmp_path, kind, capsys):
    omrl_data("export", "--to", kind, folder, tmp_path / "out")
    omrl_data("import", "--from", kind, tmp_path / "out", tmp_path / "back")
    assert "back: 3 tasks, 62 rows" in capsys.readouterr().out
    assert_same_dataset(MetaDataset.open(tmp_path / "back"), MetaDataset.open(folder))
    with pytest.raises(OmrlError, match="exists already; use --force"):
        omrl_data("export", "--to", kind, folder, tmp_path / "out")
    written = (tmp_path / "back" / "manifest.json").stat().st_ino
    omrl_data("import", "--from", kind, tmp_path / "out", tmp_path / "back")  # the same again changes nothing
    assert (tmp_path / "back" / "manifest.json").stat().st_ino == written
    omrl_data("export", "--to", kind, folder, tmp_path / "out", "--force")
    omrl_data("import", "--from", kind, tmp_path / "out", tmp_path / "back", "--force")


def test_import_with_every_flag(tmp_path):
    (tmp_path / "logs").mkdir()
    for name in ("a", "b", "c"):
        arrays = make_task(dense=True)
        columns = {"o0": arrays["observations"][:, 0], "o1": arrays["observations"][:, 1], "u": arrays["actions"][:, 0]}
        columns |= {"r": arrays["rewards"], "end": arrays["terminations"], "e": arrays["episode"], "k": arrays["step"]}
        np.savez(tmp_path / "logs" / f"{name}.npz", **columns, age=arrays["policy_step"], d=arrays["rewards_dense"])
    (tmp_path / "params.json").write_text('{"a": {"load": 1}}')
    flags = "--observations o0 o1 --actions u --rewards r --terminations end --episode e --step k --policy-step age"
    flags += " --rewards-dense d --action-low -2 --action-high 3 --varies dynamics --horizon 2 --test-tasks b c --force"
    paths = (tmp_path / "logs", tmp_path / "out")
    omrl_data("import", "--from", "npz", *paths, *flags.split(), "--task-params", tmp_path / "params.json")
    dataset = MetaDataset.open(tmp_path / "out")
    assert dataset.split == {"train": ("a",), "test": ("b", "c")} and dataset.tasks[0].params == {"load": 1}
    assert dataset.observation_dim == 2 and dataset.manifest.action_low == (-2,) and dataset.manifest.horizon == 2
    assert dataset.levels == ("random", "medium", "expert", "mixed")
    omrl_data(
        "import", "--from", "npz", *paths, *flags.replace("--test-tasks b c", "--test-fraction 0.4 --seed 3").split()
    )
    assert len(MetaDataset.open(tmp_path / "out").split["test"]) == 1


def test_terminations_none(tmp_path):
    arrays = {name: make_task()[name] for name in ("observations", "actions", "rewards", "episode")}
    np.savez(tmp_path / "logs.npz", task=np.repeat(["a"], 25), **arrays)
    flags = "--terminations none --action-low -2 --action-high 3 --varies both --test-fraction 0"
    omrl_data("import", "--from", "npz", tmp_path / "logs.npz", tmp_path / "out", *flags.split())
    rows = MetaDataset.open(tmp_path / "out").rows("a")
    assert not rows["terminations"].any() and len(rows["rewards"]) == 25 - 8


def test_every_flag_is_explained(capsys):
    for word in ("info", "validate", "import", "export"):
        with pytest.raises(SystemExit) as stopped:
            omrl_data(word, "--help")
        assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "--test-fraction" in shown and "terminals in D4RL" in shown
