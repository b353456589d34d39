"""Runs an experiment from data to verdict, and writes what came out.

OUT/NAME/results.json    rows, metrics, and the verdict on every claim with its interval
OUT/NAME/figures         PNG and SVG        OUT/NAME/tables    CSV and Markdown
OUT/NAME/scores.csv      raw returns        OUT/NAME/curves.csv    raw curves
OUT/NAME/report          the page on its runs
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from omrl.commands.study import ALL, PaperRun, StudyRun
from omrl.drawing import studies as drawing
from omrl.errors import OmrlError
from omrl.reporting import REPORT
from omrl.reporting.build import build
from omrl.reporting.gather import RunFacts, gather
from omrl.reporting.probe import Embedding
from omrl.runs.records import Scores, read_logged, read_scores
from omrl.storage import folders
from omrl.storage.files import harmless, read_json, write_json, write_rows
from omrl.studies import RESULTS, running
from omrl.studies import tabulating as tables
from omrl.studies.cutting import BOARD, Cut, Places
from omrl.studies.definitions import Experiment, read_study
from omrl.studies.judging import Outcome, Results, Scored, judge, of_returns, q_growth, way
from omrl.studies.planning import Cell, Job, plan
from omrl.units.board import Board
from omrl.units.local import Inline
from omrl.units.place import LOCAL, check, executor, given, stored
from omrl.units.schedule import raise_failures, run_all

CURVES = ("return", "q")
# What a row takes over from the summary of its run.
OF_A_SUMMARY = ("seeds", "stopped", "tasks", "updates", "random", "expert")


def execute(args: PaperRun | StudyRun) -> list[Results]:
    """Do what is missing, then write everything; returns what the results.json of each experiment says.

    Runs of all experiments come first, each once: experiments share many.
    """
    study = read_study(args.file)
    study.check_trusted(args.trust)
    named = study.experiments if ALL in args.names else dict.fromkeys(args.names)
    chosen = [study.get(name) for name in named]
    scale = study.scales[args.scale]
    for name in ("seeds", "at_once", "threads"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise OmrlError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}.")
    check(args.on, args.at_once, args.storage)
    if scale.note:
        print(f"note: {scale.note}")
    places = Places(
        stored(args.out, args.storage).absolute(),
        stored(args.data, args.storage).absolute(),
        args.policies.absolute(),
    )
    planned = [(one, plan(one, scale, args.seeds)) for one in map(_with_whole_paths, chosen)]
    if args.storage is not None:
        places = replace(places, policies=_check_seen(args.policies, planned, args.storage))
    command = "omrl paper run" if args.file is None else f"omrl study run {args.file}"
    options = {"command": command, "trust": list(args.trust)}
    folders.claim(places.progress, BOARD)
    with folders.only_writer(places.progress), executor(args.on, args.at_once, args.storage) as doing:
        alone = isinstance(doing, Inline)
        means = given(doing, args.on, args.at_once, args.threads, args.device)
        cut = Cut(
            planned,
            (args.scale, scale),
            study.around.get(args.scale, 0.0),
            places,
            means,
            options,
            bfloat16=args.bfloat16,
            alone=alone,
            in_order=args.on == LOCAL,
        )
        title = f"{command.removeprefix('omrl ').removesuffix(' run')} {' '.join(args.names)}, {args.scale} scale"
        with Board(title, cut.units, places.progress, cut.links, alone).shown() as board:
            ended = run_all(cut.units, cut.prepare, doing, board, cut.split)
    whole = [experiment for experiment in chosen if ended[f"draw {experiment.name}"].status == "done"]
    read: Any = [read_json(places.out / experiment.name / RESULTS.key) for experiment in whole]
    results: list[Results] = read
    raise_failures(cut.units, ended)
    return results


def _with_whole_paths(experiment: Experiment) -> Experiment:
    """With data of one's own under absolute paths: units are done in other folders than this one."""
    found = (replace(one, path=str(Path(one.path).absolute())) if one.path else one for one in experiment.data)
    return replace(experiment, data=tuple(found))


def _check_seen(policies: Path, planned: Sequence[tuple[Experiment, Sequence[Cell]]], storage: Path) -> Path:
    """Refuse what is read and lies where nodes do not see it; where the policies lie that they do see."""
    found = storage.absolute() / policies
    for source in dict.fromkeys(cell.job.source for _, cells in planned for cell in cells):
        those = [one for one in (found, policies.absolute()) if (one / str(source.family)).is_dir()]
        stored(Path(source.path) if source.path else (*those, found)[0], storage)
    return found


