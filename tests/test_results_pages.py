"""What pages say of results in sentences is what was found."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from pages.speed import returns_in
from publish import TRAINING

from omrl.evaluation import stats
from omrl.families import FAMILIES
from omrl.runs.records import read_scores
from omrl.studies.definitions import Claim
from omrl.studies.judging import DOES_NOT, EQUAL, HOLDS, UNDECIDED, judge
from results_helpers import PUBLISHED, RESULTS, assert_says, results_of, returns_of, scored

DOCS, README = RESULTS.parent / "docs", RESULTS.parent / "README.md"
# Those that the claim "all with as many trials" is about.
AS_MANY_TRIALS = ("FOCAL", "Batch PEARL", "Contextual BCQ", "MBML")
PAPERS = ("FOCAL, the paper's numbers", "Batch PEARL, the paper's numbers")
BCQ, CLONING, DUAL, REGULARISED = (
    AS_MANY_TRIALS[2],
    "Contextual cloning",
    "FOCAL, dual form",
    "Batch PEARL, regularised",
)
ENCODERS = ("FOCAL", "FOCAL, probabilistic", REGULARISED, "Batch PEARL")
points, wind, vel, both, ant, walker = FAMILIES
WALKERS = "walker-2d-params, 20/5"


def shown(value, like=None):
    """As a page shows it, with as many digits as another of its family."""
    return f"{value:.2f}" if abs(value if like is None else like) < 20 else f"{value:.0f}"


def ways(number):
    """A normalised return, or a share, as a page shows it."""
    return f"{number:.2f}"


def rows_of(experiment):
    """The rows of an experiment, by their data and label."""
    return {(row["data"], row["row"]): row for row in results_of(experiment)["rows"]}


COMPARED = {
    one["rows"][0]["family"]: {row["row"]: row for row in one["rows"]}
    for one in PUBLISHED
    if one["experiment"].startswith("comparison-")
}
EXPERT = {family: shown(rows["FOCAL"]["expert"]) for family, rows in COMPARED.items()}


def of(family, *labels):
    """Mean returns in a family's comparison."""
    return [shown(row["mean"]["value"], row["expert"]) for row in map(COMPARED[family].get, labels)]


def pair(family, first, second, word="against"):
    return f" {word} ".join(of(family, first, second))


def mean_of(rows, data, label):
    return shown(rows[data, label]["mean"]["value"])


def told(rows, data, label):
    """The share of contexts that are nearest to their own task."""
    return ways(np.mean(rows[data, label]["metrics"]["identification"]))


def of_twenty_walkers():
    """Returns [seed, body] of FOCAL as it is compared, in as many seeds as half precision was judged by."""
    scores = read_scores(RESULTS / "half" / "walker-2d-params-focal-bfloat16" / "scores.csv")
    return scores.returns.mean(-1)


def test_twenty_seeds_of_walkers_are_told_from_batch_pearl_and_from_the_five_on_expert_logs_alone():
    twenty, compared = of_twenty_walkers(), returns_of(results_of("comparison-walker-2d-params"))
    assert len(twenty) == 20
    others = {label: compared[WALKERS, label] for label in (*AS_MANY_TRIALS[1:], REGULARISED, CLONING, DUAL)}
    told_from = {
        label: stats.difference(twenty, own, new_tasks=True).interval().low > 0 for label, own in others.items()
    }
    assert [label for label, apart in told_from.items() if apart] == ["Batch PEARL"]
    experts = stats.difference(returns_of(results_of("expert-data"))[WALKERS, "FOCAL"], twenty, new_tasks=True)
    said = f"by {experts.interval().text(0)}; that was not planned."
    assert_says((DOCS / "ablations.md").read_text(), f"({twenty.mean():.0f}) the five on expert logs are told, {said}")
    assert_says((DOCS / "comparisons.md").read_text(), f"of the same settings have {twenty.mean():.0f},")
    assert_says(README.read_text(), f"with {twenty.mean():.0f}, no more.")


