"""What every role finds inside."""

from __future__ import annotations

import pytest

from runner.engines.inside import TAIL_BYTES, LogTail


@pytest.mark.parametrize("chunk", [1, 1000, TAIL_BYTES, 3 * TAIL_BYTES])
def test_a_tail_is_the_end_of_the_stream(chunk: int) -> None:
    stream = bytes(range(32, 127)) * 600
    tail = LogTail()
    for start in range(0, len(stream), chunk):
        tail.add(stream[start : start + chunk])
    assert tail.text().encode() == stream[-TAIL_BYTES:]


def test_what_cannot_be_decoded_is_replaced() -> None:
    tail = LogTail()
    tail.add(b"a\xff\nb")
    assert tail.text() == "a\N{REPLACEMENT CHARACTER}\nb"
