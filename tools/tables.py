"""Write the tables of README.md and docs/ from the raw figures in results/.

    python tools/tables.py            bring the tables up to date
    python tools/tables.py --check    exit with 1 if one is not

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; NAME is a key of TABLES. Some are pictures or a
sentence instead: whatever has to change when another result is published.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pages import own_logs, paper, reliability, results, scale, speed
from publish import published

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# What makes a table, and the raw figures in results/ that it is made of: JSON, or what is published in a folder.
TABLES: dict[str, tuple[Callable[..., str], *tuple[str, ...]]] = {
    "speed": (
        speed.speed,
        "speed/simulate.json",
        "speed/load.json",
        "speed/throughput.json",
        "speed/update.json",
        "speed/update-bfloat16.json",
    ),
    "simulate": (speed.simulate, "speed/simulate.json"),
    "load": (speed.load, "speed/load.json"),
    "stream": (speed.stream, "speed/stream.json"),
    "throughput": (speed.throughput, "speed/throughput.json"),
    "cpu-mode": (speed.cpu_mode, "speed/cpu-mode.json"),
    "update": (speed.update, "speed/update.json"),
    "update-bfloat16": (speed.update, "speed/update-bfloat16.json"),
    "kernels": (speed.kernels, "speed/update-bfloat16.json", "speed/algorithms-bfloat16.json"),
    "service": (speed.service, "speed/service.json"),
    "start": (speed.start, "speed/first-update.json"),
    "start-cpu": (speed.start, "speed/first-update-cpu.json"),
    "update-cpu": (speed.update_cpu, "speed/update-cpu.json"),
    "cpu": (speed.cpu, "speed/cpu.json"),
    "cpu-threads": (speed.cpu_threads, "speed/cpu-threads.json"),
    "algorithms": (speed.algorithms, "speed/update.json", "speed/algorithms.json"),
    "algorithms-bfloat16": (speed.algorithms, "speed/update-bfloat16.json", "speed/algorithms-bfloat16.json"),
    "share": (speed.share, "paper"),
    "pieces": (speed.pieces, "speed/pieces.json"),
    "bfloat16": (speed.bfloat16, "half"),
    "behaviour": (results.behaviour, "behaviour/behaviour.json"),
    "half-precision": (results.half_precision, "behaviour/half-precision.json"),
    "full-size": (results.full_size, "behaviour/full-size.json"),
    "results": (results.comparisons, "paper"),
    "experiments": (paper.listed,),
    "claims": (paper.claims,),
    "verdicts": (paper.verdicts, "paper"),
    "paper-missing": (paper.missing, "paper"),
    "paper-returns": (partial(paper.included, "returns"), "paper"),
    "paper-claims": (partial(paper.included, "claims"), "paper"),
    "paper-curves": (paper.curves, "paper"),
    **{name: (partial(paper.ablation, name), "paper") for name in paper.ablations()},
    "tuning": (paper.tuning, "tuning"),
    "tuning-quick": (paper.step_sizes, "tuning/quick"),
    "aa": (paper.told_apart, "aa"),
    "own-logs": (own_logs.cells, "own-logs/own-logs.json"),
    "own-logs-summary": (own_logs.summary, "own-logs/own-logs.json"),
    "trial": (own_logs.trial, "own-logs/trial.json"),
    "select-rank": (own_logs.select_rank, "own-logs/select.json"),
    "select-verdicts": (own_logs.select_verdicts, "own-logs/select.json"),
    "select-harm": (own_logs.select_harm, "own-logs/select.json"),
    "select-levels": (own_logs.select_levels, "own-logs/select.json"),
    "family-rank": (own_logs.family_rank, "own-logs/families.json"),
    "family-verdicts": (own_logs.family_verdicts, "own-logs/families.json"),
    "strange": (own_logs.strange, "own-logs/strange.json"),
    "torture": (reliability.torture, "reliability/torture.json"),
    "torture-inputs": (reliability.torture_inputs, "reliability/torture.json"),
    "torture-steps": (reliability.torture_steps, "reliability/torture.json"),
    "soak": (reliability.soak, "reliability/soak.json"),
    "started": (reliability.started, "reliability/started.json"),
    "ray-units": (scale.ray_units, "scale/ray-units.json"),
    "ray-study": (scale.ray_study, "scale/ray-study.json"),
    "ray-kills": (scale.ray_kills, "scale/ray-kills.json"),
    "schedule": (scale.schedule, "scale/schedule.json"),
}


def raw(path: Path) -> Any:
    """The content of a file of results/, or of all files that are lists in a folder, or what is published there."""
    if path.suffix == ".json":
        return json.loads(path.read_text())
    return [one for file in sorted(path.glob("*.json")) for one in json.loads(file.read_text())] or published(path)


def fill(text: str, folder: Path = ROOT / "results") -> str:
    """The page with every marked table as the raw figures have it."""

    def rendered(match: re.Match[str]) -> str:
        make, *names = TABLES[match["name"]]
        paths = [folder / name for name in names]
        measured = all(path.exists() for path in paths)
        content = make(*map(raw, paths)) if measured else "(not measured yet)\n"
        return f"{match[1]}{content}{match[3]}"

    return MARKED.sub(rendered, text)


def main() -> int:
    """Rewrite or check all pages."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    stale = [page for page in pages if fill(page.read_text()) != page.read_text()]
    for page in stale:
        print(f"{page.relative_to(ROOT)}: tables are not those of results/")
        if "--check" not in sys.argv[1:]:
            page.write_text(fill(page.read_text()))
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
