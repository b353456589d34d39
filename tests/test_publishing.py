"""The tools that publish runs and experiments, on small ones made by hand."""

from __future__ import annotations

import gzip
import json
import sys

import aa_rate
import numpy as np
import pictures
import publish
import pytest
from matplotlib.figure import Figure
from pages.speed import pieces
from pictures import drawn_again
from PIL import Image

from omrl.drawing import studies
from publishing_helpers import WIND, results, row, summary


@pytest.fixture
def published(tmp_path, monkeypatch):
    """The command that publishes; it returns a folder of results/."""
    monkeypatch.setattr(publish, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(publish, "PICTURES", tmp_path / "img")

    def command(name, *folders):
        monkeypatch.setattr(sys, "argv", ["publish.py", name, *map(str, folders)])
        publish.main()
        return tmp_path / "results" / name

    return command


def listed(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# -- runs --------------------------------------------------------------------------------------------------------------


def made(folder, value=10.0, preset="tuned", family="half-cheetah-vel"):
    """A tested run as it comes back from another machine: without checkpoint and data."""
    folder.mkdir()
    written = {
        "config.json": {"family": family, "preset": preset, "data": str(folder / "elsewhere" / family), "seeds": 9},
        "environment.json": {"gpu": "NVIDIA H200"},
        "timings.json": {"seconds": {"updates": value}},
        "scores.json": summary(value),
    }
    for name, content in written.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "metrics.csv").write_text("step,transitions,seed,name,value\n5,1,0,return,4\n5,1,1,return,6\n5,1,0,q,1\n")
    (folder / "scores.csv").write_text(f"seed,task,split,episode,return\n0,task-0,test,0,{value}\n")
    (folder / "latest").write_text("nothing that is kept")
    return folder


def test_runs_are_published_beside_those_that_are_there_in_the_order_of_families(tmp_path, published):
    first, second = made(tmp_path / "a"), made(tmp_path / "b", value=4.0, preset="paper", family="point-robot-wind")
    published("focal", first)
    kept = published("focal", second)
    rows = publish.published(kept)
    # What the test found stands before what was asked for.
    found = [(one["preset"], one["mean"]["value"], one["seeds"], one["seconds"], one["folder"].name) for one in rows]
    assert found == [("paper", 4.0, 2, {"updates": 4.0}, "b"), ("tuned", 10.0, 2, {"updates": 10.0}, "a")]
    names = ["config.json", "environment.json", "metrics.csv.gz", "scores.csv", "scores.json", "timings.json"]
    assert listed(kept / "b") == names
    assert (kept / "b" / "scores.csv").read_text() == (second / "scores.csv").read_text()
    assert json.loads((kept / "b" / "config.json").read_text())["data"] == "data/point-robot-wind"
    with gzip.open(kept / "b" / "metrics.csv.gz", "rt") as packed:
        assert packed.read() == (second / "metrics.csv").read_text()
    assert str(tmp_path) not in "".join((kept / file).read_text() for file in listed(kept) if not file.endswith(".gz"))
    assert not (tmp_path / "img").exists()


def test_the_picture_of_the_readme_is_two_figures_of_a_report(tmp_path):
    figures = tmp_path / "figures"
    figures.mkdir()
    for name, size, colour in (("policy-0.png", (100, 50), "red"), ("tsne-0.png", (50, 50), "blue")):
        Image.new("RGB", size, colour).save(figures / name)
    pictures.adapted(tmp_path, tmp_path / "picture.png")
    joined = Image.open(tmp_path / "picture.png").convert("RGB")
    height, margin = pictures.HEIGHT, pictures.MARGIN
    assert joined.size == (3 * height + 3 * margin, height + 2 * margin)
    assert [joined.getpixel((x, height // 2)) for x in (margin + 5, joined.width - margin - 5)] == [
        (255, 0, 0),
        (0, 0, 255),
    ]


def test_a_run_that_was_not_tested_is_one_sentence_that_says_how(tmp_path, published):
    run = made(tmp_path / "a")
    (run / "scores.json").unlink()
    with pytest.raises(SystemExit) as stop:
        published("focal", made(tmp_path / "b"), run)
    said = f"{run} is neither a finished experiment nor a run that `omrl evaluate {run}` has tested"
    assert str(stop.value) == f"{said}: it has no scores.json."
    assert not (tmp_path / "results").exists()


def test_runs_and_experiments_are_kept_apart(tmp_path, published):
    finished(tmp_path / "out", "power-law")
    experiment, run = tmp_path / "out" / "power-law", made(tmp_path / "a")
    with pytest.raises(SystemExit, match="either the experiments of a study or runs"):
        published("focal", experiment, run)
    assert not (tmp_path / "results").exists()
    published("focal", run)
    with pytest.raises(SystemExit, match="either the experiments of a study or runs"):
        published("focal", experiment)
    published("paper", experiment)
    with pytest.raises(SystemExit, match="either the experiments of a study or runs"):
        published("paper", run)


# -- experiments -------------------------------------------------------------------------------------------------------


CURVES = f"""data,row,seed,metric,step,transitions,value
{WIND},row runs/a,0,return,5,1000,1.5
{WIND},row runs/a,0,return,10,2000,2.5
{WIND},row runs/a,1,return,5,1000,0.5
{WIND},row runs/a,0,q,5,1000,7
"""


def finished(out, name, runs=("runs/a", "runs/b"), value=1.0, gpu="NVIDIA H200", **more):
    """The folder of `omrl paper run` with one more experiment, as it comes back from another machine."""
    found = results(
        name, [row(f"row {run}", value, run=run) for run in runs], figures=("embedding", "return", "return-log"), **more
    )
    files = {f"{name}/scores.csv": "data,row\n", f"{name}/curves.csv": CURVES}
    files |= {f"{name}/tables/{table}.{kind}": table for table in found["tables"] for kind in ("md", "csv")}
    files |= {f"{name}/figures/{figure}.{kind}": name for figure in found["figures"] for kind in ("png", "svg")}
    files |= {f"{name}/results.json": json.dumps(found), f"{name}/report/index.html": "<html>"}
    for run in runs:
        config = {"family": "walker-2d-params", "data": str(out / "elsewhere" / "walker-2d-params-large")}
        files |= {f"{run}/config.json": json.dumps(config), f"{run}/metrics.csv": "step\n"}
        files |= {f"{run}/environment.json": json.dumps({"gpu": gpu, "cores": 16}), f"{run}/timings.json": str(value)}
    for file, content in files.items():
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        (out / file).write_text(content)
    return found


def compared(family):
    row = {"family": family, "level": "expert", "random": 0.0, "expert": 10.0}
    return {
        "experiment": f"comparison-{family}",
        "rows": [
            row | {"row": label, "mean": {"value": value, "low": value - 1, "high": value + 1}}
            for label, value in (("Batch PEARL", 4.0), ("FOCAL", 8.0))
        ],
    }


def test_pictures_of_curves_are_drawn_from_their_raw_file(tmp_path, published, monkeypatch):
    drawn = {}

    def curves(experiment, outcomes, kind):
        drawn.update({(outcome.cell.title, outcome.cell.row.label): outcome.facts.curves for outcome in outcomes})
        assert [row.label for row in experiment.rows] == ["row runs/a", "row runs/b"] and kind == "return-log"
        return honest(experiment, outcomes, kind)

    honest = studies.curves
    monkeypatch.setattr(studies, "curves", curves)
    finished(tmp_path / "paper", "power-law")
    published("paper", tmp_path / "paper" / "power-law")
    assert drawn[WIND, "row runs/b"] == {}
    of_first = drawn[WIND, "row runs/a"]
    assert of_first["return"].transitions.tolist() == [1000, 2000] and of_first["q"].values.tolist() == [[7]]
    # One of its seeds stopped.
    assert np.array_equal(of_first["return"].values, [[1.5, 2.5], [0.5, np.nan]], equal_nan=True)
    with Image.open(tmp_path / "img" / "paper" / "power-law-return-log.png") as picture:
        assert min(picture.size) > 300


def test_the_picture_of_breadths_has_those_that_its_data_is_named_after(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "breadth", lambda experiment, outcomes: seen.extend(outcomes) or honest())
    honest, seen = Figure, []
    rows = [row("FOCAL", value, data=f"{WIND}, action std {width}") for width, value in ((0.05, 1.0), (1, 2.0))]
    (tmp_path / "curves.csv.gz").write_bytes(gzip.compress(b"data,row\n"))
    drawn_again(results("breadth", rows, figures=("breadth",), folder=tmp_path), "breadth", tmp_path / "it.png")
    assert [(one.cell.data.action_std, one.summary["mean"]["value"]) for one in seen] == [(0.05, 1.0), (1.0, 2.0)]


def test_one_picture_sums_up_all_comparisons(tmp_path):
    sizes = []
    for count in (1, 3, 4):
        pictures.overview([compared(f"family-{i}") for i in range(count)], tmp_path / "overview.png")
        with Image.open(tmp_path / "overview.png") as picture:
            sizes.append(picture.size)
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 3
    (narrow, low), (wide, one), (same, two) = sizes
    assert narrow < wide == same and low == one and abs(two - 2 * one) <= 1


def test_an_experiment_is_published_with_the_settings_of_its_runs(tmp_path, published):
    out = tmp_path / "out"
    found = finished(out, "power-law", runs=("runs/a", "runs/a", "runs/b"))
    kept = published("paper", out / "power-law")
    assert listed(kept) == [
        *(f"power-law/{file}" for file in ("curves.csv.gz", "figures/embedding.png")),
        *(f"power-law/{file}" for file in ("results.json", "scores.csv.gz")),
        *(f"power-law/tables/{name}.{kind}" for name in ("claims", "returns") for kind in ("csv", "md")),
        *(f"runs/{run}/{file}.json" for run in "ab" for file in ("config", "environment", "timings")),
    ]
    assert publish.published(kept) == [found | {"folder": kept / "power-law"}]
    raw = (kept / "power-law" / "scores.csv.gz").read_bytes()
    assert gzip.decompress(raw).decode() == (out / "power-law" / "scores.csv").read_text()
    published("paper", out / "power-law")
    assert (kept / "power-law" / "scores.csv.gz").read_bytes() == raw
    # The folder's name says which split of the family it was.
    assert json.loads((kept / "runs/a/config.json").read_text())["data"] == "data/walker-2d-params-large"
    written = [kept / file for file in listed(kept) if not file.endswith(".gz")]
    assert str(tmp_path) not in "".join(file.read_text() for file in written)
    assert listed(tmp_path / "img" / "paper") == ["power-law-embedding.png", "power-law-return-log.png"]


def test_experiments_are_published_beside_others_in_the_order_of_their_definitions(tmp_path, published):
    out = tmp_path / "out"
    finished(out, "dml-vs-bellman", runs=("runs/a",))
    finished(out, "power-law", runs=("runs/a", "runs/b"))
    published("paper", out / "dml-vs-bellman")
    kept = published("paper", out / "power-law")
    named = [one["experiment"] for one in publish.published(kept)]
    assert named == ["power-law", "dml-vs-bellman"]
    assert listed(tmp_path / "img" / "paper") == [
        f"{name}-{figure}.png" for name in ("dml-vs-bellman", "power-law") for figure in ("embedding", "return-log")
    ]


def test_a_shared_run_that_was_trained_again_is_kept_beside_the_first(tmp_path, published):
    finished(tmp_path / "first", "power-law", runs=("runs/a", "runs/b"), value=1.0)
    finished(tmp_path / "second", "dml-vs-bellman", runs=("runs/a", "runs/c"), value=2.0)
    finished(tmp_path / "third", "embedding-3d", runs=("runs/a",), value=3.0)
    for out, name in (("first", "power-law"), ("second", "dml-vs-bellman"), ("third", "embedding-3d")):
        kept = published("paper", tmp_path / out / name)
    said = {path.parent.name: path.read_text() for path in kept.glob("runs/*/timings.json")}
    assert said == {"a": "1.0", "b": "1.0", "a-again": "2.0", "c": "2.0", "a-again-again": "3.0"}
    shown = {one["experiment"]: one for one in publish.published(kept)}
    assert [row["run"] for row in shown["dml-vs-bellman"]["rows"]] == ["runs/a-again", "runs/c"]
    # Published once more together, they share it.
    finished(tmp_path / "new", "power-law", runs=("runs/a", "runs/b"), value=4.0)
    finished(tmp_path / "new", "dml-vs-bellman", runs=("runs/a", "runs/c"), value=4.0)
    published("paper", tmp_path / "new" / "power-law", tmp_path / "new" / "dml-vs-bellman")
    said = {path.parent.name: path.read_text() for path in kept.glob("runs/*/timings.json")}
    assert said == {"a": "4.0", "b": "4.0", "c": "4.0", "a-again-again": "3.0"}


def test_how_long_the_command_took_is_noted_once_for_each(tmp_path, published):
    def board(out, title, over=True, gpu="NVIDIA H200", **seconds):
        finished(out, "power-law", gpu=gpu)
        units = {f"{kind} {i}": {"kind": kind, "seconds": took} for kind, some in seconds.items() for i, took in some}
        said = {"title": title, "began": 100.0, "now": 160.0, "over": over, "units": units}
        (out / "progress").mkdir(exist_ok=True)
        (out / "progress" / "progress.json").write_text(json.dumps(said))
        published("paper", out / "power-law")

    file = tmp_path / "results" / "speed" / "pieces.json"
    board(tmp_path / "cut", "paper power-law, full scale", over=False)
    assert not file.exists()
    board(tmp_path / "a", "paper power-law, full scale", train=[(0, 40.0), (1, 0.0), (2, 20.0)], draw=[(0, 5.0)])
    board(tmp_path / "b", "paper breadth, full scale", gpu=None, train=[(0, 90.0)])
    first = {
        "title": "paper power-law, full scale",
        "machine": "NVIDIA H200, 16 cores",
        "seconds": 60.0,
        "units": {"train": 2, "draw": 1},
    }
    found = json.loads(file.read_text())
    assert found[0] == first | {"of_units": {"train": 60.0, "draw": 5.0}} and len(found) == 2
    board(tmp_path / "a", "paper power-law, full scale", train=[(0, 30.0)])
    board(tmp_path / "b", "paper breadth, full scale", train=[(0, 0.0)], draw=[(0, 9.0)])  # it is only drawn again
    again = json.loads(file.read_text())
    assert [one["title"] for one in again] == [found[1]["title"], found[0]["title"]]
    assert again[1]["of_units"] == {"train": 30.0}
    assert pieces(again).splitlines()[2:] == [
        "| breadth | 16 cores | 1 | 1.0 | 1.5 | 0.0 | 0.0 | 0.0 |",
        "| power-law | NVIDIA H200, 16 cores | 1 | 1.0 | 0.5 | 0.0 | 0.0 | 0.0 |",
        "| sum | NVIDIA H200, 16 cores | 1 | 1.0 | 0.5 | 0.0 | 0.0 | 0.0 |",
    ]


def test_what_a_new_version_of_an_experiment_no_longer_has_is_removed(tmp_path, published):
    finished(tmp_path / "old", "power-law", runs=("runs/a", "runs/b"), tables=("returns", "embedding"))
    finished(tmp_path / "new", "power-law", runs=("runs/b", "runs/c"), tables=("returns",))
    published("paper", tmp_path / "old" / "power-law")
    kept = published("paper", tmp_path / "new" / "power-law")
    assert sorted(path.name for path in (kept / "runs").iterdir()) == ["b", "c"]
    assert sorted(path.name for path in (kept / "power-law" / "tables").iterdir()) == ["returns.csv", "returns.md"]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("power-law/curves.csv", "has no power-law/curves.csv."),
        ("power-law/tables/claims.md", "has no power-law/tables/claims.md."),
        ("runs/b/timings.json", "has no runs/b/timings.json."),
    ],
)
def test_an_experiment_that_is_not_finished_is_refused_by_what_is_missing(tmp_path, published, missing, said):
    out = tmp_path / "out"
    finished(out, "power-law")
    finished(out, "dml-vs-bellman", runs=("runs/a",))
    (out / missing).unlink()
    with pytest.raises(SystemExit, match="is not a finished experiment") as stop:
        published("paper", out / "dml-vs-bellman", out / "power-law")
    assert str(stop.value).startswith(f"{out / 'power-law'} ") and said in str(stop.value)
    assert not (tmp_path / "results").exists()


def test_results_of_small_scale_are_refused(tmp_path, published):
    finished(tmp_path, "power-law", scale="small")
    with pytest.raises(SystemExit, match="is of scale small, whose numbers say nothing: only full scale is published"):
        published("paper", tmp_path / "power-law")
    assert not (tmp_path / "results").exists()


def test_a_study_of_one_s_own_is_published_as_the_paper_is(tmp_path, published):
    finished(tmp_path / "study", "goals", runs=("runs/a",))
    kept = published("goals", tmp_path / "study" / "goals")
    assert [one["experiment"] for one in publish.published(kept)] == ["goals"]
    assert (kept / "runs" / "a" / "config.json").is_file()
    assert listed(tmp_path / "img") == ["goals/goals-embedding.png", "goals/goals-return-log.png"]


def test_publishing_takes_a_name_and_folders(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["publish.py"])
    with pytest.raises(SystemExit, match="where in results/"):
        publish.main()


def test_what_came_from_elsewhere_is_brought_in_order(tmp_path, published):
    with pytest.raises(SystemExit, match="paper has no experiments"):
        published("paper")
    finished(tmp_path / "out", "power-law", runs=("runs/a", "runs/b"))
    kept = published("paper", tmp_path / "out" / "power-law")
    # What is unpacked over it brings another experiment of the same name; what that one has not, stays.
    found = json.loads((kept / "power-law" / "results.json").read_text())
    kept.joinpath("power-law/results.json").write_text(json.dumps({**found, "rows": found["rows"][:1]}))
    published("paper")
    assert [path.name for path in (kept / "runs").iterdir()] == ["a"]


def test_of_a_study_what_is_finished_at_full_scale_is_published(tmp_path, published, capsys):
    study = tmp_path / "out"
    finished(study, "power-law")
    finished(study, "embedding-3d", scale="small")
    (study / "dml-vs-bellman").mkdir()
    (study / "progress").mkdir()
    (study / "progress" / "plan.json").write_text("{}")
    kept = published("paper", study)
    assert [one["experiment"] for one in publish.published(kept)] == ["power-law"]
    assert capsys.readouterr().out == f"{study / 'embedding-3d'} is left out: it is not of full scale.\n"
    (study / "power-law" / "results.json").unlink()
    with pytest.raises(SystemExit, match="nothing to publish"):
        published("paper", study)
    assert "No experiment of full scale" in capsys.readouterr().out


def test_a_folder_that_does_not_exist_is_refused(tmp_path, published):
    with pytest.raises(SystemExit, match="power-laws is neither a finished experiment nor a run"):
        published("paper", tmp_path / "power-laws")


# -- how sure verdicts are ---------------------------------------------------------------------------------------------


def test_the_rate_of_runs_told_apart_from_themselves(tmp_path, monkeypatch, capsys):
    def run(name, spread, seeds=20):
        (tmp_path / name).mkdir()
        rng = np.random.default_rng(0)
        values = spread * rng.normal(size=(seeds, 1)) + rng.normal(size=6)
        lines = [f"{s},task-{t},test,0,{value}\n" for (s, t), value in np.ndenumerate(values)]
        (tmp_path / name / "scores.csv").write_text("seed,task,split,episode,return\n" + "".join(lines))
        (tmp_path / name / "scores.json").write_text(json.dumps(summary(0.0)))
        return str(tmp_path / name)

    monkeypatch.setattr(sys, "argv", ["aa_rate.py", run("wide", 5.0), run("close", 1e-3)])
    aa_rate.main()
    wide, close = (float(line.split(": ")[1].split("%")[0]) for line in capsys.readouterr().out.splitlines())
    assert 1 < wide < 9  # of 1,000 splits of the same twenty seeds
    assert close == 0  # within 0.02 of the way to the expert
    monkeypatch.setattr(sys, "argv", ["aa_rate.py", run("few", 1.0, seeds=9)])
    with pytest.raises(SystemExit, match=r"scores\.csv of 10 seeds or more"):
        aa_rate.main()
