"""The wheel with the core dependencies and nothing else: no simulator, no clone; and with what a policy needs alone."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import omrl as omrl_here
from omrl.data import MetaDataset
from omrl.families import FAMILIES
from training_helpers import train, walks

pytestmark = pytest.mark.thorough
ROOT = Path(__file__).parents[1]
# `omrl quickstart` and `omrl train` as they are, at a size for a test.
QUICKSTART = """
import functools, omrl
from omrl.quickstart import Quickstart, run
omrl.train = functools.partial(omrl.train, steps=3)
run(Quickstart(seeds=1))
"""
SMALL = "--steps 3 --seeds 1 --hidden 16 16 --encoder-hidden 16 16 --meta-batch 2 --batch-size 8 --context-size 8"


# What is left of them where a policy only adapts and acts.
OF_A_POLICY = ("numpy", "torch", "safetensors", "pydantic")
ACT = """
import json, sys
import numpy as np
import omrl

trained, arrays = omrl.load("run"), dict(np.load("context.npz"))
policy = trained.adapt(arrays)
acted = policy.act(arrays["observations"][0]).tolist()
loaded = {name.split(".")[0] for name in sys.modules}
print(json.dumps({"act": acted, "loaded": sorted(loaded & {"tyro", "rich", "gymnasium", "mujoco", "matplotlib"})}))
"""

SERVE = """
import json, sys
import numpy as np
import onnxruntime

sys.path.insert(0, "numpy-alone")
import omrl_runtime

