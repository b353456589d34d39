from __future__ import annotations

import copy
import math
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from family_helpers import random_actions, some_tasks, started

from omrl.errors import OmrlError
from omrl.families import FAMILIES

WALKER = FAMILIES["walker-2d-params"]
OWN = {  # family: gymnasium's own environments, and what makes their model the same as ours
    "half-cheetah-vel": ("HalfCheetah", {}),
    "ant-fwd-back": ("Ant", {}),
    "walker-2d-params": ("Walker2d", {"xml_file": "walker2d.xml"}),
}


def roll(simulator, actions):
    """States and results of every step, stacked."""
    states, steps = [], []
    for action in actions:
        steps.append(simulator.step(action))
        states.append(simulator.get_state())
    return np.stack(states), steps


# ----------------------------------------------------------------------------- the same as gymnasium's own


@pytest.mark.parametrize("version", ["v4", "v5"])
@pytest.mark.parametrize("name", OWN)
def test_positions_and_velocities_equal_gymnasiums_own(name, version, gymnasium_bodies):
    own_name, kwargs = OWN[name]
    own_id = f"{own_name}-{version}"
    if own_id not in gymnasium.registry:
        pytest.skip(f"this gymnasium has no {own_id}")
    family = FAMILIES[name]
    own = gymnasium.make(own_id, **(kwargs if version == "v5" else {})).unwrapped
    simulator_task = family.task()  # the plain walker; the other bodies do not depend on the task
    if own_name == "Walker2d":
        own.model.opt.timestep = 0.004
    env = family.make(simulator_task).unwrapped
    for seed in (0, 1):
        own.reset(seed=seed)
        env.reset(seed=seed)
        actions = random_actions(family, 200, 1, seed)[:, 0]
        for action in [None, *actions]:
            if action is not None:
                own.data.qacc_warmstart[:] = 0.0
                own.step(action)
                env.step(action)
            np.testing.assert_array_equal(np.concatenate([own.data.qpos, own.data.qvel]), env.simulator.get_state()[0])
    own.close()


def test_the_cheetahs_model_is_gymnasiums(gymnasium_bodies):
    """Bit for bit, though the total mass is set by other means."""
    import mujoco

    from omrl.families.physics import load_model

    ours, own = load_model("half_cheetah.xml"), gymnasium.make("HalfCheetah-v5").unwrapped.model
    assert sum(ours.body_mass) == pytest.approx(14.0)
    for field in (
        "body_mass",
        "body_inertia",
        "body_invweight0",
        "dof_invweight0",
        "dof_M0",
        "body_subtreemass",
        "qpos0",
    ):
        np.testing.assert_array_equal(getattr(ours, field), getattr(own, field), err_msg=field)
    island = getattr(mujoco.mjtDisableBit, "mjDSBL_ISLAND", 0)
    assert ours.opt.disableflags == own.opt.disableflags | island


# ----------------------------------------------------------------------------- definitions, written a second time


