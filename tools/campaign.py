"""Make what results/ has from a GPU: commands that wait for one another, on a machine that is there for a while.

    python tools/campaign.py run tools/campaign.toml --at-once 3     everything, or what is left of it
    python tools/campaign.py --size small run tools/campaign.toml    a rehearsal on two cores
    python tools/campaign.py show                                    how far it is
    python tools/campaign.py pack parcels                            what it changed in the checkout, to be taken home

A step is a list of commands; `after` names the steps whose work it needs, `behind` those that only come first, `needs`
what it takes: the `gpu` beside others, the `gpu alone`, or the `cpu`. Steps that are ready begin in the order of the
file, at most `--at-once` of them on the GPU; what needs the `gpu alone` has the whole machine. One that fails takes
those with it that need it, no others. A step goes on behind the last of its commands that was finished, and what was
done is not done again, unless one that it needs is: after an interruption the same command goes on, and so do the
commands themselves. What they say is in campaign/SIZE/logs, how far each step is and how long it took in
campaign/SIZE/steps.json. On another machine, which has nothing of what was made, name what is left with `--only`.

Steps write into the checkout that they run in, results and presets among it. Where something else brings that up to
date meanwhile, run a copy of it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from publish import alone

from omrl.storage.files import write_json

ROOT = Path(__file__).resolve().parents[1]
STATE, LOGS, BEGAN, GOING = "steps.json", "logs", "began", "going.json"
LOOK_SECONDS = 0.2
# How long a command that was told to end may take to let go of the GPU.
END_SECONDS = 20.0
# What a campaign changes in the checkout, and how much of it goes into a parcel.
CHANGED = ("results", "docs/img", "src/omrl/algorithms")
PARCEL_BYTES = 15 * 2**20


@dataclass(frozen=True)
class Step:
    """Commands, one after the other."""

    name: str
    commands: tuple[str, ...]
    after: tuple[str, ...]
    behind: tuple[str, ...]
    needs: Literal["cpu", "gpu", "gpu alone"]


def read_plan(file: Path, size: str) -> list[Step]:
    """The steps of a plan, with the numbers of one of its sizes in the place of {their names}."""
    table = tomllib.loads(file.read_text())
    numbers = table["sizes"][size]
    steps: list[Step] = []
    for one in table["steps"]:
        commands = tuple(command.format_map(numbers) for command in one["commands"])
        after, behind = (tuple(one.get(key, ())) for key in ("after", "behind"))
        step = Step(one["name"], commands, after, behind, one.get("needs", "gpu"))
        known = {earlier.name for earlier in steps}
        if step.name in known or not {*after, *behind} <= known:
            sys.exit(f"{file}: {step.name!r} is there twice, or waits for a step that does not stand before it.")
        if step.needs not in ("cpu", "gpu", "gpu alone"):
            sys.exit(f"{file}: {step.name!r} needs {step.needs!r}, which is none of cpu, gpu and gpu alone.")
        steps.append(step)
    return steps


def words(command: str) -> list[str]:
    """A command as this Python runs it, behind what runs it, if anything: `omrl` need not be on the path."""
    found = shlex.split(command)
    programs = {"omrl": [sys.executable, "-m", "omrl"], "python": [sys.executable]}
    place = next((place for place, word in enumerate(found) if word in programs), None)
    return found if place is None else [*found[:place], *programs[found[place]], *found[place + 1 :]]


def followers(steps: Sequence[Step]) -> dict[str, frozenset[str]]:
    """What needs each step's work, or that of what needs it."""
    found: dict[str, frozenset[str]] = {}
    for place in reversed(range(len(steps))):
        direct = [later.name for later in steps[place + 1 :] if steps[place].name in later.after]
        found[steps[place].name] = frozenset(direct).union(*(found[name] for name in direct))
    return found


@dataclass
class Progress:
    """How far a step is; `seconds` are those that its commands took, also what was cut of them."""

    commands: list[str]
    finished: int = 0
    seconds: float = 0.0
    failed: str = ""

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.finished == len(self.commands)

    @property
    def ended(self) -> bool:
        """Whether nothing more will be done in this campaign."""
        return self.done or bool(self.failed)


