"""The messy file that the trial of one's own logs begins with."""

from __future__ import annotations

import pyarrow.parquet
from domains import DOMAINS
from trial import CODE, DOMAIN, FEW, mend, messy


def test_the_file_is_as_messy_as_it_says(tmp_path):
    domain, path = DOMAINS[DOMAIN], tmp_path / "sleepers.parquet"
    messy(domain, "noisy", path)
    rows = pyarrow.parquet.read_table(path).to_pylist()
    pressures = [row["pressure"] for row in rows]
    assert 0.005 < pressures.count(None) / len(rows) < 0.02 and 5 < pressures.count(CODE) < 100
    assert all(row["drug"] == int(row["drug"]) for row in rows)
    few = [row for row in rows if row["sleeper"] == domain.train_tasks[-1].name]
    assert len(few) == FEW and len(rows) > 30_000
    places = [(row["sleeper"], row["at"]) for row in rows]
    assert len(set(places)) == len(places) and places != sorted(places)
    mend(path)
    mended = [row["pressure"] for row in pyarrow.parquet.read_table(path).to_pylist()]
    assert CODE not in mended and mended.count(None) == pressures.count(None) + pressures.count(CODE)
