from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from omrl.errors import OmrlError
from omrl.families import FAMILIES, Split, Task, get_family

TABLE = {  # name: (id, obs, act, horizon, varies, tasks, train, test)
    "sparse-point-robot": ("omrl/SparsePointRobot-v0", 2, 2, 20, "reward", 100, 80, 20),
    "point-robot-wind": ("omrl/PointRobotWind-v0", 2, 2, 20, "dynamics", 50, 40, 10),
    "half-cheetah-vel": ("omrl/HalfCheetahVel-v0", 20, 6, 200, "reward", 100, 80, 20),
    "half-cheetah-fwd-back": ("omrl/HalfCheetahFwdBack-v0", 20, 6, 200, "reward", 2, 2, 2),
    "ant-fwd-back": ("omrl/AntFwdBack-v0", 27, 8, 200, "reward", 2, 2, 2),
    "walker-2d-params": ("omrl/Walker2DParams-v0", 17, 6, 200, "dynamics", 50, 20, 5),
}


def test_the_families_are_those_of_the_paper():
    rows = {
        name: (
            family.env_id,
            family.obs_dim,
            family.act_dim,
            family.horizon,
            family.varies,
            len(family.tasks),
            len(family.splits["paper"].train),
            len(family.splits["paper"].test),
        )
        for name, family in FAMILIES.items()
    }
    assert rows == TABLE
    assert list(rows) == list(TABLE)
    assert all(family.name == name and family.summary for name, family in FAMILIES.items())
    long = {name for name, family in FAMILIES.items() if family.logged_steps == 1000}
    assert long == {"half-cheetah-vel", "half-cheetah-fwd-back"}
    assert all(family.logged_steps == 200 for name, family in FAMILIES.items() if name not in long)


def test_goals_lie_on_the_half_circle():
    angles = [i * math.pi / 99 for i in range(100)]
    expected = [[math.cos(angle), math.sin(angle)] for angle in angles]
    np.testing.assert_allclose([task.params["goal"] for task in FAMILIES["sparse-point-robot"].tasks], expected)


def test_winds_and_velocities_are_the_ones_the_authors_drew():
    winds = [task.params["wind"] for task in FAMILIES["point-robot-wind"].tasks]
    np.testing.assert_allclose(winds[:3], [(-0.02380, 0.03360), (-0.03413, 0.01102), (-0.02219, 0.00645)], atol=5.1e-6)
    assert np.abs(winds).max() <= 0.05
    velocities = [task.params["velocity"] for task in FAMILIES["half-cheetah-vel"].tasks]
    np.testing.assert_allclose(velocities[:5], [0.78607, 0.47605, 0.83438, 1.37795, 0.96300], atol=5.1e-6)
    assert 0 <= min(velocities) <= max(velocities) <= 3


def test_directions():
    assert [t.params["direction"] for t in FAMILIES["half-cheetah-fwd-back"].tasks] == [-1.0, 1.0]
    assert [t.params["direction"] for t in FAMILIES["ant-fwd-back"].tasks] == [1.0, -1.0]


def test_walker_multipliers_are_log_uniform_per_element():
    family = FAMILIES["walker-2d-params"]
    assert {key: parameter.shape for key, parameter in family.parameters.items()} == {
        "mass": (8,),
        "inertia": (8, 3),
        "damping": (9,),
        "friction": (8, 3),
    }
    for key, base in (("mass", 1.5), ("inertia", 1.5), ("damping", 1.3), ("friction", 1.5)):
        exponents = np.log([task.params[key] for task in family.tasks]).ravel() / math.log(base)
        assert -3 <= exponents.min() < -2.7 and 2.7 < exponents.max() <= 3
        assert abs(exponents.mean()) < 0.3
        assert len(np.unique(exponents)) == exponents.size
    # A re-draw in the order mass, inertia, damping, friction from the family's seed gives the same bodies.
    rng = np.random.default_rng(2021)
    for task in family.tasks[:2]:
        for key, base, shape in (
            ("mass", 1.5, 8),
            ("inertia", 1.5, (8, 3)),
            ("damping", 1.3, 9),
            ("friction", 1.5, (8, 3)),
        ):
            np.testing.assert_array_equal(task.params[key], base ** rng.uniform(-3, 3, shape))


def test_tasks_are_the_same_in_every_process():
    program = (
        "import json; from omrl.families import FAMILIES;"
        "print(json.dumps([[task.to_json() for task in family.tasks] for family in FAMILIES.values()]))"
    )
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout for _ in range(2)]
    assert runs[0] == runs[1]
    here = [[task.to_json() for task in family.tasks] for family in FAMILIES.values()]
    assert json.loads(runs[0]) == here


def test_splits_are_disjoint_and_complete(family):
    for split in family.splits.values():
        assert all(0 <= index < len(family.tasks) for index in split.train + split.test)
        assert len(set(split.train)) == len(split.train) and len(set(split.test)) == len(split.test)
        if family.name.endswith("fwd-back"):
            assert split.train == split.test == (0, 1)
        else:
            assert not set(split.train) & set(split.test)


