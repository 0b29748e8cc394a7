"""Portability: the paper's numbers, null and zero, coverage of intervals, spread and verdicts."""

import math
import statistics

import numpy as np
import polars as pl
import pytest
from scipy import stats

from kernel_matrix.analysis.bestknown import make, write
from kernel_matrix.analysis.portability import portability
from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.analysis.standings import standings
from kernel_matrix.errors import NothingSelectedError, StoreError, UsageError
from tests.analysis.made import cell, cells, over_sessions, tables
from tests.analysis.test_standings import EXCLUDED, FAILED, LOST

GPUS = tuple(f"gpu{place}" for place in range(10))

APPLICATIONS = {
    "unportable": [1.0, *[None] * 9],
    "single target": [1.0, *[0.2] * 9],
    "multi target": [*[1.0] * 5, *[0.2] * 5],
    "consistent 30 %": [0.3] * 10,
    "consistent 70 %": [0.7] * 10,
    "inconsistent": [place / 10 for place in range(1, 11)],
    "9 of 10 at 95 %": [*[0.95] * 9, None],
}
"""Efficiencies on ten platforms, like the cascades of Pennycook et al., P3HPC 2020; None: not supported."""

WANTED = {
    "unportable": (0.1, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0),
    "single target": (1.0, 0.217, 0.217, 0.280, 0.235, 0.2, 5.0),
    "multi target": (1.0, 0.333, 0.333, 0.600, 0.447, 0.2, 5.0),
    "consistent 30 %": (1.0, 0.3, 0.3, 0.3, 0.3, 0.3, 1.0),
    "consistent 70 %": (1.0, 0.7, 0.7, 0.7, 0.7, 0.7, 1.0),
    "inconsistent": (1.0, 0.341, 0.341, 0.550, 0.453, 0.1, 10.0),
    "9 of 10 at 95 %": (0.9, 0.0, 0.95, 0.95, 0.95, 0.0, 1.0),
}
COLUMNS = ("coverage", "pp", "pp_supported", "arithmetic", "geometric_mean", "worst", "max_over_min")


def on(gpu, efficiency, candidate="a", **columns):
    """A cell whose best-known time is the baseline's 100 ns."""
    if efficiency is None:
        return cell(gpu=gpu, candidate=candidate, **FAILED)
    return cell(gpu=gpu, candidate=candidate, baseline_median_ns=100, candidate_median_ns=100 / efficiency, **columns)


def answers(rows, **request):
    return {answer.name: answer for answer in ask("portability", tables(rows), QuestionOptions(**request))}


def main(rows, **request):
    return {row["candidate"]: row for row in answers(rows, **request)["portability"].table.to_dicts()}


def told(answer):
    return "\n".join(answer.notes)


@pytest.fixture(scope="module")
def published():
    rows = [
        on(gpu, efficiency, name)
        for name, efficiencies in APPLICATIONS.items()
        for gpu, efficiency in zip(GPUS, efficiencies, strict=True)
    ]
    return answers(rows)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_all_summaries_of_the_published_cascades(published, name):
    (row,) = published["portability"].table.filter(pl.col("candidate") == name).to_dicts()
    assert [row[column] for column in COLUMNS] == pytest.approx(WANTED[name], abs=6e-4)
    if None not in APPLICATIONS[name]:
        assert row["pp"] == pytest.approx(statistics.harmonic_mean(APPLICATIONS[name]))


def test_a_cascade_ends_at_pp(published):
    cascade = published["cascade"].table.filter(pl.col("candidate") == "inconsistent").sort("place")
    assert cascade["efficiency"].to_list() == pytest.approx([place / 10 for place in range(10, 0, -1)])
    running = [statistics.harmonic_mean(cascade["efficiency"].to_list()[:count]) for count in range(1, 11)]
    assert cascade["running_pp"].to_list() == pytest.approx(running)
    broken = published["cascade"].table.filter(pl.col("candidate") == "9 of 10 at 95 %").sort("place")
    assert broken["running_pp"].to_list() == pytest.approx([*[0.95] * 9, 0.0])


