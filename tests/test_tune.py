"""The trials that algorithms are compared by: as many for each, and each learner with its own trial alone."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from omrl import cli
from omrl.algorithms import get_algorithm, read_preset
from omrl.algorithms.focal import FOCALConfig
from omrl.commands.train import Train
from omrl.commands.tune import Tune
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.evaluation.given_context import given_context
from omrl.families import FAMILIES
from omrl.learning import devices, starting, training
from omrl.runs.run import Run
from omrl.tuning import trying
from omrl.tuning.command import run as tune
from omrl.tuning.rows import COMPARISONS, Row, chosen_rows, read_rows
from omrl.tuning.trials import populate_trials, together
from training_helpers import pumps, walks

ROWS = read_rows(Path(COMPARISONS))
ROOT = Path(__file__).resolve().parents[1]

SIZES = {
    "focal": {"hidden": (8, 8), "encoder_hidden": (8, 8)},
    "batch-pearl": {"hidden": (8, 8), "encoder_hidden": (8, 8)},
    "contextual-bcq": dict.fromkeys(("actor_hidden", "critic_hidden", "vae_hidden", "encoder_hidden"), (8, 8)),
    "contextual-bc": {"hidden": (8, 8), "encoder_hidden": (8, 8)},
}
SMALL = {"batch_size": 8, "context_size": 4, "meta_batch": 3}


@pytest.fixture(scope="module")
def winds(tmp_path_factory):
    return walks(FAMILIES["point-robot-wind"], tmp_path_factory.mktemp("winds") / "data")


def learner(folder, data, row, seeds, **changes):
    """Learners of small networks that have not learnt anything yet."""
    start = Train(row.algorithm, data, folder, preset=row.preset)
    train, config = starting.starting_point(start)
    config = replace(config, **SIZES[row.algorithm], **SMALL, **changes)
    dataset = MetaDataset.open(data)
    train = replace(train, seeds=seeds, level="mixed")
    run = Run.create(folder, training.run_config(train, config, dataset), {})
    return training.Training(run, dataset.select(dataset.split["train"]).to("cpu"), "cpu")


def test_every_row_has_six_trials_over_two_numbers_and_a_preset_of_equal_length_for_every_family():
    for row in ROWS.values():
        assert len({json.dumps(trial) for trial in row.trials}) == len(row.trials) == 6
        assert len(row.axes) == 2
        steps = {read_preset(row.algorithm, row.preset, family)["steps"] for family in FAMILIES}
        assert steps == {20_000}


def test_a_choice_on_the_edge_of_what_was_tried_gets_one_more_step_beyond_it():
    row = Row("a", "focal", {"alpha": (1.0, 10.0, 100.0), "actor_lr, critic_lr": (1e-3, 2e-4)})
    assert row.trials[1] == {"alpha": 1.0, "actor_lr": 2e-4, "critic_lr": 2e-4} and len(row.trials) == 6
    inside = {"alpha": 10.0, "actor_lr": 1e-3, "critic_lr": 1e-3}
    assert row.beyond(inside) == [{**inside, "actor_lr": pytest.approx(5e-3), "critic_lr": pytest.approx(5e-3)}]
    corner = {"alpha": 100.0, "actor_lr": 2e-4, "critic_lr": 2e-4}
    assert row.beyond(corner) == [
        {**corner, "alpha": pytest.approx(1000.0)},
        {**corner, "actor_lr": pytest.approx(4e-5), "critic_lr": pytest.approx(4e-5)},
    ]


def test_nothing_lies_beyond_zero_or_a_single_value():
    row = Row("a", "focal", {"alpha": (0.0, 10.0, 100.0), "beta": (1.0,)})
    assert row.beyond({"alpha": 0.0, "beta": 1.0}) == []


@pytest.mark.parametrize("label", [label for label in ROWS if label != "MBML"])
def test_a_learner_of_a_trial_is_one_with_these_hyperparameters(label, winds, tmp_path):
    row = ROWS[label]
    chosen = [row.trials[0], row.trials[-1]]
    varied = learner(tmp_path / "varied", winds, row, len(chosen))
    configs = [replace(varied.hyperparameters, **trial) for trial in chosen]
    kind = get_algorithm(row.algorithm)
    varied.algorithm, varied.population = populate_trials(kind, 2, 2, configs, [0, 1], "cpu", sorted(chosen[0]))
    context = torch.randn(2, 5, 4, 7)
    for _ in range(4):
        varied.population.step(varied._draw)
    for i, trial in enumerate(chosen):
        alone = learner(tmp_path / str(i), winds, row, len(chosen), **trial)
        for _ in range(4):
            alone.population.step(alone._draw)
        for name, value in alone.population.params.items():
            torch.testing.assert_close(varied.population.params[name][i], value[i], msg=name)
        both = [
            one.algorithm.act(one.params(i), context[0, :, 0, :2], one.algorithm.infer(one.params(i), context[0]))
            for one in (varied, alone)
        ]
        torch.testing.assert_close(*both)
        # Not a hyperparameter that makes no difference.
        other = learner(tmp_path / f"not {i}", winds, row, len(chosen), **chosen[1 - i])
        for _ in range(4):
            other.population.step(other._draw)
        moved = [name for name, value in other.population.params.items() if name != "alpha"]
        assert any(
            not torch.allclose(other.population.params[name][i], varied.population.params[name][i]) for name in moved
        )


def test_trials_are_compiled_on_a_cpu_where_a_run_would_be_and_learn_what_eager_ones_do(winds, monkeypatch):
    row, modes = replace(ROWS["FOCAL"], changes={**SIZES["focal"], **SMALL}), []

    def populated(*args, populate=trying.populate_trials, **options):
        modes.append(options["mode"])
        return populate(*args, **options)

    monkeypatch.setattr(trying, "populate_trials", populated)
    monkeypatch.setattr(trying, "starting_point", lambda args: with_level(starting.starting_point(args)))
    found = {}
    for worth in (100, 4):
        monkeypatch.setattr(devices, "UPDATES_WORTH_COMPILING", worth)
        found[worth] = trying.try_out(
            Tune(Path(COMPARISONS), winds, Path(), steps=4, episodes=1, device="cpu"),
            row,
            row.trials[::5],
            1,
            trying.Shared(),
        )
    assert modes == ["eager", "compiled"]
    eager, compiled = ([one["return"] for one in tried] for tried in found.values())
    assert compiled == pytest.approx(eager, rel=1e-4) and len(set(eager)) == 2


def with_level(found):
    """Made-up logs have one level, which is no preset's."""
    train, config = found
    return replace(train, level="mixed"), config


