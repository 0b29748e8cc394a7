"""Confirmation of flagged cells by running them again."""

import pytest

from kernel_matrix.analysis.compare import compare
from kernel_matrix.analysis.comparison import Change
from kernel_matrix.analysis.confirmation import confirmed, rounds
from tests.analysis.made import SLOWER, STEADY, cell, cells, failed, timed


def round_after_round(medians, **columns):
    """One run of one session per round."""
    return [row for night, median in enumerate(medians) for row in timed([median], night=night, **columns)]


@pytest.mark.parametrize(
    ("new", "again", "change", "reason"),
    [
        (timed(SLOWER), timed(SLOWER), "regression", "confirmed when run again: regression, 5.0 %"),
        (timed(SLOWER), timed(STEADY), "inconclusive", "not confirmed: was regression, now equivalent, 0.0 %"),
        (timed(SLOWER), [failed()], "regression", "confirmed when run again: broke, crashed: signal 11"),
        (timed(SLOWER), timed(STEADY[:1]), "inconclusive", "not confirmed: was regression, now equivalent, -0.0 %"),
        (timed(SLOWER), timed([95.0, 109.0, 99.0]), "regression", "run again, without a result"),
        (timed(SLOWER), [failed(status="gpu_lost", fault="infra")], "regression", "run again, without a result"),
        ([failed()], [failed()], "broke", "crashed: signal 11; confirmed when run again: broke, crashed: signal 11"),
        ([failed()], timed(STEADY), "inconclusive", "not confirmed: was broke, now equivalent, 0.0 %"),
        ([failed()], timed(STEADY, problem="other"), "broke", "crashed: signal 11; run again, without a result"),
    ],
)
def test_only_what_shows_that_it_is_well_clears_a_row(new, again, change, reason):
    base = cells(timed(STEADY))
    found = confirmed(compare(base, cells(new)), compare(base, cells(again)), {})
    assert found.rows.select("change", "reason").row(0) == (change, reason)


def test_what_cannot_be_run_again_stays_with_the_reason():
    first = compare(cells(timed(STEADY)), cells(timed(SLOWER, cell_id="x")))
    found = confirmed(first, first, {"x": "no such GPU here"})
    assert found.counts() == {Change.REGRESSION: 1}
    assert found.rows["reason"][0] == "not run again: no such GPU here"
    assert found.notes[0] == "0 of 1 flagged rows were run again, in turns; 1 of all stay flagged."


def test_rounds_of_both_sides_are_pairs():
    drift = [100.0, 104.0, 97.0, 109.0, 93.0]
    base, new = (rounds(cells(round_after_round([value * by for value in drift]))) for by in (1, 1.03))
    row = compare(base, new).rows.row(0, named=True)
    assert (row["test"], row["change"], row["new_sessions"]) == ("paired", "regression", 5)


def test_one_failed_round_fails_and_a_spoilt_one_is_left_out():
    spoilt = cell(status="gpu_lost", fault="infra", session_status="gpu_lost", night=9)
    base = cells(timed(STEADY))
    assert compare(base, rounds(cells([*round_after_round(STEADY), spoilt]))).counts() == {Change.EQUIVALENT: 1}
    assert compare(base, rounds(cells([*round_after_round(STEADY), failed(night=9)]))).counts() == {Change.BROKE: 1}
