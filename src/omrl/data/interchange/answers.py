"""What logs do not say of themselves: action bounds, what varies, the split. From flags, or asked for at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from omrl.data.commands import Import
from omrl.data.manifest import Header, make_header, parse_object
from omrl.errors import OmrlError
from omrl.families.family import Task

T = TypeVar("T")


def complete_header(
    args: Import,
    names: Sequence[str],
    observation_dim: int,
    action_dim: int,
    bounds: tuple[Sequence[float], Sequence[float]] | None = None,
    columns: Mapping[str, Any] | None = None,
    done: Mapping[str, Any] | None = None,
) -> Header:
    """The header of the dataset to write; `bounds` are those that the source itself knows.

    `done` is what was done to the log, to be remembered beside where it came from.
    """
    low, high = bounds or ((), ())
    low = (
        args.action_low or low or _ask("--action-low", "smallest possible action (one number or one per dim)", _floats)
    )
    high = args.action_high or high or _ask("--action-high", "largest possible action", _floats)
    varies: str = args.varies or _ask("--varies", "what varies between tasks (reward, dynamics, both)", str)
    return make_header(
        str(args.src),
        names,
        family=None,
        observation_dim=observation_dim,
        action_dim=action_dim,
        action_low=low if len(low) > 1 else low[0],
        action_high=high if len(high) > 1 else high[0],
        varies=varies.strip(),
        horizon=args.horizon,
        split=_split(args, names),
        source={"imported_from": args.src.name, "format": args.format, **(done or {})},
        columns=columns,
    )


def named_tasks(args: Import, names: Sequence[str], known: dict[str, Any] | None = None) -> list[Task]:
    """The tasks with the parameters of `--task-params`, or else those that the source knows."""
    params = dict(known or {})
    if args.task_params is not None:
        try:
            text = args.task_params.read_bytes()
        except OSError as error:
            raise OmrlError(f"{args.task_params} cannot be read: {error}") from error
        params = parse_object(text, str(args.task_params))
        for name, value in params.items():
            if name not in names:
                raise OmrlError(f"{args.task_params}: task {name!r} is missing from {args.src}")
            if not isinstance(value, dict):
                raise OmrlError(f"{args.task_params}: the parameters of task {name!r} must be an object")
    return [Task(name, params.get(name, {})) for name in names]


def _split(args: Import, names: Sequence[str]) -> dict[str, list[str]]:
    test = args.test_tasks
    fraction = args.test_fraction
    if test is not None and fraction is not None:
        raise OmrlError("give --test-tasks or --test-fraction, not both")
    if test is None and fraction is None:
        question = "share of the tasks to hold out for testing (0 to 1)"
        fraction = _ask("--test-tasks or --test-fraction", question, float)
    if fraction is not None:
        if not 0 <= fraction < 1:
            raise OmrlError(f"--test-fraction is {fraction} but must be at least 0 and below 1")
        if args.seed < 0:
            raise OmrlError(f"--seed is {args.seed} but must be 0 or more")
        drawn = np.random.default_rng(args.seed).permutation(len(names))[: round(fraction * len(names))]
        test = tuple(names[i] for i in np.sort(drawn))
    held_out = list(test or ())
    return {"train": [name for name in names if name not in held_out], "test": held_out}


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.replace(",", " ").split())


def _ask(flag: str, question: str, parse: Callable[[str], T]) -> T:
    if not sys.stdin.isatty():
        raise OmrlError(f"the data does not say the {question}; give {flag}")
    try:
        answer = parse(input(f"{question}: "))
    except (ValueError, EOFError) as error:
        raise OmrlError(f"that does not answer the {question}; give {flag}") from error
    if not answer and answer != 0:
        raise OmrlError(f"nothing was given for the {question}; give {flag}")
    return answer