def test_half_precision_costs_less_than_the_margin_but_for_the_unseen_walkers():
    (margin,) = re.findall(r"lie inside (0\.\d\d)", (DOCS / "speed.md").read_text())
    decided = {}
    for full in sorted((RESULTS / "half").glob("*")):
        half = full.with_name(f"{full.name}-bfloat16")
        for name in ("scores", TRAINING) if half.is_dir() else ():
            if not (full / f"{name}.csv").is_file():
                continue
            splits = ("scores",) if name == "scores" else ("scores", TRAINING)
            shares = [returns_in({"folder": folder}, splits)[1] for folder in (half, full)]
            found = stats.difference(*shares, new_tasks=False).interval()
            decided[full.name, name] = -float(margin) < found.low and found.high < float(margin)
    assert len(decided) == 6
    assert [key for key, inside in decided.items() if not inside] == [("walker-2d-params-focal", "scores")]


def test_the_page_of_results_says_before_the_claims_what_was_found():
    untuned = [ways(COMPARED[family][PAPERS[0]]["normalised"]) for family in (vel, both, ant, walker)]
    behind = [ways(COMPARED[one]["FOCAL"]["normalised"] - COMPARED[one][DUAL]["normalised"]) for one in (both, ant)]
    others = of(walker, "FOCAL", DUAL, CLONING, BCQ, REGULARISED, "MBML", "Batch PEARL")
    experts, encoders = rows_of("expert-data"), rows_of("deterministic-vs-probabilistic")
    gradients, shift = rows_of("coupled-vs-decoupled"), rows_of("distribution-shift")
    distances = rows_of("dml-vs-bellman")
    powers = rows_of("power-law").values()
    esr = [ways(np.mean(row["metrics"]["esr"])) for row in powers]
    theirs = [ways(row["published"]["esr"]) for row in powers]
    assert_says(
        (DOCS / "results.md").read_text().split("\n## The paper's claims")[0],
        f"({pair(points, *PAPERS, 'and')}; the data {EXPERT[points]}",
        f"({pair(vel, *PAPERS, 'and')}; the data {EXPERT[vel]}",
        f"half-cheetah-fwd-back ({pair(both, *PAPERS, 'and')}), ant-fwd-back ({pair(ant, *PAPERS, 'and')})",
        f"walker-2d-params ({pair(walker, *PAPERS, 'and')})",
        f"({pair(wind, *PAPERS, 'and')}; the data {EXPERT[wind]}",
        f"({pair(points, 'FOCAL', BCQ)} on sparse-point-robot, {pair(both, 'FOCAL', BCQ)} on half-cheetah-fwd-back)",
        f"equal on point-robot-wind ({pair(wind, 'FOCAL', BCQ)})",
        f"{pair(vel, 'FOCAL', BCQ)} on half-cheetah-vel, {pair(ant, 'FOCAL', BCQ)} on the ant, "
        f"{pair(walker, 'FOCAL', BCQ)} on the walkers.",
        "{}, its dual form {}, cloning {}, Contextual BCQ {}, regularised Batch PEARL {}, MBML {}, Batch PEARL {}; the "
        "experts of these bodies {}.".format(*others, EXPERT[walker]),
        f"FOCAL gets {mean_of(experts, WALKERS, 'FOCAL')}, {ways(experts[WALKERS, 'FOCAL']['normalised'])} of the way "
        f"to the experts, and cloning {mean_of(experts, WALKERS, CLONING)};",
        "{} on half-cheetah-vel and {} on half-cheetah-fwd-back, {} on the ant and {} on the walkers; with it".format(
            *(of(family, "Batch PEARL")[0] for family in (vel, both, ant, walker))
        ),
        "with it {} and {}, {} and {}.".format(*(of(family, REGULARISED)[0] for family in (vel, both, ant, walker))),
        f"half-cheetah-vel ({pair(vel, 'FOCAL', REGULARISED)}), behind on half-cheetah-fwd-back "
        f"({pair(both, 'FOCAL', REGULARISED)})",
        f"{pair(wind, 'FOCAL', CLONING)} on point-robot-wind, and {pair(both, 'FOCAL', CLONING)} on half-cheetah-fwd",
        f"half-cheetah-vel ({pair(vel, 'FOCAL', CLONING, 'and')}), the ant ({pair(ant, 'FOCAL', CLONING, 'and')}) "
        f"and the walkers ({pair(walker, 'FOCAL', CLONING, 'and')}).",
        f"({pair(points, PAPERS[0], CLONING)}), and not with the strength",
        f"{mean_of(experts, both, 'FOCAL')} on half-cheetah-fwd-back and {mean_of(experts, ant, 'FOCAL')} on the ant, "
        f"where they have {EXPERT[both]} and {EXPERT[ant]}.",
        f"on the first ({mean_of(experts, both, CLONING)}), and not told from it on the second "
        f"({mean_of(experts, ant, CLONING)}).",
        "half-cheetah-vel** ({} against {}); on the walkers {} and {} are".format(
            *(mean_of(encoders, data, row) for data in (vel, WALKERS) for row in ENCODERS[:2])
        ),
        "{} against {} of the contexts are nearest to their own task on half-cheetah-vel, {} against {} on".format(
            *(told(encoders, data, row) for data in (vel, WALKERS) for row in ENCODERS[:2])
        ),
        f"inverse powers {esr[0]} and {esr[1]}",
        f"linear and square {esr[2]} and {esr[3]} (the paper: {theirs[0]}, {theirs[1]}, {theirs[2]} and {theirs[3]})",
        "{} against {} in dual form, {} against {} in closed form.".format(
            *(
                mean_of(gradients, WALKERS, f"Value penalty, {how}")
                for how in ("decoupled", "coupled", "closed form, decoupled", "closed form, coupled")
            )
        ),
        f"finds the body of {told(gradients, WALKERS, 'Value penalty, coupled')} of the contexts in dual form;",
        "policy's loss alone {} and {} are undecided".format(
            *(mean_of(gradients, WALKERS, f"Policy regularisation, {how}") for how in ("decoupled", "coupled"))
        ),
        "FOCAL is ahead, {} against {}; with as many trials Batch PEARL is, {} against {}, and tells all".format(
            *(mean_of(distances, points, label) for label in (*PAPERS, "Batch PEARL", "FOCAL"))
        ),
        f"tells all contexts apart, FOCAL {told(distances, points, 'FOCAL')} of them.",
        "where it is medium data, {} against {}, and {} where it is random.".format(
            *(mean_of(shift, points, f"expert, {level}") for level in ("medium", "expert", "random"))
        ),
        f"of the same settings have {of_twenty_walkers().mean():.0f}, and do no more.",
        f"sparse-point-robot ({pair(points, DUAL, 'FOCAL')})",
        f"({pair(wind, DUAL, 'FOCAL')})",
        f"half-cheetah-vel ({pair(vel, DUAL, 'FOCAL')}) and the walkers ({pair(walker, DUAL, 'FOCAL')}), {behind[0]}",
        f"({pair(both, DUAL, 'FOCAL')}) and {behind[1]} on the ant ({pair(ant, DUAL, 'FOCAL')})",
        "FOCAL comes {} and {} (half-cheetahs), {} (ant) and {} (walkers) of the way".format(*untuned),
    )


