"""Training end to end on a small dataset: the run folder, resuming, how a CPU computes, seeds that fail."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from cut_helpers import Cut, checkpoint, cut_at, params, same_files, spied
from omrl.commands.train import Train
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.evaluation.testing import evaluate
from omrl.families import FAMILIES
from omrl.learning import compiling, devices, loop, signs
from omrl.learning import training as learning
from omrl.learning.engine import Population
from omrl.learning.starting import starting_point
from omrl.learning.training import Training
from omrl.runs import run as run_module
from omrl.runs.model import Model
from omrl.runs.run import Run
from training_helpers import metrics, some_config, train, walks

# Two draws in an update: one for the discriminator alone.
TWO_DRAWS = {"regularisation": "policy", "regulariser_steps": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return walks(FAMILIES["sparse-point-robot"], tmp_path_factory.mktemp("data") / "walks")


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
    def recorded(name):
        train(data, tmp_path / name, steps=1)
        return json.loads((tmp_path / name / "environment.json").read_text())["commit"]

    monkeypatch.setenv("OMRL_COMMIT", "said by hand")
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "__file__", str(tmp_path / "run.py"))  # a copy
        assert recorded("copy") == "said by hand"
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    assert recorded("checkout") == (found.stdout.strip() if found.returncode == 0 else "said by hand")


def test_a_project_that_it_is_installed_in_is_not_its_commit(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "run.py").touch()
    monkeypatch.setattr(run_module, "__file__", str(tmp_path / "run.py"))
    monkeypatch.delenv("OMRL_COMMIT", raising=False)
    assert run_module._commit() is None
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["add", "run.py"], [*names, "commit", "-qm", "tracked"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    assert run_module._commit() is not None


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


def test_a_run_may_go_on_on_another_kind_of_device(data, tmp_path):
    train(data, tmp_path / "run", steps=5)
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"cpu": None}))  # as one that began on a GPU
    train(data, tmp_path / "run", steps=5)


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


# -- extras that are not there -----------------------------------------------------------------------------------------


def test_training_needs_no_tensorboard(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    train(data, tmp_path / "run", steps=4)
    assert not (tmp_path / "run" / "events").exists()
    assert len(metrics(tmp_path / "run")) > 5


def test_without_weights_and_biases_the_missing_extra_is_named(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(OmrlError, match=r"--wandb needs wandb: pip install 'omrl\[wandb\]'"):
        train(data, tmp_path / "run", steps=4, wandb="project")
    assert not (tmp_path / "run").exists()
