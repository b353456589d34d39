"""Trains the agents of a family in packs: each is a population of its own, a unit of work that any machine can do.

    WORK/pack-000/    what going on needs, and in the end the actors of every checkpoint and the returns of its agents

An agent's numbers depend on those beside it, so the size of a pack is a part of what the data is, and the same packs
give the same agents wherever they are trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from omrl.behaviour.agents import AGAIN, shares_weights, snapshot, train
from omrl.behaviour.config import AgentsConfig, SACConfig
from omrl.behaviour.policies import Array
from omrl.commands.collect import Collect
from omrl.families import Task, TaskFamily, get_family
from omrl.runs.checkpoints import load_checkpoint
from omrl.storage.files import write_tensors
from omrl.units.board import Board
from omrl.units.local import Inline
from omrl.units.place import executor, given
from omrl.units.schedule import raise_failures, run_all
from omrl.units.unit import Unit, Work

RETURNS = "returns.safetensors"


def train_packs(
    args: Collect, family: TaskFamily, tasks: Sequence[Task], config: AgentsConfig, pack: int, work: Path
) -> tuple[Mapping[int, Mapping[str, Array]], Array]:
    """What `agents.train` returns, of packs that were trained apart."""
    firsts = range(0, len(tasks), pack)
    folders = [work / f"pack-{number:03d}" for number in range(len(firsts))]
    with executor(args.on, args.at_once) as doing:
        means = given(doing, args.on, args.at_once, args.threads, args.device)
        units = [
            Unit(folder.name, "agents", f"{family.name}, agents {first} to {min(first + pack, len(tasks)) - 1}")
            for folder, first in zip(folders, firsts, strict=True)
        ]
        units = [Unit(unit.name, unit.kind, unit.label, (), means.threads, means.gpu) for unit in units]

        def prepare(unit: Unit) -> Work | None:
            place = int(unit.name.removeprefix("pack-"))
            folder, first = folders[place], firsts[place]
            if (folder / RETURNS).is_file():
                return None
            told = {
                "family": family.name,
                "tasks": [task.name for task in tasks[first : first + pack]],
                "first": first,
                "config": asdict(config),
                "device": means.device,
                "folder": str(folder),
            }
            log = str(folder.with_suffix(".log"))
            return Work("agents", told, (), (str(folder), log), log, streams=True)

        with Board(f"agents of {family.name}", units, alone=isinstance(doing, Inline)).shown() as board:
            ended = run_all(units, prepare, doing, board)
    raise_failures(units, ended, "A smaller --pack takes less.")
    return _joined(folders, firsts, config)


def _joined(folders: Sequence[Path], firsts: Sequence[int], config: AgentsConfig) -> tuple[dict[int, Any], Array]:
    checkpoints = {}
    for step in config.checkpoints:
        parts = [load_checkpoint(snapshot(folder, step), AGAIN)[0] for folder in folders]
        # Before they have learnt anything, all are the same one.
        parts = parts[:1] if shares_weights(config, step) else parts
        checkpoints[step] = {name: np.concatenate([part[name].numpy() for part in parts]) for name in parts[0]}
    returns = [
        load_file(folder / RETURNS)["returns"] + [first, 0, 0] for folder, first in zip(folders, firsts, strict=True)
    ]
    return checkpoints, np.concatenate(returns)


def agents_unit(
    family: str, tasks: Sequence[str], first: int, config: Mapping[str, object], device: str, folder: str
) -> None:
    """Train a pack of agents, the first of which has this place among all of them."""
    found, place = get_family(family), Path(folder)
    own = [task for task in found.tasks if task.name in tasks]
    told = _tuples(config)
    place.mkdir(parents=True, exist_ok=True)
    agents = AgentsConfig(**{**told, "sac": SACConfig(**_tuples(told["sac"]))})
    _, returns = train(found, own, agents, device, place, first)
    write_tensors(place / RETURNS, {"returns": returns})


def _tuples(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
