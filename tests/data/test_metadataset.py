"""Reading: rows by task, level and episode, tensors, sampling, laziness."""

import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
import torch
from example_logs import assert_same_dataset, assert_same_rows, edit_manifest, make_dataset, make_logs, make_task

from omrl.data import MetaDataset, MetaDatasetWriter
from omrl.data.arrays import ARRAYS
from omrl.data.manifest import BehaviourPolicy, Reference, Told, header_settings
from omrl.errors import OmrlError
from omrl.families import Task


@pytest.fixture
def dataset(tmp_path):
    return make_dataset().save(tmp_path / "logs")


def test_rows_come_back_as_written_and_another_reader_agrees(dataset):
    for position, (name, arrays) in enumerate(make_logs().items()):
        wanted = {array: arrays[array] for array in ARRAYS}
        assert_same_rows(dataset.rows(name), wanted)
        assert_same_rows(dataset.rows(position), wanted)
        loaded = safetensors.numpy.load_file(dataset.path / f"task-{position:03d}.safetensors")
        assert_same_rows({array: loaded[array] for array in ARRAYS}, wanted)


def test_facts_are_those_given(dataset):
    assert [task.name for task in dataset.tasks] == ["a", "b", "c d/é"]
    assert dataset.tasks[0].params == {"goal": [0.1, 0.2]} and dataset.tasks[2].params == {}
    assert dataset.split == {"train": ("a", "b"), "test": ("c d/é",)}
    assert (dataset.observation_dim, dataset.action_dim, dataset.family) == (3, 2, None)
    assert dataset.manifest.action_high == (3.0, 3.0) and dataset.manifest.source == {"algorithm": "sac", "seed": 7}


def test_saved_equals_in_memory(dataset, tmp_path):
    assert_same_dataset(dataset, make_dataset())
    assert (make_dataset().save(tmp_path / "again").path / "manifest.json").read_bytes() == (
        dataset.path / "manifest.json"
    ).read_bytes()


def test_opening_maps_no_file_and_rows_share_memory_with_it(dataset, monkeypatch):
    calls = []
    real = np.memmap
    monkeypatch.setattr(np, "memmap", lambda *a, **k: calls.append(a) or real(*a, **k))
    again = MetaDataset.open(dataset.path)
    again.level("expert").select(["b"])
    assert calls == []
    rows = again.rows("b")
    assert len(calls) == 1
    assert np.shares_memory(rows["observations"], again.rows("b")["observations"])
    assert np.shares_memory(rows["observations"], again.level("expert").rows("b", episode=7)["observations"])
    assert len(calls) == 1
    with pytest.raises(ValueError, match="read-only"):
        rows["rewards"][0] = 1


def test_opening_reads_only_manifest_and_headers(tmp_path):
    # A big file costs as little to open as a small one.
    logs = {"a": make_task((100,) * 100, checkpoints=())}
    folder = make_dataset(logs, split=None, params=None).save(tmp_path / "big").path

    def bytes_read():
        with open("/proc/self/io") as file:  # noqa: PTH123
            return int(file.readline().split()[1])

    before = bytes_read()
    MetaDataset.open(folder)
    assert bytes_read() - before < 40_000 < (folder / "task-000.safetensors").stat().st_size / 10


def test_rows_of_an_episode(dataset):
    arrays = make_logs()["a"]
    where = arrays["episode"] == 2
    assert_same_rows(dataset.rows("a", episode=2), {name: arrays[name][where] for name in ARRAYS})
    with pytest.raises(OmrlError, match="no episode 99"):
        dataset.rows("a", episode=99)
    with pytest.raises(OmrlError, match="no episode 0"):
        dataset.level("expert").rows("a", episode=0)


def test_returns_count_the_horizon_only(dataset):
    arrays = make_logs()["a"]
    wanted = [arrays["rewards"][(arrays["episode"] == e) & (arrays["step"] < 2)].sum() for e in range(8)]
    np.testing.assert_allclose(dataset.returns("a"), wanted, rtol=1e-6)
    entry = dataset.manifest.tasks[0]
    assert entry.episodes == 8 and entry.rows == 25
    statistics = (entry.returns.mean, entry.returns.min, entry.returns.max, entry.returns.std)
    np.testing.assert_allclose(statistics, (np.mean(wanted), min(wanted), max(wanted), np.std(wanted)), rtol=1e-6)
    checkpoints = entry.checkpoints
    assert [(c.policy_step, c.episodes) for c in checkpoints] == [(0, 2), (100, 2), (200, 2), (300, 2)]
    np.testing.assert_allclose([c.mean_return for c in checkpoints], np.reshape(wanted, (4, 2)).mean(1), rtol=1e-6)
    whole = make_dataset(horizon=None)
    np.testing.assert_allclose(whole.returns("a")[0], arrays["rewards"][:4].sum(), rtol=1e-6)


