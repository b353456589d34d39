"""Tables of docs/reliability.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from pages.markdown import table

# How a step is disturbed, in words.
WAYS = {
    "kill": "killed before it",
    "tear": "killed inside a write",
    "full disk": "no room",
    "large file": "no file may grow",
    "no right": "not allowed",
    "memory": "little memory",
    "small disk": "a small disk",
    "twice": "started twice",
}


def torture(figures: Any) -> str:
    """What the campaign was, in a sentence (make torture)."""
    steps = figures["tried"] - figures["inputs"]
    return (
        f"The last campaign: {figures['inputs']:,} damaged files and {steps:,} disturbed commands, "
        f"{figures['wrong']:,} of them wrong, in {figures['seconds'] / 60:.0f} minutes with {figures['jobs']} "
        f"processes on {figures['environment']['cores']} cores (seed {figures['seed']}, {figures['made']}).\n"
    )


def torture_inputs(figures: Any) -> str:
    """Damaged files by kind."""
    rows = [
        [name.removeprefix("input/"), f"{one['tried']:,}", f"{one['errors']:,}", f"{one['wrong']:,}"]
        for name, one in figures["kinds"].items()
        if name.startswith("input/")
    ]
    return table(("kind of file", "damaged", "got one sentence", "wrong"), rows)


def torture_steps(figures: Any) -> str:
    """Disturbed commands: attempts of each way, and how many of all were wrong."""
    tried: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: Counter[str] = Counter()
    for name, one in figures["kinds"].items():
        way, _, step = name.partition("/")
        if way in WAYS:
            tried[step][way] += one["tried"]
            wrong[step] += one["wrong"]
    rows = [[step, *(f"{ways[way]:,}" for way in WAYS), f"{wrong[step]:,}"] for step, ways in tried.items()]
    return table(("command", *WAYS.values(), "wrong"), rows)


def soak(figures: Any) -> str:
    """A policy that is asked very often (benchmarks/soak.py)."""
    rows = []
    for what in ("act", "adapt"):
        one = figures[what]
        times = [f"{one['microseconds'][p]:,.0f}" for p in ("50", "99", "99.9", "100")]
        memory = [f"{one['resident_mb'][place]:,.1f}" for place in (0, -1)]
        rows.append([what, f"{one['calls']:,}", *times, *memory])
    headings = ("", "calls", "median, us", "99 %", "99.9 %", "longest", "MB after a tenth", "MB at the end")
    return table(headings, rows)


def started(figures: Any) -> str:
    """What everybody waits for, before and now (benchmarks/started.py)."""
    rows = [
        [what, *(f"{both[when] * 1e3:,.1f}" for when in ("before", "now"))]
        for what, both in figures["median_seconds"].items()
    ]
    return table(("", "before, ms", "now, ms"), rows)
