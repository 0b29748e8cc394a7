"""Of several attempts at one cell one counts, always the same."""

from datetime import datetime, timezone

import polars as pl
import pytest

from kernel_matrix.results.attempts import latest_attempts

EARLY, LATE = (datetime(2026, 3, day, tzinfo=timezone.utc) for day in (1, 2))


def attempts(*rows):
    """Cells of (record, cell, start, attempt, run), each with two workloads."""
    columns = ("record", "cell_id", "started_at", "attempt", "run_id")
    return pl.DataFrame([row for row in rows for _ in range(2)], schema=columns, orient="row").lazy()


@pytest.mark.parametrize(
    "rows",
    [
        ((1, "a", EARLY, 2, "s"), (0, "a", LATE, 1, "r")),
        ((1, "a", LATE, 1, "s"), (0, "a", LATE, 2, "r")),
        ((1, "a", LATE, 1, "r"), (0, "a", LATE, 1, "s")),
        ((-1, "a", LATE, 1, "r"), (0, "a", LATE, 1, "r")),
    ],
    ids=["time", "attempt", "run", "record"],
)
def test_the_latest_counts_in_whichever_order_they_come(rows):
    for order in (rows, rows[::-1]):
        assert latest_attempts(attempts(*order), ["cell_id"]).collect().to_dicts() == [
            {"cell_id": "a", "record": 0, "attempts": 2}
        ]


def test_cells_keep_apart_and_an_attempt_counts_once():
    found = latest_attempts(attempts((0, "a", EARLY, 1, "r"), (1, "b", EARLY, 1, "r")), ["cell_id"]).collect()
    assert sorted(found.rows()) == [("a", 0, 1), ("b", 1, 1)]
