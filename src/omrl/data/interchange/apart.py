"""Work in a process of its own: the HDF5 library may crash or never return, on damaged files and on full disks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from omrl.data.interchange.limits import Limit
from omrl.errors import OmrlError

# How long HDF5 files may take to be read once: at the least, and bytes on disk per second; and the program to begin.
TRIAL_SECONDS = 5.0
BEGIN_SECONDS = 60.0
TRIAL_SPEED = 5e6
TRIAL = Path(__file__).with_name("hdf5_trial.py")


def try_hdf5(paths: Sequence[Path], limit: Limit) -> None:
    """Refuse files on which the HDF5 library crashes or from which it does not return."""
    names = [str(path.absolute()) for path in paths]
    if any("\n" in name for name in names):
        raise OmrlError(f"{paths[0].parent}: a line break in the name of a file cannot be read")
    # Only ordinary files have a size; anything else may claim nothing.
    lines = [f"{limit.bytes_of(path)} {name}" for path, name in zip(paths, names, strict=True)]
    seconds = TRIAL_SECONDS + sum(path.stat().st_size for path in paths) / TRIAL_SPEED
    # -P, because beside the program lie modules with names of the standard library's.
    child = subprocess.Popen(
        [sys.executable, "-P", str(TRIAL), str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(),
    )
    try:
        tried, _ = child.communicate("\n".join(lines), timeout=BEGIN_SECONDS + seconds)
        if child.returncode == 0:
            return
        slow = child.returncode == -signal.SIGALRM
        problem = f"reading it did not end in {seconds:.0f} s" if slow else "the HDF5 library crashes on it"
    except subprocess.TimeoutExpired:
        child.kill()
        tried, _ = child.communicate()
        problem = f"reading it did not end in {seconds:.0f} s"
    finally:
        child.kill()
    at = tried.splitlines()[-1] if tried else names[0]
    raise OmrlError(f"{paths[names.index(at)]} cannot be read as hdf5: {problem}, it is damaged")


def write_apart(function: str, source: Path, temporary: Path, dst: Path, needed: int) -> None:
    """Call `module:function(source, temporary)`; if the process ends badly, say so of `dst` in one sentence."""
    free = shutil.disk_usage(dst.absolute().parent).free
    if free < needed:
        room = f"it needs about {needed / 1e6:,.1f} MB, {free / 1e6:,.1f} MB are free"
        raise OmrlError(f"{dst} could not be written: {room}")
    code = f"import sys; from {__name__} import call; sys.exit(call(*sys.argv[1:]))"
    command = [sys.executable, "-P", "-c", code, function, str(source.absolute()), str(temporary.absolute())]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
    if done.returncode:
        said = [line.removeprefix(SAID) for line in done.stdout.splitlines() if line.startswith(SAID)]
        reason = said[-1] if said else "the library that writes it broke off; is there room on the disk?"
        raise OmrlError(f"{dst} could not be written: {reason}")


SAID = "could not be written: "


def call(function: str, source: str, temporary: str) -> int:
    """What runs in the other process; what goes wrong is said at once, before files are closed and HDF5 may crash."""
    module, _, name = function.partition(":")
    try:
        getattr(import_module(module), name)(Path(source), Path(temporary))
    except (OSError, RuntimeError, OmrlError) as error:
        say(error)
        return 1
    return 0


def say(error: Exception) -> None:
    """Print why something could not be written, on one line."""
    # HDF5 puts what the system said somewhere into the middle of many lines.
    system = re.search(r"error message = '([^']*)'", str(error))
    print(SAID + (system[1] if system else " ".join(str(error).split())), flush=True)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
