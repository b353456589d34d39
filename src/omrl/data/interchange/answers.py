"""What logs do not say of themselves: action bounds, what varies, the split. From flags, or asked for at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from omrl.commands.data import Import
from omrl.data.findings import FEW_VALUES
from omrl.data.interchange.survey import Survey
from omrl.data.manifest import Choices, Header, as_object, make_header, parse_object
from omrl.errors import OmrlError
from omrl.families import Task, get_family
from omrl.words import quantity

T = TypeVar("T")


def complete_header(
    args: Import,
    names: Sequence[str],
    observation_dim: int,
    action_dim: int,
    bounds: tuple[Sequence[float], Sequence[float]] | None = None,
    columns: Mapping[str, object] | None = None,
    done: Mapping[str, object] | None = None,
    choices: Sequence[Choices] | None = None,
) -> Header:
    """The header of the dataset to write; `bounds` are those that the source itself knows.

    `done` is what was done to the log, to be remembered beside where it came from.
    """
    family = None if args.family is None else get_family(args.family)
    if family is not None:
        for what, found, wanted in (
            ("an observation", observation_dim, family.obs_dim),
            ("an action", action_dim, family.act_dim),
        ):
            if found != wanted:
                raise OmrlError(
                    f"{args.src}: {what} has {quantity(found, 'number')}, one of {family.name} has {wanted}"
                )
        if args.varies not in (None, family.varies):
            raise OmrlError(f"in {family.name} the {family.varies} varies; leave out --varies {args.varies}")
        bounds = ([-1.0] * family.act_dim, [1.0] * family.act_dim)
    if choices is not None:
        bounds = ([c.values[0] for c in choices], [c.values[-1] for c in choices])
    low, high = bounds or ((), ())
    low = (
        args.action_low
        or low
        or _ask(args, "--action-low", "smallest possible action (one number or one per dim)", _floats)
    )
    high = args.action_high or high or _ask(args, "--action-high", "largest possible action", _floats)
    varies: str = (family.varies if family else args.varies) or _ask(
        args, "--varies", "what varies between tasks (reward, dynamics, both)", str
    )
    return make_header(
        str(args.src),
        names,
        family=args.family,
        observation_dim=observation_dim,
        action_dim=action_dim,
        action_low=low if len(low) > 1 else low[0],
        action_high=high if len(high) > 1 else high[0],
        varies=varies.strip(),
        horizon=args.horizon or (family.horizon if family else None),
        split=_split(args, names),
        source={"imported_from": args.src.name, "format": args.format, **(done or {})},
        columns=columns,
        discrete_actions=None if choices is None else [as_object(c) for c in choices],
    )


def chosen_actions(args: Import, columns: Sequence[str], survey: Survey) -> tuple[Choices, ...] | None:
    """The choices that actions are of, or None if they are amounts. Numbers may be either: somebody has to say."""
    found = {name: survey.values[name] for name in columns}
    single = {name: every[0] for name, every in found.items() if len(every) == 1}
    texts = {name: values for name, values in single.items() if values is not None and values.dtype.kind == "U"}
    # One word among numbers is more likely a mistake in the log than a choice.
    sure = args.action_kind == "discrete"
    words = [name for name, values in texts.items() if sure or not any(map(_is_number, values.tolist()))]
    if words and args.action_kind == "continuous":
        raise OmrlError(f"{args.src}: the action {words[0]} is words, which are no amounts; leave out --action-kind")
    dims = [(name, values) for name, every in found.items() for values in every]
    if args.action_kind is None and not words:
        few = [(name, values) for name, values in dims if values is not None and _look_chosen(values, survey.rows)]
        if len(few) < len(dims):
            return None
        listed = ", ".join(f"{name} takes {_shown(values)}" for name, values in few)
        if not sys.stdin.isatty():
            raise OmrlError(
                f"{args.src}: {listed}; say --action-kind continuous if numbers between them make sense, as of a dose, "
                "or --action-kind discrete if they are choices"
            )
        print(f"{listed}.")
        answer = _ask(
            args, "--action-kind", "kind of action (continuous: numbers between make sense; discrete)", str
        ).strip()
        if answer not in ("continuous", "discrete"):
            raise OmrlError(f"actions are continuous or discrete, not {answer!r}; give --action-kind")
        if answer == "continuous":
            return None
    elif args.action_kind != "discrete" and not words:
        return None
    choices = []
    for name, values in dims:
        if values is None or len(values) < 2:
            problem = "always the same" if values is not None else "of too many different values"
            raise OmrlError(f"{args.src}: the action {name} is {problem} to be a choice; say --action-kind continuous")
        if values.dtype.kind == "U":
            choices.append(Choices(tuple(map(float, range(len(values)))), tuple(values.tolist())))
        else:
            choices.append(Choices(tuple(map(float, values.astype(np.float32))), None))
    print("actions are discrete: " + ", ".join(f"{name} takes {_shown(values)}" for name, values in dims))
    return tuple(choices)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _look_chosen(values: NDArray[Any], rows: int) -> bool:
    """A few whole numbers, each of them many times."""
    whole = values.dtype.kind in "biu" or (values.dtype.kind == "f" and bool((values == np.floor(values)).all()))
    return whole and 2 <= len(values) <= FEW_VALUES and rows >= 10 * len(values)


def _shown(values: NDArray[Any] | None) -> str:
    if values is None:
        return "too many values"
    some = [str(value) if values.dtype.kind == "U" else f"{value:g}" for value in values.tolist()]
    listed = ", ".join(some if len(some) <= 8 else [*some[:3], "...", some[-1]])
    return f"{len(some)} values ({listed})"


def named_tasks(args: Import, names: Sequence[str], known: Mapping[str, object] | None = None) -> list[Task]:
    """The tasks with the parameters of `--task-params`, or else those that the source knows."""
    params: dict[str, Any] = dict(known or {})
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
    if args.family is None:
        return [Task(name, params.get(name, {})) for name in names]
    family = get_family(args.family)
    for name in names:
        lacking = [key for key in family.parameters if key not in params.get(name, {})]
        if lacking:
            raise OmrlError(
                f"{args.src}: nothing says what {lacking[0]!r} is in task {name!r}, and {family.name} cannot be "
                "simulated without; give it in the file of --task-params"
            )
    return [family.task(name, **params[name]) for name in names]


def _split(args: Import, names: Sequence[str]) -> dict[str, list[str]]:
    test = args.test_tasks
    fraction = args.test_fraction
    if test is not None and fraction is not None:
        raise OmrlError("give --test-tasks or --test-fraction, not both")
    if test is None and fraction is None:
        question = "share of the tasks to hold out for testing (0 to 1)"
        fraction = _ask(args, "--test-tasks or --test-fraction", question, float)
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


def _ask(args: Import, flag: str, question: str, parse: Callable[[str], T]) -> T:
    if not sys.stdin.isatty():
        raise OmrlError(f"{args.src} does not say the {question}; give {flag}")
    try:
        answer = parse(input(f"{question}: "))
    except (ValueError, EOFError) as error:
        raise OmrlError(f"that does not answer the {question}; give {flag}") from error
    if not answer and answer != 0:
        raise OmrlError(f"nothing was given for the {question}; give {flag}")
    return answer
