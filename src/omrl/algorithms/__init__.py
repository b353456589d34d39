"""The algorithms by name. A name is imported when it is used; `module:Class` names one of the user's own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from omrl.errors import OmrlError, did_you_mean

ALGORITHMS = {
    "focal": "omrl.algorithms.focal:FOCAL",
    "batch-pearl": "omrl.algorithms.batch_pearl:BatchPEARL",
    "contextual-bcq": "omrl.algorithms.contextual_bcq:ContextualBCQ",
    "mbml": "omrl.algorithms.mbml:MBML",
    "contextual-bc": "omrl.algorithms.contextual_bc:ContextualBC",
}


def get_algorithm(name: str) -> Any:
    """The class of that name, which has the parts that `omrl.algorithms.focal.FOCAL` has."""
    path = ALGORITHMS.get(name, name)
    module, separator, attribute = path.partition(":")
    if not separator:
        hint = did_you_mean(name, ALGORITHMS)
        raise OmrlError(
            f"There is no algorithm {name!r}{hint}; there are {', '.join(ALGORITHMS)}, or module:Class of your own."
        )
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise OmrlError(f"The algorithm {name!r} cannot be loaded ({error}).") from error
    missing = [part for part in ("Config", "build") if not hasattr(found, part)]
    if missing:
        raise OmrlError(f"{name!r} is not an algorithm: it has no {' and no '.join(missing)}.")
    return found
