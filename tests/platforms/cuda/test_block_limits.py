"""Limits per compute capability, and what they refuse."""

from __future__ import annotations

import pytest

from kernel_matrix.platforms.cuda.block_limits import known_limits, launch_failure_reason, limits_of


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
    ("arch", "registers", "shared_bytes", "threads", "why"),
    [
        (75, 32, 65536, 32, ""),
        (75, 32, 65537, 32, "65537 bytes of shared memory"),
        (90, 32, 200_000, 32, ""),
        (120, 32, 200_000, 32, "200000 bytes of shared memory"),
        (90, 64, 0, 1024, ""),
        (90, 65, 0, 1024, "66560 registers"),
        (999, 255, 1 << 30, 1024, ""),
    ],
)
def test_what_cannot_be_launched(arch: int, registers: int, shared_bytes: int, threads: int, why: str) -> None:
    found = launch_failure_reason(arch=arch, registers=registers, shared_bytes=shared_bytes, threads=threads)
    assert bool(found) is bool(why)
    assert why in found
