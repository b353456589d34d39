"""Tables of docs/speed.md, and the short one of the README."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from pages.markdown import interval, table
from publish import TRAINING

from omrl.evaluation import stats
from omrl.runs.records import read_scores
from omrl.words import quantity

# Measured by running the paper's public code: milliseconds of one update of one seed, by the name that `omrl bench`
# gives the hardware. It made this many discriminator steps in an update.
PUBLIC_MS = {"NVIDIA H200": 119.0}
PUBLIC_STEPS = 3


def steps_of(row: dict[str, Any]) -> int | None:
    """Discriminator steps in an update; rows that were measured earlier have them under the network's symbol."""
    found: int | None = row["regulariser_steps"] if "regulariser_steps" in row else row["g_steps"]
    return found


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
            f"{row['tasks']}, {'paper size, ' if row['paper_size'] else ''}{precision(row)}",
            f"{row['steps_per_s']:,}",
            f"{1e6 / row['steps_per_s']:,.0f}",
            f"{row['updates_per_s_per_agent']:,}",
            f"{row['update_ms']:.2f}",
            f"{row['simulation_steps_per_s']:,}",
        ]
        for row in sorted(figures, key=lambda row: (row["paper_size"], row["bfloat16"], row["tasks"]))
    ]
    headings = (
        "tasks",
        "steps/s, all tasks",
        "microseconds per task step",
        "updates/s of each agent",
        "update alone, ms",
        "simulation alone, steps/s",
    )
    return table(headings, rows)


def precision(row: dict[str, Any]) -> str:
    """In words."""
    return "bfloat16" if row["bfloat16"] else "full precision"


def cpu_mode(figures: Any) -> str:
    """Eager against compiled updates on the CPU (benchmarks/collect.py --mode)."""
    rows = [[row["mode"], f"{row['update_ms']:.1f}", f"{row['start_up_s']:.0f}"] for row in figures]
    return table(("mode", "update, ms", "start-up, s"), rows)


def cpu(figures: Any) -> str:
    """Small networks on a CPU, idle and busy (benchmarks/cpu.py)."""
    rows = [
        [
            f"{row['setting']}, {quantity(row['threads'], 'thread')}",
            f"{row['idle']:.0f}",
            f"{row['idle'] / figures['rows'][0]['idle']:.1f}x",
            f"{row['busy']:.1f}",
            f"{row['busy_over_idle']:.2f}",
            f"{row['first_update_s']:.1f}",
        ]
        for row in figures["rows"]
    ]
    headings = (f"{figures['cores']} cores", "updates/s, idle", "beside the first", "updates/s, busy", "busy / idle")
    return table((*headings, "first update, s"), rows)


def cpu_threads(figures: Any) -> str:
    """From how large a layer on a second thread pays (benchmarks/cpu.py --sizes)."""
    rows = []
    for row in figures:
        one, two = row["threads_1"], row["threads_2"]
        rows.append([f"{row['numbers']:,}", f"{one:.0f}", f"{two:.0f}", f"{two / one:.2f}"])
    return table(("numbers in a layer", "1 thread, updates/s", "2 threads, updates/s", "ratio"), rows)


def update(figures: Any) -> str:
    """One update of FOCAL on the GPU, beside the public code's (omrl bench update)."""
    times = {(steps_of(row), row["seeds"]): row["ms"] for row in figures["updates"]}
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
        *(f"{quantity(number, 'seed')}, ms" for number in seeds),
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
        if steps_of(row) in (1, None) and row["seeds"] in seeds:
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
        *(f"{quantity(number, 'seed')}, ms" for number in seeds),
        f"updates/s of single seeds, {' / '.join(map(str, seeds))} at once",
        "tasks x rows",
        "rows of a context",
        "networks",
    )
    return table(headings, rows)


def start(figures: Any) -> str:
    """What comes before a run's second update (benchmarks/first_update.py)."""
    rows = [[one["cache"], f"{one['build_s']:.1f}", f"{one['first_update_s']:.1f}"] for one in figures["starts"]]
    where = f"compiled programs ({figures['hardware']}, torch {figures['torch']})"
    return table((where, "networks and sampler, s", "first update, s"), rows)


