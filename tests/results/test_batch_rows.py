"""Rows of the table ``batches``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_matrix.results.batch_rows import batch_rows
from kernel_matrix.results.described_columns import Row
from kernel_matrix.results.judged import times_of
from kernel_matrix.results.record import Record, record_to_json
from kernel_matrix.results.schema import BATCHES
from tests.measure.test_timed import SIDES, batches
from tests.results.factory import make_record, session, workload


def record_with(made: tuple) -> Record:
    return make_record(sessions=(session(workloads=(workload(blocks=SIDES, batches=made),)),))


def rows_of(one: Record, key: int = 0) -> list[Row]:
    document = record_to_json(one)
    return list(batch_rows(document, times_of(document), key=key))


def test_each_batch_has_a_row_and_long_ones_a_time() -> None:
    eager_long, eager_short, ours = batches({"eager": 1000, "candidate": 800})
    late = replace(ours, discarded="throttled")
    found = rows_of(record_with((eager_long, eager_short, ours, late)), key=7)
    assert all(set(row) == set(BATCHES) for row in found)
    assert [(row["block"], row["index"]) for row in found] == [
        (block, index) for block in range(4) for index in range(8)
    ]
    assert {row["call_ns"] for row in found[:8]} == {1000}
    assert {row["call_ns"] for row in found[16:24]} == {800}
    assert {row["call_ns"] for row in (*found[8:16], *found[24:])} == {None}
    first = found[16]
    assert (first["record"], first["session"], first["workload"], first["calls"]) == (7, 0, "default", 100)
    assert (first["contestant"], first["wall_ns"], first["short"], found[31]["discarded"]) == (
        *("candidate", 80_900, False, "throttled"),
    )


@pytest.mark.parametrize("made", [batches({"candidate": 800}), batches({"candidate": 800, "eager": 1000}, count=7)])
def test_batches_that_say_no_time_have_none(made: tuple) -> None:
    found = rows_of(record_with(made))
    assert found
    assert {row["call_ns"] for row in found} == {None}


def test_records_without_batches_have_no_rows() -> None:
    assert not rows_of(make_record())
