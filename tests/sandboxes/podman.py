"""A service of Podman of the test's own, with storage, locks and state in one folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from tests.own_folder import own_folder
from tests.sandboxes.observe import soon

CONFIGURATION = """\
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{folder}/state"
"""
"""Without systemd and its journal, and without the locks in memory that all services of a user share."""


@contextmanager
def podman_service() -> Iterator[str]:
    """Start a service; yield the address of its socket. It, its containers and its folder are gone at the end.

    Raises:
        OSError: if it does not answer.
    """
    with own_folder("km-podman-") as folder:
        work = folder / "work"  # the monitor of a container that runs out of memory writes a file into it
        work.mkdir()
        url = f"unix://{folder}/podman.sock"
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(
                (*_podman(folder), "system", "service", "--time", "0", url),
                cwd=work,
                env={**os.environ, "CONTAINERS_CONF": str(_configure(folder))},
                stdout=log,
                stderr=log,
            ) as service,
        ):
            try:
                if not soon((folder / "podman.sock").exists):
                    raise OSError((folder / "log").read_text()[-2000:])
                yield url
                _remove_containers(url)
            finally:
                service.terminate()


def _podman(folder: Path) -> tuple[str, ...]:
    return ("podman", "--root", str(folder / "root"), "--runroot", str(folder / "run"))


def _configure(folder: Path) -> Path:
    """Write the configuration; where runc is installed it is taken, as crun 1.8 refuses some control groups."""
    path = folder / "containers.conf"
    runtime = 'runtime = "runc"\n' if shutil.which("runc") else ""
    path.write_text(CONFIGURATION.format(folder=folder) + runtime)
    return path


def _remove_containers(url: str) -> None:
    client = docker.APIClient(base_url=url)
    try:
        for container in client.containers(all=True):
            client.remove_container(container["Id"], force=True)
    finally:
        client.close()
