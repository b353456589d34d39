"""Step 4 of the flow: how well a run adapts to tasks it has not seen.

`given-context` is the paper's protocol: context rows are drawn from the test task's own logged data, z is inferred
once, and the deterministic policy is rolled out for the family's horizon. All seeds, tasks and episodes step together.

`logged` needs no simulator, and cannot tell returns: it looks at how well tasks are told apart by rows that were held
out, and how far the adapted policy is from the logged actions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tyro.conf import Positional

from omrl import stats
from omrl.data import MetaDataset
from omrl.data.arrays import episode_starts, to_unit
from omrl.embedding import effective_separation_rate, rms_distance
from omrl.errors import OmrlError
from omrl.families import get_family
from omrl.runs.policy import CONTEXT
from omrl.runs.records import LOGGED, SCORES

if TYPE_CHECKING:
    import torch

    from omrl.runs.model import Model
    from omrl.runs.run import Run

Array = np.ndarray[Any, Any]

# Logged transitions that a task is inferred from: one episode of the MuJoCo families, ten of the point robots.
CONTEXT_ROWS = 200
# Contexts drawn from each half of a task's rows to tell tasks apart, and rows of a task that actions are compared on.
SETS, SCORED_ROWS = 10, 2_000


@dataclass(frozen=True)
class Evaluate:
    """Test a run on unseen tasks, from logged context alone."""

    run: Positional[Path]
    """The run's folder."""
    protocol: Literal["given-context", "logged"] | None = None
    """`given-context` rolls the policy out, `logged` needs no simulator; the first where there is one."""
    context: int = CONTEXT_ROWS
    """Logged transitions that a task is inferred from."""
    context_level: str | None = None
    """Quality level of the context; that of training if left out."""
    episodes: int = 10
    """Episodes of each seed and task, with `given-context`."""
    split: str = "test"
    """`test` for unseen tasks, `train` for those trained on."""
    seed: int = 0
    """Seed of contexts and start states."""
    device: str = "auto"
    """auto, cpu or cuda."""
    json: bool = False
    """Print JSON for programs instead of a table."""


def evaluate(run: str | Path, **options: Any) -> dict[str, Any]:
    """Step 4 from Python: takes what the command takes, returns the summary, writes the raw rows into the run."""
    args = Evaluate(Path(run), **options)
    _check(args)
    from omrl.devices import choose_device
    from omrl.runs.model import Model
    from omrl.runs.run import Run

    folder = Run.open(args.run)
    dataset = folder.dataset()
    args = _with_defaults(args, folder, dataset)
    trained = Model(folder, choose_device(args.device))
    if trained.step == 0:
        raise OmrlError(f"{args.run} has no checkpoint yet: train it first.")
    names = dataset.split[args.split]
    if not names:
        other = "train" if args.split == "test" else "test"
        raise OmrlError(f"{folder.config.data} has no {args.split} tasks; --split {other} tests on the others.")
    view = dataset.level(args.context_level or folder.config.level).select(names)
    seeds = folder.config.all_seeds()
    found: dict[str, Any] = {
        "protocol": args.protocol,
        "split": args.split,
        "context": args.context,
        "context_level": args.context_level or folder.config.level,
        "file": file_name(args),
        # Some families test on the tasks they train on, as the paper does: whoever reads a score should know.
        "tasks_trained_on": len({*names} & {*dataset.split["train"]}),
        # What such a seed does is that of its last good state, whatever the number of updates says.
        "stopped": [seed for seed, alive in zip(seeds, trained.population.alive.tolist(), strict=True) if not alive],
    }
    if args.protocol == "logged":
        metrics = logged(trained, view, args.context, args.seed)
        rows = [
            (seeds[p], names[t], args.split, metric, f"{value:.6g}")
            for metric, values in metrics.items()
            for (p, t), value in np.ndenumerate(values)
        ]
        header = LOGGED
        found |= logged_summary(metrics, trained.step, new_tasks=not found["tasks_trained_on"])
    else:
        returns = given_context(trained, view, args.context, args.episodes, args.seed)  # [P, T, E]
        rows = [(seeds[p], names[t], args.split, e, f"{value:.6g}") for (p, t, e), value in np.ndenumerate(returns)]
        header = SCORES
        found |= summary(returns.mean(-1), dataset.select(names), trained.step)
    trained_on = dataset.level(folder.config.level).select(dataset.split["train"])
    found |= embeddings(trained, trained_on, args.context, args.seed)
    folder.note_scores(Path(found["file"]).stem, header, rows, found)
    return found


