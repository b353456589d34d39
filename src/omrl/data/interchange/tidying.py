"""One task's rows of a table as the arrays of a meta-dataset: order, episodes, holes, successors.

Decisions, where a table leaves them open:
- Rows are in the order that a column gives them, or that somebody vouches for. It is never guessed.
- A missing value is an error until somebody says what to do about it. No transition ever bridges a hole or a gap.
- Without next observations, a row's successor is the next row of its episode. The last row of an episode has none and
  is dropped, unless it terminates: nothing bootstraps from it, so its own observation stands in.
- An episode that does not end in a termination ends in a truncation, flagged or not: the log goes no further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from omrl.data.arrays import Arrays, Place, episode_starts
from omrl.data.interchange import times
from omrl.data.interchange.columns import WIDE, Columns
from omrl.data.interchange.survey import Column, is_missing, words_of
from omrl.words import quantity

# What can be carried on from one row to the next; a flag or a place in the order cannot.
CARRIED = (*WIDE, "rewards", "rewards_dense", "policy_step")


@dataclass(frozen=True)
class Plan:
    """What is done to the rows of every task."""

    columns: Columns
    missing: str
    gap: float | None = None
    """Seconds between two rows that end an episode."""
    episode_length: int | None = None
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The words of every column that becomes one number for each of them."""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The words of every action that is one of them: they become 0, 1, 2, ..."""


@dataclass
class Report:
    """What was done to the rows, counted over all tasks."""

    dropped: int = 0
    stood_in: int = 0
    twice: int = 0
    gaps: int = 0
    longest: tuple[float, str] = (0.0, "")
    holes: int = 0
    carried: int = 0

    def lines(self, plan: Plan) -> list[str]:
        """Each as a line, where there is something to say."""
        lines = []
        if self.twice:
            lines.append(f"rows that were there twice were dropped: {self.twice:,}")
        if plan.gap is not None:
            where = f"; the longest, {times.duration(self.longest[0])}, {self.longest[1]}" if self.gaps else ""
            lines.append(f"episodes were cut at {quantity(self.gaps, 'gap')}{where}")
        if self.carried:
            lines.append(f"missing values were filled with the last one of their episode: {self.carried:,}")
        if self.holes:
            lines.append(f"rows with missing values were dropped, and episodes end before them: {self.holes:,}")
        if not plan.columns.next_observations:
            lines.append(f"next_observations were derived: {self.dropped} rows without a successor were dropped")
            lines.append(f"{self.stood_in} terminal rows were kept with their own observation as the next one")
        return lines


def tidy(table: dict[str, Column], plan: Plan, place: Place, report: Report) -> tuple[Arrays, Place]:
    """One task's arrays from its rows of a table, and where these rows are."""
    columns = plan.columns
    n = len(table[columns.needed[0]])
    if n == 0:
        raise place.error("observations", "the task is empty")
    if columns.time:
        order = _by_time(table, columns)
        report.holes += n - len(order)  # without a time, a row has no place
        table, place = _once(_taken(table, order), columns, _at(place, order), report)
        n = len(table[columns.needed[0]])
        if n == 0:
            raise place.error(columns.time[0], "no row has a time, the task is empty; leave it out with --skip-tasks")
    nowhere = _hole(table, columns.episode)
    if nowhere.all():
        raise place.error(
            columns.episode[0], "no row has an episode, the task is empty; leave it out with --skip-tasks"
        )
    if nowhere.any():
        # A hole in the episode of the row before it, so that nothing bridges it.
        table = table | {columns.episode[0]: _carried(table[columns.episode[0]], nowhere)}
    term_hole, trunc_hole = (_hole(table, getattr(columns, part)) for part in ("terminations", "truncations"))
    term, trunc = (
        _flags(table, getattr(columns, part), part, n, hole, place)
        for part, hole in (("terminations", term_hole), ("truncations", trunc_hole))
    )
    episode = _episodes(table, plan, term | trunc, place, report)
    starts = episode_starts(episode)
    begins = np.zeros(n, bool)
    begins[starts] = True
    if columns.step:
        step = wide(table, columns.step, plan, place)[:, 0]
        missing = _hole(table, columns.step)
        wrong = np.append(False, (np.diff(step) != 1) & ~missing[1:] & ~missing[:-1]) & ~begins
        if wrong.any():
            row = int(np.argmax(wrong))
            remedy = "sort the file by it, or name a column of times with --time"
            raise place.error("step", f"the rows of the episode are not in order; {remedy}", row)
    holes = nowhere | term_hole | trunc_hole | _hole(table, columns.step)
    table, unfilled = _filled(table, plan, starts, report)
    holes |= unfilled
    if holes.any():
        # What follows a hole is an episode of its own: nothing bridges it.
        begins |= np.append(False, holes[:-1])
        whole = np.flatnonzero(~holes)
        report.holes += n - len(whole)
        if not len(whole):
            raise place.error("observations", "every row has a missing value; leave the task out with --skip-tasks")
        episode = np.cumsum(begins)[whole]
        table, place = _taken(table, whole), _at(place, whole)
        term, trunc, n = term[whole], trunc[whole], len(whole)
        episode = np.cumsum(np.append(False, np.diff(episode) != 0))
    arrays = {part: wide(table, getattr(columns, part), plan, place) for part in WIDE if getattr(columns, part)}
    for part in ("rewards", "policy_step", "rewards_dense"):
        if names := getattr(columns, part):
            arrays[part] = wide(table, names, plan, place)[:, 0]
    starts = episode_starts(episode)
    lengths = np.diff(starts, append=n)
    last = np.zeros(n, bool)
    last[starts + lengths - 1] = True
    kept = np.arange(n)
    if not columns.next_observations:
        obs = arrays["observations"]
        arrays["next_observations"] = np.where(last[:, None], obs, np.roll(obs, -1, axis=0))
        successor = ~last | term
        report.dropped += int(n - successor.sum())
        report.stood_in += int((last & term).sum())
        # The row before a dropped one becomes the last of its episode.
        last = np.append(~successor[1:] & ~last[:-1], False) | (last & successor)
        kept = np.flatnonzero(successor)
        if not len(kept):
            remedy = "leave the task out with --skip-tasks"
            raise place.error("next_observations", f"no row has a successor, the task is empty; {remedy}")
    arrays |= {
        "terminations": term,
        "truncations": trunc | (last & ~term),
        "episode": episode,
        "step": np.arange(n) - np.repeat(starts, lengths),
    }
    return _taken(arrays, kept), _at(place, kept)


