"""Step 5 of the flow: one page on one run or several, with every figure and table as files beside it.

    omrl report runs/focal runs/other --out report

The page opens from disk, without network. Nothing of a run is changed; what is missing is said on the page.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from omrl.errors import OmrlError
from omrl.storage import folders

REPORT = folders.Kind(
    "report",
    "index.html",
    ("index.html", "report.json", "figures/*.svg", "figures/*.png", "tables/*.csv", "tables/*.md"),
)


@dataclass(frozen=True)
class Report:
    """Make a page on one run, or on several side by side."""

    runs: Positional[tuple[Path, ...]]
    """The runs' folders."""
    out: Path
    """Folder of the report; an earlier report there is replaced."""
    trust: tuple[str, ...] = ()
    """Algorithms of the runs, as module:Class, whose code may run."""


def report(runs: str | Path | Sequence[str | Path], out: str | Path, trust: str | Collection[str] = ()) -> Path:
    """Step 5 from Python: takes what the command takes, returns the path of the page."""
    given = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if not given:
        raise OmrlError("A report needs at least one run.")
    target = Path(out)
    from omrl.drawing.behaviour import need_matplotlib

    need_matplotlib()
    from omrl.algorithms import check_trusted
    from omrl.reporting.gather import gather
    from omrl.runs.config import CONFIG

    trust = (trust,) if isinstance(trust, str) else trust
    facts_of = gather(given)
    for facts in facts_of:
        check_trusted(facts.config.algorithm, trust, facts.run.folder / CONFIG)
    data = [facts.dataset.path for facts in facts_of if facts.dataset and facts.dataset.path]
    folders.keep_apart(target, *given, *data)
    from omrl.reporting.build import build

    command = shlex.join(["omrl", "report", *map(str, given), "--out", str(target)])
    with folders.replacing(target, REPORT) as temporary:
        build(facts_of, temporary, command, trust)
    return target / "index.html"


def run(args: Report) -> None:
    """The command."""
    print(report(args.runs, args.out, args.trust))
