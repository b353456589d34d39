"""What is promised of every algorithm: it trains, resumes, infers, acts, and learns several seeds at once."""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, fields
from itertools import cycle

import numpy as np
import pytest
import torch

import omrl
from omrl.algorithms import ALGORITHMS, get_algorithm
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.families import FAMILIES
from omrl.learning.training import Training
from omrl.runs.model import Model, populate
from training_helpers import OPTIONS, metrics, walks

UPDATES, CHECKPOINT = 4, "step-0000004.safetensors"
# Sizes that make an algorithm small, for those that have them.
SIZES = {
    "latent_dim": 2,
    "meta_batch": 3,
    "batch_size": 8,
    "context_size": 4,
    "members": 3,
    "teacher_steps": 4,
    "reward_steps": 4,
    "next_obs_steps": 4,
}


def small(name: str) -> dict[str, object]:
    """Hyperparameters that make an algorithm small."""
    known = [field.name for field in fields(get_algorithm(name).Config)]
    return {
        key: (8, 8) if key.endswith("hidden") else SIZES[key] for key in known if key.endswith("hidden") or key in SIZES
    }


def train(name: str, data, out, **changes):
    return omrl.train(name, data, out, **{**small(name), **OPTIONS, "steps": UPDATES, "device": "cpu", **changes})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return walks(FAMILIES["point-robot-wind"], tmp_path_factory.mktemp("data") / "walks")


@pytest.fixture(scope="module", params=ALGORITHMS)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(name, data, tmp_path_factory):
    """A trained run of the algorithm."""
    out = tmp_path_factory.mktemp(name) / "run"
    train(name, data, out, save_every=2, log_every=1)
    return out


@pytest.fixture(scope="module")
def trained(folder) -> Model:
    return omrl.load(folder)


def rows(trained: Model, data, count: int = 6):
    """Contexts [2, C, transition] of two tasks, and observations [N, S]."""
    dataset = MetaDataset.open(data)
    logs = [{key: value[:count] for key, value in dataset.rows(task).items()} for task in range(2)]
    contexts = torch.stack([trained.contexts(log) for log in logs])
    return contexts, trained.normalise(torch.from_numpy(np.array(logs[0]["observations"])))


# -- training ----------------------------------------------------------------------------------------------------------


def test_hyperparameters_have_defaults_and_name_what_training_asks_for(name):
    kind = get_algorithm(name)
    known = {field.name: field for field in fields(kind.Config)}
    assert {"meta_batch", "batch_size", "context_size", "latent_dim"} <= known.keys()
    assert all(field.default is not MISSING for field in known.values())
    assert kind.Config.__dataclass_params__.frozen


def test_losses_are_finite_and_every_seed_lives(name, folder):
    found = metrics(folder)
    assert {row["seed"] for row in found} == {"0", "1"}
    assert {int(row["step"]) for row in found} == set(range(1, UPDATES + 1))
    assert np.isfinite([float(row["value"]) for row in found]).all()
    assert all(float(row["value"]) == 1 for row in found if row["name"] == "alive")
    assert {"q", "critic_loss", "actor_loss"} & {row["name"] for row in found}


def test_seeds_differ_and_every_network_learns(name, trained):
    config = trained.hyperparameters
    learners, _ = get_algorithm(name).build(trained.obs_dim, trained.act_dim, config, [0])
    start = {key: value.detach() for key, value in learners[0].named_parameters()}
    one, other = trained.params(0), trained.params(1)
    moved = {key.split(".")[0] for key in start if not torch.equal(start[key], one[key])}
    # What regularises is left alone where nothing is regularised; its strength is fixed unless it is adapted.
    still = {"g", "alpha"} if getattr(config, "regularisation", "") == "none" else {"alpha"}
    assert moved == {key.split(".")[0] for key in start} - still
    assert not any(torch.equal(one[key], other[key]) for key in start if ".weight." in key)


def test_an_interrupted_run_ends_with_the_same_bytes(name, data, folder, tmp_path, monkeypatch):
    draw, calls = Training._draw, []

    def cut(self, generator):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return draw(self, generator)

    monkeypatch.setattr(Training, "_draw", cut)
    with pytest.raises(KeyboardInterrupt):
        train(name, data, tmp_path / "run", save_every=2, log_every=1)
    monkeypatch.setattr(Training, "_draw", draw)
    train(name, data, tmp_path / "run", save_every=2, log_every=1)
    for file in (f"checkpoints/{CHECKPOINT}", "metrics.csv", "config.json"):
        assert (tmp_path / "run" / file).read_bytes() == (folder / file).read_bytes(), file


