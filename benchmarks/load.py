"""How long it takes to have 100 tasks x 10,000 half-cheetah rows as tensors: omrl's own format against Minari.

    python benchmarks/load.py [--json FILE]

Both sides end with the same padded tensors, which is checked. omrl's time includes the checksums of all files, verified
at first touch; Minari has none. Every figure comes from a process of its own; the file cache is warm on both sides.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from omrl.data import MetaDataset, MetaDatasetWriter, interchange
from omrl.families import Task

OBS, ACT = 20, 6


@dataclass(frozen=True)
class Args:
    """Time opening and loading a half-cheetah-sized meta-dataset, through omrl and through Minari."""

    tasks: int = 100
    """Number of tasks."""
    rows: int = 10_000
    """Rows per task."""
    repeats: int = 3
    """Processes per figure, of which the median is shown; Minari's, which take long, run once."""
    json: Path | None = None
    """Also write the figures to this file."""
    measure: tuple[str, str] | None = None
    """Used by the benchmark itself: measure one thing in one folder."""


def write_logs(path: Path, args: Args, steps: int) -> MetaDataset:
    """Random walks, in episodes of so many steps."""
    tasks = [Task(f"task-{i:03d}", {"velocity": i / args.tasks}) for i in range(args.tasks)]
    names = [task.name for task in tasks]
    spaces = {"observation_dim": OBS, "action_dim": ACT, "action_low": -1, "action_high": 1, "varies": "reward"}
    writer = MetaDatasetWriter(path, tasks=tasks, split={"train": names, "test": []}, horizon=steps, **spaces)
    for seed, name in enumerate(names):
        rng = np.random.default_rng(seed)
        walk = rng.normal(size=(args.rows + 1, OBS)).astype(np.float32)
        step = np.arange(args.rows) % steps
        arrays = {
            "observations": walk[:-1],
            "actions": rng.uniform(-1, 1, (args.rows, ACT)),
            "rewards": rng.normal(size=args.rows),
            "next_observations": walk[1:],
            "terminations": np.zeros(args.rows, bool),
            "truncations": step == steps - 1,
            "episode": np.arange(args.rows) // steps,
            "step": step,
            "policy_step": np.zeros(args.rows, np.int32),
        }
        writer.write(name, arrays)
    return writer.finish()


def load_omrl(path: str) -> Any:
    return MetaDataset.open(path).to("cpu")


def load_minari(path: str) -> dict[str, Any]:
    """The same tensors the way Minari's documentation reads episodes."""
    import minari
    import torch

    tasks = []
    for folder in sorted(Path(path).glob("omrl/*/*/data")):
        parts: dict[str, list[np.ndarray[Any, Any]]] = {
            key: [] for key in ("obs", "act", "rew", "next_obs", "term", "episode", "step")
        }
        for episode in minari.MinariDataset(folder).iterate_episodes():
            length = len(episode.rewards)
            parts["obs"].append(episode.observations[:-1])
            parts["act"].append(episode.actions)
            parts["rew"].append(episode.rewards)
            parts["next_obs"].append(episode.observations[1:])
            parts["term"].append(episode.terminations)
            parts["episode"].append(np.full(length, episode.id, np.int32))
            parts["step"].append(np.arange(length, dtype=np.int32))
        tasks.append({key: torch.from_numpy(np.concatenate(values)) for key, values in parts.items()})
    return {key: torch.nn.utils.rnn.pad_sequence([task[key] for task in tasks], batch_first=True) for key in tasks[0]}


def measure(what: str, path: str) -> dict[str, float]:
    """One figure in this process: seconds, bytes read by calls (mapped rows are not), growth of peak memory."""
    import torch  # its import is not what is measured

    torch.zeros(1)
    if what == "minari":
        import minari  # noqa: F401
    memory, read, start = _peak_memory(), _bytes_read(), time.perf_counter()
    result = {"open": MetaDataset.open, "omrl": load_omrl, "minari": load_minari}[what](path)
    seconds = time.perf_counter() - start
    figures = {"seconds": seconds, "bytes_read": _bytes_read() - read, "peak_bytes": _peak_memory() - memory}
    if what == "minari":  # equal to the bit, or the comparison means nothing
        ours = load_omrl(path.removesuffix("-minari"))
        for key, values in result.items():
            assert torch.equal(values, getattr(ours, key)), key
    return figures


def _bytes_read() -> float:
    try:
        return float(Path("/proc/self/io").read_text().split()[1])
    except OSError:  # not on Linux
        return float("nan")


def _peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def median_of(args: Args, what: str, path: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", what, str(path)]
    repeats = 1 if what == "minari" else args.repeats
    runs = [json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) for _ in range(repeats)]
    return {key: float(np.median([run[key] for run in runs])) for key in runs[0]}


def main(args: Args) -> None:
    if args.measure is not None:
        print(json.dumps(measure(*args.measure)))
        return
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for steps in (200, 20):
            path = Path(temporary) / f"episodes-of-{steps}"
            dataset = write_logs(path, args, steps)
            figures["bytes"] = sum(entry.bytes for entry in dataset.manifest.tasks)
            minari_path = path.with_name(f"{path.name}-minari")
            interchange.write(dataset, minari_path, "minari")
            for what, source in (("open", path), ("omrl", path), ("minari", minari_path)):
                figures[f"{what}, episodes of {steps}"] = median_of(args, what, source)
    figures["cores"] = os.cpu_count()

    title = f"{args.tasks} tasks x {args.rows:,} rows, {figures['bytes'] / 1e6:.0f} MB, {figures['cores']} cores"
    table = Table(title=title)
    for heading in ("", "seconds", "MB read", "MB memory"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    labels = {"open": "open (no rows)", "omrl": "open + tensors", "minari": "Minari + tensors"}
    for key, run in figures.items():
        if isinstance(run, dict):
            what, episodes = key.split(", ")
            read = f"{run['bytes_read'] / 1e6:.2f}"
            table.add_row(
                f"{labels[what]}, {episodes}", f"{run['seconds']:.3f}", read, f"{run['peak_bytes'] / 1e6:.0f}"
            )
    Console().print(table)
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
