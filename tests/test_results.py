"""Published results are those of the presets they name."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from omrl.algorithms.focal import FOCALConfig
from omrl.training import read_preset

FOCAL = Path(__file__).parents[1] / "results" / "focal"
RUNS = sorted(path.parent for path in FOCAL.glob("*/config.json"))
# Runs that were made for one comparison, and what they change of their preset.
SHORT = {
    "half-cheetah-vel-10k": {"steps": 10_000, "half": False},
    "half-cheetah-vel-10k-half": {"steps": 10_000, "half": True},
}


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_published_run_was_made_with_its_preset(folder):
    config = json.loads((folder / "config.json").read_text())
    values = read_preset("focal", config["preset"], config["family"])
    if folder.name in SHORT:
        values |= SHORT[folder.name]
    for name in ("level", "max_rows", "steps"):
        assert values.pop(name, config[name]) == config[name]
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    assert json.loads(json.dumps(asdict(FOCALConfig(**values)))) == config["hyperparameters"]


def raw_scores(name):
    with (FOCAL / name / "scores.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_is_made_of_the_raw_scores():
    rows = [(f"{row['family']}-{row['preset']}", row) for row in json.loads((FOCAL / "focal.json").read_text())]
    rows += zip(SHORT, json.loads((FOCAL / "half.json").read_text()), strict=True)
    for name, row in rows:
        scores = raw_scores(name)
        assert row["mean"]["value"] == pytest.approx(np.mean([float(score["return"]) for score in scores]), rel=1e-4)
        assert len({score["seed"] for score in scores}) == row["seeds"] >= 3


def test_half_precision_agrees_within_the_intervals():
    single, half = (row["mean"] for row in json.loads((FOCAL / "half.json").read_text()))
    assert half["low"] <= single["value"] <= half["high"]
    assert single["low"] <= half["value"] <= single["high"]