def _check(args: Evaluate) -> None:
    for name, least in (("context", 1), ("episodes", 1), ("seed", 0)):
        value = getattr(args, name)
        if not isinstance(value, int) or value < least:
            raise OmrlError(f"--{name} must be a whole number of at least {least}, not {value!r}.")
    if args.split not in ("train", "test"):
        raise OmrlError(f"--split is train or test, not {args.split!r}.")
    if args.protocol not in (None, "given-context", "logged"):
        raise OmrlError(f"--protocol is given-context or logged, not {args.protocol!r}.")


def _with_defaults(args: Evaluate, folder: Run, dataset: MetaDataset) -> Evaluate:
    """The protocol that the data allows; a context level that is the default counts as left out."""
    if args.protocol == "given-context" and dataset.family is None:
        raise OmrlError(
            "Returns cannot be had without a simulator, and these logs belong to none of omrl's families; "
            "--protocol logged needs none."
        )
    protocol = args.protocol or ("logged" if dataset.family is None else "given-context")
    level = None if args.context_level == folder.config.level else args.context_level
    episodes = args.episodes if protocol == "given-context" else Evaluate.episodes
    return replace(args, protocol=protocol, context_level=level, episodes=episodes)


def file_name(args: Evaluate) -> str:
    """Where the raw rows go: every option that is not the default is in the name, so that none replaces another's."""
    names = ("split", "context_level", "context", "episodes", "seed")
    changed = [(name, getattr(args, name)) for name in names if getattr(args, name) != getattr(Evaluate, name)]
    parts = [f"-{name.replace('_', '-')}-{value}" for name, value in changed]
    return ("logged" if args.protocol == "logged" else "scores") + "".join(parts) + ".csv"


# -- protocols ---------------------------------------------------------------------------------------------------------


def embeddings(trained: Model, view: MetaDataset, context: int, seed: int) -> dict[str, list[float]]:
    """ESR and RMS of every seed's embeddings of the tasks it was trained on, as in the paper's Table 1."""
    if len(view.tasks) < 2:
        return {"esr": [], "rms": []}  # no pair of tasks to keep apart
    codes = infer_tasks(trained, view, context, seed).cpu().numpy()
    return {"esr": [effective_separation_rate(c) for c in codes], "rms": [rms_distance(c) for c in codes]}


def given_context(
    trained: Model,
    view: MetaDataset,
    context: int,
    episodes: int,
    seed: int,
    params: Mapping[str, torch.Tensor] | None = None,
) -> Array:
    """Returns [seeds, tasks, episodes] of the deterministic policy, each task inferred from its own logged rows.

    `params` are the learners' as they are, or as somebody kept them.
    """
    import torch
    from torch.func import vmap

    family = get_family(view.family or "")
    tasks, seeds = view.tasks, trained.population.size
    params, device = params or trained.population.params, trained.population.device
    z = infer_tasks(trained, view, context, seed, params).repeat_interleave(episodes, dim=1)
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