def test_pp_of_failure_is_zero_and_of_missing_cell_null():
    rows = [
        *(
            on(gpu, 0.5, name)
            for gpu in ("x", "y")
            for name in ("whole", "lost", "absent", "failed", "both", "outside")
        ),
        on("z", 0.5, "whole"),
        cell(gpu="z", candidate="lost", **LOST),
        on("z", None, "failed"),
        cell(gpu="z", candidate="outside", **EXCLUDED),
    ]
    rows = [row for row in rows if (row["gpu"], row["candidate"]) != ("y", "both")]
    found = main([*rows, on("z", None, "both")])
    assert {name: row["pp"] for name, row in found.items()} == {
        "whole": pytest.approx(0.5),
        "lost": None,
        "absent": None,
        "failed": 0.0,
        "both": 0.0,
        "outside": pytest.approx(0.5),
    }
    assert (found["lost"]["missing_on"], found["absent"]["missing_on"]) == ("z", "z")
    assert (found["both"]["failed_on"], found["both"]["missing_on"], found["both"]["coverage"]) == ("z", "y", 0.5)
    assert (found["outside"]["excluded_on"], found["outside"]["platforms"]) == ("z", 2)
    assert found["lost"]["arithmetic"] is None
    assert found["lost"]["pp_supported"] == pytest.approx(0.5)
    assert (found["failed"]["worst"], found["failed"]["worst_gpu"]) == (0.0, "z")


def test_a_gpu_that_fails_on_one_of_its_units_has_no_efficiency():
    best = [on("x", 1.0, "best"), on("y", 1.0, "best")]
    rows = [on("x", 0.5), on("y", 0.25), cell(gpu="y", candidate="a", gpu_uuid="GPU-2", **FAILED)]
    found = answers([*best, *rows])
    (row,) = found["portability"].table.filter(pl.col("candidate") == "a").to_dicts()
    assert (row["passed"], row["failed"], row["pp"], row["worst_gpu"]) == (1, 1, 0.0, "y")
    means = [row[name] for name in ("pp_supported", "arithmetic", "geometric_mean", "max_over_min")]
    assert means == pytest.approx([0.5, 0.5, 0.5, 1.0])
    cascade = found["cascade"].table.filter(pl.col("candidate") == "a")
    shown = cascade.select("gpu", "efficiency", "running_pp", "candidate_ns").rows()
    assert shown == [("x", *(pytest.approx(value) for value in (0.5, 0.5, 200))), ("y", 0.0, 0.0, None)]


def test_what_is_null_is_counted_in_the_notes():
    rows = [on("x", 0.5), cell(gpu="y", **{**LOST, "candidate": "a"}), cell(gpu="x", candidate="b", **EXCLUDED)]
    said = told(answers([*rows, cell(gpu="y", candidate="b", **EXCLUDED)])["portability"])
    assert "1 rows have no PP because a GPU is missing" in said
    assert "1 rows are excluded on every GPU" in said
    assert "The platform set is x, y." in said


def test_the_declared_set_decides():
    rows = [on("x", 0.5), on("y", None), on("z", 1.0)]
    assert main(rows)["a"]["pp"] == 0.0
    assert main(rows, platforms=("x", "z"))["a"]["pp"] == pytest.approx(2 / 3)
    declared = answers(rows, platforms=("x", "unseen"))["portability"]
    assert declared.table["pp"].to_list() == [None]
    assert "No cell ran on unseen" in told(declared)
    assert "Cells on y, z are outside of the platform set" in told(declared)
    with pytest.raises(NothingSelectedError, match="no cell ran on any of unseen"):
        answers(rows, platforms=("unseen",))


