"""The command line: thin, and quick to answer. Who does the work of a command is imported when it runs."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from importlib import import_module, metadata
from typing import Annotated, TypeVar

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from omrl.commands.adopt import Adopt
from omrl.commands.bench import Bench
from omrl.commands.calibrate import Calibrate
from omrl.commands.collect import Collect
from omrl.commands.data import Data
from omrl.commands.evaluate import Evaluate
from omrl.commands.export import Export
from omrl.commands.families import Families, Render
from omrl.commands.quickstart import Quickstart
from omrl.commands.report import Report
from omrl.commands.select import Select
from omrl.commands.study import Paper, PaperList, PaperStatus, Status, Study, StudyList
from omrl.commands.train import Train
from omrl.commands.tune import Tune
from omrl.errors import OmrlError
from omrl.words import is_text, shortened
from omrl_command import lacks_memory

T = TypeVar("T")
FLAGS = (OmitArgPrefixes, OmitSubcommandPrefixes, FlagCreatePairsOff)
# What a user can mend about a path: a full disk, a limit, no permission, a file where a folder should be, a long name.
MENDABLE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
)
ABOUT = "Offline meta-reinforcement learning: many tasks' logs in, one policy that adapts out."
# Characters of all arguments, up to which what is wrong with them is shown in full.
LONG = 1000
# How torch and Python say that memory is used up, the machine's or a device's.
NO_MEMORY = ("can't allocate memory", "out of memory", "can't start new thread")


Command = (
    Annotated[Families, subcommand("families")]
    | Annotated[Render, subcommand("render")]
    | Annotated[Data, subcommand("data")]
    | Annotated[Collect, subcommand("collect")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Select, subcommand("select")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Calibrate, subcommand("calibrate")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Paper, subcommand("paper")]
    | Annotated[Study, subcommand("study")]
    | Annotated[Tune, subcommand("tune")]
    | Annotated[Adopt, subcommand("adopt")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Quickstart, subcommand("quickstart")]
)
# Where the `run` of a command is. It takes seconds to import what most of them need, which nobody waits for before the
# arguments make sense.
WORK: dict[type, str] = {
    Families: "omrl.families.listing",
    Render: "omrl.families.pictures",
    Evaluate: "omrl.evaluation.command",
    Select: "omrl.selecting.command",
    Report: "omrl.reporting.command",
    Calibrate: "omrl.runs.calibrating",
    Export: "omrl.exporting.command",
    Tune: "omrl.tuning.command",
    Adopt: "omrl.storage.adopting",
    Bench: "omrl.learning.bench",
    Quickstart: "omrl.quickstart",
}
# Those whose flags depend on the first word after them, a family or an algorithm: where they are parsed and done.
OWN_FLAGS = {
    "collect": ("omrl.behaviour.options", "omrl.behaviour.collect"),
    "train": ("omrl.learning.starting", "omrl.learning.starting"),
}


def run(command: Command) -> None:
    """Run a parsed command."""
    match command:
        case Collect():
            raise OmrlError(f"Name the family first: omrl collect {command.family} --out ...")
        case Train():
            raise OmrlError(f"Name the algorithm first: omrl train {command.algorithm} --data ... --out ...")
        case Data():
            import_module("omrl.data.command").run(command.command)
        case Paper() | Study():
            quick = {PaperList: "listing", StudyList: "listing", Status: "status", PaperStatus: "status"}
            work = quick.get(type(command.command), "command")
            import_module(f"omrl.studies.{work}").run(command.command)
        case _:
            import_module(WORK[type(command)]).run(command)


def main() -> None:
    """Parse and run; what a user can mend is one sentence and exit code 2."""
    if "OMP_WAIT_POLICY" not in os.environ:
        # Before torch is loaded: its threads spin while they wait for one another, and where other programs keep the
        # cores busy, small networks then learn a hundred times slower. So short a wait costs an idle machine nothing.
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    if sys.argv[1:] == ["--version"]:
        print(f"omrl {metadata.version('omrl')}")
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of tasks, on a terminal that cannot show them
    if code := told(lambda: _answer(sys.argv[1:])):
        sys.exit(code)


def _answer(arguments: Sequence[str]) -> None:
    for word in arguments:
        if not is_text(word):
            # What is written down of it could not be read again.
            raise OmrlError(f"The argument {shortened(word)} is no text in UTF-8; rename the file, if it names one.")
    if len(arguments) > 1 and arguments[0] in OWN_FLAGS and not arguments[1].startswith("-"):
        options, work = OWN_FLAGS[arguments[0]]
        parse = import_module(options).parse
        parsed = _parsed(lambda: parse(arguments[1:]), arguments)
        import_module(work).command(*parsed)
    else:
        run(_parsed(lambda: tyro.cli(Command, prog="omrl", description=ABOUT, config=FLAGS), arguments))
    sys.stdout.flush()


def _parsed(parse: Callable[[], T], arguments: Sequence[str]) -> T:
    """What words mean; what is said of words that are longer than anyone reads is one sentence."""
    if sum(map(len, arguments)) <= LONG:
        return parse()
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return parse()
    except SystemExit as stop:
        if stop.code:
            raise OmrlError(" ".join(re.sub(r"[^\w\s!-~]", " ", said.getvalue()).split())) from None
        raise


def told(work: Callable[[], object]) -> int:
    """Do something and return its exit code; what goes wrong and a user can mend is told in one sentence."""
    try:
        work()
    except OmrlError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # Nobody reads on; what is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ImportError, SystemError) as error:
        if not lacks_memory(error):
            raise
        return _fail("There is not enough memory to load the libraries that this needs.")
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in NO_MEMORY):
            raise
        return _fail("There is not enough memory for this; fewer seeds, smaller batches or --stream need less.")
    except OSError as error:
        if error.errno == errno.ENOMEM:
            return _fail("There is not enough memory for this.")
        if error.errno not in MENDABLE:
            raise
        return _fail(f"{error.filename or 'A file'} could not be written: {error.strerror}.")
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from the last save, where there is one", file=sys.stderr)
        return 130
    return 0


def _fail(sentence: str) -> int:
    """One line that somebody reads, whatever names are in it."""
    print(f"error: {OmrlError(sentence)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
