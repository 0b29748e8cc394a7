from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl
import pytest

from kernel_matrix.errors import NothingSelectedError, StoreError, UsageError
from kernel_matrix.model.enums import Role, Status
from kernel_matrix.results import chunk as chunk_module
from kernel_matrix.results import merge as merge_module
from kernel_matrix.results.merge import MergeReport, merge
from kernel_matrix.results.reading import RejectionReason
from kernel_matrix.results.record import record_to_json
from kernel_matrix.results.run_info import run_to_json
from kernel_matrix.results.schema import CELLS, HOSTS, SAMPLES, TABLES
from kernel_matrix.results.store import RecordStore
from tests.results.factory import (
    BLOCKS,
    BUILD,
    CELL,
    CELL_KEY,
    HOST,
    MEASURED,
    as_the_first_ones_were,
    block,
    cell_id,
    failed_record,
    make_record,
    make_run,
    outcome,
    put,
    session,
    workload,
)

CLOCKS = ("clock_requested", "clock_set_mhz", "clock_driver_mhz", "clock_kernel_mhz", "clock_reset")
TELEMETRY_SUMMARY = (
    *("telemetry_samples", "telemetry_joined", "sm_clock_mhz", "mem_clock_mhz", "power_w"),
    *("temperature_max_c", "energy_j"),
)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A result folder with a record that passed twice over, one that failed, and their run."""
    store = RecordStore(tmp_path / "results" / "nightly")
    store.save_run(make_run())
    two = (workload(), workload("large"))
    store.save(make_record(sessions=(session(0, workloads=two), session(1, workloads=two))))
    store.save(failed_record(cell_id(1), run_id="run-unknown"))
    return tmp_path / "results"


def table(report: MergeReport, name: str) -> pl.DataFrame:
    return pl.read_parquet(report.tables[name])


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def put_measured(folder: Path) -> Path:
    """A folder with one record whose blocks were joined to telemetry."""
    put(folder / "joined" / "records", make_record())
    return folder / "joined"


def test_every_table_has_exactly_its_schema(results: Path, tmp_path: Path) -> None:
    report = merge([results], tmp_path / "out")
    for name, schema in TABLES.items():
        assert dict(table(report, name).schema) == schema
        assert pl.read_parquet_metadata(report.tables[name])["kernel_matrix_tables"] == "5"
    assert sorted(contents(tmp_path / "out")) == [
        *("batches.parquet", "cells.parquet", "hosts.parquet", "kernels.parquet", "rejected.jsonl", "samples.parquet")
    ]


def test_cells_have_one_row_per_session_and_workload(results: Path, tmp_path: Path) -> None:
    report = merge([results], tmp_path / "out")
    cells = table(report, "cells")
    assert (report.files, report.records, report.samples, report.runs) == (2, 2, 48, 1)
    assert cells.select("record", "cell_id", "session", "workload", "status").rows() == [
        (0, cell_id(1), None, None, "compile_error"),
        (1, CELL, 0, "default", "passed"),
        (1, CELL, 0, "large", "passed"),
        (1, CELL, 1, "default", "passed"),
        (1, CELL, 1, "large", "passed"),
    ]


def test_medians_leave_discarded_samples_out(results: Path, tmp_path: Path) -> None:
    row = table(merge([results], tmp_path / "out"), "cells").row(1, named=True)
    assert (row["candidate_median_ns"], row["baseline_median_ns"]) == (100.0, 200.0)
    assert (row["candidate_wall_median_ns"], row["baseline_wall_median_ns"]) == (110.0, 210.0)
    assert (row["candidate_samples"], row["baseline_samples"], row["discarded_samples"]) == (5, 6, 1)
    assert (row["speedup"], row["flops_per_s"], row["bytes_per_s"]) == (2.0, 1e10, 5e9)
    assert (row["trials"], row["trials_passed"], row["worst_error_ratio"]) == (2, 2, 0.5)


def test_discards_are_counted_by_cause(tmp_path: Path) -> None:
    causes = ("throttled: sw_power_cap", "throttled: hw_thermal, power_brake", "contended: pid 7", "spilled coffee")
    gone = tuple(enumerate(causes))
    blocks = (block(Role.CANDIDATE, 0, (1, 2, 3, 4, 100), discarded=gone), block(Role.BASELINE, 1, (200,)))
    put(tmp_path / "records", make_record(sessions=(session(workloads=(workload(blocks=blocks),)),)))
    put(tmp_path / "records", failed_record(cell_id(1)))
    report = merge([tmp_path], tmp_path / "out")
    row = table(report, "cells").row(1, named=True)
    assert (row["discarded_samples"], row["discarded_throttled"], row["discarded_contended"]) == (4, 2, 1)
    assert (row["candidate_samples"], row["candidate_median_ns"], row["speedup"]) == (1, 100.0, 2.0)
    assert report.discarded == {"throttled": 2, "contended": 1, "other": 1}
    assert table(report, "samples").filter(role="candidate")["discarded"].to_list() == [*causes, None]


def test_cells_have_device_settings_and_observations(results: Path, tmp_path: Path) -> None:
    row = table(merge([results], tmp_path / "out"), "cells").row(1, named=True)
    assert {name: row[name] for name in (*CLOCKS, *TELEMETRY_SUMMARY)} == {
        "clock_requested": "base",
        "clock_set_mhz": 1785,
        "clock_driver_mhz": 1785.0,
        "clock_kernel_mhz": 1784.6,
        "clock_reset": "confirmed",
        "telemetry_samples": 180,
        "telemetry_joined": "yes",
        "sm_clock_mhz": 1785.0,
        "mem_clock_mhz": 3201.0,
        "power_w": 250.5,
        "temperature_max_c": 43.0,
        "energy_j": 2250.5,
    }
    assert (row["health_probe"], row["quarantined"]) == ("passed", False)
    assert (row["peak_source"], row["peak_bytes_per_s"], row["peak_flops_per_s"]) == ("table", 4.8e12, 989.5e12)


@pytest.mark.parametrize(
    ("peak", "flops", "bytes_"),
    [
        ({}, None, None),
        ({"source": "unknown", "reference": "", "bytes_per_s": None, "flops_per_s": {}}, None, None),
        ({"source": "calibration", "flops_per_s": {"fp16": 2e10, "fp32": 1e10}}, 0.5, None),
        ({"source": "table", "bytes_per_s": 2e10, "flops_per_s": {"fp32": 1e10}}, None, 0.25),
    ],
)
def test_a_share_of_the_peak_needs_the_peak_of_that_dtype(
    tmp_path: Path, peak: dict[str, object], flops: float | None, bytes_: float | None
) -> None:
    put(tmp_path / "records", make_record(host=replace(HOST, peak=peak)))
    row = table(merge([tmp_path], tmp_path / "out"), "cells").row(0, named=True)
    assert (row["flops_share_of_peak"], row["bytes_share_of_peak"]) == (flops, bytes_)


def test_clocks_are_counted_per_record_with_an_unmet_policy(results: Path, tmp_path: Path) -> None:
    unlocked = replace(HOST, clock_state="unlocked")
    for number, host in enumerate((unlocked, unlocked, replace(unlocked, clock_policy="observe"))):
        put(results / "nightly" / "records", make_record(cell_id(70 + number), host=host))
    report = merge([results], tmp_path / "out")
    assert report.clocks == {"locked": 2, "unlocked (policy lock)": 2, "unlocked": 1}


def test_records_from_before_there_was_telemetry_have_nulls(tmp_path: Path) -> None:
    old = as_the_first_ones_were(record_to_json(make_record()))
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / f"{make_record().stem}.json").write_text(json.dumps(old))
    report = merge([tmp_path / "records"], tmp_path / "out")
    assert (report.records, report.rejected, report.clocks) == (1, (), {"unlocked (policy lock)": 1})
    cells = table(report, "cells")
    for name in (*CLOCKS, *TELEMETRY_SUMMARY, "peak_source", "health_probe", "quarantined", "exclusive_reason"):
        assert cells[name].null_count() == cells.height, name
    assert table(report, "samples")["sm_clock_mhz"].null_count() == report.samples


def test_runs_are_joined_where_they_are_known(results: Path, tmp_path: Path) -> None:
    cells = table(merge([results], tmp_path / "out"), "cells")
    assert cells["matrix"].to_list() == [None, *["nightly"] * 4]
    assert str(cells["run_started_at"][1]) == "2026-01-02 03:00:00+00:00"


def test_samples_are_kept_every_one_and_join_to_cells(results: Path, tmp_path: Path) -> None:
    report = merge([results], tmp_path / "out")
    samples = table(report, "samples").filter(session=1, workload="large")
    expected = [
        (1, b.role.value, b.index, i, device, wall, dict(b.discarded).get(i))
        for b in BLOCKS
        for i, (device, wall) in enumerate(zip(b.device_ns, b.wall_ns, strict=True))
    ]
    assert samples.select("record", "role", "block", "index", "device_ns", "wall_ns", "discarded").rows() == expected
    measured = table(merge([put_measured(tmp_path)], tmp_path / "measured"), "samples")
    where = measured.select("block", "block_started_ns", "block_ended_ns", "sm_clock_mhz").unique(maintain_order=True)
    assert where.rows() == [(b.index, b.started_ns, b.ended_ns, b.sm_clock_mhz) for b in MEASURED]
    joined = table(report, "samples").join(table(report, "cells"), on=["record", "session", "workload"])
    assert joined.height == report.samples
    assert set(joined["cell_id"]) == {CELL}


def test_a_workload_that_did_not_pass_has_medians_but_no_speedup(tmp_path: Path) -> None:
    failed = session(status=Status.TIMING_MISMATCH, workloads=(workload(status=Status.TIMING_MISMATCH),))
    put(tmp_path / "records", make_record(outcome=outcome(Status.TIMING_MISMATCH, "claims 1 ns"), sessions=(failed,)))
    row = table(merge([tmp_path], tmp_path / "out"), "cells").row(0, named=True)
    assert (row["candidate_median_ns"], row["speedup"], row["flops_per_s"]) == (100.0, None, None)
    assert row["message"] == "claims 1 ns"


@pytest.mark.parametrize(("time", "median", "rate"), [(0, 0.0, None), (100, 100.0, 1e10)])
def test_zero_times_and_empty_sides_give_no_speedup(
    tmp_path: Path, time: int, median: float, rate: float | None
) -> None:
    blocks = (block(Role.CANDIDATE, 0, (time,) * 3), block(Role.BASELINE, 1, (1,), discarded=((0, "contended"),)))
    put(tmp_path / "records", make_record(sessions=(session(workloads=(workload(blocks=blocks),)),)))
    row = table(merge([tmp_path], tmp_path / "out"), "cells").row(0, named=True)
    assert (row["candidate_median_ns"], row["baseline_median_ns"], row["baseline_samples"]) == (median, None, 0)
    assert (row["speedup"], row["flops_per_s"]) == (None, rate)


def test_integers_written_as_floats_stay_what_they_are(tmp_path: Path) -> None:
    path = put(tmp_path / "records", make_record())
    path.write_text(path.read_text().replace("9000,", "9000.0,").replace('"level": 2', '"level": 2.0'))
    report = merge([tmp_path], tmp_path / "out")
    assert table(report, "samples")["device_ns"].max() == 9000
    assert table(report, "cells")["level"].to_list() == [2]


def test_hosts_are_counted_over_all_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_module, "_NAMES", 2)
    store = RecordStore(tmp_path)
    for number in range(5):
        host = {"hostname": f"lab-{number % 2}", "started_at": f"2026-01-0{number + 1}T00:00:00Z"}
        store.save(make_record(cell_id(number), host=replace(HOST, **host)))
    report = merge([tmp_path], tmp_path / "out")
    hosts = table(report, "hosts").sort("hostname")
    assert hosts.select("hostname", "records").rows() == [("lab-0", 3), ("lab-1", 2)]
    assert [str(x)[:10] for x in hosts.row(0)[-2:]] == ["2026-01-01", "2026-01-05"]
    assert set(table(report, "cells")["host_id"]) == set(hosts["host_id"])
    assert table(report, "cells")["record"].to_list() == [0, 1, 2, 3, 4]


def test_invalid_files_are_listed_with_reason_and_stay(results: Path, tmp_path: Path) -> None:
    records = results / "nightly" / "records"
    valid = make_record(cell_id(20))
    (records / f"{cell_id(2)}.1.json").write_text('{"schema_version": 1,')
    (records / f"{cell_id(3)}.1.json").symlink_to("/etc/passwd")
    put(records, make_record(cell_id(4)), schema_version=2)
    put(records, make_record(cell_id(5)), run_id="..")
    put(records, valid).rename(records / f"{cell_id(6)}.1.json")
    (records / f"{cell_id(7)}.1.json").mkdir()
    os.truncate(put(records, make_record(cell_id(8))), 65 << 20)
    (results / "nightly" / "runs" / "run-2.json").write_text("[]")
    before = sorted(records.iterdir())

    report = merge([results], tmp_path / "out")

    listed = [json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()]
    assert [(Path(r["path"]).name[-10:-5], r["reason"]) for r in listed] == [
        ("002.1"[-5:], "not_json"),
        ("003.1", "not_a_file"),
        ("004.1", "other_version"),
        ("005.1", "schema"),
        ("006.1", "misnamed"),
        ("007.1", "not_a_file"),
        ("008.1", "too_large"),
        ("run-2", "not_json"),
    ]
    assert all(r["detail"] for r in listed)
    assert [r.path for r in report.rejected] == [r["path"] for r in listed]
    assert (report.files, report.records) == (9, 2)
    assert sorted(records.iterdir()) == before


def test_merging_again_or_in_another_order_changes_not_one_byte(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(results / "nightly" / "records", make_record(cell_id(9)), schema_version=2)
    other = RecordStore(tmp_path / "other")
    for number in range(30, 37):
        other.save(make_record(cell_id(number)))
    out = tmp_path / "out"
    merge([results, other.root], out)
    first = contents(out)
    merge([results, other.root], out)
    assert contents(out) == first
    merge([other.root, results / "nightly", results, other.records, results / "nightly" / "records"], out)
    assert contents(out) == first
    monkeypatch.setattr(chunk_module, "_NAMES", 3)
    merge([other.root, results], out, workers=1)
    assert contents(out) == first
    merge([other.root, results], out, workers=2)
    assert contents(out) == first


def test_a_copy_counts_once(results: Path, tmp_path: Path) -> None:
    alone = merge([results], tmp_path / "alone")
    shutil.copytree(results, tmp_path / "copy")
    path = tmp_path / "copy" / "nightly" / "records" / f"{CELL}.1.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2, sort_keys=True))  # the same, laid out otherwise
    both = merge([tmp_path / "copy", results], tmp_path / "both")
    assert (both.files, both.records, both.duplicates, both.rejected) == (4, 2, 2, ())
    for name in TABLES:
        assert both.tables[name].read_bytes() == alone.tables[name].read_bytes()


def test_conflicting_copies_are_both_rejected(results: Path, tmp_path: Path) -> None:
    put(tmp_path / "other" / "records", make_record(outcome=outcome(Status.CRASHED)))
    for folders in ([results, tmp_path / "other"], [tmp_path / "other", results]):
        report = merge(folders, tmp_path / "out")
        assert [r.reason for r in report.rejected] == [RejectionReason.CONFLICTING] * 2
        assert {Path(r.path).parents[1].name for r in report.rejected} == {"nightly", "other"}
        assert table(report, "cells")["cell_id"].to_list() == [cell_id(1)]


def test_the_same_attempt_of_another_run_is_another_record(results: Path, tmp_path: Path) -> None:
    put(tmp_path / "other" / "records", make_record(run_id="run-0"))
    for folders in ([results, tmp_path / "other"], [tmp_path / "other", results]):
        report = merge(folders, tmp_path / "out")
        assert (report.records, report.rejected) == (3, ())
        assert table(report, "cells").filter(cell_id=CELL)["run_id"].to_list() == ["run-0", *["run-1"] * 4]


def test_of_two_copies_of_a_run_the_later_one_counts(results: Path, tmp_path: Path) -> None:
    later = run_to_json(make_run(matrix="renamed", ended_at="2026-01-02T05:00:00Z"))
    runs = tmp_path / "other" / "runs"
    runs.mkdir(parents=True)
    (runs / "run-1.json").write_text(json.dumps(later))
    put(tmp_path / "other" / "records", make_record(cell_id(50)))
    for folders in ([results, tmp_path / "other"], [tmp_path / "other", results]):
        report = merge(folders, tmp_path / "out")
        assert set(table(report, "cells")["matrix"]) == {None, "renamed"}


def test_nothing_to_merge_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a folder"):
        merge([tmp_path / "absent"], tmp_path / "out")
    with pytest.raises(UsageError, match="holds no results"):
        merge([tmp_path], tmp_path / "out")
    (tmp_path / "records").mkdir()
    with pytest.raises(NothingSelectedError):
        merge([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_invalid_records_give_empty_tables(tmp_path: Path) -> None:
    put(tmp_path / "records", make_record(), schema_version=2)
    report = merge([tmp_path], tmp_path / "out")
    assert (report.records, len(report.rejected)) == (0, 1)
    for name, schema in TABLES.items():
        assert table(report, name).schema == schema
        assert table(report, name).is_empty()


def test_tables_that_cannot_be_written_leave_the_older_ones(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    merge([results], out)
    before = contents(out)
    put(results / "nightly" / "records", make_record(cell_id(60)))

    def fail(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(merge_module, "_write_tables", fail)
    with pytest.raises(StoreError, match="No space left"):
        merge([results], out)
    assert contents(out) == before


def test_duckdb_reads_what_polars_wrote(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = merge([results], out)
    with duckdb.connect() as connection:
        rows = connection.sql(
            f"""
            select c.candidate, c.dtype, s.role, median(s.device_ns), count(*)
            from '{out}/samples.parquet' s
            join '{out}/cells.parquet' c using (record, session, workload)
            join '{out}/hosts.parquet' h using (host_id)
            where s.discarded is null and c.status = 'passed' and h.gpu_name like 'NVIDIA%'
            group by all order by s.role
            """
        ).fetchall()
        assert rows == [
            ("softmax/online", "fp16", "baseline", 200.0, 24),
            ("softmax/online", "fp16", "candidate", 100.0, 20),
        ]
        for name, schema in (("cells", CELLS), ("samples", SAMPLES), ("hosts", HOSTS)):
            described = connection.sql(f"describe select * from '{report.tables[name]}'").fetchall()
            assert [column[0] for column in described] == list(schema)


def test_progress_is_told_of_every_file(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_module, "_NAMES", 1)
    told: list[tuple[int, int]] = []
    merge([results], tmp_path / "out", progress=lambda done, total: told.append((done, total)), workers=1)
    assert told == [(1, 2), (2, 2)]


_HOLD = """
import sys, time
from pathlib import Path
from kernel_matrix.results import merge as merge_module, chunk
if __name__ == "__main__":
    chunk._NAMES = 1
    def hold(*_):
        print("ready", flush=True)
        while True:  # Python does not notice a signal that comes just before it begins to sleep
            time.sleep(0.05)
    merge_module.merge([Path(sys.argv[1])], Path(sys.argv[2]), workers=2, progress=hold)
