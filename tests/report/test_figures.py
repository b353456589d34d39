"""Single figures of the report, where runs are short or tasks few, and the words and numbers around them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt

from omrl.drawing import runs as figures
from omrl.drawing.style import amounts, style
from omrl.families import Task
from omrl.reporting import gather, page, tables
from omrl.reporting.probe import Embedding, Probe

DOCS = Path(__file__).resolve().parents[2] / "docs"
ALGORITHM_PAGES = ("focal", "batch-pearl", "contextual-bcq", "mbml")


@pytest.fixture(autouse=True)
def in_style():
    with style():
        yield


@pytest.fixture(scope="module")
def facts(made):
    return gather.gather([made.tested])[0]


@pytest.fixture
def one_task(facts):
    """The same run by a single test task and a single seed, with a return just below 0."""
    scores = gather.Scores("test", facts.scores.tasks[:1], np.full((1, 1, 2), -1e-4))
    return replace(facts, scores=scores, summary=gather._summary(scores, facts.dataset, facts.step))


@pytest.fixture
def embedding():
    z = np.random.default_rng(0).uniform(-1, 1, (3, 8, 5))
    return Embedding(
        tasks=tuple(Task(str(i), {"velocity": float(i)}) for i in range(3)),
        unseen=(True, False, False),
        label="velocity (m/s)",
        values=np.arange(3.0),
        context=4,
        z=z,
        axes=z.reshape(-1, 5)[:, :3],
        shares=np.array([0.5, 0.3, 0.1]),
        flat=z.reshape(-1, 5)[:, :2],
        same=np.array([0.1, 0.2]),
        different=np.array([0.9, 1.9]),
        esr=[1.0],
        rms=[1.2],
    )


# -- figures -----------------------------------------------------------------------------------------------------------


def test_every_metric_that_the_pages_name_has_a_title_and_a_unit():
    named = set()
    for name in ALGORITHM_PAGES:
        section = (DOCS / f"{name}.md").read_text().split("## Metrics")[1].split("\n## ")[0]
        rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        named |= {metric for row in rows for metric in re.findall(r"`(\w+)`", row)}
    assert {"dml_loss", "kl", "vae_loss", "relabelled", "alive"} <= named
    assert named - {"alive"} == set(figures.METRICS)  # `alive` is a note on the page, no figure
    titles = [title for title, _ in figures.METRICS.values()]
    assert len(set(titles)) == len(titles) and all(title[0].isupper() for title in titles)
    assert figures.metric_names("own_loss") == ("own loss", "value")


def test_ticks_below_one_are_plain_numbers():
    assert amounts().format_ticks([1e-5, 0.001, 0.1, 0.0, 1, 1500, 2e6]) == (
        ["1e-05", "0.001", "0.1", "0", "1", "1.5k", "2M"]
    )


def test_few_updates_are_counted_in_whole_ones(facts):
    curve = gather.Curve(np.array([1, 2, 3]), np.array([1, 2, 3]), np.array([[1e-4, 0.1, 3.0]]))
    axes = figures.learning_curve([replace(facts, curves={"critic_loss": curve})], "critic_loss").axes[0]
    assert all(at == round(at) for at in axes.get_xticks())
    assert axes.get_yscale() == "log" and axes.yaxis.get_major_formatter()(0.1) == "0.1"
    assert (axes.get_title(loc="left"), axes.get_ylabel()) == figures.METRICS["critic_loss"]


def test_a_single_test_task_has_lines_of_expert_and_random_data(one_task):
    axes = figures.task_returns([one_task], one_task.dataset).axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    for name, height in (("expert data", 10.0), ("untrained policy", 0.0)):
        x, y = lines[name].get_data()
        assert x.min() < -0.3 and x.max() > 0.3 and set(y) == {height}


def test_the_line_of_several_tasks_steps_half_way_between_them(facts):
    axes = figures.task_returns([facts], facts.dataset).axes[0]
    line = next(line for line in axes.get_lines() if line.get_label() == "best possible")
    best = [gather.best_return(facts.family, facts.dataset.select([name]).tasks[0]) for name in facts.scores.tasks]
    assert line.get_drawstyle() == "steps-post"
    np.testing.assert_array_equal(line.get_xdata(), [-0.5, 0.5, 1.5])
    assert sorted(line.get_ydata()[:2]) == sorted(best)


def test_the_legend_of_distances_is_beside_what_is_drawn(embedding):
    figure = figures.distances(embedding)
    figure.draw_without_rendering()
    (legend,), (axes,) = figure.legends, figure.axes
    assert len(legend.get_texts()) == 3
    assert not legend.get_window_extent().overlaps(axes.get_tightbbox())
    assert legend.get_window_extent().x0 >= 0 and legend.get_window_extent().x1 <= figure.bbox.x1


def test_space_has_a_light_grid_and_few_ticks(embedding):
    figure = figures.embedding_space(embedding)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        assert axis._axinfo["grid"]["color"] == "#d0d0d0"
        assert len(axis.get_major_ticks()) <= 7  # the first and the last may lie outside
        box = axis.label.get_window_extent()
        assert box.y0 >= 0 and box.x0 >= 0 and box.x1 <= figure.axes[1].get_window_extent().x0


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (40.0, 300.0), (0.001, -0.5)])
def test_the_view_of_z_holds_every_dot_and_is_filled_by_them(embedding, scale, shift):
    z = embedding.z * scale + shift
    view = page._view(replace(embedding, z=z, axes=z.reshape(-1, 5)[:, :3], shares=None))["space"]
    dots = np.reshape(view["points"], (-1, 3))
    assert np.abs(dots).max() == pytest.approx(view["half"], rel=1e-3)
    ranges = np.ptp(dots, axis=0)  # one scale for all axes
    np.testing.assert_allclose(
        ranges / ranges.max(), (own := np.ptp(z.reshape(-1, 5)[:, :3], axis=0)) / own.max(), atol=2e-3
    )


def test_tasks_are_counted_in_whole_ones(facts, monkeypatch):
    monkeypatch.setattr(figures, "level_returns", lambda _: {"mixed": np.array([1.0, 2.0])})
    axes = figures.data_levels(facts.dataset).axes[0]
    assert all(at == round(at) for at in axes.get_yticks())


# -- words and numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "words"), [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks"), (1200, "1,200 tasks")])
def test_one_is_counted_as_one(number, words):
    assert gather.quantity(number, "task") == words


def test_zero_has_no_sign_and_a_single_task_is_neither_best_nor_worst(one_task):
    table = tables.summary([one_task], [Probe(None, "", None, "")])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["IQM"], row["normalised"]) == ("0.00", "0.000")
    assert "worst task" not in row and "best task" not in row
    card = page._card(one_task)
    assert "mean return on 1 test task, 1 seed;" in card and ">0.00<" in card
    assert ">0%<" in card and "-0" not in card


def test_the_best_and_the_worst_task_are_named_where_they_differ(facts):
    scores = replace(facts.scores, returns=np.stack([np.full((2, 3), -0.001), np.full((2, 3), -2.0)], axis=1))
    found = replace(facts, scores=scores, summary=gather._summary(scores, facts.dataset, facts.step))
    table = tables.summary([found], [Probe(None, "", None, "")])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["worst task"], row["best task"]) == (f"-2.00 ({scores.tasks[1]})", f"0.00 ({scores.tasks[0]})")


def test_markdown_shows_the_cells_as_they_are():
    odd = ("A - B > 0", "<b>x</b>", "a & b", "&gt;", "a | b", "a\\b", "> quoted")
    text = "\n".join(f"| {' | '.join(map(tables._markdown, line))} |" for line in (odd, ["---"] * len(odd), odd))
    assert "| A - B > 0 |" in text
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    cells = [token.children for token in tokens if token.type == "inline"]
    assert tuple("".join(child.content for child in cell) for cell in cells) == odd * 2
    assert not [child for cell in cells for child in cell if child.type == "html_inline"]


def test_a_heading_is_split_like_its_numbers():
    html = tables.Table("x", ("run", "mean return [95 %]"), (("a [b]", "1.00 [0.50, 1.50]"),)).html()
    assert "mean return<small>[95 %]</small>" in html and "1.00<small>[0.50, 1.50]</small>" in html
    assert "a [b]" in html
