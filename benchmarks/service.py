"""How long a policy takes to adapt and to act: as it is loaded from a run, as ONNX graphs, and with numpy alone.

    python benchmarks/service.py --json results/speed/service.json

Networks of the algorithms' default sizes with half-cheetah's 20 observations and 6 actions, one thread each. Times are
those of a call from Python, checks of its input included, except that onnxruntime checks shapes alone. The three take
turns, and medians are shown.
"""

from __future__ import annotations

import os

# Before numpy is loaded: matrices are small, and a service has other work for its cores.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import load
import numpy as np
import torch
import tyro

import omrl
from omrl.exporting import omrl_runtime

ALGORITHMS = ("focal", "contextual-bcq")
ROWS = (1, 100)
CALLS = 20


@dataclass(frozen=True)
class Args:
    """What to measure."""

    turns: int = 50
    json: Path | None = None


def calls(run: Path, exported: Path, rows: dict[str, np.ndarray[Any, Any]]) -> dict[str, dict[str, Callable[[], Any]]]:
    """What is timed on these rows: acting and adapting, each way."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    encoder, actor = (
        onnxruntime.InferenceSession(exported / "onnx" / f"{name}.onnx", options) for name in ("encoder", "actor")
    )
    models = {"torch": omrl.load(run), "numpy": omrl_runtime.load(exported / "numpy")}
    policies = {name: model.adapt(rows) for name, model in models.items()}
    obs = rows["observations"]
    context = np.concatenate([values.reshape(len(obs), -1) for values in rows.values()], -1)[None]
    z = np.repeat(policies["torch"].z, len(obs), axis=0)
    return {
        "act": {
            "torch": lambda: policies["torch"].act(obs),
            "onnx": lambda: actor.run(None, {"obs": obs, "z": z}),
            "numpy": lambda: policies["numpy"].act(obs),
        },
        "adapt": {
            "torch": lambda: models["torch"].adapt(rows),
            "onnx": lambda: encoder.run(None, {"context": context}),
            "numpy": lambda: models["numpy"].adapt(rows),
        },
    }


def microseconds(ways: dict[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Median time of a call, each way."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, call in ways.items():
            started = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - started) / CALLS * 1e6)
    return {name: float(np.median(values)) for name, values in times.items()}


def main(args: Args) -> None:
    torch.set_num_threads(1)
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = load.write_logs(folder / "logs", load.Args(tasks=4, rows=200), 200)
        for algorithm in ALGORITHMS:
            run = omrl.train(algorithm, folder / "logs", folder / algorithm, seeds=1, steps=1, eval_every=0).folder
            for form in ("onnx", "numpy"):
                omrl.export(run, form, folder / f"{algorithm}-exported" / form)
            for count in ROWS:
                rows = {name: np.array(data.rows(0)[name][:count]) for name in omrl_runtime.CONTEXT}
                for what, ways in calls(run, folder / f"{algorithm}-exported", rows).items():
                    us = microseconds(ways, args.turns)
                    results.append({"algorithm": algorithm, "what": what, "rows": count, "microseconds": us})
                    print(results[-1])
    if args.json is not None:
        figures = {"hardware": f"{torch.get_num_threads()} CPU thread", "torch": torch.__version__, "results": results}
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
