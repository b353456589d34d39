"""Units of work: their order, and what becomes of those that fail, are lost or do not fit."""

from __future__ import annotations

import itertools
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from omrl.errors import OmrlError
from omrl.storage.files import write_json
from omrl.storage.folders import BeingWritten
from omrl.units import local, place, schedule
from omrl.units.board import Board, page, print_status
from omrl.units.local import Inline, Processes
from omrl.units.schedule import Event, Schedule, chains, raise_failures, run_all
from omrl.units.simulate import simulate
from omrl.units.unit import Outcome, Plan, Unit, Work, perform


class Made:
    """An executor whose units end as a test says, in the order of their start."""

    def __init__(self, room=1, endings=None):
        self.room, self.endings = room, {name: list(some) for name, some in (endings or {}).items()}
        self.started, self.running = [], []

    def has_room(self, gpu):
        return len(self.running) < self.room

    def start(self, unit, work):
        self.started.append(unit.name)
        self.running.append(unit.name)

    def wait(self):
        name = self.running.pop(0)
        left = self.endings.get(name)
        return [Event("ended", name, "a", outcome=left.pop(0) if left else Outcome("done"))]

    def nodes(self):
        return {"a": ""}

    def close(self):
        pass


def work(unit):
    return Work("sleep", {"seconds": 0.0})


def run(units, executor, split=None, prepare=work):
    return run_all(units, prepare, executor, Board("test", units), split)


def test_the_longest_chain_is_that_of_all_paths():
    rng = np.random.default_rng(0)
    for _ in range(20):
        units = []
        for i in range(8):
            after = tuple(str(j) for j in range(i) if rng.random() < 0.3)
            units.append(Unit(str(i), "sleep", "", after, seconds=float(rng.random())))
        found = chains(units)
        for unit in units:
            # Every path through the units that begins here, by hand.
            best = 0.0
            for size in range(1, 9):
                for path in itertools.combinations(range(8), size):
                    steps = [units[i] for i in path]
                    linked = all(one.name in other.after for one, other in itertools.pairwise(steps))
                    if steps[0] is unit and linked:
                        best = max(best, sum(one.seconds for one in steps))
            assert found[unit.name] == pytest.approx(best)
    with pytest.raises(ValueError, match="wait for one another"):
        chains([Unit("a", "sleep", "", ("b",)), Unit("b", "sleep", "", ("a",))])


def test_units_wait_for_those_before_them_and_long_chains_go_first():
    units = [
        Unit("short", "sleep", "", seconds=1.0),
        Unit("first", "sleep", "", seconds=0.5),
        Unit("second", "sleep", "", ("first",), seconds=5.0),
    ]
    executor = Made()
    assert {outcome.status for outcome in run(units, executor).values()} == {"done"}
    assert executor.started == ["first", "second", "short"]


def test_what_is_done_already_is_not_started():
    executor = Made()
    ended = run([Unit("a", "sleep", ""), Unit("b", "sleep", "", ("a",))], executor, prepare=lambda unit: None)
    assert executor.started == [] and {one.status for one in ended.values()} == {"done"}


def test_a_unit_that_is_lost_starts_again_and_one_that_is_always_lost_is_given_up():
    units = [Unit("a", "sleep", "A"), Unit("b", "sleep", "B")]
    executor = Made(endings={"a": [Outcome("lost")] * 3, "b": [Outcome("lost", error="killed")] * 99})
    ended = run(units, executor)
    assert executor.started.count("a") == 4 and ended["a"].status == "done"
    assert executor.started.count("b") == 10 and ended["b"].status == "failed"
    with pytest.raises(
        OmrlError, match=r"1 of 2 units failed: B \(its process or machine was lost 10 times \(killed\)"
    ):
        raise_failures(units, ended)


