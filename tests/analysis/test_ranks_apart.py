"""Results with different numbers of ranks are different cells, and are nowhere compared as equal."""

import polars as pl
import pytest

from kernel_matrix.analysis.audit import audit
from kernel_matrix.analysis.bestknown import freeze, make, read
from kernel_matrix.analysis.compare import compare
from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.analysis.standings import standings
from kernel_matrix.results.latest import filter_rows, overview
from tests.analysis.made import STEADY, cells, failed, tables, timed

PROBLEM = {"problem": "all_reduce", "candidate": "all_reduce/gathered"}


def times(ranks, factor=1.0, **columns):
    """Sessions of one cell whose problem has another content with each number of ranks."""
    named = {"cell_id": f"{ranks}{columns.get('gpu')}", "problem_sha256": f"with {ranks}"}
    return timed([factor * median for median in STEADY], ranks=ranks, **{**named, **PROBLEM, **columns})


def test_each_number_of_ranks_has_its_standing():
    rows = [*times(2), *times(4, 3.0, night=1)]
    found = standings(cells(rows))
    assert sorted(found.table.select("ranks", pl.col("candidate_ns").round()).rows()) == [(2, 100.0), (4, 300.0)]
    assert not any("several versions" in note for note in found.notes)


def test_failure_counts_for_workloads_of_its_own_ranks():
    rows = [*times(2), *times(2, workload="large", gpu="h100"), failed(**PROBLEM, ranks=4), *times(4, gpu="h100")]
    found = standings(cells(rows)).table.filter(standing="failed")
    assert found.select("ranks", "workload").rows() == [(4, "default")]


def test_compare_pairs_equal_numbers_of_ranks_only():
    both = compare(cells([*times(2), *times(4, 3.0)]), cells([*times(2, night=1), *times(4, 3.0, night=1)])).rows
    assert sorted(both["ranks"]) == [2, 4]
    assert both["ratio"].to_list() == pytest.approx([1.0, 1.0])
    apart = compare(cells(times(2)), cells(times(4, 3.0, night=1))).rows
    assert sorted(apart.select("ranks", "change").rows()) == [(2, "missing"), (4, "new")]


def test_gpus_with_different_ranks_have_no_common_work():
    made = tables([*times(2), *times(4, 3.0, gpu="h100")])
    answers = ask("gpus", made, QuestionOptions())
    assert answers[0].table.is_empty()
    assert "no work in common" in " ".join(answers[0].statements)


def test_nights_with_different_ranks_are_no_drift():
    rows = [row for night in range(6) for row in times(2 if night < 3 else 4, 1.0 if night < 3 else 3.0, night=night)]
    answers = {answer.name: answer for answer in ask("drift", tables(rows), QuestionOptions())}
    assert answers["steps"].table.is_empty()
    assert sorted(set(answers["nights"].table["ranks"])) == [2, 4]


def test_best_known_times_are_of_one_number_of_ranks(tmp_path):
    rows = cells([*times(2), *times(4, 3.0)])
    best = freeze(rows, tmp_path / "best.json")
    assert best.table.select("ranks", pl.col("best_ns").round()).rows() == [(2, 100.0), (4, 200.0)]  # of eager
    assert read(tmp_path / "best.json").sha256 == best.sha256


def test_hash_of_best_times_with_one_rank_stays():
    rows = standings(cells(times(1))).table
    assert make(rows).sha256 != make(standings(cells(times(2))).table).sha256
    assert make(rows).sha256 == make(rows.with_columns(ranks=pl.lit(1, pl.Int32))).sha256


def test_other_ranks_are_no_other_version_of_a_problem():
    rows = [*times(2), *times(4), *times(2, gpu="h100"), *times(4, gpu="b200")]
    found = {check.name: table for check, table in audit(tables(rows))}
    assert found["mixed_problems"].is_empty()


def test_overview_has_ranks_and_filters_by_them():
    shown = overview(cells([*times(2), *times(4)]).collect())
    assert shown["ranks"].to_list() == [2, 4]
    assert filter_rows(shown, ["ranks=4"])["ranks"].to_list() == [4]
