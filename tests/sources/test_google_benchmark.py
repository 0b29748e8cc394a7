"""Google Benchmark's JSON."""

from datetime import datetime, timezone

import polars as pl
import pytest

from tests.results.importing.made import load, only, put

CONTEXT = {"date": "2026-03-01T12:00:00+00:00", "host_name": "node7", "executable": "./build/bench_softmax"}


def repetition(time, name="BM_Row/1024", **others):
    usual = {"name": name, "run_name": name, "run_type": "iteration", "iterations": 50, "time_unit": "us"}
    return {**usual, "real_time": time, "cpu_time": time, **others}


def aggregate(kind, time, **others):
    return repetition(time, run_type="aggregate", aggregate_name=kind, repetitions=9, **others)


def document(*rows, **context):
    return {"context": {**CONTEXT, **context}, "benchmarks": list(rows)}


def test_repetitions_are_samples(tmp_path):
    rows = [repetition(time) for time in (3.0, 1.0, 2.0)]
    report, found = load(tmp_path, put(tmp_path / "a.json", document(*rows, aggregate("mean", 2.0))))
    (row,) = found
    assert (row["problem"], row["workload"], row["candidate"]) == ("BM_Row", "1024", "bench_softmax")
    assert (row["hostname"], row["gpu"], row["started_at"]) == (
        "node7",
        None,
        datetime(2026, 3, 1, 12, tzinfo=timezone.utc),
    )
    assert (row["candidate_median_ns"], row["candidate_wall_median_ns"], row["candidate_samples"]) == (2000, 2000, 3)
    assert (row["spread_within"], row["labels"]) == (pytest.approx(0.5), ["host_clock"])
    samples = pl.read_parquet(report.tables["samples"]).to_dicts()
    assert [(one["wall_ns"], one["device_ns"], one["calls_per_sample"], one["index"]) for one in samples] == [
        (3000, None, 50, 0),
        (1000, None, 50, 1),
        (2000, None, 50, 2),
    ]


def test_manual_time_is_not_the_hosts(tmp_path):
    report, rows = load(tmp_path, put(tmp_path / "a.json", document(repetition(2.5, "BM_Row/8/manual_time"))))
    assert (rows[0]["labels"], rows[0]["candidate_wall_median_ns"]) == (["mean_not_median"], None)
    assert pl.read_parquet(report.tables["samples"])["device_ns"].to_list() == [2500]


@pytest.mark.parametrize(
    ("kinds", "median_ns", "spread", "labels"),
    [
        ({"mean": 4.0, "median": 3.0, "stddev": 1.0, "cv": 0.25}, 3000, 0.25, ["host_clock"]),
        ({"mean": 4.0, "cv": 0.5}, 4000, 0.5, ["mean_not_median", "host_clock"]),
    ],
)
def test_where_only_aggregates_were_kept_those_count(tmp_path, kinds, median_ns, spread, labels):
    rows = [aggregate(kind, time) for kind, time in kinds.items()]
    row = only(tmp_path, put(tmp_path / "a.json", document(*rows)))
    assert (row["candidate_median_ns"], row["candidate_samples"]) == (median_ns, 9)
    assert (row["spread_within"], row["labels"]) == (pytest.approx(spread), labels)


def test_errors_and_skips_are_statuses(tmp_path):
    rows = [
        repetition(0, "BM_A", error_occurred=True, error_message="launch failed"),
        repetition(0, "BM_B", skipped=True, skip_message="no device"),
    ]
    _report, found = load(tmp_path, put(tmp_path / "a.json", document(*rows, date="2018/07/01 12:00:00")))
    assert [(row["status"], row["message"], row["started_at"]) for row in found] == [
        ("runtime_error", "launch failed", None),
        ("unsupported", "no device", None),
    ]


def test_fits_are_counted_and_bad_rows_refused(tmp_path):
    rows = [
        repetition(1.0),
        {"name": "BM_Row_BigO", "run_type": "aggregate", "aggregate_name": "BigO", "big_o": "N"},
        repetition(1.0, "BM_X", time_unit="weeks"),
        repetition(-1.0, "BM_Y"),
        aggregate("stddev", 1.0, name="BM_Z", run_name="BM_Z"),
        4,
    ]
    report, found = load(tmp_path, put(tmp_path / "a.json", document(*rows)))
    assert len(found) == 1
    assert report.files[0].notes == ("1 rows are complexity fits without a time",)
    assert [one.reason for one in report.refused] == [
        "benchmarks.2.time_unit: 'weeks' is not a known unit: ns, us, ms, s",
        "benchmarks.3.real_time: must not be negative; got -1",
        "benchmarks.4: there is no repetition, median or mean",
        "benchmarks.5: must be an object; got a number",
    ]
