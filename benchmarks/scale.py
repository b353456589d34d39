"""How long the paper's study would take on 1 to 512 GPUs: its plan, the costs of its units, a simulated schedule.

    python benchmarks/scale.py results/scale/schedule.json

Seconds of a training are those that `omrl paper list` counts by: milliseconds of an update measured on one H200, beside
each algorithm; a test, the data of a family and the figures of an experiment are shares of the minute that a run takes
beside its updates. Bytes are those of the checkpoints that such runs write.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from omrl.algorithms import get_algorithm, read_preset
from omrl.commands.train import OF_THE_RUN
from omrl.families import get_family
from omrl.runs.model import populate
from omrl.schema import read
from omrl.studies.cutting import Cut, Places
from omrl.studies.definitions import read_study
from omrl.studies.planning import jobs, plan, updates
from omrl.studies.running import SAVES
from omrl.units.place import Means
from omrl.units.simulate import simulate

# Cores for each GPU of a usual machine.
CORES = 16
GPUS = (1, 8, 64, 512)
# A benchmark of the field has each run of the paper so many times, with other seeds.
TIMES = 10
SAVE_EVERY = 5_000


def units_of(times: int):
    study = read_study()
    scale = study.scales["full"]
    planned = [(one, plan(one, scale)) for one in study.experiments.values()]
    with tempfile.TemporaryDirectory() as folder:
        places = Places(Path(folder) / "out", Path(folder) / "data", Path(folder) / "policies")
        cut = Cut(planned, ("full", scale), study.around["full"], places, Means(1, 1.0, "cuda"), {})
    wanted = jobs([cell for _, cells in planned for cell in cells])
    found = []
    for number in range(times):
        for unit in cut.units:
            shared = unit.kind == "data"
            if number and shared:
                continue
            after = tuple(name if name.startswith("data ") else f"{name} #{number}" for name in unit.after)
            gpu = unit.gpu if unit.kind == "train" else 0.0
            found.append(replace(unit, name=unit.name if shared else f"{unit.name} #{number}", after=after, gpu=gpu))
    return found, wanted


def checkpoint_bytes(job) -> int:
    """Of all seeds of a run, by building them."""
    family = get_family(job.source.family)
    kind = get_algorithm(job.algorithm)
    preset = read_preset(job.algorithm, job.preset, family.name)
    own = {name: value for name, value in preset.items() if name not in OF_THE_RUN}
    config = read(kind.Config, {**own, **dict(job.changes)}, job.algorithm)
    _, population = populate(kind, family.obs_dim, family.act_dim, config, range(job.seeds), "cpu")
    return sum(value.numel() * value.element_size() for value in population.state().values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    _, wanted = units_of(1)
    sizes = [checkpoint_bytes(job) for job in wanted]
    sent = [size * max(SAVES, updates(job) // SAVE_EVERY) for size, job in zip(sizes, wanted, strict=True)]
    found: dict[str, object] = {
        "cores_per_gpu": CORES,
        "checkpoint_megabytes": {"mean": sum(sizes) / len(sizes) / 1e6, "most": max(sizes) / 1e6},
        "sent_megabytes_per_run": sum(sent) / len(sent) / 1e6,
        "studies": [],
    }
    for name, times in (("the paper's study", 1), (f"{TIMES} times its runs", TIMES)):
        units, _ = units_of(times)
        trained = [unit for unit in units if unit.kind == "train"]
        lines = []
        for gpus in GPUS:
            told = simulate(units, gpus, CORES * gpus)
            lines.append(
                {
                    "gpus": gpus,
                    "minutes": told.seconds / 60,
                    "work_bound_minutes": told.work_bound / 60,
                    "chain_bound_minutes": told.chain_bound / 60,
                    "efficiency": told.efficiency,
                    "units_per_second": len(units) / told.seconds,
                    "megabytes_per_second": times * sum(sent) / 1e6 / told.seconds,
                }
            )
        found["studies"].append(  # type: ignore[attr-defined]
            {
                "study": name,
                "units": len(units),
                "runs": len(trained),
                "seconds_of_a_run": {
                    "mean": sum(unit.seconds for unit in trained) / len(trained),
                    "most": max(unit.seconds for unit in trained),
                },
                "schedules": lines,
            }
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
