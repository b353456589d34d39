"""The HTML page: one file that opens from disk, with its style, its script, its figures and its data inside.

Whatever comes from a file (names of runs and tasks, parameters, config values) goes through `escape`, or as JSON
without `<` into a block that is no script. A content policy admits the page's own script alone, and no network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from typing import Any

import numpy as np

from omrl.drawing.runs import axis_names
from omrl.drawing.style import Drawn, colour, dash, task_colours
from omrl.evaluation import stats
from omrl.reporting.gather import RunFacts, short
from omrl.reporting.probe import DRAWS, Embedding, Probe
from omrl.reporting.tables import Table
from omrl.runs.records import Summary
from omrl.words import quantity


@dataclass
class Content:
    """What the page shows, in the order of its sections."""

    runs: Sequence[RunFacts]
    probes: Sequence[Probe]
    made: str
    """When and with what the report was made."""
    command: str
    summary: Table
    separation: Table
    config: Table
    versions: Table
    timings: Table
    logged: Table
    differences: Table
    intervals: list[Drawn] = field(default_factory=list)
    curves: list[tuple[str, list[Drawn]]] = field(default_factory=list)
    """Family, figures."""
    tasks: list[tuple[str, Drawn, Table]] = field(default_factory=list)
    """Dataset, figure, table."""
    logged_tasks: list[tuple[str, Table]] = field(default_factory=list)
    """Dataset and its held-out tasks, for one's own logs."""
    embeddings: dict[int, list[Drawn]] = field(default_factory=dict)
    """Run to the files of its space and flat views, then its histogram."""
    policies: dict[int, Drawn] = field(default_factory=dict)
    data: list[tuple[str, str, Drawn, Table]] = field(default_factory=list)
    """Dataset, what it is, figure, table."""
    own_logs: dict[str, tuple[list[str], list[Drawn]]] = field(default_factory=dict)
    """Dataset to what looks odd in it and the figures that show it, for one's own logs."""