def test_trials_are_judged_by_copies_that_act_on_the_cpu_as_they_do(winds, tmp_path):
    row = ROWS["FOCAL"]
    varied = learner(tmp_path / "varied", winds, row, 2)
    configs = [replace(varied.hyperparameters, **trial) for trial in (row.trials[0], row.trials[-1])]
    populated = partial(
        populate_trials, get_algorithm(row.algorithm), 2, 2, configs, [0, 1], "cpu", sorted(row.trials[0])
    )
    varied.algorithm, varied.population = populated()
    for _ in range(4):
        varied.population.step(varied._draw)
    copy, unseen = varied.copy_on_cpu(populated()), MetaDataset.open(winds)
    unseen = unseen.select(unseen.split["test"])
    own, copied = (given_context(one, unseen, 8, 1, seed=0) for one in (varied, copy))
    assert (own == copied).all() and copy.population is not varied.population
    varied.population.step(varied._draw)
    assert (given_context(copy, unseen, 8, 1, seed=0) == own).all()


def tried(verdict, score, updates=10):
    return {"verdict": verdict, "return": score, "updates": updates}


def test_what_logs_say_of_a_trial_counts_before_its_score():
    found = [tried("cannot tell", 5.0), tried("better", 4.0), tried("worse", 6.0), tried("better", 3.0)]
    assert trying.best_of(found)["return"] == 4.0
    assert trying.best_of([found[0], found[2]])["return"] == 5.0
    assert trying.best_of([tried("better", 9.0, updates=5), *found])["return"] == 4.0  # it was dropped on the way
    # With a simulator there are no verdicts.
    assert trying.best_of([tried(None, float("nan")), tried(None, 1.0), tried(None, 2.0)])["return"] == 2.0
    verdicts, scores = [one["verdict"] for one in found], {i: one["return"] for i, one in enumerate(found)}
    assert trying.better_half(range(4), verdicts, scores) == [1, 3]
    assert trying.better_half([0, 1, 2], verdicts, scores) == [0, 1]
    assert trying.better_half([0, 1, 2], [None] * 3, dict.fromkeys(range(3), 1.0)) == [0, 1]