def test_contextual_bcq_has_the_highest_mean_on_all_families_but_the_walkers():
    ahead = {
        family: max(AS_MANY_TRIALS, key=lambda label, own=rows: own[label]["mean"]["value"])
        for family, rows in COMPARED.items()
    }
    assert ahead == dict.fromkeys(FAMILIES, BCQ) | {walker: "FOCAL"}
    assert max(COMPARED[walker].values(), key=lambda row: row["mean"]["value"])["row"] == "FOCAL"
    assert_says(README.read_text(), f"FOCAL has the highest mean ({of(walker, 'FOCAL')[0]})")


def verdict_on(family, better, worse):
    """That of a comparison as it is published, corrected for those that are judged with it."""
    claims = results_of(f"comparison-{family}")["claims"]
    (found,) = (
        one["verdict"]
        for claim in claims
        for one in claim["comparisons"]
        if (one["better"], one["worse"]) == (better, worse)
    )
    return found


def test_with_as_many_trials_focal_is_ahead_of_all_others_on_no_family():
    assert {family: verdict_on(family, "FOCAL", BCQ) for family in FAMILIES} == {
        **dict.fromkeys((points, both), DOES_NOT),
        wind: EQUAL,
        **dict.fromkeys((vel, ant, walker), UNDECIDED),
    }
    assert [verdict_on(walker, "FOCAL", label) for label in ("Batch PEARL", "MBML", REGULARISED, CLONING)] == [
        HOLDS,
        *[UNDECIDED] * 3,
    ]
    assert verdict_on(ant, "FOCAL", "MBML") == HOLDS


