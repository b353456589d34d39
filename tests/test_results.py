"""Published results are those of the presets they name, and follow from the raw files beside them."""

from __future__ import annotations

import csv
import gzip
import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from choose import TRIALS, choices, with_values
from publish import published
from publish import runs as runs_of
from scale import units_of

from omrl.algorithms import get_algorithm, read_preset
from omrl.evaluation import stats
from omrl.families import FAMILIES
from omrl.runs.config import of_this_version
from omrl.studies import tabulating
from omrl.studies.definitions import Claim, experiments
from omrl.studies.judging import DOES_NOT, EQUAL, HOLDS, UNDECIDED, Scored, across_families, judge, together, way

RESULTS = Path(__file__).parents[1] / "results"
PAPER = RESULTS / "paper"
RUNS = sorted(path.parent for path in (RESULTS / "half").glob("*/config.json"))
PUBLISHED = published(PAPER)


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


def matrix_of(scores):
    """The mean return of every seed in every task, [seeds, tasks]."""
    episodes = {}
    for score in scores:
        episodes.setdefault((int(score["seed"]), score["task"]), []).append(float(score["return"]))
    seeds, tasks = (list(dict.fromkeys(names)) for names in zip(*episodes, strict=True))
    return np.array([[np.mean(episodes[seed, task]) for task in tasks] for seed in seeds])


def raw_scores(file):
    with gzip.open(file, "rt", newline="") if file.suffix == ".gz" else file.open(newline="") as opened:
        return list(csv.DictReader(opened))


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


def returns_of(results):
    """Matrices of returns, by data and row."""
    found = {}
    for score in raw_scores(PAPER / results["experiment"] / "scores.csv.gz"):
        found.setdefault((score["data"], score["row"]), []).append(score)
    return {key: matrix_of(scores) for key, scores in found.items()}


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


def scored(results):
    """The rows of an experiment, as claims are judged by them."""
    matrices, data = returns_of(results), {one.title: one for one in experiments()[results["experiment"]].data}
    found = []
    for row in results["rows"]:
        metrics = {name: np.array(values)[:, None] for name, values in row["metrics"].items()}
        metrics["return"] = matrices[row["data"], row["row"]]
        found.append(Scored(data[row["data"]], row["data"], row["row"], metrics, way(row)))
    return found


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


# Those that the claim "all with as many trials" is about.
AS_MANY_TRIALS = ("FOCAL", "Batch PEARL", "Contextual BCQ", "MBML")


WALKERS = "walker-2d-params, 20/5"
ENCODERS = ("FOCAL", "FOCAL, probabilistic", "Batch PEARL, regularised", "Batch PEARL")


def rows_of(experiment):
    """The rows of a published experiment."""
    (results,) = (one for one in PUBLISHED if one["experiment"] == experiment)
    return results["rows"]


def shown(value, like=None):
    """As a page shows it, with as many digits as another of its family."""
    return f"{value:.2f}" if abs(value if like is None else like) < 20 else f"{value:.0f}"


def ways(number):
    """A normalised return, as a page shows it."""
    return f"{number:.2f}"


