"""Logs as they come: rows in any order, gaps, holes, words, odd columns; compared with what truly happened."""

import datetime
import itertools
import json
import re

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from example_logs import make_dataset, tree

from omrl.commands.data import Import, Validate
from omrl.data import MetaDataset, interchange
from omrl.data.command import validate
from omrl.data.findings import column_facts, findings
from omrl.data.manifest import as_plain
from omrl.errors import OmrlError

START = datetime.datetime(2024, 3, 1, 6, tzinfo=datetime.UTC)
FLAGS = {"task": "unit", "observations": ("level",), "actions": ("dose",), "terminations": "none"}
FLAGS |= {"action_low": (0.0,), "action_high": (10.0,), "varies": "dynamics", "test_tasks": ()}


def truth(units=("north", "south"), days=3, minutes=40, seed=0):
    """Rows in the order in which they happened: a slow walk of the level, with a night after every day."""
    rng = np.random.default_rng(seed)
    rows = []
    for unit in units:
        for day in range(days):
            level = rng.normal()
            for minute in range(minutes):
                at = START + datetime.timedelta(days=day, minutes=minute)
                rows.append({"unit": unit, "at": at, "level": level, "dose": rng.uniform(0, 10), "reward": -(level**2)})
                level += 0.1 * rng.normal()
    return rows


def shuffled(rows, seed=1):
    return [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]


