"""A Docker daemon of the test's own, to be killed, with an image in which a cell starts and never gets further."""

from __future__ import annotations

import io
import re
import subprocess
import sysconfig
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from tests.baddays.living import until
from tests.own_folder import own_folder
from tests.sandboxes.conftest import python_tree

IMAGE = "kernel-matrix/cpu:latest"
"""What ``--allow-unpinned`` takes for the CPU toolchain where there is no lock."""


_WITHOUT_NETWORK = ("--bridge=none", "--iptables=false", "--ip6tables=false")


class OwnDaemon:
    """``dockerd`` with everything it owns in one folder; no network, no rule in this machine's firewall."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{folder}/docker.sock"

    def start(self) -> None:
        """Start it, for the first time or again, and wait until it answers."""
        owned = [f"--{option}={self._folder / option}" for option in ("data-root", "exec-root", "pidfile")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ("dockerd", "--debug", "--host", self.url, *_WITHOUT_NETWORK, *owned),
                stdout=log,
                stderr=log,
            )
        until(self._answers)

    def kill(self) -> None:
        """Kill it as the kernel would; its containers live on."""
        assert self._process is not None
        pid = (self._folder / "exec-root/containerd/containerd.pid").read_text()
        self._process.kill()
        self._process.wait()
        # Its containerd dies with it. Until it is buried, a new daemon takes it for alive and waits for it in vain.
        until(lambda: not Path("/proc", pid).exists())

    def stop(self) -> None:
        """End it and what it started."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def containers(self, *, running: bool = False) -> int:
        """How many there are, in any state or only running ones."""
        return len(self.container_ids(running=running))

    def container_ids(self, *, running: bool = False) -> set[str]:
        """The ids of those containers."""
        client = docker.DockerClient(base_url=self.url)
        try:
            return {found["Id"] for found in client.api.containers(all=not running)}
        finally:
            client.close()

    def followed(self) -> int:
        """For how many containers the runner waits until they end, which it does as soon as it has started them."""
        return len(re.findall(r'Calling POST \S+/wait"', (self._folder / "log").read_text()))

    def import_stuck_image(self, name: str = IMAGE) -> None:
        """An image whose torch takes for ever to import."""
        tree = io.BytesIO(python_tree())
        with tarfile.open(fileobj=tree, mode="a") as tar:
            source = b"import time\ntime.sleep(600)\n"
            entry = tarfile.TarInfo(f"{sysconfig.get_path('stdlib')}/torch/__init__.py".lstrip("/"))
            entry.size, entry.mode = len(source), 0o444
            tar.addfile(entry, io.BytesIO(source))
        repository, _, tag = name.partition(":")
        client = docker.DockerClient(base_url=self.url)
        try:
            client.api.import_image_from_data(tree.getvalue(), repository=repository, tag=tag)
        finally:
            client.close()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
        argv = ("docker", "--host", self.url, "version")
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0


@contextmanager
def own_daemon() -> Iterator[OwnDaemon]:
    """A running daemon; it and its folder are gone at the end."""
    with own_folder("km-daemon-") as folder:
        daemon = OwnDaemon(folder)
        try:
            daemon.start()
            yield daemon
        finally:
            daemon.stop()
