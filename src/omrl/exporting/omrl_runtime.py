"""A trained policy with numpy alone: `omrl export --to numpy` puts this file beside the weights that it reads.

model = omrl_runtime.load()                # weights.npz beside this file, or the path that is given
policy = model.adapt(transitions)          # rows (s, a, r, s') of the task
action = policy.act(observation)
policy.observe(s, a, r, s_next)            # and what came of it; one thread at a time

Everything is in the units of the logs. What cannot be used is a ValueError that says why.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray[Any, Any]
WEIGHTS = "weights.npz"
FORMAT = 1  # of the weights' file; another one is not guessed at
CONTEXT = ("observations", "actions", "rewards", "next_observations")  # in the order of a tuple (s, a, r, s')
MIN_VARIANCE = 1e-7  # of one transition's Gaussian, as in training


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
                if max(np.prod(shape, dtype=float) * kind.itemsize, part.file_size) > file.stat().st_size:
                    raise ValueError("it claims more than it holds")
            arrays = {name: stored[name] for name in stored.files}
        about = json.loads(str(arrays.pop("about")))
        if about.get("format") != FORMAT:
            raise ValueError(f"it has format {about.get('format')!r}, and this file reads {FORMAT}")
        model = Model(about, arrays, file)
        # Whether all parts fit together is found now, not when somebody waits for an action.
        obs, act = np.stack([model.mean, model.std]), model.logged(np.stack([model.low, model.high]))
        known, read = model.obs_dim + model.act_dim + 1, len(arrays["encoder.weight.0"])
        for rows in ([0, 1], [0, 1, 1]):
            actions = model.adapt(list(zip(obs[rows], act[rows], rows, obs[rows], strict=True))).act(obs[rows])
            if actions.shape != (len(rows), model.act_dim) or read not in (known, known + model.obs_dim):
                raise ValueError("its networks are not of its observations and actions")
    except Exception as error:  # there are many ways to be damaged
        what = " ".join(str(error).split())[:200]
        raise ValueError(f"{file} cannot be read as an exported policy ({what}).") from error
    return model


class Model:
    """Infers a task from its transitions."""

    def __init__(self, about: Mapping[str, object], arrays: Mapping[str, Array], file: str | Path = WEIGHTS) -> None:
        self.about: dict[str, Any] = dict(about)
        self.arrays, self.file = arrays, file
        self.mean, self.std = arrays["observation_mean"], arrays["observation_std"]
        self.low, self.high = arrays["action_low"], arrays["action_high"]
        self.obs_dim, self.act_dim = len(self.mean), len(self.low)

    def adapt(self, transitions: Mapping[str, ArrayLike] | Sequence[Sequence[ArrayLike]]) -> Policy:
        """A policy for the task that the transitions come from: a dict of arrays, or a list of (s, a, r, s')."""
        return Policy(self, self.context(transitions))

    def context(self, given: object) -> Array:
        """Rows [C, (s, a, r, s')] as the encoder reads them; actions outside their bounds are taken as these."""
        if isinstance(given, Sequence) and all(isinstance(row, (list, tuple)) and len(row) == 4 for row in given):
            given = dict(zip(CONTEXT, zip(*given, strict=True), strict=False))  # of no rows there is nothing
        if not isinstance(given, Mapping):
            raise ValueError("A context is a dict of arrays or a list of (s, a, r, s') tuples.")
        if missing := [name for name in CONTEXT if name not in given]:
            raise ValueError(f"The context has no {missing[0]!r}; it needs {', '.join(CONTEXT)}.")
        with np.errstate(all="ignore"):  # where anything is not finite then, actions are not, and that is said
            obs, next_obs = ((numbers(given[name], name, self.obs_dim) - self.mean) / self.std for name in CONTEXT[::3])
            unit = (self.numbered(given["actions"]) - self.low) * (2.0 / (self.high - self.low)) - 1.0
            rew = numbers(given["rewards"], "rewards", None, ndims=(1,))[:, None]
        if len(lengths := {len(array) for array in (obs, unit, rew, next_obs)}) > 1:
            raise ValueError(f"The context's arrays differ in length: {sorted(lengths)}.")
        if outside := np.count_nonzero((np.abs(unit) > 1.02).any(-1)):  # by a hundredth of their range
            warnings.warn(f"{outside} of {len(unit)} actions lie outside the bounds of the log.", stacklevel=3)
        return np.concatenate([obs, unit.clip(-1.0, 1.0), rew, next_obs], -1)

    def evidence(self, context: Array) -> tuple[Array, Array]:
        """Codes of transitions and their weights [C, l], of which z is the mean: how sure they are, or ones."""
        codes = self.network("encoder", context[:, : len(self.arrays["encoder.weight.0"])])  # some do not look at s'
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
            liked = self.network("actor", state)  # where one of these is not finite, nothing is chosen
            return np.asarray(self.arrays["choices"][liked.argmax(-1)] + 0.0 * liked.sum(-1, keepdims=True))
        latents = np.broadcast_to(self.arrays["latents"], (len(obs), *self.arrays["latents"].shape))
        states = np.repeat(state[:, None], latents.shape[1], axis=1)
        acts = np.tanh(self.network("vae.decoder", states, latents))
        acts = np.clip(acts + self.about["perturbation"] * np.tanh(self.network("actor", states, acts)), -1.0, 1.0)
        values = self.network("critic", states, acts)[..., 0]
        return np.asarray(acts[np.arange(len(acts)), values.argmax(-1)])

    def numbered(self, logged: ArrayLike) -> Array:
        """Actions as numbers, where the log may have words for them."""
        choices = self.about["choices"] or ()
        found = numbers(logged, "actions", self.act_dim, words=bool(choices))
        for column, one in zip(found.T, choices, strict=False):
            words = dict(zip(one["labels"] or (), one["values"], strict=False))
            column[:] = [words.get(value, value) if isinstance(value, str) else value for value in column]
            levels = set(np.array(one["values"], np.float32).tolist())
            if wrong := [value for value in column if isinstance(value, str) or np.float32(value) not in levels]:
                raise ValueError(f"actions cannot be {wrong[0]!r}; they are one of {one['labels'] or one['values']}.")
        return found.astype(np.float32)

    def logged(self, actions: Array) -> Array:
        """Choices as the log has them: levels, or words; amounts as they are."""
        if not self.about["choices"]:
            return actions
        found = []
        for place, one in enumerate(self.about["choices"]):
            levels = np.array(one["values"], np.float32)
            found.append(np.array(one["labels"] or levels)[np.abs(actions[:, place, None] - levels).argmin(-1)])
        return np.stack(found, -1, dtype=object if len({column.dtype.kind for column in found}) > 1 else None)

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
        self.model, self._sums = model, np.zeros((2, 1))
        self._learn(context)

    def observe(self, obs: ArrayLike, act: ArrayLike, rew: ArrayLike, next_obs: ArrayLike) -> None:
        """Learn from one more transition, as if it had been among those adapted to."""
        self._learn(self.model.context([(obs, act, rew, next_obs)]))

    def _learn(self, context: Array) -> None:
        with np.errstate(all="ignore"):
            codes, weights = (values.astype(np.float64) for values in self.model.evidence(context))
            self._sums = self._sums + np.stack([(weights * codes).sum(0), weights.sum(0)])
            self.z = (self._sums[0] / self._sums[1]).astype(np.float32)

    def act(self, obs: ArrayLike) -> Array:
        """The action for one observation [S], or for many [N, S]."""
        with np.errstate(all="ignore"):
            model, given = self.model, numbers(obs, "obs", self.model.obs_dim, ndims=(1, 2))
            unit = model.unit_actions((np.atleast_2d(given) - model.mean) / model.std, self.z)
            actions = model.low + (unit + 1.0) * 0.5 * (model.high - model.low)
        if not np.isfinite(actions).all():
            raise ValueError(f"{model.file} gives an action that is not finite for this observation.")
        return np.asarray(model.logged(actions)[0 if given.ndim == 1 else ...])


def numbers(values: object, name: str, width: int | None, ndims: tuple[int, ...] = (2,), words: bool = False) -> Array:
    """Finite numbers of a shape, or words too; nothing that numpy would have to guess to be one."""
    try:
        if masked(values):
            raise ValueError("one is masked")
        given = np.asarray(values, dtype=object if words else None)
        kinds = {np.asarray(value).dtype.kind for value in given.flat} if given.dtype.kind == "O" else given.dtype.kind
        if not set("biufU" if words else "biuf").issuperset(kinds):
            raise ValueError(f"they are {given.dtype}")
        array = np.array(given, dtype=object if words else np.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{name} must be numbers ({error}).") from error
    if array.size == 0:
        raise ValueError(f"{name} is empty.")
    if array.ndim not in ndims or width not in (None, array.shape[-1]):
        raise ValueError(f"{name} must have shape {['N'] if width is None else ['N', width]}, not {list(array.shape)}.")
    if not words and not np.isfinite(array).all():
        raise ValueError(f"{name} has a value that is not finite in row {int(np.argwhere(~np.isfinite(array))[0][0])}.")
    return array


def masked(values: object) -> bool:
    """Whether a value is masked, which numpy forgets in lists."""
    if isinstance(values, np.ma.MaskedArray):
        return bool(np.ma.getmaskarray(values).any())
    return isinstance(values, Sequence) and any(masked(v) for v in values if type(v) not in (np.ndarray, float, str))
