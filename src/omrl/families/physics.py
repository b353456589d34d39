"""Everything that touches MuJoCo: loading it, its models, stepping them in a pool of threads, drawing them.

This module imports mujoco and gymnasium; it is loaded when the first simulator of a body is made, and not before.
"""

from __future__ import annotations

import atexit
import copy
import ctypes
import os
import sys
import threading
import weakref
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omrl.errors import OmrlError, needs_extra
from omrl.families.batched import View

RENDERING_PACKAGES = "libegl1 libopengl0 libgl1-mesa-dri"
PICTURE_SIZE = 480
LARGEST_STATE = 1e10  # MuJoCo's own limit (mjMAXVAL): a larger position or velocity is an instability


def _headless() -> bool:
    """Whether windows cannot be had."""
    return sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _choose_gl_backend() -> None:
    """Without a display only EGL can draw, and mujoco reads MUJOCO_GL once, while it is imported.

    Not where libEGL is missing: `import mujoco` itself would fail there, and stepping needs no OpenGL.
    """
    if not _headless() or os.environ.get("MUJOCO_GL"):
        return
    try:
        ctypes.CDLL("libEGL.so.1")
    except OSError:
        return
    os.environ["MUJOCO_GL"] = "egl"


_choose_gl_backend()

with needs_extra("sim", "Simulating this family"):
    # The models come from gymnasium.
    import gymnasium
    import mujoco
    from mujoco import rollout

_quiet_lock = threading.Lock()
_quiet_steps = 0
_outer_handler: Any = None


@contextmanager
def _no_warning_files() -> Iterator[None]:
    """Keep MuJoCo from printing an instability and writing MUJOCO_LOG.TXT into the working folder.

    The handler is one for the whole process: count the steps under way in all threads, and put back whatever was
    there after the last of them.
    """
    global _quiet_steps, _outer_handler
    with _quiet_lock:
        if _quiet_steps == 0:
            _outer_handler = mujoco.get_mju_user_warning()
            mujoco.set_mju_user_warning(lambda message: None)
        _quiet_steps += 1
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_steps -= 1
            if _quiet_steps == 0:
                mujoco.set_mju_user_warning(_outer_handler)


def load_model(file: str) -> mujoco.MjModel:
    """A model that gymnasium ships, compiled."""
    tree = ElementTree.parse(Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / file)
    # MuJoCo 4 warns of `settotalmass` and will drop it; scaling the compiled model gives the same numbers.
    compiler = tree.getroot().find("compiler")
    total_mass = None if compiler is None else compiler.attrib.pop("settotalmass", None)
    with _no_warning_files():
        model = mujoco.MjModel.from_xml_string(ElementTree.tostring(tree.getroot(), encoding="unicode"))
        if total_mass is not None:
            mujoco.mj_setTotalmass(model, float(total_mass))
            recompute_constants(model)
    # Each body is one tree, so one island: looking for islands gives the same numbers, 3 to 10 % later. (MuJoCo 3.3
    # starts without looking, and has no such flag.)
    model.opt.disableflags |= getattr(mujoco.mjtDisableBit, "mjDSBL_ISLAND", 0)
    return model


def recompute_constants(model: mujoco.MjModel) -> None:
    """Bring what MuJoCo derives from masses and inertias at compile time up to date with them."""
    mujoco.mj_setConst(model, mujoco.MjData(model))


