"""Parts of what belongs to all ranks."""

from __future__ import annotations

from kernel_matrix.inside.rank_parts import parts_of_ranks


def test_parts_are_equal_and_in_order():
    assert parts_of_ranks([1, 2, 3, 4, 5, 6], 3) == [[1, 2], [3, 4], [5, 6]]
    assert parts_of_ranks(b"abcd", 2) == [b"ab", b"cd"]
    assert parts_of_ranks((), 2) == [(), ()]


def test_parts_leave_out_a_rest():
    assert parts_of_ranks([1, 2, 3], 2) == [[1], [2]]
