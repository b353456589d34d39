"""What a study is: a file of experiments, typed and checked when it is read. Needs no torch.

The paper is such a file, `paper.toml` beside this one; anyone's own has the same form.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from omrl.algorithms import check_trusted, known_algorithms
from omrl.data.manifest import LEVELS
from omrl.errors import OmrlError, did_you_mean
from omrl.families import FAMILIES, get_family
from omrl.schema import AtLeastOne, Changes, NotNegative, Words, read, settings

Figure = Literal["return", "return-log", "q", "breadth", "embedding", "embedding-pca", "embedding-3d", "levels"]
Tabled = Literal["returns", "by-data", "embedding", "shift", "q"]
Metric = Literal["return", "esr", "identification", "q_growth", "action_error"]


@settings
class Data:
    """Data to train and test on: of a family, or a meta-dataset of one's own."""

    family: str | None = None
    split: str = "paper"
    action_std: NotNegative | None = None
    """Logged with this standard deviation of the actions before tanh, in place of the policies' own."""
    path: str | None = None
    """The folder of a meta-dataset; a relative one is looked for beside the study's file."""

    def __post_init__(self) -> None:
        if (self.family is None) == (self.path is None):
            raise OmrlError("Data is of a family or has a path: one of the two.")
        if self.family is not None:
            if self.family not in FAMILIES:
                raise OmrlError(f"There is no family {self.family!r}{did_you_mean(self.family, FAMILIES)}.")
            if self.split not in FAMILIES[self.family].splits:
                raise OmrlError(f"{self.family} has no split {self.split!r}.")

    @property
    def title(self) -> str:
        """The family, and what it is a part of where there are several; the folder's name of one's own."""
        if self.family is None:
            return Path(self.path or "").name
        family = get_family(self.family)
        split = family.splits[self.split]
        part = f", {len(split.train)}/{len(split.test)}" if len(family.splits) > 1 else ""
        return self.family + part + ("" if self.action_std is None else f", action std {self.action_std:g}")


@settings
class Row:
    """An algorithm with its hyperparameters; one line of a table, one curve of a figure."""

    label: str
    algorithm: str
    preset: str | None = None
    changes: Changes = field(default_factory=dict)
    level: str | None = None
    context_level: str | None = None
    steps: AtLeastOne | None = None
    """Updates, where they are not those of the preset."""
    published: dict[str, float] = field(default_factory=dict)


@settings
class Claim:
    """What is said of rows, and the comparison by which it is judged."""

    text: str
    metric: Metric
    better: Words
    worse: Words
    whose: Literal["paper", "ours"] = "paper"
    """Who says so: the paper, or we do, of rows and data that it does not have."""
    split: str | None = None
    """Of data with several splits, the one that it is about; all of them if left out."""
    on: Words = ()
    """The data that it is about, by title; all of it if left out."""

    @property
    def comparison(self) -> str:
        """In words."""
        where = f", {self.split} split" if self.split else ""
        where += f", {'; '.join(self.on)}" if self.on else ""
        return f"{self.metric}{where}: {' and '.join(self.better)} minus each of {'; '.join(self.worse)} > 0"


@settings
class Experiment:
    """A comparison of rows on data, such as a figure or table of the paper."""

    name: str
    title: str
    data: tuple[Data, ...]
    rows: tuple[Row, ...]
    paper: str = ""
    """Which figure or table of the paper it is."""
    figures: Annotated[tuple[Figure, ...], Field(strict=False)] = ()
    tables: Annotated[tuple[Tabled, ...], Field(strict=False)] = ("returns",)
    claims: tuple[Claim, ...] = ()
    seeds: AtLeastOne | None = None
    """Learners of each run at full scale, where it is not the study's number."""

    def __post_init__(self) -> None:
        labels = [row.label for row in self.rows]
        if len(set(labels)) < len(labels):
            raise OmrlError(f"{self.name} has a label twice.")
        names = known_algorithms()
        splits = [data.split for data in self.data]
        known: list[tuple[str, Sequence[str], Sequence[str]]] = [
            ("algorithm", [row.algorithm for row in self.rows if ":" not in row.algorithm], list(names)),
            ("split", [claim.split for claim in self.claims if claim.split], splits),
            ("data set", [title for claim in self.claims for title in claim.on], [data.title for data in self.data]),
            ("row", [label for claim in self.claims for label in (*claim.better, *claim.worse)], labels),
            ("level", [level for row in self.rows for level in (row.level, row.context_level) if level], LEVELS),
        ]
        for what, named, there in known:
            for name in named:
                if name not in there:
                    raise OmrlError(f"{self.name} names a {what} {name!r}, which does not exist.")

    @property
    def tells_tasks_apart(self) -> bool:
        """Whether it asks how well the training tasks are told apart."""
        return "embedding" in self.tables or any(claim.metric == "identification" for claim in self.claims)


