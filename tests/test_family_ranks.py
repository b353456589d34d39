"""What ranks policies of omrl's own families by logs and by their simulator."""

from __future__ import annotations

import json
import sys

import family_ranks
import pytest

import selecting
from omrl.selecting import logs


@pytest.fixture
def small(monkeypatch):
    """Few tasks, rows and updates."""
    monkeypatch.setattr(family_ranks, "TASKS", 8)
    monkeypatch.setattr(family_ranks, "EPISODES", 2)
    monkeypatch.setitem(family_ranks.EFFORTS, "point-robot-wind", selecting.Effort((1, 2), 1))
    for name, value in {"ALPHAS": (10.0, 100.0), "SEEDS": 2, "DAMAGE": (0.5,)}.items():
        monkeypatch.setattr(selecting, name, value)
    for name in ("ALL_ROWS", "JUDGED_ROWS"):
        monkeypatch.setattr(logs, name, 200)


def test_a_family_is_judged_over_its_horizon_and_others_stay(small, tmp_path, monkeypatch):
    path = tmp_path / "families.json"
    other = {"domain": "sparse-point-robot", "logger": "expert"}
    path.write_text(json.dumps([other]))
    monkeypatch.setattr(sys, "argv", ["family_ranks", "point-robot-wind", "--levels", "expert", "--json", str(path)])
    family_ranks.main()
    first, *rows = json.loads(path.read_text())
    assert first == other
    assert [row["recipe"] for row in rows][-2:] == ["focal, alpha 10, damaged by 0.5", "cloned logger"]
    for row in rows:
        # The returns of the logs that both are compared with, of episodes of 200 steps, are those of the first 20.
        assert -12 < row["found"]["logger"] < -4
        assert row["seeds"] == 2
        assert row["true"]["gain"]["value"] < 0  # hardly trained