def page(content: Content) -> str:
    """The whole page."""
    runs = content.runs
    title = f"Report on {runs[0].name}" if len(runs) == 1 else f"Report on {len(runs)} runs"
    sections = (
        ("summary", "Summary", _summary(content)),
        ("learning", "Learning", _learning(content)),
        ("tasks", "Test tasks", _tasks(content)),
        ("embeddings", "Embeddings", _embeddings(content)),
        ("policy", "Adapted policy", _policy(content)),
        ("data", "Data", _data(content)),
        ("reproduce", "Reproduce", _reproduce(content)),
    )
    body = "".join(f'<section id="{key}"><h2>{heading}</h2>{html}</section>' for key, heading, html in sections)
    links = "".join(f'<a href="#{key}">{heading}</a>' for key, heading, _ in sections)
    script, css = _asset("page.js"), _asset("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{css}</style>
</head>
<body>
<header><div><h1>{escape(title)}</h1><div class="muted">{escape(content.made)}</div></div>
<button id="theme" type="button" title="Switch between light and dark">Dark</button></header>
<div class="bar"><div>{_toggles(runs)}<nav>{links}</nav></div></div>
<main>{body}
<footer class="muted">Made by omrl. Every figure is also in the folder <code>figures</code>, every table in
<code>tables</code>.</footer></main>
<div id="tip" role="tooltip" hidden></div>
<script type="application/json" id="views">{_json(_views(content))}</script>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return resources.files("omrl.reporting").joinpath("assets", name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that cannot end the block it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _toggles(runs: Sequence[RunFacts]) -> str:
    """Ticks that show and hide a run, which are the legend of its colour and line too."""
    boxes = []
    for facts in runs:
        line = dash(facts.index)
        dashes = "" if isinstance(line, str) else f' stroke-dasharray="{" ".join(str(2 * d) for d in line[1])}"'
        key = f'<path d="M0 5H26" stroke="{colour(facts.index)}" stroke-width="3"{dashes}/>'
        boxes.append(
            f'<label><input type="checkbox" checked data-toggles="{facts.index}" aria-label="{escape(facts.name)}">'
            f'<svg width="26" height="10" aria-hidden="true">{key}</svg>'
            f'<span title="{escape(str(facts.run.folder))}">{escape(facts.name)}</span></label>'
        )
    return f'<fieldset class="runs" aria-label="Runs that are shown">{"".join(boxes)}</fieldset>'


def _figure(drawn: Drawn, told: bool = True) -> str:
    """A figure and its files; `told` says that its title does not tell what its caption would."""
    caption = f"{escape(drawn.caption)} " if told else ""
    size = f"--drawn:{105 * drawn.width:.0f}px"
    run = "" if drawn.run is None else f' data-run="{drawn.run}"'
    wide = "scroll wide" if drawn.wide else ""
    return (
        f'<figure style="{size}"{run}><div class="{wide}" role="img" aria-label="{escape(drawn.caption)}">'
        f"{drawn.svg}</div><figcaption>{caption}{_files(drawn)}</figcaption></figure>"
    )


def _files(drawn: Drawn) -> str:
    path = f"figures/{drawn.name}"
    return f'<span class="files"><a href="{path}.svg">SVG</a> <a href="{path}.png">PNG</a></span>'


def _table(table: Table, kind: str = "") -> str:
    path = f"tables/{table.name}"
    links = f'<span class="files"><a href="{path}.csv">CSV</a> <a href="{path}.md">Markdown</a></span>'
    return f'<div class="scroll {kind}">{table.html()}</div><div>{links}</div>'


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _block(facts: RunFacts, html: str) -> str:
    """What belongs to one run, under its name."""
    swatch = f'<span class="swatch" style="background:{colour(facts.index)}"></span>'
    return f'<div class="run-block" data-run="{facts.index}"><h3>{swatch}{escape(facts.name)}</h3>{html}</div>'


def _summary(content: Content) -> str:
    cards = "".join(_card(facts) for facts in content.runs)
    pictures = "".join(_figure(drawn) for drawn in content.intervals)
    pictures += _differences(content)
    return (
        f'<div class="cards">{cards}</div>{_table(content.summary)}'
        '<p class="muted under">Mean and interquartile mean (IQM) over seeds and tasks; the interval is a t interval '
        "over seeds, and over tasks too where there are five or more that were not trained on. "
        "Normalised: 0 is the untrained policy, 1 the expert that made the data. "
        "ESR: share of pairs of training tasks whose embeddings are further apart than random points; RMS: their "
        f"distance per dimension. Both are means over seeds.</p>{pictures}"
    )


def _differences(content: Content) -> str:
    if not content.differences.rows:
        return ""
    return (
        "<h3>Differences between runs</h3><p class='muted'>On the same tasks, by contexts of the same kind. Where the "
        "95 % interval holds zero, the runs may as well be equal; of twenty equal pairs, one misses zero by chance."
        f"</p>{_table(content.differences)}"
    )


def _card(facts: RunFacts) -> str:
    found, config = facts.summary, facts.config
    swatch = f'<span class="swatch" style="background:{colour(facts.index)}"></span>'
    about = f"{config.algorithm} on {facts.family}, {config.level} data, {quantity(facts.step, 'update')}"
    html = f'<h3>{swatch}{escape(facts.name)}</h3><p class="muted">{escape(about)}</p>'
    if found:
        mean, seeds = found["mean"], quantity(len(found["per_seed"]), "seed")
        tasks = escape(quantity(len(facts.scores.tasks), f"{facts.scores.split} task")) if facts.scores else ""
        html += f'<div class="big">{mean["value"]:z.2f}</div><p class="muted">mean return on {tasks}, '
        known = mean["low"] is not None
        html += (
            f"{seeds}; 95&nbsp;%: {mean['low']:z.2f} to {mean['high']:z.2f}</p>"
            if known
            else f"{seeds}; no interval</p>"
        )
        if "normalised" in found:
            part = 100 * min(max(found["normalised"], 0.0), 1.0)
            html += (
                f'<div class="scale"><i style="width:{part:.1f}%;background:{colour(facts.index)}"></i></div>'
                f'<div class="ends"><span>random {found["random"]:z.2f}</span>'
                f"<span>{found['normalised']:z.0%}</span><span>expert {found['expert']:z.2f}</span></div>"
            )
    elif facts.logged or facts.judged:
        html += _verdict(facts) + (_logged_card(facts.logged) if facts.logged else "")
    else:
        html += f"<p>Not evaluated yet. To do it:</p><pre>{escape(_evaluate_command(facts))}</pre>"
    if facts.context_from:
        html += f'<p class="muted">Each task is known by {escape(facts.context_from)}.</p>'
    html += "".join(map(_note, facts.notes))
    return f'<div class="card" data-run="{facts.index}">{html}</div>'


def _verdict(facts: RunFacts) -> str:
    """The word of `omrl select`, or how to get it: without, nothing says whether the policy is any good."""
    judged = facts.judged
    if judged is None:
        command = escape(shlex.join(["omrl", "select", str(facts.run.folder)]))
        return f'<div class="big">not judged yet</div><pre>{command}</pre>'
    word = judged.word if judged.word == "cannot tell" else f"{judged.word} than the logger"
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in judged.reasons)
    return (
        f'<div class="big">{escape(word)}</div><p class="muted">Judged from logs alone by omrl select: return beyond '
        f"the logger's {judged.logger:z.2f} on {escape(quantity(judged.tasks, 'task'))}, 95&nbsp;%: "
        f"{escape(judged.gain.text())}. Each task is known by {escape(judged.context_from)}.</p>"
        f"{f'<ul>{reasons}</ul>' if reasons else ''}"
    )


def _logged_card(found: Summary) -> str:
    """What logs can tell, which is no verdict on a policy."""
    error = stats.Estimate(**found["action_error"]).text(3)
    html = f"<p>Action error {escape(error)}, of actions in [-1, 1]. "
    if "noise_floor" in found:
        html += f"The log's own noise is at most {found['noise_floor']['value']:.3f}. "
    html += f"The mean action has {found['constant_error']['value']:.3f}.</p>"
    if told := found.get("identification"):
        html += f"<p>{told['value']:.0%} of held-out contexts are nearest to their own task, by chance "
        html += f"{found['chance']:.0%}.</p>"
    return html


def _learning(content: Content) -> str:
    if not content.curves:
        return _note("No run has logged metrics yet.")
    html = "<p class='muted'>Line: mean over seeds. Band: from the lowest to the highest seed.</p>"
    for family, drawn in content.curves:
        heading = f"<h3>{escape(family)}</h3>" if len(content.curves) > 1 else ""
        html += f'{heading}<div class="grid">{"".join(_figure(one, told=False) for one in drawn)}</div>'
    return html


def _tasks(content: Content) -> str:
    html = ""
    for path, drawn, table in content.tasks:
        html += f"<h3>{escape(path)}</h3>{_figure(drawn)}<details class='last'><summary>The same as a table</summary>"
        html += f"{_table(table)}</details>"
    if content.logged.rows:
        html += (
            "<p class='muted'>Told by logs alone, by rows that were held out: share of contexts whose z is nearest to "
            "their own task, RMS difference of the adapted policy's actions and the logged ones, beside that of the "
            "task's mean action and the noise floor, and mean values of both. The noise floor is how unsteady the "
            "logged actions are at like observations, at most: who does what the log's author does on average has that "
            f"error. How good that is, none of this says.</p>{_table(content.logged)}"
        )
    for path, table in content.logged_tasks:
        html += f"<h3>{escape(path)}, each task</h3>{_table(table)}"
    missing = [facts for facts in content.runs if facts.scores is None and not facts.logged]
    html += "".join(_block(f, _note(f"Not evaluated yet. To do it: {_evaluate_command(f)}")) for f in missing)
    blind = [facts for facts in content.runs if facts.scores is not None and facts.dataset is None]
    return html + "".join(_block(facts, _note(facts.data_note)) for facts in blind)


def _embeddings(content: Content) -> str:
    html = (
        f"<p class='muted'>{DRAWS} contexts are drawn from the logged data of each task, each is embedded as one z, by "
        f"the first seed of the run. A dot is a context; what its colour is stands below. Point at a dot to "
        "see the task; drag the left view to turn it, click it and use the wheel to come nearer, double-click to go "
        "back.</p>"
    )
    for facts, seen in zip(content.runs, content.probes, strict=True):
        if seen.embedding is None:
            html += _block(facts, _note(seen.embedding_note))
            continue
        space, flat, histogram = content.embeddings[facts.index]
        ramp = ",".join(task_colours(_ramp()))
        low, high = seen.embedding.values.min(), seen.embedding.values.max()
        key = (
            f'<div class="ramp"><span>{escape(seen.embedding.label)}</span><span>{low:.3g}</span>'
            f'<i style="background:linear-gradient(90deg,{ramp})"></i><span>{high:.3g}</span></div>'
        )
        views = _canvas(facts, "space", space) + _canvas(facts, "flat", flat)
        html += _block(facts, f'<div class="grid">{views}{_figure(histogram)}</div>{key}')
    if content.separation.rows:
        html += f"<details><summary>ESR and RMS of every seed</summary>{_table(content.separation)}</details>"
    return html


def _ramp() -> Any:
    return np.linspace(0.0, 1.0, 9)


def _canvas(facts: RunFacts, kind: str, drawn: Drawn) -> str:
    turns = ' class="turns" tabindex="0"' if kind == "space" else ""
    label = escape(f"{facts.name}: {drawn.caption}")
    return (
        f'<figure><canvas{turns} data-embedding="{facts.index}" data-kind="{kind}" role="img" aria-label="{label}">'
        f"</canvas><figcaption>{escape(drawn.caption)} {_files(drawn)}</figcaption></figure>"
    )


def _views(content: Content) -> dict[str, Any]:
    """What the script draws: points by run."""
    return {
        "embeddings": {
            str(facts.index): _view(seen.embedding)
            for facts, seen in zip(content.runs, content.probes, strict=True)
            if seen.embedding is not None
        }
    }


def _view(found: Embedding) -> dict[str, Any]:
    # One scale for all axes, so that distances are true, and a cube around all dots.
    low, high = found.axes.min(0), found.axes.max(0)
    half = float((high - low).max() / 2) or 1.0
    dots = (found.axes - (low + high) / 2) / half
    return {
        "draws": found.z.shape[1],
        "tasks": [
            {"name": task.name, "params": short(task.params, 200), "unseen": unseen}
            for task, unseen in zip(found.tasks, found.unseen, strict=True)
        ],
        "colours": task_colours(found.dot_values),
        "space": {"points": dots.round(3).ravel().tolist(), "half": 1.0, "axes": axis_names(found)},
        "flat": {"points": found.flat.round(2).ravel().tolist(), "half": float(abs(found.flat).max()) or 1.0},
    }


def _policy(content: Content) -> str:
    about, html = (
        "<p class='muted'>Each policy is adapted to its task from logged transitions alone (the first seed of the "
        "run); where there is a simulator, it acts for one episode.</p>",
        "",
    )
    for facts, seen in zip(content.runs, content.probes, strict=True):
        notes = [note for note in (seen.rollouts_note, seen.rollouts.film_note if seen.rollouts else "") if note]
        inside = "".join(map(_note, notes))
        if facts.index in content.policies:
            inside += _figure(content.policies[facts.index])
        html += _block(facts, inside)
    return f'{about}<div class="blocks">{html}</div>'


def _data(content: Content) -> str:
    html = ""
    for path, about, drawn, table in content.data:
        users = ", ".join(facts.name for facts in content.runs if facts.dataset and facts.config.data == path)
        html += f"<h3>{escape(path)}</h3><p class='muted'>{escape(about)} Used by {escape(users)}. Returns are means "
        html += "over a task's episodes; their spread is the standard deviation over tasks.</p>"
        html += f'<div class="blocks"><div>{_table(table)}</div>{_figure(drawn)}</div>'
        findings, pictures = content.own_logs.get(path, ([], []))
        if findings:
            lines = "".join(f"<li>{escape(line)}</li>" for line in findings)
            html += f"<p>What one should know of it before training on it:</p><ul>{lines}</ul>"
        html += "".join(map(_figure, pictures))
    return html + "".join(_block(facts, _note(facts.data_note)) for facts in content.runs if facts.dataset is None)


def _reproduce(content: Content) -> str:
    html = ""
    for facts in content.runs:
        commands = _commands_again(facts)
        html += f'<div data-run="{facts.index}"><h3>{escape(facts.name)}</h3><pre>{escape(commands)}</pre></div>'
    html += f"<h3>This report</h3><pre>{escape(content.command)}</pre>"
    for heading, table in (("Config", content.config), ("Versions", content.versions), ("Timings", content.timings)):
        if table.rows:
            more = " Settings that differ between runs are marked." if table.marked else ""
            shown = " open" if table is content.timings else ""
            html += f"<details{shown}><summary>{heading}.{more}</summary>{_table(table, 'fold')}</details>"
    return html


def _evaluate_command(facts: RunFacts) -> str:
    return shlex.join(["omrl", "evaluate", str(facts.run.folder)])


def _commands_again(facts: RunFacts) -> str:
    """The commands that make the run again under another name: its config says all that decides the result."""
    folder, config = facts.run.folder, facts.config
    words = ["omrl", "train", str(config.algorithm), "--config", str(folder / "config.json")]
    train = [*words, "--data", str(config.data), "--out", f"{folder}-again"]
    return f"{shlex.join(train)}\n{shlex.join(['omrl', 'evaluate', f'{folder}-again'])}"
