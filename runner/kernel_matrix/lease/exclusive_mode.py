"""Hard mode: the driver itself refuses newcomers on a device (EXCLUSIVE_PROCESS) while ours are on it.

The mode lets stay who is there already, and a cell has several processes; so it is engaged only when all of them are on
the device, and given back before the next ones start.
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
    """The hard mode of one device. Made by :func:`refusing_others`."""

    def __init__(self, gpu: Gpu, terms: LeaseTerms, folder: Path) -> None:
        self._gpu = gpu
        self._terms = terms
        self._folder = folder
        self._lock = Lock()
        self._over = not terms.hard_exclusive
        self._previous: ComputeMode | None = None
        self.engaged = False
        """The driver refuses newcomers, or did until the end."""
        self.trouble = ""
        """What went wrong, in words."""
        self.restored = ResetState.NOT_NEEDED
        """Whether the compute mode is what it was before."""

    def engage(self) -> None:
        """Have the driver refuse newcomers from now on. May be called often, from any thread; tries once.

        A failure is told in :attr:`trouble`. Where the policy does not ask for hard mode, nothing is done.
        """
        with self._lock:
            if self._over or self.engaged or self.trouble:
                return
            try:
                self._engage()
            except InfrastructureError as error:
                self.trouble = error.what

    def end(self) -> None:
        """Put back the mode from before, if it was changed; nothing can be engaged any more. Does not raise."""
        with self._lock:
            self._over = True
            if self._previous is None:
                return
            undone = restore_mode(self._gpu, self._previous)
            self.restored = undone.state
            if undone.state is ResetState.FAILED:
                self._complain(f"the compute mode could not be put back: {undone.reason}")
                return
            self._previous = None
            try:
                forget(self._gpu, self._folder, COMPUTE_MODE)
            except GpuSettingError as error:
                self._complain(error.what)

    def _engage(self) -> None:
        settings = settings_of(self._gpu)
        mode = get_platform(self._gpu.platform).modes(self._gpu).compute_mode
        if mode is not ComputeMode.EXCLUSIVE_PROCESS:
            self._previous = self._noted(mode)  # also if the driver refuses: the end looks what the mode is
            settings.set_compute_mode(self._gpu, ComputeMode.EXCLUSIVE_PROCESS)
        self.engaged = True

    def _noted(self, mode: ComputeMode | None) -> ComputeMode:
        """``mode``, journalled; only the open mode is ever narrowed."""
        if mode is not ComputeMode.DEFAULT:
            raise GpuSettingError(f"the compute mode of {self._gpu.uuid} is {_in_words(mode)}, and is left so")
        note(self._gpu, self._terms, self._folder, COMPUTE_MODE, mode)
        return mode

    def _complain(self, what: str) -> None:
        self.trouble = "; ".join(filter(None, (self.trouble, what)))


@contextmanager
def refusing_others(gpu: Gpu, terms: LeaseTerms, folder: Path) -> Iterator[ExclusiveMode]:
    """A hard mode of ``gpu`` that can be engaged inside; leaving puts the compute mode back. Leaving never raises.

    :param folder: of the lock files; the caller holds this device's lock.
    """
    mode = ExclusiveMode(gpu, terms, folder)
    try:
        yield mode
    finally:
        mode.end()


def restore_mode(gpu: Gpu, previous: ComputeMode) -> ResetResult:
    """Set ``gpu`` back to ``previous`` where it is in hard mode, and read it back. Does not raise."""
    try:
        return _restore(gpu, previous)
    except InfrastructureError as error:
        return ResetResult(state=ResetState.FAILED, reason=error.what, error=error)


def _restore(gpu: Gpu, previous: ComputeMode) -> ResetResult:
    library = get_platform(gpu.platform)
    settings, now = library.settings(), library.modes(gpu).compute_mode
    hard = ComputeMode.EXCLUSIVE_PROCESS
    if settings is None or now is not hard or previous is hard:
        # Any other mode than ours was set by somebody else meanwhile, who will have had a reason.
        return ResetResult(state=ResetState.NOT_NEEDED, reason=f"the compute mode is {_in_words(now)}")
    settings.set_compute_mode(gpu, previous)
    now = library.modes(gpu).compute_mode
    state = ResetState.CONFIRMED if now is previous else ResetState.FAILED
    return ResetResult(state=state, reason=f"the compute mode is {_in_words(now)}")


def _in_words(mode: ComputeMode | None) -> str:
    return "not told" if mode is None else mode.value
