"""Clocks that are locked while a device is held, and always reset.

Every setting is written to the journal first (:mod:`kernel_matrix.lease.journal`). A lock is only a request: telemetry
shows if the device keeps it under load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.errors import GpuSettingError
from kernel_matrix.lease.clock_targets import BASE, NONE, OFF, ClockTarget, memory_target, sm_target
from kernel_matrix.lease.journal import MEMORY, SM, ClockNote, forget, note
from kernel_matrix.lease.restore import CLOCK_NAMES, ResetState, read_clocks, reset_clocks, settings_of
from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.model.enums import ClockPolicy
from kernel_matrix.platforms import ClockChoices, DeviceSettings, Gpu
from kernel_matrix.platforms.registry import get_platform

__all__ = ["ClocksSet", "ResetState", "clocks_held"]


@dataclass(slots=True, kw_only=True)
class ClocksSet:
    """Clock settings of a device, filled in while :func:`clocks_held` runs. Frequencies in MHz."""

    policy: ClockPolicy
    requested: str = NONE
    """``none``, ``base``, ``max`` or a number, as the policy says for this device."""
    requested_memory: str = OFF
    """``off``, ``max`` or a number."""
    set_sm_mhz: int | None = None
    """The locked clock; ``None`` if nothing was locked, or for a symbolic clock without a known number."""
    set_memory_mhz: int | None = None
    locked: bool = False
    """``True`` if the driver accepted the lock of the SM clock."""
    reason: str = ""
    """Description of the settings, or the reason why there are none."""
    reset: ResetState = ResetState.NOT_NEEDED
    reset_reason: str = ""


@contextmanager
def clocks_held(gpu: Gpu, terms: LeaseTerms, folder: Path) -> Iterator[ClocksSet]:
    """Lock the clocks of ``gpu`` as ``terms`` ask, and reset them when the context is left.

    Leaving the context never raises: a failed reset is reported in :attr:`ClocksSet.reset`, and the journal stays for a
    repair.

    Args:
        gpu: The device.
        terms: Conditions of the lease.
        folder: Folder of the lock files; the caller holds this device's lock.

    Raises:
        GpuSettingError: The policy requires locked clocks and they cannot be locked; nothing is left set.
        InfrastructureError: The device does not answer at all.
    """
    held = ClocksSet(policy=terms.clocks)
    if reason := _why_not_locked(gpu, terms):
        held.reason = reason
        yield held
        return
    lock = _ClockLock(gpu, terms, folder, held)
    with get_platform(gpu.platform).opened():  # an unloaded driver forgets its settings
        try:
            lock.apply()
            yield held
        finally:
            lock.undo()


class _ClockLock:
    """Lock and reset of the clocks of one device."""

    def __init__(self, gpu: Gpu, terms: LeaseTerms, folder: Path, held: ClocksSet) -> None:
        self._gpu = gpu
        self._terms = terms
        self._folder = folder
        self._held = held
        self._to_reset: dict[str, ClockNote] = {}

    def apply(self) -> None:
        """Lock the requested clocks. A failure is recorded, or raised if the policy requires the lock.

        Raises:
            GpuSettingError: See :func:`clocks_held`.
        """
        choices = get_platform(self._gpu.platform).clock_choices(self._gpu)
        try:
            done = self._lock_all(choices)
        except GpuSettingError as error:
            self._refused(error)
        else:
            self._held.locked = True
            self._held.reason = done

    def undo(self) -> None:
        """Reset the clocks that were set. Never raises."""
        if not self._to_reset:
            return
        undone = reset_clocks(self._gpu, self._to_reset)
        self._held.reset, self._held.reset_reason = undone.state, undone.reason
        if undone.state is ResetState.FAILED:
            return
        try:
            forget(self._gpu, self._folder, *self._to_reset)
        except GpuSettingError as error:
            self._held.reset_reason += f"; {error.what}"
        self._to_reset.clear()

    def _lock_all(self, choices: ClockChoices) -> str:
        """Lock both clocks and return a description."""
        sm = sm_target(self._gpu, self._terms, choices)
        memory = memory_target(self._gpu, self._terms, choices)
        self._held.requested, self._held.requested_memory = sm.requested, memory.requested
        settings = settings_of(self._gpu)
        if trouble := sm.trouble or memory.trouble:
            raise GpuSettingError(trouble)
        before = read_clocks(self._gpu)
        done = self._lock_sm(settings, sm, before[SM])
        return f"{done}; {self._lock_memory(settings, memory, before[MEMORY])}"

    def _lock_sm(self, settings: DeviceSettings, target: ClockTarget, before_mhz: int | None) -> str:
        noted = ClockNote(target_mhz=target.megahertz, before_mhz=before_mhz)
        symbolic = target.requested == BASE
        try:
            self._set(SM, noted, lambda: settings.lock_sm_clock(self._gpu, None if symbolic else target.megahertz))
        except GpuSettingError as error:
            if not symbolic or target.megahertz is None or _is_forbidden(error):
                raise
            self._set(SM, noted, lambda: settings.lock_sm_clock(self._gpu, target.megahertz))
        self._held.set_sm_mhz = target.megahertz
        return _describe_lock(SM, target)

    def _lock_memory(self, settings: DeviceSettings, target: ClockTarget, before_mhz: int | None) -> str:
        megahertz = target.megahertz
        if megahertz is None:
            return "memory clock left to the driver"
        noted = ClockNote(target_mhz=megahertz, before_mhz=before_mhz)
        try:
            self._set(MEMORY, noted, lambda: settings.lock_memory_clock(self._gpu, megahertz))
        except GpuSettingError as error:
            if error.supported:
                raise
            return f"memory clock left to the driver: {error.what}"
        self._held.set_memory_mhz = megahertz
        return _describe_lock(MEMORY, target)

    def _set(self, which: str, noted: ClockNote, call: Callable[[], None]) -> None:
        """Journal, then call. After an error there is nothing to reset only if it proves that nothing was changed."""
        note(self._gpu, self._terms, self._folder, which, noted)
        self._to_reset[which] = noted
        try:
            call()
        except GpuSettingError as error:
            if not (error.permitted and error.supported):
                del self._to_reset[which]
                forget(self._gpu, self._folder, which)
            raise

    def _refused(self, error: GpuSettingError) -> None:
        self.undo()
        self._held.set_sm_mhz = self._held.set_memory_mhz = None
        self._held.reason = f"nothing is locked: {error.what}"
        if self._terms.clocks is not ClockPolicy.REQUIRE:
            return
        failed = self._held.reset is ResetState.FAILED
        undoing = f"; undoing what was set failed too: {self._held.reset_reason}" if failed else ""
        raise GpuSettingError(
            f"the policy requires locked clocks on {self._gpu.uuid} ({self._gpu.name}), and they could not be locked: "
            f"{error.what}{undoing}",
            next_step=error.next_step or "Let this host lock them, or set policy.clocks to 'lock' or 'observe'.",
            permitted=error.permitted,
            supported=error.supported,
        ) from error


def _why_not_locked(gpu: Gpu, terms: LeaseTerms) -> str:
    """Return the reason why no clock is to be locked; empty if one is."""
    if get_platform(gpu.platform).settings() is None:
        return f"a {get_platform(gpu.platform).TITLE}'s clock is not the runner's to lock"
    return "policy observe: nothing was changed" if terms.clocks is ClockPolicy.OBSERVE else ""


def _is_forbidden(error: GpuSettingError) -> bool:
    return error.supported and not error.permitted


def _describe_lock(which: str, target: ClockTarget) -> str:
    if target.requested == BASE:
        known = "" if target.megahertz is None else f", {target.megahertz} MHz"
        return f"{CLOCK_NAMES[which]} locked to the driver's base clock{known}"
    asked = "" if target.requested == str(target.megahertz) else f" (asked for: {target.requested})"
    return f"{CLOCK_NAMES[which]} locked to {target.megahertz} MHz{asked}"
