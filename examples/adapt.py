"""Adapt a trained run to a task it has not seen, from a handful of logged transitions, and try the policy.

python examples/adapt.py runs/focal
"""

from __future__ import annotations

import sys

import numpy as np

import omrl


def main(folder: str) -> None:
    trained = omrl.load(folder)
    # Of the quality that it was trained on: contexts of another one tell it less.
    dataset = omrl.MetaDataset.open(trained.run.config.data).level(trained.run.config.level)
    name = dataset.split["test"][0]
    transitions = dataset.sample(name, 200, np.random.default_rng(0))

    policy = trained.adapt(transitions)  # from here on only observations are needed

    family = omrl.FAMILIES[trained.run.config.family]
    task = next(task for task in dataset.tasks if task.name == name)
    simulator = family.simulator([task])
    simulator.reset([0], [np.random.default_rng(0)])
    total = 0.0
    for _ in range(family.horizon):
        step = simulator.step(policy.act(simulator.observe()))
        total += float(step.rewards[0])
        if step.terminations[0]:
            break
    print(f"{name} {dict(task.params)}: return {total:.2f}, the logs' mean {dataset.returns(name).mean():.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Say which run: python examples/adapt.py runs/focal")
    main(sys.argv[1])
