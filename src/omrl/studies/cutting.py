"""Cuts a study into units: data, training of a population, a test of a run, the drawing of an experiment.

    OUT/progress/plan.json        all units with what they wait for and take; it fixes threads and packing
    OUT/progress/progress.json    how far each is        OUT/progress/index.html    the same as a page
    OUT/progress/logs             what they said

The seeds of a run are one population and draw from one stream of random numbers: a seed's numbers depend on which
others are beside it. So who is packed with whom is a part of the plan, and never follows from the machines at hand.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from omrl.commands.train import Train
from omrl.runs.run import RUN, Run
from omrl.storage import folders
from omrl.studies import running
from omrl.studies.definitions import Experiment, Scale
from omrl.studies.planning import Cell, Job, Source, jobs, minutes
from omrl.units.board import PAGE, PROGRESS
from omrl.units.place import Means
from omrl.units.unit import PLAN, Plan, Read, Unit, Work

BOARD = folders.Kind("progress of a study", PLAN, (PLAN, PROGRESS, PAGE, "logs/*.log"))
# Bytes of a process that has omrl and torch loaded, and how often the rows of its data lie in memory; measured, see
# docs/scale.md.
PROCESS_BYTES, COPIES = 650 * 2**20, 3
# What drawing figures and a page takes besides.
DRAWING_BYTES = 450 * 2**20
# Shares of what a study says of the time around a run.
TEST_SHARE, DRAW_SHARE, DATA_SHARE = 0.2, 1.0, 0.5


@dataclass(frozen=True)
class Places:
    """Folders of a study, all absolute."""

    out: Path
    data: Path
    policies: Path

    @property
    def progress(self) -> Path:
        """Of plan, page and logs."""
        return self.out / "progress"


class Cut:
    """A study as units."""

    def __init__(
        self,
        planned: Sequence[tuple[Experiment, Sequence[Cell]]],
        scale: tuple[str, Scale],
        around: float,
        places: Places,
        means: Means,
        options: Mapping[str, object],
        *,
        bfloat16: bool = False,
        alone: bool = False,
        in_order: bool = False,
    ) -> None:
        """`options` are what an experiment is drawn with: command and trust."""
        self._in_order = in_order
        self._planned, self._scale, self._around = planned, scale, around
        self._places, self._means, self._options, self._bfloat16, self._alone = places, means, options, bfloat16, alone
        self._runs: dict[Job, Path] = {}
        self._jobs: dict[str, Job] = {}
        self._sources: dict[str, Source] = {}
        self._tests: dict[str, tuple[Job, dict[str, Any]]] = {}
        self._drawn: dict[str, tuple[Experiment, Sequence[Cell]]] = {}
        self._parts: dict[str, tuple[Job, int, int]] = {}
        self._makers: dict[Path, str] = {}
        """The unit that writes a run or a test: rows that say the same in other words have it in common."""
        earlier = Plan.open(places.progress)
        self._earlier, self._repacked = earlier.units, earlier.repacked
        self._threads = {unit.name: unit.threads for unit in earlier.units}
        self.units = list(self._cut())
        for unit in [unit for unit in self.units if unit.name in self._repacked]:
            self.units += self.split(unit, again=True)
        self.units = list({unit.name: unit for unit in self.units}.values())
        self._write()

    def _write(self) -> None:
        folders.claim(self._places.progress, BOARD)
        # Other experiments may have been run into this folder, and are gone on with later.
        units = {unit.name: unit for unit in (*self._earlier, *self.units)}
        Plan(list(units.values()), self._repacked).write(self._places.progress)

    # -- the plan ------------------------------------------------------------------------------------------------------

    def _cut(self) -> Iterator[Unit]:
        cells = [cell for _, own in self._planned for cell in own]
        wanted = jobs(cells)
        # What is asked for first is finished first, and is there if the rest is interrupted. On a cluster, which does
        # not go back, the longest chains first are done soonest.
        first: dict[Job, int] = {}
        for place, (_, own) in enumerate(self._planned):
            for job in jobs(own):
                first.setdefault(job, place if self._in_order else 0)
        for source in dict.fromkeys(job.source for job in wanted):
            self._sources[name := self._data_name(source)] = source
            label = f"data of {source.folder if source.family else source.path}"
            rank = min(place for job, place in first.items() if job.source == source)
            # Policies that are there act in numpy beside a simulator; agents have to be trained.
            gpu = not (source.family and (self._places.policies / source.family).is_dir())
            yield self._unit(name, "data", label, (), 60 * DATA_SHARE * self._around, rank, gpu)
        for job in wanted:
            labels = dict.fromkeys(f"{cell.row.label} on {cell.title}" for cell in cells if cell.job == job)
            self._jobs[name := f"train {_digest(job)}"] = job
            seconds = 60 * minutes([job], self._scale[0], 0.0)
            needed = (self._data_name(job.source),)
            yield self._unit(name, "train", "; ".join(labels), needed, seconds, first[job], gpu=True)
        tests: dict[Job, dict[str, str]] = {}
        for place, (experiment, own) in enumerate(self._planned):
            rank = place if self._in_order else 0
            for cell in own:
                for what, options in _tests(experiment, cell).items():
                    found = tests.setdefault(cell.job, {})
                    if what not in found:
                        found[what] = name = f"test {_digest(cell.job)} {what}"
                        self._tests[name] = (cell.job, options)
                        # Others may be the plain test under another name, which is then there already.
                        after = (f"train {_digest(cell.job)}", *([found[PLAIN]] if what != PLAIN else []))
                        label = f"{cell.row.label} on {cell.title}, {what}"
                        # A test steps a simulator, and its policies act on the CPU beside it.
                        yield self._unit(name, "test", label, after, 60 * TEST_SHARE * self._around, rank)
        for place, (experiment, own) in enumerate(self._planned):
            self._drawn[name := f"draw {experiment.name}"] = (experiment, own)
            all_tests = dict.fromkeys(one for job in jobs(own) for one in tests[job].values())
            rank, label = place if self._in_order else 0, f"figures of {experiment.name}"
            yield self._unit(name, "draw", label, tuple(all_tests), 60 * DRAW_SHARE * self._around, rank)

    def _unit(
        self, name: str, kind: str, label: str, after: tuple[str, ...], seconds: float, rank: int, gpu: bool = False
    ) -> Unit:
        # A plan that is gone on with stays what it was.
        threads = self._threads.get(name) or self._means.threads
        return Unit(name, kind, label, after, threads, self._means.gpu if gpu else 0.0, seconds, rank)

    def split(self, unit: Unit, again: bool = False) -> list[Unit]:
        """A run that a GPU has no room for, as two of half its seeds and what joins them; once, and it is recorded."""
        job = self._jobs.get(unit.name)
        if job is None or job.seeds == 1 or (unit.name in self._repacked and not again):
            return []
        half = job.seeds // 2
        parts = self._repacked.setdefault(unit.name, [[0, half], [half, job.seeds - half]])
        found = []
        for first, count in parts:
            name = f"{unit.name} seeds {first} to {first + count - 1}"
            self._parts[name] = (job, first, count)
            label = f"{unit.label}, seeds {first} to {first + count - 1}"
            found.append(replace(unit, name=name, label=label, seconds=unit.seconds / len(parts)))
        joined = replace(unit, kind="join", after=tuple(part.name for part in found), gpu=0.0, seconds=1.0)
        if not again:
            self.units = [one for one in self.units if one.name != unit.name] + [*found, joined]
            self._write()
        return [*found, joined]

    def notes(self, cells: Sequence[Cell]) -> str:
        """What a reader must know of runs that were repacked."""
        told = [f"{cell.row.label} on {cell.title}" for cell in cells if f"train {_digest(cell.job)}" in self._repacked]
        if not told:
            return ""
        return f"a GPU had no room for all seeds of {'; '.join(told)}, which were trained in parts: numbers may differ."

    @property
    def links(self) -> dict[str, str]:
        """Pages that units make, seen from the folder of the board."""
        return {name: f"../{experiment.name}/report/index.html" for name, (experiment, _) in self._drawn.items()}

    # -- what a unit does ----------------------------------------------------------------------------------------------

    def prepare(self, unit: Unit) -> Work | str | None:
        """What there is to do, now that all is there that it waits for."""
        if unit.kind == "data":
            source = self._sources[unit.name]
            return None if running.made(source, self._data(source)) else self._make(source, unit)
        if unit.kind == "train":
            return self._train(unit)
        if unit.kind == "join":
            return self._join(unit)
        return self._test(unit) if unit.kind == "test" else self._draw(unit)

    def _data_name(self, source: Source) -> str:
        return f"data {source.folder if source.family else source.path}"

    def _data(self, source: Source) -> Path:
        return self._places.data / source.folder if source.family else Path(source.path or "").absolute()

    def _log(self, unit: Unit) -> str:
        return str(self._places.progress / "logs" / f"{re.sub(r'[^A-Za-z0-9.]+', '-', unit.name)}.log")

    def _make(self, source: Source, unit: Unit | None) -> Work:
        folder = self._data(source)
        policies = self._places.policies / str(source.family)
        there = policies.is_dir()
        args = {"source": asdict(source), "folder": str(folder), "policies": str(policies) if there else None}
        work = str(folder.with_name(f".{folder.name}.collect"))
        log = None if unit is None else self._log(unit)
        return Work(
            "data",
            {**args, "device": self._means.device},
            (Read(str(policies)),) if there else (),
            (str(folder), work, *([log] if log else [])),
            log,
            streams=True,
            memory=PROCESS_BYTES,
        )

    def _read_data(self, source: Source) -> Read:
        """Data that published policies made is made again: they are a hundredth of its size."""
        again = source.family is not None and (self._places.policies / source.family).is_dir()
        return Read(str(self._data(source)), self._make(source, None) if again else None)

    def _resolved(self, job: Job) -> tuple[Train, Any]:
        return running.resolve(
            job, self._data(job.source), self._places.out / "runs", self._means.device, self._bfloat16
        )

    def _train(self, unit: Unit) -> Work | str | None:
        job, first, count = self._parts.get(unit.name) or (self._jobs[unit.name], 0, 0)
        args, hyperparameters = self._resolved(job)
        if count:
            name = f"{args.out.name}-seeds-{first}-{first + count - 1}"
            args = replace(args, seed=args.seed + first, seeds=count, out=args.out.with_name(name))
        else:
            self._runs[job] = args.out
        if (maker := self._makers.setdefault(args.out, unit.name)) != unit.name:
            return maker
        if running.left_alone(args):
            if self._alone:
                print(f"{args.out} is trained", flush=True)
            return None
        told = {**asdict(args), "data": str(args.data), "out": str(args.out), "threads": unit.threads}
        log, read = self._log(unit), self._read_data(job.source)
        return Work(
            "train",
            {"train_args": told, "hyperparameters": asdict(hyperparameters)},
            (read,),
            (str(args.out), log),
            log,
            streams=True,
            memory=self._memory([read]),
        )

    def _join(self, unit: Unit) -> Work | None:
        job = self._jobs[unit.name]
        args, _ = self._resolved(job)
        self._runs[job] = args.out
        if running.trained(args):
            return None
        folders.discard(args.out, RUN)  # what did not fit had begun
        parts = [
            str(args.out.with_name(f"{args.out.name}-seeds-{first}-{first + count - 1}"))
            for first, count in self._repacked[unit.name]
        ]
        reads = tuple(Read(part) for part in parts)
        return Work("join", {"parts": parts, "out": str(args.out)}, reads, (str(args.out),), memory=PROCESS_BYTES)

    def _test(self, unit: Unit) -> Work | str | None:
        job, options = self._tests[unit.name]
        run, log, read = self._runs[job], self._log(unit), self._read_data(job.source)
        if options.get("context_level") == Run.open(run).config.level:
            options = {**options, "context_level": None}
        kept, raw, options = running.kept_test(run, Run.open(run).step, **options)
        if kept is not None:
            return None
        if (maker := self._makers.setdefault(raw, unit.name)) != unit.name:
            return maker
        told = {"run": str(run), "device": "cpu", "trust": list(self._trust(job)), "options": options}
        return Work("test", told, (read,), (str(run), log), log, memory=self._memory([read]))

    def _trust(self, job: Job) -> tuple[str, ...]:
        return (job.algorithm,)

    def _draw(self, unit: Unit) -> Work:
        experiment, cells = self._drawn[unit.name]
        wanted = jobs(cells)
        sources = dict.fromkeys(job.source for job in wanted)
        name, scale = self._scale
        log, out = self._log(unit), str(self._places.out / experiment.name)
        told = {
            "experiment": asdict(experiment),
            "cells": [
                [experiment.data.index(cell.data), experiment.rows.index(cell.row), asdict(cell.job)] for cell in cells
            ],
            "runs": [str(self._runs[cell.job]) for cell in cells],
            "scale": name,
            "out": out,
            "note": " ".join(part for part in (scale.note, self.notes(cells)) if part),
            "device": "cpu",
            **self._options,
        }
        # Data before the runs, whose configs name it.
        reads = [*(self._read_data(source) for source in sources)]
        memory = self._memory(reads) + DRAWING_BYTES
        reads += [Read(str(run)) for run in dict.fromkeys(self._runs[job] for job in wanted)]
        return Work("draw", told, tuple(reads), (out, log), log, memory=memory)

    def _memory(self, reads: Sequence[Read]) -> int:
        sizes = [file.stat().st_size for read in reads for file in Path(read.path).glob("*.safetensors")]
        return PROCESS_BYTES + COPIES * sum(sizes)


PLAIN = "tested"


def _tests(experiment: Experiment, cell: Cell) -> dict[str, dict[str, Any]]:
    """How the run of a cell is tested: plainly, as its page shows it, and as the experiment asks."""
    found: dict[str, dict[str, Any]] = {PLAIN: {}}
    if cell.row.context_level is not None:
        found[f"told by {cell.row.context_level} data"] = {"context_level": cell.row.context_level}
    if experiment.tells_tasks_apart:
        found["telling tasks apart"] = {"protocol": "logged", "split": "train"}
    return found


def _digest(job: Job) -> str:
    """A name for what a run is, before its data is there."""
    return hashlib.sha256(json.dumps(asdict(job), sort_keys=True).encode()).hexdigest()[:10]