def test_point_splits_are_drawn_once_and_cheetah_takes_the_first_80():
    assert FAMILIES["half-cheetah-vel"].splits["paper"] == Split(tuple(range(80)), tuple(range(80, 100)))
    for name in ("sparse-point-robot", "point-robot-wind"):
        family = FAMILIES[name]
        split = family.splits["paper"]
        assert sorted(split.train + split.test) == list(range(len(family.tasks)))
        assert max(split.train) > min(split.test)  # no block of neighbours is held out: that would be extrapolation
    assert FAMILIES["point-robot-wind"].splits["paper"].test == (5, 12, 14, 17, 22, 27, 30, 34, 38, 43)


def test_walkers_large_split_holds_the_papers():
    paper, large = (FAMILIES["walker-2d-params"].splits[name] for name in ("paper", "large"))
    assert (len(large.train), len(large.test)) == (40, 10)
    assert set(paper.train) < set(large.train) and set(paper.test) < set(large.test)


def test_walkers_spare_split_is_told_by_bodies_that_the_papers_does_not_have():
    paper, spare = (FAMILIES["walker-2d-params"].splits[name] for name in ("paper", "spare"))
    assert spare.train == paper.train
    assert sorted((*paper.train, *paper.test, *spare.test)) == list(range(50))


def test_tasks_are_values(family):
    names = [task.name for task in family.tasks]
    assert names == [f"task-{i:03d}" for i in range(len(names))]
    assert len(set(family.tasks)) == len(family.tasks)
    task = family.tasks[-1]
    back = Task.from_json(json.loads(json.dumps(task.to_json())))
    assert back == task and hash(back) == hash(task) and back in {task}
    assert task != Task("other", task.params)
    assert family.task(task.name, **task.params) == task
    with pytest.raises(FrozenInstanceError):
        task.name = "other"


def test_a_task_does_not_follow_its_makers_list():
    goal = [1.0, 0.0]
    task = Task("mine", {"goal": goal})
    goal[0] = 5.0
    task.to_json()["params"]["goal"][1] = 7.0
    assert task.params == {"goal": [1.0, 0.0]}
    assert hash(Task("n", {"direction": 1})) == hash(Task("n", {"direction": 1.0}))


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {"name": "a"},
        {"name": "", "params": {}},
        {"name": 3, "params": {}},
        {"name": "a", "params": [1]},
        {"name": "a", "params": {}, "more": 1},
    ],
)
def test_records_that_are_no_task(record):
    with pytest.raises(OmrlError):
        Task.from_json(record)


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("sparse-point-robot", {"goal": [1.0]}, "goal of sparse-point-robot must have shape (2,), not (1,)"),
        ("sparse-point-robot", {"goal": [1.0, math.nan]}, "finite"),
        ("sparse-point-robot", {"wind": [0, 0]}, "no parameter 'wind'; it takes goal"),
        ("point-robot-wind", {"wind": "north"}, "numbers of shape (2,)"),
        ("half-cheetah-vel", {"velocity": math.inf}, "finite"),
        ("half-cheetah-vel", {"velocity": [1.0]}, "shape ()"),
        ("half-cheetah-vel", {"velocity": None}, "finite"),
        ("half-cheetah-fwd-back", {"direction": 0.5}, "one of -1.0, 1.0"),
        ("ant-fwd-back", {"direction": 0}, "one of -1.0, 1.0"),
        ("walker-2d-params", {"mass": [1.0] * 7}, "shape (8,), not (7,)"),
        ("walker-2d-params", {"friction": [[1.0] * 3] * 7 + [[1.0, 1.0, 0.0]]}, "positive"),
        ("walker-2d-params", {"inertia": [[1.0] * 3] * 7 + [[1.0]]}, "numbers of shape (8, 3)"),
    ],
)
def test_tasks_that_cannot_be(name, params, words):
    with pytest.raises(OmrlError) as caught:
        FAMILIES[name].task(**params)
    assert words in str(caught.value)


def test_an_off_list_task_is_plain_json():
    task = FAMILIES["half-cheetah-vel"].task(velocity=np.float32(2.5))
    assert json.dumps(task.to_json()) == '{"name": "custom", "params": {"velocity": 2.5}}'
    assert FAMILIES["walker-2d-params"].task().params["damping"] == [1.0] * 9


def test_an_unknown_family_names_the_known_ones():
    with pytest.raises(OmrlError) as caught:
        get_family("half-cheeta-vel")
    assert "did you mean 'half-cheetah-vel'?" in str(caught.value)
    assert all(name in str(caught.value) for name in FAMILIES)
    with pytest.raises(OmrlError, match="There is no family 'zzz'; the families are sparse-point-robot, "):
        get_family("zzz")
    assert get_family("ant-fwd-back") is FAMILIES["ant-fwd-back"]


def test_a_simulator_needs_tasks():
    with pytest.raises(OmrlError, match="at least one task"):
        FAMILIES["point-robot-wind"].simulator([])
    with pytest.raises(OmrlError, match="threads"):
        FAMILIES["point-robot-wind"].simulator(FAMILIES["point-robot-wind"].tasks, threads=-1)


def test_the_families_can_be_listed_without_simulators():
    blocked = "import sys; sys.modules.update(torch=None, gymnasium=None, mujoco=None)"  # importing any of them fails
    program = f"{blocked}; import omrl.families as f; print(sum(len(x.tasks) for x in f.FAMILIES.values()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (0, "304\n"), done.stderr
