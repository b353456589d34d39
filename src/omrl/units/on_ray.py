"""Doing units on a Ray cluster. Ray sees what each takes, and finds a place for it; the driver owns all folders.

A unit is one task of Ray's that it never repeats by itself: only the driver knows the newest checkpoint to go on from.
What units exchange are names, JSON and bytes of our own formats; how Ray carries them is Ray's business, and trusted.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from omrl.errors import OmrlError
from omrl.units import transfer, worker
from omrl.units.schedule import Event
from omrl.units.unit import Outcome, Read, Unit, Work
from omrl.words import quantity

# Units that Ray is given for each core, so that no core waits for the driver.
IN_FLIGHT = 4
LOOK_SECONDS = 1.0
CONNECT_SECONDS = 10.0
# Seconds between two questions which nodes there are.
NODES_SECONDS = 5.0
# Seconds that nodes have in the end to clear up.
CLEAR_SECONDS = 30.0
# A node that could not even begin so many units, one after the other, gets no more.
MOST_ODD = 3


@dataclass
class Flight:
    """A unit that Ray has."""

    unit: Unit
    attempt: str
    work: Work
    contents: Sequence[str]
    """Files that a node may have to fetch, by their digests."""
    received: int = 0
    """Messages in a row that have arrived."""
    outcome: Outcome | None = None
    """Of one that has ended, some of whose messages have not arrived."""
    mails: int = 2
    """So many times the mailbox is emptied until then: once from before the end, perhaps, and once from after it."""


def _task() -> Callable[[str, Sequence[object], Any], str]:
    """What Ray runs. A function in a function travels whole, so that a node that has no omrl can still say so."""

    def do(text: str, contents: Sequence[object], mailbox: Any) -> str:
        import json
        import traceback

        import ray

        try:
            from omrl.units import worker

            return worker.do(text, contents, mailbox)
        except ray.exceptions.RayError:
            raise
        except Exception as error:  # the unit's own errors are outcomes: this is the machine's
            node, reason = ray.get_runtime_context().get_node_id(), f"{type(error).__name__}: {error}"
            return json.dumps({"status": "odd", "error": reason, "trace": traceback.format_exc(), "node": node})

    return do


class OnRay:
    """Units on the machines of a cluster."""

    def __init__(self, address: str, direct: bool = False) -> None:
        """`ray` is RAY_ADDRESS or a cluster on this machine alone; `direct` where all machines see the same folders."""
        self._direct = direct
        self._connect(address)
        self._driver = uuid.uuid4().hex[:12]
        self._do = ray.remote(max_retries=0)(_task())
        # A process that has used a GPU keeps its memory, and sees no other GPU: it does one unit. Ray takes this from
        # here alone, and not from the options of a call.
        self._do_once = ray.remote(max_retries=0, max_calls=1)(_task())
        self._versions = worker.versions()
        self._nodes: dict[str, str] = {}
        self._asked = -NODES_SECONDS
        self._flights: dict[Any, Flight] = {}
        self._moved: set[str] = set()
        self._trees: dict[str, tuple[Mapping[Path, tuple[int, int]], Mapping[str, str]]] = {}
        self._contents: dict[str, Any] = {}
        self._users: Counter[str] = Counter()
        """How many units that Ray has may fetch a content; one that none may fetch is let go."""
        self._odd: Counter[str] = Counter()
        """Units in a row that a node could not begin."""
        self._out: list[str] = []
        """Nodes that get no more."""
        self._window = 1
        self._missed: list[str] = []
        try:
            self._look_at_nodes()
            self._check_versions()
            self._open_mailbox()
        except BaseException:
            ray.shutdown()
            raise

    @staticmethod
    def _connect(address: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"log_to_driver": False, "logging_level": "error"}
        try:
            if address != "ray":
                # Ray would try for minutes.
                host, _, port = address.removeprefix("ray://").rpartition(":")
                socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
                ray.init(address=address, **quiet)
            elif os.environ.get("RAY_ADDRESS"):
                ray.init(**quiet)
            else:
                ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError, OSError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise OmrlError(f"There is no Ray cluster at {address} that this process can use ({reason}).") from error

    def _open_mailbox(self) -> None:
        # On the machine without which there is no cluster at all.
        place = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}, "max_concurrency": 1000}
        make = ray.remote(worker.Mailbox).options(max_restarts=-1, max_task_retries=-1, **place)
        self._mailbox = make.remote()
        self._mail = self._mailbox.take.remote()

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _look_at_nodes(self) -> None:
        self._asked = time.monotonic()
        there = [node for node in ray.nodes() if node["Alive"]]
        self._nodes = {node["NodeID"]: f"{node['NodeManagerAddress']} ({node['NodeID'][:6]})" for node in there}
        self._takes = {
            node["NodeID"]: ", ".join(
                [
                    quantity(int(node["Resources"][kind]), word)
                    for kind, word in (("CPU", "core"), ("GPU", "GPU"))
                    if node["Resources"].get(kind)
                ]
                + ["out of use"] * (node["NodeID"] in self._out)
            )
            for node in there
        }
        self._resources = [node["Resources"] for node in there if node["NodeID"] not in self._out]
        self._window = IN_FLIGHT * max(1, int(sum(node["Resources"].get("CPU", 0) for node in there)))

    def _check_versions(self) -> None:
        """Every node says what it has, before anything is done."""
        ask = ray.remote(max_retries=0, num_cpus=0)(worker.difference)
        asked = {
            node: ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                self._versions, name
            )
            for node, name in self._nodes.items()
        }
        odd = []
        for node, found in asked.items():
            try:
                odd.append(ray.get(found))
            except RayError as error:
                name = self._name(node)
                self._look_at_nodes()
                if node in self._nodes:  # else it has gone since
                    odd.append(f"Node {name} cannot run omrl ({str(error).strip().splitlines()[-1].rstrip('.')}).")
        if any(odd):
            raise OmrlError(" ".join(sentence for sentence in odd if sentence))

    def nodes(self) -> Mapping[str, str]:
        """Those that are there, by name."""
        if time.monotonic() - self._asked >= NODES_SECONDS:
            self._look_at_nodes()
        return {name: self._takes[node] for node, name in self._nodes.items()}

    def gpus(self) -> float:
        """GPUs of all nodes."""
        return float(ray.cluster_resources().get("GPU", 0.0))

    def _name(self, node: str) -> str:
        if node and node not in self._nodes:
            self._look_at_nodes()
        return self._nodes.get(node, node[:6])

    # -- units ---------------------------------------------------------------------------------------------------------

    def has_room(self, gpu: bool) -> bool:
        """Some more than there are cores: Ray knows which of them need a GPU."""
        return len(self._flights) < self._window

    def start(self, unit: Unit, work: Work) -> None:
        """Give it to Ray, with references to the files that a node may have to fetch."""
        attempt, contents, digests = uuid.uuid4().hex, list[Any](), list[str]()
        task: dict[str, Any] = {
            "driver": self._driver,
            "attempt": attempt,
            "versions": self._versions,
            "names": self._nodes if work.reads or work.writes else {},
            "threads": unit.threads,
            "work": asdict(work),
            "direct": self._direct,
        }
        if not self._direct:
            task["reads"] = [self._read(read, contents, digests) for read in work.reads]
            task["writes"] = {path: self._sent(Path(path), contents) for path in work.writes}
        takes: dict[str, Any] = {"num_cpus": unit.threads or 1, "num_gpus": unit.gpu, "name": unit.name}
        if work.memory:
            takes["memory"] = work.memory
        self._miss(unit, {"CPU": takes["num_cpus"], "GPU": unit.gpu, "memory": work.memory})
        if self._out:
            takes["label_selector"] = {"ray.io/node-id": f"!in({','.join(self._out)})"}
        do = self._do_once if unit.gpu else self._do
        flown = do.options(**takes).remote(json.dumps(task), contents, self._mailbox)
        self._users.update(digests)
        self._flights[flown] = Flight(unit, attempt, work, digests)

    def _miss(self, unit: Unit, wanted: Mapping[str, float]) -> None:
        """Say so once where no node has what a unit takes: Ray waits without a word, for one that may still come."""
        if any(all(node.get(kind, 0) >= much for kind, much in wanted.items()) for node in self._resources):
            return
        amounts = f"{quantity(int(wanted['CPU']), 'core')}, {wanted['GPU']:g} GPUs and {wanted['memory'] / 1e9:.1f} GB"
        if amounts not in self._missed:
            self._missed.append(amounts)
            print(f"warning: {unit.label} waits for a node with {amounts}: there is none.", file=sys.stderr)

    def _read(self, read: Read, contents: list[Any], digests: list[str]) -> dict[str, Any]:
        """A folder that is read: its files, or what makes it again."""
        path = Path(read.path)
        content = self._tree(path)
        remake = None
        if read.remake is not None and read.path not in self._moved:
            needed = [self._read(one, contents, digests) for one in read.remake.reads]
            remake = {"work": asdict(read.remake), "reads": needed}
        placed = {}
        for name, digits in content.items():
            if remake is None:
                if digits not in self._contents:
                    self._contents[digits] = ray.put((path / name).read_bytes())
                contents.append(self._contents[digits])
                digests.append(digits)
            placed[name] = (digits, None if remake is not None else len(contents) - 1)
        return {"path": read.path, "files": placed, "remake": remake}

    def _tree(self, path: Path) -> Mapping[str, str]:
        """What a folder holds; reading it all again is spared where nothing has changed since."""
        stamps = transfer.stamps(path)
        if self._trees.get(str(path), ({}, {}))[0] != stamps:
            self._trees[str(path)] = (stamps, transfer.tree(path))
        return self._trees[str(path)][1]

    def _sent(self, root: Path, contents: list[Any]) -> dict[str, tuple[str, int]]:
        """What a unit goes on with."""
        placed = {}
        for name in transfer.files(root) if root.exists() else ():
            if "events" not in Path(name).parts:
                data = (root / name if name else root).read_bytes()
                contents.append(ray.put(data))
                placed[name] = (transfer.sha256(data), len(contents) - 1)
        return placed

    def wait(self) -> list[Event]:
        """Until something has come, or a second has passed."""
        awaited = [*(flown for flown, flight in self._flights.items() if flight.outcome is None), self._mail]
        ready, _ = ray.wait(awaited, num_returns=1, timeout=LOOK_SECONDS)
        if ready:
            ready, _ = ray.wait(awaited, num_returns=len(awaited), timeout=0)
        events = self._take_mail() if self._mail in ready else []
        for flown in ready:
            if flown in self._flights:
                self._flights[flown].outcome = self._landed(flown)
        for flown, flight in list(self._flights.items()):
            if flight.outcome is not None and (flight.received >= flight.outcome.sent or not flight.mails):
                events.append(self._end(flown))
        return events

    def _take_mail(self) -> list[Event]:
        try:
            mail = ray.get(self._mail)
        except RayError:  # it is made anew, and who sent what was in it is given up below
            mail = []
        self._mail = self._mailbox.take.remote()
        events: list[Event] = []
        flights = {flight.attempt: (flown, flight) for flown, flight in self._flights.items()}
        for attempt, number, node, content in mail:
            flown, flight = flights.get(attempt, (None, None))
            if flight is None:
                continue  # of an attempt that was given up
            if number is None:
                what: Literal["begun", "said"] = "begun" if content == "begun" else "said"
                text = content if what == "said" else ""
                events.append(Event(what, flight.unit.name, self._name(node), text))
            elif number == flight.received:
                flight.received += 1
                if odd := self._put(content, flight):
                    events.append(self._give_up(flown, odd, node))
                    del flights[attempt]
            elif number > flight.received:  # after one that got lost with the mailbox
                events.append(self._give_up(flown, "some of its files did not arrive", node))
                del flights[attempt]
        for flight in self._flights.values():
            flight.mails -= flight.outcome is not None
        return events

    @staticmethod
    def _put(message: transfer.Message, flight: Flight) -> str:
        """Why a file that arrived is not one to keep; nothing if it is."""
        try:
            transfer.receive(message, flight.work.writes)
        except OmrlError as error:
            return str(error)
        except OSError as error:  # it is this machine's, and would be so with every other file
            raise OmrlError(f"{message.path} could not be written: {error.strerror}.") from error
        return ""

    def _give_up(self, flown: Any, reason: str, node: str) -> Event:
        """What has arrived of a unit is whole, and what comes after it is not: another attempt goes on from there."""
        ray.cancel(flown, force=True)
        self._flights[flown].outcome = Outcome("lost", error=reason, node=node)
        return self._end(flown)

    @staticmethod
    def _landed(flown: Any) -> Outcome:
        try:
            return Outcome(**json.loads(ray.get(flown)))
        except RayError as error:
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            # Whatever our own code raises is an outcome: this is Ray's.
            return Outcome("lost", error=reason, trace=str(error))

    def _end(self, flown: Any) -> Event:
        flight = self._flights.pop(flown)
        outcome = flight.outcome
        assert outcome is not None
        if flight.received < outcome.sent:
            outcome = Outcome("lost", error="some of its files did not arrive", node=outcome.node)
        if outcome.status == "differs":
            self._moved.add(str(outcome.result))
        if outcome.status == "odd":
            self._found_odd(outcome)
            outcome = replace(outcome, status="lost")
        else:
            self._odd.pop(outcome.node, None)
        self._users.subtract(flight.contents)
        for digits in flight.contents:
            if not self._users[digits]:
                del self._users[digits]
                self._contents.pop(digits, None)
        return Event("ended", flight.unit.name, self._name(outcome.node), outcome=outcome)

    def _found_odd(self, outcome: Outcome) -> None:
        """Where it is the machine and not the unit, others are asked; the last one is asked again and again."""
        node = outcome.node
        self._odd[node] += 1
        others = self._nodes.keys() - {*self._out, node}
        if self._odd[node] >= MOST_ODD and others and node not in self._out:
            self._out.append(node)
            print(f"warning: node {self._name(node)} gets no more units: {outcome.error}", file=sys.stderr)
            self._look_at_nodes()

    def close(self) -> None:
        """End what runs, and leave nothing on the nodes."""
        for flown in self._flights:
            ray.cancel(flown, force=True)
        clear = ray.remote(max_retries=0, num_cpus=0)(worker.clear)
        alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        there = [NodeAffinitySchedulingStrategy(node, soft=False) for node in alive]
        cleared = [
            clear.options(scheduling_strategy=at).remote(node, self._driver)
            for node, at in zip(alive, there, strict=True)
        ]
        ray.wait(cleared, num_returns=len(cleared), timeout=CLEAR_SECONDS) if cleared else None
        ray.shutdown()
