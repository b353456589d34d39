"""Minari: lossless both ways, readable by Minari itself, environments recoverable."""

import json
import os
import sys
import tracemalloc

import minari
import numpy as np
import pytest
from example_logs import assert_same_dataset, make_dataset, make_logs, make_task, tree
from gymnasium.spaces import Box
from hypothesis import HealthCheck, given, settings
from minari.data_collector import EpisodeBuffer
from test_properties import logs

from omrl.commands.data import Import
from omrl.data import MetaDataset, MetaDatasetWriter, interchange
from omrl.data.manifest import Reference, Told
from omrl.errors import OmrlError
from omrl.families import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def back(src, dst, **flags):
    return interchange.read(Import(src=src, dir=dst, format="minari", **flags))


def load(root, dataset_id, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return minari.load_dataset(dataset_id)


def test_there_and_back(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", "before")
    dataset = make_dataset().save(tmp_path / "my logs")
    interchange.write(dataset, tmp_path / "minari", "minari")
    assert os.environ["MINARI_DATASETS_PATH"] == "before"
    assert_same_dataset(back(tmp_path / "minari", tmp_path / "back"), dataset)
    # The folder of the meta-dataset alone will do as well.
    assert_same_dataset(back(tmp_path / "minari/omrl/my_logs", tmp_path / "again"), dataset)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "back", "minari", "my logs"]


def test_references_are_kept(tmp_path):
    arrays = make_logs()["a"]
    about = {"observation_dim": 3, "action_dim": 2, "action_low": -2, "action_high": 3, "varies": "both"}
    tasks = make_dataset({"a": arrays}, split=None, params=None).tasks
    writer = MetaDatasetWriter(tmp_path / "logs", tasks=tasks, split={"train": ["a"], "test": []}, **about)
    writer.write("a", arrays, Told(Reference(-1.25, 0.1)))
    dataset = writer.finish()
    interchange.write(dataset, tmp_path / "minari", "minari")
    assert_same_dataset(back(tmp_path / "minari", tmp_path / "back"), dataset)


def test_minari_reads_the_export(tmp_path, monkeypatch):
    interchange.write(make_dataset().save(tmp_path / "logs"), tmp_path / "minari", "minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    assert sorted(minari.list_local_datasets()) == ["omrl/logs/a-v0", "omrl/logs/b-v0", "omrl/logs/c_d__-v0"]
    task = load(tmp_path / "minari", "omrl/logs/a-v0", monkeypatch)
    arrays = make_logs()["a"]
    assert task.total_episodes == 8 and task.total_steps == 25
    assert task.action_space == Box(np.float32(-2), np.float32(3), (2,))
    episode = task[1]
    rows = arrays["episode"] == 1
    np.testing.assert_array_equal(episode.observations[:-1], arrays["observations"][rows])
    np.testing.assert_array_equal(episode.observations[1:], arrays["next_observations"][rows])
    np.testing.assert_array_equal(episode.rewards, arrays["rewards"][rows])
    assert episode.rewards.dtype == np.float32 and episode.infos.keys() == {"rewards_dense"}
    about = list(task.storage.get_episode_metadata([0, 7]))
    assert [record["policy_step"] for record in about] == [0, 300]
    with pytest.raises(ValueError, match="env_spec is None"):
        task.recover_environment()


def test_next_observations_are_stored_only_where_they_differ(tmp_path, monkeypatch):
    arrays = make_task((3, 3), checkpoints=(), dense=False)
    arrays["next_observations"][1] = 9
    arrays["observations"][4, 0] = 0.0
    arrays["next_observations"][3] = arrays["observations"][4]
    arrays["next_observations"][3, 0] = -0.0
    dataset = make_dataset({"a": arrays}, split=None, params=None).save(tmp_path / "logs")
    interchange.write(dataset, tmp_path / "minari", "minari")
    assert_same_dataset(back(tmp_path / "minari", tmp_path / "back"), dataset)
    task = load(tmp_path / "minari", "omrl/logs/a-v0", monkeypatch)
    assert [list(task[i].infos["next_observations_step"]) for i in range(2)] == [[1], [0]]


def family_dataset(path, family, names):
    spec = FAMILIES[family]
    tasks = [task for task in spec.tasks if task.name in names]
    sizes = {"observation_dim": spec.obs_dim, "action_dim": spec.act_dim}
    about = {"action_low": -1, "action_high": 1, "varies": spec.varies, "family": family, "horizon": spec.horizon}
    split = {"train": [task.name for task in tasks], "test": []}
    writer = MetaDatasetWriter(path, tasks=tasks, split=split, source={"algorithm": "sac"}, **sizes, **about)
    for seed, task in enumerate(tasks):
        arrays = make_task(seed=seed, S=spec.obs_dim, A=spec.act_dim, dense=False)
        arrays["actions"] = np.clip(arrays["actions"], -1, 1)
        writer.write(task.name, arrays, Told(Reference(0.5, 2.5)))
    return writer.finish()


@pytest.mark.parametrize("family", ["point-robot-wind", "half-cheetah-vel"])
def test_environments_are_recoverable(tmp_path, monkeypatch, family):
    names = [task.name for task in FAMILIES[family].tasks[:2]]
    dataset = family_dataset(tmp_path / "logs", family, names)
    interchange.write(dataset, tmp_path / "minari", "minari")
    for task in dataset.tasks:
        stored = load(tmp_path / "minari", f"omrl/logs/{task.name}-v0", monkeypatch)
        assert stored.storage.metadata["ref_max_score"] == 2.5
        environment = stored.recover_environment()
        assert environment.spec.id == FAMILIES[family].env_id
        assert {key: environment.spec.kwargs[key] for key in task.params} == dict(task.params)
        environment.reset(seed=0)
        environment.close()
    assert_same_dataset(back(tmp_path / "minari", tmp_path / "back"), dataset)


def test_names_that_look_alike_in_minari(tmp_path):
    tasks = {"a b": make_task(seed=1), "a_b": make_task(seed=2), "a/b": make_task(seed=3)}
    dataset = make_dataset(tasks, split=None, params=None).save(tmp_path / "logs")
    interchange.write(dataset, tmp_path / "minari", "minari")
    assert_same_dataset(back(tmp_path / "minari", tmp_path / "back"), dataset)


def test_export_refuses_what_exists_and_keeps_what_is_beside_it(tmp_path):
    dataset = make_dataset().save(tmp_path / "logs")
    interchange.write(dataset, tmp_path / "minari", "minari")
    (tmp_path / "minari" / "omrl" / "other").mkdir()
    with pytest.raises(OmrlError, match="minari/omrl/logs exists already; use --force"):
        interchange.write(dataset, tmp_path / "minari", "minari")
    interchange.write(dataset, tmp_path / "minari", "minari", force=True)
    assert (tmp_path / "minari" / "omrl" / "other").exists()


def test_a_failed_export_leaves_nothing(tmp_path):
    dataset = make_dataset().save(tmp_path / "logs")
    file = dataset.path / "task-002.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(OmrlError, match="does not match its checksum"):
        interchange.write(MetaDataset.open(dataset.path), tmp_path / "minari", "minari")
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_bad_minari_folders(tmp_path):
    dataset = make_dataset().save(tmp_path / "logs")
    interchange.write(dataset, tmp_path / "minari", "minari")
    before = tree(tmp_path)
    with pytest.raises(OmrlError, match="logs holds no Minari dataset"):
        back(tmp_path / "logs", tmp_path / "back")
    with pytest.raises(OmrlError, match="describes itself; leave out --horizon"):
        back(tmp_path / "minari", tmp_path / "back", horizon=3)
    (tmp_path / "minari/omrl/logs/b-v0").rename(tmp_path / "b-v0")
    with pytest.raises(OmrlError, match="holds 2 of the 3 tasks of its dataset; give the folder with all of them"):
        back(tmp_path / "minari", tmp_path / "back")
    (tmp_path / "b-v0").rename(tmp_path / "minari/omrl/logs/b-v0")
    assert tree(tmp_path) == before
    (tmp_path / "minari/omrl/logs/b-v0/data/main_data.hdf5").write_bytes(b"rubbish")
    with pytest.raises(OmrlError, match="cannot be read as Minari datasets"):
        back(tmp_path / "minari", tmp_path / "back")
    (tmp_path / "minari/omrl/logs/b-v0/data/metadata.json").write_bytes(b"rubbish")
    with pytest.raises(OmrlError, match=r"metadata\.json is not JSON|cannot be read as Minari datasets"):
        back(tmp_path / "minari", tmp_path / "back")
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"total_episodes": 2**31}, r"metadata\.json is a file of .* that unpacks to 17\.2 GB"),
        ({"total_episodes": 10**400}, r"metadata\.json is a file of .* that unpacks to"),
        ({"total_episodes": -1}, r"metadata\.json: total_episodes cannot be negative, as -1 is"),
        ({"total_episodes": "3"}, r"metadata\.json: total_episodes must be a whole number, not '3'"),
        ({"omrl": {"of": 10**9}}, "holds 3 of the 1000000000 tasks of its dataset"),
    ],
)
def test_counts_that_are_not_so_are_refused_before_memory_is_taken(tmp_path, change, sentence):
    interchange.write(make_dataset().save(tmp_path / "logs"), tmp_path / "minari", "minari")
    for path in (tmp_path / "minari").rglob("data/metadata.json"):
        metadata = json.loads(path.read_text())
        own = {"omrl": {**metadata["omrl"], **change.get("omrl", {})}}
        path.write_text(json.dumps({**metadata, **change, **own}))
    tracemalloc.start()
    with pytest.raises(OmrlError, match=sentence):
        back(tmp_path / "minari", tmp_path / "back")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100e6 and not (tmp_path / "back").exists()


