"""Step 1 of the flow: train the behaviour agents of a family and log their checkpoints as a meta-dataset.

    omrl collect half-cheetah-vel --out data/half-cheetah-vel

Two stages, each of which goes on after an interruption: the agents are trained into behaviour policies, and the
policies are rolled out. The second stage alone rebuilds a dataset from published policies (`--from-policies`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tyro.conf import Positional

from omrl.behaviour.config import AgentsConfig, preset
from omrl.data import MetaDataset, MetaDatasetWriter
from omrl.data.arrays import episode_returns
from omrl.errors import OmrlError
from omrl.families import Task, TaskFamily, get_family
from omrl.files import write_json, write_rows

if TYPE_CHECKING:
    from omrl.behaviour.policies import PolicyFiles

# torch takes seconds to import, and `--help` needs none of it: what needs torch is imported where it is used.

# Tasks rolled out together. A constant, because it bounds memory and must not depend on what an interruption left.
ROLLOUT_TASKS = 25
CURVE_POINTS = 50
JOB = "job.json"


@dataclass(frozen=True)
class Collect:
    """Train one SAC agent per task and log their checkpoints; what is left out comes from the family's preset."""

    family: Positional[str]
    """Task family, as listed by `omrl families`."""
    out: Path
    """Folder of the new meta-dataset."""
    schedule: str = "default"
    """`default`, or `paper`: the checkpoints and episodes of the paper's table of datasets."""
    steps: int | None = None
    """Environment steps of each agent."""
    checkpoints: tuple[int, ...] | None = None
    """Steps at which policies are kept and logged: 0 is untrained, the last is the expert."""
    episodes: int | None = None
    """Full-length episodes per task and checkpoint; more of them where they end early, for the same number of rows."""
    envs_per_task: int | None = None
    """Environments of one task that its agent steps together."""
    tasks: int | None = None
    """Only so many tasks, spread evenly over the family's list."""
    seed: int = 0
    """Seed of everything."""
    different_starts: bool = False
    """Start every agent from weights of its own instead of the same for all tasks."""
    device: str = "auto"
    """Where the agents learn: auto, cpu or cuda."""
    from_policies: bool = False
    """Rebuild the data from stored policies by simulation alone."""
    policies: Path = Path("policies")
    """Where `--from-policies` finds a folder named after the family."""
    expert_only: bool = False
    """Log the last checkpoint alone."""
    plot: bool = False
    """Also draw learning curves and, for the point robots, trajectories (needs `omrl[plot]`)."""
    force: bool = False
    """Replace what is there."""
    dry_run: bool = False
    """Print what would run, and stop."""


def collect(family: str, out: str | Path, **options: Any) -> MetaDataset | None:
    """Step 1 from Python: takes what the command takes, such as `collect("ant-fwd-back", "data/ant", seed=1)`."""
    if "policies" in options:
        options["policies"] = Path(options["policies"])
    return run(Collect(family, Path(out), **options))


def run(args: Collect) -> MetaDataset | None:
    """Run step 1; an interrupted run goes on when it is started again with the same arguments."""
    from omrl.behaviour.policies import PolicyFiles
    from omrl.devices import choose_device

    family = get_family(args.family)
    _check(args)
    out = args.out.absolute()
    work = out.parent / f".{out.name}.collect"
    if args.from_policies:
        stored = PolicyFiles.open(args.policies / family.name)
        if stored.family.name != family.name:
            raise OmrlError(f"{stored.folder} holds policies of {stored.family.name}, not of {family.name}.")
        episodes = args.episodes or preset(family, args.schedule)[1]
        tasks = _spread(stored.tasks, args.tasks)
        plan = _plan(family, tasks, stored.source, stored.steps, episodes, args)
        config, job = None, {**plan, "policies": dict(stored.files)}
    else:
        config, episodes = _settings(family, args)
        tasks = _spread(family.tasks, args.tasks)
        plan = _plan(family, tasks, _training_source(config), config.checkpoints, episodes, args)
        job = {**plan, "policies": None}
    if args.dry_run:
        print(json.dumps(plan, indent=2))
        return None
    if _finished(out, plan, job["policies"], args.force):
        print(f"{out} is there already, made with these arguments.")
    else:
        device = choose_device(args.device)
        # Before the training, so that what stands in the way of the dataset is found before the hours, not after.
        writer = _writer(family, tasks, plan, out, args.force)
        if not _open_work(work, job, args.force):
            writer.abandon()
        if config is not None:
            stored = _train(family, tasks, config, device, work)
        _log_rollouts(writer, stored, tasks, plan["rollout"])
    _keep_policies(work, job, out)
    dataset = MetaDataset.open(out)
    if not dataset.split["test"]:
        print("note: none of these tasks is a test task of the family's split")
    if args.plot:
        from omrl.behaviour.plots import plot

        trained = args.policies / family.name if args.from_policies else out / "policies"
        for path in plot(dataset, out / "figures", trained / "learning-curve.csv"):
            print(f"drew {path}")
    return dataset


