"""Publish what was measured: keep the raw files of finished experiments and runs in results/, where pages find them.

    python tools/publish.py paper paper/comparison-sparse-point-robot paper/power-law
    python tools/publish.py paper paper        whatever is finished there
    python tools/publish.py focal runs/half-cheetah-vel-measured
    python tools/publish.py paper              removes what no published experiment has any more, and draws the overview

The first word is a folder in results/; the others are experiments of a study, as `omrl study run` or `omrl paper run`
left them, or runs that `omrl evaluate` has tested. Neither checkpoints nor data are needed here.

Results, raw scores and curves (compressed), tables and pictures of an experiment go to results/STUDY/NAME/, config,
environment and timings of its runs to results/STUDY/runs/RUN/, and the pictures that pages may show to
docs/img/STUDY/, with one of all comparisons. An experiment that is not named stays as it is; where it has a run that
has other scores here, the one here was trained again, and is kept as RUN-again. Of a run are kept its settings,
metrics, scores and their summary. How long the command took that made an experiment goes to results/speed/pieces.json.
`python tools/tables.py` then brings the pages up to date.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pictures import drawn_again, overview

from omrl.families import FAMILIES
from omrl.runs.config import of_this_version
from omrl.storage.files import write_json
from omrl.studies.definitions import experiments

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PICTURES = ROOT / "results", ROOT / "docs" / "img"
SETTINGS = ("config.json", "environment.json", "timings.json")
METRICS = "metrics.csv"
OF_A_RUN = (*SETTINGS, METRICS, "scores.csv", "scores.json")
# The scores in the tasks that it was trained on, where `omrl evaluate --split train` has tested it there too.
TRAINING = "scores-split-train"
# Long and alike from line to line: a tenth of their size when compressed.
RAW = ("scores.csv", "curves.csv")
# What their raw files tell is drawn from these: all in one style.
DRAWN_AGAIN = ("return", "return-log", "q", "breadth")
# Experiments that one picture sums up.
COMPARISONS = "comparison-"
# How long commands took that made published experiments.
PIECES = Path("speed") / "pieces.json"

Results = Mapping[str, Any]


def published(folder: Path) -> list[dict[str, Any]]:
    """What is published in a folder of results/: all experiments of a study, or else all runs; each with its `folder`.

    Experiments are in the order of the paper, others behind them; runs in that of their families.
    """
    found = [_read(path) | {"folder": path.parent} for path in sorted(folder.glob("*/results.json"))]
    if found:
        order = list(experiments())
        return sorted(found, key=lambda one: _place(one["experiment"], order))
    runs = [
        {
            **of_this_version(_read(path.parent / "config.json"), path),
            **_read(path),
            "seconds": _read(path.parent / "timings.json")["seconds"],
            "folder": path.parent,
        }
        for path in sorted(folder.glob("*/scores.json"))
    ]
    return sorted(runs, key=lambda run: _place(run["family"], list(FAMILIES)))


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


# -- experiments -------------------------------------------------------------------------------------------------------


def files(results: Results) -> list[str]:
    """What is kept of an experiment, in its folder. SVG and the report say nothing more, curves are drawn again."""
    tables = [f"tables/{name}.{kind}" for name in results["tables"] for kind in ("md", "csv")]
    figures = [f"figures/{name}.png" for name in results["figures"] if name not in DRAWN_AGAIN]
    return ["results.json", *RAW, *tables, *figures]


def runs(results: Results) -> list[str]:
    """The folders of an experiment's runs; several of its rows may be of the same one."""
    return list(dict.fromkeys(row["run"] for row in results["rows"]))


def finished(folder: Path) -> dict[str, Any]:
    """The results of a finished experiment of full scale; what is anything else is refused with what is wrong."""
    results, out = _read(folder / "results.json"), folder.parent
    if results["scale"] != "full":
        sys.exit(f"{folder} is of scale {results['scale']}, whose numbers say nothing: only full scale is published.")
    wanted = [folder / file for file in files(results)]
    wanted += [out / run / file for run in runs(results) for file in SETTINGS]
    missing = [str(path.relative_to(out)) for path in wanted if not path.is_file()]
    if missing:
        sys.exit(f"{folder} is not a finished experiment: {out} has no {', '.join(missing)}.")
    return results


