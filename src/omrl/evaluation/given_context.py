"""The paper's protocol: a test task is told by rows of its own log, and the policy is rolled out in its simulator.

Context rows are drawn from the task's logged data, z is inferred once, and the deterministic policy acts for the
family's horizon. All seeds, tasks and episodes step together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch.func import vmap

from omrl.data import MetaDataset
from omrl.evaluation.contexts import infer_tasks
from omrl.evaluation.protocol import Array, Protocol, Resources
from omrl.families import get_family
from omrl.runs.model import Model


class GivenContext(Protocol):
    """Returns after a context of logged rows."""

    name = "given-context"
    uses_simulator = True

    def run(self, model: Model, use: Resources) -> Mapping[str, Array]:
        """Returns [seeds, tasks, episodes], in every unit of the family."""
        return in_all_units(model, use.log, use.context, use.episodes, use.seed)


def given_context(model: Model, view: MetaDataset, context: int, episodes: int, seed: int) -> Array:
    """Returns [seeds, tasks, episodes] of the deterministic policy, each task inferred from its own logged rows."""
    return in_all_units(model, view, context, episodes, seed)["return"]


def in_all_units(model: Model, view: MetaDataset, context: int, episodes: int, seed: int) -> dict[str, Array]:
    """The same, as `return` and under the names of the family's other units."""
    family = get_family(view.family or "")
    tasks, seeds = view.tasks, model.population.size
    params, device = model.population.params, model.population.device
    z = infer_tasks(model, view, context, seed).repeat_interleave(episodes, dim=1)
    per_seed = len(tasks) * episodes
    of_env = [task for _ in range(seeds) for task in tasks for _ in range(episodes)]
    # As many threads as the networks have: other runs may be at work beside.
    simulator = family.simulator(of_env, torch.get_num_threads())
    generators = [
        np.random.default_rng([seed, 4, t, e]) for _ in range(seeds) for t in range(len(tasks)) for e in range(episodes)
    ]
    simulator.reset(np.arange(simulator.num), generators)
    returns = {name: np.zeros(simulator.num) for name in ("return", *family.units)}
    running = np.ones(simulator.num, dtype=bool)
    for _ in range(family.horizon):
        obs = model.normalise(torch.from_numpy(simulator.observe()).to(device)).view(seeds, per_seed, -1)
        with torch.no_grad():
            actions = vmap(model.algorithm.act)(params, obs, z)
        step = simulator.step(actions.reshape(simulator.num, -1).cpu().numpy())
        returns["return"] += step.rewards * running
        for name, converted in family.units.items():
            returns[name] += converted(step.rewards) * running
        running &= ~step.terminations
    simulator.close()
    return {name: values.reshape(seeds, len(tasks), episodes) for name, values in returns.items()}