def test_levels_are_rules_on_the_policy_step(dataset):
    assert dataset.levels == ("random", "medium", "expert", "mixed")
    steps = {level: set(dataset.level(level).rows("a")["policy_step"].tolist()) for level in dataset.levels}
    assert steps["random"] == {0} and steps["expert"] == {300} and steps["mixed"] == {0, 100, 200, 300}
    checkpoints = {c.policy_step: c.mean_return for c in dataset.manifest.tasks[0].checkpoints}
    half_way = (checkpoints[0] + checkpoints[300]) / 2
    assert steps["medium"] == {min((100, 200), key=lambda step: abs(checkpoints[step] - half_way))}
    # A level always picks from all rows.
    assert_same_rows(dataset.level("expert").level("random").rows("b"), dataset.level("random").rows("b"))
    np.testing.assert_array_equal(dataset.level("random").returns("a"), dataset.returns("a")[:2])


def test_medium_is_found_per_task_and_by_return():
    def task(returns):
        arrays = make_task((1,) * len(returns), checkpoints=tuple(10 * i for i in range(len(returns))))
        return {**arrays, "rewards": np.array(returns, np.float32)}

    logs = {"late": task([0, 1, 2, 9, 20]), "early": task([0, 9, 18, 19, 20]), "down": task([20, 11, 3, 1, 0])}
    dataset = make_dataset(logs, split=None, params=None).level("medium")
    assert [dataset.rows(name)["policy_step"].tolist() for name in logs] == [[30], [10], [10]]


@pytest.mark.parametrize(
    ("checkpoints", "levels"),
    [
        ((), ("mixed",)),
        ((0,), ("random", "mixed")),
        ((100, 200), ("expert", "mixed")),
        ((0, 100), ("random", "medium", "expert", "mixed")),
    ],
)
def test_levels_that_the_log_does_not_have(checkpoints, levels):
    dataset = make_dataset({"a": make_task(checkpoints=checkpoints)}, split=None, params=None)
    assert dataset.levels == levels
    with pytest.raises(OmrlError, match=f"no level 'best', this dataset has {', '.join(levels)}"):
        dataset.level("best")
    if "random" not in levels:
        with pytest.raises(OmrlError, match="no level 'random'"):
            dataset.level("random")


def named(**levels):
    """A dataset whose policies somebody described."""
    told = Told(Reference(), {step: BehaviourPolicy(level, 0.1 * step) for level, step in levels.items()})
    logs = {"a": make_task(checkpoints=(3, 5, 8), seed=1)}
    header = make_dataset(logs, split={"train": ["a"], "test": []}).manifest
    return header, logs, told


def test_named_levels_are_kept_and_stand_above_the_rule(tmp_path):
    header, logs, told = named(medium=5, expert=3)
    tasks = [Task("a", {})]
    writer = MetaDatasetWriter(tmp_path / "data", tasks=tasks, **header_settings(header))
    writer.write("a", logs["a"], told)
    dataset = writer.finish()
    dataset.validate()
    assert dataset.levels == ("medium", "expert", "mixed")
    assert set(dataset.level("expert").rows("a")["policy_step"]) == {3}
    facts = dataset.level_facts("expert")
    rewards = dataset.level("expert").rows("a")["rewards"]
    assert (facts.rows, facts.rewarded, facts.action_std) == (len(rewards), (rewards != 0).mean(), pytest.approx(0.3))
    assert dataset.level_facts("mixed").action_std is None  # of checkpoint 8 nothing is known
    assert_same_dataset(dataset, dataset.save(tmp_path / "copy"))


