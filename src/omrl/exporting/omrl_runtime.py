"""A trained policy with numpy alone: `omrl export --to numpy` puts this file beside the weights that it reads.

import omrl_runtime

model = omrl_runtime.load()                # weights.npz beside this file, or the path that is given
policy = model.adapt(transitions)          # rows (s, a, r, s') of the task
action = policy.act(observation)
policy.observe(s, a, r, s_next)            # and what came of it; one thread at a time

Everything is in the units of the logs. What cannot be used is a ValueError that says why.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray[Any, Any]

# Rows (s, a, r, s') of a task: a dict of arrays, or a list of tuples.
Transitions = Mapping[str, ArrayLike] | Sequence[tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]]

WEIGHTS = "weights.npz"
# Of the weights' file; another one is not guessed at.
FORMAT = 1
# What a context is made of, in the order of a tuple (s, a, r, s').
CONTEXT = ("observations", "actions", "rewards", "next_observations")
# Smallest variance of one transition's Gaussian, as in training.
MIN_VARIANCE = 1e-7


def load(path: str | Path | None = None) -> Model:
    """The model of a folder or a file; without a path that beside this file."""
    file = Path(__file__).parent if path is None else Path(path)
    file = file / WEIGHTS if file.is_dir() else file
    try:
        with np.load(file, allow_pickle=False) as stored:
            for part in stored.zip.infolist():
                with stored.zip.open(part) as member:
                    np.lib.format.read_magic(member)
                    shape, _, kind = np.lib.format.read_array_header_1_0(member)  # before memory is taken for it
                if max(math.prod(shape) * kind.itemsize, part.file_size) > file.stat().st_size:
                    raise ValueError("it claims more than it holds")
            arrays = {name: stored[name] for name in stored.files}
        about = json.loads(str(arrays.pop("about")))
        if about.get("format") != FORMAT:
            raise ValueError(f"it has format {about.get('format')!r}, and this file reads {FORMAT}")
        model = Model(about, arrays)
        # Whether all parts fit together is found now, not when somebody waits for an action.
        for rows in (2, 3):
            zeros, middle = np.zeros((rows, model.obs_dim)), (arrays["action_low"] + arrays["action_high"]) / 2
            actions = model.adapt([(zeros[0], middle, 0.0, zeros[0])] * rows).act(zeros)
            if actions.shape != (rows, model.act_dim):
                raise ValueError(f"its actions are {list(actions.shape)}")
        for pair in (("observation_mean", "observation_std"), ("action_low", "action_high")):
            np.stack([arrays[name] for name in pair])  # an error where one is longer
        known, read = model.obs_dim + model.act_dim + 1, len(arrays["encoder.weight.0"])
        if read not in (known, known + model.obs_dim):
            raise ValueError(f"its encoder reads {read} numbers, not {known} or {known + model.obs_dim}")
    except Exception as error:  # there are many ways to be damaged
        what = " ".join(str(error).split())[:200]
        raise ValueError(f"{file} cannot be read as an exported policy ({what}).") from error
    return model


class Model:
    """Infers a task from its transitions."""

    def __init__(self, about: Mapping[str, object], arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        self.about: dict[str, Any] = dict(about)
        self.obs_dim, self.act_dim = len(arrays["observation_mean"]), len(arrays["action_low"])

    def adapt(self, transitions: Transitions) -> Policy:
        """A policy for the task that the transitions come from: a dict of arrays, or a list of (s, a, r, s')."""
        return Policy(self, self.context(transitions))

    def context(self, transitions: Transitions) -> Array:
        """Rows [C, (s, a, r, s')] as the encoder reads them."""
        if isinstance(transitions, Mapping):
            missing = [name for name in CONTEXT if name not in transitions]
            if missing:
                raise ValueError(f"The context has no {missing[0]!r}; it needs {', '.join(CONTEXT)}.")
            columns = [transitions[name] for name in CONTEXT]
        elif isinstance(transitions, Sequence) and all(len(row) == len(CONTEXT) for row in transitions):
            columns = list(zip(*transitions)) or [()] * len(CONTEXT)  # noqa: B905
        else:
            raise ValueError("A context is a dict of arrays or a list of (s, a, r, s') tuples.")
        columns[1] = self.numbered(columns[1])
        shapes = ((-1, self.obs_dim), (-1, self.act_dim), (-1,), (-1, self.obs_dim))
        obs, act, rew, next_obs = (numbers(*column) for column in zip(columns, CONTEXT, shapes))  # noqa: B905
        lengths = {len(array) for array in (obs, act, rew, next_obs)}
        if len(lengths) > 1:
            raise ValueError(f"The context's arrays differ in length: {sorted(lengths)}.")
        low, high = self.arrays["action_low"], self.arrays["action_high"]
        unit = np.clip((act - low) * (2.0 / (high - low)) - 1.0, -1.0, 1.0)
        return np.concatenate([self.normalised(obs), unit, rew[:, None], self.normalised(next_obs)], -1)

    def evidence(self, context: Array) -> tuple[Array, Array]:
        """Codes of transitions and their weights [C, l], of which z is the mean: how sure they are, or ones."""
        # An encoder that does not look at s' reads the first columns alone.
        codes = self.network("encoder", context[:, : len(self.arrays["encoder.weight.0"])])
        weights = np.ones_like(codes)
        if self.about["codes"] == "gaussians":
            codes, raw = np.split(codes, 2, axis=-1)
            weights = 1.0 / np.maximum(np.logaddexp(0.0, raw), MIN_VARIANCE)
        return np.tanh(codes) if self.about["squashed"] else codes, weights

    def unit_actions(self, obs: Array, z: Array) -> Array:
        """Actions [N, A] in [-1, 1] at normalised observations [N, S]."""
        state = np.concatenate([obs, np.broadcast_to(z, (len(obs), len(z)))], -1)
        if self.about["actions"] == "gaussian":
            return np.tanh(self.network("actor", state)[:, : self.act_dim])
        if self.about["actions"] == "choices":
            liked = self.network("actor", state)
            # Where one of these is not finite, nothing is chosen.
            return np.asarray(self.arrays["choices"][liked.argmax(-1)] + 0.0 * liked.sum(-1, keepdims=True))
        latents = np.broadcast_to(self.arrays["latents"], (len(obs), *self.arrays["latents"].shape))
        states = np.repeat(state[:, None], latents.shape[1], axis=1)
        acts = np.tanh(self.network("vae.decoder", states, latents))
        acts = acts + self.about["perturbation"] * np.tanh(self.network("actor", states, acts))
        acts = np.clip(acts, -1.0, 1.0)
        values = self.network("critic", states, acts)[..., 0]
        return np.asarray(acts[np.arange(len(acts)), values.argmax(-1)])

    def numbered(self, logged: ArrayLike) -> ArrayLike:
        """Choices of the log as numbers; amounts as they are."""
        if not self.about["choices"]:
            return logged
        actions: Any = logged
        found = []
        for one, column in zip(self.about["choices"], zip(*actions)):  # noqa: B905
            known: dict[Any, float] = {float(np.float32(value)): value for value in one["values"]}
            known.update(zip(one["labels"] or (), one["values"]))  # noqa: B905
            keys = [value if isinstance(value, str) else float(np.float32(value)) for value in column]
            if wrong := [key for key in keys if key not in known]:
                raise ValueError(f"actions cannot be {wrong[0]!r}; they are one of {one['labels'] or one['values']}.")
            found.append([known[key] for key in keys])
        return np.transpose(found)

    def logged(self, actions: Array) -> Array:
        """Choices as the log has them: levels, or words; amounts as they are."""
        if not self.about["choices"]:
            return actions
        found = []
        for place, one in enumerate(self.about["choices"]):
            nearest = np.abs(actions[:, place, None] - np.array(one["values"], np.float32)).argmin(-1)
            found.append(np.array(one["labels"] or np.array(one["values"], np.float32))[nearest])
        kind = None if len({column.dtype.kind for column in found}) == 1 else object
        return np.stack([column.astype(kind or column.dtype) for column in found], -1)

    def normalised(self, obs: Array) -> Array:
        """Observations as the networks see them."""
        return np.asarray((obs - self.arrays["observation_mean"]) / self.arrays["observation_std"])

    def network(self, name: str, *inputs: Array) -> Array:
        """ReLU layers on inputs side by side."""
        x, last = np.concatenate(inputs, -1), self.about["layers"][name] - 1
        for i in range(last + 1):
            x = x @ self.arrays[f"{name}.weight.{i}"] + self.arrays[f"{name}.bias.{i}"]
            x = np.maximum(x, 0.0) if i < last else x
        return x


class Policy:
    """Acts in one task."""

    def __init__(self, model: Model, context: Array) -> None:
        self.model = model
        self._sums = np.zeros(2)[:, None]
        self._learn(context)

    def observe(self, obs: ArrayLike, act: ArrayLike, rew: ArrayLike, next_obs: ArrayLike) -> None:
        """Learn from one more transition, as if it had been among those adapted to."""
        self._learn(self.model.context([(obs, act, rew, next_obs)]))

    def _learn(self, context: Array) -> None:
        codes, weights = (values.astype(np.float64) for values in self.model.evidence(context))
        self._sums = self._sums + np.stack([(weights * codes).sum(0), weights.sum(0)])
        self.z = (self._sums[0] / self._sums[1]).astype(np.float32)

    def act(self, obs: ArrayLike) -> Array:
        """The action for one observation [S], or for many [N, S]."""
        one = np.ndim(obs) == 1
        rows = numbers(np.asarray(obs)[None] if one else obs, "obs", (-1, self.model.obs_dim))
        unit = self.model.unit_actions(self.model.normalised(rows), self.z)
        low, high = self.model.arrays["action_low"], self.model.arrays["action_high"]
        actions = low + (unit + 1.0) * 0.5 * (high - low)
        if not np.isfinite(actions).all():
            raise ValueError("The policy gives an action that is not finite for this observation.")
        actions = self.model.logged(actions)
        return np.asarray(actions[0] if one else actions)


def numbers(values: ArrayLike, name: str, shape: tuple[int, ...]) -> Array:
    """Finite float32 numbers of a shape, whose first length is free."""
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "biufO":
            raise ValueError(f"they are {given.dtype}")
        array = np.array(given, dtype=np.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{name} must be numbers ({error}).") from error
    if array.size == 0:
        raise ValueError(f"{name} is empty.")
    if array.ndim != len(shape) or array.shape[1:] != shape[1:]:
        raise ValueError(f"{name} must have shape {['N', *shape[1:]]}, not {list(array.shape)}.")
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise ValueError(f"{name} has a value that is not finite in row {row}.")
    return array
