"""Programs: traced once, compiled, kept for the next process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
import torch
from torch._inductor.exc import InductorError

from omrl.learning import compiling

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="a CPU's programs need a C++ compiler")


def update(state, gradients):
    """Like a step of an optimiser: reads views of what it changes, and returns something of another shape."""
    state["slow"].add_(0.5 * (state["fast"][:, :2] - state["slow"]))
    state["fast"].sub_(torch.cat(gradients, dim=1))
    return {"largest": state["fast"].amax(), "of": (state["slow"].sum(1),)}


def inputs():
    numbers = torch.Generator().manual_seed(0)
    state = {"slow": torch.randn(3, 2, generator=numbers), "fast": torch.randn(3, 6, generator=numbers)}
    return state, [torch.randn(3, 2, generator=numbers), torch.randn(3, 4, generator=numbers)]


@needs_compiler
def test_a_program_changes_its_inputs_and_answers_as_the_function_does():
    program = compiling.compiled(update)
    (state, gradients), (plain, same) = inputs(), inputs()
    for _ in range(3):
        found, expected = program(state, gradients), update(plain, same)
        torch.testing.assert_close(found["largest"], expected["largest"])
        torch.testing.assert_close(found["of"][0], expected["of"][0])
        torch.testing.assert_close(state, plain)


@needs_compiler
def test_a_program_works_on_views_and_leaves_what_is_beside_them():
    whole, gradients = torch.ones(3, 20), inputs()[1]
    state = {"slow": whole[:, 1:3], "fast": whole[:, 5:11]}
    plain = {name: view.clone() for name, view in state.items()}
    compiling.compiled(update)(state, gradients)
    update(plain, gradients)
    torch.testing.assert_close(state, plain)
    beside = torch.ones(20, dtype=torch.bool)
    beside[1:3] = beside[5:11] = False
    assert bool((whole[:, beside] == 1.0).all())


@needs_compiler
def test_tensors_of_the_function_itself_are_part_of_its_program():
    for own in (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])):
        program = compiling.compiled(lambda x, own=own: [x * own])
        assert program(torch.ones(2))[0].tolist() == own.tolist()


SHOW = """
import sys, torch
from omrl.learning.compiling import compiled
factor = float(sys.argv[1])
print(compiled(lambda x: (factor * x).sum())(torch.ones(8)).item())
from torch._dynamo.utils import counters
print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""


@needs_compiler
def test_the_next_process_finds_the_program_and_another_function_does_not(tmp_path):
    clean = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}

    def show(factor):
        words, env = [sys.executable, "-c", SHOW, str(factor)], clean | {"XDG_CACHE_HOME": str(tmp_path)}
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout.split()

    assert show(2.0) == ["16.0", "0", "1"]
    assert show(2.0) == ["16.0", "1", "0"]
    assert show(3.0) == ["24.0", "0", "1"]


# -- compilers that fail -----------------------------------------------------------------------------------------------


def test_what_the_compiler_cannot_do_runs_as_it_is(monkeypatch, capsys):
    calls = []

    def fail(*asked):
        calls.append(asked)
        raise InductorError(ValueError("no tile\nand much more"), None)

    monkeypatch.setattr(compiling, "compile_traced", fail)
    double = compiling.compiled(lambda x: 2 * x)
    assert [double(torch.tensor(x)).item() for x in (1, 2, 3)] == [2, 4, 6]
    assert len(calls) == 1  # it is not asked again
    printed = capsys.readouterr().err
    assert printed.count("warning: not compiled") == 1 and "no tile" in printed and "much more" not in printed


def test_an_error_of_the_function_is_no_error_of_the_compiler(capsys):
    with pytest.raises(RuntimeError, match="broadcast"):
        compiling.compiled(lambda x: [x[:2] + x])(torch.ones(3))
    assert "not compiled" not in capsys.readouterr().err


def test_what_compiles_is_not_run_as_it_is(monkeypatch):
    def fast(function, example):
        function(*example)
        return lambda tensors: [100 * tensors[0]]

    monkeypatch.setattr(compiling, "compile_traced", fast)
    assert compiling.compiled(lambda x: 2 * x)(torch.tensor(4)).item() == 400


# -- what torch compiles and keeps -------------------------------------------------------------------------------------


def test_compiled_programs_are_kept_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiling.keep_compiled_programs()
    folder = tmp_path / "omrl" / f"torch-{torch.__version__}"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
    assert folder.stat().st_mode & 0o077 == 0  # private
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    compiling.keep_compiled_programs()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "elsewhere"


def test_a_home_that_cannot_be_written_to_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compiling.keep_compiled_programs()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


def test_a_cache_that_has_grown_too_large_loses_what_was_used_longest_ago(tmp_path):
    for age, name in enumerate(("new", "old", "oldest")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "program").write_bytes(bytes(100))
        os.utime(tmp_path / name / "program", (1e9 - age, 1e9))
    compiling.forget_oldest(tmp_path, limit=300)
    assert len(list(tmp_path.rglob("program"))) == 3
    compiling.forget_oldest(tmp_path, limit=299)
    assert [path.parent.name for path in tmp_path.rglob("program")] == ["new"]
