"""What a policy knows of its task, row after row, where z is a weighted mean of the transitions' codes."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

import numpy as np

from omrl.errors import OmrlError
from omrl.words import shortened

Array = np.ndarray[Any, Any]


class Belief:
    """The weighted mean of all rows so far, of the last `window` ones, or of all with weights that fade by `forget`.

    Time and memory of a row do not depend on how many came before it. Sums are in double precision: a million rows
    later they still have all digits that z has.
    """

    def __init__(self, window: int | None = None, forget: float | None = None) -> None:
        if window is not None and forget is not None:
            raise OmrlError("Give window or forget, not both: either decides how old rows leave.")
        if window is not None and (not _is(window, int, np.integer) or window < 1):
            raise OmrlError(f"window must be at least 1 row, not {shortened(window)}.")
        if forget is not None and (not _is(forget, int, float, np.floating) or not 0 < forget <= 1):
            raise OmrlError(f"forget must lie above 0 and be at most 1, not {shortened(forget)}.")
        # No deque can be told more than that, nor holds as much.
        self._recent: deque[Array] | None = None if window is None else deque(maxlen=min(int(window), sys.maxsize))
        self._fade = 1.0 if forget is None else forget
        self._sums: Array | None = None

    def add(self, codes: Array, weights: Array) -> None:
        """Take in rows [C, l], the newest last."""
        rows = np.stack([codes.astype(np.float64) * weights, weights], axis=1)  # [C, 2, l]
        if self._recent is not None:
            self._recent.extend(rows)
            # Not by taking away what leaves: rounding would add up.
            self._sums = np.sum(self._recent, axis=0)
            return
        ages = np.arange(len(rows))[::-1, None, None]
        new = (rows * self._fade**ages).sum(0)
        self._sums = new if self._sums is None else self._sums * self._fade ** len(rows) + new

    @property
    def z(self) -> Array:
        """The mean [l]."""
        assert self._sums is not None
        total, weight = self._sums
        return np.asarray(total / weight, dtype=np.float32)


def _is(value: object, *kinds: type) -> bool:
    """Whether it is a number of these kinds; a truth value is an int to Python alone, a span of time to numpy."""
    return isinstance(value, kinds) and not isinstance(value, bool | np.timedelta64)
