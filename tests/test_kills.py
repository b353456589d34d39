"""A kill before any file operation leaves what the same command ends with the same files from.

Every command runs in a forked child whose n-th file operation never comes; then it is started again. A few moments of
each are tried by default, all of them where OMRL_EVERY_KILL is set.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import omrl
from omrl.commands.data import Import
from omrl.data import MetaDataset, interchange
from training_helpers import pumps, train

CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.symlink", "os.link")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
MOMENTS = 6
# What a clock, a computer's load or the order of threads has a say in.
NEVER_THE_SAME = ("timings.json", "events", "index.html")


def in_child(work: Callable[[], object], inside: Path, kill_at: int | None = None) -> tuple[int, int]:
    """Do something in a child that dies before a file operation of that number; its status, and how many there were."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.close(silent)
            done = _counted(inside, kill_at)
            work()
            os.write(writer, str(done[0]).encode())
            status = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(status)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        return status, int(pipe.read() or 0)


def _counted(inside: Path, kill_at: int | None) -> list[int]:
    """From now on count operations on files of a folder, and die before one of them."""
    done = [0]

    def happens(path: object) -> None:
        # What is opened by its folder has a relative name.
        if str(path).startswith(str(inside)) or str(path).endswith(".lock"):
            done[0] += 1
            if done[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, args: tuple[object, ...]) -> None:
        if event in CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & WRITES):
            happens(args[0])

    fsync = os.fsync

    def synced(descriptor: int) -> None:
        happens(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    os.fsync = synced
    sys.addaudithook(hook)
    return done


def tree(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not set(NEVER_THE_SAME) & set(name.parts):
            found[str(name)] = path.read_bytes() if path.is_file() else b""
        else:
            found[str(name.parent / "some")] = b""
    return found


@pytest.fixture(scope="module")
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omrl.reporting.command.build", a_page)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory, quick):
    """Data, logs, and a run of other arguments."""
    folder = tmp_path_factory.mktemp("kills")
    logs = pumps(folder / "pumps")
    with (folder / "logs.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("task", "episode", "obs", "act", "rew", "term"))
        for name, log in logs.items():
            for i in range(len(log["rewards"])):
                values = (log["observations"][i, 0], log["actions"][i, 0], log["rewards"][i], 0)
                rows.writerow((name, log["episode"][i], *values))
    train(folder / "pumps", folder / "run", steps=4, save_every=2, seed=7)
    (folder / "nothing").mkdir()
    (folder / "trained").mkdir()
    shutil.copytree(folder / "run", folder / "trained" / "out")
    (folder / "imported").mkdir()
    MetaDataset.open(folder / "pumps").save(folder / "imported" / "out")
    (folder / "reported").mkdir()
    omrl.report(folder / "run", folder / "reported" / "out")
    return folder


def trains(made, work, **options):
    train(made / "pumps", work / "out", steps=5, save_every=2, log_every=2, **options)


def imports(made, work, force=False):
    columns = {"task": "task", "episode": "episode", "observations": ("obs",), "actions": ("act",), "rewards": "rew"}
    about = {"terminations": "term", "varies": "reward", "action_kind": "continuous", "test_tasks": ("pump-2",)}
    about |= {"action_low": (0.0,), "action_high": (100.0,)}
    interchange.read(Import(made / "logs.csv", work / "out", "csv", **columns, **about, in_order=True, force=force))


def evaluates(made, work):
    omrl.evaluate(work / "out", device="cpu")


def reports(made, work):
    omrl.report(made / "run", work / "out")


def a_page(runs, folder, command, trust):
    """A report in no time: all that the real one writes goes into the same folder."""
    (folder / "tables").mkdir()
    (folder / "tables" / "summary.csv").write_text("a,b\n")
    (folder / "index.html").write_text(command)


COMMANDS = {
    "train": ("nothing", trains),
    "train --force": ("trained", lambda made, work: trains(made, work, force=True)),
    "import": ("nothing", imports),
    "import --force": ("imported", lambda made, work: imports(made, work, force=True)),
    "evaluate": ("trained", evaluates),
    "report": ("nothing", reports),
    "report again": ("reported", reports),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_command_goes_on_after_a_kill_before_any_file_operation(made, tmp_path, name):
    before, command = COMMANDS[name]

    def started(work: Path, kill_at: int | None = None) -> tuple[int, int]:
        return in_child(lambda: command(made, work), tmp_path, kill_at)

    # All under one path: some files say where they lie.
    work = tmp_path / "work"
    shutil.copytree(made / before, work)
    status, operations = started(work)
    assert status == 0 and operations > 5
    whole = tree(work)
    moments = list(range(1, operations + 1))
    if "OMRL_EVERY_KILL" not in os.environ:
        moments = sorted(np.random.default_rng(len(name)).choice(moments, MOMENTS, replace=False).tolist())
    wrong = []
    for moment in moments:
        shutil.rmtree(work)
        shutil.copytree(made / before, work)
        status, _ = started(work, moment)
        assert status in (signal.SIGKILL, 0)  # threads do not always come to the same number
        status, _ = started(work)
        after = tree(work) if status == 0 else {}
        if after != whole:
            differs = sorted(key for key in {*after, *whole} if after.get(key) != whole.get(key))
            wrong.append((moment, "does not go on" if status else differs))
    assert wrong == []
