from __future__ import annotations

import json
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from family_helpers import random_actions, some_tasks
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from omrl.errors import OmrlError
from omrl.families import FAMILIES, register

HARMLESS = ("infinity",)  # observations have no bounds, and gymnasium says so every time


def columns(tasks):
    """The tasks' parameters as make_vec takes them: one list of values per keyword."""
    return {key: [task.params[key] for task in tasks] for key in tasks[0].params}


# ----------------------------------------------------------------------------- one environment


def test_check_env_passes(family):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gymnasium.make(family.env_id, **family.tasks[-1].params).unwrapped, skip_render_check=True)
    assert [str(w.message) for w in caught if not any(word in str(w.message) for word in HARMLESS)] == []


def test_ids_can_be_made_without_a_task(family):
    env = gymnasium.make(family.env_id)
    assert env.spec.max_episode_steps == family.horizon
    assert env.observation_space == Box(-np.inf, np.inf, (family.obs_dim,), np.float32)
    assert env.action_space == Box(-1, 1, (family.act_dim,), np.float32)
    assert env.unwrapped.task == family.task()


def test_a_spec_survives_json(family):
    task = family.tasks[-1]
    env = family.make(task)
    assert env.spec.kwargs.pop("render_mode", None) is None
    assert env.spec.kwargs == task.params
    text = env.spec.to_json()
    json.loads(text)
    again = gymnasium.make(EnvSpec.from_json(text))
    assert again.unwrapped.task.params == task.params
    first, second = env.reset(seed=3)[0], again.reset(seed=3)[0]
    np.testing.assert_array_equal(first, second)
    for action in random_actions(family, 10, 1)[:, 0]:
        one, other = env.step(action), again.step(action)
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:] == other[1:]


def test_the_horizon_truncates(family):
    env = family.make(family.tasks[0])
    env.reset(seed=0)
    for step in range(1, family.horizon + 1):
        _, reward, terminated, truncated, _ = env.step(np.zeros(family.act_dim, dtype=np.float32))
        assert isinstance(reward, float) and isinstance(terminated, bool)
        if terminated:
            assert family.name == "walker-2d-params"  # without power it falls
            return
        assert truncated == (step == family.horizon)


def test_the_dense_reward_is_in_the_info():
    env = gymnasium.make("omrl/SparsePointRobot-v0", goal=[0.0, 1.0])
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.array([0.0, 1.0], dtype=np.float32))
    assert (reward, info) == (0.0, {"rewards_dense": pytest.approx(-0.9)})


def test_seeds(family):
    env = family.make(family.tasks[0])
    one, again, other = (env.reset(seed=seed)[0] for seed in (5, 5, 6))
    np.testing.assert_array_equal(one, again)
    if family.act_dim > 2:  # the point robots start at the origin, always
        assert (one != other).any() and (env.reset()[0] != other).any()


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [({"velocity": "fast"}, "numbers"), ({"speed": 1.0}, "velocity"), ({"render_mode": "human"}, "rgb_array")],
)
def test_what_an_id_refuses(kwargs, words):
    from omrl.families.environments import HalfCheetahVelEnv

    with pytest.raises(OmrlError, match=words):
        HalfCheetahVelEnv(**kwargs)


def test_an_action_that_is_not_a_number():
    env = gymnasium.make("omrl/HalfCheetahVel-v0", velocity=1.0, disable_env_checker=True)
    env.reset(seed=0)
    with pytest.raises(OmrlError, match="NaN"):
        env.step(np.full(6, np.nan, dtype=np.float32))


def test_register_is_idempotent_and_its_entry_points_are_strings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register()
    for family in FAMILIES.values():
        spec = gymnasium.spec(family.env_id)
        assert isinstance(spec.entry_point, str) and isinstance(spec.vector_entry_point, str)


