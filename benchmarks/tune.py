"""Choose hyperparameters for the comparison of algorithms: as many trials for each, judged on training tasks alone.

    python benchmarks/tune.py --data data/half-cheetah-vel --rows "Batch PEARL" MBML --json results/tuning/tuned.json

A quarter of the training tasks is held out: the learners are trained on the others, told each held-out task by its own
log, and judged by their return in it. No test task is used. The trials of a row are one population whose learners
differ in the tried hyperparameters and in their seeds; MBML's share their first stage. Where the best one lies on the
edge of what was tried, one step beyond is tried too, with as many learners. What is not tried is that of the row's
preset, where the choice goes.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from omrl import training
from omrl.data import MetaDataset
from omrl.devices import choose_device
from omrl.evaluation import CONTEXT_ROWS
from omrl.evaluation.given_context import given_context
from omrl.evaluation.summaries import summary
from omrl.learning import training as learning
from omrl.learning.stages import learn_stages
from omrl.runs.model import populate
from omrl.runs.run import Run
from omrl.schema import with_values


def grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """All combinations."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def with_rates(trials: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """One `lr` stands for the step sizes of several networks."""
    return [
        {**{key: value for key, value in trial.items() if key != "lr"}, **dict.fromkeys(names, trial["lr"])}
        for trial in trials
    ]


# Label of a row in the comparisons: algorithm, preset, and its trials, six over its two most important numbers.
ROWS: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "FOCAL": (
        "focal",
        "tuned",
        # A strength of zero is the paper's own choice on point robots.
        with_rates(grid(alpha=(0.0, 10.0, 100.0), lr=(1e-3, 3e-4)), "actor_lr", "critic_lr"),
    ),
    "FOCAL, dual form": ("focal", "dual", grid(alpha=(100.0, 1000.0, 10_000.0), actor_lr=(1e-4, 3e-4))),
    "Batch PEARL, regularised": (
        "batch-pearl",
        "tuned-regularised",
        grid(kl_weight=(0.1, 1e-3, 1e-5), alpha=(10.0, 100.0)),
    ),
    "Batch PEARL": (
        "batch-pearl",
        "tuned",
        with_rates(grid(kl_weight=(0.1, 1e-3, 1e-5), lr=(1e-3, 3e-4)), "encoder_lr", "actor_lr", "critic_lr"),
    ),
    "Contextual BCQ": (
        "contextual-bcq",
        "tuned",
        with_rates(
            grid(perturbation=(0.01, 0.05, 0.2), lr=(1e-3, 3e-4)), "encoder_lr", "actor_lr", "critic_lr", "vae_lr"
        ),
    ),
    "MBML": ("mbml", "tuned", grid(kl_weight=(0.1, 1e-3, 1e-5), lr=(1e-3, 3e-4))),
    "Contextual cloning": ("contextual-bc", "tuned", grid(beta=(1.0, 10.0), actor_lr=(1e-3, 3e-4, 1e-4))),
}


def axes(trials: Sequence[Mapping[str, Any]]) -> list[tuple[tuple[str, ...], list[float]]]:
    """What the trials vary: names that always have the same value together, and their values in order."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for name in trials[0]:
        found.setdefault(tuple(trial[name] for trial in trials), []).append(name)
    return [(tuple(names), sorted(set(values))) for values, names in found.items()]


