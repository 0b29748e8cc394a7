"""Base against new: joins, tests and error rates."""

import math
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
from scipy import stats

from kernel_matrix.analysis.accepted import Acceptance, read_accepted
from kernel_matrix.analysis.compare import between, compare
from kernel_matrix.analysis.comparison import ROWS, Answered, Change, ComparedQuantity, ComparisonAxis, ComparisonRules
from kernel_matrix.errors import NothingSelectedError, UsageError
from tests.analysis.made import SLOWER, START, STEADY, cell, cells, failed, timed


def only(base, new, how=ComparisonAxis.RESULTS, **options):
    found = compare(cells(base), cells(new), how, **options)
    assert found.rows.height == 1, found.rows
    return found.rows.row(0, named=True)


def many(matrix, **columns):
    """``cells`` of a matrix of session medians, one row per cell; built by column, since there are many."""
    count, sessions = matrix.shape
    one = cells(timed([1.0], night=columns.pop("night", 0), **columns)).collect()
    number = np.repeat(np.arange(count), sessions)
    own = pl.DataFrame(
        {
            "record": number.astype(np.uint32),
            "candidate": [f"softmax/{n}" for n in number],
            "candidate_sha256": [f"of {n}" for n in number],
            "cell_id": [f"{n}" for n in number],
            "session": np.tile(np.arange(sessions, dtype=np.int32), count),
            "candidate_median_ns": matrix.reshape(-1),
            "speedup": 2e4 / matrix.reshape(-1),
        }
    )
    return one.drop(own.columns).join(own, how="cross").lazy()


def noisy(rng, count, noise, sessions=5):
    """Session medians around 10 µs; ``noise``: standard deviation between sessions, one for all or one per cell."""
    return 1e4 * np.exp(rng.normal(0, 1, (count, sessions)) * np.broadcast_to(noise, (count,))[:, None])


def test_intervals_hold_for_calls_of_each_size():
    rng, covered = np.random.default_rng(4), {True: [], False: []}
    for _ in range(10):
        sides = [
            many(np.vstack([0.2 * noisy(rng, 100, 0.02, 3), 100 * noisy(rng, 200, 0.003, 3)])) for _side in range(2)
        ]
        found = compare(*sides)
        rows = found.rows.with_columns(held=(pl.col("ratio_low") <= 1) & (pl.col("ratio_high") >= 1))
        for short, shares in covered.items():
            shares.append(rows.filter((pl.col("base_value") < 10_000) == short)["held"].mean())
    assert all(0.93 <= np.mean(shares) <= 0.97 for shares in covered.values())


@pytest.mark.parametrize(
    ("base", "new", "change", "reason"),
    [
        (timed(STEADY), timed(SLOWER), "regression", ""),
        (timed(SLOWER), timed(STEADY), "improvement", ""),
        (timed(STEADY), timed(STEADY[::-1]), "equivalent", ""),
        (timed(STEADY), timed([95.0, 105.0, 100.2]), "inconclusive", "the interval is wider than the margin"),
        (timed(STEADY), timed([112.0, 95.0, 110.0]), "inconclusive", "more than the margin, but not significant"),
        (timed(STEADY), timed([102.0, 103.1, 102.5]), "inconclusive", "more than the margin, but not significant"),
        (timed(STEADY), timed([130.0]), "regression", ""),
        (timed([100.0]), timed([100.0]), "inconclusive", "the interval is wider than the margin"),
        (timed(STEADY), [failed()], "broke", "crashed: signal 11"),
        ([failed()], timed(STEADY), "fixed", "was crashed"),
        ([failed()], [failed(status="timeout")], "both_failed", "timeout"),
        (timed(STEADY), [failed(status="gpu_lost", fault="infra")], "inconclusive", "new: gpu_lost (fault infra)"),
        ([failed(status="gpu_lost", fault="infra")], [failed()], "inconclusive", "base: gpu_lost (fault infra)"),
        (timed(STEADY), [], "missing", "in base only"),
        ([], timed(STEADY), "new", ""),
        (timed(STEADY), [cell()], "inconclusive", "no time on one side"),
        (timed(STEADY), timed([0.0, math.inf]), "inconclusive", "no time on one side"),
    ],
)
def test_what_is_said_of_one_cell(base, new, change, reason):
    row = only(base, new)
    assert row["change"] == change
    assert row["reason"].startswith(reason)
    assert bool(row["reason"]) == bool(reason)


