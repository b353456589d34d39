"""The manifest of a meta-dataset: a small typed model of manifest.json, checked key by key when it is read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from omrl.errors import OmrlError
from omrl.storage.files import parse_json

SCHEMA = 2
# Version 1 said less of a checkpoint.
SINCE_2: dict[str, Any] = {"level": None, "rewarded": None, "action_std": None}
LEVELS = ("random", "medium", "expert", "late", "mixed")
MANIFEST = "manifest.json"

Varies = Literal["reward", "dynamics", "both"]

T = TypeVar("T")


@dataclass(frozen=True)
class Returns:
    """Statistics of the episode returns of one task."""

    mean: float
    min: float
    max: float
    std: float


@dataclass(frozen=True)
class Checkpoint:
    """The rows that one checkpoint of a task's behaviour policy logged."""

    policy_step: int
    rows: int
    episodes: int
    mean_return: float
    rewarded: float | None
    """Share of rows whose reward is not zero; None in data made before it was recorded."""
    level: str | None
    """The quality level it was made to be, where somebody said so."""
    action_std: float | None
    """Standard deviation of its actions before tanh, where the policy is known: how broad the data is."""


@dataclass(frozen=True)
class Reference:
    """Returns that a score is measured against, where they are known."""

    random: float | None = None
    expert: float | None = None


@dataclass(frozen=True)
class BehaviourPolicy:
    """What is known of a policy that logged rows."""

    level: str | None = None
    action_std: float | None = None


@dataclass(frozen=True)
class Told:
    """What a task's rows do not say themselves: who knows it tells the writer."""

    reference: Reference = Reference()
    policies: Mapping[int, BehaviourPolicy] = dataclasses.field(default_factory=dict)
    """By policy_step."""


@dataclass(frozen=True)
class TaskEntry:
    """One task and its file."""

    name: str
    params: dict[str, Any]
    file: str
    rows: int
    episodes: int
    bytes: int
    sha256: str
    returns: Returns
    checkpoints: tuple[Checkpoint, ...]
    reference: Reference

    @property
    def levels(self) -> dict[str, Checkpoint]:
        """The checkpoint behind each quality level of this task; `mixed` is all rows and needs none.

        Where nobody named levels, untrained rows are random, the last are expert, and the nearest half-way medium.
        """
        named = {checkpoint.level: checkpoint for checkpoint in self.checkpoints if checkpoint.level}
        if named:
            return named
        steps = sorted(self.checkpoints, key=lambda checkpoint: checkpoint.policy_step)
        levels: dict[str, Checkpoint] = {}
        if steps and steps[0].policy_step == 0:
            levels["random"] = steps[0]
        if steps and steps[-1].policy_step > 0:
            levels["expert"] = steps[-1]
        if len(levels) == 2:
            half_way = (steps[0].mean_return + steps[-1].mean_return) / 2
            between = steps[1:-1] or steps
            levels["medium"] = min(between, key=lambda checkpoint: abs(checkpoint.mean_return - half_way))
        return levels

    @property
    def told(self) -> Told:
        """What the writer was told of this task."""
        return Told(self.reference, {c.policy_step: BehaviourPolicy(c.level, c.action_std) for c in self.checkpoints})


@dataclass(frozen=True)
class Split:
    """Names of the training and the test tasks; a task may be in both or in neither."""

    train: tuple[str, ...]
    test: tuple[str, ...]


@dataclass(frozen=True)
class LoggedColumn:
    """One number of an observation, an action or the reward: what it is called, and what was logged of it."""

    name: str
    unit: str | None
    category: str | None
    """The word for which this number is 1, where a column of words became one number for each of them."""
    low: float
    """The smallest and the largest value of the log, also of rows that were not taken."""
    high: float


@dataclass(frozen=True)
class LoggedColumns:
    """The columns behind the arrays, one for each of their numbers."""

    observations: tuple[LoggedColumn, ...]
    actions: tuple[LoggedColumn, ...]
    rewards: LoggedColumn


@dataclass(frozen=True)
class Choices:
    """What a number of a discrete action may be."""

    values: tuple[float, ...]
    """In ascending order."""
    labels: tuple[str, ...] | None
    """The words that they stand for, where the log had words."""


