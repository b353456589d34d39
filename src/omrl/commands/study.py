"""What `omrl study` and `omrl paper` take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro import MISSING
from tyro.conf import Positional, subcommand

# What stands for every experiment.
ALL = "all"


@dataclass(frozen=True)
class PaperList:
    """List the experiments: what they show in the paper, their rows, and about what they cost."""


@dataclass(frozen=True)
class StudyList:
    """List the experiments of a study: their rows, and about what they cost."""

    file: Positional[Path]
    """The study."""
    trust: tuple[str, ...] = ()
    """Algorithms that the study names as module:Class and whose code may run: it says what they cost."""


@dataclass(frozen=True)
class Running:
    """How experiments are run."""

    scale: Literal["full", "small"] = "full"
    """`small` shows on two cores within minutes that everything runs; its numbers say nothing."""
    seeds: int | None = None
    """How many learners; as many as the experiment says, 5 if it says nothing, and 2 at small scale."""
    device: str = "auto"
    """auto, cpu or cuda."""
    at_once: int = 1
    """Units of work at the same time, each in its own process: a large GPU has room for some, and as many that need
    none go on beside them. On Ray: on each GPU."""
    on: str = "local"
    """`local`; `ray` is the cluster at RAY_ADDRESS or one on this machine, ray://HOST:PORT or HOST:PORT another."""
    threads: int | None = None
    """Threads of each unit on a CPU, which decide the last bits of results; the cores by `--at-once`, on Ray 1."""
    storage: Path | None = None
    """A folder that all nodes of the cluster see, with data and results in it; without, files are sent to and fro."""
    bfloat16: bool = False
    """Networks compute in bfloat16 while they learn: faster on a GPU."""
    data: Path = Path("data")
    """Where meta-datasets are, in folders named after their families; missing ones are made there."""
    policies: Path = Path("policies")
    """Where published policies are; data of a family that has none is made by training its agents."""
    out: Path = Path("paper")
    """Folder for the runs, which experiments share, and for a folder of results of each experiment."""


@dataclass(frozen=True)
class PaperRun(Running):
    """Run experiments: data, training and tests as far as they are missing, then figures, tables and verdicts."""

    names: Positional[tuple[str, ...]] = (ALL,)
    """Which ones, as listed by `omrl paper list`; `all` for every one."""

    @property
    def file(self) -> None:
        """The paper's study."""
        return None

    @property
    def trust(self) -> tuple[str, ...]:
        """It names nothing but omrl's own."""
        return ()


@dataclass(frozen=True)
class StudyRun(Running):
    """Run a study: data, training and tests as far as they are missing, then figures, tables and verdicts."""

    file: Positional[Path] = MISSING
    """The study."""
    names: Positional[tuple[str, ...]] = (ALL,)
    """Which of its experiments; `all` for every one."""
    out: Path = Path("study")
    """Folder for the runs, which experiments share, and for a folder of results of each experiment."""
    trust: tuple[str, ...] = ()
    """Algorithms that the study names as module:Class and whose code may run."""


@dataclass(frozen=True)
class Status:
    """How far a study is that runs, or ran."""

    out: Positional[Path] = Path("study")
    """Its folder: the one of --out."""


StudyCommand = (
    Annotated[StudyList, subcommand("list")]
    | Annotated[StudyRun, subcommand("run")]
    | Annotated[Status, subcommand("status")]
)


@dataclass(frozen=True)
class Study:
    """Compare algorithms on data, by a file that says what, and judge what it claims."""

    command: StudyCommand


@dataclass(frozen=True)
class PaperStatus(Status):
    """How far the paper's experiments are."""

    out: Positional[Path] = Path("paper")
    """Their folder: the one of --out."""


PaperCommand = (
    Annotated[PaperList, subcommand("list")]
    | Annotated[PaperRun, subcommand("run")]
    | Annotated[PaperStatus, subcommand("status")]
)


@dataclass(frozen=True)
class Paper:
    """The paper's figures and tables as experiments."""

    command: PaperCommand
