"""Tables of docs/own-logs-results.md, and that of docs/service.md on contexts that are called strange."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pages.markdown import number, table

from omrl.evaluation.stats import Estimate, Measured, mean
from omrl.selecting.verdict import Findings, judge, standing

# The domains that the thresholds of the verdict were fixed on; the others were made, and judged, afterwards.
FIXED_ON = ("fermenter", "crane", "irrigation")
WORDS = ("better", "cannot tell", "worse")
CALLED = ("runs", *(f"called {word}" for word in WORDS))
# Levels that intervals could have, and the cells of the other domains that were run last.
LEVELS = (0.8, 0.9, 0.95)
RUN_LAST = {(domain, logger) for domain in ("anaesthesia", "battery") for logger in ("noiseless", "mixed")}
# A run does harm that harms in this much larger a share of its episodes than the logger.
HARM = 0.05
# What runs could be ranked by.
RANKED_BY: Mapping[str, Callable[[Any], Any]] = {
    "as `omrl select` ranks": lambda found: standing(findings(found)),
    "return in worlds": lambda found: found["gain"]["value"],
    "fitted Q": lambda found: found["fitted_q"]["value"],
    "action error": lambda found: -found["action_error"],
    "distance to the log": lambda found: -found["far"],
}


Cell = Mapping[str, Any]

# -- the default recipe (benchmarks/own_logs/table.py) -----------------------------------------------------------------


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


# -- from a messy file to a policy (benchmarks/own_logs/trial.py) ------------------------------------------------------

TRAINED = {"default": "the default recipe", "cloned": "cloning", "loose": "FOCAL, `--regularisation none`"}


def trial(found: Any) -> str:
    """A row for each logger and policy: what was said on the way, and what the simulator says."""
    rows = []
    for walk in found["walks"]:
        for name, label in TRAINED.items():
            run = walk["runs"][name]
            gain, told = gained(found, run, "run"), run["selected"]
            warned = [one["said"] for one in walk["told"] if f" --out {name} " in one["command"]]
            harm = [_values(found, run, who, "harmed").mean() for who in ("run", "logger")]
            rows.append(
                [
                    walk["logger"],
                    label,
                    "yes" if any(warned) else "no",
                    told["word"],
                    gain.text(1),
                    " / ".join(f"{100 * share:.0f}" for share in harm),
                ]
            )
    head = ["logger", "policy", "training warned", "omrl select", "truly: return - logger's [95 %]"]
    return table([*head, "harmed, %: policy / logger"], rows, words=("policy", "training warned", "omrl select"))


# -- what is told from logs alone --------------------------------------------------------------------------------------


def select_rank(figures: Any) -> str:
    """Rank correlation of estimates with true returns, by domain and logger (benchmarks/own_logs/selecting.py)."""
    return _rank(figures, {True: "median, thresholds fixed on these", False: "median, the others"})


def family_rank(figures: Any) -> str:
    """The same in omrl's own families (benchmarks/own_logs/family_ranks.py)."""
    return _rank(figures, {False: "median"})


def _rank(figures: Any, labels: Mapping[bool, str]) -> str:
    """With medians of domains that thresholds were fixed on, and of others."""
    rows, all_of = [], {}
    for (domain, logger), runs in _cells(figures).items():
        true = [run["true"]["gain"]["value"] for run in runs]
        found = [_spearman(true, [by(run["found"]) for run in runs]) for by in RANKED_BY.values()]
        rows.append([f"{domain}, {logger}", f"{len(runs)}", *(f"{value:.2f}" for value in found)])
        all_of.setdefault(domain in FIXED_ON, []).append(found)
    for fixed, label in labels.items():
        if fixed in all_of:
            rows.append([f"**{label}**", "", *(f"**{value:.2f}**" for value in np.median(all_of[fixed], axis=0))])
    return table(("domain, logger", "runs", *RANKED_BY), rows)


def select_verdicts(figures: Any) -> str:
    """What runs were called, by what they truly are (benchmarks/own_logs/selecting.py)."""
    return _verdicts(figures, {True: "the three that thresholds were fixed on", False: "the three others"})


def select_levels(figures: Any) -> str:
    """What intervals of other levels would have called the same runs (benchmarks/own_logs/selecting.py)."""
    groups: dict[str, Callable[[Any], bool]] = {
        "thresholds fixed on these": lambda run: run["domain"] in FIXED_ON,
        "the others": lambda run: run["domain"] not in FIXED_ON,
        "of these, run last": lambda run: (run["domain"], run["logger"]) in RUN_LAST,
    }
    rows = []
    for where, holds in groups.items():
        for level in LEVELS:
            called = Counter((_truth(run["true"]["gain"]), _word(run, level)) for run in figures if holds(run))
            total = {truth: sum(called[truth, word] for word in WORDS) for truth in ("better", "neither", "worse")}
            told = called["neither", "better"] + called["neither", "worse"]
            rows.append(
                [
                    f"{where}, {level:.0%}",
                    f"{called['better', 'better']} of {total['better']}",
                    f"{called['worse', 'worse']} of {total['worse']}",
                    f"{called['worse', 'better']} of {total['worse']}",
                    f"{told} of {total['neither']}",
                ]
            )
    head = ("better, called so", "worse, called so", "worse, called better", "neither, called better or worse")
    return table(("cells, level", *head), rows)


