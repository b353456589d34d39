"""The report on small runs: what is on the page, in which files, and what happens when something is missing."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from report_helpers import HOSTILE, small_run, walks

import omrl
from omrl import OmrlError, cli
from omrl.evaluation import stats
from omrl.evaluation.logged import halves
from omrl.evaluation.testing import evaluate
from omrl.families import FAMILIES, Task
from omrl.reporting import gather, page, probe, tables
from omrl.reporting.command import report
from omrl.runs.model import Model
from omrl.runs.policy import CONTEXT
from omrl.runs.run import Run


class Tags(HTMLParser):
    """Every start tag with its attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        self._inside = tag == "script"

    def handle_endtag(self, tag):
        self._inside = self._inside and tag != "script"

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1] += data
        else:
            self.words.append(data)


@pytest.fixture(scope="module")
def tags(made):
    return Tags(made.page)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# -- what is on the page -----------------------------------------------------------------------------------------------


def test_the_summary_says_what_evaluation_says(made):
    rows = {row["run"]: row for row in read(made.folder / "tables" / "summary.csv")}
    found = evaluate(made.tested)
    row = rows["tested"]
    assert row["mean return [95 %]"].startswith(f"{found['mean']['value']:.2f} [{found['mean']['low']:.2f}, ")
    assert row["IQM"] == f"{found['iqm']:.2f}"
    assert row["normalised"] == f"{found['normalised']:.3f}"
    assert row["ESR"] == f"{np.mean(found['esr']):.3f}" and row["RMS"] == f"{np.mean(found['rms']):.3f}"
    assert (row["algorithm"], row["family"], row["seeds"], row["updates"]) == ("focal", "sparse-point-robot", "2", "12")


def test_a_run_that_was_not_tested_says_how_to(made, tags):
    rows = read(made.folder / "tables" / "summary.csv")
    assert [row["mean return [95 %]"] for row in rows][1] == "not evaluated yet"
    assert f"omrl evaluate '{made.hostile}'" in "".join(tags.words)


def test_without_its_data_a_run_keeps_its_scores_and_says_what_is_missing(made, tags):
    row = next(row for row in read(made.folder / "tables" / "summary.csv") if row["run"] == "blind")
    scores = [float(score["return"]) for score in read(made.blind / "scores.csv")]
    assert row["mean return [95 %]"].startswith(f"{np.mean(scores):.2f} [")
    assert (row["normalised"], row["ESR"]) == (tables.NONE, tables.NONE)
    text = "".join(tags.words)
    assert text.count("The data of this run cannot be read: ") == 4  # tasks, embeddings, policy, data


def test_other_data_in_the_place_of_a_run_s_own_counts_as_missing(made, tmp_path):
    config = json.loads((made.tested / "config.json").read_text())
    shutil.copytree(made.tested, tmp_path / "moved")
    other = json.loads((made.own / "config.json").read_text())["data"]
    (tmp_path / "moved" / "config.json").write_text(json.dumps(config | {"data": other}))
    kept, lost = gather.gather([made.own, tmp_path / "moved"])  # the same folder of data
    assert kept.dataset is not None and lost.dataset is None
    assert "moved was trained with 2: it is not the data of this run any more" in lost.data_note


def test_own_logs_are_told_by_what_logs_can_tell(made, tags):
    row = read(made.folder / "tables" / "logged.csv")[0]
    assert row["run"] == "own" and "action error" in row and "noise floor" in row
    text = "".join(tags.words)
    assert "The log's own noise is at most" in text and "known by 200 rows of the task's own log" in text
    assert "known by 200 rows logged by the task's own agents, of all levels" in text  # of the family's runs


