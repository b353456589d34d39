"""Without a simulator: what logs alone can tell of a model, which is not its return.

How well tasks are told apart by rows that were held out, and how far the adapted policy is from the logged actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.func import vmap

from omrl.data import MetaDataset
from omrl.data.arrays import episode_starts, to_unit
from omrl.errors import OmrlError
from omrl.evaluation.protocol import Array, Protocol, Resources
from omrl.runs.model import Model
from omrl.runs.policy import CONTEXT

# Contexts drawn from each half of a task's rows to tell tasks apart, rows of a task that actions are compared on, and
# rows among which each of those looks for its like.
SETS, SCORED_ROWS, LIKE_ROWS = 10, 2_000, 10_000
# Choices that are nearer than this in [-1, 1] are the same one, rounded.
SAME = 1e-4


class Logged(Protocol):
    """Identification of tasks and errors of actions, from logs."""

    name = "logged"
    uses_simulator = False

    def run(self, model: Model, use: Resources) -> Mapping[str, Array]:
        """Each metric [seeds, tasks]."""
        return logged(model, use.log, use.context, use.seed)


def logged(model: Model, view: MetaDataset, context: int, seed: int) -> dict[str, Array]:
    """What logs alone can tell, each [seeds, tasks]. A task is known from one half of its rows, judged by the other.

    identification: share of held-out contexts whose z is nearest to the mean z of their own task, of all tasks;
    action_error: RMS difference of the adapted policy's actions and the logged ones, which lie in [-1, 1], or of
    choices the share in which they differ;
    constant_error: the same for the task's mean action, or its most frequent one, whatever the observation;
    noise_floor: what the log's own unsteadiness makes of it, which even its author would have: see `noise_floor`;
    q_logged, q_policy: mean value of the logged and of the policy's actions, where the algorithm has a `q`.
    """
    algorithm, params = model.algorithm, model.population.params
    found: dict[str, list[Any]] = {}
    codes = []
    for t, task in enumerate(view.tasks):
        rows, rng = view.rows(t), np.random.default_rng([seed, 5, t])
        known, held = halves(rows["episode"], rng)
        if not len(known):
            raise OmrlError(f"Task {task.name!r} has a single row: there is none to hold out.")
        shape = (model.population.size, SETS, context)
        drawn = np.stack([half[rng.integers(len(half), size=shape)] for half in (known, held)], axis=1)
        scored = held if len(held) <= SCORED_ROWS else np.sort(rng.choice(held, SCORED_ROWS, replace=False))
        obs = model.normalise(torch.from_numpy(rows["observations"][scored]).to(model.population.device))
        act, usual = _unit(model, rows["actions"][scored]), _usual(model, _unit(model, rows["actions"][known]))
        with torch.no_grad():
            codes.append(vmap(algorithm.infer)(params, model.contexts({name: rows[name][drawn] for name in CONTEXT})))
            z = codes[-1][:, 0, :1].expand(-1, len(obs), -1)  # from one context, as a user adapts
            own = vmap(algorithm.act, in_dims=(0, None, 0))(params, obs, z)
            values = {
                "action_error": _apart(model, own, act),
                "constant_error": _apart(model, usual.expand(1, *act.shape), act).expand(len(own)),
                "noise_floor": _floor(model, rows, known, obs, act, rng).expand(len(own)),
            }
            if algorithm.has_values:
                values["q_logged"] = vmap(algorithm.q, in_dims=(0, None, 0, None))(params, obs, z, act)
                values["q_policy"] = vmap(algorithm.q, in_dims=(0, None, 0, 0))(params, obs, z, own)
        for name, value in values.items():
            found.setdefault(name, []).append(value.flatten(1).mean(1) if value.ndim > 1 else value)
    result = {name: torch.stack(columns, dim=1).cpu().numpy() for name, columns in found.items()}
    if len(codes) < 2:
        return result  # one task is always told apart
    return {"identification": identification(torch.stack(codes, dim=1)).cpu().numpy(), **result}


def _usual(model: Model, act: torch.Tensor) -> torch.Tensor:
    """The mean action [A] of some [N, A], or of choices the most frequent one."""
    if model.run.config.choices is None:
        return act.mean(0)
    kinds, counts = np.unique(act.cpu().numpy(), axis=0, return_counts=True)
    return torch.from_numpy(kinds[counts.argmax()]).to(act)


def _apart(model: Model, own: torch.Tensor, act: torch.Tensor) -> torch.Tensor:
    """How far actions [P, N, A] are from the logged ones [N, A], for each of P: RMS, or the share of other choices."""
    if model.run.config.choices is None:
        return (own - act).square().mean((1, 2)).sqrt()
    return ((own - act).abs() > SAME).any(-1).float().mean(1)


def identification(codes: torch.Tensor) -> torch.Tensor:
    """Share [P, T] of z in codes [P, T, (known, held out), sets, l] that are nearest to their own task's known ones."""
    seeds, tasks, _, sets, _ = codes.shape
    known, held = codes[:, :, 0].mean(2), codes[:, :, 1].flatten(1, 2)
    nearest = torch.cdist(held, known).argmin(-1).view(seeds, tasks, sets)
    return (nearest == torch.arange(tasks, device=codes.device)[:, None]).float().mean(-1)


def noise_floor(obs: torch.Tensor, act: torch.Tensor, like_obs: torch.Tensor, like_act: torch.Tensor) -> torch.Tensor:
    """RMS by which a log's actions differ from what its author does on average at such an observation, at most.

    Two actions at like observations differ by two draws of that noise, so that half of their squared difference is its
    variance. The likest observation is not the same one: the less alike, the more too high is this.
    """
    nearest = torch.cdist(obs, like_obs).argmin(1)
    return ((act - like_act[nearest]).square().mean() / 2).sqrt()


def _floor(
    model: Model,
    rows: Mapping[str, Array],
    known: Array,
    obs: torch.Tensor,
    act: torch.Tensor,
    rng: np.random.Generator,
) -> torch.Tensor:
    """That of held-out rows by those of the other half, of other episodes: noise lasts for some rows perhaps."""
    like = known if len(known) <= LIKE_ROWS else np.sort(rng.choice(known, LIKE_ROWS, replace=False))
    like_obs = model.normalise(torch.from_numpy(rows["observations"][like]).to(model.population.device))
    like_act = _unit(model, rows["actions"][like])
    if model.run.config.choices is not None:
        # Two draws differ at least as often as one does from the likeliest choice.
        return _apart(model, like_act[torch.cdist(obs, like_obs).argmin(1)][None], act)
    return noise_floor(obs, act, like_obs, like_act)


def halves(episode: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Row numbers in two parts: different episodes where there are several, else the beginning and the end of one."""
    starts = episode_starts(episode)
    if len(starts) == 1:
        middle = len(episode) // 2
        return np.arange(middle), np.arange(middle, len(episode))
    first = rng.permutation(len(starts)) < len(starts) // 2
    in_first = np.repeat(first, np.diff(starts, append=len(episode)))
    return np.flatnonzero(in_first), np.flatnonzero(~in_first)


def _unit(model: Model, actions: Array) -> torch.Tensor:
    """Logged actions in [-1, 1]."""
    unit = np.array(actions, np.float32)
    to_unit(unit, model.action_low, model.action_high)
    return torch.from_numpy(unit).to(model.population.device)
