from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from omrl import cli
from omrl.behaviour.config import AgentsConfig, SACConfig
from omrl.errors import OmrlError
from omrl.families import FAMILIES

COMMANDS = [
    [],
    ["families"],
    ["render"],
    ["collect"],
    ["data"],
    ["data", "info"],
    ["data", "validate"],
    ["data", "import"],
    ["data", "export"],
    ["collect", "point-robot-wind"],
    ["train"],
    ["evaluate"],
    ["report"],
    ["export"],
    ["calibrate"],
    ["bench"],
]
DRY = ["--out", "nowhere", "--dry-run"]


def omrl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "omrl", *words], capture_output=True, text=True, check=False)


def fails(monkeypatch, capsys, error: BaseException) -> tuple[int, str]:
    """Exit code and stderr of a command whose work raises `error`."""

    def broken(_):
        raise error

    monkeypatch.setattr("omrl.families.listing.run", broken)
    monkeypatch.setattr(sys, "argv", ["omrl", "families"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code, capsys.readouterr().err


# ----------------------------------------------------------------------------- help

HELP = """
import contextlib, io, json, sys
from omrl.cli import main
results = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["omrl", *words, "--help"]
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            main()
            code = "no exit"
        except SystemExit as stop:
            code = stop.code or 0
    results.append((code, text.getvalue()))
heavy = [name for name in ("torch", "mujoco", "matplotlib", "safetensors") if name in sys.modules]
print(json.dumps({"heavy": heavy, "results": results}))
"""


@pytest.fixture(scope="module")
def helps():
    words = [sys.executable, "-c", HELP, json.dumps(COMMANDS)]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def test_help_works_for_every_command(helps):
    for words, (code, text) in zip(COMMANDS, helps["results"], strict=True):
        assert code == 0, words
        usage = text.splitlines()[0]
        assert usage.startswith("usage: omrl") and (not words or words[0] in usage)
        assert "--help" in text or "-h" in text


def test_help_imports_nothing_heavy(helps):
    assert helps["heavy"] == []


def test_help_names_every_command_and_option(helps):
    texts = {" ".join(words): text for words, (_, text) in zip(COMMANDS, helps["results"], strict=True)}
    commands = ("families", "render", "data", "collect", "train", "evaluate", "report", "bench")
    assert all(name in texts[""] for name in commands)
    options = ["--out", "--episodes", "--tasks", "--device"]
    options += ["--schedule", "--from-policies", "--level", "--action-std", "--plot", "--force", "--dry-run"]
    assert all(option in texts["collect"] for option in options)
    assert "omrl collect FAMILY --help" in texts["collect"]  # where those of its agents are
    names = [
        field.name for kind in (AgentsConfig, SACConfig) for field in dataclasses.fields(kind) if field.name != "sac"
    ]
    flags = [f"--{name.replace('_', '-')}" for name in names]
    assert all(option in texts["collect point-robot-wind"] for option in [*options, *flags])
    options = ["--data", "--out", "--preset", "--config", "--seeds", "--seed", "--steps", "--level", "--max-rows"]
    options += ["--log-every", "--save-every", "--eval-every", "--stream", "--device", "--force", "--dry-run"]
    assert all(option in texts["train"] for option in options)
    assert "omrl train focal --help" in texts["train"]  # where the algorithm's own are
    options = ["--protocol", "--context", "--context-level", "--episodes", "--split", "--seed", "--json"]
    assert all(option in texts["evaluate"] for option in options)
    options = [
        "update",
        "--algorithms",
        "--seeds",
        "--regulariser-steps",
        "--repeats",
        "--seconds",
        "--device",
        "--mode",
        "--json",
    ]
    assert all(option in texts["bench"] for option in options)


# ----------------------------------------------------------------------------- families


def test_families_as_json(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["omrl", "families", "--json"])
    cli.main()
    rows = {row["family"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(FAMILIES)
    expected = {
        "sparse-point-robot": (100, 2, 2, 20, "reward", "omrl/SparsePointRobot-v0", {"train": 80, "test": 20}),
        "point-robot-wind": (50, 2, 2, 20, "dynamics", "omrl/PointRobotWind-v0", {"train": 40, "test": 10}),
        "half-cheetah-vel": (100, 20, 6, 200, "reward", "omrl/HalfCheetahVel-v0", {"train": 80, "test": 20}),
        "half-cheetah-fwd-back": (2, 20, 6, 200, "reward", "omrl/HalfCheetahFwdBack-v0", {"train": 2, "test": 2}),
        "ant-fwd-back": (2, 27, 8, 200, "reward", "omrl/AntFwdBack-v0", {"train": 2, "test": 2}),
        "walker-2d-params": (50, 17, 6, 200, "dynamics", "omrl/Walker2DParams-v0", {"train": 20, "test": 5}),
    }
    for name, (tasks, obs, act, horizon, varies, env_id, paper) in expected.items():
        row = rows[name]
        assert (row["tasks"], row["observations"], row["actions"], row["horizon"]) == (tasks, obs, act, horizon)
        assert (row["varies"], row["id"], row["splits"]["paper"]) == (varies, env_id, paper)
    assert rows["walker-2d-params"]["splits"]["large"] == {"train": 40, "test": 10}


def test_python_m_omrl_prints_every_family_on_its_line_into_a_pipe():
    result = omrl("families")
    assert result.returncode == 0, result.stderr
    for family in FAMILIES.values():
        line = next(line for line in result.stdout.splitlines() if f" {family.name} " in line)
        assert family.env_id in line


# ----------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["no-such-command"],
        ["families", "--yaml"],
        ["collect"],
        ["collect", "ant-fwd-back"],
        ["data", "info"],
        ["train"],
        ["train", "focal"],
        ["train", "no-such-algorithm"],
        ["train", "no.such.module:Class", "--data", "data", "--out", "run"],
        ["evaluate"],
        ["evaluate", "no-such-run"],
        ["bench"],
        ["bench", "dinner"],
        ["bench", "update", "--mode", "quick"],
    ],
)
def test_words_that_are_no_command_exit_with_2(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["omrl", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "Traceback" not in "".join(capsys.readouterr())


def test_an_error_of_the_user_is_one_sentence_on_stderr_and_exit_code_2(tmp_path):
    result = omrl("data", "info", str(tmp_path))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_the_sentence_of_an_error_is_the_message(monkeypatch, capsys):
    assert fails(monkeypatch, capsys, OmrlError("It is so.")) == (2, "error: It is so.\n")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_a_disk_that_cannot_be_written_is_one_sentence(number, monkeypatch, capsys):
    code, err = fails(monkeypatch, capsys, OSError(number, os.strerror(number), "some/file"))
    assert code == 2
    assert err == f"error: some/file could not be written: {os.strerror(number)}.\n"


def test_an_error_of_ours_keeps_its_traceback(monkeypatch):
    def broken(_):
        raise FileNotFoundError(errno.ENOENT, "no such file")

    monkeypatch.setattr("omrl.families.listing.run", broken)
    monkeypatch.setattr(sys, "argv", ["omrl", "families"])
    with pytest.raises(FileNotFoundError):
        cli.main()


def test_the_version_is_that_of_the_package(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["omrl", "--version"])
    cli.main()
    assert capsys.readouterr().out == f"omrl {metadata.version('omrl')}\n"


def test_ctrl_c_is_one_sentence_and_exit_code_130(monkeypatch, capsys):
    code, err = fails(monkeypatch, capsys, KeyboardInterrupt())
    assert code == 130
    assert err.strip() == "interrupted; the same command goes on from the last save, where there is one"


@pytest.mark.parametrize("words", [["families", "--json"], ["collect", "ant-fwd-back", *DRY]])
def test_a_reader_that_goes_away_is_no_error(words):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "omrl", *words]
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    process = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, env=buffered)
    os.close(write)
    assert process.stderr == ""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "There is not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "There is not enough memory"),
        (RuntimeError("can't start new thread"), "There is not enough memory"),
        (OSError(errno.EFBIG, "File too large", "runs/x"), "runs/x could not be written: File too large"),
        (OSError(errno.EPERM, "Operation not permitted", "runs/x"), "runs/x could not be written: Operation not perm"),
    ],
)
def test_limits_of_the_system_end_in_one_sentence(error, sentence, capsys):
    def work():
        raise error

    assert cli.told(work) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {sentence}") and said.count("\n") == 1


