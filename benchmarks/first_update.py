"""How long a run takes to start: its networks and sampler are built, then the first update is traced and compiled.

    python benchmarks/first_update.py --json results/speed/first-update-cpu.json

FOCAL at the paper's sizes, one seed, in two processes one after the other that share a new cache of compiled programs:
the first finds nothing there (cold), the second all it needs (warm).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from omrl.storage.files import write_json


def start(device: str, cache: Path) -> dict[str, Any]:
    """What `omrl bench update` says of its start, in a process of its own."""
    figures = cache / "figures.json"
    command = ["bench", "update", "--seeds", "1", "--seconds", "0.01", "--repeats", "1", "--device", device]
    command += ["--bfloat16"] if device == "cuda" else ["--mode", "compiled"]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache / "programs")}
    subprocess.run([sys.executable, "-m", "omrl", *command, "--json", str(figures)], env=environment, check=True)
    found: dict[str, Any] = json.loads(figures.read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cold", "warm"):
            found = start(args.device, Path(folder))
            (row,) = found.pop("updates")
            rows.append({"cache": name, "build_s": row["build_s"], "first_update_s": row["first_update_s"]})
            print(f"{name}: built in {row['build_s']:.1f} s, first update {row['first_update_s']:.1f} s", flush=True)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(args.json, {**found, "starts": rows})


if __name__ == "__main__":
    main()
