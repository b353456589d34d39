"""The paper's study at small scale on a Ray cluster of three nodes on this machine, beside `--at-once 2`.

    python benchmarks/ray_study.py results/scale/ray-study.json            wall clocks, and that results are the same
    python benchmarks/ray_study.py results/scale/ray-kills.json --kills    the same while workers, nodes and drivers die

Both make data, runs and figures from nothing, each in its own folder; with the same `--work` the second has no need to
do the study here again. Times need an otherwise idle machine; that the results are the same does not. A kill is drawn
by a fixed seed: one worker at random, or one node at random that is not the head, in whose place a new one comes; the
driver is killed by the same signal, and its command started again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ray_cluster import Nodes, nodes

ROOT = Path(__file__).resolve().parents[1]
# What a clock, a name of a folder or of a machine has a say in.
NOT_COMPARED = ("timings.json", "environment.json", "config.json", "events", "report", "progress", "figures")


def command(name: str, folder: Path, *how: str) -> list[str]:
    words = ["paper", "run", name, "--scale", "small", "--device", "cpu", "--threads", "1"]
    places = ["--data", str(folder / "data"), "--out", str(folder / "out"), "--policies", str(ROOT / "policies")]
    return [sys.executable, "-m", "omrl", *words, *places, *how]


def content(folder: Path) -> dict[str, bytes]:
    """Every file that two studies have to agree on, byte for byte."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not set(NOT_COMPARED) & set(name.parts) and not name.name.startswith("."):
            found[str(name)] = path.read_bytes()
    return found


def differences(one: Path, other: Path) -> tuple[int, list[str]]:
    """How many files were compared, and which of them are not the same."""
    ours, theirs = content(one), content(other)
    names = ours.keys() | theirs.keys()
    return len(names), sorted(name for name in names if ours.get(name) != theirs.get(name))


def most_megabytes(progress: Path) -> dict[str, float]:
    """Of a process that did a unit of each kind; it may have done others before."""
    found: dict[str, float] = {}
    for unit in json.loads(progress.read_text())["units"].values():
        found[unit["kind"]] = max(found.get(unit["kind"], 0.0), round(unit.get("memory", 0) / 1e6))
    return found


def timed(words: list[str], log: Path) -> float:
    began = time.perf_counter()
    with log.open("w") as file:
        subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=True)
    return time.perf_counter() - began


def here(name: str, work: Path) -> dict[str, float]:
    """What `--at-once 2` takes; a folder that has it from before is left alone."""
    kept = work / "local.json"
    if not kept.exists():
        shutil.rmtree(work / "local", ignore_errors=True)
        load = os.getloadavg()[0]
        seconds = timed(command(name, work / "local", "--at-once", "2"), work / "local.log")
        kept.write_text(json.dumps({"load_before": round(load, 2), "at_once_2_seconds": round(seconds, 1)}))
    found: dict[str, float] = json.loads(kept.read_text())
    return found


def start(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("a") as file:
        return subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)


def disturbed(
    cluster: Nodes, words: list[str], log: Path, kills: int, drivers: int, every: float, seed: int
) -> list[dict[str, object]]:
    """Run a study to its end, and kill on the way; what was killed, and when."""
    rng = random.Random(seed)
    plan = ["driver"] * drivers + [rng.choice(("worker", "worker", "node")) for _ in range(kills)]
    rng.shuffle(plan)
    began, done = time.monotonic(), []
    driver = start(words, log)
    due = began + every
    while True:
        time.sleep(0.1)
        status = driver.poll()
        if status == 0:
            break
        if status is not None:
            raise SystemExit(f"The driver ended with {status}, see {log}")
        if len(done) == len(plan) or time.monotonic() < due:
            continue
        what = plan[len(done)]
        if what == "worker":
            if not (working := cluster.workers()):
                continue
            cluster.kill_worker(killed := rng.choice(working))
        elif what == "node":
            killed = rng.randrange(len(cluster.others))
            cluster.lose(killed)
            cluster.add()
        else:
            driver.send_signal(signal.SIGKILL)
            killed = driver.wait()
            driver = start(words, log)
        done.append({"what": what, "after_seconds": round(time.monotonic() - began, 1)})
        print(f"{done[-1]['after_seconds']} s: killed a {what}", flush=True)
        due = time.monotonic() + every * rng.uniform(0.5, 1.5)
    if len(done) < len(plan):
        raise SystemExit(f"It ended after {len(done)} of {len(plan)} kills: a smaller --every has room for all.")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="all", help="an experiment of the paper instead of all")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--every", type=float, default=8.0, help="seconds between two kills, on average")
    parser.add_argument("--workers-and-nodes", type=int, default=20)
    parser.add_argument("--drivers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="a folder that stays, and what was done here with it")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("PYTHONPATH", str(ROOT / "src"))
    with tempfile.TemporaryDirectory() as temporary:
        work = args.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        found: dict[str, Any] = {"study": args.name, "nodes": args.nodes, "cores_of_the_machine": os.cpu_count()}
        found |= here(args.name, work)
        print(f"--at-once 2: {found['at_once_2_seconds']} s", flush=True)
        there, log = work / ("kills" if args.kills else "ray"), work / "ray.log"
        shutil.rmtree(there, ignore_errors=True)
        found["ray_load_before"] = round(os.getloadavg()[0], 2)
        with nodes(args.nodes) as cluster:
            words = command(args.name, there, "--on", cluster.address)
            began = time.perf_counter()
            if args.kills:
                kills = (args.workers_and_nodes, args.drivers, args.every, args.seed)
                found["killed"] = disturbed(cluster, words, log, *kills)
            else:
                timed(words, log)
            found["ray_seconds"] = round(time.perf_counter() - began, 1)
        found["most_megabytes"] = most_megabytes(there / "out" / "progress" / "progress.json")
        if not args.kills:
            found["overhead"] = round(found["ray_seconds"] / found["at_once_2_seconds"], 3)
        for part in ("data", "out"):
            count, odd = differences(work / "local" / part, there / part)
            found[f"{part}_files_compared"], found[f"{part}_files_that_differ"] = count, odd
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
