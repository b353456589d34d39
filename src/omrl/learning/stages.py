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
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from omrl.algorithms.algorithm import BatchSpec, Stage
from omrl.data import Tensors
from omrl.engine import Batch, Params, Population
from omrl.learning.sampling import Normalisation, OnDisk, make_sampler
from omrl.progress import Meter
from omrl.runs.checkpoints import load_checkpoint, save_checkpoint
from omrl.runs.run import Run
from omrl.words import counted

# Optimiser states of hundreds of learners take gigabytes: they are saved by the clock and not by the update.
CHECKPOINT, CHECKPOINT_SECONDS = "checkpoint.safetensors", 300.0


def by_task(batch: Params) -> dict[str, Tensor]:
    """Rows [P x T, B, ...] in the order of the tasks, of a meta-batch [P, T, B, ...] of all of them in random order."""
    rows = {name: value for name, value in batch.items() if name not in ("task", "context")}
    return {name: value.flatten(0, 1) for name, value in of_tasks(rows, batch["task"].argsort(dim=1)).items()}


def of_tasks(tensors: Params, tasks: Tensor) -> dict[str, Tensor]:
    """Of tensors [P, T, ...] those of some tasks [P, M], as [P, M, ...]."""
    learners = torch.arange(len(tasks), device=tasks.device)[:, None]
    return {name: value[learners, tasks] for name, value in tensors.items()}


def learn_stages(
    stages: Sequence[Stage], run: Run, data: Tensors | OnDisk, normalise: Normalisation, device: str, log_every: int
) -> dict[str, Tensor]:
    """What all stages end with, [seed, task, ...] by name; what is not in the run's folder yet is learnt now."""
    found: dict[str, Tensor] = {}
    for stage in stages:
        folder = run.folder / "stages" / stage.name
        if not (folder / "result.safetensors").is_file():
            _learn(stage, Run(folder, run.config), data, normalise, device, log_every)
        _, result = _load(folder / "result.safetensors")
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
    seeds = run.config.all_seeds()
    tasks = len(data.tasks) if isinstance(data, OnDisk) else len(data.obs)
    population = Population(
        [stage.build(_generator(seed, task)) for seed in seeds for task in range(tasks)],
        stage.loss,
        learning_rate={"": stage.lr},
        targets=stage.targets,
        tau=stage.tau,
        seed=seeds[0],
        device=device,
    )
    spec = BatchSpec(context_sets=0, dense_rewards=stage.dense_rewards)
    sizes = {"learners": len(seeds), "meta_batch": tasks, "batch_size": stage.batch_size, "context_size": 0}
    sampler = make_sampler(data, normalise, spec=spec, seed=seeds[0], **sizes)

    def draw(generator: torch.Generator) -> tuple[Batch, Batch]:
        batch = by_task(sampler.draw(generator))
        return batch, stage.noise(batch, generator)

    step, checkpoint = 0, run.folder / CHECKPOINT
    if checkpoint.is_file():
        step, state = _load(checkpoint)
        population.load_state(state)
    run.forget_after(step)
    saved = time.monotonic()
    label = f"{stage.name}, {counted(len(seeds), 'seed')} x {counted(tasks, 'task')}"
    with closing(sampler), closing(run), Meter(label, stage.steps, step, "updates") as meter:
        while step < stage.steps:
            sampler.prepare(step)
            info = population.step(draw)
            step += 1
            logs = step % log_every == 0 or step == stage.steps
            if logs:
                values = {**info, "alive": population.alive.float()}
                per_seed = {name: value.view(len(seeds), tasks).mean(1).tolist() for name, value in values.items()}
                run.log(step, step * sampler.transitions_per_update, per_seed)
            if logs or population.device.type == "cpu":
                meter.update(step)
            if time.monotonic() - saved >= CHECKPOINT_SECONDS and step < stage.steps:
                _save(checkpoint, step, population.state())
                saved = time.monotonic()
    failed = int((~population.alive).sum())
    if failed:
        print(f"warning: {failed} of {label} met a number that is not finite and stopped early.", file=sys.stderr)
    result = stage.result(population.params)
    whole = {name: value.reshape(len(seeds), tasks, *value.shape[1:]) for name, value in result.items()}
    _save(run.folder / "result.safetensors", step, whole)


def _generator(seed: int, task: int) -> torch.Generator:
    """For the initial weights of one learner."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence([seed, task]).generate_state(1)[0]))


def _save(path: Path, step: int, tensors: Mapping[str, Tensor]) -> None:
    save_checkpoint(path, tensors, {"step": step})


def _load(path: Path) -> tuple[int, dict[str, Tensor]]:
    tensors, notes = load_checkpoint(path, hint="; delete it to learn this stage again")
    return notes["step"], tensors
