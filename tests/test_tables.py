"""The tools that publish runs and write tables, on small figures made by hand."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables, focal_results = load("tables"), load("focal_results")


def cells(markdown):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in markdown.splitlines() if "---" not in line]


SIZES = {"meta_batch": 16, "batch_size": 256, "context_size": 100, "hidden": [300, 300, 300]}


def bench(rows, hardware="NVIDIA H200", torch="2.0"):
    names = ("algorithm", "g_steps", "seeds", "ms", "products_ms", "hyperparameters")
    updates = [dict(zip(names, (*row, None, SIZES), strict=True)) for row in rows]
    return {"hardware": hardware, "torch": torch, "updates": updates}


FOCAL = [
    *(("focal", 1, seeds, ms) for seeds, ms in ((1, 2.0), (3, 4.0), (12, 8.0))),
    *(("focal", 3, seeds, ms) for seeds, ms in ((1, 5.0), (3, 10.0), (12, 25.0))),
]


# -- speed -------------------------------------------------------------------------------------------------------------


def test_an_update_has_a_row_for_each_number_of_steps_and_a_column_for_each_number_of_seeds():
    head, *rows = cells(tables.update(bench(FOCAL)))
    assert head[1:4] == ["1 seed, ms", "3 seeds, ms", "12 seeds, ms"]
    assert "NVIDIA H200, torch 2.0" in head[0]
    # 12 seeds in 8 ms are 1,500 updates of single seeds in a second.
    assert rows[0] == ["1", "2.00", "4.00", "8.00", "500 / 750 / 1,500", "-", "-"]
    # 119 ms of the public code beside 5 ms.
    assert rows[1] == ["3", "5.00", "10.00", "25.00", "200 / 300 / 480", "119", "23.8x"]


@pytest.mark.parametrize("figures", [bench(FOCAL, hardware="another GPU"), bench(FOCAL[1:3] + FOCAL[4:])])
def test_the_public_code_stands_only_beside_one_seed_on_its_own_hardware(figures):
    assert all(row[-2:] == ["-", "-"] for row in cells(tables.update(figures))[1:])


def test_every_algorithm_is_shown_with_its_sizes_and_one_discriminator_step():
    others = bench(
        [("batch-pearl", 1, 1, 1.0), ("batch-pearl", 1, 3, 2.0), ("mbml", None, 1, 4.0), ("mbml", None, 3, 8)]
    )
    own = {"meta_batch": 8, "batch_size": 64, "context_size": 32, "actor_hidden": [20, 20], "critic_hidden": [20, 20]}
    for row in others["updates"][2:]:
        row["hyperparameters"] = own
    head, *rows = cells(tables.algorithms(bench(FOCAL), others))
    assert head[1:3] == ["1 seed, ms", "3 seeds, ms"]
    assert rows == [
        ["focal", "2.00", "4.00", "500 / 750", "16 x 256", "100", "300 x 3"],
        ["batch-pearl", "1.00", "2.00", "1,000 / 1,500", "16 x 256", "100", "300 x 3"],
        ["mbml", "4.00", "8.00", "250 / 375", "8 x 64", "32", "20 x 2"],
    ]


def test_algorithms_measured_on_different_machines_are_not_put_side_by_side():
    others = [("mbml", None, 1, 4.0), ("mbml", None, 3, 8.0)]
    with pytest.raises(ValueError, match="too many values"):
        tables.algorithms(bench(FOCAL), bench(others, hardware="another GPU"))


def test_networks_of_different_sizes_are_not_said_to_be_one():
    figures = bench([("mbml", None, 1, 4.0), ("mbml", None, 3, 8.0)])
    sizes = {"meta_batch": 8, "batch_size": 64, "context_size": 32, "actor_hidden": [20], "critic_hidden": [30]}
    figures["updates"][0]["hyperparameters"] = sizes
    with pytest.raises(ValueError, match="too many values"):
        tables.algorithms(bench(FOCAL), figures)


def test_an_update_on_the_cpu_counts_its_steps():
    figures = bench([("focal", 1, 1, 300.0), ("focal", 3, 2, 600.0)], hardware="2 CPU threads")
    for row in figures["updates"]:
        row["products_ms"] = 200.0
    assert cells(tables.update_cpu(figures))[1:] == [
        ["focal, 1 seed, 1 discriminator step", "300", "200", "1.50"],
        ["focal, 2 seeds, 3 discriminator steps", "600", "200", "3.00"],
    ]


def test_a_factor_is_given_only_for_the_same_number_of_discriminator_steps():
    on_gpu = tables.update_line(bench(FOCAL), "one H200")
    assert on_gpu == ["one update of FOCAL, 3 discriminator steps, one H200", "ms", "5.00", "public code: 119", "23.8x"]
    on_cpu = tables.update_line(bench([("focal", 1, 1, 404.0)], hardware="2 CPU threads"), "2 cores")
    assert on_cpu[0] == "one update of FOCAL, 1 discriminator step, 2 cores"
    assert on_cpu[2:] == ["404", "public code, 3 discriminator steps: 1,010", "-"]


def test_the_table_of_the_readme_has_the_updates_below_the_rest():
    simulation = {"steps_per_second": [{"family": "half-cheetah-vel", "omrl": 3000.0, "sync": 1000.0}]}
    loading = {"omrl, episodes of 200": {"seconds": 0.5}, "minari, episodes of 200": {"seconds": 5.0}}
    agents = [{"tasks": 1, "steps_per_s": 100}, {"tasks": 100, "steps_per_s": 2000}]
    cpu = bench([("focal", 1, 1, 404.0), ("focal", 3, 1, 505.0)], hardware="2 CPU threads")
    _, *rows = cells(tables.speed(simulation, loading, agents, bench(FOCAL), cpu))
    assert [row[-1] for row in rows] == ["3.0x", "10.0x", "20.0x", "23.8x", "2.0x"]
    assert rows[-1][0] == "one update of FOCAL, 3 discriminator steps, 2 cores"


# -- results -----------------------------------------------------------------------------------------------------------


def summary(value, **more):
    mean = {"value": value, "low": value - 1, "high": value + 2}
    normalised = {"random": 0.0, "expert": 20.0, "normalised": value / 20}
    return {"updates": 10_000, "seeds": 2, "mean": mean, "per_seed": [value - 0.5, value + 0.5], **normalised, **more}


def test_the_short_table_has_the_preset_that_did_best_alone():
    rows = [
        {"family": "ant-fwd-back", "preset": preset, **summary(v)} for preset, v in (("measured", 15), ("paper", 3))
    ]
    assert cells(tables.results(rows))[1:] == [["ant-fwd-back", "2", "15.00 [14.00, 17.00]", "20.00", "0.75"]]


def test_half_precision_has_the_returns_of_every_seed():
    rows = [{"family": "half-cheetah-vel", "half": half, **summary(v)} for half, v in ((False, 10.0), (True, 11.0))]
    assert cells(tables.half(rows))[1:] == [
        ["half-cheetah-vel, 10,000 updates, without `--half`", "10.00 [9.00, 12.00]", "9.50, 10.50", "0.50"],
        ["half-cheetah-vel, 10,000 updates, with `--half`", "11.00 [10.00, 13.00]", "10.50, 11.50", "0.55"],
    ]


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Where results and their picture go."""
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr(focal_results, "RESULTS", folder)
    monkeypatch.setattr(focal_results, "PICTURE", tmp_path / "picture.png")
    return folder


