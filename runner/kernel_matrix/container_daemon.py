"""The connection to the daemon that runs containers, Docker's or Podman's, by the Docker API."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docker import DockerClient

_CONNECTIONS = 10  # the SDK's own default
_DOCKER_SOCKET = Path("/var/run/docker.sock")
_ANSWER_S = 5.0  # a socket of this machine is accepted at once, or by a service that is being started


def connect(url: str = "", *, timeout_s: int, connections: int = _CONNECTIONS) -> DockerClient:
    """Return a client of the daemon at ``url``; without one, of that at ``DOCKER_HOST`` or at a usual socket.

    Args:
        url: address of the daemon's API.
        timeout_s: time limit of one request.
        connections: connections that are kept open.

    Raises:
        docker.errors.DockerException: if no daemon answers there.
    """
    import docker  # noqa: PLC0415  # the SDK takes 0.2 s to import

    found = url or find_podman(os.environ)
    if found:
        return docker.DockerClient(base_url=found, timeout=timeout_s, max_pool_size=connections)
    return docker.from_env(timeout=timeout_s, max_pool_size=connections)


def find_podman(environment: Mapping[str, str]) -> str:
    """Return the address of Podman's socket, if a daemon answers there and none at Docker's; otherwise nothing.

    ``DOCKER_HOST`` is an order: where it is set, no other daemon is looked for.
    """
    if environment.get("DOCKER_HOST") or _accepts(_DOCKER_SOCKET):
        return ""
    socket_path = podman_socket(environment)
    return f"unix://{socket_path}" if _accepts(socket_path) else ""


def podman_socket(environment: Mapping[str, str]) -> Path:
    """Return the path at which the service of this user's Podman listens."""
    if os.geteuid() == 0:
        return Path("/run/podman/podman.sock")
    return Path(environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}", "podman/podman.sock")


def _accepts(path: Path) -> bool:
    """Return whether a program accepts connections at a socket."""
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(_ANSWER_S)
        try:
            connection.connect(str(path))
        except OSError:
            return False
        return True
