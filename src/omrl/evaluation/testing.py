"""Tests a run by a protocol: its scores and what they sum up to, in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from omrl.commands.evaluate import Evaluate
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.evaluation import stats
from omrl.evaluation.contexts import embeddings
from omrl.evaluation.protocol import Array, Protocol, Resources, get_protocol
from omrl.evaluation.summaries import as_summary, context_words, logged_summary, summary
from omrl.families import get_family
from omrl.learning.devices import choose_device
from omrl.runs.model import Model
from omrl.runs.records import LOGGED, SCORES, Summary
from omrl.runs.run import Run
from omrl.storage import folders


def evaluate(run: str | Path, **options: object) -> Summary:
    """Step 4 from Python: takes what the command takes, returns the summary, writes rows and summary into the run."""
    if isinstance(options.get("trust"), str):
        options["trust"] = (options["trust"],)
    if isinstance(data := options.get("data"), str):
        options["data"] = Path(data)
    given: dict[str, Any] = options
    return test(Evaluate(Path(run), **given))


def file_name(args: Evaluate) -> str:
    """Where the raw rows go: every option that is not the default is in the name, so that none replaces another's."""
    names = ("split", "context_level", "context", "episodes", "seed")
    changed = [(name, getattr(args, name)) for name in names if getattr(args, name) != getattr(Evaluate, name)]
    parts = [f"-{name.replace('_', '-')}-{value}" for name, value in changed]
    stem = "scores" if args.protocol in (None, "given-context") else args.protocol
    return f"{stem}{''.join(parts)}.csv"


def test(args: Evaluate) -> Summary:
    """What comes out, which is written into the run's folder too."""
    _check(args)
    run = Run.open(args.run)
    dataset = run.dataset(args.data)
    protocol = _protocol(args, dataset)
    if args.context_level is not None:
        dataset.level(args.context_level)  # whether it is there: it gives files their names
    # A context level that is the default counts as left out, and so do episodes where none is simulated.
    level = None if args.context_level == run.config.level else args.context_level
    episodes = args.episodes if protocol.uses_simulator else Evaluate.episodes
    args = replace(args, protocol=protocol.name, context_level=level, episodes=episodes)
    # Only what it writes: the run may be in training.
    with folders.only_writer(run.folder, f".{Path(file_name(args)).stem}.lock"):
        return _test(args, run, dataset, protocol, level)


def _test(args: Evaluate, run: Run, dataset: MetaDataset, protocol: Protocol, level: str | None) -> Summary:
    model = Model(run, choose_device(args.device), trust=args.trust).ready()
    names = dataset.split[args.split]
    if not names:
        other = "train" if args.split == "test" else "test"
        raise OmrlError(f"{dataset.path} has no {args.split} tasks; --split {other} tests on the others.")
    view = dataset.level(level or run.config.level).select(names)
    simulator = get_family(dataset.family) if dataset.family else None
    scores = protocol.run(model, Resources(view, simulator, args.context, args.episodes, args.seed))
    seeds, trained_on = run.config.all_seeds(), len({*names} & {*dataset.split["train"]})
    found: dict[str, Any] = {
        "protocol": protocol.name,
        "split": args.split,
        "context": args.context,
        "context_level": level or run.config.level,
        "context_from": context_words(args.context, level or run.config.level, dataset.family),
        "file": file_name(args),
        # Some families test on the tasks they train on, as the paper does: whoever reads a score should know.
        "tasks_trained_on": trained_on,
        # What such a seed does is that of its last good state, whatever the number of updates says.
        "stopped": [seed for seed, alive in zip(seeds, model.population.alive.tolist(), strict=True) if not alive],
    }
    if "return" in scores:
        # Returns in other units have episodes too; what else a protocol counts is of tasks.
        returns = {name: values for name, values in scores.items() if values.ndim == 3}
        header = (*SCORES, *(name for name in returns if name != "return"))
        rows = _returns(returns, seeds, names, args.split)
        found |= summary(scores["return"].mean(-1), dataset.select(names), model.step)
        more = {
            name: stats.mean(values.mean(-1) if name in returns else values, new_tasks=not trained_on)
            for name, values in scores.items()
            if name != "return"
        }
        found |= {name: vars(mean.interval()) for name, mean in more.items()}
    else:
        header = LOGGED
        rows = _metrics(scores, seeds, names, args.split)
        found |= logged_summary(dict(scores), model.step, new_tasks=not trained_on)
    tasks = dataset.level(run.config.level).select(dataset.split["train"])
    found |= embeddings(model, tasks, args.context, args.seed)
    run.note_scores(Path(found["file"]).stem, header, rows, found)
    return as_summary(found)


def _check(args: Evaluate) -> None:
    for name, least in (("context", 1), ("episodes", 1), ("seed", 0)):
        value = getattr(args, name)
        if not isinstance(value, int) or value < least:
            raise OmrlError(f"--{name} must be a whole number of at least {least}, not {value!r}.")
    if args.split not in ("train", "test"):
        raise OmrlError(f"--split is train or test, not {args.split!r}.")


def _protocol(args: Evaluate, dataset: MetaDataset) -> Protocol:
    """The one that was asked for, or that the data allows."""
    protocol = get_protocol(args.protocol or ("logged" if dataset.family is None else "given-context"))
    if protocol.uses_simulator and dataset.family is None:
        raise OmrlError(
            "Returns cannot be had without a simulator, and these logs belong to none of omrl's families; "
            "--protocol logged needs none."
        )
    return protocol


def _returns(returns: Mapping[str, Array], seeds: range, names: Sequence[str], split: str) -> list[tuple[Any, ...]]:
    ordered = [returns["return"], *(values for name, values in returns.items() if name != "return")]
    return [
        (seeds[p], names[t], split, e, *(f"{values[p, t, e]:.6g}" for values in ordered))
        for p, t, e in np.ndindex(returns["return"].shape)
    ]


def _metrics(scores: Mapping[str, Array], seeds: range, names: Sequence[str], split: str) -> list[tuple[Any, ...]]:
    return [
        (seeds[p], names[t], split, metric, f"{value:.6g}")
        for metric, values in scores.items()
        for (p, t), value in np.ndenumerate(values)
    ]