def update_cpu(figures: Any) -> str:
    """One update on the CPU beside its matrix products (omrl bench update --device cpu)."""
    rows = [
        [
            f"{row['algorithm']}, {quantity(row['seeds'], 'seed')}, {quantity(steps_of(row), 'discriminator step')}",
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


def service(figures: Any) -> str:
    """Adapting and acting: from a run, as ONNX graphs, with numpy alone (benchmarks/service.py)."""
    rows = [
        [
            f"{row['algorithm']}, {row['what']}, {quantity(row['rows'], 'row')}",
            *(f"{row['microseconds'][way]:,.0f}" for way in ("torch", "onnx", "numpy")),
        ]
        for row in figures["results"]
    ]
    return table((f"{figures['hardware']}, torch {figures['torch']}", "torch", "ONNX", "numpy"), rows)


def update_line(figures: Any, where: str) -> list[str]:
    """One seed's update of FOCAL beside the public code's, with as many steps, for the table of the README."""
    key = ("focal", 1, PUBLIC_STEPS)
    (row,) = (row for row in figures["updates"] if (row["algorithm"], row["seeds"], steps_of(row)) == key)
    ms, public = row["ms"], PUBLIC_MS[figures["hardware"]]
    beside = f"public code: {public:,.0f}"
    name = f"one update of FOCAL, {quantity(PUBLIC_STEPS, 'discriminator step')}, {where}"
    return [name, "ms", f"{ms:.2f}", beside, f"{public / ms:.1f}x"]


def speed(simulation: Any, loading: Any, agents: Any, full: Any, half: Any) -> str:
    """One line of each of the tables on speed."""
    steps = next(row for row in simulation["steps_per_second"] if row["family"] == "half-cheetah-vel")
    ours, minari = (loading[f"{who}, episodes of 200"]["seconds"] for who in ("omrl", "minari"))
    rate = {row["tasks"]: row["steps_per_s"] for row in agents if row["bfloat16"] and not row["paper_size"]}
    alone = f"one agent alone: {rate[1]:,}"
    rows = [
        ["step 100 half-cheetahs, 2 cores", "steps/s", f"{steps['omrl']:,.0f}", f"SyncVectorEnv: {steps['sync']:,.0f}"],
        ["load 1,000,000 rows, 2 cores", "s", f"{ours:.2f}", f"Minari: {minari:.2f}"],
        ["train 100 half-cheetah agents, one H200, bfloat16", "steps/s, all agents", f"{rate[100]:,}", alone],
    ]
    factors = (steps["omrl"] / steps["sync"], minari / ours, rate[100] / rate[1])
    lines = [[*row, f"{factor:.1f}x"] for row, factor in zip(rows, factors, strict=True)]
    updates = [update_line(full, "one H200"), update_line(half, "one H200, bfloat16")]
    return table(("", "unit", "omrl", "beside", "factor"), [*lines, *updates])


def share(paper: Any) -> str:
    """Where the time of published runs on a GPU went, by their data; those with a first stage apart."""
    runs = {row["run"]: (results["folder"].parent, row["data"]) for results in paper for row in results["rows"]}
    groups: dict[tuple[str, str], list[dict[str, float]]] = {}
    for run, (folder, data) in runs.items():
        if json.loads((folder / run / "environment.json").read_text())["gpu"] is None:
            continue
        seconds = json.loads((folder / run / "timings.json").read_text())["seconds"]
        groups.setdefault((data, "with a first stage" if "stages" in seconds else "all others"), []).append(seconds)
    rows = []
    for (data, which), each in sorted(groups.items(), key=lambda group: group[0][1]):
        shares = [one["updates"] / sum(one.values()) for one in each]
        waited = [one["evaluation"] for one in each]
        parts = [f"{min(shares):.0%}", f"{statistics.median(shares):.0%}", f"{max(shares):.0%}"]
        rows.append(
            [f"{data}, {which}", f"{len(each)}", *parts, f"{statistics.median(waited):.1f}", f"{max(waited):.1f}"]
        )
    waits = ("waited for evaluation, s, middle", "most")
    return table(("runs", "number", "in updates, least", "middle", "most", *waits), rows)


def pieces(figures: Any) -> str:
    """How long commands took that made the paper's experiments, beside what they did; those on a GPU add up."""

    def line(names: str, machine: str, own: Sequence[Any]) -> list[str]:
        kinds = [sum(piece["of_units"].get(kind, 0.0) for piece in own) for kind in ("train", "test", "draw", "data")]
        seconds = [sum(piece["seconds"] for piece in own), *kinds]
        return [
            names,
            machine,
            f"{sum(piece['units']['train'] for piece in own)}",
            *(f"{one / 60:.1f}" for one in seconds),
        ]

    machines = {piece["machine"]: [one for one in figures if one["machine"] == piece["machine"]] for piece in figures}
    rows = [line(", ".join(one["title"].split(",")[0].split()[1:]), one["machine"], [one]) for one in figures]
    rows += [line("sum", machine, own) for machine, own in machines.items() if "," in machine]
    headings = ("experiments", "machine", "runs", "minutes in all", "training", "testing", "drawing", "making data")
    return table(headings, rows, words=("machine",))


def kernels(*measured: Any) -> str:
    """What an update's time goes into on the GPU (omrl bench update)."""
    rows = []
    for row in (row for figures in measured for row in figures["updates"]):
        steps = steps_of(row)
        of = f", {quantity(steps, 'discriminator step')}" if row["algorithm"] == "focal" and steps else ""
        times = (f"{row['ms']:.2f}", f"{row['product_kernels_us']:,.0f}", f"{row['other_kernels_us']:,.0f}")
        rows.append([f"{row['algorithm']}, {quantity(row['seeds'], 'seed')}{of}", *times, f"{row['kernels']}"])
    return table(("update", "ms", "products, us", "other kernels, us", "kernels"), rows)


def bfloat16(runs: Any) -> str:
    """Runs in full precision beside the same in bfloat16 (tools/publish.py half), by unseen tasks and by all."""
    rows = []
    for full in (run for run in runs if not _is_half(run)):
        half = next((run for run in runs if _is_half(run) and _what(run) == _what(full)), None)
        if half is None:  # it is on its way
            continue
        both = all((run["folder"] / f"{TRAINING}.csv").is_file() for run in (full, half))
        for splits in [("scores",), ("scores", TRAINING)] if both else [("scores",)]:
            tested, unseen = [returns_in(run, splits) for run in (full, half)], TRAINING not in splits
            tasks = f"{quantity(tested[0][0].shape[1], 'task')}{'' if unseen else ', trained on or not'}"
            # The same tasks in both, and they are what is asked about: seeds alone are a sample.
            means = [interval(vars(stats.mean(returns, new_tasks=unseen).interval()), 2) for returns, _ in tested]
            change = stats.difference(tested[1][1], tested[0][1], new_tasks=False).interval()
            counts = (tasks, f"{full['seeds']} + {half['seeds']}", f"{full['updates']:,}")
            rows.append([f"{full['family']}, {full['algorithm']}", *counts, *means, change.text(4)])
    headings = ("", "tested in", "seeds", "updates", "full precision [95 %]", "bfloat16 [95 %]")
    return table((*headings, "bfloat16 - full, normalised [95 %]"), rows)


def returns_in(run: Any, splits: Sequence[str]) -> tuple[Any, Any]:
    """Returns [seed, task] of a run in the tasks of some splits, and their shares of the way to each split's expert."""
    returns, shares = [], []
    for name in splits:
        about = json.loads((run["folder"] / f"{name}.json").read_text())
        scores = read_scores(run["folder"] / f"{name}.csv")
        assert scores is not None
        returns.append(scores.returns.mean(-1))
        shares.append((returns[-1] - about["random"]) / (about["expert"] - about["random"]))
    return np.concatenate(returns, axis=1), np.concatenate(shares, axis=1)


def _is_half(run: Any) -> bool:
    return bool(run["hyperparameters"]["bfloat16"])


def _what(run: Any) -> tuple[str, ...]:
    return run["family"], run["algorithm"], run["preset"]
