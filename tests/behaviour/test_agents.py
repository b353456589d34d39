from __future__ import annotations

import numpy as np
import pytest
import torch
from behaviour_helpers import SPARSE, WALKER, WIND, contents, small_config, some_tasks

from omrl.behaviour import agents
from omrl.behaviour.agents import Replay, Trainer, train
from omrl.behaviour.policies import PolicyFiles, sample_actions
from omrl.errors import OmrlError
from omrl.runs.checkpoints import load_checkpoint, save_checkpoint

ROUNDS = 40


def trainer(work, family=SPARSE, tasks=3, config=None) -> Trainer:
    work.mkdir(exist_ok=True)
    return Trainer(family, some_tasks(family, tasks), config or small_config(), "cpu", work)


def run(loop: Trainer, rounds: int) -> Trainer:
    for _ in range(rounds):
        loop.update()
    return loop


def everything(loop: Trainer) -> dict[str, bytes]:
    """All that a trainer is, as bytes."""
    state = {name: value.numpy().tobytes() for name, value in loop.population.state().items()}
    state |= {name: getattr(loop, name).tobytes() for name in ("episode", "episode_step", "episode_return")}
    state["recent"] = loop.recent_return.tobytes()
    state["replay"] = loop.replay.rows[:, : loop.replay.count].numpy().tobytes()
    state["simulator"] = loop.simulator.get_state().tobytes()
    state["counters"] = repr((loop.round, loop.update_debt)).encode()
    return state


def columns(loop: Trainer) -> dict[str, np.ndarray]:
    """The replay memory as [agent, round, environment, ...] by name."""
    rows = loop.replay.rows[:, : loop.replay.count].reshape(loop.agents, loop.round, loop.envs, -1)
    names = ("obs", "act", "rew", "term", "next_obs")
    return {n: part.numpy() for n, part in zip(names, torch.split(rows, loop.replay.widths, dim=-1), strict=True)}


# ----------------------------------------------------------------------------- the same again, and going on


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path):
    one, two = run(trainer(tmp_path / "a"), ROUNDS), run(trainer(tmp_path / "b"), ROUNDS)
    assert everything(one) == everything(two)
    other = run(trainer(tmp_path / "c", config=small_config(seed=1)), ROUNDS)
    assert everything(other)["params"] != everything(one)["params"]
    assert everything(other)["replay"] != everything(one)["replay"]


