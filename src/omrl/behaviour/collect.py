"""Step 1 of the flow: train the behaviour agents of a family and log their checkpoints as a meta-dataset.

    omrl collect half-cheetah-vel --out data/half-cheetah-vel

Two stages, each of which goes on after an interruption: the agents are trained into behaviour policies, and the
policies are rolled out. The second stage alone rebuilds a dataset from published policies (`--from-policies`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from omrl.behaviour.agents import AGAIN, train
from omrl.behaviour.apart import train_packs
from omrl.behaviour.config import AgentsConfig, Preset, SACConfig, preset
from omrl.behaviour.options import changed, scaled
from omrl.behaviour.policies import INDEX, PolicyFiles, find_published
from omrl.behaviour.rollout import Rollout, roll_out
from omrl.commands.collect import Collect
from omrl.commands.data import Info
from omrl.data import MetaDataset, MetaDatasetWriter
from omrl.data.arrays import Arrays, episode_returns
from omrl.data.command import info
from omrl.data.manifest import BehaviourPolicy, Reference, Told
from omrl.data.writer import DATASET
from omrl.errors import OmrlError
from omrl.families import Task, TaskFamily, get_family
from omrl.learning.devices import choose_device
from omrl.progress import Meter
from omrl.storage import folders
from omrl.storage.files import harmless, read_json, versions, write_json, write_rows
from omrl.units.place import LOCAL, check

# Tasks rolled out together. A constant, because it bounds memory and must not depend on what an interruption left.
ROLLOUT_TASKS = 25
# Environments that are simulated together at most: few tasks are rolled out at several checkpoints at once, so that
# every core has work. Two such rollouts go on beside one another: while one waits for the slowest of its threads or for
# Python, the other has the cores. Rows depend on neither.
ROLLOUT_ENVS = 2_500
ROLLOUTS_AT_ONCE = 2
CURVE_POINTS = 50
# What one checkpoint's policies logged, task by task.
Rollouts = list[Rollout]
JOB = "job.json"
POLICIES = folders.Kind("folder of policies", INDEX, (INDEX, "step-*.safetensors", "learning-curve.csv"), adopted=False)
WORK = folders.Kind(
    "working folder of omrl collect",
    JOB,
    (
        *(JOB, "*.safetensors", "policies/policies.json", "policies/step-*.safetensors", "policies/learning-curve.csv"),
        *("pack-*/*.safetensors", "pack-*.log"),
    ),
    adopted=False,
)


def collect(family: str, out: str | Path, **options: object) -> MetaDataset | None:
    """Step 1 from Python: takes what the command takes, such as `collect("ant-fwd-back", "data/ant", seed=1)`."""
    own, of_agents, of_sac = ({f.name for f in fields(kind)} for kind in (Collect, AgentsConfig, SACConfig))
    unknown = sorted(options.keys() - (own | of_agents | of_sac) | options.keys() & {"sac"})
    if unknown:
        raise OmrlError(f"collect has no {', '.join(unknown)}.")
    given: dict[str, Any] = options
    args = Collect(family, Path(out), **{key: value for key, value in given.items() if key in own})
    start = preset(get_family(family), args.schedule).agents
    changes = {key: value for key, value in given.items() if key in of_agents}
    sac = replace(start.sac, **{key: value for key, value in given.items() if key in of_sac})
    if args.policies is not None:
        args = replace(args, policies=Path(args.policies))
    return run(args, changed(start, {**changes, "sac": sac}))


def command(args: Collect, agents: AgentsConfig) -> None:
    """`omrl collect FAMILY ...`."""
    made = run(args, agents)
    if made is not None and made.path is not None:
        info(Info(made.path))


def run(args: Collect, agents: AgentsConfig) -> MetaDataset | None:
    """Run step 1; an interrupted run goes on when it is started again with the same arguments."""
    if args.plot:
        from omrl.drawing.behaviour import plot  # needs an extra: that it is missing is found before the hours
    family = get_family(args.family)
    default = preset(family, args.schedule)
    _check(args, agents, default.agents)
    out = folders.place(args.out)
    work = folders.beside(out, "collect")
    if args.from_policies:
        published = find_published(family.name, args.policies)
        folders.keep_apart(out, published)
        stored = PolicyFiles.open(published, args.level)
        if stored.family.name != family.name:
            raise OmrlError(f"{stored.folder} holds policies of {stored.family.name}, not of {family.name}.")
        tasks, steps, source = _chosen(stored.tasks, family, args), stored.steps, stored.source
        policies: dict[str, Any] | None = dict(stored.files)
        if "levels" not in source:
            print(f"note: nobody named the levels of {stored.folder}: first, middle and last checkpoint are taken.")
    else:
        tasks, steps, policies = _chosen(family.tasks, family, args), agents.checkpoints, None
        source = _training_source(agents, default) | ({} if args.pack is None else {"pack": args.pack})
    plan = _plan(family, tasks, source, steps, args, default.episodes, agents.seed)
    job = {**plan, "policies": policies}
    if args.dry_run:
        print(json.dumps(plan, indent=2))
        return None
    folders.clear_up(out, DATASET)
    folders.clear_up(work, WORK)
    if _finished(out, plan, policies, args.force):
        print(f"{out} is there already, made with these arguments.")
    else:
        if args.pack is None:
            choose_device(args.device)  # that it is not there is found first
        # Before the training, so that what stands in the way of the dataset is found before the hours, not after.
        writer = _writer(family, tasks, plan, out, args)
        goes_on = _open_work(work, job, args.force)
        with folders.only_writer(work):
            if not goes_on:
                write_json(work / JOB, job)
                writer.abandon()
            if not args.from_policies:
                stored = _train(args, family, tasks, agents, source, work)
            _log_rollouts(writer, stored, tasks, plan["rollout"])
    _keep_policies(work, job, out)
    dataset = MetaDataset.open(out)
    if not dataset.split["test"]:
        print("note: none of these tasks is a test task of the family's split")
    if args.plot:
        trained = published if args.from_policies else out / "policies"
        for path in plot(dataset, out / "figures", trained / "learning-curve.csv"):
            print(f"drew {path}")
    return dataset


# -- arguments -------------------------------------------------------------------------------------------------------


def _check(args: Collect, agents: AgentsConfig, default: AgentsConfig) -> None:
    agents.check(get_family(args.family).obs_dim)
    if args.episodes is not None and args.episodes < 1:
        raise OmrlError(f"--episodes must be at least 1, not {args.episodes}.")
    if args.action_std is not None and not (0.0 <= args.action_std < float("inf")):
        raise OmrlError(f"--action-std must be 0 or more, not {args.action_std}.")
    if args.pack is None:
        for name, usual in (("on", LOCAL), ("at_once", 1), ("threads", None)):
            if getattr(args, name) != usual:
                flag = name.replace("_", "-")
                raise OmrlError(f"--{flag} is about agents that are trained apart, so many at a time: say --pack.")
    elif args.pack < 1:
        raise OmrlError(f"--pack must be at least 1, not {args.pack}.")
    check(args.on, args.at_once)
    if args.from_policies:
        if args.pack is not None:
            raise OmrlError("--pack is about training, and --from-policies does not train.")
        given, before = ({**vars(config), **vars(config.sac)} for config in (agents, default))
        for name in given:
            if name not in ("seed", "sac") and given[name] != before[name]:
                raise OmrlError(f"--{name.replace('_', '-')} is about training, and --from-policies does not train.")


def _chosen(tasks: Sequence[Task], family: TaskFamily, args: Collect) -> tuple[Task, ...]:
    if args.split is not None:
        if args.split not in family.splits:
            raise OmrlError(f"{family.name} has no split {args.split!r}; it has {', '.join(family.splits)}.")
        split = family.splits[args.split]
        members = {family.tasks[i].name for i in (*split.train, *split.test)}
        tasks = [task for task in tasks if task.name in members]
    if args.tasks is None:
        return tuple(tasks)
    if not 1 <= args.tasks <= len(tasks):
        raise OmrlError(f"--tasks must be between 1 and the {len(tasks)} tasks there are, not {args.tasks}.")
    return tuple(tasks[i] for i in np.linspace(0, len(tasks) - 1, args.tasks).round().astype(int))


def _training_source(agents: AgentsConfig, default: Preset) -> dict[str, Any]:
    """How the agents are trained, for manifest and index; through JSON, so that it equals what those give back."""
    envs, usual_steps = agents.envs_per_task, default.agents.steps
    named = {level: scaled(step, usual_steps, agents.steps, envs) for level, step in default.levels.items()}
    trained = [step for step in agents.checkpoints if step > 0]
    if not set(named.values()) <= set(trained) or len(set(named.values())) < len(named):
        named = evenly_named(trained)
    config = json.loads(json.dumps(asdict(agents)))
    return {"algorithm": "SAC, one agent per task", "seed": agents.seed, "agents": config, "levels": named}


def evenly_named(steps: Sequence[int]) -> dict[str, int]:
    """Levels of checkpoints that nobody named: the first, the middle and the last."""
    named = {"random": steps[0], "medium": steps[(len(steps) - 1) // 2], "expert": steps[-1]}
    # Of one or two checkpoints the last is the expert.
    return {level: step for level, step in named.items() if level == "expert" or list(named.values()).count(step) == 1}


def _plan(
    family: TaskFamily,
    tasks: Sequence[Task],
    source: Mapping[str, Any],
    steps: Sequence[int],
    args: Collect,
    episodes: int,
    seed: int,
) -> dict[str, Any]:
    """What the data will be, as JSON, for the manifest.

    Which policy files it is rebuilt from is not in it, so that a rebuilt dataset equals the original; that is in the
    `job` which a working folder records.
    """
    trained = [step for step in steps if step > 0]
    if not trained:
        raise OmrlError("There is no trained policy to log, only the untrained one.")
    levels: dict[str, int] = source.get("levels") or evenly_named(trained)
    if args.level is not None:
        if args.level not in levels:
            raise OmrlError(f"There is no level {args.level!r} to log; there are {', '.join(levels)}.")
        trained = [levels[args.level]]
    rollout = {
        "checkpoints": trained,
        "untrained": 0 in steps,
        "levels": {level: step for level, step in levels.items() if step in trained},
        "episodes": args.episodes or episodes,
        "action_std": args.action_std,
        "seed": seed,
    }
    about = {"family": family.name, "split": args.split or "paper", "tasks": [task.name for task in tasks]}
    return {**about, **source, "rollout": rollout}


def _finished(out: Path, plan: Mapping[str, Any], policies: Mapping[str, Any] | None, force: bool) -> bool:
    if not out.exists() or force:
        return False
    dataset = MetaDataset.open(out)
    made_of = {key: value for key, value in dataset.manifest.source.items() if key != "versions"}
    if _renamed(made_of) != _renamed(plan):
        raise OmrlError(f"{out} holds a dataset made with other arguments; choose another --out, or use --force.")
    if policies and (out / "policies" / INDEX).is_file() and PolicyFiles.open(out / "policies").files != policies:
        raise OmrlError(f"{out} holds a dataset made by other policies; choose another --out, or use --force.")
    return True


def _open_work(work: Path, job: Mapping[str, Any], force: bool) -> bool:
    """Make the working folder, or go on with the one that is there (true)."""
    left = _left_job(work)
    if left is not None and _renamed(left) == _renamed(job):
        return True
    if left is not None and not force:
        raise OmrlError(f"{work} is an unfinished run with other arguments; finish it with those, or use --force.")
    try:
        folders.discard(work, WORK)
        folders.claim(work, WORK)
    except OSError as error:
        raise OmrlError(f"{work} could not be written: {error.strerror}.") from error
    return False


def _left_job(work: Path) -> Any:
    record = work / JOB
    try:
        return read_json(record) if record.exists() else None
    except OmrlError as error:
        raise OmrlError(f"{str(error).removesuffix('.')}{AGAIN}.") from error


def _renamed(source: Mapping[str, Any]) -> dict[str, Any]:
    """How data was made, with today's name of a setting that earlier records have under another."""
    agents = source.get("agents")
    sac = agents.get("sac") if isinstance(agents, Mapping) else None
    if not isinstance(agents, Mapping) or not isinstance(sac, Mapping) or "half" not in sac:
        return dict(source)
    sac = {"bfloat16" if name == "half" else name: value for name, value in sac.items()}
    return {**source, "agents": {**agents, "sac": sac}}


