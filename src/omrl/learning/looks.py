"""Looks at the return on unseen tasks while a run trains: for the learning curve, never for choosing.

A simulator steps on the CPU. Where the learners learn on a GPU, a look therefore goes on beside the updates, with a
copy of the parameters that it is about, and its numbers are those that a look between two updates would have. On a CPU,
where both would fight for the cores, it is one.
"""

from __future__ import annotations

import copy
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
        # Its own networks: calling one puts the given parameters into the module for a moment, which two threads must
        # not do to the same module.
        self._trained, self._unseen = copy.copy(trained), unseen
        self._trained.algorithm = copy.deepcopy(trained.algorithm)
        self._cuda = trained.population.device.type == "cuda"
        self._pool = ThreadPoolExecutor(1, "omrl-look") if (self._cuda if beside is None else beside) else None
        # A stream of its own, served first: in that of the updates it would wait behind all that are queued there.
        self._stream = torch.cuda.Stream(priority=-1) if self._cuda else None  # type: ignore[no-untyped-call]
        self._begun: deque[tuple[int, Future[list[float]]]] = deque()

    def begin(self, step: int) -> None:
        """Look at the learners as they are after this update."""
        if self._pool is None:
            done: Future[list[float]] = Future()
            done.set_result(self._look(self._trained.population.params))
            self._begun.append((step, done))
            return
        params = {name: value.clone() for name, value in self._trained.population.params.items()}
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
        own: Any = nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
        with own:
            returns = given_context(self._trained, self._unseen, CONTEXT_ROWS, episodes=1, seed=0, params=params)
        return [float(value) for value in returns.mean((1, 2))]