def test_the_verdict_stands_on_top_or_how_to_get_it(made, tmp_path):
    (facts,) = gather.gather([made.own])
    assert f">not judged yet</div><pre>omrl select {made.own}</pre>" in page._card(facts)
    shutil.copytree(made.own, tmp_path / "own")
    word = {"word": "worse", "reasons": ["<b>why</b>"], "gain": {"value": -2.0, "low": -3.0, "high": -1.0}}
    about = {"logger": 7.0, "tasks": 5, "context": 20, "updates": 12}
    path = tmp_path / "own" / "selected.json"
    path.write_text(json.dumps({**word, **about}))
    (facts,) = gather.gather([tmp_path / "own"])
    card = page._card(facts)
    assert ">worse than the logger<" in card and "-2.00 [-3.00, -1.00]" in card and "7.00 on 5 tasks" in card
    assert "known by 20 rows of the task&#x27;s own log" in card and "&lt;b&gt;why" in card
    assert not [note for note in facts.notes if "judged" in note]
    path.write_text(json.dumps({**word, **about, "updates": 4}))
    assert "It was judged at another number of updates" in gather.gather([tmp_path / "own"])[0].notes[0]
    path.write_text(json.dumps({**word, **about, "word": "splendid"}))
    with pytest.raises(OmrlError, match=r"selected\.json: word must be"):
        gather.gather([tmp_path / "own"])


def test_own_logs_have_a_line_for_every_held_out_task(made):
    (row,) = read(made.folder / "tables" / "logged-pumps.csv")
    scores = Run.open(made.own).logged
    assert row["task"] == scores.tasks[0] and (row["rows"], row["episodes"]) == ("40", "4")
    for column, metric in (
        ("noise floor", "noise_floor"),
        ("error of the mean action", "constant_error"),
        ("own: action error", "action_error"),
    ):
        assert row[column] == f"{scores.metrics[metric][:, 0].mean():.3f}"


def test_episodes_beside_the_log_are_what_the_policy_does_there(made):
    trained = Model(Run.open(made.own))
    view = trained.run.dataset()
    (found,) = probe.beside_the_log(trained, view)
    rows = view.rows(found.task)
    known, held = halves(rows["episode"], draw := np.random.default_rng([0, 5, 0]))
    at = [i for i in held if rows["episode"][i] == rows["episode"][held[0]]]  # all episodes are of one length
    np.testing.assert_array_equal(found.logged, rows["actions"][at])
    context = known[draw.integers(len(known), size=200)]
    policy = trained.adapt({name: rows[name][context] for name in CONTEXT})
    np.testing.assert_allclose(found.own, policy.act(rows["observations"][at]), rtol=1e-5)
    # By hand: every logged row of the training tasks, which are so few that all of them are drawn.
    train = [view.rows(name) for name in view.split["train"]]
    log_obs, log_act = (np.concatenate([task[name] for task in train]) for name in ("observations", "actions"))

    def normal(obs):
        return trained.normalise(torch.from_numpy(np.array(obs))).numpy()

    rng = np.random.default_rng([0, 6])
    drawn = [view.sample(name, 5_000, rng)["actions"] for name in view.split["train"]]
    spread = np.std(np.concatenate(drawn) / 50 - 1)
    for actions, far in ((found.own, found.far), (found.logged, found.far_logged)):
        for i, row in enumerate(at):
            gaps = np.square(normal(log_obs) - normal(rows["observations"][row])).sum(1)
            gaps += np.square((log_act - actions[i]) / 50 / spread).sum(1)
            assert far[i] == pytest.approx(np.sqrt(gaps.min()), rel=1e-3)


def test_differences_are_those_of_the_statistics(made, tmp_path):
    other = small_run(Path(json.loads((made.own / "config.json").read_text())["data"]), tmp_path / "other", seed=7)
    evaluate(other)
    table = tables.differences(gather.gather([made.own, other, made.tested]))
    assert [row[:2] for row in table.rows] == [("own minus other", "action error")]  # one task is always told apart
    ours, theirs = (Run.open(run).logged.metrics["action_error"] for run in (made.own, other))
    assert table.rows[0][2] == stats.difference(ours, theirs, new_tasks=True).interval().text(3)


