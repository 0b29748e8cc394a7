"""Measures of sources per slice, and their rank correlation with correctness and speed within problems."""

import math
import statistics

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy.stats import rankdata, spearmanr

from kernel_matrix.analysis import source_code
from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.analysis.source_code import LEAST_PROBLEMS, code
from kernel_matrix.errors import NothingSelectedError, UsageError
from tests.analysis.made import cell, failed, tables

MEASURES = {
    "code_lines": 10, "code_complexity": 3, "code_complexity_mean": 2.0, "code_maintainability": 60.0,
    "launches_per_call": 2,
}  # fmt: skip


def candidate(problem, name, speedup=None, **columns):
    """A cell of one candidate; without a speed-up it failed."""
    facts = {"problem": problem, "candidate": f"{problem}/{name}", **MEASURES, **columns}
    if speedup is None:
        return failed(**{**facts, "launches_per_call": None, **columns})
    return cell(baseline_median_ns=100.0 * speedup, candidate_median_ns=100.0, **facts)


def answers(rows, **request):
    return {answer.name: answer for answer in ask("code", tables(rows), QuestionOptions(**request))}


def association(rows, outcome, measure, **request):
    table = answers(rows, **request)["associations"].table
    (row,) = table.filter(pl.col("outcome") == outcome, pl.col("measure") == measure).to_dicts()
    return row


def random_rows(generator, problems=LEAST_PROBLEMS, each=6, slope=0.0):
    """Hard problems have longer and slower candidates; within a problem, speed goes with lines as ``slope`` says."""
    for number in range(problems):
        hard = generator.normal()
        for which in range(each):
            lines = generator.normal()
            log = slope * lines + generator.normal() - 2 * hard
            yield candidate(
                f"p{number}", f"c{which}", math.exp(log), code_lines=round(1000 * math.exp(hard + lines / 10))
            )


def test_medians_are_over_sources_and_not_over_cells():
    rows = [
        candidate("p", "a", 2.0, code_lines=10, code_complexity=1),
        candidate("p", "a", 2.0, code_lines=10, code_complexity=1, gpu="other"),
        candidate("p", "b", code_lines=30, code_complexity=None),
        candidate("q", "a", 2.0, code_lines=50, code_complexity=3, launches_per_call=4),
        candidate("q", "b", 2.0, code_lines=None, code_complexity=None),
    ]
    (row,) = answers(rows)["code"].table.to_dicts()
    assert (row["candidates"], row["measured"], row["parsed"], row["traced"]) == (4, 3, 2, 3)
    assert (row["lines"], row["complexity"], row["launches"]) == (30, 2, 2)
    assert (row["complexity_mean"], row["maintainability"]) == (2.0, 60.0)


def test_what_was_fused_is_told_for_candidate_and_compiler():
    rows = [
        candidate("p", "a", 2.0, eager_launches=6, compile_launches=3),
        candidate("q", "a", 2.0, eager_launches=10, compile_launches=5, launches_per_call=1),
    ]
    (row,) = answers(rows)["code"].table.to_dicts()
    assert (row["fused"], row["compile_fused"]) == (6.5, 2.0)
    assert not any("is not known" in note for note in answers(rows)["code"].notes)
    assert any("how much was fused is not known" in note for note in answers([candidate("p", "a", 2.0)])["code"].notes)


def test_slices_have_rows_of_their_own():
    rows = [candidate("p", "a", 2.0), candidate("p", "b", 2.0, language="cuda", code_lines=40)]
    found = answers(rows, by=("language",))
    assert dict(found["code"].table.select("language", "lines").iter_rows()) == {"triton": 10, "cuda": 40}
    assert found["associations"].table["language"].unique().len() == 2


def test_one_problem_has_the_correlation_of_scipy_and_no_interval():
    generator = np.random.default_rng(3)
    lines, logs = generator.integers(10, 15, 12).tolist(), generator.normal(size=12).tolist()
    rows = [
        candidate("p", f"c{place}", math.exp(log), code_lines=count)
        for place, (count, log) in enumerate(zip(lines, logs, strict=True))
    ]
    row = association(rows, "speed", "lines")
    assert row["rho"] == pytest.approx(spearmanr(lines, logs).statistic)
    assert (row["cells"], row["problems"], row["low"], row["high"]) == (12, 1, None, None)
    notes = answers(rows)["associations"].notes
    assert any(f"1 of 10 rows have no interval: it takes {LEAST_PROBLEMS} problems" in note for note in notes)


def test_hard_problems_do_not_make_an_association():
    rows = list(random_rows(np.random.default_rng(1), problems=40))
    lines, logs = zip(*((row["code_lines"], math.log(row["speedup"])) for row in rows), strict=True)
    assert spearmanr(lines, logs).statistic < -0.6
    row = association(rows, "speed", "lines")
    assert row["low"] < 0 < row["high"]
    assert row["high"] - row["low"] < 0.4


def test_an_association_within_problems_is_found():
    row = association(random_rows(np.random.default_rng(1), problems=30, slope=2.0), "speed", "lines")
    assert row["low"] > 0.5


def test_interval_is_that_of_the_jackknife():
    rows = list(random_rows(np.random.default_rng(7), problems=12, each=4, slope=1.0))

    def rho(left_out):
        sums = np.zeros(3)
        for problem in {row["problem"] for row in rows} - {left_out}:
            pairs = [(row["code_lines"], row["speedup"]) for row in rows if row["problem"] == problem]
            x, y = (rankdata(values) - 2.5 for values in zip(*pairs, strict=True))
            sums += (x @ y, x @ x, y @ y)
        return sums[0] / math.sqrt(sums[1] * sums[2])

    left_out = [math.atanh(rho(f"p{number}")) for number in range(12)]
    reach = 2.200985 * math.sqrt(11 * statistics.pvariance(left_out))  # Student's quantile for 11 degrees of freedom
    row = association(rows, "speed", "lines")
    assert row["rho"] == pytest.approx(rho(None))
    assert [row["low"], row["high"]] == pytest.approx(
        [math.tanh(math.atanh(rho(None)) - reach), math.tanh(math.atanh(rho(None)) + reach)], rel=1e-6
    )


