"""Goes through all cases in forked workers, writes down what came of each, and goes on where it was interrupted.

A case has a name from which, with the seed, it can be done again: input/KIND/NUMBER, kill/STEP/MOMENT and so on.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omrl import cli
from omrl.progress import Meter
from omrl.runs import run
from torture import moments, world
from torture.forked import Ended, attempt
from torture.inputs import KINDS, PRECIOUS, prepare, try_input
from torture.steps import STEPS, quick_pages, start_over, tree

# How a step is disturbed at one of its file operations: what happens there, and whether it happens to opens alone.
AT: dict[str, tuple[Callable[[int], moments.Happens], bool]] = {
    "kill": (moments.kill, False),
    "tear": (lambda moment: moments.tear(moment, 1 + 37 * (moment % 2)), True),
    "full disk": (moments.full, True),
    "large file": (moments.too_large, True),
    "no right": (moments.forbidden, False),
}
# How much more memory a step may take, in MB; how large the disk is that it writes to, in KB; how often it is started
# twice.
MEMORY = (8, 16, 32, 64, 128)
DISKS = (4, 12, 24, 48, 96)
PAIRS = 6
SECONDS = 60.0
# Python and TensorBoard's writer wait for ever for a thread that had no memory. Who meets that has to kill it.
WAITING = (" in start\n", "tensorboardX/writer.py")


@dataclass(frozen=True)
class Verdict:
    """What came of a case."""

    case: str
    wrong: str
    """Nothing where all is well."""
    came: str
    """An answer, an error or a death."""
    seconds: float
    trace: str = ""


class Worker:
    """Does cases in a folder of its own."""

    def __init__(self, made: Path, folder: Path, seed: int) -> None:
        self.made, self.folder, self.seed = made, folder, seed
        self._undamaged: dict[str, object] = {}
        self._whole: dict[str, tuple[dict[str, bytes], list[str]]] = {}

    def do(self, case: str) -> Verdict:
        what, name, number = case.split("/")
        started = time.monotonic()
        wrong, ended = self._input(name, int(number)) if what == "input" else self._step(what, name, int(number))
        came = "answer" if ended.error is None and not ended.signal else ended.error or f"signal {ended.signal}"
        trace = f"{ended.trace}\n{ended.said[-2000:]}" if wrong else ""
        return Verdict(case, wrong, came, round(time.monotonic() - started, 3), trace)

    # -- damaged files ----------------------------------------------------------------------------------------------

    def _input(self, name: str, number: int) -> tuple[str, Ended]:
        box = self.folder / "box"
        if name not in self._undamaged:
            prepare(self.made, box, KINDS[name], random.Random(0))
            ended = attempt(lambda: KINDS[name].read(self.made, box))
            if ended.error or ended.signal or ended.hung:
                return f"it does not even read what is whole: {ended.error} {ended.sentence}", ended
            self._undamaged[name] = ended.answer
        return try_input(self.made, box, name, self.seed, number, self._undamaged[name])

    # -- disturbed steps --------------------------------------------------------------------------------------------

    def operations(self, name: str) -> list[str]:
        """What a step does to files when nothing disturbs it."""
        return self._undisturbed(name)[1]

    def _undisturbed(self, name: str) -> tuple[dict[str, bytes], list[str]]:
        if name not in self._whole:
            self._fresh(name)
            done = self._start(name, moments.nothing)
            assert done.error is None and not done.signal, f"{name} does not work: {done}"
            self._whole[name] = tree(self._work), done.answer["done"]  # type: ignore[index,call-overload]
        return self._whole[name]

    @property
    def _work(self) -> Path:
        """The same path for all: some files say where they lie."""
        return self.folder / "work"

    def _fresh(self, name: str) -> None:
        start_over(self.made, STEPS[name], self._work)
        (self._work / "precious.txt").write_bytes(PRECIOUS)

    def _start(self, name: str, happens: moments.Happens, memory: int | None = None, pause: float = 0.0) -> Ended:
        return attempt(lambda: self._told(name, happens, pause), SECONDS, memory)

    def _told(self, name: str, happens: moments.Happens, pause: float) -> dict[str, object]:
        """In the child: the command's exit code, and what it did to files."""
        with quick_pages():
            time.sleep(pause)
            done = moments.watch(self._work, happens)
            code = cli.told(lambda: STEPS[name].work(self.made, self._work))
        return {"code": code, "done": done if happens is moments.nothing else []}

    def _step(self, what: str, name: str, number: int) -> tuple[str, Ended]:
        whole, _ = self._undisturbed(name)
        self._fresh(name)
        if what == "twice":
            ended = self._twice(name, number)
        elif what == "memory":
            ended = self._start(name, moments.nothing, memory=number * 1024**2)
        elif what == "small disk":
            with disk(self._work, number):
                ended = self._start(name, moments.nothing)
        else:
            ended = self._start(name, AT[what][0](number))
        if what == "memory" and ended.hung and any(words in ended.said for words in WAITING):
            ended = replace(ended, hung=False, signal=signal.SIGKILL)
        if wrong := self._ended_badly(ended, killed=what in ("kill", "tear", "memory")):
            return wrong, ended
        again = self._start(name, moments.nothing)
        if again.hung or again.signal or again.error or again.answer["code"]:  # type: ignore[index,call-overload]
            return f"the same command does not go on: {again.error or ''} {again.said[-300:]}", again
        after = tree(self._work)
        differs = sorted(key for key in {*after, *whole} if after.get(key) != whole.get(key))
        return (f"it ends with other files: {', '.join(differs[:5])}" if differs else ""), ended

    def _ended_badly(self, ended: Ended, killed: bool) -> str:
        if ended.hung:
            return "it hangs"
        if ended.signal:
            expected = (signal.SIGKILL, signal.SIGXFSZ) if killed else ()
            return "" if ended.signal in expected else f"it died of signal {ended.signal}"
        if ended.error:
            return f"{ended.error}: {ended.sentence[:200]}"
        said = [line for line in ended.said.splitlines() if line.startswith("error: ")]
        code = ended.answer["code"]  # type: ignore[index,call-overload]
        if code not in (0, 2) or len(said) != (code == 2):
            return f"it ended with code {code} and {len(said)} sentences"
        return ""

    def _twice(self, name: str, number: int) -> Ended:
        """Two at once, the second a little later; what comes of the worse one."""
        reader, writer = os.pipe()
        other = os.fork()
        if other == 0:
            first = self._start(name, moments.nothing)
            os.write(writer, json.dumps(vars(first)).encode())
            os._exit(0)
        second = self._start(name, moments.nothing, pause=0.03 * number)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            first = Ended(**json.loads(pipe.read()))
        os.waitpid(other, 0)
        return first if self._ended_badly(first, killed=False) else second


