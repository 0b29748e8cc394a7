"""Images known by digest: the lock, and what a daemon really has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class LockState(str, Enum):
    """How sure an entry of ``images.lock`` is."""

    LOCKED = "locked"
    """Resolved against its registry, or pulled and confirmed."""
    DECLARED = "declared"
    """Found in public code, never resolved against a registry; the first pull confirms or refuses it."""
    LOCAL = "local"
    """Built (or adopted) on one machine, pinned by its config digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEntry:
    """What one toolchain's image is."""

    toolchain: str
    reference: str
    """``repo:tag@sha256:…`` for a registry image, a local name for one built here."""
    state: LockState
    digest: str | None
    """Manifest (or index) digest that the reference is pulled by; for a local build the id a containerd store shows,
    null where it was adopted from a graph-driver store."""
    config_digest: str | None
    """Digest of the image configuration: the id a graph-driver daemon shows; null until it was seen."""
    platform: str = "linux/amd64"
    inputs_sha256: str = ""
    """Digest of the folder ``images/<toolchain>``: Dockerfile, requirements."""
    built_on: str = ""
    """Daemon (its identity, hashed) that a local image was built or adopted on: elsewhere a build may differ."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """``deb:<name>`` and ``py:<name>`` → version, for saying what differs."""
    source: str = ""
    """Where a declared digest was found, or what a local image was made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedImage:
    """The image a cell runs, as this daemon has it."""

    toolchain: str
    reference: str
    id: str
    """What to start: the daemon's own id."""
    repo_digest: str | None
    store: str
    state: str
    """A :class:`LockState` value, or ``unpinned``."""
