"""Logs whose actions are choices, from the file to a policy that takes one of them."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import omrl
from omrl.algorithms import ALGORITHMS
from omrl.commands.data import Import
from omrl.commands.evaluate import Evaluate
from omrl.data import MetaDataset, interchange
from omrl.errors import OmrlError
from omrl.evaluation.command import run as evaluate_command
from omrl.exporting import omrl_runtime
from omrl.runs.choices import as_logged, as_numbers, in_units
from training_helpers import OPTIONS, SMALL

LEARN_CHOICES = ("focal", "contextual-bc")
WORDS = ("boost", "low", "off")


def write(path, fan, tasks=6, rows=60):
    """Rooms whose fan was set by somebody who turns it up where it is warm; rooms differ in what warm is."""
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["room", "day", "warm", "damp", "fan", "reward"])
        for task in range(tasks):
            for i in range(rows):
                warm = rng.normal()
                level = int(np.digitize(warm + 0.3 * (task - 2), (-0.5, 0.5)))
                table.writerow([f"room-{task}", i // 20, warm, rng.normal(), fan(level), task - level + rng.normal()])
    return path


def imported(folder, fan, **flags):
    folder.mkdir()
    path = write(folder / "fans.csv", fan)
    answers = {"task": "room", "episode": "day", "in_order": True, "terminations": "none"}
    answers |= {"observations": ("warm", "damp"), "actions": ("fan",), "rewards": "reward"}
    answers |= {"varies": "both", "test_fraction": 0.3}
    interchange.read(Import(path, folder / "data", format="csv", **answers, **flags))
    return folder / "data"


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return imported(tmp_path_factory.mktemp("words") / "fans", lambda level: ("off", "low", "boost")[level])


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("levels") / "fans"
    return imported(folder, lambda level: (1, 2, 5)[level], action_kind="discrete")


def train(algorithm, data, out, **changes):
    return omrl.train(algorithm, data, out, **{**SMALL, **OPTIONS, "device": "cpu", **changes})


@pytest.fixture(scope="module", params=LEARN_CHOICES)
def run(request, words, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param) / "run"
    return (
        train(request.param, words, out, steps=300, actor_lr=3e-3, warm_up=150, slowing=0.0)
        if request.param == "focal"
        else (train(request.param, words, out, steps=300, actor_lr=3e-3))
    )


def test_a_policy_takes_one_of_the_words_and_imitates_who_logged_them(run, words):
    data = MetaDataset.open(words)
    rows = data.rows("room-5")
    policy = omrl.load(run.folder).adapt(rows)
    acts = policy.act(rows["observations"])
    assert acts.shape == (len(rows["observations"]), 1)
    assert set(acts.ravel()) <= set(WORDS)
    one = policy.act(rows["observations"][0])
    assert one.shape == (1,) and one[0] == acts[0, 0]
    assert (acts == as_logged(rows["actions"], run.config.choices)).mean() > 0.6
    named = {"warm": float(rows["observations"][0, 0]), "damp": float(rows["observations"][0, 1])}
    assert policy.act(named)[0] == one[0]


def test_a_context_has_words_or_their_numbers_and_nothing_else(run, words):
    model, rows = omrl.load(run.folder), MetaDataset.open(words).rows("room-0")
    said = [
        (s, [word], r, after)
        for s, word, r, after in zip(
            rows["observations"],
            as_logged(rows["actions"], run.config.choices).ravel(),
            rows["rewards"],
            rows["next_observations"],
            strict=True,
        )
    ]
    np.testing.assert_allclose(model.adapt(said).z, model.adapt(rows).z, atol=1e-6)
    policy = model.adapt(said[:5])
    policy.observe(*said[5])
    np.testing.assert_allclose(policy.z, model.adapt(said[:6]).z, atol=1e-6)
    for wrong in ("medium", 1.437):
        with pytest.raises(OmrlError, match=f"actions cannot be .*{wrong}.*; it is one of boost, low, off"):
            model.adapt([(said[0][0], [wrong], 0.0, said[0][3])])


def test_levels_come_back_as_they_were_logged(levels, tmp_path):
    run = train("contextual-bc", levels, tmp_path / "run")
    rows = MetaDataset.open(levels).rows(0)
    acts = omrl.load(run.folder).adapt(rows).act(np.random.default_rng(0).normal(size=(200, 2)))
    assert set(acts.ravel().tolist()) <= {1.0, 2.0, 5.0}
    assert list(run.config.hyperparameters["choices"]) == [-1.0, -0.5, 1.0]


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in LEARN_CHOICES])
def test_others_refuse_in_one_sentence_that_says_who_can(algorithm, words, levels, tmp_path):
    said = f"are discrete, which {algorithm} cannot learn: focal and contextual-bc can"
    with pytest.raises(OmrlError, match=f"{said}.$"):  # between words there is nothing
        omrl.train(algorithm, words, tmp_path / "run", steps=1)
    with pytest.raises(OmrlError, match=f"{said}; or, if numbers between them make sense, .* --action-kind continuous"):
        omrl.train(algorithm, levels, tmp_path / "run", steps=1)
    assert not (tmp_path / "run").exists()


def test_more_choices_than_are_learnt_are_refused_with_what_helps():
    def choices(labels):
        return [{"values": [float(i) for i in range(9)], "labels": labels}] * 2

    with pytest.raises(OmrlError, match=r"81 choices together, and 64 at most are learnt; .* --action-kind continuous"):
        in_units(choices(None), [0, 0], [8, 8])
    with pytest.raises(OmrlError, match="give words that mean the same one name"):
        in_units(choices([f"w{i}" for i in range(9)]), [0, 0], [8, 8])


def test_a_run_says_its_choices_and_the_data_decides_them(words, tmp_path):
    with pytest.raises(OmrlError, match=r"choices of .* are not those that are given; leave --choices out"):
        train("focal", words, tmp_path / "run", choices=(-1.0, 1.0))
    with pytest.raises(OmrlError, match="divergence must be categorical-kl"):
        train("focal", words, tmp_path / "run", divergence="kl")


def test_the_same_seed_gives_the_same_bytes(words, tmp_path):
    last = "checkpoints/step-0000008.safetensors"
    first, second = (train("focal", words, tmp_path / name, steps=8).folder / last for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_logs_tell_how_often_another_choice_was_made(run, words, capsys):
    found = omrl.evaluate(run.folder, context=20)
    assert 0 <= found["action_error"]["value"] < found["constant_error"]["value"] < 1
    evaluate_command(Evaluate(run.folder, context=20))
    assert "share of other choices" in capsys.readouterr().out


def test_exports_take_and_give_the_log_s_own_words(run, words, tmp_path):
    rows = MetaDataset.open(words).rows("room-4")
    said = dict(rows, actions=as_logged(rows["actions"], run.config.choices))
    policy = omrl.load(run.folder).adapt(rows)
    omrl.export(run.folder, "numpy", tmp_path / "numpy")
    found = omrl_runtime.load(tmp_path / "numpy").adapt({name: said[name] for name in omrl_runtime.CONTEXT})
    np.testing.assert_allclose(found.z, policy.z[0], atol=1e-5)
    acts = found.act(rows["observations"])
    assert (acts == policy.act(rows["observations"])).mean() > 0.98
    assert len(set(acts.ravel())) > 1
    with pytest.raises(ValueError, match="actions cannot be 'medium'; they are one of"):
        found.observe(rows["observations"][0], ["medium"], 0.0, rows["observations"][1])


def test_a_graph_gives_the_numbers_of_the_choices(run, words, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    omrl.export(run.folder, "onnx", tmp_path / "onnx")
    rows = MetaDataset.open(words).rows("room-4")
    policy = omrl.load(run.folder).adapt(rows)
    session = onnxruntime.InferenceSession(tmp_path / "onnx/actor.onnx")
    z = np.repeat(policy.z, len(rows["observations"]), 0)
    (acts,) = session.run(None, {"obs": np.array(rows["observations"]), "z": z})
    assert set(acts.ravel().tolist()) <= {0.0, 1.0, 2.0}
    assert (as_logged(acts, run.config.choices) == policy.act(rows["observations"])).mean() > 0.98
    about = json.loads(session.get_modelmeta().custom_metadata_map["omrl"])
    assert about["choices"] == [{"values": [0.0, 1.0, 2.0], "labels": list(WORDS)}]


def test_a_report_is_written(run, tmp_path):
    omrl.evaluate(run.folder, context=20)
    omrl.report(run.folder, out=tmp_path / "report")
    assert (tmp_path / "report/index.html").stat().st_size > 10_000


# -- numbers and words -------------------------------------------------------------------------------------------------

TWO = [{"values": [0.0, 1.0, 4.0], "labels": None}, {"values": [0.0, 1.0], "labels": ["shut", "open"]}]


def test_choices_of_several_numbers_are_all_their_pairs():
    units = np.array(in_units(TWO, [0, 0], [4, 1])).reshape(-1, 2)
    assert units.tolist() == [[-1, -1], [-1, 1], [-0.5, -1], [-0.5, 1], [1, -1], [1, 1]]
    assert as_logged(np.array([[3.9999998, 0.0], [1.0000001, 1.0]]), TWO).tolist() == [[4.0, "shut"], [1.0, "open"]]
    assert as_numbers([[4, "shut"], [1.0, "open"]], "actions", TWO).tolist() == [[4, 0], [1, 1]]


def test_too_many_choices_are_refused():
    many = [{"values": list(map(float, range(9))), "labels": None}] * 2
    with pytest.raises(OmrlError, match="have 81 choices together, and 64 at most"):
        in_units(many, [0, 0], [8, 8])
