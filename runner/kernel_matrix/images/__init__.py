"""Container images pinned by digest: entries of the lock, and images resolved in a daemon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kernel_matrix.environments import PythonEnvironment


class PullError(Exception):
    """An image could not be pulled; the text is the reason, as the registry or the daemon gives it."""


class LockState(str, Enum):
    """Origin of the digest in an entry of ``images.lock``."""

    LOCKED = "locked"
    """Resolved by the registry, or confirmed by a pull."""
    DECLARED = "declared"
    """Copied from public code and not yet confirmed; the first pull confirms or refuses it."""
    LOCAL = "local"
    """Built or adopted on one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEntry:
    """The pinned image of one toolchain."""

    toolchain: str
    reference: str
    """``repo:tag@sha256:…`` for a registry image, a local name for one built here."""
    state: LockState
    digest: str | None
    """Digest of the manifest or index, by which a registry image is pulled.

    For a local image it is the id in a containerd store; ``None`` if it was adopted from a graph-driver store.
    """
    config_digest: str | None
    """Digest of the image configuration, the id in a graph-driver store; ``None`` while unknown."""
    platform: str = "linux/amd64"
    inputs_sha256: str = ""
    """Digest of the files in ``images/<toolchain>``."""
    built_on: str = ""
    """Hashed identity of the daemon that built or adopted a local image; builds on other machines may differ."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """``deb:<name>`` and ``py:<name>`` → version, to report differences between images."""
    source: str = ""
    """Origin of a declared digest, or base of a local image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedImage:
    """The image that a cell runs, as found in the daemon, or the environment of this host in its place."""

    toolchain: str
    reference: str
    id: str
    """Id in the daemon, with which containers are started, or the digest of an environment."""
    repo_digest: str | None
    store: str
    state: str
    """A :class:`LockState` value, ``unpinned``, or ``environment``."""
    environment: PythonEnvironment | None = None
    """The environment; ``None`` for an image."""
