"""Write the tables of README.md and docs/ from the raw figures in results/.

    python tools/tables.py            bring the tables up to date
    python tools/tables.py --check    exit with 1 if one is not

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; NAME is a key of TABLES. Some are pictures or a
sentence instead: whatever has to change when another result is published.
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
from omrl.experiments.definitions import experiments

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# Measured by running the paper's public code: milliseconds of one update of one seed, by the name that `omrl bench`
# gives the hardware. It made this many discriminator steps in an update.
PUBLIC_MS = {"NVIDIA H200": 119.0, "2 CPU threads": 1010.0}
PUBLIC_STEPS = 3
# Pixels of a page's text, for pictures.
WIDTH = 680


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str] = ()) -> str:
    """A Markdown table: the first column and those of words to the left, numbers to the right."""
    rule = ["---" if place == 0 or name in words else "---:" for place, name in enumerate(headings)]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (headings, rule, *rows))


def number(value: float | None, digits: int) -> str:
    """A number that is not written as -0.00, or a dash."""
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def interval(found: Any, digits: int) -> str:
    """An estimate with its 95 % interval."""
    low, value, high = (number(found[key], digits) for key in ("low", "value", "high"))
    return f"{value} [{low}, {high}]"


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
            cells.append(interval(vars(found), digits))
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
        rows.append(
            [
                row["family"],
                f"{row['preset']}, {row['level']}",
                f"{row['updates']:,}",
                f"{row['seeds']}",
                interval(row["mean"], digits),
                number(row["iqm"]["value"], digits),
                number(row["normalised"], 2),
                f"{number(row['random'], digits)} / {number(row['expert'], digits)}",
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
        rows.append(
            [
                f"{row['family']}, {row['updates']:,} updates, {'with' if row['half'] else 'without'} `--half`",
                interval(row["mean"], 2),
                ", ".join(number(value, 2) for value in row["per_seed"]),
                number(row["normalised"], 2),
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
        mean, experts = interval(row["mean"], digits), number(row["expert"], digits)
        rows.append([row["family"], f"{row['seeds']}", mean, experts, number(row["normalised"], 2)])
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


# -- the paper's experiments (tools/paper_results.py) ------------------------------------------------------------------


def decimals(results: Any) -> dict[str, int]:
    """How many a return has, by data: two, but none where the best row of the experiment is in the hundreds."""
    best: dict[str, float] = {}
    for row in results["rows"]:
        best[row["data"]] = max(row["mean"]["value"], best.get(row["data"], -np.inf))
    return {data: 2 if abs(value) < 100 else 0 for data, value in best.items()}


def place(results: Any, data: str) -> str:
    """An experiment, and its data where the name does not end with it."""
    name: str = results["experiment"]
    return name if name.endswith(data) else f"{name}: {data}"


def verdicts(paper: Any) -> str:
    """Every claim in short."""
    rows = [
        [results["experiment"], claim["claim"], f"**{claim['verdict']}**", " or ".join(map(str, seeds))]
        for results in paper
        for seeds in [sorted({row["seeds"] for row in results["rows"]})]
        for claim in results["claims"]
    ]
    return table(("experiment", "the paper's claim", "verdict", "seeds"), rows, words=("the paper's claim", "verdict"))


def paper_missing(paper: Any) -> str:
    """Which experiments have no results yet."""
    missing = [f"`{name}`" for name in experiments() if name not in {results["experiment"] for results in paper}]
    return f"Not run yet: {', '.join(missing)}.\n" if missing else "All of the paper's experiments were run.\n"


def paper_claims(paper: Any) -> str:
    """Every comparison that a claim is judged by."""
    rows = []
    for results in paper:
        digits = decimals(results)
        for claim in results["claims"]:
            for one in claim["comparisons"]:
                places = digits[one["data"]] if claim["metric"] == "return" else 3
                pair, found = f"{one['better']} - {one['worse']}", interval(one["difference"], places)
                rows.append([place(results, one["data"]), pair, claim["metric"], found, one["verdict"]])
    headings = ("experiment", "A - B", "metric", "difference [95 %]", "A - B > 0")
    return table(headings, rows, words=("A - B", "metric", "A - B > 0"))


def paper_returns(paper: Any) -> str:
    """Returns on test tasks of the experiments that have a table of them."""
    rows = []
    for results in paper:
        digits = decimals(results)
        for row in results["rows"] if "returns" in results["tables"] else []:
            mean = interval(row["mean"], digits[row["data"]])
            counts = (f"{row['seeds']}", f"{row['updates']:,}")
            rows.append([place(results, row["data"]), row["row"], *counts, mean, number(row["normalised"], 2)])
    headings = ("experiment", "row", "seeds", "updates", "mean return [95 %]", "normalised")
    return table(headings, rows, words=("row",))


def paper_embedding(paper: Any) -> str:
    """How well training tasks are kept apart, means over seeds, beside the paper's numbers."""
    rows = []
    for results in paper:
        for row in results["rows"] if "embedding" in results["tables"] else []:
            ours = [row["metrics"].get(name) for name in ("rms", "esr", "identification")]
            theirs = [row["published"].get(name) for name in ("rms", "esr")]
            cells = [number(None if values is None else float(np.mean(values)), 3) for values in ours]
            cells += [number(value, 3) for value in theirs]
            rows.append([place(results, row["data"]), row["row"], *cells])
    headings = ("RMS", "ESR", "identification", "RMS in the paper", "ESR in the paper")
    return table(("experiment", "row", *headings), rows, words=("row",))


