from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from report_helpers import HOSTILE, poison, pumps, small_run, walks

from omrl.evaluation.testing import evaluate
from omrl.reporting.command import report


@dataclass(frozen=True)
class Made:
    """A report on four runs, and what it was made of."""

    folder: Path
    page: str
    tested: Path
    hostile: Path
    blind: Path
    own: Path


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Made:
    """A tested run, one with hostile names that is not tested yet, one without its data, and one on one's own logs."""
    folder = tmp_path_factory.mktemp("report")
    data, odd = walks("sparse-point-robot", folder / "walks"), walks("point-robot-wind", folder / "odd", hostile=True)
    tested = small_run(data, folder / "tested", eval_every=6)
    evaluate(tested)
    hostile = small_run(odd, folder / HOSTILE[2].replace("/", ""), latent_dim=2)
    poison(hostile)
    gone = walks("sparse-point-robot", folder / "gone")
    blind = small_run(gone, folder / "blind")
    evaluate(blind)
    gone.rename(folder / "moved")
    own = small_run(pumps(folder / "pumps"), folder / "own")
    evaluate(own)
    page = report([tested, hostile, blind, own], folder / "report")
    return Made(folder / "report", page.read_text(), tested, hostile, blind, own)