def recorded_draws(monkeypatch):
    """The batches and noise of the runs that follow, as they are drawn."""
    draw, drawn = Training._draw, []

    def recorded(self, generator):
        drawn.append(draw(self, generator))
        return drawn[-1]

    monkeypatch.setattr(Training, "_draw", recorded)
    return drawn


def test_two_seeds_at_once_equal_one_at_a_time(name, data, tmp_path, monkeypatch):
    drawn = recorded_draws(monkeypatch)
    train(name, data, tmp_path / "run")
    both = omrl.load(tmp_path / "run")
    for seed in range(2):
        _, alone = populate(
            get_algorithm(name), both.obs_dim, both.act_dim, both.hyperparameters, [seed], "cpu", "eager"
        )
        own = iter([tuple({key: value[seed, None] for key, value in part.items()} for part in pair) for pair in drawn])
        for _ in range(UPDATES):
            alone.step(lambda _, own=own: next(own))
        assert next(own, None) is None
        for key, value in both.params(seed).items():
            torch.testing.assert_close(
                alone.params[key][0], value, rtol=1e-4, atol=1e-5, msg=lambda m, k=key: f"{k}: {m}"
            )


@pytest.mark.parametrize("half", [False, True])
def test_room_to_spare_changes_no_gradient(name, half, data, tmp_path, monkeypatch):
    # What CUDA does to every algorithm, on a CPU: Adam's first moments after one update are its gradients.
    drawn = recorded_draws(monkeypatch)
    train(name, data, tmp_path / "run", steps=1)
    trained = omrl.load(tmp_path / "run")
    config = dataclasses.replace(trained.hyperparameters, bfloat16=half)
    moments = {}
    for room in (1, 16):
        kind, turns = get_algorithm(name), iter(drawn)
        _, population = populate(kind, trained.obs_dim, trained.act_dim, config, [0, 1], "cpu", room=room)
        population.step(lambda _, turns=turns: next(turns))
        moments[room] = population.state()["adam.first_moment"].clone()
    largest = float(moments[1].abs().max())
    assert largest > 0
    tolerance = {"rtol": 0.1, "atol": 2e-2 * largest} if half else {"rtol": 1e-4, "atol": 1e-6 * largest}
    torch.testing.assert_close(moments[16], moments[1], **tolerance)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_update_equals_an_eager_one(name, data, tmp_path, monkeypatch):
    # On a CPU compiling takes a minute for each algorithm; `tests/test_engine.py` has it for a small loss.
    drawn = recorded_draws(monkeypatch)
    train(name, data, tmp_path / "run", steps=1)
    trained = omrl.load(tmp_path / "run")
    pairs = [tuple({key: value.cuda() for key, value in part.items()} for part in pair) for pair in drawn]
    moments = {}
    for mode in ("eager", "graph"):
        turns = cycle(pairs)
        kind, config = get_algorithm(name), trained.hyperparameters
        _, population = populate(kind, trained.obs_dim, trained.act_dim, config, [0, 1], "cuda", mode)
        population.step(lambda _, turns=turns: next(turns))
        # Parameters would not do: Adam's first step is as large for a gradient that is all rounding.
        moments[mode] = population.state()["adam.first_moment"].clone()
    largest = float(moments["eager"].abs().max())
    torch.testing.assert_close(moments["graph"], moments["eager"], rtol=1e-2, atol=1e-3 * largest)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_trains_on_every_family_with_its_preset(name, family, tmp_path):
    train(name, made_up(FAMILIES[family], tmp_path / "data"), tmp_path / "run", steps=2, log_every=1)
    assert np.isfinite([float(row["value"]) for row in metrics(tmp_path / "run")]).all()


