"""The algorithms by name. A name is imported when it is used; `module:Class` names one of the user's own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from omrl.errors import OmrlError

ALGORITHMS = {
    "focal": "omrl.algorithms.focal:FOCAL",
    "batch-pearl": "omrl.algorithms.batch_pearl:BatchPEARL",
    "contextual-bcq": "omrl.algorithms.contextual_bcq:ContextualBCQ",
    "mbml": "omrl.algorithms.mbml:MBML",
}


def get_algorithm(name: str) -> Any:
    """The class of that name, which has the parts that `omrl.algorithms.focal.FOCAL` has."""
    path = ALGORITHMS.get(name, name)
    module, separator, attribute = path.partition(":")
    if not separator:
        raise OmrlError(
            f"There is no algorithm {name!r}; there are {', '.join(ALGORITHMS)}, or module:Class of your own."
        )
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise OmrlError(f"The algorithm {name!r} cannot be loaded ({error}).") from error
