"""A trained policy for programs that have no torch: rows in the log's units go in, actions in the log's units come out.

    omrl export runs/focal --to numpy --out exported

Normalisation and the actions' bounds are inside. `to_numpy.py` writes a runtime of one file, `to_onnx.py` two graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from omrl.errors import OmrlError

Form = Literal["numpy", "onnx"]


@dataclass(frozen=True)
class Export:
    """Write a run's policy for programs without torch."""

    run: Positional[Path]
    """The run's folder."""
    to: Form
    """`numpy`: one Python file and its weights. `onnx`: two graphs, encoder and actor."""
    out: Path
    """A new folder."""
    seed: int = 0
    """Which of the run's learners; 0 is the first."""


def export(run: str | Path, to: Form, out: str | Path, seed: int = 0) -> list[Path]:
    """A run's policy as files that need no torch: takes what the command takes, returns their paths."""
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OmrlError(f"{target} exists and is not an empty folder; choose another --out.")
    from omrl.exporting import to_numpy, to_onnx
    from omrl.runs.policy import load

    forms = {"numpy": to_numpy.write, "onnx": to_onnx.write}
    if to not in forms:
        raise OmrlError(f"A policy is exported to {' or '.join(forms)}, not to {to!r}.")
    return forms[to](load(run).ready(), seed, target)


def run(args: Export) -> None:
    """The command."""
    for path in export(args.run, args.to, args.out, args.seed):
        print(path)
