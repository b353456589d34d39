"""Policies that learn row after row: as from all rows at once, from many threads, and for tasks that drift."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import tracemalloc
import warnings

import numpy as np
import pytest
import torch

import omrl
from omrl.algorithms.focal import FOCAL
from omrl.errors import OmrlError
from omrl.runs.model import StrangeContext
from omrl.runs.policy import CONTEXT
from service_helpers import KINDS, boilers, trained


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "boilers"
    return folder, boilers(folder)


@pytest.fixture(scope="module")
def focal(logs, tmp_path_factory):
    return trained("focal", logs[0], tmp_path_factory.mktemp("runs") / "focal")


def tuples(logs, task="boiler-2"):
    return list(zip(*(logs[1][task][name] for name in CONTEXT), strict=True))


def inferred(model, rows, seed=0):
    """z by the algorithm's own `infer`, which knows nothing of streams."""
    arrays = dict(zip(CONTEXT, map(np.array, zip(*rows, strict=True)), strict=True))
    with torch.no_grad():
        return model.algorithm.infer(model.params(seed), model.contexts(arrays)[None]).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_row_after_row_is_the_same_as_all_at_once(kind, logs, tmp_path):
    model, rows = omrl.load(trained(kind, logs[0], tmp_path / "run")), tuples(logs)
    policy = model.adapt(rows[:3], seed=1)
    before = policy.z
    for row in rows[3:]:
        policy.observe(*row)
    wanted = inferred(model, rows, seed=1)
    assert np.abs(before - wanted).max() > 1e-3
    np.testing.assert_allclose(policy.z, wanted, atol=1e-5)
    np.testing.assert_allclose(model.adapt(rows, seed=1).z, wanted, atol=1e-5)
    span = model.action_high - model.action_low
    obs = logs[1]["boiler-2"]["observations"]
    np.testing.assert_allclose(policy.act(obs) / span, model.adapt(rows, seed=1).act(obs) / span, atol=1e-5)


@pytest.mark.parametrize("kind", ["focal", "batch-pearl"])
def test_a_window_counts_the_newest_rows_alone(kind, logs, tmp_path):
    model, rows = omrl.load(trained(kind, logs[0], tmp_path / "run")), tuples(logs)
    wanted = inferred(model, rows[-7:])
    np.testing.assert_allclose(model.adapt(rows, window=7).z, wanted, atol=1e-5)
    policy = model.adapt(rows[:20], window=7)
    for row in rows[20:]:
        policy.observe(*row)
    np.testing.assert_allclose(policy.z, wanted, atol=1e-5)
    np.testing.assert_allclose(model.adapt(rows[:5], window=7).z, inferred(model, rows[:5]), atol=1e-5)


def test_a_window_may_be_longer_than_all_memory(logs, focal):
    model, rows = omrl.load(focal), tuples(logs)
    for window in (10**30, np.int64(1000)):
        np.testing.assert_allclose(model.adapt(rows, window=window).z, model.adapt(rows).z, atol=1e-6)


def test_what_is_forgotten_counts_less_with_every_row(logs, focal):
    model, rows = omrl.load(focal), tuples(logs)
    # The deterministic encoder's code of a row is the z of that row alone.
    codes = np.array([inferred(model, [row])[0] for row in rows])
    weights = 0.8 ** np.arange(len(rows))[::-1, None]
    wanted = (codes * weights).sum(0) / weights.sum(0)
    policy = model.adapt(rows[:4], forget=0.8)
    for row in rows[4:]:
        policy.observe(*row)
    np.testing.assert_allclose(policy.z[0], wanted, atol=1e-5)
    np.testing.assert_allclose(model.adapt(rows, forget=0.8).z[0], wanted, atol=1e-5)
    assert np.abs(wanted - model.adapt(rows).z[0]).max() > 1e-3


@pytest.mark.parametrize("options", [{}, {"window": 8}, {"forget": 0.9}])
def test_memory_does_not_grow_with_the_rows(options, logs, focal):
    rows = tuples(logs)
    policy = omrl.load(focal).adapt(rows, **options)

    def traced(turns):
        for row in rows * turns:
            policy.observe(*row)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        sizes = [traced(2), traced(100), traced(100), traced(100)]  # the first with what is made on first use
    finally:
        tracemalloc.stop()
    # A single number of each row would be as much, in every stretch; what other threads keep comes in one.
    assert min(np.diff(sizes)) < 100 * len(rows) * 8