def test_a_frozen_table_keeps_the_goal_posts(tmp_path):
    rows = [on(gpu, efficiency, name) for gpu in ("x", "y") for name, efficiency in (("a", 1.0), ("b", 0.9))]
    best = make(standings(cells(rows)).table)
    write(best, tmp_path / "best.json")
    rival = [on("x", 3.3, "c"), on("y", 0.25, "c")]
    assert main([*rows, *rival])["a"]["pp"] == pytest.approx(2 / (3.3 + 1))
    frozen = answers([*rows, *rival], best_known=tmp_path / "best.json")["portability"]
    efficiency = dict(frozen.table.select("candidate", "pp").iter_rows())
    assert efficiency == pytest.approx({"a": 1.0, "b": 0.9, "c": 2 / (1 / 3.3 + 4)})
    assert best.sha256 in told(frozen)
    assert "1 cells are faster than the best-known" in told(frozen)
    (tmp_path / "best.json").write_bytes(b"{}")
    with pytest.raises(StoreError):
        answers(rows, best_known=tmp_path / "best.json")


def test_toolchains_are_kept_apart_unless_the_gpu_tells_which():
    apart = [on("x", 0.5), on("x", 0.25, toolchain="old"), on("y", 0.5), on("y", None) | {"toolchain": "old"}]
    apart[-1]["cell_id"] = "old y"
    table = answers(apart)["portability"].table
    assert dict(table.select("toolchain", "pp").iter_rows()) == {"cu130": pytest.approx(0.5), "old": 0.0}
    together = answers([on("x", 0.5), on("y", 0.25, toolchain="rocm")])["portability"].table
    assert "toolchain" not in together.columns
    assert together["pp"].to_list() == pytest.approx([1 / 3])


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_sessions_have_no_interval(count):
    rows = [row for gpu in ("x", "y") for row in over_sessions([(100, 200)] * count, gpu=gpu)]
    answer = answers(rows)["portability"]
    assert answer.table.select("pp_low", "pp_high").rows() == [(None, None)]
    assert "1 values of PP have no interval" in told(answer)


def test_intervals_of_pp_hold_what_they_promise():
    rng = np.random.default_rng(6)
    cases, sessions, deviation = 600, 5, 0.03
    truth = {"x": 0.9, "y": 0.5, "z": 0.4}
    rows = [
        row
        for gpu, efficiency in truth.items()
        for case in range(cases)
        for row in over_sessions(
            [(100.0, 100 / efficiency * error) for error in np.exp(rng.normal(0, deviation, sessions))],
            gpu=gpu, candidate=f"c{case}",
        )
    ]  # fmt: skip
    for gpu in truth:  # so well known that the best-known time is the true one
        rows += over_sessions([(100.0, 100.0)] * 3, gpu=gpu, candidate="best")
    table = answers(rows)["portability"].table.filter(pl.col("candidate") != "best")
    wanted = statistics.harmonic_mean(truth.values())
    inside = table.select(((pl.col("pp_low") < wanted) & (wanted < pl.col("pp_high"))).mean()).item()
    assert table["pp_low"].null_count() == 0
    assert 0.93 <= inside <= 0.985
    again = answers(rows)["portability"].table.filter(pl.col("candidate") != "best")
    assert again.equals(table)


def test_the_interval_of_one_gpu_is_about_that_of_student():
    times = [196.0, 199.0, 201.0, 204.0, 200.0, 197.0, 203.0, 202.0]
    rows = [*over_sessions([(100, time) for time in times]), *over_sessions([(100, 100)] * 3, candidate="best")]
    row = main(rows)["softmax/triton_row"]
    logs = np.log(100 / np.array(times))
    low, high = stats.t.interval(0.95, len(logs) - 1, loc=logs.mean(), scale=stats.sem(logs))
    assert (row["pp_low"], row["pp_high"]) == pytest.approx((math.exp(low), math.exp(high)), rel=2e-3)


