"""The paper's study at small scale on a Ray cluster of three nodes on this machine, beside `--at-once 2`.

    python benchmarks/ray_study.py results/scale/ray-study.json            wall clocks, and that results are the same
    python benchmarks/ray_study.py results/scale/ray-kills.json --kills    the same while workers, nodes and drivers die

Both make data, runs and figures from nothing, each in its own folder. Times need an otherwise idle machine; that the
results are the same does not. A kill is drawn by a fixed seed: one worker at random, or one node at random that is not
the head, in whose place a new one comes; the driver is killed by the same signal, and its command started again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def timed(words: list[str], log: Path) -> float:
    began = time.perf_counter()
    with log.open("w") as file:
        subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=True)
    return time.perf_counter() - began


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
    parser.add_argument("--work", type=Path, help="a folder that stays; studies in it are gone on with")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("PYTHONPATH", str(ROOT / "src"))
    with tempfile.TemporaryDirectory() as temporary:
        work = args.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        found: dict[str, object] = {"study": args.name, "nodes": args.nodes, "cores_of_the_machine": os.cpu_count()}
        found["load_before"] = os.getloadavg()[0]
        local = timed(command(args.name, work / "local", "--at-once", "2"), work / "local.log")
        found["at_once_2_seconds"] = round(local, 1)
        print(f"--at-once 2: {local:.1f} s", flush=True)
        with nodes(args.nodes) as cluster:
            words = command(args.name, work / "ray", "--on", cluster.address)
            began = time.perf_counter()
            if args.kills:
                killed = disturbed(
                    cluster, words, work / "ray.log", args.workers_and_nodes, args.drivers, args.every, args.seed
                )
                found["killed"] = killed
            else:
                timed(words, work / "ray.log")
            found["ray_seconds"] = round(time.perf_counter() - began, 1)
        if not args.kills:
            found["overhead"] = round(found["ray_seconds"] / local, 3)  # type: ignore[operator]
        for part in ("data", "out"):
            count, odd = differences(work / "local" / part, work / "ray" / part)
            found[f"{part}_files_compared"], found[f"{part}_files_that_differ"] = count, odd
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
