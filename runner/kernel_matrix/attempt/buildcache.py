"""Cache of build artifacts on disk, addressed by content and shared by runs.

An entry is a folder named by its key. It holds the artifact and a note with the artifact's digest and the builder's
output, and is renamed into place when complete. The key includes the source, so an artifact that hostile code made is
only ever returned for that same source. An entry that differs from its note is removed.
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

from kernel_matrix.file_hash import file_sha256
from kernel_matrix.inside.wire import KernelCode
from kernel_matrix.model.messages import from_json
from kernel_matrix.untrusted_json import NoSuchFileError, read_object
from kernel_matrix.user_folders import cache_root

CACHE_VARIABLE = "KERNEL_MATRIX_CACHE_DIR"  # environment variable: folder of the cache

DEFAULT_MAX_BYTES = 4 << 30  # beyond this, the least recently used entries are removed

_VERSION = 2  # 1: artifacts with links
_ARTIFACT, _NOTE = "artifact.tar", "note.json"
_ASIDE = ".new-"
_ABANDONED_S = 3600.0  # a half-written entry of this age has no living writer


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildKey:
    """Everything that determines an artifact."""

    source: bytes
    """The candidate's source, as it is compiled."""
    arch: str
    """Architecture in the form of ``TORCH_CUDA_ARCH_LIST``: ``9.0a``."""
    toolchain: str
    """Image id; without images, a description of this machine's compilers."""
    build_version: str
    """Hash of the code that builds and adds its flags; see :mod:`kernel_matrix.hosts.code_versions`."""
    order: bytes = b""
    """The kernels to compile ahead of time, and the calls to compile them for; empty if there are none."""
    beside: Mapping[str, bytes] = field(default_factory=dict)
    """Files beside the source, by name."""

    @property
    def key(self) -> str:
        """SHA-256 of all fields."""
        digest = hashlib.sha256()
        texts = (self.arch, self.toolchain, self.build_version)
        files = (part for name, content in sorted(self.beside.items()) for part in (name.encode(), content))
        for part in (self.source, self.order, *(text.encode() for text in texts), *files):
            # Lengths are included, so that different fields cannot join to the same bytes.
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedArtifact:
    """An artifact from the cache."""

    artifact: Path
    """A copy that belongs to the caller."""
    artifact_sha256: str
    kernels: tuple[KernelCode, ...]
    log_tail: str


class BuildCache:
    """Artifacts by key. Processes may share a cache: entries appear and vanish whole and are checked when used."""

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def recall(self, key: str, into: Path) -> CachedArtifact | None:
        """Copy the artifact of ``key`` to a new file in ``into``; return None if there is no valid entry.

        Raises:
            OSError: If ``into`` cannot be written to.
        """
        entry = self._folder / key
        try:
            note = _read_note(entry / _NOTE)
            source = (entry / _ARTIFACT).open("rb")
        except (FileNotFoundError, NoSuchFileError):
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
        with suppress(OSError):  # the entry may have been removed meanwhile, or belong to another user
            os.utime(entry / _NOTE)  # marks it as recently used
        return CachedArtifact(
            artifact=artifact, artifact_sha256=note.artifact_sha256, kernels=note.kernels, log_tail=note.log_tail
        )

    def keep(self, key: str, artifact: Path, kernels: tuple[KernelCode, ...], log_tail: str) -> None:
        """Copy ``artifact`` into the cache under ``key``. Disk errors are ignored: they only slow down the next run."""
        note = _Note(artifact_sha256=file_sha256(artifact), kernels=kernels, log_tail=log_tail)
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=self._folder))
            try:
                shutil.copyfile(artifact, aside / _ARTIFACT)
                (aside / _NOTE).write_text(json.dumps({"version": _VERSION, **asdict(note)}), encoding="utf-8")
                aside.rename(self._folder / key)  # fails if another process has stored the same entry
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            self._shrink()

    def _shrink(self) -> None:
        """Remove the least recently used entries until the rest fits, and half-written ones of dead writers."""
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
            with suppress(OSError):  # another process may remove entries
                if not folder.name.startswith(_ASIDE):
                    used = (folder / _NOTE).stat().st_mtime
                    yield _Entry(folder, sum(file.stat().st_size for file in folder.iterdir()), used)


def default_cache() -> BuildCache:
    """Return this user's cache: ``$KERNEL_MATRIX_CACHE_DIR``, else ``~/.cache/kernel-matrix/builds``."""
    named = os.environ.get(CACHE_VARIABLE)
    return BuildCache(Path(named) if named else cache_root() / "builds")


def new_artifact(folder: Path) -> Path:
    """Make a new, empty file for an artifact in ``folder``."""
    handle, name = tempfile.mkstemp(prefix="artifact-", suffix=".tar", dir=folder)
    os.close(handle)
    return Path(name)


@dataclass(frozen=True, slots=True)
class _Entry:
    """Size and age of one entry."""

    folder: Path
    size: int
    used: float
    """Time of its last use, seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """The note beside an artifact."""

    artifact_sha256: str
    kernels: tuple[KernelCode, ...]
    log_tail: str


def _read_note(path: Path) -> _Note:
    """Read the note at ``path``.

    Raises:
        ValueError, KeyError, TypeError: If it is no note of this version.
    """
    data = read_object(path)
    if data["version"] != _VERSION:
        raise ValueError(f"a note of version {data['version']}")
    kernels = tuple(from_json(KernelCode, kernel) for kernel in data["kernels"])
    return _Note(artifact_sha256=data["artifact_sha256"], kernels=kernels, log_tail=data["log_tail"])


def _remove(entry: Path) -> None:
    """Rename an entry away, then delete it, so that no reader finds half of it."""
    with suppress(OSError):
        aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=entry.parent))
        with suppress(OSError):
            entry.rename(aside / entry.name)
        shutil.rmtree(aside, ignore_errors=True)
