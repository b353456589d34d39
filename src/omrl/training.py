"""Step 3 of the flow: meta-train an algorithm on a meta-dataset, several seeds at once.

    omrl train focal --data data/sparse-point-robot --out runs/focal

The seeds are one population on one device. A run that is interrupted goes on when it is started again with the same
arguments, and on CPU it ends with the same bytes as one that was never interrupted.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, fields, make_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import tyro
from tyro.conf import FlagCreatePairsOff, Positional

from omrl.algorithms import get_algorithm
from omrl.data import MetaDataset, Tensors
from omrl.data.arrays import to_unit
from omrl.errors import OmrlError
from omrl.policy import CONTEXT

if TYPE_CHECKING:
    import torch

    from omrl.engine import Mode, Population
    from omrl.looking import Looks
    from omrl.policy import Policy
    from omrl.run import Run
    from omrl.sampling import Normalisation, OnDisk

# Rows of each task that are used at most: those of the paper's largest logs.
MAX_ROWS = 1_000_000
# A critic whose mean value passes this is no longer learning values of rewards that a person would write down.
LARGE_Q = 1e6
# A policy whose actions lie at their bounds this much more often than the logged ones is stuck there: tanh is flat.
SATURATED_SHARE = 0.5
# What a preset says of a run and not of its algorithm.
OF_THE_RUN = ("level", "max_rows", "steps")


@dataclass(frozen=True)
class Train:
    """Meta-train an algorithm on the training tasks of a meta-dataset; several seeds learn at once.

    The algorithm's hyperparameters are flags too: `omrl train focal --help` lists them.
    """

    algorithm: Positional[str]
    """`focal`, `batch-pearl`, `contextual-bcq`, `mbml`, `contextual-bc`, or `module:Class` of your own."""
    data: Path
    """The meta-dataset."""
    out: Path
    """Folder of the run."""
    preset: str = "paper"
    """Named hyperparameters for the data's family; one's own logs start from the algorithm's defaults."""
    config: Path | None = None
    """A run's config.json to start from instead of a preset."""
    seeds: int = 3
    """How many learners."""
    seed: int = 0
    """The first one's seed; the others follow."""
    steps: int = 100_000
    """Updates of each learner."""
    level: str | None = None
    """Quality level of the training data; the preset's, or mixed."""
    max_rows: int = MAX_ROWS
    """Rows of each task that are used at most."""
    log_every: int = 200
    """Updates between two rows of metrics."""
    save_every: int = 5_000
    """Updates between two checkpoints; there is one every five minutes at least."""
    eval_every: int = 5_000
    """Updates between two looks at the return on unseen tasks, where there is a simulator; 0 for none."""
    threads: int | None = None
    """Threads on a CPU; as many as the work is worth if left out."""
    stream: bool = False
    """Read rows from disk while training, as is done anyway where they do not fit into memory."""
    device: str = "auto"
    """auto, cpu or cuda."""
    force: bool = False
    """Replace a run that is there."""
    dry_run: bool = False
    """Print what would run, and stop."""


def train(algorithm: str, data: str | Path, out: str | Path, **options: Any) -> Run | None:
    """Step 3 from Python: takes what the command takes, the algorithm's hyperparameters included."""
    kind = get_algorithm(algorithm)
    own = {field.name for field in fields(Train)}
    given = {name: value for name, value in options.items() if name in own}
    if given.get("config") is not None:
        given["config"] = Path(given["config"])
    changes = {name: value for name, value in options.items() if name not in own}
    unknown = sorted(changes.keys() - {field.name for field in fields(kind.Config)})
    if unknown:
        raise OmrlError(f"{algorithm} has no {', '.join(unknown)}.")
    start, hyperparameters = starting_point(replace(Train(algorithm, Path(data), Path(out)), **given))
    for name, choices in _choices(kind.Config).items():
        if changes.get(name, choices[0]) not in choices:
            raise OmrlError(f"{name} cannot be {changes[name]!r}; it is one of {', '.join(choices)}.")
    # What was given stands above what the preset says.
    return run(replace(start, **given), replace(hyperparameters, **changes))