def test_failure_before_any_workload_breaks_all_workloads():
    base = [*timed(STEADY, workload="small"), *timed(STEADY, workload="large")]
    found = compare(cells(base), cells([failed()]))
    assert found.counts() == {Change.BROKE: 2}
    assert sorted(found.rows["workload"]) == ["large", "small"]


def test_a_workload_that_a_passing_cell_has_no_more_is_missing():
    base = [*timed(STEADY, workload="small"), *timed(STEADY, workload="large")]
    found = compare(cells(base), cells(timed(STEADY, workload="small")))
    assert found.counts() == {Change.MISSING: 1, Change.EQUIVALENT: 1}


def test_ratio_is_that_of_geometric_means_in_its_interval():
    row = only(timed(STEADY), timed(SLOWER[:4]))
    assert (row["test"], row["base_runs"], row["new_sessions"]) == ("unpaired", 1, 4)
    assert (row["base_value"], row["ratio"]) == pytest.approx(
        (stats.gmean(STEADY), stats.gmean(SLOWER[:4]) / row["base_value"])
    )
    assert 1.02 < row["ratio_low"] < row["ratio"] < row["ratio_high"] < 1.08


def test_all_runs_of_the_same_content_count():
    earlier = [*timed(STEADY, night=1), *timed([104.0] * 5, night=2), *timed([97.0] * 5, night=3)]
    other = timed([50.0] * 5, night=0, candidate_sha256="an older version")
    row = only([*other, *earlier], timed(SLOWER, night=9))
    assert (row["base_runs"], row["base_sessions"]) == (3, 15)
    assert row["base_value"] == pytest.approx(stats.gmean([100.0, 104.0, 97.0]), rel=1e-3)
    assert row["change"] == "inconclusive"  # 5 % is no more than its runs differ by
    assert only(timed(STEADY), timed(SLOWER, night=9))["change"] == "regression"


def test_sessions_of_one_run_in_turns_are_paired():
    drifting = [100.0, 104.0, 97.0, 109.0, 93.0]
    after = [value * 1.03 * (1 + 0.0004 * number) for number, value in enumerate(drifting)]
    both = [*timed(drifting, toolchain="cu124"), *timed(after, toolchain="cu130")]
    row = only(*(frame.collect().to_dicts() for frame in between(cells(both), ComparisonAxis.TOOLCHAIN, "cu124",
    "cu130")),
               ComparisonAxis.TOOLCHAIN, names=("cu124", "cu130"))  # fmt: skip
    assert (row["change"], row["test"], row["toolchain"]) == ("regression", "paired", "cu124 → cu130")
    assert row["p"] == pytest.approx(stats.ttest_rel(np.log(after), np.log(drifting)).pvalue)


def test_sessions_of_one_run_one_after_the_other_are_not_paired():
    later = {"started_at": START.replace(hour=23), "ended_at": START.replace(hour=23, minute=1)}
    both = cells([*timed(STEADY, toolchain="cu124"), *timed(SLOWER, toolchain="cu130", **later)])
    found = compare(*between(both, ComparisonAxis.TOOLCHAIN, "cu124", "cu130"), ComparisonAxis.TOOLCHAIN)
    assert found.rows["test"].to_list() == ["unpaired"]


def chosen_tests(first, second):
    """The tests that two toolchains' sessions of one run are compared by."""
    both = cells([*first, *second])
    found = compare(*between(both, ComparisonAxis.TOOLCHAIN, "cu124", "cu130"), ComparisonAxis.TOOLCHAIN)
    return found.rows["test"].to_list()


@pytest.mark.parametrize(("later_s", "test"), [(60, "paired"), (61, "unpaired")])
def test_pairs_overlap_for_half_of_the_longer_attempt(later_s, test):
    minutes = timedelta(minutes=2)
    then = START + timedelta(seconds=later_s)
    first = timed(STEADY, toolchain="cu124", started_at=START, ended_at=START + minutes)
    second = timed(SLOWER, toolchain="cu130", started_at=then, ended_at=then + minutes)
    assert chosen_tests(first, second) == [test]


@pytest.mark.parametrize("fewer", [("cu124", "cu130"), ("cu130", "cu124")], ids=["base", "new"])
def test_sessions_are_not_paired_where_one_side_has_more(fewer):
    assert chosen_tests(timed(STEADY[:2], toolchain=fewer[0]), timed(SLOWER, toolchain=fewer[1])) == ["unpaired"]


