"""A run's policy as files that need no torch, in the form that is asked for."""

from __future__ import annotations

from pathlib import Path

from omrl.commands.export import Export, Form
from omrl.errors import OmrlError
from omrl.exporting import to_numpy, to_onnx
from omrl.runs.model import load


def export(run: str | Path, to: Form, out: str | Path, seed: int = 0) -> list[Path]:
    """A run's policy as files that need no torch: takes what the command takes, returns their paths."""
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OmrlError(f"{target} exists and is not an empty folder; choose another --out.")
    forms = {"numpy": to_numpy.write, "onnx": to_onnx.write}
    if to not in forms:
        raise OmrlError(f"A policy is exported to {' or '.join(forms)}, not to {to!r}.")
    return forms[to](load(run).ready(), seed, target)


def run(args: Export) -> None:
    """The command."""
    for path in export(args.run, args.to, args.out, args.seed):
        print(path)
