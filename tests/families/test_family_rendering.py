from __future__ import annotations

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from family_helpers import BODIES

from omrl.errors import OmrlError
from omrl.families import FAMILIES
from omrl.families.painters import ROBOT, Canvas


@pytest.fixture
def opengl() -> None:
    """Skip where this machine cannot draw MuJoCo at all."""
    env = FAMILIES["ant-fwd-back"].make(FAMILIES["ant-fwd-back"].tasks[0], render_mode="rgb_array")
    env.reset(seed=0)
    try:
        env.render()
    except OmrlError as error:
        pytest.skip(f"no OpenGL here: {error}")
    finally:
        env.close()


def picture(env) -> np.ndarray:
    image = env.render()
    assert image.shape == (480, 480, 3) and image.dtype == np.uint8
    return image.astype(int)


def changed(before: np.ndarray, after: np.ndarray) -> int:
    return int((np.abs(before - after).max(axis=-1) > 30).sum())


@pytest.mark.parametrize("name", ["sparse-point-robot", "point-robot-wind"])
def test_point_robots_are_drawn(name):
    family = FAMILIES[name]
    env = family.make(family.tasks[30], render_mode="rgb_array")
    env.reset(seed=0)
    start = picture(env)
    env.step(np.array([1.0, -1.0], dtype=np.float32))
    assert changed(start, picture(env)) > 50  # the robot moved and left a trail
    env.reset(seed=0)
    np.testing.assert_array_equal(picture(env), start)
    other = family.make(family.tasks[10], render_mode="rgb_array")
    other.reset(seed=0)
    assert changed(start, picture(other)) > 200  # another goal, another wind
    env.close()


def test_a_robot_far_away_stays_in_the_picture():
    env = gymnasium.make("omrl/SparsePointRobot-v0", render_mode="rgb_array", max_episode_steps=300)
    env.reset(seed=0)
    for _ in range(200):
        env.step(np.array([1.0, 0.2], dtype=np.float32))
    assert (np.abs(picture(env) - ROBOT).max(axis=-1) < 40).sum() > 5


def test_a_canvas_has_smooth_edges_and_y_up():
    canvas = Canvas(centre=(0.0, 0.0), half_width=1.0)
    canvas.disc(np.array([0.5, 0.5]), 0.25, (0, 0, 0))
    canvas.disc(np.array([40.0, 0.0]), 0.25, (0, 0, 0))  # outside: nothing to draw
    image = canvas.picture().astype(int)
    assert image[120, 360].max() == 0 and image[360, 120].min() > 240
    black = (255 - image[..., 0]).sum() / 255 * 250 / 245
    assert black == pytest.approx(np.pi * 60**2 + 480**2 * 5 / 255, rel=0.03)
    assert len(np.unique(image[..., 0])) > 20


@pytest.mark.parametrize("name", BODIES)
def test_bodies_are_drawn(name, opengl):
    family = FAMILIES[name]
    env = family.make(family.tasks[-1], render_mode="rgb_array")
    env.reset(seed=0)
    start = picture(env)
    assert start.std() > 15  # not an empty frame
    middle = start[120:400, 80:400]
    assert ((middle[..., 0] - middle[..., 2]) > 40).sum() > 400  # the body, brown, in view
    for _ in range(5):
        env.step(np.ones(family.act_dim, dtype=np.float32))
    assert changed(start, picture(env)) > 500
    env.close()


def test_drawing_does_not_touch_the_physics(opengl):
    family = FAMILIES["half-cheetah-vel"]
    drawn, plain = (family.make(family.tasks[0], render_mode=mode) for mode in ("rgb_array", None))
    drawn.reset(seed=0)
    plain.reset(seed=0)
    assert plain.render() is None
    for _ in range(20):
        action = np.full(6, 0.3, dtype=np.float32)
        drawn.render()
        np.testing.assert_array_equal(drawn.step(action)[0], plain.step(action)[0])


@pytest.mark.filterwarnings("ignore:.*infinity")
def test_check_env_renders(family, opengl):
    from gymnasium.utils.env_checker import check_env

    check_env(gymnasium.make(family.env_id, render_mode="rgb_array").unwrapped)


def test_without_opengl_the_error_names_the_packages(monkeypatch):
    from omrl.families import physics

    def broken(*args, **kwargs):
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")

    monkeypatch.setattr(physics.mujoco, "Renderer", broken)
    env = gymnasium.make("omrl/AntFwdBack-v0", render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(OmrlError) as caught:
        env.render()
    assert "apt-get install libegl1 libopengl0 libgl1-mesa-dri" in str(caught.value)
    assert "eglQueryString" in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="EGL is chosen on Linux alone")
@pytest.mark.parametrize(
    ("given", "display", "library", "chosen"),
    [
        (None, None, True, "egl"),
        (None, ":0", True, None),
        ("osmesa", None, True, "osmesa"),
        (None, None, False, None),  # `import mujoco` would fail with MUJOCO_GL=egl and no libEGL
    ],
)
def test_which_opengl_backend_is_chosen(monkeypatch, given, display, library, chosen):
    from omrl.families import physics

    for name, value in (("MUJOCO_GL", given), ("DISPLAY", display), ("WAYLAND_DISPLAY", None)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)

    def load(name):
        if not library:
            raise OSError(name)

    monkeypatch.setattr(physics.ctypes, "CDLL", load)
    physics._choose_gl_backend()
    assert os.environ.get("MUJOCO_GL") == chosen


def test_the_backend_is_chosen_before_mujoco_is_imported_and_nothing_is_printed(opengl, tmp_path):
    """An environment that nobody closes ends quietly too."""
    program = (
        "import omrl.families as f; family = f.FAMILIES['ant-fwd-back'];"
        "env = family.make(family.tasks[0], render_mode='rgb_array'); env.reset(seed=0);"
        "print(env.render().shape)"
    )
    headless = {key: value for key, value in os.environ.items() if key not in ("MUJOCO_GL", "DISPLAY")}
    done = subprocess.run([sys.executable, "-c", program], env=headless, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(480, 480, 3)\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="windows are always to be had elsewhere")
def test_without_display_and_egl_drawing_is_an_error_and_the_process_lives():
    """GLFW without a display ends the process at the second try, which no `except` sees."""
    program = (
        "import omrl.families as f; family = f.FAMILIES['ant-fwd-back'];"
        "env = family.make(family.tasks[0], render_mode='rgb_array'); env.reset(seed=0)\n"
        "for _ in range(2):\n"
        "    try: env.render()\n"
        "    except Exception as error: print(type(error).__name__, 'there is no display' in str(error))\n"
    )
    names = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
    headless = {key: value for key, value in os.environ.items() if key not in names} | {"MUJOCO_GL": "glfw"}
    done = subprocess.run([sys.executable, "-c", program], env=headless, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "OmrlError True\n" * 2)
