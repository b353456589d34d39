"""What the tests of the families share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from family_helpers import BODIES

from omrl.families import FAMILIES, TaskFamily, register

register()


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> TaskFamily:
    return FAMILIES[request.param]


@pytest.fixture(params=BODIES)
def body_family(request: pytest.FixtureRequest) -> TaskFamily:
    return FAMILIES[request.param]


@pytest.fixture
def gymnasium_bodies(tmp_path, monkeypatch) -> Iterator[None]:
    """gymnasium's own bodies warn into MUJOCO_LOG.TXT and of old versions; neither is ours to answer for."""
    import omrl.families.physics  # noqa: F401  (chooses the OpenGL backend before mujoco is imported)

    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
