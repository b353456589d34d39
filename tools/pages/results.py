"""Tables of docs/data.md and docs/results.md: behaviour data, and FOCAL on it."""

from __future__ import annotations

from typing import Any

import numpy as np
from pages.markdown import interval, number, table

from omrl.algorithms import read_preset


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


def focal(figures: Any) -> str:
    """FOCAL on test tasks (tools/publish.py focal)."""
    rows = []
    for row in figures:
        digits = 2 if abs(row["expert"]) < 100 else 0
        rows.append(
            [
                row["family"],
                f"{row['preset']}, {row['level']}",
                f"{row['updates']:,}",
                f"{row['seeds']}",
                interval(row["mean"], digits),
                number(row["iqm"], digits),
                number(row["normalised"], 2),
                f"{number(row['random'], digits)} / {number(row['expert'], digits)}",
                f"{np.mean(row['esr']):.2f}",
                f"{np.mean(row['rms']):.2f}",
            ]
        )
    headings = ("family", "preset, level", "updates", "seeds", "mean return [95 %]", "IQM", "normalised")
    return table((*headings, "random / expert data", "ESR", "RMS"), rows)


def sweep(figures: Any) -> str:
    """The best strength of every population of the sweep (benchmarks/sweep.py)."""
    best: dict[tuple[Any, ...], Any] = {}
    for row in figures:
        form = "closed form" if row["divergence"] == "gaussian-kl" else f"dual, {row['penalty']} penalty"
        adapted = "adapted" if row["alpha_rate"] else "fixed"
        key = (row["family"], form, row["regularisation"], row["level"], adapted)
        if key not in best or row["return"] > best[key]["return"]:
            best[key] = row
    rows = []
    for (family, form, regularisation, level, adapted), row in best.items():
        strength = f"{row['alpha']:.3g}" + (f" (from {row['alpha_start']:g})" if row["alpha_rate"] else "")
        numbers = (
            f"{row['D']:.2f}",
            f"{row['alpha_D_over_q']:.2g}",
            f"{row['return']:.1f}",
            f"{row['normalised']:.2f}",
        )
        rows.append([family, f"{form}, {regularisation}", level, adapted, strength, *numbers])
    headings = ("family", "divergence, where", "level", "strength", "best alpha", "D", "alpha D / \\|Q\\|", "return")
    return table((*headings, "normalised"), rows)


def results(figures: Any) -> str:
    """FOCAL on test tasks in short, in preset `measured`."""
    rows = []
    for row in (row for row in figures if row["preset"] == "measured"):
        digits = 2 if abs(row["expert"]) < 100 else 0
        mean, experts = interval(row["mean"], digits), number(row["expert"], digits)
        rows.append([row["family"], f"{row['seeds']}", mean, experts, number(row["normalised"], 2)])
    return table(("family", "seeds", "mean return [95 %]", "the experts that made the data", "normalised"), rows)


def transfer(figures: Any) -> str:
    """Normalised return in training tasks that were held out, by strength: the mean of the learners of a setting."""
    settings: dict[tuple[str, ...], dict[float, list[float]]] = {}
    for row in figures:
        values = read_preset("focal", "paper", row["family"]) | row["changes"]
        embedding = f"{values['latent_dim']}, {values['beta']:g}"
        key = (row["family"], row["level"], f"{row['updates']:,}", embedding)
        settings.setdefault(key, {}).setdefault(row["alpha_start"], []).append(row["normalised"])
    strengths = sorted({alpha for line in settings.values() for alpha in line})
    rows = []
    for key, line in settings.items():
        means = (float(np.mean(line[alpha])) if alpha in line else None for alpha in strengths)
        learners = max(len(values) for values in line.values())
        rows.append([*key, str(learners), *(number(mean, 2) for mean in means)])
    headings = ("family", "level", "updates", "embedding's length, beta", "learners")
    return table((*headings, *(f"alpha {alpha:g}" for alpha in strengths)), rows, headings[1:2])