def test_with_the_paper_s_numbers_focal_is_ahead_of_batch_pearl_on_five_families_and_equal_on_the_sixth():
    found = {family: verdict_on(family, *PAPERS) for family in FAMILIES}
    assert found == dict.fromkeys(FAMILIES, HOLDS) | {wind: EQUAL}


def test_on_the_walkers_expert_logs_are_not_told_from_mixed_ones():
    mixed, expert = returns_of(results_of("comparison-walker-2d-params")), returns_of(results_of("expert-data"))
    pairs = [(expert[WALKERS, label], mixed[WALKERS, label]) for label in ("FOCAL", CLONING)]
    pairs.append((expert[WALKERS, "FOCAL"], expert[WALKERS, CLONING]))
    for first, second in pairs:
        between = stats.difference(first, second, new_tasks=True).interval()
        assert between.low < 0 < between.high


def test_the_page_of_comparisons_says_what_was_found():
    forward, backward = returns_of(results_of("comparison-ant-fwd-back"))[ant, PAPERS[0]].mean(0)
    trials = json.loads((RESULTS / "tuning" / "walker-2d-params.json").read_text())
    best = [shown(max(one["return"] for one in trials if one["row"] == row)) for row in (BCQ, "FOCAL")]
    held = sorted(COMPARED[ant][REGULARISED]["metrics"]["return"])
    focal = sorted(COMPARED[walker]["FOCAL"]["metrics"]["return"])
    assert_says(
        (DOCS / "comparisons.md").read_text(),
        "BCQ {}, FOCAL {}, cloning {}. MBML has {}, behind".format(*of(ant, BCQ, "FOCAL", CLONING, "MBML")),
        f"FOCAL has {of(ant, PAPERS[0])[0]} after 20,000 updates, {forward:.0f} forward and {backward:.0f} backward",
        f"Contextual BCQ was ahead: {best[0]}, and FOCAL {best[1]}.",
        f"four seeds of {held[1]:.0f} to {held[4]:.0f} and one of {held[0]:.0f}.",
        f"(FOCAL's lie between {focal[0]:.0f} and {focal[-1]:.0f})",
    )


