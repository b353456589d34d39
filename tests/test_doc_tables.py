"""The tables of the docs, from small figures made by hand."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from pages import own_logs, paper, reliability, scale, speed
from pages import results as results_page
from publish import on_pages

from publishing_helpers import ANT, WIND, estimate, results, row, summary


def cells(markdown):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in markdown.splitlines() if "---" not in line]


SIZES = {"meta_batch": 16, "batch_size": 256, "context_size": 100, "hidden": [300, 300, 300]}


def bench(rows, hardware="NVIDIA H200", torch="2.0"):
    names = ("algorithm", "regulariser_steps", "seeds", "ms", "products_ms", "hyperparameters")
    updates = [dict(zip(names, (*row, None, SIZES), strict=True)) for row in rows]
    return {"hardware": hardware, "torch": torch, "updates": updates}


FOCAL = [
    *(("focal", 1, seeds, ms) for seeds, ms in ((1, 2.0), (3, 4.0), (12, 8.0))),
    *(("focal", 3, seeds, ms) for seeds, ms in ((1, 5.0), (3, 10.0), (12, 25.0))),
]


# -- speed -------------------------------------------------------------------------------------------------------------


def test_an_update_has_a_row_for_each_number_of_steps_and_a_column_for_each_number_of_seeds():
    head, *rows = cells(speed.update(bench(FOCAL)))
    assert head[1:4] == ["1 seed, ms", "3 seeds, ms", "12 seeds, ms"]
    assert "NVIDIA H200, torch 2.0" in head[0]
    # 12 seeds in 8 ms are 1,500 updates of single seeds in a second.
    assert rows[0] == ["1", "2.00", "4.00", "8.00", "500 / 750 / 1,500", "-", "-"]
    # 119 ms of the public code beside 5 ms.
    assert rows[1] == ["3", "5.00", "10.00", "25.00", "200 / 300 / 480", "119", "23.8x"]


def test_a_service_has_a_row_for_each_call_and_a_column_for_each_way():
    times = {"torch": 1234.5, "numpy": 20.4, "onnx": 10.6}
    result = {"algorithm": "focal", "what": "act", "rows": 1, "microseconds": times}
    head, row = cells(speed.service({"hardware": "1 CPU thread", "torch": "2.0", "results": [result]}))
    assert head == ["1 CPU thread, torch 2.0", "torch", "ONNX", "numpy"]
    assert row == ["focal, act, 1 row", "1,234", "11", "20"]


@pytest.mark.parametrize("figures", [bench(FOCAL, hardware="another GPU"), bench(FOCAL[1:3] + FOCAL[4:])])
def test_the_public_code_stands_only_beside_one_seed_on_its_own_hardware(figures):
    assert all(row[-2:] == ["-", "-"] for row in cells(speed.update(figures))[1:])


def test_every_algorithm_is_shown_with_its_sizes_and_one_discriminator_step():
    others = bench(
        [("batch-pearl", 1, 1, 1.0), ("batch-pearl", 1, 3, 2.0), ("mbml", None, 1, 4.0), ("mbml", None, 3, 8)]
    )
    own = {"meta_batch": 8, "batch_size": 64, "context_size": 32, "actor_hidden": [20, 20], "critic_hidden": [20, 20]}
    for one in others["updates"][2:]:
        one["hyperparameters"] = own
    head, *rows = cells(speed.algorithms(bench(FOCAL), others))
    assert head[1:3] == ["1 seed, ms", "3 seeds, ms"]
    assert rows == [
        ["focal", "2.00", "4.00", "500 / 750", "16 x 256", "100", "300 x 3"],
        ["batch-pearl", "1.00", "2.00", "1,000 / 1,500", "16 x 256", "100", "300 x 3"],
        ["mbml", "4.00", "8.00", "250 / 375", "8 x 64", "32", "20 x 2"],
    ]


def test_algorithms_measured_on_different_machines_are_not_put_side_by_side():
    others = [("mbml", None, 1, 4.0), ("mbml", None, 3, 8.0)]
    with pytest.raises(ValueError, match="too many values"):
        speed.algorithms(bench(FOCAL), bench(others, hardware="another GPU"))


def test_networks_of_different_sizes_are_not_said_to_be_one():
    figures = bench([("mbml", None, 1, 4.0), ("mbml", None, 3, 8.0)])
    sizes = {"meta_batch": 8, "batch_size": 64, "context_size": 32, "actor_hidden": [20], "critic_hidden": [30]}
    figures["updates"][0]["hyperparameters"] = sizes
    with pytest.raises(ValueError, match="too many values"):
        speed.algorithms(bench(FOCAL), figures)


def test_an_update_on_the_cpu_counts_its_steps():
    figures = bench([("focal", 1, 1, 300.0), ("focal", 3, 2, 600.0)], hardware="2 CPU threads")
    for one in figures["updates"]:
        one["products_ms"] = 200.0
    assert cells(speed.update_cpu(figures))[1:] == [
        ["focal, 1 seed, 1 discriminator step", "300", "200", "1.50"],
        ["focal, 2 seeds, 3 discriminator steps", "600", "200", "3.00"],
    ]


def test_the_readme_compares_the_same_number_of_discriminator_steps():
    on_gpu = speed.update_line(bench(FOCAL), "one H200")
    assert on_gpu == ["one update of FOCAL, 3 discriminator steps, one H200", "ms", "5.00", "public code: 119", "23.8x"]
    with pytest.raises(ValueError, match="not enough values"):
        speed.update_line(bench([("focal", 1, 1, 5.0)]), "one H200")


def test_the_table_of_the_readme_has_the_updates_below_the_rest():
    simulation = {"steps_per_second": [{"family": "half-cheetah-vel", "omrl": 3000.0, "sync": 1000.0}]}
    loading = {"omrl, episodes of 200": {"seconds": 0.5}, "minari, episodes of 200": {"seconds": 5.0}}
    half = {"bfloat16": True, "paper_size": False}
    agents = [
        {**half, "tasks": 1, "steps_per_s": 100},
        {**half, "tasks": 100, "steps_per_s": 2000},
        {**half, "tasks": 100, "steps_per_s": 3000, "bfloat16": False},
        {**half, "tasks": 100, "steps_per_s": 300, "paper_size": True},
    ]
    _, *rows = cells(speed.speed(simulation, loading, agents, bench(FOCAL), bench(FOCAL)))
    assert [row[-1] for row in rows] == ["3.0x", "10.0x", "20.0x", "23.8x", "23.8x"]
    name = "one update of FOCAL, 3 discriminator steps, one H200"
    assert [row[0] for row in rows[-2:]] == [name, f"{name}, bfloat16"]


def test_a_start_is_cold_and_warm():
    starts = [
        {"cache": "cold", "build_s": 0.84, "first_update_s": 27.83},
        {"cache": "warm", "build_s": 0.2, "first_update_s": 2.5},
    ]
    found = cells(speed.start({"hardware": "2 CPU threads", "torch": "2.13.0+cpu", "starts": starts}))
    assert found[0][0] == "compiled programs (2 CPU threads, torch 2.13.0+cpu)"
    assert found[1:] == [["cold", "0.8", "27.8"], ["warm", "0.2", "2.5"]]


def test_small_networks_are_compared_with_what_torch_does_by_itself():
    row = {"setting": "eager, threads spin", "threads": 2, "idle": 50.0, "busy": 5.0, "busy_over_idle": 0.1}
    other = {**row, "setting": "compiled", "threads": 1, "idle": 125.0, "busy_over_idle": 0.04, "first_update_s": 30.0}
    found = cells(speed.cpu({"cores": 2, "rows": [{**row, "first_update_s": 1.0}, other]}))
    assert found[1:] == [
        ["eager, threads spin, 2 threads", "50", "1.0x", "5.0", "0.10", "1.0"],
        ["compiled, 1 thread", "125", "2.5x", "5.0", "0.04", "30.0"],
    ]


def test_bfloat16_is_a_difference_in_shares_of_the_way_to_the_expert(tmp_path):
    wanted = np.array([[11.0, 13.0], [9.0, 11.0], [10.0, 12.0]])
    runs = []
    for algorithm, bfloat16, change in (
        ("mbml", True, -5),
        ("mbml", False, 0),
        ("focal", False, 0),
        ("focal", True, -1),
    ):
        folder = tmp_path / f"{algorithm}-{bfloat16}"
        folder.mkdir()
        about = {"family": WIND, "algorithm": algorithm, "preset": "tuned", "hyperparameters": {"bfloat16": bfloat16}}
        about |= {**summary(11.0 + change), "seeds": 3, "random": -9.0, "expert": 11.0}
        write_scores(folder, "scores", "test", wanted + change, about)
        if algorithm == "focal":  # in one task that it was trained on, with another way to go
            trained = wanted[:, :1] + 10 + 4 * change
            write_scores(folder, "scores-split-train", "train", trained, {"random": 0.0, "expert": 40.0})
        runs.append({**about, "folder": folder})
    # One whose other half is not there yet says nothing.
    alone = {"algorithm": "batch-pearl", "hyperparameters": {"bfloat16": False}}
    (_, *lines) = cells(speed.bfloat16([*runs, {**runs[1], **alone}]))
    names = ["point-robot-wind, mbml", *2 * ["point-robot-wind, focal"]]
    assert [line[0] for line in lines] == names
    assert [line[1] for line in lines] == ["2 tasks", "2 tasks", "3 tasks, trained on or not"]
    # The seeds' means are 12, 10 and 11; 4.303 for 2 degrees of freedom.
    half = 4.303 * np.sqrt(1 / 3)
    means = [f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]" for mean in (11.0, 10.0)]
    assert lines[1][2:-1] == ["3 + 3", "10,000", *means]
    # One of twenty; Welch's interval of the seeds' means 12, 10, 11 and one less each, 2.776 for 4 degrees of freedom.
    half = 2.776 * np.sqrt(2 / 3) / 20
    assert lines[1][-1] == f"-0.0500 [{-0.05 - half:.4f}, {-0.05 + half:.4f}]"
    # Four of forty in the third task: a mean of -1/20, -1/20 and -4/40.
    assert lines[2][-1].startswith("-0.0667 [")


def write_scores(folder, name, split, returns, about):
    lines = [f"{seed},{split}{task},{split},0,{value}" for (seed, task), value in np.ndenumerate(returns)]
    (folder / f"{name}.csv").write_text("\n".join(["seed,task,split,episode,return", *lines]) + "\n")
    (folder / f"{name}.json").write_text(json.dumps(about))


def test_threads_are_put_side_by_side():
    found = cells(speed.cpu_threads([{"numbers": 65_536, "threads_1": 200.0, "threads_2": 250.0}]))
    assert found[1:] == [["65,536", "200", "250", "1.25"]]


# -- results -----------------------------------------------------------------------------------------------------------


def test_comparisons_in_short_have_focal_the_baselines_and_their_data():
    def one(label, value):
        about = {"data": "ant-fwd-back", "row": label, "level": "mixed", "seeds": 5, "expert": 20.0}
        return {**about, "mean": estimate(value)}

    rows = [one(label, 10.0 + place) for place, label in enumerate(results_page.COMPARED)]
    found = cells(results_page.comparisons([{"experiment": "comparison-ant-fwd-back", "rows": rows}, PAPER[2]]))
    assert found[0][2:-1] == list(results_page.COMPARED)
    (line,) = found[1:]
    assert line[:2] == ["ant-fwd-back, mixed", "5"] and line[-1] == "20.00"
    assert [cell.split(" ")[0] for cell in line[2:-1]] == [f"{10 + place}.00" for place in range(len(rows))]


def test_share_is_that_of_updates_in_all_seconds(tmp_path):
    def trained(name, updates, evaluation, gpu="NVIDIA H200", **stages):
        seconds = {**stages, "updates": updates, "evaluation": evaluation, "logging": 1.0, "saving": 5.0}
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "timings.json").write_text(json.dumps({"seconds": seconds}))
        (tmp_path / "runs" / name / "environment.json").write_text(json.dumps({"gpu": gpu}))
        return {"run": f"runs/{name}", "data": "ant-fwd-back", "row": name}

    rows = [trained("a", 60.0, 14.0), trained("b", 94.0, 0.0), trained("c", 40.0, 34.0)]
    # A run that two experiments share counts once.
    published = [{"folder": tmp_path / name, "rows": rows} for name in ("x", "y")]
    published[0]["rows"] = [trained("mbml", 20.0, 4.0, stages=70.0), *rows]
    published[1]["rows"] = [*rows, trained("on a cpu", 1.0, 0.0, gpu=None)]
    assert cells(speed.share(published))[1:] == [
        ["ant-fwd-back, all others", "3", "50%", "75%", "94%", "14.0", "34.0"],
        ["ant-fwd-back, with a first stage", "1", "20%", "20%", "20%", "4.0", "4.0"],
    ]


def test_kernels_of_an_update_are_products_and_others():
    row = {"algorithm": "focal", "seeds": 3, "regulariser_steps": 1, "ms": 1.5, "kernels": 300}
    row |= {"product_kernels_us": 1_000.4, "other_kernels_us": 450.0}
    wanted = ["focal, 3 seeds, 1 discriminator step", "1.50", "1,000", "450", "300"]
    assert cells(speed.kernels({"updates": [row]}))[1:] == [wanted]


def test_behaviour_data_has_a_line_for_every_level():
    level = {"checkpoint": 4800, "rows": 10_000, "mean": 10.5, "worst": 9.0, "best": 12.0, "rewarded": 0.96}
    figures = {"sparse-point-robot": {"levels": {"expert": {**level, "action_std": 0.6}}}}
    figures["sparse-point-robot"]["levels"]["mixed"] = {**level, "checkpoint": None, "action_std": None}
    assert cells(results_page.behaviour(figures))[1:] == [
        ["sparse-point-robot", "expert", "4,800", "10,000", "10.50", "9.00", "12.00", "96%", "0.60"],
        ["sparse-point-robot", "mixed", "all", "10,000", "10.50", "9.00", "12.00", "96%", "-"],
    ]


def test_full_size_agents_stand_beside_ours():
    row = {"full": {"return": 975.3, "action_std": 0.49}, "ours": {"return": 1100.0, "action_std": 0.42}}
    figures = {"half-cheetah-fwd-back": {"tasks": 2, "checkpoints": {"100000": row}}}
    wanted = ["half-cheetah-fwd-back", "2", "100,000", "975", "1100", "0.49", "0.42"]
    assert cells(results_page.full_size(figures))[1:] == [wanted]


# -- the paper's experiments -------------------------------------------------------------------------------------------


def claim(text, *comparisons, metric="return", verdict="holds", whose="paper"):
    names = ("better", "worse", "difference", "verdict", "data")
    found = [dict(zip(names, one, strict=True)) for one in comparisons]
    for one in found:
        one["detectable"] = 34.6 if one["verdict"] == "undecided" else None
    return {"claim": text, "whose": whose, "metric": metric, "verdict": verdict, "comparisons": found}


PAPER = [
    results(
        "comparison-point-robot-wind",
        [row("FOCAL", -0.001, run="runs/a"), row("MBML", -150.0, run="runs/b", normalised=None)],
        [
            claim(
                "FOCAL is better, too.", ("FOCAL", "MBML", estimate(0.1), "equal", WIND), verdict="equal", whose="ours"
            ),
            claim("FOCAL is better.", ("FOCAL", "MBML", estimate(149.999), "holds", WIND)),
        ],
        figures=("return", "return-log"),
    ),
    results(
        "comparison-ant-fwd-back",
        [row("FOCAL", 812.6, run="runs/c", data=ANT)],
        [claim("FOCAL is better.", ("FOCAL", "MBML", estimate(12.4, 20), "undecided", ANT), verdict="undecided")],
    ),
    results(
        "power-law",
        [
            row("Inverse", 3.0, run="runs/a", metrics={"esr": [0.5, 0.7], "rms": [1.0, 2.0]}, published={"esr": 0.84}),
            row("Square", 2.0, run="runs/b", metrics={"esr": [0.1, 0.1], "identification": [0.25, 0.5]}),
        ],
        [claim("It separates.", ("Inverse", "Square", estimate(0.5, 0.1), "holds", WIND), metric="esr")],
        figures=("embedding", "return"),
        tables=("embedding", "claims"),
    ),
]


def test_every_claim_has_its_verdict_in_bold_words():
    across = "FOCAL is better, across almost all domains."
    assert cells(paper.verdicts(PAPER)) == [
        ["experiment", "claim", "verdict", "seeds"],
        ["all comparisons", across, "**undecided**", "2 of 6 run"],
        ["comparison-point-robot-wind", "FOCAL is better.", "**holds**", "5"],
        ["comparison-ant-fwd-back", "FOCAL is better.", "**undecided**", "5"],
        ["power-law", "It separates.", "**holds**", "5"],
        ["comparison-point-robot-wind (ours)", "FOCAL is better, too.", "**equal**", "5"],
    ]


def test_experiments_without_results_are_named():
    text = paper.missing(PAPER)
    assert text.startswith("Not run yet: `comparison-sparse-point-robot`, `comparison-half-cheetah-vel`, ")
    assert "power-law" not in text
    all_of_them = [results(name, []) for name in paper.experiments()]
    assert paper.missing(all_of_them) == "All of the paper's experiments were run.\n"


def test_tables_that_experiments_made_are_included_without_what_all_rows_share(tmp_path):
    made = {
        "returns": "| data | row | seeds | IQM | mean |\n| --- | --- | ---: | ---: | ---: |\n"
        "| wind | A \\| B | 5 | – | 1.00 |\n| wind | C | 5 | – | -0.50 |\n\nKnown by their logs.\n",
        "embedding": "| row | ESR |\n| --- | ---: |\n| A | 0.5 |\n",
    }
    for one in PAPER:
        (tmp_path / one["experiment"] / "tables").mkdir(parents=True)
        for name in set(one["tables"]) & set(made):
            (tmp_path / one["experiment"] / "tables" / f"{name}.md").write_text(made[name])
    there = [one | {"folder": tmp_path / one["experiment"]} for one in PAPER]
    narrow = "| row | mean |\n| --- | ---: |\n| A \\| B | 1.00 |\n| C | -0.50 |\n\nKnown by their logs.\n"
    assert paper.included("returns", there) == (
        f"**comparison-point-robot-wind** (data: wind; seeds: 5)\n\n{narrow}\n"
        f"**comparison-ant-fwd-back** (data: wind; seeds: 5)\n\n{narrow}"
    )


def test_an_ablation_is_its_pictures_and_then_its_tables(tmp_path):
    (one,) = (one for one in PAPER if one["experiment"] == "power-law")
    (tmp_path / "tables").mkdir()
    # Of one row nothing is left out.
    for name, made in (
        ("embedding", "| row | ESR |\n| --- | ---: |\n| A | 0.5 |\n"),
        ("claims", "| A |\n| --- |\n| B |\n"),
    ):
        (tmp_path / "tables" / f"{name}.md").write_text(made)
    figures = ["embedding", "return-log", "return"]
    assert paper.ablation("power-law", [one | {"folder": tmp_path, "figures": figures}]) == (
        '<img src="img/paper/power-law-embedding.png" width="340" alt="About \'power-law\': embeddings by t-SNE">\n'
        '<img src="img/paper/power-law-return-log.png" width="340" '
        "alt=\"About 'power-law': return on test tasks while training\">\n\n"
        "**Embeddings of the training tasks**\n\n| row | ESR |\n| --- | ---: |\n| A | 0.5 |\n\n"
        "**Every comparison**\n\n| A |\n| --- |\n| B |\n"
    )
    assert paper.ablation("expert-data", PAPER) == "Not run yet.\n"
    for experiment in paper.experiments().values():
        assert {*on_pages({"figures": experiment.figures})} <= set(paper.FIGURES)
        assert {*experiment.tables, "claims"} <= set(paper.TABLES)
    assert "power-law" in paper.ablations() and "comparison-ant-fwd-back" not in paper.ablations()


def test_curves_are_those_of_the_comparisons():
    assert re.findall(r'src="([^"]+)"', paper.curves(PAPER)) == [
        "img/paper/comparison-point-robot-wind-return-log.png",
        "img/paper/comparison-ant-fwd-back-return.png",
    ]


def test_trials_are_shown_as_ranges_with_the_best_one():
    shared = {"family": ANT, "seeds": 1, "updates": 8_000}
    figures = [
        {**shared, "row": "FOCAL", "trial": {"alpha": alpha}, "return": value, "normalised": value / 1000}
        for alpha, value in ((0.3, 100.0), (30.0, 812.6), (100.0, 700.0))
    ]
    figures += [
        {
            **shared,
            "row": "MBML",
            "trial": {"kl_weight": 0.1, "a_lr": lr, "b_lr": lr},
            "return": 0.0,
            "normalised": None,
        }
        for lr in (1e-3, 3e-4)
    ]
    # What was dropped early is none to choose, whatever it had got.
    figures.insert(0, {**figures[0], "updates": 2_000, "return": 900.0, "normalised": 0.9})
    assert cells(paper.tuning(figures))[1:] == [
        [ANT, "FOCAL", "4 x 1", "8,000", "alpha 0.3 to 100", "alpha 30", "813", "0.81"],
        [
            *(ANT, "MBML", "2 x 1", "8,000", "kl weight 0.1 to 0.1, step size 0.0003 to 0.001"),
            *("kl weight 0.1, step size 0.001 (all alike)", "0", "-"),
        ],
    ]


def test_trials_of_step_sizes_are_a_line_for_each_row():
    figures = [
        {"row": "FOCAL", "trial": {"actor_lr": lr, "critic_lr": lr}, "return": value}
        for lr, value in ((1e-3, 1.0), (2e-3, 2.0), (4e-3, 1.5))
    ]
    figures += [{"row": "MBML", "trial": {"lr": 1e-3}, "return": 3.0}]
    assert cells(paper.step_sizes(figures)) == [
        ["row", "step size 0.001", "step size 0.002", "step size 0.004"],
        ["FOCAL", "1.00", "2.00", "1.50"],
        ["MBML", "3.00", "-", "-"],
    ]


def test_the_campaign_is_told_by_kinds_and_by_ways():
    kinds = {
        "input/config.json": {"tried": 1200, "errors": 1100, "wrong": 0},
        "kill/train": {"tried": 78, "errors": 78, "wrong": 1},
        "tear/train": {"tried": 20, "errors": 20, "wrong": 2},
        "twice/collect": {"tried": 6, "errors": 0, "wrong": 0},
    }
    figures = {"kinds": kinds, "tried": 1304, "inputs": 1200, "wrong": 3, "seconds": 600, "jobs": 2, "seed": 7}
    figures |= {"environment": {"cores": 4}}
    assert cells(reliability.torture_inputs(figures))[1:] == [["config.json", "1,200", "1,100", "0"]]
    head, train, collect = cells(reliability.torture_steps(figures))
    assert (train[0], train[head.index("killed before it")], train[-1]) == ("train", "78", "3")
    assert (collect[0], collect[head.index("started twice")], collect[-1]) == ("collect", "6", "0")
    said = reliability.torture({**figures, "made": "2026-01-01"})
    assert "1,200 damaged files and 104 disturbed commands, 3 of them wrong, in 10 minutes with 2 processes" in said
    assert "on 4 cores" in said


def test_a_soak_shows_memory_after_a_tenth_and_at_the_end():
    one = {
        "calls": 1000,
        "microseconds": {"50": 70.2, "99": 90, "99.9": 200, "100": 4000},
        "resident_mb": [500.0, 501.5],
    }
    head, act, adapt = cells(reliability.soak({"act": one, "adapt": one}))
    assert act == ["act", "1,000", "70", "90", "200", "4,000", "500.0", "501.5"] and len(head) == len(adapt)


def test_starting_is_shown_before_and_now():
    figures = {"median_seconds": {"omrl --help": {"before": 0.5, "now": 0.25}}}
    assert cells(reliability.started(figures))[1:] == [["omrl --help", "500.0", "250.0"]]


# -- logs alone --------------------------------------------------------------------------------------------------------


def judged(domain, true, gain, **changes):
    """A run of a made-up domain: what it truly has beyond the logger, and what logs told of it."""
    found = {
        **dict.fromkeys(("logger", "left", "outside", "noise"), 0.0),
        **{"seeds": 3, "tasks": 8, "far": 0.05, "action_error": 0.1, "disagreement": 0.1, "identification": 1.0},
        **{"gain": around(gain), "fitted_q": around(-gain / 100)},
        **changes,
    }
    return {"domain": domain, "logger": "noisy", "found": found, "true": {"gain": around(true)}}


def around(value):
    return {"value": value, "low": value - 1, "high": value + 1}


def test_runs_are_ranked_by_domain_with_medians_of_both_halves():
    runs = [judged("crane", true, gain) for true, gain in ((1, 1), (2, 3), (3, 2))]
    runs += [judged("battery", true, true) for true in range(3)]
    _, *rows = cells(own_logs.select_rank(runs))
    assert [row[:4] for row in rows[:2]] == [
        ["crane, noisy", "3", "0.50", "0.50"],
        ["battery, noisy", "3", "1.00", "1.00"],
    ]
    assert [row[4] for row in rows[:2]] == ["-0.50", "-1.00"]
    assert [row[2] for row in rows[2:]] == ["**0.50**", "**1.00**"]


def test_runs_that_worlds_lost_are_ranked_behind_others_by_their_actions():
    lost = [judged("crane", true, -true, left=0.5, action_error=1 - true) for true in (0.1, 0.2, 0.3)]
    _, row, *_ = cells(own_logs.select_rank([*lost, judged("crane", 1, -9)]))
    assert row[2:4] == ["1.00", "-1.00"]


def test_runs_that_are_equal_share_a_rank():
    runs = [judged("crane", true, gain) for true, gain in ((0, 1), (0, 2), (1, 3))]
    for order in (runs, runs[::-1]):
        assert cells(own_logs.select_rank(order))[1][2] == "0.87"


def test_verdicts_are_counted_by_what_is_true():
    runs = [judged("crane", 5, 5), judged("crane", 5, 0), judged("crane", 5, 5, left=0.5), judged("battery", -5, -5)]
    _, *rows = cells(own_logs.select_verdicts(runs))
    assert [cell.split()[0] for cell in rows[0][1:]] == ["3", "1", "2", "0"]
    assert rows[0][0].startswith("better, the three that")
    assert rows[1][4] == "1 (100% [21%, 100%])"


def test_runs_that_do_harm_are_counted_by_what_they_are_called():
    def harming(domain, share, gain):
        run = judged(domain, 0, gain)
        return {**run, "true": {**run["true"], "harmed": share, "logger_harmed": 0.1}}

    runs = [harming("crane", 0.1, 5), harming("crane", 0.2, -5), harming("crane", 0.2, 0)]
    runs += [harming("battery", 0.9, 5), harming("battery", 0.14, -5)]  # 4 points more often is none
    head, *rows = cells(own_logs.select_harm(runs))
    assert head == ["runs that, in", "runs", "called better", "called cannot tell", "called worse"]
    assert [[cell.split()[0] for cell in row[1:]] for row in rows] == [
        ["2", "0", "1", "1"],
        ["1", "1", "0", "0"],
        ["1", "1", "0", "0"],
        ["1", "0", "0", "1"],
    ]
    assert [row[0].split(",")[0] for row in rows] == ["do harm", "do not"] * 2


def test_a_wider_interval_says_less():
    raw = {"value": 3.0, "error": 1.5, "freedom": 1e6}  # 1.645 errors are 2.5, 1.96 are 2.9 and 2.576 would be 3.9
    near = {"measured": {"gained": {**raw, "value": 2.7}, "fitted_q": raw}}
    runs = [
        {**judged("crane", 5, 9), **near},
        {**judged("crane", 0, 9), **near},
        {**judged("battery", -5, 9), **near, "logger": "mixed"},
    ]
    _, *rows = cells(own_logs.select_levels(runs))
    assert rows[1] == ["thresholds fixed on these, 90%", "1 of 1", "0 of 0", "0 of 0", "1 of 1"]
    assert rows[2] == ["thresholds fixed on these, 95%", "0 of 1", "0 of 0", "0 of 0", "0 of 1"]
    assert [row[3] for row in rows[3:]] == 2 * ["1 of 1", "1 of 1", "0 of 1"]


def test_families_are_counted_together():
    runs = [judged("point-robot-wind", true, true) for true in (-5, 0, 5)]
    assert [row[:3] for row in cells(own_logs.family_rank(runs))[1:]] == [
        ["point-robot-wind, noisy", "3", "1.00"],
        ["**median**", "", "**1.00**"],
    ]
    _, *rows = cells(own_logs.family_verdicts(runs))
    assert [row[0] for row in rows] == [f"{true}, omrl's families" for true in ("better", "neither", "worse")]
    assert [row[2 + i].split()[0] for i, row in enumerate(rows)] == ["1", "1", "1"]


def test_contexts_that_are_called_strange_have_a_line_for_each_size_and_their_mean():
    shares = {"tries": 200, "honest": 0.05, "begun": 0.04, "units": 1.0, "swapped": 0.9, "far": 0.5}
    row = {"domain": "crane", "logger": "noisy", "16": shares, "64": {**shares, "far": 1.0}}
    _, *rows = cells(own_logs.strange([row, {**row, "logger": "mixed", "16": {**shares, "far": 0.7}}]))
    assert rows[0] == ["crane, mixed", "16", "200", "5.0%", "4.0%", "100.0%", "90.0%", "70.0%"]
    assert rows[4] == ["**mean**", "16", "400", "**5.0%**", "**4.0%**", "**100.0%**", "**90.0%**", "**60.0%**"]


# -- one's own logs ----------------------------------------------------------------------------------------------------


def outcomes(**returns):
    """A cell of two seeds and six tasks; the logger gets the number of the task."""
    rows = [["logger", 0, f"t{i}", float(i), 0.5] for i in range(6)] + [["best", 0, f"t{i}", 20.0, 0] for i in range(6)]
    for who, more in returns.items():
        name = who.replace("_", "-")
        rows += [[name, seed, f"t{i}", i + more + 0.2 * seed, 0.25] for seed in (0, 1) for i in reversed(range(6))]
    return {"domain": "crane", "logger": "noisy", "rows": rows}


def outcome_file(*cells, wanted=2):
    columns = ["who", "seed", "task", "return", "harmed"]
    return {"columns": columns, "cells": cells, "fixed_on": ["crane"], "wanted": wanted}


def test_a_cell_compares_with_its_logger_task_by_task():
    head, row = cells(own_logs.cells(outcome_file(outcomes(focal=3.0, contextual_bc=-2.0))))
    assert len(head) == len(row)
    assert row[:4] == ["crane", "noisy", "2.5", "5.6"]  # 3.0 and 3.2 more than 2.5
    assert row[4].startswith("3.1 [") and row[4].endswith(", better") and row[5].startswith("-1.9 [")
    assert row[6:] == ["20.0", "25 / 25 / 50"]


def test_the_trial_says_of_each_policy_what_was_said_and_what_is_true():
    rows = [("run", seed, task, 4.0 + seed, 0.25) for seed in (0, 1) for task in ("a", "b")]
    rows += [("logger", 0, task, 1.0, 0.5) for task in ("a", "b")]
    runs = {name: {"selected": {"word": "cannot tell"}, "rows": rows} for name in own_logs.TRAINED}
    told = [{"command": f"omrl train focal --out {name} --seeds 2", "said": []} for name in runs]
    told[-1]["said"] = ["warning: it leaves the data"]
    walk = {"logger": "noisy", "told": told, "runs": runs}
    _, *found = cells(own_logs.trial({**outcome_file(), "walks": [walk]}))
    assert [row[2] for row in found] == ["no", "no", "yes"] and {row[3] for row in found} == {"cannot tell"}
    assert found[0][4].startswith("3.5 [") and found[0][5] == "25 / 50"


def test_what_is_missing_of_the_cells_is_said():
    words = own_logs.summary(outcome_file(outcomes(focal=3.0, contextual_bc=0.0)))
    assert "In 1 cells the default recipe is better than the logger in 1" in words and "1 of 2 cells" in words
    worse = own_logs.summary(outcome_file(outcomes(focal=-3.0, contextual_bc=0.0), wanted=1))
    assert "worse in 1." in worse and "not run" not in worse


# -- scale -------------------------------------------------------------------------------------------------------------


def test_a_study_on_ray_says_what_it_costs_what_was_killed_and_what_differs():
    both = {"study": "all", "nodes": 3, "at_once_2_seconds": 200.4, "ray_seconds": 230.0}
    both |= {"data_files_compared": 1_000, "data_files_that_differ": [], "out_files_compared": 12}
    both |= {"out_files_that_differ": ["a", "b"]}
    _, row = cells(scale.ray_study({**both, "overhead": 1.148, "most_megabytes": {"draw": 655.0, "test": 500.0}}))
    assert row == ["all", "3", "200", "230", "1.15x", "1,012", "2", "655"]
    killed = [{"what": what} for what in ("worker", "driver", "worker", "node")]
    _, row = cells(scale.ray_kills({**both, "killed": killed}))
    assert row == ["all", "3", "200", "230", "2", "1", "1", "1,012", "2"]
