from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import omrl
from omrl.behaviour.policies import checkpoint_file

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def imported(code: str) -> set[str]:
    """Top-level packages that are loaded after `code`."""
    program = f"{code}\nimport sys; print(' '.join({{name.split('.')[0] for name in sys.modules}}))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_there_is_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert project["version"] == omrl.__version__ == metadata.version("omrl") == citation[1]


def test_the_licence_is_mit_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "MIT"
    assert "license: MIT" in (ROOT / "CITATION.cff").read_text()
    assert "Permission is hereby granted, free of charge" in (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("name", omrl.__all__)
def test_public_names_resolve(name):
    assert getattr(omrl, name) is not None
    assert getattr(omrl, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        omrl.no_such_name


def test_importing_omrl_loads_neither_torch_nor_mujoco():
    assert not imported("import omrl") & {"torch", "mujoco", "safetensors", "rich", "tyro", "matplotlib"}


def test_the_error_is_light():
    assert not imported("from omrl import OmrlError; OmrlError('x')") & {"torch", "mujoco"}


def test_nothing_is_pickled():
    words = re.compile(r"\b(import (pickle|cloudpickle|dill|joblib|shelve)|torch\.(load|save)\(|allow_pickle=True)")
    for path in SOURCES:
        assert not words.search(path.read_text()), path
    assert len(SOURCES) > 20


def test_every_module_says_what_it_is_for():
    for path in SOURCES:
        assert re.match(r'"""\S', path.read_text()), path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> list[str]:
    """Names of the files in the wheel."""
    pytest.importorskip("hatchling", reason="building a wheel without network needs hatchling")
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("omrl-*.whl"))) as archive:
        return archive.namelist()


def test_the_wheel_is_typed_and_holds_all_of_the_package(wheel):
    assert "omrl/py.typed" in wheel
    assert {"omrl/algorithms/focal.toml", "omrl/behaviour/presets.toml"} <= set(wheel)
    assert {str(path.relative_to(ROOT / "src")) for path in SOURCES} <= set(wheel)


def test_the_wheel_holds_the_package_alone(wheel):
    assert {name.split("/")[0] for name in wheel} == {
        *("omrl", f"omrl-{omrl.__version__}.dist-info"),
        "omrl_command.py",  # where its script begins
    }
    assert not [name for name in wheel if "policies/" in name or name.endswith(".pyc")]
    assert f"omrl-{omrl.__version__}.dist-info/licenses/LICENSE" in wheel


def test_the_wheel_brings_the_policies_of_the_quickstart(wheel):
    brought = {name for name in wheel if name.startswith("omrl/behaviour/published/")}
    index = json.loads((ROOT / "policies" / "sparse-point-robot" / "policies.json").read_text())
    files = ["policies.json", *(checkpoint_file(step) for step in (0, index["source"]["levels"]["expert"]))]
    assert brought == {f"omrl/behaviour/published/sparse-point-robot/{file}" for file in files}
    assert {name for name in wheel if name.endswith(".safetensors")} < brought


def test_the_policies_that_travel_in_the_wheel_are_small():
    """Everybody who installs omrl downloads them."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    files = [ROOT / source for source in build["force-include"]]
    assert any(file.suffix == ".safetensors" for file in files)
    assert sum(file.stat().st_size for file in files) < 1.5e6


def test_steps_of_the_flow_are_functions_even_after_their_modules_were_imported():
    code = (
        "import omrl, omrl.cli, omrl.learning.starting, omrl.evaluation.testing;"
        "print(*map(callable, (omrl.collect, omrl.train, omrl.evaluate, omrl.load)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True"] * 4
