"""`omrl select` on runs of a made-up domain."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from domains import DOMAINS

import omrl
from omrl.errors import OmrlError
from omrl.evaluation.stats import Estimate
from omrl.runs.run import RUN, Run
from omrl.selecting.logs import Actions
from omrl.selecting.verdict import FAR, LEFT, LOST, Findings, judge, mean_of_draws, standing
from omrl.storage import folders
from training_helpers import SMALL

SIZES = {**SMALL, "hidden": (16, 16), "encoder_hidden": (16, 16), "batch_size": 32, "context_size": 16}
OPTIONS = {"seeds": 3, "eval_every": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A log of a shaky hand, a clone of it, and policies that are not trained at all and act at random."""
    folder = tmp_path_factory.mktemp("select")
    whole = DOMAINS["crane"].dataset("noisy", episodes=6)
    some = [*whole.split["train"][:5], *whole.split["test"][:3]]
    whole.select(some).save(folder / "data")
    omrl.train("contextual-bc", folder / "data", folder / "clone", steps=300, **SIZES, **OPTIONS)
    omrl.train("contextual-bc", folder / "data", folder / "wild", steps=1, **SIZES, **OPTIONS)
    run = Run.open(folder / "wild")
    step, state = run.load()
    state["params"] += 3.0
    run.save(step + 1, state)
    return folder


@pytest.fixture(scope="module")
def chosen(place):
    return omrl.select([place / "wild", place / "clone"])


def test_the_better_run_comes_first(place, chosen):
    assert [one.run for one in chosen] == [place / "clone", place / "wild"]
    clone, wild = (one.findings for one in chosen)
    assert clone.action_error == pytest.approx(clone.noise, rel=0.25)
    assert wild.gain.value < clone.gain.value - 5
    assert chosen[1].verdict.word == "worse"
    assert (clone.seeds, clone.tasks) == (3, 3)
    assert chosen[0].split == "test"


def test_what_was_found_lies_in_the_run(place, chosen):
    run = Run.open(chosen[0].run)
    found = run.summary("selected")
    assert found["word"] == chosen[0].verdict.word
    assert found["gain"]["value"] == chosen[0].findings.gain.value
    assert not run.scores_changed("selected")
    assert not folders.foreign(run.folder, RUN)
    rows = (run.folder / "selected.csv").read_text().splitlines()
    assert rows[0] == "seed,task,split,metric,value"
    gains = [float(row.split(",")[-1]) for row in rows[1:] if ",gain," in row]
    assert np.mean(gains) == pytest.approx(found["gain"]["value"], rel=1e-4)


def test_the_same_again_is_the_same(place, chosen):
    before = (place / "clone" / "selected.json").read_bytes()
    omrl.select(place / "clone")
    assert (place / "clone" / "selected.json").read_bytes() == before