def test_embeddings_are_coloured_by_a_column_or_a_parameter(made):
    trained = Model(Run.open(made.own))
    view = trained.run.dataset()
    plain, of_column = probe.embed(trained, view), probe.embed(trained, view, "action 0")
    assert plain.values.shape == (3,) and of_column.values.shape == (3, probe.DRAWS)
    rows = view.sample(of_column.tasks[1].name, probe.DRAWS * 200, np.random.default_rng([0, 5, 1]))
    np.testing.assert_allclose(of_column.values[1], rows["actions"].reshape(probe.DRAWS, 200).mean(1), rtol=1e-5)
    assert of_column.label == "action 0, mean of the context"
    np.testing.assert_array_equal(of_column.dot_values, of_column.values.ravel())
    np.testing.assert_array_equal(plain.dot_values, np.repeat(plain.values, probe.DRAWS))


def test_a_column_that_is_not_there_is_named_with_those_that_are(made, tmp_path):
    with pytest.raises(
        OmrlError, match=r"no data of these runs has 'actoin 0' \(did you mean 'action 0'\?\); there are"
    ):
        report(made.own, tmp_path / "report", color="actoin 0")
    assert not (tmp_path / "report").exists()


def test_every_figure_and_table_is_in_files_and_is_linked(made, tags):
    links = [attributes["href"] for tag, attributes in tags.tags if tag == "a" and "/" in attributes["href"]]
    assert all((made.folder / link).is_file() for link in links)
    files = {str(path.relative_to(made.folder)) for path in made.folder.glob("*/*")}
    assert files == set(links)
    names = {path.stem for path in made.folder.glob("figures/*")}
    assert names >= {"curve-sparse-point-robot-return", "curve-sparse-point-robot-dml-loss", "tasks-walks"}
    assert names >= {"embedding-tested", "tsne-tested", "distances-tested", "policy-tested", "data-walks"}
    for path in made.folder.glob("figures/*.svg"):
        ElementTree.parse(path)
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    for path in made.folder.glob("tables/*.csv"):
        lines = path.with_suffix(".md").read_text().splitlines()
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1  # as many cells in every line
        assert len(lines) == len(list(csv.reader(path.open(newline="")))) + 1


def test_the_data_section_has_every_level(made):
    rows = {row["level"]: row for row in read(made.folder / "tables" / "data-walks.csv")}
    assert list(rows) == ["random", "medium", "expert", "mixed"] or list(rows) == ["random", "expert", "mixed"]
    assert (rows["mixed"]["rows"], rows["expert"]["rows"], rows["mixed"]["tasks"]) == ("500", "250", "5")


def test_the_config_table_marks_what_differs(made):
    rows = read(made.folder / "tables" / "config.csv")
    values = {row["setting"]: list(row.values())[1:] for row in rows}
    assert values["latent_dim"] == ["4", "2", "4", "4"]
    differing = [len(set(values)) > 1 for values in values.values()]
    assert differing == sorted(differing, reverse=True)


def test_the_commands_are_those_that_made_the_runs(made, tags):
    text = "".join(tags.words)
    config = json.loads((made.tested / "config.json").read_text())
    assert f"omrl train focal --config {made.tested}/config.json --data {config['data']} --out" in text
    assert "omrl report " in text


# -- safety ------------------------------------------------------------------------------------------------------------


def test_hostile_names_stay_text(made, tags):
    assert [tag for tag, _ in tags.tags if tag in ("img", "iframe", "object", "embed", "b")] == []
    assert len(tags.scripts) == 2  # the data and the page's own
    assert not [name for _, attributes in tags.tags for name in attributes if name.startswith("on")]
    shown = "".join(tags.words)
    for text in (HOSTILE[0], HOSTILE[2].replace("/", "")):
        assert text in shown


