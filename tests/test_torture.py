"""A short form of the campaign in tests/torture: a damaged file of each kind, and every step disturbed."""

from __future__ import annotations

import importlib
import os
import random
import signal
import time
from unittest import mock

import pytest
import torch

from omrl.runs import run
from torture import forked
from torture.campaign import AT, Verdict, Worker, make_world
from torture.inputs import KINDS, judge
from torture.steps import STEPS

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")
SEED = 7


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torture")
    (folder / "worker").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_commit", run._commit)  # a campaign has a process of its own to change it in
        yield Worker(make_world(folder), folder / "worker", SEED)


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if not kind.slow])
def test_damaged_files_get_one_sentence_or_the_right_answer(worker, kind):
    found = worker.do(f"input/{kind}/0")
    assert not found.wrong, f"{found.wrong}\n{found.trace}"


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_was_disturbed_ends_with_the_same_files(worker, step):
    rng = random.Random(f"{SEED}/{step}")
    operations = worker.operations(step)
    opens = [i for i, done in enumerate(operations, 1) if done.startswith("open ")] or [1]
    kill = f"kill/{step}/{rng.randrange(1, len(operations) + 1)}"
    ways = [f"{what}/{step}/{rng.choice(opens)}" for what in AT if what != "kill"] + [f"twice/{step}/1"]
    case = rng.choice((kill, rng.choice(ways)))
    found = worker.do(case)
    assert not found.wrong, f"{case}: {found.wrong}\n{found.trace}"


@pytest.mark.parametrize("step", ["collect", "evaluate"])
def test_two_at_once_write_one_after_the_other_or_are_told(worker, step):
    found = worker.do(f"twice/{step}/0")
    assert not found.wrong, f"{found.wrong}\n{found.trace}"


# -- whether it would be noticed ---------------------------------------------------------------------------------------


def test_a_child_that_hangs_dies_or_takes_too_much_is_noticed():
    assert forked.attempt(lambda: time.sleep(60), seconds=0.2).hung
    assert forked.attempt(lambda: os.kill(os.getpid(), signal.SIGKILL)).signal == signal.SIGKILL
    grown = forked.attempt(lambda: len(bytearray(300 * 1024**2)), memory=None)
    assert grown.grown > 200 * 1024**2
    assert forked.attempt(lambda: len(bytearray(300 * 1024**2)), memory=100 * 1024**2).error == "MemoryError"
    raised = forked.attempt(lambda: 1 / 0)
    assert (raised.error, raised.answer) == ("ZeroDivisionError", None)


def test_cases_that_were_not_tried_are_noticed(tmp_path, monkeypatch, capsys):
    with mock.patch.dict(os.environ):
        command = importlib.import_module("torture.__main__")
    cases = ["input/csv/0", "input/csv/1"]
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr(command, "make_world", lambda root: tmp_path)
    monkeypatch.setattr(command, "input_cases", lambda *_: cases)
    monkeypatch.setattr(command, "step_cases", lambda *_: [])
    monkeypatch.setattr(command, "HERE", tmp_path)
    monkeypatch.setattr(command.os, "access", lambda *_: False)
    monkeypatch.setattr(command.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(command, "run_all", lambda *_: None)
    verdicts = [Verdict(case, "", "answer", 0.1) for case in cases]
    for done, code in ((1, 1), (2, 0)):
        monkeypatch.setattr(command, "read_state", lambda _, done=done: verdicts[:done])
        assert command.main(command.Args(seed=1, out=tmp_path / "out.json")) == code
        assert ("1 were not tried" in capsys.readouterr().out) == bool(code)
        assert (tmp_path / "out.json").exists() != bool(code)


def test_wrong_answers_are_noticed(worker):
    ended = forked.Ended(answer=1)
    kind = KINDS["checkpoint"]
    target = worker.folder / "x"
    assert "silently" in judge(kind, ended, 2, worker.folder, target, unchanged=False)
    assert judge(kind, forked.Ended(error="KeyError"), 1, worker.folder, target, unchanged=False).startswith("KeyError")
    long = forked.Ended(error="OmrlError", kinds=("OmrlError",), sentence=f"{target} is {'long ' * 500}")
    assert "characters" in judge(kind, long, 1, worker.folder, target, unchanged=False)
    silent = forked.Ended(error="OmrlError", kinds=("OmrlError",), sentence="Something is wrong.")
    assert "names no file" in judge(kind, silent, 1, worker.folder, target, unchanged=False)
    fine = forked.Ended(error="OmrlError", kinds=("OmrlError",), sentence=f"{target} is damaged.")
    assert judge(kind, fine, 1, worker.folder, target, unchanged=False) == ""
