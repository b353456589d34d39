"""The algorithms by name, and their presets.

omrl's own have short names, and so have those that another installed package declares under the entry point
`omrl.algorithms`; `module:Class` names one of the user's own. A name is imported when it is used. `algorithm.py` says
what an algorithm is.
"""

from __future__ import annotations

import inspect
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import import_module, metadata
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omrl.errors import OmrlError, did_you_mean

if TYPE_CHECKING:
    from omrl.algorithms.algorithm import Algorithm, MetaConfig

ALGORITHMS = {
    "focal": "omrl.algorithms.focal:FOCAL",
    "batch-pearl": "omrl.algorithms.batch_pearl:BatchPEARL",
    "contextual-bcq": "omrl.algorithms.contextual_bcq:ContextualBCQ",
    "mbml": "omrl.algorithms.mbml:MBML",
    "contextual-bc": "omrl.algorithms.contextual_bc:ContextualBC",
}
# The preset that is taken where none is named, by those that have it for the data's family.
USUAL = "paper"
# The same for logs of no family; what of it depends on the log is in `omrl.learning.own_logs`.
OWN_LOGS = "own-logs"
# Values of these hold for every family of a preset.
EVERY_FAMILY = "every-family"
NO_PRESETS = ("small", "cost", "metrics")


@cache
def known_algorithms() -> Mapping[str, str]:
    """Short names, omrl's own first, and where their classes are; to look through all packages takes milliseconds."""
    installed = {entry.name: entry.value for entry in metadata.entry_points(group="omrl.algorithms")}
    return ALGORITHMS | {name: path for name, path in installed.items() if name not in ALGORITHMS}


def check_trusted(name: str, trust: Collection[str], where: object) -> None:
    """Refuse to import what a file names and nobody vouched for: importing a module runs its code."""
    if name in known_algorithms() or name in trust or ":" not in name:
        return
    module = name.partition(":")[0]
    raise OmrlError(
        f"{where} names the algorithm {name}, and opening it would run the module {module} ({_location(module)}); "
        f"--trust {name} allows it, or trust={name!r} in Python."
    )


@contextmanager
def _working_directory() -> Iterator[None]:
    """Modules of the working directory can be imported, too, after all others.

    Only as long as this lasts: libraries look for many a module that need not be there, and a file of that name which
    lies where somebody works is not theirs.
    """
    sys.path.append("")
    try:
        yield
    finally:
        # The last one: another may have been there before.
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index("")]


def _location(module: str) -> str:
    """Where a module's file is, found without running anything, its packages included."""
    path: Sequence[str] | None = None
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        return "which is no name of one"
    with _working_directory():
        for end in range(1, len(parts) + 1):
            found = PathFinder.find_spec(".".join(parts[:end]), path)
            if found is None:
                return "which is not found"
            path = found.submodule_search_locations
    return str(Path(found.origin).absolute()) if found is not None and found.origin else "a folder of modules"


def get_algorithm(name: str) -> type[Algorithm[MetaConfig]]:
    """The class of that name, imported: the caller's own word, or one that `check_trusted` let pass."""
    known = known_algorithms()
    module, separator, attribute = known.get(name, name).partition(":")
    if not separator:
        hint = did_you_mean(name, known)
        raise OmrlError(
            f"There is no algorithm {name!r}{hint}; there are {', '.join(known)}, or module:Class of your own."
        )
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise OmrlError(f"The algorithm {name!r} cannot be loaded: it is no name of the form module:Class.")
    import_module("omrl.algorithms.algorithm")  # torch, which is not to look for anything in the working directory
    try:
        with nullcontext() if name in known else _working_directory():
            found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise OmrlError(f"The algorithm {name!r} cannot be loaded ({error}).") from error
    return _checked(name, found)


def _checked(name: str, found: object) -> type[Algorithm[MetaConfig]]:
    from omrl.algorithms.algorithm import Algorithm, MetaConfig

    if not (inspect.isclass(found) and issubclass(found, Algorithm)):
        parts = ("Config", "Nets", *sorted(Algorithm.__abstractmethods__))
        missing = [part for part in parts if part not in dir(found)]
        lacks = f"it has no {', '.join(missing)}" if missing else "it is no class that derives from it"
        raise OmrlError(f"{name!r} is not an omrl.Algorithm: {lacks}.")
    missing = [part for part in ("Config", "Nets") if part not in dir(found)] + sorted(found.__abstractmethods__)
    if missing:
        raise OmrlError(f"{name!r} is not a whole algorithm: it has no {', '.join(missing)}.")
    if not (inspect.isclass(found.Config) and issubclass(found.Config, MetaConfig)):
        raise OmrlError(f"{name!r} has a Config that does not derive from omrl.MetaConfig.")
    return found


# -- what stands beside an algorithm: a TOML file of its module's name -------------------------------------------------


def read_preset(algorithm: str, preset: str | None, family: str | None) -> dict[str, object]:
    """What a preset sets for a family: hyperparameters, and the level, rows and updates of the run.

    None is the usual one, or nothing where the algorithm does not have it for this family.
    """
    presets = {name: table for name, table in _beside(algorithm).items() if name not in NO_PRESETS}
    own_logs = presets.pop(OWN_LOGS, {})
    if (preset == OWN_LOGS and own_logs) or (preset is None and family is None):
        return dict(own_logs)
    if preset is None:
        usual = presets.get(USUAL, {})
        return {**usual.get(EVERY_FAMILY, {}), **usual[family]} if family is not None and family in usual else {}
    if family is None:
        raise OmrlError(
            f"The data is of no family, and {preset} is a preset of families: leave out --preset, or give {OWN_LOGS}."
        )
    if family not in presets.get(preset, {}):
        known = [name for name, families in presets.items() if family in families]
        known += [OWN_LOGS] if own_logs else []
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise OmrlError(f"{algorithm} has no preset {preset!r} for {family}; {has}.")
    return {**presets[preset].get(EVERY_FAMILY, {}), **presets[preset][family]}


def about(algorithm: str, what: str) -> Mapping[str, object]:
    """What stands beside an algorithm that is no preset; nothing where it says nothing.

    `small` are sizes for studies at small scale, `cost` what an update takes, `metrics` titles and units for reports.
    """
    return _beside(algorithm).get(what, {})


def _beside(algorithm: str) -> Mapping[str, Mapping[str, Any]]:
    """Tables by name; those of the classes that it derives from are its own too."""
    if algorithm in ALGORITHMS:  # none of these inherits: no need to import torch
        modules = [ALGORITHMS[algorithm].partition(":")[0]]
    else:
        modules = [base.__module__ for base in reversed(get_algorithm(algorithm).__mro__)]
    found: dict[str, Mapping[str, Any]] = {}
    for module in dict.fromkeys(modules):
        found |= _of_module(module)
    return found


@cache
def _of_module(name: str) -> Mapping[str, Mapping[str, Any]]:
    module = sys.modules.get(name)
    origin = getattr(module, "__file__", None) if module else (spec.origin if (spec := find_spec(name)) else None)
    path = Path(origin).with_suffix(".toml") if origin else None
    if path is None or not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise OmrlError(f"{path}, beside {name}, cannot be read ({error}).") from error
