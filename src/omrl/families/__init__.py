"""The paper's six task families: `FAMILIES` by name, and their gymnasium ids; other packages' by `get_family`.

Importing this loads numpy alone; gymnasium and mujoco come with the first environment or simulator.
"""

from __future__ import annotations

from importlib import metadata

from omrl.errors import OmrlError, did_you_mean
from omrl.families.ant import ANT_FWD_BACK
from omrl.families.family import Split, Task, TaskFamily
from omrl.families.half_cheetah import HALF_CHEETAH_FWD_BACK, HALF_CHEETAH_VEL
from omrl.families.point_robot import POINT_ROBOT_WIND, SPARSE_POINT_ROBOT
from omrl.families.walker import WALKER_2D_PARAMS

__all__ = ["FAMILIES", "Split", "Task", "TaskFamily", "get_family", "register"]

FAMILIES: dict[str, TaskFamily] = {
    "sparse-point-robot": SPARSE_POINT_ROBOT,
    "point-robot-wind": POINT_ROBOT_WIND,
    "half-cheetah-vel": HALF_CHEETAH_VEL,
    "half-cheetah-fwd-back": HALF_CHEETAH_FWD_BACK,
    "ant-fwd-back": ANT_FWD_BACK,
    "walker-2d-params": WALKER_2D_PARAMS,
}


def get_family(name: str) -> TaskFamily:
    """The family of that name: omrl's own, or one that an installed package names by an entry point `omrl.families`."""
    if name in FAMILIES:
        return FAMILIES[name]
    installed = metadata.entry_points(group="omrl.families")
    if name not in installed.names:
        known = [*FAMILIES, *sorted(installed.names)]
        raise OmrlError(f"There is no family {name!r}{did_you_mean(name, known)}; the families are {', '.join(known)}.")
    try:
        found = installed[name].load()
    except (ImportError, AttributeError) as error:
        raise OmrlError(f"The family {name!r} cannot be loaded ({error}).") from error
    if not isinstance(found, TaskFamily) or found.name != name:
        raise OmrlError(f"{installed[name].value} is not an omrl.TaskFamily of the name {name!r}.")
    return found


def register() -> None:
    """Make the families' ids known to gymnasium; calling it again changes nothing."""
    for family in FAMILIES.values():
        if family.env_id:
            family.register()
