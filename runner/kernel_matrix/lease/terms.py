"""Conditions of a lease: wait, tolerated processes, clocks, and owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_matrix.model.enums import ClockPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """Requests of the holder of a device: the part of a matrix's policy that concerns the lease."""

    wait_s: float
    """Longest wait for other runners and foreign processes together, seconds."""
    exclusive: bool = True
    """``True``: start only when no foreign process is on the device. ``False``: only observe and record them."""
    require_proof: bool = False
    """``True``: refuse a device whose processes cannot be seen, as inside a container."""
    hard_exclusive: bool = False
    """``True``: let the driver refuse further processes during a session."""
    allow_mig: bool = False
    allow_mps: bool = False
    clocks: ClockPolicy = ClockPolicy.OBSERVE
    clock_target: str | int | Mapping[str, str | int] = "base"
    """As :attr:`kernel_matrix.matrix.Policy.clock_target`."""
    memory_clock: str | int | Mapping[str, str | int] = "auto"
    """As :attr:`kernel_matrix.matrix.Policy.memory_clock`."""
    owner: str = ""
    """Token (:mod:`.process_token`) of the process responsible for the device's settings; empty: this process."""
    run_id: str = ""
    cell_id: str = ""
