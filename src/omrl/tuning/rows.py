"""What is tuned: rows of a file, and the trials that each of them makes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import field
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated

from pydantic import Field

from omrl.commands.tune import Tune
from omrl.errors import OmrlError, did_you_mean
from omrl.schema import Changes, read, settings

# The rows of the paper's comparisons, which come with omrl.
COMPARISONS = "comparisons"
Values = Annotated[tuple[float, ...], Field(strict=False)]


@settings
class Row:
    """What is tuned, and what is tried of it: all combinations of the values of some names."""

    label: str
    algorithm: str
    tried: dict[str, Values]
    """Values by name; names with a comma between them always have the same value."""
    preset: str | None = None
    changes: Changes = field(default_factory=dict)

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