def logged(trained: Model, view: MetaDataset, context: int, seed: int) -> dict[str, Array]:
    """What logs alone can tell, each [seeds, tasks]. A task is known from one half of its rows, judged by the other.

    identification: share of held-out contexts whose z is nearest to the mean z of their own task, of all tasks;
    action_error: RMS difference of the adapted policy's actions and the logged ones, which lie in [-1, 1];
    constant_error: the same for the task's mean action, whatever the observation;
    q_logged, q_policy: mean value of the logged and of the policy's actions, where the algorithm has a `q`.
    """
    import torch
    from torch.func import vmap

    algorithm, params = trained.algorithm, trained.population.params
    found: dict[str, list[Any]] = {}
    codes = []
    for t, task in enumerate(view.tasks):
        rows, rng = view.rows(t), np.random.default_rng([seed, 5, t])
        known, held = halves(rows["episode"], rng)
        if not len(known):
            raise OmrlError(f"Task {task.name!r} has a single row: there is none to hold out.")
        shape = (trained.population.size, SETS, context)
        drawn = np.stack([half[rng.integers(len(half), size=shape)] for half in (known, held)], axis=1)
        scored = held if len(held) <= SCORED_ROWS else np.sort(rng.choice(held, SCORED_ROWS, replace=False))
        obs = trained.normalise(torch.from_numpy(rows["observations"][scored]).to(trained.population.device))
        act, usual = _unit(trained, rows["actions"][scored]), _unit(trained, rows["actions"][known]).mean(0)
        with torch.no_grad():
            codes.append(vmap(algorithm.infer)(params, trained.contexts({name: rows[name][drawn] for name in CONTEXT})))
            z = codes[-1][:, 0, :1].expand(-1, len(obs), -1)  # from one context, as a user adapts
            own = vmap(algorithm.act, in_dims=(0, None, 0))(params, obs, z)
            values = {
                "action_error": (own - act).square().mean((1, 2)).sqrt(),
                "constant_error": (usual - act).square().mean().sqrt().expand(len(own)),
            }
            if algorithm.has_values:
                values["q_logged"] = vmap(algorithm.q, in_dims=(0, None, 0, None))(params, obs, z, act)
                values["q_policy"] = vmap(algorithm.q, in_dims=(0, None, 0, 0))(params, obs, z, own)
        for name, value in values.items():
            found.setdefault(name, []).append(value.flatten(1).mean(1) if value.ndim > 1 else value)
    result = {name: torch.stack(columns, dim=1).cpu().numpy() for name, columns in found.items()}
    if len(codes) < 2:
        return result  # one task is always told apart
    return {"identification": identification(torch.stack(codes, dim=1)).cpu().numpy(), **result}


def identification(codes: torch.Tensor) -> torch.Tensor:
    """Share [P, T] of z in codes [P, T, (known, held out), sets, l] that are nearest to their own task's known ones."""
    import torch

    seeds, tasks, _, sets, _ = codes.shape
    known, held = codes[:, :, 0].mean(2), codes[:, :, 1].flatten(1, 2)
    nearest = torch.cdist(held, known).argmin(-1).view(seeds, tasks, sets)
    return (nearest == torch.arange(tasks, device=codes.device)[:, None]).float().mean(-1)


