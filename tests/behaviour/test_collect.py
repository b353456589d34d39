"""Collecting a data set: what comes out, also from policies, after interruptions, beside other data, on a full disk."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
from behaviour_helpers import OPTIONS, SMALL, SPARSE, command, contents, leftovers, stop_in

from omrl import progress
from omrl.behaviour import collect as collecting
from omrl.behaviour.collect import collect
from omrl.behaviour.policies import PolicyFiles
from omrl.behaviour.rollout import roll_out
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
STEPS, LEVELS = [184, 280, 400], ["random", "medium", "expert"]
# Saves after every round; slow roll-outs, a task at a time, so that a signal can meet them.
DRIVER = """
import sys, time
from omrl.behaviour import agents, collect
from omrl.cli import main
agents.SAVE_SECONDS, collect.ROLLOUT_TASKS = 0.0, 1
honest = collect.roll_out
collect.roll_out = lambda *a, **k: (time.sleep(0.1), honest(*a, **k))[1]
main()
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A small data set, made without interruption."""
    out = tmp_path_factory.mktemp("collected") / "data"
    assert collect("sparse-point-robot", out, **OPTIONS) is not None
    return out


# ----------------------------------------------------------------------------- what comes out


def test_the_data_set_validates_and_has_all_levels(small):
    dataset = MetaDataset.open(small)
    dataset.validate()
    assert dataset.levels == ("random", "medium", "expert", "mixed")
    assert dataset.family == "sparse-point-robot"
    assert [task.name for task in dataset.tasks] == ["task-000", "task-050", "task-099"]
    assert dataset.tasks == tuple(SPARSE.tasks[i] for i in (0, 50, 99))
    split = dataset.split
    assert sorted(split["train"] + split["test"]) == ["task-000", "task-050", "task-099"]
    assert leftovers(small.parent) == ["data"]
    assert sorted(p.name for p in small.iterdir()) == [
        ".omrl.json",
        "manifest.json",
        "policies",
        "task-000.safetensors",
        "task-001.safetensors",
        "task-002.safetensors",
    ]


def test_every_checkpoint_has_its_rows_and_the_manifest_their_returns_at_the_horizon(small):
    dataset = MetaDataset.open(small)
    for entry in dataset.manifest.tasks:
        rows = dataset.rows(entry.name)
        assert [(c.policy_step, c.level) for c in entry.checkpoints] == [*zip(STEPS, LEVELS, strict=True)]
        means = {}
        for checkpoint in entry.checkpoints:
            mask = rows["policy_step"] == checkpoint.policy_step
            assert mask.sum() == checkpoint.rows == 2 * SPARSE.logged_steps
            rewards = rows["rewards"][mask].reshape(2, SPARSE.logged_steps)
            means[checkpoint.policy_step] = rewards[:, : SPARSE.horizon].sum(axis=1).mean()
            assert checkpoint.mean_return == pytest.approx(means[checkpoint.policy_step], abs=1e-5)
            assert checkpoint.rewarded == pytest.approx((rewards != 0).mean())
            assert 0.005 < checkpoint.action_std < 8.0
        assert entry.reference.expert == pytest.approx(means[400], abs=1e-5)
    references = [entry.reference.expert for entry in dataset.manifest.tasks]
    assert max(references) > 0 or any(dataset.rows(t)["rewards"].any() for t in range(3))


def test_the_manifest_says_how_the_data_was_made(small):
    source = MetaDataset.open(small).manifest.source
    assert source["agents"]["steps"] == 400
    assert source["agents"]["different_starts"] is False
    assert source["agents"]["sac"]["temperature_learning_rate"] == 1e-4
    assert source["rollout"] == {
        "checkpoints": STEPS,
        "untrained": True,
        "levels": dict(zip(LEVELS, STEPS, strict=True)),
        "episodes": 2,
        "action_std": None,
        "seed": 0,
    }
    assert set(source["versions"]) == {"omrl", "numpy", "mujoco"}


def test_the_plan_of_a_dry_run_is_the_source_of_the_data(small, monkeypatch, capsys):
    arguments = ("sparse-point-robot", "--out", str(small), *SMALL, "--dry-run")
    plan = json.loads(command(monkeypatch, capsys, "collect", *arguments)[1])
    source = MetaDataset.open(small).manifest.source
    assert {key: value for key, value in source.items() if key != "versions"} == plan


def test_the_learning_curve_lies_beside_the_policies(small):
    lines = (small / "policies" / "learning-curve.csv").read_text().splitlines()
    assert lines[0] == "task,step,return"
    assert {line.split(",")[0] for line in lines[1:]} == {"task-000", "task-050", "task-099"}
    assert all(0 < int(line.split(",")[1]) <= 400 for line in lines[1:])


def test_the_same_arguments_again_do_nothing(small, capsys):
    before = {path: path.stat().st_mtime_ns for path in small.rglob("*")}
    dataset = collect("sparse-point-robot", small, **OPTIONS)
    assert "is there already" in capsys.readouterr().out
    assert dataset is not None
    assert {path: path.stat().st_mtime_ns for path in small.rglob("*")} == before


def test_another_seed_or_other_starts_give_other_data(small, tmp_path):
    made = contents(small)
    for name, options in (("seed", {"seed": 1}), ("starts", {"different_starts": True})):
        collect("sparse-point-robot", tmp_path / name, **OPTIONS | options)
        assert contents(tmp_path / name)["task-002.safetensors"] != made["task-002.safetensors"]


def test_the_untrained_policy_is_scored_and_its_rows_are_not_kept(small):
    dataset, stored = MetaDataset.open(small), PolicyFiles.open(small / "policies")
    assert stored.steps == (0, *STEPS)
    assert set(np.concatenate([dataset.rows(t)["policy_step"] for t in range(3)])) == set(STEPS)
    weights, biases = stored.weights(0)
    settings = {"episodes": 2, "seeds": [(0, 0)] * len(stored.tasks), "length": SPARSE.horizon}
    logged = roll_out(SPARSE, stored.tasks, weights, biases, **settings)
    for entry, rows in zip(dataset.manifest.tasks, logged, strict=True):
        assert entry.reference.random == pytest.approx(rows.arrays["rewards"].sum() / 2)


@pytest.mark.parametrize(("envs", "at_once"), [(1, 1), (1, 3), (12, 1)])
def test_the_same_rows_are_logged_however_many_checkpoints_are_rolled_out_at_once(
    envs, at_once, small, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(collecting, "ROLLOUT_ENVS", envs)
    monkeypatch.setattr(collecting, "ROLLOUTS_AT_ONCE", at_once)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    shutil.copytree(small / "policies", tmp_path / "policies" / SPARSE.name)
    again = {"episodes": 2, "from_policies": True, "policies": tmp_path / "policies"}
    collect("sparse-point-robot", tmp_path / "again", **again)
    made, whole = contents(tmp_path / "again"), contents(small)
    assert [made[f"task-00{i}.safetensors"] == whole[f"task-00{i}.safetensors"] for i in range(3)] == [True] * 3
    # Every rollout that is finished is progress.
    lines = re.findall(r"rolling out 3 checkpoints: (\d+) %", capsys.readouterr().err)
    assert lines == (["33", "67", "100"] if envs == 1 else ["67", "100"])


def test_what_is_rolled_out_ends_at_once_when_it_is_interrupted(small, tmp_path, monkeypatch):
    ended, once = [], Lock()

    def roll_out(*args, stopped, length, **options):
        if length != SPARSE.horizon:  # not the untrained policy
            if once.acquire(blocking=False):
                os.kill(os.getpid(), signal.SIGINT)
            ended.append(stopped.wait(60))
        return honest(*args, stopped=stopped, length=length, **options)

    honest = collecting.roll_out
    monkeypatch.setattr(collecting, "roll_out", roll_out)
    shutil.copytree(small / "policies", tmp_path / "policies" / SPARSE.name)
    again = {"episodes": 2, "from_policies": True, "policies": tmp_path / "policies"}
    with pytest.raises(KeyboardInterrupt):
        collect("sparse-point-robot", tmp_path / "again", **again)
    assert ended and all(ended)
    assert not (tmp_path / "again").exists()
    monkeypatch.setattr(collecting, "roll_out", honest)
    collect("sparse-point-robot", tmp_path / "again", **again)
    assert contents(tmp_path / "again")["task-000.safetensors"] == contents(small)["task-000.safetensors"]


def test_one_level_logs_its_checkpoint_alone(small, tmp_path):
    dataset = collect("sparse-point-robot", tmp_path / "expert", **OPTIONS, level="expert")
    assert dataset.levels == ("expert", "mixed")
    whole = MetaDataset.open(small).level("expert")
    for task in ("task-000", "task-050", "task-099"):
        rows, expected = dataset.rows(task), whole.rows(task)
        assert set(rows["policy_step"]) == {400}
        for name in ("observations", "actions", "rewards", "next_observations", "truncations", "step"):
            np.testing.assert_array_equal(rows[name], expected[name])
    entry = dataset.manifest.tasks[0]
    assert entry.reference.expert == MetaDataset.open(small).manifest.tasks[0].reference.expert


def test_packs_of_agents_are_the_same_agents_wherever_they_are_trained(tmp_path, small):
    whole = collect("sparse-point-robot", tmp_path / "whole", **OPTIONS, pack=3)
    policies = {path.name: path.read_bytes() for path in (small / "policies").glob("step-*")}
    assert policies == {path.name: path.read_bytes() for path in (tmp_path / "whole" / "policies").glob("step-*")}
    assert whole.manifest.source["pack"] == 3
    apart = [
        collect("sparse-point-robot", tmp_path / name, **OPTIONS, pack=2, threads=1, at_once=number)
        for name, number in (("one", 1), ("two", 2))
    ]
    one, two = ([entry.sha256 for entry in dataset.manifest.tasks] for dataset in apart)
    assert one == two and one != [entry.sha256 for entry in whole.manifest.tasks]
    names = (tmp_path / "one" / "policies", tmp_path / "two" / "policies")
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in names)
    assert first == second
    with pytest.raises(OmrlError, match="--at-once is about agents that are trained apart"):
        collect("sparse-point-robot", tmp_path / "x", **OPTIONS, at_once=2)
    with pytest.raises(OmrlError, match="--pack is about training"):
        collect("sparse-point-robot", tmp_path / "x", tasks=3, pack=2, from_policies=True, policies=small)
    assert leftovers(tmp_path) == ["one", "two", "whole"]


# ----------------------------------------------------------------------------- from policies


@pytest.fixture
def published(small, tmp_path) -> Path:
    shutil.copytree(small / "policies", tmp_path / "policies" / "sparse-point-robot")
    return tmp_path / "policies"


def test_a_rebuild_from_policies_has_the_same_bytes(small, published, tmp_path):
    collect("sparse-point-robot", tmp_path / "again", from_policies=True, policies=published, episodes=2)
    made = {name: data for name, data in contents(small).items() if not name.startswith("policies")}
    assert contents(tmp_path / "again") == made


def test_some_tasks_rebuilt_from_policies_have_the_rows_they_have_among_all(small, published, tmp_path):
    options = {"from_policies": True, "policies": published, "episodes": 2, "tasks": 2}
    dataset = collect("sparse-point-robot", tmp_path / "some", **options)
    assert [task.name for task in dataset.tasks] == ["task-000", "task-099"]
    assert (tmp_path / "some" / "task-001.safetensors").read_bytes() == (small / "task-002.safetensors").read_bytes()


def test_policies_that_do_not_fit_are_refused(published, tmp_path, monkeypatch, capsys):
    def refused(*words):
        arguments = ("--out", str(tmp_path / "new"), "--from-policies", "--policies", str(published))
        code, _, err = command(monkeypatch, capsys, "collect", *words, *arguments)
        assert code == 2
        assert err.count("\n") == 1
        assert leftovers(tmp_path) == ["policies"]
        return err

    assert "holds no behaviour policies" in refused("point-robot-wind")
    (published / "sparse-point-robot").rename(published / "point-robot-wind")
    assert "holds policies of sparse-point-robot" in refused("point-robot-wind")
    (published / "point-robot-wind").rename(published / "sparse-point-robot")
    training = (["--steps", "80"], ["--envs-per-task", "2"], ["--different-starts"], ["--target-entropy", "-2"])
    for words in training:
        assert f"{words[0]} is about training, and --from-policies does not" in refused("sparse-point-robot", *words)
    assert "--tasks must be between 1 and the 3" in refused("sparse-point-robot", "--tasks", "4")
    assert "--episodes must be at least 1" in refused("sparse-point-robot", "--episodes", "0")
    altered = published / "sparse-point-robot" / "step-0000400.safetensors"
    altered.write_bytes(altered.read_bytes()[:-1] + b"\x77")
    assert "it was altered" in refused("sparse-point-robot")


def test_policies_without_a_training_record_can_be_rolled_out(published, tmp_path):
    index = published / "sparse-point-robot" / "policies.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"source": {"algorithm": "by hand"}}))
    dataset = collect("sparse-point-robot", tmp_path / "new", from_policies=True, policies=published, episodes=1)
    assert dataset.manifest.source["algorithm"] == "by hand"
    assert dataset.manifest.source["rollout"]["checkpoints"] == STEPS
    # Nobody named levels: the first, the middle and the last checkpoint.
    assert dataset.manifest.source["rollout"]["levels"] == dict(zip(LEVELS, STEPS, strict=True))


def test_the_tasks_of_a_split_are_those_that_are_logged(tmp_path):
    family = FAMILIES["walker-2d-params"]
    options = {"from_policies": True, "policies": ROOT / "policies", "episodes": 1, "level": "random", "tasks": 3}
    for split in ("paper", "large"):
        dataset = collect(family.name, tmp_path / split, split=split, **options)
        members = {
            side: {family.tasks[i].name for i in getattr(family.splits[split], side)} for side in ("train", "test")
        }
        assert all(set(dataset.split[side]) <= members[side] for side in members)
        assert len(dataset.tasks) == 3 == len(dataset.split["train"]) + len(dataset.split["test"])
    with pytest.raises(OmrlError, match="has no split 'huge'; it has paper, large"):
        collect(family.name, tmp_path / "huge", split="huge", **options)


# ----------------------------------------------------------------------------- interruptions


def start(out: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", DRIVER, "collect", "sparse-point-robot", "--out", str(out), *SMALL]
    # A shell's background job ignores Ctrl-C, and so would whatever it starts.
    listens = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listens)


def interrupt(out: Path, reached, number: signal.Signals) -> tuple[int, str]:
    """Start the command, send it a signal as soon as it has got so far; its exit code and stderr."""
    process = start(out)
    deadline = time.monotonic() + 120
    while not reached():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert not out.exists()
    return process.returncode, err


def chunks(out: Path) -> int:
    return len(list(out.parent.glob(f".{out.name}.collect/replay-*.safetensors")))


def finish(out: Path) -> None:
    process = start(out)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


def test_killed_three_times_it_goes_on_and_ends_with_the_same_bytes(small, tmp_path):
    out = tmp_path / "data"
    partial = tmp_path / ".data.partial"
    assert interrupt(out, lambda: chunks(out) >= 4, signal.SIGKILL)[0] == -signal.SIGKILL
    first = chunks(out)
    assert interrupt(out, lambda: chunks(out) >= first + 6, signal.SIGKILL)[0] == -signal.SIGKILL
    assert interrupt(out, lambda: any(partial.glob("task-*.safetensors")), signal.SIGKILL)[0] == -signal.SIGKILL
    finish(out)
    assert leftovers(tmp_path) == ["data"]
    assert contents(out) == contents(small)


def test_ctrl_c_and_sigterm_leave_a_run_that_goes_on_to_the_same_bytes(small, tmp_path):
    out = tmp_path / "data"
    code, err = interrupt(out, lambda: chunks(out) >= 3, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in err
    assert (
        err.strip().splitlines()[-1] == "interrupted; the same command goes on from the last save, where there is one"
    )
    first = chunks(out)
    assert interrupt(out, lambda: chunks(out) >= first + 3, signal.SIGTERM)[0] == -signal.SIGTERM
    finish(out)
    assert leftovers(tmp_path) == ["data"]
    assert contents(out) == contents(small)


def test_stopped_before_the_policies_are_put_beside_the_data_it_does_so_when_started_again(
    small, tmp_path, monkeypatch
):
    out = tmp_path / "data"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_in(patch, "_keep_policies")
        collect("sparse-point-robot", out, **OPTIONS)
    assert leftovers(tmp_path) == [".data.collect", "data"]
    collect("sparse-point-robot", out, **OPTIONS)
    assert leftovers(tmp_path) == ["data"]
    assert contents(out) == contents(small)


def test_an_unfinished_replacement_does_not_touch_the_finished_data(small, tmp_path, monkeypatch):
    out = tmp_path / "data"
    shutil.copytree(small, out)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_in(patch, "_log_rollouts")
        collect("sparse-point-robot", out, **OPTIONS | {"seed": 1}, force=True)
    assert contents(out) == contents(small)
    collect("sparse-point-robot", out, **OPTIONS)
    assert contents(out) == contents(small)


def test_rows_left_by_a_run_whose_agents_are_gone_are_not_used(small, tmp_path, monkeypatch):
    out = tmp_path / "data"
    partial = tmp_path / ".data.partial"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("omrl.data.MetaDatasetWriter.finish", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        collect("sparse-point-robot", out, **OPTIONS)
    assert (partial / "task-000.safetensors").exists()
    shutil.rmtree(tmp_path / ".data.collect")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_in(patch, "_train")
        collect("sparse-point-robot", out, **OPTIONS)
    assert not partial.exists()


# ----------------------------------------------------------------------------- what is there already


@pytest.mark.parametrize("words", [["--seed", "1"], ["--episodes", "3"], ["--level", "expert"], ["--different-starts"]])
def test_a_data_set_made_with_other_arguments_is_kept(words, small, tmp_path, monkeypatch, capsys):
    before = contents(small)
    code, _, err = command(monkeypatch, capsys, "collect", "sparse-point-robot", "--out", str(small), *SMALL, *words)
    assert code == 2
    assert "holds a dataset made with other arguments" in err
    assert contents(small) == before


def test_a_data_set_of_another_family_is_kept(small, monkeypatch, capsys):
    code, _, err = command(monkeypatch, capsys, "collect", "point-robot-wind", "--out", str(small), *SMALL)
    assert code == 2
    assert "holds a dataset made with other arguments" in err
    assert MetaDataset.open(small).family == "sparse-point-robot"


def test_an_unfinished_run_with_other_arguments_is_kept_unless_forced(small, tmp_path, monkeypatch, capsys):
    out = tmp_path / "data"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_in(patch, "_log_rollouts")
        collect("sparse-point-robot", out, **OPTIONS | {"steps": 80})
    code, _, err = command(monkeypatch, capsys, "collect", "sparse-point-robot", "--out", str(out), *SMALL)
    assert code == 2
    assert "is an unfinished run with other arguments" in err
    collect("sparse-point-robot", out, **OPTIONS, force=True)
    assert contents(out) == contents(small)
    assert leftovers(tmp_path) == ["data"]


# ----------------------------------------------------------------------------- a full disk


@pytest.mark.parametrize("file", ["replay-", "actors-", "step-", "task-", "manifest"])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_when_there_is_room(file, small, tmp_path, monkeypatch, capsys):
    out = tmp_path / "data"
    honest = Path.write_bytes

    def full(self, data):
        if self.name.startswith(f".{file}"):
            honest(self, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
        return honest(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        code, _, err = command(patch, capsys, "collect", "sparse-point-robot", "--out", str(out), *SMALL)
    assert code == 2
    last = err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "No space left on device" in last
    assert "Traceback" not in err
    assert not out.exists()
    assert not list(tmp_path.rglob("*.tmp"))
    collect("sparse-point-robot", out, **OPTIONS)
    assert contents(out) == contents(small)
    assert leftovers(tmp_path) == ["data"]


def test_a_disk_that_is_really_full_is_one_sentence(tmp_path, monkeypatch, capsys):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "none", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        out = disk / "data"
        code, _, err = command(monkeypatch, capsys, "collect", "sparse-point-robot", "--out", str(out), *SMALL)
        assert code == 2
        assert "No space left on device" in err.strip().splitlines()[-1]
        assert "Traceback" not in err
        assert not out.exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
