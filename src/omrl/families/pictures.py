"""A picture of a family: one of its environments after a few random steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from omrl.commands.families import Render
from omrl.errors import needs_extra
from omrl.families import FAMILIES
from omrl.families.family import TaskFamily

with needs_extra("sim", "A picture of a family"):
    import imageio.v3 as imageio

STEPS = 12


def run(args: Render) -> None:
    """The command `omrl render`."""
    for family in FAMILIES.values():
        print(draw(family, args.out))


def draw(family: TaskFamily, folder: Path) -> Path:
    """Write FAMILY.png into `folder` and return its path."""
    env = family.make(family.tasks[len(family.tasks) // 2], render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(STEPS):
        env.step(env.action_space.sample())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{family.name}.png"
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    imageio.imwrite(path, picture)
    env.close()
    return path