def test_twelve_times_slower_is_found_with_one_session_a_side():
    row = only(timed([22_600.0]), timed([267_000.0]))
    assert row["change"] == "regression"
    assert 1.05 < 1 + row["smallest"] < 1.5


def test_sessions_of_a_cell_that_failed_are_not_tested():
    row = only(timed(STEADY), timed(SLOWER, status="crashed", fault="candidate"))
    assert (row["test"], row["p"]) == (None, None)


def test_cell_that_failed_on_one_gpu_is_not_tested():
    other = {"gpu_uuid": "GPU-2", "host_id": "host2"}
    row = only([*timed(STEADY), *timed(STEADY, **other)], [*timed(SLOWER), failed(**other)])
    assert (row["test"], row["p"]) == (None, None)


@pytest.mark.parametrize(
    ("axis", "column", "base", "new"),
    [
        (ComparisonAxis.GPU, "gpu", "h200", "l4"),
        (ComparisonAxis.DTYPE, "dtype", "fp32", "fp16"),
        (ComparisonAxis.DRIVER, "driver", "570", "580"),
        (ComparisonAxis.NIGHT, "night", 0, 1),
    ],
)
def test_two_values_of_one_column_are_compared(axis, column, base, new):
    rows = [*timed(STEADY, **{column: base}), *timed(SLOWER, **{column: new})]
    sides = (base, new) if column != "night" else ("2026-03-01", "2026-03-02")
    found = compare(*between(cells(rows), axis, *sides), axis, names=sides)
    assert found.counts() == {Change.REGRESSION: 1}


def test_a_value_that_is_not_there_says_which_are():
    with pytest.raises(NothingSelectedError, match="no cell has toolchain 'cu999'") as caught:
        between(cells(timed(STEADY)), ComparisonAxis.TOOLCHAIN, "cu130", "cu999")
    assert "The values are cu130." in str(caught.value)


@pytest.mark.parametrize(
    ("clocks", "change", "cycles"),
    [
        ((1980.0, 1980.0), "regression", 1.05),
        ((1980.0, 1980.0 / 1.05), "inconclusive", 1.0),
        ((1980.0, 1800.0), "inconclusive", 1.05 * 1800 / 1980),
        ((1980.0, None), "regression", None),
    ],
)
def test_a_regression_must_show_in_cycles_too(clocks, change, cycles):
    row = only(timed(STEADY, sm_clock_mhz=clocks[0]), timed(SLOWER, sm_clock_mhz=clocks[1]))
    assert (row["change"], row["cycles_ratio"]) == (change, cycles and pytest.approx(cycles))
    assert (row["reason"] == "clocks moved") == (change == "inconclusive")


def test_clocks_of_two_gpus_differ_by_nature():
    row = only(timed(STEADY, sm_clock_mhz=1980.0), timed(SLOWER, gpu="l4", sm_clock_mhz=900.0), ComparisonAxis.GPU)
    assert row["change"] == "regression"


@pytest.mark.parametrize(
    ("of", "ratio"),
    [(ComparedQuantity.SPEEDUP, 1 / 1.05), (ComparedQuantity.TIME, 1.05), (ComparedQuantity.CYCLES, 1.05)],
)
def test_worse_is_worse_whatever_is_compared(of, ratio):
    row = only(timed(STEADY, sm_clock_mhz=1000.0), timed(SLOWER, sm_clock_mhz=1000.0), rules=ComparisonRules(of=of))
    assert (row["change"], row["ratio"]) == ("regression", pytest.approx(ratio))


def test_shared_units_are_compared_if_there_are_any():
    new = [*timed(STEADY), *timed(SLOWER, gpu_uuid="GPU-2")]
    found = compare(cells(timed(STEADY)), cells(new))
    assert found.counts() == {Change.EQUIVALENT: 1}
    assert "1 attempts are left out" in "".join(found.notes)
    elsewhere = compare(cells(timed(STEADY)), cells(timed(SLOWER, gpu_uuid="GPU-2")))
    assert (elsewhere.counts(), elsewhere.rows["differs"][0]) == ({Change.REGRESSION: 1}, "unit")


def test_latest_attempt_counts_after_content_change():
    new = [*timed(STEADY, cell_id="old"), *timed(SLOWER, cell_id="anew", candidate_sha256="other", night=1)]
    row = only(timed(STEADY), new)
    assert (row["change"], row["new_cell_id"], row["differs"]) == ("regression", "anew", "candidate")


