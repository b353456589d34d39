"""Collecting again: what is replaced, what goes on, what is refused; and the pictures of what was collected."""

from __future__ import annotations

import shutil
import sys

import pytest
from behaviour_helpers import contents

from omrl.behaviour.collect import collect
from omrl.errors import OmrlError

OPTIONS = {"tasks": 3, "steps": 400, "episodes": 2, "envs_per_task": 8, "updates_per_step": 0.25, "device": "cpu"}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    out = tmp_path_factory.mktemp("collected") / "data"
    collect("sparse-point-robot", out, **OPTIONS)
    return out


def stopped(*_, **__):
    raise KeyboardInterrupt


def test_an_interrupted_replacement_goes_on_with_the_same_command(small, tmp_path, monkeypatch):
    out = tmp_path / "data"
    shutil.copytree(small, out)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("omrl.behaviour.collect._log_rollouts", stopped)
        collect("sparse-point-robot", out, **OPTIONS, force=True)
    # The agents are trained; training them once more would be starting over.
    monkeypatch.setattr("omrl.behaviour.collect.train", stopped)
    collect("sparse-point-robot", out, **OPTIONS, force=True)
    assert contents(out) == contents(small)


def test_damaged_work_says_what_to_delete_and_begins_again_then(small, tmp_path, monkeypatch):
    out, work = tmp_path / "data", tmp_path / ".data.collect"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("omrl.behaviour.collect._log_rollouts", stopped)
        collect("sparse-point-robot", out, **OPTIONS)
    (work / "job.json").write_bytes((work / "job.json").read_bytes()[:-9])
    for force in (False, True):
        with pytest.raises(OmrlError, match=r"\.data\.collect/job\.json .*; delete its folder to begin again\.$"):
            collect("sparse-point-robot", out, **OPTIONS, force=force)
    shutil.rmtree(work)
    collect("sparse-point-robot", out, **OPTIONS)
    assert contents(out) == contents(small)


def other_policies(folder):
    """Policies of the same plan with other weights, as another machine may train them."""
    from safetensors.numpy import load_file

    from omrl.behaviour.policies import PolicyFiles, checkpoint_file

    stored = PolicyFiles.open(folder)
    changed = {
        step: {name: array * 2 for name, array in load_file(folder / checkpoint_file(step)).items()}
        for step in stored.steps
    }
    PolicyFiles.write(folder, stored.family, stored.tasks, changed, stored.source)


def test_rows_of_two_sets_of_policies_are_never_mixed(small, tmp_path, monkeypatch):
    for name in ("one", "two"):
        shutil.copytree(small / "policies", tmp_path / name / "sparse-point-robot")
    other_policies(tmp_path / "two" / "sparse-point-robot")
    rebuild = {"episodes": 2, "from_policies": True}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("omrl.data.MetaDatasetWriter.finish", stopped)
        collect("sparse-point-robot", tmp_path / "data", **rebuild, policies=tmp_path / "one")
    with pytest.raises(OmrlError, match="other arguments"):
        collect("sparse-point-robot", tmp_path / "data", **rebuild, policies=tmp_path / "two")


def test_a_dataset_made_by_other_policies_is_not_taken_for_this_one(small, tmp_path):
    shutil.copytree(small, tmp_path / "data")
    shutil.copytree(small / "policies", tmp_path / "policies" / "sparse-point-robot")
    rebuild = {"episodes": 2, "from_policies": True, "policies": tmp_path / "policies"}
    collect("sparse-point-robot", tmp_path / "data", **rebuild)  # the same policies: it is there already
    other_policies(tmp_path / "policies" / "sparse-point-robot")
    with pytest.raises(OmrlError, match="other policies"):
        collect("sparse-point-robot", tmp_path / "data", **rebuild)


def test_no_update_is_made_before_there_is_anything_to_learn_from(tmp_path, monkeypatch):
    from omrl.behaviour.agents import Trainer

    seen = []
    draw = Trainer._draw
    monkeypatch.setattr(Trainer, "_draw", lambda self, g: (seen.append(self.replay.count), draw(self, g))[1])
    collect("sparse-point-robot", tmp_path / "data", tasks=2, steps=8, envs_per_task=1, episodes=1, device="cpu")
    assert seen and min(seen) > 0


def test_pictures_show_learning_curves_levels_and_trajectories(small, tmp_path, capsys):
    from PIL import Image

    out = tmp_path / "data"
    shutil.copytree(small, out)
    collect("sparse-point-robot", out, **OPTIONS, plot=True)
    printed = capsys.readouterr().out
    drawn = sorted(path.name for path in (out / "figures").iterdir())
    assert drawn == ["returns.png", "trajectories.png"]
    for name in drawn:
        picture = Image.open(out / "figures" / name)
        assert picture.width > 500 and len(picture.getcolors(maxcolors=1 << 24)) > 20
        assert str(out / "figures" / name) in printed


def test_without_matplotlib_the_missing_extra_is_named(small, tmp_path, monkeypatch):
    shutil.copytree(small, tmp_path / "data")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for name in [name for name in sys.modules if name.startswith("omrl.drawing")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(OmrlError, match=r"omrl\[plot\]"):
        collect("sparse-point-robot", tmp_path / "data", **OPTIONS, plot=True)