def _taken(table: Mapping[str, Column], rows: NDArray[np.int64]) -> dict[str, Column]:
    return {name: values[rows] for name, values in table.items()}


def _at(place: Place, rows: NDArray[np.int64]) -> Place:
    """The same place for some of its rows."""
    return replace(place, row_numbers=rows if place.row_numbers is None else place.row_numbers[rows])


def _hole(table: Mapping[str, Column], names: Sequence[str]) -> NDArray[np.bool_]:
    n = len(next(iter(table.values())))
    gone = np.zeros(n, bool)
    for name in names:
        gone |= is_missing(table[name])
    return gone


def _by_time(table: Mapping[str, Column], columns: Columns) -> NDArray[np.int64]:
    """The rows that have a time in the order of it, those of an episode together."""
    known = np.flatnonzero(~_hole(table, columns.time))
    known = known[np.argsort(table[columns.time[0]][known], kind="stable")]
    if not columns.episode or not len(known):
        return known
    values = table[columns.episode[0]][known].ravel()
    _, of_row = np.unique(_carried(values, is_missing(values)), return_inverse=True)
    # Episodes by their first rows: one that begins while another goes on comes after it.
    _, first = np.unique(of_row, return_index=True)
    return known[np.lexsort((np.arange(len(known)), first[of_row]))]


def _carried(values: Column, gone: NDArray[np.bool_]) -> Column:
    """Each value that is gone replaced by the last one before it, or by the first one that is there."""
    there = np.flatnonzero(~gone)
    if not len(there):
        return values
    return values[there[np.maximum(np.searchsorted(there, np.arange(len(values)), side="right") - 1, 0)]]


def _once(table: dict[str, Column], columns: Columns, place: Place, report: Report) -> tuple[dict[str, Column], Place]:
    """Rows at one time of one episode have no order: the same row twice counts once, others are an error."""
    if not columns.time or not len(table[columns.time[0]]):
        return table, place
    same = np.append(False, np.diff(table[columns.time[0]]) == 0)
    for name in columns.episode:
        same[1:] &= table[name].ravel()[1:] == table[name].ravel()[:-1]
    for row in np.flatnonzero(same):
        for values in table.values():
            if not np.array_equal(values[row], values[row - 1], equal_nan=values.dtype.kind == "f"):
                assert place.row_numbers is not None
                raise place.error(
                    columns.time[0],
                    f"it has the same time as row {place.row_numbers[row - 1]} and other values, so that their order "
                    "is unknown; keep one of them",
                    int(row),
                )
    report.twice += int(same.sum())
    kept = np.flatnonzero(~same)
    return _taken(table, kept), _at(place, kept)


