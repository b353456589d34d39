"""What would have happened: logged episodes lived again by a policy, in worlds that the log does not rule out.

A world says how observations change and what is rewarded in each task, plus noise: a draw from the posterior of
`regression.py`. What it does not explain of a logged row is that row's luck. An episode is lived again from its first
observation with the policy's actions and the luck of the log. With the logged actions every world gives the log itself,
so that the difference to the logged return is due to the actions. Where the log says nothing of those actions, worlds
disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from omrl.learning.regression import Array, Features, Fitted, fit
from omrl.selecting.logs import Log

Act = Callable[[Array], Array]
"""Actions [P, T, N, A] of P policies at observations [P, T, N, S] of T tasks, both in units of the log's own spread."""

DRAWS = 12
# Episodes of a task that are lived again, and the most rows of one of them.
EPISODES, LONGEST = 20, 200
# Observations leave the logged range by this share of it at most: beyond, no world is to be believed. What never
# changed in the log has no range, and rounding is no leaving.
BEYOND, ROUNDING = 0.5, 1e-3
# The chance of an end: how smooth it is, and steps of Newton's method.
END_LENGTH, END_RIDGE, NEWTON = 3.0, 0.1, 25


@dataclass(frozen=True)
class Pieces:
    """Episodes of tasks, [T, E, H, ...]; what is after their end does not count."""

    obs: Array
    act: Array
    rew: Array
    next_obs: Array
    there: Array
    """[T, E, H] Whether there is a row."""
    ended: Array
    """[T, E, H] Whether an episode ended there by termination."""
    counts: Array
    """[T, E, H] Whether a policy may still be acting: also after an end by termination."""
    weight: Array
    """[T, E] 1 for an episode, 0 where the task has none left."""


@dataclass(frozen=True)
class Relived:
    """What policies got in the episodes of tasks, in every world."""

    gained: Array
    """Return of the policy minus the logged one [K, T, P, E]."""
    logged: Array
    """Logged return [T, E]."""
    obs: Array
    """Where they came to [K, T, P, E, H, S]."""
    act: Array
    going: Array
    """[K, T, P, E, H] Whether they were still acting."""
    clipped: Array
    """[K, T, P, E, H] Whether they had left the log far behind."""


def cut(rows: Log, tasks: Sequence[int], rng: np.random.Generator, horizon: int | None = None) -> Pieces:
    """Some episodes of the tasks, long ones in parts; of each, the first rows alone that a return is over."""
    parts = []
    for t in tasks:
        starts = np.flatnonzero(np.diff(rows.episode[t], prepend=rows.episode[t][0] - 1))
        ends = np.append(starts[1:], len(rows.episode[t]))
        if horizon is not None:
            ends = np.minimum(ends, starts + horizon)
        own = [
            (first, min(first + LONGEST, end))
            for s, end in zip(starts, ends, strict=True)
            for first in range(s, end, LONGEST)
        ]
        parts.append([own[i] for i in np.sort(rng.permutation(len(own))[:EPISODES])])
    most = max(len(own) for own in parts)
    long = max(end - first for own in parts for first, end in own)
    shape = (len(tasks), most, long)
    found = {name: np.zeros((*shape, *getattr(rows, name)[0].shape[1:])) for name in ("obs", "act", "rew", "next_obs")}
    there, ended, counts = (np.zeros(shape, bool) for _ in range(3))
    weight = np.zeros(shape[:2])
    for i, (t, own) in enumerate(zip(tasks, parts, strict=True)):
        for e, (first, end) in enumerate(own):
            for name, values in found.items():
                values[i, e, : end - first] = getattr(rows, name)[t][first:end]
            there[i, e, : end - first] = True
            ended[i, e, : end - first] = rows.term[t][first:end]
            counts[i, e, : long if rows.term[t][end - 1] else end - first] = True
            weight[i, e] = 1.0
    return Pieces(**found, there=there, ended=ended, counts=counts, weight=weight)


