"""Step 4 of the flow: how well a run adapts to tasks it has not seen.

`given-context` is the paper's protocol: context rows are drawn from the test task's own logged data, z is inferred
once, and the deterministic policy is rolled out for the family's horizon. All seeds, tasks and episodes step together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tyro.conf import Positional

from omrl import stats
from omrl.data import MetaDataset
from omrl.embedding import effective_separation_rate, rms_distance
from omrl.errors import OmrlError
from omrl.families import get_family
from omrl.policy import CONTEXT

if TYPE_CHECKING:
    import torch

    from omrl.training import Trained

SCORES = ("seed", "task", "split", "episode", "return")


@dataclass(frozen=True)
class Evaluate:
    """Test a run on unseen tasks, from logged context alone."""

    run: Positional[Path]
    """The run's folder."""
    context: int = 200
    """Logged transitions that a task is inferred from."""
    context_level: str | None = None
    """Quality level of the context; that of training if left out."""
    episodes: int = 10
    """Episodes of each seed and task."""
    split: str = "test"
    """`test` for unseen tasks, `train` for those trained on."""
    seed: int = 0
    """Seed of contexts and start states."""
    json: bool = False
    """Print JSON for programs instead of a table."""


def evaluate(run: str | Path, **options: Any) -> dict[str, Any]:
    """Step 4 from Python: takes what the command takes, returns the summary, writes scores.csv."""
    args = Evaluate(Path(run), **options)
    if args.context < 1 or args.episodes < 1:
        raise OmrlError("--context and --episodes must be at least 1.")
    if args.split not in ("train", "test"):
        raise OmrlError(f"--split is train or test, not {args.split!r}.")
    from omrl.files import write_rows
    from omrl.run import Run
    from omrl.training import Trained

    folder = Run.open(args.run)
    dataset = MetaDataset.open(folder.config["data"])
    if dataset.family is None:
        raise OmrlError("Returns cannot be had without a simulator: these logs belong to none of omrl's families.")
    trained = Trained(folder)
    if trained.step == 0:
        raise OmrlError(f"{args.run} has no checkpoint yet: train it first.")
    names = dataset.split[args.split]
    if not names:
        raise OmrlError(f"{folder.config['data']} has no {args.split} tasks.")
    view = dataset.level(args.context_level or folder.config["level"]).select(names)
    returns = given_context(trained, view, args.context, args.episodes, args.seed)  # [P, T, E]
    rows = [
        (seed, name, args.split, episode, f"{returns[seed, t, episode]:.6g}")
        for seed in range(returns.shape[0])
        for t, name in enumerate(names)
        for episode in range(returns.shape[2])
    ]
    write_rows(folder.folder / "scores.csv", [SCORES, *rows])
    found = summary(returns.mean(-1), dataset.select(names), trained.step)
    trained_on = dataset.level(folder.config["level"]).select(dataset.split["train"])
    return found | embeddings(trained, trained_on, args.context, args.seed)


def embeddings(trained: Trained, view: MetaDataset, context: int, seed: int) -> dict[str, list[float]]:
    """ESR and RMS of every seed's embeddings of the tasks it was trained on, as in the paper's Table 1."""
    codes = infer_tasks(trained, view, context, seed).cpu().numpy()
    return {"esr": [effective_separation_rate(c) for c in codes], "rms": [rms_distance(c) for c in codes]}


def given_context(trained: Trained, view: MetaDataset, context: int, episodes: int, seed: int) -> np.ndarray[Any, Any]:
    """Returns [seeds, tasks, episodes] of the deterministic policy, each task inferred from its own logged rows."""
    import torch
    from torch.func import vmap

    family = get_family(view.family or "")
    tasks, seeds = view.tasks, trained.population.size
    params, device = trained.population.params, trained.population.device
    z = infer_tasks(trained, view, context, seed).repeat_interleave(episodes, dim=1)
    per_seed = len(tasks) * episodes
    simulator = family.simulator([task for _ in range(seeds) for task in tasks for _ in range(episodes)])
    generators = [
        np.random.default_rng([seed, 4, t, e]) for _ in range(seeds) for t in range(len(tasks)) for e in range(episodes)
    ]
    simulator.reset(np.arange(simulator.num), generators)
    returns, running = np.zeros(simulator.num), np.ones(simulator.num, dtype=bool)
    for _ in range(family.horizon):
        obs = trained.normalise(torch.from_numpy(simulator.observe()).to(device)).view(seeds, per_seed, -1)
        with torch.no_grad():
            actions = vmap(trained.algorithm.act)(params, obs, z)
        step = simulator.step(actions.reshape(simulator.num, -1).cpu().numpy())
        returns += step.rewards * running
        running &= ~step.terminations
    simulator.close()
    return returns.reshape(seeds, len(tasks), episodes)


