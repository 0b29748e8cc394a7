"""Hard mode: the driver refuses new processes on a device (EXCLUSIVE_PROCESS) while the cell's processes use it.

The mode does not affect processes that already use the device, and a cell has several. Therefore it is engaged only
when all of them have started, and ended before the next ones start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from kernel_matrix.errors import GpuSettingError, InfrastructureError
from kernel_matrix.lease.journal import COMPUTE_MODE, forget, note
from kernel_matrix.lease.restore import ResetResult, ResetState, settings_of
from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.platforms import ComputeMode, Gpu
from kernel_matrix.platforms.registry import get_platform


class ExclusiveMode:
    """Hard mode of one device. Created by :func:`refusing_others`."""

    def __init__(self, gpu: Gpu, terms: LeaseTerms, folder: Path) -> None:
        self._gpu = gpu
        self._terms = terms
        self._folder = folder
        self._lock = Lock()
        self._over = not terms.hard_exclusive
        self._previous: ComputeMode | None = None
        self.engaged = False
        """``True`` if the driver refuses new processes, or did until the end."""
        self.trouble = ""
        """Description of errors; empty if there are none."""
        self.restored = ResetState.NOT_NEEDED
        """State of the reset of the compute mode."""

    def engage(self) -> None:
        """Let the driver refuse new processes from now on. Any thread may call it repeatedly; it tries only once.

        A failure is reported in :attr:`trouble`. Without a policy of hard mode this does nothing.
        """
        with self._lock:
            if self._over or self.engaged or self.trouble:
                return
            try:
                self._engage()
            except InfrastructureError as error:
                self.trouble = error.what

    def end(self) -> None:
        """Restore the earlier mode if it was changed, and prevent further changes. Never raises."""
        with self._lock:
            self._over = True
            if self._previous is None:
                return
            undone = restore_mode(self._gpu, self._previous)
            self.restored = undone.state
            if undone.state is ResetState.FAILED:
                self._add_trouble(f"the compute mode could not be put back: {undone.reason}")
                return
            self._previous = None
            try:
                forget(self._gpu, self._folder, COMPUTE_MODE)
            except GpuSettingError as error:
                self._add_trouble(error.what)

    def _engage(self) -> None:
        settings = settings_of(self._gpu)
        mode = get_platform(self._gpu.platform).modes(self._gpu).compute_mode
        if mode is not ComputeMode.EXCLUSIVE_PROCESS:
            self._previous = self._journal_mode(mode)  # set first: if the driver refuses, end() checks the mode
            settings.set_compute_mode(self._gpu, ComputeMode.EXCLUSIVE_PROCESS)
        self.engaged = True

    def _journal_mode(self, mode: ComputeMode | None) -> ComputeMode:
        """Return ``mode`` after journalling it; only the open mode may be narrowed."""
        if mode is not ComputeMode.DEFAULT:
            raise GpuSettingError(f"the compute mode of {self._gpu.uuid} is {_describe(mode)}, and is left so")
        note(self._gpu, self._terms, self._folder, COMPUTE_MODE, mode)
        return mode

    def _add_trouble(self, what: str) -> None:
        self.trouble = "; ".join(filter(None, (self.trouble, what)))


@contextmanager
def refusing_others(gpu: Gpu, terms: LeaseTerms, folder: Path) -> Iterator[ExclusiveMode]:
    """Provide the hard mode of ``gpu``, to be engaged inside; restore the compute mode at the end without raising.

    Args:
        gpu: The device.
        terms: Conditions of the lease.
        folder: Folder of the lock files; the caller holds this device's lock.
    """
    mode = ExclusiveMode(gpu, terms, folder)
    try:
        yield mode
    finally:
        mode.end()


def restore_mode(gpu: Gpu, previous: ComputeMode) -> ResetResult:
    """Set ``gpu`` back to ``previous`` if it is in hard mode, and read it back. Never raises."""
    try:
        return _restore(gpu, previous)
    except InfrastructureError as error:
        return ResetResult(state=ResetState.FAILED, reason=error.what, error=error)


def _restore(gpu: Gpu, previous: ComputeMode) -> ResetResult:
    library = get_platform(gpu.platform)
    settings, now = library.settings(), library.modes(gpu).compute_mode
    hard = ComputeMode.EXCLUSIVE_PROCESS
    if settings is None or now is not hard or previous is hard:
        # Another process has set any other mode since, so leave it.
        return ResetResult(state=ResetState.NOT_NEEDED, reason=f"the compute mode is {_describe(now)}")
    settings.set_compute_mode(gpu, previous)
    now = library.modes(gpu).compute_mode
    state = ResetState.CONFIRMED if now is previous else ResetState.FAILED
    return ResetResult(state=state, reason=f"the compute mode is {_describe(now)}")


def _describe(mode: ComputeMode | None) -> str:
    return "unknown" if mode is None else mode.value