def test_many_cells_moving_together_are_environment():
    rng = np.random.default_rng(7)
    base, new = noisy(rng, 40, 0.003), noisy(rng, 40, 0.003)
    new[:20] *= 1.04
    found = compare(many(base), many(new, driver="590.1", night=1))
    assert (found.event.moved, found.event.timed, found.event.direction) == (20, 40, Change.REGRESSION)
    assert "driver: 580.1 → 590.1" in str(found.event)
    assert found.counts()[Change.REGRESSION] == 20  # verdicts stay, and are marked
    assert found.rows.filter("environment")["change"].unique().to_list() == ["regression"]
    new[10:20] /= 1.04
    assert compare(many(base), many(new, night=1)).event is None


def test_accepted_regression_has_reason_until_its_day():
    entry = Acceptance(globs={"problem": "soft*", "candidate": "*/triton_*"}, until=date(2026, 4, 1), reason="spills")
    found = compare(cells(timed(STEADY)), cells(timed(SLOWER)), accepted=[entry], today=date(2026, 4, 1))
    assert found.rows.select("change", "reason").row(0) == ("accepted", "spills (until 2026-04-01)")
    assert found.flagged().is_empty()
    late = compare(cells(timed(STEADY)), cells(timed(SLOWER)), accepted=[entry], today=date(2026, 4, 2))
    assert (late.counts(), "ended on 2026-04-01" in "".join(late.notes)) == ({Change.REGRESSION: 1}, True)
    idle = compare(cells(timed(STEADY)), cells(timed(STEADY)), accepted=[entry])
    assert "matches no regression" in "".join(idle.notes)


def test_what_broke_cannot_be_accepted():
    entry = Acceptance(globs={"problem": "*"}, until=date(2026, 4, 1), reason="spills")
    assert only(timed(STEADY), [failed()], accepted=[entry])["change"] == "broke"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[[accept]\n", "is not valid TOML"),
        ("accept = 3", "'accept' is not a list of tables"),
        ("[[accepted]]", "unknown key 'accepted'"),
        ('[[accept]]\nuntil = 2026-01-01\nreason = "x"', "entry 1: give a glob"),
        ('[[accept]]\nproblem = "*"\nuntil = "soon"\nreason = "x"', "entry 1: 'until' must be a date"),
        ('[[accept]]\nproblem = "*"\nuntil = 2026-01-01\nreason = ""', "entry 1: 'reason' must say why"),
        ('[[accept]]\nproblem = "*"\nbecause = "x"', "entry 1: unknown key 'because'"),
    ],
)
def test_a_malformed_file_of_accepted_changes_is_one_clear_error(tmp_path, text, wrong):
    path = tmp_path / "accepted.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=wrong):
        read_accepted(path)


def test_accepted_changes_are_read(tmp_path):
    path = tmp_path / "accepted.toml"
    path.write_text('[[accept]]\ncandidate = "größe/*"\nuntil = 2026-12-31\nreason = "spills"')
    (entry,) = read_accepted(path)
    assert entry == Acceptance(globs={"candidate": "größe/*"}, until=date(2026, 12, 31), reason="spills")


def test_compare_empty_sides_raises_and_one_empty_side_is_noted():
    with pytest.raises(NothingSelectedError, match="neither side has a cell"):
        compare(cells([]), cells([]))
    found = compare(cells(timed(STEADY)), cells([]), names=("old", "now"))
    assert (found.counts(), found.notes[0]) == ({Change.MISSING: 1}, "now has no cell.")
    apart = compare(cells(timed(STEADY)), cells(timed(STEADY, problem="größe")))
    assert apart.counts() == {Change.MISSING: 1, Change.NEW: 1}
    assert "nothing is compared" in apart.notes[0]


def test_results_against_themselves_are_equivalent():
    same = cells(timed(STEADY))
    found = compare(same, same)
    assert (found.counts(), dict(found.rows.schema)) == ({Change.EQUIVALENT: 1}, ROWS)


@pytest.mark.parametrize(("noise", "sessions"), [(0.01, 5), ("mixed", 5), ("mixed", 2)])
def test_identical_code_is_hardly_ever_called_different(noise, sessions):
    """500 cells × 5 sessions without any difference: at most 1 % false positives over 20 comparisons."""
    rng = np.random.default_rng(2026)
    each = np.resize([0.003, 0.01, 0.03], 500) if noise == "mixed" else noise
    wrong = 0
    for _ in range(20):
        found = compare(many(noisy(rng, 500, each, sessions)), many(noisy(rng, 500, each, sessions), night=1))
        wrong += found.rows.filter(pl.col("change").is_in(["regression", "improvement"])).height
    assert wrong <= 0.01 * 20 * 500


