"""Every kind of file that omrl reads, who reads it, and what counts as a right answer to a damaged one.

Where a file carries a checksum it is damaged twice: as it is, so that nothing but the undamaged answer or an error may
come of it, and with the checksum made right again, so that the damage gets through to what reads the content.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

import omrl
from omrl import algorithms
from omrl.algorithms import get_algorithm, read_preset
from omrl.commands.data import Import
from omrl.commands.study import Status
from omrl.commands.train import Train
from omrl.commands.tune import Tune
from omrl.data import MetaDataset, interchange
from omrl.data import manifest as manifests
from omrl.data.command import summary
from omrl.drawing import behaviour as pictures
from omrl.errors import OmrlError
from omrl.exporting import omrl_runtime
from omrl.learning.starting import starting_point
from omrl.reporting import build
from omrl.reporting.gather import gather
from omrl.runs import checkpoints
from omrl.runs.run import Run
from omrl.storage import adopting
from omrl.studies import definitions, planning, status
from omrl.tuning import trying
from omrl.tuning.rows import chosen_rows
from torture import steps, world
from torture.forked import GB, Ended, attempt
from torture.mutating import damaged

# One line on a terminal of any width, a path or two in it.
LONGEST = 1000
PRECIOUS = b"somebody's own"
Reader = Callable[[Path, Path], object]


@dataclass(frozen=True)
class Kind:
    """A kind of file: what is copied, which file of it is damaged, and who reads it then."""

    copied: str
    """What of the world is needed, as it is there."""
    path: str
    """The file to damage, in the copy."""
    form: str
    read: Reader
    seal: Callable[[Path], None] | None = None
    """Make checksums right again."""
    same: bool = False
    """Whether a checksum promises that nothing else than the undamaged answer comes out."""
    errors: tuple[str, ...] = (OmrlError.__name__,)
    named: str = ""
    """What tells where it is as well as its own name: presets stand beside the module that they are for."""
    slow: bool = False
    """Whether one takes long, so that there are no more of it than must be."""


# -- who reads ---------------------------------------------------------------------------------------------------------


def numbers(values: Any, *shape: int) -> list[Any]:
    """Checked: finite, and of the right shape."""
    array = np.asarray(values, dtype=np.float64)
    assert array.shape == shape, f"the shape is {array.shape}"
    assert np.isfinite(array).all(), "it is not finite"
    return array.tolist()


def acts(made: Path, box: Path) -> object:
    """Open a run, adapt, act."""
    rows = world.context(made)
    policy = omrl.load(box / "run").adapt(rows)
    return numbers(policy.act(rows["observations"]), 16, 1)


def falls_back(made: Path, box: Path) -> object:
    """The same, but the cloned logger acts where an observation is unlike the log."""
    rows = world.context(made)
    policy = omrl.load(box / "run").adapt(rows, on_strange="ignore", fallback="behaviour")
    far = 100.0 * (1.0 + np.abs(rows["observations"]))
    return numbers(policy.act(np.concatenate([rows["observations"], far])), 32, 1)


def is_told(made: Path, box: Path, run: str = "run") -> object:
    """The page on a run with all that its files say, but without figures, which take long."""
    kept = (build.probe, build._compare, build._look)
    build.probe = lambda *_: steps.UNSEEN
    build._compare = build._look = lambda *_: None
    omrl.report(box / run, box / "page")
    build.probe, build._compare, build._look = kept
    return None


def is_as_written(made: Path, box: Path) -> object:
    """Rows that the page has no need of: that they are not those that were written is said on it."""
    is_told(made, box)
    if changed := [note for note in gather([box / "run"])[0].notes if "selected.csv" in note]:
        raise OmrlError(changed[0])
    return hashlib.sha256((box / "run" / "selected.csv").read_bytes()).hexdigest()


def robot_is_told(made: Path, box: Path) -> object:
    return is_told(made, box, "robot")


def is_drawn(made: Path, box: Path) -> object:
    """The whole page."""
    omrl.report(box / "robot", box / "page")
    return None


def is_tested(made: Path, box: Path) -> object:
    return numbers(omrl.evaluate(box / "run", device="cpu")["action_error"]["value"])


def goes_on(made: Path, box: Path) -> object:
    """A run that was killed."""
    steps.trains(made, box / "begun")
    return _end(box / "begun" / "out")


def stages_go_on(made: Path, box: Path) -> object:
    work = next(box.glob("*-begun"))
    steps.learns_stages(made, work)
    return _end(work / "out")


def _end(run: Path) -> object:
    found = Run.open(run).load()
    assert found is not None
    return [found[0], hashlib.sha256(found[1]["params"].numpy().tobytes()).hexdigest()]


def agents_go_on(made: Path, box: Path) -> object:
    return _rows(steps_collect(box / "agents-begun"))


def logging_goes_on(made: Path, box: Path) -> object:
    return _rows(steps_collect(box / "logging-begun"))


def steps_collect(work: Path) -> Path:
    steps.collects(work, work)
    return work / "out"


def is_rebuilt(made: Path, box: Path) -> object:
    options = {"from_policies": True, "policies": box / "policies", "episodes": 1}
    omrl.collect(steps.FAMILY, box / "out", **options)
    return _rows(box / "out")


def is_valid(made: Path, box: Path) -> object:
    dataset = MetaDataset.open(box / "pumps")
    dataset.validate()
    summary(dataset)
    return _rows(box / "pumps")


def _rows(folder: Path) -> object:
    """A digest of all rows of a dataset, which are as the format has them."""
    dataset, digest = MetaDataset.open(folder), hashlib.sha256()
    for task in dataset.tasks:
        for name, values in dataset.rows(task.name).items():
            assert np.isfinite(values).all(), f"{name} is not finite"
            digest.update(values.tobytes())
    return digest.hexdigest()


def imported(format: str, name: str, **flags: Any) -> Reader:
    def read(made: Path, box: Path) -> object:
        interchange.read(Import(box / name, box / "out", format, **flags))  # type: ignore[arg-type]
        MetaDataset.open(box / "out").validate()
        return _rows(box / "out")

    return read


def tasks_are_described(made: Path, box: Path) -> object:
    return imported("csv", "logs.csv", **steps.TABLE, task_params=box / "about.json")(made, box)


def runs_elsewhere(made: Path, box: Path) -> object:
    rows = world.context(made)
    policy = omrl_runtime.load(box / "exported").adapt(rows)
    return numbers(policy.act(rows["observations"]), 16, 1)


def is_planned(made: Path, box: Path) -> object:
    study = definitions.read_study(box / "study.toml")
    study.check_trusted(())
    for experiment in study.experiments.values():
        for scale in study.scales.values():
            planning.jobs(planning.plan(experiment, scale, None))
    return None


def is_tried(made: Path, box: Path) -> object:
    rows = chosen_rows(Tune(box / "tune.toml", made / "pumps", box / "trials.json"))
    return [len(row.trials) for row in rows]


def trials_are_kept(made: Path, box: Path) -> object:
    found = [{"family": "pumps", "row": "FOCAL", "trial": {}, "return": 1.0}]
    trying.keep(box / "tuned" / "trials.json", found)
    return None


def is_taken_over(made: Path, box: Path) -> object:
    starting_point(Train("focal", made / "pumps", box / "out", config=box / "run" / "config.json"))
    return None


def presets_are_read(made: Path, box: Path) -> object:
    sys.path.insert(0, str(box / "own"))
    # A process reads them once, and this one was forked from one that has.
    algorithms._of_module.cache_clear()
    sys.modules.pop("mine", None)
    invalidate_caches()
    name = "mine:Mine"
    values = read_preset(name, "quick", steps.FAMILY)
    starting_point(Train(name, made / "walks", box / "out", preset="quick"))
    get_algorithm(name)
    return sorted(values)


def curves_are_drawn(made: Path, box: Path) -> object:
    data = box / "collected" / "out"
    pictures.plot(MetaDataset.open(data), box / "figures", data / "policies" / "learning-curve.csv")
    return None


def is_reported_again(made: Path, box: Path) -> object:
    with steps.quick_pages():
        steps.reports(made, box / "reported")
    return None


def is_trained_over(made: Path, box: Path) -> object:
    steps.trains(made, box / "trained", force=True)
    return _end(box / "trained" / "out")


def is_imported_over(made: Path, box: Path) -> object:
    steps.imports(made, box / "imported", force=True)
    return _rows(box / "imported" / "out")


def study_goes_on(made: Path, box: Path) -> object:
    with steps.quick_pages():
        steps.studies(made, box / "studied")
    return None


def status_is_told(made: Path, box: Path) -> object:
    status.run(Status(box / "studied" / "out"))
    return None


def adopted(name: str) -> Reader:
    def read(made: Path, box: Path) -> object:
        (box / name / ".omrl.json").unlink(missing_ok=True)
        return adopting.adopt(box / name)

    return read


# -- checksums ---------------------------------------------------------------------------------------------------------


def seal_checkpoint(path: Path) -> None:
    """Where the file can still be read at all."""
    data = path.read_bytes()
    arrays = load_tensors(data)
    size = int.from_bytes(data[:8], "little")
    said = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][checkpoints.NOTES])
    notes = {name: value for name, value in said.items() if name != checkpoints.CHECKSUM}
    sum_ = checkpoints._checksum(arrays, {name: int(value) for name, value in notes.items()})
    path.write_bytes(save_tensors(arrays, {checkpoints.NOTES: json.dumps({**notes, checkpoints.CHECKSUM: sum_})}))


def seal_manifest(path: Path) -> None:
    content = json.loads(path.read_bytes())
    content.pop("checksum", None)
    path.write_text(json.dumps({**content, "checksum": manifests._checksum(content)}))


def seal_task(path: Path) -> None:
    manifest = path.with_name("manifest.json")
    content = json.loads(manifest.read_bytes())
    entry = next(entry for entry in content["tasks"] if entry["file"] == path.name)
    entry |= _fingerprint(path)
    manifest.write_text(json.dumps(content))
    seal_manifest(manifest)


def seal_policy(path: Path) -> None:
    index = path.with_name("policies.json")
    content = json.loads(index.read_bytes())
    for entry in content["checkpoints"].values():
        if entry["file"] == path.name:
            entry |= _fingerprint(path)
    index.write_text(json.dumps(content))


def _fingerprint(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


# -- all of them -------------------------------------------------------------------------------------------------------

STEP = "step-0000004.safetensors"
WORK = "agents-begun/.out.collect"
HALF = "logging-begun/.out.partial"
KINDS: dict[str, Kind] = {
    # a run
    "config.json": Kind("run", "run/config.json", "json", acts),
    "config.json, in a report": Kind("run", "run/config.json", "json", is_told),
    "config.json, in a test": Kind("run", "run/config.json", "json", is_tested),
    "config.json, going on": Kind("begun", "begun/out/config.json", "json", goes_on),
    "config.json, as --config": Kind("run", "run/config.json", "json", is_taken_over),
    "latest": Kind("run", "run/checkpoints/latest", "text", acts),
    "latest, going on": Kind("begun", "begun/out/checkpoints/latest", "text", goes_on),
    "checkpoint": Kind("run", f"run/checkpoints/{STEP}", "noted tensors", acts, same=True),
    "checkpoint, sealed": Kind("run", f"run/checkpoints/{STEP}", "noted tensors", acts, seal_checkpoint),
    "checkpoint, going on": Kind(
        "begun", "begun/out/checkpoints/step-0000002.safetensors", "noted tensors", goes_on, seal_checkpoint
    ),
    "calibration": Kind("run", "run/calibration.safetensors", "noted tensors", falls_back, same=True),
    "calibration, sealed": Kind("run", "run/calibration.safetensors", "noted tensors", falls_back, seal_checkpoint),
    "metrics.csv": Kind("run", "run/metrics.csv", "csv", is_told),
    "metrics.csv, going on": Kind("begun", "begun/out/metrics.csv", "csv", goes_on, same=True),
    "metrics.csv, drawn": Kind("robot", "robot/metrics.csv", "csv", is_drawn, slow=True),
    "environment.json": Kind("run", "run/environment.json", "json", is_told),
    "timings.json": Kind("run", "run/timings.json", "json", is_told),
    "logged.csv": Kind("run", "run/logged.csv", "csv", is_told),
    "logged.json": Kind("run", "run/logged.json", "json", is_told),
    "selected.csv": Kind("run", "run/selected.csv", "csv", is_as_written, same=True),
    "selected.json": Kind("run", "run/selected.json", "json", is_told),
    "scores.csv": Kind("robot", "robot/scores.csv", "csv", robot_is_told),
    "scores.json": Kind("robot", "robot/scores.json", "json", robot_is_told),
    "scores.json, of a study": Kind("studied", "studied/out/runs/*/logged.json", "json", study_goes_on),
    "plan.json of a study": Kind("studied", "studied/out/progress/plan.json", "json", study_goes_on),
    "progress.json of a study": Kind("studied", "studied/out/progress/progress.json", "json", status_is_told),
    "stage, result": Kind(
        "stages-begun", "stages-begun/out/stages/*/result.safetensors", "noted tensors", stages_go_on, seal_checkpoint
    ),
    "stage, checkpoint": Kind(
        "stage-begun", "stage-begun/out/stages/*/checkpoint.safetensors", "noted tensors", stages_go_on, seal_checkpoint
    ),
    # a meta-dataset
    "manifest.json": Kind("pumps", "pumps/manifest.json", "json", is_valid, same=True),
    "manifest.json, sealed": Kind("pumps", "pumps/manifest.json", "json", is_valid, seal_manifest),
    "task file": Kind("pumps", "pumps/task-000.safetensors", "tensors", is_valid, same=True),
    "task file, sealed": Kind("pumps", "pumps/task-000.safetensors", "tensors", is_valid, seal_task),
    "header of a dataset begun": Kind(
        "logging-begun", f"{HALF}/.build/header.json", "json", logging_goes_on, same=True
    ),
    "record of a task": Kind("logging-begun", f"{HALF}/.build/*.safetensors.json", "json", logging_goes_on),
    # agents and their policies
    "policies.json": Kind("policies", f"policies/{steps.FAMILY}/policies.json", "json", is_rebuilt),
    "policy": Kind("policies", f"policies/{steps.FAMILY}/step-*.safetensors", "tensors", is_rebuilt, same=True),
    "policy, sealed": Kind(
        "policies", f"policies/{steps.FAMILY}/step-*.safetensors", "tensors", is_rebuilt, seal_policy
    ),
    "job.json": Kind("agents-begun", f"{WORK}/job.json", "json", agents_go_on),
    "agents, state": Kind("agents-begun", f"{WORK}/state.safetensors", "noted tensors", agents_go_on, same=True),
    "agents, replay": Kind("agents-begun", f"{WORK}/replay-*.safetensors", "noted tensors", agents_go_on, same=True),
    "agents, actors": Kind("agents-begun", f"{WORK}/actors-*.safetensors", "noted tensors", agents_go_on, same=True),
    "learning-curve.csv": Kind(
        "collected", "collected/out/policies/learning-curve.csv", "csv", curves_are_drawn, slow=True
    ),
    # markers
    "marker of a report": Kind("reported", "reported/out/.omrl.json", "json", is_reported_again),
    "marker of a run": Kind("trained", "trained/out/.omrl.json", "json", is_trained_over, same=True),
    "marker of a dataset": Kind("imported", "imported/out/.omrl.json", "json", is_imported_over, same=True),
    "run to adopt": Kind("robot", "robot/environment.json", "json", adopted("robot")),
    "results.json to adopt": Kind("studied", "studied/out/pumps/results.json", "json", adopted("studied/out/pumps")),
    # files that a person writes
    "study": Kind("study.toml", "study.toml", "toml", is_planned),
    "tune": Kind("tune.toml", "tune.toml", "toml", is_tried),
    "trials.json": Kind("tuned", "tuned/trials.json", "json", trials_are_kept),
    "presets": Kind("own", "own/mine.toml", "toml", presets_are_read, named="mine:Mine"),
    # logs
    "csv": Kind("logs.csv", "logs.csv", "csv", imported("csv", "logs.csv", **steps.TABLE)),
    "parameters of tasks": Kind("logs.csv about.json", "about.json", "json", tasks_are_described),
    "npz": Kind("logs.npz", "logs.npz", "npz", imported("npz", "logs.npz", **steps.TABLE)),
    "npy": Kind(
        "arrays",
        "arrays/pump-0/*.npy",
        "npy",
        imported("npy", "arrays", **steps.COLUMNS, episode="episode", in_order=True, test_tasks=("pump-5",)),
    ),
    "hdf5": Kind("logs.hdf5", "logs.hdf5", "hdf5", imported("hdf5", "logs.hdf5", **steps.TABLE), slow=True),
    "hdf5 of omrl": Kind("described.hdf5", "described.hdf5", "hdf5", imported("hdf5", "described.hdf5"), slow=True),
    "parquet": Kind("logs.parquet", "logs.parquet", "parquet", imported("parquet", "logs.parquet", **steps.TABLE)),
    "minari": Kind(
        "minari", "minari/omrl/pumps/pump-0-v0/data/main_data.hdf5", "hdf5", imported("minari", "minari"), slow=True
    ),
    "minari, metadata": Kind(
        "minari", "minari/omrl/pumps/pump-0-v0/data/metadata.json", "json", imported("minari", "minari"), slow=True
    ),
    "trajectories of FOCAL": Kind(
        "trajectories",
        "trajectories/pump-0/*.npy",
        "objects",
        imported(
            "focal", "trajectories", action_low=(0.0,), action_high=(100.0,), varies="reward", test_tasks=("pump-5",)
        ),
    ),
    # a policy that left
    "exported weights": Kind(
        "exported", "exported/weights.npz", "npz with words", runs_elsewhere, errors=("ValueError",)
    ),
}


def try_input(made: Path, box: Path, name: str, seed: int, number: int, undamaged: object) -> tuple[str, Ended]:
    """What is wrong with what came of one damaged file; nothing where all is well."""
    kind, rng = KINDS[name], random.Random(f"{seed}/{name}/{number}")
    target = prepare(made, box, kind, rng)
    before = target.read_bytes()
    after = damaged(before, kind.form, rng)
    target.write_bytes(after)
    if kind.seal is not None:
        with suppress(Exception):  # it may be damaged too much to have a right checksum
            kind.seal(target)
    ended = attempt(lambda: kind.read(made, box))
    wrong = judge(kind, ended, undamaged, box, target, unchanged=after == before)
    if (box / "precious.txt").read_bytes() != PRECIOUS:
        wrong = "a file of somebody else was changed"
    return wrong, ended


def prepare(made: Path, box: Path, kind: Kind, rng: random.Random) -> Path:
    """A fresh copy of what is read, and somebody else's file beside it; which file is to be damaged."""
    shutil.rmtree(box, ignore_errors=True)
    box.mkdir(parents=True)
    (box / "precious.txt").write_bytes(PRECIOUS)
    for name in kind.copied.split():
        if (made / name).is_dir():
            shutil.copytree(made / name, box / name)
        else:
            shutil.copy(made / name, box / name)
    found = sorted(box.glob(kind.path))
    assert found, f"there is no {kind.path}"
    return rng.choice(found)


def judge(kind: Kind, ended: Ended, undamaged: object, box: Path, target: Path, unchanged: bool) -> str:
    """The oracle."""
    if ended.hung:
        return "it hangs"
    if ended.signal:
        return f"it died of signal {ended.signal}"
    if ended.grown > GB:
        return f"it took {ended.grown / GB:.1f} GB"
    if ended.error is None:
        if (kind.same or unchanged) and ended.answer != undamaged:
            return f"it gave {str(ended.answer)[:100]} silently, not {str(undamaged)[:100]}"
        return ""
    if not {*ended.kinds} & {*kind.errors}:
        return f"{ended.error}: {ended.sentence[:200]}"
    sentence = ended.sentence.replace(str(box), "")
    if "llocate" in sentence or "emoryError" in sentence:
        return f"it asked for too much memory: {sentence[:200]}"
    if len(sentence) > LONGEST:
        return f"its sentence has {len(sentence)} characters: {sentence[:100]}"
    if "\n" in sentence:
        return f"its sentence has several lines: {sentence[:100]!r}"
    if not any(name in ended.sentence for name in (str(box), target.name, kind.named or target.name)):
        return f"its sentence names no file: {sentence[:200]}"
    return ""
