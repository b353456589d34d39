"""What measures every domain with every logger: cells side by side, each in a file of its own, and one file of all.

    python benchmarks/own_logs/table.py --json results/own-logs/own-logs.json --processes 8

A cell that was measured before, in the folder --cells, is not measured again; take the folder away to begin anew. The
file of all has what the folder has, and keeps what it had of other cells.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from domain import LOGGERS, Domain, Logger
from domains import DOMAINS

from omrl.storage.files import replacing

Measure = Callable[[Domain, Logger], list[dict[str, Any]]]


def measure_cells(
    about: str, measure: Measure, head: Mapping[str, Any] | None = None, given: Sequence[str] | None = None
) -> None:
    """The command. The file is a list of what cells are measured to be, or `head` with that list as its `cells`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="the file of all cells")
    parser.add_argument("--cells", type=Path, help="the folder of single ones; runs/STEM-cells if left out")
    parser.add_argument("--domains", nargs="*", default=list(DOMAINS))
    parser.add_argument("--loggers", nargs="*", default=list(LOGGERS))
    parser.add_argument("--processes", type=int, default=1, help="cells at once; of several, each has one thread")
    args = parser.parse_args(given)
    folder = args.cells or Path("runs") / f"{args.json.stem}-cells"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(name, logger) for name in args.domains for logger in args.loggers]
    missing = [(*cell, folder / _file(*cell)) for cell in wanted if not (folder / _file(*cell)).is_file()]
    if args.processes == 1:
        for cell in missing:
            _measure(measure, *cell)
    else:
        # Of processes that are born later: threads are counted when libraries are loaded.
        os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
            for done in as_completed([pool.submit(_measure, measure, *cell) for cell in missing]):
                done.result()
    _publish(args.json, folder, head)


def _file(domain: str, logger: str) -> str:
    return f"{domain}-{logger}.json"


def _measure(measure: Measure, domain: str, logger: Logger, path: Path) -> None:
    began, used = time.perf_counter(), time.process_time()
    found = measure(DOMAINS[domain], logger)
    with replacing(path) as temporary:
        temporary.write_text(_lines(found))
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    print(f"{path.stem}: measured in {wall:.0f} s, {cpu:.0f} s of CPU", flush=True)


def _publish(path: Path, folder: Path, head: Mapping[str, Any] | None) -> None:
    before = json.loads(path.read_text()) if path.is_file() else []
    placed: dict[tuple[str, str], list[Any]] = {}
    for row in before["cells"] if isinstance(before, dict) else before:
        placed.setdefault((row["domain"], row["logger"]), []).append(row)
    every = [(name, logger) for name in DOMAINS for logger in LOGGERS]
    files = {cell: folder / _file(*cell) for cell in every}
    placed |= {cell: json.loads(file.read_text()) for cell, file in files.items() if file.is_file()}
    rows = _lines([row for cell in every for row in placed.get(cell, [])])
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(rows if head is None else json.dumps(head)[:-1] + f', "cells": {rows.rstrip()}}}\n')


def _lines(rows: Sequence[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
