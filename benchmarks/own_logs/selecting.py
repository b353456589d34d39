"""How well `omrl select` knows from logs alone what policies are worth, told by the simulators that it does not see.

    python benchmarks/own_logs/selecting.py --json results/own-logs/select.json

In every domain and for every logger, policies of very different quality are trained: FOCAL with closed-form
regularisation of five strengths, none among them, after few and after more updates; a clone of the logger; and trained
policies whose weights were damaged. Each is judged from the test tasks' logs and then let act in the simulator.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cells import measure_cells
from domain import Domain, Logger

from omrl.algorithms import get_algorithm
from omrl.commands.train import Train
from omrl.data import MetaDataset
from omrl.evaluation import stats
from omrl.learning import training
from omrl.learning.devices import on_cpu
from omrl.learning.starting import about_choices
from omrl.runs.run import Run
from omrl.schema import changed
from omrl.selecting.signals import Ground, Signals, look
from omrl.selecting.verdict import mean_of_draws, sum_up
from omrl.tuning.trials import populate_trials

ALPHAS = (0.0, 0.1, 1.0, 10.0, 100.0)
SEEDS, CONTEXT, EPISODES = 3, 200, 32
# Noise on weights, in units of their own spread in each layer.
DAMAGE = (0.15, 0.5)
SIZES = {"encoder_hidden": (64, 64), "hidden": (64, 64), "latent_dim": 4}
BATCHES = {"meta_batch": 8, "batch_size": 32, "context_size": 32}
CONTROL = {"divergence": "gaussian-kl", "regularisation": "policy", "regulariser_lr": 1e-3, "gamma": 0.95}


@dataclass(frozen=True)
class Effort:
    """How long policies learn, and what else differs from what made-up domains need."""

    looks: tuple[int, int] = (200, 800)
    """Updates after which FOCAL's policies are judged."""
    cloned: int = 500
    changes: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"


def learners(
    algorithm: str,
    data: Path,
    changes: Mapping[str, Any],
    trials: Sequence[Mapping[str, float]],
    steps: int,
    folder: Path,
    device: str,
) -> training.Training:
    """One population with SEEDS learners of each trial, ready to learn so many updates."""
    dataset = MetaDataset.open(data)
    kind = get_algorithm(algorithm)
    told = about_choices({one.name for one in fields(kind.Config)}, dataset.manifest)
    base = changed(kind.Config(), {**SIZES, **BATCHES, **changes, **told}, algorithm)
    configs = [changed(base, trial, algorithm) for trial in trials for _ in range(SEEDS)]
    args = Train(algorithm, data, Path(), seeds=len(configs), steps=steps, level="mixed")
    run = Run.create(folder, training.run_config(args, base, dataset), {})
    rows = dataset.select(dataset.split["train"]).to(device)
    made = training.Training(run, rows, device)
    shape = (dataset.observation_dim, dataset.action_dim)
    seeds = list(range(SEEDS)) * len(trials)
    # As a run of so many updates would learn.
    mode = on_cpu(base, len(configs), steps)["mode"] if device == "cpu" else None
    made.algorithm, made.population = populate_trials(kind, *shape, configs, seeds, device, sorted(trials[0]), mode)
    return made


def recipes(data: Path, folder: Path, effort: Effort) -> Iterator[tuple[str, training.Training, list[int]]]:
    """Runs of different quality: a name, a population, and which of its learners they are."""
    dataset = MetaDataset.open(data)
    spread = np.std(np.concatenate([dataset.rows(name)["rewards"] for name in dataset.split["train"]]))
    changes = {**CONTROL, "reward_scale": float(5.0 / spread), "alpha_max": max(ALPHAS), **effort.changes}
    trials = [{"alpha": alpha} for alpha in ALPHAS]
    last = effort.looks[-1]
    made = learners("focal", data, changes, trials, last, folder / "focal", effort.device)
    for steps in effort.looks:
        made.run.config = replace(made.run.config, steps=steps)
        made.learn(last, last)
        for i, alpha in enumerate(ALPHAS):
            yield f"focal, alpha {alpha:g}, {steps} updates", made, list(range(i * SEEDS, (i + 1) * SEEDS))
    kept = {name: value.clone() for name, value in made.population.params.items()}
    generator = torch.Generator().manual_seed(0)
    for damage in DAMAGE:
        for name, value in made.population.params.items():
            if name.startswith("actor"):
                noise = torch.randn(value.shape, generator=generator).to(value.device)
                value.copy_(kept[name] + damage * kept[name].std() * noise)
        i = ALPHAS.index(10.0)
        yield f"focal, alpha 10, damaged by {damage:g}", made, list(range(i * SEEDS, (i + 1) * SEEDS))
    known = {one.name for one in fields(get_algorithm("contextual-bc").Config)}
    own = {name: value for name, value in effort.changes.items() if name in known}
    cloned = learners("contextual-bc", data, own, [{}], effort.cloned, folder / "clone", effort.device)
    cloned.learn(effort.cloned, effort.cloned)
    yield "cloned logger", cloned, list(range(SEEDS))


def truth(
    domain: Domain, logger: Logger, data: MetaDataset, model: training.Training, own: Sequence[int]
) -> dict[str, Any]:
    """What the simulator says of a run: its return beyond the logger's, and the share of episodes with harm."""
    gained, harmed, usual = [], [], []
    for seed in own:
        for task in domain.test_tasks:
            rows = data.sample(task.name, CONTEXT, np.random.default_rng([seed, domain.tasks.index(task)]))
            seen = domain.outcome(task, model.adapt(rows, seed), EPISODES)
            them = domain.outcome(task, domain.logger(task, logger), EPISODES)
            gained.append(seen.returns.mean() - them.returns.mean())
            harmed.append(seen.harmed.mean())
            usual.append(them.harmed.mean())
    scores = np.array(gained).reshape(len(own), -1)
    interval = stats.mean(scores, new_tasks=True).interval()
    return {"gain": asdict(interval), "harmed": float(np.mean(harmed)), "logger_harmed": float(np.mean(usual))}


def told(signals: Signals) -> dict[str, Any]:
    """What logs say of a run, and what an interval of any level is made of."""
    measured = {name: vars(mean_of_draws(getattr(signals, name))) for name in ("gained", "fitted_q")}
    numbers = {name: {key: float(value) for key, value in found.items()} for name, found in measured.items()}
    return {"found": asdict(sum_up(signals)), "measured": numbers}


def measure(domain: Domain, logger: Logger) -> list[dict[str, Any]]:
    """Every run of one domain and logger, as logs and simulator see it."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        domain.dataset(logger).save(folder / "data")
        data = MetaDataset.open(folder / "data")
        ground = Ground(data, data.split["test"])
        for recipe, model, own in recipes(folder / "data", folder, Effort()):
            signals = look(model, ground, CONTEXT, learners=own)
            found.append(
                {
                    "domain": domain.name,
                    "logger": logger,
                    "recipe": recipe,
                    "seeds": len(own),
                    **told(signals),
                    "true": truth(domain, logger, data, model, own),
                }
            )
    return found


if __name__ == "__main__":
    measure_cells(__doc__ or "", measure)
