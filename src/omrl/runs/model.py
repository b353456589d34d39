"""The trained model: a run's networks, which infer tasks and act. Needs no data, no simulator and no command line."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Never, Self, SupportsIndex

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from omrl import schema
from omrl.algorithms import check_trusted, get_algorithm
from omrl.algorithms.algorithm import Algorithm, MetaConfig
from omrl.data.arrays import to_unit
from omrl.errors import OmrlError
from omrl.learning.engine import Mode, Population, width_of
from omrl.learning.sampling import Normalisation
from omrl.runs.calibration import Calibration
from omrl.runs.checkpoints import check_fits, check_shape
from omrl.runs.config import CONFIG
from omrl.runs.names import Transitions
from omrl.runs.policy import CONTEXT, Policy, read_context
from omrl.runs.run import Run
from omrl.storage.files import as_path
from omrl.words import quantity

# A context is strange where less than this share of honest ones look worse.
STRANGE = 0.05
# Actions beyond their bounds by this share of the range are none that the log could hold.
OUTSIDE = 0.01


class StrangeContext(UserWarning):
    """A context that looks like those of no training task."""


def populate(
    kind: type[Algorithm[MetaConfig]],
    obs_dim: int,
    act_dim: int,
    config: MetaConfig,
    seeds: Sequence[int],
    device: str,
    mode: Mode | None = None,
    room: int | None = None,
) -> tuple[Algorithm[MetaConfig], Population]:
    """An algorithm, and one learner of it per seed; `mode` and `room` are the engine's own choice if left out."""
    learners, algorithm = kind.build(obs_dim, act_dim, config, seeds)
    return algorithm, population_of(algorithm, learners, seeds[0], device, mode, room)


def population_of(
    algorithm: Algorithm[MetaConfig],
    learners: Sequence[nn.Module],
    seed: int,
    device: str,
    mode: Mode | None = None,
    room: int | None = None,
) -> Population:
    """Learners that an algorithm trains, with what it asks of the engine."""
    return Population(
        learners,
        algorithm.loss,
        learning_rate=algorithm.learning_rate,
        targets=algorithm.targets,
        plain_descent=algorithm.plain_descent,
        child_steps=algorithm.child_steps,
        tau=algorithm.tau,
        seed=seed,
        device=device,
        mode=mode,
        bfloat16=algorithm.config.bfloat16,
        room=room,
    )