rows = dict(np.load("context.npz"))
acted = omrl_runtime.load().adapt(rows).act(rows["observations"])
encoder, actor = (onnxruntime.InferenceSession(f"graphs/{name}.onnx") for name in ("encoder", "actor"))
context = np.concatenate([rows[name].reshape(len(acted), -1) for name in omrl_runtime.CONTEXT], -1, dtype=np.float32)
(z,) = encoder.run(None, {"context": context[None]})
obs = rows["observations"].astype(np.float32)
(graphs,) = actor.run(None, {"obs": obs, "z": np.repeat(z, len(obs), axis=0)})
print(json.dumps({"numpy": acted.tolist(), "onnx": graphs.tolist()}))
"""


def required(*roots: str) -> list[str]:
    """Names of all distributions that pip would install for some requirements, without extras."""
    from packaging.requirements import Requirement

    found: dict[str, metadata.Distribution] = {}
    wanted = list(roots)
    while wanted:
        requirement = Requirement(wanted.pop())
        if (requirement.marker is None or requirement.marker.evaluate({"extra": ""})) and requirement.name not in found:
            found[requirement.name] = metadata.distribution(requirement.name)
            wanted += found[requirement.name].requires or []
    return list(found)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """What is installed where omrl is."""
    pytest.importorskip("hatchling", reason="building a wheel without network needs hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (made,) = folder.glob("omrl-*.whl")
    return made


def environment(folder: Path, wheel: Path | None, distributions: list[str]) -> Path:
    """The interpreter of an environment with links to these distributions, and the wheel if one is given."""
    venv.create(folder / "env", symlinks=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    for name in distributions:
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            # Several distributions share a folder such as nvidia: each is linked by its own parts then.
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return folder / "env" / "bin" / "python"


@pytest.fixture(scope="module")
def python(tmp_path_factory, wheel) -> Path:
    """The interpreter of an environment with the wheel and what it requires."""
    with zipfile.ZipFile(wheel) as archive:
        about = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        wanted = metadata.PathDistribution(zipfile.Path(archive, str(Path(about).parent) + "/")).requires or []
    return environment(tmp_path_factory.mktemp("bare"), wheel, required(*wanted))


def run(python: Path, folder: Path, *words: str, code: int = 0) -> str:
    """What the interpreter prints."""
    done = subprocess.run([python, *words], cwd=folder, capture_output=True, text=True, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def omrl(python: Path, folder: Path, words: str, code: int = 0) -> str:
    """What a command prints."""
    return run(python, folder, "-m", "omrl", *words.split(), code=code)


@pytest.mark.parametrize("package", ["gymnasium", "mujoco", "matplotlib", "imageio", "pytest"])
def test_what_is_no_core_dependency_is_truly_missing(python, tmp_path, package):
    assert f"No module named '{package}'" in run(python, tmp_path, "-c", f"import {package}", code=1)


def test_the_quickstart_needs_neither_a_clone_nor_a_simulator(python, tmp_path):
    printed = run(python, tmp_path, "-c", QUICKSTART)
    assert "mean return" in printed and "from 10 transitions" in printed
    assert "needs matplotlib: pip install 'omrl[plot]', then omrl report quickstart/run" in printed
    assert sorted(path.name for path in (tmp_path / "quickstart").iterdir() if not path.name.startswith(".")) == [
        "data",
        "run",
    ]


def test_it_trains_on_a_table(python, tmp_path):
    rng = np.random.default_rng(0)
    with (tmp_path / "log.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["task", "episode", "obs_0", "obs_1", "action", "reward", "terminated"])
        for task in "abcd":
            for step in range(60):
                rows.writerow([task, step // 20, *rng.normal(size=2), rng.uniform(-1, 1), rng.normal(), 0])
    told = "--action-low -1 --action-high 1 --varies both --test-tasks d"
    omrl(python, tmp_path, f"data import --from csv log.csv data {told}")
    omrl(python, tmp_path, f"train focal --data data --out run {SMALL}")
    assert "action error" in omrl(python, tmp_path, "evaluate run")
    sentence = "needs matplotlib: pip install 'omrl[plot]'."
    assert sentence in omrl(python, tmp_path, "report run --out report", code=2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "collect half-cheetah-vel --out data --tasks 2",
            "Simulating this family needs gymnasium: pip install 'omrl[sim]'.",
        ),
        ("render pictures", "A picture of a family needs imageio: pip install 'omrl[sim]'."),
    ],
)
def test_what_needs_a_simulator_says_so(python, tmp_path, words, sentence):
    assert f"error: {sentence}" in omrl(python, tmp_path, words, code=2)


def test_an_environment_of_gymnasium_says_what_it_needs(python, tmp_path):
    code = "import omrl; f = omrl.FAMILIES['point-robot-wind']; f.make(f.tasks[0])"
    sentence = "A gymnasium environment needs gymnasium: pip install 'omrl[sim]'."
    assert sentence in run(python, tmp_path, "-c", code, code=1)


def test_the_package_names_the_level_that_it_brings(python, tmp_path):
    printed = omrl(python, tmp_path, "collect sparse-point-robot --from-policies --out data", code=2)
    assert "omrl's package brings the expert level alone (--level expert)" in printed


def test_a_policy_adapts_and_acts_with_numpy_torch_safetensors_and_pydantic_alone(tmp_path, wheel):
    data = MetaDataset.open(walks(FAMILIES["sparse-point-robot"], tmp_path / "data"))
    train(tmp_path / "data", tmp_path / "run")
    context = data.sample(data.split["test"][0], 20, np.random.default_rng(0))
    np.savez(tmp_path / "context.npz", **context)
    bare = environment(tmp_path, wheel, required(*OF_A_POLICY))
    for package in ("tyro", "rich", "gymnasium", "mujoco", "matplotlib"):
        assert f"No module named '{package}'" in run(bare, tmp_path, "-c", f"import {package}", code=1)
    found = json.loads(run(bare, tmp_path, "-c", ACT).splitlines()[-1])
    assert found["loaded"] == []
    with np.load(tmp_path / "context.npz") as arrays:
        here = omrl_here.load(tmp_path / "run").adapt(dict(arrays)).act(arrays["observations"][0])
    assert found["act"] == here.tolist()


def test_an_exported_policy_acts_where_neither_torch_nor_omrl_is_installed(tmp_path):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    data = MetaDataset.open(walks(FAMILIES["sparse-point-robot"], tmp_path / "data"))
    train(tmp_path / "data", tmp_path / "run")
    omrl_here.export(tmp_path / "run", "numpy", tmp_path / "numpy-alone")
    omrl_here.export(tmp_path / "run", "onnx", tmp_path / "graphs")
    context = data.sample(data.split["test"][0], 20, np.random.default_rng(0))
    kept = {name: context[name] for name in ("observations", "actions", "rewards", "next_observations")}
    np.savez(tmp_path / "context.npz", **kept)
    bare = environment(tmp_path, None, required("numpy", "onnxruntime"))
    for package in ("torch", "omrl", "safetensors", "pydantic"):
        assert f"No module named '{package}'" in run(bare, tmp_path, "-c", f"import {package}", code=1)
    found = json.loads(run(bare, tmp_path, "-c", SERVE).splitlines()[-1])
    here = omrl_here.load(tmp_path / "run").adapt(kept).act(kept["observations"])
    for way in ("numpy", "onnx"):
        np.testing.assert_allclose(found[way], here, atol=1e-5)
