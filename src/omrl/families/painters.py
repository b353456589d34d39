"""Pictures of the point robots, drawn with numpy alone.

Every shape is a signed distance in pixels, and the half pixel on either side of its edge is blended: smooth edges
without a drawing library.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SIZE = 480
Colour: TypeAlias = tuple[int, int, int]

PAPER: Colour = (250, 250, 247)
GRID: Colour = (232, 233, 230)
INK: Colour = (66, 72, 84)
GOAL: Colour = (46, 139, 99)
ROBOT: Colour = (222, 96, 48)
TRAIL: Colour = (240, 163, 120)
WIND: Colour = (158, 188, 220)

WINDY_CENTRE = (0.5, 0.0)  # half way to the goal


class Canvas:
    """A square picture of a square window of the plane; lengths are in the plane's units, widths in pixels."""

    def __init__(self, centre: Sequence[float], half_width: float) -> None:
        self.half_width = half_width
        self._scale = SIZE / (2.0 * half_width)
        self._corner = np.array([centre[0] - half_width, centre[1] + half_width])  # top left
        self._pixels = np.tile(np.array(PAPER, dtype=np.float64), (SIZE, SIZE, 1))
        self._rows, self._columns = np.mgrid[0.5:SIZE, 0.5:SIZE]

    def picture(self) -> NDArray[np.uint8]:
        return np.round(self._pixels).astype(np.uint8)

    def disc(self, centre: NDArray[np.float64], radius: float, colour: Colour, opacity: float = 1.0) -> None:
        x, y = self._to_pixels(centre)
        reach = radius * self._scale
        window = self._window([x - reach, y - reach], [x + reach, y + reach])
        self._blend(window, self._distance_to(window, x, y) - reach, colour, opacity)

    def ring(self, centre: NDArray[np.float64], radius: float, width: float, colour: Colour) -> None:
        x, y = self._to_pixels(centre)
        reach = radius * self._scale
        window = self._window([x - reach - width, y - reach - width], [x + reach + width, y + reach + width])
        self._blend(window, np.abs(self._distance_to(window, x, y) - reach) - width / 2, colour)

    def line(
        self, start: NDArray[np.float64], end: NDArray[np.float64], width: float, colour: Colour, opacity: float = 1.0
    ) -> None:
        (x0, y0), (x1, y1) = self._to_pixels(start), self._to_pixels(end)
        dx, dy = x1 - x0, y1 - y0
        window = self._window([min(x0, x1) - width, min(y0, y1) - width], [max(x0, x1) + width, max(y0, y1) + width])
        columns, rows = self._columns[window] - x0, self._rows[window] - y0
        along = np.clip((columns * dx + rows * dy) / max(dx * dx + dy * dy, 1e-12), 0.0, 1.0)
        self._blend(window, np.hypot(columns - along * dx, rows - along * dy) - width / 2, colour, opacity)

    def arrow(self, start: NDArray[np.float64], along: NDArray[np.float64], width: float, colour: Colour) -> None:
        end = start + along
        back = -0.3 * along
        side = 0.55 * np.array([-back[1], back[0]])
        self.line(start, end, width, colour)
        self.line(end, end + back + side, width, colour)
        self.line(end, end + back - side, width, colour)

    def _to_pixels(self, point: NDArray[np.float64]) -> tuple[float, float]:
        return (
            float(point[0] - self._corner[0]) * self._scale,
            float(self._corner[1] - point[1]) * self._scale,
        )

    def _window(self, low: Sequence[float], high: Sequence[float]) -> tuple[slice, slice]:
        """The rows and columns a shape can touch: the rest need not be computed."""
        columns, rows = (
            slice(max(0, int(first) - 1), max(0, min(SIZE, int(last) + 2)))
            for first, last in zip(low, high, strict=True)
        )
        return rows, columns

    def _distance_to(self, window: tuple[slice, slice], x: float, y: float) -> NDArray[np.float64]:
        distance: NDArray[np.float64] = np.hypot(self._columns[window] - x, self._rows[window] - y)
        return distance

    def _blend(
        self, window: tuple[slice, slice], distance: NDArray[np.float64], colour: Colour, opacity: float = 1.0
    ) -> None:
        cover = (opacity * np.clip(0.5 - distance, 0.0, 1.0))[..., None]
        self._pixels[window] += cover * (np.array(colour) - self._pixels[window])


