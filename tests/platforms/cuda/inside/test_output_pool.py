"""Pools in a window on a GPU: pieces of memory, and what torch is given, over the simulated driver."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import ctypes
import random
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.platform import STAGED_VARIABLE
from kernel_matrix.inside.wire import do_overlap
from kernel_matrix.platforms.cuda.inside import output_pool
from kernel_matrix.platforms.cuda.inside.arenas import ARENAS
from kernel_matrix.platforms.cuda.inside.output_pool import Pieces, open_pool, pool_bytes

pytestmark = pytest.mark.torch

MIB = 1 << 20
START = 7 * MIB


def test_pieces_follow_each_other_until_there_is_no_room():
    pieces = Pieces(START, 10)
    assert [pieces.take(size, 0, None) for size in (4, 3, 4, 3)] == [START, START + 4, None, START + 7]
    assert pieces.used_bytes == 10


def test_pieces_that_were_given_back_serve_again():
    pieces = Pieces(START, 1000)
    dice, held = random.Random(1), []
    for _ in range(1000):
        if held and dice.random() < 0.5:
            pieces.give_back(*held.pop(dice.randrange(len(held))), 0, None)
        elif (size := dice.choice((20, 50))) and (address := pieces.take(size, 0, None)) is not None:
            held.append((address, size))
        assert not do_overlap(held)
        assert all(address >= START and address + size <= START + 1000 for address, size in held)
    assert pieces.used_bytes <= 1000


def test_pieces_without_room_lie_elsewhere_and_serve_again():
    asked = []
    pieces = Pieces(START, 10, lambda nbytes: asked.append(nbytes) or 77)
    assert pieces.take(8, 0, None) == START
    assert pieces.take(8, 0, None) == 77
    pieces.give_back(77, 8, 0, None)
    assert pieces.take(8, 0, None) == 77
    assert (asked, pieces.used_bytes) == ([8], 8)


# Bytes of an output, calls → least room: as torch divides pieces of 2 MiB, of 20 MiB, and pieces for one tensor each.
ROOM = [
    (512, 100, 100 * 512),
    (700 << 10, 9, 5 * 2 * MIB),
    (3 * MIB, 6, 20 * MIB),
    (9 * MIB, 6, 60 * MIB),
    (11 * MIB, 6, 6 * 12 * MIB),
]


@pytest.mark.parametrize(("output", "calls", "least"), ROOM)
def test_pool_bytes_hold_what_torch_rounds(output, calls, least):
    room = pool_bytes((output,), calls) - pool_bytes((output,), 0)
    assert least <= room <= 2 * least


def test_pool_bytes_leave_room_for_temporaries():
    assert pool_bytes((100 * MIB, 50 * MIB), 0) >= 2 * 150 * MIB
    assert pool_bytes((), 0) >= 32 * MIB


@pytest.fixture
def torch_with_pools(monkeypatch):
    """torch.cuda with memory pools; what it was given, and which pools are in use."""
    seen = SimpleNamespace(functions=None, using=[], captured=[], emptied=0)

    class MemPool:
        id = (0, 5)

        def __init__(self, allocator):
            self.allocator = allocator

    @contextmanager
    def use_mem_pool(pool):
        seen.using.append(pool)
        yield
        seen.using.remove(pool)

    def custom_allocator(*addresses):
        seen.functions = [
            kind(address) for kind, address in zip((output_pool._ALLOCATE, output_pool._FREE), addresses, strict=True)
        ]
        return "allocator"

    def empty_cache():
        seen.emptied += 1

    monkeypatch.setattr(torch._C, "_cuda_customAllocator", custom_allocator, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    monkeypatch.setattr(torch.cuda, "MemPool", MemPool)
    monkeypatch.setattr(torch.cuda, "use_mem_pool", use_mem_pool)
    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda.memory, "_cuda_beginAllocateCurrentThreadToPool", None, raising=False)
    monkeypatch.setattr(output_pool, "capture", lambda function, pool: seen.captured.append((function, pool)))
    monkeypatch.delenv(STAGED_VARIABLE, raising=False)
    return seen


@pytest.fixture
def window():
    memory = torch.zeros(1 << 16, dtype=torch.uint8)
    return SimpleNamespace(tensor=memory)


def test_pool_gives_torch_memory_of_the_window(torch_with_pools, window):
    pool = open_pool(window)
    take, give_back = torch_with_pools.functions
    address = take(5000, 0, None)
    assert address == window.tensor.data_ptr()
    ctypes.memset(address, 7, 5000)
    assert window.tensor.sum() == 7 * 5000
    assert pool.used_bytes == 5000
    assert take(1 << 16, 0, None) is None
    give_back(address, 5000, 0, None)
    assert take(5000, 0, None) == address


def test_pool_is_in_use_inside_only(torch_with_pools, window):
    pool = open_pool(window)
    with pool.allocating():
        assert [one.allocator for one in torch_with_pools.using] == ["allocator"]
    assert torch_with_pools.using == []


def test_pool_captures_with_its_own_memory(torch_with_pools, window):
    open_pool(window).capture(print)
    assert torch_with_pools.captured == [(print, (0, 5))]


def test_pool_memory_counts_once_until_it_is_closed(torch_with_pools, window):
    before = ARENAS.mapped_bytes[0]
    pool = open_pool(window)
    assert ARENAS.mapped_bytes[0] == before - (1 << 16)
    pool.close()
    assert ARENAS.mapped_bytes[0] == before
    assert torch_with_pools.emptied == 1


def test_pool_is_none_where_memory_is_staged(torch_with_pools, window, monkeypatch):
    monkeypatch.setenv(STAGED_VARIABLE, "staged")
    assert open_pool(window) is None
    assert pool_bytes((512,), 3) == 0


def test_pool_is_none_for_a_torch_that_pools_all_threads(torch_with_pools, window, monkeypatch):
    monkeypatch.delattr(torch.cuda.memory, "_cuda_beginAllocateCurrentThreadToPool")
    assert open_pool(window) is None
