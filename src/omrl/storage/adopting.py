"""`omrl adopt`: marks a folder that was made before folders were marked, after a look at all that is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from omrl.commands.adopt import Adopt
from omrl.data import MetaDataset
from omrl.data.writer import DATASET
from omrl.errors import OmrlError
from omrl.reporting import REPORT
from omrl.runs.run import RUN, Run
from omrl.storage import folders
from omrl.storage.files import read_json
from omrl.studies import RESULTS


def adopt(folder: Path) -> str:
    """Check a folder whole and mark it; what it is."""
    target = folders.place(folder)
    if (found := folders.marked_as(target)) is not None:
        return found
    checks: dict[folders.Kind, Callable[[Path], None]] = {
        RUN: _check_run,
        DATASET: _check_dataset,
        RESULTS: _check_results,
        REPORT: _check_report,
    }
    for kind, check in checks.items():
        if (target / kind.key).is_file():
            check(target)
            if odd := folders.foreign(target, kind):
                raise OmrlError(f"{folder} holds {odd[0]}, which omrl did not write: it stays unmarked.")
            folders.mark(target, kind)
            return kind.name
    raise OmrlError(f"{folder} is nothing that omrl makes: no {', '.join(kind.key for kind in checks)} is in it.")


def run(args: Adopt) -> None:
    """The command."""
    print(f"{args.folder} is marked as a {adopt(args.folder)}.")


def _check_run(folder: Path) -> None:
    found = Run.open(folder)
    found.load()
    for _ in (found.curves, found.scores, found.logged, found.environment, found.seconds):
        """Reading them is the check."""


def _check_dataset(folder: Path) -> None:
    MetaDataset.open(folder).validate()


def _check_results(folder: Path) -> None:
    if not {"experiment", "rows", "claims"} <= set(read_json(folder / "results.json")):
        raise OmrlError(f"{folder / 'results.json'} is not of an experiment.")


def _check_report(folder: Path) -> None:
    # What reports had in the place of a marker.
    if read_json(folder / "report.json").get("report") != "omrl":
        raise OmrlError(f"{folder / 'report.json'} is not of a report of omrl.")
