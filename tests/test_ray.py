"""Studies on a real Ray cluster on this machine: the same bytes as here, whatever is lost on the way."""

from __future__ import annotations

import json
import os
import shutil
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


def test_with_a_folder_that_all_see_workers_write_there(cluster, study):
    folder, here = study
    (folder / "shared").mkdir()
    there = run(folder, "x", on=cluster.address, storage=folder / "shared", data=Path("data"), out=Path("out"))
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
        cluster.lose(-1)


def test_a_driver_that_is_killed_goes_on_from_what_has_arrived(cluster, study):
    folder, here = study
    places = ["--data", str(folder / "again" / "data"), "--out", str(folder / "again" / "out")]
    how = ["--scale", "small", "--device", "cpu", "--policies", str(POLICIES), "--threads", "1"]
    words = [sys.executable, "-m", "omrl", "study", "run", str(folder / "mine.toml"), *places, *how]
    driver = subprocess.Popen(
        [*words, "--on", cluster.address],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not any((folder / "again" / "out" / "runs").glob("*/checkpoints/latest")):
        assert driver.poll() is None
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    assert run(folder, "again", on=cluster.address) == here
    same(folder / "here", folder / "again")


def test_no_cluster_is_one_sentence():
    with pytest.raises(OmrlError, match=r"There is no Ray cluster at 127\.0\.0\.1:1 "):
        execute(StudyRun(file=None, on="127.0.0.1:1"))