def beyond(trials: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One step further for every value of the best trial that lies on the edge of what was tried."""
    further = []
    for names, values in axes(trials):
        place = values.index(best[names[0]])
        if place in (0, len(values) - 1) and best[names[0]] > 0:  # there is nothing beyond zero
            neighbour = values[1] if place == 0 else values[-2]
            further.append({**best, **dict.fromkeys(names, best[names[0]] ** 2 / neighbour)})
    return further


@dataclass(frozen=True)
class Args:
    """Try hyperparameters on training tasks."""

    data: Path
    """The meta-dataset."""
    json: Path
    """Where the figures go, beside those of other data and rows."""
    rows: tuple[str, ...] = tuple(ROWS)
    """Which rows of the comparisons."""
    steps: int = 5_000
    """Updates of each learner."""
    seeds: int = 1
    """Learners of each trial."""
    episodes: int = 2
    """Episodes in each held-out task."""
    half: bool = False
    """With networks in bfloat16."""
    device: str = "auto"
    """auto, cpu or cuda."""


class Trials:
    """An algorithm whose learners each have their own values of some hyperparameters.

    The values lie among a learner's parameters, where nothing moves them, so that losses and actions of a population
    find them as they find its weights.
    """

    def __init__(self, algorithm: Any, tried: Sequence[str]) -> None:
        self.algorithm, self.tried = algorithm, tried

    @property
    def learning_rate(self) -> dict[str, float]:
        """What is tried stays as it is."""
        return {**self.algorithm.learning_rate, "trial": 0.0}

    def of(self, config: Any) -> Trials:
        """The same with another config."""
        one = copy.copy(self.algorithm)
        one.config = config
        return Trials(one, self.tried)

    def _of(self, params: Mapping[str, Tensor]) -> Any:
        own = {name: params[f"trial.{name}"].detach() for name in self.tried}
        return self.of(with_values(self.algorithm.config, own)).algorithm

    def loss(self, params: Mapping[str, Tensor], *inputs: Any) -> Any:
        return self._of(params).loss(params, *inputs)

    def infer(self, params: Mapping[str, Tensor], context: Tensor) -> Any:
        return self._of(params).infer(params, context)

    def act(self, params: Mapping[str, Tensor], obs: Tensor, z: Tensor) -> Any:
        return self._of(params).act(params, obs, z)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.algorithm, name)


def vary(learner: learning.Training, trials: Sequence[Mapping[str, Any]], device: str) -> None:
    """Give every learner of a population the hyperparameters of its own trial."""
    config, kind = learner.hyperparameters, type(learner.algorithm)
    configs = [replace(config, **trial) for trial in trials]
    changed = {name for trial in trials for name in trial}
    # Step sizes belong to the optimiser, alpha is a parameter already.
    tried = sorted(name for name in changed if not name.endswith("lr") and name != "alpha")

    def build(*about: Any) -> tuple[list[nn.Module], Trials]:
        modules, algorithm = kind.build(*about)
        for module, one in zip(modules, configs, strict=True):
            module.trial = nn.ParameterDict({name: nn.Parameter(torch.tensor(getattr(one, name))) for name in tried})
        return modules, Trials(algorithm, tried)

    first = learner.run.config.seed
    seeds, builder = range(first, first + len(trials)), SimpleNamespace(build=build)
    learner.algorithm, learner.population = populate(builder, learner.obs_dim, learner.act_dim, config, seeds, device)
    learner.population.set_rates([learner.algorithm.of(one).learning_rate for one in configs])
    if "alpha" in changed:
        with torch.no_grad():
            learner.population.params["alpha"].copy_(torch.tensor([one.alpha for one in configs]))


def measure(args: Args, row: str) -> list[dict[str, Any]]:
    """All trials of a row, and those beyond the edge if the best one lies there."""
    _, _, trials = ROWS[row]
    stages: dict[str, Tensor] = {}
    found = try_out(args, row, trials, args.seeds, stages)
    best = max(found, key=lambda one: one["return"])
    further = beyond(trials, best["trial"])
    if further:
        # As many learners as before: the program is compiled already.
        found += try_out(args, row, further, max(1, len(trials) * args.seeds // len(further)), stages)
    return found


def try_out(
    args: Args, row: str, trials: Sequence[Mapping[str, Any]], seeds: int, frozen: dict[str, Tensor]
) -> list[dict[str, Any]]:
    """Some trials of a row, with so many learners each; what a first stage ends with is `frozen`, once it is learnt."""
    algorithm, preset, _ = ROWS[row]
    dataset, device = MetaDataset.open(args.data), choose_device(args.device)
    start = training.Train(algorithm, args.data, Path(), preset=preset)
    train, hyperparameters = training.starting_point(start)
    hyperparameters = replace(hyperparameters, half=args.half)
    train = replace(train, seeds=len(trials) * seeds, steps=args.steps)
    names = dataset.split["train"]
    held = names[3::4] or names
    level = dataset.level(train.level or "mixed")
    view = level.select([name for name in names if name not in held] or names)
    each = [trial for trial in trials for _ in range(seeds)]
    config = learning.run_config(train, hyperparameters, dataset)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder), config, {})
        rows = view.to(device, max_rows=train.max_rows)
        learner = learning.Training(run, rows, device)
        if stages := learner.algorithm.stages(dataset.manifest.varies):
            one = Run(run.folder, replace(config, seeds=1))
            if not frozen:
                frozen |= learn_stages(stages, one, rows, learner.normalise, device, 1_000)
            learner.frozen = {name: value.expand(len(each), *value.shape[1:]) for name, value in frozen.items()}
        vary(learner, each, device)
        learner.learn(1_000, train.steps)
        judged = level.select(held)
        returns = given_context(learner, judged, CONTEXT_ROWS, args.episodes, seed=0)
        alive = learner.population.alive.tolist()
    found = []
    for i, trial in enumerate(trials):
        own = slice(i * seeds, (i + 1) * seeds)
        about = summary(returns[own].mean(-1), judged, train.steps)
        found.append(
            {
                "family": dataset.family,
                "row": row,
                "algorithm": algorithm,
                "trial": trial,
                "level": train.level,
                "updates": train.steps,
                "seeds": seeds,
                "held_out": len(held),
                "return": about["mean"]["value"],
                "normalised": about.get("normalised"),
                "alive": all(alive[own]),
            }
        )
    return found


def place(trial: dict[str, Any]) -> tuple[str, str]:
    """What a trial was of."""
    return trial["family"], trial["row"]


def main() -> None:
    args = tyro.cli(Args)
    unknown = [row for row in args.rows if row not in ROWS]
    if unknown:
        raise SystemExit(f"There is no row {unknown[0]!r}; there are {', '.join(map(repr, ROWS))}.")
    table = Table("row", "trial", "return", "normalised")
    for row in args.rows:
        found = measure(args, row)
        # Of other data and rows, what was measured before stays.
        before = json.loads(args.json.read_text()) if args.json.is_file() else []
        kept = [one for one in before if place(one) != place(found[0])] + found
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text("[\n" + ",\n".join(json.dumps(one) for one in kept) + "\n]\n")
        for one in found:
            trial = ", ".join(f"{name} {value:g}" for name, value in one["trial"].items())
            normalised = "" if one["normalised"] is None else f"{one['normalised']:.3f}"
            table.add_row(row, trial, f"{one['return']:.2f}", normalised)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
