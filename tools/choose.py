"""Put the best trials of `omrl tune comparisons` into the presets that comparisons run with.

    omrl tune comparisons --data data/ant-fwd-back --out results/tuning/ant-fwd-back.json
    python tools/choose.py

Of every family and row in results/tuning/*.json, or in the files that are named, the best trial goes into the preset
that the row names, in the TOML file beside its algorithm; everything else there stays as it is. `--dry-run` only says
what would be put there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from omrl.algorithms import get_algorithm
from omrl.storage.files import read_json_list, replacing
from omrl.tuning.rows import COMPARISONS, read_rows
from omrl.tuning.trying import best_of

TRIALS = sorted((Path(__file__).resolve().parents[1] / "results" / "tuning").glob("*.json"))


def choices(files: Sequence[Path]) -> dict[tuple[str, str, str], dict[str, float]]:
    """Values by algorithm, preset and family. A step beyond an edge of the grid is rounded to two digits."""
    groups: dict[tuple[str, str], list[Mapping[str, object]]] = {}
    for one in (one for file in files for one in read_json_list(file)):
        groups.setdefault((one["row"], one["family"]), []).append(one)
    rows = read_rows(Path(COMPARISONS))
    found = {}
    for (label, family), tried in groups.items():
        best = best_of(tried)  # type: ignore[arg-type]
        values = {name: float(f"{value:.2g}") for name, value in best["trial"].items()}
        found[rows[label].algorithm, rows[label].preset or "", family] = values
    return found


def with_values(text: str, section: str, values: Mapping[str, float]) -> str:
    """A TOML file's text with these numbers in a section."""
    head = f"[{section}]\n"
    before, found, rest = text.partition(head)
    if not found:
        raise SystemExit(f"There is no section {head.strip()}.")
    own, gap, after = rest.partition("\n\n")
    for name, value in values.items():
        line = f"{name} = {value!r}"
        own, there = re.subn(rf"^{name} = .*$", line, own, flags=re.MULTILINE)
        own = own if there else f"{own.rstrip()}\n{line}"
    return before + head + own + gap + after


def main() -> None:
    """Write them."""
    named = [Path(word) for word in sys.argv[1:] if word != "--dry-run"]
    for (algorithm, preset, family), values in choices(named or TRIALS).items():
        print(f"{algorithm} {preset}.{family}: {values}")
        if "--dry-run" in sys.argv[1:]:
            continue
        kind = get_algorithm(algorithm)
        file = Path(str(resources.files("omrl.algorithms"))) / f"{kind.__module__.rsplit('.', 1)[-1]}.toml"
        text = with_values(file.read_text(), f"{preset}.{family}", values)
        # Others may read presets meanwhile.
        with replacing(file) as temporary:
            temporary.write_text(text)


if __name__ == "__main__":
    main()
