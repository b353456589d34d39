"""Training end to end on a small dataset: the run folder, resuming, what is logged, seeds that fail."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from omrl.commands.evaluate import CONTEXT_ROWS
from omrl.commands.train import Train
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.evaluation.given_context import given_context
from omrl.evaluation.testing import evaluate
from omrl.families import FAMILIES
from omrl.learning import compiling, devices, looks, loop, signs
from omrl.learning import training as learning
from omrl.learning.engine import Population
from omrl.learning.starting import starting_point
from omrl.learning.training import Training
from omrl.runs.model import Model
from omrl.runs.run import Run
from training_helpers import metrics, pumps, some_config, train, walks

# Two draws in an update: one for the discriminator alone.
TWO_DRAWS = {"regularisation": "policy", "regulariser_steps": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return walks(FAMILIES["sparse-point-robot"], tmp_path_factory.mktemp("data") / "walks")


@pytest.fixture(scope="module")
def windy(tmp_path_factory):
    """A family whose rewards are never zero."""
    return walks(FAMILIES["point-robot-wind"], tmp_path_factory.mktemp("data") / "windy")


def checkpoint(folder):
    return Run.open(folder).load()


def params(folder):
    return checkpoint(folder)[1]["params"]


def same_files(one, other, *names):
    for name in names or ("checkpoints/step-0000012.safetensors", "metrics.csv", "config.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


class Cut(Exception):
    """Something that ends a run in the middle."""


def cut_at(monkeypatch, call):
    """Make the draw of that number fail."""
    draw, calls = Training._draw, []

    def failing(self, generator):
        calls.append(1)
        if len(calls) == call:
            raise Cut
        return draw(self, generator)

    monkeypatch.setattr(Training, "_draw", failing)


def spied(monkeypatch):
    """The observations of every draw."""
    draw, drawn = Training._draw, []

    def spy(self, generator):
        batch, noise = draw(self, generator)
        drawn.append(batch["obs"].clone())
        return batch, noise

    monkeypatch.setattr(Training, "_draw", spy)
    return drawn


# -- the folder --------------------------------------------------------------------------------------------------------


def test_a_run_is_a_folder_that_a_person_can_open(data, tmp_path):
    folder = train(data, tmp_path / "run", seed=7)
    assert folder.folder == tmp_path / "run"
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["hyperparameters"]["gamma"] == 0.9  # the paper's preset of the family
    assert config["hyperparameters"]["hidden"] == [8, 8]  # what was given
    assert config["stream"] is False
    rows = metrics(tmp_path / "run")
    assert {int(row["step"]) for row in rows} == {4, 8, 12}
    assert {row["seed"] for row in rows} == {"7", "8"}
    assert all(int(row["transitions"]) == int(row["step"]) * 3 * 8 for row in rows)
    assert np.isfinite([float(row["value"]) for row in rows]).all()
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["versions"]["torch"]


def test_where_there_is_no_history_the_commit_is_what_the_environment_says(data, tmp_path, monkeypatch):
    monkeypatch.setenv("OMRL_COMMIT", "0123abc")
    train(data, tmp_path / "run", steps=1)
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["commit"] == "0123abc"


def test_the_seed_decides_the_bytes(data, tmp_path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        train(data, tmp_path / name, seed=seed, steps=5)
    assert torch.equal(params(tmp_path / "one"), params(tmp_path / "same"))
    assert not torch.equal(params(tmp_path / "one")[1], params(tmp_path / "other")[0])


def test_other_arguments_do_not_touch_a_run(data, tmp_path):
    train(data, tmp_path / "run", steps=5)
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(OmrlError, match="another run: steps is 5 there and 6 here; choose"):
        train(data, tmp_path / "run", steps=6)
    assert (tmp_path / "run" / "config.json").read_bytes() == before
    # Neither asking what would run nor data that cannot be read costs the old run.
    assert train(data, tmp_path / "run", steps=6, force=True, dry_run=True) is None
    with pytest.raises(OmrlError, match="no level 'expert'"):
        train(data, tmp_path / "run", level="expert", force=True)
    assert checkpoint(tmp_path / "run")[0] == 5
    with pytest.raises(
        OmrlError, match=r"run: gamma is .* there and 0.5 here, tau is .* and 0.1 here, steps is 5 there"
    ):
        train(data, tmp_path / "run", steps=6, gamma=0.5, tau=0.1)
    train(data, tmp_path / "run", steps=6, force=True)
    assert checkpoint(tmp_path / "run")[0] == 6


def test_a_folder_that_is_no_run_is_left_alone(data, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("words")
    for force in (False, True):
        with pytest.raises(OmrlError, match="is not a run"):
            train(data, tmp_path / "thesis", force=force)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "words"


def test_a_run_that_had_saved_nothing_goes_on_where_its_empty_folders_got_lost(data, tmp_path):
    for name in ("whole", "copied"):
        train(data, tmp_path / name, steps=12)
    for path in (tmp_path / "copied" / "checkpoints").iterdir():
        path.unlink()
    (tmp_path / "copied" / "checkpoints").rmdir()
    train(data, tmp_path / "copied", steps=12)
    same_files(tmp_path / "whole", tmp_path / "copied")


def test_the_two_newest_checkpoints_are_kept(data, tmp_path):
    train(data, tmp_path / "run", save_every=3, steps=13)
    saved = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert saved == ["latest", "step-0000012.safetensors", "step-0000013.safetensors"]
    assert checkpoint(tmp_path / "run")[0] == 13


def test_a_run_whose_updates_take_long_saves_itself_in_between(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(loop, "learn", partial(loop.learn, save_seconds=0.0))
    cut_at(monkeypatch, 4)
    with pytest.raises(Cut):
        train(data, tmp_path / "run", save_every=100, steps=6)
    monkeypatch.undo()
    capsys.readouterr()
    train(data, tmp_path / "run", save_every=100, steps=6)
    assert capsys.readouterr().err.splitlines()[0] == f"{tmp_path / 'run'} goes on at update 3."
    assert checkpoint(tmp_path / "run")[0] == 6


def test_checkpoints_of_very_long_runs_are_in_the_order_of_their_steps(tmp_path):
    run = Run.create(tmp_path / "run", some_config(), {})
    for step in (9_990_000, 9_995_000, 10_000_000, 10_005_000):
        run.save(step, {"params": torch.full((1,), float(step))})
        assert run.load()[0] == step
    saved = {path.name for path in (run.folder / "checkpoints").glob("step-*")}
    assert saved == {"step-10000000.safetensors", "step-10005000.safetensors"}


def test_timings_say_where_the_time_went(windy, tmp_path):
    train(windy, tmp_path / "run", eval_every=5)
    timings = json.loads((tmp_path / "run" / "timings.json").read_text())
    assert set(timings["seconds"]) == {"updates", "logging", "evaluation", "saving"}
    assert all(value > 0 for value in timings["seconds"].values())
    total = sum(timings["seconds"].values())
    assert timings["share_in_updates"] == pytest.approx(timings["seconds"]["updates"] / total)
    before = (tmp_path / "run" / "timings.json").read_bytes()
    train(windy, tmp_path / "run", eval_every=5)  # it is finished: nothing runs
    assert (tmp_path / "run" / "timings.json").read_bytes() == before


# -- going on ----------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from training_helpers import train
from omrl.storage import files
from omrl.runs import run
from omrl.learning.training import Training
calls = []

def once(function, name, number):
    def killed(*args):
        calls.append(name)
        if calls.count(name) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args)
    return killed

{patch}
train({data!r}, {out!r}, regularisation="policy", regulariser_steps=2)
"""
MOMENTS = {
    "in the middle of an update": "Training._draw = once(Training._draw, 'draw', 18)",
    # The second checkpoint is there under its temporary name.
    "before a checkpoint is whole": "files.os.fsync = once(os.fsync, 'fsync', 9)",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_ends_with_the_same_bytes(data, tmp_path, moment):
    code = KILLED.format(
        tests=str(Path(__file__).parent), data=str(data), out=str(tmp_path / "cut"), patch=MOMENTS[moment]
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == -signal.SIGKILL, found.stderr
    assert checkpoint(tmp_path / "cut")[0] == 5
    assert max(int(row["step"]) for row in metrics(tmp_path / "cut")) == 8  # logged after the checkpoint
    with (tmp_path / "cut" / "metrics.csv").open("a") as file:
        file.write("1")  # of a row of step 12 that was cut short
    train(data, tmp_path / "cut", **TWO_DRAWS)
    train(data, tmp_path / "whole", **TWO_DRAWS)
    same_files(tmp_path / "cut", tmp_path / "whole")


def test_steps_that_slow_down_go_on_where_they_were(data, tmp_path, monkeypatch):
    factors = []
    usual = Population.slow_down
    monkeypatch.setattr(Population, "slow_down", lambda self, factor: (factors.append(factor), usual(self, factor)))
    train(data, tmp_path / "whole", steps=5, save_every=2, slowing=0.6)
    assert factors == pytest.approx([1.0, 1.0, 1.0, 2 / 3, 1 / 3])
    with monkeypatch.context() as patch:
        cut_at(patch, 5)
        with pytest.raises(Cut):
            train(data, tmp_path / "cut", steps=5, save_every=2, slowing=0.6)
    train(data, tmp_path / "cut", steps=5, save_every=2, slowing=0.6)
    assert torch.equal(params(tmp_path / "cut"), params(tmp_path / "whole"))


def test_a_streamed_run_goes_on_with_the_same_bytes(data, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        drawn = spied(patch)
        train(data, tmp_path / "whole", stream=True, **TWO_DRAWS)
    assert len(drawn) == len({obs.numpy().tobytes() for obs in drawn}) == 2 * 12  # each draw is a fresh one
    assert Run.open(tmp_path / "whole").config.stream is True
    with monkeypatch.context() as patch:
        cut_at(patch, 18)
        with pytest.raises(Cut):
            train(data, tmp_path / "cut", stream=True, **TWO_DRAWS)
    assert checkpoint(tmp_path / "cut")[0] == 5
    train(data, tmp_path / "cut", **TWO_DRAWS)  # it goes on from disk, as it began
    same_files(tmp_path / "cut", tmp_path / "whole")
    train(data, tmp_path / "memory", **TWO_DRAWS)
    assert not torch.equal(params(tmp_path / "memory"), params(tmp_path / "whole"))  # other batches


def test_data_that_does_not_fit_is_streamed_and_a_run_goes_on_as_it_began(data, tmp_path, monkeypatch):
    train(data, tmp_path / "began-in-memory", steps=5)
    monkeypatch.setattr(learning, "fits", lambda *_: False)
    train(data, tmp_path / "run", steps=5)
    assert Run.open(tmp_path / "run").config.stream is True
    train(data, tmp_path / "began-in-memory", steps=5)
    with pytest.raises(OmrlError, match="another run: stream is False there and True here"):
        train(data, tmp_path / "began-in-memory", steps=5, stream=True)


# -- how a CPU computes ------------------------------------------------------------------------------------------------


def test_a_compiled_run_goes_on_with_the_same_bytes_and_agrees_with_an_eager_one(data, tmp_path, monkeypatch):
    train(data, tmp_path / "eager", **TWO_DRAWS)
    monkeypatch.setattr(devices, "UPDATES_WORTH_COMPILING", 1)
    train(data, tmp_path / "whole", **TWO_DRAWS)
    assert Run.open(tmp_path / "whole").config.cpu["mode"] == "compiled"
    with monkeypatch.context() as patch:
        cut_at(patch, 18)
        with pytest.raises(Cut):
            train(data, tmp_path / "cut", **TWO_DRAWS)
    monkeypatch.setattr(devices, "UPDATES_WORTH_COMPILING", 10**9)
    train(data, tmp_path / "cut", **TWO_DRAWS)  # it goes on compiled, as it began
    same_files(tmp_path / "cut", tmp_path / "whole")
    torch.testing.assert_close(params(tmp_path / "whole"), params(tmp_path / "eager"), rtol=1e-3, atol=1e-4)


def test_where_no_compiler_works_it_is_said_and_training_goes_on(data, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(devices, "UPDATES_WORTH_COMPILING", 1)
    monkeypatch.setattr(devices, "has_compiler", lambda: True)
    # What torch says where its compiler cannot be used.
    monkeypatch.setattr(compiling, "compile_traced", failing_compiler)
    train(data, tmp_path / "run", **TWO_DRAWS)
    warning = "warning: not compiled, and slower for it, because the compiler failed: RuntimeError: no luck"
    assert capfd.readouterr().err.count(warning) == 1
    monkeypatch.undo()
    train(data, tmp_path / "eager", **TWO_DRAWS)
    assert torch.equal(params(tmp_path / "run"), params(tmp_path / "eager"))


def failing_compiler(*_):
    from torch._inductor.exc import InductorError

    raise InductorError(RuntimeError("no luck"), None)


def test_a_run_of_before_goes_on_and_threads_are_those_it_began_with(data, tmp_path, monkeypatch):
    used = []
    learn = Training.learn
    monkeypatch.setattr(Training, "learn", lambda self, *a: (used.append(torch.get_num_threads()), learn(self, *a))[1])
    before = torch.get_num_threads()
    train(data, tmp_path / "run", steps=5, threads=1)
    monkeypatch.setattr(devices, "NUMBERS_PER_THREAD", 1)
    train(data, tmp_path / "run", steps=5)
    train(data, tmp_path / "run", steps=5, threads=2)
    assert used == [1, 1, 2] and torch.get_num_threads() == before
    # A folder that was made when neither this nor some hyperparameter existed.
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    del config["cpu"], config["batch"], config["schema"], config["hyperparameters"]["warm_up"]
    old = {"bfloat16": "half", "regulariser_lr": "g_lr", "regulariser_steps": "g_steps"}
    config["hyperparameters"] = {old.get(name, name): value for name, value in config["hyperparameters"].items()}
    path.write_text(json.dumps(config))
    train(data, tmp_path / "run", steps=5)
    with pytest.raises(OmrlError, match="warm_up is 0 there and 3 here"):
        train(data, tmp_path / "run", steps=5, warm_up=3, regularisation="policy")
    path.write_text(json.dumps({**config, "schema": 2}))
    assert Run.open(tmp_path / "run").config.hyperparameters["regulariser_lr"] == 1e-4
    assert (
        starting_point(Train("focal", data, tmp_path, config=path))[1].regulariser_steps
        == config["hyperparameters"]["g_steps"]
    )
    path.write_text(json.dumps({**config, "schema": 4}))
    with pytest.raises(OmrlError, match=r"has schema 4, of a newer omrl perhaps: this one reads 1 to 3\."):
        Run.open(tmp_path / "run")


# -- the learning curve ------------------------------------------------------------------------------------------------


def test_the_return_on_unseen_tasks_is_logged_as_evaluation_gives_it(windy, tmp_path):
    train(windy, tmp_path / "run", eval_every=5, seed=3)
    rows = [row for row in metrics(tmp_path / "run") if row["name"] == "return"]
    assert [(row["step"], row["seed"]) for row in rows] == [(s, p) for s in ("5", "10", "12") for p in ("3", "4")]
    dataset = MetaDataset.open(windy)
    unseen = dataset.select(dataset.split["test"])
    for step in (5, 10, 12):
        shorter = train(windy, tmp_path / f"until-{step}", steps=step, seed=3)
        wanted = given_context(Model(shorter), unseen, CONTEXT_ROWS, episodes=1, seed=0)
        found = [row["value"] for row in rows if row["step"] == str(step)]
        assert found == [f"{value:.6g}" for value in wanted.mean((1, 2))]
        assert wanted.max() < -1
        assert not any(row["name"] == "return" for row in metrics(tmp_path / f"until-{step}"))
    # Looking does not change what is learned.
    (_, looked), (_, alone) = (Run.open(tmp_path / name).load() for name in ("run", "until-12"))
    assert looked.keys() == alone.keys() and all(torch.equal(looked[name], alone[name]) for name in alone)


def looks_of(folder):
    return [(row["step"], row["seed"], row["value"]) for row in metrics(folder) if row["name"] == "return"]


def test_looks_beside_the_updates_have_the_numbers_of_looks_between_them(windy, tmp_path, monkeypatch):
    """As on a GPU: each is about the parameters of its own update, however late it is done."""
    train(windy, tmp_path / "between", eval_every=2)
    monkeypatch.setattr(learning, "Looks", partial(looks.Looks, beside=True))
    slow = looks.given_context
    monkeypatch.setattr(looks, "given_context", lambda *a, **k: (time.sleep(0.2), slow(*a, **k))[1])
    train(windy, tmp_path / "beside", eval_every=2)
    assert looks_of(tmp_path / "beside") == looks_of(tmp_path / "between")
    assert len({value for _, _, value in looks_of(tmp_path / "beside")}) > 6
    same_files(tmp_path / "beside", tmp_path / "between", "checkpoints/step-0000012.safetensors")
    rows = metrics(tmp_path / "beside")
    assert rows[-1]["name"] == "return"  # updates did not wait for it


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_looks_go_on_beside_the_updates_and_have_the_same_numbers(windy, tmp_path, monkeypatch):
    train(windy, tmp_path / "beside", eval_every=2, device="cuda")
    monkeypatch.setattr(learning, "Looks", partial(looks.Looks, beside=False))
    train(windy, tmp_path / "between", eval_every=2, device="cuda")
    found, wanted = looks_of(tmp_path / "beside"), looks_of(tmp_path / "between")
    assert [look[:2] for look in found] == [look[:2] for look in wanted]
    values = [[float(value) for _, _, value in looks] for looks in (found, wanted)]
    np.testing.assert_allclose(*values, rtol=1e-3)  # updates of two runs may add up in another order


def test_a_look_that_an_interruption_cut_off_is_made_again(windy, tmp_path, monkeypatch):
    train(windy, tmp_path / "whole", eval_every=5)
    monkeypatch.setattr(learning, "Looks", partial(looks.Looks, beside=True))
    honest = looks.given_context

    def late(*given, **named):
        time.sleep(1.0)  # the run is saved and goes on meanwhile
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(looks, "given_context", late)
        with pytest.raises(Cut):  # an error in a look is not lost
            train(windy, tmp_path / "cut", eval_every=5, save_every=5)
    # It is found out when the next checkpoint waits for it: no look is lost between two of them.
    assert looks_of(tmp_path / "cut") == [] and checkpoint(tmp_path / "cut")[0] == 5
    monkeypatch.setattr(looks, "given_context", honest)
    train(windy, tmp_path / "cut", eval_every=5, save_every=5)
    assert looks_of(tmp_path / "cut") == looks_of(tmp_path / "whole")


def test_the_look_at_the_end_is_made_again_too_and_a_finished_run_keeps_its_timings(windy, tmp_path):
    train(windy, tmp_path / "run", eval_every=5)
    whole, timings = looks_of(tmp_path / "run"), (tmp_path / "run" / "timings.json").read_bytes()
    path = tmp_path / "run" / "metrics.csv"
    path.write_text(
        "".join(
            line for line in path.read_text().splitlines(True) if not line.startswith("12,") or ",return," not in line
        )
    )
    assert len(looks_of(tmp_path / "run")) == 4
    train(windy, tmp_path / "run", eval_every=5)
    assert looks_of(tmp_path / "run") == whole
    assert (tmp_path / "run" / "timings.json").read_bytes() == timings


def test_a_run_may_go_on_on_another_kind_of_device(data, tmp_path):
    train(data, tmp_path / "run", steps=5)
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"cpu": None}))  # as one that began on a GPU
    train(data, tmp_path / "run", steps=5)


def test_without_a_simulator_there_is_no_return_to_log(tmp_path):
    pumps(tmp_path / "pumps")
    train(tmp_path / "pumps", tmp_path / "run", eval_every=2, steps=4)
    assert {row["name"] for row in metrics(tmp_path / "run")} >= {"q", "alive"}
    assert not any(row["name"] == "return" for row in metrics(tmp_path / "run"))


# -- seeds that fail ---------------------------------------------------------------------------------------------------

SPOILED = 6  # the update that meets a number that is not finite


def spoil(monkeypatch, draw_of_update, *names):
    """Make numbers of the second learner not finite in one draw of one update, of two each."""
    draw, calls = Training._draw, []

    def spoiled(self, generator):
        calls.append(1)
        batch, noise = draw(self, generator)
        if len(calls) == 2 * (SPOILED - 1) + draw_of_update:
            batch = {name: value.clone() for name, value in batch.items()}
            for name in names:
                batch[name][1, 0, 0] = float("nan")
        return batch, noise

    monkeypatch.setattr(Training, "_draw", spoiled)


@pytest.mark.parametrize(
    ("draw_of_update", "names"),
    [(1, ("act",)), (2, ("rew", "rew_dense"))],
    ids=["the discriminator's own step", "the step of all"],
)
def test_a_seed_that_fails_keeps_its_last_good_state_and_the_others_go_on(
    data, tmp_path, monkeypatch, capfd, draw_of_update, names
):
    options = {**TWO_DRAWS, "seed": 3, "log_every": 2}
    train(data, tmp_path / "whole", **options)
    train(data, tmp_path / "good", **options, steps=SPOILED - 1)
    assert "not finite" not in capfd.readouterr().err
    with monkeypatch.context() as patch:
        spoil(patch, draw_of_update, *names)
        train(data, tmp_path / "run", **options)
    printed = capfd.readouterr().err
    assert printed.count("warning: seed 4 met a number that is not finite and stopped") == 1
    assert printed.count("warning") == 1
    found = params(tmp_path / "run")
    assert torch.equal(found[0], params(tmp_path / "whole")[0])
    kept = params(tmp_path / "good")[1]
    if draw_of_update == 1:
        assert torch.equal(found[1], kept)
    else:
        # Of this update the discriminator's own step was good.
        before = Model(Run.open(tmp_path / "good")).params(1)
        after = Model(Run.open(tmp_path / "run")).params(1)
        moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
        assert moved == {"g"}
    alive = {
        (row["step"], row["seed"]): float(row["value"]) for row in metrics(tmp_path / "run") if row["name"] == "alive"
    }
    assert alive == {
        (str(step), seed): float(seed == "3" or step < SPOILED) for step in range(2, 13, 2) for seed in "34"
    }
    # It still adapts, by what it knew.
    rows = MetaDataset.open(data).rows(0)
    assert np.isfinite(Model(Run.open(tmp_path / "run")).adapt(rows, seed=1).act([0.0, 0.0])).all()


def test_training_ends_with_one_sentence_where_no_seed_is_left(data, tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "during", lambda *_: [])
    spoil(monkeypatch, 2, "rew", "rew_dense")
    train(data, tmp_path / "two", **TWO_DRAWS, seed=3, log_every=2)
    found = evaluate(tmp_path / "two", episodes=1)
    assert found["seeds"] == 2 and found["stopped"] == [4]

    def all_of_them(self, generator, draw=Training._draw):
        batch, noise = draw(self, generator)
        return {**batch, "rew": batch["rew"] * float("nan"), "rew_dense": batch["rew"] * float("nan")}, noise

    monkeypatch.setattr(Training, "_draw", all_of_them)
    with pytest.raises(OmrlError, match=r"No seed of .* is left at update 2: each met a number that is not finite"):
        train(data, tmp_path / "none", **TWO_DRAWS, seed=3, log_every=2)
    # Nothing more would come of it: what was good is kept, and is all that there will be.
    assert checkpoint(tmp_path / "none")[0] == Run.open(tmp_path / "none").config.steps
    assert (tmp_path / "none" / "timings.json").is_file()  # as any run that is finished
    found = evaluate(tmp_path / "none", episodes=1)
    assert found["stopped"] == [3, 4] and np.isfinite(found["mean"]["value"])


def test_a_q_that_has_grown_large_is_warned_of_once(data, tmp_path, monkeypatch, capfd):
    train(data, tmp_path / "usual", steps=8)
    assert "Q has passed" not in capfd.readouterr().err
    monkeypatch.setattr(signs, "LARGE_Q", 1e-9)
    train(data, tmp_path / "run", steps=8)
    printed = capfd.readouterr().err
    for seed in (0, 1):
        assert printed.count(f"warning: seed {seed}'s Q has passed 1e-09; regularise more, or lower") == 1
    same_files(tmp_path / "usual", tmp_path / "run", "checkpoints/step-0000008.safetensors")  # and it goes on


@pytest.mark.parametrize(
    ("values", "warned"),
    [
        ({"alive": [1.0, 1.0], "q": [9e5, -9e5]}, []),
        ({"alive": [1.0, 1.0], "saturated": [0.4, 0.99], "saturated_logged": [0.0, 0.6]}, []),
        ({"alive": [1.0, 1.0], "saturated": [0.2, 0.9], "saturated_logged": [0.0, 0.1]}, ["seed 6's policy takes"]),
        ({"alive": [1.0, 1.0], "q": [2.0, -2e6]}, ["seed 6's Q"]),
        ({"alive": [0.0, 1.0], "q": [float("nan"), 2e6]}, ["seed 5 met", "seed 6's Q"]),
        ({"alive": [1.0, 0.0]}, ["seed 6 met"]),  # an algorithm without a q
    ],
)
def test_warnings_name_the_seed(values, warned):
    found = signs.during(range(5, 7), values, None)
    assert len(found) == len(warned) and all(f.startswith(w) for f, w in zip(found, warned, strict=True))


# -- TensorBoard -------------------------------------------------------------------------------------------------------


def events(folder):
    """Steps and values by tag that TensorBoard shows: a restart hides what came at or after its step."""
    from tensorboardX.proto import event_pb2

    shown: dict[str, list[tuple[int, float]]] = {}
    for path in sorted((folder / "events").iterdir()):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            event = event_pb2.Event.FromString(content[place + 12 : place + 12 + length])
            place += 16 + length
            if event.session_log.status == event_pb2.SessionLog.START:
                shown = {tag: [point for point in points if point[0] < event.step] for tag, points in shown.items()}
            for value in event.summary.value:
                shown.setdefault(value.tag, []).append((event.step, value.simple_value))
    return shown


def assert_events_are_metrics(folder):
    wanted: dict[str, list[tuple[int, float]]] = {}
    for row in metrics(folder):
        wanted.setdefault(f"{row['name']}/seed-{row['seed']}", []).append((int(row["step"]), float(row["value"])))
    found = events(folder)
    assert found.keys() == wanted.keys() and len(wanted) > 5
    for tag, points in wanted.items():
        np.testing.assert_allclose(found[tag], points, rtol=1e-4, err_msg=tag)


@pytest.mark.parametrize("save_every", [5, 50], ids=["from a checkpoint", "from the beginning"])
def test_tensorboard_shows_the_metrics_once_even_of_a_run_that_was_cut(windy, tmp_path, monkeypatch, save_every):
    pytest.importorskip("tensorboardX")
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        cut_at(patch, 10)
        with pytest.raises(Cut):
            train(windy, folder, seed=3, save_every=save_every, eval_every=6)
    assert_events_are_metrics(folder)
    (first,) = (folder / "events").iterdir()
    first.rename(first.with_name("events.out.tfevents.1"))  # names have seconds: two runs of one test may share them
    train(windy, folder, seed=3, save_every=save_every, eval_every=6)
    assert len(list((folder / "events").iterdir())) == 2
    assert_events_are_metrics(folder)
    assert [step for step, _ in events(folder)["return/seed-4"]] == [6, 12]


def test_training_needs_no_tensorboard(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    train(data, tmp_path / "run", steps=4)
    assert not (tmp_path / "run" / "events").exists()
    assert len(metrics(tmp_path / "run")) > 5


# -- Weights & Biases --------------------------------------------------------------------------------------------------


def told(path):
    """Values by name and update in a file of a run that was not sent: a log of records in blocks of 32 KB."""
    from wandb.proto import wandb_internal_pb2

    data, at, record, found = path.read_bytes(), 7, b"", {}
    while at + 7 <= len(data):
        if (room := 32_768 - at % 32_768) < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        record, at = record + data[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):  # whole, or the last part
            history = wandb_internal_pb2.Record.FromString(record).history
            values = {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in history.item}
            found |= {(n, values["update"]): v for n, v in values.items() if n[0] != "_" and n != "update"}
            record = b""
    return found


def test_weights_and_biases_is_told_the_metrics(windy, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    train(windy, tmp_path / "run", seed=3, eval_every=6, wandb="windy")
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    wanted = {
        (f"{row['name']}/seed-{row['seed']}", int(row["step"])): float(row["value"])
        for row in metrics(tmp_path / "run")
    }
    assert told(file) == pytest.approx(wanted, rel=1e-4) and len(wanted) > 20
    assert {step for name, step in wanted if name == "return/seed-3"} == {6, 12}


def test_without_weights_and_biases_the_missing_extra_is_named(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(OmrlError, match=r"--wandb needs wandb: pip install 'omrl\[wandb\]'"):
        train(data, tmp_path / "run", steps=4, wandb="project")
    assert not (tmp_path / "run").exists()
