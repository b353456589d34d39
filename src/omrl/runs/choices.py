"""Actions that are choices: from the words or levels of the log to numbers, and back to exactly these."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from omrl.data.manifest import Manifest
from omrl.errors import OmrlError
from omrl.runs.names import is_number, objects

# Together: a policy has a number for each of them, and its critics a value.
MOST = 64


class Choice(TypedDict):
    """What one number of an action may be."""

    values: list[float]
    labels: list[str] | None
    """The words that they stand for, where the log had words."""


def choices_of(manifest: Manifest) -> list[Choice] | None:
    """As a run keeps them; nothing where actions are amounts."""
    if manifest.discrete_actions is None:
        return None
    every = manifest.discrete_actions
    return [Choice(values=[*one.values], labels=None if one.labels is None else [*one.labels]) for one in every]


def in_units(choices: Sequence[Choice], low: Sequence[float], high: Sequence[float]) -> tuple[float, ...]:
    """All that an action can be, each number in [-1, 1], one action after the other."""
    together = int(np.prod([len(one["values"]) for one in choices]))
    if together > MOST:
        remedy = "if numbers between them make sense, import the logs with --action-kind continuous"
        if any(one["labels"] is not None for one in choices):
            remedy = "give words that mean the same one name, or import the logs with fewer --actions"
        raise OmrlError(f"Actions have {together:,} choices together, and {MOST} at most are learnt; {remedy}.")
    numbers = np.array(list(product(*(one["values"] for one in choices))), np.float32)
    lowest, highest = np.array(low, np.float32), np.array(high, np.float32)
    return tuple(((numbers - lowest) * (2 / (highest - lowest)) - 1).ravel().tolist())


def as_logged(actions: NDArray[np.floating], choices: Sequence[Choice]) -> NDArray[np.generic]:
    """The choices that numbers [..., A] stand for, rounded as they may be: levels as logged, or words."""
    found: list[NDArray[Any]] = []
    for place, one in enumerate(choices):
        nearest = np.abs(actions[..., place, None] - np.array(one["values"], np.float32)).argmin(-1)
        found.append(np.array(one["labels"] or one["values"])[nearest])
    if len({column.dtype.kind for column in found}) > 1:
        found = [column.astype(object) for column in found]
    chosen = np.stack(found, axis=-1)
    return chosen.astype(np.float32) if chosen.dtype.kind == "f" else chosen


def as_numbers(values: object, what: str, choices: Sequence[Choice]) -> NDArray[np.float32]:
    """Numbers [..., A] of choices as they were logged; another value is an error."""
    given = objects(values, what)
    if given.ndim == 0 or given.shape[-1] != len(choices):
        raise OmrlError(f"{what} must have shape [..., {len(choices)}], not {list(given.shape)}.")
    numbers = np.empty(given.shape, np.float32)
    for place, one in enumerate(choices):
        known: dict[str | float | None, float] = dict(zip(one["labels"] or (), one["values"], strict=False))
        known |= {float(np.float32(value)): value for value in one["values"]}
        for row in np.ndindex(given.shape[:-1]):
            value = given[(*row, place)]
            try:
                numbers[(*row, place)] = known[_key(value)]
            except (KeyError, OverflowError) as error:
                shown = ", ".join(map(str, one["labels"] or [f"{v:g}" for v in one["values"]]))
                raise OmrlError(f"{what} cannot be {value!r}; it is one of {shown}.") from error
    return numbers


def _key(value: Any) -> str | float | None:
    """What a choice is known by; nothing where numpy alone would take it for a number."""
    if isinstance(value, str):
        return value
    return float(np.float32(value)) if is_number(value) else None
