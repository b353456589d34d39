"""What everybody waits for: `omrl --help`, opening a dataset, the first second of a run. At this commit and another.

    python benchmarks/started.py --against ff6b6bf --json results/reliability/started.json

The other commit is checked out beside this one and run by the same Python and packages; the two take turns. Times are
of whole processes, start of Python and imports included, except that opening a dataset of 100 tasks and opening a run
are the call alone. Medians.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

HERE = Path(__file__).resolve().parents[1]
DATA = """
import sys, numpy as np
from omrl.data import MetaDataset
rng, n = np.random.default_rng(0), 1000
def log():
    obs = rng.normal(size=(n, 20))
    flags = np.arange(n) % 200 == 199
    return {"observations": obs, "actions": rng.uniform(-1, 1, (n, 6)), "rewards": rng.normal(size=n),
            "next_observations": obs, "terminations": flags & False, "truncations": flags,
            "episode": np.arange(n) // 200, "step": np.arange(n) % 200}
logs = {f"task-{i}": log() for i in range(100)}
MetaDataset.from_arrays(logs, action_low=[-1] * 6, action_high=[1] * 6, varies="reward").save(sys.argv[1])
"""
OPEN = """
import sys, time
from omrl.data import MetaDataset
MetaDataset.open(sys.argv[1])
started = time.perf_counter()
for _ in range(10):
    MetaDataset.open(sys.argv[1])
print((time.perf_counter() - started) / 10)
"""
LOAD = """
import sys, time
import omrl
omrl.load(sys.argv[1])
started = time.perf_counter()
for _ in range(10):
    omrl.load(sys.argv[1])
print((time.perf_counter() - started) / 10)
"""
SMALL = "--steps 1 --seeds 1 --hidden 64 64 --encoder-hidden 64 64 --batch-size 32 --context-size 32 --eval-every 0"


@dataclass(frozen=True)
class Args:
    """What to measure."""

    against: str
    """The other commit."""
    turns: int = 15
    json: Path | None = None


def python(source: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *words]
    return subprocess.run(command, env=environment, cwd=source, capture_output=True, text=True, check=True).stdout


def whole(source: Path, *words: str) -> float:
    started = time.perf_counter()
    python(source, *words)
    return time.perf_counter() - started


def measure(source: Path, folder: Path, turn: int) -> dict[str, float]:
    """Seconds of each thing, once."""
    data, run = folder / "data", folder / f"run-{turn}"
    train = ["-m", "omrl", "train", "focal", "--data", str(data), "--out", str(run), *SMALL.split(), "--device", "cpu"]
    return {
        "omrl --help": whole(source, "-m", "omrl", "--help"),
        "open a dataset of 100 tasks": float(python(source, "-c", OPEN, str(data))),
        "a run of one update": whole(source, *train),
        "open a run": float(python(source, "-c", LOAD, str(run))),
    }


def main(args: Args) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        before = Path(temporary) / "before"
        subprocess.run(["git", "worktree", "add", "--detach", str(before), args.against], cwd=HERE, check=True)
        try:
            sources = {"before": before, "now": HERE}
            times: dict[str, dict[str, list[float]]] = {}
            for name, source in sources.items():
                (Path(temporary) / f"{name}-files").mkdir()
                python(source, "-c", DATA, str(Path(temporary) / f"{name}-files" / "data"))
            for turn in range(args.turns + 1):
                for name, source in sources.items():
                    for what, seconds in measure(source, Path(temporary) / f"{name}-files", turn).items():
                        if turn:  # the first one compiles Python and fills caches
                            times.setdefault(what, {}).setdefault(name, []).append(seconds)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(before)], cwd=HERE, check=True)
    found = {what: {name: float(np.median(values)) for name, values in both.items()} for what, both in times.items()}
    for what, both in found.items():
        print(f"{what:30} before {both['before'] * 1e3:9.1f} ms   now {both['now'] * 1e3:9.1f} ms")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        about = {"command": f"python benchmarks/started.py --against {args.against}", "turns": args.turns}
        args.json.write_text(json.dumps({**about, "median_seconds": found, "seconds": times}, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
