"""What a person should know of a meta-dataset before training on it: one sentence for each thing that looks odd.

None of it is an error. Whatever breaks a rule of the format was refused before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omrl.data.arrays import Arrays, episode_starts
from omrl.data.dataset import MetaDataset
from omrl.data.manifest import LoggedColumn
from omrl.words import quantity

# Below this spread training takes an observation for one that never changes, and leaves it as small as it is.
TINY = 1e-6
# Columns whose spreads differ by more than this are said to.
SCALES = 1e3
# A value this many standard deviations from the mean is often a code, such as -999 for no reading.
FAR = 20.0
# Actions of no more than this many different values may be choices rather than amounts.
FEW_VALUES = 32
# Tasks with fewer rows than this, or than a tenth of the median task, tell little.
FEW_ROWS = 50
# A next observation that is this near to being as far away as a random one's is no successor.
UNRELATED = 0.9
_ENOUGH_ROWS = 200
_LOOKED_AT = 2_000
_BLOCK = 100_000


@dataclass(frozen=True)
class ColumnFacts:
    """One number of an observation or an action, or the reward, over all rows."""

    name: str
    unit: str | None
    part: str
    low: float
    high: float
    mean: float
    std: float
    values: tuple[float, ...] | None
    """The different values where there are few."""

    @property
    def constant(self) -> bool:
        return self.low == self.high


def column_facts(dataset: MetaDataset) -> list[ColumnFacts]:
    """Every column's facts, in the order of the arrays."""
    # Sums of centred values, block by block: the whole need not be in memory, and a mean far from 0 costs no digits.
    seen: dict[str, _Moments] = {part: _Moments() for part in ("observations", "actions", "rewards")}
    for task in dataset.tasks:
        rows = dataset.rows(task.name)
        for part, moments in seen.items():
            for start in range(0, len(rows[part]), _BLOCK):
                block = rows[part][start : start + _BLOCK]
                moments.add(block.reshape(len(block), -1))
    facts = []
    for part, moments in seen.items():
        for i, (name, unit) in enumerate(column_names(dataset, part)):
            values = moments.values[i]
            facts.append(
                ColumnFacts(
                    name,
                    unit,
                    part,
                    float(moments.low[i]),
                    float(moments.high[i]),
                    float(moments.mean[i]),
                    float(np.sqrt(moments.squares[i] / moments.rows)),
                    None if values is None else tuple(float(v) for v in values),
                )
            )
    return facts


class _Moments:
    """Means and squared deviations of columns, of blocks one after the other."""

    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def __init__(self) -> None:
        self.rows = 0
        self.values: list[NDArray[np.float64] | None] = []

    def add(self, rows: NDArray[np.float32]) -> None:
        columns = rows.astype(np.float64)
        n, mean = len(columns), columns.mean(0)
        squares = ((columns - mean) ** 2).sum(0)
        low, high = columns.min(0), columns.max(0)
        different = [_few(column) for column in columns.T]
        if self.rows:
            apart = mean - self.mean
            share = n / (self.rows + n)
            squares += self.squares + apart**2 * self.rows * share
            mean = self.mean + apart * share
            low, high = np.minimum(low, self.low), np.maximum(high, self.high)
            pairs = zip(self.values, different, strict=True)
            different = [None if a is None or b is None else _few(np.append(a, b)) for a, b in pairs]
        self.rows += n
        self.mean, self.squares, self.low, self.high, self.values = mean, squares, low, high, different


