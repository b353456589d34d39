"""Observations and actions by the names of the log's columns instead of by their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import TypedDict

from omrl.errors import OmrlError, did_you_mean
from omrl.words import shortened


class Column(TypedDict):
    """One number of an observation or an action."""

    name: str
    unit: str | None
    category: str | None
    """The word for which this number is 1, where the log had words."""


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
        return np.stack([_in_order(row, what, columns) for row in given])
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
        given = np.asarray(value, dtype=object)
        if wrong := [word for word in given.ravel() if word not in words]:
            raise OmrlError(
                f"{column['name']} of {what} cannot be {wrong[0]!r}; it is one of {', '.join(map(str, words))}."
            )
        return np.asarray(given == column["category"], dtype=np.float32)
    return floats(value, f"{column['name']} of {what}")


def floats(values: object, what: str) -> NDArray[np.float32]:
    """Numbers in single precision, copied; nothing that would have to be guessed to be one."""
    try:
        found = np.asarray(values.detach() if hasattr(values, "detach") else values)  # a tensor may have a gradient
        if found.dtype.kind not in "biufO":
            raise OmrlError(f"{what} must be numbers, not {shortened(values)}.")
        with np.errstate(over="ignore"):  # what is too large for single precision is not finite then
            array = np.array(found, dtype=np.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise OmrlError(f"{what} must be numbers, not {shortened(values)} ({error}).") from error
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        row = int(np.argwhere(np.ma.getmaskarray(values))[0][0])
        raise OmrlError(f"{what} has a masked value in row {row}.")
    return array