def is_study(folder: Path) -> bool:
    """Whether it is the folder of a study, which has those of its experiments."""
    return (folder / "progress" / "plan.json").is_file()


def finished_in(study: Path) -> list[Path]:
    """Its experiments of full scale that have results, in the order of their names; there may be none yet."""
    there = sorted(path.parent for path in study.glob("*/results.json"))
    found = [folder for folder in there if _read(folder / "results.json")["scale"] == "full"]
    for folder in there:
        if folder not in found:
            print(f"{folder} is left out: it is not of full scale.")
    if not found:
        print(f"No experiment of full scale in {study} is finished.")
    return found


def means(found: Sequence[Results]) -> dict[tuple[str, str], Any]:
    """The mean return of every run, by the level of its contexts."""
    return {(row["run"], row["context_level"]): row["mean"] for results in found for row in results["rows"]}


def kept_as(found: Sequence[Results], others: Sequence[Results]) -> dict[str, str]:
    """The name of every run in results/: its own, unless another experiment has that for a run of other scores."""
    taken, own = means(others), means(found)
    names = {run: run for run, _ in own}
    for (run, level), mean in own.items():
        while taken.get((names[run], level), mean) != mean:
            names[run] += "-again"
    return names


def keep(source: Path, study: Path, results: Results, names: Mapping[str, str]) -> None:
    """Copy an experiment and the settings of its runs, in place of what was published of it before."""
    target = study / results["experiment"]
    shutil.rmtree(target, ignore_errors=True)
    copy(source, target, [file for file in files(results) if file not in RAW])
    for file in RAW:
        compress(source / file, target)
    rows = [row | {"run": names[row["run"]]} for row in results["rows"]]
    write_json(target / "results.json", {**results, "rows": rows})
    for run in runs(results):
        keep_run(source.parent / run, study / names[run], SETTINGS)


def note_pieces(found: Mapping[Path, Results]) -> None:
    """Note how long the last command of each study's folder took, as its board says; one of the same title goes."""
    # All runs of a folder are of one machine.
    outs = {folder.parent: machine_of(folder.parent / runs(results)[0]) for folder, results in found.items()}
    noted: list[Any] = json.loads(kept.read_text()) if (kept := RESULTS / PIECES).is_file() else []
    for out, machine in outs.items():
        board = out / "progress" / "progress.json"
        if not board.is_file() or not (said := _read(board))["over"]:
            continue
        seconds: dict[str, float] = {}
        done: dict[str, int] = {}
        for unit in said["units"].values():
            if took := unit.get("seconds", 0.0):  # what was there before took none
                seconds[unit["kind"]] = seconds.get(unit["kind"], 0.0) + took
                done[unit["kind"]] = done.get(unit["kind"], 0) + 1
        if "train" not in done:  # it was judged or drawn again
            continue
        took = said["now"] - said["began"]
        piece = {"title": said["title"], "machine": machine, "seconds": took, "units": done, "of_units": seconds}
        noted = [one for one in noted if one["title"] != piece["title"]] + [piece]
    if noted:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, noted)


def on_pages(results: Results) -> list[str]:
    """The figures that pages show: where rows draw batches of different sizes, returns have a logarithmic axis."""
    return [name for name in results["figures"] if name != "return" or "return-log" not in results["figures"]]


def machine_of(run: Path) -> str:
    """The GPU and cores that a run had."""
    environment = _read(run / "environment.json")
    cores = f"{environment['cores']} cores"
    return cores if environment["gpu"] is None else f"{environment['gpu']}, {cores}"


