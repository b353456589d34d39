"""Studies on a real Ray cluster on this machine: the same bytes as here, whatever is lost on the way."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from omrl.behaviour.collect import collect
from omrl.commands.study import StudyRun
from omrl.commands.tune import Tune
from omrl.errors import OmrlError
from omrl.studies.execute import execute
from omrl.tuning import command as tuning
from training_helpers import pumps

pytestmark = pytest.mark.thorough
if find_spec("ray") is None:
    pytest.skip("ray is not installed: pip install 'omrl[ray]'", allow_module_level=True)

import ray_cluster  # noqa: E402
import ray_study  # noqa: E402
import yaml  # noqa: E402

from omrl.units import worker  # noqa: E402
from omrl.units.board import Board  # noqa: E402
from omrl.units.on_ray import OnRay  # noqa: E402
from omrl.units.schedule import run_all  # noqa: E402
from omrl.units.unit import Unit, Work  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
POLICIES = ROOT / "policies"
STUDY = """
[scale.small]
seeds = 2
tasks = 10
episodes = 2
steps = 400
log_every = 100
[scale.small.families]
reward = "sparse-point-robot"
dynamics = "point-robot-wind"
[experiment.winds]
title = "Winds and logs of one's own"
data = [{ family = "point-robot-wind" }, { path = "pumps" }]
rows = [
  { label = "FOCAL", algorithm = "focal", changes = { SIZES } },
  { label = "Cloning", algorithm = "contextual-bc", changes = { SIZES } },
]
tables = ["returns"]
""".replace("SIZES", "hidden = [16], encoder_hidden = [16], batch_size = 8, context_size = 8, meta_batch = 4")


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster.nodes(3, source=ROOT / "src") as found:
        yield found


def run(folder: Path, name: str, **options):
    places = {"data": folder / name / "data", "out": folder / name / "out"}
    common = {"file": folder / "mine.toml", "scale": "small", "device": "cpu", "policies": POLICIES, "threads": 1}
    return execute(StudyRun(**{**common, **places, **options}))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A folder with a study and what it found on this machine."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "mine.toml").write_text(STUDY)
    pumps(folder / "pumps", tasks=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "src"))
        return folder, run(folder, "here", at_once=2)


def same(one: Path, other: Path) -> None:
    for part in ("data", "out"):
        count, odd = ray_study.differences(one / part, other / part)
        assert count > 5 and odd == []


def test_a_study_that_loses_a_node_and_a_worker_is_the_one_that_lost_nothing(cluster, study):
    folder, here = study
    lost = []

    def lose():
        while not any((folder / "there" / "out" / "runs").glob("*/checkpoints/latest")):
            time.sleep(0.05)
        for pid in cluster.workers()[:1]:
            cluster.kill_worker(pid)
            lost.append("worker")
        cluster.lose(0)
        lost.append("node")

    loser = threading.Thread(target=lose, daemon=True)
    loser.start()
    there = run(folder, "there", on=cluster.address)
    loser.join(30)
    cluster.add()
    assert lost[-1] == "node"
    assert there == here
    same(folder / "here", folder / "there")
    # No path of a worker's stays behind.
    for path in (folder / "there").rglob("*"):
        if path.suffix in (".json", ".html", ".csv") and path.is_file():
            assert f"omrl-{os.getuid()}" not in path.read_text(), path
    assert json.loads((folder / "there" / "out" / "progress" / "progress.json").read_text())["over"]


def test_through_rays_client_it_is_the_same_study(cluster, study):
    folder, here = study
    assert run(folder, "far", on=cluster.client) == here
    same(folder / "here", folder / "far")


ALONE = """
from omrl.units.board import Board
from omrl.units.on_ray import OnRay
from omrl.units.schedule import run_all
from omrl.units.unit import Unit, Work
executor, units = OnRay("ray"), [Unit("a", "sleep", "A")]
ended = run_all(units, lambda unit: Work("sleep", {"seconds": 0.0}), executor, Board("test", units))
print(ended["a"].status, len(executor.nodes()))
executor.close()
"""


def slept_while_one_joins(cluster, units, joins, seconds=0.0, **options):
    """A node with these options joins when `joins` says so of a unit, and leaves when all is done."""
    added = []

    def come(unit):
        if not added and joins(unit):
            added.append(cluster.add(**options))
        return seconds

    try:
        return slept(cluster.address, units, come)[0]
    finally:
        if added:
            cluster.leave(-1)


def slept(address, units, seconds=lambda unit: 0.0):
    executor = OnRay(address)
    try:
        ended = run_all(units, lambda unit: Work("sleep", {"seconds": seconds(unit)}), executor, Board("test", units))
        return ended, len(executor.nodes())
    finally:
        executor.close()


@pytest.mark.parametrize(("given", "nodes"), [(True, 3), (False, 1)])
def test_ray_alone_is_the_cluster_of_the_environment_or_one_on_this_machine(cluster, given, nodes):
    # A process of its own: Ray is not made for one that goes from a cluster to another and back.
    own = {name: text for name, text in os.environ.items() if name != "RAY_ADDRESS"}
    own |= {"PYTHONPATH": str(ROOT / "src"), **({"RAY_ADDRESS": cluster.address} if given else {})}
    found = subprocess.run([sys.executable, "-c", ALONE], env=own, capture_output=True, text=True, timeout=120)
    assert found.stdout.split()[-2:] == ["done", str(nodes)], found.stderr


def test_a_unit_that_fails_there_has_its_trace_and_the_others_go_on(cluster):
    units = [Unit("a", "sleep", "A"), Unit("b", "sleep", "B", ("a",)), Unit("c", "sleep", "C")]
    ended, _ = slept(cluster.address, units, lambda unit: "x" if unit.name == "a" else 0.0)
    assert {name: one.status for name, one in ended.items()} == {"a": "failed", "b": "failed", "c": "done"}
    assert ended["a"].error.startswith("TypeError") and "sleep_unit" in ended["a"].trace


def test_a_unit_that_no_node_has_room_for_says_so_and_waits_for_one(cluster, capsys):
    units = [Unit("a", "sleep", "A", threads=4), Unit("b", "sleep", "B", threads=4), Unit("c", "sleep", "C")]
    # When the last one is asked for, the others are with Ray.
    ended = slept_while_one_joins(cluster, units, lambda unit: unit.name == "c", num_cpus=4)
    assert {one.status for one in ended.values()} == {"done"}
    assert capsys.readouterr().err.count("waits for a node with 4 cores") == 1


def test_a_unit_that_waits_for_files_keeps_its_core(cluster):
    ray = ray_cluster.ray
    ray.init(cluster.address, log_to_driver=False, logging_level="error")

    @ray.remote(num_cpus=0)
    class Slow:
        def answer(self):
            time.sleep(0.5)

    @ray.remote(max_retries=0)
    def unit(box):
        began = time.time()
        worker._awaited(box.answer.remote())
        return began, time.time()

    try:
        # Ray asks for a place for units of each size apart.
        boxes = [Slow.remote() for _ in range(6)]
        ray.get([box.answer.remote() for box in boxes])
        spans = ray.get([unit.options(memory=(i + 1) * 2**20).remote(box) for i, box in enumerate(boxes)])
    finally:
        ray.shutdown()
    changes = sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans])
    assert max(itertools.accumulate(change for _, change in changes)) <= 3


def test_with_a_folder_that_all_see_workers_write_there(cluster, study):
    folder, here = study
    (folder / "shared").mkdir()
    shutil.copytree(folder / "pumps", folder / "shared" / "pumps")
    (folder / "shared" / "policies").symlink_to(POLICIES)
    (folder / "shared" / "mine.toml").write_text(STUDY)
    places = {"data": Path("data"), "out": Path("out"), "policies": Path("policies")}
    places |= {"storage": folder / "shared", "file": folder / "shared" / "mine.toml"}
    there = run(folder, "x", on=cluster.address, **places)
    assert there == here
    same(folder / "here", folder / "shared")


def test_trials_and_agents_are_those_of_this_machine(cluster, tmp_path):
    pumps(tmp_path / "pumps", tasks=8)
    sizes = 'hidden = [4], encoder_hidden = [4], batch_size = 4, context_size = 4, regularisation = "none", warm_up = 0'
    tried = f"changes = {{ {sizes} }}\ntried = {{ beta = [0.5, 1.0, 2.0] }}"
    rows = [f'[[rows]]\nlabel = "{name}"\nalgorithm = "focal"\n{tried}' for name in "ab"]
    (tmp_path / "trials.toml").write_text("\n".join(rows))
    for name, on in (("here", "local"), ("there", cluster.address)):
        out = tmp_path / f"{name}.json"
        tuning.run(
            Tune(tmp_path / "trials.toml", tmp_path / "pumps", out, steps=8, rungs=1, threads=1, device="cpu", on=on)
        )
    here, there = (sorted(json.loads((tmp_path / f"{name}.json").read_text()), key=str) for name in ("here", "there"))
    assert here == there and {one["row"] for one in here} == {"a", "b"}
    options = {
        "tasks": 3,
        "steps": 400,
        "episodes": 2,
        "envs_per_task": 8,
        "episode_steps": 40,
        "updates_per_step": 0.25,
    }
    made = [
        collect("sparse-point-robot", tmp_path / f"data-{name}", **options, device="cpu", pack=1, threads=1, on=on)
        for name, on in (("here", "local"), ("there", cluster.address))
    ]
    one, other = ([entry.sha256 for entry in dataset.manifest.tasks] for dataset in made)
    assert one == other


def test_a_node_with_another_omrl_is_refused_by_name(cluster, study, tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    words = tmp_path / "src" / "omrl" / "words.py"
    words.write_text(words.read_text() + "\n# changed\n")
    cluster.add(env_vars={"PYTHONPATH": str(tmp_path / "src")})
    try:
        with pytest.raises(
            OmrlError, match=r"Node 127\.0\.0\.1 \(\w{6}\) has omrl .* and not .*: all nodes have to be"
        ):
            run(study[0], "x", on=cluster.address)
    finally:
        cluster.leave(-1)


def test_a_node_that_joins_without_omrl_gets_no_more_units_and_ends_none(cluster, tmp_path, capsys):
    (tmp_path / "omrl").mkdir()
    (tmp_path / "omrl" / "__init__.py").write_text("raise ImportError('there is no omrl here')")
    units = [Unit(f"{i}", "sleep", f"{i}") for i in range(40)]
    # When the first one is asked for, the other nodes have said what they have.
    own = {"PYTHONPATH": str(tmp_path)}
    ended = slept_while_one_joins(cluster, units, lambda unit: True, seconds=0.5, env_vars=own)
    assert {one.status for one in ended.values()} == {"done"}
    assert capsys.readouterr().err.count("gets no more units: ImportError: there is no omrl here") == 1


@pytest.mark.parametrize("name", ["torch", "Python", "omrl"])
def test_versions_that_differ_are_named(name):
    wanted = {**worker.versions(), name: "0.0"}
    sentence = worker.difference(wanted, "a")
    assert (
        sentence == f"Node a has {name} {worker.versions()[name]} and not 0.0: all nodes have to be as the driver is."
    )
    assert worker.difference(worker.versions(), "a") == ""


def test_a_cluster_of_another_python_is_refused_with_both_versions(cluster, monkeypatch):
    monkeypatch.setattr("ray._private.utils.compute_version_info", lambda: ("2.60.0", "3.9.1"))
    with pytest.raises(OmrlError, match=r"Version mismatch: .* Python: 3\.\d+\.\d+ .* Python: 3\.9\.1\)\.$"):
        OnRay(cluster.address)


@pytest.mark.parametrize(("how", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_driver_that_is_killed_or_interrupted_goes_on_from_what_has_arrived(cluster, study, how, status):
    folder, here = study
    again = folder / f"again-{how.name}"
    places = ["--data", str(again / "data"), "--out", str(again / "out")]
    options = ["--scale", "small", "--device", "cpu", "--policies", str(POLICIES), "--threads", "1"]
    words = [sys.executable, "-m", "omrl", "study", "run", str(folder / "mine.toml"), *places, *options]
    driver = subprocess.Popen(
        [*words, "--on", cluster.address],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Tests that a shell started in the background ignore interruptions, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not any((again / "out" / "runs").glob("*/checkpoints/latest")):
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(how)
    assert driver.wait(60) == status
    assert not json.loads((again / "out" / "progress" / "progress.json").read_text())["over"]
    assert run(folder, again.name, on=cluster.address) == here
    same(folder / "here", again)


def test_the_cluster_file_of_the_docs_is_one_that_ray_takes():
    from ray.autoscaler._private.util import prepare_config, validate_config

    (text,) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / "scale.md").read_text(), re.MULTILINE | re.DOTALL)
    config = prepare_config(yaml.safe_load(text))
    validate_config(config)
    assert config["available_node_types"]["local.cluster.node"]["max_workers"] == 2


def test_no_cluster_is_one_sentence():
    with pytest.raises(OmrlError, match=r"There is no Ray cluster at 127\.0\.0\.1:1 "):
        execute(StudyRun(file=None, on="127.0.0.1:1"))