@settings
class Scale:
    """How large the runs are; what is None comes from the preset or the family."""

    seeds: AtLeastOne
    note: str = ""
    """What readers must be told about the results."""
    tasks: int | None = None
    episodes: int | None = None
    steps: int | None = None
    log_every: int = 200
    eval_every: int | None = None
    """Updates between two looks at the return; a twentieth of the run if left out."""
    families: dict[str, str] = field(default_factory=dict)
    """Families that stand for others, by what varies."""


@dataclass(frozen=True)
class Study:
    """A file of experiments."""

    file: Path | None
    """None is the paper's, which comes with omrl."""
    experiments: Mapping[str, Experiment]
    scales: Mapping[str, Scale]
    around: Mapping[str, float]
    """Minutes that a run takes beside its updates, by scale."""

    def get(self, name: str) -> Experiment:
        """The experiment of that name."""
        if name not in self.experiments:
            hint = did_you_mean(name, self.experiments)
            raise OmrlError(f"There is no experiment {name!r}{hint}; there are {', '.join(self.experiments)}.")
        return self.experiments[name]

    def own_code(self) -> list[str]:
        """Algorithms that are not installed under a name: running the study would run their modules."""
        named = [row.algorithm for one in self.experiments.values() for row in one.rows if ":" in row.algorithm]
        return list(dict.fromkeys(named))

    def check_trusted(self, trust: Sequence[str]) -> None:
        """Refuse to run a stranger's code that nobody vouched for."""
        for name in self.own_code():
            check_trusted(name, trust, self.file)


def read_study(file: Path | None = None) -> Study:
    """A study's file; the paper's if none is named. What it does not say of scales is as in the paper's."""
    return _the_paper() if file is None else _read(file)


@cache
def _the_paper() -> Study:
    return _read(None)


def _read(file: Path | None) -> Study:
    where = file or "paper.toml"
    try:
        text = resources.files("omrl.studies").joinpath("paper.toml") if file is None else file
        table = tomllib.loads(text.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OmrlError(f"{where} cannot be read as TOML ({error}).") from error
    if unknown := sorted(table.keys() - {"experiment", "scale", "around"}):
        raise OmrlError(f"{where} has a table {unknown[0]!r}; a study has experiment, scale and around.")
    named = table.get("experiment")
    if not isinstance(named, dict) or not named or not all(isinstance(one, dict) for one in named.values()):
        raise OmrlError(f"{where} has no table [experiment.NAME]: it is not a study.")
    found = {name: _experiment(name, named, where) for name in named}
    if file is not None:
        found = {name: _placed(one, file.parent) for name, one in found.items()}
    scales = {name: read(Scale, _tabled(values, where), where) for name, values in table.get("scale", {}).items()}
    usual = read_study() if file is not None else None
    return Study(
        file,
        found,
        {**(usual.scales if usual else {}), **scales},
        {**(usual.around if usual else {}), **table.get("around", {})},
    )


def _experiment(name: str, named: Mapping[str, Any], where: object) -> Experiment:
    own = dict(named[name])
    if (like := own.pop("like", None)) is not None:
        if like not in named:
            raise OmrlError(f"{where}: {name} is like {like!r}, which does not exist.")
        own = {**{key: value for key, value in named[like].items() if key != "like"}, **own}
    for key, kind in (("data", Data), ("rows", Row), ("claims", Claim)):
        if not isinstance(parts := own.get(key, []), list):
            raise OmrlError(f"{where}: {name}.{key} must be a list of tables.")
        own[key] = tuple(read(kind, _tabled(part, where), f"{where}, {name}.{key}") for part in parts)
    return read(Experiment, {"name": name, **own}, f"{where}, {name}")


def _placed(experiment: Experiment, beside: Path) -> Experiment:
    """With data that lies beside the study's file found there."""
    found = (replace(one, path=str(beside / one.path)) if one.path else one for one in experiment.data)
    return replace(experiment, data=tuple(found))


def _tabled(values: Any, where: object) -> Mapping[str, Any]:
    if not isinstance(values, dict):
        raise OmrlError(f"{where} has {values!r} where a table belongs.")
    return values


def experiments() -> Mapping[str, Experiment]:
    """The paper's, by name."""
    return read_study().experiments


def get_experiment(name: str) -> Experiment:
    """Of the paper's."""
    return read_study().get(name)


def get_scale(name: str) -> Scale:
    """Of the paper's study."""
    return read_study().scales[name]