def test_levels_that_no_checkpoint_can_be_are_refused(tmp_path):
    make_dataset().save(tmp_path / "data")
    for level, problem in (("mixed", "no level of a checkpoint"), ("best", "no level of a checkpoint")):
        edit_manifest(tmp_path / "data", lambda c, level=level: c["tasks"][0]["checkpoints"][0].update(level=level))
        with pytest.raises(OmrlError, match=problem):
            MetaDataset.open(tmp_path / "data")


def test_a_manifest_of_version_1_is_read(tmp_path):
    written = make_dataset().save(tmp_path / "data")

    def older(content):
        content["schema"] = 1
        for entry in content["tasks"]:
            entry["checkpoints"] = [
                {key: c[key] for key in ("policy_step", "rows", "episodes", "mean_return")}
                for c in entry["checkpoints"]
            ]

    edit_manifest(tmp_path / "data", older)
    read = MetaDataset.open(tmp_path / "data")
    read.validate()
    assert read.levels == written.levels
    for level in read.levels:
        np.testing.assert_array_equal(read.level_facts(level).returns, written.level_facts(level).returns)
        assert read.level_facts(level).rewarded is None
    with pytest.raises(OmrlError, match="is unknown"):
        edit_manifest(tmp_path / "data", lambda c: c["tasks"][0]["checkpoints"][0].update(colour="red"))
        MetaDataset.open(tmp_path / "data")


def test_a_level_of_rows_that_do_not_lie_together():
    arrays = make_task((2, 3, 2, 3), checkpoints=())
    arrays["policy_step"] = np.where(arrays["episode"] % 2 == 0, 0, 5)
    dataset = make_dataset({"a": arrays}, split=None, params=None).level("random")
    assert dataset.rows("a")["episode"].tolist() == [0, 0, 2, 2]
    assert set(dataset.sample("a", 50, np.random.default_rng(0))["episode"].tolist()) == {0, 2}
    assert dataset.to().episode.tolist() == [[0, 0, 2, 2]]


def test_select(dataset):
    train = dataset.select(dataset.split["train"])
    assert [task.name for task in train.tasks] == ["a", "b"] and train.split == {"train": ("a", "b"), "test": ()}
    assert_same_rows(dataset.select(["b", "a"]).rows(0), dataset.rows("b"))
    assert_same_rows(dataset.level("expert").select(["b"]).rows(-1), dataset.select(["b"]).level("expert").rows("b"))
    with pytest.raises(OmrlError, match="no task 'c d/é' among a, b"):
        train.rows("c d/é")
    with pytest.raises(OmrlError, match="no task number 2, there are 2"):
        train.rows(2)
    with pytest.raises(OmrlError, match="no task 'z'"):
        dataset.select(["z"])
    with pytest.raises(OmrlError, match="no tasks were selected"):
        dataset.select([])


def test_a_saved_view_is_a_dataset_of_its_rows(dataset, tmp_path):
    saved = dataset.select(["b", "a"]).level("expert").save(tmp_path / "view")
    saved.validate()
    assert saved.split == {"train": ("a", "b"), "test": ()}
    assert_same_rows(saved.rows("a"), dataset.level("expert").rows("a"))
    assert saved.manifest.tasks[1].params == {"goal": [0.1, 0.2]}


def test_sampling_is_uniform_seeded_and_row_aligned(dataset):
    drawn = dataset.level("expert").sample("a", 4000, np.random.default_rng(0))
    again = dataset.level("expert").sample("a", 4000, np.random.default_rng(0))
    assert_same_rows(drawn, again)
    rows = dataset.level("expert").rows("a")
    keys = {row.tobytes(): i for i, row in enumerate(rows["observations"])}
    index = np.array([keys[row.tobytes()] for row in drawn["observations"]])
    np.testing.assert_array_equal(drawn["rewards"], rows["rewards"][index])
    counts = np.bincount(index, minlength=len(rows["rewards"]))
    assert counts.min() > 0.8 * 4000 / len(counts) and counts.max() < 1.2 * 4000 / len(counts)


