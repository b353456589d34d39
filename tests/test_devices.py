"""How a CPU computes: threads and compiling by a fixed rule."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
import torch

from omrl.algorithms.focal import FOCALConfig
from omrl.learning import devices

SMALL = FOCALConfig(hidden=(64, 64), encoder_hidden=(64, 64), batch_size=64)
PAPER = FOCALConfig()


@pytest.fixture
def many_cores(monkeypatch):
    monkeypatch.setattr("omrl.learning.devices.usable_cores", lambda: 16)


def test_threads_follow_from_the_size_of_the_work(many_cores):
    tiny = dataclasses.replace(SMALL, batch_size=1)
    assert devices.on_cpu(tiny, 1, 10)["threads"] == 1
    assert devices.on_cpu(SMALL, 1, 10)["threads"] == 16 * 64 * 64 // devices.NUMBERS_PER_THREAD
    assert devices.on_cpu(SMALL, 2, 10)["threads"] == 2 * devices.on_cpu(SMALL, 1, 10)["threads"]
    assert devices.on_cpu(PAPER, 1, 10)["threads"] == 16  # no more than there are cores
    assert devices.on_cpu(PAPER, 1, 10, threads=3)["threads"] == 3


@pytest.mark.parametrize(("updates", "mode"), [(3_999, "eager"), (4_000, "compiled")])
def test_long_runs_are_compiled_where_there_is_a_compiler(updates, mode, monkeypatch):
    monkeypatch.setattr(devices, "has_compiler", lambda: True)
    assert devices.on_cpu(SMALL, 1, updates)["mode"] == mode
    monkeypatch.setattr(devices, "has_compiler", lambda: False)
    assert devices.on_cpu(SMALL, 1, updates)["mode"] == "eager"


def test_threads_are_limited_for_a_while():
    before = torch.get_num_threads()
    with devices.limited_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    with devices.limited_threads(None):
        assert torch.get_num_threads() == before


def test_the_command_waits_briefly_for_its_threads_unless_told_otherwise():
    show = "import os, sys; sys.argv = ['omrl', '--version']; from omrl.cli import main; main(); "
    show += "print(os.environ.get('GOMP_SPINCOUNT'))"
    clean = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    for own, wanted in (({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")):
        words = [sys.executable, "-c", show]
        done = subprocess.run(words, env=clean | own, capture_output=True, text=True, check=True)
        assert done.stdout.split()[-1] == wanted


def test_asking_for_a_compiler_leaves_programs_in_the_users_cache(tmp_path):
    """Importing torch's compiler makes torch choose a place of its own, unless it was told one before."""
    ask = "import os; from omrl.learning import devices; devices.has_compiler()"
    show = f"{ask}; print(os.environ['TORCHINDUCTOR_CACHE_DIR'])"
    clean = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}
    words, here = [sys.executable, "-c", show], clean | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(words, env=here, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1].startswith(str(tmp_path / "omrl"))