def draw_unit(
    experiment: Mapping[str, object],
    cells: Sequence[tuple[int, int, Mapping[str, object]]],
    runs: Sequence[str],
    scale: str,
    out: str,
    note: str,
    device: str,
    command: str,
    trust: Sequence[str],
) -> None:
    """Draw, judge and write what an experiment found, from tested runs in the order of its cells."""
    own = TypeAdapter(Experiment).validate_json(json.dumps(experiment))
    planned = [Cell(own.data[data], own.rows[row], Job.of(job)) for data, row, job in cells]
    found = {cell.job: Path(run) for cell, run in zip(planned, runs, strict=True)}
    _finish(own, planned, found, Path(out), Drawing(scale, note, device, f"{command} {own.name}", trust))


@dataclass(frozen=True)
class Drawing:
    """What is said of an experiment beside its numbers, and how it is looked at."""

    scale: str
    note: str
    device: str
    command: str
    trust: Sequence[str]


def _finish(
    experiment: Experiment, cells: Sequence[Cell], runs: Mapping[Job, Path], folder: Path, how: Drawing
) -> dict[str, Any]:
    """Draw, judge and write."""
    folder = folders.place(folder)
    _claim(folder, experiment)
    outcomes = _test_all(experiment, cells, runs, how)
    for name in ("figures", "tables"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    # The page takes longest: where no figure shows what it looks at, it comes last.
    page = partial(_page, experiment, outcomes, folder / "report", how.command, how.trust)
    looks = any(kind.startswith("embedding") for kind in experiment.figures)
    embeddings = page() if looks else {}
    rows = [_row(outcome) for outcome in outcomes]
    judged = judge(experiment.claims, [_scored(outcome) for outcome in outcomes])
    figures = drawing.draw(experiment, outcomes, embeddings, folder / "figures", how.note)
    made = tables.make_all(experiment, rows, judged)
    for table in made:
        table.write(folder / "tables")
    _write_raw(outcomes, folder)
    results = {
        "experiment": experiment.name,
        "paper": experiment.paper,
        "title": experiment.title,
        "scale": how.scale,
        "note": how.note,
        "rows": rows,
        "claims": judged,
        "figures": figures,
        "tables": [table.name for table in made],
    }
    write_json(folder / "results.json", results)
    if not looks:
        page()
    return results


def _claim(folder: Path, experiment: Experiment) -> None:
    """Make the folder of an experiment's results; one that holds anything else is left alone."""
    results = folder / RESULTS.key
    folders.claim(folder, RESULTS, known=results.is_file() and read_json(results).get("experiment") == experiment.name)


# -- what was found ----------------------------------------------------------------------------------------------------


def _test_all(experiment: Experiment, cells: Sequence[Cell], runs: Mapping[Job, Path], how: Drawing) -> list[Outcome]:
    """What every row reached; runs were tested as `omrl evaluate` does by itself, which is what their pages show."""
    wanted = {claim.metric for claim in experiment.claims}
    folders = list(dict.fromkeys(runs.values()))
    facts_of = {facts.run.folder: facts for facts in gather(folders)}
    outcomes = []
    for cell in cells:
        folder = runs[cell.job]
        facts = facts_of[folder]
        level = cell.row.context_level
        summary, raw = running.tested(
            folder, facts.step, how.device, how.trust, context_level=level if level != facts.config.level else None
        )
        metrics, scores = _measured(summary, raw)
        metrics |= {name: np.array(summary[name])[:, None] for name in ("esr", "rms") if summary[name]}
        if experiment.tells_tasks_apart:
            _, logged = running.tested(folder, facts.step, how.device, how.trust, protocol="logged", split="train")
            metrics["identification"] = _read_logged(logged)["identification"]
        if "q_growth" in wanted:
            metrics["q_growth"] = q_growth(
                facts.curves["q"], [seed in summary["stopped"] for seed in facts.config.all_seeds()]
            )
        outcomes.append(Outcome(cell, folder, facts, summary, scores, metrics))
    return outcomes


def _measured(summary: Mapping[str, Any], raw: Path) -> tuple[dict[str, Any], Scores | None]:
    """Metrics [seeds, tasks], and the scores that they are of where there is a simulator."""
    if summary["protocol"] == "logged":
        logged = _read_logged(raw)
        return {name: logged[name] for name in ("action_error", "identification") if name in logged}, None
    scores = read_scores(raw)
    assert scores is not None
    return {name: values.mean(-1) for name, values in {"return": scores.returns, **scores.units}.items()}, scores


def _read_logged(raw: Path) -> dict[str, Any]:
    found = read_logged(raw)
    assert found is not None
    return found.metrics


# -- what comes out ----------------------------------------------------------------------------------------------------


def _page(
    experiment: Experiment, outcomes: Sequence[Outcome], target: Path, command: str, trust: Sequence[str]
) -> dict[Path, Embedding]:
    """The report on all runs under the experiment's labels; the embeddings that were looked at for it."""
    facts: dict[Path, RunFacts] = {}
    for outcome in outcomes:
        label = outcome.cell.row.label + (f", {outcome.cell.title}" if len(experiment.data) > 1 else "")
        facts.setdefault(outcome.run, replace(outcome.facts, index=len(facts), name=label))
    with folders.replacing(target, REPORT) as temporary:
        probes = build(list(facts.values()), temporary, command, trust)
    return {run: seen.embedding for run, seen in zip(facts, probes, strict=True) if seen.embedding is not None}


def _write_raw(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Every number of the figures and tables, in long form."""
    tested = [outcome.scores for outcome in outcomes if outcome.scores is not None]
    units = list(dict.fromkeys(name for one in tested for name in one.units))
    scores: list[Sequence[Any]] = [("data", "row", "seed", "task", "episode", "return", *units)]
    curves: list[Sequence[Any]] = [("data", "row", "seed", "metric", "step", "transitions", "value")]
    for outcome in outcomes:
        first = outcome.facts.config.seed
        if (own := outcome.scores) is not None:
            for place in np.ndindex(own.returns.shape):
                p, t, e = place
                numbers = (own.returns[place], *(own.units[name][place] if name in own.units else "" for name in units))
                written = [value if value == "" else f"{value:.6g}" for value in numbers]
                scores.append((*outcome.key, first + p, own.tasks[t], e, *written))
        # While it trains, a run is told its tasks by data of the quality that it learns from.
        trained_on = outcome.summary["context_level"] == outcome.facts.config.level
        for name in CURVES if trained_on else ():
            curve = outcome.facts.curves.get(name)
            if curve is not None:
                for (p, s), value in np.ndenumerate(curve.values):
                    place = (int(curve.steps[s]), int(curve.transitions[s]))
                    curves.append((*outcome.key, first + p, name, *place, f"{value:.6g}"))
    for name, rows in (("scores", scores), ("curves", curves)):
        write_rows(folder / f"{name}.csv", [[harmless(cell) for cell in row] for row in rows])


def _scored(outcome: Outcome) -> Scored:
    """What claims are judged by."""
    return Scored(outcome.cell.data, *outcome.key, outcome.metrics, way(outcome.summary), outcome.run.name)


def _main(outcome: Outcome) -> dict[str, Any]:
    """What a row is told by: its return, or without a simulator the error of its actions."""
    if "return" in outcome.metrics:
        return dict(of_returns(outcome.metrics["return"], outcome.summary))
    return {"mean": outcome.summary["action_error"], "iqm": None, "normalised": None}


def _row(outcome: Outcome) -> dict[str, Any]:
    """A row as JSON; metrics are one value per seed."""
    config, summary = outcome.facts.config, outcome.summary
    row = {
        "data": outcome.cell.title,
        "row": outcome.cell.row.label,
        "run": f"runs/{outcome.run.name}",
        "family": config.family,
        "algorithm": config.algorithm,
        "preset": config.preset,
        "changes": dict(outcome.cell.job.changes),
        "level": config.level,
        "context_level": summary["context_level"],
        **{key: summary.get(key) for key in OF_A_SUMMARY},
        **_main(outcome),
        "metrics": {name: [float(value) for value in values.mean(1)] for name, values in outcome.metrics.items()},
        "published": dict(outcome.cell.row.published),
    }
    if "q_growth" in outcome.metrics:
        values = outcome.facts.curves["q"].values
        last, size = values[:, -1][np.isfinite(values[:, -1])], np.abs(values[np.isfinite(values)])
        row["q"] = {
            "end": float(last.mean()) if last.size else None,
            "largest": float(size.max()) if size.size else None,
        }
    return row
