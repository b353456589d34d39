"""Meta-training: many seeds of one algorithm, from a meta-dataset to a run's folder.

A run that is interrupted goes on when it is started again with the same arguments, and on CPU it ends with the same
bytes as one that was never interrupted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

from torch import Generator

from omrl.algorithms import ALGORITHMS, get_algorithm
from omrl.algorithms.algorithm import Algorithm, BatchSpec, MetaConfig
from omrl.commands.train import Train
from omrl.data import MetaDataset, Tensors
from omrl.errors import OmrlError
from omrl.learning import loop, signs
from omrl.learning.compiling import loading_beside
from omrl.learning.devices import choose_device, limited_threads, on_cpu
from omrl.learning.engine import Batch, Info, Mode
from omrl.learning.looks import Looks
from omrl.learning.sampling import Normalisation, OnDisk, fits, make_sampler
from omrl.learning.stages import Frozen, learn_stages
from omrl.runs.choices import choices_of, in_units
from omrl.runs.config import CONFIG, Batches, RunConfig
from omrl.runs.mirrors import need_wandb
from omrl.runs.model import Model
from omrl.runs.names import Column, Columns
from omrl.runs.run import RUN, Run
from omrl.storage import folders
from omrl.words import quantity


def run(args: Train, hyperparameters: MetaConfig) -> Run | None:
    """Train, or go on with training."""
    out = _checked_out(args)
    if args.wandb is not None:
        need_wandb()  # said before the hours, not after
    dataset = MetaDataset.open(args.data)
    level = dataset.level(args.level or "mixed")
    view, device = level.select(dataset.split["train"]), choose_device(args.device)
    algorithm = _algorithm(args, hyperparameters, dataset)
    if dataset.manifest.discrete_actions and not algorithm.discrete_actions:
        raise OmrlError(_about_discrete_actions(args, dataset))
    _check_choices(args, hyperparameters, dataset)
    dense = [stage.dense_rewards for stage in algorithm.stages(dataset.manifest.varies)]
    if any([algorithm.batch_spec.dense_rewards, *dense]) and "rewards_dense" not in view.rows(0):
        raise OmrlError(f"{args.data} has no rewards_dense, which dense_reward asks for.")
    there = (args.out / CONFIG).is_file()
    begun = Run.open(args.out).config if there and not args.force else None
    config = run_config(args, hyperparameters, dataset)
    if begun is not None:
        # It goes on as it began, however much memory is free now, and with what it drew then.
        config = replace(
            config, stream=args.stream or begun.stream, batch=_drawn(begun, config, args.out), cpu=begun.cpu
        )
    else:
        config = replace(config, stream=args.stream or not fits(view, args.max_rows, device))
    if device != "cpu":
        config = replace(config, cpu=None)
    elif config.cpu is None:
        config = replace(config, cpu=on_cpu(hyperparameters, args.seeds, args.steps, args.threads))
    if args.dry_run:
        print(json.dumps(asdict(config), indent=2))
        return None
    # What can be wrong with the data is found before there is a folder that would have to be cleaned up.
    with loading_beside(config.cpu is None or config.cpu["mode"] == "compiled"):
        rows = OnDisk(view, args.max_rows, device) if config.stream else view.to(device, max_rows=args.max_rows)
    if args.force:
        folders.discard(out, RUN)
    folders.claim(out, RUN, known=begun is not None)
    unseen = level.select(dataset.split["test"]) if dataset.family and dataset.split["test"] else None
    threads, mode = (config.cpu["threads"], config.cpu["mode"]) if config.cpu else (None, None)
    with folders.only_writer(out), limited_threads(args.threads or threads):
        folder = Run.create(args.out, config, asdict(get_algorithm(args.algorithm).Config()))
        for sentence in signs.before(config, view):
            print(sentence, file=sys.stderr)
        training = Training(folder, rows, device, unseen, mode)
        if args.wandb is not None:
            folder.watch(args.wandb)
        training.prepare(rows, dataset.manifest.varies, args.log_every)
        training.learn(args.log_every, args.save_every, args.eval_every)
        if dataset.family is None:
            for sentence in signs.after(training, view):
                print(f"warning: {sentence}", file=sys.stderr)
    return folder


def _about_discrete_actions(args: Train, dataset: MetaDataset) -> str:
    """Why an algorithm cannot learn from choices, and who can; between words, unlike levels, there is nothing."""
    can = [name for name in ALGORITHMS if get_algorithm(name).discrete_actions]
    sentence = f"The actions of {args.data} are discrete, which {args.algorithm} cannot learn: {' and '.join(can)} can"
    if any(choices.labels is not None for choices in dataset.manifest.discrete_actions or ()):
        return f"{sentence}."
    return f"{sentence}; or, if numbers between them make sense, import the logs with --action-kind continuous."


def _checked_out(args: Train) -> Path:
    """Where the run goes: not into its data, and in the place of nothing but a run."""
    out = folders.place(args.out)
    folders.keep_apart(out, args.data)
    if not args.dry_run:
        folders.clear_up(out, RUN)
    if args.force:
        folders.check_replaceable(out, RUN)
    return out


def run_config(args: Train, hyperparameters: MetaConfig, dataset: MetaDataset) -> RunConfig:
    """What a run's config.json says: all that decides its result."""
    return RunConfig(
        algorithm=args.algorithm,
        preset=args.preset if args.config is None else None,
        hyperparameters=asdict(hyperparameters),
        data=str(args.data.absolute()),
        family=dataset.family,
        observation_dim=dataset.observation_dim,
        action_dim=dataset.action_dim,
        action_low=tuple(dataset.manifest.action_low),
        action_high=tuple(dataset.manifest.action_high),
        level=args.level or "mixed",
        max_rows=args.max_rows,
        seeds=args.seeds,
        seed=args.seed,
        steps=args.steps,
        stream=args.stream,
        batch=batches(_algorithm(args, hyperparameters, dataset).batch_spec),
        columns=_columns(dataset),
        choices=choices_of(dataset.manifest),
        tasks=tuple(dataset.split["train"]),
    )