# A key that older datasets do not have, and that is left out where there is nothing to say.
_OPTIONAL = {"optional": True}


@dataclass(frozen=True)
class Header:
    """What all tasks of a meta-dataset share."""

    schema: int
    family: str | None
    observation_dim: int
    action_dim: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    varies: Varies
    horizon: int | None
    split: Split
    source: dict[str, Any]
    columns: LoggedColumns | None = dataclasses.field(default=None, kw_only=True, metadata=_OPTIONAL)
    """Where the data came from a table: its columns."""
    discrete_actions: tuple[Choices, ...] | None = dataclasses.field(default=None, kw_only=True, metadata=_OPTIONAL)
    """Where actions are choices and not amounts: the choices of each of their numbers."""


@dataclass(frozen=True)
class Manifest(Header):
    """The whole description of a meta-dataset; `to_json` and `from_json` are exact inverses."""

    tasks: tuple[TaskEntry, ...]

    def to_json(self) -> str:
        """The text of manifest.json, with a checksum over its content so that damage to it is noticed too."""
        content = as_object(self)
        return json.dumps({**content, "checksum": _checksum(content)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> Manifest:
        """Parse and check; `where` names the file in error messages."""
        content = parse_object(text, where)
        schema = content.get("schema")
        if schema not in (1, SCHEMA) or isinstance(schema, bool):
            raise OmrlError(f"{where}: schema version {schema!r} is unknown; this omrl reads versions 1 and {SCHEMA}")
        checksum = content.pop("checksum", None)
        manifest = from_plain(cls, content if schema == SCHEMA else _from_version_1(content), where)
        check_header(manifest, [entry.name for entry in manifest.tasks], where)
        for entry in manifest.tasks:
            _check_entry(entry, where)
        if len({entry.file for entry in manifest.tasks}) != len(manifest.tasks):
            raise OmrlError(f"{where}: two tasks name the same file")
        if checksum != _checksum(content):
            raise OmrlError(f"{where}: its content does not match its checksum, it was changed after it was written")
        return manifest


def _from_version_1(content: dict[str, Any]) -> dict[str, Any]:
    """The same content in this version's words; what is no manifest stays as it is and is refused by its own rule."""
    tasks = content.get("tasks")
    if not isinstance(tasks, list):
        return content
    return {**content, "tasks": [entry_from_version_1(entry) for entry in tasks]}


def entry_from_version_1(entry: object) -> object:
    """A task's entry with what version 1 did not say of checkpoints; one of this version stays as it is."""
    if not isinstance(entry, dict) or not isinstance(entry.get("checkpoints"), list):
        return entry
    checkpoints = [{**SINCE_2, **c} if isinstance(c, dict) else c for c in entry["checkpoints"]]
    return {**entry, "checkpoints": checkpoints}


def make_header(
    where: str,
    names: Sequence[str],
    *,
    family: str | None,
    observation_dim: int,
    action_dim: int,
    action_low: ArrayLike,
    action_high: ArrayLike,
    varies: str,
    horizon: int | None,
    split: Mapping[str, Sequence[str]],
    source: Mapping[str, object] | None,
    columns: Mapping[str, object] | None = None,
    discrete_actions: Sequence[Mapping[str, object]] | None = None,
) -> Header:
    """A checked header from a program's values; one action bound stands for all dimensions."""
    content = {
        "schema": SCHEMA,
        "family": family,
        "observation_dim": observation_dim,
        "action_dim": action_dim,
        "action_low": _bounds(action_low, action_dim, f"{where}: action_low"),
        "action_high": _bounds(action_high, action_dim, f"{where}: action_high"),
        "varies": varies,
        "horizon": horizon,
        "split": {part: list(members) for part, members in split.items()},
        "source": json_copy(dict(source or {}), f"{where}: source"),
        "columns": columns,
        "discrete_actions": None if discrete_actions is None else [dict(choices) for choices in discrete_actions],
    }
    header = from_plain(Header, content, where)
    check_header(header, names, where)
    return header


def header_settings(header: Header) -> dict[str, object]:
    """A header's values as `make_header` and the writer take them."""
    content = as_object(header)
    names = [field.name for field in dataclasses.fields(Header) if field.name != "schema"]
    return {name: content[name] for name in names if name in content}


def _bounds(bounds: ArrayLike, action_dim: int, what: str) -> list[float]:
    try:
        array = np.asarray(bounds, np.float64)
    except (TypeError, ValueError) as error:
        raise OmrlError(f"{what} must be one number or one for each action dimension") from error
    return [float(bound) for bound in (np.full(action_dim, array) if array.ndim == 0 else array.ravel())]


def check_header(header: Header, names: Sequence[str], where: str) -> None:
    """Rules that go beyond types: dimensions, bounds, task names, split."""
    if not names:
        raise OmrlError(f"{where}: there are no tasks")
    if header.observation_dim < 1 or header.action_dim < 1:
        raise OmrlError(f"{where}: observation_dim and action_dim must be at least 1")
    for key, bounds in (("action_low", header.action_low), ("action_high", header.action_high)):
        if len(bounds) != header.action_dim:
            raise OmrlError(f"{where}: {key} has {len(bounds)} numbers for {header.action_dim} action dimensions")
    for dim, (low, high) in enumerate(zip(header.action_low, header.action_high, strict=True)):
        if not low < high:
            raise OmrlError(f"{where}: action_low {low} is not below action_high {high} in dimension {dim}")
    if header.columns is not None:
        _check_columns(header.columns, header, where)
    if header.discrete_actions is not None:
        _check_choices(header.discrete_actions, header, where)
    if header.horizon is not None and header.horizon < 1:
        raise OmrlError(f"{where}: horizon {header.horizon} must be at least 1 or null")
    for name in names:
        if not name or not name.isprintable():
            raise OmrlError(f"{where}: {name!r} cannot be a task name, it must be printable and not empty")
    times = Counter(names)
    if times.total() > len(times):
        raise OmrlError(f"{where}: task {times.most_common(1)[0][0]!r} is there twice")
    for part, members in (("train", header.split.train), ("test", header.split.test)):
        for name, count in Counter(members).items():
            if name not in times:
                raise OmrlError(f"{where}: split.{part} names task {name!r}, which is missing")
            if count > 1:
                raise OmrlError(f"{where}: split.{part} names task {name!r} twice")


def _check_columns(columns: LoggedColumns, header: Header, where: str) -> None:
    for part, dims in (("observations", header.observation_dim), ("actions", header.action_dim)):
        named: tuple[LoggedColumn, ...] = getattr(columns, part)
        if len(named) != dims:
            raise OmrlError(f"{where}: columns.{part} describes {len(named)} numbers, but there are {dims}")
        times = Counter((column.name, column.category) for column in named)
        if times.total() > len(times):
            raise OmrlError(f"{where}: columns.{part} names {times.most_common(1)[0][0][0]!r} twice")
    for column in (*columns.observations, *columns.actions, columns.rewards):
        if not column.name or not column.name.isprintable():
            raise OmrlError(f"{where}: {column.name!r} cannot be a column's name, it must be printable and not empty")
        if column.low > column.high:
            raise OmrlError(f"{where}: column {column.name!r} goes from {column.low:g} to {column.high:g}")


def _check_choices(every: Sequence[Choices], header: Header, where: str) -> None:
    if len(every) != header.action_dim:
        dims = header.action_dim
        raise OmrlError(f"{where}: discrete_actions describes {len(every)} numbers of an action that has {dims}")
    for choices, low, high in zip(every, header.action_low, header.action_high, strict=True):
        values = choices.values
        if len(values) < 2 or any(a >= b for a, b in pairwise(values)):
            raise OmrlError(f"{where}: the values of discrete actions must be two or more, in ascending order")
        if values[0] < low or values[-1] > high:
            raise OmrlError(f"{where}: the discrete actions {values[0]:g} to {values[-1]:g} leave their bounds")
        if choices.labels is not None and len({*choices.labels}) != len(values):
            raise OmrlError(f"{where}: discrete_actions must have a label of its own for each value")


def _check_entry(entry: TaskEntry, where: str) -> None:
    # Only plain names: whatever a manifest says, nothing outside its folder is ever read.
    if PurePosixPath(entry.file).name != entry.file or entry.file in ("", ".", "..") or "\\" in entry.file:
        raise OmrlError(f"{where}: the file {entry.file!r} of task {entry.name!r} leaves the folder")
    if entry.rows < 1 or entry.episodes < 1:
        raise OmrlError(f"{where}: task {entry.name!r} is empty")
    steps = [checkpoint.policy_step for checkpoint in entry.checkpoints]
    if len(set(steps)) != len(steps) or (steps and sum(c.rows for c in entry.checkpoints) != entry.rows):
        raise OmrlError(f"{where}: the checkpoints of task {entry.name!r} do not add up to its {entry.rows} rows")
    levels = [checkpoint.level for checkpoint in entry.checkpoints if checkpoint.level is not None]
    for level in levels:
        if level not in LEVELS[:-1]:
            raise OmrlError(f"{where}: {level!r} of task {entry.name!r} is no level of a checkpoint")
    if len(set(levels)) < len(levels):
        raise OmrlError(f"{where}: two checkpoints of task {entry.name!r} are the same level")


def parse_object(text: str | bytes, where: str) -> dict[str, object]:
    """Read one JSON object; NaN and infinities, which JSON does not know, are refused."""
    try:
        content = parse_json(text, finite=True)
    except (ValueError, RecursionError) as error:
        raise OmrlError(f"{where}: it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise OmrlError(f"{where}: it is not a JSON object")
    return content


def json_copy(value: T, where: str) -> T:
    """A deep copy as JSON would give it back (tuples become lists); an error if JSON cannot hold it."""
    try:
        copied: T = json.loads(json.dumps(value, allow_nan=False))
        return copied
    except (TypeError, ValueError, RecursionError) as error:
        raise OmrlError(f"{where} cannot be written as JSON: {error}") from error


def as_object(value: object) -> dict[str, object]:
    """A dataclass as JSON has it."""
    found = as_plain(value)
    assert isinstance(found, dict)
    return found


def as_plain(value: object) -> object:
    """Dataclasses and tuples as dicts and lists."""
    if dataclasses.is_dataclass(value):
        parts = {field: getattr(value, field.name) for field in dataclasses.fields(value)}
        said = {field: part for field, part in parts.items() if part is not None or not field.metadata.get("optional")}
        return {field.name: as_plain(part) for field, part in said.items()}
    if isinstance(value, tuple):
        return [as_plain(item) for item in value]
    return value


def from_plain(kind: type[T], value: object, where: str, key: str = "") -> T:
    """The inverse of `as_plain`: every key must be there (but optional ones), none unknown, every type must fit."""
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise OmrlError(f"{where}: key {key!r} must be an object, not {_shown(value)}")
        prefix = f"{key}." if key else ""
        hints = _hints(kind)
        for name in value:
            if name not in hints:
                raise OmrlError(f"{where}: key {prefix + name!r} is unknown")
        optional = {field.name for field in dataclasses.fields(kind) if field.metadata.get("optional")}
        for name in hints:
            if name not in value and name not in optional:
                raise OmrlError(f"{where}: key {prefix + name!r} is missing")
        there = {name: hint for name, hint in hints.items() if name in value}
        return kind(**{name: from_plain(hint, value[name], where, prefix + name) for name, hint in there.items()})
    checked: T = _leaf(kind, value, where, key)
    return checked


def _leaf(kind: Any, value: Any, where: str, key: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(value, list):
        return tuple(from_plain(arguments[0], item, where, f"{key}[{i}]") for i, item in enumerate(value))
    if origin in (Union, types.UnionType):
        return None if value is None else from_plain(arguments[0], value, where, key)
    if origin is Literal and value in arguments:
        return value
    if origin is dict and isinstance(value, dict):
        return value
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    # `type() is`, because a JSON true must not pass for the number 1.
    if type(value) is kind and kind is not float:
        return value
    wanted = {tuple: "a list", dict: "an object", Literal: f"one of {', '.join(map(str, arguments))}"}.get(origin)
    wanted = wanted or {float: "a finite number", int: "a whole number", str: "a string"}[kind]
    raise OmrlError(f"{where}: key {key!r} must be {wanted}, not {_shown(value)}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
