"""A real Ray cluster of several nodes on this machine, for tests and benchmarks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Ray would report its use, and listen on an address that others can reach.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
# What serves a client has half a minute to start, which on a busy machine is not enough.
os.environ["RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S"] = "180"
import ray
from ray.cluster_utils import Cluster

STORE = 100 * 2**20
# A node that is gone is noticed within seconds: Ray's own half a minute is made for networks that stutter.
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}


class Nodes:
    """Nodes of one core each that can be lost and come back."""

    def __init__(self, count: int, **options: Any) -> None:
        common = {"num_cpus": 1, "object_store_memory": STORE, "node_ip_address": "127.0.0.1", **options}
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        head = {"include_dashboard": False, "_system_config": HEALTH, "ray_client_server_port": port, **common}
        self._options = common
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.others = [self.cluster.add_node(**common) for _ in range(count - 1)]
        self.address: str = self.cluster.address
        self.client = f"ray://127.0.0.1:{port}"
        """For who is no part of it."""

    def lose(self, place: int) -> None:
        """A node that is not the head, at once and without a word."""
        self.cluster.remove_node(self.others.pop(place), allow_graceful=False)

    def leave(self, place: int) -> None:
        """A node that is not the head, which tells the others: nothing is sent to it any more."""
        self.cluster.remove_node(self.others.pop(place), allow_graceful=True)

    def add(self, **options: Any) -> None:
        """A new one."""
        self.others.append(self.cluster.add_node(**{**self._options, **options}))

    def workers(self) -> list[int]:
        """Processes of these nodes at work now: those that do units, and the one that takes their mail."""
        raylets = {one.process.pid for node in self.cluster.list_all_nodes() for one in node.all_processes["raylet"]}
        found = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
        lines = [line.split(None, 2) for line in found.splitlines()[1:]]
        # Not Ray's own agents, without which a node ends itself: nodes are lost by `lose`.
        ours = re.compile(r"ray::(data|train|test|draw|join|tune|pack|Mailbox)")
        return [int(pid) for pid, parent, words in lines if int(parent) in raylets and ours.match(words)]

    def kill_worker(self, pid: int) -> None:
        """As the system does, say for its memory."""
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """All of it."""
        ray.shutdown()
        self.cluster.shutdown()


@contextmanager
def nodes(count: int, source: Path | None = None, **options: Any) -> Iterator[Nodes]:
    """A cluster, as long as the block lasts; `source` is where its processes find omrl."""
    before = os.environ.get("PYTHONPATH")
    if source is not None:
        os.environ["PYTHONPATH"] = str(source)
    try:
        made = Nodes(count, **options)
        try:
            yield made
        finally:
            made.close()
    finally:
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before
