"""The tools that publish runs and experiments, on small ones made by hand."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import aa_rate
import focal_results
import numpy as np
import paper_results
import pytest
import rejudge

from omrl.evaluation import stats
from publishing_helpers import WIND, results, row, summary
from training_helpers import some_config

# -- runs of FOCAL -----------------------------------------------------------------------------------------------------


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Where results and their picture go."""
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr(focal_results, "RESULTS", folder)
    monkeypatch.setattr(focal_results, "PICTURE", tmp_path / "picture.png")
    return folder


def made(folder, value=10.0, half=False, preset="measured", **config):
    """A run as it comes back from another machine: without checkpoint and data."""
    folder.mkdir()
    written = {
        "config.json": {
            **asdict(some_config(family="half-cheetah-vel", preset=preset, level="expert")),
            "data": str(folder / "elsewhere"),
            "hyperparameters": {"bfloat16": half, "alpha": 30.0},
            **config,
        },
        "environment.json": {"gpu": "NVIDIA H200"},
        "timings.json": {"seconds": {}},
        "summary.json": summary(value),
    }
    for name, content in written.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "metrics.csv").write_text("step,transitions,seed,name,value\n5,1,0,return,4\n5,1,1,return,6\n5,1,0,q,1\n")
    (folder / "scores.csv").write_text(f"seed,task,split,episode,return\n0,task-0,test,0,{value}\n")
    return folder


def call(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["focal_results.py", *map(str, words)])
    focal_results.main()


def test_a_run_is_published_from_its_summary_beside_those_that_are_there(tmp_path, published, monkeypatch):
    first, second = made(tmp_path / "a"), made(tmp_path / "b", value=4.0, preset="paper")
    call(monkeypatch, first)
    call(monkeypatch, second)
    rows = json.loads((published / "focal.json").read_text())
    assert [(row["preset"], row["mean"]["value"], row["hardware"]) for row in rows] == [
        ("measured", 10.0, "NVIDIA H200"),
        ("paper", 4.0, "NVIDIA H200"),
    ]
    kept = published / "half-cheetah-vel-paper"
    assert sorted(path.name for path in kept.iterdir()) == [
        "config.json",
        "environment.json",
        "metrics.csv",
        "scores.csv",
        "timings.json",
    ]
    assert (kept / "scores.csv").read_text() == (second / "scores.csv").read_text()
    assert json.loads((kept / "config.json").read_text())["data"] == "data/half-cheetah-vel"
    assert str(tmp_path) not in "".join(path.read_text() for path in published.rglob("*.*"))
    assert focal_results.curve(kept) == {5: [4.0, 6.0]}
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("content", [None, ""])
def test_a_run_without_a_summary_is_one_sentence_that_says_how_to_get_it(tmp_path, published, monkeypatch, content):
    run = made(tmp_path / "a")
    (run / "summary.json").unlink()
    if content is not None:
        (run / "summary.json").write_text(content)
    with pytest.raises(SystemExit) as stop:
        call(monkeypatch, run)
    assert str(stop.value).endswith(f"omrl evaluate {run} --json > {run}/summary.json")
    assert list(published.iterdir()) == []


def test_two_runs_that_differ_in_half_alone_are_put_side_by_side(tmp_path, published, monkeypatch):
    call(monkeypatch, "--bfloat16", made(tmp_path / "a"), made(tmp_path / "b", value=11.0, half=True, data="elsewhere"))
    rows = json.loads((published / "half.json").read_text())
    assert [(row["half"], row["mean"]["value"], row["preset"]) for row in rows] == [
        (False, 10.0, "measured"),
        (True, 11.0, "measured"),
    ]
    for name, half in (("half-cheetah-vel-10k", False), ("half-cheetah-vel-10k-half", True)):
        config = json.loads((published / name / "config.json").read_text())
        assert config["hyperparameters"] == {"bfloat16": half, "alpha": 30.0}
        assert config["data"] == "data/half-cheetah-vel"
        assert (published / name / "scores.csv").is_file()
    assert not (published / "focal.json").exists() and not (tmp_path / "picture.png").exists()


@pytest.mark.parametrize("other", [{"half": False}, {"half": True, "level": "mixed"}])
def test_runs_that_differ_in_more_than_half_are_refused(tmp_path, published, monkeypatch, other):
    with pytest.raises(SystemExit, match="the same run"):
        call(monkeypatch, "--bfloat16", made(tmp_path / "a"), made(tmp_path / "b", **other))
    assert list(published.iterdir()) == []


def test_half_takes_two_runs(tmp_path, published, monkeypatch):
    with pytest.raises(SystemExit, match="two runs"):
        call(monkeypatch, "--bfloat16", made(tmp_path / "a"))


# -- experiments -------------------------------------------------------------------------------------------------------


