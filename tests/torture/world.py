"""What the campaign damages and starts from: data, logs in every format, runs, policies, half-done work."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import omrl
from omrl.data import MetaDataset, interchange
from omrl.families import FAMILIES
from omrl.learning import loop
from torture import moments, steps
from torture.forked import attempt
from training_helpers import pumps, train, walks

MODULE = "from omrl.algorithms.focal import FOCAL\n\n\nclass Mine(FOCAL):\n    pass\n"
STUDY = """
[scale.full]
seeds = 2
steps = 4
log_every = 2
eval_every = 2

[experiment.pumps]
title = "Which of them tells pumps apart"
data = [{ path = "pumps" }]
rows = [
  { label = "FOCAL", algorithm = "focal", changes = { SIZES } },
  { label = "Cloning", algorithm = "contextual-bc", changes = { SIZES } },
]
tables = ["returns", "embedding"]
[[experiment.pumps.claims]]
text = "FOCAL's actions are nearer."
metric = "action_error"
better = ["FOCAL"]
worse = ["Cloning"]
whose = "ours"
"""
SIZES = "hidden = [8], encoder_hidden = [8], batch_size = 8, context_size = 4, meta_batch = 3"
TUNE = """
[[rows]]
label = "FOCAL"
algorithm = "focal"
changes = { SIZES }
[rows.tried]
actor_lr = [0.001, 0.003]
"""
PRESETS = """
[quick.every-family]
hidden = [8, 8]
[quick.sparse-point-robot]
actor_lr = 0.001
steps = 20
[small]
hidden = [8]
[metrics]
q = ["Q", "value"]
"""


def make(folder: Path) -> Path:
    """All of it, in a folder that is empty."""
    folder.mkdir(parents=True, exist_ok=True)
    logs = pumps(folder / "pumps", tasks=6)
    walks(FAMILIES[steps.FAMILY], folder / "walks")
    write_logs(folder, logs)
    for name, text in (("study.toml", STUDY), ("tune.toml", TUNE)):
        (folder / name).write_text(text.replace("SIZES", SIZES))
    (folder / "own").mkdir()
    (folder / "own" / "mine.py").write_text(MODULE)
    (folder / "own" / "mine.toml").write_text(PRESETS)
    make_runs(folder)
    make_data(folder)
    make_begun(folder)
    return folder


def write_logs(folder: Path, logs: dict[str, dict[str, np.ndarray]]) -> None:
    """The same logs as tables and arrays of every kind."""
    import h5py
    import pyarrow
    import pyarrow.parquet

    tasks = np.concatenate([[name] * len(log["rewards"]) for name, log in logs.items()])
    whole = {name: np.concatenate([log[name] for log in logs.values()]) for name in next(iter(logs.values()))}
    columns = {
        "episode": whole["episode"],
        "obs": whole["observations"][:, 0],
        "act": whole["actions"][:, 0],
        "rew": whole["rewards"],
        "term": whole["terminations"].astype(int),
    }
    with (folder / "logs.csv").open("w", newline="") as file:
        csv.writer(file).writerow(("task", *columns))
        csv.writer(file).writerows(zip(tasks, *(values.tolist() for values in columns.values()), strict=True))
    np.savez(folder / "logs.npz", task=tasks, **columns)
    with h5py.File(folder / "logs.hdf5", "w") as out:
        out["task"] = [str(task) for task in tasks]
        for name, values in columns.items():
            out[name] = values
    table = pyarrow.table({"task": tasks.tolist(), **columns})
    pyarrow.parquet.write_table(table, folder / "logs.parquet")
    for task in ("pump-0", "pump-5"):
        (folder / "arrays" / task).mkdir(parents=True)
        for name, values in columns.items():
            np.save(folder / "arrays" / task / f"{name}.npy", values[tasks == task])
        (folder / "trajectories" / task).mkdir(parents=True)
        rows = np.empty((20, 4), dtype=object)
        for i in range(20):
            log = logs[task]
            rows[i, 0], rows[i, 1] = log["observations"][i], log["actions"][i]
            rows[i, 2], rows[i, 3] = float(log["rewards"][i]), log["next_observations"][i]
        np.save(folder / "trajectories" / task / "trj_evalsample0_step5.npy", rows, allow_pickle=True)
    about = {task: {"size": 1.5, "place": [0.0, 1.0]} for task in logs}
    (folder / "about.json").write_text(json.dumps(about))


def make_runs(folder: Path) -> None:
    train(folder / "pumps", folder / "run", steps=4, save_every=2, seed=7)
    omrl.evaluate(folder / "run", device="cpu")
    omrl.calibrate(folder / "run")
    train(folder / "walks", folder / "robot", steps=4, save_every=2)
    omrl.evaluate(folder / "robot", episodes=2, device="cpu")
    scores = folder / "robot" / "scores-episodes-2"
    for end in (".csv", ".json"):
        shutil.copy(scores.with_suffix(end), folder / "robot" / f"scores{end}")
    omrl.export(folder / "run", "numpy", folder / "exported")


def make_data(folder: Path) -> None:
    """Where commands start: an empty folder, and folders with an earlier output."""
    (folder / "nothing").mkdir()
    for name, source in (("trained", "run"), ("imported", "pumps"), ("unmarked", "run")):
        shutil.copytree(folder / source, folder / name / "out")
    (folder / "unmarked" / "out" / ".omrl.json").unlink()
    omrl.select(folder / "run", context=8)
    steps.collects(folder, folder / "collected")
    (folder / "policies").mkdir()
    shutil.copytree(folder / "collected" / "out" / "policies", folder / "policies" / steps.FAMILY)
    interchange.write(MetaDataset.open(folder / "pumps"), folder / "described.hdf5", "hdf5")
    interchange.write(MetaDataset.open(folder / "pumps"), folder / "minari", "minari")
    with steps.quick_pages():
        omrl.report(folder / "run", folder / "reported" / "out")
        steps.studies(folder, folder / "studied")
    steps.tunes(folder, folder / "tuned")


def make_begun(folder: Path) -> None:
    """Work that was killed on its way."""

    def killed(name: str, work: Callable[[Path, Path], object], what: str, end: str) -> None:
        target = folder / name
        target.mkdir()

        def dies() -> None:
            moments.watch(target, moments.kill_when(what, end))
            work(folder, target)

        ended = attempt(dies, seconds=120, memory=None)
        assert ended.signal, f"{name}: {ended}"

    killed("begun", steps.trains, "open", ".step-0000004.safetensors.tmp")
    killed("stage-begun", saves_at_once, "open", ".result.safetensors.tmp")
    killed("stages-begun", steps.learns_stages, "open", ".step-0000002.safetensors.tmp")
    killed("agents-begun", steps.collects, "open", ".actors-0000096.safetensors.tmp")
    killed("logging-begun", steps.collects, "open", ".manifest.json.tmp")


def saves_at_once(made: Path, work: Path) -> None:
    """Learn stages with a checkpoint after every update, which in such a short one nobody has the time for."""
    loop.learn.__kwdefaults__["save_seconds"] = 0.0
    steps.learns_stages(made, work)


def context(folder: Path) -> dict[str, Any]:
    """Rows of a task that the runs have not seen."""
    rows = MetaDataset.open(folder / "pumps").rows("pump-5")
    return {name: np.array(rows[name][:16]) for name in ("observations", "actions", "rewards", "next_observations")}


def array_bytes(array: np.ndarray) -> bytes:
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()
