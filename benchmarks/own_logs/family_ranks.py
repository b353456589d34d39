"""How well `omrl select` ranks policies in omrl's own task families, whose simulators tell what they are truly worth.

    python benchmarks/own_logs/family_ranks.py point-robot-wind ant-fwd-back --json results/own-logs/families.json

Logs are rebuilt from the stored policies, of one quality level or of all of them, and judged are the same kinds of runs
as in the made-up domains (selecting.py). Families and levels that are not named keep their figures.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from omrl.behaviour.collect import collect
from omrl.data import MetaDataset
from omrl.evaluation import stats
from omrl.evaluation.given_context import given_context
from omrl.families import FAMILIES
from omrl.learning.training import Training
from omrl.selecting.signals import Ground, look
from omrl.storage.files import replacing
from selecting import CONTEXT, EPISODES, Effort, recipes, told

TASKS = 32
# Episodes of each checkpoint in a task's log, by level, where those of the family's own data are more than a log needs.
LOGGED = {
    "half-cheetah-vel": {"expert": 8, "mixed": 4},
    "half-cheetah-fwd-back": {"expert": 8, "mixed": 1},
    "ant-fwd-back": {"expert": 40, "mixed": 2},
    "walker-2d-params": {"expert": 40, "mixed": 8},
}
# Bodies take longer to learn than what made-up domains have, and rewards that are rare take longer too.
_BODIES = Effort((1_000, 6_000), 4_000, {"hidden": (128, 128), "gamma": 0.99, "batch_size": 64})
EFFORTS = {
    "sparse-point-robot": Effort((1_000, 5_000), 2_000),
    "point-robot-wind": Effort(),
    "half-cheetah-vel": _BODIES,
    "half-cheetah-fwd-back": _BODIES,
    "ant-fwd-back": _BODIES,
    "walker-2d-params": _BODIES,
}
# Checkpoints that log; `mixed` is all of a family's.
LEVELS = ("expert", "mixed")


def truth(model: Training, own: Sequence[int], tested: MetaDataset) -> dict[str, float | None]:
    """Return beyond the logger's in the family's simulator, over its horizon."""
    returns = given_context(model, tested, CONTEXT, EPISODES, seed=0)[own].mean(-1)
    logged = np.array([tested.returns(task.name).mean() for task in tested.tasks])
    # Where there are two tasks, they are all there are.
    return asdict(stats.mean(returns - logged, new_tasks=len(logged) > 2).interval())


def measure(family: str, level: str, device: str = "cpu") -> list[dict[str, Any]]:
    """Every run of one family and level, as logs and simulator see it."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = None if level == "mixed" else level
        some = {"tasks": min(TASKS, len(FAMILIES[family].tasks)), "episodes": LOGGED.get(family, {}).get(level)}
        collect(family, folder / "data", from_policies=True, level=one, device="cpu", **some)
        data = MetaDataset.open(folder / "data")
        tested = data.select(data.split["test"])
        ground = Ground(data, data.split["test"])
        for recipe, model, own in recipes(folder / "data", folder, replace(EFFORTS[family], device=device)):
            seen = told(look(model, ground, CONTEXT, learners=own))
            where = {"domain": family, "logger": level, "recipe": recipe, "seeds": len(own)}
            found.append({**where, **seen, "true": {"gain": truth(model, own, tested)}})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="+", choices=list(FAMILIES))
    parser.add_argument("--levels", nargs="+", default=LEVELS, choices=LEVELS)
    parser.add_argument("--device", default="cpu", help="where policies are trained")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    for family in args.families:
        for level in args.levels:
            found = measure(family, level, args.device)
            before = json.loads(args.json.read_text()) if args.json.is_file() else []
            others = [row for row in before if (row["domain"], row["logger"]) != (family, level)]
            rows = sorted([*others, *found], key=lambda row: (list(FAMILIES).index(row["domain"]), row["logger"]))
            args.json.parent.mkdir(parents=True, exist_ok=True)
            with replacing(args.json) as temporary:
                temporary.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
            print(f"{family}, {level}: {len(found)} runs", flush=True)


if __name__ == "__main__":
    main()
