"""Write the tables of docs/*.md from the raw figures in results/.

    python tools/tables.py            bring the tables up to date
    python tools/tables.py --check    exit with 1 if one is not

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; NAME is a key of TABLES.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from omrl import stats

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: first column to the left, numbers to the right."""
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (headings, rule, *rows))


def simulate(figures: Any) -> str:
    """The simulator beside gymnasium's own environments (benchmarks/simulate.py)."""
    rows = []
    for row in figures["steps_per_second"]:
        ours, ceiling = row["omrl"], row["ceiling"]
        rates = (ours, row["sync"], row["async"])
        rows.append(
            [
                f"{row['family']}, {row['gymnasium']}",
                *(f"{rate:,.0f}" for rate in rates),
                *(f"{ours / rate:.1f}x" for rate in rates[1:]),
                f"{ceiling:,.0f}",
                f"{ours / ceiling:.0%}",
            ]
        )
    headings = (
        "family, gymnasium's environment",
        "omrl",
        "SyncVectorEnv",
        "AsyncVectorEnv",
        "omrl / Sync",
        "omrl / Async",
        "ceiling",
        "omrl / ceiling",
    )
    return table(headings, rows)


def load(figures: Any) -> str:
    """Opening and loading a meta-dataset, beside Minari (benchmarks/load.py)."""
    labels = {
        "open": "open, rows stay on disk",
        "omrl": "open, all rows as tensors",
        "minari": "Minari, the same tensors",
    }
    rows = []
    for key, run in figures.items():
        if isinstance(run, dict):
            what, episodes = key.split(", ")
            numbers = (f"{run['seconds']:.3g}", f"{run['bytes_read'] / 1e6:.2f}", f"{run['peak_bytes'] / 1e6:,.0f}")
            rows.append([f"{labels[what]}; {episodes} steps", *numbers])
    return table(("", "seconds", "MB read by calls", "MB of memory"), rows)


def stream(figures: Any) -> str:
    """Training with all rows in memory and from disk (benchmarks/stream.py)."""
    rows = []
    for result in figures["results"]:
        rate, held = result["updates_per_s"], result["held_bytes"]
        rates = (f"{rate['memory']:.2f}", f"{rate['disk']:.2f}", f"{result['disk_over_memory']:.0%}")
        rows.append([result["size"], *rates, f"{held['memory'] / 1e6:.0f}", f"{held['disk'] / 1e6:.0f}"])
    headings = ("", "memory, updates/s", "disk, updates/s", "disk / memory", "memory, MB held", "disk, MB held")
    return table(headings, rows)


def throughput(figures: Any) -> str:
    """Training behaviour agents (benchmarks/collect.py)."""
    rows = [
        [
            f"{row['tasks']}",
            f"{row['steps_per_s']:,}",
            f"{1e6 / row['steps_per_s']:,.0f}",
            f"{row['updates_per_s_per_agent']:,}",
            f"{row['update_ms']:.2f}",
            f"{row['simulation_steps_per_s']:,}",
            f"{row['start_up_s']:.0f}",
        ]
        for row in sorted(figures, key=lambda row: row["tasks"])
    ]
    headings = (
        "tasks",
        "steps/s, all tasks",
        "microseconds per task step",
        "updates/s of each agent",
        "update alone, ms",
        "simulation alone, steps/s",
        "start-up, s",
    )
    return table(headings, rows)


def cpu_mode(figures: Any) -> str:
    """Eager against compiled updates on the CPU (benchmarks/collect.py --mode)."""
    rows = [[row["mode"], f"{row['update_ms']:.1f}", f"{row['start_up_s']:.0f}"] for row in figures]
    return table(("mode", "update, ms", "start-up, s"), rows)


def behaviour(figures: Any) -> str:
    """Returns of the behaviour data by level, with an interval over tasks (tools/behaviour_results.py)."""
    rows = []
    for family, result in figures.items():
        cells = [family, f"{len(result['tasks'])}", f"{result['steps']:,}"]
        for level in ("random", "medium", "expert"):
            scores = np.array([[task[level] for task in result["tasks"]]])
            digits = 2 if abs(scores).max() < 100 else 0
            found = stats.bootstrap(scores, stats.mean, np.random.default_rng(0))
            cells.append(f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]")
        best = [task["best_possible"] for task in result["tasks"]]
        rows.append([*cells, f"{np.mean(best):.2f}" if None not in best else "unknown"])
    headings = ("family", "agents", "steps each", "random", "medium", "expert", "best possible")
    return table(headings, rows)


def half_precision(figures: Any) -> str:
    """Returns of the actors as stored and in single precision (tools/half_precision.py)."""
    rows = [
        [
            family,
            f"{row['tasks']}",
            f"{row['half']:.2f}",
            f"{row['single']:.2f}",
            f"{row['difference']:+.3f} ± {row['standard_error']:.3f}",
        ]
        for family, row in figures.items()
    ]
    return table(("family", "tasks", "half", "single", "difference ± standard error over tasks"), rows)


# The name of a table is also the name of its raw file.
TABLES: dict[str, Callable[[Any], str]] = {
    "simulate": simulate,
    "load": load,
    "stream": stream,
    "throughput": throughput,
    "cpu-mode": cpu_mode,
    "behaviour": behaviour,
    "half-precision": half_precision,
}


def fill(text: str, results: Path = ROOT / "results") -> str:
    """The page with every marked table as the raw figures have it."""

    def rendered(match: re.Match[str]) -> str:
        raw = next(results.rglob(f"{match['name']}.json"), None)
        content = TABLES[match["name"]](json.loads(raw.read_text())) if raw else "(not measured yet)\n"
        return f"{match[1]}{content}{match[3]}"

    return MARKED.sub(rendered, text)


def main() -> int:
    """Rewrite or check all pages."""
    stale = [page for page in sorted((ROOT / "docs").glob("*.md")) if fill(page.read_text()) != page.read_text()]
    for page in stale:
        print(f"{page.relative_to(ROOT)}: tables are not those of results/")
        if "--check" not in sys.argv[1:]:
            page.write_text(fill(page.read_text()))
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