def test_threads_may_share_a_policy_and_a_model(logs, focal):
    model, rows = omrl.load(focal), tuples(logs) * 5
    shared, other = model.adapt(rows[:1]), model.adapt(rows[:1], seed=1)
    obs = logs[1]["boiler-2"]["observations"]
    wanted, wrong, errors = other.act(obs), [], []

    def guarded(work):
        def run():
            try:
                work()
            except Exception as error:
                errors.append(error)

        return run

    def act():
        for _ in range(100):
            # Another seed's parameters are in the same networks meanwhile.
            wrong.append(np.abs(other.act(obs) - wanted).max() > 1e-3)
            shared.act(obs)

    def learn(part):
        for row in part:
            shared.observe(*row)

    parts = [rows[1 + i :: 3] for i in range(3)]
    works = [guarded(act)] * 3 + [guarded(lambda part=part: learn(part)) for part in parts]
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and not any(wrong) and len(wrong) == 300
    np.testing.assert_allclose(shared.z, inferred(model, rows), atol=1e-5)


def test_a_policy_says_how_to_send_it_instead_of_being_pickled(logs, focal):
    policy = omrl.load(focal).adapt(tuples(logs))
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(
            OmrlError, match=r"not pickled: send the rows, and call omrl.load\(.*focal'\).adapt\(rows\)"
        ):
            attempt(policy)


def test_a_copy_of_a_model_acts_as_it_does_now_whatever_becomes_of_it(logs, focal):
    model = omrl.load(focal)
    other, before = model.copy_on_cpu(), model.adapt(tuples(logs)).act([0.1, 0.2, 0.3])
    for value in model.population.params.values():
        value.zero_()
    assert not np.array_equal(model.adapt(tuples(logs)).act([0.1, 0.2, 0.3]), before)
    np.testing.assert_array_equal(other.adapt(tuples(logs)).act([0.1, 0.2, 0.3]), before)


def test_a_model_says_how_to_send_it_instead_of_being_pickled(focal):
    model = omrl.load(focal)
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(
            OmrlError, match=r"not pickled: send the run's folder, and call omrl.load\(.*focal'\) there"
        ):
            attempt(model)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"window": 5, "forget": 0.9}, "window or forget, not both"),
        ({"window": 0}, "window must be at least 1 row, not 0"),
        ({"forget": 0.0}, "forget must lie above 0 and be at most 1, not 0.0"),
        ({"forget": 1.5}, "forget must lie above 0 and be at most 1, not 1.5"),
    ],
)
def test_options_that_make_no_sense_get_one_sentence(options, sentence, logs, focal):
    with pytest.raises(OmrlError, match=sentence):
        omrl.load(focal).adapt(tuples(logs), **options)


def test_a_row_that_cannot_be_used_changes_nothing(logs, focal):
    rows = tuples(logs)
    policy = omrl.load(focal).adapt(rows)
    before = policy.z
    with pytest.raises(OmrlError, match="rewards has a value that is not finite"):
        policy.observe(rows[0][0], rows[0][1], float("nan"), rows[0][3])
    np.testing.assert_array_equal(policy.z, before)


def test_a_masked_row_is_refused(logs, focal):
    obs, act, rew, next_obs = tuples(logs)[0]
    policy = omrl.load(focal).adapt(tuples(logs))
    for masked in (np.ma.masked_array(obs, mask=[0, 1, 0]), [obs[0], np.ma.masked, obs[2]]):
        with pytest.raises(OmrlError, match=r"^observations has a masked value in row 0"):
            policy.observe(masked, act, rew, next_obs)
    with pytest.raises(OmrlError, match="rewards has a masked value in row 0"):
        policy.observe(obs, act, np.ma.masked, next_obs)


def test_an_action_outside_its_bounds_is_said_to_be(logs, focal):
    obs, act, rew, next_obs = tuples(logs)[0]
    policy = omrl.load(focal).adapt(tuples(logs))
    with pytest.warns(StrangeContext, match="lie outside the bounds of the log") as said:
        policy.observe(obs, [1e6, 0.0], rew, next_obs)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.observe(obs, act, rew, next_obs)


class Heir(FOCAL):
    """Infers otherwise, and says nothing of evidence."""

    def infer(self, params, context, noise=None):
        return super().infer(params, context).square()


class SecondHeir(Heir):
    """Says it again."""

    def evidence(self, params, context):
        codes, weights = super().evidence(params, context)
        return codes, weights


def test_an_heir_that_infers_otherwise_has_no_evidence_until_it_says_some(logs, focal, monkeypatch):
    assert FOCAL.has_evidence() and not Heir.has_evidence() and SecondHeir.has_evidence()
    model, rows = omrl.load(focal), tuples(logs)
    model.algorithm = Heir(model.algorithm.nets, model.hyperparameters)
    policy = model.adapt(rows)
    np.testing.assert_array_equal(policy.z, inferred(model, rows))
    for wrong in (lambda: policy.observe(*rows[0]), lambda: model.adapt(rows, window=3)):
        with pytest.raises(OmrlError, match="focal infers a task from all rows at once"):
            wrong()
