"""What `omrl bench` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional


@dataclass(frozen=True)
class Update:
    """Time one update of an algorithm at Half-Cheetah-Vel's shapes (80 tasks, 20 observations, 6 actions)."""

    algorithms: tuple[str, ...] = ("focal",)
    """Which algorithms, with their default hyperparameters: networks of 300 x 3, 16 tasks x 256 rows."""
    seeds: tuple[int, ...] = (1, 3)
    """How many learners at once; one row of the table each."""
    regulariser_steps: tuple[int, ...] = (1,)
    """Discriminator steps per update, for algorithms that have them."""
    bfloat16: bool = False
    """With networks in bfloat16."""
    repeats: int = 5
    """Timed stretches, of which the median is shown."""
    seconds: float = 2.0
    """About how long a stretch takes."""
    device: str = "auto"
    """auto, cpu or cuda."""
    mode: Literal["eager", "compiled", "graph"] | None = None
    """eager, compiled or graph; what a long run takes on the device if left out."""
    json: Path | None = None
    """Also write the figures to this file."""


@dataclass(frozen=True)
class Bench:
    """Measure speed."""

    what: Positional[Literal["update"]]
    """`update`: one update of an algorithm."""
    command: Update