def test_the_page_of_ablations_says_what_was_found_of_encoders_and_expert_data():
    experts, encoders = rows_of("expert-data"), rows_of("deterministic-vs-probabilistic")
    assert_says(
        (DOCS / "ablations.md").read_text(),
        "gets {}, the probabilistic one {}, Batch PEARL {} with the same regularisation and {} without;".format(
            *(mean_of(encoders, vel, row) for row in ENCODERS)
        ),
        "the same order**, {}, {}, {} and {},".format(*(mean_of(encoders, WALKERS, row) for row in ENCODERS)),
        "{} are nearest to their own task, of Batch PEARL's {} and {}.".format(
            *(told(encoders, vel, row) for row in ("FOCAL", *ENCODERS[2:]))
        ),
        "({}, {} with regularisation, {} without)".format(
            *(told(encoders, WALKERS, row) for row in ("FOCAL", *ENCODERS[2:]))
        ),
        "{} and {} of its contexts".format(*(told(encoders, data, ENCODERS[1]) for data in (vel, WALKERS))),
        f"from cloning, {mean_of(experts, both, 'FOCAL')} against {mean_of(experts, both, CLONING)}.",
        f"gets {mean_of(experts, WALKERS, 'FOCAL')} from expert logs and {of(walker, 'FOCAL')[0]} from mixed ones",
    )


def test_the_page_of_ablations_says_what_was_found_of_the_critic_s_gradients_and_of_distances():
    rows, distances = rows_of("coupled-vs-decoupled"), rows_of("dml-vs-bellman")
    value, closed, policy = "Value penalty", "Value penalty, closed form", "Policy regularisation"

    def coupled(how, first="coupled", then="decoupled"):
        return [mean_of(rows, WALKERS, f"{how}, {end}") for end in (first, then)]

    def apart(how):
        return [ways(np.mean(rows[WALKERS, f"{how}, {end}"]["metrics"]["esr"])) for end in ("coupled", "decoupled")]

    assert max(rows[WALKERS, f"{closed}, coupled"]["metrics"]["rms"]) < 0.001
    assert {told(rows, WALKERS, f"{policy}, {end}") for end in ("coupled", "decoupled")} == {"1.00"}
    assert told(rows, WALKERS, f"{closed}, coupled") == ways(1 / 20)
    assert_says(
        (DOCS / "ablations.md").read_text(),
        "as the paper says**: {} against {} in the dual form,".format(*coupled(value)),
        "dual form, and {} against {} in closed form.".format(*coupled(closed)),
        f"In the dual form {apart(value)[0]} of the pairs",
        f"than random points, where decoupled {apart(value)[1]} are",
        f"{told(rows, WALKERS, f'{value}, coupled')} of the contexts still find their body.",
        f"contexts find theirs by chance ({told(rows, WALKERS, f'{closed}, coupled')}).",
        "apart**: {} coupled, {} decoupled.".format(*coupled(policy)),
        "less spread out ({} of the pairs, and {})".format(*apart(policy)),
        "gets more**, {} against {}, as says a draft".format(*(mean_of(distances, points, label) for label in PAPERS)),
        "is undecided: {} and {} of the contexts".format(*(told(distances, points, label) for label in PAPERS)),
        "is ahead**: it gets {}, FOCAL {}.".format(
            *(mean_of(distances, points, label) for label in ("Batch PEARL", "FOCAL"))
        ),
        "they have {}, {}, {} and {}.".format(*of(points, *PAPERS, "FOCAL", "Batch PEARL")),
        f"finds the goal of all contexts, FOCAL's of {told(distances, points, 'FOCAL')} of them.",
        "from {:.1f} the weight alone gets to {:.1f}, the step alone to {:.1f}, both to {:.1f}.".format(*of_pearl()),
    )
    assert told(distances, points, "Batch PEARL") == "1.00"


