"""Makes what an experiment needs and is not there yet: data, runs, tests of runs.

    DATA/FAMILY, DATA/FAMILY-SPLIT, DATA/small/FAMILY    meta-datasets
    OUT/runs/FAMILY-ALGORITHM-DIGEST                     runs; the digest is of config and data

Experiments share runs. What was interrupted goes on, what is finished is left alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from omrl.algorithms import get_algorithm
from omrl.algorithms.algorithm import MetaConfig
from omrl.behaviour.collect import collect
from omrl.commands.evaluate import Evaluate
from omrl.commands.train import Train
from omrl.data import MetaDataset
from omrl.data.manifest import MANIFEST
from omrl.errors import OmrlError
from omrl.evaluation.summaries import as_summary
from omrl.evaluation.testing import evaluate, file_name
from omrl.families import get_family
from omrl.learning import starting, training
from omrl.runs.config import CONFIG
from omrl.runs.joining import join
from omrl.runs.records import Summary
from omrl.runs.run import Run
from omrl.schema import changed, read
from omrl.storage import folders
from omrl.studies.planning import Job, Source

# A run saves itself this many times at least, and is looked at so often on test tasks, for its learning curve.
SAVES, LOOKS = 5, 20
# What a study reads of a test's summary.
NEEDED = {"protocol", "context_level", "esr", "rms"}


# -- data --------------------------------------------------------------------------------------------------------------


def made(source: Source, folder: Path) -> bool:
    """Whether a meta-dataset is there, which has to be the one that is meant."""
    if source.family is None:
        MetaDataset.open(folder)
        return True
    if not (folder / MANIFEST).is_file():
        return False
    _check(source, MetaDataset.open(folder), folder)
    return True


def make_data(source: Source, folder: Path, policies: Path | None, device: str) -> None:
    """Make a meta-dataset, from the published policies of its family where there are any."""
    print(f"making {folder}", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"tasks": source.tasks, "episodes": source.episodes, "device": device}
    if source.tasks is None:
        options["split"] = source.split
    if source.action_std is not None:
        options["action_std"] = source.action_std
    if policies is not None:
        # Nothing is learnt: the plan may be for GPUs, and this machine have none.
        options |= {"from_policies": True, "policies": policies.parent, "device": "cpu"}
    else:
        print(f"There are no policies of {source.family}, so that one agent per task is trained for it.", flush=True)
    assert source.family is not None
    collect(source.family, folder, **options)


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


def resolve(job: Job, data: Path, runs: Path, device: str, bfloat16: bool = False) -> tuple[Train, MetaConfig]:
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
    hyperparameters = changed(
        hyperparameters, {**dict(job.changes), **({"bfloat16": True} if bfloat16 else {})}, job.algorithm
    )
    dataset = MetaDataset.open(data)
    config = asdict(training.run_config(args, hyperparameters, dataset))
    # Where the data lies, whether it fits into memory and how a CPU computes decide nothing; what is in it does.
    decides = {key: value for key, value in config.items() if key not in ("data", "stream", "cpu", "schema")}
    rows = [[entry.name, entry.sha256] for entry in dataset.manifest.tasks]
    text = json.dumps([decides, rows, dataset.split], sort_keys=True)
    where = job.source.family or data.name
    name = f"{where}-{job.algorithm.replace(':', '.')}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    return replace(args, out=runs / name), hyperparameters


def trained(args: Train) -> bool:
    """Whether a run is at its end; one whose data lies elsewhere now is told so."""
    if not (args.out / CONFIG).is_file():
        return False
    run = Run.open(args.out)
    with folders.only_writer(args.out):
        run.move_data(args.data)  # the folder's name says that its rows are the same
        run.drop_old_checkpoints()  # of a kill after its last one
    return run.step >= args.steps


def left_alone(args: Train) -> bool:
    """Whether there is nothing to do for a run: it is trained, and was not killed before its last note."""
    return trained(args) and (args.out / "timings.json").is_file()


def train(args: Train, hyperparameters: MetaConfig) -> None:
    """Train, go on, or leave alone what is finished."""
    if left_alone(args):
        print(f"{args.out} is trained", flush=True)
        return
    print(f"training {args.out}", flush=True)
    try:
        starting.run(args, hyperparameters)
    except training.NoSeedLeft as error:  # which is an outcome, too
        print(f"warning: {error}", flush=True)


def tested(
    run: Path, updates: int, device: str, trust: Collection[str] = (), **options: object
) -> tuple[Summary, Path]:
    """What `omrl evaluate` says of a run, kept beside its raw rows: both, the latter by their path."""
    kept, raw, options = kept_test(run, updates, **options)
    if kept is not None:
        return kept, raw
    print(f"testing {run}{''.join(f', {key} {value}' for key, value in options.items() if value)}", flush=True)
    return evaluate(run, device=device, trust=tuple(trust), **options), raw


def kept_test(run: Path, updates: int, **options: object) -> tuple[Summary | None, Path, dict[str, object]]:
    """What a test found, if it was made; where its raw rows are, and how it is asked for."""
    if Run.open(run).config.family is None:
        options["protocol"] = "logged"  # there is no simulator
    given: dict[str, Any] = options
    raw = run / file_name(Evaluate(run, **given))
    there = raw.is_file() and not Run.open(run).scores_changed(raw.stem)
    kept = Run.open(run).summary(raw.stem) if there else {}
    logged = kept.get("protocol") == "logged"
    needed = {*NEEDED, "action_error"} if logged else NEEDED
    whole = kept.get("updates") == updates and kept.keys() >= needed and logged == raw.stem.startswith("logged")
    return (as_summary(kept) if whole else None), raw, options


# -- units -------------------------------------------------------------------------------------------------------------


def data_unit(source: Mapping[str, object], folder: str, policies: str | None, device: str) -> None:
    """Make a meta-dataset."""
    said: dict[str, Any] = dict(source)
    make_data(Source(**said), Path(folder), Path(policies) if policies else None, device)


def train_unit(train_args: Mapping[str, object], hyperparameters: Mapping[str, object]) -> None:
    """Train a population."""
    said: dict[str, Any] = dict(train_args)
    args = Train(**{**said, **{name: Path(said[name]) for name in ("data", "out")}})
    train(args, read(get_algorithm(args.algorithm).Config, hyperparameters, args.out))


def join_unit(parts: Sequence[str], out: str) -> None:
    """Make one run of parts of it."""
    join([Path(part) for part in parts], Path(out))


def test_unit(run: str, device: str, trust: Sequence[str], options: Mapping[str, object]) -> None:
    """Test a run by a protocol."""
    tested(Path(run), Run.open(Path(run)).step, device, trust, **options)
