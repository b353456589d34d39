"""Stages before meta-training: populations of one learner per seed and training task, each on its own task's rows.

An algorithm that has some says so by `stages(varies)`. Each is learnt once; what its learners ended with lies in the
run's folder and reaches the algorithm's loss in the batch, for the tasks of that batch:

    runs/mbml/stages/teacher/result.safetensors    what the loss reads, [seed, task, ...] by name
    runs/mbml/stages/teacher/metrics.csv           as in the run's folder; values are means over the tasks

A stage that was interrupted goes on from `checkpoint.safetensors`, or starts again where there is none yet; on CPU it
ends with the same bytes either way.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from omrl.algorithms.algorithm import BatchSpec, Stage
from omrl.data import Tensors
from omrl.learning import loop
from omrl.learning.engine import Batch, Info, Params, Population, room_on, slots
from omrl.learning.nets import stored_networks
from omrl.learning.sampling import Normalisation, OnDisk, make_sampler
from omrl.runs.checkpoints import check_fits, load_checkpoint, save_checkpoint
from omrl.runs.run import Run
from omrl.words import quantity

CHECKPOINT, RESULT = "checkpoint.safetensors", "result.safetensors"
AGAIN = "; delete it to learn this stage again"


def by_task(batch: Params) -> dict[str, Tensor]:
    """Rows [P x T, B, ...] in the order of the tasks, of a meta-batch [P, T, B, ...] of all of them in random order."""
    rows = {name: value for name, value in batch.items() if name not in ("task", "context")}
    return {name: value.flatten(0, 1) for name, value in of_tasks(rows, batch["task"].argsort(dim=1)).items()}


def of_tasks(tensors: Params, tasks: Tensor) -> dict[str, Tensor]:
    """Of tensors [P, T, ...] those of some tasks [P, M], as [P, M, ...]."""
    learners = torch.arange(len(tasks), device=tasks.device)[:, None]
    return {name: value[learners, tasks] for name, value in tensors.items()}


class Frozen:
    """What stages ended with, ready for updates: all of a task side by side, so that one gather fetches it.

    As the engine keeps what it trains: on a GPU networks have room for widths that matrix units like, and with
    `bfloat16` they are read in it.
    """

    def __init__(self, tensors: Params, bfloat16: bool = False, room: int | None = None) -> None:
        """`tensors` are [seed, task, ...] by name; one seed's are those of all learners."""
        self._parts: list[tuple[dict[str, tuple[int, torch.Size]], Tensor]] = []
        shapes = {name: value.shape[2:] for name, value in tensors.items()}
        networks = stored_networks(shapes, room or room_on(next(iter(tensors.values())).device) if tensors else 1)
        kinds = {name: torch.bfloat16 if bfloat16 and name in networks else tensors[name].dtype for name in tensors}
        for kind in dict.fromkeys(kinds.values()):
            own = {name: networks.get(name, shapes[name]) for name in tensors if kinds[name] == kind}
            places, width = slots(own)
            first = tensors[next(iter(own))]
            packed = torch.zeros(*first.shape[:2], width, dtype=kind, device=first.device)
            for name, (start, shape) in places.items():
                view = packed[..., start : start + shape.numel()].view(*first.shape[:2], *shape)
                view[(slice(None), slice(None), *map(slice, shapes[name]))] = tensors[name].to(kind)
            self._parts.append((places, packed))

    def of(self, tasks: Tensor) -> dict[str, Tensor]:
        """Of some tasks [P, M], as [P, M, ...] by name."""
        found: dict[str, Tensor] = {}
        for places, packed in self._parts:
            seeds, count, _ = packed.shape
            learners = torch.arange(len(tasks) if seeds > 1 else 1, device=tasks.device)[:, None]
            rows = packed.flatten(0, 1).index_select(0, (learners * count + tasks).flatten())
            for name, (start, shape) in places.items():
                found[name] = rows[:, start : start + shape.numel()].view(*tasks.shape, *shape)
        return found


def learn_stages(
    stages: Sequence[Stage], run: Run, data: Tensors | OnDisk, normalise: Normalisation, device: str, log_every: int
) -> dict[str, Tensor]:
    """What all stages end with, [seed, task, ...] by name; what is not in the run's folder yet is learnt now."""
    found: dict[str, Tensor] = {}
    for stage in stages:
        folder = run.folder / "stages" / stage.name
        if not (folder / RESULT).is_file():
            _learn(stage, Run(folder, run.config), data, normalise, device, log_every)
        _, result = _load(folder / RESULT)
        tasks = len(data.tasks) if isinstance(data, OnDisk) else len(data.obs)
        like = untrained([stage], len(run.config.all_seeds()), tasks, "cpu")
        check_fits(result, like, folder / RESULT, AGAIN)
        (folder / CHECKPOINT).unlink(missing_ok=True)
        found |= {name: value.to(device) for name, value in result.items()}
    return found