def made(folder, value=10.0, half=False, preset="measured", **config):
    """A run as it comes back from another machine: without checkpoint and data."""
    folder.mkdir()
    written = {
        "config.json": {
            "family": "half-cheetah-vel",
            "preset": preset,
            "level": "expert",
            "data": str(folder / "elsewhere"),
            "hyperparameters": {"half": half, "alpha": 30.0},
            **config,
        },
        "environment.json": {"gpu": "NVIDIA H200"},
        "timings.json": {"seconds": {}},
        "summary.json": summary(value),
    }
    for name, content in written.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "metrics.csv").write_text("step,transitions,seed,name,value\n5,1,0,return,4\n5,1,1,return,6\n5,1,0,q,1\n")
    (folder / "scores.csv").write_text(f"seed,task,split,episode,return\n0,task-0,test,0,{value}\n")
    return folder


def call(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["focal_results.py", *map(str, words)])
    focal_results.main()


def test_a_run_is_published_from_its_summary_beside_those_that_are_there(tmp_path, published, monkeypatch):
    first, second = made(tmp_path / "a"), made(tmp_path / "b", value=4.0, preset="paper")
    call(monkeypatch, first)
    call(monkeypatch, second)
    rows = json.loads((published / "focal.json").read_text())
    assert [(row["preset"], row["mean"]["value"], row["hardware"]) for row in rows] == [
        ("measured", 10.0, "NVIDIA H200"),
        ("paper", 4.0, "NVIDIA H200"),
    ]
    kept = published / "half-cheetah-vel-paper"
    assert sorted(path.name for path in kept.iterdir()) == [
        "config.json",
        "environment.json",
        "metrics.csv",
        "scores.csv",
        "timings.json",
    ]
    assert (kept / "scores.csv").read_text() == (second / "scores.csv").read_text()
    assert json.loads((kept / "config.json").read_text())["data"] == "data/half-cheetah-vel"
    assert str(tmp_path) not in "".join(path.read_text() for path in published.rglob("*.*"))
    assert focal_results.curve(kept) == {5: [4.0, 6.0]}
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("content", [None, ""])
def test_a_run_without_a_summary_is_one_sentence_that_says_how_to_get_it(tmp_path, published, monkeypatch, content):
    run = made(tmp_path / "a")
    (run / "summary.json").unlink()
    if content is not None:
        (run / "summary.json").write_text(content)
    with pytest.raises(SystemExit) as stop:
        call(monkeypatch, run)
    assert str(stop.value).endswith(f"omrl evaluate {run} --json > {run}/summary.json")
    assert list(published.iterdir()) == []