class Campaign:
    """Steps on their way; those that are not among them are taken to be there.

    `needing` is what needs each step's work, where these steps are a part of a plan.
    """

    def __init__(
        self, steps: Sequence[Step], folder: Path, at_once: int, needing: Mapping[str, frozenset[str]] | None = None
    ) -> None:
        self.steps, self._folder, self._at_once = steps, folder, at_once
        self._needing = followers(steps) if needing is None else needing
        self._running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        (folder / LOGS).mkdir(parents=True, exist_ok=True)
        self._lock = (folder / BEGAN).open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"Another campaign is at work in {folder}.")
        _end_left(folder / GOING)
        self.progress = read_progress(folder)
        names = {step.name for step in steps}
        for step in steps:
            found = self.progress.get(step.name)
            needed = [self.progress[name] for name in step.after if name in names]
            if found and found.commands == list(step.commands) and all(one.done for one in needed):
                found.failed = ""  # what failed is tried again
                continue
            # What was made of something that is made again is no longer done, also if this one is cut before it is.
            for name in self._needing[step.name]:
                self.progress.pop(name, None)
            self.progress[step.name] = Progress(list(step.commands))
        self._write()

    def run(self, seconds: float) -> bool:
        """Until all have ended, or the time is over; whether all were done."""
        until = time.monotonic() + seconds
        mine = [self.progress[step.name] for step in self.steps]
        try:
            while not all(one.ended for one in mine) and time.monotonic() < until:
                self._look()
                self._begin()
                time.sleep(LOOK_SECONDS)
        finally:
            self._stop()
        return all(one.done for one in mine)

    def _begin(self) -> None:
        needs = {step.name: step.needs for step in self.steps}
        kept = False  # for a step that wants the GPU alone: others that stand behind it would keep it from it
        for step in self.steps:
            if self.progress[step.name].ended or step.name in self._running:
                continue
            if any(self.progress[name].failed for name in step.after if name in needs):
                self._fail(step, "a step failed that it needs")
                continue
            if not all(self.progress[name].ended for name in (*step.after, *step.behind) if name in needs):
                continue
            running = [needs[name] for name in self._running]
            if step.needs == "gpu alone":
                free = not running
                kept = kept or not free
            elif step.needs == "gpu":
                free = not kept and len(running) - running.count("cpu") < self._at_once
            else:
                free = True
            if free and "gpu alone" not in running:
                self._start(step)

    def _start(self, step: Step) -> None:
        command = step.commands[self.progress[step.name].finished]
        with (self._folder / LOGS / f"{_slug(step.name)}.log").open("ab") as log:
            log.write(f"$ {command}\n".encode())
            log.flush()
            try:
                process = subprocess.Popen(
                    words(command),
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                self._fail(step, f"`{command}` could not be started: {error.strerror}")
                return
        self._running[step.name] = process, time.monotonic()
        self._write()

    def _look(self) -> None:
        for step in self.steps:
            if step.name not in self._running or (code := self._running[step.name][0].poll()) is None:
                continue
            one = self._ended(step.name)
            if code:
                self._fail(step, f"`{step.commands[one.finished]}` ended with {code}")
                continue
            one.finished += 1
            self._write()
            if one.done:
                print(f"{step.name}: done after {one.seconds:.0f} s", flush=True)
            else:
                self._start(step)

    def _ended(self, name: str) -> Progress:
        """A step of which nothing runs any more, with the time that its command took."""
        one = self.progress[name]
        one.seconds += time.monotonic() - self._running.pop(name)[1]
        return one

    def _fail(self, step: Step, why: str) -> None:
        self.progress[step.name].failed = why
        self._write()
        print(f"{step.name}: failed after {self.progress[step.name].seconds:.0f} s, {why}", flush=True)

    def _write(self) -> None:
        write_json(self._folder / GOING, [process.pid for process, _ in self._running.values()])
        write_json(self._folder / STATE, {name: asdict(one) for name, one in self.progress.items()})

    def _stop(self) -> None:
        """End what still runs: it goes on from its last save."""
        for process, _ in self._running.values():
            with suppress(ProcessLookupError):  # it ended by itself
                os.killpg(process.pid, signal.SIGTERM)
        for name, (process, _) in list(self._running.items()):
            _wait_for_end(process.pid)
            process.wait()
            print(f"{name}: cut after {self._ended(name).seconds:.0f} s", flush=True)
        self._write()
        self._lock.close()


def read_progress(folder: Path) -> dict[str, Progress]:
    """How far the steps are of the campaign that has this folder."""
    state = folder / STATE
    return {name: Progress(**one) for name, one in json.loads(state.read_text()).items()} if state.is_file() else {}


def _end_left(going: Path) -> None:
    """End the commands of a campaign that was killed, and wait until they have: they hold locks of what they write."""
    for group in json.loads(going.read_text()) if going.is_file() else ():
        # Whether they are its: numbers are given again.
        if any(map(_is_this_python, _members(group))):
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            _wait_for_end(group)


def _is_this_python(process: Path) -> bool:
    with suppress(OSError):  # it has ended meanwhile
        return os.fsencode(sys.executable) in (process / "cmdline").read_bytes()
    return False


def _wait_for_end(group: int) -> None:
    """Until all processes of a command have ended, which are killed where they do not."""
    until = time.monotonic() + END_SECONDS
    while _members(group):
        if time.monotonic() > until:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def _members(group: int) -> list[Path]:
    """The folders in /proc of a group's processes, but for those that have ended and that nobody has asked for it."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of) == group and state != "Z":
                found.append(stat.parent)
    return found


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def show(folder: Path) -> None:
    """A line for each step, with the last line of the log of what was begun and has not ended."""
    for name, one in read_progress(folder).items():
        log = folder / LOGS / f"{_slug(name)}.log"
        lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
        state, text = "done" if one.done else "failed" if one.failed else "begun" if lines else "", one.failed
        if state == "begun":
            text = lines[-1][:150]
        print(f"{one.seconds:6.0f} s  {state:7}{name}  {text}".rstrip())


def pack(folder: Path, since: float) -> list[Path]:
    """What changed in the checkout since then, in parcels that unpack over one of the same commit; older ones go.

    What was removed is not in them: where they are unpacked, `python tools/publish.py paper` removes runs and pictures
    that no experiment has any more.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("parcel-*.tar.xz"):
        old.unlink()
    with alone():
        changed = [path for name in CHANGED for path in sorted((ROOT / name).rglob("[!.]*")) if path.is_file()]
        changed = [path for path in changed if path.stat().st_mtime >= since and "__pycache__" not in path.parts]
        parcels: list[Path] = []
        while changed:
            parcels.append(folder / f"parcel-{len(parcels)}.tar.xz")
            with tarfile.open(parcels[-1], "w:xz", preset=1) as parcel:
                size = 0
                while changed and (not size or size + changed[0].stat().st_size < PARCEL_BYTES):
                    size += changed[0].stat().st_size
                    parcel.add(changed[0], changed.pop(0).relative_to(ROOT))
    return parcels


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Everything that results/ has from a GPU.")
    parser.add_argument("--folder", type=Path, default=ROOT / "campaign", help="where logs and times are kept")
    parser.add_argument("--size", default="full", help="one of the plan's, which has a folder of its own there")
    actions = parser.add_subparsers(dest="action", required=True)
    running = actions.add_parser("run")
    running.add_argument("plan", type=Path)
    running.add_argument("--at-once", type=int, default=3, help="steps that share the GPU")
    running.add_argument("--minutes", type=float, default=24 * 60.0, help="what is not done by then is cut")
    running.add_argument("--only", nargs="*", help="these steps; what they wait for is taken to be there")
    actions.add_parser("show")
    packing = actions.add_parser("pack")
    packing.add_argument("target", type=Path)
    args = parser.parse_args()
    folder = args.folder / args.size
    if args.action == "show":
        show(folder)
    elif args.action == "pack":
        if not (folder / BEGAN).is_file():
            sys.exit(f"No campaign has begun in {folder}.")
        for parcel in pack(args.target, (folder / BEGAN).stat().st_mtime):
            print(parcel)
    else:
        steps = read_plan(args.plan, args.size)
        if unknown := {*(args.only or ())} - {step.name for step in steps}:
            sys.exit(f"{args.plan} has no step {', '.join(map(repr, sorted(unknown)))}.")
        chosen = [step for step in steps if args.only is None or step.name in args.only]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        sys.exit(0 if Campaign(chosen, folder, args.at_once, followers(steps)).run(60 * args.minutes) else 1)


if __name__ == "__main__":
    main()
