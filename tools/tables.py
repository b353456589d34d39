"""Write the tables of README.md and docs/ from the raw figures in results/.

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

# Measured by running the paper's public code: milliseconds of one update of one seed, by the name that `omrl bench`
# gives the hardware. It made this many discriminator steps in an update.
PUBLIC_MS = {"NVIDIA H200": 119.0, "2 CPU threads": 1010.0}
PUBLIC_STEPS = 3


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


def counted(number: int, what: str) -> str:
    """1 seed, 3 seeds."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def update(figures: Any) -> str:
    """One update of FOCAL on the GPU, beside the public code's (omrl bench update)."""
    times = {(row["g_steps"], row["seeds"]): row["ms"] for row in figures["updates"]}
    steps, seeds = (sorted(set(values)) for values in zip(*times, strict=True))
    public = PUBLIC_MS.get(figures["hardware"])
    rows = []
    for count in steps:
        own = [times[count, number] for number in seeds]
        rates = " / ".join(f"{number / ms * 1e3:,.0f}" for number, ms in zip(seeds, own, strict=True))
        # Only the same number of steps is the same work, and the public code trains one seed.
        same = public is not None and count == PUBLIC_STEPS and seeds[0] == 1
        beside = [f"{public:.0f}", f"{public / own[0]:.1f}x"] if public is not None and same else ["-", "-"]
        rows.append([f"{count}", *(f"{ms:.2f}" for ms in own), rates, *beside])
    headings = (
        f"discriminator steps ({figures['hardware']}, torch {figures['torch']})",
        *(f"{counted(number, 'seed')}, ms" for number in seeds),
        f"updates/s of single seeds, {' / '.join(map(str, seeds))} at once",
        "public code, 1 seed, ms",
        "public code / omrl, 1 seed",
    )
    return table(headings, rows)


def algorithms(focal_alone: Any, others: Any) -> str:
    """One update of every algorithm on the GPU (omrl bench update --algorithms)."""
    # Not to be unpacked if the two files are from different machines: those do not belong into one table.
    (where,) = {f"{figures['hardware']}, torch {figures['torch']}" for figures in (focal_alone, others)}
    seeds = sorted({row["seeds"] for row in others["updates"]})
    found: dict[str, dict[int, Any]] = {}
    for row in (*focal_alone["updates"], *others["updates"]):
        if row["g_steps"] in (1, None) and row["seeds"] in seeds:
            found.setdefault(row["algorithm"], {})[row["seeds"]] = row
    rows = []
    for name, by_seeds in found.items():
        own = [by_seeds[number]["ms"] for number in seeds]
        sizes = by_seeds[seeds[0]]["hyperparameters"]
        kinds = ("hidden", "actor_hidden", "critic_hidden", "vae_hidden", "decoder_hidden")
        (hidden,) = {tuple(sizes[kind]) for kind in kinds if kind in sizes}
        (width,) = set(hidden)
        rows.append(
            [
                name,
                *(f"{ms:.2f}" for ms in own),
                " / ".join(f"{number / ms * 1e3:,.0f}" for number, ms in zip(seeds, own, strict=True)),
                f"{sizes['meta_batch']} x {sizes['batch_size']}",
                f"{sizes['context_size']}",
                f"{width} x {len(hidden)}",
            ]
        )
    headings = (
        where,
        *(f"{counted(number, 'seed')}, ms" for number in seeds),
        f"updates/s of single seeds, {' / '.join(map(str, seeds))} at once",
        "tasks x rows",
        "rows of a context",
        "networks",
    )
    return table(headings, rows)


def update_cpu(figures: Any) -> str:
    """One update on the CPU beside its matrix products (omrl bench update --device cpu)."""
    rows = [
        [
            f"{row['algorithm']}, {counted(row['seeds'], 'seed')}, {counted(row['g_steps'], 'discriminator step')}",
            f"{row['ms']:.0f}",
            f"{row['products_ms']:.0f}",
            f"{row['ms'] / row['products_ms']:.2f}",
        ]
        for row in figures["updates"]
    ]
    headings = (
        f"{figures['hardware']}, torch {figures['torch']}",
        "update, ms",
        "its matrix products alone, ms",
        "ratio",
    )
    return table(headings, rows)


def focal(figures: Any) -> str:
    """FOCAL on test tasks (tools/focal_results.py)."""
    rows = []
    for row in figures:
        digits = 2 if abs(row["expert"]) < 100 else 0
        mean, iqm = row["mean"], row["iqm"]
        rows.append(
            [
                row["family"],
                f"{row['preset']}, {row['level']}",
                f"{row['updates']:,}",
                f"{row['seeds']}",
                f"{mean['value']:.{digits}f} [{mean['low']:.{digits}f}, {mean['high']:.{digits}f}]",
                f"{iqm['value']:.{digits}f}",
                f"{row['normalised']:.2f}",
                f"{round(row['random'], digits) + 0.0:.{digits}f} / {row['expert']:.{digits}f}",
                f"{np.mean(row['esr']):.2f}",
                f"{np.mean(row['rms']):.2f}",
            ]
        )
    headings = ("family", "preset, level", "updates", "seeds", "mean return [95 %]", "IQM", "normalised")
    return table((*headings, "random / expert data", "ESR", "RMS"), rows)


