"""Undoing of settings that a dead runner left on a GPU, according to its journal.

If a journal cannot be read or trusted, anything may be set. Then both clocks are reset, and hard mode is ended if it is
on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.errors import GpuBusyError, GpuLostError, GpuSettingError, KernelMatrixError
from kernel_matrix.hosts.process_token import owner_alive, owner_token
from kernel_matrix.lease.exclusive_mode import restore_mode
from kernel_matrix.lease.journal import (
    COMPUTE_MODE,
    MEMORY,
    SM,
    ClockNote,
    Journal,
    UnreadableJournalError,
    discard,
    forget,
    half_written_files,
    journal_file,
    journal_files,
    read_journal,
)
from kernel_matrix.lease.locks import LeaseWait, lock_file, lock_folder, locked
from kernel_matrix.lease.restore import ResetResult, ResetState, reset_clocks
from kernel_matrix.platforms import ComputeMode, Gpu
from kernel_matrix.platforms.permission import why_forbidden
from kernel_matrix.platforms.registry import get_platform, host_inventory

_CLOCKS = "clocks"

NOT_REPAIRED = "not repaired: "
"""Prefix of those lines of :func:`sweep_gpus` that report settings still in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leftover:
    """Settings left on a GPU, and who made them."""

    whose: str
    """Description that follows "set by"."""
    clocks: Mapping[str, ClockNote]
    compute_mode: ComputeMode | None
    believed: bool = True
    """``False`` if the settings are not known."""


def repair(gpu: Gpu, folder: Path) -> list[str]:
    """Undo the settings in the journal of ``gpu`` and return a line for each; an absent journal gives no line.

    The owner named in the journal no longer holds the GPU, dead or alive, because the caller does.

    Args:
        gpu: The device.
        folder: Folder of the lock files; the caller holds this GPU's lock.

    Raises:
        GpuSettingError: A setting could not be undone, or this host forbids it. The journal stays.
        GpuLostError: The GPU no longer answers. The journal stays.
    """
    left = _find_leftover(gpu, folder)
    if left is None:
        return []
    if forbidden := why_forbidden():
        raise _still_set(gpu, folder, left, f"this host forbids changing it: {forbidden}", permitted=False)
    undone = dict(_undo(gpu, left))
    failed = [one for one in undone.values() if one.state is ResetState.FAILED]
    if not failed:
        discard(gpu, folder)
    elif left.believed:
        forget(gpu, folder, *_given_back(undone))
    for one in failed:
        if isinstance(one.error, GpuLostError):
            raise one.error
    if failed:
        refused = any(isinstance(one.error, GpuSettingError) and not one.error.permitted for one in failed)
        raise _still_set(gpu, folder, left, "; ".join(one.reason for one in failed), permitted=not refused)
    return [_line(gpu, left, part, one) for part, one in undone.items() if one.state is not ResetState.NOT_NEEDED]


def sweep_gpus(folder: Path | None = None) -> list[str]:
    """Repair every GPU of this host that has a journal and is not held, and return a line for each step.

    A GPU that cannot be repaired gets a line with the prefix :data:`NOT_REPAIRED`; the others are still repaired.

    Args:
        folder: Folder of the lock files; by default :func:`kernel_matrix.lease.locks.lock_folder`.
    """
    folder = folder or lock_folder()
    _remove_half_written(folder)
    journals = journal_files(folder)
    known = _known_gpus(folder) if journals else {}
    return [line for path in journals for line in _sweep(path, known.get(path))]


def _remove_half_written(folder: Path) -> None:
    """Remove temporary files of killed writers, under the GPU's lock because a living holder may be writing one."""
    for path in half_written_files(folder):
        lock = lock_file(folder, path.name.partition(".")[0])
        with suppress(KernelMatrixError, OSError), locked(lock, LeaseWait(path.name, limit_s=0)):
            path.unlink(missing_ok=True)


def _known_gpus(folder: Path) -> dict[Path, Gpu]:
    gpus = (gpu for inventory in host_inventory().values() for gpu in inventory.gpus)
    return {journal_file(folder, gpu.uuid): gpu for gpu in gpus}


def _sweep(path: Path, gpu: Gpu | None) -> list[str]:
    if gpu is None:
        return [f"{NOT_REPAIRED}{path} names settings of a GPU that this host does not have, or that does not answer"]
    wait = LeaseWait(f"{gpu.uuid} ({gpu.name})", limit_s=0)
    try:
        with locked(lock_file(path.parent, gpu.uuid), wait):
            return repair(gpu, path.parent)
    except GpuBusyError:
        return []  # the GPU is in use, so its settings belong to its holder
    except KernelMatrixError as error:
        return [f"{NOT_REPAIRED}{error}"]


def _find_leftover(gpu: Gpu, folder: Path) -> _Leftover | None:
    try:
        journal = read_journal(folder, gpu.uuid)
    except UnreadableJournalError as error:
        unknown = ClockNote(target_mhz=None, before_mhz=None)
        return _Leftover(
            whose=f"an unknown runner (its journal {journal_file(folder, gpu.uuid)} {error})",
            clocks={SM: unknown, MEMORY: unknown},
            compute_mode=ComputeMode.DEFAULT,
            believed=False,
        )
    if journal is None:
        return None
    clocks = {SM: journal.sm, MEMORY: journal.memory}
    return _Leftover(
        whose=_describe_owner(journal),
        clocks={which: noted for which, noted in clocks.items() if noted is not None},
        compute_mode=journal.compute_mode,
    )


def _describe_owner(journal: Journal) -> str:
    if journal.owner == owner_token():
        return f"an earlier cell ({journal.cell_id or 'unnamed'}) of this very run"
    state = "no longer holds the GPU" if owner_alive(journal.owner) else "is gone"
    return f"run {journal.run_id or 'without a name'} whose runner (process {journal.owner.split(':')[0]}) {state}"


def _undo(gpu: Gpu, left: _Leftover) -> Iterator[tuple[str, ResetResult]]:
    if left.clocks:
        yield _CLOCKS, reset_clocks(gpu, left.clocks)
    if left.compute_mode is not None:
        yield COMPUTE_MODE, restore_mode(gpu, left.compute_mode)


def _given_back(undone: Mapping[str, ResetResult]) -> list[str]:
    parts = {_CLOCKS: (SM, MEMORY), COMPUTE_MODE: (COMPUTE_MODE,)}
    return [part for name, one in undone.items() if one.state is not ResetState.FAILED for part in parts[name]]


def _line(gpu: Gpu, left: _Leftover, part: str, undone: ResetResult) -> str:
    what, done = ("clocks", "locked by {}, were") if part == _CLOCKS else ("compute mode", "set by {}, was")
    doubt = "" if undone.state is ResetState.CONFIRMED else ", but that is not confirmed"
    return f"{what} of {gpu.uuid} ({gpu.name}), {done.format(left.whose)} given back{doubt}: {undone.reason}"


def _still_set(gpu: Gpu, folder: Path, left: _Leftover, why: str, *, permitted: bool) -> GpuSettingError:
    by_hand = get_platform(gpu.platform).ADVICE["settings"].format(uuid=gpu.uuid)
    return GpuSettingError(
        f"settings of {gpu.uuid} ({gpu.name}), made by {left.whose}, are still in force: {why}",
        next_step=f"Run `kernel-matrix sweep` as a user who may change them, or do it by hand: {by_hand}, then remove "
        f"{journal_file(folder, gpu.uuid)}.",
        permitted=permitted,
    )
