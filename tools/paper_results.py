"""Publish experiments of the paper: keep what came out of them, and how their runs were made.

    python tools/paper_results.py paper comparison-sparse-point-robot dml-vs-bellman ...

The first word is the folder that `omrl paper run` wrote to, the others are names of finished experiments there.
Neither checkpoints nor data are needed here.

Results, raw scores, curves, tables and pictures of an experiment go to results/paper/NAME/, config, environment and
timings of its runs to results/paper/runs/RUN/. What all published experiments say of themselves is then collected in
results/paper/paper.json, from which `tools/tables.py` makes the tables of docs/results.md and docs/comparisons.md, and
the pictures that these pages may show are put into docs/img/paper/. An experiment that is not named stays as it is;
where it has a run that has other scores here, the one here was trained again, and is kept as RUN-again.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omrl.errors import OmrlError
from omrl.storage.files import write_json
from omrl.studies.definitions import experiments, get_experiment

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "paper"
PICTURES = ROOT / "docs" / "img" / "paper"
OF_A_RUN = ("config.json", "environment.json", "timings.json")
# The same curves as `return`, which pages show.
NOT_SHOWN = ("return-log",)

Results = Mapping[str, Any]


def files(results: Results) -> list[str]:
    """What is kept of an experiment, in its folder. SVG and the report can be made again, and say nothing more."""
    tables = [f"tables/{name}.{kind}" for name in results["tables"] for kind in ("md", "csv")]
    figures = [f"figures/{name}.png" for name in results["figures"]]
    return ["results.json", "scores.csv", "curves.csv", *tables, *figures]


def runs(results: Results) -> list[str]:
    """The folders of an experiment's runs; several of its rows may be of the same one."""
    return list(dict.fromkeys(row["run"] for row in results["rows"]))


def read(out: Path, name: str) -> dict[str, Any]:
    """The results of a finished experiment of full scale; what is anything else is refused with what is wrong."""
    try:
        get_experiment(name)
    except OmrlError as error:
        sys.exit(str(error))
    folder = out / name
    if not (folder / "results.json").is_file():
        sys.exit(f"{folder} is not a finished experiment: it has no results.json.")
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    if results["scale"] != "full":
        sys.exit(f"{folder} is of scale {results['scale']}, whose numbers say nothing: only full scale is published.")
    wanted = [folder / file for file in files(results)]
    wanted += [out / run / file for run in runs(results) for file in OF_A_RUN]
    missing = [str(path.relative_to(out)) for path in wanted if not path.is_file()]
    if missing:
        sys.exit(f"{folder} is not a finished experiment: {out} has no {', '.join(missing)}.")
    return results


def scores(published: Sequence[Results]) -> dict[tuple[str, str], Any]:
    """The mean return of every run, by the level of its contexts."""
    return {(row["run"], row["context_level"]): row["mean"] for results in published for row in results["rows"]}


def kept_as(found: Sequence[Results], others: Sequence[Results]) -> dict[str, str]:
    """The name of every run in results/paper: its own, unless another experiment has that for a run of other scores."""
    taken, own = scores(others), scores(found)
    names = {run: run for run, _ in own}
    for (run, level), mean in own.items():
        while taken.get((names[run], level), mean) != mean:
            names[run] += "-again"
    return names


def keep(out: Path, name: str, results: Results, names: Mapping[str, str]) -> None:
    """Copy an experiment and the settings of its runs, in place of what was published of it before."""
    shutil.rmtree(RESULTS / name, ignore_errors=True)
    for file in files(results):
        copied(out / name / file, RESULTS / name / file)
    rows = [row | {"run": names[row["run"]]} for row in results["rows"]]
    write_json(RESULTS / name / "results.json", {**results, "rows": rows})
    for run in runs(results):
        for file in OF_A_RUN:
            copied(out / run / file, RESULTS / names[run] / file)
        # Where the data lay on the machine that trained says nothing to anybody else.
        path = RESULTS / names[run] / "config.json"
        config = json.loads(path.read_text())
        write_json(path, config | {"data": f"data/{Path(config['data']).name}"})


def copied(source: Path, target: Path) -> None:
    """Copy a file into a folder that need not be there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def collect() -> list[dict[str, Any]]:
    """What all published experiments say, in the order of paper.toml."""
    paths = [RESULTS / name / "results.json" for name in experiments()]
    return [json.loads(path.read_text()) for path in paths if path.is_file()]


def write_collected() -> list[dict[str, Any]]:
    """Bring results/paper/paper.json up to date."""
    published = collect()
    (RESULTS / "paper.json").write_text(json.dumps(published, indent=1) + "\n")
    return published


def tidy(published: Sequence[Results]) -> None:
    """Bring the pictures of the pages up to date; runs and pictures that no published experiment has are removed."""
    named = {run for results in published for run in runs(results)}
    for folder in (RESULTS / "runs").iterdir():
        if f"runs/{folder.name}" not in named:
            shutil.rmtree(folder)
    shutil.rmtree(PICTURES, ignore_errors=True)
    for results in published:
        name = results["experiment"]
        for figure in results["figures"]:
            if figure not in NOT_SHOWN:
                copied(RESULTS / name / "figures" / f"{figure}.png", PICTURES / f"{name}-{figure}.png")


def main() -> None:
    """Publish the named experiments beside those that are there."""
    if len(sys.argv) < 3:
        sys.exit("Say where the experiments are and which to publish: python tools/paper_results.py paper NAME...")
    out = Path(sys.argv[1])
    # All are looked at before the first one is copied.
    found = {name: read(out, name) for name in sys.argv[2:]}
    names = kept_as(list(found.values()), [one for one in collect() if one["experiment"] not in found])
    for name, results in found.items():
        keep(out, name, results, names)
    tidy(write_collected())


if __name__ == "__main__":
    main()
