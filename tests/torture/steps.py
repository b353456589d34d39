"""Every command as a function of the folder that it works in, small enough to be started a thousand times."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import omrl
from omrl.behaviour import agents
from omrl.commands.data import Import
from omrl.commands.study import StudyRun
from omrl.commands.tune import Tune
from omrl.data import MetaDataset, interchange
from omrl.reporting import command as reporting
from omrl.reporting.probe import Probe
from omrl.selecting import choosing
from omrl.selecting.signals import Signals
from omrl.storage import adopting
from omrl.studies import execute
from omrl.tuning.command import run as tune
from service_helpers import KINDS, SIZES
from training_helpers import train

AGENTS: dict[str, Any] = {"tasks": 2, "steps": 96, "episodes": 1, "envs_per_task": 8, "episode_steps": 12}
AGENTS |= {"updates_per_step": 0.125, "device": "cpu", "actor_hidden": (8, 8), "critic_hidden": (8,), "batch_size": 8}
FAMILY = "sparse-point-robot"
COLUMNS: dict[str, Any] = {"observations": ("obs",), "actions": ("act",), "rewards": "rew", "terminations": "term"}
COLUMNS |= {"varies": "reward", "action_kind": "continuous", "action_low": (0.0,), "action_high": (100.0,)}
TABLE: dict[str, Any] = {**COLUMNS, "task": "task", "episode": "episode", "test_tasks": ("pump-5",), "in_order": True}

# A run that nobody looked at.
UNSEEN = Probe(None, "", None, "")
# What a clock, a computer's load or the order of threads has a say in.
NEVER_THE_SAME = ("timings.json", "index.html", "progress")
# Events, which a run does without where TensorBoard cannot write, and what is left of a lock, which locks nothing.
NOT_NEEDED = ("events", ".lock")


@dataclass(frozen=True)
class Step:
    """A command: which of the made folders it is started in, and what it does there."""

    before: str
    work: Callable[[Path, Path], object]
    seconds: float = 60.0


def trains(made: Path, work: Path, **options: Any) -> None:
    train(made / "pumps", work / "out", steps=5, save_every=2, log_every=2, **options)


def learns_stages(made: Path, work: Path) -> None:
    algorithm, sizes = KINDS["mbml"]
    options = {"seeds": 1, "steps": 2, "eval_every": 0, "log_every": 1, "save_every": 1, "device": "cpu"}
    omrl.train(algorithm, made / "pumps", work / "out", **SIZES, **sizes, **options)


def imports(made: Path, work: Path, **options: Any) -> None:
    interchange.read(Import(made / "logs.csv", work / "out", "csv", **TABLE, **options))


def collects(made: Path, work: Path, **options: Any) -> None:
    agents.SAVE_SECONDS = 0.0  # so that every round may be the last
    omrl.collect(FAMILY, work / "out", **AGENTS, **options)


def rebuilds(made: Path, work: Path) -> None:
    omrl.collect(FAMILY, work / "out", from_policies=True, policies=made / "policies", episodes=1)


def evaluates(made: Path, work: Path) -> None:
    omrl.evaluate(work / "out", device="cpu")


def reports(made: Path, work: Path) -> None:
    omrl.report(made / "run", work / "out")


def exports(made: Path, work: Path) -> None:
    omrl.export(made / "run", "numpy", work / "out")


def calibrates(made: Path, work: Path) -> None:
    omrl.calibrate(work / "out")


def studies(made: Path, work: Path) -> None:
    execute.execute(
        StudyRun(file=made / "study.toml", names=("pumps",), data=work / "data", out=work / "out", device="cpu")
    )


def tunes(made: Path, work: Path) -> None:
    tune(Tune(made / "tune.toml", made / "pumps", work / "trials.json", steps=2, device="cpu"))


def selects(made: Path, work: Path) -> None:
    omrl.select(work / "out", context=8)


def adopts(made: Path, work: Path) -> None:
    adopting.adopt(work / "out")


def writes_minari(made: Path, work: Path) -> None:
    interchange.write(MetaDataset.open(made / "pumps"), work / "out", "minari", force=True)


def writes_hdf5(made: Path, work: Path) -> None:
    interchange.write(MetaDataset.open(made / "pumps"), work / "out.hdf5", "hdf5", force=True)


STEPS = {
    "train": Step("nothing", trains),
    "train --force": Step("trained", lambda made, work: trains(made, work, force=True)),
    "train mbml": Step("nothing", learns_stages),
    "collect": Step("nothing", collects),
    "collect --force": Step("imported", lambda made, work: collects(made, work, force=True)),
    "collect --from-policies": Step("nothing", rebuilds),
    "data import": Step("nothing", imports),
    "data import --force": Step("imported", lambda made, work: imports(made, work, force=True)),
    "data export": Step("nothing", writes_hdf5),
    "data export --to minari": Step("nothing", writes_minari),
    "evaluate": Step("trained", evaluates),
    "calibrate": Step("trained", calibrates),
    "select": Step("trained", selects),
    "adopt": Step("unmarked", adopts),
    "report": Step("nothing", reports),
    "report again": Step("reported", reports),
    "export": Step("nothing", exports),
    "study run": Step("nothing", studies),
    "tune": Step("nothing", tunes),
}


@contextmanager
def quick_pages():  # type: ignore[no-untyped-def]
    """Reports, figures and judgements in no time: the files are the same, their making is not what is tried here."""
    kept = (reporting.build, execute.build, execute.drawing.draw)
    judging = (choosing.Ground, choosing.look)
    reporting.build = execute.build = a_page
    execute.drawing.draw = a_figure
    choosing.Ground, choosing.look = (lambda *_: None), a_judgement
    yield
    reporting.build, execute.build, execute.drawing.draw = kept
    choosing.Ground, choosing.look = judging


def a_page(runs: Any, folder: Path, command: str, *_: object) -> list[Any]:
    for name in ("tables", "figures"):
        (folder / name).mkdir()
    (folder / "tables" / "summary.csv").write_text("a,b\n")
    (folder / "figures" / "curve.svg").write_text("<svg/>")
    (folder / "index.html").write_text(command)
    return [UNSEEN for _ in runs]


def a_figure(experiment: Any, outcomes: Any, embeddings: Any, folder: Path, note: str) -> list[str]:
    (folder / "return.png").write_bytes(b"png")
    return ["return.png"]


def a_judgement(model: Any, *_: object) -> Signals:
    drawn = np.random.default_rng(0).normal(size=(3, model.population.size, 1))
    shares = np.full(drawn.shape[1:], 0.5)
    return Signals(drawn, drawn, drawn[0, 0], shares, shares, shares, shares, 0.5, shares[0], shares)


def start_over(made: Path, step: Step, work: Path) -> None:
    """The folder as it is before the command."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(made / step.before, work, symlinks=True)


def tree(folder: Path) -> dict[str, bytes]:
    """All files and folders, and what is in them."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if any(part.endswith(NOT_NEEDED) for part in name.parts):
            continue
        if not set(NEVER_THE_SAME) & set(name.parts):
            found[str(name)] = path.read_bytes() if path.is_file() else b""
        else:
            found[str(name.parent / "some")] = b""
    return found
