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
        """Returns [seeds, tasks, episodes]."""
        return {"return": given_context(model, use.log, use.context, use.episodes, use.seed)}


def given_context(model: Model, view: MetaDataset, context: int, episodes: int, seed: int) -> Array:
    """Returns [seeds, tasks, episodes] of the deterministic policy, each task inferred from its own logged rows."""
    family = get_family(view.family or "")
    tasks, seeds = view.tasks, model.population.size
    params, device = model.population.params, model.population.device
    z = infer_tasks(model, view, context, seed).repeat_interleave(episodes, dim=1)
    per_seed = len(tasks) * episodes
    simulator = family.simulator([task for _ in range(seeds) for task in tasks for _ in range(episodes)])
    generators = [
        np.random.default_rng([seed, 4, t, e]) for _ in range(seeds) for t in range(len(tasks)) for e in range(episodes)
    ]
    simulator.reset(np.arange(simulator.num), generators)
    returns, running = np.zeros(simulator.num), np.ones(simulator.num, dtype=bool)
    for _ in range(family.horizon):
        obs = model.normalise(torch.from_numpy(simulator.observe()).to(device)).view(seeds, per_seed, -1)
        with torch.no_grad():
            actions = vmap(model.algorithm.act)(params, obs, z)
        step = simulator.step(actions.reshape(simulator.num, -1).cpu().numpy())
        returns += step.rewards * running
        running &= ~step.terminations
    simulator.close()
    return returns.reshape(seeds, len(tasks), episodes)
