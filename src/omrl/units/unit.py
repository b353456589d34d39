"""What a unit of work is, as plain data: names, numbers and JSON; and how one is done, wherever that is."""

from __future__ import annotations

import json
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from omrl.errors import OmrlError
from omrl.schema import Several, Words, conform, read, settings
from omrl.storage.files import read_json, write_json
from omrl.storage.folders import BeingWritten

Json = object
"""What JSON can say."""

# Every kind of work by its function, which takes the arguments of a Work by name and returns JSON. It is imported where
# the work is done: a driver need not load torch to plan.
KINDS = {
    "data": "omrl.studies.running:data_unit",
    "train": "omrl.studies.running:train_unit",
    "join": "omrl.studies.running:join_unit",
    "test": "omrl.studies.running:test_unit",
    "draw": "omrl.studies.execute:draw_unit",
    "tune": "omrl.tuning.trying:row_unit",
    "agents": "omrl.behaviour.apart:agents_unit",
    "sleep": "omrl.units.unit:sleep_unit",
}


@settings
class Unit:
    """A part of a plan: what has to be done before it, and what it takes."""

    name: str
    kind: str
    label: str
    """For people."""
    after: Words = ()
    """Names of units that have to be done before."""
    threads: Several | None = None
    """Threads on a CPU, which decide the last bits of results; as many as there are if left out."""
    gpu: float = 0.0
    """Share of a GPU."""
    seconds: float = 0.0
    """About how long it takes, for the order; only proportions matter."""
    rank: int = 0
    """Those of lower ranks go first, whatever waits for them."""


@dataclass(frozen=True)
class Read:
    """A folder that is read, and nothing else is done to it."""

    path: str
    remake: Work | None = None
    """How to make it again, where that is cheaper than to move it."""


@dataclass(frozen=True)
class Work:
    """What a unit does, when all that it needs is there. Paths in the arguments are absolute ones of the driver's."""

    kind: str
    args: Mapping[str, Json]
    reads: tuple[Read, ...] = ()
    writes: tuple[str, ...] = ()
    """Folders and files that it makes or goes on with; nothing else of what it writes is kept."""
    log: str | None = None
    """File for what it says; one of `writes`."""
    streams: bool = False
    """Whether what it writes is of use before it ends: checkpoints that another worker can go on from."""
    memory: int = 0
    """Bytes that it takes, about."""

    @classmethod
    def of(cls, values: Mapping[str, Json]) -> Work:
        """From JSON."""
        said: dict[str, Any] = dict(values)
        reads = tuple(Read(one["path"], cls.of(one["remake"]) if one["remake"] else None) for one in said["reads"])
        return cls(**{**said, "reads": reads, "writes": tuple(said["writes"])})


Status = Literal["done", "failed", "memory", "busy", "lost", "odd", "refused", "differs"]


@dataclass(frozen=True)
class Outcome:
    """How a unit ended.

    done       it did its work
    failed     its code raised: it would again
    memory     a GPU had too little memory for it
    busy       another process still writes what it should write
    lost       its process or machine ended under it
    odd        its machine is not fit for any: it has no omrl, or no room on its disk
    refused    the machine has other versions than the driver
    differs    data that was made again there is not the driver's
    """

    status: Status
    result: Json = None
    error: str = ""
    """In one line."""
    trace: str = ""
    """Where a programmer would look; empty where a user can mend it."""
    node: str = ""
    seconds: float = 0.0
    memory: int = 0
    """Most bytes that its process has had."""
    sent: int = 0
    """Messages that it sent on the way."""

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def perform(work: Work, threads: int | None = None, ready: Callable[[], None] = lambda: None) -> Outcome:
    """Do it, here and now; whatever goes wrong is an outcome. `ready` is called once what it says has a file."""
    began = time.perf_counter()
    try:
        with ExitStack() as stack:
            if work.log is not None:
                stack.enter_context(_said_in(Path(work.log)))
            ready()
            if threads is not None:
                from omrl.learning.devices import limited_threads  # torch takes seconds to load

                stack.enter_context(limited_threads(threads))
            result = _function(work.kind)(**work.args)
        outcome = Outcome("done", result)
    except BeingWritten as error:
        outcome = Outcome("busy", error=str(error))
    except OmrlError as error:
        outcome = Outcome("failed", error=str(error))
    except Exception as error:
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        outcome = Outcome("failed", error=line, trace=traceback.format_exc())
        if _out_of_memory(error):
            outcome = replace(outcome, status="memory", error=f"a GPU has too little memory for it: {line}")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return replace(outcome, seconds=time.perf_counter() - began, memory=most)


def _function(kind: str) -> Callable[..., Json]:
    module, _, name = KINDS[kind].partition(":")
    found: Callable[..., Json] = getattr(import_module(module), name)
    return found


@contextmanager
def _said_in(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", buffering=1) as log, redirect_stdout(log), redirect_stderr(log):
        try:
            yield
        except BaseException:
            traceback.print_exc()
            raise


def _out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


def sleep_unit(seconds: float) -> None:
    """Nothing: to measure what the scheduling itself costs."""
    time.sleep(seconds)


PLAN = "plan.json"
PLAN_SCHEMA = 1


@dataclass
class Plan:
    """Units in the order in which they were planned. What decides results is fixed by it, and stays when it goes on."""

    units: list[Unit]
    repacked: dict[str, list[list[int]]] = field(default_factory=dict)
    """Units that a GPU was too small for: first seed and number of seeds of each part."""

    def write(self, folder: Path) -> None:
        """Into a folder."""
        write_json(folder / PLAN, {"schema": PLAN_SCHEMA, **asdict(self)})

    @classmethod
    def open(cls, folder: Path) -> Plan:
        """The one that a folder has; an empty one if it has none."""
        path = folder / PLAN
        if not path.is_file():
            return cls([])
        values: dict[str, Any] = read_json(path)
        try:
            if values["schema"] != PLAN_SCHEMA:
                raise OmrlError(f"{path} has schema {values['schema']!r}; this version of omrl reads {PLAN_SCHEMA}.")
            units = [read(Unit, one, path) for one in values["units"]]
            return cls(units, conform(dict[str, list[list[int]]], values["repacked"], path))
        except (AttributeError, KeyError, TypeError) as error:
            raise OmrlError(f"{path} is not a plan of units ({error}).") from error