def test_the_pages_say_what_both_losses_were_seen_to_do():
    rows = rows_of("both-losses")
    alone, both_, pearl = "FOCAL", "FOCAL, both losses", "Batch PEARL"
    means = {label: mean_of(rows, points, label) for label in (alone, both_, pearl)}
    esr = [ways(np.mean(rows[points, label]["metrics"]["esr"])) for label in (both_, alone)]
    assert [claim["verdict"] for claim in results_of("both-losses")["claims"]] == [HOLDS, HOLDS, EQUAL]
    assert_says(
        (DOCS / "ablations.md").read_text(),
        f"**It does: {means[both_]} against {means[alone]}, as much as Batch PEARL's {means[pearl]}**",
        f"With both losses {told(rows, points, both_)} of the contexts are nearest to their own goal, with distances "
        f"alone {told(rows, points, alone)}.",
        "less far apart (ESR {} against {}).".format(*esr),
    )
    # The first three seeds are among those by which it was found.
    returns = returns_of(results_of("both-losses"))
    others = [returns[points, label][3:] for label in (both_, alone)]
    unseen = stats.difference(*others, new_tasks=True).interval()
    assert len(others[0]) == 7 and unseen.low > 0
    assert_says((DOCS / "ablations.md").read_text(), f"the other seven alone differ by {unseen.text(2)}.")
    assert_says(
        (DOCS / "results.md").read_text(),
        f"FOCAL gets {means[both_]} if its encoder learns from the critic too (`--coupled`), and {means[alone]} from",
        f"That is as much as Batch PEARL's {means[pearl]}.",
    )


def of_pearl():
    """Returns of long trials of Batch PEARL: prior and step size of the default, another prior, another step, both."""
    trials = json.loads((RESULTS / "tuning" / "longer" / "sparse-point-robot.json").read_text())
    found = {
        (one["trial"]["kl_weight"], one["trial"]["actor_lr"]): one["return"]
        for one in trials
        if one["row"] == "Batch PEARL"
    }
    return [found[weight, step] for step in (1e-3, 3e-4) for weight in (0.1, 1e-5)]


def test_the_page_of_ablations_says_what_was_found_of_data_of_other_quality():
    rows = {label: row for (_, label), row in rows_of("distribution-shift").items()}
    means = {label: shown(row["mean"]["value"]) for label, row in rows.items()}
    theirs = {label: row["published"]["return"] for label, row in rows.items()}
    assert means["expert, expert"] == means["medium, medium"]
    returns = {label: own for (_, label), own in returns_of(results_of("distribution-shift")).items()}
    goals = returns["random, random"].mean(0)
    less = stats.mean(returns["medium, medium"] - returns["medium, expert"], new_tasks=True).interval()
    assert rows["random, random"]["expert"] == rows["expert, expert"]["expert"]
    assert_says(
        (DOCS / "ablations.md").read_text(),
        f"{means['expert, random']} where it has learnt from expert data, {means['medium, random']} from medium data,",
        f"and {means['expert, expert']} told by either's own.",
        f"after expert data {means['expert, medium']} told by medium data,",
        f"which is equal to {means['expert, expert']};",
        f"after medium data {means['medium, expert']} told by expert data, less by {less.text(2)}, which is equal too.",
        f"lost {theirs['expert, expert'] - theirs['expert, medium']:.2f} of {theirs['expert, expert']} and "
        f"{theirs['medium, medium'] - theirs['medium, expert']:.2f} of {theirs['medium, medium']},",
        f"FOCAL gets {means['random, random']}**, and no even result: {np.sum(goals > 9)} of",
        f"{np.sum(goals > 9)} of the {len(goals)} goals get more",
        f"goals get more than 9, and {np.sum(goals < 2)} less than two.",
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
    (found,) = judge([Claim("", "return", (better,), (worse,), "ours")], scored(results_of(f"comparison-{family}")))
    assert found["verdict"] == verdict


# At which widths of the logged noise, and behind or ahead of what: all that the page says of breadth.
NEAR, FAR = "Contextual BCQ, near the log", "Contextual BCQ, far from the log"
FREE, HELD, PEARL = "FOCAL, not regularised", "FOCAL, regularised", "Batch PEARL"


def test_what_is_said_of_breadth_is_what_was_found():
    results = results_of("breadth")
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
    docs = DOCS
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
        README.read_text(),
        "and cloning gets {}.".format(*of(0.05, CLONING)),
        "those methods get {} to {}, cloning {}.".format(*of(0.6, FREE, FAR, CLONING)),
    )