def test_other_errors_are_no_sentence():
    def work():
        raise RuntimeError("a mistake of ours")

    with pytest.raises(RuntimeError, match="a mistake of ours"):
        cli.told(work)


def test_an_interruption_while_modules_are_imported_is_no_traceback(tmp_path):
    (tmp_path / "tyro.py").write_text("raise KeyboardInterrupt\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    words = [sys.executable, "-m", "omrl", "families"]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.split()) == (130, ["interrupted"])


# ----------------------------------------------------------------------------- one line, whatever the words are

LONG = "x" * 5000


@pytest.mark.parametrize(
    "words",
    [
        [LONG],
        ["families", f"--{LONG}"],
        ["data", "info", LONG],
        ["evaluate", LONG],
        ["train", "focal", "--data", "d", "--out", "r", f"--{LONG}"],
        ["collect", "ant-fwd-back", "--out", "r", f"--{LONG}"],
        ["adopt", "file/a\nb"],
    ],
)
def test_whatever_is_wrong_is_one_line_that_somebody_reads(words, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["omrl", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = capsys.readouterr()
    assert (stop.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("error: ") and len(said.err) <= 1000


def test_errors_of_the_system_are_one_line_too(capsys):
    def work():
        raise OSError(errno.ENAMETOOLONG, "File name too long", f"{LONG}\nx")

    assert cli.told(work) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and len(said) <= 1000 and said.endswith("File name too long.\n")


@pytest.mark.parametrize("flag", ["--data", "--out"])
def test_a_name_that_is_no_text_is_refused_before_anything_is_made(flag, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    places = {"--data": "data", "--out": "run"} | {flag: os.fsdecode(b"d\xff")}
    monkeypatch.setattr(sys, "argv", ["omrl", "train", "focal", *(word for pair in places.items() for word in pair)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2 and "no text in UTF-8" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_that_cannot_show_a_name_shows_its_code(tmp_path):
    table = tmp_path / "logs.csv"
    lines = [f"pümp-{task},{row},0.5,1,{row // 3}\n" for task in range(2) for row in range(4)]
    table.write_text("task,obs,act,rew,term\n" + "".join(lines))
    columns = {"task": "task", "observations": "obs", "actions": "act", "rewards": "rew", "terminations": "term"}
    about = {"varies": "reward", "action-low": "0", "action-high": "1", "action-kind": "continuous"}
    flags = [word for name, value in (columns | about).items() for word in (f"--{name}", value)]
    words = ["data", "import", str(table), str(tmp_path / "data"), "--from", "csv", *flags]
    for more in ([*words, "--in-order", "--test-fraction", "0.5"], ["data", "info", str(tmp_path / "data"), "--tasks"]):
        done = subprocess.run(
            [sys.executable, "-m", "omrl", *more],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert rb"p\xfcmp-0" in done.stdout


# ----------------------------------------------------------------------------- where it begins


@pytest.mark.parametrize("module", ["numpy", "tyro", "omrl"])
def test_the_script_can_be_interrupted_from_its_first_import_on(module, tmp_path):
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt\n")
    script = Path(sys.executable).with_name("omrl")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([script, "families"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.split()) == (130, ["interrupted"])


@pytest.mark.parametrize(
    "raised",
    [
        "ImportError('libtorch_cpu.so: failed to map segment from shared object')",
        "SystemError('error return without exception set')",
        "MemoryError()",
    ],
)
@pytest.mark.parametrize("module", ["numpy", "omrl.families.listing"])
def test_libraries_that_memory_does_not_suffice_for_are_one_sentence(module, raised, tmp_path):
    path = tmp_path / "sitecustomize.py"
    path.write_text(
        f"""
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise {raised}
sys.meta_path.insert(0, Finder())
"""
    )
    script = Path(sys.executable).with_name("omrl")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([script, "families"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: There is not enough memory")


def test_an_import_that_fails_for_another_reason_keeps_its_traceback():
    def work():
        raise ImportError("cannot import name 'x'")

    with pytest.raises(ImportError):
        cli.told(work)
