"""What measures all cells of the made-up domains: side by side, and never twice."""

from __future__ import annotations

import json

import cells
import pytest
from domains import DOMAINS


def told(domain, logger):
    """What a cell is measured to be; in every process the same."""
    return [{"domain": domain.name, "logger": logger, "tasks": len(domain.tasks)}]


def fails(domain, logger):
    raise AssertionError(f"{domain.name} is measured again")


def measure(folder, measure, *given, head=None):
    cells.measure_cells("", measure, head, ["--json", str(folder / "all.json"), "--cells", str(folder / "own"), *given])
    return json.loads((folder / "all.json").read_text())


@pytest.mark.parametrize("processes", ["1", "2"])
def test_every_cell_has_a_file_and_all_are_in_one(tmp_path, processes):
    found = measure(tmp_path, told, "--domains", "battery", "crane", "--processes", processes)
    # In the order of the domains, whatever was done first.
    assert [row["domain"] for row in found] == ["crane"] * 3 + ["battery"] * 3
    assert [row["logger"] for row in found] == ["noisy", "noiseless", "mixed"] * 2
    assert len(list((tmp_path / "own").iterdir())) == 6


def test_what_is_measured_stays_as_it_is(tmp_path):
    first = measure(tmp_path, told, "--domains", "crane")
    assert measure(tmp_path, fails, "--domains", "crane") == first
    with pytest.raises(AssertionError, match="battery is measured again"):
        measure(tmp_path, fails, "--domains", "crane", "battery")


def test_the_file_of_all_keeps_what_it_had_of_other_cells(tmp_path):
    old = [{"domain": name, "logger": "mixed", "tasks": 0} for name in ("crane", "irrigation")]
    (tmp_path / "all.json").write_text(json.dumps({"omrl": "of before", "cells": old}))
    found = measure(tmp_path, told, "--domains", "crane", "--loggers", "mixed", head={"omrl": "of now"})
    assert found["omrl"] == "of now"
    assert [(row["domain"], row["tasks"]) for row in found["cells"]] == [
        ("crane", len(DOMAINS["crane"].tasks)),
        ("irrigation", 0),
    ]