def untrained(stages: Sequence[Stage], seeds: int, tasks: int, device: str) -> dict[str, Tensor]:
    """What the stages would end with if nothing were learnt and all learners were the same: to measure speed."""
    found: dict[str, Tensor] = {}
    for stage in stages:
        learner = stage.build(torch.Generator().manual_seed(0))
        params = {name: value.detach()[None].to(device) for name, value in learner.named_parameters()}
        for name, value in stage.result(params).items():
            found[name] = value[None].expand(seeds, tasks, *value.shape[1:])
    return found


def _learn(
    stage: Stage, run: Run, data: Tensors | OnDisk, normalise: Normalisation, device: str, log_every: int
) -> None:
    run.folder.mkdir(parents=True, exist_ok=True)
    learning = StageLearning(stage, run, data, normalise, device)
    label = f"{stage.name}, {quantity(len(run.config.all_seeds()), 'seed')} x {quantity(learning.tasks, 'task')}"
    with closing(learning.sampler), closing(run):
        loop.learn(learning, stage.steps, folder=run.folder, label=label, log_every=log_every)
    failed = int((~learning.population.alive).sum())
    if failed:
        print(f"warning: {failed} of {label} met a number that is not finite and stopped early.", file=sys.stderr)


class StageLearning:
    """The learners of a stage, in the order of their seeds and then of their tasks."""

    def __init__(self, stage: Stage, run: Run, data: Tensors | OnDisk, normalise: Normalisation, device: str) -> None:
        self.stage, self.run, self.step = stage, run, 0
        self.seeds = run.config.all_seeds()
        self.tasks = len(data.tasks) if isinstance(data, OnDisk) else len(data.obs)
        self.population = Population(
            [stage.build(_generator(seed, task)) for seed in self.seeds for task in range(self.tasks)],
            stage.loss,
            learning_rate={"": stage.lr},
            targets=stage.targets,
            tau=stage.tau,
            seed=self.seeds[0],
            device=device,
            bfloat16=bool(run.config.hyperparameters.get("bfloat16", False)),
        )
        spec = BatchSpec(context_sets=0, dense_rewards=stage.dense_rewards)
        sizes = {"learners": len(self.seeds), "meta_batch": self.tasks, "batch_size": stage.batch_size}
        self.sampler = make_sampler(data, normalise, spec=spec, seed=self.seeds[0], context_size=0, **sizes)
        self._info: Info = {}
        if (run.folder / CHECKPOINT).is_file():
            self.step, state = _load(run.folder / CHECKPOINT)
            check_fits(state, self.population.state(), run.folder / CHECKPOINT, AGAIN)
            self.population.load_state(state)
        run.forget_after(self.step)

    def reached(self) -> None:
        """Nothing is due at any step."""

    def update(self) -> None:
        """One update of every learner, on rows of its task."""
        self.sampler.prepare(self.step)
        self._info = self.population.step(self._draw)
        self.step += 1

    def _draw(self, generator: torch.Generator) -> tuple[Batch, Batch]:
        batch = by_task(self.sampler.draw(generator))
        return batch, self.stage.noise(batch, generator)

    def log(self) -> str:
        """Each seed's mean over its tasks."""
        values = {**self._info, "alive": self.population.alive.float()}
        per_seed = {name: self._of_tasks(value).mean(1).tolist() for name, value in values.items()}
        self.run.log(self.step, self.step * self.sampler.transitions_per_update, per_seed)
        return ""

    def save(self) -> None:
        """What the stage ends with, or a checkpoint on the way there."""
        name, tensors = CHECKPOINT, self.population.state()
        if self.step == self.stage.steps:
            found = self.stage.result(self.population.params)
            name, tensors = RESULT, {name: self._of_tasks(value) for name, value in found.items()}
        save_checkpoint(self.run.folder / name, tensors, {"step": self.step})

    def _of_tasks(self, value: Tensor) -> Tensor:
        """What the learners have, [seed x task, ...], as [seed, task, ...]."""
        return value.reshape(len(self.seeds), self.tasks, *value.shape[1:])


def _generator(seed: int, task: int) -> torch.Generator:
    """For the initial weights of one learner."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence([seed, task]).generate_state(1)[0]))


def _load(path: Path) -> tuple[int, dict[str, Tensor]]:
    tensors, notes = load_checkpoint(path, AGAIN)
    return notes["step"], tensors
