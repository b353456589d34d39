"""A campaign of commands: their order, what becomes of failures and interruptions, what is taken home."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import campaign
import publish
import pytest

import omrl
from omrl import cli
from omrl.commands.study import PaperRun, StudyRun
from omrl.commands.tune import Tune
from omrl.studies.definitions import experiments, read_study
from omrl.tuning.rows import chosen_rows

PLAN = Path(campaign.__file__).with_suffix(".toml")


def note(folder, name, seconds=0.0, code=0):
    """A command that notes when it began and ended."""
    text = (
        f"import time, pathlib; said = pathlib.Path({str(folder / 'said')!r}); "
        f"said.open('a').write('{name} begins\\n'); time.sleep({seconds}); "
        f"said.open('a').write('{name} ends\\n'); exit({code})"
    )
    return f"python -c {shlex.quote(text)}"


def step(folder, name, after=(), behind=(), needs="gpu", **how):
    return campaign.Step(name, (note(folder, name, **how),), tuple(after), tuple(behind), needs)


def overlaps(lines):
    """How many were at work at most."""
    return max(sum({"begins": 1, "ends": -1}[line.split()[-1]] for line in lines[:at]) for at in range(1 + len(lines)))


def said(folder):
    return (folder / "said").read_text().splitlines()


def run(folder, steps, at_once=2, seconds=60.0):
    return campaign.Campaign(steps, folder / "campaign", at_once).run(seconds)


def test_steps_wait_for_one_another_and_what_failed_takes_those_that_wait(tmp_path, capsys):
    steps = [
        step(tmp_path, "fails", code=3),
        step(tmp_path, "never", after=["fails"]),
        step(tmp_path, "first", seconds=0.3),
        step(tmp_path, "second", after=["first"], needs="cpu"),
        step(tmp_path, "then", behind=["fails", "second"], needs="cpu"),
    ]
    assert not run(tmp_path, steps)
    lines = said(tmp_path)
    assert lines.index("first ends") < lines.index("second begins") and "never begins" not in lines
    # What is only behind one that fails is done.
    assert lines.index("second ends") < lines.index("then begins")
    told = capsys.readouterr().out
    assert "fails: failed" in told and "ended with 3" in told and "a step failed that it needs" in told
    # Once more: what is done is not done again, what failed is.
    (tmp_path / "said").unlink()
    again = [step(tmp_path, "fails"), *steps[1:]]
    assert run(tmp_path, again)
    assert [line for line in said(tmp_path) if line.endswith("begins")] == ["fails begins", "never begins"]


def test_what_needs_a_step_that_is_done_again_is_done_again(tmp_path):
    steps = [step(tmp_path, "data"), step(tmp_path, "model", after=["data"]), step(tmp_path, "other", behind=["data"])]
    assert run(tmp_path, steps)
    (tmp_path / "said").unlink()
    # One step alone: what is known of the others stays.
    assert run(tmp_path, [step(tmp_path, "more")]) and said(tmp_path) == ["more begins", "more ends"]
    (tmp_path / "said").unlink()
    steps[0] = step(tmp_path, "data", seconds=0.01)
    assert run(tmp_path, steps) and said(tmp_path) == ["data begins", "data ends", "model begins", "model ends"]


def test_what_was_made_of_what_is_made_again_is_not_done_whenever_the_campaign_is_cut(tmp_path):
    steps = [step(tmp_path, "data"), step(tmp_path, "model", after=["data"]), step(tmp_path, "page", after=["model"])]
    other = step(tmp_path, "other", behind=["data"])
    assert run(tmp_path, [*steps, other])
    changed = [step(tmp_path, "data", seconds=0.01), *steps[1:], other]
    # The data is made again, by itself, and nothing after it.
    again = campaign.Campaign(changed[:1], tmp_path / "campaign", 1, campaign.followers(changed))
    assert again.run(60.0)
    known = campaign.Campaign(changed, tmp_path / "campaign", 1).progress
    assert {name for name, one in known.items() if one.done} == {"data", "other"}


def test_a_folder_has_one_campaign_at_a_time(tmp_path):
    one = campaign.Campaign([], tmp_path, 1)
    with pytest.raises(SystemExit, match="Another campaign is at work"):
        campaign.Campaign([], tmp_path, 1)
    assert one.run(1.0) and campaign.Campaign([], tmp_path, 1).run(1.0)


def test_only_steps_that_are_there_can_be_named():
    command = [sys.executable, campaign.__file__, "run", str(PLAN), "--only", "tests", "speeed"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 1 and "has no step 'speeed'." in found.stderr


def test_the_gpu_has_so_many_at_once_or_one_alone_and_the_cpu_all(tmp_path):
    steps = [
        step(tmp_path, "shared", seconds=0.8),
        step(tmp_path, "alone", needs="gpu alone", seconds=0.3),
        step(tmp_path, "later", seconds=0.1),
        step(tmp_path, "cpu", needs="cpu"),
        step(tmp_path, "cpu later", needs="cpu", after=["cpu"]),
    ]
    assert run(tmp_path, steps, at_once=2)
    lines = said(tmp_path)
    # What stands behind one that wants the GPU alone does not keep it from it.
    assert lines.index("shared ends") < lines.index("alone begins") < lines.index("alone ends")
    assert lines.index("alone ends") < lines.index("later begins")
    # It has the cores too: what needs these alone comes before it or after it.
    assert lines.index("cpu ends") < lines.index("alone begins")
    assert not {*lines[lines.index("alone begins") + 1 : lines.index("alone ends")]}


def test_so_many_share_the_gpu_and_others_the_cores(tmp_path):
    steps = [step(tmp_path, f"gpu {i}", seconds=1.0) for i in range(3)]
    assert run(tmp_path, steps, at_once=2)
    assert overlaps(said(tmp_path)) == 2
    (tmp_path / "said").unlink()
    mixed = [step(tmp_path, f"cpu {i}", needs="cpu", seconds=2.0) for i in range(3)]
    assert run(tmp_path, [*mixed, step(tmp_path, "gpu", seconds=2.0)], at_once=1)
    assert overlaps(said(tmp_path)) == 4


def test_commands_of_a_step_follow_one_another_and_one_that_was_finished_is_not_done_again(tmp_path):
    go = tmp_path / "go"
    waits = f"import pathlib, time\nprint('waits', file=open({str(tmp_path / 'said')!r}, 'a'), flush=True)"
    waits += f"\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)"
    short = [note(tmp_path, "one"), note(tmp_path, "two", 1.0)]
    commands = [*short, f"python -c {shlex.quote(waits)}", note(tmp_path, "four")]
    slow = campaign.Step("step", tuple(commands), (), (), "cpu")
    assert not run(tmp_path, [slow], seconds=5.0)
    told = campaign.read_progress(tmp_path / "campaign")["step"]
    assert told.finished == 2 and 4.0 < told.seconds < 20.0
    assert said(tmp_path) == ["one begins", "one ends", "two begins", "two ends", "waits"]
    go.touch()
    assert run(tmp_path, [slow])
    assert said(tmp_path)[5:] == ["waits", "four begins", "four ends"]
    assert campaign.read_progress(tmp_path / "campaign")["step"].seconds > told.seconds


def test_a_program_that_is_not_there_fails_its_step_and_no_other(tmp_path, capsys):
    steps = [step(tmp_path, "long", seconds=0.5), campaign.Step("none", ("nosuchprogram x",), (), (), "cpu")]
    assert not run(tmp_path, steps)
    assert "long ends" in said(tmp_path)
    assert "none: failed after 0 s, `nosuchprogram x` could not be started: No such file" in capsys.readouterr().out


def test_what_is_cut_has_ended_with_all_that_it_began(tmp_path):
    # The command ends at once when it is told to; the process that it began takes a second, and notes that it ends.
    began, ended = tmp_path / "began", tmp_path / "ended"
    child = f"import signal, time; end = lambda *_: (time.sleep(1), open({str(ended)!r}, 'w'), exit()); "
    child += f"signal.signal(15, end); open({str(began)!r}, 'w'); time.sleep(60)"
    parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    cut = campaign.Step("cut", (f"python -c {shlex.quote(parent)}",), (), (), "cpu")
    assert not run(tmp_path, [cut], seconds=3.0)
    assert began.is_file() and ended.is_file()


def test_what_is_not_done_in_time_is_cut_and_goes_on_the_next_time(tmp_path, capsys):
    steps = [step(tmp_path, "short"), step(tmp_path, "long", seconds=30.0)]
    began = time.monotonic()
    assert not run(tmp_path, steps, seconds=2.0) and time.monotonic() - began < 20
    assert "long: cut" in capsys.readouterr().out
    campaign.show(tmp_path / "campaign")
    told = capsys.readouterr().out
    assert "done   short" in told and "begun  long" in told and "$ python" in told
    assert run(tmp_path, [steps[0], step(tmp_path, "long")])
    assert said(tmp_path).count("short begins") == 1 and said(tmp_path).count("long begins") == 2


def test_commands_of_a_campaign_that_was_killed_are_ended(tmp_path):
    plan = tmp_path / "plan.toml"
    commands = json.dumps([note(tmp_path, "x", 60.0)])
    plan.write_text(f"[sizes.full]\n[[steps]]\nname = 'sleeps'\nneeds = 'cpu'\ncommands = {commands}\n")
    command = [sys.executable, campaign.__file__, "--folder", str(tmp_path / "campaign"), "run", str(plan)]
    runner = subprocess.Popen(command, start_new_session=True)
    folder = tmp_path / "campaign" / "full"
    going = folder / campaign.GOING
    while not (tmp_path / "said").is_file():
        assert runner.poll() is None
        time.sleep(0.05)
    runner.kill()
    runner.wait()
    (pid,) = json.loads(going.read_text())
    os.kill(pid, 0)  # it is still there
    shown = subprocess.run([*command[:4], "show"], capture_output=True, text=True).stdout
    assert shown.split()[2:5] == ["begun", "sleeps", "$"]
    campaign.Campaign([], folder, 1)  # which waits until it is gone
    assert not campaign._members(pid)
    assert json.loads(going.read_text()) == []


def test_a_process_of_somebody_else_that_has_an_old_number_lives_on(tmp_path):
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    (tmp_path / campaign.GOING).write_text(json.dumps([other.pid]))
    campaign.Campaign([], tmp_path, 1)
    assert other.poll() is None and json.loads((tmp_path / campaign.GOING).read_text()) == []
    other.kill()
    other.wait()


def test_a_command_that_does_not_end_when_it_is_told_to_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "END_SECONDS", 0.5)
    deaf = (
        f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(tmp_path / 'said')!r}, 'w'); time.sleep(60)"
    )
    cut = campaign.Step("deaf", (f"python -c {shlex.quote(deaf)}",), (), (), "cpu")
    began = time.monotonic()
    assert not run(tmp_path, [cut], seconds=2.0) and time.monotonic() - began < 20
    assert (tmp_path / "said").is_file()


def test_what_changed_since_it_began_is_packed(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    monkeypatch.setattr(publish, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(campaign, "PARCEL_BYTES", 3_000)
    made = ["results/paper/a.json", "results/paper/b.json", "docs/img/paper/c.png", "src/omrl/algorithms/d.toml"]
    for name in ("results/paper/old.json", "docs/page.md", "src/omrl/algorithms/__pycache__/e.pyc", *made):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(os.urandom(1_000))
    os.utime(tmp_path / "results/paper/old.json", (1.0, 1.0))
    parcels = campaign.pack(tmp_path / "parcels", since=100.0)
    found = []
    for parcel in parcels:
        with tarfile.open(parcel) as opened:
            assert sum(member.size for member in opened.getmembers()) < 3_000
            found += opened.getnames()
    assert len(parcels) > 1 and sorted(found) == sorted(made)
    # A smaller one leaves nothing of it.
    assert not campaign.pack(tmp_path / "parcels", since=time.time() + 1_000)
    assert not [*(tmp_path / "parcels").iterdir()]


def test_nothing_is_packed_of_a_campaign_that_has_not_begun(tmp_path):
    command = [sys.executable, campaign.__file__, "--folder", str(tmp_path / "none"), "pack", str(tmp_path / "parcels")]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 1 and found.stderr == f"No campaign has begun in {tmp_path / 'none' / 'full'}.\n"


def understood(words, monkeypatch):
    """What `omrl` takes a command for; nothing is done."""
    found = []

    def module(name):
        parse = getattr(import_module(name), "parse", None)
        return SimpleNamespace(parse=parse, run=found.append, command=lambda *parsed: found.append(parsed))

    monkeypatch.setattr(cli, "import_module", module)
    monkeypatch.setattr(sys, "argv", ["omrl", *words])
    cli._answer(words)
    return found[0]


def test_a_command_runs_this_python_also_behind_what_runs_it():
    here = [sys.executable, "-m", "omrl"]
    assert campaign.words("omrl paper run all --out 'a b'") == [*here, "paper", "run", "all", "--out", "a b"]
    assert campaign.words("nice -n 5 omrl bench python") == ["nice", "-n", "5", *here, "bench", "python"]
    assert campaign.words("python tools/tables.py") == [sys.executable, "tools/tables.py"]
    assert campaign.words("cp a b") == ["cp", "a", "b"]


@pytest.mark.parametrize("size", ["full", "small"])
def test_every_command_of_the_published_plan_is_one_that_omrl_takes(size, tmp_path, monkeypatch):
    # Which settings a run has, its data says: some of the family of the trained runs.
    omrl.collect("walker-2d-params", tmp_path / "walkers", from_policies=True, tasks=2, episodes=1, level="random")
    steps = campaign.read_plan(PLAN, size)
    named, tried = [], []
    for words in (campaign.words(command) for one in steps for command in one.commands):
        assert not any("{" in word for word in words)
        if words[0] == "taskset":
            words = words[words.index(sys.executable) :]
        match words:
            case [_, "-m", "omrl", "train", *told]:
                told[told.index("--data") + 1] = str(tmp_path / "walkers")
                understood(["train", *told], monkeypatch)
            case [_, "-m", "omrl", *told]:
                command = understood(told, monkeypatch)
                if isinstance(command, Tune):
                    tried += chosen_rows(command)
                elif isinstance(command, PaperRun):
                    named += command.names
                elif isinstance(command, StudyRun):
                    assert read_study(PLAN.parents[1] / command.file).experiments
            case [_, "-m", "pytest", *told]:
                assert all((PLAN.parents[1] / word).is_file() for word in told if word.endswith(".py"))
            case [program, script, *_] if program == sys.executable:
                assert (PLAN.parents[1] / script).is_file()
            case _:
                assert words[0] in ("cp", "true")
    assert tried and len(named) == len({*named}) >= 2 and {*named} <= {*experiments()}
    assert {one.needs for one in steps} == {"cpu", "gpu"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 'a'\ncommands = []\nafter = ['b']", "waits for a step that does not stand before it"),
        ("name = 'a'\ncommands = []\n[[steps]]\nname = 'a'\ncommands = []", "is there twice"),
        ("name = 'a'\ncommands = []\nneeds = 'tpu'", "needs 'tpu'"),
    ],
)
def test_a_plan_that_makes_no_sense_is_told(tmp_path, text, message):
    (tmp_path / "plan.toml").write_text(f"[sizes.full]\n[[steps]]\n{text}\n")
    with pytest.raises(SystemExit, match=message):
        campaign.read_plan(tmp_path / "plan.toml", "full")