# -- arguments -------------------------------------------------------------------------------------------------------


def _check(args: Collect) -> None:
    if args.episodes is not None and args.episodes < 1:
        raise OmrlError(f"--episodes must be at least 1, not {args.episodes}.")
    if not 0 <= args.seed < 2**63:
        raise OmrlError(f"--seed must be 0 or more and under 2^63, not {args.seed}.")
    if args.from_policies:
        for name in ("steps", "checkpoints", "envs_per_task", "different_starts"):
            if getattr(args, name) not in (None, False):
                raise OmrlError(f"--{name.replace('_', '-')} is about training, and --from-policies does not train.")


def _settings(family: TaskFamily, args: Collect) -> tuple[AgentsConfig, int]:
    config, episodes = preset(family, args.schedule)
    changes: dict[str, Any] = {"seed": args.seed, "same_start": not args.different_starts}
    if args.steps is not None:
        changes["steps"] = args.steps
        if args.checkpoints is None:
            # Keep the preset's proportions, on whole rounds.
            envs = args.envs_per_task or config.envs_per_task
            scaled = (round(c * args.steps / config.steps / envs) * envs for c in config.checkpoints)
            changes["checkpoints"] = tuple(sorted(set(scaled)))
        changes["random_steps"] = min(config.random_steps, args.steps // 4)
    if args.checkpoints is not None:
        changes["checkpoints"] = tuple(sorted(set(args.checkpoints)))
    if args.envs_per_task is not None:
        changes["envs_per_task"] = args.envs_per_task
    return replace(config, **changes), args.episodes or episodes


def _spread(tasks: Sequence[Task], count: int | None) -> tuple[Task, ...]:
    if count is None:
        return tuple(tasks)
    if not 1 <= count <= len(tasks):
        raise OmrlError(f"--tasks must be between 1 and the {len(tasks)} tasks there are, not {count}.")
    return tuple(tasks[i] for i in np.linspace(0, len(tasks) - 1, count).round().astype(int))


def _training_source(config: AgentsConfig) -> dict[str, Any]:
    # Through JSON, so that it equals what a manifest or an index gives back.
    agents = json.loads(json.dumps(asdict(config)))
    return {"algorithm": "SAC, one agent per task", "seed": config.seed, "agents": agents}


def _plan(
    family: TaskFamily,
    tasks: Sequence[Task],
    source: Mapping[str, Any],
    steps: Sequence[int],
    episodes: int,
    args: Collect,
) -> dict[str, Any]:
    """What the data will be, as JSON, for the manifest.

    Which policy files it is rebuilt from is not in it, so that a rebuilt dataset equals the original; that is in the
    `job` which a working folder records.
    """
    logged = [steps[-1]] if args.expert_only else list(steps)
    rollout = {"checkpoints": logged, "episodes": episodes, "seed": args.seed}
    return {"family": family.name, "tasks": [task.name for task in tasks], **source, "rollout": rollout}


def _finished(out: Path, plan: Mapping[str, Any], policies: Mapping[str, Any] | None, force: bool) -> bool:
    from omrl.behaviour.policies import INDEX, PolicyFiles

    if not out.exists() or force:
        return False
    dataset = MetaDataset.open(out)
    if {key: value for key, value in dataset.manifest.source.items() if key != "versions"} != plan:
        raise OmrlError(f"{out} holds a dataset made with other arguments; choose another --out, or use --force.")
    if policies and (out / "policies" / INDEX).is_file() and PolicyFiles.open(out / "policies").files != policies:
        raise OmrlError(f"{out} holds a dataset made by other policies; choose another --out, or use --force.")
    return True


def _open_work(work: Path, job: Mapping[str, Any], force: bool) -> bool:
    """Make the working folder, or go on with the one that is there (true)."""
    left = _left_job(work)
    if left == job:
        return True
    if left is not None and not force:
        raise OmrlError(f"{work} is an unfinished run with other arguments; finish it with those, or use --force.")
    try:
        if work.exists():
            shutil.rmtree(work)
        work.mkdir(parents=True)
        write_json(work / JOB, job)
    except OSError as error:
        raise OmrlError(f"{work} could not be written: {error.strerror}.") from error
    return False


def _left_job(work: Path) -> Any:
    record = work / JOB
    return json.loads(record.read_text()) if record.exists() else None


# -- the two stages --------------------------------------------------------------------------------------------------


def _train(family: TaskFamily, tasks: Sequence[Task], config: AgentsConfig, device: str, work: Path) -> PolicyFiles:
    from omrl.behaviour.agents import train
    from omrl.behaviour.policies import INDEX, PolicyFiles

    folder = work / "policies"
    if not (folder / INDEX).exists():
        checkpoints, returns = train(family, tasks, config, device, work)
        folder.mkdir(exist_ok=True)
        _write_curve(folder / "learning-curve.csv", tasks, config.steps, returns)
        PolicyFiles.write(folder, family, tasks, checkpoints, _training_source(config))
    return PolicyFiles.open(folder)


def _write_curve(path: Path, tasks: Sequence[Task], steps: int, returns: np.ndarray[Any, Any]) -> None:
    """Mean training return of every task in equal stretches of training."""
    width = steps / CURVE_POINTS
    bins = np.minimum((returns[:, 1] / width).astype(int), CURVE_POINTS - 1)
    rows: list[Sequence[Any]] = [("task", "step", "return")]
    for index, task in enumerate(tasks):
        for b in range(CURVE_POINTS):
            chosen = returns[(returns[:, 0] == index) & (bins == b), 2]
            if chosen.size:
                rows.append((task.name, round((b + 1) * width), f"{chosen.mean():.5g}"))
    write_rows(path, rows)


def _writer(
    family: TaskFamily, tasks: Sequence[Task], plan: Mapping[str, Any], out: Path, force: bool
) -> MetaDatasetWriter:
    split = family.splits["paper"]
    names = {task.name for task in tasks}
    return MetaDatasetWriter(
        out,
        tasks=tasks,
        observation_dim=family.obs_dim,
        action_dim=family.act_dim,
        action_low=[-1.0] * family.act_dim,
        action_high=[1.0] * family.act_dim,
        varies=family.varies,
        split={
            side: [family.tasks[i].name for i in getattr(split, side) if family.tasks[i].name in names]
            for side in ("train", "test")
        },
        family=family.name,
        horizon=family.horizon,
        source={**plan, "versions": {name: metadata.version(name) for name in ("omrl", "numpy", "mujoco")}},
        force=force,
    )


def _log_rollouts(
    writer: MetaDatasetWriter, stored: PolicyFiles, tasks: Sequence[Task], rollout: Mapping[str, Any]
) -> None:
    from omrl.behaviour.rollout import roll_out
    from omrl.progress import Meter

    family, steps, episodes = stored.family, rollout["checkpoints"], rollout["episodes"]
    order = [task.name for task in stored.tasks]
    with Meter(f"rolling out {len(steps)} checkpoints", len(tasks)) as meter:
        for start in range(0, len(tasks), ROLLOUT_TASKS):
            chunk = tasks[start : start + ROLLOUT_TASKS]
            if not all(writer.done(task.name) for task in chunk):
                rows = [order.index(task.name) for task in chunk]
                parts = []
                for step in steps:
                    weights, biases = ([layer[rows] for layer in kind] for kind in stored.weights(step))
                    seed = (rollout["seed"], step)
                    parts.append(roll_out(family, chunk, weights, biases, episodes=episodes, seed=seed))
                for i, task in enumerate(chunk):
                    _write_task(writer, task.name, steps, [part[i] for part in parts], family.horizon)
            meter.update(start + len(chunk))
    writer.finish()


def _write_task(
    writer: MetaDatasetWriter, name: str, steps: Sequence[int], parts: Sequence[dict[str, Any]], horizon: int
) -> None:
    """One task's rows of all checkpoints; the untrained and the last policy give the reference returns."""
    first_episode = 0
    for step, part in zip(steps, parts, strict=True):
        part["policy_step"] = np.full(len(part["rewards"]), step, dtype=np.int32)
        part["episode"] = part["episode"] + np.int32(first_episode)
        first_episode = int(part["episode"][-1]) + 1
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    random, expert = (float(episode_returns(part, horizon).mean()) for part in (parts[0], parts[-1]))
    writer.write(name, arrays, {"random": random if steps[0] == 0 else None, "expert": expert})


def _keep_policies(work: Path, job: Mapping[str, Any], out: Path) -> None:
    """Put the policies beside the data they made, then drop the working folder."""
    if _left_job(work) not in (None, job):
        return  # An unfinished run that was to replace this dataset: not what made it.
    trained = work / "policies"
    if trained.is_dir():
        shutil.rmtree(out / "policies", ignore_errors=True)
        trained.rename(out / "policies")
    shutil.rmtree(work, ignore_errors=True)