def half(figures: Any) -> str:
    """FOCAL without and with --half (tools/focal_results.py --half)."""
    rows = []
    for row in figures:
        mean = row["mean"]
        rows.append(
            [
                f"{row['family']}, {row['updates']:,} updates, {'with' if row['half'] else 'without'} `--half`",
                f"{mean['value']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}]",
                ", ".join(f"{value:.2f}" for value in row["per_seed"]),
                f"{row['normalised']:.2f}",
            ]
        )
    return table(("", "mean return [95 %]", "of each seed", "normalised"), rows)


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
    """FOCAL on test tasks in short, in the preset that did best."""
    rows = []
    for row in (row for row in figures if row["preset"] == "measured"):
        digits = 2 if abs(row["expert"]) < 100 else 0
        mean, experts = row["mean"], f"{row['expert']:.{digits}f}"
        interval = f"{mean['value']:.{digits}f} [{mean['low']:.{digits}f}, {mean['high']:.{digits}f}]"
        rows.append([row["family"], f"{row['seeds']}", interval, experts, f"{row['normalised']:.2f}"])
    return table(("family", "seeds", "mean return [95 %]", "the experts that made the data", "normalised"), rows)


def update_line(figures: Any, where: str) -> list[str]:
    """One seed's update of FOCAL beside the public code's, for the table of the README."""
    single = [row for row in figures["updates"] if row["algorithm"] == "focal" and row["seeds"] == 1]
    # The public code's number of steps, where it was measured.
    row = min(single, key=lambda row: abs(row["g_steps"] - PUBLIC_STEPS))
    ms, steps, public = row["ms"], row["g_steps"], PUBLIC_MS[figures["hardware"]]
    same = steps == PUBLIC_STEPS
    return [
        f"one update of FOCAL, {counted(steps, 'discriminator step')}, {where}",
        "ms",
        f"{ms:.2f}" if ms < 100 else f"{ms:,.0f}",
        f"public code{'' if same else f', {PUBLIC_STEPS} discriminator steps'}: {public:,.0f}",
        f"{public / ms:.1f}x" if same else "-",
    ]


def speed(simulation: Any, loading: Any, agents: Any, gpu: Any, cpu: Any) -> str:
    """One line of each of the tables on speed."""
    steps = next(row for row in simulation["steps_per_second"] if row["family"] == "half-cheetah-vel")
    ours, minari = (loading[f"{who}, episodes of 200"]["seconds"] for who in ("omrl", "minari"))
    rate = {row["tasks"]: row["steps_per_s"] for row in agents}
    alone = f"one agent alone: {rate[1]:,}"
    rows = [
        ["step 100 half-cheetahs, 2 cores", "steps/s", f"{steps['omrl']:,.0f}", f"SyncVectorEnv: {steps['sync']:,.0f}"],
        ["load 1,000,000 rows, 2 cores", "s", f"{ours:.2f}", f"Minari: {minari:.2f}"],
        ["train 100 half-cheetah agents, one H200", "steps/s, all agents", f"{rate[100]:,}", alone],
    ]
    factors = (steps["omrl"] / steps["sync"], minari / ours, rate[100] / rate[1])
    lines = [[*row, f"{factor:.1f}x"] for row, factor in zip(rows, factors, strict=True)]
    lines += [update_line(gpu, "one H200"), update_line(cpu, "2 cores")]
    return table(("", "unit", "omrl", "beside", "factor"), lines)


# The name of a table is also the name of its raw file, unless SOURCES names others.
SOURCES = {
    "results": ("focal",),
    "algorithms": ("update", "algorithms"),
    "speed": ("simulate", "load", "throughput", "update", "update-cpu"),
}
TABLES: dict[str, Callable[..., str]] = {
    "simulate": simulate,
    "load": load,
    "stream": stream,
    "throughput": throughput,
    "cpu-mode": cpu_mode,
    "behaviour": behaviour,
    "half-precision": half_precision,
    "update": update,
    "update-cpu": update_cpu,
    "algorithms": algorithms,
    "focal": focal,
    "half": half,
    "sweep": sweep,
    "results": results,
    "speed": speed,
}


def fill(text: str, folder: Path = ROOT / "results") -> str:
    """The page with every marked table as the raw figures have it."""

    def rendered(match: re.Match[str]) -> str:
        names = SOURCES.get(match["name"], (match["name"],))
        raw = [path for name in names if (path := next(folder.rglob(f"{name}.json"), None))]
        whole = len(raw) == len(names)
        figures = [json.loads(path.read_text()) for path in raw]
        content = TABLES[match["name"]](*figures) if whole else "(not measured yet)\n"
        return f"{match[1]}{content}{match[3]}"

    return MARKED.sub(rendered, text)


def main() -> int:
    """Rewrite or check all pages."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    stale = [page for page in pages if fill(page.read_text()) != page.read_text()]
    for page in stale:
        print(f"{page.relative_to(ROOT)}: tables are not those of results/")
        if "--check" not in sys.argv[1:]:
            page.write_text(fill(page.read_text()))
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
