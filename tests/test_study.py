"""Studies of one's own: data of a family or a folder, algorithms of one's own, trust, files that are not studies."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from omrl import cli
from omrl.commands.study import StudyRun
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.families import FAMILIES
from omrl.runs.run import Run
from omrl.studies.definitions import read_study
from omrl.studies.execute import execute
from omrl.studies.listing import overview
from omrl.studies.planning import Source, jobs, plan
from omrl.studies.running import make_data
from training_helpers import pumps, walks

CLONING = """
import torch
from torch import nn

from omrl import Algorithm
from omrl.algorithms.algorithm import MetaConfig
from omrl.learning.engine import call
from omrl.learning.nets import MLP
print("its code ran")


class Nets(nn.Module):
    def __init__(self, obs_dim, act_dim, config, generator):
        super().__init__()
        self.encoder = MLP(2 * obs_dim + act_dim + 1, (8,), config.latent_dim, generator=generator)
        self.actor = MLP(obs_dim + config.latent_dim, (8,), act_dim, generator=generator)


class Cloning(Algorithm):
    Config, Nets = MetaConfig, Nets
    learning_rate = {"": 1e-2}

    def infer(self, params, context):
        return torch.tanh(call(self.nets, params, "encoder", context)).mean(-2)

    def act(self, params, obs, z):
        return torch.tanh(call(self.nets, params, "actor", torch.cat([obs, z], -1)))

    def loss(self, params, targets, batch, noise):
        z = self.infer(params, batch["context"][:, 0])[:, None].expand(-1, batch["obs"].shape[1], -1)
        loss = (self.act(params, batch["obs"], z) - batch["act"]).square().mean()
        return loss, {"actor_loss": loss}
"""
POLICIES = Path(__file__).resolve().parents[1] / "policies"
SIZES = "hidden = [8], encoder_hidden = [8], batch_size = 8, context_size = 4, meta_batch = 3"
SAME = "", ", beta = 1.0"  # which is what it is by itself
MINE = f"""
[scale.full]
seeds = 2
steps = 6
log_every = 2
eval_every = 3

[experiment.pumps]
title = "Which of them tells pumps apart"
data = [{{ path = "pumps" }}]
rows = [
  {{ label = "FOCAL", algorithm = "focal", changes = {{ {SIZES} }} }},
  {{ label = "Cloning", algorithm = "cloned:Cloning", changes = {{ batch_size = 8 }} }},
]
tables = ["returns", "embedding"]
[[experiment.pumps.claims]]
text = "FOCAL's actions are nearer."
metric = "action_error"
better = ["FOCAL"]
worse = ["Cloning"]
whose = "ours"

[experiment.walks]
title = "Random walks of a family, in a folder of one's own"
data = [{{ path = "walks" }}]
rows = [{{ label = "FOCAL", algorithm = "focal", level = "mixed", changes = {{ {SIZES} }} }}]
figures = ["return"]
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A study with its data and an algorithm beside it."""
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "cloned.py").write_text(CLONING)
    pumps(tmp_path / "pumps")
    walks(FAMILIES["sparse-point-robot"], tmp_path / "walks")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cloned", raising=False)
    monkeypatch.setattr("omrl.studies.execute._page", lambda *_: {})  # tests of the report have it
    yield tmp_path / "mine.toml"
    sys.modules.pop("cloned", None)


def study(file, **options):
    return StudyRun(file=file, device="cpu", data=file.parent / "data", out=file.parent / "out", **options)


def test_a_study_runs_from_a_file_to_its_verdict(mine, capsys):
    results = execute(study(mine, trust=("cloned:Cloning",)))
    first, second = results
    assert [(row["data"], row["row"], row["seeds"]) for row in first["rows"]] == [
        ("pumps", "FOCAL", 2),
        ("pumps", "Cloning", 2),
    ]
    # Without a simulator rows are told by their actions; less error is better.
    ours, theirs = (row["metrics"]["action_error"] for row in first["rows"])
    (claim,) = first["claims"]
    (comparison,) = claim["comparisons"]
    assert comparison["difference"]["value"] == pytest.approx(sum(theirs) / 2 - sum(ours) / 2)
    assert "return" in second["rows"][0]["metrics"]
    written = json.loads((mine.parent / "out" / "walks" / "results.json").read_text())
    assert written == json.loads(json.dumps(second))
    assert (mine.parent / "out" / "walks" / "figures" / "return.png").is_file()
    assert "action error" in (mine.parent / "out" / "pumps" / "tables" / "returns.csv").read_text()
    # What is there is not run again.
    capsys.readouterr()
    assert execute(study(mine, trust=("cloned:Cloning",))) == results
    said = capsys.readouterr().out
    assert said.count("is trained") == 3 and "testing" not in said


def test_code_that_a_study_names_runs_only_when_trusted(mine, capsys):
    for trust in ((), ("other:Cloning",)):
        with pytest.raises(OmrlError, match=r"names the algorithm cloned:Cloning.*--trust cloned:Cloning"):
            execute(study(mine, trust=trust))
    assert "its code ran" not in capsys.readouterr().out and "cloned" not in sys.modules
    assert not (mine.parent / "out").exists()


def test_the_command_lists_and_runs_it(mine, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["omrl", "study", "list", str(mine), "--trust", "cloned:Cloning"])
    cli.main()
    assert "pumps" in capsys.readouterr().out
    words = ["study", "run", str(mine), "walks", "--device", "cpu", "--out", str(mine.parent / "out"), "--trust"]
    monkeypatch.setattr(sys, "argv", ["omrl", *words, "cloned:Cloning"])
    cli.main()
    assert "Random walks of a family" in capsys.readouterr().out


def test_the_study_of_both_losses_asks_every_family():
    found = read_study(Path(__file__).parents[1] / "benchmarks" / "both_losses.toml")
    (experiment,) = found.experiments.values()
    assert [one.family for one in experiment.data] == list(FAMILIES)
    assert len(jobs(plan(experiment, found.scales["full"]))) == 2 * len(FAMILIES)


def test_the_study_of_walkers_can_be_run_as_it_stands():
    found = read_study(Path(__file__).parents[1] / "benchmarks" / "walkers.toml")
    for experiment in found.experiments.values():
        planned = jobs(plan(experiment, found.scales["full"]))
        assert len(planned) == len(experiment.rows)  # no row asks for what another one is
        assert {job.seeds for job in planned} == {3} and {job.source.split for job in planned} < {"spare", "large"}


def test_experiments_have_seeds_and_breadths_of_their_own(tmp_path):
    file = tmp_path / "broad.toml"
    file.write_text(
        """
