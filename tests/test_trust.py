"""Opening what somebody else made runs none of their code, unless they are trusted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import omrl
from omrl import cli
from omrl.algorithms import check_trusted
from omrl.errors import OmrlError
from training_helpers import pumps, train

PAYLOAD = """
from pathlib import Path
Path("ran").touch()
from omrl.algorithms.focal import FOCAL
class X(FOCAL): pass
"""


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """A run whose algorithm is a module that lies in the working directory."""
    pumps(tmp_path / "pumps", tasks=6)
    run = train(tmp_path / "pumps", tmp_path / "run", steps=4).folder
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"algorithm": "payload:X"}))
    (tmp_path / "payload.py").write_text(PAYLOAD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield run
    sys.modules.pop("payload", None)


def command(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["omrl", *map(str, words)])
    try:
        cli.main()
    except SystemExit as error:
        return error.code
    return 0


def commands(run):
    """All that open a run."""
    return (
        ["evaluate", run],
        ["select", run],
        ["calibrate", run],
        ["export", run, "--to", "numpy", "--out", "exported"],
        ["report", run, "--out", "page"],
    )


def test_a_stranger_s_run_runs_nothing(theirs, tmp_path, monkeypatch, capsys):
    for words in commands(theirs):
        assert command(monkeypatch, *words) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "payload:X" in said and str(tmp_path / "payload.py") in said
    with pytest.raises(OmrlError, match=r"config.json names the algorithm payload:X.*--trust payload:X"):
        omrl.load(theirs)
    with pytest.raises(OmrlError, match="payload"):
        omrl.load(theirs, trust="other:X")
    assert not (tmp_path / "ran").exists() and not (tmp_path / "page").exists()


def test_who_is_trusted_may(theirs, tmp_path, monkeypatch):
    assert omrl.load(theirs, trust="payload:X").step == 4
    assert (tmp_path / "ran").exists()
    for words in commands(theirs):
        assert command(monkeypatch, *words, "--trust", "payload:X") == 0
    train(tmp_path / "pumps", theirs, "payload:X", steps=4)  # named by whoever trains


def test_looking_for_the_file_does_not_run_the_package_around_it(tmp_path, monkeypatch):
    (tmp_path / "around").mkdir()
    (tmp_path / "around" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "around" / "payload.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(OmrlError, match=r"around/payload\.py"):
        check_trusted("around.payload:X", (), "a file")
    with pytest.raises(OmrlError, match="which is not found"):
        check_trusted("no_such_module.payload:X", (), "a file")


# What torch, and what it imports, looks for and does without.
OPTIONAL = ("pynvml", "dill", "tqdm", "pydot", "opt_einsum", "torchcomms", "triton", "pandas", "psutil", "IPython")


def test_files_where_one_works_are_nobodys_library(tmp_path):
    """In a process that has imported nothing yet."""
    pumps(tmp_path / "pumps", tasks=6)
    run = train(tmp_path / "pumps", tmp_path / "run", steps=4).folder
    here = tmp_path / "here"
    here.mkdir()
    for name in OPTIONAL:
        (here / f"{name}.py").write_text(f"from pathlib import Path\nPath('ran-{name}').touch()\n")
    (here / "own.py").write_text("from omrl.algorithms.focal import FOCAL\nclass X(FOCAL): pass\n")
    script = str(Path(sys.executable).with_name("omrl"))
    for begin in ([script], [sys.executable, "-m", "omrl"]):
        for words in (
            ["evaluate", str(run)],
            ["report", str(run), "--out", "page"],
            ["train", "own:X", "--data", str(tmp_path / "pumps"), "--out", "own-run", "--dry-run"],
        ):
            done = subprocess.run([*begin, *words], cwd=here, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert [path.name for path in here.glob("ran-*")] == []


@pytest.mark.parametrize("name", ["..:X", ":X", "a b:X", "own:", "own:X.y", "/tmp/own:X"])
def test_what_is_no_name_of_a_class_is_said_to_be_none(name, theirs, monkeypatch, capsys):
    assert command(monkeypatch, "train", name, "--data", "pumps", "--out", "new") == 2
    assert "no name of the form module:Class" in capsys.readouterr().err
    config = json.loads((theirs / "config.json").read_text())
    (theirs / "config.json").write_text(json.dumps(config | {"algorithm": name}))
    assert command(monkeypatch, "evaluate", theirs) == 2
    assert capsys.readouterr().err.count("\n") == 1
