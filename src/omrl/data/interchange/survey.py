"""A first look at everything that is to be imported, before anything is decided or written.

What it finds is about the source as a whole: how much is missing, how far apart rows are, which words and which values
a column takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omrl.data.arrays import Place
from omrl.data.interchange.columns import Columns
from omrl.errors import OmrlError

Column = NDArray[Any]

# More words than this are names, not kinds of something: each would become a number of every observation.
MAX_CATEGORIES = 100
# More values than this are amounts, whatever they mean.
MAX_CHOICES = 1_000


def is_missing(values: Column) -> NDArray[np.bool_]:
    """Rows of a column in which a value is missing: NaN, no time, or no text."""
    if values.dtype.kind == "f":
        bad: NDArray[np.bool_] = np.isnan(values)
    elif values.dtype.kind == "M":
        bad = np.isnat(values)
    elif values.dtype.kind == "U":
        bad = values == ""
    else:
        bad = np.zeros(values.shape, bool)
    return bad if bad.ndim == 1 else np.asarray(bad.any(axis=1))


def _few(values: NDArray[Any]) -> NDArray[Any] | None:
    return values if len(values) <= MAX_CHOICES else None


@dataclass
class Missing:
    """What is missing of one column."""

    count: int = 0
    first: str = ""
    """Task and row of the first one."""


@dataclass
class Range:
    """The smallest and the largest value of every number of a column."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def too_fine(self) -> bool:
        """Whether a 32-bit number takes less than a thousand steps from one end to the other."""
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        with np.errstate(over="ignore", invalid="ignore"):
            step = np.spacing(largest.astype(np.float32)).astype(np.float64)
            return bool(((self.high > self.low) & (self.high - self.low < 1_000 * step)).any())


@dataclass
class Survey:
    """What all tasks' tables hold."""

    categories: Mapping[str, str]
    """Columns of words, each with the observation that it belongs to (a next observation shares its words)."""
    missing: dict[str, Missing] = field(default_factory=dict)
    spacings: list[NDArray[np.float64]] = field(default_factory=list)
    words: dict[str, set[str]] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    values: dict[str, list[NDArray[Any] | None]] = field(default_factory=dict)
    """The different values of every number of an action; None where they are too many."""
    rows: int = 0

    def look(self, table: Mapping[str, Column], columns: Columns, place: Place) -> None:
        """Take in one task's rows."""
        described = (*columns.observations, *columns.next_observations, *columns.actions, *columns.rewards)
        self.rows += len(next(iter(table.values())))
        for name, values in table.items():
            gone = is_missing(values)
            if gone.any():
                seen = self.missing.setdefault(name, Missing())
                if not seen.count:
                    row = int(np.argmax(gone))
                    row = row if place.row_numbers is None else int(place.row_numbers[row])
                    seen.first = f"task {place.task!r}, row {row}" if place.task else f"row {row}"
                seen.count += int(gone.sum())
            if name in self.categories:
                if values.ndim == 2 and values.shape[1] != 1:
                    raise place.error(name, "it holds several numbers in a row, which are no words for --categories")
                self._words(self.categories[name], words_of(values), place)
            elif name in described and values.dtype.kind in "biuf":
                self._range(name, values)
        for name in columns.actions:
            self._values(name, table[name])
        for name in columns.time:
            known = np.sort(table[name][~np.isnan(table[name])])
            self.spacings.append(np.diff(known))

    def _words(self, name: str, words: Column, place: Place) -> None:
        seen = self.words.setdefault(name, set())
        seen |= set(np.unique(words).tolist()) - {""}
        if len(seen) > MAX_CATEGORIES:
            raise OmrlError(
                f"{place.file}: column {name!r} holds more than {MAX_CATEGORIES} different words, "
                "which is too many for --categories"
            )

    def _range(self, name: str, values: Column) -> None:
        wide = values.reshape(len(values), -1)
        if wide.dtype.kind == "f":
            wide = np.where(np.isfinite(wide), wide, np.nan)
        if not wide.size:
            return
        with np.errstate(all="ignore"):
            low = np.fmin.reduce(wide, axis=0).astype(np.float64)
            high = np.fmax.reduce(wide, axis=0).astype(np.float64)
        if name in self.ranges and self.ranges[name].low.shape == low.shape:
            seen = self.ranges[name]
            low, high = np.fmin(low, seen.low), np.fmax(high, seen.high)
        self.ranges[name] = Range(low, high)

    def _values(self, name: str, values: Column) -> None:
        wide = values.reshape(len(values), -1)
        # Dates, say, are no choices, and do not mix with another task's numbers.
        plain = values.dtype.kind in "biufU"
        found = [_few(np.unique(column[~is_missing(column)])) if plain else None for column in wide.T]
        if name in self.values:
            pairs = zip(self.values[name], found, strict=False)
            found = [None if a is None or b is None else _few(np.union1d(a, b)) for a, b in pairs]
        self.values[name] = found

    def time_between_rows(self) -> NDArray[np.float64]:
        """Of all rows of a task that follow one another, in seconds; rows at one time are none apart."""
        every = np.concatenate(self.spacings) if self.spacings else np.zeros(0)
        return every[every > 0]


def words_of(values: Column) -> Column:
    """Any column as words: whole numbers without their point."""
    if values.dtype.kind == "U":
        return values
    if values.dtype.kind == "f":
        return np.array(["" if np.isnan(v) else f"{v:g}" for v in values.ravel()], str)
    return values.ravel().astype(str)
