"""How a family's agents are trained, from the command line: its preset, and what was said otherwise. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from omrl.behaviour.config import AgentsConfig, preset
from omrl.commands.collect import Collect
from omrl.families import get_family


def parse(arguments: Sequence[str]) -> tuple[Collect, AgentsConfig]:
    """The command line of `omrl collect FAMILY`: what to make, and how the agents are trained."""
    family = get_family(arguments[0])
    options: dict[str, Any] = {"prog": "omrl collect", "config": (OmitArgPrefixes, FlagCreatePairsOff)}

    @dataclass(frozen=True)
    class Schedule:
        schedule: str = "default"

    both = make_dataclass("Options", [("collect", Collect), ("agents", AgentsConfig)], frozen=True)
    chosen, _ = tyro.cli(Schedule, args=arguments[1:], return_unknown_args=True, add_help=False, **options)
    start = preset(family, chosen.schedule).agents
    found = tyro.cli(both, args=arguments, default=both(Collect(family.name, tyro.MISSING), start), **options)
    words = {word.split("=")[0].replace("_", "-") for word in arguments}
    given = {
        f.name: value
        for f in fields(AgentsConfig)
        if (value := getattr(found.agents, f.name)) != getattr(start, f.name)
        or f"--{f.name.replace('_', '-')}" in words
    }
    return found.collect, changed(start, given)


def changed(start: AgentsConfig, said: Mapping[str, object]) -> AgentsConfig:
    """The preset's configuration with changes; other steps keep its proportions where nothing else is said."""
    changes: dict[str, Any] = dict(said)
    if "checkpoints" in changes:
        changes = {**changes, "checkpoints": tuple(sorted({0, *changes["checkpoints"]}))}
    elif "steps" in changes:
        envs = changes.get("envs_per_task", start.envs_per_task)
        checkpoints = tuple(scaled(step, start.steps, changes["steps"], envs) for step in start.checkpoints)
        changes = {**changes, "checkpoints": tuple(sorted(set(checkpoints)))}
    if "steps" in changes and "random_steps" not in changes:
        changes = {**changes, "random_steps": min(start.random_steps, changes["steps"] // 4)}
    return replace(start, **changes)


def scaled(step: int, usual_steps: int, own_steps: int, envs: int) -> int:
    """A step of training at the same share of a shorter or longer one, on whole rounds."""
    return round(step * own_steps / usual_steps / envs) * envs
