"""A run's config.json: all that decides its result, typed, with a schema version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from typing_extensions import TypedDict

from omrl.errors import OmrlError
from omrl.runs.choices import Choice
from omrl.runs.names import Columns
from omrl.schema import AtLeastOne, Few, Floats, Seed, Several, Size, Words, read, settings
from omrl.storage.files import read_json

CONFIG = "config.json"
SCHEMA = 3
# Hyperparameters whose names say more since schema 3.
RENAMED = {"half": "bfloat16", "g_lr": "regulariser_lr", "g_steps": "regulariser_steps"}


class OnCPU(TypedDict):
    """How a run computes on a CPU."""

    threads: Several
    mode: Literal["eager", "compiled"]


class Batches(TypedDict):
    """What an update reads: the fields of a BatchSpec."""

    context_sets: Few
    consecutive: bool
    next_actions: bool
    dense_rewards: bool
    other_tasks: bool


# What runs drew for every algorithm before each said what it reads (schema 1): they go on with it.
FIRST_BATCHES: Batches = {
    "context_sets": 2,
    "consecutive": False,
    "next_actions": True,
    "dense_rewards": True,
    "other_tasks": False,
}


@settings
class RunConfig:
    """What a run is."""

    algorithm: str
    """Its short name, or module:Class."""
    preset: str | None
    """Where its hyperparameters began."""
    hyperparameters: dict[str, Any]
    """All of them."""
    data: str
    """The meta-dataset's folder."""
    family: str | None
    """The data's family, if it is of one."""
    observation_dim: Size
    action_dim: Size
    action_low: Floats
    action_high: Floats
    level: str
    """Quality level of the training data."""
    max_rows: AtLeastOne
    """Rows of each task that are used at most."""
    seeds: Size
    """How many learners."""
    seed: Seed
    """The first one's seed; the others follow."""
    steps: AtLeastOne
    """Updates of each learner."""
    stream: bool = False
    """Whether rows are read from disk while it trains."""
    cpu: OnCPU | None = None
    """How it computes on a CPU, where it does."""
    batch: Batches | None = None
    """What an update reads: the fields of a BatchSpec."""
    columns: Columns | None = None
    """What the numbers of observations and actions are called, and their ranges, where the data says it."""
    choices: list[Choice] | None = None
    """Where actions are choices: what each of their numbers may be."""
    tasks: Words | None = None
    """Names of the training tasks; older runs did not keep them."""
    schema: int = SCHEMA
    """Version of these fields."""

    def __post_init__(self) -> None:
        for name in ("action_low", "action_high"):
            if len(getattr(self, name)) != self.action_dim:
                raise OmrlError(f"{name} has {len(getattr(self, name))} numbers, and action_dim is {self.action_dim}.")
        for dim, (low, high) in enumerate(zip(self.action_low, self.action_high, strict=True)):
            if low >= high:
                raise OmrlError(f"action_low {low} is not below action_high {high} in dimension {dim}.")
        if self.columns is not None:
            named = [len(self.columns["observations"]), len(self.columns["actions"])]
            if named != [self.observation_dim, self.action_dim]:
                raise OmrlError(f"columns names {named} numbers of {[self.observation_dim, self.action_dim]}.")
        if self.choices is not None and len(self.choices) != self.action_dim:
            raise OmrlError(f"choices has {len(self.choices)} numbers, and action_dim is {self.action_dim}.")

    @classmethod
    def open(cls, path: Path) -> RunConfig:
        """From a file, of this version or an earlier one."""
        return read(cls, of_this_version(read_json(path), path), path)

    def all_seeds(self) -> range:
        """The seed of every learner."""
        return range(self.seed, self.seed + self.seeds)

    def differences(self, other: RunConfig, defaults: Mapping[str, object]) -> str:
        """What another config says differently, in words; nothing where both are of the same run.

        Hyperparameters that one of them does not know have the value of `defaults`. How a CPU computes is no part of
        what a run is, which may go on elsewhere; nor are names for its hyperparameters, columns and tasks.
        """
        own, others = (
            replace(
                one, cpu=None, preset=None, columns=None, tasks=None, hyperparameters=_plain({**defaults, **values})
            )
            for one, values in ((self, self.hyperparameters), (other, other.hyperparameters))
        )
        return _differences(asdict(own), asdict(others))


def of_this_version(values: Mapping[str, object], path: Path) -> dict[str, object]:
    """What a config.json of this version or an earlier one says, with today's names."""
    schema = values.get("schema", 1)
    if schema not in range(1, SCHEMA + 1):
        raise OmrlError(f"{path} has schema {schema!r}, of a newer omrl perhaps: this one reads 1 to {SCHEMA}.")
    found = dict(values)
    if schema == 1:
        found = {"batch": {**FIRST_BATCHES}, **found, "level": found.get("level") or "mixed"}
    if isinstance(own := found.get("hyperparameters"), Mapping) and schema != SCHEMA:
        found["hyperparameters"] = {RENAMED.get(name, name): value for name, value in own.items()}
    return {**found, "schema": SCHEMA}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON has it."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    words = []
    for key in sorted({*there, *here}):
        left, right = there.get(key, "missing"), here.get(key, "missing")
        if isinstance(left, dict) and isinstance(right, dict):
            words += [_differences(left, right)] if left != right else []
        elif left != right:
            words.append(f"{key} is {left} there and {right} here")
    return ", ".join(words)
