"""Contexts that are far from home are noticed, and honest ones are not, in a made-up domain."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
from safetensors import safe_open

import omrl
from domain_helpers import LEVEL, SCALE, a_task, log, save
from omrl.errors import OmrlError
from omrl.learning.regression import Features
from omrl.runs.calibration import CALIBRATION, Honest, fit_going
from omrl.runs.model import StrangeContext
from omrl.runs.run import RUN, Run
from omrl.storage import folders
from omrl.storage.files import write_tensors
from service_helpers import boilers
from training_helpers import train

ROWS = 64
TRAINING = {"steps": 200, "save_every": 200, "log_every": 200, "context_size": 32, "batch_size": 32, "meta_batch": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("domain")
    save(folder / "data", tasks=200, rows=ROWS, rng=np.random.default_rng(0))
    made = train(folder / "data", folder / "run", **TRAINING, seeds=2, latent_dim=3, encoder_hidden=(32, 32))
    omrl.calibrate(made.folder)
    return made.folder


@pytest.fixture(scope="module")
def model(run):
    return omrl.load(run)


def context(rng, size, far=False):
    """Rows from somewhere in the log of a task that nobody has seen."""
    rows, start = log(a_task(rng, far), rng, ROWS), rng.integers(ROWS - size + 1)
    return {name: values[start : start + size] for name, values in rows.items()}


def changed(rows, change):
    """The same rows with other observations."""
    return {name: change(values) if "observations" in name else values for name, values in rows.items()}


def scores(model, contexts, seed=0):
    return np.array([model.adapt(rows, seed, on_strange="ignore").context_score for rows in contexts])


@pytest.mark.parametrize("seed", [0, 1])
def test_a_score_is_the_share_of_honest_contexts_that_look_worse(model, seed):
    rng = np.random.default_rng(1)
    found = scores(model, [context(rng, size) for size in (4, 8, 16, 32) for _ in range(250)], seed)
    assert 0.03 <= (found < 0.05).mean() <= 0.07
    for share in (0.25, 0.5, 0.75):
        assert (found < share).mean() == pytest.approx(share, abs=0.08)


STRANGE = {
    "grams for kilograms": lambda rows: changed(rows, lambda obs: obs * [0.001, 1, 1, 1]),
    "Fahrenheit for Celsius": lambda rows: changed(rows, lambda obs: obs * [1, 1, 1.8, 1] + [0, 0, 32, 0]),
    "actions in percent": lambda rows: {**rows, "actions": rows["actions"] * 10},
    "rewards in cents": lambda rows: {**rows, "rewards": rows["rewards"] * 100},
    "first two columns swapped": lambda rows: changed(rows, lambda obs: obs[:, [1, 0, 2, 3]]),
    "last two columns swapped": lambda rows: changed(rows, lambda obs: obs[:, [0, 1, 3, 2]]),
}


@pytest.mark.parametrize("size", [8, 32])
@pytest.mark.parametrize("change", STRANGE)
def test_units_of_another_scale_and_swapped_columns_are_caught(model, change, size):
    rng = np.random.default_rng(2)
    found = scores(model, [STRANGE[change](context(rng, size)) for _ in range(100)])
    assert (found < 0.05).mean() >= 0.95


@pytest.mark.parametrize("size", [8, 32])
def test_a_task_that_is_far_away_is_caught(model, size):
    rng = np.random.default_rng(3)
    assert (scores(model, [context(rng, size, far=True) for _ in range(100)]) < 0.05).mean() >= 0.95


def test_a_strange_context_is_warned_of_refused_or_ignored(model):
    rng = np.random.default_rng(4)
    honest = next(rows for rows in (context(rng, 32) for _ in range(20)) if scores(model, [rows])[0] > 0.3)
    strange = STRANGE["rewards in cents"](honest)
    with pytest.warns(StrangeContext, match="The context is strange, most by its .*: 0.1% of honest ones look worse"):
        assert model.adapt(strange).context_score < 0.01
    with pytest.raises(OmrlError, match="The context is strange"):
        model.adapt(strange, on_strange="refuse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.adapt(strange, on_strange="ignore").context_score < 0.01
        for answer in ("warn", "refuse"):
            assert model.adapt(honest, on_strange=answer).context_score > 0.3
    with pytest.raises(OmrlError, match="on_strange is warn, refuse or ignore, not 'shrug'"):
        model.adapt(honest, on_strange="shrug")


def observations(rng, tasks=20):
    """Of tasks that nobody has seen."""
    return np.concatenate([log(a_task(rng), rng, ROWS)["observations"] for _ in range(tasks)])


def test_a_state_scores_by_the_share_of_logged_ones_that_are_further_away(model):
    rng = np.random.default_rng(8)
    policy = model.adapt(context(rng, 32), on_strange="ignore")
    found = policy.state_score(observations(rng))
    for share in (0.01, 0.05, 0.5):
        assert (found < share).mean() == pytest.approx(share, rel=0.5, abs=0.01)
    assert policy.state_score(SCALE * 9 + LEVEL) < 0.01
    assert policy.state_score(LEVEL) > 0.5


def test_far_from_the_log_the_cloned_logger_acts(model):
    rng = np.random.default_rng(9)
    rows = context(rng, 32)
    bold, kept = (model.adapt(rows, on_strange="ignore", fallback=way) for way in (None, "behaviour"))
    near, far = np.tile(LEVEL, (3, 1)), LEVEL + SCALE * [[6.0, 0, 0, 0], [0, 0, 7.0, 0]]
    np.testing.assert_array_equal(kept.act(near), bold.act(near))
    assert (kept.acted, kept.fell_back) == (3, 0)
    both = kept.act(np.concatenate([near, far]))
    np.testing.assert_array_equal(both[:3], bold.act(near))
    assert (kept.acted, kept.fell_back) == (8, 2)
    assert (bold.acted, bold.fell_back) == (6, 0)
    calibration = model.calibration
    cloned = calibration.clones[0].act(calibration.obs_in_units(far), kept.z[0])
    np.testing.assert_allclose(both[3:], 5.0 + 5.0 * cloned, rtol=1e-5)
    assert kept.act(far[0]).shape == (1,)


def test_the_clone_does_as_the_logger_does_on_average(model):
    rng = np.random.default_rng(10)
    errors, noise = [], []
    for _ in range(20):
        task = a_task(rng)
        rows = log(task, rng, ROWS)
        z = model.infer(rows, 0)
        calibration = model.calibration
        state = (rows["observations"] - LEVEL) / SCALE
        wanted = np.clip(0.3 * (task[1] - state[:, 0]), -1, 1)
        cloned = calibration.clones[0].act(calibration.obs_in_units(rows["observations"]), z)[:, 0]
        errors.append(np.square(cloned - wanted).mean())
        noise.append(np.square((rows["actions"][:, 0] - 5) / 5 - wanted).mean())
    assert np.mean(errors) < 0.1 * np.mean(noise)


def test_a_fallback_needs_a_calibration_and_a_name_that_is_known(model, tmp_path):
    rows = context(np.random.default_rng(11), 32)
    with pytest.raises(OmrlError, match="fallback is None or behaviour, not 'luck'"):
        model.adapt(rows, fallback="luck")
    for odd in (np.ones(2), 3, True):
        with pytest.raises(OmrlError, match="fallback is None or behaviour, not"):
            model.adapt(rows, fallback=odd)
        with pytest.raises(OmrlError, match="on_strange is warn, refuse or ignore, not"):
            model.adapt(rows, on_strange=odd)
    logs = boilers(tmp_path / "data")
    folder = train(tmp_path / "data", tmp_path / "run").folder
    with pytest.raises(OmrlError, match="cannot tell what is strange: run omrl calibrate first"):
        omrl.load(folder).adapt(logs["boiler-0"], fallback="behaviour")
    with pytest.raises(OmrlError, match="cannot tell what is strange: run omrl calibrate first"):
        omrl.load(folder).adapt(logs["boiler-0"]).state_score([350.0, 0.02, -5.0])


def test_a_calibrated_run_can_be_replaced(run):
    assert not folders.foreign(run, RUN)


def test_exporting_a_calibrated_run_warns_of_nothing(run, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", StrangeContext)
        omrl.export(run, "numpy", tmp_path / "out")


def test_of_many_rows_the_newest_are_judged(model):
    rng = np.random.default_rng(5)
    rows = context(rng, ROWS)
    newest = {name: values[-32:] for name, values in rows.items()}
    assert scores(model, [rows]) == scores(model, [newest])


def test_surprises_are_those_of_the_gaussian_process():
    """Of rows with one observation and one action: the distance to f, and the likelihood whatever g is."""
    rng = np.random.default_rng(8)
    rows = [rng.normal(size=(30, 4)) for _ in range(4)]
    going = fit_going(rows, 1)([0, 1, 2])
    phi = Features(going.frequencies, going.phases)(rows[3][:, :2])
    wrong = np.stack([rows[3][:, 2], rows[3][:, 3] - rows[3][:, 0]], -1) - phi @ going.weights
    for number, (away, own, noise) in enumerate(zip(wrong.T, going.own, going.noise, strict=True)):
        covariance = noise**2 * (np.eye(30) + phi @ phi.T / own)
        far, whatever = away @ away / noise**2 / 30, away @ np.linalg.solve(covariance, away) / 30
        found = going.surprise(rows[3][None], 1)[0]
        np.testing.assert_allclose(np.exp(found[[number, 2 + number]]) - 1e-3, [far, whatever], rtol=1e-6)


def test_the_strangest_part_is_named():
    """Of two observations: three looks, then twice the reward and both changes."""
    honest = Honest(np.zeros(9), np.ones(9), np.linspace(0, 2, 99))
    parts = ["embedding", "level of a column", "spread of a column"]
    parts += 2 * ["rewards", "next observations", "next observations"]
    for i, part in enumerate(parts):
        assert honest.score(0.1 + 0.9 * np.eye(9)[i]) == (pytest.approx(0.5, abs=0.02), part)
        assert honest.score(9.0 * np.eye(9)[i]) == (pytest.approx(0.01), part)


def test_a_run_that_is_not_calibrated_has_no_score(tmp_path):
    logs = boilers(tmp_path / "data")
    folder = train(tmp_path / "data", tmp_path / "run").folder
    assert omrl.load(folder).adapt(logs["boiler-0"]).context_score is None
    with pytest.raises(OmrlError, match="cannot tell what is strange: run omrl calibrate first"):
        omrl.load(folder).adapt(logs["boiler-0"], on_strange="refuse")
    with pytest.raises(OmrlError, match="2 training tasks are too few"):
        omrl.calibrate(folder)


def test_the_calibration_of_an_earlier_checkpoint_does_not_count(run, tmp_path):
    rows = context(np.random.default_rng(6), 32)
    made = Run.open(run)
    step, state = made.load()
    latest = (run / "checkpoints" / "latest").read_text()
    try:
        made.save(step + 1, state)
        assert omrl.load(run).adapt(rows).context_score is None
    finally:
        (run / "checkpoints" / "latest").write_text(latest)
    assert omrl.load(run).adapt(rows, on_strange="ignore").context_score is not None


def test_the_command_writes_the_same_again_and_damage_is_noticed(run):
    path = run / "calibration.safetensors"
    before = path.read_bytes()
    words = [sys.executable, "-m", "omrl", "calibrate", run]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(path)], done.stderr
    assert path.read_bytes() == before
    flipped = bytearray(before)
    flipped[-5] ^= 64
    try:
        for damaged in (before[: len(before) // 2], bytes(flipped)):
            path.write_bytes(damaged)
            with pytest.raises(OmrlError, match=r"safetensors is damaged.*; run omrl calibrate again\.$"):
                omrl.load(run).adapt(context(np.random.default_rng(7), 32))
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("name", ["1.home.spread", "going.weights", "0.usual.8.anywhere.level", "1.clone.weights"])
def test_a_calibration_whose_parts_do_not_fit_is_told_before_it_is_needed(run, tmp_path, name):
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run" / CALIBRATION
    with safe_open(path, framework="numpy") as file:
        notes, arrays = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    assert name in arrays
    write_tensors(path, {**arrays, name: np.zeros((7, 3))}, notes)
    with pytest.raises(OmrlError, match=f"{CALIBRATION} is damaged"):
        _ = omrl.load(tmp_path / "run").calibration
