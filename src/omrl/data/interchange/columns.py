"""Which column of a table is what: by flag, else by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from omrl.commands.data import Import
from omrl.errors import OmrlError

# The names under which each array is looked for, D4RL's among them. Plain "done" is not: it may mean either flag.
GUESSES = {
    "task": ("task", "task_id", "task_name", "tasks"),
    "episode": ("episode", "episodes", "episode_id", "episode_index", "trajectory", "trajectory_id", "traj", "traj_id"),
    "step": ("step", "steps", "timestep", "t"),
    "time": (),  # a column of that name may as well be an observation
    "observations": ("observations", "observation", "obs", "states", "state"),
    "actions": ("actions", "action", "act"),
    "rewards": ("rewards", "reward", "rew"),
    "next_observations": ("next_observations", "next_observation", "next_obs", "next_states", "next_state"),
    "terminations": ("terminations", "termination", "terminated", "terminals", "terminal"),
    "truncations": ("truncations", "truncation", "truncated", "timeouts", "timeout"),
    "policy_step": ("policy_step",),
    "rewards_dense": ("rewards_dense",),
}
WIDE = ("observations", "actions", "next_observations")  # may be spread over columns obs_0, obs_1, ...


@dataclass(frozen=True)
class Columns:
    """The column or columns behind each array; empty where there is none."""

    task: tuple[str, ...] = ()
    episode: tuple[str, ...] = ()
    step: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    observations: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    rewards: tuple[str, ...] = ()
    next_observations: tuple[str, ...] = ()
    terminations: tuple[str, ...] = ()
    truncations: tuple[str, ...] = ()
    policy_step: tuple[str, ...] = ()
    rewards_dense: tuple[str, ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """All columns to read, once each."""
        return tuple(dict.fromkeys(name for part in fields(self) for name in getattr(self, part.name)))


def find_columns(args: Import, available: Sequence[str], path: Path, needs_task: bool) -> Columns:
    """Columns by flag, else by guess; an error that names the flag where one is missing."""
    found: dict[str, tuple[str, ...]] = {}
    for part in GUESSES:
        flag = getattr(args, part)
        given = flag if isinstance(flag, tuple) else (flag,) if flag is not None else ()
        if part == "terminations" and given == ("none",):
            given = ()
        elif not given:
            given = _guess(part, available)
        for name in given:
            if name not in available:
                raise OmrlError(f"{path} has no column {name!r}; its columns are {', '.join(available)}")
        found[part] = given
    if not needs_task:
        found["task"] = ()
    elif not found["task"]:
        raise OmrlError(f"{path} has no task column; name it with --task, or give a folder with one file per task")
    for part in ("observations", "actions", "rewards"):
        if not found[part]:
            raise OmrlError(f"{path} has no column for the {part}; name it with --{part}")
    if not found["terminations"] and args.terminations != "none":
        raise OmrlError(
            f"{path} has no termination flags; name their column with --terminations COLUMN, "
            "or say --terminations none if episodes never end by themselves"
        )
    columns = Columns(**found)
    if args.episode_length is not None:
        if args.episode_length < 1:
            raise OmrlError(f"--episode-length is {args.episode_length} but must be at least 1")
        if columns.episode or columns.time:
            raise OmrlError(
                f"--episode-length is for rows without an episode or a time, but {path} has "
                f"{(*columns.episode, *columns.time)[0]!r}"
            )
    elif not (columns.episode or columns.step or columns.time or args.in_order or columns.truncations == ("timeouts",)):
        candidates = [name for name in available if re.search("time|date|stamp|clock|_at$|_on$", name.lower())]
        hint = f" (perhaps {candidates[0]})" if candidates else ""
        raise OmrlError(
            f"{path} does not say in which order its rows are: give --time COLUMN{hint}, --episode COLUMN or --step "
            "COLUMN, or say --in-order if they lie as they were logged"
        )
    return columns


def _guess(part: str, available: Sequence[str]) -> tuple[str, ...]:
    by_lower = {name.lower(): name for name in reversed(available)}
    for guess in GUESSES[part]:
        if guess in by_lower:
            return (by_lower[guess],)
    if part in WIDE:
        for guess in GUESSES[part]:
            numbered = {}
            for name in available:
                if match := re.fullmatch(rf"{guess}[_.\[]?(\d+)\]?", name.lower()):
                    numbered[int(match[1])] = name
            if numbered:
                return tuple(numbered[i] for i in sorted(numbered))
    return ()


def describe(columns: Columns) -> str:
    """The mapping, a line for each array."""
    absent = {
        "episode": f"an episode ends {'at a gap or ' if columns.time else ''}where a flag is set",
        "next_observations": "the next row's observation",
        "terminations": "none: episodes never end by themselves",
        "truncations": "where an episode ends without termination",
    }
    lines = []
    for part in fields(columns):
        names: tuple[str, ...] = getattr(columns, part.name)
        if len(names) > 3:
            lines.append(f"  {part.name:17} <- {names[0]} ... {names[-1]} ({len(names)} columns)")
        elif names:
            lines.append(f"  {part.name:17} <- {', '.join(names)}")
        elif part.name in absent:
            lines.append(f"  {part.name:17} <- ({absent[part.name]})")
    return "\n".join(lines)
