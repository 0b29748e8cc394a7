"""A real Ray of two nodes on this machine; its GPUs are numbers only."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import requests

NODES = {"h1": ("H200", 2), "l1": ("L40S", 1)}
"""Node → its GPU model and how many it has; the first one is the head."""
_CORES = 4
_OBJECT_STORE_BYTES = 80_000_000


def ray_program() -> str | None:
    """Path of the program ``ray``, which has an environment of its own; None if there is none."""
    own = Path(sys.prefix) / "ray" / "bin" / "ray"
    return str(own) if own.is_file() else shutil.which("ray")


class RayLab:
    """A running cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = _own_address()
        self._port, self._dashboard, *self._agents = _free_ports(self.host, 2 + len(NODES))
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        """URL of the dashboard."""
        return f"http://{self.host}:{self._dashboard}"

    def start(self, name: str) -> None:
        """Start a node, of which nothing is left then from the last time; the first one has the head."""
        self.kill(name)
        model, gpus = NODES[name]
        role = ["--address", f"{self.host}:{self._port}"]
        if name == next(iter(NODES)):
            role = ["--head", f"--port={self._port}", f"--dashboard-host={self.host}"]
            role += [f"--dashboard-port={self._dashboard}", f"--temp-dir={self.folder}"]
        program = ray_program()
        assert program is not None
        words = [program, "start", "--block", *role, f"--node-ip-address={self.host}", f"--num-cpus={_CORES}"]
        words += [f"--num-gpus={gpus}", f"--resources={json.dumps({f'accelerator_type:{model}': 1})}"]
        agent = self._agents[list(NODES).index(name)]
        words += [
            f"--dashboard-agent-listen-port={agent}",
            f"--object-store-memory={_OBJECT_STORE_BYTES}",
            "--disable-usage-stats",
        ]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._nodes[name] = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def has_ended(self, name: str) -> bool:
        """Return whether a node was killed, or has ended by itself."""
        return name not in self._nodes or self._nodes[name].poll() is not None

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the daemon of a node that starts and ends workers."""
        if name in self._nodes:
            words = ("pkill", f"-{number.value}", "-x", "raylet", "-s", str(self._nodes[name].pid))
            subprocess.run(words, check=False)

    def kill(self, name: str) -> None:
        """Kill the daemons of a node at once; within two seconds Ray's watchers kill the processes of its jobs."""
        process = self._nodes.pop(name, None)
        if process is not None:
            subprocess.run(("pkill", "-9", "-s", str(process.pid)), check=False)
            process.wait()

    def alive(self) -> list[str]:
        """GPU models of the nodes that the cluster counts as alive."""
        try:
            answer = requests.get(f"{self.address}/api/v0/nodes?detail=1", timeout=10).json()
            nodes = answer["data"]["result"]["result"]
        except (requests.RequestException, ValueError, KeyError, TypeError):
            return []
        resources = [node["resources_total"] for node in nodes if node["state"] == "ALIVE"]
        return sorted(model for model, _ in NODES.values() for has in resources if f"accelerator_type:{model}" in has)

    def stop(self) -> None:
        """Kill every node; asked to end, they would drain for half a minute."""
        for name in list(self._nodes):
            self.kill(name)
        subprocess.run(("pkill", "-9", "-f", str(self.folder)), check=False)


@contextmanager
def ray_lab(folder: Path) -> Iterator[RayLab]:
    """Run a cluster whose files are in ``folder``; every daemon of it is gone afterwards."""
    lab = RayLab(folder)
    try:
        first, *others = NODES
        lab.start(first)
        wait_until(lambda: lab.alive() != [])
        for name in others:
            lab.start(name)
        wait_until(lambda: len(lab.alive()) == len(NODES))
        yield lab
    finally:
        lab.stop()


def wait_until(true: Callable[[], bool], limit_s: float = 90.0) -> None:
    """Wait until ``true()`` is."""
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.2)


def _own_address() -> str:
    """Return an address of this host that is not the loopback's: with that, clients try another one for minutes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _free_ports(host: str, number: int) -> range:
    """Return consecutive free ports outside the range that Ray gives to its workers."""
    for first in range(20_000 + 16 * os.getpid() % 10_000, 60_000, number):
        with ExitStack() as opened, suppress(OSError):
            for port in range(first, first + number):
                opened.enter_context(socket.create_server((host, port)))
            return range(first, first + number)
    raise OSError("no ports are free")
