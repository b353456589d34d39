"""What README.md and docs/*.md show is run, and what they state is compared with the code.

Every `bash` and `python` block of a page runs, in order, in a temporary folder of that page. An HTML comment before a
block changes that: `not run: WHY` (listed in NOT_RUN below), `exit code N` (it must fail so), `run with: FLAGS` (added
to `omrl collect`, to run it at a small scale); a comment `setup` holds code that a reader need not see. A `text` block
directly after a block is its output: each of its lines must be printed, in that order.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from omrl.behaviour.config import preset
from omrl.data.arrays import ARRAYS
from omrl.data.commands import Import
from omrl.data.interchange.tables import GUESSES
from omrl.data.manifest import Manifest, TaskEntry
from omrl.families import FAMILIES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
IDS = [page.name for page in PAGES]

# The first line of every block that is shown but not run here, and why.
NOT_RUN = {
    "make test          # sets everything up in .venv, then runs lint, types and tests": "sets up a machine",
    "pip install .             # the core": "sets up a machine",
    "make wheelhouse PYTHON=3.12": "sets up a machine",
    "python3 -m pip install --no-index --no-deps wheelhouse/*.whl": "sets up a machine",
    "python tools/behaviour_results.py data/*": "needs all six datasets",
    "omrl train focal --data data/sparse-point-robot --out runs/focal": "trains",
    "import numpy as np": "needs a trained run",
    "python benchmarks/collect.py --family sparse-point-robot --tasks 100 --envs-per-task 8 --seconds 8 --mode "
    "compiled": "takes a minute",
    "python benchmarks/simulate.py --json results/speed/simulate.json": "takes a minute",
    "python benchmarks/load.py --json results/speed/load.json": "takes minutes",
    "python benchmarks/stream.py --json results/speed/stream.json": "takes minutes",
    "python benchmarks/collect.py --tasks 100 10 1 --envs-per-task 4 --seconds 6 --json "
    "results/speed/throughput.json": "needs a GPU",
}

BLOCK = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$"
    r"|(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$(?:\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Block:
    line: int
    language: str
    code: str
    note: str
    output: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        parts = {key: value or "" for key, value in match.groupdict().items()}
        language = "python" if parts["setup"] else parts["language"]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(line, language, parts["setup"] or parts["code"], parts["note"], parts["output"]))
    return [block for block in found if block.language in ("bash", "python")]


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    code = block.code
    if block.note.startswith("run with: "):
        code = re.sub(r"^(omrl collect .*)$", rf"\1 {block.note.removeprefix('run with: ')}", code, flags=re.MULTILINE)
    command = ["bash", "-euo", "pipefail", "-c", code] if block.language == "bash" else [sys.executable, "-c", code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_code_of_page_runs(page: Path, tmp_path: Path) -> None:
    policies = ROOT / "policies"
    if policies.is_dir():
        (tmp_path / "policies").symlink_to(policies)
    for block in blocks(page):
        if block.note.startswith("not run: "):
            continue
        if "--from-policies" in block.code and not (policies / "half-cheetah-vel").is_dir():
            pytest.skip(f"{page.name}:{block.line} and what follows: there is no policies/half-cheetah-vel")
        done = run(block, tmp_path)
        wanted = int(block.note.removeprefix("exit code ")) if block.note.startswith("exit code ") else 0
        assert done.returncode == wanted, f"{page.name}:{block.line} ended with {done.returncode}\n{done.stdout}"
        printed = iter([line.strip() for line in done.stdout.splitlines()])
        for line in filter(None, map(str.strip, block.output.splitlines())):
            # `in` consumes the iterator up to the line, so the order counts.
            assert line in printed, f"{page.name}:{block.line} did not print {line!r}\n{done.stdout}"


def test_blocks_that_are_not_run_are_listed() -> None:
    skipped = {
        block.code.splitlines()[0]: block.note.removeprefix("not run: ")
        for page in PAGES
        for block in blocks(page)
        if block.note.startswith("not run: ")
    }
    assert skipped == NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_notes_are_understood(page: Path) -> None:
    for block in blocks(page):
        assert not block.note or re.match(r"not run: |exit code \d+$|run with: |table: |end$", block.note), block.note


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text):
        link = "".join(target)
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{page.name}: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), flags=re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in slugs, f"{page.name}: {link}"


def test_index_names_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    assert [page.name for page in PAGES[1:] if page.name != "index.md" and f"]({page.name})" not in index] == []


def test_tables_are_those_of_the_raw_figures() -> None:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "tools" / "tables.py")
    assert spec is not None and spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    for page in PAGES:
        assert tables.fill(page.read_text()) == page.read_text(), f"{page.name}: run python tools/tables.py"
    shown = re.findall(r"<!-- table: ([\w-]+) -->", "".join(page.read_text() for page in PAGES))
    assert sorted(shown) == sorted(tables.TABLES)


@pytest.mark.parametrize("page", ["README.md", "docs/families.md"])
def test_families_are_listed_as_they_are(page: str) -> None:
    text = (ROOT / page).read_text()
    for family in FAMILIES.values():
        split = family.splits["paper"]
        sides = "the same 2" if split.train == split.test else f"{len(split.train)} / {len(split.test)}"
        assert f"`{family.env_id}` | {len(family.tasks)} | {sides} |" in text, family.name


def test_families_page_names_dimensions_and_parameters() -> None:
    text = (ROOT / "docs" / "families.md").read_text()
    for family in FAMILIES.values():
        row = f"| {family.obs_dim} | {family.act_dim} | {family.horizon} | {family.varies} |"
        assert any(f"`{family.env_id}`" in line and row in line for line in text.splitlines()), family.name
        section = text.split(f"\n## {family.name}\n")[1].split("\n## ")[0]
        assert all(f"`{parameter}" in section for parameter in family.parameters), family.name
        if family.best is not None:
            returns = [family.best(task) or 0.0 for task in family.tasks]
            average = f"{sum(returns) / len(returns):.2f} on average ({min(returns):.2f} to {max(returns):.2f})"
            assert average in section


def test_format_page_names_every_key_and_array() -> None:
    text = (ROOT / "docs" / "meta-dataset.md").read_text()
    keys = [field.name for kind in (Manifest, TaskEntry) for field in dataclasses.fields(kind)]
    assert [key for key in [*keys, "checksum", *ARRAYS] if f"`{key}`" not in text] == []
    order = re.findall(r"^\| `(\w+)` \| (?:F32|I32|BOOL) \|", text, flags=re.MULTILINE)
    assert order == list(ARRAYS)


def test_logs_page_names_every_flag_and_guess() -> None:
    text = (ROOT / "docs" / "own-logs.md").read_text()
    flags = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Import)]
    about_files = {"--src", "--dir", "--format"}
    assert [flag for flag in flags if flag not in about_files and f"`{flag}`" not in text] == []
    assert [name for names in GUESSES.values() for name in names if f"`{name}`" not in text] == []


def test_differences_page_has_the_presets() -> None:
    text = (ROOT / "docs" / "differences.md").read_text()
    configs = [preset(family)[0] for family in FAMILIES.values()]
    steps = sorted(config.steps for config in configs)
    counts = sorted(len(config.checkpoints) for config in configs)
    assert f"| {steps[0]:,} to {steps[-1]:,} |" in text
    assert f"| {counts[0]} to {counts[-1]}, placed" in text
    bodies, points = ([c for c in configs if (max(c.sac.actor_hidden) <= 64) is small] for small in (False, True))
    for what in ("actor_hidden", "critic_hidden"):
        (body,), (point,) = ({getattr(c.sac, what) for c in kind} for kind in (bodies, points))
        assert f"| 2 of {body[0]} (point robots {point[0]}) |" in text
    for body, point in ((b, p) for b in bodies for p in points):
        assert f"| {body.updates_per_step} (point robots {point.updates_per_step}), {body.envs_per_task} env" in text
        rates = [np.format_float_scientific(c.sac.learning_rate, trim="-", exp_digits=1) for c in (body, point)]
        batches = (body.sac.batch_size, point.sac.batch_size)
        assert f"| {batches[0]}, {rates[0]} (point robots {batches[1]}, {rates[1]}) |" in text