class Engine:
    """Steps one MjModel per environment in a persistent pool of threads."""

    def __init__(self, models: Sequence[mujoco.MjModel], threads: int, frame_skip: int) -> None:
        model = models[0]
        self._models = list(models)
        # A pool of one thread would only add a hand-over to every call.
        self._threads = threads if threads > 1 else 0
        self._pool = rollout.Rollout(nthread=self._threads)
        self._data = [mujoco.MjData(model) for _ in range(max(1, self._threads))]
        self._frame_skip = frame_skip
        # Time counts from 0 in every control step, so that a step which MuJoCo broke off (it resets the clock and the
        # body when a state is not finite) is seen by its clock.
        self._full_time = (frame_skip - 0.5) * model.opt.timestep
        self._start = np.zeros((len(models), 1 + model.nq + model.nv))
        self._path = np.zeros((len(models), frame_skip, 1 + model.nq + model.nv))
        self._control = np.zeros((len(models), frame_skip, model.nu))

    def advance(
        self, state: NDArray[np.float64], actions: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The states [N, nq + nv] after one control step, and which environments broke down and kept their old one."""
        self._start[:, 1:] = state
        self._control[:] = actions[:, None]
        with _no_warning_files():
            self._pool.rollout(
                self._models,
                self._data,
                self._start,
                self._control,
                skip_checks=True,
                nstep=self._frame_skip,
                state=self._path,
            )
        clock = self._path[:, -1, 0]
        after = self._path[:, -1, 1:].copy()
        if clock.min() > self._full_time and np.abs(after).max() <= LARGEST_STATE:
            return after, np.zeros(len(after), dtype=np.bool_)
        unstable = ~((clock > self._full_time) & (np.abs(after) <= LARGEST_STATE).all(axis=1))
        after[unstable] = state[unstable]
        return after, unstable

    def close(self) -> None:
        self._pool.close()


class MujocoPainter:
    """Draws a body from the side, with a camera that follows its torso."""

    def __init__(self, model: mujoco.MjModel, view: View) -> None:
        self._model = copy.copy(model)  # the physics keeps the looks it had
        self._data = mujoco.MjData(self._model)
        self._soften_floor()
        self._model.vis.global_.offwidth = self._model.vis.global_.offheight = PICTURE_SIZE
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
        self._camera.trackbodyid = self._model.body("torso").id
        self._camera.azimuth, self._camera.elevation, self._camera.distance = 90.0, view.elevation, view.distance
        backend = os.environ.get("MUJOCO_GL", "")
        try:
            if _headless() and backend in ("", "glfw"):
                # GLFW would not raise an error but end the process.
                raise OSError("there is no display")
            self._renderer = mujoco.Renderer(self._model, PICTURE_SIZE, PICTURE_SIZE)
        except Exception as error:  # each backend fails in its own way: ImportError, AttributeError, FatalError, ...
            raise OmrlError(
                f"Drawing MuJoCo needs OpenGL, which failed with MUJOCO_GL={backend!r} ({error}); without a display, "
                f"install its libraries (Debian: apt-get install {RENDERING_PACKAGES}) and set MUJOCO_GL=egl before "
                f"mujoco is imported."
            ) from error
        if not _open_painters:
            # mujoco ends OpenGL at exit; what is registered after that runs before it.
            atexit.unregister(_close_painters)
            atexit.register(_close_painters)
        _open_painters.add(self)

    def _soften_floor(self) -> None:
        """The models' black and white mirror of a floor draws the eye away from the body."""
        self._model.mat_reflectance[:] = 0.0
        # A narrower shadow map: the default one streaks the floor at the models' large extent.
        self._model.vis.map.shadowclip = 0.3
        floor = self._model.texture("texplane").id
        first = self._model.tex_adr[floor]
        texels = self._model.tex_data[first : first + 3 * self._model.tex_width[floor] * self._model.tex_height[floor]]
        texels[:] = 110 + texels // 3

    def paint(self, states: Sequence[NDArray[np.float64]]) -> NDArray[np.uint8]:
        self._data.qpos[:] = states[-1][: self._model.nq]
        self._data.qvel[:] = states[-1][self._model.nq :]
        mujoco.mj_forward(self._model, self._data)
        self._renderer.update_scene(self._data, self._camera)
        picture: NDArray[np.uint8] = self._renderer.render()
        return picture

    def close(self) -> None:
        self._renderer.close()


_open_painters: weakref.WeakSet[MujocoPainter] = weakref.WeakSet()


def _close_painters() -> None:
    """For environments nobody closed: their contexts would complain if they outlived OpenGL."""
    for painter in list(_open_painters):
        painter.close()
