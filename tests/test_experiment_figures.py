"""The figures of the paper's experiments: nothing lies on anything else, and axes say where they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from omrl.drawing import studies as drawing
from omrl.reporting.gather import Curve
from omrl.studies.definitions import experiments, get_scale

CURVES = ("return", "return-log", "q")
NOTE = get_scale("small").note


def drawn(monkeypatch, experiment, note=NOTE, end=300_000, points=12, size=1.0) -> dict[str, Any]:
    """Every figure of an experiment on made-up outcomes."""
    rng, outcomes, found = np.random.default_rng(0), [], {}
    at = np.linspace(end / points, end, points)
    for data in experiment.data:
        for row in experiment.rows:
            curves = {name: Curve(at, at, size * rng.normal(size=(2, points))) for name in ("return", "q")}
            facts, cell = SimpleNamespace(curves=curves), SimpleNamespace(title=data.title, row=row, data=data)
            mean = {"mean": {"low": 1.0, "value": 2.0, "high": 4.0}}
            outcomes.append(SimpleNamespace(cell=cell, facts=facts, run=Path(data.title, row.label), summary=mean))
    z = rng.normal(size=(5, 6, 3))
    seen = SimpleNamespace(values=np.arange(5.0), z=z, axes=z.reshape(-1, 3), flat=z.reshape(-1, 3)[:, :2])
    monkeypatch.setattr(drawing, "finish", lambda figure, folder, name, caption: found.setdefault(name, figure))
    drawing.draw(experiment, outcomes, {outcome.run: seen for outcome in outcomes}, Path(), note)
    for figure in found.values():
        figure.draw_without_rendering()
    return found


@pytest.mark.parametrize("name", [name for name, one in experiments().items() if "levels" not in one.figures])
def test_note_legend_and_panels_lie_apart_and_inside(name, monkeypatch):
    experiment = experiments()[name]
    found = drawn(monkeypatch, experiment)
    assert list(found) == list(experiment.figures)
    for kind, figure in found.items():
        note = figure._suptitle
        assert " ".join(note.get_text().split()) == NOTE
        assert [legend.get_texts() != [] for legend in figure.legends] == (
            [True] if kind in (*CURVES, "breadth") else []
        )
        boxes = [part.get_window_extent() for part in (note, *figure.legends)]
        if kind == "embedding-3d":  # the axes' box is that of the cube's corners, which nothing is drawn in
            boxes += [axes.title.get_window_extent() for axes in figure.axes]
        else:
            boxes += [axes.get_tightbbox() for axes in figure.axes]
        for i, one in enumerate(boxes):
            assert one.x0 >= -1 and one.y0 >= -1 and one.x1 <= figure.bbox.x1 + 1 and one.y1 <= figure.bbox.y1 + 1, kind
            assert not any(one.overlaps(other) for other in boxes[i + 1 :]), kind


def test_without_a_note_there_is_none(monkeypatch):
    found = drawn(monkeypatch, experiments()["dml-vs-bellman"], note="")
    assert all(figure._suptitle is None for figure in found.values())


@pytest.mark.parametrize(
    ("end", "points", "some"),
    [
        (153_600, 12, ["20k", "50k", "100k"]),
        (300_000, 2, ["200k", "300k"]),
        (300_000, 4, ["100k", "200k"]),
        (26_000, 1, ["20k", "50k"]),
        (100_000_000, 2000, ["100k", "1M", "10M", "100M"]),
    ],
)
def test_a_logarithmic_axis_has_several_labels_at_any_length(end, points, some, monkeypatch):
    experiment = replace(experiments()["comparison-point-robot-wind"], figures=("return-log",))
    axes = drawn(monkeypatch, experiment, end=end, points=points)["return-log"].axes[0]
    low, high = axes.get_xlim()
    places = [at for at in axes.get_xticks() if low <= at <= high]
    labels = axes.xaxis.get_major_formatter().format_ticks(places)
    assert set(some) <= set(labels) and len(labels) <= 8
    assert set(axes.xaxis.get_minor_formatter().format_ticks(axes.get_xticks(minor=True))) <= {""}


@pytest.mark.parametrize(
    ("size", "some"), [(1.0, ["0", "1", "2"]), (20.0, ["0", "20", "40"]), (1e7, ["−1M", "0", "1M"])]
)
def test_q_has_round_labels_whatever_its_size(size, some, monkeypatch):
    axes = drawn(monkeypatch, experiments()["q-divergence"], size=size)["q"].axes[0]
    low, high = axes.get_ylim()
    labels = axes.yaxis.get_major_formatter().format_ticks([at for at in axes.get_yticks() if low <= at <= high])
    assert set(some) <= set(labels) and max(map(len, labels)) <= 5 and 3 <= len(labels) <= 14


def test_rows_of_the_comparisons_look_the_same_in_every_figure():
    seen = {}
    for one in experiments().values():
        compared = one.name.startswith("comparison-") or one.name in ("dml-vs-bellman", "expert-data")
        for row, look in zip(one.rows, drawing.looks(one), strict=True):
            assert not compared or seen.setdefault(row.label, look) == look, (one.name, row.label)
    assert len({*seen.values()}) == len(seen) == 9


@pytest.mark.parametrize("name", [name for name, one in experiments().items() if "levels" not in one.figures])
def test_rows_of_a_figure_look_different_and_those_of_an_algorithm_have_one_colour(name):
    experiment = experiments()[name]
    found = drawing.looks(experiment)
    assert len({*found}) == len(found)
    of_one = [row.algorithm for row in experiment.rows].count("focal") == len(found) > drawing.OF_A_COLOUR
    pairs = {(row.algorithm, look[0]) for row, look in zip(experiment.rows, found, strict=True)}
    assert len(pairs) == (len(found) if of_one else len({row.algorithm for row in experiment.rows}))


def test_rows_of_an_algorithm_of_one_s_own_have_a_colour_of_their_own():
    experiment = experiments()["comparison-ant-fwd-back"]
    more = replace(experiment.rows[0], label="Mine", algorithm="mine:Mine")
    *theirs, mine = drawing.looks(replace(experiment, rows=(*experiment.rows, more)))
    assert theirs == drawing.looks(experiment) and mine[0] not in {colour for colour, _ in theirs}


def test_the_figure_of_breadths_has_every_row_at_every_breadth(monkeypatch):
    experiment = experiments()["breadth"]
    axes = drawn(monkeypatch, experiment)["breadth"].axes[0]
    widths = [data.action_std for data in experiment.data]
    assert [box.get_label() for box in axes.containers] == [row.label for row in experiment.rows]
    for box in axes.containers:
        line, _, bars = box.lines
        assert line.get_xdata().tolist() == sorted(widths) and set(line.get_ydata()) == {2.0}
        assert [segment[:, 1].tolist() for segment in bars[0].get_segments()] == [[1.0, 4.0]] * len(widths)


def test_in_space_are_the_numbers_of_an_embedding_that_say_most():
    rng = np.random.default_rng(0)
    corner = rng.choice([-1.0, 1.0], size=(50, 3)) * [1.0, 0.9, 0.8]
    # The first twice, mirrored, and two that hardly vary.
    z = np.column_stack([0.01 * rng.normal(size=50), corner[:, 0], -0.99 * corner[:, 0], corner[:, 1:], np.ones(50)])
    assert np.array_equal(drawing._telling(z.reshape(10, 5, 6)), corner.T)
    assert np.array_equal(drawing._telling(z[:, 3:4]), np.stack([z[:, 3], np.zeros(50), np.zeros(50)]))
    assert drawing._telling(np.zeros((4, 5))).shape == (3, 4)