def _check_choices(args: Train, hyperparameters: MetaConfig, dataset: MetaDataset) -> None:
    """What an algorithm was told of choices is what the data says of them."""
    told, choices = tuple(getattr(hyperparameters, "choices", ())), choices_of(dataset.manifest)
    bounds = dataset.manifest.action_low, dataset.manifest.action_high
    if choices is None and told:
        raise OmrlError(f"The actions of {args.data} are amounts, and choices are given; leave --choices out.")
    if choices is not None and told != in_units(choices, *bounds):
        raise OmrlError(f"The choices of {args.data} are not those that are given; leave --choices out.")


def _columns(dataset: MetaDataset) -> Columns | None:
    """What the data calls its numbers, and what it says of their ranges."""
    logged = dataset.manifest.columns
    if logged is None:
        return None
    observations, actions = (
        [Column(name=one.name, unit=one.unit, category=one.category, low=one.low, high=one.high) for one in part]
        for part in (logged.observations, logged.actions)
    )
    return Columns(observations=observations, actions=actions)


def _algorithm(args: Train, hyperparameters: MetaConfig, dataset: MetaDataset) -> Algorithm[MetaConfig]:
    kind = get_algorithm(args.algorithm)
    _, algorithm = kind.build(dataset.observation_dim, dataset.action_dim, hyperparameters, [args.seed])
    return algorithm


def _drawn(begun: RunConfig, now: RunConfig, folder: Path) -> Batches | None:
    """What a run that was begun draws: as much as its algorithm reads, or more, as every run once did."""
    there, needed = (cast(Mapping[str, int], one.batch or batches(BatchSpec())) for one in (begun, now))
    for name in ("context_sets", "next_actions", "dense_rewards", "other_tasks"):
        if there[name] < needed[name]:
            said = f"batch.{name} is {there[name]}, and {begun.algorithm} reads {needed[name]}"
            raise OmrlError(f"{folder / CONFIG} is damaged: {said}.")
    return begun.batch


def batches(spec: BatchSpec) -> Batches:
    """A spec as a run's config has it."""
    return {
        "context_sets": spec.context_sets,
        "consecutive": spec.consecutive,
        "next_actions": spec.next_actions,
        "dense_rewards": spec.dense_rewards,
        "other_tasks": spec.other_tasks,
    }


def spec_of(config: RunConfig) -> BatchSpec:
    """What a run's updates read."""
    return BatchSpec(**config.batch) if config.batch else BatchSpec()


class NoSeedLeft(OmrlError):
    """All of a run's learners met numbers that are not finite."""


