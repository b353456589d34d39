"""Step 3 of the flow: meta-train an algorithm on a meta-dataset, several seeds at once.

    omrl train focal --data data/sparse-point-robot --out runs/focal

The seeds are one population on one device. A run that is interrupted goes on when it is started again with the same
arguments, and on CPU it ends with the same bytes as one that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from omrl import schema
from omrl.algorithms import OWN_LOGS, about, get_algorithm, read_preset
from omrl.algorithms.algorithm import MetaConfig
from omrl.commands.train import OF_THE_RUN, Train
from omrl.data import MetaDataset
from omrl.data.manifest import Manifest
from omrl.errors import OmrlError
from omrl.learning import own_logs, training
from omrl.learning.devices import choose_device
from omrl.runs.choices import choices_of, in_units
from omrl.runs.config import of_this_version
from omrl.runs.run import Run
from omrl.storage.files import read_json


def train(algorithm: str, data: str | Path, out: str | Path, **options: object) -> Run | None:
    """Step 3 from Python: takes what the command takes, the algorithm's hyperparameters included."""
    own = {field.name for field in fields(Train)}
    given: dict[str, Any] = {name: value for name, value in options.items() if name in own}
    if given.get("config") is not None:
        given["config"] = Path(given["config"])
    changes = {name: value for name, value in options.items() if name not in own}
    start, hyperparameters = starting_point(replace(Train(algorithm, Path(data), Path(out)), **given))
    # What was given stands above what the preset says.
    return run(replace(start, **given), schema.changed(hyperparameters, changes, algorithm))


def command(args: Train, hyperparameters: MetaConfig) -> None:
    """`omrl train ALGORITHM ...`."""
    trained = run(args, hyperparameters)
    if trained is not None:
        own = f" --trust {trained.config.algorithm}" if ":" in trained.config.algorithm else ""
        print(f"{trained.folder} is trained; `omrl evaluate {trained.folder}{own}` tests it.")


def parse(arguments: Sequence[str]) -> tuple[Train, MetaConfig]:
    """The command line of `omrl train ALGORITHM`: what to run, and the algorithm's hyperparameters.

    Where a flag is left out, the value is that of the preset or of the run that `--config` names.
    """
    kind = get_algorithm(arguments[0])
    options: dict[str, Any] = {"prog": "omrl train", "config": (OmitArgPrefixes,)}

    @dataclass(frozen=True)
    class Source:
        data: Path | None = None
        preset: str | None = None
        config: Path | None = None
        device: str = Train.device

    both = make_dataclass(
        "Options", [("train", FlagCreatePairsOff[Train]), ("hyperparameters", kind.Config)], frozen=True
    )
    default = both(Train(arguments[0], tyro.MISSING, tyro.MISSING), kind.Config())
    if not {"-h", "--help"} & set(arguments):
        source, _ = tyro.cli(Source, args=arguments[1:], return_unknown_args=True, **options)
        if source.data is not None or source.config is not None:
            named = replace(default.train, preset=source.preset, config=source.config, device=source.device)
            default = both(*starting_point(named if source.data is None else replace(named, data=source.data)))
    found = tyro.cli(both, args=arguments, default=default, **options)
    return found.train, found.hyperparameters


def about_choices(names: Collection[str], manifest: Manifest) -> dict[str, object]:
    """Hyperparameters of those who learn from choices, where actions are."""
    if manifest.discrete_actions is None or "choices" not in names:
        return {}
    every = in_units(choices_of(manifest) or (), manifest.action_low, manifest.action_high)
    return {"choices": every, **({"divergence": "categorical-kl"} if "divergence" in names else {})}


def starting_point(args: Train) -> tuple[Train, MetaConfig]:
    """The arguments with what a preset or another run's config says, and its hyperparameters."""
    kind = get_algorithm(args.algorithm)
    if args.config is None:
        dataset = MetaDataset.open(args.data)
        values: dict[str, Any] = {"level": "mixed"} | read_preset(args.algorithm, args.preset, dataset.family)
        names = {field.name for field in fields(kind.Config)}
        own = args.preset == OWN_LOGS or (args.preset is None and dataset.family is None)
        if own and about(args.algorithm, OWN_LOGS):
            view = dataset.level(values["level"]).select(dataset.split["train"])
            # What the file beside the algorithm says stands above what the log suggests.
            values = own_logs.fitted(names, view, choose_device(args.device)) | values
            args = replace(args, preset=OWN_LOGS)
        values |= about_choices(names, dataset.manifest)
        same = {name: values.pop(name) for name in OF_THE_RUN if name in values}
        return replace(args, **same), schema.read(kind.Config, values, f"The preset of {args.algorithm}")
    if not args.config.is_file():
        raise OmrlError(f"There is no file {args.config}, which --config should name.")
    try:
        config: dict[str, Any] = {**of_this_version(read_json(args.config), args.config)}
        algorithm, values = config["algorithm"], dict(config["hyperparameters"])
        same = {name: config[name] for name in (*OF_THE_RUN, "seeds", "seed")}
    except (ValueError, KeyError, TypeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise OmrlError(f"{args.config} is not the config.json of a run ({reason}).") from error
    if algorithm != args.algorithm:
        raise OmrlError(f"{args.config} is of {algorithm}, not of {args.algorithm}.")
    return replace(args, **same), schema.read(kind.Config, values, args.config)


def run(args: Train, hyperparameters: MetaConfig) -> Run | None:
    """Train, or go on with training, by arguments that make sense."""
    for name in ("seeds", "steps", "max_rows", "log_every", "save_every", "threads"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise OmrlError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}.")
    for name in ("seed", "eval_every"):
        if getattr(args, name) < 0:
            raise OmrlError(f"--{name.replace('_', '-')} cannot be negative, as {getattr(args, name)} is.")
    return training.run(args, hyperparameters)
