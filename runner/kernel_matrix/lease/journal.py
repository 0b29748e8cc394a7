"""Journal of GPU settings: written to disk before a setting is made, removed once it is undone.

Each GPU has one file beside its lock file, ``<uuid>.settings.json``, which only the holder of that lock writes. If a
runner is killed, the file stays, and the next holder of the lock undoes the settings
(:mod:`kernel_matrix.lease.repair`).

The folder may be shared by all users. A file that another user wrote is trusted for one thing only: that something was
set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from threading import Lock
from typing import Any

from kernel_matrix.errors import GpuSettingError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.inside.atomic_write import replace_file, sync_folder
from kernel_matrix.lease.locks import lock_file
from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.model.messages import dumps, from_json
from kernel_matrix.platforms import ComputeMode, Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.untrusted_json import NoSuchFileError, UntrustedJsonError, parse_object, read_bytes

SM, MEMORY, COMPUTE_MODE = "sm", "memory", "compute_mode"
"""Parts of a journal."""

_ENDING = ".settings.json"
_ASIDE = ".new"
"""Suffix of a journal while it is being written."""
_LONGEST_BYTES = 65_536
"""Limit of a journal, far above the size of a real one; bounds what another user's file can cost."""
_ONE_AT_A_TIME = Lock()  # clocks and compute mode of one GPU are noted by different threads of its holder


class UnreadableJournalError(ValueError):
    """A journal exists, but cannot be understood or must not be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockNote:
    """A clock that is locked or about to be locked."""

    target_mhz: int | None
    """The locked clock; ``None`` for the driver's symbolic clock, which has no number."""
    before_mhz: int | None
    """The clock before; ``None`` if the driver does not give it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Settings that one runner has made or was about to make on one GPU. A part that is ``None`` was not touched."""

    vendor: str
    uuid: str
    name: str
    owner: str
    """Token of the responsible process (:mod:`kernel_matrix.hosts.process_token`)."""
    run_id: str
    cell_id: str
    noted_at: str
    """UTC, RFC 3339."""
    sm: ClockNote | None = None
    memory: ClockNote | None = None
    compute_mode: ComputeMode | None = None
    """Mode to restore; ``None`` if the mode was not touched."""

    @property
    def is_empty(self) -> bool:
        """``True`` if nothing is left to undo."""
        return self.sm is None and self.memory is None and self.compute_mode is None


def journal_file(folder: Path, uuid: str) -> Path:
    """Return the path of the journal of the GPU ``uuid``, in the folder of the lock files."""
    return lock_file(folder, uuid).with_suffix(_ENDING)


def journal_files(folder: Path) -> list[Path]:
    """Return the paths of all journals in ``folder``, by name."""
    return sorted(folder.glob(f"*{_ENDING}"))


def half_written_files(folder: Path) -> list[Path]:
    """Return the temporary files beside the journals in ``folder``, current ones or those of killed writers."""
    return sorted(folder.glob(f"*{Path(_ENDING).stem}{_ASIDE}"))


def read_journal(folder: Path, uuid: str) -> Journal | None:
    """Return the journal of the GPU ``uuid``; ``None`` if there is none.

    Raises:
        UnreadableJournalError: It is not a valid journal, or neither this user nor root wrote it.
    """
    try:
        text = read_bytes(journal_file(folder, uuid), max_bytes=_LONGEST_BYTES, own=True)
    except NoSuchFileError:
        return None
    except UntrustedJsonError as error:
        raise UnreadableJournalError(error.reason) from error
    try:
        journal = _parsed(parse_object(text))
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableJournalError(f"cannot be understood: {error}") from error
    if journal.uuid != uuid:
        raise UnreadableJournalError(f"speaks of another GPU, {journal.uuid}")
    return journal


def note(gpu: Gpu, terms: LeaseTerms, folder: Path, part: str, value: ClockNote | ComputeMode) -> None:
    """Add a setting that is about to be made on ``gpu`` to its journal. It is on disk when this returns.

    Args:
        gpu: The device.
        terms: Conditions of the lease.
        folder: Folder of the lock files.
        part: :data:`SM`, :data:`MEMORY` or :data:`COMPUTE_MODE`.
        value: A clock, or the compute mode to restore later.

    Raises:
        GpuSettingError: It cannot be written; then nothing may be set.
    """
    with _ONE_AT_A_TIME, _on_disk(gpu, folder):
        journal = read_journal(folder, gpu.uuid) or _blank(gpu, terms)
        noted = replace(journal, **{part: value})  # type: ignore[arg-type]  # the part is one of the three
        _write(journal_file(folder, gpu.uuid), noted)


def forget(gpu: Gpu, folder: Path, *parts: str) -> None:
    """Remove ``parts`` from the journal of ``gpu``; an empty journal is deleted.

    Raises:
        GpuSettingError: The file cannot be changed.
    """
    with _ONE_AT_A_TIME, _on_disk(gpu, folder):
        journal = read_journal(folder, gpu.uuid)
        if journal is None:
            return
        left = replace(journal, **dict.fromkeys(parts))  # type: ignore[arg-type]  # parts may be null
        path = journal_file(folder, gpu.uuid)
        _remove(path) if left.is_empty else _write(path, left)


def discard(gpu: Gpu, folder: Path) -> None:
    """Delete the journal of ``gpu``, whatever its content.

    Raises:
        GpuSettingError: It cannot be deleted.
    """
    with _ONE_AT_A_TIME, _on_disk(gpu, folder):
        _remove(journal_file(folder, gpu.uuid))


def _blank(gpu: Gpu, terms: LeaseTerms) -> Journal:
    return Journal(
        vendor=get_platform(gpu.platform).VENDOR,
        uuid=gpu.uuid,
        name=gpu.name,
        owner=terms.owner or owner_token(),
        run_id=terms.run_id,
        cell_id=terms.cell_id,
        noted_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _parsed(document: Any) -> Journal:
    mode = document["compute_mode"]
    notes = {part: document[part] and from_json(ClockNote, document[part]) for part in ("sm", "memory")}
    return from_json(Journal, {**document, **notes, "compute_mode": None if mode is None else ComputeMode(mode)})


@contextmanager
def _on_disk(gpu: Gpu, folder: Path) -> Iterator[None]:
    """Convert errors with the journal's file into the error that prevents a setting."""
    path = journal_file(folder, gpu.uuid)
    try:
        yield
    except UnreadableJournalError as error:
        raise GpuSettingError(
            f"{path} {error}, so what is set on {gpu.uuid} ({gpu.name}) cannot be kept track of",
            next_step="Run `kernel-matrix sweep` as the user who may change GPU settings.",
        ) from error
    except OSError as error:
        raise GpuSettingError(
            f"{path}, which says what must be given back on {gpu.uuid} ({gpu.name}), cannot be written: "
            f"{error.strerror}",
            next_step=f"Make room or give write access in {folder}.",
        ) from error


def _write(path: Path, journal: Journal) -> None:
    # The GPU's lock admits one writer. Others may read what was set and by whom, whatever the umask is.
    replace_file(path, dumps(journal), aside=path.with_suffix(_ASIDE), mode=0o644)
    sync_folder(path.parent)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    sync_folder(path.parent)