def made_up(family, folder):
    """Rows of a family's shapes without its simulator; every task is trained on, as where there are two of them."""
    rng, count = np.random.default_rng(0), 40
    tasks = family.tasks[:3]

    def log():
        dense = {"rewards_dense": rng.normal(size=count)} if family.name == "sparse-point-robot" else {}
        return dense | {
            "observations": rng.normal(size=(count, family.obs_dim)),
            "actions": rng.uniform(-1, 1, size=(count, family.act_dim)),
            "rewards": rng.normal(size=count),
            "next_observations": rng.normal(size=(count, family.obs_dim)),
            "terminations": np.zeros(count, dtype=bool),
            "truncations": np.arange(count) % 20 == 19,
            "episode": np.arange(count) // 20,
            "step": np.arange(count) % 20,
        }

    names = [task.name for task in tasks]
    MetaDataset.from_arrays(
        {task.name: log() for task in tasks},
        action_low=[-1] * family.act_dim,
        action_high=[1] * family.act_dim,
        varies=family.varies,
        split={"train": names, "test": names},
        params={task.name: dict(task.params) for task in tasks},
        family=family.name,
        horizon=family.horizon,
    ).save(folder)
    return folder


# -- inferring and acting ----------------------------------------------------------------------------------------------


def test_a_task_is_a_vector_and_actions_are_in_their_bounds(trained, data):
    contexts, obs = rows(trained, data)
    algorithm, params = trained.algorithm, trained.params(0)
    z = algorithm.infer(params, contexts)
    assert z.shape == (2, trained.hyperparameters.latent_dim)
    each = z[:1].expand(len(obs), -1)
    act = algorithm.act(params, obs, each)
    assert act.shape == (len(obs), trained.act_dim) and act.abs().max() <= 1
    assert torch.equal(act, algorithm.act(params, obs, each))
    if algorithm.has_values:
        assert algorithm.q(params, obs, each, act).shape[-1] == len(obs)
    assert not torch.equal(z[0], z[1])


def test_the_order_of_a_context_does_not_matter(trained, data):
    contexts, _ = rows(trained, data)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    for seed in range(2):
        found = [trained.algorithm.infer(trained.params(seed), c) for c in (contexts, contexts[:, order])]
        torch.testing.assert_close(*found)


def test_all_seeds_act_at_once_as_each_alone(trained, data):
    contexts, obs = rows(trained, data)
    algorithm, params = trained.algorithm, trained.population.params
    z = torch.vmap(algorithm.infer, in_dims=(0, None))(params, contexts)
    together = torch.vmap(algorithm.act, in_dims=(0, None, 0))(params, obs[:2], z)
    for seed in range(2):
        own = trained.params(seed)
        alone = algorithm.act(own, obs[:2], algorithm.infer(own, contexts))
        torch.testing.assert_close(together[seed], alone, rtol=1e-4, atol=1e-5)


def test_a_loaded_run_adapts_and_acts(folder, data):
    logs = MetaDataset.open(data).rows(0)
    policy = omrl.load(folder).adapt(logs, seed=1)
    many = policy.act(logs["observations"][:5])
    assert many.shape == (5, 2) and (np.abs(many) <= 1).all()
    np.testing.assert_allclose(policy.act(logs["observations"][3]), many[3], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(omrl.load(folder).adapt(logs, seed=1).act(logs["observations"][:5]), many)


def test_scores_are_finite(folder):
    found = omrl.evaluate(folder, context=10, episodes=1)
    assert np.isfinite(found["mean"]["value"]) and found["seeds"] == 2


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"latent_dim": 0}, "latent_dim must be at least 1"),
        ({"nope": 1}, "has no nope"),
        ({"preset": "nope"}, "no preset 'nope'"),
        ({"dense_reward": True}, "has no rewards_dense"),
    ],
)
def test_bad_hyperparameters_get_one_sentence_and_leave_no_run(name, data, tmp_path, changes, message):
    if "dense_reward" in changes and not hasattr(get_algorithm(name).Config, "dense_reward"):
        message = "has no dense_reward"  # it learns from no reward at all
    with pytest.raises(OmrlError, match=message):
        train(name, data, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": np.zeros((4, 5))}, r"observations must have shape \[..., 2\]"),
        ({"rewards": np.array([0, 1, np.nan, 0])}, "rewards has a value that is not finite in row 2"),
    ],
)
def test_a_bad_context_gets_one_sentence(trained, change, message):
    context = {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 2)), "rewards": np.zeros(4)}
    with pytest.raises(OmrlError, match=message):
        trained.adapt({**context, "next_observations": np.zeros((4, 2)), **change})
