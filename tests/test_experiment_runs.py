"""The paper's experiments done at a tiny size: their data, their runs, and what comes of them."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from omrl.algorithms import about
from omrl.commands.study import PaperRun
from omrl.errors import OmrlError
from omrl.learning import training
from omrl.reporting.tables import NONE
from omrl.runs.records import Scores
from omrl.runs.run import Run
from omrl.studies import execute, planning, running, tabulating
from omrl.studies.definitions import experiments, get_experiment, get_scale, read_study
from omrl.studies.planning import Source, plan
from omrl.studies.running import made, make_data, resolve, train
from test_experiments import ROOT

POLICIES = ROOT / "policies"
TINY = {"seeds": 2, "tasks": 10, "episodes": 2, "steps": 20, "log_every": 2, "eval_every": 10}


# -- data --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def robots(tmp_path_factory):
    """Folder of all data, with ten winds."""
    if not (POLICIES / "point-robot-wind").is_dir():
        pytest.skip("there are no policies")
    root = tmp_path_factory.mktemp("data")
    source = Source("point-robot-wind", tasks=10, episodes=2)
    make_data(source, root / source.folder, POLICIES / "point-robot-wind", "cpu")
    return root


def test_data_that_is_there_is_taken_and_other_data_refused(robots, capsys):
    source = Source("point-robot-wind", tasks=10, episodes=2)
    folder = robots / "small" / "point-robot-wind"
    assert made(source, folder) and not made(source, robots / "elsewhere")
    assert capsys.readouterr().out == ""
    with pytest.raises(OmrlError, match="does not hold 9 tasks of point-robot-wind"):
        made(replace(source, tasks=9), folder)


def test_data_of_a_split_has_its_tasks_alone(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("omrl.studies.running.collect", lambda family, out, **options: asked.append((out, options)))
    for split, folder in (("paper", "walker-2d-params"), ("large", "walker-2d-params-large")):
        source = Source("walker-2d-params", split)
        make_data(source, tmp_path / source.folder, POLICIES / "walker-2d-params", "cpu")
        assert asked[-1][0] == tmp_path / folder and asked[-1][1]["split"] == split


def test_folder_of_a_run_is_named_by_what_decides_its_result(robots):
    data = robots / "small" / "point-robot-wind"
    job = plan(get_experiment("comparison-point-robot-wind"), get_scale("small"))[0].job

    def folder(job, device="cpu"):
        return resolve(job, data, Path("runs"), device)[0].out

    assert re.fullmatch(r"runs/point-robot-wind-focal-[0-9a-f]{10}", str(folder(job)))
    assert folder(job) == folder(replace(job, log_every=7), "auto")
    others = [replace(job, seeds=3), replace(job, steps=5), replace(job, changes=(*job.changes, ("epsilon", 0.2)))]
    assert len({folder(job), *map(folder, others)}) == 4
    # A change to what is the default anyway is the same run.
    assert folder(replace(job, changes=(*job.changes, ("epsilon", 0.1)))) == folder(job)


# -- from data to verdict ----------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch):
    """The small scale, smaller."""
    from omrl.reporting import probe

    small = get_scale("small")
    tiny = {"batch_size": 8, "context_size": 8, "meta_batch": 4}
    first = {"teacher_steps": 4, "reward_steps": 4, "next_obs_steps": 4, "members": 2}

    def smaller(name, what):
        return (
            {**about(name, what), **tiny, **(first if name == "mbml" else {})} if what == "small" else about(name, what)
        )

    monkeypatch.setattr(planning, "about", smaller)
    monkeypatch.setitem(read_study().scales, "small", replace(small, **TINY))
    monkeypatch.setattr(probe, "DRAWS", 6)


def execute_tiny(name, out, data, **options):
    from omrl.studies.execute import execute

    (found,) = execute(
        PaperRun(names=(name,), scale="small", device="cpu", data=data, policies=POLICIES, out=out, **options)
    )
    return found


def test_returns_say_whose_rows_tasks_were_known_by():
    row = {"data": "ants", "row": "FOCAL", "preset": "paper", "level": "mixed", "seeds": 3, "updates": 10}
    row |= {"metrics": {"return": [1.0]}, "mean": {"value": 1.0, "low": 0.0, "high": 2.0}, "iqm": 1.0}
    row |= {"normalised": None, "family": "ant-fwd-back", "context_level": "expert"}
    same = tabulating.returns([row, {**row, "row": "MBML"}])
    assert same.note == "Each task is known by 200 rows logged by the task's own expert."
    assert same.markdown().endswith(f" |\n\n{same.note}\n") and f"<p>{same.note}</p>" in same.html().replace(
        "&#x27;", "'"
    )
    other = tabulating.returns([row, {**row, "data": "pumps", "family": None}])
    assert other.note == (
        "Each task is known by 200 rows logged by the task's own expert (ants); "
        "by 200 rows of the task's own log (pumps)."
    )
    # Where rows of the same data differ, they are named.
    shifted = tabulating.returns([row, {**row, "row": "shifted", "context_level": "mixed"}])
    assert shifted.note == (
        "Each task is known by 200 rows logged by the task's own expert (FOCAL of ants); "
        "by 200 rows logged by the task's own agents, of all levels (shifted of ants)."
    )


def test_returns_by_data_are_a_line_for_each_row():
    rows = [
        {
            **{
                "data": f"sparse-point-robot, std {width}",
                "row": label,
                "family": "sparse-point-robot",
                "context_level": "expert",
            },
            "mean": {"value": value, "low": value - 1, "high": value + 1},
        }
        for width, values in (("0.05", (1.0, 2.0)), ("0.5", (3.0, 4.0)))
        for label, value in zip(("FOCAL", "MBML"), values, strict=True)
    ]
    made = tabulating.by_data(rows)
    assert made.columns == ("row", "std 0.05", "std 0.5")
    assert made.rows == (
        ("FOCAL", "1.00 [0.00, 2.00]", "3.00 [2.00, 4.00]"),
        ("MBML", "2.00 [1.00, 3.00]", "4.00 [3.00, 5.00]"),
    )
    assert made.note.startswith("Mean returns [95 %] of sparse-point-robot. Each task is known by 200 rows")
    assert tabulating.by_data(rows[:2]).columns == ("row", "sparse-point-robot, std 0.05")


def test_returns_in_other_units_are_columns_of_tables_and_raw_scores(tmp_path):
    row = {"data": "robots", "row": "FOCAL", "preset": "paper", "level": "expert", "seeds": 2, "updates": 10}
    row |= {"mean": {"value": 1.0, "low": 0.0, "high": 2.0}, "iqm": 1.0, "normalised": None}
    row |= {"family": "sparse-point-robot", "context_level": "expert", "published": {"return": 2.0}}
    rows = [
        {**row, "metrics": {"return": [1.0, 3.0], "return_in_radii": [0.25, 0.75]}},
        {**row, "row": "MBML", "metrics": {"return": [1.0, 3.0]}},
    ]
    made = tabulating.returns(rows)
    assert made.columns[-1] == "return in radii" and [line[-1] for line in made.rows] == ["0.50", NONE]
    shift = tabulating.shift(rows, [])
    assert "return in radii" in shift.columns and "0.50" in shift.rows[0]

    returns = np.arange(4.0).reshape(2, 1, 2)
    scores = [Scores("test", ("task-0",), returns, units) for units in ({"return_in_radii": returns / 8}, {})]
    outcomes: list[Any] = [
        SimpleNamespace(
            key=("robots", label),
            scores=one,
            facts=SimpleNamespace(config=SimpleNamespace(seed=5, level="expert"), curves={}),
            summary={"context_level": "expert"},
        )
        for label, one in zip(("FOCAL", "MBML"), scores, strict=True)
    ]
    execute._write_raw(outcomes, tmp_path)
    with (tmp_path / "scores.csv").open(newline="") as file:
        raw = [*csv.DictReader(file)]
    assert [one["return"] for one in raw] == ["0", "1", "2", "3"] * 2
    assert [one["return_in_radii"] for one in raw] == ["0", "0.125", "0.25", "0.375", *[""] * 4]


@pytest.mark.thorough
def test_an_experiment_from_data_to_verdict(tiny, robots, tmp_path, capsys, monkeypatch):
    results = execute_tiny("comparison-point-robot-wind", tmp_path, robots)
    folder = tmp_path / "comparison-point-robot-wind"
    assert json.loads((folder / "results.json").read_text()) == json.loads(json.dumps(results))
    for name in ("return", "return-log"):
        assert (folder / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert "these numbers say nothing" in " ".join((folder / "figures" / f"{name}.svg").read_text().split())
    assert len(results["rows"]) == len(get_experiment("comparison-point-robot-wind").rows)
    *lines, blank, note = (folder / "tables" / "returns.md").read_text().splitlines()
    assert len(lines) == 2 + len(results["rows"]) and not blank
    assert note.startswith("Each task is known by 200 rows logged by the task's own ")
    assert (folder / "report" / "index.html").is_file()
    # The table's numbers are those of the raw rows.
    with (folder / "scores.csv").open(newline="") as file:
        raw = [float(row["return"]) for row in csv.DictReader(file) if row["row"] == "MBML"]
    assert len(raw) == 2 * 4 * 10
    (mbml,) = (row for row in results["rows"] if row["row"] == "MBML")
    assert mbml["mean"]["value"] == pytest.approx(np.mean(raw), rel=1e-5)
    assert results["note"] in capsys.readouterr().out
    means = {row["row"]: row["mean"]["value"] for row in results["rows"]}
    compared = [one for claim in results["claims"] for one in claim["comparisons"]]
    assert set(means) - {one["worse"] for one in compared} == {
        "FOCAL",
        "FOCAL, the paper's numbers",
        "FOCAL, dual form",
    }
    for one in compared:
        by_hand = means[one["better"]] - means[one["worse"]]
        assert one["difference"]["value"] == pytest.approx(by_hand, rel=1e-3)  # scores.csv has six digits

    # Again: nothing is trained or tested twice, an interrupted run goes on, and the outcome is the same.
    runs = sorted((tmp_path / "runs").iterdir())
    assert len(runs) == len(results["rows"])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    focal = next(run for run in runs if "-focal-" in run.name)
    (focal / "checkpoints" / "latest").write_text("step-0000016.safetensors\n")
    (focal / "checkpoints" / "step-0000020.safetensors").unlink()
    for path in focal.glob("scores.*"):
        path.unlink()
    monkeypatch.setattr("omrl.studies.execute._page", lambda *_: {})  # it takes longest
    again = execute_tiny("comparison-point-robot-wind", tmp_path, robots)
    assert again == results
    printed = capsys.readouterr().out
    assert (
        printed.count("is trained") == len(runs) - 1
        and printed.count("training ") == 1
        and printed.count("testing ") == 1
    )
    unchanged = {path for path, when in before.items() if path.exists() and path.stat().st_mtime_ns == when}
    assert all(path in unchanged for path in before if focal not in path.parents)


def test_a_run_goes_on_where_its_data_has_moved_to(robots, tmp_path, capsys):
    job = replace(plan(get_experiment("comparison-point-robot-wind"), get_scale("small"))[0].job, steps=20)
    there, moved = robots / "small" / "point-robot-wind", tmp_path / "moved"
    shutil.copytree(there, moved)
    first, then = (resolve(job, data, tmp_path / "runs", "cpu") for data in (there, moved))
    assert first[0].out == then[0].out
    train(*first)
    (first[0].out / "checkpoints" / "latest").write_text("step-0000016.safetensors\n")
    train(*then)
    assert Run.open(first[0].out).config.data == str(moved)
    printed = capsys.readouterr()
    assert printed.out.count("training ") == 2 and "goes on at update 16" in printed.err


def test_a_run_of_which_no_seed_is_left_is_an_outcome_too(robots, tmp_path, capsys, monkeypatch):
    job = replace(plan(get_experiment("comparison-point-robot-wind"), get_scale("small"))[0].job, steps=20)
    resolved = resolve(job, robots / "small" / "point-robot-wind", tmp_path / "runs", "cpu")

    def spoiled(self, generator, draw=training.Training._draw):
        batch, noise = draw(self, generator)
        return {**batch, "rew": batch["rew"] * float("nan")}, noise

    monkeypatch.setattr(training.Training, "_draw", spoiled)
    train(*resolved)
    assert "warning: No seed of" in capsys.readouterr().out
    train(*resolved)
    assert "is trained" in capsys.readouterr().out
    summary, _ = running.tested(resolved[0].out, 20, "cpu")
    assert summary["stopped"] == [0, 1]


@pytest.mark.thorough
def test_an_experiment_whose_rows_share_runs(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("omrl.studies.execute._page", lambda *_: {})
    if not (POLICIES / "sparse-point-robot").is_dir():
        pytest.skip("there are no policies")
    results = execute_tiny("distribution-shift", tmp_path, tmp_path / "data")
    assert len(list((tmp_path / "runs").iterdir())) == 3
    assert [row["context_level"] for row in results["rows"]][3:5] == ["medium", "random"]
    table = (tmp_path / "distribution-shift" / "tables" / "shift.csv").read_text().splitlines()
    assert len(table) == 8 and table[1].startswith("expert,expert,") and table[1].endswith(",–,8.16,–")
    assert (tmp_path / "distribution-shift" / "figures" / "levels.png").is_file()
    with (tmp_path / "distribution-shift" / "curves.csv").open(newline="") as file:
        drawn = {line["row"] for line in csv.DictReader(file)}
    assert drawn == {"expert, expert", "medium, medium", "random, random"}  # no run has a curve for another context
    assert [claim["metric"] for claim in results["claims"]] == ["return", "return"]


@pytest.mark.thorough
def test_runs_trained_at_once_are_those_trained_one_after_the_other(tiny, robots, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("omrl.studies.execute._page", lambda *_: {})
    whole = get_experiment("comparison-point-robot-wind")
    claim = replace(whole.claims[0], worse=("Batch PEARL",))
    monkeypatch.setitem(experiments(), "two", replace(whole, name="two", rows=whole.rows[:2], claims=(claim,)))
    apart, together_ = (execute_tiny("two", tmp_path / name, robots, at_once=n) for name, n in (("a", 1), ("b", 2)))
    assert apart == together_
    printed = capsys.readouterr().out
    assert "FOCAL on point-robot-wind: done in " in printed and "1/6" in printed
    logs = sorted((tmp_path / "b" / "progress" / "logs").glob("train-*.log"))
    assert len(logs) == 2 and all("training" in log.read_text() for log in logs)
    with pytest.raises(OmrlError, match="--at-once must be at least 1"):
        execute_tiny("two", tmp_path / "a", robots, at_once=0)


@pytest.mark.thorough
def test_all_experiments_share_their_runs(tiny, robots, tmp_path, capsys, monkeypatch):
    from omrl.studies.execute import execute

    monkeypatch.setattr("omrl.studies.execute._page", lambda *_: {})
    whole = get_experiment("comparison-point-robot-wind")
    claim = replace(whole.claims[0], worse=("Batch PEARL",))
    first = replace(whole, name="first", rows=whole.rows[:2], claims=(claim,))
    second = replace(first, name="second", rows=(whole.rows[1], whole.rows[0]))
    two = replace(read_study(), experiments={"first": first, "second": second})
    monkeypatch.setattr("omrl.studies.execute.read_study", lambda _: two)
    results = execute(PaperRun(scale="small", device="cpu", data=robots, policies=POLICIES, out=tmp_path))
    assert [one["experiment"] for one in results] == ["first", "second"]
    assert len([path for path in (tmp_path / "runs").iterdir() if path.is_dir()]) == 2
    assert "7/7" in capsys.readouterr().out
    for name in ("first", "second"):
        assert json.loads((tmp_path / name / "results.json").read_text())["experiment"] == name


@pytest.mark.thorough
def test_where_a_run_fails_the_experiments_without_it_are_finished(tiny, robots, tmp_path, monkeypatch, capsys):
    from omrl.studies import execute, running

    monkeypatch.setattr("omrl.studies.execute._page", lambda *_: {})
    whole = get_experiment("comparison-point-robot-wind")
    first = replace(whole, name="first", rows=whole.rows[:1], claims=())
    second = replace(whole, name="second", rows=whole.rows[1:2], claims=())
    two = replace(read_study(), experiments={"first": first, "second": second})
    monkeypatch.setattr("omrl.studies.execute.read_study", lambda _: two)
    honest = running.train_unit

    def one_fails(train_args, hyperparameters):
        if train_args["algorithm"] == "batch-pearl":
            raise RuntimeError("no luck")
        honest(train_args, hyperparameters)

    monkeypatch.setattr(running, "train_unit", one_fails)
    message = r"1 of 7 units failed: Batch PEARL on point-robot-wind \(RuntimeError: no luck\)"
    with pytest.raises(OmrlError, match=message):
        execute.execute(PaperRun(scale="small", device="cpu", data=robots, policies=POLICIES, out=tmp_path))
    assert 'raise RuntimeError("no luck")' in capsys.readouterr().err
    assert (tmp_path / "first" / "results.json").is_file() and not (tmp_path / "second").exists()
