"""Makes one run of several that are equal but for their seeds: what a GPU had no room for at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from omrl.errors import OmrlError
from omrl.runs.records import METRICS, whole_metrics
from omrl.runs.run import Run
from omrl.storage import folders
from omrl.storage.files import write_rows

# Of a checkpoint, what each learner has its own of; the rest is the same in all parts, but for the random state, which
# a run that is at its end does not need any more.
OF_LEARNERS = ("params", "targets", "adam.first_moment", "adam.second_moment", "alive")


def join(parts: Sequence[Path], out: Path) -> Run:
    """The run of all seeds, at the end of its training; its stages stay in the parts."""
    runs = [Run.open(part) for part in parts]
    first = runs[0].config
    at = first.seed
    for run in runs:
        if (run.config.seed, run.step) != (at, first.steps) or run.config.differences(
            replace(first, seed=run.config.seed, seeds=run.config.seeds), {}
        ):
            raise OmrlError(f"{run.folder} is not a trained part of the run {out}.")
        at += run.config.seeds
    whole = Run.create(out, replace(first, seeds=at - first.seed), {})
    rows = [row for run in runs for row in whole_metrics(run.folder / "metrics.csv")]
    states = [found[1] for run in runs if (found := run.load()) is not None]
    state = {**states[0], **{name: torch.cat([one[name] for one in states]) for name in OF_LEARNERS}}
    with folders.only_writer(out):
        write_rows(out / "metrics.csv", [METRICS, *sorted(rows, key=lambda row: int(row[0]))])
        whole.forget_after(first.steps)
        whole.save(first.steps, state)
        whole.close()
    return whole
