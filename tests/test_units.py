"""Units of work: their order, what becomes of those that fail, are lost or do not fit, and how files travel."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

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
from omrl.units.transfer import Changes, Message, Places, receive, sha256, tree
from omrl.units.unit import Outcome, Plan, Read, Unit, Work, perform


class Made:
    """An executor whose units end as a test says, in the order of their start."""

    def __init__(self, room=1, endings=None):
        self.room, self.endings = room, {name: list(some) for name, some in (endings or {}).items()}
        self.started, self.running = [], []

    def has_room(self):
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


# -- files ------------------------------------------------------------------------------------------------------------


def mirrored(worker, driver, changes, last=True):
    sent = []

    def send(message):
        receive(message, [str(driver)])
        sent.append(Path(message.path).name)

    changes.look(last, send)
    return sent


def test_changes_of_a_folder_reach_the_driver_in_an_order_that_is_always_whole(tmp_path):
    worker, driver = tmp_path / "w" / "run", tmp_path / "d" / "run"
    (worker / "checkpoints").mkdir(parents=True)
    changes = Changes([worker], Places([(str(driver), str(worker))]))
    (worker / "checkpoints" / "latest").write_text("step-1")
    (worker / "checkpoints" / "step-1").write_text("one")
    (worker / "config.json").write_text(f'{{"data": "{worker}/data"}}')
    (worker / ".lock").write_text("me")
    (worker / ".half.tmp").write_text("half")
    # What names others comes after them.
    assert mirrored(worker, driver, changes) == ["step-1", "config.json", "latest"]
    assert (driver / "config.json").read_text() == f'{{"data": "{driver}/data"}}'
    assert mirrored(worker, driver, changes) == []
    (worker / "checkpoints" / "step-2").write_text("two")
    (worker / "checkpoints" / "latest").write_text("step-2")
    (worker / "checkpoints" / "step-1").unlink()
    assert mirrored(worker, driver, changes) == ["step-2", "latest", "step-1"]
    assert sorted(tree(driver)) == ["checkpoints/latest", "checkpoints/step-2", "config.json"]


def test_a_pointer_that_moves_while_it_is_sent_waits_for_what_it_names(tmp_path):
    worker, driver = tmp_path / "w", tmp_path / "d"
    worker.mkdir()
    changes = Changes([worker], Places([(str(driver), str(worker))]))
    (worker / "latest").write_text("step-1")
    (worker / "step-1").write_text("one")
    sent = []

    def send(message):
        if not sent:  # the run goes on meanwhile
            (worker / "step-2").write_text("two")
            (worker / "latest").write_text("step-2")
        sent.append(Path(message.path).name)

    changes.look(False, send)
    assert sent == ["step-1"]
    changes.look(False, send)
    assert sent == ["step-1", "step-2", "latest"]


def test_files_that_arrive_wrongly_or_go_elsewhere_are_refused(tmp_path):
    good = Message(str(tmp_path / "run" / "a"), sha256(b"abc"), b"abc")
    receive(good, [str(tmp_path / "run")])
    assert (tmp_path / "run" / "a").read_bytes() == b"abc"
    with pytest.raises(OmrlError, match="did not arrive as it was sent"):
        receive(Message(good.path, good.sha256, b"abd"), [str(tmp_path / "run")])
    for path in (tmp_path / "other", tmp_path / "run" / ".." / "other"):
        with pytest.raises(OmrlError, match="no business there"):
            receive(Message(str(path), sha256(b""), b""), [str(tmp_path / "run")])


def test_paths_are_those_of_the_machine(tmp_path):
    places = Places([("/d/out", "/w/1/out"), ("/d/out/runs", "/w/2/runs")])
    given = {"a": ["/d/out/x", "/d/output"], "b": "/d/out/runs/r", "c": 3}
    assert places.here(given) == {"a": ["/w/1/out/x", "/d/output"], "b": "/w/2/runs/r", "c": 3}
    assert places.there(b"in /w/2/runs/r", "x.json") == b"in /d/out/runs/r"
    assert places.there(b"in /w/2/runs/r", "x.safetensors") == b"in /w/2/runs/r"


def test_a_folder_that_somebody_removed_is_no_deletion_that_a_unit_made(tmp_path):
    own, driver = tmp_path / "w" / "1", tmp_path / "d" / "run"
    worker = own / "run"
    worker.mkdir(parents=True)
    changes = Changes([worker], Places([(str(driver), str(worker))]))
    (worker / "a").write_text("one")
    mirrored(worker, driver, changes)
    (worker / "a").unlink()
    own.joinpath("run").rmdir()
    assert mirrored(worker, driver, changes) == ["a"]  # the unit's own doing
    worker.mkdir()
    (worker / "a").write_text("two")
    mirrored(worker, driver, changes)
    (worker / "a").unlink()
    worker.rmdir()
    own.rmdir()
    with pytest.raises(OmrlError, match="is gone, in which a unit worked"):
        mirrored(worker, driver, changes)
    assert (driver / "a").read_text() == "two"


def test_a_link_to_a_file_is_that_file(tmp_path):
    (tmp_path / "elsewhere").write_text("rows")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.safetensors").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "broken").symlink_to(tmp_path / "nowhere")
    assert tree(tmp_path / "data") == {"a.safetensors": sha256(b"rows")}


# -- what happens on a node, and what a driver makes of it: Ray itself is played --------------------------------------


ONE, TWO = "1" * 56, "2" * 56


class Ray:
    """As much of Ray as a driver uses; a test says what ends and what arrives."""

    def __init__(self, exceptions, nodes):
        self.exceptions, self.alive = exceptions, nodes
        self.started, self.cancelled, self.values, self.puts = [], [], {}, []

    def init(self, **_):
        pass

    shutdown = init

    def nodes(self):
        about = {"Alive": True, "NodeManagerAddress": "1.2.3.4", "Resources": {"CPU": 4.0, "GPU": 1.0}}
        return [{**about, "NodeID": name} for name in self.alive]

    def remote(self, kind=None, **options):
        if kind is not None:
            mailbox = SimpleNamespace(take=SimpleNamespace(remote=self._take))
            return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: mailbox))

        def function(done):
            def called(takes, *args):
                reference = object()
                if done.__name__ == "do":
                    self.started.append(SimpleNamespace(flown=reference, how=options, takes=takes, args=args))
                else:
                    self.values[reference] = ""
                return reference

            return SimpleNamespace(
                options=lambda **takes: SimpleNamespace(remote=lambda *args: called(takes, *args)),
            )

        return function

    def _take(self):
        self._mail = object()
        return self._mail

    def put(self, data):
        self.puts.append(data)
        return object()

    def get(self, reference):
        return self.values.pop(reference)

    def wait(self, references, num_returns, timeout):
        return [one for one in references if one in self.values], []

    def cancel(self, flown, force):
        self.cancelled.append(flown)

    # What a test does.

    def arrives(self, *mail):
        self.values[self._mail] = list(mail)

    def ends(self, place, **outcome):
        self.values[self.started[place].flown] = json.dumps(outcome)

    def attempt(self, place):
        return json.loads(self.started[place].args[0])["attempt"]


@pytest.fixture
def played(monkeypatch):
    """A driver on a cluster of two nodes."""
    ray = pytest.importorskip("ray")
    from omrl.units import on_ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(on_ray, "ray", found := Ray(ray.exceptions, [ONE, TWO]))
    return on_ray.OnRay("ray"), found


def test_on_ray_a_process_that_uses_a_gpu_does_one_unit(played):
    executor, ray = played
    executor.start(Unit("a", "sleep", "A", gpu=0.5), work(None))
    executor.start(Unit("b", "sleep", "B"), work(None))
    assert [one.how.get("max_calls") for one in ray.started] == [1, None]


def test_a_file_that_arrives_wrongly_is_a_loss_of_its_unit_alone(played, tmp_path, monkeypatch):
    executor, ray = played
    for name in "abc":
        executor.start(Unit(name, "sleep", name), replace(work(None), writes=(str(tmp_path / name),)))
    changed = Message(str(tmp_path / "a"), sha256(b"abc"), b"abd")
    foreign = Message(str(tmp_path / "a"), sha256(b"abc"), b"abc")
    whole = Message(str(tmp_path / "c"), sha256(b"abc"), b"abc")
    ray.arrives(*((ray.attempt(i), 0, ONE, one) for i, one in enumerate((changed, foreign, whole))))
    assert [(event.unit, event.outcome.status) for event in executor.wait()] == [("a", "lost"), ("b", "lost")]
    assert ray.cancelled == [one.flown for one in ray.started[:2]] and (tmp_path / "c").read_bytes() == b"abc"

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("omrl.units.transfer.receive", full)
    ray.arrives((ray.attempt(2), 1, ONE, whole))
    with pytest.raises(OmrlError, match=r"c could not be written: No space left on device\.$"):
        executor.wait()


def test_after_a_message_that_got_lost_an_attempt_is_given_up_at_once(played, tmp_path):
    executor, ray = played
    executor.start(Unit("a", "sleep", "A"), replace(work(None), writes=(str(tmp_path),)))
    files = [Message(str(tmp_path / str(i)), sha256(b"abc"), b"abc") for i in range(4)]
    ray.arrives(*((ray.attempt(0), number, ONE, files[number]) for number in (0, 0, 2, 3)))
    (event,) = executor.wait()
    assert event.outcome.status == "lost" and event.outcome.error == "some of its files did not arrive"
    assert ray.cancelled == [ray.started[0].flown] and sorted(tree(tmp_path)) == ["0"]
    ray.arrives((ray.attempt(0), 1, ONE, files[1]))
    assert executor.wait() == [] and sorted(tree(tmp_path)) == ["0"]


def test_a_last_message_that_got_lost_holds_up_nobody(played):
    executor, ray = played
    for name in "ab":
        executor.start(Unit(name, "sleep", name), work(None))
    ray.ends(0, status="done", sent=1)
    ray.ends(1, status="done")
    assert [event.unit for event in executor.wait()] == ["b"]
    ray.arrives()  # this may have been asked for before the unit ended
    assert executor.wait() == []
    ray.arrives()
    (event,) = executor.wait()
    assert event.unit == "a" and event.outcome.status == "lost"


def test_what_no_unit_in_flight_reads_is_let_go(played, tmp_path):
    executor, ray = played
    (tmp_path / "rows").write_text("abc")
    reading = replace(work(None), reads=(Read(str(tmp_path)),))
    for name in "ab":
        executor.start(Unit(name, "sleep", name), reading)
    assert len(ray.puts) == 1 and len(executor._contents) == 1
    for number, left in ((0, 1), (1, 0)):
        ray.ends(number, status="done")
        executor.wait()
        assert len(executor._contents) == left


def test_a_node_that_can_do_nothing_gets_no_more_units_unless_it_is_the_last(played, capsys):
    executor, ray = played

    def fails(node, status="odd"):
        executor.start(Unit("a", "sleep", "A"), work(None))
        ray.ends(-1, status=status, node=node, error="ModuleNotFoundError: No module named 'omrl'")
        (event,) = executor.wait()
        return event.outcome.status

    assert [fails(TWO, status) for status in ("odd", "odd", "done", "odd", "odd")].count("lost") == 4
    assert capsys.readouterr().err == ""
    fails(TWO)
    assert "node 1.2.3.4 (222222) gets no more units: ModuleNotFoundError" in capsys.readouterr().err
    assert executor.nodes()["1.2.3.4 (222222)"].endswith("out of use")
    for _ in range(4):
        fails(ONE)
    assert [one.takes.get("label_selector") for one in ray.started[-4:]] == [{"ray.io/node-id": f"!in({TWO})"}] * 4
    assert capsys.readouterr().err == ""


@pytest.fixture
def node(monkeypatch, tmp_path):
    """What a node does of a driver's work, and what it tells."""
    pytest.importorskip("ray")
    from omrl.units import worker

    mail = []
    box = SimpleNamespace(put=SimpleNamespace(remote=lambda *one: mail.append(one)))
    about = SimpleNamespace(get_node_id=lambda: "one")
    ray = SimpleNamespace(get_runtime_context=lambda: about, get=lambda reference: reference)
    monkeypatch.setattr(worker, "ray", ray)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()

    def do(work, reads, contents=()):
        task = {"driver": "d", "attempt": "7", "versions": {}, "names": {}, "threads": None, "direct": False}
        task |= {"work": asdict(work), "reads": reads, "writes": {}}
        return Outcome(**json.loads(worker.do(json.dumps(task), contents, box)))

    return worker, do, mail