def test_two_meta_datasets_in_one_folder(tmp_path):
    interchange.write(make_dataset().save(tmp_path / "one"), tmp_path / "minari", "minari")
    interchange.write(make_dataset(horizon=None).save(tmp_path / "two"), tmp_path / "minari", "minari")
    with pytest.raises(OmrlError, match="more than one meta-dataset; give the folder omrl/NAME of one"):
        back(tmp_path / "minari", tmp_path / "back")
    assert back(tmp_path / "minari/omrl/two", tmp_path / "back").manifest.horizon is None


def make_foreign(root, monkeypatch, space=None):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    rng = np.random.default_rng(0)
    for name in ("plant/one-v0", "plant/two-v0"):
        buffers = [
            EpisodeBuffer(
                observations=rng.normal(size=(5, 3)),
                actions=rng.uniform(-1, 1, size=(4, 2)),
                rewards=rng.normal(size=4),
                terminations=np.array([False] * 4),
                truncations=np.array([False] * 3 + [last]),
            )
            for last in (True, False)
        ]
        spaces = {"observation_space": space or Box(-9, 9, (3,)), "action_space": Box(-1, 1, (2,))}
        minari.create_dataset_from_buffers(name, buffers, **spaces)


def test_minari_datasets_of_others(tmp_path, monkeypatch):
    make_foreign(tmp_path / "minari", monkeypatch)
    flags = {"varies": "dynamics", "test_tasks": ("plant/two-v0",)}
    with pytest.raises(OmrlError, match="say themselves which array is what; leave out --time, --missing"):
        back(tmp_path / "minari", tmp_path / "back", time="t", missing="drop", **flags)
    dataset = back(tmp_path / "minari", tmp_path / "back", **flags)
    dataset.validate()
    assert dataset.split == {"train": ("plant/one-v0",), "test": ("plant/two-v0",)}
    assert dataset.manifest.action_low == (-1, -1)  # from the action space
    assert dataset.rows(0)["truncations"].tolist() == ([False] * 3 + [True]) * 2
    with pytest.raises(OmrlError, match="give --varies"):
        back(tmp_path / "minari", tmp_path / "again", test_tasks=())
    interchange.write(dataset, tmp_path / "minari", "minari")
    with pytest.raises(OmrlError, match="mixes datasets that omrl exported with others"):
        back(tmp_path / "minari", tmp_path / "again", **flags)


def test_spaces_that_are_not_vectors(tmp_path, monkeypatch):
    make_foreign(tmp_path / "minari", monkeypatch, Box(-9, 9, (3, 1)))
    with pytest.raises(
        OmrlError, match=r"task 'plant/one-v0': its observation space is Box.*not a Box of one dimension"
    ):
        back(tmp_path / "minari", tmp_path / "back", varies="both", test_tasks=())


def test_the_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    monkeypatch.delitem(sys.modules, "omrl.data.interchange.minari")
    with pytest.raises(OmrlError, match=r"needs minari: pip install 'omrl\[minari\]'"):
        back(tmp_path, tmp_path.parent / "back")
    with pytest.raises(OmrlError, match=r"needs minari: pip install 'omrl\[minari\]'"):
        interchange.write(make_dataset().save(tmp_path / "logs"), tmp_path / "minari", "minari")


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(case=logs())
def test_any_dataset(tmp_path_factory, case):
    tasks, about = case
    folder = tmp_path_factory.mktemp("case")
    dataset = MetaDataset.from_arrays(tasks, **about).save(folder / "logs")
    interchange.write(dataset, folder / "minari", "minari")
    assert_same_dataset(back(folder / "minari", folder / "back"), dataset)
