"""What `omrl train` takes: flags of the run and of the algorithm, presets, another run's config, bad arguments."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

import omrl
from omrl import cli
from omrl.algorithms import ALGORITHMS
from omrl.algorithms.focal import FOCALConfig
from omrl.commands.train import MAX_ROWS, Train
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.families import FAMILIES
from omrl.learning import starting
from omrl.runs.run import Run
from training_helpers import NETWORKS, OPTIONS, SMALL, pumps, train, walks


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return walks(FAMILIES["sparse-point-robot"], tmp_path_factory.mktemp("data") / "walks")


@pytest.fixture(scope="module")
def own_logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "pumps"
    pumps(folder)
    return folder


@pytest.fixture
def command(data, monkeypatch):
    """What the command line `omrl train focal --data ... --out ...` with more words would run."""

    def parsed(*words, algorithm="focal", folder=data):
        found = []
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["omrl", "train", algorithm, "--data", str(folder), "--out", "run", *words])
            patch.setattr(starting, "run", lambda *parts: found.append(parts))
            cli.main()
        return found[0]

    return parsed


def flags(options):
    """Options of Python as words of the command line."""
    words = []
    for name, value in options.items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return words


# -- flags -------------------------------------------------------------------------------------------------------------


def test_the_command_trains_with_its_flags(data, tmp_path):
    """The whole way once: words, process, run folder; and Python makes the same bytes of the same options."""
    words = [*flags({**SMALL, **OPTIONS}), "--no-dense-reward", "--power", "linear", "--device", "cpu"]
    command = [sys.executable, "-m", "omrl", "train", "focal", "--data", str(data), "--out", str(tmp_path / "run")]
    found = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout == f"{tmp_path / 'run'} is trained; `omrl evaluate {tmp_path / 'run'}` tests it.\n"
    config = Run.open(tmp_path / "run").config
    given = {"hidden": [8, 8], "encoder_hidden": [8, 8], "dense_reward": False, "power": "linear"}
    assert {name: config.hyperparameters[name] for name in given} == given
    assert config.seeds == 2 and config.steps == 12
    train(data, tmp_path / "python", dense_reward=False, power="linear")
    for name in ("config.json", "metrics.csv", "checkpoints/step-0000012.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "python" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--latent-dim 7", "latent_dim", 7),
        ("--hidden 64 32 16", "hidden", (64, 32, 16)),
        ("--hidden 64", "hidden", (64,)),
        ("--beta 0.25", "beta", 0.25),
        ("--alpha 1e3", "alpha", 1e3),
        ("--bfloat16", "bfloat16", True),
        ("--no-bfloat16", "bfloat16", False),
        ("--coupled", "coupled", True),
        ("--no-next-obs-in-context", "next_obs_in_context", False),
        ("--next-obs-in-context", "next_obs_in_context", True),
        ("--dense-reward", "dense_reward", True),  # as the preset says already
        ("--no-dense-reward", "dense_reward", False),  # against the preset
        ("--power inverse", "power", "inverse"),
        ("--encoder probabilistic", "encoder", "probabilistic"),
        ("--divergence gaussian-kl", "divergence", "gaussian-kl"),
        ("--regulariser-steps 3", "regulariser_steps", 3),
    ],
)
def test_a_flag_sets_its_hyperparameter_and_no_other(command, words, name, value):
    _, usual = command()
    _, found = command(*words.split())
    assert asdict(found) == asdict(usual) | {name: value}


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--seeds 5", "seeds", 5),
        ("--seed 4", "seed", 4),
        ("--steps 7", "steps", 7),
        ("--level mixed", "level", "mixed"),
        ("--max-rows 9", "max_rows", 9),
        ("--eval-every 0", "eval_every", 0),
        ("--stream", "stream", True),
        ("--force", "force", True),
        ("--dry-run", "dry_run", True),
    ],
)
def test_a_flag_sets_its_option_of_the_run(command, words, name, value):
    usual, same = command()
    found, hyperparameters = command(*words.split())
    assert vars(found) == vars(usual) | {name: value}
    assert hyperparameters == same


def test_every_field_is_a_flag_with_a_description(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["omrl", "train", "focal", "--help"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    text = capsys.readouterr().out
    assert "--no-coupled" in text and "--no-force" not in text  # a hyperparameter can be switched both ways
    for field in [*fields(Train), *fields(FOCALConfig)]:
        name = field.name.replace("_", "-")
        assert field.name == "algorithm" or f"--{name} " in text or f"--no-{name}" in text or f"--{name}," in text, name


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--no-such-flag", "3"], "--no-such-flag"),
        (["--set", "gamma=0.5"], "--set"),
        (["--power", "cubic"], "cubic"),
        (["--gamma", "blue"], "blue"),
        (["--hidden", "wide"], "wide"),
        (["--steps", "many"], "many"),
        (["--steps"], "--steps"),
    ],
)
def test_words_that_are_no_flags_exit_with_2_and_are_named(command, capsys, words, named):
    with pytest.raises(SystemExit) as stop:
        command(*words)
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert named in err and out == "" and "Traceback" not in err


@pytest.mark.parametrize("words", [["focal"], ["focal", "--data", "somewhere"], ["focal", "--out", "run"]])
def test_data_and_out_are_asked_for(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["omrl", "train", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_algorithm_has_to_come_first(data, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["omrl", "train", "--data", str(data), "--out", "run", "focal"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: Name the algorithm first: omrl train focal --data ... --out ...\n"


# -- presets -----------------------------------------------------------------------------------------------------------


def test_a_preset_sets_hyperparameters_and_its_level(command):
    found, hyperparameters = command()
    assert found.level == "expert" and found.steps == Train.steps and found.max_rows == MAX_ROWS
    assert (hyperparameters.gamma, hyperparameters.latent_dim, hyperparameters.dense_reward) == (0.9, 5, True)
    assert hyperparameters.actor_lr == FOCALConfig().actor_lr  # what the preset leaves open


# Which of what follows from the log, or helps with logs of any kind, an algorithm has a setting for.
WITH_CRITICS = {"reward_scale", "gamma", "meta_batch"}
REGULARISED = {"divergence", "target_divergence", "near_bounds", "warm_up"}
FITTED = {
    "focal": {*WITH_CRITICS, *REGULARISED},
    "batch-pearl": {*WITH_CRITICS, *REGULARISED},
    "contextual-bcq": WITH_CRITICS,
    "mbml": WITH_CRITICS,
    "contextual-bc": {"meta_batch", "near_bounds"},
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_s_own_logs_have_a_preset_that_follows_from_them(name, own_logs, tmp_path):
    """Three pumps with 40 rows each in episodes of 20; what is expected is worked out from the rows here."""
    start, config = starting.starting_point(Train(name, own_logs, tmp_path / "run", device="cpu"))
    assert (start.preset, start.level, start.steps) == ("own-logs", "mixed", 5_000)
    rewards = np.concatenate([MetaDataset.open(own_logs).rows(task)["rewards"] for task in ("pump-0", "pump-1")])
    wanted = {"reward_scale": pytest.approx(5 / rewards.std(), rel=0.01), "gamma": 0.95, "meta_batch": 2}
    wanted |= {"divergence": "gaussian-kl", "target_divergence": 0.2, "near_bounds": 0.05, "warm_up": 2_000}
    assert {field for field in wanted if hasattr(config, field)} == FITTED[name]
    for field in FITTED[name]:
        assert getattr(config, field) == wanted[field], field
    assert all(value == (64, 64) for field, value in vars(config).items() if field.endswith("hidden"))
    again, same = starting.starting_point(Train(name, own_logs, tmp_path / "run", preset="own-logs", device="cpu"))
    assert (again.steps, same) == (start.steps, config)


def test_larger_logs_are_learnt_from_for_longer(tmp_path):
    pumps(tmp_path / "large", tasks=9, rows=8_000)
    start, config = starting.starting_point(Train("focal", tmp_path / "large", tmp_path / "run", device="cpu"))
    assert start.steps == 48 * 8 * 8_000 // (8 * 32) // 1_000 * 1_000 == 12_000
    assert (config.warm_up, config.meta_batch) == (4_800, 8)


def test_what_is_given_stands_above_the_preset(command, data, tmp_path, monkeypatch):
    preset = {"level": "mixed", "max_rows": 50, "steps": 3, "gamma": 0.5, "beta": 7.0}
    monkeypatch.setattr(starting, "read_preset", lambda *_: dict(preset))
    found, hyperparameters = command()
    assert (found.level, found.max_rows, found.steps, hyperparameters.gamma) == ("mixed", 50, 3, 0.5)
    found, hyperparameters = command(*["--max-rows", "60", "--steps", "4", "--gamma", "0.8"])
    assert (found.level, found.max_rows, found.steps) == ("mixed", 60, 4)
    assert (hyperparameters.gamma, hyperparameters.beta) == (0.8, 7.0)
    # The same from Python.
    options = {**SMALL, "seeds": 1, "device": "cpu", "eval_every": 0}
    omrl.train("focal", data, tmp_path / "preset", **options)
    omrl.train("focal", data, tmp_path / "given", **options, max_rows=60, steps=4, gamma=0.8)
    for folder, wanted in (("preset", (50, 3, 0.5)), ("given", (60, 4, 0.8))):
        config = Run.open(tmp_path / folder).config
        assert (config.max_rows, config.steps, config.hyperparameters["gamma"]) == wanted
        assert Run.open(tmp_path / folder).load()[0] == wanted[1]


# -- the config of another run -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(data, folder, seed=5, steps=4, max_rows=70, gamma=0.77, power="square", coupled=True)
    return folder


def test_a_run_can_start_from_the_config_of_another(data, finished, tmp_path):
    config = finished / "config.json"
    again = omrl.train("focal", data, tmp_path / "again", config=str(config), eval_every=0, device="cpu")
    # The numbers are not the preset's any more.
    assert again.config == replace(Run.open(finished).config, preset=None)
    assert (again.folder / "checkpoints" / "step-0000004.safetensors").read_bytes() == (
        finished / "checkpoints" / "step-0000004.safetensors"
    ).read_bytes()


def test_flags_stand_above_the_config(command, finished, own_logs):
    config = ["--config", str(finished / "config.json")]
    found, hyperparameters = command(*config)
    assert (found.seeds, found.seed, found.steps, found.max_rows, found.level) == (2, 5, 4, 70, "mixed")
    assert hyperparameters == FOCALConfig(**Run.open(finished).config.hyperparameters)
    changed, other = command(
        *config, *["--steps", "9", "--seed", "0", "--no-coupled", "--gamma", "0.6", "--hidden", "4"]
    )
    assert vars(changed) == vars(found) | {"steps": 9, "seed": 0}
    assert asdict(other) == asdict(hyperparameters) | {"coupled": False, "gamma": 0.6, "hidden": (4,)}
    # The data may be another's.
    assert command(*config, folder=own_logs)[1] == hyperparameters


GOOD = {"algorithm": "focal", "hyperparameters": {}, "level": "mixed", "max_rows": 9, "seeds": 1, "seed": 0, "steps": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "There is no file .*config.json, which --config should name"),
        ("{", "config.json is not JSON"),
        ("[1, 2]", "config.json is not a JSON object"),
        (json.dumps({"algorithm": "focal"}), "is not the config.json of a run .it has no 'hyperparameters'"),
        (json.dumps(GOOD | {"hyperparameters": 3}), "is not the config.json of a run"),
        (json.dumps(GOOD | {"algorithm": "pearl"}), "is of pearl, not of focal"),
        (json.dumps(GOOD | {"hyperparameters": {"colour": 1}}), "FOCALConfig has no colour"),
    ],
)
def test_a_config_of_something_else_gets_one_sentence(data, command, tmp_path, capsys, content, message):
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OmrlError, match=message):
        omrl.train("focal", data, tmp_path / "run", config=path)
    assert not (tmp_path / "run").exists()
    with pytest.raises(SystemExit) as stop:
        command("--config", str(path))
    assert stop.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and printed.count("\n") == 1 and re.search(message, printed)


# -- looking before, and what goes wrong -------------------------------------------------------------------------------


def test_a_dry_run_prints_the_config_and_leaves_nothing(data, tmp_path, capsys):
    assert train(data, tmp_path / "run", dry_run=True, gamma=0.7) is None
    printed = json.loads(capsys.readouterr().out)
    assert printed["hyperparameters"]["gamma"] == 0.7
    assert not (tmp_path / "run").exists()
    train(data, tmp_path / "run", gamma=0.7)
    assert printed == json.loads((tmp_path / "run" / "config.json").read_text())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "nope"}, "no algorithm 'nope';"),
        ({"algorithm": "focall"}, "no algorithm 'focall' .did you mean 'focal'"),
        ({"algorithm": "os:path"}, "'os:path' is not an omrl.Algorithm: it has no Config, Nets, act"),
        ({"algorithm": "no.module:Thing"}, "cannot be loaded"),
        ({"algorithm": "omrl.learning.training:Thing"}, "cannot be loaded"),
        ({"preset": "nope"}, "no preset 'nope' for sparse-point-robot; it has paper"),
        ({"colour": "blue", "smell": 1}, "focal has no colour, smell"),
        ({"power": "cubic"}, "power cannot be 'cubic'; it is one of inverse-square"),
        ({"seeds": 0}, "--seeds must be at least 1, not 0"),
        ({"log_every": 0}, "--log-every must be at least 1"),
        ({"save_every": -1}, "--save-every must be at least 1"),
        ({"eval_every": -1}, "--eval-every cannot be negative"),
        ({"seed": -1}, "--seed cannot be negative, as -1 is"),
        ({"level": "expert"}, "no level 'expert'"),
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"regulariser_steps": 0}, "regulariser_steps must lie between 1 and 1024, not at 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"hidden": (16, 0)}, r"hidden must be layers of at least 1, not \(16, 0\)"),
        ({"actor_lr": -1.0}, "actor_lr must be above 0, not -1.0"),
        ({"critic_lr": float("nan")}, "critic_lr must be finite, not nan"),
        ({"beta": -1.0}, "beta cannot be negative, as -1.0 is"),
        ({"epsilon": 0}, "epsilon must be above 0, not 0"),
        ({"kl_weight": float("inf")}, "kl_weight must be finite, not inf"),
        ({"gamma": 1.5}, "gamma must lie between 0 and 1, not 1.5"),
        ({"tau": -0.1}, "tau must lie between 0 and 1"),
        ({"alpha": -5.0}, "alpha cannot be negative, as -5.0 is"),
    ],
)
def test_bad_arguments_get_one_sentence_and_leave_no_run(data, tmp_path, changes, message):
    with pytest.raises(OmrlError, match=message) as error:
        train(data, tmp_path / "run", **changes)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_logs_of_no_family_have_no_presets(own_logs, tmp_path):
    with pytest.raises(OmrlError, match="is of no family, and tuned is a preset of families: leave out --preset"):
        train(own_logs, tmp_path / "run", preset="tuned")
    assert not (tmp_path / "run").exists()


def test_dense_rewards_that_are_not_there_get_one_sentence(own_logs, tmp_path):
    with pytest.raises(OmrlError, match="has no rewards_dense, which dense_reward asks for"):
        train(own_logs, tmp_path / "run", dense_reward=True)
    with pytest.raises(OmrlError, match="is not a meta-dataset"):
        omrl.train("focal", tmp_path / "nowhere", tmp_path / "run", **NETWORKS)
    assert not (tmp_path / "run").exists()
