"""Step 5 of the flow: one page on one run or several, with every figure and table as files beside it.

    omrl report runs/focal runs/other --out report

The page opens from disk, without network. Nothing of a run is changed; what is missing is said on the page.
"""

from __future__ import annotations

from omrl.storage import folders

REPORT = folders.Kind(
    "report",
    "index.html",
    ("index.html", "report.json", "figures/*.svg", "figures/*.png", "tables/*.csv", "tables/*.md"),
)
