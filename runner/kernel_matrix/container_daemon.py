"""The connection to the daemon that runs containers, by its Docker API."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docker import DockerClient

_CONNECTIONS = 10  # the SDK's own default


def connect(url: str = "", *, timeout_s: int, connections: int = _CONNECTIONS) -> DockerClient:
    """Return a client of the daemon at ``url``; without one, at ``DOCKER_HOST`` or the default socket.

    Args:
        url: address of the daemon's API.
        timeout_s: time limit of one request.
        connections: connections that are kept open.

    Raises:
        docker.errors.DockerException: if no daemon answers there.
    """
    import docker  # noqa: PLC0415  # the SDK takes 0.2 s to import

    if url:
        return docker.DockerClient(base_url=url, timeout=timeout_s, max_pool_size=connections)
    return docker.from_env(timeout=timeout_s, max_pool_size=connections)