def parse(arguments: Sequence[str], **options: Any) -> tuple[Train, Any]:
    """The command line of `omrl train ALGORITHM`: what to run, and the algorithm's hyperparameters.

    Where a flag is left out, the value is that of the preset or of the run that `--config` names.
    """
    kind = get_algorithm(arguments[0])

    @dataclass(frozen=True)
    class Source:
        data: Path | None = None
        preset: str = "paper"
        config: Path | None = None

    both = make_dataclass(
        "Options", [("train", FlagCreatePairsOff[Train]), ("hyperparameters", kind.Config)], frozen=True
    )
    default = both(Train(arguments[0], tyro.MISSING, tyro.MISSING), kind.Config())
    if not {"-h", "--help"} & set(arguments):
        source, _ = tyro.cli(Source, args=arguments[1:], return_unknown_args=True, **options)
        if source.data is not None or source.config is not None:
            named = replace(default.train, preset=source.preset, config=source.config)
            default = both(*starting_point(named if source.data is None else replace(named, data=source.data)))
    found = tyro.cli(both, args=arguments, default=default, **options)
    return found.train, found.hyperparameters


def starting_point(args: Train) -> tuple[Train, Any]:
    """The arguments with what a preset or another run's config says, and its hyperparameters."""
    kind = get_algorithm(args.algorithm)
    if args.config is None:
        dataset = MetaDataset.open(args.data)
        if dataset.family is None and args.preset != Train.preset:
            raise OmrlError(
                f"{args.data} is of no family, and presets are of families: leave out --preset {args.preset}."
            )
        values = {"level": "mixed"} | read_preset(args.algorithm, args.preset, dataset.family)
        same = {name: values.pop(name) for name in OF_THE_RUN if name in values}
        return replace(args, **same), _build_config(kind.Config, values)
    if not args.config.is_file():
        raise OmrlError(f"There is no file {args.config}, which --config should name.")
    try:
        config = json.loads(args.config.read_text())
        algorithm, values = config["algorithm"], dict(config["hyperparameters"])
        same = {name: config[name] for name in (*OF_THE_RUN, "seeds", "seed")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise OmrlError(f"{args.config} is not the config.json of a run ({reason}).") from error
    if algorithm != args.algorithm:
        raise OmrlError(f"{args.config} is of {algorithm}, not of {args.algorithm}.")
    return replace(args, **same), _build_config(kind.Config, values)


def run(args: Train, hyperparameters: Any) -> Run | None:
    """Train, or go on with training."""
    from omrl.devices import choose_device, limited_threads, on_cpu
    from omrl.run import Run
    from omrl.sampling import OnDisk, fits

    for name in ("seeds", "steps", "max_rows", "log_every", "save_every", "threads"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise OmrlError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}.")
    for name in ("seed", "eval_every"):
        if getattr(args, name) < 0:
            raise OmrlError(f"--{name.replace('_', '-')} cannot be negative, as {getattr(args, name)} is.")
    dataset = MetaDataset.open(args.data)
    level = dataset.level(args.level or "mixed")
    view, device = level.select(dataset.split["train"]), choose_device(args.device)
    if dataset.manifest.discrete_actions and not getattr(get_algorithm(args.algorithm), "discrete_actions", False):
        raise OmrlError(
            f"The actions of {args.data} are discrete, which {args.algorithm} cannot learn; if numbers between them "
            "make sense, import the logs with --action-kind continuous."
        )
    if getattr(hyperparameters, "dense_reward", False) and "rewards_dense" not in view.rows(0):
        raise OmrlError(f"{args.data} has no rewards_dense, which dense_reward asks for.")
    there = (args.out / "config.json").is_file()
    # A run goes on as it began, however much memory is free now.
    begun = Run.open(args.out).config if there and not args.force else {}
    stream = begun["stream"] if begun else not fits(view, args.max_rows, device)
    config = run_config(replace(args, stream=args.stream or stream), hyperparameters, dataset)
    if device == "cpu":
        config["cpu"] = begun.get("cpu") or on_cpu(hyperparameters, args.seeds, args.steps, args.threads)
    if args.dry_run:
        print(json.dumps(config, indent=2))
        return None
    # What can be wrong with the data is found before there is a folder that would have to be cleaned up.
    rows = OnDisk(view, args.max_rows, device) if config["stream"] else view.to(device, max_rows=args.max_rows)
    if there and args.force:
        shutil.rmtree(args.out)
    folder = Run.create(args.out, config, asdict(get_algorithm(args.algorithm).Config()))
    unseen = level.select(dataset.split["test"]) if dataset.family and dataset.split["test"] else None
    on_a_cpu = config["cpu"] or {"threads": None, "mode": None}
    with limited_threads(args.threads or on_a_cpu["threads"]):
        learner = Learner(folder, rows, device, unseen, on_a_cpu["mode"])
        learner.prepare(rows, dataset.manifest.varies, args.log_every)
        learner.learn(args.log_every, args.save_every, args.eval_every)
    return folder


def run_config(args: Train, hyperparameters: Any, dataset: MetaDataset) -> dict[str, Any]:
    """What a run's config.json says: all that decides its result."""
    return {
        "algorithm": args.algorithm,
        "preset": args.preset if args.config is None else None,
        "hyperparameters": asdict(hyperparameters),
        "data": str(args.data.absolute()),
        "family": dataset.family,
        "observation_dim": dataset.observation_dim,
        "action_dim": dataset.action_dim,
        "action_low": dataset.manifest.action_low,
        "action_high": dataset.manifest.action_high,
        "level": args.level,
        "max_rows": args.max_rows,
        "seeds": args.seeds,
        "seed": args.seed,
        "steps": args.steps,
        "stream": args.stream,
        "cpu": None,
    }


def populate(
    kind: Any,
    obs_dim: int,
    act_dim: int,
    config: Any,
    seeds: Sequence[int],
    device: str,
    mode: Mode | None = None,
    room: int | None = None,
) -> tuple[Any, Population]:
    """An algorithm, and one learner of it per seed; `mode` and `room` are the engine's own choice if left out."""
    from omrl.engine import Population

    learners, algorithm = kind.build(obs_dim, act_dim, config, seeds)
    population = Population(
        learners,
        algorithm.loss,
        learning_rate=algorithm.learning_rate,
        targets=algorithm.targets,
        plain=algorithm.plain,
        before=algorithm.before,
        tau=getattr(config, "tau", 0.0),  # what has no target networks needs none
        seed=seeds[0],
        device=device,
        mode=mode,
        half=getattr(config, "half", False),
        room=room,
    )
    return algorithm, population


class NoSeedLeft(OmrlError):
    """All of a run's learners met numbers that are not finite."""


class Trained:
    """A run's learners as they are after its newest checkpoint: what can infer tasks and act, without any data."""

    def __init__(self, run: Run, device: str = "cpu", mode: Mode | None = None) -> None:
        import torch

        from omrl.sampling import Normalisation

        config = run.config
        self.run = run
        self.obs_dim, self.act_dim = config["observation_dim"], config["action_dim"]
        self.action_low = np.array(config["action_low"], np.float32)
        self.action_high = np.array(config["action_high"], np.float32)
        kind = get_algorithm(config["algorithm"])
        self.hyperparameters = _build_config(kind.Config, config["hyperparameters"])
        seeds = range(config["seed"], config["seed"] + config["seeds"])
        self.algorithm, self.population = populate(
            kind, self.obs_dim, self.act_dim, self.hyperparameters, seeds, device, mode
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
    """The learners of a run with the data they learn from, and the unseen tasks' logs they are looked at on."""

    def __init__(
        self,
        run: Run,
        data: Tensors | OnDisk,
        device: str,
        unseen: MetaDataset | None = None,
        mode: Mode | None = None,
    ) -> None:
        from omrl.sampling import Normalisation, make_sampler

        super().__init__(run, device, mode)
        self.unseen = unseen
        if self.step == 0:
            self.normalise = Normalisation.of(data)
        self.run.forget_after(self.step)
        self.sampler = make_sampler(
            data,
            self.normalise,
            seed=run.config["seed"],
            draws=len(self.algorithm.before) + 1,
            learners=self.population.size,
            meta_batch=self.hyperparameters.meta_batch,
            batch_size=self.hyperparameters.batch_size,
            context_size=self.hyperparameters.context_size,
        )
        self.frozen: dict[str, torch.Tensor] = {}
        """What the stages before ended with, [seed, task, ...]."""

    def prepare(self, data: Tensors | OnDisk, varies: str, log_every: int) -> None:
        """Learn what the algorithm needs to have learnt before, unless the run's folder has it: see `omrl.stages`."""
        from omrl.stages import learn_stages

        if hasattr(self.algorithm, "stages") and self.step < self.run.config["steps"]:
            stages, device = self.algorithm.stages(varies), str(self.population.device)
            self.frozen = learn_stages(stages, self.run, data, self.normalise, device, log_every)

    def learn(self, log_every: int, save_every: int, eval_every: int = 0) -> None:
        """Updates until the run's number of steps; metrics stay on the device until they are logged."""
        from omrl.looking import Looks
        from omrl.progress import Meter, counted
        from omrl.stages import CHECKPOINT_SECONDS

        steps, clock, warned = self.run.config["steps"], Clock(), set[str]()
        label = f"{self.run.config['algorithm']}, {counted(self.population.size, 'seed')}"
        if 0 < self.step < steps:
            print(f"{self.run.folder} goes on at update {self.step:,}.", file=sys.stderr)
        saved, none_left_at = time.monotonic(), None
        looks = Looks(self, self.unseen) if self.unseen is not None and eval_every else None
        with ExitStack() as stack:
            for used in (self.sampler, self.run, *([looks] if looks else [])):
                stack.enter_context(closing(used))
            meter = stack.enter_context(Meter(label, steps, self.step, "updates"))
            began = self.step

            def due(step: int) -> bool:
                return looks is not None and (step % eval_every == 0 or step == steps)

            # The look at a checkpoint begins when that is saved, and may have been cut off.
            if looks and began and due(began) and not self.run.has_logged("return", began):
                looks.begin(began)
                self._log_looks(looks, clock, wait=True)
            while self.step < steps:
                self.sampler.prepare(self.step)
                info = self.population.step(self._draw)
                self.step += 1
                last = self.step == steps
                logs = self.step % log_every == 0 or last
                if logs:
                    values = {name: value.tolist() for name, value in info.items()}
                    clock.lap("updates")  # the device has caught up: reading its values waited for it
                    values["alive"] = self.population.alive.float().tolist()
                    self._log(values)
                    for warning in self._warnings(values):
                        if warning not in warned:
                            print(f"warning: {warning}", file=sys.stderr)
                        warned.add(warning)
                    clock.lap("logging")
                    if not any(values["alive"]):
                        none_left_at, self.step = self.step, steps  # what is left would change nothing
                        self._save()
                        break
                # An update can take half a second on a CPU; a GPU has caught up only where its values were read.
                if logs or self.population.device.type == "cpu":
                    meter.update(self.step)
                saves = self.step % save_every == 0 or last or time.monotonic() - saved >= CHECKPOINT_SECONDS
                if saves or due(self.step):
                    clock.lap("updates")
                if looks and (logs or saves):
                    self._log_looks(looks, clock, wait=saves)  # a run that goes on from here does not make them again
                if saves:
                    self._save()
                    saved = time.monotonic()
                    clock.lap("saving")
                if looks and due(self.step):
                    looks.begin(self.step)
                    self._log_looks(looks, clock)
            if looks:
                self._log_looks(looks, clock, wait=True)
        if self.step > began or none_left_at is not None:  # a run that was finished before keeps its own
            self.run.note_timings(clock.seconds)
        if none_left_at is not None:
            raise NoSeedLeft(
                f"No seed of {self.run.folder} is left at update {none_left_at:,}: each met a number that is not "
                "finite, and keeps its last good state. Smaller step sizes or rewards may help."
            )

    def _save(self) -> None:
        scales = {"normalise.mean": self.normalise.mean, "normalise.std": self.normalise.std}
        self.run.save(self.step, {**self.population.state(), **scales})

    def _log(self, values: Mapping[str, list[float]], step: int | None = None) -> None:
        step = self.step if step is None else step
        self.run.log(step, step * self.sampler.transitions_per_update, values)

    def _log_looks(self, looks: Looks, clock: Clock, wait: bool = False) -> None:
        for look in looks.finished(wait):
            self._log({"return": look.returns}, look.step)
            clock.lap("evaluation")

    def _draw(self, generator: torch.Generator) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        from omrl.stages import of_tasks

        batch = self.sampler.draw(generator)
        batch |= of_tasks(self.frozen, batch["task"])
        return batch, self.algorithm.noise(batch, generator)

    def _warnings(self, values: dict[str, list[float]]) -> list[str]:
        """What a person should know while it runs, one sentence each."""
        seeds = range(self.run.config["seed"], self.run.config["seed"] + self.population.size)
        found = [
            f"seed {seed} met a number that is not finite and stopped; its last good state is kept."
            for seed, alive in zip(seeds, values["alive"], strict=True)
            if not alive
        ]
        for seed, q in zip(seeds, values.get("q", []), strict=False):
            if abs(q) > LARGE_Q:
                found.append(
                    f"seed {seed}'s Q has passed {LARGE_Q:.0e}; regularise more, or lower the critic's step size or "
                    "the reward's scale, "
                    "if it should stay bounded."
                )
        shares = zip(seeds, values.get("saturated", []), values.get("saturated_logged", []), strict=False)
        for seed, share, logged in shares:
            if share - logged > SATURATED_SHARE:
                found.append(
                    f"seed {seed}'s policy takes extreme actions far more often than the log does, and nothing pulls "
                    "it back from there; a smaller step size of the actor may help."
                )
        return found


class Clock:
    """Where the time goes: seconds by what was being done."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, what: str) -> None:
        """Book the time since the last lap."""
        now = time.perf_counter()
        self.seconds[what] = self.seconds.get(what, 0.0) + now - self._last
        self._last = now


def read_preset(algorithm: str, preset: str, family: str | None) -> dict[str, Any]:
    """What a named preset sets for a family: hyperparameters, and the level, rows and updates of the run."""
    table = tomllib.loads(resources.files("omrl").joinpath("presets.toml").read_text())
    presets = table.get(algorithm)
    if presets is None or family is None:
        return {}
    if preset not in presets or family not in presets[preset]:
        known = ", ".join(name for name, families in presets.items() if family in families)
        raise OmrlError(f"{algorithm} has no preset {preset!r} for {family}; it has {known}.")
    return {**presets[preset].get("every-family", {}), **presets[preset][family]}


def _choices(kind: type) -> dict[str, tuple[str, ...]]:
    """The words that a config's fields may be, where there are only some."""
    hints = get_type_hints(kind)
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def _build_config(kind: type, values: Mapping[str, Any]) -> Any:
    """An algorithm's config from JSON or TOML values."""
    unknown = sorted(values.keys() - {field.name for field in fields(kind)})
    if unknown:
        raise OmrlError(f"{kind.__name__} has no {', '.join(unknown)}.")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