def test_methods_are_summed_up_over_problems():
    rows = []
    for number, (first, second) in enumerate([(0.4, 0.4), (0.6, 0.6), (0.8, None), (1.0, 1.0)]):
        about = {"problem": f"p{number}", "origin_method": "agent"}
        rows += [on("x", first, **about), {**on("y", second), **about, "cell_id": f"y{number}"}]
    rows.append(on("x", 0.5, problem="p9", origin_method="agent"))
    answer = answers(rows)["by_method"]
    (row,) = answer.table.to_dicts()
    quartiles = (row["first_quartile"], row["median"], row["third_quartile"])
    assert quartiles == pytest.approx(tuple(np.quantile([0.4, 0.6, 0.0, 1.0], [0.25, 0.5, 0.75])))
    assert (row["rows"], row["problems"], row["unknown"], row["zeros"]) == (4, 4, 1, 0.25)
    assert "1 rows without a PP" in told(answer)


@pytest.mark.parametrize("name", ["gpu", "toolchain", "unit", "host", "nonsense"])
def test_what_cannot_be_sliced_by_is_said(name):
    with pytest.raises(UsageError):
        answers([on("x", 0.5)], by=(name,))


def test_spread_is_of_logarithms_and_says_of_how_many():
    rows = [on("x", 2.0), on("y", 4.0), on("z", 1.0), on("x", 2.0, "alone"), cell(gpu="y", candidate_median_ns=3.0)]
    answer = answers(rows)["spread"]
    (row,) = answer.table.to_dicts()
    deviation = statistics.stdev(map(math.log, [2, 4, 1]))
    assert row["sd_log_speedup"] == pytest.approx(deviation)
    assert row["gcv"] == pytest.approx(math.sqrt(math.exp(deviation**2) - 1))
    assert (row["gpus"], row["max_over_min"], row["most_on"], row["least_on"]) == (3, pytest.approx(4), "y", "z")
    assert "1 rows with a speed-up on one GPU" in told(answer)
    assert "1 cells passed without a speed-up" in told(answer)


def test_shares_above_one_are_flagged_and_not_averaged():
    rows = [
        on("x", 0.5, share_of_peak=0.5, flops_share_of_peak=0.4),
        on("y", 0.5, share_of_peak=0.25),
        on("x", 0.5, "b", share_of_peak=0.5),
        on("y", 0.5, "b", share_of_peak=1.3),
        on("x", 0.5, "c"),
    ]
    found = answers(rows)
    row = {row["candidate"]: row for row in found["portability"].table.to_dicts()}
    assert (row["a"]["pp_architectural"], row["a"]["above_peak"]) == (pytest.approx(1 / 3), 0)
    assert (row["b"]["pp_architectural"], row["b"]["above_peak"]) == (None, 1)
    gpus = {row["gpu"]: row for row in found["architecture"].table.to_dicts()}
    assert (gpus["y"]["roofline_median"], gpus["y"]["roofline_above_1"], gpus["y"]["roofline_cells"]) == (0.25, 1, 1)
    assert (gpus["x"]["mfu_median"], gpus["x"]["mfu_cells"], gpus["x"]["cells"]) == (0.4, 1, 3)
    assert "1 shares above 1" in told(found["architecture"])


def test_pairs_of_gpus_with_differing_verdicts_are_listed():
    rows = [on("x", 0.5), on("y", None), on("x", 0.5, "b"), on("y", 0.5, "b"), on("x", None, "c"), on("y", None, "c")]
    found = answers([*rows, on("x", 0.5, "d"), cell(gpu="y", candidate="d", **LOST)])
    (pair,) = found["verdicts"].table.to_dicts()
    counts = [pair[name] for name in ("both_pass", "passes_fails", "fails_passes", "both_fail", "cells")]
    assert (counts, pair["differ"]) == ([1, 1, 0, 1, 3], pytest.approx(1 / 3))
    (row,) = found["verdict_cells"].table.to_dicts()
    assert (row["candidate"], row["passes_on"], row["fails_on"]) == ("a", "x", "y: incorrect_values")