def test_a_unit_without_a_log_says_that_it_has_begun(node):
    _, do, mail = node
    files = {"rows": (sha256(b"abc"), 0)}
    read = {"path": "/d/data", "files": files, "remake": None}
    assert do(replace(work(None), reads=(Read("/d/data"),)), [read], [b"abc"]).status == "done"
    assert mail == [("7", None, "one", "begun")]


def test_data_that_cannot_be_made_again_on_a_node_is_moved(node):
    _, do, _ = node
    remake = {"work": asdict(Work("sleep", {"seconds": "x"})), "reads": []}
    read = {"path": "/d/data", "files": {"rows": (sha256(b"abc"), None)}, "remake": remake}
    outcome = do(replace(work(None), reads=(Read("/d/data"),)), [read])
    assert (outcome.status, outcome.result) == ("differs", "/d/data")


def test_a_full_disk_is_the_nodes_fault_and_not_the_units(node, monkeypatch):
    def full(seconds):
        raise OmrlError("checkpoint could not be written: No space left on device.")

    monkeypatch.setattr("omrl.units.unit.sleep_unit", full)
    assert node[1](replace(work(None), writes=("/d/out",)), []).status == "odd"


def test_the_scratch_of_a_driver_outlives_others_and_goes_when_nobody_works_there(node):
    worker = node[0]
    one, two = (worker.scratch_of("n" * 56, name) for name in ("one", "two"))
    assert one != two
    with worker._at_work(one), worker._at_work(two):
        (two / "units").mkdir()
        worker.clear("n" * 56, "one")
        assert not one.exists() and (two / "units").is_dir()
    worker.clear("n" * 56, "one")  # the driver of the other was killed, as far as anyone can see
    assert not two.exists()
