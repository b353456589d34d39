"""Studies: named experiments that compare algorithms on data, from a file. The paper is one of them.

    omrl study run mine.toml            anyone's
    omrl paper run dml-vs-bellman       the paper's figures and tables, whose file comes with omrl

A study says of each experiment its data, its rows, its figures and tables, and its claims with the comparisons by which
they are judged.
"""

from __future__ import annotations

from omrl.reporting import REPORT
from omrl.storage import folders

RESULTS = folders.Kind(
    "folder of an experiment's results",
    "results.json",
    (
        *("results.json", "scores.csv", "curves.csv", "figures/*.png", "figures/*.svg", "tables/*.csv", "tables/*.md"),
        *(f"report/{file}" for file in (folders.MARKER, *REPORT.files)),
    ),
)