def test_the_command_prints_a_table_or_json(place, chosen, tmp_path):
    words = [sys.executable, "-m", "omrl", "select", place / "clone", place / "wild"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "return beyond the logger's" in done.stdout
    assert done.stdout.index("clone") < done.stdout.index("wild")
    # The table is narrow; what it has no room for is said to be in a file, and is.
    *_, where, more = done.stdout.splitlines()
    assert "selected.json" in where and more.startswith("Not in the table, but there:")
    kept = json.loads((place / "clone" / "selected.json").read_text())
    assert all(name in more and name in kept for name in ("outside", "disagreement", "identification"))
    shutil.copytree(place / "data", tmp_path / "moved")
    done = subprocess.run([*words, "--json", "--data", tmp_path / "moved"], capture_output=True, text=True, check=True)
    assert [one["verdict"]["word"] for one in json.loads(done.stdout)] == [one.verdict.word for one in chosen]


def test_wrong_questions_are_answered_in_one_sentence(place, tmp_path):
    with pytest.raises(OmrlError, match="Name at least one run"):
        omrl.select([])
    with pytest.raises(OmrlError, match="--context must be at least 1, not 0"):
        omrl.select(place / "clone", context=0)
    with pytest.raises(OmrlError, match="is not a run"):
        omrl.select(tmp_path)
    with pytest.raises(OmrlError, match="is not a meta-dataset"):
        omrl.select(place / "clone", data=tmp_path)


FOUND = Findings(
    seeds=3,
    tasks=8,
    logger=-10.0,
    gain=Estimate(2.0, 1.0, 3.0),
    fitted_q=Estimate(1.0, -1.0, 3.0),
    left=0.0,
    far=0.05,
    outside=0.0,
    action_error=0.5,
    noise=0.4,
    disagreement=0.1,
    identification=0.9,
)


@pytest.mark.parametrize(
    ("changes", "word", "why"),
    [
        ({}, "better", ""),
        ({"gain": Estimate(-2.0, -3.0, -1.0)}, "worse", ""),
        ({"gain": Estimate(2.0, -1.0, 5.0)}, "cannot tell", "may be of either sign"),
        ({"gain": Estimate(2.0, None, None)}, "cannot tell", "no interval"),
        ({"left": 2 * LEFT}, "cannot tell", "leaves the log"),
        ({"far": FAR + 0.1}, "cannot tell", "far from the log"),
        ({"far": None}, "better", ""),
        ({"gain": Estimate(-2.0, -3.0, -1.0), "far": 0.9, "left": 0.5}, "worse", ""),
        ({"fitted_q": Estimate(-3.0, -4.0, -2.0)}, "cannot tell", "it looks better, but fitted-Q evaluation says the"),
        ({"fitted_q": Estimate(3.0, 2.0, 4.0)}, "better", ""),
        ({"fitted_q": Estimate(-3.0, None, None)}, "better", ""),
        (
            {"gain": Estimate(-3.0, -5.0, -1.0), "fitted_q": Estimate(3.0, 2.0, 4.0)},
            "cannot tell",
            "it looks worse, but fitted-Q evaluation says the opposite, 3.00 [2.00, 4.00]",
        ),
        ({"gain": Estimate(-3.0, -5.0, -1.0), "fitted_q": Estimate(-3.0, -4.0, -2.0)}, "worse", ""),
        ({"gain": Estimate(-3.0, -5.0, -1.0), "fitted_q": Estimate(3.0, None, None)}, "worse", ""),
    ],
)
def test_signals_that_disagree_are_named(changes, word, why):
    verdict = judge(replace(FOUND, **changes))
    assert verdict.word == word
    assert why in " ".join(verdict.reasons)
    assert bool(verdict.reasons) == (word == "cannot tell")


def test_runs_that_worlds_lost_come_last_those_first_that_act_as_the_logger_did():
    worst = replace(FOUND, gain=Estimate(-9.0, -10.0, -8.0))
    lost = [replace(FOUND, left=2 * LOST, action_error=error) for error in (0.2, 0.9)]
    assert sorted([*reversed(lost), worst, FOUND], key=standing, reverse=True) == [FOUND, worst, *lost]


def test_an_interval_has_the_spread_of_seeds_tasks_and_worlds():
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(1, 3, 6)).repeat(12, axis=0)
    alone = mean_of_draws(cells)
    wider = mean_of_draws(cells + 5.0 * rng.normal(size=(12, 1, 1)))
    assert alone.error == pytest.approx(mean_of_draws(cells + 1.0).error)
    assert wider.error > 3 * alone.error
    # The worlds are as many as they are, however few seeds there are.
    assert wider.freedom == pytest.approx(11, abs=1.5)
    # Of one seed, the spread of its tasks.
    one = mean_of_draws(cells[:, :1])
    assert one.error == pytest.approx(cells[0, 0].std(ddof=1) / np.sqrt(6))


def test_choices_are_ones_among_zeros():
    actions = Actions(np.zeros(1), np.ones(1), (np.array([-1.0, 0.0, 1.0]),))
    np.testing.assert_array_equal(actions.encode(np.array([[-1.0], [0.1], [0.9]])), np.eye(3))
