"""Distances to the log, beside loops."""

from __future__ import annotations

import numpy as np
import pytest

from omrl.selecting.neighbours import NEAREST, Neighbours


def distance(x, rows):
    return np.sort(np.sqrt(((rows - x) ** 2).sum(-1)))[:NEAREST].mean()


def test_one_in_twenty_of_the_logs_own_rows_is_the_measure():
    rng = np.random.default_rng(0)
    rows, episode = rng.normal(size=(120, 3)), np.arange(120) // 20
    own = [distance(row, rows[episode != episode[i]]) for i, row in enumerate(rows)]
    usual = np.quantile(own, 0.95)
    places = rng.normal(size=(200, 3)) * 1.5
    wanted = np.mean([distance(place, rows) > usual for place in places])
    assert 0.05 < wanted < 0.9
    assert Neighbours(rows, episode).far(places) == pytest.approx(wanted)


def test_one_episode_does_not_tell_what_is_usual():
    assert np.isnan(Neighbours(np.zeros((5, 2)), np.zeros(5)).far(np.ones((3, 2))))
