"""Published results are those of the presets they name, and follow from the raw files beside them."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import asdict

import pytest
from choose import TRIALS, choices, with_values
from publish import runs as runs_of
from scale import units_of

from omrl.algorithms import get_algorithm, read_preset
from omrl.evaluation import stats
from omrl.families import FAMILIES
from omrl.runs.config import of_this_version
from omrl.studies import tabulating
from omrl.studies.definitions import experiments
from omrl.studies.judging import DOES_NOT, HOLDS, across_families, judge, together
from results_helpers import PAPER, PUBLISHED, RESULTS, assert_says, matrix_of, raw_scores, returns_of, scored

RUNS = sorted(path.parent for path in (RESULTS / "half").glob("*/config.json"))


def read_config(folder):
    """A run's config.json, with today's names."""
    return of_this_version(json.loads((folder / "config.json").read_text()), folder)


def check_config(config, changes):
    """A run's config is its preset with these changes."""
    values = read_preset(config["algorithm"], config["preset"], config["family"]) | changes
    for name in ("level", "max_rows", "steps"):
        assert values.pop(name, config[name]) == config[name]
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    kind = get_algorithm(config["algorithm"]).Config
    made, default = (json.loads(json.dumps(asdict(one))) for one in (kind(**values), kind()))
    # A hyperparameter that is newer than the run is one whose default changes nothing.
    assert made == {**{name: default[name] for name in made}, **config["hyperparameters"]}