@pytest.mark.parametrize(
    "rows",
    [
        [on("x", 0.5)],
        [on("x", None)],
        [cell(gpu="x", **LOST)],
        [cell(gpu="x", **EXCLUDED)],
        [cell(gpu="x", **{**FAILED, "workload": None})],
        [on("größe ☃", 0.5, "дела/速い"), on("y", 0.5, "дела/速い")],
        [cell(gpu="x", candidate_median_ns=0.0), cell(gpu="y", candidate_median_ns=math.inf)],
        [cell(gpu="x", candidate_median_ns=5.0), cell(gpu="y", candidate_median_ns=6.0)],
    ],
)
def test_poor_tables_are_answered(rows):
    found = portability(tables(rows), QuestionOptions())
    assert {answer.name for answer in found} == {
        *("portability", "by_method", "cascade", "spread", "architecture", "verdicts", "verdict_cells")
    }
    for answer in found:
        assert set(answer.meanings) <= set(answer.table.columns)


def test_an_unknown_dtype_is_a_dtype_like_any_other():
    """A row without a GPU, as in imported tables."""
    row = main([on("x", 0.5, dtype=None), on("y", 0.5, dtype=None)])["a"]
    assert (row["dtype"], row["pp"], row["platforms"]) == (None, pytest.approx(0.5), 2)


def test_an_unknown_dtype_has_an_interval_too():
    rows = [
        row
        for dtype in (None, "fp32")
        for gpu in ("x", "y")
        for row in over_sessions([(100, 198), (100, 200), (100, 203)], gpu=gpu, dtype=dtype)
    ]
    answer = answers(rows)["portability"]
    assert answer.table["dtype"].to_list() == [None, "fp32"]
    bounds = answer.table.select("pp_low", "pp", "pp_high").rows()
    assert all(low < pp < high for low, pp, high in bounds)
    assert bounds[0] == pytest.approx(bounds[1])


def test_cells_without_gpu_are_left_out_and_counted():
    rows = [on("x", 0.5), on("y", 0.25), on(None, 1.0), on(None, 1.0, "b")]
    found = answers(rows)["portability"]
    assert [(row["candidate"], row["platforms"]) for row in found.table.to_dicts()] == [("a", 2)]
    assert "2 cells do not name their GPU" in told(found)
    with pytest.raises(NothingSelectedError, match="no cell names its GPU"):
        answers(rows[2:])


def test_only_implementation_has_no_efficiency():
    rows = [cell(gpu=gpu, candidate_median_ns=5.0) for gpu in ("x", "y")]
    answer = answers(rows)["portability"]
    assert answer.table.select("pp", "pp_low", "arithmetic").rows() == [(None, None, None)]
    assert "2 cells have the only implementation" in told(answer)
    beside_baseline = answers([on("x", 0.5), on("y", 0.5)])["portability"]
    assert beside_baseline.table["pp"].to_list() == pytest.approx([0.5])
    assert "2 cells have no other candidate beside them" in told(beside_baseline)


@pytest.mark.parametrize(("noise", "spread"), [(0.01, 0.003), (0.01, 0.2), (0.03, 0.03)])
def test_intervals_hold_although_the_best_is_noisy(noise, spread):
    dice = np.random.default_rng(7)
    truth = dice.normal(0, spread, (2, 12, 10))
    rows = [
        row
        for (gpu, problem, candidate), level in np.ndenumerate(truth)
        for row in over_sessions(
            [(300.0, time) for time in 100 * np.exp(level + dice.normal(0, noise, 3))],
            gpu=f"g{gpu}", problem=f"p{problem}", candidate=f"p{problem}/c{candidate}",
        )
    ]  # fmt: skip
    wanted = 1 / np.exp(truth - truth.min(axis=2, keepdims=True)).mean(axis=0)
    names = {f"p{problem}/c{candidate}": pp for (problem, candidate), pp in np.ndenumerate(wanted)}
    table = answers(rows)["portability"].table.drop_nulls("pp_low")
    true = table["candidate"].replace_strict(names, return_dtype=pl.Float64)
    assert table.height > 60
    assert ((table["pp_low"] <= true) & (true <= table["pp_high"])).mean() > 0.9
