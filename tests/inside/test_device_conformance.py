"""The second process that arenas are shared with, and what is said when memory does not arrive there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside import device_conformance  # noqa: E402  # needs torch
from kernel_matrix.inside.device_conformance import ARENA_BYTES, measure, prove_arenas  # noqa: E402  # as above
from kernel_matrix.inside.device_measurements import ArenaProof  # noqa: E402  # as above
from kernel_matrix.inside.memory import Arena  # noqa: E402  # as above
from kernel_matrix.inside.platform import load_platform  # noqa: E402  # as above

CPU = load_platform("cpu")
pytestmark = pytest.mark.torch


class PrivateArena(Arena):
    """Memory whose descriptor leads somewhere else."""

    def __init__(self, nbytes):
        self._other = CPU.create_arena(nbytes)
        super().__init__(self._other.descriptor, torch.zeros(nbytes, dtype=torch.uint8))


def test_prove_arenas_shared_memory_is_read_both_ways():
    proofs, reason = prove_arenas(CPU, "cpu")
    assert reason == ""
    assert proofs == tuple(ArenaProof(nbytes, True, True) for nbytes in ARENA_BYTES)


def test_prove_arenas_private_memory_is_found_out(monkeypatch):
    # One byte may be right by chance.
    monkeypatch.setattr(device_conformance, "ARENA_BYTES", (4097, 8192))
    private = SimpleNamespace(create_arena=PrivateArena, release_memory=CPU.release_memory)
    proofs, reason = prove_arenas(private, "cpu")
    assert reason == ""
    assert proofs == tuple(ArenaProof(nbytes, False, False) for nbytes in (4097, 8192))


def test_prove_arenas_worker_that_fails_is_the_reason():
    proofs, reason = prove_arenas(CPU, "no_such_platform")
    assert proofs == ()
    assert "the worker ended with code 1" in reason
    assert "no_such_platform" in reason


def test_measure_cpu_has_work_in_order_and_no_cache():
    found = measure(CPU, "cpu", 0.05)
    assert [work.copies for work in found.works] == [4, 8, 16]
    assert (found.transport, found.cache_bytes, found.cold_read_ns) == ("memfd", 0, None)
    assert found.health.passed
