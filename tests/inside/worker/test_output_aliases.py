"""Shared memory of outputs: reported if it exists, and not if an allocator merely reused an address."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import weakref

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.wire import OutputAlias
from kernel_matrix.inside.worker.output_aliases import AliasMemory

pytestmark = pytest.mark.torch

NOTHING_LENT = (0, 0)


def lent(tensor):
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes


def test_memory_that_was_freed_and_given_out_again_is_not_shared():
    memory, block = AliasMemory(), bytearray(64)
    first = torch.frombuffer(block, dtype=torch.uint8)
    address = first.data_ptr()
    memory.remember([first])
    del first
    second = torch.frombuffer(block, dtype=torch.uint8)
    assert second.data_ptr() == address
    assert memory.aliases([second], NOTHING_LENT) == [OutputAlias.NONE]


def test_aliases_kept_output_is_seen_but_not_kept_alive():
    memory, output = AliasMemory(), torch.zeros(4)
    memory.remember([output])
    assert memory.aliases([output[1:]], NOTHING_LENT) == [OutputAlias.EARLIER]
    memory.forget()
    assert memory.aliases([output], NOTHING_LENT) == [OutputAlias.NONE]
    memory.remember([output])
    gone = weakref.ref(output)
    del output
    assert gone() is None


def test_only_the_call_before_counts():
    memory, first = AliasMemory(), torch.zeros(4)
    memory.remember([first])
    memory.remember([torch.zeros(4)])
    assert memory.aliases([first], NOTHING_LENT) == [OutputAlias.NONE]


def test_the_edges_of_what_was_lent():
    memory, arena = AliasMemory(), torch.zeros(12)
    whole = lent(arena[4:8])
    assert memory.aliases([arena[i : i + 1] for i in (3, 4, 7, 8)], whole) == [
        OutputAlias.NONE,
        OutputAlias.INPUT,
        OutputAlias.INPUT,
        OutputAlias.NONE,
    ]


def test_empty_outputs_share_nothing():
    empty = torch.zeros(4)[:0]
    assert AliasMemory().aliases([empty, empty], lent(torch.zeros(4))) == [OutputAlias.NONE, OutputAlias.NONE]