def test_a_failure_takes_those_with_it_that_need_it_and_is_named_with_its_trace(capsys):
    units = [
        Unit("a", "sleep", "A"),
        Unit("b", "sleep", "B", ("a",)),
        Unit("c", "sleep", "C", ("b",)),
        Unit("d", "sleep", "D"),
    ]
    executor = Made(endings={"a": [Outcome("failed", error="KeyError: 'x'", trace="line 7")]})
    ended = run(units, executor)
    assert {name: one.status for name, one in ended.items()} == {
        "a": "failed",
        "b": "failed",
        "c": "failed",
        "d": "done",
    }
    assert sorted(executor.started) == ["a", "d"]
    with pytest.raises(OmrlError, match=r"1 of 4 units failed: A \(KeyError: 'x'\)"):
        raise_failures(units, ended)
    assert "A:\nline 7" in capsys.readouterr().err


@pytest.mark.parametrize("room", [1, 3])
def test_what_another_unit_does_too_is_done_once_and_ends_with_it(room):
    units = [Unit("a", "sleep", "A"), Unit("b", "sleep", "B"), Unit("c", "sleep", "C", ("b",))]

    def prepare(unit):
        return "a" if unit.name == "b" else work(unit)

    executor = Made(room)
    assert {one.status for one in run(units, executor, prepare=prepare).values()} == {"done"}
    assert executor.started == ["a", "c"]
    executor = Made(room, {"a": [Outcome("failed", error="no luck")]})
    ended = run(units, executor, prepare=prepare)
    assert executor.started == ["a"]
    assert [ended[name].error for name in "abc"] == [
        "no luck",
        "A failed, which it needs",
        "B failed, which it needs",
    ]


def test_what_does_not_fit_is_done_in_parts_once():
    def split(unit):
        if unit.kind == "join" or "part" in unit.name:
            return []
        parts = [Unit(f"{unit.name} part {i}", "sleep", "") for i in range(2)]
        return [*parts, Unit(unit.name, "join", "", tuple(part.name for part in parts))]

    units = [Unit("a", "sleep", ""), Unit("b", "sleep", "", ("a",))]
    executor = Made(endings={"a": [Outcome("memory")]})
    ended = run(units, executor, split)
    assert executor.started == ["a", "a part 0", "a part 1", "a", "b"]
    assert {one.status for one in ended.values()} == {"done"}
    executor = Made(endings={"a": [Outcome("memory")], "a part 1": [Outcome("memory", error="none left")]})
    ended = run(units, executor, split)
    assert ended["b"].status == "failed" and ended["a part 1"].error == "none left"


def test_a_node_that_is_refused_ends_it():
    with pytest.raises(OmrlError, match="Node x has torch 1"):
        run([Unit("a", "sleep", "")], Made(endings={"a": [Outcome("refused", error="Node x has torch 1.")]}))


def test_outcomes_of_work_done_here(tmp_path):
    assert perform(Work("sleep", {"seconds": 0.0})).status == "done"
    failed = perform(Work("sleep", {"seconds": "x"}, log=str(tmp_path / "logs" / "a.log")))
    assert failed.status == "failed" and failed.error.startswith("TypeError")
    assert "sleep_unit" in failed.trace and failed.trace.splitlines()[-1] in (tmp_path / "logs" / "a.log").read_text()
    mendable = perform(Work("join", {"parts": [str(tmp_path / "no")], "out": str(tmp_path / "out")}))
    assert mendable.status == "failed" and "is not a run" in mendable.error and not mendable.trace


def test_processes_do_what_this_one_does_and_outlive_one_that_is_killed():
    units = [Unit(f"{i}", "sleep", f"{i}") for i in range(6)]
    executor = Processes(2)
    killed = []

    def killing(unit):
        if unit.name == "3" and not killed:
            process = next(iter(executor._running.values()))[0]
            os.kill(process.pid, signal.SIGKILL)
            killed.append(process.pid)
        return Work("sleep", {"seconds": 0.3})

    try:
        ended = run(units, executor, prepare=killing)
        assert len(killed) == 1 and {one.status for one in ended.values()} == {"done"}
        assert run([Unit("x", "sleep", "")], Inline())["x"].status == "done"
    finally:
        executor.close()


def test_a_process_that_has_used_a_gpu_gets_no_other_unit():
    units, executor, told = [Unit(f"{i}", "sleep", f"{i}", gpu=0.5) for i in range(6)], Processes(2), []

    class Told(Board):
        def told(self, event):
            told.append(event.what)

    try:
        ended = run_all(units, work, executor, Told("test", units))
    finally:
        executor.close()
    assert {one.status for one in ended.values()} == {"done"} and "lost" not in told


