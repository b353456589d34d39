"""Tables of docs/data.md and README.md: behaviour data, and what was learnt from it."""

from __future__ import annotations

from typing import Any

from pages.markdown import interval, number, table

# Rows of comparisons that are shown in short.
COMPARED = ("FOCAL", "FOCAL, the paper's numbers", "Batch PEARL", "Contextual BCQ", "MBML", "Contextual cloning")


def behaviour(figures: Any) -> str:
    """What every level of the behaviour data is like (benchmarks/behaviour_data.py)."""
    rows = []
    for family, result in figures.items():
        for level, found in result["levels"].items():
            digits = 2 if abs(found["mean"]) < 100 else 0
            checkpoint = "all" if found["checkpoint"] is None else f"{found['checkpoint']:,}"
            returns = [number(found[name], digits) for name in ("mean", "worst", "best")]
            rewarded = "-" if found["rewarded"] is None else f"{found['rewarded']:.0%}"
            breadth = "-" if found["action_std"] is None else f"{found['action_std']:.2f}"
            rows.append([family, level, checkpoint, f"{found['rows']:,}", *returns, rewarded, breadth])
    headings = ("family", "level", "checkpoint", "rows", "mean return", "worst task", "best task")
    return table((*headings, "rewarded rows", "action std"), rows)


def full_size(figures: Any) -> str:
    """Agents of the paper's size beside ours (benchmarks/behaviour_data.py --full-size)."""
    rows = []
    for family, result in figures.items():
        for step, found in result["checkpoints"].items():
            numbers = [
                number(found[side][name], 2 if name == "action_std" or abs(found[side]["return"]) < 100 else 0)
                for name in ("return", "action_std")
                for side in ("full", "ours")
            ]
            rows.append([family, f"{result['tasks']}", f"{int(step):,}", *numbers])
    headings = ("family", "tasks", "checkpoint", "return, full size", "return, ours")
    return table((*headings, "action std, full size", "action std, ours"), rows)


def half_precision(figures: Any) -> str:
    """Returns of the actors as stored and in single precision (benchmarks/half_precision.py)."""
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


def comparisons(paper: Any) -> str:
    """Every published comparison in one line: FOCAL, the baselines, and the data that they learnt from."""
    rows = []
    for results in (one for one in paper if one["experiment"].startswith("comparison-")):
        by_label = {row["row"]: row for row in results["rows"]}
        first = by_label["FOCAL"]
        digits = 2 if abs(first["expert"]) < 100 else 0
        rows.append(
            [
                f"{first['data']}, {first['level']}",
                f"{first['seeds']}",
                *(interval(by_label[label]["mean"], digits) for label in COMPARED),
                number(first["expert"], digits),
            ]
        )
    return table(("data, level", "seeds", *COMPARED, "expert data"), rows)
