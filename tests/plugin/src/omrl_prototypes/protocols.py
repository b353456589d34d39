"""A protocol of another package: how much a single row tells, beside as many as are allowed."""

from __future__ import annotations

from collections.abc import Mapping

from omrl.evaluation.given_context import given_context
from omrl.evaluation.protocol import Array, Protocol, Resources
from omrl.runs.model import Model


class OneRow(Protocol):
    """Returns after one row, and what more rows add."""

    name = "one-row"
    uses_simulator = True

    def run(self, model: Model, use: Resources) -> Mapping[str, Array]:
        """Returns [seeds, tasks, episodes]."""
        few, many = (given_context(model, use.log, rows, use.episodes, use.seed) for rows in (1, use.context))
        return {"return": few, "gain": (many - few).mean(-1)}
