"""The connection to the daemon that runs containers, Docker's or Podman's, by the Docker API."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
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
    try:
        _knock(found or _usual_address())
    except OSError as error:
        # The SDK would say the same in a text of several exceptions, and leave its socket open.
        raise docker.errors.DockerException(str(error)) from error
    if found:
        return docker.DockerClient(base_url=found, timeout=timeout_s, max_pool_size=connections)
    return docker.from_env(timeout=timeout_s, max_pool_size=connections)


def why_no_answer(error: BaseException) -> str:
    """Return why no daemon answers, in words: the SDK's own text shows several exceptions inside each other."""
    address = _usual_address()
    for inner in _chain(error):
        if isinstance(inner, FileNotFoundError):
            return f"there is no socket {address}"
        if isinstance(inner, PermissionError):
            return f"no permission to open {address}"
        if isinstance(inner, ConnectionRefusedError):
            return f"nothing listens at {address}"
        if isinstance(inner, TimeoutError):
            return f"{address} does not answer in time"
    return str(error).partition("\n")[0]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and those that it wraps as cause, context or argument."""
    pending, seen = [error], set[int]()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = (one.__cause__, one.__context__, *one.args)
        pending += [each for each in inner if isinstance(each, BaseException)]


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


def _usual_address() -> str:
    return os.environ.get("DOCKER_HOST") or f"unix://{_DOCKER_SOCKET}"


def _accepts(path: Path) -> bool:
    """Return whether a program accepts connections at a socket."""
    try:
        _knock(f"unix://{path}")
    except OSError:
        return False
    return True


def _knock(address: str) -> None:
    """Connect to an address if it is a socket of this machine.

    Raises:
        OSError: No program accepts connections there.
    """
    scheme, _separator, path = address.partition("://")
    if scheme == "unix":
        with closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(path)
