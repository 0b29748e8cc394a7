"""JSON of nvbench, with and without sample files."""

from array import array

import polars as pl
import pytest

from tests.results.importing.made import load, only, put

DEVICE = {"id": 0, "name": "NVIDIA H100 PCIe", "sm_version": 900, "global_memory_size": 85_000_000_000}


def summary(tag, value, name="value", **others):
    data = [{"name": name, "type": "float64", "value": value}]
    return {"tag": tag, "data": data + [{"name": key, "type": "string", "value": said} for key, said in others.items()]}


def state(*summaries, block="256", **others):
    axes = [{"name": "T", "type": "type", "value": "F32"}, {"name": "Block", "type": "int64", "value": block}]
    return {"name": "Device=0 Block=2^8", "device": 0, "axis_values": axes, "summaries": list(summaries), **others}


def document(*states, devices=(DEVICE,)):
    return {
        "meta": {"argv": ["/build/copy_bench", "--json", "a.json"]},
        "devices": list(devices),
        "benchmarks": [{"name": "copy", "states": list(states)}],
    }


MEAN = summary("nv/cold/time/gpu/mean", "0.0002")


def test_a_state_becomes_a_row(tmp_path):
    seen = state(
        MEAN,
        summary("nv/cold/time/gpu/stdev/relative", 0.01),
        summary("nv/cold/time/cpu/mean", "0.0003"),
        summary("nv/cold/sample_size", "500"),
        summary("nv/cold/bw/global/bytes_per_second", "2e12"),
        summary("nv/cold/sm_clock_rate/mean", "1.7e9"),
    )
    row = only(tmp_path, put(tmp_path / "a.json", document(seen)))
    assert (row["problem"], row["workload"], row["candidate"]) == ("copy", "T=F32,Block=256", "copy_bench")
    assert (row["gpu"], row["compute_capability"], row["memory_bytes"]) == ("NVIDIA H100 PCIe", "9.0", 85_000_000_000)
    assert (row["candidate_median_ns"], row["candidate_wall_median_ns"]) == (pytest.approx(2e5), pytest.approx(3e5))
    assert (row["candidate_samples"], row["spread_within"], row["labels"]) == (500, 0.01, ["mean_not_median"])
    assert (row["bytes_per_s"], row["sm_clock_mhz"]) == (2e12, pytest.approx(1700))


def test_a_median_is_taken_where_there_is_one(tmp_path):
    row = only(tmp_path, put(tmp_path / "a.json", document(state(MEAN, summary("nv/cold/time/gpu/median", 1e-4)))))
    assert (row["candidate_median_ns"], row["labels"]) == (pytest.approx(1e5), [])


def samples(said="a.json-bin/0.bin", size="3"):
    return summary("nv/json/bin:nv/cold/sample_times", said, name="filename", size=size)


def test_samples_beside_the_document_are_read(tmp_path):
    put(tmp_path / "a.json-bin" / "0.bin", array("f", [1e-6, 5e-6, 2e-6]).tobytes())
    seen = state(MEAN, samples("/elsewhere/a.json-bin/0.bin"))
    report, rows = load(tmp_path, put(tmp_path / "a.json", document(seen)))
    assert (rows[0]["candidate_median_ns"], rows[0]["candidate_samples"]) == (pytest.approx(2000), 3)
    assert rows[0]["labels"] == []
    found = pl.read_parquet(report.tables["samples"])
    assert found["device_ns"].to_list() == [1000, 5000, 2000]
    assert set(found["regime"]) == {"cold"}


@pytest.mark.parametrize(
    ("content", "said", "note"),
    [
        (b"1234", "a.json-bin/1.bin", "sample file is missing"),
        (b"1234", "a.json-bin/..", "sample file is missing"),
        (b"12345", "a.json-bin/0.bin", "has 5 bytes"),
        (b"12341234", "a.json-bin/0.bin", "has 8 bytes"),
        (array("f", [1.0, float("nan"), 1.0]).tobytes(), "a.json-bin/0.bin", "that are not times"),
    ],
)
def test_nvbench_invalid_samples_are_dropped_and_summary_counts(tmp_path, content, said, note):
    put(tmp_path / "a.json-bin" / "0.bin", content)
    report, rows = load(tmp_path, put(tmp_path / "a.json", document(state(MEAN, samples(said)))))
    assert note in report.files[0].notes[0]
    assert (rows[0]["candidate_median_ns"], report.samples) == (pytest.approx(2e5), 0)


def test_skipped_and_untimed_states(tmp_path):
    skipped = state(block="1", is_skipped=True, skip_reason="too large")
    _report, rows = load(tmp_path, put(tmp_path / "a.json", document(skipped, state())))
    assert [(r["status"], r["message"], r["labels"]) for r in rows] == [
        ("unsupported", "too large", []),
        ("passed", None, ["not_timed"]),
    ]


def test_bad_states_are_refused_and_the_others_count(tmp_path):
    spread = summary("nv/cold/time/gpu/stdev/relative", "inf")
    states = [
        state(MEAN, spread),
        state(MEAN, device=4),
        state(summary("nv/cold/time/gpu/mean", "soon")),
        state(summary("nv/cold/time/gpu/mean", "-1")),
        state(summary("nv/cold/time/gpu/mean", "inf")),
        {**state(), "summaries": 7},
    ]
    given = document(*states)
    given["benchmarks"] += [{"name": "none"}, 5]
    report, rows = load(tmp_path, put(tmp_path / "a.json", given))
    assert [row["spread_within"] for row in rows] == [None]
    said = [one.reason.rpartition("data.0.value: ")[2] for one in report.refused]
    assert said == [
        "benchmarks.0.states.1.device: is not a device of the file: 0",
        "must be a number",
        "must not be negative; got -1",
        "must be a finite number; got inf",
        "benchmarks.0.states.5.summaries: must be a list; got a number",
        "benchmarks.1: lacks 'states'",
        "benchmarks.2: must be an object; got a number",
    ]
