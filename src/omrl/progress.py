"""Progress of long work: a live bar on a terminal, plain lines in a pipe or log file."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

# A log file gets a line at most this often.
LINE_SECONDS = 10.0
# A rate above this is shown without its decimals.
MANY = 1_000


class Meter:
    """Counts towards `total`, in `unit`s whose rate it shows; `update` may carry a short text."""

    def __init__(self, label: str, total: int, done: int = 0, unit: str = "") -> None:
        self.label, self.total, self.done, self.unit = label, total, done, unit
        self._started, self._first = time.monotonic(), done
        self._text = ""
        self._line_at = self._started
        console = Console(stderr=True)
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[text]}"),
            )
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task(label, total=total, completed=done, text="")

    def __enter__(self) -> Meter:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()
        elif kind is None:
            self._print(self._text)

    @property
    def rate(self) -> float:
        """Units per second since the start."""
        return (self.done - self._first) / max(time.monotonic() - self._started, 1e-9)

    def update(self, done: int, text: str = "") -> None:
        """Set what has been done so far."""
        self.done = done
        rate = f"{self.rate:.1f}" if self.rate < MANY else f"{self.rate:,.0f}"
        self._text = text = f"{rate} {self.unit}/s  {text}".rstrip() if self.unit else text
        if self._bar:
            self._bar.update(self._task, completed=done, text=text)
        elif done < self.total and time.monotonic() - self._line_at >= LINE_SECONDS:
            self._line_at = time.monotonic()
            self._print(text)

    def _print(self, text: str) -> None:
        left = (self.total - self.done) / self.rate if self.rate else float("inf")
        ending = f", {left:.0f} s left" if self.done < self.total else f" in {time.monotonic() - self._started:.1f} s"
        print(
            f"{self.label}: {100 * self.done / self.total:.0f} %{ending}  {text}".rstrip(), file=sys.stderr, flush=True
        )