def tidy(study: Path) -> None:
    """Bring the pictures of the pages up to date; runs and pictures that no published experiment has are removed."""
    there = published(study)
    named = {run for results in there for run in runs(results)}
    for folder in (study / "runs").iterdir():
        if f"runs/{folder.name}" not in named:
            shutil.rmtree(folder)
    pictures = PICTURES / study.name
    shutil.rmtree(pictures, ignore_errors=True)
    for results in there:
        for figure in on_pages(results):
            pictures.mkdir(parents=True, exist_ok=True)
            picture = pictures / f"{results['experiment']}-{figure}.png"
            if figure in DRAWN_AGAIN:
                drawn_again(results, figure, picture)
            else:
                shutil.copyfile(results["folder"] / "figures" / f"{figure}.png", picture)
    if compared := [results for results in there if results["experiment"].startswith(COMPARISONS)]:
        pictures.mkdir(parents=True, exist_ok=True)
        overview(compared, pictures / "overview.png")


# -- runs --------------------------------------------------------------------------------------------------------------


def tested(run: Path) -> None:
    """A run that has been tested, or what it lacks."""
    missing = [file for file in OF_A_RUN if not (run / file).is_file()]
    if missing:
        lacks = f"it has no {', '.join(missing)}"
        sys.exit(f"{run} is neither a finished experiment nor a run that `omrl evaluate {run}` has tested: {lacks}.")


def keep_run(source: Path, target: Path, kept: Sequence[str] = OF_A_RUN) -> None:
    """Copy these files of a run; metrics are long, and no page has a table of them."""
    copy(source, target, [file for file in kept if file != METRICS])
    if METRICS in kept:
        compress(source / METRICS, target)
    # Where the data lay on the machine that trained says nothing to anybody else.
    config = _read(target / "config.json")
    write_json(target / "config.json", config | {"data": f"data/{Path(config['data']).name}"})


def compress(file: Path, target: Path) -> None:
    """Keep a file compressed; the time of day is none of it, so that the same numbers are the same bytes."""
    (target / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))


def copy(source: Path, target: Path, kept: Sequence[str]) -> None:
    """Copy files into a folder that need not be there."""
    for file in kept:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file, target / file)


def main() -> None:
    """Publish the named folders beside those that are there."""
    if len(sys.argv) < 2:
        sys.exit("Say where in results/ it goes, and what: python tools/publish.py NAME FOLDER...")
    with alone():
        publish(RESULTS / sys.argv[1], [Path(word) for word in sys.argv[2:]])


@contextmanager
def alone() -> Iterator[None]:
    """Wait until nobody else publishes, or packs what is published."""
    held = os.open(RESULTS.parent, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def publish(target: Path, named: Sequence[Path]) -> None:
    """Publish these folders there; without any, bring what is there in order."""
    if not named and not any(target.glob("*/results.json")):
        sys.exit(f"{target.name} has no experiments: there is nothing to bring in order.")
    if not named:
        tidy(target)
        return
    folders = [one for folder in named for one in (finished_in(folder) if is_study(folder) else [folder])]
    if not folders:
        sys.exit("There is nothing to publish.")
    # All are looked at before the first one is copied.
    found = {folder: finished(folder) for folder in folders if (folder / "results.json").is_file()}
    tried = [folder for folder in folders if folder not in found]
    for run in tried:
        tested(run)
    if (found and (tried or any(target.glob("*/scores.json")))) or (tried and any(target.glob("*/results.json"))):
        sys.exit(f"{target.name} has either the experiments of a study or runs, not both.")
    for run in tried:
        in_training = (f"{TRAINING}.csv", f"{TRAINING}.json")
        keep_run(run, target / run.name, [*OF_A_RUN, *(file for file in in_training if (run / file).is_file())])
    if found:
        new = {results["experiment"] for results in found.values()}
        others = [one for one in published(target) if one["experiment"] not in new]
        names = kept_as(list(found.values()), others)
        for folder, results in found.items():
            keep(folder, target, results, names)
        tidy(target)
        note_pieces(found)


if __name__ == "__main__":
    main()