@pytest.mark.parametrize("moved", [1, 25])
def test_two_percent_is_found_where_noise_is_grade_a(moved):
    """With five sessions and noise of 0.3 % the power is 95 %, also for one cell of 500."""
    rng = np.random.default_rng(2027)
    hits, pages = 0, max(500 // moved // 16, 20)
    for _ in range(pages):
        new = noisy(rng, 500, 0.003)
        new[:moved] *= 1.02
        found = compare(many(noisy(rng, 500, 0.003)), many(new, night=1))
        hits += found.rows.filter(pl.col("change") == "regression").height
    assert 0.95 * pages * moved <= hits <= 1.02 * pages * moved


def test_a_step_of_one_tick_is_no_regression():
    """Kernels of 2 µs with a clock tick of 32 ns: a difference of 1.6 % in all sessions is one tick."""
    at = np.repeat(32.0 * np.arange(60, 100)[:, None], 5, axis=1)
    stepped, leapt = at.copy(), at.copy()
    stepped[:4] += 32
    leapt[:4] += 96
    found = compare(many(at), many(stepped, night=1))
    assert found.counts() == {Change.EQUIVALENT: 40}
    assert compare(many(at), many(leapt, night=1)).counts() == {Change.REGRESSION: 4, Change.EQUIVALENT: 36}


def test_noise_of_other_cells_does_not_widen_a_margin():
    """Six of thirty cells with 8 % of noise; a quiet one that is 4 % slower."""
    rng = np.random.default_rng(2028)
    noise = np.where(np.arange(30) < 6, 0.08, 0.001)
    new = noisy(rng, 30, noise)
    new[20] *= 1.041
    found = compare(many(noisy(rng, 30, noise)), many(new, night=1))
    assert found.rows.filter(pl.col("candidate") == "softmax/20")["change"].item() == "regression"


def test_less_than_the_margin_is_hardly_ever_beyond_it():
    """True +0.9 % in every cell is called a regression beyond 1 % in one of twenty at most."""
    rng = np.random.default_rng(2029)
    found = compare(many(noisy(rng, 1000, 0.005)), many(1.009 * noisy(rng, 1000, 0.005), night=1))
    assert found.counts().get(Change.REGRESSION, 0) <= 0.05 * 1000


@pytest.mark.parametrize(("runs", "deviation"), [(3, 0.003), (3, 0.01), (5, 0.005)])
def test_runs_that_differ_raise_no_alarm(runs, deviation):
    rng = np.random.default_rng(2030)
    wrong = 0
    for _ in range(5):
        base = pl.concat(
            many(noisy(rng, 500, 0.003) * np.exp(rng.normal(0, deviation, (500, 1))), night=night).with_columns(
                pl.col("record") + 1000 * night
            )
            for night in range(runs)
        )
        found = compare(base, many(noisy(rng, 500, 0.003) * np.exp(rng.normal(0, deviation, (500, 1))), night=9))
        wrong += found.flagged().height
        assert any("as its runs show" in note for note in found.notes)
    assert wrong <= 1


def test_answer_says_what_could_not_be_compared():
    base = [*timed(STEADY), *timed(STEADY, candidate="softmax/gone")]
    new = [*timed(STEADY[::-1]), *timed(STEADY, candidate="softmax/added")]
    found = compare(cells(base), cells(new))
    assert (found.answer, found.compared) == (Answered.FINE, 1)
    assert found.headline == (
        "nothing broke and nothing is shown to be slower, of 1 row compared; 2 could not be compared: 1 in base only,"
        " 1 in new only"
    )
    nothing = compare(cells(base[5:]), cells(new[5:]))
    assert nothing.answer is Answered.NOT_COMPARED
    assert nothing.headline.startswith("nothing could be compared: of 2 rows 2 could not be compared: 1 in ")
    assert compare(cells(base), cells([failed(), *new[5:]])).answer is Answered.WORSE


def test_intervals_cover_at_their_level():
    rng = np.random.default_rng(5)
    new = noisy(rng, 2000, 0.01) * 1.03
    rows = compare(many(noisy(rng, 2000, 0.01)), many(new, night=1)).rows
    covered = rows.filter(pl.col("ratio_low").le(1.03) & pl.col("ratio_high").ge(1.03)).height / rows.height
    assert covered == pytest.approx(0.95, abs=0.015)
