"""An algorithm of another distribution, installed as a user would: everything that omrl does, it does with it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from omrl.families import FAMILIES
from training_helpers import walks

pytestmark = pytest.mark.thorough

PLUGIN = Path(__file__).parent / "plugin"
TOGETHER = ["--seeds", "2", "--steps", "6", "--width", "4", "--batch-size", "4", "--context-size", "3"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the distribution installed from its wheel."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=PLUGIN, check=True, capture_output=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(next(wheels.glob("*.whl")))], check=True, capture_output=True)
    return site


@pytest.fixture(scope="module")
def omrl(site, tmp_path_factory):
    """The command line, where that distribution is installed."""
    folder = tmp_path_factory.mktemp("work")
    walks(FAMILIES["sparse-point-robot"], folder / "data")
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])

    def command(*words, fails=False):
        done = subprocess.run(
            [sys.executable, "-m", "omrl", *words],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stdout + done.stderr

    command.folder = folder
    return command


@pytest.fixture(scope="module")
def run(omrl):
    omrl("train", "prototypes", "--data", "data", "--out", "run", *TOGETHER, "--log-every", "2", "--eval-every", "0")
    return omrl.folder / "run"


def test_it_trains_by_its_short_name_with_its_preset_and_its_stage(run):
    config = json.loads((run / "config.json").read_text())
    assert config["algorithm"] == "prototypes" and config["hyperparameters"]["latent_dim"] == 3
    assert config["batch"]["consecutive"] and config["batch"]["other_tasks"]
    with (run / "metrics.csv").open(newline="") as file:
        assert {row["name"] for row in csv.DictReader(file)} >= {"imitation", "reward_error"}
    assert (run / "stages" / "mean-reward" / "result.safetensors").is_file()


def test_it_is_evaluated_and_reported_with_its_own_words(omrl, run):
    assert "mean" in omrl("evaluate", "run", "--episodes", "1", "--context", "10")
    omrl("report", "run", "--out", "report")
    assert "Error of the imitated actions" in (omrl.folder / "report" / "index.html").read_text()


def test_a_protocol_of_that_distribution_is_found(omrl, run):
    assert "one-row" in omrl("evaluate", "run", "--episodes", "1", "--protocol", "one-row")
    assert json.loads((run / "one-row-episodes-1.json").read_text())["protocol"] == "one-row"
    assert "value" in json.loads((run / "one-row-episodes-1.json").read_text())["gain"]
    assert "--protocol is given-context or logged or one-row" in omrl("evaluate", "run", "--protocol", "x", fails=True)


def test_its_speed_is_measured(omrl):
    words = ["--algorithms", "prototypes", "--seeds", "1", "--device", "cpu", "--mode", "eager", "--seconds", "0"]
    assert "prototypes, 1 seed" in omrl("bench", "update", *words, "--repeats", "1")


def test_another_preset_is_found_and_an_unknown_one_is_not(omrl):
    words = ["train", "prototypes", "--data", "data", "--out", "other", "--dry-run"]
    assert '"step_size": 0.0001' in omrl(*words, "--preset", "careful")
    assert "it has paper, careful" in omrl(*words, "--preset", "brave", fails=True)


def test_its_flags_are_listed_and_it_is_named_among_the_others(omrl):
    assert "--prototypes INT" in omrl("train", "prototypes", "--help")
    assert "prototypes" in omrl("train", "prototype", "--data", "data", "--out", "x", fails=True)


def test_a_family_of_that_distribution_is_simulated(omrl):
    rng, log, params = np.random.default_rng(0), ["task,episode,obs_0,obs_1,action,reward,terminated"], {}
    for number, loss in enumerate((0.05, 0.1, 0.2, 0.3)):
        params[f"tank-{number}"] = {"loss": loss}
        for episode in range(3):
            warm, wanted = rng.uniform([0.0, 0.5], [0.5, 1.5])
            for _ in range(20):
                act = rng.uniform(-1, 1)
                after = warm + 0.2 * (1 + act) - loss * warm
                log.append(f"tank-{number},{episode},{warm},{wanted},{act},{-abs(after - wanted)},0")
                warm = after
    (omrl.folder / "tanks.csv").write_text("\n".join(log) + "\n")
    (omrl.folder / "tanks.json").write_text(json.dumps(params))
    told = ["--family", "tanks", "--task-params", "tanks.json", "--test-tasks", "tank-2"]
    omrl("data", "import", "--from", "csv", "tanks.csv", "tanks", *told)
    small = ["--steps", "4", "--seeds", "1", "--hidden", "8", "8", "--encoder-hidden", "8", "8", "--meta-batch", "2"]
    omrl("train", "focal", "--data", "tanks", "--out", "tanks-run", *small, "--eval-every", "2")
    assert "mean return" in omrl("evaluate", "tanks-run", "--episodes", "2")
    omrl("report", "tanks-run", "--out", "tanks-report")
    page = (omrl.folder / "tanks-report" / "index.html").read_text()
    assert "There is no film strip: Tanks cannot be drawn." in page
    assert "the families are sparse-point-robot" in (said := omrl("collect", "tank", "--out", "x", fails=True))
    assert "(did you mean 'tanks'?)" in said
    assert "omrl trains no agents for tanks" in omrl("collect", "tanks", "--out", "x", fails=True)


def test_a_study_compares_it_with_others(omrl):
    sizes = "width = 4, batch_size = 4, context_size = 3"
    (omrl.folder / "ours.toml").write_text(
        '[experiment.ours]\ntitle = "Prototypes, few and many"\ndata = [{ path = "data" }]\n'
        f'rows = [{{ label = "few", algorithm = "prototypes", changes = {{ {sizes}, prototypes = 2 }} }},\n'
        f'        {{ label = "many", algorithm = "prototypes", changes = {{ {sizes}, prototypes = 5 }} }}]\n'
        'tables = ["returns"]\n[[experiment.ours.claims]]\ntext = "More are better."\nmetric = "return"\n'
        'better = ["many"]\nworse = ["few"]\nwhose = "ours"\n'
    )
    words = ["study", "run", "ours.toml", "--scale", "small", "--seeds", "2", "--device", "cpu"]
    assert "many on" in omrl(*words)
    results = json.loads((omrl.folder / "study" / "ours" / "results.json").read_text())
    assert [row["algorithm"] for row in results["rows"]] == ["prototypes", "prototypes"]
    assert results["claims"][0]["verdict"]
    # Another claim about the same runs is judged, and nothing is trained.
    trained = {path: path.stat().st_mtime_ns for path in omrl.folder.glob("study/runs/*/checkpoints/*")}
    text = (omrl.folder / "ours.toml").read_text()
    (omrl.folder / "ours.toml").write_text(text.replace("More are better.", "More are still better."))
    omrl(*words)
    again = json.loads((omrl.folder / "study" / "ours" / "results.json").read_text())
    assert [claim["claim"] for claim in again["claims"]] == ["More are still better."]
    assert again["rows"] == results["rows"] and trained
    assert trained == {path: path.stat().st_mtime_ns for path in omrl.folder.glob("study/runs/*/checkpoints/*")}


def test_its_hyperparameters_are_tried(omrl):
    (omrl.folder / "trials.toml").write_text(
        '[[rows]]\nlabel = "Prototypes"\nalgorithm = "prototypes"\npreset = "paper"\n'
        "changes = { width = 4, batch_size = 4, context_size = 3 }\ntried = { step_size = [1e-4, 1e-3] }\n"
    )
    words = ["--data", "data", "--out", "trials.json", "--steps", "2", "--episodes", "1", "--device", "cpu"]
    assert "Prototypes" in omrl("tune", "trials.toml", *words)
    tried = json.loads((omrl.folder / "trials.json").read_text())
    # The best of two values lies on an edge, so that one more is tried beyond it.
    assert [one["trial"]["step_size"] for one in tried[:2]] == [1e-4, 1e-3] and len(tried) == 3
    assert {one["algorithm"] for one in tried} == {"prototypes"}