def finished(out, name, runs=("runs/a", "runs/b"), value=1.0, **more):
    """The folder of `omrl paper run` with one more experiment, as it comes back from another machine."""
    found = results(name, [row(f"row {run}", value, run=run) for run in runs], figures=("return", "return-log"), **more)
    files = {f"{name}/{file}": "data,row\n" for file in ("scores.csv", "curves.csv")}
    files |= {f"{name}/tables/{table}.{kind}": table for table in found["tables"] for kind in ("md", "csv")}
    files |= {f"{name}/figures/{figure}.{kind}": name for figure in found["figures"] for kind in ("png", "svg")}
    files |= {f"{name}/results.json": json.dumps(found), f"{name}/report/index.html": "<html>"}
    for run in runs:
        config = {"family": "walker-2d-params", "data": str(out / "elsewhere" / "walker-2d-params-large")}
        files |= {f"{run}/config.json": json.dumps(config), f"{run}/metrics.csv": "step\n"}
        files |= {f"{run}/{file}.json": str(value) for file in ("environment", "timings")}
    for file, content in files.items():
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        (out / file).write_text(content)
    return found


def listed(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def paper(tmp_path, monkeypatch):
    """Where experiments go, and the command that publishes them."""
    monkeypatch.setattr(paper_results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(paper_results, "PICTURES", tmp_path / "pictures")

    def publish(*words):
        monkeypatch.setattr(sys, "argv", ["paper_results.py", *map(str, words)])
        paper_results.main()
        return tmp_path / "results"

    return publish


def test_an_experiment_is_published_with_the_settings_of_its_runs(tmp_path, paper):
    out = tmp_path / "out"
    found = finished(out, "power-law", runs=("runs/a", "runs/a", "runs/b"))
    kept = paper(out, "power-law")
    assert listed(kept) == [
        "paper.json",
        *(f"power-law/{file}" for file in ("curves.csv", "figures/return-log.png", "figures/return.png")),
        *(f"power-law/{file}" for file in ("results.json", "scores.csv")),
        *(f"power-law/tables/{name}.{kind}" for name in ("claims", "returns") for kind in ("csv", "md")),
        *(f"runs/{run}/{file}.json" for run in "ab" for file in ("config", "environment", "timings")),
    ]
    assert json.loads((kept / "paper.json").read_text()) == [found]
    # The folder's name says which split of the family it was.
    assert json.loads((kept / "runs/a/config.json").read_text())["data"] == "data/walker-2d-params-large"
    assert str(tmp_path) not in "".join((kept / file).read_text() for file in listed(kept))
    assert listed(tmp_path / "pictures") == ["power-law-return.png"]


def test_experiments_are_published_beside_others_in_the_order_of_their_definitions(tmp_path, paper):
    out = tmp_path / "out"
    finished(out, "dml-vs-bellman", runs=("runs/a",))
    finished(out, "power-law", runs=("runs/a", "runs/b"))
    paper(out, "dml-vs-bellman")
    kept = paper(out, "power-law")
    named = [one["experiment"] for one in json.loads((kept / "paper.json").read_text())]
    assert named == ["power-law", "dml-vs-bellman"]
    assert listed(tmp_path / "pictures") == ["dml-vs-bellman-return.png", "power-law-return.png"]


def test_a_shared_run_that_was_trained_again_is_kept_beside_the_first(tmp_path, paper):
    finished(tmp_path / "first", "power-law", runs=("runs/a", "runs/b"), value=1.0)
    finished(tmp_path / "second", "dml-vs-bellman", runs=("runs/a", "runs/c"), value=2.0)
    finished(tmp_path / "third", "embedding-3d", runs=("runs/a",), value=3.0)
    for out, name in (("first", "power-law"), ("second", "dml-vs-bellman"), ("third", "embedding-3d")):
        kept = paper(tmp_path / out, name)
    said = {path.parent.name: path.read_text() for path in kept.glob("runs/*/timings.json")}
    assert said == {"a": "1.0", "b": "1.0", "a-again": "2.0", "c": "2.0", "a-again-again": "3.0"}
    shown = {one["experiment"]: one for one in json.loads((kept / "paper.json").read_text())}
    assert [row["run"] for row in shown["dml-vs-bellman"]["rows"]] == ["runs/a-again", "runs/c"]
    # Published once more together, they share it.
    finished(tmp_path / "new", "power-law", runs=("runs/a", "runs/b"), value=4.0)
    finished(tmp_path / "new", "dml-vs-bellman", runs=("runs/a", "runs/c"), value=4.0)
    paper(tmp_path / "new", "power-law", "dml-vs-bellman")
    said = {path.parent.name: path.read_text() for path in kept.glob("runs/*/timings.json")}
    assert said == {"a": "4.0", "b": "4.0", "c": "4.0", "a-again-again": "3.0"}


def test_what_a_new_version_of_an_experiment_no_longer_has_is_removed(tmp_path, paper):
    finished(tmp_path / "old", "power-law", runs=("runs/a", "runs/b"), tables=("returns", "embedding"))
    finished(tmp_path / "new", "power-law", runs=("runs/b", "runs/c"), tables=("returns",))
    paper(tmp_path / "old", "power-law")
    kept = paper(tmp_path / "new", "power-law")
    assert sorted(path.name for path in (kept / "runs").iterdir()) == ["b", "c"]
    assert sorted(path.name for path in (kept / "power-law" / "tables").iterdir()) == ["returns.csv", "returns.md"]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("power-law/results.json", "it has no results.json"),
        ("power-law/curves.csv", "has no power-law/curves.csv."),
        ("power-law/tables/claims.md", "has no power-law/tables/claims.md."),
        ("runs/b/timings.json", "has no runs/b/timings.json."),
    ],
)
def test_an_experiment_that_is_not_finished_is_refused_by_what_is_missing(tmp_path, paper, missing, said):
    out = tmp_path / "out"
    finished(out, "power-law")
    finished(out, "dml-vs-bellman", runs=("runs/a",))
    (out / missing).unlink()
    with pytest.raises(SystemExit, match="is not a finished experiment") as stop:
        paper(out, "dml-vs-bellman", "power-law")
    assert str(stop.value).startswith(f"{out / 'power-law'} ") and said in str(stop.value)
    assert not (tmp_path / "results").exists()


