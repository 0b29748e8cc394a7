"""What may happen to a Ray of two nodes, the first of which has its head."""

from __future__ import annotations

import random
import signal
from contextlib import suppress
from functools import partial

import requests

from tests.executors.engines.ray_lab import NODES, RayLab
from tests.executors.fleet.faults import ClusterFaults

_HEAD, *_OTHERS = NODES


class RayFaults(ClusterFaults):
    """Faults of ``lab``."""

    def __init__(self, lab: RayLab) -> None:
        super().__init__()
        # A job takes all cores of a node.
        self.engine = f'engine = "ray"\noptions = {{ address = "{lab.address}", cpus = 4 }}'
        self._lab = lab
        self._away: set[str] = set()
        """Nodes that were killed and come back later."""

    def mend(self, now: float) -> None:
        """Mend what is due; a node whose daemons ended by themselves is started again, as by an init system."""
        super().mend(now)
        if self._is_to_start(_HEAD):
            # Ray starts no head on a machine with daemons of its address; on others they would end within a minute.
            for node in _OTHERS:
                self._lab.kill(node)
            self._lab.start(_HEAD)
        for node in _OTHERS:
            if self._is_to_start(node) and self._lab.alive():
                self._lab.start(node)

    def is_whole(self) -> bool:
        """Mend everything; return True once all nodes are there."""
        self.mend(float("inf"))
        return len(self._lab.alive()) == len(NODES)

    def fault_node_killed(self, rng: random.Random) -> None:
        """Kill all daemons of a node without the head; it comes back."""
        self._kill(rng.choice(_OTHERS), rng.choice((1, 15)))

    def fault_cluster_head_killed(self, rng: random.Random) -> None:
        """Kill the daemons of the head, which comes back at its address and knows no job."""
        self._kill(_HEAD, rng.choice((1, 10)))

    def fault_raylet_killed(self, rng: random.Random) -> None:
        """Kill one daemon of a node, which the others of it do not survive."""
        node = rng.choice(list(NODES))
        if not self._lab.has_ended(node):
            self._lab.signal(node, signal.SIGKILL)

    def fault_network_cut(self, rng: random.Random) -> None:
        """Stop the daemon of a node for a while, as if its network were cut."""
        node = rng.choice(list(NODES))
        if not self._lab.has_ended(node):
            self._lab.signal(node, signal.SIGSTOP)
            self.later(rng.choice((2, 20)), partial(self._lab.signal, node, signal.SIGCONT))

    def fault_job_stopped(self, rng: random.Random) -> None:
        """Stop a job through Ray's own interface; while its head is away the fault does not happen."""
        with suppress(requests.RequestException, ValueError):
            jobs = requests.get(f"{self._lab.address}/api/jobs/", timeout=10).json()
            running = sorted(job["submission_id"] for job in jobs if job["status"] == "RUNNING")
            if running:
                requests.post(f"{self._lab.address}/api/jobs/{rng.choice(running)}/stop", timeout=10)

    def _kill(self, node: str, seconds: float) -> None:
        if not self._lab.has_ended(node):
            self._lab.kill(node)
            self._away.add(node)
            self.later(seconds, partial(self._away.discard, node))

    def _is_to_start(self, node: str) -> bool:
        return node not in self._away and self._lab.has_ended(node)