def close(value):
    """Raw returns are written with six digits."""
    return pytest.approx(value, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_the_summary_of_a_published_run_follows_from_its_raw_scores(folder):
    summary = json.loads((folder / "scores.json").read_text())
    matrix = matrix_of(raw_scores(folder / "scores.csv"))
    again = stats.mean(matrix, new_tasks=not summary["tasks_trained_on"]).interval()
    assert summary["mean"] == close(vars(again)) and summary["iqm"] == close(stats.iqm(matrix))
    assert len(matrix) == summary["seeds"] >= 3


def test_runs_in_full_precision_differ_from_those_in_bfloat16_by_that_alone():
    halves = {folder.name.removesuffix("-bfloat16"): folder for folder in RUNS if folder.name.endswith("-bfloat16")}
    fulls = {folder.name: folder for folder in RUNS if folder not in halves.values()}
    assert sorted(fulls) == sorted(halves) and len(fulls) >= 4
    for name, folder in fulls.items():
        full, half = read_config(folder), read_config(halves[name])
        assert [one["hyperparameters"].pop("bfloat16") for one in (full, half)] == [False, True]
        # A hyperparameter that is newer than one of them is one whose default changes nothing.
        shared = set(full["hyperparameters"]) & set(half["hyperparameters"])
        assert len(shared) >= 19
        for key in ("algorithm", "preset", "family", "level", "max_rows", "seeds", "seed", "steps", "data"):
            assert full[key] == half[key], key
        for key in shared:
            assert full["hyperparameters"][key] == half["hyperparameters"][key], key


# -- the paper's experiments -------------------------------------------------------------------------------------------


def by_name(results):
    return results["experiment"]


def test_all_published_experiments_are_found_in_their_order():
    there = [name for name in experiments() if (PAPER / name).is_dir()]
    assert there and [one["experiment"] for one in PUBLISHED] == there
    assert sorted(path.name for path in PAPER.iterdir()) == sorted([*there, "runs"])
    runs = {run for one in PUBLISHED for run in runs_of(one)}
    assert {f"runs/{path.name}" for path in (PAPER / "runs").iterdir()} == runs


def test_the_simulated_schedule_is_that_of_today_s_experiments():
    said = json.loads((RESULTS / "scale" / "schedule.json").read_text())["studies"][0]
    units, jobs = units_of(1)
    assert (said["units"], said["runs"]) == (len(units), len(jobs))


@pytest.mark.parametrize("results", PUBLISHED, ids=by_name)
def test_tables_of_an_experiment_are_those_of_its_results(results):
    made = tabulating.make_all(experiments()[results["experiment"]], results["rows"], results["claims"])
    assert [table.name for table in made] == results["tables"]
    for table in made:
        kept = (PAPER / results["experiment"] / "tables" / f"{table.name}.md").read_text()
        assert table.markdown() == kept


@pytest.mark.parametrize("results", PUBLISHED, ids=by_name)
def test_a_published_experiment_is_the_one_that_is_defined(results):
    defined = experiments()[results["experiment"]]
    places = [(data.title, row) for data in defined.data for row in defined.rows]
    assert results["scale"] == "full"
    for row, (title, wanted) in zip(results["rows"], places, strict=True):
        assert (row["data"], row["row"], row["preset"]) == (title, wanted.label, wanted.preset)
        assert row["published"] == dict(wanted.published)
        config = read_config(PAPER / row["run"])
        assert config["algorithm"] == wanted.algorithm and config["seeds"] == row["seeds"]
        assert row["level"] == config["level"] and row["context_level"] == (wanted.context_level or config["level"])
        # A level and a number of updates are a row's own, not a preset's; and so is how a machine computed it.
        own = {name: value for name in ("level", "steps") if (value := getattr(wanted, name)) is not None}
        check_config(config, dict(wanted.changes) | own | {"bfloat16": config["hyperparameters"]["bfloat16"]})
    judged = [(claim["claim"], claim["whose"], claim["metric"]) for claim in results["claims"]]
    assert judged == [(claim.text, claim.whose, claim.metric) for claim in defined.claims]


@pytest.mark.parametrize("results", PUBLISHED, ids=by_name)
def test_returns_of_an_experiment_follow_from_its_raw_scores(results):
    matrices = returns_of(results)
    assert list(matrices) == [(row["data"], row["row"]) for row in results["rows"]]
    for row in results["rows"]:
        matrix = matrices[row["data"], row["row"]]
        assert matrix.shape == (row["seeds"], row["tasks"])
        assert row["mean"] == close(vars(stats.mean(matrix, new_tasks=True).interval()))
        assert row["iqm"] == close(stats.iqm(matrix))
        assert row["normalised"] == close(stats.normalised(row["mean"]["value"], row["random"], row["expert"]))
        assert row["metrics"]["return"] == close(list(matrix.mean(1)))


@pytest.mark.parametrize("results", PUBLISHED, ids=by_name)
def test_verdicts_of_an_experiment_follow_from_its_raw_scores(results):
    defined = experiments()[results["experiment"]]
    for again, claim in zip(judge(defined.claims, scored(results)), results["claims"], strict=True):
        assert again["verdict"] == claim["verdict"] == together(one["verdict"] for one in claim["comparisons"])
        for one, other in zip(again["comparisons"], claim["comparisons"], strict=True):
            assert one["difference"] == close(other["difference"])
            numbers = ("difference", "zone", "detectable")
            assert {k: v for k, v in one.items() if k not in numbers} == {
                k: v for k, v in other.items() if k not in numbers
            }
            assert [one[k] is None for k in numbers] == [other[k] is None for k in numbers]
            if one["verdict"] == HOLDS:
                assert other["difference"]["low"] > 0
            if one["verdict"] == DOES_NOT:
                assert other["difference"]["high"] < 0


def test_the_paper_s_sentences_on_all_families_count_its_own_comparisons_alone():
    comparisons = [results for results in PUBLISHED if results["experiment"].startswith("comparison-")]
    for place, found in enumerate(across_families(PUBLISHED)):
        assert {family: verdict for family, verdict in found["families"].items() if verdict} == {
            results["experiment"].removeprefix("comparison-"): results["claims"][place]["verdict"]
            for results in comparisons
        }
        assert all(results["claims"][place]["whose"] == "paper" for results in comparisons)


def test_a_run_says_the_same_in_every_experiment_that_shares_it():
    said = {}
    for results in PUBLISHED:
        for row in results["rows"]:
            assert said.setdefault((row["run"], row["context_level"]), row["mean"]) == row["mean"], row["run"]


# -- all results -------------------------------------------------------------------------------------------------------


def test_presets_of_comparisons_are_the_best_trials():
    for (algorithm, preset, family), values in choices(TRIALS).items():
        found = read_preset(algorithm, preset, family)
        assert {name: found[name] for name in values} == values, (algorithm, preset, family)


def test_no_other_step_size_of_small_runs_was_better_by_more_than_the_page_says():
    page = (RESULTS.parent / "docs" / "ablations.md").read_text()
    (said,) = re.findall(r"none was better\s+by more than (0\.\d\d)\.", page)
    returns = {}
    for one in json.loads((RESULTS / "tuning" / "quick" / "sparse-point-robot.json").read_text()):
        (rate,) = set(one["trial"].values())
        returns.setdefault(one["algorithm"], {})[rate] = one["return"]
    gains = [max(own.values()) - own[2e-3] for own in returns.values()]
    assert len(gains) == 4 and f"{max(gains):.2f}" == said
    for algorithm in returns:
        values = read_preset(algorithm, "quick", "sparse-point-robot")
        # How far embeddings of different tasks are apart has a step size of its own.
        assert {value for name, value in values.items() if name.endswith("lr") and name != "dml_lr"} == {2e-3}


def test_a_choice_is_put_into_its_section_alone():
    text = "[a.x]\nalpha = 1.0\nbeta = 2.0\n\n# why\n[a.y]\nalpha = 3.0\n"
    assert with_values(text, "a.x", {"alpha": 0.5, "lr": 1e-05}) == text.replace(
        "alpha = 1.0\nbeta = 2.0", "alpha = 0.5\nbeta = 2.0\nlr = 1e-05"
    )
    assert with_values(text, "a.y", {"alpha": 4.0}) == text.replace("3.0", "4.0")


@pytest.mark.parametrize("family", FAMILIES)
def test_data_rebuilt_from_policies_has_the_returns_that_are_published(family):
    levels = json.loads((RESULTS / "behaviour" / "behaviour.json").read_text())[family]["levels"]
    log = (RESULTS / "behaviour" / "logs" / f"rebuild-{family}.log").read_text()
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in log.splitlines()]
    found = {line[0]: [float(cell.replace(",", "")) for cell in line[1:5]] for line in lines if len(line) == 7}
    assert found.keys() == levels.keys()
    for level, (rows, mean, worst, best) in found.items():
        said = levels[level]
        assert rows == said["rows"]
        assert [mean, worst, best] == pytest.approx([said["mean"], said["worst"], said["best"]], abs=0.006)
    # As the page says.
    seconds = float(log.splitlines()[-1].split(" s")[0])
    assert_says((RESULTS.parent / "docs" / "data.md").read_text(), f"{family} in {seconds:.0f}")


def test_no_result_names_a_folder_of_a_machine():
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert not re.search(rb"/(tmp|home|root|Users|work|mnt)/", content), path