def halves(episode: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Row numbers in two parts: different episodes where there are several, else the beginning and the end of one."""
    starts = episode_starts(episode)
    if len(starts) == 1:
        middle = len(episode) // 2
        return np.arange(middle), np.arange(middle, len(episode))
    first = rng.permutation(len(starts)) < len(starts) // 2
    in_first = np.repeat(first, np.diff(starts, append=len(episode)))
    return np.flatnonzero(in_first), np.flatnonzero(~in_first)


def _unit(trained: Model, actions: Array) -> torch.Tensor:
    """Logged actions in [-1, 1]."""
    import torch

    unit = np.array(actions, np.float32)
    to_unit(unit, trained.action_low, trained.action_high)
    return torch.from_numpy(unit).to(trained.population.device)


def infer_tasks(
    trained: Model, view: MetaDataset, context: int, seed: int, params: Mapping[str, torch.Tensor] | None = None
) -> torch.Tensor:
    """Every seed's embedding of every task, [P, T, l]."""
    import torch
    from torch.func import vmap

    contexts = draw_contexts(trained, view, context, seed)
    with torch.no_grad():
        z: torch.Tensor = vmap(trained.algorithm.infer)(params or trained.population.params, contexts)
    return z


def draw_contexts(trained: Model, view: MetaDataset, context: int, seed: int) -> torch.Tensor:
    """Contexts [P, T, C, (s, a, r, s')] of logged rows; every seed and task draws its own."""
    drawn = [
        [view.sample(t, context, np.random.default_rng([seed, 3, p, t])) for t in range(len(view.tasks))]
        for p in range(trained.population.size)
    ]
    return trained.contexts({name: np.stack([[d[name] for d in row] for row in drawn]) for name in CONTEXT})


# -- what comes out ----------------------------------------------------------------------------------------------------


def summary(scores: Array, dataset: MetaDataset, step: int) -> dict[str, Any]:
    """Statistics of a score matrix [seeds, tasks], with the data's own random and expert returns beside it.

    Tasks that were not trained on are a sample of their family; others are themselves what is asked about.
    """
    entries = {entry.name: entry.reference for entry in dataset.manifest.tasks}
    references = [entries[task.name] for task in dataset.tasks]
    per_task = scores.mean(0)
    found: dict[str, Any] = {
        "updates": step,
        "seeds": scores.shape[0],
        "tasks": scores.shape[1],
        "mean": vars(stats.mean(scores, new_tasks=not dataset.split["train"]).interval()),
        "iqm": stats.iqm(scores),
        "per_seed": scores.mean(1).tolist(),
        "worst_task": {"task": dataset.tasks[int(per_task.argmin())].name, "return": float(per_task.min())},
        "best_task": {"task": dataset.tasks[int(per_task.argmax())].name, "return": float(per_task.max())},
    }
    random = [reference.random for reference in references]
    expert = [reference.expert for reference in references]
    if None not in random and None not in expert:
        means = float(np.mean(random)), float(np.mean(expert))  # type: ignore[arg-type]
        found |= {"random": means[0], "expert": means[1]}
        if means[0] != means[1]:
            found["normalised"] = stats.normalised(found["mean"]["value"], *means)
    return found


def logged_summary(metrics: dict[str, Array], step: int, *, new_tasks: bool) -> dict[str, Any]:
    """The mean of every metric [seeds, tasks], and how often tasks would be told apart by chance."""
    seeds, tasks = metrics["action_error"].shape
    found: dict[str, Any] = {"updates": step, "seeds": seeds, "tasks": tasks, "chance": 1 / tasks}
    intervals = {name: stats.mean(values, new_tasks=new_tasks).interval() for name, values in metrics.items()}
    return found | {name: vars(interval) for name, interval in intervals.items()}


def run(args: Evaluate) -> None:
    """The command."""
    options = {key: value for key, value in vars(args).items() if key != "run"}
    found = evaluate(args.run, **options)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    from omrl.runs.run import Run

    known = found["tasks_trained_on"] if args.split == "test" else 0
    title = f"{args.run}, {args.split} tasks{f' ({known} of them trained on)' if known else ''}, {found['protocol']}"
    table = Table("", "", title=title, show_header=False)
    for row in _logged_lines(found) if found["protocol"] == "logged" else _return_lines(found):
        table.add_row(*row)
    steps = Run.open(args.run).config.steps
    if found["updates"] < steps:
        table.add_row("not finished", f"{found['updates']:,} of {steps:,} updates")
    if found["stopped"]:
        table.add_row("stopped early", f"seed {', '.join(map(str, found['stopped']))}: a number was not finite")
    for name in ("esr", "rms"):
        if found[name]:
            table.add_row(f"embedding {name.upper()}", ", ".join(f"{value:.3f}" for value in found[name]))
    table.add_row("raw values", str(args.run / found["file"]))
    # A pipe has no width to fit: there, a path stays whole.
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    if found["protocol"] == "logged":
        print("Returns cannot be had from logs alone: they need a simulator of the tasks, or the tasks themselves.")


def _return_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    worst, best = found["worst_task"], found["best_task"]
    lines = [("mean return", f"{stats.Estimate(**found['mean'])}, {over(found)}")]
    lines.append(("IQM", f"{found['iqm']:z.2f}"))
    if "normalised" in found:
        beside = f"(random {found['random']:z.2f}, expert {found['expert']:z.2f})"
        lines.append(("normalised", f"{found['normalised']:z.3f} {beside}"))
    return [
        *lines,
        ("each seed", ", ".join(f"{value:z.2f}" for value in found["per_seed"])),
        ("worst task", f"{worst['return']:z.2f} ({worst['task']})"),
        ("best task", f"{best['return']:z.2f} ({best['task']})"),
    ]


def _logged_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    labels = {
        "identification": f"tasks told apart (chance {found['chance']:.3f})",
        "action_error": "action error, RMS in [-1, 1]",
        "constant_error": "that of the mean action",
        "q_logged": "Q of logged actions",
        "q_policy": "Q of the policy's actions",
    }
    lines = []
    for name, label in labels.items():
        if name in found:
            lines.append((label, stats.Estimate(**found[name]).text(3)))
    lines[0] = (lines[0][0], f"{lines[0][1]}, {over(found)}")
    return lines


def over(found: dict[str, Any]) -> str:
    """What an interval of a summary is over."""
    from omrl.progress import counted

    seeds, tasks = counted(found["seeds"], "seed"), counted(found["tasks"], "task")
    if found["seeds"] == 1:
        return f"{tasks}; one seed does not tell how far another would be"
    sampled = not found["tasks_trained_on"] and found["tasks"] >= stats.FEWEST_TASKS
    return f"95 % over {seeds} and {tasks}" if sampled else f"95 % over {seeds}, in {tasks}"
