"""What README.md and the pages of docs/ show is run, and what they state is compared with the code.

Every `bash` and `python` block of a page runs, in order, in a temporary folder of that page. An HTML comment before a
block changes that:

    not run: WHY        listed in NOT_RUN below
    exit code N         it must fail so
    run with: FLAGS     added to `omrl collect` and `omrl train`, to run them small; in Python OLD -> NEW; ...
    save as: FILE       it is the content of a file that later blocks use
    numbers vary        those of its output, with the machine

A comment `setup` holds code that a reader need not see. A `text` block directly after a block is its output: each of
its lines must be printed, in that order.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tables

import omrl
from omrl.algorithms import NO_PRESETS
from omrl.algorithms.focal import FOCALConfig
from omrl.behaviour.config import preset
from omrl.commands.data import Import
from omrl.data.arrays import ARRAYS
from omrl.data.interchange.columns import GUESSES
from omrl.data.manifest import Manifest, TaskEntry
from omrl.families import FAMILIES
from training_helpers import walks

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]

# The first line of every block that is shown but not run here, and why.
NOT_RUN = {
    "make torture            # a seed of its own": "takes half an hour",
    "python benchmarks/soak.py --json results/reliability/soak.json": "takes minutes",
    "python benchmarks/started.py --against ff6b6bf --json results/reliability/started.json": "takes minutes",
    "omrl collect sparse-point-robot --from-policies --out data/sparse-point-robot": "takes an hour",
    "make quickstart": "sets up a machine",
    "make quickstart    # sets everything up in .venv, then goes through the whole flow once": "sets up a machine",
    "pip install '.[plot]'  # or a wheel of it, without a clone": "sets up a machine",
    "pip install .             # the core: numpy, torch, safetensors, pydantic, tyro, rich": "sets up a machine",
    "make wheelhouse PYTHON=3.12": "sets up a machine",
    "python3 -m pip install --no-index --no-deps wheelhouse/*.whl": "sets up a machine",
    "mkdir /tmp/modules && tar -xJf modules.tar.xz -C /tmp/modules": "sets up a machine",
    "python benchmarks/behaviour_data.py data/*": "needs all six datasets",
    "python benchmarks/own_logs/table.py --json results/own-logs/own-logs.json": "takes minutes",
    'FULL="--actor-hidden 1024 1024 --critic-hidden 1024 1024 --batch-size 1024 --learning-rate '
    '1e-4"': "trains for minutes on a GPU",
    "python benchmarks/collect.py --family sparse-point-robot --tasks 100 --envs-per-task 8 --seconds 8 --mode "
    "compiled": "takes a minute",
    "python benchmarks/simulate.py --json results/speed/simulate.json": "takes a minute",
    "python benchmarks/service.py --json results/speed/service.json": "takes a minute",
    "python benchmarks/load.py --json results/speed/load.json": "takes minutes",
    "omrl bench update --seeds 1 --regulariser-steps 1 3 --device cpu --json results/speed/update-cpu"
    ".json": "takes minutes",
    "python benchmarks/first_update.py --json results/speed/first-update-cpu.json": "takes a minute",
    "python benchmarks/first_update.py --device cuda --json results/speed/first-update.json": "needs a GPU",
    "python benchmarks/cpu.py --json results/speed/cpu.json": "takes minutes",
    "GOMP_SPINCOUNT=3000 python benchmarks/cpu.py --sizes --json results/speed/cpu-threads.json": "takes minutes",
    "omrl bench update --device cuda --seeds 1 3 12 --regulariser-steps 1 3 --seconds 0.1 --json "
    "results/speed/update.json": "needs a GPU",
    "omrl bench update --device cuda --algorithms batch-pearl contextual-bcq mbml contextual-bc --seeds 1 3 "
    "--seconds 0.1 \\": "needs a GPU",
    "FAMILY=sparse-point-robot SEEDS=10  # half-cheetah-vel 5, walker-2d-params 20": "trains for minutes on a GPU",
    "python benchmarks/stream.py --json results/speed/stream.json": "takes minutes",
    "python benchmarks/collect.py --tasks 100 10 1 --envs-per-task 4 --seconds 3 --json "
    "results/speed/throughput.json": "needs a GPU",
    "omrl paper run comparison-point-robot-wind --scale small": "takes a minute",
    "omrl paper run power-law distribution-shift --device cuda": "takes minutes on a GPU",
    "omrl paper run both-losses --device cpu --at-once 2": "takes minutes",
    "omrl tune comparisons --data data/sparse-point-robot --seeds 2 --bfloat16 --out "
    "results/tuning/sparse-point-robot.json": "trains for minutes on a GPU",
    "omrl bench update --device cuda --bfloat16 --seeds 1 3 12 --regulariser-steps 1 3 --seconds 0.1 --json "
    "results/speed/update-bfloat16.json": "needs a GPU",
    "omrl bench update --device cuda --bfloat16 --algorithms batch-pearl contextual-bcq mbml contextual-bc --seeds 1 "
    "3 \\": "needs a GPU",
    "python benchmarks/own_logs/trial.py --json results/own-logs/trial.json": "takes minutes",
    "python benchmarks/own_logs/selecting.py --json results/own-logs/select.json": "takes hours on two cores",
    "python benchmarks/own_logs/family_ranks.py sparse-point-robot point-robot-wind half-cheetah-vel "
    "half-cheetah-fwd-back \\": "takes hours on two cores",
    "omrl collect sparse-point-robot --from-policies --level expert --out "
    "data/sparse-point-robot-expert": "takes minutes",
    "python benchmarks/own_logs/strange.py --json results/own-logs/strange.json": "takes half an hour on two cores",
    "pip install 'omrl[ray,sim,plot]'  # here and on every node": "needs a cluster",
    "ray start --head --port 6379 --disable-usage-stats  # on one machine": "needs a cluster",
    "#!/bin/bash": "needs a cluster",
    "omrl tune trials.toml --data data/half-cheetah-vel --out trials.json --rungs 3 --on ray": "needs a cluster",
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
    return [block for block in found if block.language in ("bash", "python") or block.note.startswith("save as: ")]


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    code = block.code
    if block.note.startswith("run with: "):
        changes = block.note.removeprefix("run with: ")
        if " -> " not in changes:
            code = re.sub(r"^(omrl (?:collect|train) .*)$", rf"\1 {changes}", code, flags=re.MULTILINE)
        else:
            for change in changes.split("; "):
                old, new = change.split(" -> ")
                assert old in code
                code = code.replace(old, new)
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


def tiered(page: Path) -> Any:
    """The first page that people read is run with every test, the others with the longer ones."""
    return page if page.name == "README.md" else pytest.param(page, marks=pytest.mark.thorough)


@pytest.mark.parametrize("page", [tiered(page) for page in PAGES], ids=IDS)
def test_code_of_page_runs(page: Path, tmp_path: Path) -> None:
    policies = ROOT / "policies"
    if policies.is_dir():
        (tmp_path / "policies").symlink_to(policies)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in blocks(page):
        if block.note.startswith("not run: "):
            continue
        if block.note.startswith("save as: "):
            (tmp_path / block.note.removeprefix("save as: ")).write_text(block.code)
            continue
        if re.search("from.policies", block.note + block.code) and not (policies / "half-cheetah-vel").is_dir():
            pytest.skip(f"{page.name}:{block.line} and what follows: there is no policies/half-cheetah-vel")
        done = run(block, tmp_path)
        wanted = int(block.note.removeprefix("exit code ")) if block.note.startswith("exit code ") else 0
        assert done.returncode == wanted, f"{page.name}:{block.line} ended with {done.returncode}\n{done.stdout}"
        bare = without_numbers if block.note == "numbers vary" else str.strip
        printed = iter([bare(line) for line in done.stdout.splitlines()])
        for line in filter(None, map(bare, block.output.splitlines())):
            # `in` consumes the iterator up to the line, so the order counts.
            assert line in printed, f"{page.name}:{block.line} did not print {line!r}\n{done.stdout}"


def without_numbers(line: str) -> str:
    """Every number is the same, and so is the room that it takes."""
    return re.sub(r"\s+", " ", re.sub(r"[─-]+", "-", re.sub(r"-?\d[\d,.]*", "0", line))).strip()


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
        assert not block.note or re.match(
            r"not run: |exit code \d+$|run with: |save as: |numbers vary$|table: |end$", block.note
        ), block.note


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


def test_scripts_that_pages_and_scripts_name_are_there() -> None:
    sources = [*(ROOT / "tools").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), ROOT / "Makefile"]
    named = {
        (path.relative_to(ROOT), script)
        for path in (*PAGES, ROOT / "CONTRIBUTING.md", *sources)
        for script in re.findall(r"(?<![\w/])(?:tools|benchmarks|examples)/[\w/]+\.(?:py|sh)", path.read_text())
    }
    assert len(named) > 20
    assert [(str(where), script) for where, script in sorted(named) if not (ROOT / script).is_file()] == []


def test_index_names_every_page() -> None:
    index = (DOCS / "index.md").read_text()
    pages = [str(page.relative_to(DOCS)) for page in PAGES[1:]]
    assert [page for page in pages if page != "index.md" and f"]({page})" not in index] == []


def test_site_shows_every_page() -> None:
    config = (ROOT / "mkdocs.yml").read_text()
    shown = re.findall(r"^ +- .*: ([\w/-]+\.md)$", config, flags=re.MULTILINE)
    assert sorted(shown) == sorted(str(page.relative_to(DOCS)) for page in PAGES[1:])


@pytest.mark.thorough
def test_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="the site is built by Zensical: pip install 'omrl[docs]'")
    for name in ("mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs")
    (tmp_path / "src").symlink_to(ROOT / "src")
    done = run(Block(0, "bash", "zensical build --strict", "", ""), tmp_path)
    assert done.returncode == 0 and "warning" not in done.stdout.lower(), done.stdout
    for page in PAGES[1:]:
        assert (tmp_path / "site" / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    reference = (tmp_path / "site" / "api.html").read_text()
    assert [name for name in omrl.__all__ if f'id="omrl.{name}"' not in reference] == []
    # Nothing that a reader's browser would fetch from elsewhere.
    site = "".join(page.read_text() for page in (tmp_path / "site").rglob("*.html"))
    assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"?https?://[^>]*>", site) == []


def test_tables_are_those_of_the_raw_figures() -> None:
    for page in PAGES:
        assert tables.fill(page.read_text()) == page.read_text(), f"{page.name}: run python tools/tables.py"
    shown = re.findall(r"<!-- table: ([\w-]+) -->", "".join(page.read_text() for page in PAGES))
    assert sorted(set(shown)) == sorted(tables.TABLES)


def test_families_are_listed_as_they_are() -> None:
    text = (DOCS / "families.md").read_text()
    for family in FAMILIES.values():
        split = family.splits["paper"]
        sides = "the same 2" if split.train == split.test else f"{len(split.train)} / {len(split.test)}"
        assert f"`{family.env_id}` | {len(family.tasks)} | {sides} |" in text, family.name


def test_families_pages_name_dimensions_and_parameters() -> None:
    text = (DOCS / "families.md").read_text()
    for family in FAMILIES.values():
        row = f"| {family.obs_dim} | {family.act_dim} | {family.horizon} | {family.varies} |"
        assert any(f"`{family.env_id}`" in line and row in line for line in text.splitlines()), family.name
        section = (DOCS / "families" / f"{family.name}.md").read_text()
        assert all(f"`{parameter}" in section for parameter in family.parameters), family.name
        if family.best is not None:
            returns = [family.best(task) or 0.0 for task in family.tasks]
            average = f"{sum(returns) / len(returns):.2f} on average ({min(returns):.2f} to {max(returns):.2f})"
            assert average in section


def test_format_page_names_every_key_and_array() -> None:
    text = (DOCS / "meta-dataset.md").read_text()
    keys = [field.name for kind in (Manifest, TaskEntry) for field in dataclasses.fields(kind)]
    assert [key for key in [*keys, "checksum", *ARRAYS] if f"`{key}`" not in text] == []
    order = re.findall(r"^\| `(\w+)` \| (?:F32|I32|BOOL) \|", text, flags=re.MULTILINE)
    assert order == list(ARRAYS)


def test_import_page_names_every_flag_and_guess() -> None:
    text = (DOCS / "import.md").read_text()
    flags = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Import)]
    about_files = {"--src", "--dir", "--format"}
    assert [flag for flag in flags if flag not in about_files and f"`{flag}`" not in text] == []
    assert [name for names in GUESSES.values() for name in names if f"`{name}`" not in text] == []


def test_focal_page_has_every_flag_preset_and_metric(tmp_path) -> None:
    text = (DOCS / "focal.md").read_text()

    def shown(value: object) -> str:
        return (
            " ".join(map(str, value))
            if isinstance(value, tuple)
            else f"{value:g}"
            if type(value) is float
            else str(value)
        )

    flags = {field.name.replace("_", "-"): shown(field.default) for field in dataclasses.fields(FOCALConfig)}
    assert [flag for flag, default in flags.items() if f"| `--{flag}` | {default} |" not in text] == []
    assert sorted(re.findall(r"^\| `--([\w-]+)` \|", text, flags=re.MULTILINE)) == sorted(flags)
    presets = tomllib.loads((ROOT / "src" / "omrl" / "algorithms" / "focal.toml").read_text())
    presets = {name: table for name, table in presets.items() if name not in NO_PRESETS}
    assert [name for name in presets if f"| `{name}`" not in text] == []
    data = walks(FAMILIES["point-robot-wind"], tmp_path / "data")
    sizes = {"hidden": (8, 8), "encoder_hidden": (8, 8), "batch_size": 8, "context_size": 4, "meta_batch": 3}
    sizes |= {"regularisation": "policy", "level": "mixed"}
    omrl.train("focal", data, tmp_path / "run", steps=2, log_every=1, eval_every=2, **sizes)
    logged = {row["name"] for row in read_rows(tmp_path / "run" / "metrics.csv")}
    told = " ".join(re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE))
    assert logged and [name for name in logged if f"`{name}`" not in told] == []


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_differences_page_has_the_presets() -> None:
    text = (DOCS / "differences.md").read_text()
    presets = {name: preset(family) for name, family in FAMILIES.items()}
    configs = [found.agents for found in presets.values()]
    steps = sorted(config.steps for config in configs)
    counts = {name: len(found.agents.checkpoints) - 1 for name, found in presets.items()}
    assert f"| {steps[0]:,} to {steps[-1]:,} |" in text
    assert (
        f"half-cheetah-vel {counts['half-cheetah-vel']}, walker {counts['walker-2d-params']}, ant "
        f"{counts['ant-fwd-back']}, half-cheetah-fwd-back {counts['half-cheetah-fwd-back']}, in equal steps"
    ) in text
    for name in ("sparse-point-robot", "point-robot-wind"):
        levels = [f"{presets[name].levels[level]:,}" for level in ("random", "medium", "expert")]
        assert f"{levels[0]}, {levels[1]} and {levels[2]}" in text
    bodies, points = ([c for c in configs if (max(c.sac.actor_hidden) <= 64) is small] for small in (False, True))
    for what in ("actor_hidden", "critic_hidden"):
        (body,), (point,) = ({getattr(c.sac, what) for c in kind} for kind in (bodies, points))
        assert f"| 2 of {body[0]} (point robots {point[0]}) |" in text
    vel = presets["half-cheetah-vel"].agents.updates_per_step
    (usual,) = {config.updates_per_step for config in bodies} - {vel}
    assert f"| {usual}, of half-cheetah-vel {vel}, {bodies[0].envs_per_task} environments of each task" in text
    for body, point in ((b, p) for b in bodies for p in points):
        rates = [np.format_float_scientific(c.sac.learning_rate, trim="-", exp_digits=1) for c in (body, point)]
        batches = (body.sac.batch_size, point.sac.batch_size)
        assert f"| {batches[0]}, {rates[0]} (point robots {batches[1]}, {rates[1]}) |" in text