def test_trials_that_change_shapes_are_populations_of_their_own():
    configs = [FOCALConfig(hidden=(width,), alpha=alpha) for width in (4, 8) for alpha in (1.0, 2.0)]
    assert together(configs) == [[0, 1], [2, 3]]
    assert together(
        [FOCALConfig(regulariser_steps=1), FOCALConfig(regulariser_steps=2), FOCALConfig(regulariser_steps=1)]
    ) == [[0, 2], [1]]


MINE = """
[[rows]]
label = "small"
algorithm = "focal"
changes = { hidden = [4], encoder_hidden = [4], batch_size = 4, context_size = 4, regularisation = "none", warm_up = 0 }
tried = { beta = [0.5, 2.0] }

[[rows]]
label = "own"
algorithm = "nowhere:Nothing"
tried = { beta = [1.0] }
"""


def test_the_command_tries_a_file_on_logs_without_a_simulator_and_keeps_what_is_there(tmp_path, monkeypatch, capsys):
    pumps(tmp_path / "pumps", tasks=8)
    (tmp_path / "mine.toml").write_text(MINE)
    words = ["tune", str(tmp_path / "mine.toml"), "--data", str(tmp_path / "pumps"), "--out", str(tmp_path / "t.json")]
    how = ["--steps", "3", "--seeds", "2", "--device", "cpu", "--rows", "small"]
    (tmp_path / "t.json").write_text('[{"family": "pumps", "row": "other", "return": 1}]')
    monkeypatch.setattr(sys, "argv", ["omrl", *words, *how])
    cli.main()
    other, *found = json.loads((tmp_path / "t.json").read_text())
    assert other["row"] == "other" and [one["trial"]["beta"] for one in found[:2]] == [0.5, 2.0]
    # The best lies on an edge, and one step beyond it has as many learners as all before.
    assert [one["seeds"] for one in found] == [2, 2, 4] and found[2]["trial"]["beta"] in (0.125, 8.0)
    assert all(one["held_out"] == 1 and one["alive"] for one in found)
    # Scores are returns beyond the logger's, told by its log.
    assert all(abs(one["return"]) < 10 and one["verdict"] in ("better", "cannot tell", "worse") for one in found)
    assert len({one["return"] for one in found}) == 3
    printed = capsys.readouterr().out
    assert "each known by 200 rows of the task's own log." in printed
    assert "best of 3" in printed
    assert "beside the logger" in printed
    with pytest.raises(OmrlError, match="whose code would run: --trust nowhere:Nothing"):
        chosen_rows(Tune(tmp_path / "mine.toml", tmp_path, tmp_path))
    with pytest.raises(OmrlError, match="has no row 'smal'"):
        chosen_rows(Tune(tmp_path / "mine.toml", tmp_path, tmp_path, rows=("smal",)))