def expected_step(family, task, before, after, action, dt):
    qpos, qvel = after[: len(after) // 2 + len(after) % 2], after[len(after) // 2 + len(after) % 2 :]
    velocity = (after[0] - before[0]) / dt
    cost = sum(float(a) ** 2 for a in action)
    if family.name.startswith("half-cheetah"):
        obs = [*qpos[1:], *qvel, qpos[0], 0.0, qpos[1] + 0.7]
        if family.name == "half-cheetah-vel":
            return obs, -abs(velocity - task.params["velocity"]) - 0.05 * cost, False
        return obs, task.params["direction"] * velocity - 0.05 * cost, False
    if family.name == "ant-fwd-back":
        angle = 0.0 if task.params["direction"] > 0 else math.pi
        side = (after[1] - before[1]) / dt
        reward = velocity * math.cos(angle) + side * round(math.sin(angle)) - 0.5 * cost + 1.0
        return [*qpos[2:], *qvel], reward, not 0.2 < qpos[2] < 1.0
    obs = [*qpos[1:], *(min(10.0, max(-10.0, v)) for v in qvel)]
    return obs, velocity + 1.0 - 1e-3 * cost, not (0.8 < qpos[1] < 2.0 and abs(qpos[2]) < 1.0)


def test_rewards_observations_and_terminations_follow_the_definition(body_family):
    dt = 0.016 if body_family is WALKER else 0.05
    tasks = some_tasks(body_family, 6)
    simulator = started(body_family, tasks)
    actions = random_actions(body_family, 60, 6)
    before = simulator.get_state()
    terminated = 0
    for action in actions:
        step = simulator.step(action)
        after = simulator.get_state()
        for i, task in enumerate(tasks):
            obs, reward, end = expected_step(body_family, task, before[i], after[i], action[i], dt)
            np.testing.assert_allclose(step.obs[i], obs, rtol=1e-6, atol=1e-6)
            assert step.rewards[i] == pytest.approx(reward, rel=1e-5, abs=1e-5)
            assert step.terminations[i] == end
            terminated += end
        np.testing.assert_array_equal(step.obs, simulator.observe())
        assert step.obs.dtype == step.rewards.dtype == np.float32 and step.extras == {}
        before = after
    # Random ants and walkers fall or jump within 60 steps; nothing resets them.
    assert (terminated > 0) == (not body_family.name.startswith("half-cheetah"))


def test_the_torso_position_is_mujocos():
    import mujoco

    family = FAMILIES["half-cheetah-vel"]
    simulator = started(family, some_tasks(family, 1), threads=0)
    roll(simulator, random_actions(family, 30, 1))
    model = simulator._models[0]
    data = mujoco.MjData(model)
    data.qpos[:] = simulator.get_state()[0, :9]
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(simulator.observe()[0, -3:], data.body("torso").xpos, rtol=1e-6)


# ----------------------------------------------------------------------------- walkers


def test_walkers_differ_and_the_plain_one_is_plain():
    tasks = [*WALKER.tasks, WALKER.task()]
    simulator = WALKER.simulator(tasks)  # all from the same unperturbed start
    actions = np.repeat(random_actions(WALKER, 40, 1), len(tasks), axis=1)
    states, _ = roll(simulator, actions)
    gaps = np.abs(states[-1][:, None] - states[-1][None]).max(axis=-1)
    assert gaps[~np.eye(len(tasks), dtype=bool)].min() > 0.05  # every pair

    plain = WALKER.simulator([WALKER.task()])
    alone, _ = roll(plain, actions[:, -1:])
    np.testing.assert_array_equal(alone[:, 0], states[:, -1])


def test_each_walker_parameter_changes_the_dynamics():
    changed = {"mass": [1.2] * 8, "inertia": [[1.2] * 3] * 8, "damping": [1.2] * 9, "friction": [[0.5] * 3] * 8}
    tasks = [WALKER.task(), *(WALKER.task(**{name: value}) for name, value in changed.items())]
    states, _ = roll(WALKER.simulator(tasks), np.repeat(random_actions(WALKER, 40, 1), 5, axis=1))
    gaps = np.abs(states[-1][:, None] - states[-1][None]).max(axis=-1)
    assert gaps[~np.eye(5, dtype=bool)].min() > 1e-3


def test_a_plain_task_leaves_the_walkers_model_as_compiled():
    from omrl.families.physics import load_model

    compiled = load_model("walker2d.xml")
    ours = WALKER.simulator([WALKER.task()])._models[0]
    assert ours.opt.timestep == 0.004
    np.testing.assert_array_equal(ours.geom_friction[[4, 7], 0], [0.9, 1.9])  # right and left foot
    for field in (
        "body_mass",
        "body_inertia",
        "dof_damping",
        "geom_friction",
        "body_invweight0",
        "dof_invweight0",
        "dof_M0",
    ):
        np.testing.assert_array_equal(getattr(ours, field), getattr(compiled, field), err_msg=field)


def test_derived_constants_follow_the_walkers_parameters():
    import mujoco

    simulator = WALKER.simulator(WALKER.tasks[:3])
    plain = WALKER.simulator([WALKER.task()])._models[0]
    for model, task in zip(simulator._models, WALKER.tasks, strict=False):
        np.testing.assert_allclose(model.body_mass, plain.body_mass * task.params["mass"])
        np.testing.assert_allclose(model.body_inertia, plain.body_inertia * task.params["inertia"])
        np.testing.assert_allclose(model.dof_damping, plain.dof_damping * task.params["damping"])
        np.testing.assert_allclose(model.geom_friction, plain.geom_friction * task.params["friction"])
        # Derived: from the mass matrix at rest, which mj_forward computes afresh.
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        columns = np.eye(model.nv)
        mass_matrix = np.stack([_times_mass(mujoco, model, data, column) for column in columns])
        np.testing.assert_allclose(model.dof_M0, np.diag(mass_matrix), rtol=1e-9)
        np.testing.assert_allclose(model.dof_invweight0, np.diag(np.linalg.inv(mass_matrix)), rtol=1e-6)
        assert model.body_subtreemass[1] == pytest.approx(model.body_mass[1:].sum())
        assert (model.dof_invweight0 != plain.dof_invweight0).all()


def _times_mass(mujoco, model, data, vector):
    result = np.zeros(model.nv)
    mujoco.mj_mulM(model, data, result, vector)
    return result


def test_environments_of_one_body_share_a_model():
    simulator = WALKER.simulator([WALKER.tasks[0], WALKER.tasks[1], WALKER.tasks[0]])
    assert simulator._models[0] is simulator._models[2] is not simulator._models[1]


# ----------------------------------------------------------------------------- batches


def test_neither_threads_nor_company_matter(family):
    tasks = some_tasks(family, 9)
    actions = random_actions(family, 50, 9)
    reference, steps = roll(started(family, tasks, threads=0), actions)
    for threads in (1, 2, 5, None):
        states, again = roll(started(family, tasks, threads=threads), actions)
        np.testing.assert_array_equal(states, reference)
        for ours, theirs in zip(again, steps, strict=True):
            np.testing.assert_array_equal(ours.obs, theirs.obs)
            np.testing.assert_array_equal(ours.rewards, theirs.rewards)
    for company in ([4], [8, 4], [4, 4, 0], [7, 6, 5, 4, 3, 2]):
        simulator = family.simulator([tasks[i] for i in company], threads=2)
        simulator.reset(range(len(company)), [np.random.default_rng(i) for i in company])
        states, again = roll(simulator, actions[:, company])
        place = company.index(4)
        np.testing.assert_array_equal(states[:, place], reference[:, 4])
        np.testing.assert_array_equal([s.rewards[place] for s in again], [s.rewards[4] for s in steps])


def test_a_state_continues_exactly(family):
    tasks = some_tasks(family, 4)
    actions = random_actions(family, 40, 4)
    simulator = started(family, tasks)
    roll(simulator, actions[:20])
    saved = simulator.get_state()
    states, steps = roll(simulator, actions[20:])
    fresh = family.simulator(tasks)
    fresh.set_state(saved)
    saved += 1.0  # the simulator has its own copy
    again, repeated = roll(fresh, actions[20:])
    np.testing.assert_array_equal(again, states)
    np.testing.assert_array_equal([s.obs for s in repeated], [s.obs for s in steps])
    np.testing.assert_array_equal([s.rewards for s in repeated], [s.rewards for s in steps])


def test_states_that_are_refused(family):
    simulator = family.simulator(some_tasks(family, 2))
    with pytest.raises(OmrlError, match="has shape"):
        simulator.set_state(simulator.get_state()[:1])
    with pytest.raises(OmrlError, match="finite"):
        simulator.set_state(simulator.get_state() * math.nan)


def test_reset_touches_only_what_it_is_asked_to(body_family):
    simulator = started(body_family, some_tasks(body_family, 4))
    roll(simulator, random_actions(body_family, 5, 4))
    before = simulator.get_state()
    simulator.reset(np.array([2, 0]), [np.random.default_rng(7), np.random.default_rng(8)])
    after = simulator.get_state()
    np.testing.assert_array_equal(after[[1, 3]], before[[1, 3]])
    alone = body_family.simulator(some_tasks(body_family, 1))
    alone.reset([0], [np.random.default_rng(8)])
    np.testing.assert_array_equal(after[0], alone.get_state()[0])
    with pytest.raises(ValueError):
        simulator.reset([0, 1], [np.random.default_rng(0)])


def test_actions_are_clipped_and_checked(family):
    tasks = some_tasks(family, 2)
    wild, tame = started(family, tasks), started(family, tasks)
    actions = np.full((2, family.act_dim), 3.0)
    actions[1] = -math.inf
    one, other = wild.step(actions), tame.step(np.clip(actions, -1, 1))
    np.testing.assert_array_equal(one.obs, other.obs)
    np.testing.assert_array_equal(one.rewards, other.rewards)
    before = wild.get_state()
    actions[1, -1] = math.nan
    with pytest.raises(OmrlError, match="action of environment 1 is not a number"):
        wild.step(actions)
    with pytest.raises(OmrlError, match="must have shape"):
        wild.step(actions[0])
    np.testing.assert_array_equal(wild.get_state(), before)


# ----------------------------------------------------------------------------- when the physics breaks down


@pytest.mark.parametrize("threads", [0, 2])
def test_an_unstable_body_terminates_with_a_finite_observation(body_family, threads):
    tasks = some_tasks(body_family, 4)
    actions = random_actions(body_family, 3, 4)
    calm = started(body_family, tasks, threads)
    simulator = started(body_family, tasks, threads)
    state = simulator.get_state()
    velocities = state.shape[1] - len(simulator._models[0].qpos0)
    state[1, -velocities:] = 1e9
    state[2, -velocities:] = 1e12
    simulator.set_state(state)
    calm_step, step = calm.step(actions[0]), simulator.step(actions[0])
    assert step.terminations[[1, 2]].all()
    np.testing.assert_array_equal(simulator.get_state()[[1, 2]], state[[1, 2]])
    assert np.isfinite(step.rewards).all()
    assert np.isfinite(step.obs).all()
    for healthy in (0, 3):  # the others do not notice
        np.testing.assert_array_equal(step.obs[healthy], calm_step.obs[healthy])
        assert step.rewards[healthy] == calm_step.rewards[healthy]
        assert step.terminations[healthy] == calm_step.terminations[healthy]


def test_mujoco_writes_no_file_and_prints_nothing(tmp_path):
    program = """
import numpy as np
from omrl.families import FAMILIES
for family in list(FAMILIES.values())[2:]:
    for threads in (0, 2):
        simulator = family.simulator(family.tasks[:2], threads)
        simulator.step(np.ones((2, family.act_dim)))
        state = simulator.get_state()
        state[:, -6:] = 1e9
        simulator.set_state(state)
        assert simulator.step(np.ones((2, family.act_dim))).terminations.all()
    env = family.make(family.tasks[0])
    env.reset(seed=0)
    env.step(env.action_space.sample())
import mujoco
assert mujoco.get_mju_user_warning() is None  # others' warnings are theirs
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_warning_handler_of_the_user_stays():
    import mujoco

    seen = []
    handler = seen.append
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(handler)
    try:
        roll(started(WALKER, some_tasks(WALKER, 2)), random_actions(WALKER, 2, 2))
        assert mujoco.get_mju_user_warning() is handler
    finally:
        mujoco.set_mju_user_warning(before)


def test_close_ends_the_threads():
    simulator = started(WALKER, some_tasks(WALKER, 2), threads=2)
    simulator.close()
    with pytest.raises(RuntimeError):
        simulator.step(np.zeros((2, 6)))
    assert copy.copy(simulator).num == 2
