"""The default recipe for one's own logs, from the outcomes that benchmarks/own_logs/table.py writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tables_markdown import number, table

from omrl.evaluation.stats import Estimate, mean

Cell = Mapping[str, Any]


def cells(found: Any) -> str:
    """A row for each domain and logger."""
    rows = []
    for cell in found["cells"]:
        logger, best = (_values(found, cell, who, "return").mean() for who in ("logger", "best"))
        gain, clone = (gained(found, cell, who) for who in ("focal", "contextual-bc"))
        harm = [_values(found, cell, who, "harmed").mean() for who in ("focal", "contextual-bc", "logger")]
        focal = _values(found, cell, "focal", "return").mean()
        rows.append(
            [
                f"{cell['domain']}{'' if cell['domain'] in found['fixed_on'] else ' *'}",
                cell["logger"],
                number(logger, 1),
                number(focal, 1),
                f"{gain.text(1)}, {word(gain)}",
                clone.text(1),
                number(best, 1),
                " / ".join(f"{100 * share:.0f}" for share in harm),
            ]
        )
    head = ["domain", "logger", "its return", "FOCAL", "FOCAL - logger [95 %]", "cloning - logger [95 %]", "best known"]
    return table([*head, "harmed, %: FOCAL / cloning / logger"], rows, words=("logger",))


def summary(found: Any) -> str:
    """One sentence over all cells."""
    words = [word(gained(found, cell, "focal")) for cell in found["cells"]]
    counts = {kind: words.count(kind) for kind in ("better", "worse", "as good")}
    missing = found["wanted"] - len(words)
    left = f" {missing} of {found['wanted']} cells are not run yet." if missing else ""
    return (
        f"In {len(words)} cells the default recipe is better than the logger in {counts['better']}, as good within the "
        f"interval in {counts['as good']}, and worse in {counts['worse']}.{left}\n"
    )


def gained(found: Any, cell: Cell, who: str) -> Estimate:
    """What a learner gets more than the logger, over new seeds and tasks; everybody had the same luck."""
    own, logger = (_values(found, cell, name, "return") for name in (who, "logger"))
    return mean(own - logger, new_tasks=True).interval()


def word(gain: Estimate) -> str:
    """What an interval says."""
    assert gain.low is not None and gain.high is not None
    return "better" if gain.low > 0 else "worse" if gain.high < 0 else "as good"


def _values(found: Any, cell: Cell, who: str, what: str) -> Any:
    """Of somebody [seeds, tasks]."""
    names = found["columns"]
    rows = [dict(zip(names, row, strict=True)) for row in cell["rows"]]
    own = [row for row in rows if row["who"] == who]
    seeds, tasks = sorted({row["seed"] for row in own}), sorted({row["task"] for row in own})
    placed = {(row["seed"], row["task"]): row[what] for row in own}
    return np.array([[placed[seed, task] for task in tasks] for seed in seeds])