def test_a_sweep_goes_on_with_the_rows_that_are_not_kept_yet(tmp_path, monkeypatch, capsys):
    pumps(tmp_path / "pumps", tasks=8)
    text = MINE.replace('label = "own"', 'label = "two"').replace("nowhere:Nothing", "focal")
    (tmp_path / "mine.toml").write_text(text)
    args = Tune(tmp_path / "mine.toml", tmp_path / "pumps", tmp_path / "t.json", rows=("small",), steps=2, device="cpu")
    measured = []

    def measure(args, row, measure=trying.measure):
        measured.append(row.label)
        return measure(args, replace(row, changes=small.changes))

    small = read_rows(args.file)["small"]
    monkeypatch.setattr(trying, "measure", measure)
    tune(args)
    kept = json.loads(args.out.read_text())
    capsys.readouterr()
    tune(replace(args, rows=()))  # as after a kill
    assert measured == ["small", "two"] and json.loads(args.out.read_text())[: len(kept)] == kept
    said = capsys.readouterr().out
    assert "small is in" in said and said.count("best of") == 2
    # Other settings, other data, or a row that is not whole are tried again; a damaged one is named.
    tune(replace(args, steps=3))
    assert measured == ["small", "two", "small"]
    args.out.write_text(json.dumps(kept[1:]))
    tune(args)
    args.out.write_text(json.dumps([{**kept[0], "updates": "two"}, *kept[1:]]))
    with pytest.raises(OmrlError, match=r"t\.json: 0\.updates must be"):
        tune(args)
    pumps(tmp_path / "others", tasks=12)
    args.out.write_text(json.dumps(kept))
    tune(replace(args, data=tmp_path / "others"))
    assert measured[3:] == ["small", "small"]


def test_halving_drops_the_worse_half_and_the_others_go_on_as_if_nothing_had_been(tmp_path):
    pumps(tmp_path / "pumps", tasks=8)
    sizes = {
        "hidden": [4],
        "encoder_hidden": [4],
        "batch_size": 4,
        "context_size": 4,
        "regularisation": "none",
        "warm_up": 0,
    }
    tune = Tune(Path("mine.toml"), tmp_path / "pumps", tmp_path / "t.json", steps=8, device="cpu")
    row = Row("a", "focal", {"beta": (0.5, 1.0, 2.0, 4.0)}, changes=sizes)
    assert trying.rung_steps(8, 2) == [2, 4, 8] and trying.rung_steps(8, 0) == [8]

    def tried(row, trials, **changes):
        return trying.try_out(replace(tune, **changes), row, trials, 2, trying.Shared())

    found = tried(row, row.trials, rungs=1)
    # What all had after the first half is what they have where that is all.
    first = {one["trial"]["beta"]: one["return"] for one in tried(row, row.trials, steps=4)}
    best = sorted(first, key=lambda beta: -first[beta])[:2]
    assert {one["trial"]["beta"] for one in found if one["updates"] == 8} == set(best)
    dropped = [one for one in found if one["updates"] == 4]
    assert len(dropped) == 2 and all(one["return"] == first[one["trial"]["beta"]] for one in dropped)
    assert trying.best_of(found)["updates"] == 8
    # A population of which nobody is dropped ends where one without rungs ends, whichever its shape.
    for changes in ({"beta": 0.5}, {"hidden": (6,)}):
        (rungs,), (none,) = (tried(row, [changes], rungs=number) for number in (2, 0))
        assert rungs == none


def test_rows_in_processes_of_their_own_find_the_same(tmp_path, monkeypatch, capsys):
    pumps(tmp_path / "pumps", tasks=8)
    (tmp_path / "mine.toml").write_text(
        MINE.replace('label = "own"', 'label = "two"').replace("nowhere:Nothing", "focal")
    )
    words = ["tune", str(tmp_path / "mine.toml"), "--data", str(tmp_path / "pumps"), "--steps", "4", "--rungs", "1"]
    for name, how in (("one", ["--threads", "1"]), ("both", ["--at-once", "2", "--threads", "1"])):
        monkeypatch.setattr(
            sys,
            "argv",
            ["omrl", *words, *how, "--out", str(tmp_path / f"{name}.json"), "--device", "cpu", "--rows", "small"],
        )
        cli.main()
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "both.json").read_bytes()
    monkeypatch.setattr(sys, "argv", ["omrl", *words, "--out", str(tmp_path / "x.json"), "--rungs", "3"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "--rungs 3 halves 4 updates" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows = 3", r"a list of \[\[rows\]\]"),
        ("[[rows]]\nlabel = 'a'\nalgorithm = 'focal'\ntried = {}", "a tries nothing"),
        ("[[rows]]\nlabel = 'a'\nalgorithm = 'focal'\ntried = { beta = ['x'] }", "must be a number"),
        ("[[rows", "cannot be read as TOML"),
    ],
)
def test_a_file_that_is_no_list_of_trials_is_one_sentence(tmp_path, text, message):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(OmrlError, match=message) as error:
        read_rows(tmp_path / "bad.toml")
    assert "bad.toml" in str(error.value)


