"""Step 3 of the flow: meta-train an algorithm on a meta-dataset, several seeds at once.

    omrl train focal --data data/sparse-point-robot --out runs/focal

The seeds are one population on one device. A run that is interrupted goes on when it is started again with the same
arguments, and on CPU it ends with the same bytes as one that was never interrupted.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
from tyro.conf import Positional

from omrl.data import MetaDataset, Tensors
from omrl.data.arrays import to_unit
from omrl.errors import OmrlError
from omrl.policy import CONTEXT

if TYPE_CHECKING:
    import torch

    from omrl.engine import Population
    from omrl.policy import Policy
    from omrl.run import Run
    from omrl.sampling import Normalisation

# The paper's buffer: at most so many rows of each task are used.
MAX_ROWS = 10_000
# A critic whose mean value passes this is no longer learning values of rewards that a person would write down.
LARGE_Q = 1e6


@dataclass(frozen=True)
class Train:
    """Meta-train an algorithm on the training tasks of a meta-dataset; several seeds learn at once."""

    algorithm: Positional[str]
    """`focal`, or `module:Class` of your own."""
    data: Path
    """The meta-dataset."""
    out: Path
    """Folder of the run."""
    preset: str = "paper"
    """Named hyperparameters for the data's family; one's own logs use the algorithm's defaults."""
    set: tuple[str, ...] = ()
    """Hyperparameters to change, as name=value."""
    seeds: int = 3
    """How many learners, with seeds 0, 1, ..."""
    steps: int = 100_000
    """Updates of each learner."""
    level: str | None = None
    """Quality level of the training data; the preset's, or mixed."""
    max_rows: int = MAX_ROWS
    """Rows of each task that are used at most."""
    log_every: int = 200
    """Updates between two rows of metrics."""
    save_every: int = 5_000
    """Updates between two checkpoints."""
    device: str = "auto"
    """auto, cpu or cuda."""
    force: bool = False
    """Replace a run that is there."""
    dry_run: bool = False
    """Print what would run, and stop."""


def train(algorithm: str, data: str | Path, out: str | Path, **options: Any) -> Run | None:
    """Step 3 from Python: takes what the command takes."""
    return run(Train(algorithm, Path(data), Path(out), **options))


def run(args: Train) -> Run | None:
    """Train, or go on with training."""
    from omrl.algorithms import get_algorithm
    from omrl.devices import choose_device
    from omrl.run import Run

    for name in ("seeds", "steps", "max_rows", "log_every", "save_every"):
        if getattr(args, name) < 1:
            raise OmrlError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}.")
    dataset = MetaDataset.open(args.data)
    kind = get_algorithm(args.algorithm)
    settings, level = _preset(args.algorithm, args.preset, dataset.family)
    hyperparameters = replace(kind.Config(**settings), **_changes(kind.Config, args.set))
    config = {
        "algorithm": args.algorithm,
        "hyperparameters": asdict(hyperparameters),
        "data": str(args.data.absolute()),
        "family": dataset.family,
        "observation_dim": dataset.observation_dim,
        "action_dim": dataset.action_dim,
        "action_low": dataset.manifest.action_low,
        "action_high": dataset.manifest.action_high,
        "level": args.level or level,
        "max_rows": args.max_rows,
        "seeds": args.seeds,
        "steps": args.steps,
    }
    if args.dry_run:
        print(json.dumps(config, indent=2))
        return None
    device = choose_device(args.device)
    # What can be wrong with the data is found before there is a folder that would have to be cleaned up.
    data = dataset.level(args.level or level).select(dataset.split["train"]).to(device, max_rows=args.max_rows)
    if hyperparameters.dense_reward and data.rew_dense is None:
        raise OmrlError(f"{args.data} has no rewards_dense, which dense_reward asks for.")
    if args.force and (args.out / "config.json").is_file():
        shutil.rmtree(args.out)
    folder = Run.create(args.out, config)
    Learner(folder, data, device).learn(args.log_every, args.save_every)
    return folder