@contextmanager
def disk(folder: Path, kilobytes: int):  # type: ignore[no-untyped-def]
    """A disk of its own for a folder, with so much room left; what it ends with takes the place of the folder."""
    kept = folder.with_name("kept")
    shutil.rmtree(kept, ignore_errors=True)
    folder.rename(kept)
    folder.mkdir()
    there = sum(4 * (path.stat().st_size // 4096 + 2) for path in kept.rglob("*"))
    options = ["-o", f"size={there + kilobytes}k"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)], check=True)
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True, symlinks=True)
        yield
        shutil.rmtree(kept)
        shutil.copytree(folder, kept, symlinks=True)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()
    kept.rename(folder)


def can_mount() -> bool:
    """Whether disks can be made here."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
        )
        if done.returncode == 0:
            subprocess.run(["umount", folder], check=True)
    return done.returncode == 0


# -- which cases there are ---------------------------------------------------------------------------------------------


def input_cases(inputs: int, only: str = "", least: int = 300) -> list[str]:
    """So many damaged files, at least so many of each kind; more of those that take no time."""
    kinds = [name for name in KINDS if only in f"input/{name}"]
    quick = [name for name in kinds if not KINDS[name].slow]
    rest = max(inputs - least * len(kinds), 0)
    each = {name: least + (-(-rest // len(quick)) if name in quick else 0) for name in kinds}
    return [f"input/{name}/{i}" for i in range(max(each.values(), default=0)) for name in kinds if i < each[name]]


def step_cases(worker: Worker, only: str = "", every: int = 1) -> list[str]:
    """Every step, disturbed at every moment of it, or at one of so many."""
    cases = []
    for name in STEPS:
        wanted = [what for what in (*AT, "memory", "small disk", "twice") if only in f"{what}/{name}/"]
        if not wanted:
            continue
        operations = worker.operations(name)
        for what in wanted:
            if what in AT:
                chosen = [i for i, done in enumerate(operations, 1) if done.startswith("open ") or not AT[what][1]]
            else:
                chosen = list(
                    {"memory": MEMORY, "small disk": DISKS if can_mount() else (), "twice": range(PAIRS)}[what]
                )
            cases += [f"{what}/{name}/{i}" for i in chosen[::every]]
    return cases


# -- all of them -------------------------------------------------------------------------------------------------------


def run_all(cases: Sequence[str], made: Path, folder: Path, seed: int, state: Path, jobs: int) -> None:
    """Do what the state does not have yet, in so many processes; each writes a line when it has done one."""
    state.parent.mkdir(parents=True, exist_ok=True)
    known = {verdict.case for verdict in read_state(state)}
    left = [case for case in cases if case not in known]
    started, before, children = time.monotonic(), sum(os.times()[2:4]), []
    for job in range(jobs):
        child = os.fork()
        if child == 0:
            _work(left[job::jobs], Worker(made, folder / f"worker-{job}", seed), state)
        children.append(child)
    running = set(children)
    try:
        with Meter("torture", len(cases), len(cases) - len(left), "cases") as meter:
            while running:
                time.sleep(5.0)  # to look is work for a core that others need
                running -= {child for child in running if os.waitpid(child, os.WNOHANG)[0]}
                verdicts = read_state(state)
                meter.update(len(verdicts), f"{sum(bool(verdict.wrong) for verdict in verdicts)} wrong")
    finally:  # where it is interrupted, too
        for child in running:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        spent = {"worked": time.monotonic() - started, "computed": sum(os.times()[2:4]) - before}
        with state.open("a") as file:
            file.write(json.dumps({name: round(seconds, 1) for name, seconds in spent.items()}) + "\n")


def _work(cases: Iterable[str], worker: Worker, state: Path) -> None:
    """In a process of its own."""
    worker.folder.mkdir(parents=True, exist_ok=True)
    code = 1
    try:
        for case in cases:
            line = json.dumps(vars(worker.do(case))) + "\n"
            with state.open("ab", buffering=0) as file:  # one write, so that lines of two processes do not mix
                file.write(line.encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def read_state(state: Path) -> list[Verdict]:
    """What was done so far."""
    return [Verdict(**line) for line in _lines(state) if "case" in line]


def took(state: Path, what: str) -> float:
    """Seconds over all its parts: `worked` by the clock, `computed` by all cores together."""
    return sum(line[what] for line in _lines(state) if what in line)


def _lines(state: Path) -> list[dict[str, Any]]:
    if not state.is_file():
        return []
    return [json.loads(line) for line in state.read_text().splitlines() if line.endswith("}")]


def make_world(folder: Path) -> Path:
    """Everything that is damaged or started from, once for all workers; and everything imported that children need."""
    run._commit = lambda: None  # git is not what is tried, and somebody may be working in the checkout
    made = folder / "made"
    if not (made / "whole").is_file():
        shutil.rmtree(made, ignore_errors=True)
        world.make(made)
        (made / "whole").touch()
    warm = folder / "warm"
    shutil.rmtree(warm, ignore_errors=True)
    for kind in KINDS.values():
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # noqa: PTH123
            prepare(made, warm, kind, random.Random(0))
            kind.read(made, warm)
    return made