def test_what_another_process_writes_is_waited_for_also_where_nothing_else_is_to_be_done(monkeypatch):
    monkeypatch.setattr(schedule, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(local, "LOOK_SECONDS", 0.02)
    asked = []

    def prepare(unit):
        asked.append(unit.name)
        if len(asked) < 3:
            raise BeingWritten("it is being written by process 7")
        return work(unit)

    units = [Unit("a", "sleep", "A")]
    assert run(units, Inline(), prepare=prepare)["a"].status == "done" and len(asked) == 3
    monkeypatch.setattr(schedule, "MOST_BUSY", 2)
    asked.clear()
    monkeypatch.setattr(schedule, "BUSY_SECONDS", 0.0)

    def always(unit):
        raise BeingWritten("it is being written by process 7")

    ended = run(units, Inline(), prepare=always)
    with pytest.raises(OmrlError, match=r"A \(it is being written by process 7\)"):
        raise_failures(units, ended)


def test_what_a_gpu_has_no_room_for_is_said_with_what_takes_less(monkeypatch):
    torch = pytest.importorskip("torch")

    def full(seconds):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr("omrl.units.unit.sleep_unit", full)
    units = [Unit("a", "sleep", "A")]
    said = r"A \(a GPU has too little memory for it: .*Tried to allocate 2 GiB\)\. A smaller --pack takes less\.$"
    with pytest.raises(OmrlError, match=said):
        raise_failures(units, run(units, Inline()), "A smaller --pack takes less.")


def test_the_board_shows_each_state_and_escapes_what_units_say(tmp_path, capsys):
    units = [Unit("a", "draw", "A <b>"), Unit("b", "sleep", "B"), Unit("c", "sleep", "C")]
    with Board("title", units, tmp_path, {"a": "../a/index.html"}).shown() as board:
        board.looked({"node one": "2 cores"})
        board.told(Event("ended", "a", "node one", outcome=Outcome("done", seconds=2.0)))
        board.told(Event("begun", "b", "node one"))
        board.told(Event("said", "b", "node one", "<script>40 %"))
        board.told(Event("ended", "c", outcome=Outcome("failed", error="no luck")))
        text = page(board.state(), {"a": "../a/index.html"})
    assert "<script>" not in text and "&lt;script&gt;40 %" in text
    assert '<a href="../a/index.html">A &lt;b&gt;</a>' in text and 'http-equiv="refresh"' in text
    assert "refresh" not in (tmp_path / "index.html").read_text()
    print_status(tmp_path)
    said = capsys.readouterr().out
    assert "2 of 3 units (1 running, 1 done, 1 failed)" in said and "failed: C: no luck" in said


def test_a_plan_is_what_was_written(tmp_path):
    plan = Plan(
        [Unit("a", "train", "A", threads=2, gpu=0.5, seconds=3.0), Unit("b", "test", "B", ("a",))], {"a": [[0, 1]]}
    )
    plan.write(tmp_path)
    assert Plan.open(tmp_path) == plan


@pytest.mark.parametrize(
    "content",
    [
        '{"schema": 1, "units": [{"name": 3}]}',
        '{"schema": 1, "units": [{"name": "a", "kind": "test", "label": 3}], "repacked": {}}',
        '{"schema": 1, "units": [{"name": "a", "kind": "test", "label": "A", "threads": 0}], "repacked": {}}',
        '{"schema": 1, "units": [{"name": "a", "kind": "test", "label": "A", "threads": 9999999999}], "repacked": {}}',
        '{"schema": 1, "units": [], "repacked": {"a": [["one"]]}}',
        '{"schema": 1, "units": {}}',
    ],
)
def test_types_in_a_plan_are_checked(tmp_path, content):
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(OmrlError, match=r"plan\.json"):
        Plan.open(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"), [("title", 3), ("now", "late"), ("units", {"a": {"label": "A", "kind": "draw", "state": "odd"}})]
)
def test_types_in_what_a_board_wrote_are_checked(tmp_path, key, value):
    with Board("title", [Unit("a", "draw", "A")], tmp_path).shown() as board:
        state = board.state()
    write_json(tmp_path / "progress.json", {**state, key: value})
    with pytest.raises(OmrlError, match=rf"progress\.json: {key}"):
        print_status(tmp_path)


@pytest.mark.parametrize(
    ("on", "at_once", "storage", "message"),
    [
        ("local", 0, None, "--at-once must be at least 1"),
        ("local", 1, Path("x"), "needs --on ray"),
        ("moon", 1, None, "--on is local, ray"),
        ("ray", 1, Path("nowhere"), "There is no folder nowhere"),
    ],
)
def test_places_that_make_no_sense(on, at_once, storage, message):
    with pytest.raises(OmrlError, match=message):
        place.check(on, at_once, storage)


def test_what_needs_no_gpu_goes_first_where_others_need_one():
    train = [Unit(f"train {i}", "train", "", gpu=1.0, seconds=9.0) for i in range(2)]
    schedule = Schedule([*train, Unit("test", "test", "", seconds=1.0)])
    assert [schedule.next().name for _ in range(3)] == ["test", "train 0", "train 1"]


def test_lower_ranks_go_first_whatever_waits_for_the_others():
    units = [
        Unit("long", "sleep", "", seconds=9.0, rank=1),
        Unit("short", "sleep", "", seconds=1.0),
        Unit("behind", "sleep", "", ("short",), seconds=1.0),
    ]
    executor = Made()
    run(units, executor)
    assert executor.started == ["short", "behind", "long"]


def test_units_that_need_no_gpu_have_room_of_their_own():
    class Roomy(Made):
        def has_room(self, gpu):
            return sum(name.startswith("train") == gpu for name in self.running) < 1

    units = [Unit(f"{kind} {i}", kind, "", gpu=float(kind == "train")) for i in range(2) for kind in ("data", "train")]
    executor = Roomy(endings={})
    run(units, executor)
    assert executor.started == ["data 0", "train 0", "data 1", "train 1"]
    processes = Processes(1)
    try:
        assert processes.has_room(False) and processes.has_room(True)
        processes.start(Unit("train", "sleep", "", gpu=1.0), Work("sleep", {"seconds": 0.5}))
        assert processes.has_room(False) and not processes.has_room(True)
    finally:
        processes.close()


def test_a_simulated_schedule_is_the_one_by_hand_and_never_beats_its_bounds():
    units = [
        Unit("data", "data", "", seconds=1.0),
        Unit("long", "train", "", ("data",), gpu=1.0, seconds=4.0),
        *(Unit(f"short {i}", "train", "", ("data",), gpu=1.0, seconds=1.0) for i in range(4)),
        Unit("draw", "draw", "", ("long", *(f"short {i}" for i in range(4))), seconds=0.5),
    ]
    # On two GPUs the long one goes first, the short ones beside it.
    two = simulate(units, gpus=2, cores=8)
    assert two.seconds == pytest.approx(5.5) and two.chain_bound == pytest.approx(5.5) and two.efficiency == 1.0
    one = simulate(units, gpus=1, cores=8)
    assert one.seconds == pytest.approx(9.5) and one.work_bound == pytest.approx(8.0)
    shared = [replace(unit, gpu=unit.gpu / 2) for unit in units]
    assert simulate(shared, gpus=1, cores=8).seconds == pytest.approx(5.5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        some = [
            Unit(
                str(i),
                "train",
                "",
                tuple(str(j) for j in range(i) if rng.random() < 0.2),
                gpu=1.0,
                seconds=rng.random(),
            )
            for i in range(30)
        ]
        gpus = int(rng.integers(1, 9))
        found = simulate(some, gpus, 64)
        bound = max(found.work_bound, found.chain_bound)
        # List scheduling is never worse than both bounds together.
        assert bound - 1e-9 <= found.seconds <= found.work_bound + found.chain_bound + 1e-9
    with pytest.raises(ValueError, match="needs more than there is"):
        simulate([Unit("a", "train", "A", gpu=2.0)], gpus=1, cores=1)
