"""Timestamps: what they say of the order of rows, and where a log has gaps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omrl.errors import OmrlError

# Without --gap, a pause of this many median steps ends an episode: a missed reading or two does not, a night does.
GAP_STEPS = 5.0
# Numbers count seconds unless no clock of our time would: from these on they are milli-, micro- and nanoseconds.
_FINER = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
_BARS = "▁▂▃▄▅▆▇█"


def to_seconds(values: NDArray[np.generic], column: str, path: Path) -> NDArray[np.float64]:
    """Times of any kind (datetimes, ISO text, epoch numbers) as seconds; what is missing is NaN."""
    values = values.reshape(len(values), -1)[:, 0] if values.ndim > 1 and values.shape[1] == 1 else values
    if values.ndim != 1:
        raise OmrlError(f"{path}: column {column!r} holds several numbers in a row, which are no time")
    if values.dtype.kind == "M":
        found = values.astype("datetime64[ns]").astype(np.int64) / 1e9
        return np.where(np.isnat(values), np.nan, found)
    if values.dtype.kind in "iuf":
        numbers = values.astype(np.float64)
        largest = float(np.nanmax(np.abs(numbers))) if np.isfinite(numbers).any() else 0.0
        return numbers / next((parts for limit, parts in _FINER if largest >= limit), 1.0)
    if values.dtype.kind != "U":
        raise OmrlError(f"{path}: column {column!r} holds {values.dtype} values, which are no times")
    return _from_text(values, column, path)


def _from_text(values: NDArray[np.generic], column: str, path: Path) -> NDArray[np.float64]:
    found = np.full(len(values), np.nan)
    zoned: bool | None = None
    for row, text in enumerate(values.tolist()):
        if not text:
            continue
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise OmrlError(
                f"{path}: column {column!r}, row {row}: {text!r} is not a time; "
                "write times as 2024-03-01T12:30:00 or as epoch numbers"
            ) from None
        if zoned not in (None, moment.tzinfo is not None):
            raise OmrlError(
                f"{path}: column {column!r}, row {row}: {text!r} is a time {'with' if moment.tzinfo else 'without'} a "
                "time zone, others are not; write all of them in one way"
            )
        zoned = moment.tzinfo is not None
        found[row] = (moment if zoned else moment.replace(tzinfo=UTC)).timestamp()
    return found


def default_gap(spacings: NDArray[np.float64]) -> float:
    """The pause that ends an episode where nobody says: several times the median time between two rows."""
    return GAP_STEPS * float(np.median(spacings))


def duration(seconds: float) -> str:
    """A time as a person says it."""
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def histogram(spacings: Sequence[float] | NDArray[np.float64], gap: float, bins: int = 24) -> str:
    """The times between rows on one line, on a logarithmic scale; a bar marks where the gap cuts."""
    times = np.asarray(spacings, np.float64)
    times = times[times > 0]
    if not len(times):
        return ""
    low, high = float(times.min()), float(times.max())
    if low == high:
        return f"always {duration(low)}"
    edges = np.geomspace(low, high, bins + 1)
    counts, _ = np.histogram(times, edges)
    # The logarithm of the count, so that a single gap among a million rows is seen.
    heights = np.log1p(counts) / np.log1p(counts.max())
    bars = [" " if not count else _BARS[int(h * 7)] for count, h in zip(counts, heights, strict=True)]
    if low < gap < high:
        bars.insert(int(np.searchsorted(edges, gap)) - 1 + 1, "|")
    return f"{duration(low)} [{''.join(bars)}] {duration(high)}"
