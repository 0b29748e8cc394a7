"""Choice of the cells and samples on the page."""

from dataclasses import replace

import polars as pl
import pytest

from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.report import cell_choice
from kernel_matrix.results.schema import TELEMETRY
from tests.analysis.made import cell, frame, tables


def sample(record, *, side="candidate", session=0, index=0, ns=1000, **columns):
    contestant = "candidate" if side == "candidate" else "eager"
    row = {"record": record, "session": session, "workload": "default", "role": side, "contestant": contestant}
    return {**row, "regime": "cold", "calls_per_sample": 1, "block": 0, "index": index, "device_ns": ns, **columns}


def timed(number, speedup, **columns):
    return cell(
        candidate=f"c{number:04}",
        record=number,
        baseline_median_ns=1000.0 * speedup,
        candidate_median_ns=1000.0,
        **columns,
    )


def cells_of(made):
    return cell_choice.choose_cells(outcomes(made.cells).collect(), made)


def test_few_outcomes_are_all_kept_with_columns_of_cells():
    made = tables([timed(0, 2.0, labels=["no_trace"], intensity=4.0, flops_per_s=2e12, power_w=400.0)])
    row = cells_of(made).row(0, named=True)
    figures = [row[name] for name in ("candidate_us", "baseline_us", "tflops_per_s", "power_w")]
    assert figures == pytest.approx([1.0, 2.0, 2.0, 400.0])
    assert (row["labels"], row["sampled"]) == (["no_trace"], True)


def test_cells_of_ranks_have_bandwidths_and_share_of_link():
    rates = {"algorithm_bytes_per_s": 3e11, "bus_bytes_per_s": 4.5e11, "link_share_of_peak": 0.9}
    row = cells_of(tables([timed(0, 2.0, collective_kind="all_reduce", **rates)])).row(0, named=True)
    figures = [row[name] for name in ("algorithm_gbytes_per_s", "bus_gbytes_per_s", "link_share_of_peak")]
    assert (row["collective_kind"], figures) == ("all_reduce", pytest.approx([300, 450, 0.9]))


def test_cells_have_the_measures_of_their_source():
    measures = {"code_lines": 87, "code_complexity": 4, "code_maintainability": 48.5}
    rows = [timed(0, 2.0, session=number, launches_per_call=3, **measures) for number in range(2)]
    row = cells_of(tables([*rows, timed(1, 2.0)])).to_dicts()
    assert {name: row[0][name] for name in measures} == measures
    assert row[0]["launches_per_call"] == 3
    assert row[1]["code_lines"] is row[1]["launches_per_call"] is None


def test_of_many_outcomes_failures_and_extremes_are_kept(monkeypatch):
    monkeypatch.setattr(cell_choice, "MOST_CELLS", 4)
    broken = {"status": "timeout", "fault": "candidate"}
    rows = [timed(n, 1 + n / 100) for n in range(6)] + [timed(7, 0.2), timed(8, 9.0)]
    rows += [
        cell(candidate="broken", record=20, **broken),
        cell(candidate="control", record=21, expect="timeout", **broken),
    ]
    found = cells_of(tables(rows))["candidate"].to_list()
    assert sorted(found) == ["broken", "c0005", "c0007", "c0008"]


def test_failures_take_half_at_most(monkeypatch):
    monkeypatch.setattr(cell_choice, "MOST_CELLS", 4)
    rows = [cell(candidate=f"b{n}", record=n, status="timeout", fault="candidate") for n in range(9)]
    found = cells_of(tables([*rows, *(timed(n, 2.0) for n in range(20, 30))]))
    assert found["status"].cast(pl.String).value_counts().sort("status").rows() == [("passed", 2), ("timeout", 2)]


def test_samples_are_of_the_slowest_the_fastest_and_the_noisiest(monkeypatch):
    monkeypatch.setattr(cell_choice, "MOST_SAMPLED", 6)
    rows = [timed(n, 1 + n / 10, grade="A") for n in range(20)]
    rows[10] = timed(10, 2.0, grade="C", spread_within=0.3)
    found = cells_of(tables(rows)).filter("sampled")["candidate"].to_list()
    assert found == ["c0000", "c0001", "c0010", "c0018", "c0019"]


def test_samples_are_thinned_evenly_per_side_in_order(monkeypatch):
    monkeypatch.setattr(cell_choice, "MOST_SAMPLES", 10)
    made = tables([timed(0, 2.0)])
    rows = [sample(0, index=n, ns=1000 + n) for n in reversed(range(40))]
    rows += [sample(0, side="baseline", index=n, ns=2000) for n in range(3)]
    rows += [sample(0, regime="warm", ns=1), sample(9, ns=1)]
    found = cell_choice.read_samples(cells_of(made), replace(made, samples=frame("samples", rows).lazy()))
    assert found.columns == list(cell_choice.SAMPLED)
    assert found.filter(side="candidate")["us"].to_list() == pytest.approx([1 + n / 1000 for n in range(0, 40, 4)])
    assert found.filter(side="eager").height == 3


def test_a_sample_of_several_calls_is_the_time_of_one():
    made = tables([timed(0, 2.0)])
    rows = [sample(0, ns=5000, calls_per_sample=5, discarded="throttled: sw_power_cap")]
    found = cell_choice.read_samples(cells_of(made), replace(made, samples=frame("samples", rows).lazy()))
    assert found.select("us", "discarded").row(0) == (1.0, True)


def test_telemetry_is_found_by_what_a_trace_knows_of_its_record():
    made = tables([timed(3, 2.0)])
    keys = outcomes(made.cells).select("record", "run_id", "cell_id", "attempt").collect()
    look = {**keys.drop("record").row(0, named=True), "sm_clock_mhz": 1500, "power_w": 300.0, "temperature_c": 60}
    rows = [{**look, "at_ns": 10**9 * n} for n in (5, 6)] + [{**look, "run_id": "other", "at_ns": 0}]
    telemetry = pl.DataFrame({k: pl.Series([r.get(k) for r in rows], dtype=t) for k, t in TELEMETRY.items()}).lazy()
    found = cell_choice.read_telemetry(cells_of(made), keys, telemetry)
    assert found.rows() == [(0, 0.0, 1500.0, 300.0, 60.0), (0, 1.0, 1500.0, 300.0, 60.0)]
    assert cell_choice.read_telemetry(cells_of(made), keys, None).columns == found.columns


def test_nothing_gives_nothing():
    made = tables([])
    found = cells_of(made)
    assert found.is_empty()
    assert cell_choice.read_samples(found, made).is_empty()
