"""Connect to the Docker daemon and read its image store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_matrix.errors import ImageError

if TYPE_CHECKING:
    from docker import DockerClient

_TIMEOUT_S = 1800  # loading or exporting several GB is one request


@dataclass(frozen=True, slots=True)
class ImageStore:
    """A daemon's image store; the image id is the config digest, or in a containerd store the manifest digest."""

    driver: str
    containerd: bool

    @property
    def name(self) -> str:
        """Name in records: ``overlay2``, ``containerd/overlayfs``."""
        return f"containerd/{self.driver}" if self.containerd else self.driver


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in the daemon."""

    id: str
    repo_digests: tuple[str, ...]
    size_bytes: int


@contextmanager
def connect() -> Iterator[DockerClient]:
    """Open a client of the daemon that the environment names.

    Raises:
        ImageError: no daemon answers, or a request inside the ``with`` block failed.
    """
    import docker  # noqa: PLC0415  # the SDK takes 0.2 s to import and most verbs never need it
    from docker.errors import DockerException  # noqa: PLC0415  # same
    from requests.exceptions import RequestException  # noqa: PLC0415  # same

    try:
        client = docker.from_env(timeout=_TIMEOUT_S)
    except DockerException as error:
        raise ImageError(
            f"No Docker daemon answers: {error}.",
            next_step="Start Docker, or check DOCKER_HOST; cells also run without it: --sandbox process.",
        ) from error
    try:
        client.ping()
        yield client
    except (DockerException, RequestException) as error:
        raise ImageError(
            f"The Docker daemon failed: {error}.", next_step="See the daemon's log and its free disk space."
        ) from error
    finally:
        client.close()


def store_of(client: DockerClient) -> ImageStore:
    """Read the kind of the daemon's image store."""
    info = client.info()
    status = [tuple(pair) for pair in info.get("DriverStatus") or ()]
    return ImageStore(driver=info["Driver"], containerd=("driver-type", "io.containerd.snapshotter.v1") in status)


def machine_of(client: DockerClient) -> str:
    """Return the hashed identity of the daemon."""
    return hashlib.sha256(str(client.info()["ID"]).encode()).hexdigest()[:16]


def find(client: DockerClient, name: str) -> StoredImage | None:
    """Return the image that the daemon has as ``name`` (id, tag or ``repo@digest``), or ``None``."""
    from docker.errors import ImageNotFound  # noqa: PLC0415  # see connect

    try:
        attrs: dict[str, Any] = client.images.get(name).attrs
    except ImageNotFound:
        return None
    return StoredImage(
        id=attrs["Id"],
        repo_digests=tuple(attrs.get("RepoDigests") or ()),
        size_bytes=attrs["Size"],
    )


def digests(store: ImageStore, held: StoredImage, manifest: str | None) -> dict[str, str | None]:
    """Return the two digests of a lock entry; ``manifest`` is the manifest digest if known from another source."""
    if store.containerd:
        return {"digest": manifest or held.id, "config_digest": None}
    return {"digest": manifest, "config_digest": held.id}
