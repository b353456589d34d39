"""Doing units on a Ray cluster. Ray sees what each takes, and finds a place for it; the driver owns all folders.

A unit is one task of Ray's that it never repeats by itself: only the driver knows the newest checkpoint to go on from.
What units exchange are names, JSON and bytes of our own formats; how Ray carries them is Ray's business, and trusted.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
# Mail that was in the box when its unit ended has arrived by then.
DRAIN_SECONDS = 30.0


@dataclass
class Flight:
    """A unit that Ray has."""

    unit: Unit
    attempt: str
    work: Work
    received: int = 0
    """Messages in a row that have arrived."""


class OnRay:
    """Units on the machines of a cluster."""

    def __init__(self, address: str, direct: bool = False) -> None:
        """`ray` is RAY_ADDRESS or a cluster on this machine alone; `direct` where all machines see the same folders."""
        self._direct = direct
        self._connect(address)
        self._do = ray.remote(max_retries=0)(worker.do)
        self._versions = worker.versions()
        self._nodes: dict[str, str] = {}
        self._asked = -NODES_SECONDS
        self._flights: dict[Any, Flight] = {}
        self._moved: set[str] = set()
        self._trees: dict[str, tuple[Mapping[Path, tuple[int, int]], Mapping[str, str]]] = {}
        self._contents: dict[str, Any] = {}
        self._begun: list[Event] = []
        self._window = 1
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
            reason = str(error).strip().splitlines()[0].rstrip(".")
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
                quantity(int(node["Resources"][kind]), word)
                for kind, word in (("CPU", "core"), ("GPU", "GPU"))
                if node["Resources"].get(kind)
            )
            for node in there
        }
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

    def has_room(self) -> bool:
        """Some more than there are cores."""
        return len(self._flights) < self._window

    def start(self, unit: Unit, work: Work) -> None:
        """Give it to Ray, with references to the files that a node may have to fetch."""
        attempt, contents = uuid.uuid4().hex, list[Any]()
        task: dict[str, Any] = {
            "unit": unit.name,
            "attempt": attempt,
            "versions": self._versions,
            "names": self._nodes if work.reads or work.writes else {},
            "threads": unit.threads,
            "work": asdict(work),
            "direct": self._direct,
        }
        if not self._direct:
            task["reads"] = [self._read(read, contents) for read in work.reads]
            task["writes"] = {path: self._sent(Path(path), contents) for path in work.writes}
        takes: dict[str, Any] = {"num_cpus": unit.threads or 1, "num_gpus": unit.gpu, "name": unit.name}
        if work.memory:
            takes["memory"] = work.memory
        flown = self._do.options(**takes).remote(json.dumps(task), contents, self._mailbox)
        self._flights[flown] = Flight(unit, attempt, work)

    def _read(self, read: Read, contents: list[Any]) -> dict[str, Any]:
        """A folder that is read: its files, or what makes it again."""
        path = Path(read.path)
        content = self._tree(path)
        remake = None
        if read.remake is not None and read.path not in self._moved:
            needed = [self._read(one, contents) for one in read.remake.reads]
            remake = {"work": asdict(read.remake), "reads": needed}
        placed = {}
        for name, digits in content.items():
            if remake is None:
                if digits not in self._contents:
                    self._contents[digits] = ray.put((path / name).read_bytes())
                contents.append(self._contents[digits])
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
        awaited = [*self._flights, self._mail]
        ready, _ = ray.wait(awaited, num_returns=1, timeout=LOOK_SECONDS)
        if ready:
            ready, _ = ray.wait(awaited, num_returns=len(awaited), timeout=0)
        events: list[Event] = []
        if self._mail in ready:
            events += self._take_mail()
        for flown in ready:
            if flown in self._flights:
                events += self._landed(flown)
        return events

    def _take_mail(self, timeout: float | None = None) -> list[Event]:
        try:
            mail = ray.get(self._mail, timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            return []
        except RayError:  # it is made anew, and what was in it is sent again by who goes on
            mail = []
        self._mail = self._mailbox.take.remote()
        events: list[Event] = []
        by_attempt = {flight.attempt: flight for flight in self._flights.values()}
        for _, attempt, number, node, content in mail:
            flight = by_attempt.get(attempt)
            if flight is None or number != flight.received:
                continue  # of an attempt that was given up, or after a message that got lost
            flight.received += 1
            if isinstance(content, transfer.Message):
                transfer.receive(content, flight.work.writes)
            elif content == "begun":
                events.append(Event("begun", flight.unit.name, self._name(node)))
            else:
                events.append(Event("said", flight.unit.name, self._name(node), content))
        return events

    def _landed(self, flown: Any) -> list[Event]:
        events: list[Event] = []
        try:
            outcome = Outcome(**json.loads(ray.get(flown)))
        except RayError as error:
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            # Whatever our own code raises is an outcome: this is Ray's.
            outcome = Outcome("lost", error=reason, trace=str(error))
        flight = self._flights[flown]
        until = time.monotonic() + DRAIN_SECONDS
        while flight.received < outcome.sent and time.monotonic() < until:
            events += self._take_mail(timeout=LOOK_SECONDS)
        del self._flights[flown]
        if flight.received < outcome.sent:
            outcome = Outcome("lost", error="some of its files did not arrive", node=outcome.node)
        if outcome.status == "differs":
            self._moved.add(str(outcome.result))
        return [*events, Event("ended", flight.unit.name, self._name(outcome.node), outcome=outcome)]

    def close(self) -> None:
        """End what runs, and leave nothing on the nodes."""
        for flown in self._flights:
            ray.cancel(flown, force=True)
        clear = ray.remote(max_retries=0, num_cpus=0)(worker.clear)
        alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        cleared = [
            clear.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(node)
            for node in alive
        ]
        ray.wait(cleared, num_returns=len(cleared), timeout=DRAIN_SECONDS) if cleared else None
        ray.shutdown()
