"""What adaptation returns: a policy for one task, numpy in, numpy out. Needs torch alone, no simulator.

policy = omrl.load("runs/focal").adapt(transitions)
action = policy.act(observation)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Literal, Never, SupportsIndex

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from omrl.errors import OmrlError
from omrl.runs.belief import Belief
from omrl.runs.choices import Choice, as_logged, as_numbers
from omrl.runs.names import Columns, Transitions, Values, floats, in_order

if TYPE_CHECKING:
    from omrl.runs.model import Model

# An observation is unlike the log where less than this share of logged ones is further from the rest.
STRANGE_STATE = 0.01
# What a context is made of, in the order of a tuple (s, a, r, s').
CONTEXT = ("observations", "actions", "rewards", "next_observations")


class Policy:
    """Acts in one task. Observations and actions are in the units of the logs. Threads may share it."""

    def __init__(
        self,
        trained: Model,
        seed: int,
        rows: torch.Tensor,
        window: int | None = None,
        forget: float | None = None,
        context_score: float | None = None,
        fallback: Literal["behaviour"] | None = None,
        on_strange: Literal["warn", "refuse", "ignore"] = "warn",
    ) -> None:
        self.context_score = context_score
        """Share of honest contexts that look worse than what it was adapted to, in a run that is calibrated."""
        self.acted, self.fell_back = 0, 0
        """Observations that it acted at so far, and those of them at which the cloned logger did."""
        self._seed, self._fallback, self._on_strange = seed, fallback, on_strange
        self._trained, self._params = trained, trained.params(seed)
        self._belief = Belief(window, forget)
        if trained.algorithm.has_evidence():
            self._learn(rows)
            return
        if window is not None or forget is not None:
            raise self._all_at_once()

        with torch.no_grad(), trained.lock:
            self._z = trained.algorithm.infer(self._params, rows[None])

    @property
    def z(self) -> NDArray[np.float32]:
        """What the task was inferred to be [1, l]."""
        return self._z.cpu().numpy()

    def act(self, obs: Values) -> NDArray[np.generic]:
        """The action for one observation [S], or for many [N, S]; or for their columns by name.

        Where actions are choices, it is one of them: a level or a word of the log.
        """
        trained, columns = self._trained, self._trained.run.config.columns
        ordered = in_order(obs, "obs", columns and columns["observations"])
        values = checked(ordered, "obs", trained.obs_dim, ndim=(1, 2))
        rows = torch.from_numpy(np.atleast_2d(values))
        with torch.no_grad(), trained.lock:
            z = self._z.expand(len(rows), -1)
            unit = trained.algorithm.act(self._params, trained.normalise(rows), z).numpy()
            self.acted += len(rows)
            if self._fallback is not None:
                unit = self._kept_near(values, unit)
        low, high = trained.action_low, trained.action_high
        actions = np.asarray(low + (unit + 1.0) * 0.5 * (high - low), dtype=np.float32)
        if not np.isfinite(actions).all():  # weights and observations may be so large that their products are not
            raise OmrlError(f"{trained.run.folder} gives an action that is not finite for this observation.")
        choices = trained.run.config.choices
        chosen = actions if choices is None else as_logged(actions, choices)
        return np.asarray(chosen[0] if values.ndim == 1 else chosen)

    def state_score(self, obs: Values) -> NDArray[np.float64]:
        """Share of logged observations that are further from the log than each of these; of a calibrated run."""
        columns = self._trained.run.config.columns
        ordered = in_order(obs, "obs", columns and columns["observations"])
        values = checked(ordered, "obs", self._trained.obs_dim, ndim=(1, 2))
        calibration = self._trained.calibrated()
        found = calibration.states.score(calibration.obs_in_units(np.atleast_2d(values)))
        return np.asarray(found[0] if values.ndim == 1 else found)

    def _kept_near(self, obs: NDArray[np.float32], unit: NDArray[np.float32]) -> NDArray[np.float32]:
        """The actions, but those of the cloned logger where observations are unlike the log."""
        calibration = self._trained.calibrated()
        places = calibration.obs_in_units(np.atleast_2d(obs))
        strange = calibration.states.score(places) < STRANGE_STATE
        if not strange.any():
            return unit
        self.fell_back += int(strange.sum())
        cloned = calibration.clones[self._seed].act(places[strange], self.z[0].astype(np.float64))
        kept = unit.copy()
        kept[strange] = cloned
        return kept

    def observe(self, obs: Values, act: Values, rew: ArrayLike, next_obs: Values) -> None:
        """Learn from one more transition of the task: z is then as if it had been among those adapted to.

        How long it takes does not depend on how many came before.
        """
        if not self._trained.algorithm.has_evidence():
            raise self._all_at_once()
        row = self._trained.read([(obs, act, rew, next_obs)])
        self._trained._check_bounds(row["actions"], self._on_strange)
        self._learn(self._trained.contexts(row))

    def _learn(self, rows: torch.Tensor) -> None:
        with torch.no_grad(), self._trained.lock:
            codes, weights = self._trained.algorithm.evidence(self._params, rows)
            self._belief.add(codes.cpu().numpy(), weights.cpu().numpy())
            self._z = torch.from_numpy(self._belief.z).to(rows)[None]

    def _all_at_once(self) -> OmrlError:
        name = self._trained.run.config.algorithm
        return OmrlError(f"{name} infers a task from all rows at once, having no evidence of its own: adapt again.")

    def __reduce_ex__(self, protocol: SupportsIndex) -> Never:
        folder = str(self._trained.run.folder)
        raise OmrlError(
            f"A policy is not pickled: send the rows, and call omrl.load({folder!r}).adapt(rows) there, or omrl export."
        )


def read_context(
    transitions: Transitions,
    obs_dim: int,
    act_dim: int,
    columns: Columns | None = None,
    choices: Sequence[Choice] | None = None,
) -> dict[str, NDArray[np.float32]]:
    """Arrays of a context from a dict of arrays or a list of (s, a, r, s'), checked; s, a and s' also by name."""
    if isinstance(transitions, Mapping):
        missing = [name for name in CONTEXT if name not in transitions]
        if missing:
            raise OmrlError(f"The context has no {missing[0]!r}; it needs {', '.join(CONTEXT)}.")
        given = [transitions[name] for name in CONTEXT]
    elif isinstance(transitions, Sequence) and all(_is_row(row) for row in transitions):
        given = list(zip(*transitions, strict=True)) or [()] * len(CONTEXT)
    else:
        raise OmrlError("A context is a dict of arrays or a list of (s, a, r, s') tuples.")
    widths = (obs_dim, act_dim, None, obs_dim)
    observed, acted = columns and columns["observations"], columns and columns["actions"]
    arrays = {}
    for name, values, width, named in zip(CONTEXT, given, widths, (observed, acted, None, observed), strict=True):
        ordered = in_order(values, name, named)
        if name == "actions" and choices is not None:
            ordered = as_numbers(ordered, name, choices)
        arrays[name] = checked(ordered, name, width, ndim=(1,) if width is None else (2,))
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise OmrlError(f"The context's arrays differ in length: {lengths}.")
    return arrays


def _is_row(row: Sized) -> bool:
    try:
        return len(row) == len(CONTEXT)
    except TypeError:  # a single number has no length, or says so when it is asked
        return False


def checked(values: ArrayLike, name: str, width: int | None, ndim: tuple[int, ...]) -> NDArray[np.float32]:
    """Finite float32 numbers of the right shape."""
    array = floats(values, name)
    if array.size == 0:
        raise OmrlError(f"{name} is empty: a task is inferred from at least one transition.")
    if array.ndim not in ndim or (width is not None and array.shape[-1] != width):
        wanted = "[N]" if width is None else f"[..., {width}]"
        raise OmrlError(f"{name} must have shape {wanted}, not {list(array.shape)}.")
    if not np.isfinite(array).all():
        raise OmrlError(f"{name} has a value that is not finite in row {int(np.argwhere(~np.isfinite(array))[0][0])}.")
    return array