def test_what_is_said_before_the_claims_is_what_was_found():
    found, ahead = {}, {}
    for results in (one for one in PUBLISHED if one["experiment"].startswith("comparison-")):
        family = results["rows"][0]["family"]
        found[family] = {row["row"]: row for row in results["rows"]}
        ahead[family] = max(AS_MANY_TRIALS, key=lambda label, own=found[family]: own[label]["mean"]["value"])

    def of(family, *rows):
        return [shown(found[family][row]["mean"]["value"], found[family][row]["expert"]) for row in rows]

    def pair(family, first, second, word="against"):
        return f" {word} ".join(of(family, first, second))

    paper = ("FOCAL, the paper's numbers", "Batch PEARL, the paper's numbers")
    points, wind, vel, both, ant, walker = FAMILIES
    cloning, bcq, dual, held = "Contextual cloning", "Contextual BCQ", "FOCAL, dual form", "Batch PEARL, regularised"
    expert = {family: shown(rows["FOCAL"]["expert"]) for family, rows in found.items()}
    untuned = [ways(found[family][paper[0]]["normalised"]) for family in (vel, both, ant, walker)]
    behind = [ways(found[one]["FOCAL"]["normalised"] - found[one][dual]["normalised"]) for one in (both, ant)]
    others = of(walker, "FOCAL", dual, cloning, bcq, held, "MBML", "Batch PEARL")
    experts = {(row["data"], row["row"]): row for row in rows_of("expert-data")}
    on_experts = {key: shown(row["mean"]["value"]) for key, row in experts.items()}
    encoders = {(row["data"], row["row"]): row for row in rows_of("deterministic-vs-probabilistic")}
    drawn = [(data, row) for row in ("FOCAL", "FOCAL, probabilistic") for data in (vel, WALKERS)]
    told = [ways(np.mean(encoders[key]["metrics"]["identification"])) for key in drawn]
    esr = [ways(np.mean(row["metrics"]["esr"])) for row in rows_of("power-law")]
    theirs = [ways(row["published"]["esr"]) for row in rows_of("power-law")]
    page = (RESULTS.parent / "docs" / "results.md").read_text()
    assert_says(
        page.split("\n## The paper's claims")[0],
        f"({pair(points, *paper, 'and')}; the data {expert[points]}",
        f"({pair(vel, *paper, 'and')}; the data {expert[vel]}",
        f"half-cheetah-fwd-back ({pair(both, *paper, 'and')}), ant-fwd-back ({pair(ant, *paper, 'and')})",
        f"walker-2d-params ({pair(walker, *paper, 'and')})",
        f"({pair(wind, *paper, 'and')}; the data {expert[wind]}",
        f"({pair(points, 'FOCAL', bcq)} on sparse-point-robot, {pair(both, 'FOCAL', bcq)} on half-cheetah-fwd-back)",
        f"equal on point-robot-wind ({pair(wind, 'FOCAL', bcq)})",
        f"{pair(vel, 'FOCAL', bcq)} on half-cheetah-vel, {pair(ant, 'FOCAL', bcq)} on the ant, "
        f"{pair(walker, 'FOCAL', bcq)} on the walkers.",
        "{}, its dual form {}, cloning {}, Contextual BCQ {}, regularised Batch PEARL {}, MBML {}, Batch PEARL {}; the "
        "experts of these bodies {}.".format(*others, expert[walker]),
        f"FOCAL gets {on_experts[WALKERS, 'FOCAL']}, {ways(experts[WALKERS, 'FOCAL']['normalised'])} of the way to "
        f"the experts, and cloning {on_experts[WALKERS, cloning]};",
        "{} on half-cheetah-vel and {} on half-cheetah-fwd-back, {} on the ant and {} on the walkers; with it".format(
            *(of(family, "Batch PEARL")[0] for family in (vel, both, ant, walker))
        ),
        "with it {} and {}, {} and {}.".format(*(of(family, held)[0] for family in (vel, both, ant, walker))),
        f"half-cheetah-vel ({pair(vel, 'FOCAL', held)}), behind on half-cheetah-fwd-back ({pair(both, 'FOCAL', held)})",
        f"{pair(wind, 'FOCAL', cloning)} on point-robot-wind, and {pair(both, 'FOCAL', cloning)} on half-cheetah-fwd",
        f"half-cheetah-vel ({pair(vel, 'FOCAL', cloning, 'and')}), the ant ({pair(ant, 'FOCAL', cloning, 'and')}) "
        f"and the walkers ({pair(walker, 'FOCAL', cloning, 'and')}).",
        f"({pair(points, paper[0], cloning)}), and not with the strength",
        f"{on_experts[both, 'FOCAL']} on half-cheetah-fwd-back and {on_experts[ant, 'FOCAL']} on the ant, "
        f"where they have {expert[both]} and {expert[ant]}.",
        f"on the first ({on_experts[both, cloning]}), and not told from it on the second ({on_experts[ant, cloning]}).",
        "half-cheetah-vel** ({} against {}); on the walkers {} and {} are".format(
            *(shown(encoders[data, row]["mean"]["value"]) for data, row in np.array(drawn)[[0, 2, 1, 3]])
        ),
        "{0} against {2} of the contexts are nearest to their own task on half-cheetah-vel, {1} against {3} on".format(
            *told
        ),
        f"inverse powers {esr[0]} and {esr[1]}",
        f"linear and square {esr[2]} and {esr[3]} (the paper: {theirs[0]}, {theirs[1]}, {theirs[2]} and {theirs[3]})",
        f"sparse-point-robot ({pair(points, dual, 'FOCAL')})",
        f"({pair(wind, dual, 'FOCAL')})",
        f"half-cheetah-vel ({pair(vel, dual, 'FOCAL')}) and the walkers ({pair(walker, dual, 'FOCAL')}), {behind[0]}",
        f"({pair(both, dual, 'FOCAL')}) and {behind[1]} on the ant ({pair(ant, dual, 'FOCAL')})",
        "FOCAL comes {} and {} (half-cheetahs), {} (ant) and {} (walkers) of the way".format(*untuned),
    )
    assert [family for family, label in ahead.items() if label != bcq] == [walker] and ahead[walker] == "FOCAL"
    assert max(found[walker].values(), key=lambda row: row["mean"]["value"])["row"] == "FOCAL"
    (of_ants,) = (one for one in PUBLISHED if one["experiment"] == "comparison-ant-fwd-back")
    ways_of_ant = returns_of(of_ants)[ant, paper[0]].mean(0)
    trials = json.loads((RESULTS / "tuning" / "walker-2d-params.json").read_text())
    tried = {row: shown(max(one["return"] for one in trials if one["row"] == row)) for row in (bcq, "FOCAL")}
    # In comparisons, of seeds.
    lows = {
        label: sorted(found[family][label]["metrics"]["return"]) for family, label in ((ant, held), (walker, "FOCAL"))
    }
    assert_says(
        (RESULTS.parent / "docs" / "comparisons.md").read_text(),
        "BCQ {}, FOCAL {}, cloning {}. MBML has {}, behind".format(*of(ant, bcq, "FOCAL", cloning, "MBML")),
        "FOCAL has {} after 20,000 updates, {:.0f} forward and {:.0f} backward".format(
            *of(ant, paper[0]), *ways_of_ant
        ),
        f"Contextual BCQ was ahead: {tried[bcq]}, and FOCAL {tried['FOCAL']}.",
        "four seeds of {:.0f} to {:.0f} and one of {:.0f}.".format(*(lows[held][i] for i in (1, 4, 0))),
        "(FOCAL's lie between {:.0f} and {:.0f})".format(lows["FOCAL"][0], lows["FOCAL"][-1]),
    )
    assert_says(
        (RESULTS.parent / "docs" / "ablations.md").read_text(),
        "gets {}, the probabilistic one {}, Batch PEARL {} with the same regularisation and {} without;".format(
            *(shown(encoders[vel, row]["mean"]["value"]) for row in ENCODERS)
        ),
        "the same order**, {}, {}, {} and {},".format(
            *(shown(encoders[WALKERS, row]["mean"]["value"]) for row in ENCODERS)
        ),
        "{} are nearest to their own task, of Batch PEARL's {} and {}.".format(
            *(ways(np.mean(encoders[vel, row]["metrics"]["identification"])) for row in ENCODERS if row != drawn[2][1])
        ),
        "({}, {} with regularisation, {} without)".format(
            *(
                ways(np.mean(encoders[WALKERS, row]["metrics"]["identification"]))
                for row in ENCODERS
                if row != drawn[2][1]
            )
        ),
        f"from cloning, {on_experts[both, 'FOCAL']} against {on_experts[both, cloning]}.",
        f"gets {on_experts[WALKERS, 'FOCAL']} from expert logs and {others[0]} from mixed ones",
    )


