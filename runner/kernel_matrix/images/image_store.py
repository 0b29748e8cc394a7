"""Stores of pinned images: their protocol, and the store of a Docker daemon."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kernel_matrix import container_daemon
from kernel_matrix.errors import ImageError
from kernel_matrix.images import LockEntry, PullError
from kernel_matrix.images.image_reference import ImageReference

if TYPE_CHECKING:
    from docker import DockerClient

Say = Callable[[str], None]
"""Called with each line of progress."""

_TIMEOUT_S = 1800  # loading or exporting several GB is one request


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in a store."""

    id: str
    repo_digests: tuple[str, ...]
    size_bytes: int


class ImageStore(Protocol):
    """A place with pinned images: a daemon, or this user's cache of unpacked images."""

    @property
    def name(self) -> str:
        """Name in records."""
        ...

    @property
    def place(self) -> str:
        """The store in a sentence, such as ``the daemon``."""
        ...

    def find(self, name: str) -> StoredImage | None:
        """Return the image that is here as ``name`` (id, ``repository:tag`` or ``repository@digest``), or ``None``."""
        ...

    def pin(self, entry: LockEntry) -> str | None:
        """Return the name under which this store can only have a local image, or ``None`` if it is unknown."""
        ...

    def id_of(self, entry: LockEntry) -> str | None:
        """Return the id that the image of ``entry`` must have here, or ``None`` if it is unknown."""
        ...

    def config_digest(self, held: StoredImage) -> str | None:
        """Return the digest of an image's configuration, or ``None`` if the store does not tell."""
        ...

    def complaints(self, held: StoredImage) -> Sequence[str]:
        """Return how the image differs from what it was when it came; empty where a daemon guards it."""
        ...

    def pull(self, entry: LockEntry, say: Say) -> None:
        """Get the image of ``entry`` from its registry, by its digest.

        Raises:
            PullError: The registry lacks the digest, or does not answer.
            ImageError: The image cannot be kept here.
        """
        ...

    def resolve_tag(self, reference: ImageReference) -> str:
        """Return the digest that a tag means in its registry now.

        Raises:
            PullError: The registry lacks the tag, or does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class DaemonStore:
    """A daemon's image store; the image id is the config digest, or in a containerd store the manifest digest."""

    client: DockerClient
    driver: str
    containerd: bool

    @classmethod
    def of(cls, client: DockerClient) -> DaemonStore:
        """Read the kind of the store of ``client``'s daemon."""
        info = client.info()
        status = [tuple(pair) for pair in info.get("DriverStatus") or ()]
        return cls(client, info["Driver"], containerd=("driver-type", "io.containerd.snapshotter.v1") in status)

    @property
    def name(self) -> str:
        """Name in records: ``overlay2``, ``containerd/overlayfs``."""
        return f"containerd/{self.driver}" if self.containerd else self.driver

    @property
    def place(self) -> str:
        """The store in a sentence."""
        return "the daemon"

    def find(self, name: str) -> StoredImage | None:
        """Return the image that the daemon has as ``name``, or ``None``."""
        return find(self.client, name)

    def pin(self, entry: LockEntry) -> str | None:
        """Return the digest that is the id of a local image in this store."""
        return entry.digest if self.containerd else entry.config_digest

    def id_of(self, entry: LockEntry) -> str | None:
        """Return the id that the image must have; a containerd store checks the digest itself."""
        return None if self.containerd else entry.config_digest

    def config_digest(self, held: StoredImage) -> str | None:
        """Return the digest of an image's configuration, which a containerd store does not tell."""
        return None if self.containerd else held.id

    def complaints(self, held: StoredImage) -> Sequence[str]:  # noqa: ARG002  # part of the protocol
        """Return nothing: only the daemon writes its images."""
        return ()

    def pull(self, entry: LockEntry, say: Say) -> None:
        """Let the daemon pull the image.

        Raises:
            PullError: The registry lacks the digest, or does not answer.
        """
        from docker.errors import APIError  # noqa: PLC0415  # the SDK is loaded when a daemon is needed

        wanted = ImageReference.parse(entry.reference)
        try:
            for event in self.client.api.pull(wanted.repository, tag=wanted.digest, stream=True, decode=True):
                if "error" in event:
                    raise PullError(event["error"])
                if event.get("status") in ("Already exists", "Pull complete"):
                    say(f"{entry.toolchain}: layer {event.get('id', '')} {event['status'].lower()}")
        except APIError as error:
            raise PullError(str(error.explanation or error)) from error

    def resolve_tag(self, reference: ImageReference) -> str:
        """Let the daemon ask the registry what a tag means.

        Raises:
            PullError: The registry lacks the tag, or does not answer.
        """
        from docker.errors import APIError  # noqa: PLC0415  # see pull

        try:
            return str(self.client.images.get_registry_data(reference.by_tag).id)
        except APIError as error:
            raise PullError(str(error.explanation or error)) from error


@contextmanager
def connect() -> Iterator[DockerClient]:
    """Open a client of the daemon that the environment names.

    Raises:
        ImageError: no daemon answers, or a request inside the ``with`` block failed.
    """
    from docker.errors import DockerException  # noqa: PLC0415  # the SDK takes 0.2 s to import and most verbs never need it
    from requests.exceptions import RequestException  # noqa: PLC0415  # same

    try:
        client = container_daemon.connect(timeout_s=_TIMEOUT_S)
    except DockerException as error:
        raise ImageError(
            f"No Docker daemon answers: {container_daemon.why_no_answer(error)}.",
            next_step="Start it, or check DOCKER_HOST; without one: --sandbox unpacked, or process for cells.",
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
