"""What an experiment is: a typed model of experiments.toml, checked when it is read. Needs no torch."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any

from omrl.algorithms import ALGORITHMS
from omrl.data.manifest import LEVELS
from omrl.errors import OmrlError, did_you_mean
from omrl.families import FAMILIES, get_family

FIGURES = ("return", "return-log", "q", "embedding", "embedding-pca", "embedding-3d", "levels")
TABLES = ("returns", "embedding", "shift", "q")
METRICS = ("return", "esr", "identification", "q_growth")
WHOSE = ("paper", "ours")


@dataclass(frozen=True)
class Data:
    """Data to train and test on."""

    family: str
    split: str = "paper"

    @property
    def title(self) -> str:
        """The family, and the numbers of training and test tasks where it has several splits."""
        family = get_family(self.family)
        split = family.splits[self.split]
        return self.family + (f", {len(split.train)}/{len(split.test)}" if len(family.splits) > 1 else "")


@dataclass(frozen=True)
class Row:
    """An algorithm with its hyperparameters; one line of a table, one curve of a figure."""

    label: str
    algorithm: str
    preset: str = "paper"
    changes: Mapping[str, Any] = field(default_factory=dict)
    level: str | None = None
    context_level: str | None = None
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """What is said of rows, and the comparison by which it is judged."""

    text: str
    metric: str
    better: tuple[str, ...]
    worse: tuple[str, ...]
    whose: str = "paper"
    """Who says so: the paper, or we do, of rows and data that it does not have."""
    split: str | None = None
    """Of data with several splits, the one that it is about; all of them if left out."""

    @property
    def comparison(self) -> str:
        """In words."""
        where = f", {self.split} split" if self.split else ""
        return f"{self.metric}{where}: {' and '.join(self.better)} minus each of {'; '.join(self.worse)} > 0"


@dataclass(frozen=True)
class Experiment:
    """A figure or table of the paper."""

    name: str
    paper: str
    title: str
    data: tuple[Data, ...]
    rows: tuple[Row, ...]
    figures: tuple[str, ...]
    tables: tuple[str, ...]
    claims: tuple[Claim, ...]

    def __post_init__(self) -> None:
        labels = [row.label for row in self.rows]
        known: list[tuple[str, Sequence[str], Sequence[str]]] = [
            ("family", [data.family for data in self.data], list(FAMILIES)),
            ("algorithm", [row.algorithm for row in self.rows], list(ALGORITHMS)),
            ("figure", self.figures, FIGURES),
            ("table", self.tables, TABLES),
            ("metric", [claim.metric for claim in self.claims], METRICS),
            ("claimant", [claim.whose for claim in self.claims], WHOSE),
            ("split", [claim.split for claim in self.claims if claim.split], [data.split for data in self.data]),
            ("row", [label for claim in self.claims for label in (*claim.better, *claim.worse)], labels),
            ("level", [level for row in self.rows for level in (row.level, row.context_level) if level], LEVELS),
        ]
        for what, named, there in known:
            for name in named:
                if name not in there:
                    raise OmrlError(f"experiments.toml: {self.name} names a {what} {name!r}, which does not exist.")
        for data in self.data:
            if data.split not in FAMILIES[data.family].splits:
                raise OmrlError(f"experiments.toml: {self.name}: {data.family} has no split {data.split!r}.")
        if len(set(labels)) < len(labels):
            raise OmrlError(f"experiments.toml: {self.name} has a label twice.")


@dataclass(frozen=True)
class Scale:
    """How large the runs are; what is None comes from the preset or the family."""

    seeds: int
    note: str = ""
    """What readers must be told about the results."""
    tasks: int | None = None
    episodes: int | None = None
    steps: int | None = None
    log_every: int = 200
    eval_every: int | None = None
    """Updates between two looks at the return; a twentieth of the run if left out."""
    families: Mapping[str, str] = field(default_factory=dict)
    """Families that stand for others, by what varies."""


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(resources.files("omrl").joinpath("experiments.toml").read_text())


def _made(kind: type, values: Mapping[str, Any], where: str) -> Any:
    unknown = sorted(values.keys() - {one.name for one in fields(kind)})
    if unknown:
        raise OmrlError(f"experiments.toml: {where} has no {', '.join(unknown)}.")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


@cache
def experiments() -> dict[str, Experiment]:
    """All experiments by name."""
    found = {}
    for name, own in _table()["experiment"].items():
        values = {**_table()["experiment"][own["like"]], **own} if "like" in own else dict(own)
        values.pop("like", None)
        parts: dict[str, list[Any]] = {
            key: [_made(kind, value, f"{name}.{key}") for value in values[key]]
            for key, kind in (("data", Data), ("rows", Row), ("claims", Claim))
        }
        found[name] = _made(Experiment, {"name": name, **values, **parts}, name)
    return found


def get_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in experiments():
        hint = did_you_mean(name, experiments())
        raise OmrlError(f"There is no experiment {name!r}{hint}; there are {', '.join(experiments())}.")
    return experiments()[name]


def get_scale(name: str) -> Scale:
    """The scale of that name."""
    scale: Scale = _made(Scale, _table()["scale"][name], f"scale.{name}")
    return scale


def minutes_around(scale: str) -> float:
    """What a run takes beside its updates."""
    found: float = _table()["around"][scale]
    return found