@pytest.mark.parametrize(
    ("family", "better", "worse", "verdict"),
    [
        ("sparse-point-robot", "FOCAL, dual form", "FOCAL", HOLDS),
        ("point-robot-wind", "FOCAL, dual form", "FOCAL", EQUAL),
        ("half-cheetah-vel", "FOCAL, dual form", "FOCAL", UNDECIDED),
        ("half-cheetah-fwd-back", "FOCAL, dual form", "FOCAL", DOES_NOT),
        ("ant-fwd-back", "FOCAL, dual form", "FOCAL", DOES_NOT),
        ("walker-2d-params", "FOCAL, dual form", "FOCAL", UNDECIDED),
        ("sparse-point-robot", "FOCAL, the paper's numbers", "Contextual cloning", HOLDS),
        ("half-cheetah-vel", "Batch PEARL, regularised", "Batch PEARL", HOLDS),
        ("half-cheetah-fwd-back", "Batch PEARL, regularised", "Batch PEARL", HOLDS),
        ("ant-fwd-back", "Batch PEARL, regularised", "Batch PEARL", HOLDS),
        ("walker-2d-params", "Batch PEARL, regularised", "Batch PEARL", HOLDS),
    ],
)
def test_what_is_said_before_the_claims_and_is_none_has_the_verdict_that_it_says(family, better, worse, verdict):
    (results,) = (one for one in PUBLISHED if one["experiment"] == f"comparison-{family}")
    (found,) = judge([Claim("as the page says", "return", (better,), (worse,), "ours")], scored(results))
    assert found["verdict"] == verdict