def test_sampling_does_not_load_the_file(tmp_path):
    logs = {"a": make_task((1000,) * 200, S=40, checkpoints=())}
    folder = make_dataset(logs, split=None, params=None).save(tmp_path / "big").path
    code = f"""
import numpy as np, resource
from omrl.data import MetaDataset, MetaDatasetWriter
dataset, rng = MetaDataset.open({str(folder)!r}), np.random.default_rng(0)
dataset.sample("a", 1, rng)  # the checksum
private = lambda: int([l for l in open("/proc/self/status") if l.startswith("RssAnon")][0].split()[1])
before = private()
for _ in range(50):
    dataset.sample("a", 256, rng)
print(private() - before)
"""
    grown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    size = (folder / "task-000.safetensors").stat().st_size
    assert size > 60e6 and int(grown) * 1024 < size / 10


def test_tensors(dataset):
    tensors = dataset.to("cpu")
    assert tensors.length.tolist() == [25, 24, 13] and tensors.length.dtype == torch.int64
    assert tensors.obs.shape == (3, 25, 3) and tensors.act.shape == (3, 25, 2) and tensors.rew.shape == (3, 25)
    assert tensors.obs.dtype == tensors.rew.dtype == torch.float32 and tensors.term.dtype == torch.bool
    for i, (name, arrays) in enumerate(make_logs().items()):
        n = len(arrays["rewards"])
        pairs = {"obs": "observations", "rew": "rewards", "next_obs": "next_observations", "term": "terminations"}
        pairs |= {"episode": "episode", "step": "step", "rew_dense": "rewards_dense"}
        for field, array in pairs.items():
            values = getattr(tensors, field)[i]
            np.testing.assert_array_equal(values[:n], arrays[array], err_msg=f"{name} {field}")
            assert not values[n:].any()
        np.testing.assert_allclose(tensors.act[i, :n], (arrays["actions"] + 2) / 2.5 - 1, atol=1e-6)
        assert not tensors.act[i, n:].any()
    assert tensors.act.abs().max() <= 1


def test_tensors_of_views(dataset):
    tensors = dataset.select(["b", "a"]).level("expert").to()
    assert tensors.length.tolist() == [6, 4]
    np.testing.assert_array_equal(tensors.rew[1, :4], dataset.level("expert").rows("a")["rewards"])
    assert make_dataset({"a": make_task(dense=False)}, split=None, params=None).to().rew_dense is None


def test_actions_in_unit_bounds_stay_bit_equal_and_are_never_outside():
    arrays = make_task()
    arrays["actions"] = np.clip(arrays["actions"], -1, 1)
    arrays["actions"][0, 0] = 1.00005  # within the tolerance
    tensors = make_dataset({"a": arrays}, split=None, params=None, action_low=-1, action_high=1).to()
    np.testing.assert_array_equal(tensors.act[0], np.clip(arrays["actions"], -1, 1))


def test_max_rows_keeps_whole_episodes_and_depends_on_the_seed_and_the_task_alone(dataset):
    limited = dataset.to(max_rows=10, seed=3)
    assert limited.length.tolist() == [10, 10, 10]
    rows = dataset.rows("a")
    episodes = limited.episode[0].tolist()
    assert episodes == sorted(episodes)
    cut = [e for e in set(episodes) if episodes.count(e) != (rows["episode"] == e).sum()]
    assert len(cut) <= 1
    assert all(step == 0 for step, e in zip(limited.step[0], np.diff(episodes, prepend=-1), strict=True) if e)
    alone = dataset.select(["b"]).to(max_rows=10, seed=3)
    assert torch.equal(alone.obs[0], limited.obs[1])
    assert any(not torch.equal(dataset.to(max_rows=10, seed=s).obs, limited.obs) for s in range(3))
    assert dataset.to(max_rows=20).length.tolist() == [20, 20, 13]
    with pytest.raises(OmrlError, match="max_rows is 0"):
        dataset.to(max_rows=0)


def test_a_device_that_is_not_there(dataset):
    with pytest.raises(OmrlError, match="device 'nowhere'"):
        dataset.to("nowhere")


def test_validate_checks_statistics_too(dataset):
    dataset.validate()
    make_dataset().validate()


def test_reading_the_data_needs_no_torch_and_no_simulator(dataset):
    code = f"""
import sys
for name in ("torch", "gymnasium", "mujoco", "h5py", "minari", "pyarrow"):
    sys.modules[name] = None  # importing it fails
import omrl.commands.data, omrl.data.interchange.csv, omrl.data.interchange.npz, omrl.data.writer
omrl.data.MetaDataset.open({str(dataset.path)!r}).validate()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
