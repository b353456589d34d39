"""Control steps per second of 100 tasks under random actions: omrl's simulator beside gymnasium's own environments.

    python benchmarks/simulate.py [--tasks 100] [--seconds 5] [--json FILE]

Every row steps N environments by one control step at a time, with episodes reset as they end, and counts the control
steps of single environments. What differs:

* half-cheetah: the same model, 5 physics steps of 0.01 s on both sides.
* walker: 4 physics steps on both sides, of 0.004 s in omrl, 0.002 s in Walker2d-v5; every omrl task has another body.
* ant: the same model, 5 physics steps of 0.01 s on both sides; Ant-v5 shows contact forces too (105 numbers, not 27).
* omrl starts the constraint solver anew in every control step, gymnasium's environments continue from the last one.
* gymnasium's environments compute contact forces after every control step and fill info dictionaries; omrl does not.
* Episodes end after 200 steps in omrl and 1000 in gymnasium, or when the body falls.

AsyncVectorEnv runs one process per environment; its start is not timed. The last column is the most any caller of
MuJoCo could reach: `mj_step` alone, in a loop on one core, times the cores.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium
import mujoco
import numpy as np

from omrl.families import FAMILIES, TaskFamily
from omrl.families.batched import MujocoSimulator, usable_cores
from omrl.families.physics import load_model

PAIRS = {"half-cheetah-vel": "HalfCheetah-v5", "walker-2d-params": "Walker2d-v5", "ant-fwd-back": "Ant-v5"}


def steps_per_second(step: Callable[[], None], environments: int, seconds: float) -> float:
    for _ in range(5):
        step()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        step()
        steps += 1
    return steps * environments / (time.perf_counter() - start)


@contextmanager
def ours(family: TaskFamily, count: int, rng: np.random.Generator) -> Iterator[Callable[[], None]]:
    simulator = family.simulator([family.tasks[i % len(family.tasks)] for i in range(count)])
    rngs = [np.random.default_rng(i) for i in range(count)]
    simulator.reset(range(count), rngs)
    elapsed = np.zeros(count, dtype=int)

    def step() -> None:
        result = simulator.step(rng.uniform(-1, 1, (count, family.act_dim)))
        elapsed[:] += 1
        ended = np.flatnonzero(result.terminations | (elapsed >= family.horizon))
        if ended.size:
            simulator.reset(ended, [rngs[i] for i in ended])
            elapsed[ended] = 0

    yield step
    simulator.close()


@contextmanager
def gymnasiums(env_id: str, mode: str, count: int, rng: np.random.Generator) -> Iterator[Callable[[], None]]:
    env = gymnasium.make_vec(env_id, num_envs=count, vectorization_mode=mode)
    env.reset(seed=0)
    shape = env.action_space.shape

    def step() -> None:
        env.step(rng.uniform(-1, 1, shape).astype(np.float32))

    yield step
    env.close()


@contextmanager
def physics_alone(family: TaskFamily, rng: np.random.Generator) -> Iterator[Callable[[], None]]:
    body = family.simulator_class
    assert issubclass(body, MujocoSimulator)
    model = load_model(body.model_file)
    data = mujoco.MjData(model)

    def step() -> None:
        mujoco.mj_resetData(model, data)
        for action in rng.uniform(-1, 1, (100, family.act_dim)):
            data.ctrl[:] = action
            mujoco.mj_step(model, data, body.frame_skip)

    yield step


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()

    # gymnasium's half-cheetah makes MuJoCo warn once per environment, on the terminal and into MUJOCO_LOG.TXT.
    mujoco.set_mju_user_warning(lambda message: None)
    warnings.simplefilter("ignore")
    cores = usable_cores()
    rows = []
    print(f"{arguments.tasks} environments, {cores} cores, {arguments.seconds:g} s each\n")
    print(f"{'steps/s':<18}{'omrl':>10}{'Sync':>10}{'Async':>10}{'omrl/Sync':>12}{'omrl/Async':>12}{'ceiling':>10}")
    for name, env_id in PAIRS.items():
        rng = np.random.default_rng(0)
        makers = {
            "omrl": ours(FAMILIES[name], arguments.tasks, rng),
            "sync": gymnasiums(env_id, "sync", arguments.tasks, rng),
            "async": gymnasiums(env_id, "async", arguments.tasks, rng),
        }
        rates = {}
        for label, maker in makers.items():
            with maker as step:
                rates[label] = steps_per_second(step, arguments.tasks, arguments.seconds)
        with physics_alone(FAMILIES[name], rng) as step:
            rates["ceiling"] = cores * steps_per_second(step, 100, arguments.seconds)
        rows.append({"family": name, "gymnasium": env_id, **rates})
        print(
            f"{name:<18}{rates['omrl']:>10,.0f}{rates['sync']:>10,.0f}{rates['async']:>10,.0f}"
            f"{rates['omrl'] / rates['sync']:>11.1f}x{rates['omrl'] / rates['async']:>11.1f}x"
            f"{rates['ceiling']:>10,.0f}",
            flush=True,
        )
    if arguments.json:
        record = {
            "environments": arguments.tasks,
            "cores": cores,
            "processor": platform.processor() or platform.machine(),
            "versions": {"gymnasium": gymnasium.__version__, "mujoco": mujoco.__version__},
            "steps_per_second": rows,
        }
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