def _episodes(
    table: Mapping[str, Column], plan: Plan, ends: NDArray[np.bool_], place: Place, report: Report
) -> NDArray[np.int64]:
    """A number for every row's episode: by its column, else counted by what ends one."""
    n = len(ends)
    cuts = np.zeros(n, bool)
    if plan.gap is not None:
        pause = np.diff(table[plan.columns.time[0]], prepend=np.inf)
        cuts = pause > plan.gap
        cuts[0] = False
    if plan.columns.episode:
        episode = _episode_numbers(table[plan.columns.episode[0]].ravel(), place)
        _check_together(table, plan.columns.episode[0], episode, place)
        inside = np.append(False, np.diff(episode) == 0)
        cuts &= inside
        if not cuts.any():
            return episode
        begins = ~inside | cuts
    else:
        begins = np.append(False, ends[:-1]) | cuts
        if plan.episode_length is not None:
            begins |= np.arange(n) % plan.episode_length == 0
    if cuts.any():
        report.gaps += int(cuts.sum())
        row = int(np.argmax(np.where(cuts, pause, 0)))
        if pause[row] > report.longest[0]:
            assert place.row_numbers is not None
            report.longest = (float(pause[row]), f"before row {place.row_numbers[row]} of task {place.task!r}")
    begins[0] = False
    return np.cumsum(begins, dtype=np.int64)


def _check_together(table: Mapping[str, Column], column: str, episode: NDArray[np.int64], place: Place) -> None:
    """The numbers of the episodes are omrl's own: who is told of one knows it by the value of its column."""
    starts = episode_starts(episode)
    _, first = np.unique(episode[starts], return_index=True)
    if len(first) < len(starts):
        row = int(starts[np.setdiff1d(np.arange(len(starts)), first)[0]])
        value = table[column].ravel()[row].item()
        shown = f"{value:.15g}" if isinstance(value, int | float) else repr(str(value))
        remedy = f"sort the file by {column} and by time within it, or name a column of times with --time"
        raise place.error(column, f"the rows of episode {shown} do not lie together; {remedy}", row)


def _filled(
    table: dict[str, Column], plan: Plan, starts: NDArray[np.int64], report: Report
) -> tuple[dict[str, Column], NDArray[np.bool_]]:
    """The table with the last value carried on within an episode, if that is the plan; and rows that lack one still."""
    names = dict.fromkeys(name for part in CARRIED for name in getattr(plan.columns, part))
    n = len(next(iter(table.values())))
    holes = np.zeros(n, bool)
    filled = dict(table)
    begin = np.repeat(starts, np.diff(starts, append=n))
    for name in names:
        gone = is_missing(table[name])
        if plan.missing == "forward" and gone.any():
            last = np.maximum.accumulate(np.where(gone, -1, np.arange(n)))
            reachable = last >= begin
            filled[name] = table[name][np.where(reachable, last, np.arange(n))]
            report.carried += int((gone & reachable).sum())
            gone &= ~reachable
        holes |= gone
    return filled, holes


def wide(table: Mapping[str, Column], names: Sequence[str], plan: Plan, place: Place) -> Column:
    """Columns side by side as [rows, dims]."""
    parts = []
    for name in names:
        values = table[name]
        if name in plan.words:
            parts.append((words_of(values)[:, None] == np.array(plan.words[name], str)).astype(np.float64))
            continue
        if name in plan.labels:
            values = np.searchsorted(np.array(plan.labels[name], str), words_of(values)).astype(np.float64)
        if values.dtype.kind not in "biuf":
            raise place.error(name, *_not_a_number(values, name in plan.columns.observations))
        parts.append(values if values.ndim == 2 else values[:, None])
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _not_a_number(values: Column, observed: bool) -> tuple[str, int | None]:
    """What is wrong with a column of words, and the first row where it is."""
    remedy = "; --categories makes numbers of words" if observed else ""
    if values.dtype.kind != "U":
        return f"it holds {values.dtype} values, not numbers", None

    def is_word(text: str) -> bool:
        try:
            float(text)
        except ValueError:
            return bool(text)
        return False

    every = values.ravel().tolist()
    # Without any, they are names that look like numbers, such as 007.
    row = next(
        (row for row, text in enumerate(every) if is_word(text)), next(filter(every.__getitem__, range(len(every))))
    )
    return f"{every[row]!r} is not a number{remedy}", row


def _flags(
    table: Mapping[str, Column], names: Sequence[str], part: str, n: int, hole: NDArray[np.bool_], place: Place
) -> NDArray[np.bool_]:
    """Truth values; what is missing is false, and its row will not be taken."""
    if not names:
        return np.zeros(n, bool)
    values = table[names[0]].ravel()
    if values.dtype.kind not in "biuf":
        words = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
        values = np.array([words.get(str(value).strip().lower(), np.nan) for value in values])
    wrong = (values != 0) & (values != 1) & ~hole
    if wrong.any():
        row = int(np.argmax(wrong))
        raise place.error(part, f"{str(table[names[0]].ravel()[row])!r} is not a truth value", row)
    return np.asarray((values == 1) & ~hole)


def _episode_numbers(values: Column, place: Place) -> NDArray[np.int64]:
    limits = np.iinfo(np.int32)
    if values.dtype.kind in "biuf":
        fits = (values >= limits.min) & (values <= limits.max) & (values == np.floor(values))
        if fits.all():
            return values.astype(np.int64)
    # Names or large numbers: count them in the order of the log.
    _, start, inverse = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(start))[inverse]
