"""Tables of docs/scale.md."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pages.markdown import table


def ray_units(figures: Any) -> str:
    """What scheduling costs (benchmarks/ray_units.py)."""
    shares, seconds = figures["share_of_ideal"], figures["seconds"]
    own = (f"{figures['units']:,}", f"{1000 * figures['seconds_each']:.0f}", str(figures["nodes"]))
    found = (f"{figures['ideal_seconds']:.1f}", ", ".join(f"{one:.1f}" for one in seconds))
    share = ", ".join(f"{one:.0%}" for one in shares)
    return table(("units", "ms each", "nodes", "ideal s", "measured s", "share of the ideal"), [[*own, *found, share]])


def ray_study(figures: Any) -> str:
    """The paper's study at small scale, here and on Ray (benchmarks/ray_study.py)."""
    names = ("study", "nodes", "--at-once 2, s", "Ray, s", "factor", "files compared", "files that differ")
    most = f"{max(figures['most_megabytes'].values()):,.0f}"
    own = [*_study(figures), f"{figures['overhead']:.2f}x", *_compared(figures), most]
    return table((*names, "most MB of a process"), [own])


def ray_kills(figures: Any) -> str:
    """The same while workers, nodes and drivers die."""
    killed = Counter(one["what"] for one in figures["killed"])
    names = ("study", "nodes", "--at-once 2, s", "Ray, s", "workers killed", "nodes lost", "drivers killed")
    counts = (str(killed[what]) for what in ("worker", "node", "driver"))
    return table((*names, "files compared", "files that differ"), [[*_study(figures), *counts, *_compared(figures)]])


def _study(figures: Any) -> list[str]:
    seconds = (f"{figures[name]:,.0f}" for name in ("at_once_2_seconds", "ray_seconds"))
    return [figures["study"], str(figures["nodes"]), *seconds]


def _compared(figures: Any) -> list[str]:
    count = sum(figures[f"{part}_files_compared"] for part in ("data", "out"))
    odd = sum(len(figures[f"{part}_files_that_differ"]) for part in ("data", "out"))
    return [f"{count:,}", str(odd)]


def schedule(figures: Any) -> str:
    """Simulated schedules (benchmarks/scale.py)."""
    rows = []
    for study in figures["studies"]:
        for one in study["schedules"]:
            minutes = (one[f"{name}minutes"] for name in ("", "work_bound_", "chain_bound_"))
            rates = (f"{one['units_per_second']:.2f}", f"{one['megabytes_per_second']:,.0f}")
            own = (f"{study['study']}, {study['units']:,} units", str(one["gpus"]))
            rows.append([*own, *(f"{value:,.1f}" for value in minutes), f"{one['efficiency']:.0%}", *rates])
    names = ("study", "GPUs", "minutes", "work / GPUs", "longest chain", "efficiency", "units/s", "MB/s to the driver")
    return table(names, rows)
