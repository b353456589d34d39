"""The paper's experiments: complete and valid as data, planned as they should be, judged as by hand."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from omrl import cli
from omrl.algorithms import ALGORITHMS, about, get_algorithm, read_preset
from omrl.commands.train import OF_THE_RUN
from omrl.errors import OmrlError
from omrl.evaluation import stats
from omrl.families import FAMILIES
from omrl.reporting.tables import NONE
from omrl.runs.records import Curve
from omrl.studies import tabulating
from omrl.studies.cutting import Cut, Places
from omrl.studies.definitions import Claim, Data, Row, experiments, get_experiment, get_scale, read_study
from omrl.studies.judging import (
    DOES_NOT,
    EQUAL,
    HOLDS,
    LARGEST,
    UNDECIDED,
    Scored,
    across_families,
    almost_all,
    holm,
    judge,
    of_returns,
    q_growth,
    rate_of_differences,
    together,
    verdicts,
)
from omrl.studies.listing import COLUMNS, overview
from omrl.studies.planning import jobs, minutes, plan, updates
from omrl.units.place import Means
from omrl.units.schedule import Schedule
from omrl.units.unit import Outcome

ROOT = Path(__file__).resolve().parents[1]
NAMES = [
    *(f"comparison-{family}" for family in FAMILIES),
    "power-law",
    "deterministic-vs-probabilistic",
    "coupled-vs-decoupled",
    "embedding-3d",
    "distribution-shift",
    "q-divergence",
    "dml-vs-bellman",
    "breadth",
    "expert-data",
    "both-losses",
]
OURS = ("breadth", "expert-data", "both-losses")
SCALES = ("full", "small")


# -- the data ----------------------------------------------------------------------------------------------------------


def test_every_experiment_is_there():
    assert sorted(experiments()) == sorted(NAMES)
    for name, experiment in experiments().items():
        assert experiment.rows and experiment.data and experiment.claims and experiment.figures and experiment.tables
        assert experiment.name == name and experiment.title and (experiment.paper or name in OURS)


@pytest.mark.parametrize("name", NAMES)
def test_hyperparameters_are_those_of_the_algorithm(name):
    for scale in SCALES:
        for cell in plan(get_experiment(name), get_scale(scale)):
            kind = get_algorithm(cell.job.algorithm)
            preset = read_preset(cell.job.algorithm, cell.job.preset, cell.job.source.family)
            known = {field.name for field in fields(kind.Config)}
            assert dict(cell.job.changes).keys() <= known
            kind.Config(**{key: value for key, value in preset.items() if key in known})
            kind.Config(**dict(cell.job.changes))


def test_comparisons_have_the_papers_algorithms():
    for family in FAMILIES:
        experiment = get_experiment(f"comparison-{family}")
        assert {"focal", "batch-pearl", "contextual-bcq", "mbml"} <= {row.algorithm for row in experiment.rows}
        assert {data.family for data in experiment.data} == {family}
        assert {"return", "return-log"} <= set(experiment.figures)
        assert [row.preset for row in experiment.rows].count("paper") == 2
    assert [data.title for data in get_experiment("comparison-walker-2d-params").data] == ["walker-2d-params, 20/5"]


def test_the_paper_s_claims_are_about_the_rows_and_tasks_that_it_has():
    for family in FAMILIES:
        claims = get_experiment(f"comparison-{family}").claims
        tried, told = (claim for claim in claims if claim.whose == "paper")
        sparse = family == "sparse-point-robot"
        assert tried.worse == (("Batch PEARL",) if sparse else ("Batch PEARL", "Contextual BCQ", "MBML"))
        assert told.worse == ("Batch PEARL, the paper's numbers",)
        # The form of Batch PEARL that the paper has in its Figure 4 alone is compared on our own account.
        assert any("Batch PEARL, regularised" in claim.worse for claim in claims if claim.whose == "ours")


def test_ablations_are_those_of_the_paper():
    powers = [dict(row.changes).get("power", "inverse-square") for row in get_experiment("power-law").rows]
    assert powers == ["inverse-square", "inverse", "linear", "square"]
    # The embedding's length is that of the paper's table for this study.
    assert {dict(row.changes)["latent_dim"] for row in get_experiment("power-law").rows} == {5}
    assert read_preset("focal", "power-law", "half-cheetah-vel")["latent_dim"] == 5
    shift = [(row.level, row.context_level) for row in get_experiment("distribution-shift").rows]
    assert len(shift) == len(set(shift)) == 7
    # The q experiment is about the value penalty on the ant and policy regularisation on the walker.
    for family, regularisation in (("ant-fwd-back", "value"), ("walker-2d-params", "policy")):
        assert family in {data.family for data in get_experiment("q-divergence").data}
        config = get_algorithm("focal").Config(
            **{k: v for k, v in read_preset("focal", "paper", family).items() if k not in OF_THE_RUN}
        )
        assert config.regularisation == regularisation


def test_costs_and_small_sizes_are_there_for_every_algorithm():
    for name in ALGORITHMS:
        assert set(about(name, "cost")) == set(SCALES)
        assert about(name, "small") and get_algorithm(name).Config(**about(name, "small"))
    assert get_scale("small").note and not get_scale("full").note


ROW = "Batch PEARL, the paper's numbers"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda: {"figures": ("pie",)}, "figures .*'pie'"),
        (lambda: {"rows": (Row("a", "nothing"),)}, "algorithm 'nothing'"),
        (lambda: {"data": (Data("ant-fwd-back", "large"),)}, "no split 'large'"),
        (lambda: {"data": (Data("ant-fwd"),)}, "no family 'ant-fwd'"),
        (lambda: {"data": (Data(),)}, "of a family or has a path"),
        (lambda: {"claims": (Claim("text", "return", (ROW,), ("b",)),)}, "row 'b'"),
        (lambda: {"claims": (Claim("text", "return", (ROW,), (ROW,), "nobody's"),)}, "whose cannot be"),
        (lambda: {"claims": (Claim("text", "return", (ROW,), (ROW,), split="large"),)}, "split 'large'"),
        (lambda: {"rows": (Row("FOCAL", "focal"), Row("FOCAL", "focal")), "claims": ()}, "label twice"),
    ],
)
def test_an_experiment_that_names_what_is_not_there_is_refused(changes, message):
    with pytest.raises(OmrlError, match=message):
        replace(get_experiment("q-divergence"), **changes())


# -- the list ----------------------------------------------------------------------------------------------------------


def test_list_needs_no_torch():
    code = (
        "import sys; sys.argv = ['omrl', 'paper', 'list']\n"
        "from omrl.cli import main; main()\n"
        "print([name for name in ('torch', 'mujoco', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for name in NAMES:
        line = next(line for line in done.stdout.splitlines() if f" {name} " in line)
        assert all(row.label in line for row in get_experiment(name).rows)


def test_page_lists_experiments_and_the_comparisons_they_are_judged_by():
    text = (ROOT / "docs" / "paper.md").read_text()
    for line in overview():
        assert f"| {' | '.join(line)} |" in text, "run python tools/tables.py"
    for experiment in experiments().values():
        for claim in experiment.claims:
            line = f"| {experiment.name} | {claim.whose} | {claim.text} | {claim.comparison} |"
            assert line in text, "run python tools/tables.py"
    assert f"| {' | '.join(COLUMNS)} |" in text
    assert len(re.findall(r"^\| [\w-]+ \| (?:paper|ours) \| \w.*>", text, flags=re.MULTILINE)) == sum(
        len(experiment.claims) for experiment in experiments().values()
    )


def test_an_unknown_name_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["omrl", "paper", "run", "nothing"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("error: There is no experiment 'nothing'; there are comparison-")


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_plan_has_every_row_on_every_data_set_and_each_run_once():
    full = get_scale("full")
    for name, cells, runs in [("comparison-walker-2d-params", 9, 9), ("distribution-shift", 7, 3)]:
        planned = plan(get_experiment(name), full)
        assert (len(planned), len(jobs(planned))) == (cells, runs)
    levels = [cell.job.level for cell in plan(get_experiment("distribution-shift"), full)]
    assert levels == ["expert", "medium", "random", "expert", "expert", "medium", "medium"]


def test_experiments_share_runs():
    def runs(name, scale="full", seeds=None):
        return set(jobs(plan(get_experiment(name), get_scale(scale), seeds)))

    for scale in SCALES:
        assert runs("embedding-3d", scale) < runs("deterministic-vs-probabilistic", scale)
        both = runs("deterministic-vs-probabilistic", scale) & runs("comparison-walker-2d-params", scale)
        assert len(both) == 3
    assert not runs("power-law") & runs("comparison-half-cheetah-vel")
    assert not runs("power-law", seeds=3) & runs("power-law")
    assert runs("dml-vs-bellman") < runs("comparison-sparse-point-robot")


def test_small_scale_stands_point_robots_for_the_others_with_their_presets():
    cells = plan(get_experiment("q-divergence"), get_scale("small"))
    assert [cell.job.source.family for cell in cells] == ["sparse-point-robot"] * 3 + ["point-robot-wind"] * 3
    ant = dict(cells[0].job.changes)
    assert (ant["regularisation"], ant["alpha"], ant["latent_dim"], ant["hidden"]) == ("value", 1e6, 20, (64, 64))
    assert cells[0].job.level == "mixed" and cells[0].job.seeds == 2
    assert cells[0].title == "ant-fwd-back (sparse-point-robot for it)"
    assert cells[0].job.source.folder == "small/sparse-point-robot"


def test_cost_counts_updates_seeds_rows_discriminator_steps_and_first_stages():
    costs, around = {name: about(name, "cost")["full"] for name in ALGORITHMS}, read_study().around["full"]

    def expected(name, updates, seeds, rows, steps=1):
        first, further = costs[name]["first"], costs[name]["further"]
        # Of one seed at the paper's 16 x 256 rows: what was measured.
        milliseconds = updates * (first - further + further * seeds * rows / (16 * 256)) * {1: 1.0, 3: 1.9}[steps]
        return milliseconds / 60_000 + around

    def found(experiment, seeds):
        planned = plan(get_experiment(experiment), get_scale("full"), seeds)
        return {cell.row.label: minutes([cell.job], "full", around) for cell in planned}

    wanted = jobs(plan(get_experiment("dml-vs-bellman"), get_scale("full"), 1))
    assert [updates(job) for job in wanted] == [20_000] * 4
    points = found("dml-vs-bellman", 2)
    assert minutes(wanted, "full", around) == pytest.approx(sum(found("dml-vs-bellman", 1).values()))
    # Not regularised, there is no discriminator that would make its three steps.
    assert points["FOCAL, the paper's numbers"] == pytest.approx(expected("focal", 20_000, 2, 16 * 256))
    assert points["FOCAL"] == pytest.approx(expected("focal", 20_000, 2, 16 * 64))
    vel = found("comparison-half-cheetah-vel", 3)
    assert vel["FOCAL, the paper's numbers"] == pytest.approx(expected("focal", 20_000, 3, 16 * 256, steps=3))
    stage = 10_000 * 80 * 3 * costs["mbml"]["stage"] / 60_000
    assert vel["MBML"] == pytest.approx(expected("mbml", 20_000, 3, 10 * 100) + stage)


# -- the verdict -------------------------------------------------------------------------------------------------------


def measured(value, error, freedom=10.0):
    return stats.Measured(np.array(value), np.array(error), np.array(freedom))


def test_verdicts_by_hand():
    # With 10 degrees of freedom a 95 % interval reaches 2.23 standard errors to both sides, one of 90 % 1.81.
    for one, zone, wanted in (
        (measured(2.3, 1.0), None, HOLDS),
        (measured(2.2, 1.0), None, UNDECIDED),
        (measured(-2.3, 1.0), None, DOES_NOT),
        (measured(-2.2, 1.0), None, UNDECIDED),
        (measured(0.0, 1.0), 1.82, EQUAL),
        (measured(0.0, 1.0), 1.80, UNDECIDED),
        (measured(-0.1, 0.01), 0.2, EQUAL),  # below zero, and still of no matter
        (measured(0.0, 0.0), 0.1, EQUAL),  # no spread at all
        (measured(0.5, 0.0), 0.1, HOLDS),
        (measured(5.0, np.inf, 1.0), 0.1, UNDECIDED),  # one seed
    ):
        assert verdicts([one], [zone]) == [wanted], one


def test_refutations_are_corrected_for_the_number_of_comparisons_and_confirmations_are_not():
    just, far = measured(-2.3, 1.0), measured(-5.0, 1.0)
    assert verdicts([just, measured(2.3, 1.0)]) == [UNDECIDED, HOLDS]
    assert verdicts([just, far]) == [DOES_NOT, DOES_NOT]  # after the first one, one fewer is left
    assert holm([0.03, 0.001, 0.5, 0.012], 0.05) == [False, True, False, True]
    assert holm([], 0.05) == []


def test_a_claim_is_worth_what_its_weakest_comparison_is():
    assert together([HOLDS, HOLDS]) == HOLDS
    assert together([HOLDS, EQUAL]) == together([EQUAL, EQUAL]) == EQUAL
    assert together([HOLDS, EQUAL, UNDECIDED]) == UNDECIDED
    assert together([HOLDS, UNDECIDED, DOES_NOT]) == DOES_NOT


def test_almost_all_families_are_all_but_one():
    assert almost_all([HOLDS] * 6) == almost_all([HOLDS] * 5 + [DOES_NOT]) == HOLDS
    assert almost_all([HOLDS] * 4 + [DOES_NOT, EQUAL]) == DOES_NOT
    assert almost_all([HOLDS] * 4 + [DOES_NOT, UNDECIDED]) == UNDECIDED
    assert almost_all([UNDECIDED] * 6) == UNDECIDED


def test_the_sentence_on_all_families_leaves_out_our_own_claims_and_waits_for_all_of_them():
    def results(family, **verdicts_of):
        claims = [{"claim": "A.", "whose": whose, "verdict": verdict} for whose, verdict in verdicts_of.items()]
        return {"experiment": f"comparison-{family}", "claims": claims}

    families = list(FAMILIES)
    five = [results(family, paper=HOLDS, ours=DOES_NOT) for family in families[:5]]
    (found,) = across_families(five)
    assert found["verdict"] == HOLDS and found["families"][families[5]] is None
    (four,) = across_families(five[:4])
    assert four["verdict"] == UNDECIDED
    lost = [results(family, paper=DOES_NOT) for family in families[4:]]
    (lost_two,) = across_families([*five[:4], *lost])
    assert lost_two["verdict"] == DOES_NOT


def test_growth_of_q_by_hand():
    steps = np.arange(10, 1010, 10)
    steady, ten_times = np.full(100, -50.0), np.where(steps > 900, 1e4, 1e3)
    broken = np.where(steps > 900, np.nan, 1.0)
    curve = Curve(steps, steps, np.stack([steady, ten_times, broken]))
    growth = q_growth(curve, [False] * 3)
    assert growth.shape == (3, 1)
    assert growth[:2, 0] == pytest.approx([0.0, 1.0]) and growth[2, 0] > 38
    # Three looks, none of them in the tenth around half-way: the nearest counts.
    few = np.array([100, 400, 700])
    found = q_growth(Curve(few, few, np.array([[1.0, 10.0, np.nan]])), [False])
    assert found == pytest.approx(np.log10(LARGEST))
    # One that stopped before half-way stands still, as one that converged does: it has grown without bounds.
    stopped = np.stack([steady, np.where(steps < 300, 2.0, 1e19)])
    assert q_growth(Curve(steps, steps, stopped), [False, True])[:, 0] == pytest.approx([0.0, np.log10(LARGEST / 2.0)])
    no_number = np.where(steps < 300, 2.0, np.nan)[None]
    assert q_growth(Curve(steps, steps, no_number), [False]) == pytest.approx(np.log10(LARGEST / 2.0))
    never = np.full((1, 100), np.nan)
    for stopped in (True, False):
        assert q_growth(Curve(steps, steps, never), [stopped]) == pytest.approx(np.log10(LARGEST))


def test_where_no_seed_s_q_was_a_number_at_the_end_the_table_shows_none():
    row = {"data": "ants", "row": "Batch PEARL", "metrics": {"q_growth": [37.0]}, "q": {"end": None, "largest": 2e30}}
    assert tabulating.q([row]).rows == (("ants", "Batch PEARL", NONE, "2e+30", "37.00"),)


@pytest.mark.parametrize("in_order", [True, False])
def test_experiments_are_finished_in_the_order_in_which_they_are_named(tmp_path, in_order):
    scale = get_scale("full")
    names = ["dml-vs-bellman", "q-divergence", "comparison-sparse-point-robot"]
    planned = [(get_experiment(name), plan(get_experiment(name), scale)) for name in names]
    (tmp_path / "policies" / "ant-fwd-back").mkdir(parents=True)
    places = Places(tmp_path / "out", tmp_path / "data", tmp_path / "policies")
    cut = Cut(planned, ("full", scale), 1.0, places, Means(1, 0.2, "cuda"), {}, in_order=in_order)
    units = {unit.name: unit for unit in cut.units}
    # Policies of the ants are there, the other agents have to be trained; nothing else but runs needs a GPU.
    on_gpu = {unit.name for unit in cut.units if unit.gpu}
    assert on_gpu == {name for name in units if name.startswith("train ")} | {
        "data sparse-point-robot",
        "data walker-2d-params",
    }
    rank = {name: units[f"draw {name}"].rank for name in names}
    assert rank == dict(zip(names, range(3) if in_order else [0] * 3, strict=True))
    for name, unit in units.items():
        for before in unit.after:  # a run that two experiments share is of the first
            assert units[before].rank <= unit.rank, name
    if in_order:
        schedule, done = Schedule(cut.units), []
        while not schedule.over:
            done.append(schedule.next(lambda gpu: True).name)
            schedule.end(done[-1], Outcome("done"))
        trained = [units[name].rank for name in done if name.startswith("train ")]
        assert trained == sorted(trained) and {*trained} == {0, 1, 2}


def scored(label, scores, data="ant-fwd-back", split="paper", way=None):
    return Scored(Data(data, split), f"{data}, {split}", label, {"return": np.array(scores, dtype=float)}, way)


def test_a_claim_is_judged_on_all_data_by_each_pair_of_its_rows():
    claim = Claim("A is best.", "return", ("FOCAL",), ("Batch PEARL",))
    ahead = [scored("FOCAL", [[5, 7], [6, 8], [7, 9]]), scored("Batch PEARL", [[0, 0], [1, 1]])]
    (found,) = judge([claim], ahead)
    assert (found["verdict"], found["whose"]) == (HOLDS, "paper")
    (one,) = found["comparisons"]
    assert one["difference"] == pytest.approx(
        vars(stats.difference(*(row.metrics["return"] for row in ahead), new_tasks=False).interval())
    )
    assert one["zone"] is None and one["detectable"] is None
    behind = [
        scored("FOCAL", [[0, 0], [1, 1]], "walker-2d-params"),
        scored("Batch PEARL", [[9, 9], [8, 8]], "walker-2d-params"),
    ]
    (found,) = judge([claim], [*ahead, *behind])
    assert [one["verdict"] for one in found["comparisons"]] == [HOLDS, DOES_NOT] and found["verdict"] == DOES_NOT


def test_two_tests_of_the_same_seeds_are_pairs_and_those_of_two_runs_are_not():
    claim = Claim("A is best.", "return", ("A",), ("B",))
    rng = np.random.default_rng(0)
    theirs = rng.normal(0, 10, (5, 1)) + rng.normal(0, 0.1, (5, 6))
    ours = theirs + 1 + rng.normal(0, 0.1, (5, 6))
    apart = [scored("A", ours), scored("B", theirs)]
    (found,) = judge([claim], apart)
    assert found["verdict"] == UNDECIDED
    (found,) = judge([claim], [replace(row, run="runs/a") for row in apart])
    (one,) = found["comparisons"]
    assert found["verdict"] == HOLDS
    assert one["difference"] == pytest.approx(vars(stats.mean(ours - theirs, new_tasks=True).interval()))
    (found,) = judge([claim], [replace(row, run=f"runs/{row.label}") for row in apart])
    assert found["verdict"] == UNDECIDED


def test_a_claim_may_be_about_one_data_set():
    rows = [
        Scored(
            Data("sparse-point-robot", action_std=std),
            f"std {std}",
            label,
            {"return": np.array([[v], [v + 1.0]])},
            None,
        )
        for std in (0.1, 0.6)
        for label, v in (("A", 9), ("B", 0))
    ]
    about = ("sparse-point-robot, action std 0.6",)
    (found,) = judge([Claim("A is best.", "return", ("A",), ("B",), "ours", on=about)], rows)
    assert [one["data"] for one in found["comparisons"]] == ["std 0.6"]


def test_a_claim_on_one_split_leaves_out_the_others():
    rows = [
        scored(label, [[v], [v + 1]], "walker-2d-params", split)
        for split in ("paper", "large")
        for label, v in (("A", 9), ("B", 0))
    ]
    (found,) = judge([Claim("A is best.", "return", ("A",), ("B",), "ours", "large")], rows)
    assert [one["data"] for one in found["comparisons"]] == ["walker-2d-params, large"] and found["whose"] == "ours"


def test_returns_are_equal_by_their_share_of_the_way_to_the_expert():
    scores = [[10.0, 12.0], [10.1, 12.1], [10.2, 12.2]]
    claim = Claim("A is best.", "return", ("A",), ("B",))
    for way, verdict in ((100.0, EQUAL), (-100.0, EQUAL), (1.0, UNDECIDED), (None, UNDECIDED)):
        (found,) = judge([claim], [scored(label, scores, way=way) for label in "AB"])
        assert found["verdict"] == verdict
        (one,) = found["comparisons"]
        assert one["zone"] == (None if way is None else pytest.approx(0.02 * abs(way)))
        assert (one["detectable"] is None) == (verdict == EQUAL)
    assert of_returns(np.array(scores), {"random": 0.0, "expert": 22.2})["normalised"] == pytest.approx(0.5)
    assert of_returns(np.array(scores), {"random": None})["normalised"] is None


def test_seeds_of_one_configuration_are_told_apart_as_seldom_as_they_should_be():
    rng = np.random.default_rng(0)
    rates = []
    for _ in range(40):
        scores = rng.normal(size=(20, 1)) + 0.3 * rng.normal(size=(20, 6)) + 5 * rng.normal(size=6)
        rates.append(rate_of_differences(scores, rng, new_tasks=True, zone=None, splits=100))
    assert 0.01 < np.mean(rates) < 0.065
    assert rate_of_differences(scores, rng, new_tasks=True, zone=10.0, splits=20) == 0
    with pytest.raises(ValueError, match="9 seeds cannot be split into two groups of 5"):
        rate_of_differences(scores[:9], rng, new_tasks=True, zone=None)
