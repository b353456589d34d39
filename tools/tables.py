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
from pathlib import Path

import tables_own_logs
import tables_paper
import tables_recipe
import tables_reliability
import tables_results
import tables_scale
import tables_speed

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# The name of a table is also the name of its raw file, unless SOURCES names others.
SOURCES = {
    "results": ("focal",),
    "share": ("focal",),
    **dict.fromkeys(("select-rank", "select-verdicts"), ("select",)),
    **dict.fromkeys(("torture-inputs", "torture-steps"), ("torture",)),
    "algorithms": ("update", "algorithms"),
    "speed": ("simulate", "load", "throughput", "update"),
    **dict.fromkeys(("own-logs", "own-logs-summary"), ("own-logs",)),
    **dict.fromkeys(("verdicts", "paper-missing", "paper-claims", "paper-returns"), ("paper",)),
    **dict.fromkeys(("paper-embedding", "paper-shift", "paper-curves", "paper-embeddings"), ("paper",)),
}
TABLES: dict[str, Callable[..., str]] = {
    "simulate": tables_speed.simulate,
    "load": tables_speed.load,
    "stream": tables_speed.stream,
    "throughput": tables_speed.throughput,
    "cpu-mode": tables_speed.cpu_mode,
    "behaviour": tables_results.behaviour,
    "half-precision": tables_results.half_precision,
    "full-size": tables_results.full_size,
    "update": tables_speed.update,
    "service": tables_speed.service,
    "update-cpu": tables_speed.update_cpu,
    "cpu": tables_speed.cpu,
    "cpu-threads": tables_speed.cpu_threads,
    "algorithms": tables_speed.algorithms,
    "share": tables_speed.share,
    "focal": tables_results.focal,
    "half": tables_results.half,
    "sweep": tables_results.sweep,
    "transfer": tables_results.transfer,
    "results": tables_results.results,
    "speed": tables_speed.speed,
    "verdicts": tables_paper.verdicts,
    "paper-missing": tables_paper.paper_missing,
    "paper-claims": tables_paper.paper_claims,
    "paper-returns": tables_paper.paper_returns,
    "paper-embedding": tables_paper.paper_embedding,
    "paper-shift": tables_paper.paper_shift,
    "paper-curves": tables_paper.paper_curves,
    "paper-embeddings": tables_paper.paper_embeddings,
    "tuning": tables_paper.tuning,
    "select-rank": tables_own_logs.select_rank,
    "select-verdicts": tables_own_logs.select_verdicts,
    "strange": tables_own_logs.strange,
    "torture": tables_reliability.torture,
    "torture-inputs": tables_reliability.torture_inputs,
    "torture-steps": tables_reliability.torture_steps,
    "soak": tables_reliability.soak,
    "started": tables_reliability.started,
    "ray-units": tables_scale.ray_units,
    "ray-study": tables_scale.ray_study,
    "ray-kills": tables_scale.ray_kills,
    "schedule": tables_scale.schedule,
    "own-logs": tables_recipe.cells,
    "own-logs-summary": tables_recipe.summary,
}


def fill(text: str, folder: Path = ROOT / "results") -> str:
    """The page with every marked table as the raw figures have it."""

    def rendered(match: re.Match[str]) -> str:
        names = SOURCES.get(match["name"], (match["name"],))
        raw = [path for name in names if (path := next(folder.rglob(f"{name}.json"), None))]
        whole = len(raw) == len(names)
        figures = [json.loads(path.read_text()) for path in raw]
        content = TABLES[match["name"]](*figures) if whole else "(not measured yet)\n"
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
