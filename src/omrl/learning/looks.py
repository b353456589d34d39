"""Looks at the return on unseen tasks while a run trains: for the learning curve, never for choosing.

A simulator steps on the CPU. Where the learners learn on a GPU, a look therefore goes on beside the updates: by copies
of the learners that act on the CPU too, as each of a thousand small steps would else wait for the updates' turn. Its
numbers are those that a look between two updates would have. Where learners learn on the CPU, both would fight for the
cores, and a look is one between two updates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from omrl.commands.evaluate import CONTEXT_ROWS
from omrl.data import MetaDataset
from omrl.evaluation.given_context import given_context

if TYPE_CHECKING:
    from omrl.runs.model import Model


class Look(NamedTuple):
    """What was seen, and when."""

    step: int
    returns: list[float]
    """Each seed's mean return, one episode in each task."""


class Looks:
    """Looks of one run, in the order in which they were begun."""

    def __init__(self, trained: Model, unseen: MetaDataset, beside: bool | None = None) -> None:
        """`beside`: whether updates go on meanwhile; None for yes on a GPU alone."""
        cuda = trained.population.device.type == "cuda"
        beside = cuda if beside is None else beside
        self._trained, self._unseen = trained, unseen
        # Its own networks: calling one puts the given parameters into the module for a moment, which two threads must
        # not do to the same module.
        self._acting = trained.copy_on_cpu() if cuda or beside else trained
        self._pool = ThreadPoolExecutor(1, "omrl-look") if beside else None
        # A stream of its own: in that of the updates copies would wait behind all that are queued there.
        self._stream = torch.cuda.Stream(priority=-1) if cuda and beside else None  # type: ignore[no-untyped-call]
        self._begun: deque[tuple[int, Future[list[float]]]] = deque()

    def begin(self, step: int) -> None:
        """Look at the learners as they are after this update."""
        params: Mapping[str, Tensor] = self._trained.population.params
        if self._pool is None:
            done: Future[list[float]] = Future()
            done.set_result(self._look(params))
            self._begun.append((step, done))
            return
        params = {name: value.clone() for name, value in params.items()}
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
        self._begun.append((step, self._pool.submit(self._look, params)))

    def finished(self, wait: bool = False) -> Iterator[Look]:
        """Those that are done and were not given yet; with `wait` all that were begun."""
        while self._begun and (wait or self._begun[0][1].done()):
            step, look = self._begun.popleft()
            yield Look(step, look.result())

    def close(self) -> None:
        """End the thread; what was not waited for is given up."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _look(self, params: Mapping[str, Tensor]) -> list[float]:
        if self._acting is not self._trained:
            own: Any = nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
            with own:
                for name, value in self._acting.population.params.items():
                    value.copy_(params[name])
        returns = given_context(self._acting, self._unseen, CONTEXT_ROWS, episodes=1, seed=0)
        return [float(value) for value in returns.mean((1, 2))]
