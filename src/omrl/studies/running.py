"""Makes what an experiment needs and is not there yet: data, runs, tests of runs.

    DATA/FAMILY, DATA/FAMILY-SPLIT, DATA/small/FAMILY    meta-datasets
    OUT/runs/FAMILY-ALGORITHM-DIGEST                     runs; the digest is of config and data

Experiments share runs. What was interrupted goes on, what is finished is left alone.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from omrl.algorithms.algorithm import MetaConfig
from omrl.behaviour.collect import collect
from omrl.commands.evaluate import Evaluate
from omrl.commands.train import Train
from omrl.data import MetaDataset
from omrl.data.manifest import MANIFEST
from omrl.errors import OmrlError
from omrl.evaluation.testing import evaluate, file_name
from omrl.families import get_family
from omrl.families.batched import usable_cores
from omrl.learning import starting, training
from omrl.progress import Meter
from omrl.runs.config import CONFIG
from omrl.runs.run import Run
from omrl.schema import changed
from omrl.storage import folders
from omrl.studies.planning import Job, Source
from omrl.words import counted

# A run saves itself this many times at least, and is looked at so often on test tasks, for its learning curve.
SAVES, LOOKS = 5, 20


# -- data --------------------------------------------------------------------------------------------------------------


def make_data(source: Source, root: Path, policies: Path, device: str) -> Path:
    """The folder of a meta-dataset; one that is not there is made, from published policies where there are any."""
    if source.family is None:
        folder = Path(source.path or "")
        MetaDataset.open(folder)  # it is there
        return folder
    folder = root / source.folder
    if (folder / MANIFEST).is_file():
        _check(source, MetaDataset.open(folder), folder)
        return folder
    print(f"making {folder}", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"tasks": source.tasks, "episodes": source.episodes, "device": device}
    if source.tasks is None:
        options["split"] = source.split
    if source.action_std is not None:
        options["action_std"] = source.action_std
    if (policies / source.family).is_dir():
        options |= {"from_policies": True, "policies": policies}
    else:
        print(f"There is no {policies / source.family}, so that one agent per task is trained for it.", flush=True)
    collect(source.family, folder, **options)
    return folder


def _check(source: Source, dataset: MetaDataset, folder: Path) -> None:
    """Refuse a dataset that somebody else put there for another purpose."""
    assert source.family is not None
    names, split = _split_names(source.family, source.split), dataset.split
    whole = source.tasks is None
    fits = split == names if whole else len(dataset.tasks) == source.tasks
    told = dataset.manifest.source.get("rollout", {}).get("action_std")
    if dataset.family != source.family or not fits or told != source.action_std:
        wanted = f"the {source.split} split of" if whole else f"{source.tasks} tasks of"
        broad = "" if source.action_std is None else f", logged with action std {source.action_std:g}"
        raise OmrlError(f"{folder} does not hold {wanted} {source.family}{broad}; name another folder with --data.")


def _split_names(family: str, split: str) -> dict[str, tuple[str, ...]]:
    tasks, found = get_family(family).tasks, get_family(family).splits[split]
    return {side: tuple(tasks[i].name for i in getattr(found, side)) for side in ("train", "test")}


# -- runs --------------------------------------------------------------------------------------------------------------


def resolve(job: Job, data: Path, runs: Path, device: str, half: bool = False) -> tuple[Train, MetaConfig]:
    """What `omrl train` would be told: all arguments, the folder among them, and all hyperparameters."""
    start, hyperparameters = starting.starting_point(Train(job.algorithm, data, runs, preset=job.preset))
    steps = job.steps or start.steps
    args = replace(
        start,
        seeds=job.seeds,
        steps=steps,
        level=job.level or start.level,
        log_every=job.log_every,
        eval_every=job.eval_every or max(steps // LOOKS, 1),
        save_every=min(start.save_every, max(steps // SAVES, 1)),
        device=device,
    )
    hyperparameters = changed(hyperparameters, {**dict(job.changes), **({"half": True} if half else {})}, job.algorithm)
    dataset = MetaDataset.open(data)
    config = asdict(training.run_config(args, hyperparameters, dataset))
    # Where the data lies, whether it fits into memory and how a CPU computes decide nothing; what is in it does.
    decides = {key: value for key, value in config.items() if key not in ("data", "stream", "cpu", "schema")}
    rows = [[entry.name, entry.sha256] for entry in dataset.manifest.tasks]
    text = json.dumps([decides, rows, dataset.split], sort_keys=True)
    where = job.source.family or data.name
    name = f"{where}-{job.algorithm.replace(':', '.')}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    return replace(args, out=runs / name), hyperparameters


def train(args: Train, hyperparameters: MetaConfig) -> None:
    """Train, go on, or leave alone what is finished."""
    if (args.out / CONFIG).is_file():
        run = Run.open(args.out)
        with folders.only_writer(args.out):
            run.move_data(args.data)  # the folder's name says that its rows are the same
        if run.step >= args.steps:
            print(f"{args.out} is trained", flush=True)
            return
    print(f"training {args.out}", flush=True)
    try:
        starting.run(args, hyperparameters)
    except training.NoSeedLeft as error:  # which is an outcome, too
        print(f"warning: {error}", flush=True)


Resolved = tuple[str, Train, MetaConfig]
"""A run to train: its label, arguments and hyperparameters."""


def train_all(runs: Iterable[Resolved], total: int, at_once: int) -> dict[Path, str]:
    """Train and test runs as they come; several at once have processes of their own, with one bar for all of them.

    What such a process says is in a file beside the run's folder. Where one fails, the others go on: those that did are
    returned, by folder and label.
    """
    if at_once == 1:
        for number, (label, args, hyperparameters) in enumerate(runs, 1):
            print(f"\n{number}/{total}  {label}", flush=True)
            train(args, hyperparameters)
            tested(args.out, args.steps, args.device, trust=(args.algorithm,))
        return {}

    ended: list[str] = []
    failed: dict[Path, str] = {}

    def report(label: str, args: Train, done: Future[None]) -> None:
        ended.append(label)
        if done.cancelled() or done.exception():
            failed[args.out] = label
        outcome = f"failed, see {log_file(args)}" if args.out in failed else "trained and tested"
        print(f"{len(ended)}/{total}  {label}: {outcome}", flush=True)
        meter.update(len(ended))

    # A process that has used CUDA cannot be forked.
    with (
        Meter(f"{counted(total, 'run')}, {at_once} at once", total) as meter,
        ProcessPoolExecutor(at_once, get_context("spawn"), max_tasks_per_child=1) as pool,
    ):
        try:
            for label, args, hyperparameters in runs:
                try:
                    begun = pool.submit(_train_apart, args, hyperparameters, at_once)
                except BrokenProcessPool:  # the system ended one of them, say for its memory, and with it the pool
                    failed[args.out] = label
                else:
                    begun.add_done_callback(partial(report, label, args))
        except BaseException:  # the next data set cannot be made: what has not begun need not
            pool.shutdown(cancel_futures=True)
            raise
    return failed


def log_file(args: Train) -> Path:
    """What a run in its own process says."""
    return args.out.with_suffix(".log")


def _train_apart(args: Train, hyperparameters: MetaConfig, at_once: int) -> None:
    # More threads than cores make each other wait.
    args = replace(args, threads=args.threads or max(1, usable_cores() // at_once))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with log_file(args).open("a") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            train(args, hyperparameters)
            tested(args.out, args.steps, args.device, trust=(args.algorithm,))
        except BaseException:
            traceback.print_exc()
            raise


def tested(
    run: Path, updates: int, device: str, trust: Collection[str] = (), **options: Any
) -> tuple[dict[str, Any], Path]:
    """What `omrl evaluate` says of a run, kept beside its raw rows: both, the latter by their path."""
    if Run.open(run).config.family is None:
        options["protocol"] = "logged"  # there is no simulator
    raw = run / file_name(Evaluate(run, **options))
    there = raw.is_file() and not Run.open(run).scores_changed(raw.stem)
    kept = Run.open(run).summary(raw.stem) if there else {}
    if kept.get("updates") == updates:
        return kept, raw
    print(f"testing {run}{''.join(f', {key} {value}' for key, value in options.items() if value)}", flush=True)
    return evaluate(run, device=device, trust=tuple(trust), **options), raw
