"""All that a log can tell of a model's policies in tasks that are held out; each number is [seeds, tasks]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.func import vmap

from omrl.data import MetaDataset
from omrl.evaluation.logged import SETS, halves, identification
from omrl.learning.engine import Params
from omrl.learning.regression import Array, fit
from omrl.runs.model import Model
from omrl.runs.policy import CONTEXT
from omrl.selecting.fitted_q import FittedQ
from omrl.selecting.logs import Log
from omrl.selecting.neighbours import Neighbours
from omrl.selecting.worlds import Worlds, cut

# Resampled logs and rows of fitted-Q evaluation.
RESAMPLED, Q_ROWS = 4, 8_000
# Places where a policy came to whose distance to the log is taken, for each seed and task.
PLACES = 400


class Ground:
    """What is fitted to a log once, whoever is judged on it."""

    def __init__(self, view: MetaDataset, judged: Sequence[str]) -> None:
        """`view` has all tasks that there are logs of, those that are `judged` among them."""
        self.view, self.log = view, Log.read(view, judged)
        log = self.log
        self.judged = [log.names.index(name) for name in judged]
        self.worlds = Worlds(log)
        # How the logger acts: what is left is its noise, which nobody who clones it can beat.
        self.noise = np.array([one.noise for one in fit(log.obs, log.act, seed=9).chosen])
        self.pieces = cut(log, self.judged, np.random.default_rng(0), view.manifest.horizon)
        self.neighbours = [Neighbours(self.place(log.obs[t], log.act[t]), log.episode[t]) for t in self.judged]

    def place(self, obs: Array, act: Array) -> Array:
        """Where distances are taken: actions count by the logger's noise, since that is how far it tried."""
        return np.concatenate([obs, act / np.maximum(self.noise, 0.1)], -1)


@dataclass(frozen=True)
class Signals:
    """What was found, in units of the reward where it is about returns."""

    gained: Array
    """Return beyond the logger's in worlds that the log does not rule out [draws, seeds, tasks]."""
    fitted_q: Array
    """The same by fitted-Q evaluation, in resampled logs [resampled, seeds, tasks]."""
    logged: Array
    """The logger's return [tasks]."""
    left: Array
    """Share of steps at which a policy had left the log altogether."""
    far: Array
    """Share of steps further from the log than one in twenty of its own rows."""
    outside: Array
    """Share of actions, at logged observations, outside the task's logged range."""
    action_error: Array
    """RMS difference to logged actions in units of their spread."""
    noise: float
    """That of the logger itself, in the same units: the floor."""
    disagreement: Array
    """How far the seeds' actions are from their mean, in the same units [tasks]."""
    identification: Array
    """Share of contexts that are told apart from other judged tasks."""


def look(model: Model, ground: Ground, context: int, seed: int = 0, learners: Sequence[int] | None = None) -> Signals:
    """Everything about a model's learners, or about some of them."""
    log, judged, pieces = ground.log, ground.judged, ground.pieces
    some = list(range(model.population.size) if learners is None else learners)
    params = {name: value[some] for name, value in model.population.params.items()}
    seeds, device = len(some), model.population.device
    z, codes = _infer(model, params, ground, context, seed)

    def act(obs: Array, tasks: Sequence[int]) -> Array:
        """Encoded actions [P, T, N, A] at observations [P, T, N, S] of tasks of the log."""
        raw = torch.from_numpy((obs * log.spread + log.mean).astype(np.float32)).to(device)
        flat = model.normalise(raw).flatten(1, 2)
        of = z[:, list(tasks), None].expand(-1, -1, obs.shape[2], -1).flatten(1, 2)
        with torch.no_grad():
            unit = vmap(model.algorithm.act)(params, flat, of)
        return log.actions.encode(unit.cpu().numpy().astype(np.float64).reshape(*obs.shape[:3], -1))

    lived = ground.worlds.relive(pieces, judged, lambda obs: act(obs, judged), seeds, seed)
    weight = pieces.weight / pieces.weight.sum(-1, keepdims=True)
    rng = np.random.default_rng([seed, 6])
    shape = (seeds, len(judged))
    far, left, outside, error = (np.zeros(shape) for _ in range(4))
    disagreement = np.full(len(judged), np.nan)
    for i, t in enumerate(judged):
        own = act(np.broadcast_to(log.obs[t], (seeds, 1, *log.obs[t].shape)), [t])[:, 0]
        low, high = log.act[t].min(0), log.act[t].max(0)
        slack = 0.01 * (high - low)
        outside[:, i] = ((own < low - slack) | (own > high + slack)).any(-1).mean(1)
        error[:, i] = np.sqrt(np.square(own - log.act[t]).mean((1, 2)))
        if seeds > 1:
            disagreement[i] = np.sqrt(np.square(own - own.mean(0)).mean())
        for p in range(seeds):
            going = lived.going[:, i, p]
            left[p, i] = lived.clipped[:, i, p][going].mean()
            obs, acts = lived.obs[:, i, p][going], lived.act[:, i, p][going]
            places = rng.integers(len(obs), size=PLACES)
            far[p, i] = ground.neighbours[i].far(ground.place(obs[places], acts[places]))
    return Signals(
        gained=np.einsum("ktpe,te->kpt", lived.gained, weight),
        fitted_q=_fitted_q(ground, z.cpu().numpy().astype(np.float64), act, rng),
        logged=(lived.logged * weight).sum(-1),
        left=left,
        far=far,
        outside=outside,
        action_error=error,
        noise=float(np.sqrt(np.square(ground.noise).mean())),
        disagreement=disagreement,
        identification=identification(codes).cpu().numpy() if len(judged) > 1 else np.full(shape, np.nan),
    )