def _arena(states: Sequence[NDArray[np.float64]], centre: Sequence[float], half_width: float) -> Canvas:
    """The usual window, or a wider one where the robot has walked out of it; grid lines every 0.5."""
    farthest = max(float(np.abs(state - centre).max()) for state in states)
    half_width = max(half_width, 1.1 * farthest)
    canvas = Canvas(centre, half_width)
    spacing = 0.5 * max(1.0, np.ceil(half_width / 5.0))
    for axis in (0, 1):
        first = np.ceil((centre[axis] - half_width) / spacing) * spacing
        for place in np.arange(first, centre[axis] + half_width, spacing):
            start, end = np.array(centre) - half_width, np.array(centre) + half_width
            start[axis] = end[axis] = place
            canvas.line(start, end, 1.0 if abs(place) > 1e-9 else 2.0, GRID)
    return canvas


def _robot(canvas: Canvas, states: Sequence[NDArray[np.float64]]) -> None:
    size = 0.034 * canvas.half_width  # as large in a wide window as in a narrow one
    for start, end in pairwise(states):
        canvas.line(start, end, 3.0, TRAIL)
    for state in states[:-1]:
        canvas.disc(state, 0.35 * size, ROBOT, opacity=0.7)
    canvas.ring(states[0], 0.8 * size, 2.0, INK)
    canvas.disc(states[-1], 1.25 * size, PAPER)
    canvas.disc(states[-1], size, ROBOT)


class GoalPainter:
    """The half circle the goals lie on, this task's goal with the radius that pays, and the robot's way."""

    def __init__(self, goal: NDArray[np.float64], radius: float) -> None:
        self._goal = goal
        self._radius = radius

    def paint(self, states: Sequence[NDArray[np.float64]]) -> NDArray[np.uint8]:
        canvas = _arena(states, centre=(0.0, 0.4), half_width=1.25)
        for angle in np.linspace(0.0, np.pi, 100):
            canvas.disc(np.array([np.cos(angle), np.sin(angle)]), 0.01, INK, opacity=0.45)
        canvas.disc(self._goal, self._radius, GOAL, opacity=0.2)
        canvas.ring(self._goal, self._radius, 2.0, GOAL)
        canvas.disc(self._goal, 0.03, GOAL)
        _robot(canvas, states)
        return canvas.picture()

    def close(self) -> None:
        """Nothing is held."""


class WindPainter:
    """The goal, the wind as a field of arrows, and the robot's way."""

    def __init__(self, goal: NDArray[np.float64], wind: NDArray[np.float64]) -> None:
        self._goal = goal
        self._wind = wind

    def paint(self, states: Sequence[NDArray[np.float64]]) -> NDArray[np.uint8]:
        canvas = _arena(states, WINDY_CENTRE, half_width=1.0)
        arrow = 5.0 * canvas.half_width * self._wind
        for place in np.ndindex(4, 4):
            middle = WINDY_CENTRE + canvas.half_width * (0.5 * np.array(place) - 0.75)
            canvas.arrow(middle - arrow / 2, arrow, 2.5, WIND)
        canvas.disc(self._goal, 0.07, GOAL, opacity=0.25)
        canvas.ring(self._goal, 0.07, 2.0, GOAL)
        canvas.disc(self._goal, 0.025, GOAL)
        _robot(canvas, states)
        return canvas.picture()

    def close(self) -> None:
        """Nothing is held."""
