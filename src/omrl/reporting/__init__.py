"""Step 5 of the flow: one page on one run or several, with every figure and table as files beside it.

    omrl report runs/focal runs/other --out report

The page opens from disk, without network. Nothing of a run is changed; what is missing is said on the page.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from omrl.errors import OmrlError

# The file that says: this folder is a report, and may be replaced by a newer one.
MARKER = "report.json"


@dataclass(frozen=True)
class Report:
    """Make a page on one run, or on several side by side."""

    runs: Positional[tuple[Path, ...]]
    """The runs' folders."""
    out: Path
    """Folder of the report; an earlier report there is replaced."""


def report(runs: str | Path | Sequence[str | Path], out: str | Path) -> Path:
    """Step 5 from Python: takes what the command takes, returns the path of the page."""
    folders = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if not folders:
        raise OmrlError("A report needs at least one run.")
    target = Path(out)
    from omrl.behaviour.plots import need_matplotlib

    need_matplotlib()
    from omrl.reporting.gather import gather

    facts = gather(folders)
    for folder in folders:
        if folder.resolve().is_relative_to(target.resolve()):
            raise OmrlError(f"{target} holds the run {folder}; choose another --out.")
    from omrl.reporting.build import build

    command = shlex.join(["omrl", "report", *map(str, folders), "--out", str(target)])
    with replacing(target) as temporary:
        build(facts, temporary, command)
    return target / "index.html"


def run(args: Report) -> None:
    """The command."""
    print(report(args.runs, args.out))


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a folder beside `target`; when the block ends well, it takes the place of an earlier report there."""
    from omrl.files import write_json

    if target.exists() and not _replaceable(target):
        raise OmrlError(f"{target} exists and is not a report; choose another --out.")
    target.parent.mkdir(parents=True, exist_ok=True)
    place = target.absolute()
    temporary, old = (place.with_name(f".{place.name}.{end}") for end in ("tmp", "old"))
    for left in (temporary, old):  # what an interrupted report left behind
        if left.exists():
            if not _replaceable(left):
                raise OmrlError(f"{left} is in the way of the report.")
            shutil.rmtree(left)
    try:
        temporary.mkdir()
        write_json(temporary / MARKER, _marker())
        yield temporary
        if place.exists():
            place.rename(old)
        temporary.rename(place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _replaceable(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MARKER).is_file() or not any(folder.iterdir()))


def _marker() -> dict[str, Any]:
    from omrl import __version__

    return {"report": "omrl", "version": __version__}
