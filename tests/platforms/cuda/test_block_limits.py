"""Limits per compute capability, and what they refuse."""

from __future__ import annotations

import pytest

from kernel_matrix.platforms.cuda.block_limits import known_limits, launch_failure_reason, limits_of, occupancy


def test_every_row_is_whole() -> None:
    for capability, limits in known_limits().items():
        assert limits.compute_capability == capability
        assert 48 << 10 <= limits.shared_bytes <= 228 << 10
        assert limits.source
        assert limits.confidence in ("documented", "recalled")


def test_the_table_has_what_compile_only_cells_are_asked_for() -> None:
    assert {"7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"} <= known_limits().keys()


def test_features_of_an_architecture_change_no_limit() -> None:
    assert limits_of("9.0a") == limits_of("9.0")
    assert limits_of("99.0") is None


@pytest.mark.parametrize(
    ("capability", "registers", "shared_bytes", "threads", "why"),
    [
        ("7.5", 32, 65536, 32, ""),
        ("7.5", 32, 65537, 32, "65537 bytes of shared memory"),
        ("9.0", 32, 200_000, 32, ""),
        ("12.0", 32, 200_000, 32, "200000 bytes of shared memory"),
        ("9.0", 64, 0, 1024, ""),
        ("9.0", 65, 0, 1024, "66560 registers"),
        ("99.9", 255, 1 << 30, 1024, ""),
    ],
)
def test_what_cannot_be_launched(capability: str, registers: int, shared_bytes: int, threads: int, why: str) -> None:
    found = launch_failure_reason(capability, registers=registers, shared_bytes=shared_bytes, threads=threads)
    assert bool(found) is bool(why)
    assert why in found


@pytest.mark.parametrize(
    ("capability", "registers", "shared_bytes", "threads", "share"),
    [
        ("9.0", 32, 0, 256, 1.0),  # 8 blocks of 8 warps: all 64 warps
        ("9.0", 33, 0, 256, 0.75),  # 40 registers are allocated: 12 warps in each quarter
        ("9.0", 128, 8192, 128, 0.25),
        ("9.0", 255, 0, 128, 0.125),
        ("9.0", 32, 24576, 128, 0.5625),  # 9 blocks, each with a reserved KiB
        ("9.0", 16, 0, 32, 0.5),  # 32 blocks of one warp
        ("8.6", 32, 0, 256, 1.0),  # 48 warps
        ("8.6", 64, 50_000, 128, 4 / 48 * 2),
        ("9.0", 32, 300_000, 128, 0.0),  # does not fit at all
        ("99.9", 32, 0, 128, None),
    ],
)
def test_occupancy_is_that_of_the_scarcest(capability, registers, shared_bytes, threads, share) -> None:
    found = occupancy(capability, registers=registers, shared_bytes=shared_bytes, threads=threads)
    assert found == pytest.approx(share)
