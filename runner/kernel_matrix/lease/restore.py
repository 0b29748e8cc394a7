"""Access to a device's settings, and reset of its clocks with proof that it worked.

The driver does not say which clocks are locked. Therefore the clock itself is watched after a reset: if it was at its
locked value and then leaves it, the lock is certainly gone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kernel_matrix.errors import GpuSettingError, InfrastructureError
from kernel_matrix.lease.journal import MEMORY, SM, ClockNote
from kernel_matrix.platforms import DeviceSettings, Gpu
from kernel_matrix.platforms.permission import why_forbidden
from kernel_matrix.platforms.registry import get_platform

CLOCK_NAMES = {SM: "SM clock", MEMORY: "memory clock"}

_READ_EVERY_S = 0.02  # several readings within _READ_FOR_S
_READ_FOR_S = 0.5  # no longer, because some clocks never show that they are free
_SAME_MHZ = 15
_SAME_SHARE = 0.01
"""Two readings of a constant clock differ by no more than the smaller of these."""


class ResetState(str, Enum):
    """State of a device's settings after they were undone."""

    NOT_NEEDED = "not_needed"
    """Nothing was set."""
    CONFIRMED = "confirmed"
    """Undone, and confirmed by a reading."""
    UNCONFIRMED = "unconfirmed"
    """The driver accepted it, but no reading could confirm it."""
    FAILED = "failed"
    """They are still in force, or may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetResult:
    """Result of undoing a setting."""

    state: ResetState
    reason: str
    """Explanation of the state."""
    error: InfrastructureError | None = None
    """Error that made it fail."""


def settings_of(gpu: Gpu) -> DeviceSettings:
    """Return the access to the settings of ``gpu``. Call it before journalling: unsupported settings need no entry.

    Raises:
        GpuSettingError: Nothing can be set, or this host forbids it.
    """
    settings = get_platform(gpu.platform).settings()
    if settings is None:
        raise GpuSettingError("nothing can be set on devices of this kind", permitted=False, supported=False)
    if forbidden := why_forbidden():
        raise GpuSettingError(f"this host forbids it: {forbidden}", permitted=False)
    return settings


def reset_clocks(gpu: Gpu, notes: Mapping[str, ClockNote]) -> ResetResult:
    """Reset the clocks in ``notes`` (:data:`SM`, :data:`MEMORY`) on ``gpu`` and watch them change. Never raises.

    A clock that this device cannot lock needs no reset.
    """
    try:
        with get_platform(gpu.platform).opened():  # open once instead of for each reading
            return _reset_and_watch(gpu, notes)
    except InfrastructureError as error:
        return ResetResult(state=ResetState.FAILED, reason=error.what, error=error)


def read_clocks(gpu: Gpu) -> dict[str, int | None]:
    """Return the SM and memory clock in MHz; ``None`` if the device does not give it."""
    try:
        sm_mhz, memory_mhz = get_platform(gpu.platform).clocks(gpu)
    except InfrastructureError:
        sm_mhz = memory_mhz = None
    return {SM: sm_mhz, MEMORY: memory_mhz}


def _reset_and_watch(gpu: Gpu, notes: Mapping[str, ClockNote]) -> ResetResult:
    held_at = read_clocks(gpu)
    reset: dict[str, ClockNote] = {}
    failures: list[InfrastructureError] = []
    for which, one in notes.items():
        try:
            if _reset(gpu, which):
                reset[which] = one
        except InfrastructureError as error:  # noqa: PERF203  # a failure must not stop the reset of the other clock
            failures.append(error)
    if failures:
        reason = "; ".join(error.what for error in failures)
        return ResetResult(state=ResetState.FAILED, reason=reason, error=failures[0])
    if not reset:
        return ResetResult(state=ResetState.NOT_NEEDED, reason="this device has no locked clocks")
    return _watch_release(gpu, {which: _ClockWatch(which, one, held_at[which]) for which, one in reset.items()})


def _reset(gpu: Gpu, which: str) -> bool:
    """Reset one clock; return ``False`` if the device has no such lock.

    Raises:
        InfrastructureError: It was not reset.
    """
    settings = get_platform(gpu.platform).settings()
    if settings is None:
        return False
    call = settings.reset_sm_clock if which == SM else settings.reset_memory_clock
    try:
        call(gpu)
    except GpuSettingError as error:
        if error.supported:
            raise
        return False
    return True


def _watch_release(gpu: Gpu, clocks: Mapping[str, _ClockWatch]) -> ResetResult:
    """Read ``clocks`` until each that can confirm its reset has done so, or the time is over."""
    until = time.monotonic() + _READ_FOR_S
    while True:
        now = read_clocks(gpu)
        for which, clock in clocks.items():
            clock.add_reading(now[which])
        if time.monotonic() >= until or not any(clock.is_awaited for clock in clocks.values()):
            break
        time.sleep(_READ_EVERY_S)
    # A memory clock that is the same with and without a lock shows nothing; that must not prevent confirmation.
    seen = [clock for which, clock in clocks.items() if which == SM or clock.differed or clock.left]
    confirmed = bool(seen) and all(clock.left for clock in seen)
    state = ResetState.CONFIRMED if confirmed else ResetState.UNCONFIRMED
    return ResetResult(state=state, reason="; ".join(clock.description for clock in clocks.values()))


class _ClockWatch:
    """One clock after its reset, watched until it leaves its locked value.

    Args:
        which: :data:`SM` or :data:`MEMORY`.
        noted: The clock's entry in the journal.
        held_at_mhz: The clock just before the reset; ``None`` if unknown.
    """

    def __init__(self, which: str, noted: ClockNote, held_at_mhz: int | None) -> None:
        self._name = CLOCK_NAMES[which]
        self._which = which
        self._noted = noted
        self._held_at_mhz = held_at_mhz
        locked_mhz = held_at_mhz if noted.target_mhz is None else noted.target_mhz
        self.differed = noted.before_mhz is not None and not _same(noted.before_mhz, locked_mhz)
        """``True`` if the clock is known to have been different before the lock."""
        self.left: int | None = None
        """First reading away from the locked value; ``None`` until there is one."""
        self._last_mhz = held_at_mhz
        self._unconfirmable = self._why_unconfirmable()

    @property
    def is_awaited(self) -> bool:
        """``True`` if further readings may confirm the reset."""
        return not self.left and not self._unconfirmable and (self._which == SM or self.differed)

    @property
    def description(self) -> str:
        """Description of the readings."""
        if self.left:
            return f"the {self._name} left {self._held_at_mhz} MHz for {self.left} MHz"
        if self._unconfirmable:
            return f"{self._unconfirmable}, so no reading could tell"
        seen = {"the lock": self._noted.before_mhz, "the reset": self._held_at_mhz}
        before = ", ".join(f"{clock} MHz before {event}" for event, clock in seen.items() if clock is not None)
        return f"the {self._name} was {before}, and {self._last_mhz} MHz after it"

    def add_reading(self, now_mhz: int | None) -> None:
        """Add a reading."""
        if self.left or self._unconfirmable or now_mhz is None:
            return
        target = self._noted.target_mhz
        left = not _same(now_mhz, target) if target is not None else _same(now_mhz, self._noted.before_mhz)
        self.left = now_mhz if left else None
        self._last_mhz = now_mhz

    def _why_unconfirmable(self) -> str:
        """Return the reason why no reading after the reset can confirm it; empty if one can."""
        held_at, target = self._held_at_mhz, self._noted.target_mhz
        if held_at is None:
            return f"the driver does not give the {self._name}"
        if target is not None and not _same(held_at, target):
            return f"the {self._name} was {held_at} MHz before the reset already, not {target} MHz"
        if target is None and not self.differed:
            return f"the {self._name} is not known to have been other than {held_at} MHz before the lock"
        return ""


def _same(one_mhz: int | None, other_mhz: int | None) -> bool:
    if one_mhz is None or other_mhz is None:
        return False
    return abs(one_mhz - other_mhz) <= min(_SAME_MHZ, _SAME_SHARE * other_mhz)
