"""What omrl's scheduling costs on Ray: units that only sleep, on three nodes of one core each.

    python benchmarks/ray_units.py results/scale/ray-units.json

The ideal is that every core sleeps all the time. Before the time counts, a few units warm up the nodes' processes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from ray_cluster import nodes

from omrl.units.on_ray import OnRay
from omrl.units.schedule import run_all
from omrl.units.unit import Unit, Work


class Silent:
    """Nobody watches."""

    def told(self, event):
        pass

    def looked(self, nodes):
        pass

    def grown(self, units):
        pass


def timed(executor, count, seconds):
    units = [Unit(f"{i}", "sleep", f"{i}") for i in range(count)]
    began = time.perf_counter()
    ended = run_all(units, lambda unit: Work("sleep", {"seconds": seconds}), executor, Silent())
    assert all(outcome.status == "done" for outcome in ended.values()) and len(ended) == count
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--units", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with nodes(args.nodes) as cluster:
        executor = OnRay(cluster.address)
        try:
            timed(executor, 40 * args.nodes, args.seconds)
            took = [timed(executor, args.units, args.seconds) for _ in range(args.repeats)]
        finally:
            executor.close()
    ideal = args.units * args.seconds / args.nodes
    found = {
        "units": args.units,
        "seconds_each": args.seconds,
        "nodes": args.nodes,
        "cores_of_the_machine": os.cpu_count(),
        "ideal_seconds": ideal,
        "seconds": [round(one, 3) for one in took],
        "share_of_ideal": [round(ideal / one, 4) for one in took],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
