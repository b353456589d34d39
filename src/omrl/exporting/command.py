"""A run's policy as files that need no torch, in the form that is asked for."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import get_args

from omrl.commands.export import Export, Form
from omrl.errors import OmrlError
from omrl.runs.model import load
from omrl.storage import folders

EXPORTED = folders.Kind(
    "exported policy", "weights.npz", ("omrl_runtime.py", "weights.npz", "encoder.onnx", "actor.onnx")
)


def export(run: str | Path, to: Form, out: str | Path, seed: int = 0, trust: str | Collection[str] = ()) -> list[Path]:
    """A run's policy as files that need no torch: takes what the command takes, returns their paths."""
    if to not in get_args(Form):
        raise OmrlError(f"A policy is exported to {' or '.join(get_args(Form))}, not to {to!r}.")
    # A form is imported when it is asked for: ONNX is an extra.
    write = import_module(f"omrl.exporting.to_{to}").write
    model, target = load(run, trust).ready(), Path(out)
    folders.keep_apart(target, Path(run))
    with folders.replacing(target, EXPORTED) as temporary:
        written: list[Path] = write(model, seed, temporary)
    return [target / path.name for path in written]


def run(args: Export) -> None:
    """The command."""
    for path in export(args.run, args.to, args.out, args.seed, args.trust):
        print(path)
