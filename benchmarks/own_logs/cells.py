"""What measures every domain with every logger: one file of rows, in which each cell can be measured again."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from domain import LOGGERS, Domain, Logger
from domains import DOMAINS

from omrl.storage.files import replacing


def measure_cells(about: str, measure: Callable[[Domain, Logger], list[dict[str, Any]]]) -> None:
    """The command: what the file has of other cells stays."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--domains", nargs="*", default=list(DOMAINS))
    parser.add_argument("--loggers", nargs="*", default=list(LOGGERS))
    args = parser.parse_args()
    args.json.parent.mkdir(parents=True, exist_ok=True)
    for name in args.domains:
        for logger in args.loggers:
            own = measure(DOMAINS[name], logger)
            before = json.loads(args.json.read_text()) if args.json.is_file() else []
            kept = [row for row in before if (row["domain"], row["logger"]) != (name, logger)]
            with replacing(args.json) as temporary:
                temporary.write_text("[\n" + ",\n".join(json.dumps(row) for row in [*kept, *own]) + "\n]\n")