def write(path, rows):
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path
    shown = {None: "", float: repr}
    cell = lambda value: value.isoformat() if hasattr(value, "isoformat") else shown.get(type(value), str)(value)  # noqa: E731
    lines = [",".join(rows[0])]
    lines += [",".join("" if value is None else cell(value) for value in row.values()) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def load(path, **flags):
    kind = path.suffix.removeprefix(".")
    return interchange.read(Import(src=path, dir=path.parent / "out", format=kind, force=True, **{**FLAGS, **flags}))


def expected(rows, unit, ends=()):
    """Pairs of rows that follow one another on one day, without those that a hole or a cut lies between."""
    own = [row for row in rows if row["unit"] == unit]
    pairs = [(a, b) for a, b in itertools.pairwise(own) if a["at"].date() == b["at"].date()]
    return [(a["level"], a["dose"], b["level"]) for a, b in pairs if id(a) not in ends and id(b) not in ends]


def found(dataset, unit):
    rows = dataset.rows(unit)
    return np.concatenate([rows["observations"], rows["actions"], rows["next_observations"]], axis=1)


AS = {
    "datetimes": lambda at: at,
    "iso": lambda at: at.isoformat(),
    "iso with z": lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    "naive": lambda at: at.strftime("%Y-%m-%d %H:%M:%S"),
    "seconds": lambda at: at.timestamp(),
    "whole seconds": lambda at: int(at.timestamp()),
    "milliseconds": lambda at: int(at.timestamp() * 1e3),
    "microseconds": lambda at: int(at.timestamp() * 1e6),
    "nanoseconds": lambda at: int(at.timestamp()) * 10**9,
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("kind", AS)
def test_times_of_any_kind_bring_the_order_back(kind, suffix, tmp_path, capsys):
    rows = truth()
    stamped = [{**row, "at": AS[kind](row["at"])} for row in rows]
    dataset = load(write(tmp_path / f"logs{suffix}", shuffled(stamped)), time="at")
    for unit in ("north", "south"):
        np.testing.assert_array_equal(found(dataset, unit), np.array(expected(rows, unit), np.float32))
        assert dataset.rows(unit)["truncations"].nonzero()[0].tolist() == [38, 77, 116]
        assert dataset.rows(unit)["step"].tolist() == list(range(39)) * 3
    shown = capsys.readouterr().out
    assert "an episode ends where more than 5 min pass (5 times the median; --gap SECONDS sets it)" in shown
    assert re.search(r"time between rows: 1 min \[█ +\| .*▁?.*\] 23.4 h, median 1 min", shown)
    assert "episodes were cut at 4 gaps; the longest, 23.4 h, before row" in shown
    assert findings(dataset) == []


def test_a_gap_that_is_given_and_an_episode_column(tmp_path, capsys):
    rows = truth(minutes=30)
    path = write(tmp_path / "logs.csv", shuffled(rows))
    assert load(path, time="at", gap=100_000.0).manifest.tasks[0].episodes == 1
    assert "episodes were cut at 0 gaps" in capsys.readouterr().out
    # With an episode column, times sort and nothing is cut unless --gap says so.
    numbered = [{**row, "shift": row["at"].day // 2} for row in rows]
    path = write(tmp_path / "logs.csv", shuffled(numbered))
    assert load(path, time="at", episode="shift").manifest.tasks[0].episodes == 2
    cut = load(path, time="at", episode="shift", gap=3600.0)
    assert cut.manifest.tasks[0].episodes == 3
    np.testing.assert_array_equal(found(cut, "north"), np.array(expected(rows, "north"), np.float32))
    with pytest.raises(OmrlError, match="--gap is -1 but must be more than 0 seconds"):
        load(path, time="at", gap=-1.0)


def test_interleaved_episodes_are_put_together_by_time(tmp_path):
    rows = [
        {"unit": "a", "at": 10.0 * t + i, "run": f"r{i}", "level": 10.0 * i + t, "dose": 1.5, "reward": 0.0}
        for t in range(5)
        for i in range(2)
    ]
    rows = load(write(tmp_path / "logs.csv", shuffled(rows)), time="at", episode="run").rows("a")
    assert rows["observations"][:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
    assert rows["next_observations"][:, 0].tolist() == [1, 2, 3, 4, 11, 12, 13, 14]


def test_an_episode_that_is_torn_is_named_as_the_log_names_it(tmp_path):
    rows = [{**row, "shift": "early" if i % 40 < 20 else "late"} for i, row in enumerate(truth(days=1))]
    rows[25]["shift"] = "early"
    remedy = "sort the file by shift and by time within it, or name a column of times with --time"
    with pytest.raises(
        OmrlError, match=f"task 'north', shift, row 25: the rows of episode 'early' do not lie together; {remedy}"
    ):
        load(write(tmp_path / "logs.csv", rows), episode="shift")
    numbered = [{**row, "shift": 10**12 + (row["shift"] == "late")} for row in rows]
    with pytest.raises(OmrlError, match="the rows of episode 1000000000000 do not lie together"):
        load(write(tmp_path / "logs.csv", numbered), episode="shift")


def test_rows_at_one_time(tmp_path, capsys):
    rows = truth(days=1)
    twice = write(tmp_path / "logs.csv", [*rows, rows[7], rows[7]])
    assert load(twice, time="at").manifest.tasks[0].rows == 39
    assert "rows that were there twice were dropped: 2" in capsys.readouterr().out
    other = write(tmp_path / "logs.csv", [*rows, {**rows[7], "level": 9.0}])
    with pytest.raises(OmrlError, match="task 'north', at, row 80: it has the same time as row 7 and other values"):
        load(other, time="at")


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("1.3.2024 12:00", "column 'at', row 3: '1.3.2024 12:00' is not a time; write times as 2024-03-01T12:30:00"),
        ("2024-03-01T12:00:00", "row 3: '2024-03-01T12:00:00' is a time without a time zone, others are not"),
        (None, r"1 value is missing: at 1 \(first in task 'north', row 3\)"),
    ],
)
def test_bad_times(at, message, tmp_path):
    rows = truth()
    rows[3]["at"] = at
    with pytest.raises(OmrlError, match=message):
        load(write(tmp_path / "logs.csv", rows), time="at")
    assert tree(tmp_path) == ["logs.csv"]


def test_rows_that_lie_in_order_are_vouched_for(tmp_path):
    rows = [{name: value for name, value in row.items() if name != "at"} for row in truth(days=1)]
    path = write(tmp_path / "logs.csv", rows)
    with pytest.raises(OmrlError, match="does not say in which order its rows are"):
        load(path)
    assert load(path, in_order=True).manifest.tasks[0].rows == 39
    by_length = load(path, episode_length=10)
    assert by_length.manifest.tasks[0].episodes == 4 and by_length.manifest.tasks[0].rows == 36


def test_rows_in_no_order_are_noticed(tmp_path):
    rows = truth(minutes=200)
    note = "next observations are as far from their observations as those of random rows"
    path = write(tmp_path / "logs.csv", shuffled(rows))
    assert any(note in line for line in findings(load(path, in_order=True)))
    assert not any(note in line for line in findings(load(path, time="at")))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_missing_values(suffix, tmp_path, capsys):
    rows = truth()
    gone = {5: "level", 6: "level", 50: "dose", 119: "reward", 120: "level"}
    holes = [{**row, gone[i]: None} if i in gone else row for i, row in enumerate(rows)]
    path = write(tmp_path / f"logs{suffix}", holes)
    message = (
        "5 values are missing: level 3 (first in task 'north', row 5), dose 1 (first in task 'north', row 50), "
        "reward 1 (first in task 'north', row 119); say --missing drop to end an episode before each, "
        "or --missing forward to carry the last value on"
    )
    with pytest.raises(OmrlError) as caught:
        load(path, time="at")
    assert str(caught.value).endswith(message)
    assert tree(tmp_path) == [path.name]

    dropped = load(path, time="at", missing="drop")
    assert "rows with missing values were dropped, and episodes end before them: 5" in capsys.readouterr().out
    assert any(
        line.startswith("values were missing, and their rows were dropped: level 3 (first")
        for line in findings(dropped)
    )
    ends = {id(rows[i]) for i in gone}
    for unit in ("north", "south"):
        np.testing.assert_array_equal(found(dropped, unit), np.array(expected(rows, unit, ends), np.float32))
    # A value that is not there breaks the day into two episodes: 0-4, 7-39, then 40-49, 51-79, then 80-118.
    assert np.diff(np.flatnonzero(dropped.rows("north")["truncations"]), prepend=-1).tolist() == [4, 32, 9, 28, 38]

    filled = load(path, time="at", missing="forward")
    level = [row["level"] for row in rows]
    level[5] = level[6] = level[4]  # carried on; row 120 is the first of its episode and has nothing before it
    north = filled.rows("north")["observations"][:, 0]
    np.testing.assert_array_equal(north[:39], np.array(level[:39], np.float32))
    assert filled.rows("south")["observations"][0, 0] == np.float32(level[121])
    shown = capsys.readouterr().out
    assert "missing values were filled with the last one of their episode: 4" in shown
    assert "rows with missing values were dropped, and episodes end before them: 1" in shown


def test_a_value_is_not_carried_from_one_episode_or_task_to_another(tmp_path):
    rows = truth(minutes=5)
    rows[4]["level"], rows[5]["level"], rows[15]["level"] = 77.0, None, None  # first of a day, first of a task
    filled = load(write(tmp_path / "logs.csv", rows), time="at", missing="forward")
    for unit in ("north", "south"):
        own = [row for row in rows if row["unit"] == unit]
        known = {np.float32(row["level"]) for row in own if row["level"] is not None}
        assert set(filled.rows(unit)["observations"][:, 0]) <= known
    # A day of five rows gives four transitions, one that lost its first row three.
    assert [entry.rows for entry in filled.manifest.tasks] == [4 + 3 + 4, 3 + 4 + 4]


def test_missing_flags_tasks_and_words(tmp_path):
    rows = [{**row, "tripped": "false", "mode": "auto" if i % 3 else "hand"} for i, row in enumerate(truth())]
    rows[3]["tripped"] = ""
    rows[7]["mode"] = ""
    rows[9]["unit"] = ""
    flags = {"time": "at", "terminations": "tripped", "observations": ("level", "mode"), "categories": ("mode",)}
    path = write(tmp_path / "logs.csv", rows)
    with pytest.raises(
        OmrlError, match="column 'unit', row 9: the task is missing; mend the file, or say --missing drop"
    ):
        load(path, **flags)
    dataset = load(path, missing="drop", **flags)
    assert dataset.observation_dim == 3 and dataset.manifest.tasks[0].episodes == 5
    columns = dataset.manifest.columns.observations
    assert [(c.name, c.category) for c in columns] == [("level", None), ("mode", "auto"), ("mode", "hand")]
    modes = dataset.rows("south")["observations"][:, 1:]
    assert (modes.sum(1) == 1).all()
    np.testing.assert_array_equal(modes[:, 1], [float((120 + i) % 3 == 0) for i in range(120) if (i + 1) % 40])


def test_what_is_words_is_said_of_the_data_itself(tmp_path, capsys):
    """Not only while it is imported: who validates data that another imported reads the same."""
    rows = [
        {**row, "mode": ("hand", "auto", "off")[i % 3], "dose": ("off", "low", "high")[i % 5 % 3]}
        for i, row in enumerate(truth())
    ]
    flags = {"time": "at", "observations": ("level", "mode"), "categories": ("mode",)}
    dataset = load(write(tmp_path / "logs.csv", rows), action_low=(), action_high=(), **flags)
    capsys.readouterr()
    validate(Validate(dataset.path))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "note: mode is words, and became 3 numbers, one for each of auto, hand, off",
        "note: dose takes 3 values: high, low, off",
    ]


def test_words_need_to_be_named(tmp_path):
    rows = [{**row, "mode": "auto"} for row in truth()]
    flags = {"time": "at", "observations": ("level", "mode")}
    path = write(tmp_path / "logs.csv", rows)
    with pytest.raises(OmrlError, match="mode, row 0: 'auto' is not a number; --categories makes numbers of words"):
        load(path, **flags)
    many = [{**row, "mode": f"m{i}"} for i, row in enumerate(rows)]
    with pytest.raises(OmrlError, match="column 'mode' holds more than 100 different words"):
        load(write(tmp_path / "logs.csv", many), categories=("mode",), **flags)
    long = [{**row, "mode": "x" * 2000} for row in rows]
    with pytest.raises(OmrlError, match="column 'mode' holds a text of 2,000 characters"):
        load(write(tmp_path / "logs.csv", long), categories=("mode",), **flags)


def test_next_observations_share_the_words(tmp_path):
    rows = truth(days=1)
    words = ["auto", "hand", "off"]
    table = [{**row, "mode": words[i % 2], "next_mode": words[1 + i % 2], "after": 0.5} for i, row in enumerate(rows)]
    flags = {"observations": ("level", "mode"), "next_observations": ("after", "next_mode"), "categories": ("mode",)}
    dataset = load(write(tmp_path / "logs.csv", table), time="at", **flags)
    assert dataset.observation_dim == 4
    np.testing.assert_array_equal(dataset.rows(0)["observations"][:2, 1:], [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(dataset.rows(0)["next_observations"][:2, 1:], [[0, 1, 0], [0, 0, 1]])


def test_names_units_and_ranges_are_kept(tmp_path):
    rows = truth()
    dataset = load(write(tmp_path / "logs.csv", rows), time="at", units=("level=mmol/l", "dose=U"))
    columns = MetaDataset.open(dataset.path).manifest.columns
    assert [(c.name, c.unit) for c in (*columns.observations, *columns.actions, columns.rewards)] == [
        ("level", "mmol/l"),
        ("dose", "U"),
        ("reward", None),
    ]
    levels = np.array([row["level"] for row in rows], np.float32)
    assert (columns.observations[0].low, columns.observations[0].high) == (levels.min(), levels.max())
    interchange.write(dataset, tmp_path / "out.hdf5", "hdf5")
    back = interchange.read(Import(src=tmp_path / "out.hdf5", dir=tmp_path / "back", format="hdf5"))
    assert back.manifest == dataset.manifest


def test_arrays_of_several_numbers_are_named_by_their_place(tmp_path):
    table = {"task": np.repeat(["a"], 30), "obs": np.arange(60.0).reshape(30, 2), "action": np.ones(30) / 3}
    np.savez(tmp_path / "logs.npz", **table, reward=np.zeros(30), episode=np.zeros(30))
    flags = {"task": None, "observations": (), "actions": ()}
    columns = load(tmp_path / "logs.npz", **flags).manifest.columns
    assert [c.name for c in columns.observations] == ["obs[0]", "obs[1]"]
    assert [(c.low, c.high) for c in columns.observations] == [(0, 58), (1, 59)]


def test_every_oddity_is_a_sentence(tmp_path):
    rng = np.random.default_rng(0)
    rows = truth(units=[f"u{i}" for i in range(6)], minutes=60)
    del rows[14:180]  # u0 has 14 rows
    for i, row in enumerate(rows):
        row |= {
            "fixed": 4.0,
            "tiny": 1e-10 * rng.normal(),
            "huge": 1e6 * rng.normal(),
            "dose": float(rng.integers(0, 4)),
        }
        row |= {"coded": -999.0 if i == 100 else rng.normal(), "reward": 0.0}
    names = ("level", "fixed", "tiny", "huge", "coded")
    dataset = load(write(tmp_path / "logs.csv", rows), time="at", observations=names, action_kind="continuous")
    lines = findings(dataset)
    for start in (
        "fixed is always 4: it says nothing",
        "reward is always 0: there is nothing to learn",
        "tiny varies by only 1.0e-10, which training takes for nothing",
        "scales differ: the standard deviation of huge is",
        "coded goes from -999 to",
        "dose takes 4 whole values: 0, 1, 2, 3",
        "1 of 6 tasks has few rows (the median is 177): 'u0' (13)",
    ):
        assert sum(line.startswith(start) for line in lines) == 1, (start, lines)
    assert len(lines) == 7


def test_facts_are_those_of_all_rows(tmp_path):
    rows = [{**row, "level": row["level"] + 1e4} for row in truth()]
    dataset = load(write(tmp_path / "logs.csv", rows), time="at")
    every = np.concatenate([dataset.rows(task.name)["observations"] for task in dataset.tasks])[:, 0].astype(np.float64)
    level = column_facts(dataset)[0]
    assert (level.low, level.high) == (every.min(), every.max())
    np.testing.assert_allclose([level.mean, level.std], [every.mean(), every.std()], rtol=1e-9)


def dosed(values, seed=2):
    rng = np.random.default_rng(seed)
    return [{**row, "dose": values[rng.integers(len(values))]} for row in truth()]


def test_few_whole_numbers_are_amounts_or_choices_as_somebody_says(tmp_path, capsys, monkeypatch):
    rows = dosed(list(range(13)))
    path = write(tmp_path / "logs.csv", rows)
    flags = {"time": "at", "action_high": (20.0,)}
    with pytest.raises(OmrlError, match=r"dose takes 13 values \(0, 1, 2, ..., 12\); say --action-kind continuous if"):
        load(path, **flags)
    amounts = load(path, action_kind="continuous", **flags)
    assert amounts.manifest.discrete_actions is None and amounts.manifest.action_high == (20,)
    assert '"discrete_actions"' not in (amounts.path / "manifest.json").read_text()
    choices = load(path, action_kind="discrete", time="at", action_low=(), action_high=())
    assert choices.manifest.action_low == (0,) and choices.manifest.action_high == (12,)
    assert [(c.values, c.labels) for c in choices.manifest.discrete_actions] == [(tuple(range(13)), None)]
    assert "actions are discrete: dose takes 13 values (0, 1, 2, ..., 12)" in capsys.readouterr().out
    np.testing.assert_array_equal(found(choices, "north"), found(amounts, "north"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: "discrete")
    assert load(path, **flags).manifest.discrete_actions == choices.manifest.discrete_actions


def test_words_are_choices(tmp_path):
    rows = dosed(["low", "high", "none at all"])
    path = write(tmp_path / "logs.csv", rows)
    dataset = load(path, time="at", action_low=(), action_high=())
    (choices,) = dataset.manifest.discrete_actions
    assert choices.labels == ("high", "low", "none at all") and choices.values == (0, 1, 2)
    meant = [choices.labels[int(code)] for code in dataset.rows("south")["actions"][:, 0]]
    assert meant == [row["dose"] for i, row in enumerate(rows) if row["unit"] == "south" and (i + 1) % 40]
    with pytest.raises(OmrlError, match="the action dose is words, which are no amounts; leave out --action-kind"):
        load(path, time="at", action_kind="continuous")
    for kind in ("hdf5", "minari"):
        interchange.write(dataset, tmp_path / kind, kind)
        back = interchange.read(Import(src=tmp_path / kind, dir=tmp_path / f"{kind}-back", format=kind))
        assert back.manifest == dataset.manifest


def test_one_word_among_numbers_is_no_choice(tmp_path):
    rows = truth()
    rows[30]["dose"] = "much"
    with pytest.raises(OmrlError, match="task 'north', dose, row 30: 'much' is not a number"):
        load(write(tmp_path / "logs.csv", rows), time="at")


def test_what_cannot_be_a_choice(tmp_path):
    numbered = [{**row, "dose": float(row_number)} for row_number, row in enumerate(truth(minutes=200))]
    for rows, message in (
        (dosed([3.0]), "the action dose is always the same to be a choice; say --action-kind continuous"),
        (numbered, "the action dose is of too many different values to be a choice"),
    ):
        with pytest.raises(OmrlError, match=message):
            load(write(tmp_path / "logs.csv", rows), time="at", action_kind="discrete")


def test_rows_beyond_the_choices_are_refused(tmp_path):
    dataset = load(
        write(tmp_path / "logs.csv", dosed([0, 1, 5])), time="at", action_kind="discrete", action_high=(9.0,)
    )
    rows = {task.name: {k: v.copy() for k, v in dataset.rows(task.name).items()} for task in dataset.tasks}
    rows["south"]["actions"][3] = 4
    about = {"action_low": 0, "action_high": 9, "varies": "reward"}
    choices = [{"values": [0, 1, 5], "labels": None}]
    with pytest.raises(OmrlError, match="task 'south', actions, row 3: 4 is none of the 3 choices"):
        MetaDataset.from_arrays(rows, **about, discrete_actions=choices)
    for wrong, message in {
        "values": ([{"values": [0, 0], "labels": None}], "two or more, in ascending order"),
        "bounds": ([{"values": [0, 10], "labels": None}], "the discrete actions 0 to 10 leave their bounds"),
        "labels": ([{"values": [0, 1], "labels": ["a", "a"]}], "a label of its own for each value"),
        "dims": (choices * 2, "describes 2 numbers of an action that has 1"),
    }.values():
        with pytest.raises(OmrlError, match=message):
            MetaDataset.from_arrays(rows, **about, discrete_actions=wrong)


def test_training_refuses_what_it_cannot_learn(tmp_path):
    from omrl.learning.starting import train

    flags = {"action_kind": "discrete", "time": "at"}
    dataset = load(write(tmp_path / "logs.csv", dosed([0, 1, 5])), **flags)
    with pytest.raises(OmrlError, match=r"are discrete, which mbml cannot learn: .* with --action-kind continuous"):
        train("mbml", dataset.path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_32_bits_cannot_tell_apart_is_no_constant(tmp_path):
    """A column that varies in the log and not in the data is said to, instead of being called constant."""
    rng = np.random.default_rng(0)
    rows = [{**row, "fine": 5 + 1e-10 * rng.normal(), "year": 2024.0 + (i > 100)} for i, row in enumerate(truth())]
    path = write(tmp_path / "logs.csv", rows)
    lines = findings(load(path, time="at", observations=("level", "fine", "year")))
    (line,) = (line for line in lines if line.startswith("fine "))
    assert re.match(r"fine goes from 4\.99\d+ to 5\.00\d+, of which 32-bit numbers keep little", line)
    assert not any("year" in line for line in lines)


def test_rows_outside_what_the_manifest_says_are_refused(tmp_path):
    dataset = load(write(tmp_path / "logs.csv", truth()), time="at")
    rows = {task.name: {k: v.copy() for k, v in dataset.rows(task.name).items()} for task in dataset.tasks}
    rows["south"]["next_observations"][7] = 1e6
    about = {"action_low": 0, "action_high": 10, "varies": "reward", "columns": as_plain(dataset.manifest.columns)}
    with pytest.raises(OmrlError, match=r"task 'south', next_observations, row 7: 1e\+06 is outside what the manifest"):
        MetaDataset.from_arrays(rows, **about)


def test_data_without_names_is_written_as_before(tmp_path):
    """Nobody needs a newer omrl to read what says nothing new."""
    dataset = make_dataset().save(tmp_path / "logs")
    keys = json.loads((dataset.path / "manifest.json").read_text())
    assert not {"columns", "discrete_actions"} & set(keys)
    assert MetaDataset.open(dataset.path).manifest.columns is None


def test_what_a_column_holds_is_known_after_its_last_row(tmp_path, monkeypatch):
    """Names that look like numbers for many rows are names all the same."""
    from omrl.data.interchange import csv

    monkeypatch.setattr(csv, "_BLOCK", 16)
    for late in ("x9", "007", "1_000"):
        rows = [{**row, "unit": "8" if row["unit"] == "north" else late} for row in truth(days=1)]
        dataset = load(write(tmp_path / "logs.csv", rows), time="at")
        assert [task.name for task in dataset.tasks] == ["8", late]
        np.testing.assert_array_equal(found(dataset, late), np.array(expected(rows, late), np.float32))


@pytest.mark.parametrize("timed", [True, False])
def test_a_missing_episode_or_step_is_a_hole_as_well(timed, tmp_path):
    """The rows around it do not become neighbours."""
    rows = [{**row, "day": row["at"].day, "k": i % 40} for i, row in enumerate(truth())]
    rows[10]["day"] = rows[60]["k"] = rows[120]["day"] = None
    path = write(tmp_path / "logs.csv", shuffled(rows) if timed else rows)
    order = {"time": "at"} if timed else {}
    dataset = load(path, **order, episode="day", step="k", missing="drop")
    ends = {id(rows[i]) for i in (10, 60, 120)}
    for unit in ("north", "south"):
        np.testing.assert_array_equal(found(dataset, unit), np.array(expected(rows, unit, ends), np.float32))


def test_a_task_without_any_time_or_episode(tmp_path):
    rows = [{**row, "at": None if row["unit"] == "south" else row["at"], "day": row["at"].day} for row in truth()]
    with pytest.raises(OmrlError, match="task 'south', at: no row has a time, the task is empty; leave it out"):
        load(write(tmp_path / "logs.csv", rows), time="at", missing="drop")
    rows = [{**row, "day": None if row["unit"] == "south" else 1} for row in rows]
    with pytest.raises(OmrlError, match="task 'south', day: no row has an episode, the task is empty; leave it out"):
        load(write(tmp_path / "logs.csv", rows), episode="day", missing="drop")
    assert (
        len(load(write(tmp_path / "logs.csv", rows), episode="day", missing="drop", skip_tasks=("south",)).tasks) == 1
    )


def test_names_that_look_like_numbers_are_no_observations(tmp_path):
    rows = [{**row, "level": f"{i:03}"} for i, row in enumerate(truth())]
    with pytest.raises(OmrlError, match="level, row 0: '000' is not a number; --categories makes numbers of words"):
        load(write(tmp_path / "logs.csv", rows), time="at")
    padded = [{**row, "level": f"{abs(row['level']):07.3f}"} for row in truth()]  # 001.234
    assert load(write(tmp_path / "logs.csv", padded), time="at").manifest.columns.observations[0].low >= 0


def test_several_numbers_in_a_row_are_no_words(tmp_path):
    table = {"task": np.repeat(["a"], 30), "obs": np.arange(60.0).reshape(30, 2), "action": np.ones(30) / 3}
    np.savez(tmp_path / "logs.npz", **table, reward=np.zeros(30), episode=np.zeros(30), nxt=np.zeros((30, 3)))
    flags = {"task": None, "observations": (), "actions": ()}
    with pytest.raises(OmrlError, match="task 'a', obs: it holds several numbers in a row, which are no words"):
        load(tmp_path / "logs.npz", categories=("obs",), **flags)
    with pytest.raises(OmrlError, match=r"next_observations: its shape is \[30, 3\] but must be \[30, 2\]"):
        load(tmp_path / "logs.npz", next_observations=("nxt",), **flags)
