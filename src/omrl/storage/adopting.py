"""`omrl adopt`: marks a folder that was made before folders were marked, after a look at all that is in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typing_extensions import TypedDict

from omrl.algorithms import known_algorithms
from omrl.commands.adopt import Adopt
from omrl.commands.data import Import
from omrl.data import MetaDataset, interchange
from omrl.data.interchange import MINARI_EXPORT
from omrl.data.writer import DATASET
from omrl.errors import OmrlError
from omrl.exporting import omrl_runtime
from omrl.exporting.command import EXPORTED
from omrl.reporting import REPORT
from omrl.runs.calibration import Calibration
from omrl.runs.checkpoints import load_checkpoint
from omrl.runs.config import CONFIG
from omrl.runs.model import Model
from omrl.runs.records import LOGGED, read_logged, read_metrics, read_scores
from omrl.runs.run import RUN, Run
from omrl.schema import conform
from omrl.storage import folders
from omrl.storage.files import read_json, read_rows, read_text
from omrl.studies import RESULTS
from omrl.words import an

# In the page of a report.
MADE = re.compile(r'<div class="muted">Made on [^<]{1,40} with omrl ')
# In the first line of an exported policy's runtime.
RUNTIME = "`omrl export --to numpy`"


class Claim(TypedDict):
    """A claim of an experiment, as far as its kind is known by it."""

    claim: str
    verdict: str
    comparisons: list[dict[str, Any]]


class Found(TypedDict):
    """The same of what an experiment found."""

    experiment: str
    rows: list[dict[str, Any]]
    claims: list[Claim]


def adopt(folder: Path) -> str:
    """Check a folder whole and mark it; what it is."""
    target = folders.place(folder)
    if (found := folders.marked_as(target)) is not None:
        return found
    for kind, check in CHECKS.items():
        if (target / kind.key).is_file():
            check(target)
            if odd := folders.foreign(target, kind):
                raise OmrlError(f"{folder} holds {odd[0]}, which omrl did not write: it stays unmarked.")
            folders.mark(target, kind)
            return kind.name
    raise OmrlError(f"{folder} is nothing that omrl makes: no {', '.join(kind.key for kind in CHECKS)} is in it.")


def run(args: Adopt) -> None:
    """The command."""
    print(f"{args.folder} is marked as {an(adopt(args.folder))}.")


def _check_run(folder: Path) -> None:
    """By whoever reads what is in it. Networks are made where no stranger's code is needed for them."""
    found = Run.open(folder)
    for path in sorted(folder.glob("checkpoints/step-*.safetensors")):
        load_checkpoint(path)
    calibration = Calibration.open(folder)
    if found.step and found.config.algorithm in known_algorithms():
        calibration = Model(found).calibration
    del calibration  # reading is the check, of all that follows too
    for path in sorted(folder.glob("stages/*/*")):
        if path.suffix == ".safetensors":
            load_checkpoint(path)
        elif path.name == "metrics.csv":
            read_metrics(path)
    _ = (found.curves, found.environment, found.seconds)
    for path in sorted(folder.glob("*.json")):
        if path.name not in (CONFIG, folders.MARKER, "environment.json", "timings.json"):
            found.summary(path.stem)
    for path in sorted(folder.glob("*.csv")):
        if path.name not in ("metrics.csv", "selected.csv"):
            _check_scores(path)
    read_rows(folder / "selected.csv", ())


def _check_scores(path: Path) -> None:
    """Rows of a test: returns, or what a protocol that simulates nothing counts."""
    rows = read_rows(path, ("seed", "task", "split"))
    if rows and "return" in rows[0]:
        read_scores(path)
    elif path.name.startswith("logged"):
        read_logged(path)
    else:
        read_rows(path, LOGGED)


def _check_dataset(folder: Path) -> None:
    MetaDataset.open(folder).validate()


def _check_results(folder: Path) -> None:
    path = folder / "results.json"
    conform(Found, read_json(path), path)
    for table in sorted(folder.glob("*.csv")) + sorted(folder.glob("tables/*.csv")):
        read_rows(table, ())
    page = folder / "report"
    if page.exists() and folders.marked_as(page) != REPORT.name:
        _check_report(page)


def _check_report(folder: Path) -> None:
    # What reports had in the place of a marker, and what the page of every report says.
    said = folder / "report.json"
    if said.is_file() and read_json(said).get("report") != "omrl":
        raise OmrlError(f"{said} is not of a report of omrl.")
    if not said.is_file() and not MADE.search(read_text(folder / REPORT.key)):
        raise OmrlError(f"{folder / REPORT.key} is not the page of a report of omrl.")
    for table in sorted(folder.glob("tables/*.csv")):
        read_rows(table, ())


def _check_exported(folder: Path) -> None:
    try:
        omrl_runtime.load(folder)
    except ValueError as error:
        raise OmrlError(str(error)) from None
    # An older omrl wrote another one, which began in the same way.
    runtime = folder / Path(omrl_runtime.__file__).name
    if not runtime.is_file() or RUNTIME not in read_text(runtime).partition("\n")[0]:
        raise OmrlError(f"{runtime} is not the runtime of an exported policy.")


def _check_minari(folder: Path) -> None:
    """By reading all of it into a dataset, whose tasks have to match their checksums."""
    for path in sorted(folder.glob("*/data/metadata.json")):
        if "omrl" not in read_json(path):
            raise OmrlError(f"{path} is of no export of omrl's.")
    with TemporaryDirectory() as scratch:
        interchange.read(Import(folder, Path(scratch, "read"), "minari"))


CHECKS: dict[folders.Kind, Callable[[Path], None]] = {
    RUN: _check_run,
    DATASET: _check_dataset,
    RESULTS: _check_results,
    REPORT: _check_report,
    EXPORTED: _check_exported,
    MINARI_EXPORT: _check_minari,
}
"""Every kind that a sentence promises to adopt, and how one is checked."""
