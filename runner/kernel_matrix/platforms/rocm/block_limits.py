"""Limits of a workgroup on the AMD GPUs of an architecture, from a table (``block_limits.toml``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernel_matrix.toml_text import parse_toml


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkgroupLimits:
    """One row of the table, whose head explains the fields."""

    compute_capability: str
    """LLVM's name of the architecture, ``gfx942``."""
    wave_size: int
    shared_bytes: int
    shared_bytes_of_unit: int
    simds: int
    registers_per_lane: int
    register_unit: int
    waves_per_simd: int
    compute_units: int
    source: str
    confidence: str

    def launch_failure_reason(self, *, registers: int, shared_bytes: int) -> str:
        """Return why a kernel could not be launched; empty if no reason is known.

        Args:
            registers: vector registers per thread.
            shared_bytes: LDS per workgroup.
        """
        if shared_bytes > self.shared_bytes:
            return (
                f"it needs {shared_bytes} bytes of LDS per workgroup, "
                f"and {self.compute_capability} has {self.shared_bytes}"
            )
        if registers > self.registers_per_lane:
            return (
                f"a thread needs {registers} vector registers, "
                f"and {self.compute_capability} has {self.registers_per_lane}"
            )
        return ""

    def occupancy(self, *, registers: int, shared_bytes: int, threads: int) -> float:
        """Return the share of a unit's wavefronts that a kernel's workgroups can fill at most; 0 if none fits.

        Args:
            registers: vector registers per thread, with those of matrix instructions.
            shared_bytes: LDS per workgroup.
            threads: threads per workgroup, at least 1.
        """
        waves = -(-threads // self.wave_size)
        allocated = max(1, -(-registers // self.register_unit)) * self.register_unit
        fitting = self.simds * min(self.waves_per_simd, self.registers_per_lane // allocated)
        groups = [fitting // waves]
        if shared_bytes:
            groups.append(self.shared_bytes_of_unit // shared_bytes)
        return min(groups) * waves / (self.simds * self.waves_per_simd)


@cache
def known_limits() -> dict[str, WorkgroupLimits]:
    """Return architecture → its limits, in the order of the table."""
    document = parse_toml(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {row["compute_capability"]: WorkgroupLimits(**row) for row in document["limits"]}


def limits_of(compute_capability: str | None) -> WorkgroupLimits | None:
    """Return the limits of an architecture; ``None`` if it is not in the table."""
    return known_limits().get(compute_capability or "")
