"""Sensitivity: ratios of pairs of cells that differ in one column, and flipped verdicts."""

import math
import statistics

import pytest

from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.errors import NothingSelectedError, UsageError
from tests.analysis.made import cell, tables
from tests.analysis.test_standings import EXCLUDED, FAILED, LOST


def timed(problem, candidate, baseline=100.0, **columns):
    return cell(problem=problem, candidate_median_ns=candidate, baseline_median_ns=baseline, **columns)


def answers(rows, **request):
    return {answer.name: answer for answer in ask("sensitivity", tables(rows), QuestionOptions(**request))}


RATIOS = {"p": (100.0, 50.0), "q": (80.0, 60.0), "r": (10.0, 9.0)}
PAIRED = [
    row
    for problem, (first, second) in RATIOS.items()
    for row in (
        timed(problem, first, dtype="bf16", category="easy" if problem == "p" else "hard"),
        timed(problem, second, 50.0, dtype="fp32", category="easy" if problem == "p" else "hard"),
    )
]


def test_ratios_are_paired_and_geometric():
    (row,) = answers(PAIRED)["dtype"].table.to_dicts()
    logs = [math.log(second / first) for first, second in RATIOS.values()]
    assert (row["first"], row["second"], row["cells"], row["timed"]) == ("bf16", "fp32", 3, 3)
    assert row["candidate_ratio"] == pytest.approx(math.exp(statistics.fmean(logs)))
    assert row["sd_log_candidate"] == pytest.approx(statistics.stdev(logs))
    assert (row["baseline_ratio"], row["sd_log_baseline"]) == (pytest.approx(0.5), pytest.approx(0, abs=1e-12))
    assert row["speedup_ratio"] == pytest.approx(0.5 / row["candidate_ratio"])


def test_only_what_is_otherwise_the_same_is_paired():
    rows = [
        timed("p", 10, dtype="bf16", toolchain="old"),
        timed("p", 20, dtype="fp32", toolchain="new"),
        timed("p", 20, dtype="bf16", toolchain="old", gpu="other"),
        timed("p", 30, dtype="bf16", toolchain="new"),
    ]
    found = answers(rows)
    (by_dtype,), (by_toolchain,) = found["dtype"].table.to_dicts(), found["toolchain"].table.to_dicts()
    assert (by_dtype["cells"], by_dtype["candidate_ratio"]) == (1, pytest.approx(2 / 3))
    assert (by_toolchain["first"], by_toolchain["second"]) == ("new", "old")
    assert (by_toolchain["cells"], by_toolchain["candidate_ratio"]) == (1, pytest.approx(1 / 3))


def test_every_pair_of_three_has_a_row():
    rows = [timed("p", time, toolchain=name) for name, time in (("a", 1.0), ("b", 2.0), ("c", 8.0))]
    table = answers(rows)["toolchain"].table
    found = {(row["first"], row["second"]): row["candidate_ratio"] for row in table.to_dicts()}
    assert found == {("a", "b"): pytest.approx(2), ("a", "c"): pytest.approx(8), ("b", "c"): pytest.approx(4)}


def test_flips_are_listed_and_unknown_results_are_not():
    rows = [
        timed("p", 10, toolchain="a"),
        cell(problem="p", toolchain="b", **FAILED),
        cell(problem="q", toolchain="a", **{**FAILED, "status": "compile_error", "workload": None}),
        timed("q", 10, toolchain="b"),
        *(cell(problem="r", toolchain=name, **FAILED) for name in "ab"),
        timed("s", 10, toolchain="a"),
        cell(problem="s", toolchain="b", **LOST),
        timed("t", 10, toolchain="a"),
        cell(problem="t", toolchain="b", **EXCLUDED),
    ]
    found = answers(rows)
    (row,) = found["toolchain"].table.to_dicts()
    counts = [row[name] for name in ("cells", "timed", "passes_fails", "fails_passes", "both_fail")]
    assert counts == [3, 0, 1, 1, 1]
    flips = found["flips"].table.select("axis", "problem", "toolchain", "passes_at", "fails_at", "status").rows()
    assert flips == [
        ("toolchain", "p", None, "a", "b", "incorrect_values"),
        ("toolchain", "q", None, "b", "a", "compile_error"),
    ]


def test_slices_have_rows_of_their_own_and_the_axis_is_no_slice():
    found = answers(PAIRED, by=("category", "dtype"))
    table = found["dtype"].table
    assert dict(table.select("category", "cells").iter_rows()) == {"easy": 1, "hard": 2}
    assert any("not sliced by it" in note for note in found["dtype"].notes)
    assert table["sd_log_candidate"].to_list() == [None, pytest.approx(statistics.stdev(map(math.log, (0.75, 0.9))))]


def test_a_baseline_without_partner_keeps_the_pair():
    rows = [timed("p", 10, dtype="bf16"), timed("p", 20, None, dtype="fp32")]
    (row,) = answers(rows)["dtype"].table.to_dicts()
    assert (row["candidate_ratio"], row["baselines"], row["baseline_ratio"]) == (pytest.approx(2), 0, None)


def test_a_pair_without_a_time_is_told():
    found = answers([timed("p", 10, dtype="bf16"), timed("p", 0.0, dtype="fp32")])
    assert found["dtype"].table.select("cells", "timed").row(0) == (1, 0)
    assert any("1 pairs pass on both sides and lack a time" in note for note in found["dtype"].notes)


@pytest.mark.parametrize("rows", [[timed("p", 1)], [cell(**FAILED)], [cell(**LOST)], [timed("größe/☃", 1)]])
def test_one_of_each_leaves_nothing_to_compare_and_says_so(rows):
    found = answers(rows)
    for axis in ("dtype", "toolchain"):
        assert found[axis].table.is_empty()
        assert any(f"two values of {axis}" in note for note in found[axis].notes)
    for answer in found.values():
        assert set(answer.meanings) <= set(answer.table.columns)


def test_what_cannot_be_chosen_is_said():
    with pytest.raises(NothingSelectedError):
        answers(PAIRED, platforms=("unseen",))
    with pytest.raises(UsageError):
        answers(PAIRED, by=("host",))


def test_what_does_not_say_its_dtype_is_in_no_pair_and_counted():
    rows = [timed("p", time, dtype=dtype) for time, dtype in ((10, "bf16"), (20, "fp32"), (30, None))]
    found = answers([*rows, timed("q", 10, gpu=None)])
    assert found["dtype"].table.select("first", "second").rows() == [("bf16", "fp32")]
    assert "1 cells have no known dtype." in found["dtype"].notes
    assert not any("have no known" in note for note in found["toolchain"].notes)