class Model:
    """A run's learners as they are after its newest checkpoint: what can infer tasks and act, without any data."""

    def __init__(
        self,
        run: Run,
        device: str = "cpu",
        mode: Mode | None = None,
        trust: Collection[str] = (),
        untrained: bool = False,
    ) -> None:
        """`trust` names what may be imported, where the run's algorithm is not an installed one.

        Without a checkpoint there is nothing to make networks for, of whatever size, unless `untrained` ones are meant.
        """
        config = run.config
        check_trusted(config.algorithm, trust, run.folder / CONFIG)
        self.run = run
        self.obs_dim, self.act_dim = config.observation_dim, config.action_dim
        self.action_low = np.array(config.action_low, np.float32)
        self.action_high = np.array(config.action_high, np.float32)
        try:
            kind = get_algorithm(config.algorithm)
        except OmrlError as error:
            raise OmrlError(f"{run.folder / CONFIG}: {error}") from error
        self.hyperparameters = schema.read(kind.Config, config.hyperparameters, run.folder / CONFIG)
        found = run.load()
        if found is None and not untrained:
            raise OmrlError(f"{run.folder} has no checkpoint yet: train it first.")
        if found is not None:
            self._check_size(kind, found[1])
        self.algorithm, self.population = populate(
            kind, self.obs_dim, self.act_dim, self.hyperparameters, config.all_seeds(), device, mode
        )
        # Networks are shared, and hold the parameters of whoever computes: one thread at a time.
        self.lock = threading.Lock()
        self.step = 0
        if found is not None:
            self.step, state = found
            self._check(state)
            self.population.load_state(state)
            self.normalise: Normalisation = Normalisation(
                *(state[f"normalise.{name}"].to(torch.device(device)) for name in ("mean", "std"))
            )

    def _check_size(self, kind: type[Algorithm[MetaConfig]], state: Mapping[str, torch.Tensor]) -> None:
        """Whether a checkpoint is of so many networks of this size, before memory is taken for them."""
        try:
            with torch.device("meta"):  # shapes without numbers
                nets = kind.Nets(self.obs_dim, self.act_dim, self.hyperparameters, torch.Generator())
        except Exception:  # some of one's own cannot be without numbers: they are looked at when they are there
            return
        shape = (self.run.config.seeds, width_of(nets))
        check_shape(state, "params", shape, torch.float32, self.run.newest)

    def _check(self, state: Mapping[str, torch.Tensor]) -> None:
        """Whether a checkpoint is one of these networks."""
        scale = torch.zeros(self.obs_dim)
        wanted = {**self.population.state(), "normalise.mean": scale, "normalise.std": scale}
        if "generator" in state and state["generator"].dtype == torch.uint8:
            del wanted["generator"]  # that of another device has another length
        check_fits(state, wanted, self.run.newest)

    def ready(self) -> Self:
        """Itself, if it was trained."""
        if self.step == 0:
            raise OmrlError(f"{self.run.folder} has no checkpoint yet: train it first.")
        return self

    def params(self, seed: int) -> dict[str, torch.Tensor]:
        """One learner's parameters."""
        if type(seed) is bool or not isinstance(seed, int | np.integer) or not 0 <= seed < self.population.size:
            raise OmrlError(f"There is no seed {seed!r}; the run has {self.population.size}.")
        return {name: value[seed] for name, value in self.population.params.items()}

    def contexts(self, arrays: Mapping[str, ArrayLike]) -> torch.Tensor:
        """Rows (s, a, r, s') as the encoder reads them, from arrays [..., dim] as they were logged."""
        device = self.population.device
        # Copies: rows of a dataset are read-only views of its files.
        rows = {name: np.array(arrays[name], dtype=np.float32) for name in CONTEXT}
        to_unit(rows["actions"], self.action_low, self.action_high)
        columns = (
            self.normalise(torch.from_numpy(rows["observations"]).to(device)),
            torch.from_numpy(rows["actions"]).to(device),
            torch.from_numpy(rows["rewards"])[..., None].to(device),
            self.normalise(torch.from_numpy(rows["next_observations"]).to(device)),
        )
        return torch.cat(columns, dim=-1)

    def infer(self, rows: Mapping[str, ArrayLike], seed: int) -> NDArray[np.float32]:
        """z [..., l] of checked rows, arrays [..., C] or [..., C, dim]."""
        with torch.no_grad(), self.lock:
            return self.algorithm.infer(self.params(seed), self.contexts(rows)).cpu().numpy()

    @cached_property
    def calibration(self) -> Calibration | None:
        """What strange contexts are told by, if `omrl calibrate` was run since it was trained."""
        found = Calibration.open(self.run.folder)
        if found is None or found.step != self.step:
            return None
        widths = {"observations": self.obs_dim, "actions": self.act_dim, "next_observations": self.obs_dim}
        row = {"rewards": np.zeros(1), **{name: np.zeros((1, width)) for name, width in widths.items()}}
        found.check(self.run.folder, self.population.size, row, self.infer(row, 0))
        return found

    def calibrated(self) -> Calibration:
        """The calibration, where there has to be one."""
        if self.calibration is None:
            raise OmrlError(f"{self.run.folder} cannot tell what is strange: run omrl calibrate first.")
        return self.calibration

    def adapt(
        self,
        transitions: Transitions,
        seed: int = 0,
        *,
        window: int | None = None,
        forget: float | None = None,
        on_strange: Literal["warn", "refuse", "ignore"] = "warn",
        fallback: Literal["behaviour"] | None = None,
    ) -> Policy:
        """A policy for the task that the transitions come from: a dict of arrays, or a list of (s, a, r, s').

        For a task that drifts `window` counts only so many of the newest rows, and `forget`, such as 0.99, lets a row
        count so much less with each that follows it; the last row is the newest. `on_strange` says what happens where
        a calibrated run finds the context strange. With `fallback="behaviour"` the cloned logger acts at observations
        that are unlike the log.
        """
        # An array is equal to nothing as a whole.
        if not isinstance(on_strange, str) or on_strange not in ("warn", "refuse", "ignore"):
            raise OmrlError(f"on_strange is warn, refuse or ignore, not {on_strange!r}.")
        if fallback is not None and (not isinstance(fallback, str) or fallback != "behaviour"):
            raise OmrlError(f"fallback is None or behaviour, not {fallback!r}.")
        self.ready().params(seed)  # whether it is there
        if fallback is not None:
            self.calibrated()
        rows = self.read(transitions)
        self._check_bounds(rows["actions"], on_strange)
        score = self._score(rows, seed, on_strange)
        return Policy(self, seed, self.contexts(rows), window, forget, score, fallback, on_strange)

    def _check_bounds(self, actions: np.ndarray[Any, Any], on_strange: str) -> None:
        """Say that actions lie outside their bounds, where they do by more than rounding: they are taken as these."""
        room = OUTSIDE * (self.action_high - self.action_low)
        outside = ((actions < self.action_low - room) | (actions > self.action_high + room)).any(-1)
        if outside.any() and on_strange != "ignore":
            sentence = f"{int(outside.sum())} of {quantity(len(actions), 'action')} lie outside the bounds of the log."
            if on_strange == "refuse":
                raise OmrlError(sentence)
            warnings.warn(sentence, StrangeContext, stacklevel=3)

    def _score(self, rows: Mapping[str, Any], seed: int, on_strange: str) -> float | None:
        """How strange a context is, said as it should be; nothing where that was not calibrated."""
        if self.calibration is None and on_strange != "refuse":
            return None
        calibration = self.calibrated()
        size = calibration.size(len(rows["rewards"]))
        newest = {name: values[-size:] for name, values in rows.items()}
        score, part = calibration.score(seed, newest, self.infer(newest, seed))
        if score < STRANGE and on_strange != "ignore":
            sentence = f"The context is strange, most by its {part}: {score:.1%} of honest ones look worse."
            if on_strange == "refuse":
                raise OmrlError(sentence)
            warnings.warn(sentence, StrangeContext, stacklevel=3)
        return score

    def copy_on_cpu(self, learners: tuple[Algorithm[MetaConfig], Population] | None = None) -> Model:
        """One with learners of its own on a CPU, with the same parameters as they are now.

        `learners` are such ones, where these are not as the run's config has them.
        """
        other = Model.__new__(Model)
        vars(other).update(vars(self))
        kind, seeds = type(self.algorithm), self.run.config.all_seeds()
        other.algorithm, other.population = learners or populate(
            kind, self.obs_dim, self.act_dim, self.hyperparameters, seeds, "cpu"
        )
        other.lock = threading.Lock()
        other.normalise = Normalisation(self.normalise.mean.cpu(), self.normalise.std.cpu())
        for name, value in self.population.params.items():
            other.population.params[name].copy_(value)
        return other

    def __reduce_ex__(self, protocol: SupportsIndex) -> Never:
        raise OmrlError(
            f"A model is not pickled: send the run's folder, and call omrl.load({str(self.run.folder)!r}) there."
        )

    def read(self, transitions: Transitions) -> dict[str, NDArray[np.float32]]:
        """Checked transitions as arrays."""
        return read_context(transitions, self.obs_dim, self.act_dim, self.run.config.columns, self.run.config.choices)


def load(run: str | Path, trust: str | Collection[str] = ()) -> Model:
    """A trained run, ready to adapt; `trust` names an algorithm as module:Class whose code may run."""
    return Model(Run.open(as_path(run, "A run")), trust=(trust,) if isinstance(trust, str) else trust)
