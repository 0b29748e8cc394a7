"""Artefacts kept by content, on disk, across runs: what was compiled once is not compiled again.

An entry is a folder named by its key, written aside and renamed, with the artefact and a note of its digest and of what
the builder said of it. What was built by hostile code comes back to the same source alone, since the source is part of
the key, and an entry that is not what its note says is taken away.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernel_matrix.images.wheels import cache_root
from kernel_matrix.inside.wire import KernelCode
from kernel_matrix.model.messages import from_json

CACHE_VARIABLE = "KERNEL_MATRIX_CACHE_DIR"
"""Environment variable: the folder to keep artefacts in."""

DEFAULT_MAX_BYTES = 4 << 30
"""What a cache may hold before the least recently used goes."""

_VERSION = 1
_ARTIFACT, _NOTE = "artifact.tar", "note.json"
_ASIDE = ".new-"
_ABANDONED_S = 3600.0
"""Age of a half-written entry whose writer is surely gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildKey:
    """All that determines an artefact."""

    source: bytes
    """The candidate's, as it is compiled."""
    arch: str
    """As ``TORCH_CUDA_ARCH_LIST`` takes it: ``9.0a``."""
    toolchain: str
    """Id of the image; without images, what tells the compilers of this machine apart."""
    core: str
    """Digest of the code that builds, and adds its flags."""
    order: bytes = b""
    """What kernels are compiled ahead of time, and for what calls; empty: none are."""
    beside: Mapping[str, bytes] = field(default_factory=dict)
    """Files that the source finds beside it, by name."""

    @property
    def key(self) -> str:
        """SHA-256 of it all."""
        digest = hashlib.sha256()
        texts = (self.arch, self.toolchain, self.core)
        files = (part for name, content in sorted(self.beside.items()) for part in (name.encode(), content))
        for part in (self.source, self.order, *(text.encode() for text in texts), *files):
            # Lengths are part of it, so that no two recipes join to the same bytes.
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedArtifact:
    """What a cache gives back."""

    artifact: Path
    """A copy of the caller's own."""
    artifact_sha256: str
    kernels: tuple[KernelCode, ...]
    log_tail: str


class BuildCache:
    """Artefacts by key. Shared by runs: entries appear whole, vanish whole, and are checked when they are used."""

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def recall(self, key: str, into: Path) -> CachedArtifact | None:
        """The entry of ``key``, its artefact copied to a new file in ``into``; null where there is none that is whole.

        :raises OSError: when ``into`` cannot be written to.
        """
        entry = self._folder / key
        try:
            note = _read_note(entry / _NOTE)
            source = (entry / _ARTIFACT).open("rb")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            _remove(entry)
            return None
        with source:
            artifact = new_artifact(into)
            with artifact.open("wb") as copy:
                shutil.copyfileobj(source, copy)
        if file_sha256(artifact) != note.artifact_sha256:
            artifact.unlink()
            _remove(entry)
            return None
        artifact.chmod(0o444)
        with suppress(OSError):  # gone meanwhile, or somebody else's to write to
            os.utime(entry / _NOTE)  # used just now
        return CachedArtifact(
            artifact=artifact, artifact_sha256=note.artifact_sha256, kernels=note.kernels, log_tail=note.log_tail
        )

    def keep(self, key: str, artifact: Path, kernels: tuple[KernelCode, ...], log_tail: str) -> None:
        """Copy ``artifact`` into the cache under ``key``; a disk that is full or read-only only costs the next run."""
        note = _Note(artifact_sha256=file_sha256(artifact), kernels=kernels, log_tail=log_tail)
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=self._folder))
            try:
                shutil.copyfile(artifact, aside / _ARTIFACT)
                (aside / _NOTE).write_text(json.dumps({"version": _VERSION, **asdict(note)}), encoding="utf-8")
                aside.rename(self._folder / key)  # fails where somebody else has kept the same
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            self._shrink()

    def _shrink(self) -> None:
        """Remove the least recently used until the rest fits, and what writers that are gone left half done."""
        entries = sorted(self._entries(), key=lambda entry: entry.used)
        total = sum(entry.size for entry in entries)
        for entry in entries:
            if total <= self._max_bytes:
                break
            _remove(entry.folder)
            total -= entry.size
        for aside in self._folder.glob(f"{_ASIDE}*"):
            with suppress(OSError):
                if time.time() - aside.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(aside, ignore_errors=True)

    def _entries(self) -> Iterator[_Entry]:
        for folder in self._folder.iterdir():
            with suppress(OSError):  # it went while we looked
                if not folder.name.startswith(_ASIDE):
                    used = (folder / _NOTE).stat().st_mtime
                    yield _Entry(folder, sum(file.stat().st_size for file in folder.iterdir()), used)


def default_cache() -> BuildCache:
    """The cache of this user: ``$KERNEL_MATRIX_CACHE_DIR``, else ``~/.cache/kernel-matrix/builds``."""
    named = os.environ.get(CACHE_VARIABLE)
    return BuildCache(Path(named) if named else cache_root() / "builds")


def new_artifact(folder: Path) -> Path:
    """A new, empty file for an artefact in ``folder``."""
    handle, name = tempfile.mkstemp(prefix="artifact-", suffix=".tar", dir=folder)
    os.close(handle)
    return Path(name)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry, as the bookkeeping sees it."""

    folder: Path
    size: int
    used: float
    """Time of its last use, seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """What lies beside an artefact."""

    artifact_sha256: str
    kernels: tuple[KernelCode, ...]
    log_tail: str


def _read_note(path: Path) -> _Note:
    """The note at ``path``.

    :raises ValueError, KeyError, TypeError: when it is no note of this version.
    """
    data: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if data["version"] != _VERSION:
        raise ValueError(f"a note of version {data['version']}")
    kernels = tuple(from_json(KernelCode, kernel) for kernel in data["kernels"])
    return _Note(artifact_sha256=data["artifact_sha256"], kernels=kernels, log_tail=data["log_tail"])


def _remove(entry: Path) -> None:
    """Take an entry away, out of sight first: nobody is to find half of it."""
    with suppress(OSError):
        aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=entry.parent))
        with suppress(OSError):
            entry.rename(aside / entry.name)
        shutil.rmtree(aside, ignore_errors=True)