def test_results_of_small_scale_are_refused(tmp_path, paper):
    finished(tmp_path, "power-law", scale="small")
    with pytest.raises(SystemExit, match="is of scale small, whose numbers say nothing: only full scale is published"):
        paper(tmp_path, "power-law")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("words", [(), ("out",)])
def test_publishing_takes_a_folder_and_names(paper, words):
    with pytest.raises(SystemExit, match="which to publish"):
        paper(*words)


def test_an_experiment_that_does_not_exist_is_refused(tmp_path, paper):
    with pytest.raises(
        SystemExit, match=r"no experiment 'power-laws' \(did you mean 'power-law'\?\); there are comparison-sparse"
    ):
        paper(tmp_path, "power-laws")


# -- judged again ------------------------------------------------------------------------------------------------------


def scores_of(rows):
    """An experiment's scores.csv with one episode: values [seeds, tasks] by row."""
    lines = [
        f'{WIND},"{label}",{seed},task-{task},0,{value}\n'
        for label, matrix in rows.items()
        for (seed, task), value in np.ndenumerate(matrix)
    ]
    return "data,row,seed,task,episode,return\n" + "".join(lines)


def test_an_experiment_is_judged_again_from_its_raw_scores(tmp_path):
    rng = np.random.default_rng(0)
    levels = {"FOCAL": 10.0, "Batch PEARL": 5.0, "Batch PEARL, regularised": 20.0, "Contextual BCQ": 10.0, "MBML": 5.0}
    rows = {label: level + np.round(rng.normal(0, 0.01, size=(5, 6)), 3) for label, level in levels.items()}
    old = results(
        "comparison-point-robot-wind", [row(label, 0.0, preset="compared") for label in rows], claims=[{"old": True}]
    )
    (tmp_path / "scores.csv").write_text(scores_of(rows))
    (tmp_path / "tables").mkdir()
    found = rejudge.judged_again(old, tmp_path)
    for one in found["rows"]:
        again = stats.mean(rows[one["row"]], new_tasks=True).interval()
        assert one["mean"] == vars(again) and one["normalised"] == pytest.approx(again.value / 20)
        assert one["metrics"]["return"] == pytest.approx(list(rows[one["row"]].mean(1)))
    paper, ours = found["claims"]
    assert [one["verdict"] for one in paper["comparisons"]] == ["holds", "equal", "holds"]
    assert (paper["verdict"], ours["verdict"], ours["whose"]) == ("equal", "does not hold", "ours")
    assert "FOCAL - MBML" in (tmp_path / "tables" / "claims.md").read_text()


def test_a_summary_is_made_again_from_the_raw_scores(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("seed,task,split,episode,return\n0,a,test,0,1\n0,a,test,1,3\n1,a,test,0,4\n1,a,test,1,4\n")
    found = rejudge.summarised_again(summary(0.0), path)
    assert found["mean"] == vars(stats.mean(np.array([[2.0], [4.0]]), new_tasks=True).interval())
    assert found["iqm"] == 3.0 and found["updates"] == 10_000


def test_the_rate_of_runs_told_apart_from_themselves(tmp_path, monkeypatch, capsys):
    def run(name, spread, seeds=20):
        (tmp_path / name).mkdir()
        rng = np.random.default_rng(0)
        values = spread * rng.normal(size=(seeds, 1)) + rng.normal(size=6)
        lines = [f"{s},task-{t},test,0,{value}\n" for (s, t), value in np.ndenumerate(values)]
        (tmp_path / name / "scores.csv").write_text("seed,task,split,episode,return\n" + "".join(lines))
        (tmp_path / name / "summary.json").write_text(json.dumps(summary(0.0)))
        return str(tmp_path / name)

    monkeypatch.setattr(sys, "argv", ["aa_rate.py", run("wide", 5.0), run("close", 1e-3)])
    aa_rate.main()
    wide, close = (float(line.split(": ")[1].split("%")[0]) for line in capsys.readouterr().out.splitlines())
    assert 1 < wide < 9  # of 1,000 splits of the same twenty seeds
    assert close == 0  # within 0.02 of the way to the expert
    monkeypatch.setattr(sys, "argv", ["aa_rate.py", run("few", 1.0, seeds=9)])
    with pytest.raises(SystemExit, match=r"scores\.csv of 10 seeds or more"):
        aa_rate.main()
