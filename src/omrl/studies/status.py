"""`omrl study status`: how far a study is, from the files that its driver writes."""

from __future__ import annotations

from omrl.commands.study import Status
from omrl.errors import OmrlError
from omrl.units.board import PROGRESS, print_status


def run(args: Status) -> None:
    """The command."""
    folder = args.out / "progress"
    if not (folder / PROGRESS).is_file():
        raise OmrlError(f"There is no study in {args.out}: {folder / PROGRESS} is missing.")
    print_status(folder)