def paper_shift(paper: Any) -> str:
    """Returns by the quality of training and test data, and what is lost where they differ."""
    rows = []
    for results in paper:
        if "shift" not in results["tables"]:
            continue
        digits = decimals(results)
        # A claim compares a row with the one of the same training data that is tested on its own quality.
        drops = {one["worse"]: one for claim in results["claims"] for one in claim["comparisons"]}
        published = {row["row"]: row["published"]["return"] for row in results["rows"]}
        for row in results["rows"]:
            label, places, drop, paper_drop = row["row"], digits[row["data"]], "-", "-"
            if label in drops:
                drop = interval(drops[label]["difference"], places)
                paper_drop = number(published[drops[label]["better"]] - published[label], 2)
            ours = (interval(row["mean"], places), drop)
            rows.append([row["level"], row["context_level"], *ours, number(published[label], 2), paper_drop])
    headings = ("mean return [95 %]", "drop [95 %]", "return in the paper", "drop in the paper")
    return table(("training", "testing", *headings), rows, words=("testing",))


def picture(results: Any, figure: str, width: int, about: str) -> str:
    """A picture of an experiment, as tools/paper_results.py put it beside the pages."""
    title = results["title"].replace('"', "'")
    return f'<img src="img/paper/{results["experiment"]}-{figure}.png" width="{width}" alt="{title}: {about}">\n'


def paper_curves(paper: Any) -> str:
    """Returns while training; those of an experiment all of whose runs were shown before are left out."""
    pictures, shown = [], set()
    for results in paper:
        runs = {row["run"] for row in results["rows"]}
        if "return" in results["figures"] and not runs <= shown:
            width = min(WIDTH, 340 * len({row["data"] for row in results["rows"]}))
            pictures.append(picture(results, "return", width, "return on test tasks while training"))
            shown |= runs
    return "".join(pictures)


def paper_embeddings(paper: Any) -> str:
    """Embeddings of tasks."""
    kinds = {
        "embedding": "embeddings by t-SNE",
        "embedding-pca": "two principal components of the embeddings",
        "embedding-3d": "three principal components of the embeddings",
    }
    return "".join(
        picture(results, kind, min(WIDTH, 170 * len({row["row"] for row in results["rows"]})), kinds[kind])
        for results in paper
        for kind in results["figures"]
        if kind in kinds
    )


def tried(trial: Any) -> dict[str, float]:
    """The hyperparameters of a trial; step sizes of several networks, which are tried together, are one."""
    rates = {value for name, value in trial.items() if name.endswith("lr")}
    found = {name.replace("_", " "): value for name, value in trial.items() if not name.endswith("lr")}
    if rates:
        (found["step size"],) = rates
    return found


def tuning(figures: Any) -> str:
    """The best of the trials of every row (benchmarks/tune.py)."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for one in figures:
        groups.setdefault((one["family"], one["row"]), []).append(one)
    top = {family: max(one["return"] for one in figures if one["family"] == family) for family, _ in groups}
    rows = []
    for (family, label), trials in groups.items():
        values = [tried(one["trial"]) for one in trials]
        ranges = [f"{name} {min(v[name] for v in values):g} to {max(v[name] for v in values):g}" for name in values[0]]
        best = max(trials, key=lambda one: one["return"])
        choice = ", ".join(f"{name} {value:g}" for name, value in tried(best["trial"]).items())
        alike = len(trials) > 1 and len({one["return"] for one in trials}) == 1
        rows.append(
            [
                family,
                label,
                f"{len(trials)}",
                ", ".join(ranges),
                choice + (" (all alike)" if alike else ""),
                number(best["return"], 2 if abs(top[family]) < 100 else 0),
                number(best["normalised"], 2),
            ]
        )
    words = ("row", "tried", "best")
    return table(("family", "row", "trials", "tried", "best", "its return", "normalised"), rows, words)


# The name of a table is also the name of its raw file, unless SOURCES names others.
SOURCES = {
    "results": ("focal",),
    "algorithms": ("update", "algorithms"),
    "speed": ("simulate", "load", "throughput", "update", "update-cpu"),
    **dict.fromkeys(("verdicts", "paper-missing", "paper-claims", "paper-returns"), ("paper",)),
    **dict.fromkeys(("paper-embedding", "paper-shift", "paper-curves", "paper-embeddings"), ("paper",)),
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
    "verdicts": verdicts,
    "paper-missing": paper_missing,
    "paper-claims": paper_claims,
    "paper-returns": paper_returns,
    "paper-embedding": paper_embedding,
    "paper-shift": paper_shift,
    "paper-curves": paper_curves,
    "paper-embeddings": paper_embeddings,
    "tuning": tuning,
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
