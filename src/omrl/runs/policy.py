"""What adaptation returns: a policy for one task, numpy in, numpy out. Needs torch alone, no simulator.

policy = omrl.load("runs/focal").adapt(transitions)
action = policy.act(observation)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from omrl.errors import OmrlError

if TYPE_CHECKING:
    import torch

    from omrl.runs.model import Model

# What a context is made of, in the order of a tuple (s, a, r, s').
CONTEXT = ("observations", "actions", "rewards", "next_observations")


class Policy:
    """Acts in one task. Observations and actions are in the units of the logs."""

    def __init__(self, trained: Model, seed: int, z: torch.Tensor) -> None:
        self._trained, self._seed, self.z = trained, seed, z.cpu().numpy()
        self._z = z

    def act(self, obs: ArrayLike) -> np.ndarray[Any, Any]:
        """The action for one observation [S], or for many [N, S]."""
        import torch

        values = checked(obs, "obs", self._trained.obs_dim, ndim=(1, 2))
        rows = torch.from_numpy(np.atleast_2d(values))
        with torch.no_grad():
            params = self._trained.params(self._seed)
            z = self._z.expand(len(rows), -1)
            unit = self._trained.algorithm.act(params, self._trained.normalise(rows), z).numpy()
        low, high = self._trained.action_low, self._trained.action_high
        actions = low + (unit + 1.0) * 0.5 * (high - low)
        return np.asarray(actions[0] if values.ndim == 1 else actions, dtype=np.float32)


def read_context(transitions: Any, obs_dim: int, act_dim: int) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of a context from a dict of arrays or a list of (s, a, r, s'), checked."""
    if isinstance(transitions, Mapping):
        missing = [name for name in CONTEXT if name not in transitions]
        if missing:
            raise OmrlError(f"The context has no {missing[0]!r}; it needs {', '.join(CONTEXT)}.")
        columns = [transitions[name] for name in CONTEXT]
    elif isinstance(transitions, Sequence) and all(len(row) == len(CONTEXT) for row in transitions):
        columns = list(zip(*transitions, strict=True)) or [()] * len(CONTEXT)
    else:
        raise OmrlError("A context is a dict of arrays or a list of (s, a, r, s') tuples.")
    widths = (obs_dim, act_dim, None, obs_dim)
    arrays = {
        name: checked(column, name, width, ndim=(1,) if width is None else (2,))
        for name, column, width in zip(CONTEXT, columns, widths, strict=True)
    }
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise OmrlError(f"The context's arrays differ in length: {lengths}.")
    return arrays


def checked(values: ArrayLike, name: str, width: int | None, ndim: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Finite float32 numbers of the right shape."""
    try:
        array = np.array(values, dtype=np.float32)  # a copy: logged rows are read-only
    except (TypeError, ValueError) as error:
        raise OmrlError(f"{name} must be numbers ({error}).") from error
    if array.size == 0:
        raise OmrlError(f"{name} is empty: a task is inferred from at least one transition.")
    if array.ndim not in ndim or (width is not None and array.shape[-1] != width):
        wanted = "[N]" if width is None else f"[..., {width}]"
        raise OmrlError(f"{name} must have shape {wanted}, not {list(array.shape)}.")
    if not np.isfinite(array).all():
        raise OmrlError(f"{name} has a value that is not finite in row {int(np.argwhere(~np.isfinite(array))[0][0])}.")
    return array


def load(run: str | Path, trust: str | Collection[str] = ()) -> Model:
    """A trained run, ready to adapt; `trust` names an algorithm as module:Class whose code may run."""
    from omrl.runs.model import Model
    from omrl.runs.run import Run

    return Model(Run.open(Path(run)), trust=(trust,) if isinstance(trust, str) else trust)
