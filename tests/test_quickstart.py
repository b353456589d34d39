"""The quickstart: the whole flow, with the same figures wherever they are shown."""

from __future__ import annotations

import csv
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import omrl
from omrl import quickstart
from omrl.commands.quickstart import Quickstart
from omrl.errors import OmrlError

POLICIES = Path(__file__).parents[1] / "policies"


@pytest.mark.thorough
def test_what_is_printed_is_on_the_page_and_in_the_scores(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    few = partial(omrl.train, steps=3)
    monkeypatch.setattr(omrl, "train", lambda *args, **options: few(*args, **options))
    quickstart.run(Quickstart(tmp_path / "out", policies=POLICIES, seed=3))
    printed = capsys.readouterr().out
    assert all(f"{stage}/4  " in printed for stage in range(1, 5))
    with (tmp_path / "out" / "run" / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["seed"] for row in rows} == {"3", "4"} and len({row["task"] for row in rows}) == 20
    mean = np.mean([float(row["return"]) for row in rows])
    found = re.search(r"mean return\s+│ (-?[\d.]+) \[", printed)
    assert found and float(found[1]) == pytest.approx(mean, abs=0.006)
    page = Path(re.search(r"The page: (.+)", printed)[1])  # type: ignore[index]
    assert page == (tmp_path / "out" / "report" / "index.html").absolute()
    assert f">{found[1]}<" in page.read_text()
    assert "from 10 transitions" in printed


def test_without_published_policies_it_says_what_to_do(tmp_path):
    with pytest.raises(OmrlError, match="--train-behaviour"):
        quickstart.run(Quickstart(tmp_path / "out", policies=tmp_path))
    assert not (tmp_path / "out").exists()