def _few(column: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The different values, if they are few. Where they are many, the first rows tell, and not all are sorted."""
    if len(np.unique(column[:1_000])) > FEW_VALUES:
        return None
    values = np.unique(column)
    return values if len(values) <= FEW_VALUES else None


def column_names(dataset: MetaDataset, part: str) -> list[tuple[str, str | None]]:
    """Name and unit of every number of an array; by their place where the data has no names."""
    columns = dataset.manifest.columns
    if columns is None:
        dims = {"observations": dataset.observation_dim, "actions": dataset.action_dim, "rewards": 0}[part]
        one = part.removesuffix("s")
        return [(f"{one} {i}", None) for i in range(dims)] or [(one, None)]
    found = getattr(columns, part)
    return [(shown(column), column.unit) for column in ([found] if isinstance(found, LoggedColumn) else found)]


def shown(column: LoggedColumn) -> str:
    """A column's name, with the word that it stands for."""
    return column.name if column.category is None else f"{column.name}={column.category}"


def findings(dataset: MetaDataset) -> list[str]:
    """The sentences; none where nothing looks odd."""
    facts = column_facts(dataset)
    lines = _missing(dataset) + _words(dataset) + _too_fine(dataset)
    fine = _dict_of(dataset, "too_fine")
    lines += [f"{c.name} is always {c.low:g}{_nothing_to_learn(c)}" for c in facts if c.constant and c.name not in fine]
    lines += _small_and_large(facts)
    lines += [
        f"{c.name} goes from {c.low:g} to {c.high:g}, where its mean is {c.mean:.3g} and its standard deviation "
        f"{c.std:.3g}: is the far end a code for something?"
        for c in facts
        if not c.constant and max(c.high - c.mean, c.mean - c.low) > FAR * c.std
    ]
    lines += _few_values(dataset, [c for c in facts if c.part == "actions"])
    lines += _few_rows(dataset)
    lines += _successors(dataset)
    return lines


def _dict_of(dataset: MetaDataset, key: str) -> dict[str, Any]:
    """What the import remembered under a key; a source is free, and may hold anything there."""
    found = dataset.manifest.source.get(key)
    return found if isinstance(found, dict) else {}


def _missing(dataset: MetaDataset) -> list[str]:
    """What the import was told to do without."""
    source, found = dataset.manifest.source, _dict_of(dataset, "missing_values")
    if not found:
        return []
    handled = {"drop": "their rows were dropped", "forward": "the last ones were carried on"}
    how = handled.get(str(source.get("missing")), "somehow handled")
    counts = {name: about for name, about in found.items() if isinstance(about, dict)}
    each = ", ".join(f"{name} {about.get('count')} (first in {about.get('first')})" for name, about in counts.items())
    return [f"values were missing, and {how}: {each}"]


def _words(dataset: MetaDataset) -> list[str]:
    """Columns of words, and what the words of each are."""
    found: dict[str, list[str]] = {}
    columns = dataset.manifest.columns
    for column in () if columns is None else columns.observations:
        if column.category is not None:
            found.setdefault(column.name, []).append(column.category)
    return [
        f"{name} is words, and became {quantity(len(words), 'number')}, one for each of {', '.join(words)}"
        for name, words in found.items()
    ]


def _too_fine(dataset: MetaDataset) -> list[str]:
    """Columns whose changes 32-bit numbers hardly hold, as the import found."""
    return [
        f"{name} goes from {ends[0]!r} to {ends[1]!r}, of which 32-bit numbers keep little: subtract a constant from it"
        for name, ends in _dict_of(dataset, "too_fine").items()
        if isinstance(ends, list) and len(ends) == 2
    ]


def _nothing_to_learn(column: ColumnFacts) -> str:
    return {"rewards": ": there is nothing to learn", "actions": ": nothing can be learned about it"}.get(
        column.part, ": it says nothing"
    )


def _small_and_large(facts: Sequence[ColumnFacts]) -> list[str]:
    lines = [
        f"{c.name} varies by only {c.std:.1e}, which training takes for nothing: log it in a smaller unit"
        for c in facts
        if c.part == "observations" and not c.constant and c.std <= TINY
    ]
    spread = [c for c in facts if c.part == "observations" and c.std > TINY]
    if spread:
        small, large = min(spread, key=lambda c: c.std), max(spread, key=lambda c: c.std)
        if large.std > SCALES * small.std:
            lines.append(
                f"scales differ: the standard deviation of {large.name} is {large.std:.2g}, that of {small.name} "
                f"{small.std:.2g} (observations are normalised in training)"
            )
    return lines


def _few_values(dataset: MetaDataset, actions: Sequence[ColumnFacts]) -> list[str]:
    """Actions that may be choices, by the words of the log where these are known."""
    lines = []
    for column, choices in zip_longest(actions, dataset.manifest.discrete_actions or ()):
        if column.values is None or column.constant:
            continue
        # Rows are 32-bit numbers, and the manifest's values need not be.
        numbers = [] if choices is None else np.array(choices.values, np.float32).tolist()
        words = dict(zip(numbers, (choices and choices.labels) or (), strict=False))
        some = [words.get(value, f"{value:g}") for value in column.values]
        whole = "whole " if not words and all(value.is_integer() for value in column.values) else ""
        listed = ", ".join(some) if len(some) <= 4 else f"{', '.join(some[:3])}, ... {some[-1]}"
        lines.append(f"{column.name} takes {len(some)} {whole}values: {listed}")
    return lines


def _few_rows(dataset: MetaDataset) -> list[str]:
    rows = {entry.name: entry.rows for entry in dataset.manifest.tasks}
    median = float(np.median(list(rows.values())))
    few = [name for name, count in rows.items() if count < max(FEW_ROWS, median / 10)]
    lines = []
    if few:
        named = ", ".join(f"{name!r} ({rows[name]:,})" for name in few[:5]) + (", ..." if len(few) > 5 else "")
        have = "has" if len(few) == 1 else "have"
        lines.append(
            f"{len(few)} of {quantity(len(rows), 'task')} {have} few rows (the median is {median:,.0f}): {named}"
        )
    episodes = [entry.rows / entry.episodes for entry in dataset.manifest.tasks]
    if np.median(episodes) < 3:
        lines.append(f"episodes are short: {np.median(episodes):.1f} rows on average in the median task")
    return lines


def _successors(dataset: MetaDataset) -> list[str]:
    """Whether observations and next observations have to do with one another, against rows in another order."""
    rng = np.random.default_rng(0)
    real = other = np.zeros(dataset.observation_dim)
    rows = 0
    for task in dataset.tasks:
        step, shuffled, n = _steps(dataset.rows(task.name), rng)
        real, other, rows = real + step, other + shuffled, rows + n
    moves = other > 0
    if rows < _ENOUGH_ROWS or not moves.any() or (real[moves] / other[moves]).min() < UNRELATED:
        return []
    return [
        "next observations are as far from their observations as those of random rows of the episode: "
        "are the rows in order?"
    ]


def _steps(rows: Arrays, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Summed distances to the next observation, and to that of a random row of the same episode."""
    n = min(len(rows["rewards"]), _LOOKED_AT)
    obs, after = (rows[name][:n].astype(np.float64) for name in ("observations", "next_observations"))
    starts = episode_starts(rows["episode"][:n])
    lengths = np.diff(starts, append=n)
    drawn = np.repeat(starts, lengths) + rng.integers(0, np.repeat(lengths, lengths))
    return np.abs(after - obs).sum(0), np.abs(after[drawn] - obs).sum(0), n
