"""Limits per AMD architecture, and what they refuse."""

from __future__ import annotations

import pytest

from kernel_matrix.platforms.rocm.block_limits import known_limits, limits_of


def test_every_row_is_whole() -> None:
    for name, limits in known_limits().items():
        assert limits.compute_capability == name
        assert limits.wave_size in (32, 64)
        assert limits.shared_bytes <= limits.shared_bytes_of_unit
        assert limits.registers_per_lane % limits.register_unit == 0
        assert limits.source
        assert limits.confidence in ("documented", "recalled")


def test_an_unknown_architecture_has_no_limits() -> None:
    assert limits_of("gfx9999") is None
    assert limits_of(None) is None


@pytest.mark.parametrize(
    ("name", "registers", "shared_bytes", "why"),
    [
        ("gfx942", 512, 65536, ""),
        ("gfx942", 512, 65537, "65537 bytes of LDS"),
        ("gfx950", 512, 163840, ""),
        ("gfx942", 513, 0, "513 vector registers"),
    ],
)
def test_what_cannot_be_launched(name: str, registers: int, shared_bytes: int, why: str) -> None:
    limits = limits_of(name)
    assert limits is not None
    found = limits.launch_failure_reason(registers=registers, shared_bytes=shared_bytes)
    assert bool(found) is bool(why)
    assert why in found


@pytest.mark.parametrize(
    ("name", "registers", "shared_bytes", "threads", "share"),
    [
        ("gfx942", 64, 0, 256, 1.0),  # 8 wavefronts on each SIMD
        ("gfx942", 65, 0, 256, 0.875),  # 72 registers are allocated: 7 wavefronts
        ("gfx942", 64, 32768, 256, 0.25),  # 2 workgroups of 4 wavefronts
        ("gfx950", 64, 32768, 256, 0.625),  # 5 workgroups
        ("gfx1100", 104, 0, 128, 0.75),  # 120 registers are allocated: 12 of 16 wavefronts
        ("gfx942", 64, 65537, 256, 0.0),  # does not fit at all
    ],
)
def test_occupancy_is_that_of_the_scarcest(name, registers, shared_bytes, threads, share) -> None:
    limits = limits_of(name)
    assert limits is not None
    assert limits.occupancy(registers=registers, shared_bytes=shared_bytes, threads=threads) == pytest.approx(share)
