"""Times over numbers of ranks, against the smallest number there is."""

from dataclasses import replace

import polars as pl
import pytest

from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.errors import NothingSelectedError
from tests.analysis.made import STEADY, cell, failed, tables, timed

PROBLEM = {"problem": "all_reduce", "candidate": "all_reduce/gathered"}


def times(ranks, factor=1.0, **columns):
    """Sessions of one cell, ``factor`` times as slow as usual."""
    known = {**PROBLEM, "ranks": ranks, "cell_id": f"{sorted(columns.items())} {ranks}", **columns}
    return timed([factor * median for median in STEADY], problem_sha256=f"with {ranks}", **known)


def answer(*rows):
    (found,) = ask("scaling", tables([row for some in rows for row in some]), QuestionOptions())
    return found


def test_scaling_compares_with_the_smallest_number_of_ranks():
    found = answer(times(8, 2.0), times(2), times(4, 1.25))
    rows = found.table.select("ranks", "from_ranks", pl.col("ratio", "efficiency").round(6)).rows()
    assert rows == [(2, 2, 1.0, 1.0), (4, 2, 1.25, 0.8), (8, 2, 2.0, 0.5)]
    assert "sizes of a problem are those of each rank" in found.meanings["efficiency"].lower()


def test_scaling_has_intervals_of_times_and_ratios():
    first, more = answer(times(2), times(4, 1.25)).table.to_dicts()
    assert first["low_us"] < first["time_us"] < first["high_us"]
    assert (first["ratio_low"], first["ratio_high"]) == (None, None)
    assert 1.2 < more["ratio_low"] < 1.25 < more["ratio_high"] < 1.3
    own = more["high_us"] / more["time_us"]
    assert more["ratio_high"] / more["ratio"] > own  # the first time is noisy too


def test_scaling_keeps_lines_apart():
    rows = [times(2), times(4), times(2, gpu="h100"), times(8, 3.0, gpu="h100"), times(4, workload="smoke")]
    found = answer(*rows)
    lines = found.table.select("gpu", "workload", "ranks", pl.col("efficiency").round(3)).rows()
    assert lines == [
        *(("h100", "default", 2, 1.0), ("h100", "default", 8, 0.333)),
        *(("h200", "default", 2, 1.0), ("h200", "default", 4, 1.0)),
    ]
    assert "1 timed cells are left out" in " ".join(found.notes)


def test_scaling_compares_a_candidate_with_its_own_content_only():
    with pytest.raises(NothingSelectedError):
        answer(times(2, candidate_sha256="old"), times(4, candidate_sha256="new"))
    references = (times(ranks, candidate="all_reduce/@reference", candidate_sha256=f"with {ranks}") for ranks in (2, 4))
    assert answer(*references).table.height == 2


def test_scaling_shows_bandwidths_where_tables_have_them():
    rows = [*times(2), *times(4)]
    made = tables(rows)
    rates = pl.when(pl.col("ranks") == 4).then(4e9).otherwise(3e9)
    with_rates = replace(
        made, cells=made.cells.with_columns(bus_bytes_per_s=rates, algorithm_bytes_per_s=2e9, link_share_of_peak=0.5)
    )
    (known,), (unknown,) = (ask("scaling", some, QuestionOptions()) for some in (with_rates, made))
    assert known.table["bus_bytes_per_s"].to_list() == [3e9, 4e9]
    assert unknown.table["bus_bytes_per_s"].to_list() == [None, None]
    assert "not known" in " ".join(unknown.notes)
    assert "not known" not in " ".join(known.notes)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [times(2)],
        [times(2), [failed(**PROBLEM, ranks=4)]],
        [times(2), times(4, problem="all_gather", candidate="all_gather/gathered")],
        [[cell(**PROBLEM, ranks=2)], [cell(**PROBLEM, ranks=4)]],
    ],
)
def test_scaling_needs_two_numbers_of_ranks(rows):
    with pytest.raises(NothingSelectedError):
        answer(*rows)
