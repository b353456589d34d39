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


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_published_run_was_made_with_its_preset(folder):
    config = json.loads((folder / "config.json").read_text())
    values = read_preset("focal", config["preset"], config["family"])
    for name in ("level", "max_rows", "steps"):
        assert values.pop(name, config[name]) == config[name]
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    assert json.loads(json.dumps(asdict(FOCALConfig(**values)))) == config["hyperparameters"]


def test_the_table_is_made_of_the_raw_scores():
    for row in json.loads((FOCAL / "focal.json").read_text()):
        with (FOCAL / f"{row['family']}-{row['preset']}" / "scores.csv").open(newline="") as file:
            scores = list(csv.DictReader(file))
        assert row["mean"]["value"] == pytest.approx(np.mean([float(score["return"]) for score in scores]), rel=1e-4)
        assert len({score["seed"] for score in scores}) == row["seeds"] >= 3