# -- the two stages --------------------------------------------------------------------------------------------------


def _train(
    args: Collect,
    family: TaskFamily,
    tasks: Sequence[Task],
    config: AgentsConfig,
    source: Mapping[str, Any],
    work: Path,
) -> PolicyFiles:
    folder = work / "policies"
    if not (folder / INDEX).exists():
        if args.pack is None:
            checkpoints, returns = train(family, tasks, config, choose_device(args.device), work)
        else:
            checkpoints, returns = train_packs(args, family, tasks, config, args.pack, work)
        folder.mkdir(exist_ok=True)
        _write_curve(folder / "learning-curve.csv", tasks, config.steps, returns)
        PolicyFiles.write(folder, family, tasks, checkpoints, source)
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
                rows.append((harmless(task.name), round((b + 1) * width), f"{chosen.mean():.5g}"))
    write_rows(path, rows)


def _writer(
    family: TaskFamily, tasks: Sequence[Task], plan: Mapping[str, Any], out: Path, args: Collect
) -> MetaDatasetWriter:
    split = family.splits[args.split or "paper"]
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
        source={**plan, "versions": versions("omrl", "numpy", "mujoco")},
        force=args.force,
    )


def _log_rollouts(
    writer: MetaDatasetWriter, stored: PolicyFiles, tasks: Sequence[Task], rollout: Mapping[str, Any]
) -> None:
    family, steps = stored.family, rollout["checkpoints"]
    order, stopped = [task.name for task in stored.tasks], Event()

    def logged(chunk: Sequence[Task], steps: Sequence[int], action_std: float | None, length: int) -> list[Rollouts]:
        """What the chunk's policies log at each of some checkpoints, all side by side."""
        rows = [order.index(task.name) for task in chunk]
        kinds = zip(*(stored.weights(step) for step in steps), strict=True)
        weights, biases = (
            [np.concatenate([layer[rows] for layer in of_steps]) for of_steps in zip(*kind, strict=True)]
            for kind in kinds
        )
        found = roll_out(
            family,
            [*chunk] * len(steps),
            weights,
            biases,
            episodes=rollout["episodes"],
            seeds=[(rollout["seed"], step) for step in steps for _ in chunk],
            length=length,
            action_std=action_std,
            stopped=stopped,
        )
        return [found[first : first + len(chunk)] for first in range(0, len(found), len(chunk))]

    def logged_at_all(pool: ThreadPoolExecutor, chunk: Sequence[Task]) -> Iterator[list[Rollouts]]:
        """The same at all checkpoints, some of them at a time."""
        fitting = ROLLOUT_ENVS // (len(chunk) * rollout["episodes"])
        size = max(1, min(fitting, -(-len(steps) // ROLLOUTS_AT_ONCE)))
        groups = [steps[first : first + size] for first in range(0, len(steps), size)]
        return pool.map(lambda group: logged(chunk, group, rollout["action_std"], family.logged_steps), groups)

    with (
        Meter(f"rolling out {len(steps)} checkpoints", len(tasks) * len(steps)) as meter,
        ThreadPoolExecutor(ROLLOUTS_AT_ONCE) as pool,
        ExitStack() as leaving,
    ):
        leaving.callback(stopped.set)  # the pool waits for what goes on
        for start in range(0, len(tasks), ROLLOUT_TASKS):
            chunk = tasks[start : start + ROLLOUT_TASKS]
            if not all(writer.done(task.name) for task in chunk):
                # The untrained policy, as it is, says what no skill at all gives; its rows are not kept.
                (untrained,) = logged(chunk, [0], None, family.horizon) if rollout["untrained"] else [None]
                parts: list[Rollouts] = []
                for found in logged_at_all(pool, chunk):
                    parts += found
                    meter.update(start * len(steps) + len(parts) * len(chunk))
                for i, task in enumerate(chunk):
                    random = None if untrained is None else _mean_return(untrained[i].arrays, family.horizon)
                    _write_task(writer, task.name, rollout, [part[i] for part in parts], random, family.horizon)
            meter.update((start + len(chunk)) * len(steps))
    writer.finish()


def _write_task(
    writer: MetaDatasetWriter,
    name: str,
    rollout: Mapping[str, Any],
    parts: Sequence[Rollout],
    random: float | None,
    horizon: int,
) -> None:
    """One task's rows of all checkpoints, with what the rows themselves do not say."""
    levels = {step: level for level, step in rollout["levels"].items()}
    first_episode, policies, expert = 0, {}, None
    for step, (arrays, action_std) in zip(rollout["checkpoints"], parts, strict=True):
        arrays["policy_step"] = np.full(len(arrays["rewards"]), step, dtype=np.int32)
        arrays["episode"] = arrays["episode"] + np.int32(first_episode)
        first_episode = int(arrays["episode"][-1]) + 1
        policies[step] = BehaviourPolicy(levels.get(step), action_std)
        if levels.get(step) == "expert":
            expert = _mean_return(arrays, horizon)
    joined = {key: np.concatenate([part.arrays[key] for part in parts]) for key in parts[0].arrays}
    writer.write(name, joined, Told(Reference(random, expert), policies))


def _mean_return(arrays: Arrays, horizon: int) -> float:
    return float(episode_returns(arrays, horizon).mean())


def _keep_policies(work: Path, job: Mapping[str, Any], out: Path) -> None:
    """Put the policies beside the data they made, then drop the working folder."""
    if (left := _left_job(work)) is not None and _renamed(left) != _renamed(job):
        return  # An unfinished run that was to replace this dataset: not what made it.
    trained = work / "policies"
    if trained.is_dir():
        folders.check_own(out / "policies", POLICIES)
        shutil.rmtree(out / "policies", ignore_errors=True)
        trained.rename(out / "policies")
    folders.discard(work, WORK)