def _word(run: Any, level: float) -> str:
    """What a run is called by intervals of that level."""
    intervals = {
        name: Measured(**run["measured"][raw]).interval(level) for name, raw in (("gain", "gained"), ("fitted_q",) * 2)
    }
    return judge(replace(findings(run["found"]), **intervals)).word


def family_verdicts(figures: Any) -> str:
    """The same in omrl's own families (benchmarks/own_logs/family_ranks.py)."""
    return _verdicts(figures, {False: "omrl's families"})


def select_harm(figures: Any) -> str:
    """What runs were called that do harm more often than the logger, and others (benchmarks/own_logs/selecting.py)."""
    counts: dict[tuple[bool, bool], Counter[str]] = {}
    for run in figures:
        harms = run["true"]["harmed"] > run["true"]["logger_harmed"] + HARM
        counts.setdefault((run["domain"] in FIXED_ON, harms), Counter())[judge(findings(run["found"])).word] += 1
    rows = []
    for fixed, where in {True: "the three that thresholds were fixed on", False: "the three others"}.items():
        for harms, kind in {True: "do harm", False: "do not"}.items():
            if (fixed, harms) in counts:
                rows.append([f"{kind}, {where}", *_called(counts[fixed, harms])])
    return table(("runs that, in", *CALLED), rows)


def _called(counts: Mapping[str, int]) -> list[str]:
    """How many there are, and how many and which share were called each word."""
    total = sum(counts.values())
    return [f"{total}", *(f"{counts[word]} ({_share(counts[word], total)})" for word in WORDS)]


def _verdicts(figures: Any, groups: Mapping[bool, str]) -> str:
    counts: dict[tuple[bool, str], Counter[str]] = {}
    for run in figures:
        key = (run["domain"] in FIXED_ON, _truth(run["true"]["gain"]))
        counts.setdefault(key, Counter())[judge(findings(run["found"])).word] += 1
    rows = []
    for fixed, where in groups.items():
        for truth in ("better", "neither", "worse"):
            if (fixed, truth) in counts:
                rows.append([f"{truth}, {where}", *_called(counts[fixed, truth])])
    return table(("truly, in", *CALLED), rows)


def strange(figures: Any) -> str:
    """Contexts that are called strange (benchmarks/own_logs/strange.py)."""
    kinds = ("honest", "begun", "units", "swapped", "far")
    rows = []
    for row in sorted(figures, key=lambda row: (row["domain"], row["logger"])):
        for size in ("16", "64"):
            shares = [f"{row[size][kind]:.1%}" for kind in kinds]
            rows.append([f"{row['domain']}, {row['logger']}", size, f"{row[size]['tries']}", *shares])
    for size in ("16", "64"):
        means = [np.mean([row[size][kind] for row in figures]) for kind in kinds]
        tries = sum(row[size]["tries"] for row in figures)
        rows.append(["**mean**", size, f"{tries:,}", *(f"**{mean:.1%}**" for mean in means)])
    headings = (
        "honest, from anywhere",
        "honest, begins with an episode",
        "other unit",
        "columns swapped",
        "task far away",
    )
    return table(("domain, logger", "rows", "tries of each", *headings), rows)


def findings(found: Mapping[str, Any]) -> Findings:
    """As `omrl select` has them."""
    estimates = {name: Estimate(**found[name]) for name in ("gain", "fitted_q")}
    return Findings(**{**found, **estimates})


def _cells(figures: Any) -> dict[tuple[str, str], list[Any]]:
    order = [*FIXED_ON, *sorted({run["domain"] for run in figures} - set(FIXED_ON))]
    found: dict[tuple[str, str], list[Any]] = {}
    for run in sorted(figures, key=lambda run: order.index(run["domain"])):
        found.setdefault((run["domain"], run["logger"]), []).append(run)
    return found


def _truth(gain: Mapping[str, float]) -> str:
    """By the interval of the true difference."""
    return "better" if gain["low"] > 0 else "worse" if gain["high"] < 0 else "neither"


def _spearman(one: Sequence[Any], other: Sequence[Any]) -> float:
    ranks = [_ranks(values) for values in (one, other)]
    if min(found.std() for found in ranks) == 0:
        return math.nan  # who are all equal have no order
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Sequence[Any]) -> Any:
    """Those that are equal share a rank."""
    order = sorted(set(values))
    found = np.array([order.index(value) for value in values])
    return (found[:, None] > found).sum(1) + 0.5 * (found[:, None] == found).sum(1)


def _share(part: int, total: int) -> str:
    """With Wilson's 95 % interval."""
    z = 1.96
    share = part / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return f"{share:.0%} [{max(middle - half, 0.0):.0%}, {min(middle + half, 1.0):.0%}]"