def test_the_embedded_data_cannot_end_its_block_and_says_what_the_names_are(made, tags):
    block = next(text for text in tags.scripts if text.startswith('{"embeddings"'))
    assert "<" not in block and "&" not in block
    found = json.loads(block)["embeddings"]
    assert list(found) == ["0", "1", "3"]  # the third run's data is missing
    assert found["1"]["tasks"][0]["name"] == f"{HOSTILE[0]} 3"
    assert found["3"]["tasks"][0]["params"] == f"site {json.dumps(HOSTILE[1])}"


def test_the_page_asks_for_nothing_from_outside(made, tags):
    for tag, attributes in tags.tags:
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            value = attributes.get(name, "#")
            assert value.startswith(("#", "figures/", "tables/", "data:")), (tag, value)
    policy = next(a["content"] for tag, a in tags.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_ids_on_the_page_are_unique(tags):
    ids = [attributes["id"] for _, attributes in tags.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


# -- looking at a run --------------------------------------------------------------------------------------------------


def test_rolled_out_episodes_are_the_first_ones_that_are_scored(made):
    facts = gather.gather([made.tested])[0]
    found = probe.probe(facts).rollouts
    scores = {row["task"]: float(row["return"]) for row in read(made.tested / "scores.csv") if row["seed"] == "0"}
    first = {
        row["task"]: float(row["return"])
        for row in read(made.tested / "scores.csv")
        if (row["seed"], row["episode"]) == ("0", "0")
    }
    assert scores.keys() == first.keys() == {task.name for task in found.tasks}
    for task, value in zip(found.tasks, found.returns, strict=True):
        assert value == pytest.approx(first[task.name], abs=1e-4)
    assert found.states.shape == (2, 21, 2)


def test_embeddings_are_those_of_the_encoder_and_the_view_keeps_their_distances(made):
    facts = gather.gather([made.tested])[0]
    found = probe.probe(facts).embedding
    assert found.z.shape == (5, probe.DRAWS, 4) and found.unseen == (True, True, False, False, False)
    trained = Model(facts.run)
    rows = facts.dataset.sample(found.tasks[1].name, probe.DRAWS * found.context, np.random.default_rng([0, 5, 1]))
    one = trained.adapt({name: values[: found.context] for name, values in rows.items()})
    np.testing.assert_allclose(found.z[1, 0], one.z[0], atol=1e-5)
    assert found.shares.sum() <= 1 + 1e-9
    flat = found.z.reshape(-1, 4)
    kept = np.square(found.axes - found.axes[0]).sum(1)
    assert (kept <= np.square(flat - flat[0]).sum(1) + 1e-9).all()


def test_z_of_up_to_three_dimensions_is_shown_as_it_is(made):
    found = probe.probe(gather.gather([made.hostile])[0]).embedding
    assert found.shares is None
    np.testing.assert_array_equal(found.axes[:, :2], found.z.reshape(-1, 2))
    assert not found.axes[:, 2].any()


def test_bodies_get_a_film_strip_or_a_sentence(tmp_path, monkeypatch):
    data = walks("half-cheetah-fwd-back", tmp_path / "data")
    run = small_run(data, tmp_path / "run", eval_every=0)
    facts = gather.gather([run])[0]
    found = probe.roll_out(Model(Run.open(run)), facts.dataset)
    if found.film:
        assert [len(pictures) for _, pictures in found.film] == [probe.FILM_FRAMES] * 2
        assert found.film[0][1][0][1].dtype == np.uint8

    def broken(*_):
        raise OmrlError("Drawing MuJoCo needs OpenGL.")

    monkeypatch.setattr(FAMILIES["half-cheetah-fwd-back"].simulator_class, "painter", broken)
    evaluate(run)
    page = report(run, tmp_path / "report").read_text()
    assert "Its test tasks are among those it was trained on." in page
    assert "There is no film strip: Drawing MuJoCo needs OpenGL." in page


@pytest.mark.parametrize(
    ("params", "label", "values"),
    [
        ([{"velocity": 2.0}, {"velocity": 1.0}], "velocity (m/s)", [2, 1]),
        ([{"goal": [0.0, 1.0]}, {"goal": [-1.0, 0.0]}], "angle of the goal (degrees)", [90, 180]),
        (  # a goal at 180 degrees may lie below the axis by the last digit, one at 0 too
            [{"goal": [-1.0, -3.2e-16]}, {"goal": [-0.9, 0.1]}, {"goal": [1.0, -1e-17]}],
            "angle of the goal (degrees)",
            [180, 173.6598, 0],
        ),
        ([{"goal": [-1.0, -1e-16]}], "angle of the goal (degrees)", [180]),
        ([{"goal": [0.0, 1.0]}, {"goal": [-1.0, -1.0]}], "angle of the goal (degrees)", [90, 225]),
        ([{"goal": [0.0, -1.0]}, {"goal": [1.0, 1.0]}], "angle of the goal (degrees)", [-90, 45]),
        ([{"wind": [0.1, 0.5]}, {"wind": [0.2, 0.0]}], "wind along x (per step)", [0.1, 0.2]),
        ([{"mass": [1.0, 2.0, 3.0]}, {"mass": [1.0, 1.0, 1.0]}], "mean mass", [2, 1]),
        ([{"site": "a", "wear": 3}, {"site": "b", "wear": 4}], "wear", [3, 4]),
        ([{"site": "a"}, {}], "place in the list of tasks", [0, 1]),
    ],
)
def test_a_task_has_one_number_to_be_coloured_by(params, label, values):
    found = gather.task_values([Task(str(i), values) for i, values in enumerate(params)])
    assert found[0] == label
    np.testing.assert_allclose(found[1], values, atol=1e-4)


# -- folders and errors ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return small_run(walks("point-robot-wind", folder / "data"), folder / "run", steps=1, eval_every=0)


@pytest.fixture
def quick(monkeypatch):
    """A report that is made at once: for what happens to folders."""

    def build_page(runs, folder, command, trust, color):
        (folder / "index.html").write_text(command)

    monkeypatch.setattr("omrl.reporting.command.build", build_page)


def test_an_earlier_report_is_replaced_and_nothing_else_is(run, tmp_path, quick):
    out = tmp_path / "deep" / "report"
    assert omrl.report(run, out) == out / "index.html"
    (out / "index.html").write_text("old")
    report([run], out)
    assert (out / "index.html").read_text() != "old"
    assert {path.name for path in out.parent.iterdir()} == {"report"}
    with pytest.raises(OmrlError, match="is not a report"):
        report(run, out / "index.html")
    (out / "notes.txt").write_text("x")
    with pytest.raises(OmrlError, match=r"holds notes.txt, which omrl did not write"):
        report(run, out)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.json").write_text("{}")
    with pytest.raises(OmrlError, match="is not a report"):
        report(run, tmp_path / "mine")
    for place in (run, run / "report", run.parent):
        with pytest.raises(OmrlError, match=r"which is read|is what is read"):
            report(run, place)
    (tmp_path / "empty").mkdir()
    assert report(run, tmp_path / "empty").is_file()


def test_the_command_prints_the_path_of_the_page(run, tmp_path, quick, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["omrl", "report", str(run), "--out", str(tmp_path / "report")])
    cli.main()
    assert capsys.readouterr().out.strip() == str(tmp_path / "report" / "index.html")
    assert (tmp_path / "report" / "index.html").read_text() == f"omrl report {run} --out {tmp_path / 'report'}"


def test_a_report_that_fails_leaves_the_earlier_one(run, tmp_path, quick, monkeypatch):
    report(run, tmp_path / "report")
    before = (tmp_path / "report" / "index.html").read_bytes()

    def broken(runs, folder, command, trust, color):
        (folder / "index.html").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr("omrl.reporting.command.build", broken)
    with pytest.raises(KeyboardInterrupt):
        report(run, tmp_path / "report")
    assert (tmp_path / "report" / "index.html").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"report"}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("config.json", "{", "is not JSON"),
        ("config.json", "{}", "RunConfig needs algorithm"),
        ("environment.json", "[]", "is not a JSON object"),
        ("metrics.csv", "a,b\n1,2\n", "must have the columns step, transitions"),
        ("metrics.csv", "step,transitions,seed,name,value\n1,2,0,q,blue\n", "where a number belongs"),
        ("scores.csv", "seed,task,split,episode,return\n0,a,test,0,x\n", "where a number belongs"),
        ("scores.csv", "seed,task,split,episode,return\n0,a,test,0,1\n0,b,test,1,1\n", "one row for every seed"),
        ("logged.csv", "seed,task,split,metric,value\n0,a,test,q,1\n", "no action_error"),
        ("checkpoints/latest", "newest\n", "does not name a checkpoint"),
    ],
)
def test_damaged_files_get_one_sentence_that_names_them(run, tmp_path, file, text, message):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / file).write_text(text)
    with pytest.raises(OmrlError, match=message) as caught:
        report(tmp_path / "run", tmp_path / "report")
    assert file in str(caught.value)
    assert not (tmp_path / "report").exists()