class Worlds:
    """Draws of how tasks go on, fitted to all rows of a log."""

    def __init__(self, rows: Log, seed: int = 0) -> None:
        self.rows = rows
        change = [after - obs for obs, after in zip(rows.obs, rows.next_obs, strict=True)]
        obs_act = [np.concatenate(pair, -1) for pair in zip(rows.obs, rows.act, strict=True)]
        next_obs_act = [np.concatenate(pair, -1) for pair in zip(rows.next_obs, rows.act, strict=True)]
        both = [np.concatenate(pair, -1) for pair in zip(obs_act, rows.next_obs, strict=True)]
        kept = [~term for term in rows.term]
        reward = [rew[k, None] for rew, k in zip(rows.rew, kept, strict=True)]
        self.change = fit(obs_act, change, seed)
        # What a reward depends on is for the evidence to say.
        candidates = {
            name: fit([x[k] for x, k in zip(inputs, kept, strict=True)], reward, seed + 1)
            for name, inputs in (("before", obs_act), ("after", next_obs_act), ("both", both))
        }
        self.rewarded_by = max(candidates, key=lambda name: candidates[name].evidence)
        self.reward = candidates[self.rewarded_by]
        every = np.concatenate([*rows.obs, *rows.next_obs])
        low, high = every.min(0), every.max(0)
        room = np.maximum(BEYOND * (high - low), ROUNDING)
        self.low, self.high = low - room, high + room
        self.ending = self._ending(seed + 2) if any(term.any() for term in rows.term) else None
        rewards = np.concatenate([rew[k] for rew, k in zip(rows.rew, kept, strict=True)])
        self.worst, self.best = float(rewards.min()), float(rewards.max())

    def relive(self, pieces: Pieces, tasks: Sequence[int], act: Act, policies: int, seed: int = 0) -> Relived:
        """The episodes lived again by policies, in every world."""
        rng = np.random.default_rng([seed, 3])
        change, reward = (part.draw(tasks, DRAWS, rng) for part in (self.change, self.reward))
        many, episodes, long = pieces.there.shape
        shape = (DRAWS, many, policies, episodes)
        # What is not explained is luck; after the end of an episode it is that of other rows of the task.
        x = np.concatenate([pieces.obs, pieces.act], -1)
        luck_obs = pieces.next_obs - pieces.obs - _predict(self.change, change, x[None, :, None])[:, :, 0]
        luck_rew = (
            pieces.rew[..., None]
            - _predict(
                self.reward, reward, self._reward_inputs(pieces.obs, pieces.act, pieces.next_obs)[None, :, None]
            )[:, :, 0]
        )
        if self.ending is not None:
            # What an end costs is no luck: who avoids it does not pay.
            luck_rew -= self.ending.extra * pieces.ended[..., None]
        for t in range(many):
            where = np.argwhere(pieces.there[t])
            missing = np.argwhere(~pieces.there[t])
            drawn = where[rng.integers(len(where), size=len(missing))]
            for luck in (luck_obs, luck_rew):
                luck[:, t, missing[:, 0], missing[:, 1]] = luck[:, t, drawn[:, 0], drawn[:, 1]]
        chance = rng.random((many, 1, episodes, long))
        state = np.broadcast_to(pieces.obs[:, None, :, 0], (*shape, pieces.obs.shape[-1])).copy()
        going = np.ones(shape, bool)
        total = np.zeros(shape)
        seen_obs, seen_act, seen_going, seen_clipped = [], [], [], []
        for h in range(long):
            going = going & pieces.counts[:, None, :, h]
            flat = np.moveaxis(state, 2, 0).swapaxes(1, 2).reshape(policies, many, DRAWS * episodes, -1)
            chosen = act(flat).reshape(policies, many, DRAWS, episodes, -1)
            chosen = np.moveaxis(chosen.swapaxes(1, 2), 0, 2)  # [K, T, P, E, A]
            step = _predict(self.change, change, np.concatenate([state, chosen], -1)) + luck_obs[:, :, None, :, h]
            free = state + step
            after = np.clip(free, self.low, self.high)
            got = _predict(self.reward, reward, self._reward_inputs(state, chosen, after))[..., 0]
            # Nothing is better than what was ever logged; who has left the log gets the worst of it.
            left = (free != after).any(-1)
            got = np.where(left, self.worst, np.clip(got + luck_rew[:, :, None, :, h, 0], self.worst, self.best))
            seen_obs.append(state)
            seen_act.append(chosen)
            seen_going.append(going)
            seen_clipped.append(left)
            if self.ending is None:
                total += np.where(going, got, 0.0)
            else:
                ends = going & (chance[..., h] < self.ending.chance(after))
                total += np.where(going, got + self.ending.extra * ends, 0.0)
                going = going & ~ends
            state = after
        logged = (pieces.rew * pieces.there).sum(-1)
        return Relived(
            total - logged[:, None],
            logged,
            *(np.stack(seen, axis=4) for seen in (seen_obs, seen_act)),
            *(np.stack(seen, axis=-1) for seen in (seen_going, seen_clipped)),
        )

    def _ending(self, seed: int) -> _Ending:
        """By Newton's method on all rows."""
        rows = self.rows
        ends, x = np.concatenate(rows.term).astype(float), np.concatenate(rows.next_obs)
        features = Features.draw(x.shape[1], END_LENGTH, np.random.default_rng([seed, 4]))
        phi = _squares(features, x)
        weights, ridge = np.zeros(phi.shape[1]), np.full(phi.shape[1], END_RIDGE)
        weights[0] = np.log(ends.mean() / (1 - ends.mean()))
        for _ in range(NEWTON):
            chance = _logistic(phi @ weights)
            slope = phi.T @ (ends - chance) - ridge * weights
            curve = (phi * (chance * (1 - chance))[:, None]).T @ phi + np.diag(ridge)
            move = np.linalg.solve(curve, slope)
            weights = weights + move * min(1.0, 5.0 / np.abs(move).max())
        own = self.reward.draw(range(len(rows.rew)), 1, np.random.default_rng([seed, 5]))[0, ..., 0]
        beyond = [
            (rew - self.reward.features(self._reward_inputs(obs, act, after)) @ w)[term]
            for rew, obs, act, after, term, w in zip(
                rows.rew, rows.obs, rows.act, rows.next_obs, rows.term, own, strict=True
            )
        ]
        return _Ending(features, weights, float(np.concatenate(beyond).mean()))

    def _reward_inputs(self, obs: Array, act: Array, after: Array) -> Array:
        parts = {"before": (obs, act), "after": (after, act), "both": (obs, act, after)}[self.rewarded_by]
        return np.concatenate(parts, -1)


def _predict(fitted: Fitted, weights: Array, x: Array) -> Array:
    """[K, T, P, E, outputs] or [K, T, P, E, H, outputs] at x, whose first axis may be 1."""
    phi = fitted.features(x)
    flat = phi.reshape(*phi.shape[:2], -1, phi.shape[-1])
    found: Array = (flat @ weights).reshape(*weights.shape[:2], *phi.shape[2:-1], weights.shape[-1])
    return found


@dataclass(frozen=True)
class _Ending:
    """The chance that an episode ends at an observation, and what is lost or won by it."""

    features: Features
    weights: Array
    extra: float
    """What the reward of a last row has beyond that of others."""

    def chance(self, after: Array) -> Array:
        """At observations [..., S]."""
        return _logistic(_squares(self.features, after) @ self.weights)


def _logistic(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(x, -30, 30))))


def _squares(features: Features, x: Array) -> Array:
    return np.concatenate([features(x), x**2], -1)