class Trained:
    """A run's learners as they are after its newest checkpoint: what can infer tasks and act, without any data."""

    def __init__(self, run: Run, device: str = "cpu") -> None:
        import torch

        from omrl.algorithms import get_algorithm
        from omrl.engine import Population
        from omrl.sampling import Normalisation

        config = run.config
        self.run = run
        self.obs_dim, self.act_dim = config["observation_dim"], config["action_dim"]
        self.action_low = np.array(config["action_low"], np.float32)
        self.action_high = np.array(config["action_high"], np.float32)
        kind = get_algorithm(config["algorithm"])
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in config["hyperparameters"].items()}
        self.hyperparameters = kind.Config(**values)
        learners, self.algorithm = kind.build(self.obs_dim, self.act_dim, self.hyperparameters, range(config["seeds"]))
        self.population: Population = Population(
            learners,
            self.algorithm.loss,
            learning_rate=self.algorithm.learning_rate,
            targets=self.algorithm.targets,
            plain=self.algorithm.plain,
            tau=self.hyperparameters.tau,
            device=device,
        )
        self.step = 0
        found = run.load()
        if found is not None:
            self.step, state = found
            self.population.load_state(state)
            self.normalise: Normalisation = Normalisation(
                *(state[f"normalise.{name}"].to(torch.device(device)) for name in ("mean", "std"))
            )

    def params(self, seed: int) -> dict[str, torch.Tensor]:
        """One learner's parameters."""
        if not 0 <= seed < self.population.size:
            raise OmrlError(f"There is no seed {seed}; the run has {self.population.size}.")
        return {name: value[seed] for name, value in self.population.params.items()}

    def contexts(self, arrays: Mapping[str, Any]) -> torch.Tensor:
        """Rows (s, a, r, s') as the encoder reads them, from arrays [..., dim] as they were logged."""
        import torch

        device = self.population.device
        # Copies: rows of a dataset are read-only views of its files.
        rows = {name: np.array(arrays[name], dtype=np.float32) for name in CONTEXT}
        to_unit(rows["actions"], self.action_low, self.action_high)
        columns = (
            self.normalise(torch.from_numpy(rows["observations"]).to(device)),
            torch.from_numpy(rows["actions"]).to(device),
            torch.from_numpy(rows["rewards"])[..., None].to(device),
            self.normalise(torch.from_numpy(rows["next_observations"]).to(device)),
        )
        return torch.cat(columns, dim=-1)

    def adapt(self, transitions: Any, seed: int = 0) -> Policy:
        """A policy for the task that the transitions come from: a dict of arrays, or a list of (s, a, r, s')."""
        import torch

        from omrl.policy import Policy, read_context

        if self.step == 0:
            raise OmrlError(f"{self.run.folder} has no checkpoint yet: train it first.")
        rows = read_context(transitions, self.obs_dim, self.act_dim)
        with torch.no_grad():
            z = self.algorithm.infer(self.params(seed), self.contexts(rows)[None])
        return Policy(self, seed, z)


class Learner(Trained):
    """The learners of a run with the data they learn from."""

    def __init__(self, run: Run, data: Tensors, device: str) -> None:
        from omrl.sampling import MetaSampler, Normalisation

        super().__init__(run, device)
        if self.step == 0:
            self.normalise = Normalisation.of(data)
        self.run.forget_after(self.step)
        self.sampler = MetaSampler(
            data,
            self.normalise,
            learners=self.population.size,
            meta_batch=self.hyperparameters.meta_batch,
            batch_size=self.hyperparameters.batch_size,
            context_size=self.hyperparameters.context_size,
        )

    def learn(self, log_every: int, save_every: int) -> None:
        """Updates until the run's number of steps; metrics stay on the device until they are logged."""
        from omrl.progress import Meter

        steps, warned = self.run.config["steps"], False
        with Meter(f"{self.run.config['algorithm']}, {self.population.size} seeds", steps, self.step) as meter:
            while self.step < steps:
                info = self.population.step(self._draw)
                self.step += 1
                if self.step % log_every == 0 or self.step == steps:
                    values = {name: value.tolist() for name, value in info.items()}
                    values["alive"] = self.population.alive.float().tolist()
                    self.run.log(self.step, self.step * self.sampler.transitions_per_update, values)
                    warned = warned or self._warn(values)
                    meter.update(self.step, f"{meter.rate:.1f} updates/s")
                if self.step % save_every == 0 or self.step == steps:
                    scales = {"normalise.mean": self.normalise.mean, "normalise.std": self.normalise.std}
                    self.run.save(self.step, {**self.population.state(), **scales})

    def _draw(self, generator: torch.Generator) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        batch = self.sampler.draw(generator)
        return batch, self.algorithm.noise(batch, generator)

    def _warn(self, values: dict[str, list[float]]) -> bool:
        """Say once when values grow without bound; the run goes on."""
        largest = max((abs(q) for q in values.get("q", [])), default=0.0)
        if largest > LARGE_Q:
            print(
                f"warning: Q has grown to {largest:.1e} at update {self.step}; raise alpha, or lower critic_lr "
                "or reward_scale, if it should stay bounded.",
                file=sys.stderr,
            )
        return largest > LARGE_Q


def _preset(algorithm: str, preset: str, family: str | None) -> tuple[dict[str, Any], str]:
    """Hyperparameters and level of a named preset for a family."""
    table = tomllib.loads(resources.files("omrl").joinpath("presets.toml").read_text())
    presets = table.get(algorithm)
    if presets is None or family is None:
        return {}, "mixed"
    if preset not in presets or family not in presets[preset]:
        known = ", ".join(name for name, families in presets.items() if family in families)
        raise OmrlError(f"{algorithm} has no preset {preset!r} for {family}; it has {known}.")
    values = dict(presets[preset][family])
    return values, values.pop("level")


def _changes(kind: type, changes: tuple[str, ...]) -> dict[str, Any]:
    """name=value pairs, typed as the algorithm's config declares them."""
    import tyro

    hints = get_type_hints(kind)
    found = {}
    for change in changes:
        name, separator, value = change.partition("=")
        if not separator or name not in {f.name for f in fields(kind)}:
            known = ", ".join(f.name for f in fields(kind))
            raise OmrlError(f"--set takes name=value, not {change!r}; the names are {known}.")
        try:
            words = value.split(",") if "tuple" in str(hints[name]) else [value]
            found[name] = tyro.cli(hints[name], args=words, console_outputs=False)
        except SystemExit as error:
            raise OmrlError(f"--set {name} cannot be {value!r}.") from error
    return found
