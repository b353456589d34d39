"""What a protocol is: a way to test a model on tasks, with what it may use and what it returns.

`given_context.py` is the paper's. Another one is a file with a class that derives from `Protocol`; one of another
package is found through the entry point `omrl.protocols`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from omrl.errors import OmrlError, did_you_mean

if TYPE_CHECKING:
    from omrl.data import MetaDataset
    from omrl.families import TaskFamily
    from omrl.runs.model import Model

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Resources:
    """What a protocol may use to test a model on tasks."""

    log: MetaDataset
    """Logged rows of the tasks, of the quality that contexts are of."""
    simulator: TaskFamily | None
    """Where the tasks can be acted in; for those that use one."""
    context: int
    """Transitions that a task is told by."""
    episodes: int
    """Episodes of each seed and task that may be simulated, those that collect a context included."""
    seed: int
    """Of contexts and start states."""


class Protocol(ABC):
    """A way to test."""

    name: ClassVar[str]
    """Of the flag, and of its scores."""
    uses_simulator: ClassVar[bool]

    @abstractmethod
    def run(self, model: Model, use: Resources) -> Mapping[str, Array]:
        """Scores by metric, [seeds, tasks] or, for `return`, [seeds, tasks, episodes].

        A context that grows is a metric for each size; one that the policy collects itself takes from the episodes.
        """


PROTOCOLS = {
    "given-context": "omrl.evaluation.given_context:GivenContext",
    "logged": "omrl.evaluation.logged:Logged",
}


def known_protocols() -> dict[str, str]:
    """Names, omrl's own first, and where their classes are."""
    installed = {entry.name: entry.value for entry in metadata.entry_points(group="omrl.protocols")}
    return PROTOCOLS | {name: path for name, path in installed.items() if name not in PROTOCOLS}


def get_protocol(name: str) -> Protocol:
    """The protocol of that name."""
    known = known_protocols()
    if name not in known:
        hint = did_you_mean(name, known)
        raise OmrlError(f"There is no protocol {name!r}{hint}; --protocol is {' or '.join(known)}.")
    module, _, attribute = known[name].partition(":")
    try:
        found = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise OmrlError(f"The protocol {name!r} cannot be loaded ({error}).") from error
    if not isinstance(found, Protocol):
        raise OmrlError(f"{known[name]} is not an omrl.evaluation.protocol.Protocol.")
    return found
