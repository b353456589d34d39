"""`omrl report`, from the command line and from Python."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from omrl.algorithms import check_trusted
from omrl.commands.report import Report
from omrl.errors import OmrlError
from omrl.reporting import REPORT
from omrl.reporting.build import build
from omrl.reporting.gather import check_colour, gather
from omrl.runs.config import CONFIG
from omrl.storage import folders
from omrl.storage.files import as_path


def report(
    runs: str | Path | Sequence[str | Path],
    out: str | Path,
    color: str | None = None,
    trust: str | Collection[str] = (),
) -> Path:
    """Step 5 from Python: takes what the command takes, returns the path of the page."""
    several = runs if isinstance(runs, Iterable) and not isinstance(runs, str | bytes) else [runs]
    given = [as_path(run, "A run") for run in several]
    if not given:
        raise OmrlError("A report needs at least one run.")
    target = as_path(out, "A report")
    trust = (trust,) if isinstance(trust, str) else trust
    facts_of = gather(given)
    for facts in facts_of:
        check_trusted(facts.config.algorithm, trust, facts.run.folder / CONFIG)
    if color is not None:
        check_colour(color, facts_of)
    data = [facts.dataset.path for facts in facts_of if facts.dataset and facts.dataset.path]
    folders.keep_apart(target, *given, *data)
    coloured = [] if color is None else ["--color", color]
    command = shlex.join(["omrl", "report", *map(str, given), "--out", str(target), *coloured])
    with folders.replacing(target, REPORT) as temporary:
        build(facts_of, temporary, command, trust, color)
    return target / "index.html"


def run(args: Report) -> None:
    """The command."""
    print(report(args.runs, args.out, args.color, args.trust))