"""


@pytest.fixture
def holding(results: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A merge that has stopped half-way, in a process group of its own, and its two workers."""
    script = tmp_path / "hold.py"
    script.write_text(_HOLD)
    with subprocess.Popen(
        (sys.executable, str(script), str(results), str(tmp_path / "out")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        workers = [int(c) for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]
        yield parent, workers
        parent.kill()


def test_workers_end_when_their_parent_is_killed(holding: tuple[subprocess.Popen[bytes], list[int]]) -> None:
    parent, workers = holding
    assert len(workers) == 2
    parent.kill()
    deadline = time.monotonic() + 30
    while any(_alive(w) for w in workers):
        assert time.monotonic() < deadline, "orphans"
        time.sleep(0.05)


def test_one_interrupt_ends_all_without_a_word_from_the_workers(
    holding: tuple[subprocess.Popen[bytes], list[int]], tmp_path: Path
) -> None:
    parent, workers = holding
    os.killpg(parent.pid, signal.SIGINT)
    _stdout, stderr = parent.communicate(timeout=30)
    assert stderr.count(b"Traceback") == 1
    assert [w for w in workers if _alive(w)] == []
    assert list((tmp_path / "out").iterdir()) == []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_documented_queries_run_and_find_equal_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "records.md").read_text().partition("## Tables")[2]
    queries = re.findall(r"```sql\n(.*?)```", text.partition("## Traces")[0], re.DOTALL)
    other = replace(BUILD, kernels=tuple(replace(kernel, sha256="5" * 64) for kernel in BUILD.kernels))
    builds = {"cu124": other, "cu128": BUILD, "cu130": BUILD}
    store = RecordStore(tmp_path / "nightly")
    for number, (toolchain, build) in enumerate(builds.items()):
        host, key = replace(HOST, build=build), replace(CELL_KEY, toolchain=toolchain)
        store.save(make_record(cell_id(number), host=host, cell=key))
    merge([tmp_path / "nightly"], tmp_path / "tables")
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as connection:
        medians, ((*_, toolchains, apart),) = (connection.sql(query).fetchall() for query in queries)
    assert medians
    assert (toolchains, apart) == (["cu128", "cu130"], 0.0)