class Training(Model):
    """The learners of a run with the data they learn from, and the unseen tasks' logs they are looked at on."""

    def __init__(
        self,
        run: Run,
        data: Tensors | OnDisk,
        device: str,
        unseen: MetaDataset | None = None,
        mode: Mode | None = None,
    ) -> None:
        # Whoever trains has named it.
        super().__init__(run, device, mode, trust=(run.config.algorithm,), untrained=True)
        self.unseen = unseen
        if self.step == 0:
            self.normalise = Normalisation.of(data)
        self.run.forget_after(self.step)
        self.sampler = make_sampler(
            data,
            self.normalise,
            seed=run.config.seed,
            draws=len(self.algorithm.child_steps) + 1,
            spec=spec_of(run.config),
            learners=self.population.size,
            meta_batch=self.hyperparameters.meta_batch,
            batch_size=self.hyperparameters.batch_size,
            context_size=self.hyperparameters.context_size,
        )
        self.frozen = Frozen({})
        """What the stages before ended with."""
        self._info: Info = {}
        self._looks: Looks | None = None
        self._look_at: set[int] = set()
        self._warned: set[str] = set()
        largest = 0.0 if isinstance(data, OnDisk) else float(data.rew.abs().max())
        self._possible = signs.largest_value(asdict(self.hyperparameters), largest)
        self._in_one_place = signs.loss_in_one_place(asdict(self.hyperparameters))
        self._none_left_at: int | None = None
        self._clock = Clock()

    def prepare(self, data: Tensors | OnDisk, varies: str, log_every: int) -> None:
        """Learn what the algorithm needs to have learnt before, unless the run's folder has it: see stages.py."""
        stages, device = self.algorithm.stages(varies), str(self.population.device)
        if stages and self.step < self.run.config.steps:
            learnt = learn_stages(stages, self.run, data, self.normalise, device, log_every)
            self.frozen = Frozen(learnt, self.hyperparameters.bfloat16)
            self._clock.lap("stages")

    def learn(self, log_every: int, save_every: int, eval_every: int = 0) -> None:
        """Updates until the run's number of steps, with looks at the unseen tasks in between."""
        began, steps = self.step, self.run.config.steps
        label = f"{self.run.config.algorithm}, {quantity(self.population.size, 'seed')}"
        with ExitStack() as stack:
            if self.unseen is not None and eval_every:
                seen = self.run.curves.get("return")
                self._look_at = {*range(eval_every, steps, eval_every), steps} - set(seen.steps if seen else ())
                self._looks = stack.enter_context(closing(Looks(self, self.unseen)))
            for used in (self.sampler, self.run):
                stack.enter_context(closing(used))
            loop.learn(self, steps, folder=self.run.folder, label=label, log_every=log_every, save_every=save_every)
            self._log_looks(wait=True)
        # A run that was finished before keeps its own.
        if self.step > began or not (self.run.folder / "timings.json").exists():
            self.run.note_timings(self._clock.seconds)
        if self._none_left_at is not None:
            raise NoSeedLeft(
                f"No seed of {self.run.folder} is left at update {self._none_left_at:,}: each met a number that is not "
                "finite, and keeps its last good state. Smaller step sizes or rewards may help."
            )

    # -- what the loop calls ---------------------------------------------------------------------------------------

    def reached(self) -> None:
        """Look at the return where that is due: after a checkpoint of the same step, which may be gone on from."""
        if self._looks is not None and self.step in self._look_at:
            self._clock.lap("updates")
            self._looks.begin(self.step)
            self._log_looks()

    def update(self) -> None:
        """One update of every seed; its metrics stay on the device until they are logged."""
        self.sampler.prepare(self.step)
        if self.algorithm.slowing:
            steps = self.run.config.steps
            self.population.slow_down(min((steps - self.step) / (self.algorithm.slowing * steps), 1.0))
        self._info = self.population.step(self._draw)
        self.step += 1

    def log(self) -> str:
        """A row of metrics for each seed."""
        values = {name: value.tolist() for name, value in self._info.items()}
        self._clock.lap("updates")  # the device has caught up: reading its values waited for it
        values["alive"] = self.population.alive.float().tolist()
        self._log(values, self.step)
        told = self._in_one_place if self.step >= signs.TIME_TO_TELL else None
        for warning in signs.during(self.run.config.all_seeds(), values, self._possible, told):
            if warning not in self._warned:
                print(f"warning: {warning}", file=sys.stderr)
            self._warned.add(warning)
        self._clock.lap("logging")
        self._log_looks()
        if not any(values["alive"]):
            # What is left would change nothing.
            self._none_left_at, self.step, self._look_at = self.step, self.run.config.steps, set()
        return ""

    def save(self) -> None:
        """A checkpoint; the looks that were begun before it come first, as a run that goes on makes no more of them."""
        self._clock.lap("updates")
        self._log_looks(wait=True)
        scales = {"normalise.mean": self.normalise.mean, "normalise.std": self.normalise.std}
        self.run.save(self.step, {**self.population.state(), **scales})
        self._clock.lap("saving")

    def _log(self, values: Mapping[str, list[float]], step: int) -> None:
        self.run.log(step, step * self.sampler.transitions_per_update, values)

    def _log_looks(self, wait: bool = False) -> None:
        for look in self._looks.finished(wait) if self._looks is not None else ():
            self._log({"return": look.returns}, look.step)
            self._clock.lap("evaluation")

    def _draw(self, generator: Generator) -> tuple[Batch, Batch]:
        batch = self.sampler.draw(generator)
        batch |= self.frozen.of(batch["task"])
        return batch, self.algorithm.noise(batch, generator)


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
