"""Arguments of a collection: which are refused before anything is trained, what is planned of them, and presets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from behaviour_helpers import SMALL, command, leftovers, stop_in

from omrl.behaviour.collect import collect
from omrl.behaviour.config import AgentsConfig, SACConfig, preset
from omrl.errors import OmrlError
from omrl.families import FAMILIES

# ----------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["half-cheeta-vel"], "no family 'half-cheeta-vel' (did you mean 'half-cheetah-vel'?)"),
        (["sparse-point-robot", "--tasks", "0"], "--tasks must be between 1 and the 100 tasks"),
        (["sparse-point-robot", "--tasks", "101"], "--tasks must be between 1 and the 100 tasks"),
        (["sparse-point-robot", "--schedule", "fast"], "no schedule 'fast'; there are default and paper"),
        (["sparse-point-robot", "--steps", "0"], "steps must be at least 1"),
        (["sparse-point-robot", "--steps", "-8"], "steps must be at least 1"),
        (["half-cheetah-vel", "--steps", "77"], "multiples of the 8 environments"),
        (["sparse-point-robot", "--steps", "80", "--checkpoints", "0", "160"], "between 0 and the 80 steps"),
        (["sparse-point-robot", "--checkpoints", "-8"], "between 0 and the"),
        (["half-cheetah-vel", "--checkpoints", "0", "17"], "multiples of the 8 environments"),
        (["sparse-point-robot", "--checkpoints"], "a checkpoint after step 0"),
        (["sparse-point-robot", "--envs-per-task", "0"], "--envs-per-task must be at least 1"),
        (["sparse-point-robot", "--action-std", "-1"], "--action-std must be 0 or more"),
        (["sparse-point-robot", "--level", "best"], "no level 'best' to log; there are random, medium, expert"),
        (["sparse-point-robot", "--actor-hidden", "0"], "--actor-hidden must be layers of at least 1"),
        (["sparse-point-robot", "--ignored-observations", "9"], "--ignored-observations must lie between 0 and 1"),
        (["sparse-point-robot", "--gamma", "2"], "--gamma must lie between 0 and 1"),
        (["sparse-point-robot", "--batch-size", "0"], "--batch-size must be at least 1"),
        (["sparse-point-robot", "--initial-temperature", "-1"], "--initial-temperature must be above 0"),
        (["sparse-point-robot", "--updates-per-step", "-1"], "--updates-per-step cannot be negative"),
        (["--tasks", "2", "sparse-point-robot"], "Name the family first: omrl collect sparse-point-robot"),
        (["sparse-point-robot", "--episodes", "0"], "--episodes must be at least 1"),
        (["sparse-point-robot", "--seed", "-1"], "--seed must be 0 or more"),
        (["sparse-point-robot", "--seed", str(2**63)], "--seed must be 0 or more"),
        (["sparse-point-robot", "--device", "cuda:99"], "no device 'cuda:99'"),
        (["sparse-point-robot", "--device", "meta"], "no device 'meta'; it is auto, cpu or cuda"),
        (["sparse-point-robot", "--device", "gpu"], "no device 'gpu'; it is auto, cpu or cuda"),
        (["sparse-point-robot", "--from-policies"], "holds no behaviour policies"),
    ],
)
def test_a_bad_argument_is_one_sentence_and_leaves_nothing(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(monkeypatch, capsys, "collect", *words, "--out", "new/data")
    assert code == 2
    assert says in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert out == ""
    assert leftovers(tmp_path) == []


def test_a_missing_device_is_one_sentence(tmp_path, monkeypatch, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has the device")
    arguments = ("sparse-point-robot", "--device", "cuda", "--out", str(tmp_path / "data"))
    code, _, err = command(monkeypatch, capsys, "collect", *arguments)
    assert code == 2
    assert "There is no device 'cuda' here" in err
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_something_else_under_the_name_is_refused_before_any_training(kind, force, tmp_path, monkeypatch, capsys):
    out = tmp_path / "data"
    if kind == "folder":
        out.mkdir()
        (out / "thesis.tex").write_text("years of work")
    elif kind == "file":
        out.write_text("years of work")
    else:
        out.symlink_to("nowhere")
    stop_in(monkeypatch, "_train")
    code, _, err = command(monkeypatch, capsys, "collect", "sparse-point-robot", "--out", str(out), *SMALL, *force)
    assert code == 2
    assert err.count("\n") == 1
    assert leftovers(tmp_path) == ["data"]
    if kind == "folder":
        assert (out / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("place", ["a file", "/proc"])
def test_a_place_where_nothing_can_be_written_is_one_sentence(place, tmp_path, monkeypatch, capsys):
    if place == "a file":
        place = str(tmp_path / "file")
        Path(place).touch()
    code, _, err = command(monkeypatch, capsys, "collect", "sparse-point-robot", "--out", f"{place}/data", *SMALL)
    assert code == 2
    assert "could not be written" in err
    assert err.count("\n") == 1


# ----------------------------------------------------------------------------- what is planned


def test_dry_run_prints_the_plan_as_json_and_writes_nothing(tmp_path, monkeypatch, capsys):
    arguments = ("half-cheetah-vel", "--out", str(tmp_path / "data"), "--tasks", "2", "--seed", "5", "--dry-run")
    code, out, _ = command(monkeypatch, capsys, "collect", *arguments)
    assert code == 0
    plan = json.loads(out)
    assert plan["family"] == "half-cheetah-vel"
    assert plan["tasks"] == ["task-000", "task-099"]
    assert plan["agents"]["seed"] == plan["rollout"]["seed"] == 5
    assert [0, *plan["rollout"]["checkpoints"]] == plan["agents"]["checkpoints"]
    assert leftovers(tmp_path) == []


def test_what_is_given_counts_also_where_it_is_the_presets(tmp_path, monkeypatch, capsys):
    arguments = ("sparse-point-robot", "--out", str(tmp_path / "data"), "--steps", "3000", "--dry-run")
    plan = json.loads(command(monkeypatch, capsys, "collect", *arguments, "--random-steps", "2000")[1])
    assert plan["agents"]["random_steps"] == 2000
    assert json.loads(command(monkeypatch, capsys, "collect", *arguments)[1])["agents"]["random_steps"] == 750


def test_fewer_steps_leave_most_of_them_for_learning(tmp_path, capsys):
    for options in ({}, {"checkpoints": (0, 800)}):
        collect("half-cheetah-vel", tmp_path / "data", steps=800, dry_run=True, **options)
        plan = json.loads(capsys.readouterr().out)
        assert plan["agents"]["random_steps"] <= 200
        assert plan["agents"]["checkpoints"][-1] == 800


# ----------------------------------------------------------------------------- presets


# Meta environment, checkpoints start:end:spacing and trajectories per checkpoint: the paper's table of fixed datasets.
PAPER = """
sparse-point-robot 2200:4800:200 51
half-cheetah-vel 50000:950000:50000 53
ant-fwd-back 10000:790000:10000 55
half-cheetah-fwd-back 5000:640000:5000 6
walker-2d-params 50000:950000:50000 53
point-robot-wind 2200:11800:200 51
"""


@pytest.mark.parametrize("line", PAPER.split("\n")[1:-1])
def test_the_paper_schedule_is_the_papers_table(line):
    name, spacing, episodes = line.split()
    first, last, every = map(int, spacing.split(":"))
    found = preset(FAMILIES[name], "paper")
    config = found.agents
    assert found.episodes == int(episodes)
    assert set(found.levels.values()) <= set(config.checkpoints)
    assert config.checkpoints[0] == 0
    assert config.checkpoints[1:] == tuple(range(first, last + 1, every))
    assert config.checkpoints[-1] == config.steps == last


@pytest.mark.parametrize("name", FAMILIES)
def test_presets_start_untrained_end_with_the_expert_and_keep_actors_small(name):
    family = FAMILIES[name]
    found = preset(family)
    config = found.agents
    config.check(family.obs_dim)
    assert config.checkpoints[0] == 0
    assert config.checkpoints[-1] == config.steps
    assert 0 < config.random_steps < config.checkpoints[1] <= config.steps
    assert set(found.levels.values()) <= set(config.checkpoints[1:])
    assert found.levels["random"] == config.checkpoints[1]
    assert found.episodes * family.logged_steps >= 10_000
    assert config.sac.target_entropy == -1.0
    sizes = [family.obs_dim, *config.sac.actor_hidden, 2 * family.act_dim]
    weights = sum((i + 1) * o for i, o in zip(sizes[:-1], sizes[1:], strict=True))  # noqa: RUF007
    assert 2 * weights <= 64 * 1024
    assert all(0 <= i < family.obs_dim for i in config.sac.ignored_observations)


def test_a_configuration_checks_itself():
    wrong = ({"steps": 0}, {"envs_per_task": 0}, {"episode_steps": 0}, {"steps": 7}, {"checkpoints": (0,)})
    for values in (*wrong, {"seed": -1}):
        with pytest.raises(OmrlError):
            AgentsConfig(**values).check(2)
    with pytest.raises(TypeError):
        SACConfig(learning_rates=1e-3)
