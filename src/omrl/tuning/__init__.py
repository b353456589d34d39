"""Choose hyperparameters: trials on training tasks, as many for each row, all of a row as one population.

    omrl tune mine.toml --data data/half-cheetah-vel --out trials.json

A quarter of the training tasks is held out: learners are trained on the others, told each held-out task by its own log,
and judged by their return in it, or without a simulator by the error of their actions. No test task is used. Where the
best trial lies on the edge of what was tried, one step beyond is tried too, with as many learners.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from tyro.conf import Positional

from omrl.errors import OmrlError, did_you_mean
from omrl.schema import read, settings

# The rows of the paper's comparisons, which come with omrl.
COMPARISONS = "comparisons"
Values = Annotated[tuple[float, ...], Field(strict=False)]


@dataclass(frozen=True)
class Tune:
    """Try hyperparameters on held-out training tasks, every row with as many trials."""

    file: Positional[Path]
    """A TOML file of rows and what to try; `comparisons` is the one of the paper's comparisons."""
    data: Path
    """The meta-dataset."""
    out: Path
    """A JSON file for the trials; those of other data and rows in it stay."""
    rows: tuple[str, ...] = ()
    """Which rows, by their labels; all if left out."""
    steps: int = 5_000
    """Updates of each learner."""
    seeds: int = 1
    """Learners of each trial."""
    episodes: int = 2
    """Episodes in each held-out task."""
    half: bool = False
    """With networks in bfloat16."""
    trust: tuple[str, ...] = ()
    """Algorithms that the file names as module:Class and whose code may run."""
    device: str = "auto"
    """auto, cpu or cuda."""


@settings
class Row:
    """What is tuned, and what is tried of it: all combinations of the values of some names."""

    label: str
    algorithm: str
    tried: dict[str, Values]
    """Values by name; names with a comma between them always have the same value."""
    preset: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.tried or not all(self.tried.values()):
            raise OmrlError(f"{self.label} tries nothing.")

    @property
    def axes(self) -> list[tuple[tuple[str, ...], tuple[float, ...]]]:
        """Names that go together, and their values."""
        return [(tuple(part.strip() for part in names.split(",")), values) for names, values in self.tried.items()]

    @property
    def trials(self) -> list[dict[str, float]]:
        """Every combination."""
        names = [names for names, _ in self.axes]
        chosen = product(*(values for _, values in self.axes))
        return [{n: v for group, v in zip(names, values, strict=True) for n in group} for values in chosen]

    def beyond(self, best: Mapping[str, float]) -> list[dict[str, float]]:
        """One step further for every value of the best trial that lies on the edge of what was tried."""
        further = []
        for names, values in self.axes:
            ordered, value = sorted(values), best[names[0]]
            place = ordered.index(value)
            # There is nothing beyond zero, and nothing to step by from a single value.
            if place in (0, len(ordered) - 1) and value > 0 and len(ordered) > 1:
                neighbour = ordered[1] if place == 0 else ordered[-2]
                if neighbour > 0:
                    further.append({**best, **dict.fromkeys(names, value**2 / neighbour)})
        return further


def read_rows(file: Path) -> dict[str, Row]:
    """The rows of a file by their labels."""
    own = str(file) == COMPARISONS and not file.exists()
    try:
        source = resources.files("omrl.tuning").joinpath("comparisons.toml") if own else file
        table = tomllib.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OmrlError(f"{file} cannot be read as TOML ({error}).") from error
    listed = table.get("rows")
    if set(table) != {"rows"} or not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise OmrlError(f"{file} has to be a list of [[rows]], and nothing else.")
    found = [read(Row, one, f"{file}, rows") for one in listed]
    if len({row.label for row in found}) < len(found):
        raise OmrlError(f"{file} has a label twice.")
    return {row.label: row for row in found}


def chosen_rows(args: Tune) -> list[Row]:
    """Those that were asked for, whose code may run."""
    known = read_rows(args.file)
    for label in args.rows:
        if label not in known:
            hint = did_you_mean(label, known)
            raise OmrlError(f"{args.file} has no row {label!r}{hint}; it has {', '.join(map(repr, known))}.")
    rows = [known[label] for label in args.rows or known]
    for row in rows:
        if ":" in row.algorithm and row.algorithm not in args.trust:
            name = row.algorithm
            raise OmrlError(f"{args.file} names the algorithm {name}, whose code would run: --trust {name} allows it.")
    return rows


def run(args: Tune) -> None:
    """The command."""
    from rich.console import Console
    from rich.table import Table

    from omrl.tuning.trying import keep, measure

    for name in ("steps", "seeds", "episodes"):
        if getattr(args, name) < 1:
            raise OmrlError(f"--{name} must be at least 1, not {getattr(args, name)}.")
    table = Table("row", "trial", "score", "normalised")
    for row in chosen_rows(args):
        found = measure(args, row)
        keep(args.out, found)
        for one in found:
            table.add_row(row.label, shown(one["trial"]), f"{one['return']:.2f}", _normalised(one))
        best = max(found, key=lambda one: one["return"])
        table.add_row(row.label, f"best of {len(found)}: {shown(best['trial'])}", "", "", style="bold")
    Console(width=140).print(table)


def shown(trial: Mapping[str, float]) -> str:
    """In words."""
    return ", ".join(f"{name} {value:g}" for name, value in trial.items())


def _normalised(one: Mapping[str, Any]) -> str:
    return "" if one["normalised"] is None else f"{one['normalised']:.3f}"
