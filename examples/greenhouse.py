"""Make up the log of a greenhouse, as messy as logs are: rows in no order, nights, outages, holes, codes, words.

python examples/greenhouse.py logs/greenhouse.csv

24 benches are watered by hand, every quarter of an hour from six to eight. The benches differ in how much of the water
their soil keeps, which is in no column: each of them wants other doses.
"""

from __future__ import annotations

import csv
import datetime
import sys
from pathlib import Path

import numpy as np

FIRST_DAY = datetime.datetime(2025, 5, 5, 6, 0)
ROWS_A_DAY = 56
DOSES = (0, 20)


def bench_names() -> list[str]:
    """A1 to D6."""
    return [f"{row}{place}" for row in "ABCD" for place in range(1, 7)]


def kept(bench: str) -> float:
    """How much of the water the soil of a bench keeps: what makes it another task."""
    return 0.7 + 0.05 * (1 + bench_names().index(bench))


def after(moisture: float, dose: float, sky: str, bench: str, rng: np.random.Generator) -> float:
    """The soil's moisture a quarter of an hour later, in percent."""
    dried = 0.2 * moisture + (0.5 if sky == "sun" else 0.0)
    return max(moisture + 0.5 * kept(bench) * dose - dried + rng.normal(0, 0.2), 0.0)


def day(bench: str, number: int, rng: np.random.Generator) -> list[dict[str, object]]:
    """One day of one bench, as it truly was."""
    rows: list[dict[str, object]] = []
    moisture, target = rng.uniform(20, 40), 30.0
    for quarter in range(ROWS_A_DAY):
        if quarter % 14 == 0:
            target = round(rng.uniform(20, 40), 1)
        sky = "sun" if rng.random() < 0.6 else "cloud"
        # What a gardener does who knows the bench, not quite steadily, in whole millilitres.
        wanted = 0.4 * target / kept(bench) + 0.6 * (target - moisture) + rng.normal(0, 1.5)
        dose = int(np.clip(round(wanted), *DOSES))
        time = FIRST_DAY + datetime.timedelta(days=number, minutes=15 * quarter)
        row = {"bench": bench, "measured_at": time.isoformat(" "), "moisture": round(moisture, 2), "target": target}
        moisture = after(moisture, dose, sky, bench, rng)
        rows.append({**row, "sky": sky, "dose": dose, "reward": round(-abs(moisture - target) / 10, 3)})
    return rows


def messy(rng: np.random.Generator) -> list[dict[str, object]]:
    """All rows, after everything has happened to them that happens to logs."""
    rows: list[dict[str, object]] = []
    for bench in bench_names():
        days = [day(bench, number, rng) for number in range(10)]
        if bench == "D6":  # built in the last week
            rows += days[-1][:14]
            continue
        for logged in days:
            if rng.random() < 0.2:  # the logger is off for some hours
                off = int(rng.integers(5, 40))
                del logged[off : off + int(rng.integers(8, 14))]
            rows += logged
    for row in rows:
        if rng.random() < 0.01:
            row["moisture"] = ""
    for place in rng.choice(len(rows), 5, replace=False):
        rows[place]["moisture"] = -999  # what the sensor says when it is unplugged
    return [rows[place] for place in rng.permutation(len(rows))]


def main(path: str) -> None:
    rows = messy(np.random.default_rng(0))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Say where to: python examples/greenhouse.py logs/greenhouse.csv")
    main(sys.argv[1])