def test_no_run_the_same_run_twice_and_no_matplotlib_get_one_sentence(run, tmp_path):
    with pytest.raises(OmrlError, match="at least one run"):
        report([], tmp_path / "report")
    with pytest.raises(OmrlError, match="is not a run"):
        report(tmp_path, tmp_path / "report")
    with pytest.raises(OmrlError, match="given twice"):
        report([run, run], tmp_path / "report")
    without = "import sys; sys.modules['matplotlib'] = None; sys.argv[0] = 'omrl'; from omrl.cli import main; main()"
    words = [sys.executable, "-c", without, "report", str(run), "--out", str(tmp_path / "report")]
    found = subprocess.run(words, capture_output=True, text=True)
    assert found.returncode == 2 and found.stderr.count("\n") == 1 and "omrl[plot]" in found.stderr


def test_runs_of_the_same_name_are_told_apart_and_a_half_written_row_is_left_out(run, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(run, tmp_path / name / "run")
    with (tmp_path / "a" / "run" / "metrics.csv").open("a") as file:
        file.write("2,9")
    found = gather.gather([tmp_path / "a" / "run", tmp_path / "b" / "run"])
    assert [facts.name for facts in found] == ["a/run", "b/run"]
    assert found[0].curves.keys() == found[1].curves.keys()


def test_what_is_stale_or_unfinished_is_said(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "steps": 50}))
    (tmp_path / "run" / "scores.csv").write_text("seed,task,split,episode,return\n0,task-000,train,0,1\n")
    past = (tmp_path / "run" / "checkpoints" / "latest").stat().st_mtime - 10
    os.utime(tmp_path / "run" / "scores.csv", (past, past))
    notes = " ".join(gather.gather([tmp_path / "run"])[0].notes)
    assert "1 of 50 updates" in notes and "older than its newest checkpoint" in notes and "trained on" in notes


def test_own_logs_show_what_one_should_know_of_them(made, tags):
    """What `omrl data validate` notes stands on the page, with two pictures; a family's data has neither."""
    said = " ".join(tags.words)
    assert "3 of 3 tasks have few rows (the median is 40)" in said and said.count("before training on it:") == 1
    drawn = {path.name for path in (made.folder / "figures").iterdir()}
    assert {"rows-pumps.png", "rows-pumps.svg", "columns-pumps.png", "columns-pumps.svg"} <= drawn
    assert not any(name.startswith(("rows-walks", "columns-walks")) for name in drawn)
    svg = (made.folder / "figures" / "columns-pumps.svg").read_text()
    assert all(f">{name}<" in svg for name in ("observation 0", "observation 2", "action 0", "reward"))