# At which widths of the logged noise, and behind or ahead of what: all that the page says of breadth.
NEAR, FAR, CLONING = "Contextual BCQ, near the log", "Contextual BCQ, far from the log", "Contextual cloning"
FREE, HELD, PEARL = "FOCAL, not regularised", "FOCAL, regularised", "Batch PEARL"


def test_what_is_said_of_breadth_is_what_was_found():
    (results,) = (one for one in PUBLISHED if one["experiment"] == "breadth")
    rows = {(row["row"], float(row["data"].split()[-1])): row for row in results["rows"]}
    widths = sorted({width for _, width in rows})

    def of(width, *labels):
        return [f"{rows[label, width]['mean']['value']:.2f}" for label in labels]

    def verdict(better, worse, width):
        claim = Claim("as the page says", "return", (better,), (worse,), "ours", on=(rows[better, width]["data"],))
        (found,) = judge([claim], scored(results))
        return found["verdict"]

    assert all(verdict(free, CLONING, 0.05) == DOES_NOT for free in (FREE, PEARL, FAR, HELD))
    assert all(verdict(free, CLONING, width) == HOLDS for free in (FREE, PEARL, FAR) for width in (0.6, 1.0))
    assert [verdict(free, CLONING, 0.3) for free in (FAR, FREE, PEARL)] == [HOLDS, DOES_NOT, DOES_NOT]
    assert [verdict(NEAR, CLONING, width) for width in widths] == [UNDECIDED, *[HOLDS] * 4]
    best = [max((row["mean"]["value"], label) for (label, at), row in rows.items() if at == width) for width in widths]
    assert not any("FOCAL" in label for _, label in best)
    docs = RESULTS.parent / "docs"
    assert_says(
        (docs / "ablations.md").read_text(),
        "cloning gets {}, Contextual BCQ near the log {} and FOCAL with regularisation {},".format(
            *of(0.05, CLONING, NEAR, HELD)
        ),
        f"of the experts' {rows[CLONING, 0.05]['expert']:.2f}.",
        "gets nothing: {}, {} and {}.".format(*of(0.05, FREE, PEARL, FAR)),
        "Contextual BCQ {}, Batch PEARL {} and FOCAL {} are ahead of cloning, {}.".format(
            *of(0.6, FAR, PEARL, FREE, CLONING)
        ),
        "is already ({}); FOCAL and Batch PEARL are behind ({} and {})".format(*of(0.3, FAR, FREE, PEARL)),
    )
    (free,), (narrow,) = of(0.6, FREE), of(0.05, FREE)
    assert_says((docs / "results.md").read_text(), f"goes from {narrow} to {free} when the same experts are logged")
    assert_says(
        (RESULTS.parent / "README.md").read_text(),
        "and cloning gets {}.".format(*of(0.05, CLONING)),
        "those methods get {} to {}, cloning {}.".format(*of(0.6, FREE, FAR, CLONING)),
    )


def assert_says(page, *phrases):
    """However its lines are broken."""
    text = " ".join(page.split())
    for phrase in phrases:
        assert phrase in text


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
