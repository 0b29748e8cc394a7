"""Leaderboards: order, intervals and ties."""

import pytest

from kernel_matrix.report.leaderboard import make_leaderboard
from tests.analysis.made import cell, failed, over_sessions, tables


def timed(name, ns, noise=0.001, **columns):
    medians = [(1000.0 * (1 + noise * n), ns * (1 - noise * n)) for n in (-1, 0, 1, 0)]
    return list(over_sessions(medians, candidate=f"{columns.get('problem', 'softmax')}/{name}", **columns))


def ranks(rows):
    table = make_leaderboard(tables(rows)).candidates
    return {row["candidate"].rsplit("/")[-1]: (row["rank"], row["rank_high"]) for row in table.iter_rows(named=True)}


def test_candidates_apart_have_ranks_and_close_ones_tie():
    rows = [*timed("fast", 100.0), *timed("close", 100.01), *timed("slow", 300.0)]
    assert ranks(rows) == {"fast": (1, 2), "close": (1, 2), "slow": (3, 3)}


def test_candidates_that_fail_somewhere_have_no_rank():
    rows = [*timed("whole", 300.0), *timed("part", 100.0), failed(candidate="softmax/part", dtype="fp16")]
    assert ranks(rows) == {"whole": (1, 1), "part": (None, None)}


def test_times_of_unknown_noise_are_all_tied():
    rows = [cell(candidate=f"softmax/{n}", baseline_median_ns=900.0, candidate_median_ns=100.0 * n) for n in (1, 2)]
    board = make_leaderboard(tables(rows)).candidates
    assert board.select("rank", "rank_high", "low").rows() == [(1, 2, None)] * 2


def test_candidates_of_different_gpus_are_not_compared():
    assert ranks([*timed("one", 100.0), *timed("two", 300.0, gpu="h100")]) == {"one": (1, 1), "two": (1, 1)}


def test_speedup_is_a_mean_with_its_interval():
    rows = [*timed("one", 500.0), *timed("one", 125.0, dtype="fp16")]
    row = make_leaderboard(tables(rows)).candidates.row(0, named=True)
    assert row["speedup"] == pytest.approx(4.0, rel=1e-3)
    assert 3.9 < row["low"] < row["speedup"] < row["high"] < 4.1
    assert (row["cells"], row["passed"]) == (2, 2)


def test_controls_are_on_no_leaderboard():
    rows = [*timed("one", 100.0), cell(candidate="softmax/control", expect="timeout", status="timeout")]
    assert list(ranks(rows)) == ["one"]


def methods_rows(ratio):
    return [
        row
        for number in range(6)
        for method, factor in (("a", 1.0), ("b", ratio * (1 + number / 50)))
        for row in timed(method, 100.0 * factor, problem=f"p{number}", origin_method=method)
    ]


@pytest.mark.parametrize(("ratio", "expected"), [(2.0, [(1, 1), (2, 2)]), (0.95, [(1, 2), (1, 2)])])
def test_methods_are_ranked_over_problems(ratio, expected):
    rows = [*methods_rows(ratio), failed(candidate="p0/c", problem="p0", origin_method="b")]
    table = make_leaderboard(tables(rows)).methods
    assert table.select("rank", "rank_high").rows() == expected
    found = {row["origin_method"]: row for row in table.iter_rows(named=True)}
    assert found["b"]["correct_rate"] == pytest.approx(6 / 7)
    assert 0.4 < found["b"]["correct_low"] < 6 / 7 < found["b"]["correct_high"] < 1


def test_one_method_and_no_cells_make_no_table():
    assert make_leaderboard(tables(timed("one", 100.0))).methods.is_empty()
    empty = make_leaderboard(tables([]))
    assert empty.candidates.is_empty()
    assert empty.methods.is_empty()