def test_registering_loads_no_simulator():
    program = (
        "import sys; from omrl.families import register; register();"
        "print([m for m in ('torch', 'mujoco', 'omrl.families.environments') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ----------------------------------------------------------------------------- N as one


def test_a_batch_equals_single_environments_bit_for_bit(family):
    """With gymnasium's own SyncVectorEnv over single environments as the judge, of episode ends and infos too."""
    tasks = some_tasks(family, 5)
    batch = gymnasium.make_vec(family.env_id, num_envs=5, vectorization_mode="vector_entry_point", **columns(tasks))
    single = SyncVectorEnv([lambda task=task: family.make(task) for task in tasks])
    np.testing.assert_array_equal(batch.reset(seed=10)[0], single.reset(seed=10)[0])
    ended = restarted = 0
    for actions in random_actions(family, 200, 5):
        ours, theirs = batch.step(actions), single.step(actions)
        for mine, its in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(mine, its)
            assert mine.dtype == its.dtype
        for key, values in theirs[4].items():
            np.testing.assert_array_equal(ours[4][key], values)
        restarted += ended
        ended = int((ours[2] | ours[3]).sum())
    if family.horizon < 200 or family.name in ("ant-fwd-back", "walker-2d-params"):
        assert restarted > 0


def test_200_steps_without_a_time_limit_equal_single_environments(family):
    """Past the point robots' horizon, and past falls: the physics goes on."""
    tasks = some_tasks(family, 3)
    simulator = family.simulator(tasks)
    simulator.reset(range(3), [np.random.default_rng(seed) for seed in (4, 5, 6)])
    envs = [family.make(task).unwrapped for task in tasks]
    for seed, env in zip((4, 5, 6), envs, strict=True):
        env.reset(seed=seed)
    for actions in random_actions(family, 200, 3):
        step = simulator.step(actions)
        for i, env in enumerate(envs):
            obs, reward, terminated, _, _ = env.step(actions[i])
            np.testing.assert_array_equal(step.obs[i], obs)
            assert (step.rewards[i], step.terminations[i]) == (reward, terminated)


def test_the_batch_declares_what_it_does(family):
    batch = gymnasium.make_vec(family.env_id, num_envs=3)
    assert isinstance(batch, VectorEnv) and not isinstance(batch, SyncVectorEnv)
    assert batch.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert batch.single_observation_space == gymnasium.make(family.env_id).observation_space
    assert batch.action_space.shape == (3, family.act_dim)
    assert batch.reset(seed=0)[0] in batch.observation_space
    EnvSpec.from_json(batch.spec.to_json())


def test_an_ended_episode_starts_anew_in_the_next_step():
    batch = gymnasium.make_vec("omrl/PointRobotWind-v0", num_envs=2, max_episode_steps=3)
    batch.reset(seed=0)
    east = np.tile(np.array([1.0, 0.0], dtype=np.float32), (2, 1))
    truncations, places, rewards = [], [], []
    for _ in range(8):
        obs, reward, terminated, truncated, _ = batch.step(east)
        assert not terminated.any()
        truncations.append(truncated.tolist())
        places.append(float(obs[0, 0]))
        rewards.append(float(reward[0]))
    assert truncations == [[False] * 2, [False] * 2, [True] * 2, [False] * 2] * 2
    assert places == pytest.approx([0.1, 0.2, 0.3, 0.0] * 2)
    assert rewards == pytest.approx([-0.9, -0.8, -0.7, 0.0] * 2)


def test_seeds_of_a_batch():
    def make():
        return gymnasium.make_vec("omrl/HalfCheetahVel-v0", num_envs=3, velocity=1.0)

    batch = make()
    by_int, by_list = batch.reset(seed=7)[0], make().reset(seed=[7, 8, 9])[0]
    np.testing.assert_array_equal(by_int, by_list)
    single = gymnasium.make("omrl/HalfCheetahVel-v0", velocity=1.0)
    np.testing.assert_array_equal(by_int[1], single.reset(seed=8)[0])
    np.testing.assert_array_equal(batch.reset()[0][1], single.reset()[0])  # generators go on, they are not drawn anew
    partly = batch.reset(seed=[7, None, None])[0]
    np.testing.assert_array_equal(partly[0], by_int[0])
    assert (partly[1] != by_int[1]).any()
    assert (make().reset()[0] != make().reset()[0]).any()
    with pytest.raises(OmrlError, match="3 environments need as many seeds, not 2"):
        batch.reset(seed=[1, 2])


def test_parameters_for_all_or_for_each():
    walker = FAMILIES["walker-2d-params"]
    masses = [task.params["mass"] for task in walker.tasks[:3]]
    batch = gymnasium.make_vec(walker.env_id, num_envs=3, mass=masses, damping=[2.0] * 9)
    assert [task.params["mass"] for task in batch.tasks] == masses
    assert [task.params["damping"] for task in batch.tasks] == [[2.0] * 9] * 3
    assert [task.params["friction"] for task in batch.tasks] == [[[1.0] * 3] * 8] * 3
    with pytest.raises(OmrlError, match="mass has values for 3 environments, but there are 2"):
        gymnasium.make_vec(walker.env_id, num_envs=2, mass=masses)
    with pytest.raises(OmrlError, match="no parameter 'weight'"):
        gymnasium.make_vec(walker.env_id, num_envs=2, weight=1.0)


def test_a_batch_must_be_reset_first_and_can_be_closed():
    batch = gymnasium.make_vec("omrl/AntFwdBack-v0", num_envs=2)
    with pytest.raises(OmrlError, match="reset"):
        batch.step(np.zeros((2, 8), dtype=np.float32))
    batch.reset(seed=0)
    batch.close()
    batch.close()