def _infer(model: Model, params: Params, ground: Ground, context: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """z [P, T, l] of all tasks, and codes [P, T', 2, SETS, l] of contexts from both halves of judged ones."""
    found, codes = [], []
    for t, name in enumerate(ground.log.names):
        rows, rng = ground.view.rows(name), np.random.default_rng([seed, 7, t])
        known, held = halves(rows["episode"], rng)
        parts = (known, held) if t in ground.judged else (np.arange(len(rows["rewards"])),)
        sets = SETS if t in ground.judged else 1
        shape = (len(next(iter(params.values()))), sets, context)
        drawn = np.stack([part[rng.integers(len(part), size=shape)] for part in parts], axis=1)
        with torch.no_grad():
            code = vmap(model.algorithm.infer)(params, model.contexts({name: rows[name][drawn] for name in CONTEXT}))
        found.append(code[:, 0, 0])
        if t in ground.judged:
            codes.append(code)
    return torch.stack(found, 1), torch.stack(codes, 1)


def _fitted_q(
    ground: Ground, z: Array, act: Callable[[Array, Sequence[int]], Array], rng: np.random.Generator
) -> Array:
    """Return beyond the logger's by fitted-Q evaluation [resampled, seeds, tasks]."""
    log, judged, pieces = ground.log, ground.judged, ground.pieces
    each = max(Q_ROWS // len(log.names), 1)
    kept = [np.arange(len(rew))[: each if t not in judged else 2 * each] for t, rew in enumerate(log.rew)]
    task = np.concatenate([np.full(len(k), t) for t, k in enumerate(kept)])
    obs, acts, rew, after, term, episode = (
        np.concatenate([values[k] for values, k in zip(column, kept, strict=True)])
        for column in (log.obs, log.act, log.rew, log.next_obs, log.term, log.episode)
    )
    _, episode = np.unique(np.stack([task, episode]), axis=1, return_inverse=True)
    follows = np.append(episode[1:] == episode[:-1], False)
    # Resampled episodes; a row whose next action is not known says nothing of the logger.
    weights = rng.exponential(size=(episode.max() + 1, RESAMPLED))[episode] * (follows | term)[:, None]
    next_act = np.where(follows[:, None], np.roll(acts, -1, axis=0), acts)
    horizon = pieces.there.shape[-1]
    start, first = pieces.obs[:, :, 0], pieces.act[:, :, 0]
    weight = pieces.weight / pieces.weight.sum(-1, keepdims=True)
    found = np.zeros((RESAMPLED, len(z), len(judged)))
    for p, own in enumerate(z):
        own = (own - own.mean(0)) / np.maximum(own.std(0), 1e-3)
        q = FittedQ(obs, own[task], acts, rew, weights, seed=p)
        chosen = np.zeros_like(acts)
        for t in range(len(log.names)):
            here = task == t
            places = np.broadcast_to(after[here], (len(z), 1, *after[here].shape))
            chosen[here] = act(places, [t])[p, 0]
        of = np.broadcast_to(own[judged][:, None], (*start.shape[:2], own.shape[-1]))
        begun = act(np.broadcast_to(start, (len(z), *start.shape)), judged)[p]
        value = q.value(q.evaluate(after, chosen, term, horizon), start, of, begun)
        logger = q.value(q.evaluate(after, next_act, term, horizon), start, of, first)
        found[:, p] = np.einsum("teb,te->bt", value - logger, weight)
    return found
