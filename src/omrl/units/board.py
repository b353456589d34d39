"""What a person sees of units: a bar, a line per node, and two files that say the same to others.

progress.json    every unit's state, for `omrl study status`
index.html       the same as a page, which fills while it runs
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NotRequired, get_args

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text
from typing_extensions import TypedDict

from omrl.schema import conform
from omrl.storage.files import read_json, replacing, write_json
from omrl.units.schedule import Event
from omrl.units.unit import Outcome, Unit

PROGRESS, PAGE = "progress.json", "index.html"
SCHEMA = 1
# Seconds between two writings of the files.
WRITE_SECONDS = 1.0
Stands = Literal["running", "done", "failed", "waiting"]
STATES: tuple[Stands, ...] = get_args(Stands)


class UnitState(TypedDict):
    """How far one is."""

    label: str
    kind: str
    state: Stands
    node: NotRequired[str]
    text: NotRequired[str]
    error: NotRequired[str]
    since: NotRequired[float]
    seconds: NotRequired[float]
    memory: NotRequired[int]


class State(TypedDict):
    """All that a board knows, as its file has it."""

    schema: int
    title: str
    began: float
    now: float
    over: bool
    nodes: dict[str, str]
    units: dict[str, UnitState]


class Board:
    """Keeps and shows how far each unit is."""

    def __init__(
        self,
        title: str,
        units: Sequence[Unit],
        folder: Path | None = None,
        links: Mapping[str, str] | None = None,
        alone: bool = False,
    ) -> None:
        """`links` are pages that units make, relative to the folder; `alone` where each unit shows itself."""
        self.title, self._folder, self._links, self._alone = title, folder, links or {}, alone
        self.units: dict[str, UnitState] = {}
        self._nodes: Mapping[str, str] = {}
        self._began, self._written = time.time(), 0.0
        self._live: Live | None = None
        self._over = False
        self.grown(units)

    @contextmanager
    def shown(self) -> Iterator[Board]:
        """On a terminal as long as the block lasts; files are up to date when it ends."""
        console = Console(stderr=True)
        if console.is_terminal and not self._alone:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task(self.title, total=len(self.units))
            self._live = Live(self._bar, console=console, refresh_per_second=4)
            self._live.start()
        try:
            yield self
            self._over = True
        finally:
            if self._live is not None:
                self._live.stop()
            self._write()

    # -- what it is told -----------------------------------------------------------------------------------------------

    def grown(self, units: Iterable[Unit]) -> None:
        """There are more, or other, units."""
        for unit in units:
            self.units[unit.name] = {"label": unit.label, "kind": unit.kind, "state": "waiting"}

    def told(self, event: Event) -> None:
        """Something happened to a unit."""
        own = self.units[event.unit]
        if event.what == "ended":
            assert event.outcome is not None
            self._ended(own, event.outcome, event.node)
            return
        own |= {"state": "waiting" if event.what == "lost" else "running", "node": event.node, "text": event.text}
        if event.what == "begun":
            own["since"] = time.time()
            if self._alone:
                print(f"\n{self._done() + 1}/{len(self.units)}  {own['label']}", flush=True)

    def _ended(self, own: UnitState, outcome: Outcome, node: str) -> None:
        own |= {"state": "done" if outcome.status == "done" else "failed", "node": node, "text": ""}
        own |= {"seconds": round(outcome.seconds, 3), "memory": outcome.memory, "error": outcome.error}
        if self._alone:
            return
        if own["state"] == "failed":
            said = f"failed ({outcome.error})"
        elif outcome.seconds:
            said = f"done in {outcome.seconds:.1f} s" + (f" on {node}" if node else "")
        else:
            said = "was done before"
        line = f"{self._done()}/{len(self.units)}  {own['label']}: {said}"
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False)
        else:
            print(line, flush=True)

    def _done(self) -> int:
        return sum(own["state"] in ("done", "failed") for own in self.units.values())

    def looked(self, nodes: Mapping[str, str]) -> None:
        """Time has passed: bring everything up to date, but not too often."""
        self._nodes = nodes
        if time.monotonic() - self._written < (
            0.25 if self._live is not None and self._folder is None else WRITE_SECONDS
        ):
            return
        if self._live is not None:
            self._bar.update(self._task, completed=self._done(), total=len(self.units))
            self._live.update(
                Group(self._bar, *(Text(line, overflow="ellipsis", no_wrap=True) for line in self.lines()))
            )
        self._write()

    def lines(self) -> list[str]:
        """A line for every node: what it has, what it is at."""
        return node_lines(self.state())

    # -- the files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """All of it as JSON."""
        return {
            "schema": SCHEMA,
            "title": self.title,
            "began": self._began,
            "now": time.time(),
            "over": self._over,
            "nodes": dict(self._nodes),
            "units": self.units,
        }

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._folder is not None:
            state = self.state()
            write_json(self._folder / PROGRESS, {**state})
            with replacing(self._folder / PAGE) as temporary:
                temporary.write_text(page(state, self._links))


def node_lines(state: State) -> list[str]:
    """A line for every node."""
    found = []
    for name, has in state["nodes"].items():
        own = [one for one in state["units"].values() if one["state"] == "running" and one.get("node") == name]
        doing = "; ".join(f"{one['label']}{': ' if one.get('text') else ''}{one.get('text', '')}" for one in own)
        found.append(f"{name}{f', {has}' if has else ''}: {doing or 'idle'}")
    return found


def counts(state: State) -> str:
    """How many units are in which state, in words."""
    found = Counter(one["state"] for one in state["units"].values())
    return ", ".join(f"{found[name]} {name}" for name in STATES if found[name])


def print_status(folder: Path) -> None:
    """What the files of a board say."""
    read: Any = read_json(folder / PROGRESS)
    state: State = conform(State, read, folder / PROGRESS)
    total = len(state["units"])
    ended = sum(one["state"] in ("done", "failed") for one in state["units"].values())
    print(f"{state['title']}: {ended} of {total} units ({counts(state)})")
    age = time.time() - state["now"]
    if not state["over"]:
        print("\n".join(node_lines(state)))
        if age > 5 * WRITE_SECONDS:
            print(
                f"It has not written for {age:,.0f} s: the same command goes on with it, if it does not run any more."
            )
    for one in state["units"].values():
        if one["state"] == "failed":
            print(f"failed: {one['label']}: {one.get('error', '')}")
    print(folder / PAGE)


def page(state: State, links: Mapping[str, str]) -> str:
    """The page; it loads itself again while there is more to come."""
    css = resources.files("omrl.reporting").joinpath("assets", "page.css").read_text(encoding="utf-8")
    total = len(state["units"])
    ended = sum(one["state"] in ("done", "failed") for one in state["units"].values())
    refresh = "" if state["over"] else '<meta http-equiv="refresh" content="3">'
    seconds = state["now"] - state["began"]
    shown = sorted(state["units"].items(), key=lambda pair: STATES.index(pair[1]["state"]))
    rows = "".join(_table_row(one, links.get(name)) for name, one in shown)
    nodes = "".join(f"<li>{escape(line)}</li>" for line in node_lines(state))
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = "".join(f"<th>{name}</th>" for name in ("kind", "unit", "state", "node", "seconds", ""))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
{refresh}
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(state["title"])}</title>
<style>{css}
progress {{ width: 100%; height: 1.2rem; }}
tr.waiting, tr.waiting td {{ opacity: .55; }}
tr.failed td {{ color: #c0392b; }}
tr.running td {{ font-weight: 600; }}
</style>
</head>
<body>
<header><div><h1>{escape(state["title"])}</h1>
<div class="muted">{ended} of {total} units: {escape(counts(state))}; {seconds:,.0f} s</div></div></header>
<main>
<section><progress max="{max(total, 1)}" value="{ended}">{ended} of {total}</progress></section>
<section><h2>Nodes</h2><ul>{nodes}</ul></section>
<section><h2>Units</h2>
<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>
<footer class="muted">Made by omrl.</footer></main>
</body>
</html>
"""


def _table_row(one: UnitState, link: str | None) -> str:
    label = escape(one["label"])
    if link is not None and one["state"] == "done":
        label = f'<a href="{escape(link)}">{label}</a>'
    took = f"{one['seconds']:,.1f}" if one.get("seconds") else ""
    said = one.get("error") or one.get("text") or ""
    cells = (escape(one["kind"]), label, escape(one["state"]), escape(one.get("node", "")), took, escape(said))
    return f'<tr class="{escape(one["state"])}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