def test_two_runs_that_differ_in_half_alone_are_put_side_by_side(tmp_path, published, monkeypatch):
    call(monkeypatch, "--half", made(tmp_path / "a"), made(tmp_path / "b", value=11.0, half=True, data="elsewhere"))
    rows = json.loads((published / "half.json").read_text())
    assert [(row["half"], row["mean"]["value"], row["preset"]) for row in rows] == [
        (False, 10.0, "measured"),
        (True, 11.0, "measured"),
    ]
    for name, half in (("half-cheetah-vel-10k", False), ("half-cheetah-vel-10k-half", True)):
        config = json.loads((published / name / "config.json").read_text())
        assert config["hyperparameters"] == {"half": half, "alpha": 30.0}
        assert config["data"] == "data/half-cheetah-vel"
        assert (published / name / "scores.csv").is_file()
    assert not (published / "focal.json").exists() and not (tmp_path / "picture.png").exists()


@pytest.mark.parametrize("other", [{"half": False}, {"half": True, "level": "mixed"}])
def test_runs_that_differ_in_more_than_half_are_refused(tmp_path, published, monkeypatch, other):
    with pytest.raises(SystemExit, match="the same run"):
        call(monkeypatch, "--half", made(tmp_path / "a"), made(tmp_path / "b", **other))
    assert list(published.iterdir()) == []


def test_half_takes_two_runs(tmp_path, published, monkeypatch):
    with pytest.raises(SystemExit, match="two runs"):
        call(monkeypatch, "--half", made(tmp_path / "a"))


def test_the_published_results_name_no_folder_of_a_machine():
    files = [path for folder in ("focal", "speed") for path in (ROOT / "results" / folder).rglob("*.*")]
    assert files
    assert [path for path in files if re.search(r"/(tmp|home|root|Users|work)/", path.read_text())] == []
