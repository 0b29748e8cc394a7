"""The CUDA platform's memory functions, with torch's allocator and the driver's count replaced."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.platforms.cuda import inside
from kernel_matrix.platforms.cuda.inside.arenas import ARENAS

pytestmark = pytest.mark.torch

GIB = 1 << 30


class Allocator:
    """As much of ``torch.cuda`` as the platform asks, in bytes."""

    def __init__(self):
        self.free, self.total = 50 * GIB, 80 * GIB
        self.reserved, self.allocated, self.peak = 10 * GIB, 4 * GIB, 9 * GIB
        self.fraction = 1.0
        self.emptied = 0

    def install(self, patch):
        def reset():
            self.peak = self.allocated

        def empty():
            self.emptied += 1

        for name, replacement in {
            "mem_get_info": lambda: (self.free, self.total),
            "memory_reserved": lambda: self.reserved,
            "memory_allocated": lambda: self.allocated,
            "max_memory_allocated": lambda: self.peak,
            "reset_peak_memory_stats": reset,
            "empty_cache": empty,
            "set_per_process_memory_fraction": lambda share, _device: setattr(self, "fraction", share),
            "current_device": lambda: 0,
            "get_device_properties": lambda _index: type("Properties", (), {"total_memory": self.total}),
        }.items():
            patch.setattr(torch.cuda, name, replacement)


@pytest.fixture
def allocator(monkeypatch):
    monkeypatch.setattr(ARENAS, "_limits", {})
    monkeypatch.setattr(ARENAS, "mapped_bytes", {0: 2 * GIB, 1: 7 * GIB})
    made = Allocator()
    made.install(monkeypatch)
    return made


def test_own_memory_includes_arenas(allocator):
    assert inside.own_memory() == allocator.reserved + 2 * GIB
    assert inside.device_memory() == (50 * GIB, 80 * GIB)


def test_take_peak_is_beyond_what_is_in_use_and_begins_anew(allocator):
    assert inside.take_peak() == 5 * GIB
    assert inside.take_peak() == 0


def test_free_bytes_has_idle_memory_of_the_cache(allocator):
    assert inside.free_bytes() == 56 * GIB


def test_limit_memory_leaves_room_for_arenas(allocator):
    inside.limit_memory(24 * GIB)
    assert allocator.fraction == pytest.approx(22 / 80)
    assert inside.free_bytes() == (22 - 10 + 6) * GIB
    ARENAS.count(4 * GIB, 0)  # one more is mapped
    assert allocator.fraction == pytest.approx(18 / 80)
    ARENAS.count(-6 * GIB, 0)
    assert allocator.fraction == pytest.approx(24 / 80)
    inside.limit_memory(200 * GIB)
    assert allocator.fraction == 1.0


@pytest.mark.parametrize(("free", "emptied"), [(50, 0), (19, 1)])
def test_release_memory_empties_if_little_is_free(free, emptied, allocator):
    allocator.free = free * GIB
    inside.release_memory(0.25)
    assert allocator.emptied == emptied


@pytest.mark.parametrize(("reserved", "emptied"), [(23, 0), (25, 1)])
def test_release_memory_empties_if_much_is_idle(reserved, emptied, allocator):
    allocator.reserved = reserved * GIB
    inside.release_memory(0.25)
    assert allocator.emptied == emptied
    inside.release_memory()
    assert allocator.emptied == emptied + 1
