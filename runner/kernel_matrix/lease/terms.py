"""On what terms a device is held: the wait, the company allowed, the clocks, and for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_matrix.model.enums import ClockPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """What the holder of a device asks for. The policy of a matrix, as far as it is about holding a device."""

    wait_s: float
    """Seconds to wait at most, for other runners and for foreign processes together."""
    exclusive: bool = True
    """Begin only when no foreign process is on the device; false only looks and remembers."""
    hard_exclusive: bool = False
    """Also have the driver refuse further processes during a session."""
    allow_mig: bool = False
    allow_mps: bool = False
    clocks: ClockPolicy = ClockPolicy.OBSERVE
    clock_target: str | int | Mapping[str, str | int] = "base"
    """As :attr:`kernel_matrix.matrix.Policy.clock_target`."""
    memory_clock: str | int | Mapping[str, str | int] = "auto"
    """As :attr:`kernel_matrix.matrix.Policy.memory_clock`."""
    owner: str = ""
    """Token (:mod:`.process_token`) of the process that answers for what is set on the device; empty: this process."""
    run_id: str = ""
    cell_id: str = ""