def infer_tasks(trained: Trained, view: MetaDataset, context: int, seed: int) -> torch.Tensor:
    """Every seed's embedding of every task, [P, T, l]."""
    import torch
    from torch.func import vmap

    contexts = draw_contexts(trained, view, context, seed)
    with torch.no_grad():
        z: torch.Tensor = vmap(trained.algorithm.infer)(trained.population.params, contexts)
    return z


def draw_contexts(trained: Trained, view: MetaDataset, context: int, seed: int) -> torch.Tensor:
    """Contexts [P, T, C, (s, a, r, s')] of logged rows; every seed and task draws its own."""
    drawn = [
        [view.sample(t, context, np.random.default_rng([seed, 3, p, t])) for t in range(len(view.tasks))]
        for p in range(trained.population.size)
    ]
    return trained.contexts({name: np.stack([[d[name] for d in row] for row in drawn]) for name in CONTEXT})


def summary(scores: np.ndarray[Any, Any], dataset: MetaDataset, step: int) -> dict[str, Any]:
    """Statistics of a score matrix [seeds, tasks], with the data's own random and expert returns beside it."""
    rng = np.random.default_rng(0)
    entries = {entry.name: entry.reference for entry in dataset.manifest.tasks}
    references = [entries[task.name] for task in dataset.tasks]
    per_task = scores.mean(0)
    found: dict[str, Any] = {
        "updates": step,
        "seeds": scores.shape[0],
        "tasks": scores.shape[1],
        "mean": vars(stats.bootstrap(scores, stats.mean, rng)),
        "iqm": vars(stats.bootstrap(scores, stats.iqm, rng)),
        "per_seed": scores.mean(1).tolist(),
        "worst_task": {"task": dataset.tasks[int(per_task.argmin())].name, "return": float(per_task.min())},
        "best_task": {"task": dataset.tasks[int(per_task.argmax())].name, "return": float(per_task.max())},
    }
    random = [reference.random for reference in references]
    expert = [reference.expert for reference in references]
    if None not in random and None not in expert:
        means = float(np.mean(random)), float(np.mean(expert))  # type: ignore[arg-type]
        found |= {"random": means[0], "expert": means[1]}
        found["normalised"] = stats.normalised(found["mean"]["value"], *means)
    return found


def run(args: Evaluate) -> None:
    """The command."""
    options = {key: value for key, value in vars(args).items() if key != "run"}
    found = evaluate(args.run, **options)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("", "", title=f"{args.run}, {args.split} tasks, given context", show_header=False)

    def interval(name: str) -> str:
        return str(stats.Estimate(**found[name]))

    table.add_row("mean return", f"{interval('mean')}, 95 % over {found['seeds']} seeds and {found['tasks']} tasks")
    table.add_row("IQM", interval("iqm"))
    if "normalised" in found:
        table.add_row(
            "normalised", f"{found['normalised']:.3f} (random {found['random']:.2f}, expert {found['expert']:.2f})"
        )
    table.add_row("each seed", ", ".join(f"{value:.2f}" for value in found["per_seed"]))
    for name in ("esr", "rms"):
        table.add_row(f"embedding {name.upper()}", ", ".join(f"{value:.3f}" for value in found[name]))
    for which in ("worst_task", "best_task"):
        table.add_row(which.replace("_", " "), f"{found[which]['return']:.2f} ({found[which]['task']})")
    Console().print(table)
