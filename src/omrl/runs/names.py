"""Observations and actions by the names of the log's columns instead of by their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NotRequired

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import TypedDict

from omrl.errors import OmrlError, did_you_mean
from omrl.words import shortened

# What is one of these, or a list of them, has neither mask nor gradient, and need not be looked through.
PLAIN = frozenset({float, int, bool, str, bytes, np.float64, np.float32, np.int64, np.bool_, np.str_, np.ndarray})


class Column(TypedDict):
    """One number of an observation or an action."""

    name: str
    unit: str | None
    category: str | None
    """The word for which this number is 1, where the log had words."""
    low: NotRequired[float]
    """The smallest and the largest value of the log; older runs did not keep them."""
    high: NotRequired[float]


class Columns(TypedDict):
    """What the numbers of observations and actions are called, in their order."""

    observations: list[Column]
    actions: list[Column]


Values = ArrayLike | Mapping[str, ArrayLike] | Sequence[Mapping[str, ArrayLike]]
"""Numbers in the order of the columns, or by their names."""
Transitions = Mapping[str, Values] | Sequence[tuple[Values, Values, ArrayLike, Values]]
"""Rows of a task: a dict of arrays, or a list of (s, a, r, s')."""


def in_order(values: Values, what: str, columns: Sequence[Column] | None) -> ArrayLike:
    """Numbers in the order of the columns, of a mapping of numbers or arrays by name or of a list of such mappings.

    Values of another kind are given back as they are.
    """
    # A sequence of mappings is an ArrayLike to a type checker, too.
    given: Any = values
    if isinstance(given, Mapping):
        return _in_order(given, what, columns)
    if isinstance(given, list | tuple) and given and all(isinstance(row, Mapping) for row in given):
        rows = [_in_order(row, what, columns) for row in given]
        for i, row in enumerate(rows):
            if row.shape != rows[0].shape:
                raise OmrlError(
                    f"The rows of {what} differ in shape: row 0 has {list(rows[0].shape)}, row {i} {list(row.shape)}."
                )
        return np.stack(rows)
    numbers: ArrayLike = given
    return numbers


def _in_order(values: Mapping[str, Any], what: str, columns: Sequence[Column] | None) -> np.ndarray[Any, Any]:
    if columns is None:
        raise OmrlError(f"The run's data did not name its columns: {what} must be numbers in order.")
    names = list(dict.fromkeys(column["name"] for column in columns))
    if unknown := [name for name in values if name not in names]:
        hint = did_you_mean(str(unknown[0]), names)
        raise OmrlError(f"{what} has no column {unknown[0]!r}{hint}; it has {', '.join(names)}.")
    if missing := [name for name in names if name not in values]:
        raise OmrlError(f"{what} lacks {missing[0]!r}; it has {', '.join(names)}.")
    words = {name: [column["category"] for column in columns if column["name"] == name] for name in names}
    found = [_numbers(values[column["name"]], column, words[column["name"]], what) for column in columns]
    if len({array.shape for array in found}) > 1:
        lengths = {column["name"]: list(array.shape) for column, array in zip(columns, found, strict=True)}
        raise OmrlError(f"The columns of {what} differ in shape: {lengths}.")
    return np.stack(found, axis=-1)


def _numbers(value: Any, column: Column, words: Sequence[str | None], what: str) -> np.ndarray[Any, Any]:
    """A column's own number or numbers; of a column of words 1 where it is this column's word."""
    if column["category"] is not None:
        given = objects(value, f"{column['name']} of {what}")
        if wrong := [word for word in given.ravel() if not isinstance(word, str) or word not in words]:
            raise OmrlError(
                f"{column['name']} of {what} cannot be {wrong[0]!r}; it is one of {', '.join(map(str, words))}."
            )
        return np.asarray(given == column["category"], dtype=np.float32)
    return floats(value, f"{column['name']} of {what}")


def floats(values: object, what: str) -> NDArray[np.float32]:
    """Numbers in single precision, copied; nothing that would have to be guessed to be one."""
    try:
        found = np.asarray(_bare(values, what))
        if found.dtype.kind not in "biufO":
            raise OmrlError(f"{what} must be numbers, not {shortened(values)}.")
        # As objects numpy would take words and times for numbers, and the real part of a complex one.
        if found.dtype.kind == "O" and (wrong := [value for value in found.flat if not is_number(value)]):
            raise OmrlError(f"{what} must be numbers, not {shortened(wrong[0])}.")
        with np.errstate(over="ignore"):  # what is too large for single precision is not finite then
            return np.array(found, dtype=np.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise OmrlError(f"{what} must be numbers, not {shortened(values)} ({error}).") from error


def objects(values: object, what: str) -> NDArray[np.object_]:
    """Words and numbers as they were given."""
    try:
        return np.array(_bare(values, what), dtype=object)
    except (TypeError, ValueError, RuntimeError) as error:
        raise OmrlError(f"{what} must be rows of the same length, not {shortened(values)} ({error}).") from error


def is_number(value: object) -> bool:
    """Whether it is a real number; a span of time is a whole number to numpy alone."""
    return isinstance(value, Real | Decimal | np.bool_) and not isinstance(value, np.timedelta64)


def _bare(values: Any, what: str, row: int | None = None) -> Any:
    """Values without masks and gradients, in lists too: there numpy forgets the former and refuses the latter.

    A masked value is an error that names its row, which is `row` inside of a list.
    """
    if type(values) in PLAIN:
        return values
    if isinstance(values, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(values)
        if masked.any():
            row = int(np.argwhere(masked)[0][0]) if row is None and masked.ndim else row
            raise OmrlError(f"{what} has a masked value{'' if row is None else f' in row {row}'}.")
        return values.data
    if hasattr(values, "detach"):
        return np.asarray(values.detach())
    buffer = isinstance(values, str | bytes | bytearray | memoryview)
    if buffer or not isinstance(values, Sequence) or PLAIN.issuperset(map(type, values)):
        return values
    return [_bare(value, what, i if row is None else row) for i, value in enumerate(values)]