[experiment.breadth]
title = "Who wins at which breadth"
seeds = 7
data = [
  { family = "sparse-point-robot", action_std = 0.1 },
  { family = "sparse-point-robot", action_std = 0.6 },
]
rows = [{ label = "FOCAL", algorithm = "focal" }]
"""
    )
    found = read_study(file)
    wanted = jobs(plan(found.experiments["breadth"], found.scales["full"]))
    assert [(job.seeds, job.source.folder) for job in wanted] == [
        (7, "sparse-point-robot-std-0.1"),
        (7, "sparse-point-robot-std-0.6"),
    ]
    assert [one.seeds for one in jobs(plan(found.experiments["breadth"], found.scales["small"]))] == [2, 2]
    (line,) = overview(file)
    assert "sparse-point-robot, action std 0.1" in line[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[experiment", "cannot be read as TOML"),
        ("", "it is not a study"),
        ("experiment = 3", "it is not a study"),
        ("[colour]\nred = 1", "has a table 'colour'"),
        ("[experiment.a]\ntitle = 3\ndata = []\nrows = []", "title must be text, not 3"),
        ("[experiment.a]\ntitle = 'x'\ndata = 3\nrows = []", "a.data must be a list of tables"),
        ("[experiment.a]\ntitle = 'x'\nlike = 'b'", "is like 'b', which does not exist"),
        ("[experiment.a]\ntitle = 'x'\ndata = [{ family = 'ant' }]\nrows = []", "There is no family 'ant'"),
        ("[experiment.a]\ntitle = 'x'\ndata = []\nrows = [{ label = 'a', algorithm = 'no' }]", "algorithm 'no'"),
        ("[experiment.a]\ntitle = 'x'\ndata = []\nrows = []\nsize = 3", "has no size"),
    ],
)
def test_what_is_not_a_study_is_one_sentence_that_names_the_file(tmp_path, text, message):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(OmrlError, match=message) as error:
        read_study(file)
    assert "bad.toml" in str(error.value)


def test_a_run_that_a_gpu_has_no_room_for_is_trained_in_parts_and_that_is_said(mine, capsys):
    cramped = (
        CLONING
        + """
    def noise(self, batch, generator):
        if len(batch["obs"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return {}
"""
    )
    (mine.parent / "cloned.py").write_text(cramped)
    mine.write_text(MINE.replace("seeds = 2", "seeds = 3"))
    first, second = execute(study(mine, trust=("cloned:Cloning",)))
    assert [row["seeds"] for row in first["rows"]] == [3, 3]
    assert "no room for all seeds of Cloning on pumps, which were trained in parts" in first["note"]
    assert "no room" not in second["note"]
    out = mine.parent / "out"
    (parts,) = json.loads((out / "progress" / "plan.json").read_text())["repacked"].values()
    assert parts == [[0, 1], [1, 2]]
    (whole,) = (out / "runs").glob("pumps-cloned.Cloning-??????????")
    runs = [Run.open(whole), *(Run.open(whole.with_name(f"{whole.name}-seeds-{seeds}")) for seeds in ("0-0", "1-2"))]
    state, *states = (run.load()[1] for run in runs)
    assert torch.equal(state["params"], torch.cat([one["params"] for one in states]))
    joined, *curves = (run.curves["actor_loss"].values for run in runs)
    assert np.array_equal(joined, np.concatenate(curves))
    # What was packed anew stays so, and is not done again.
    assert execute(study(mine, trust=("cloned:Cloning",))) == [first, second]
    # Where the parts do not fit either, that is the end of it.
    (mine.parent / "cloned.py").write_text(cramped.replace("> 2", "> 0"))
    sys.modules.pop("cloned")
    shutil.rmtree(out)
    with pytest.raises(OmrlError, match=r"2 of 14 units failed: Cloning on pumps, seeds 0 to 0 \(a GPU has too little"):
        execute(study(mine, trust=("cloned:Cloning",)))


def test_a_run_whose_every_seed_diverged_is_an_outcome_and_not_a_failure(mine, capsys):
    (mine.parent / "cloned.py").write_text(CLONING.replace(".square().mean()", '.square().mean() * float("nan")'))
    first, second = execute(study(mine, trust=("cloned:Cloning",)))
    assert [row["stopped"] for row in first["rows"]] == [[], [0, 1]]
    (run,) = (mine.parent / "out" / "runs").glob("pumps-cloned.Cloning-*")
    assert f"No seed of {run} is left at update 2" in capsys.readouterr().out
    # It has ended: nothing is trained again.
    assert execute(study(mine, trust=("cloned:Cloning",))) == [first, second]
    assert f"{run} is trained" in capsys.readouterr().out


def test_rows_that_say_the_same_in_other_words_share_a_run_also_side_by_side(mine, capsys):
    # Long enough that the second would begin while the first is trained, and both while they are tested.
    rows = [f"{{ label = '{i}', algorithm = 'focal', changes = {{ {SIZES}{more} }} }}" for i, more in enumerate(SAME)]
    mine.write_text(
        "[scale.full]\nseeds = 2\nsteps = 300\n"
        f"[experiment.same]\ntitle = 'x'\ndata = [{{ path = 'pumps' }}]\nrows = [{', '.join(rows)}]\n"
    )
    (found,) = execute(study(mine, at_once=2, threads=1))
    one, other = found["rows"]
    assert one["run"] == other["run"] and one["metrics"] == other["metrics"]
    logs = [path.read_text() for path in (mine.parent / "out" / "progress" / "logs").glob("train-*")]
    assert len(logs) == 1, capsys.readouterr().out


def test_a_plan_keeps_what_other_experiments_were_given_in_the_same_folder(mine):
    def threads():
        plan = json.loads((mine.parent / "out" / "progress" / "plan.json").read_text())
        return {unit["name"]: unit["threads"] for unit in plan["units"]}

    execute(study(mine, names=("walks",), threads=1, trust=("cloned:Cloning",)))
    first = threads()
    execute(study(mine, names=("pumps",), threads=2, trust=("cloned:Cloning",)))
    assert {**threads(), **first} == threads() and {*threads().values()} == {1, 2}
    execute(study(mine, names=("walks",), threads=2, trust=("cloned:Cloning",)))
    assert {name: count for name, count in threads().items() if name in first} == first


@pytest.mark.skipif(find_spec("ray") is None, reason="needs omrl[ray]")
def test_what_nodes_of_a_shared_folder_do_not_see_is_refused_before_anything_is_done(mine, monkeypatch):
    monkeypatch.setattr("omrl.studies.execute.executor", lambda *_: pytest.fail("it begins"))
    (mine.parent / "shared").mkdir()
    common = {"on": "ray", "storage": mine.parent / "shared", "out": Path("out"), "data": Path("data")}
    with pytest.raises(OmrlError, match=r"pumps does not lie in .*shared, the folder of --storage"):
        execute(StudyRun(file=mine, trust=("cloned:Cloning",), **common))
    with pytest.raises(OmrlError, match=r"\.\./x does not lie in .*shared"):
        execute(StudyRun(file=mine, trust=("cloned:Cloning",), **{**common, "out": Path("../x")}))
    rows = f"[{{ label = 'FOCAL', algorithm = 'focal', changes = {{ {SIZES} }} }}]"
    data = "[{ family = 'sparse-point-robot' }]"
    mine.write_text(f"[experiment.one]\ntitle = 'x'\ndata = {data}\nrows = {rows}\n")
    monkeypatch.chdir(POLICIES.parent)
    for policies in (Path("policies"), POLICIES):
        with pytest.raises(OmrlError, match=r"policies does not lie in .*shared"):
            execute(StudyRun(file=mine, policies=policies, **common))
    (mine.parent / "shared" / "policies").symlink_to(POLICIES)
    with pytest.raises(pytest.fail.Exception, match="it begins"):
        execute(StudyRun(file=mine, **common))


def test_data_of_published_policies_is_made_without_the_gpu_of_the_plan(tmp_path):
    source = Source("sparse-point-robot", tasks=2, episodes=1)
    make_data(source, tmp_path / "data", POLICIES / "sparse-point-robot", device="cuda")
    assert len(MetaDataset.open(tmp_path / "data").tasks) == 2