@pytest.mark.parametrize("slope", [0.0, 0.7])
def test_intervals_cover_the_truth_as_often_as_they_say(slope):
    generator = np.random.default_rng(5)

    def cells(sets, problems, each=5):
        count = sets * problems * each
        lines = generator.normal(size=count)
        return pl.DataFrame({
            "set": np.repeat(np.arange(sets), problems * each),
            "problem": np.repeat(np.arange(sets * problems), each),
            **dict.fromkeys(("ranks", "dtype", "gpu", "toolchain", "language"), 0),
            "lines": lines,
            "speed": slope * lines + generator.normal(size=count),
        })  # fmt: skip

    (truth,) = source_code._correlated(cells(1, 20_000), ["set"], "lines", "speed")["rho"]
    found = source_code._correlated(cells(1000, LEAST_PROBLEMS), ["set"], "lines", "speed")
    assert found.select(((pl.col("low") <= truth) & (pl.col("high") >= truth)).mean()).item() == pytest.approx(
        0.95, abs=0.02
    )


def test_correctness_is_ranked_among_right_and_wrong_candidates():
    rows = []
    for number in range(LEAST_PROBLEMS):
        wrong_is_long = number > 0
        rows += [
            candidate(f"p{number}", "right", 1.0, code_lines=10 if wrong_is_long else 30),
            candidate(f"p{number}", "wrong", code_lines=20),
            candidate(f"only_right{number}", "a", 1.0, code_lines=1),
            candidate(f"only_right{number}", "b", 1.0, code_lines=9),
        ]
    row = association(rows, "correct", "lines")
    assert (row["cells"], row["problems"], row["rho"]) == (2 * LEAST_PROBLEMS, LEAST_PROBLEMS, pytest.approx(-0.8))
    assert row["low"] < -0.8 < row["high"]


def test_languages_targets_and_hosts_are_not_compared():
    rows = [
        candidate("p", "a", 1.0, code_lines=1),
        candidate("p", "b", 2.0, code_lines=2, language="cuda"),
        candidate("p", "c", 3.0, code_lines=3, gpu="other"),
        candidate("p", "a", 4.0, code_lines=1, host_id="host2", hostname="node2"),
    ]
    assert association(rows, "speed", "lines")["rho"] is None
    two = [*rows, candidate("p", "d", 1.5, code_lines=0)]
    row = association(two, "speed", "lines")
    assert (row["cells"], row["rho"]) == (2, pytest.approx(1.0))


def test_problems_that_all_agree_have_no_interval():
    rows = [
        candidate(f"p{number}", f"c{place}", 1.0 + place, code_lines=place)
        for number in range(LEAST_PROBLEMS)
        for place in range(3)
    ]
    row = association(rows, "speed", "lines")
    assert (row["rho"], row["low"], row["high"]) == (pytest.approx(1.0), None, None)
    assert any("all their problems agree exactly" in note for note in answers(rows)["associations"].notes)


def test_controls_and_references_are_left_out():
    rows = [
        candidate("p", "a", 2.0),
        candidate("p", "@reference", 1.0, code_lines=999),
        candidate("p", "cheat", code_lines=999, expect="crashed"),
        candidate("p", "lost", code_lines=999, status="gpu_lost", fault="infra"),
    ]
    (row,) = answers(rows)["code"].table.to_dicts()
    assert (row["candidates"], row["lines"]) == (1, 10)


@pytest.mark.parametrize(
    "rows",
    [
        [candidate("p", "a", 1.0)],
        [candidate("p", "a")],
        [candidate("p", "a", 1.0), candidate("p", "b", 1.0)],
        [candidate("p", "a", float("inf")), candidate("p", "b", 2.0, code_lines=11)],
        [candidate("p", "a", status="gpu_lost", fault="infra")],
    ],
    ids=["one", "failed", "equal", "no time", "lost"],
)
def test_too_little_data_has_no_number_and_a_sentence(rows):
    found = answers(rows)
    assert found["associations"].table["rho"].null_count() == found["associations"].table.height
    assert any("no such group" in note or "measured" in note for answer in found.values() for note in answer.notes)
    for answer in found.values():
        assert set(answer.meanings) <= set(answer.table.columns)


def test_results_without_measures_are_told():
    found = answers([cell(baseline_median_ns=2.0, candidate_median_ns=1.0)])
    assert all(answer.table.is_empty() for answer in found.values())
    assert any("No source was measured" in note for note in found["code"].notes)
    found = answers([candidate("p", "a", 1.0, **dict.fromkeys(list(MEASURES)[:4]))])
    assert found["code"].table.select("measured", "parsed", "traced", "launches").row(0) == (0, 0, 1, 2)
    assert any("No source was measured" in note for note in found["code"].notes)


def test_what_cannot_be_asked_is_said():
    with pytest.raises(NothingSelectedError):
        answers([])
    with pytest.raises(UsageError):
        answers([candidate("p", "a", 1.0)], by=("colour",))


def test_order_of_rows_does_not_matter():
    rows = list(random_rows(np.random.default_rng(2)))
    mixed = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    for one, other in zip(code(tables(rows), QuestionOptions()), code(tables(mixed), QuestionOptions()), strict=True):
        assert_frame_equal(one.table, other.table)