@pytest.mark.parametrize("saves", [[5], [12, 13], [11, 20, 39]])
def test_an_interrupted_run_equals_an_uninterrupted_one(tmp_path, saves):
    whole = run(trainer(tmp_path / "whole"), ROUNDS)
    whole.save()
    for saved_at in saves:
        loop = trainer(tmp_path / "parts")
        loop.resume()
        run(loop, saved_at - loop.round)
        loop.save()
        run(loop, 1)  # lost
    last = trainer(tmp_path / "parts")
    last.resume()
    assert last.round == saves[-1]
    run(last, ROUNDS - last.round)
    last.save()
    assert everything(last) == everything(whole)
    assert last.returns().tobytes() == whole.returns().tobytes()
    assert len(whole.returns()) == 3 * 4 * (ROUNDS // 9)


def test_a_run_killed_between_the_chunk_and_the_state_goes_on_from_the_state(tmp_path, monkeypatch):
    whole = run(trainer(tmp_path / "whole"), ROUNDS)
    whole.save()
    loop = run(trainer(tmp_path / "parts"), 15)
    loop.save()
    run(loop, 6)
    written = agents.save_checkpoint

    def killed(path, *rest):
        if path.name == "state.safetensors":
            raise KeyboardInterrupt
        written(path, *rest)

    monkeypatch.setattr(agents, "save_checkpoint", killed)
    with pytest.raises(KeyboardInterrupt):
        loop.save()
    monkeypatch.undo()
    last = trainer(tmp_path / "parts")
    last.resume()
    assert last.round == 15
    run(last, ROUNDS - 15)
    last.save()
    assert everything(last) == everything(whole)
    assert last.returns().tobytes() == whole.returns().tobytes()


def test_a_save_costs_what_was_added_since_the_last_one(tmp_path):
    loop = trainer(tmp_path, config=small_config(steps=800, checkpoints=(0, 800)))
    states = []
    for rounds in (100, 2, 2):
        run(loop, rounds)
        loop.save()
        states.append((tmp_path / "state.safetensors").stat().st_size)
    sizes = [(tmp_path / f"replay-{i:05d}.safetensors").stat().st_size for i in range(3)]
    row_bytes = 4 * (2 + 2 + 1 + 1 + 2)
    header = 300
    assert 100 * 3 * 4 * row_bytes < sizes[0]
    assert sizes[1] < 2 * 3 * 4 * row_bytes + header
    assert sizes[2] < 2 * 3 * 4 * row_bytes + header
    assert max(states) - min(states) < 16


def test_a_state_of_another_kind_of_device_is_refused(tmp_path):
    run(trainer(tmp_path), 2).save()
    path = tmp_path / "state.safetensors"
    state, notes = load_checkpoint(path)
    save_checkpoint(path, state | {"generator": torch.zeros(16, dtype=torch.uint8)}, notes)
    with pytest.raises(OmrlError, match="another kind of device"):
        trainer(tmp_path).resume()


@pytest.mark.parametrize("name", ["state", "replay-00000"])
def test_damage_says_what_to_delete(tmp_path, name):
    run(trainer(tmp_path), 2).save()
    path = tmp_path / f"{name}.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(OmrlError, match=rf"{name}\.safetensors is damaged.*; delete its folder to begin again"):
        trainer(tmp_path).resume()


def test_train_gives_the_same_checkpoints_and_returns_when_it_is_called_again(tmp_path, monkeypatch):
    tasks, config = some_tasks(SPARSE, 2), small_config()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.setattr(agents, "REPORT_ROUNDS", 3)
    monkeypatch.setattr(agents, "SAVE_SECONDS", 0.0)
    whole, whole_returns = train(SPARSE, tasks, config, "cpu", tmp_path / "a")
    rounds = iter(range(25))
    honest = Trainer.update

    def interrupted(self):
        if next(rounds, None) is None:
            raise KeyboardInterrupt
        honest(self)

    monkeypatch.setattr(Trainer, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(SPARSE, tasks, config, "cpu", tmp_path / "b")
    monkeypatch.setattr(Trainer, "update", honest)
    for _ in range(2):
        parts, returns = train(SPARSE, tasks, config, "cpu", tmp_path / "b")
        assert list(parts) == list(whole) == [0, 80, 160]
        for step, weights in whole.items():
            assert parts[step].keys() == weights.keys()
            for name, array in weights.items():
                assert parts[step][name].tobytes() == array.tobytes()
        assert returns.tobytes() == whole_returns.tobytes()
    names = [name for name in contents(tmp_path / "a") if name.startswith("actors")]
    assert {name: contents(tmp_path / "a")[name] for name in names} == {n: contents(tmp_path / "b")[n] for n in names}


def test_agents_that_diverge_are_named(tmp_path):
    config = small_config({"learning_rate": 1e38})
    with np.errstate(over="ignore"), pytest.raises(OmrlError, match=r"task-000, task-099 diverged"):
        train(SPARSE, some_tasks(SPARSE, 2), config, "cpu", tmp_path)


def test_an_agent_with_broken_weights_does_not_stop_the_others(tmp_path):
    healthy, broken = trainer(tmp_path / "a"), trainer(tmp_path / "b")
    run(healthy, 15)
    run(broken, 15)
    broken.population.params["actor.weight.0"][1] = float("nan")
    run(healthy, 10)
    run(broken, 10)
    assert broken.population.alive.tolist() == [True, False, True]
    for name, value in healthy.population.params.items():
        assert torch.equal(value[[0, 2]], broken.population.params[name][[0, 2]]), name
    np.testing.assert_array_equal(columns(healthy)["obs"][[0, 2]], columns(broken)["obs"][[0, 2]])


# ----------------------------------------------------------------------------- starts


@pytest.mark.parametrize("same_start", [True, False])
def test_agents_start_from_the_same_weights_or_from_their_own(tmp_path, same_start):
    loop = trainer(tmp_path, config=small_config(different_starts=not same_start))
    for name in ("actor.weight.0", "critic.weight.0"):
        weights = loop.population.params[name]
        assert torch.equal(weights[0], weights[1]) is same_start
        assert torch.equal(weights[1], weights[2]) is same_start
    assert loop.actor()["weight.0"].shape[0] == (1 if same_start else 3)
    run(loop, ROUNDS)
    weights = loop.population.params["actor.weight.0"]
    assert not torch.equal(weights[0], weights[1])
    assert loop.actor()["weight.0"].shape[0] == 3


def test_agents_can_learn_in_half_precision_and_keep_their_weights_in_single(tmp_path):
    half, full = (
        run(trainer(tmp_path / name, config=small_config({"bfloat16": half})), ROUNDS)
        for name, half in (("half", True), ("full", False))
    )
    for name, value in half.population.params.items():
        assert value.dtype == torch.float32
        assert not torch.equal(value, full.population.params[name]), name
    assert half.population.alive.all()


def test_stored_actors_are_the_weights_in_half_precision(tmp_path):
    loop = run(trainer(tmp_path), ROUNDS)
    stored = loop.actor()
    assert set(stored) == {"weight.0", "weight.1", "weight.2", "bias.0", "bias.1", "bias.2"}
    for name, value in stored.items():
        assert value.dtype == np.float16
        np.testing.assert_array_equal(value, loop.population.params[f"actor.{name}"].numpy().astype(np.float16))


def test_ignored_observations_have_no_effect_on_the_actions_of_a_stored_actor(tmp_path):
    loop = run(trainer(tmp_path, config=small_config({"ignored_observations": (1,)})), ROUNDS)
    assert (columns(loop)["obs"][..., 1] == 0).all()
    assert (columns(loop)["next_obs"][..., 1] == 0).all()
    assert columns(loop)["obs"][..., 0].any()
    stored = PolicyFiles.write(tmp_path / "p", SPARSE, loop.tasks, {160: loop.actor()}, {})
    weights, biases = stored.weights(160)
    rng = np.random.default_rng(0)
    obs, noise = rng.normal(size=(2, 3, 5, 2)).astype(np.float32)
    elsewhere = obs + np.float32([0.0, 100.0])
    actions, _ = sample_actions(weights, biases, obs, noise)
    np.testing.assert_array_equal(actions, sample_actions(weights, biases, elsewhere, noise)[0])
    assert not np.array_equal(actions, sample_actions(weights, biases, obs + np.float32([1.0, 0.0]), noise)[0])


# ----------------------------------------------------------------------------- one round


def test_a_round_acts_then_updates_then_simulates_then_remembers(tmp_path, monkeypatch):
    loop = run(trainer(tmp_path), 12)
    events = []

    def record(owner, name, label):
        honest = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a: (events.append((label, loop.replay.count)), honest(*a))[1])

    record(loop.sac, "act", "act")
    record(loop.population, "step", "update")
    record(loop.simulator, "step", "simulate")
    record(loop.replay, "add", "remember")
    before = 12 * 4
    generator = loop.population.generator.clone_state()
    params = {name: value.clone() for name, value in loop.population.params.items()}
    obs = torch.from_numpy(loop.simulator.observe()).view(3, 4, -1)
    loop.update()
    # The update's loss is for one agent and calls `act` on its own; the first is the one that acts.
    order = [event for i, event in enumerate(events) if event[0] != "act" or i == 0]
    assert order == [
        ("act", before),
        ("update", before),
        ("update", before),
        ("simulate", before),
        ("remember", before),
    ]
    noise = torch.randn(3, 4, 2, generator=generator)
    monkeypatch.undo()
    expected, _ = loop.sac.act(params, obs, noise)
    np.testing.assert_array_equal(columns(loop)["act"][:, -1], expected.numpy())


def test_random_steps_are_uniform_and_leave_the_agents_alone(tmp_path):
    loop = trainer(tmp_path, config=small_config(random_steps=80))
    params = {name: value.clone() for name, value in loop.population.params.items()}
    run(loop, 20)
    actions = columns(loop)["act"]
    assert actions.min() < -0.9
    assert actions.max() > 0.9
    assert np.abs(actions.mean()) < 0.1
    assert actions.std() == pytest.approx(1 / np.sqrt(3), abs=0.05)
    assert all(torch.equal(value, loop.population.params[name]) for name, value in params.items())
    loop.update()
    assert not all(torch.equal(value, loop.population.params[name]) for name, value in params.items())


@pytest.mark.parametrize(("per_step", "updates"), [(1.0, 120), (0.5, 60), (0.1, 12)])
def test_updates_per_step_is_kept_also_when_it_is_no_whole_number_a_round(tmp_path, per_step, updates):
    loop = run(trainer(tmp_path, tasks=1, config=small_config(updates_per_step=per_step)), ROUNDS)
    assert loop.population.state()["adam.steps"].unique().tolist() == [pytest.approx(updates, abs=1)]


def test_remembered_transitions_chain_and_time_limits_are_no_terminations(tmp_path):
    loop = run(trainer(tmp_path), 30)
    data = columns(loop)
    assert not data["term"].any()
    ends = np.arange(1, 31) % 9 == 0
    for t in range(29):
        chained = np.array_equal(data["next_obs"][:, t], data["obs"][:, t + 1])
        assert chained is not bool(ends[t])
        if ends[t]:
            np.testing.assert_array_equal(data["obs"][:, t + 1], 0.0)


def test_terminations_are_remembered_and_start_another_episode(tmp_path):
    config = small_config(steps=240, checkpoints=(240,), random_steps=240, episode_steps=200)
    loop = run(trainer(tmp_path, family=WALKER, tasks=2, config=config), 60)
    data = columns(loop)
    starts = data["obs"][:, 0].reshape(8, -1)
    assert len(np.unique(starts, axis=0)) == 8, "every environment has a start of its own"
    ended = data["term"][..., 0] > 0
    assert ended.sum() > 2
    for agent, t, env in zip(*np.nonzero(ended[:, :-1]), strict=True):
        assert not np.array_equal(data["next_obs"][agent, t, env], data["obs"][agent, t + 1, env])
        np.testing.assert_allclose(data["obs"][agent, t + 1, env, 0], 1.25, atol=0.01)
    assert loop.episode.sum() == ended.sum()


def test_agents_learn_from_the_dense_reward_where_there_is_one(tmp_path):
    loop = run(trainer(tmp_path), 20)
    data = columns(loop)
    for i, task in enumerate(loop.tasks):
        distance = np.linalg.norm(data["next_obs"][i] - np.array(task.params["goal"]), axis=-1)
        np.testing.assert_allclose(data["rew"][i, ..., 0], -distance, atol=1e-5)


def test_training_returns_are_scored_at_the_horizon(tmp_path):
    config = small_config(steps=320, checkpoints=(320,), episode_steps=40)
    loop = run(trainer(tmp_path, family=WIND, config=config), 80)
    loop.save()
    rewards = columns(loop)["rew"][..., 0]
    expected = [
        (task, (first + 40) * 4, rewards[task, first : first + WIND.horizon, env].sum())
        for first in (0, 40)
        for task in range(3)
        for env in range(4)
    ]
    np.testing.assert_allclose(loop.returns(), expected, rtol=1e-5)


# ----------------------------------------------------------------------------- the replay memory


def test_replay_draws_only_what_is_filled_and_all_of_it_each_agent_its_own():
    replay = Replay(2, 50, 1, 1, torch.device("cpu"))
    replay.rows.fill_(float("nan"))
    rows = torch.arange(2 * 7 * 5, dtype=torch.float32).reshape(2, 7, 5)
    replay.add(rows[:, :3])
    replay.add(rows[:, 3:])
    batch = replay.draw(torch.Generator().manual_seed(0), 2000)
    for agent in range(2):
        obs, act, next_obs = (batch[name][agent] for name in ("obs", "act", "next_obs"))
        rew, term = (batch[name][agent, :, None] for name in ("rew", "term"))
        drawn = torch.cat([obs, act, rew, term, next_obs], dim=-1)
        found, counts = drawn.unique(dim=0, return_counts=True)
        assert torch.equal(found, rows[agent])
        assert counts.min() > 2000 / 7 * 0.7


@pytest.mark.parametrize("filled", [1, 3, 1000, 999_999, 2**23 + 1])
def test_the_largest_uniform_number_still_draws_a_filled_row(filled, monkeypatch):
    replay = Replay(1, 1, 1, 1, torch.device("cpu"))
    replay.filled.fill_(filled)
    largest = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    seen = []
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: largest.expand(shape))
    monkeypatch.setattr(torch, "gather", lambda rows, _, index: (seen.append(index), rows)[1])
    replay.draw(torch.Generator(), 1)
    assert seen[0].max().item() == filled - 1