@pytest.mark.parametrize("text", ['{"mine": 1}', '[{"mine": 1}]', "notes"])
def test_a_file_of_something_else_is_refused_before_anything_is_tried(tmp_path, monkeypatch, text):
    (tmp_path / "notes.json").write_text(text)
    monkeypatch.setattr("omrl.tuning.command.chosen_rows", lambda _: pytest.fail("it begins"))
    with pytest.raises(OmrlError, match=r"notes\.json is not"):
        tune(Tune(tmp_path / "rows.toml", tmp_path / "data", tmp_path / "notes.json"))
    assert (tmp_path / "notes.json").read_text() == text


def test_trials_of_mbml_share_their_first_stage(winds, monkeypatch):
    sizes = dict.fromkeys(("actor_hidden", "critic_hidden", "decoder_hidden", "encoder_hidden"), (8, 8))
    first = {"teacher_hidden": (8,), "teacher_vae_hidden": (8,), "reward_hidden": (8,), "next_obs_hidden": (8,)}
    steps = {"teacher_steps": 2, "reward_steps": 2, "next_obs_steps": 2, "members": 2}

    def small(args, start=starting.starting_point):
        train, config = with_level(start(args))
        return train, replace(config, **sizes, **first, **steps, **SMALL)

    learnt = []

    def once(stages, run, *rest, learn=trying.learn_stages):
        found = learn(stages, run, *rest)
        learnt.append({name: len(value) for name, value in found.items()})
        return found

    monkeypatch.setattr(trying, "starting_point", small)
    monkeypatch.setattr(trying, "learn_stages", once)
    own_values = []

    def populated(*args, populate=trying.populate_trials, **options):
        own_values.append(tuple(options["tried"]))
        return populate(*args, **options)

    monkeypatch.setattr(trying, "populate_trials", populated)
    row = ROWS["MBML"]
    found = trying.measure(Tune(Path(COMPARISONS), winds, Path(), steps=2, episodes=1, device="cpu"), row)
    best = max(found[:6], key=lambda one: one["return"])["trial"]
    assert [one["trial"] for one in found] == [*row.trials, *row.beyond(best)]
    assert len({one["return"] for one in found}) == len(found) > 6 and {one["held_out"] for one in found} == {3}
    assert {one["seeds"] for one in found[6:]} == {6 // len(found[6:])}
    # Trials beyond the edge are the same program, whatever they have in common.
    assert len(own_values) == 2 and set(own_values) == {("kl_weight", "lr")}
    (one_run,) = learnt
    assert set(one_run.values()) == {1}  # a single seed's stages


def published():
    """The trials that chose presets, by family and row."""
    found = {}
    for file in (ROOT / "results" / "tuning").glob("*.json"):
        for one in json.loads(file.read_text()):
            assert one["family"] == file.stem
            found.setdefault((one["family"], one["row"]), []).append(one["trial"])
    return found


def test_all_rows_of_a_family_had_as_many_trials():
    found = published()
    compared = {path.name.removeprefix("comparison-") for path in (ROOT / "results" / "paper").glob("comparison-*")}
    assert compared
    # Of a family that is not compared yet some rows may be there.
    assert {(family, row) for family in compared for row in ROWS} <= set(found)
    assert {row for _, row in found} == set(ROWS)
    for (_, row), trials in found.items():
        # One more beyond every edge that the best of the six lies on.
        assert len(trials) - 6 in (0, 1, 2) and len({json.dumps(trial) for trial in trials}) == len(trials)
        assert set(trials[0]) == set(ROWS[row].trials[0])
