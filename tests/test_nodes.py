"""Units on other machines: how their files travel, what happens on a node, and what a driver makes of it."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from omrl.errors import OmrlError
from omrl.units.transfer import Changes, Message, Places, receive, sha256, tree
from omrl.units.unit import Outcome, Read, Unit, Work
from test_units import work

# -- files -------------------------------------------------------------------------------------------------------------


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


# -- what happens on a node, and what a driver makes of it: Ray itself is played ---------------------------------------


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
