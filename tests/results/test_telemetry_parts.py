from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_matrix.model.enums import Role
from kernel_matrix.platforms import EventReason
from kernel_matrix.results import chunk as chunk_module
from kernel_matrix.results import telemetry_parts as telemetry_module
from kernel_matrix.results.merge import MergeReport, merge
from kernel_matrix.results.reading import RejectionReason
from kernel_matrix.results.record import record_to_json
from kernel_matrix.results.schema import TELEMETRY
from kernel_matrix.results.store import RecordStore
from kernel_matrix.results.telemetry_parts import TelemetryParts
from kernel_matrix.results.trace import pack, trace_of, trace_to_json
from tests.results.factory import (
    CELL,
    block,
    cell_id,
    failed_record,
    make_record,
    make_trace,
    sample,
    session,
    traced,
    workload,
)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Five records with a trace of 2, 3, … samples each, one with an empty trace, and one without any."""
    store = RecordStore(tmp_path / "results" / "nightly")
    for number in range(1, 6):
        store.save(traced(make_record(cell_id(number))), make_trace(number + 1))
    store.save(traced(make_record(cell_id(6))), make_trace(1))
    store.save(failed_record(cell_id(7)))
    return tmp_path / "results"


def rows(report: MergeReport) -> pl.DataFrame:
    return pl.read_parquet(report.tables["telemetry"])


def rewrite(records: Path, cell: str, run_id: str = "run-1", samples: int = 3) -> Path:
    """Put another trace beside the record of ``cell``."""
    path = records.parent / "traces" / f"{cell}.1.json.gz"
    document = trace_to_json(make_trace(samples), run_id=run_id, cell_id=cell, attempt=1)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pack(json.dumps(document).encode()))
    return path


def test_traces_are_read_only_where_they_are_asked_for(results: Path, tmp_path: Path) -> None:
    shutil.rmtree(results / "nightly" / "traces")
    report = merge([results], tmp_path / "out")
    assert sorted(report.tables) == ["batches", "cells", "hosts", "kernels", "samples"]
    assert (report.traces, report.telemetry_samples, report.rejected) == (0, 0, ())


def test_telemetry_has_one_row_per_sample_with_its_schema(results: Path, tmp_path: Path) -> None:
    report = merge([results], tmp_path / "out", traces=True)
    table = rows(report)
    assert dict(table.schema) == TELEMETRY
    assert (report.traces, report.telemetry_samples, table.height) == (6, 21, 21)
    assert table.filter(record=0).drop(
        [f"{r.value}_ns" for r in EventReason if r is not EventReason.SW_POWER_CAP]
    ).rows(named=True) == [
        {
            "record": 0,
            "run_id": "run-1",
            "cell_id": cell_id(1),
            "attempt": 1,
            "at_ns": 0,
            "sm_clock_mhz": 1785,
            "mem_clock_mhz": 3201,
            "power_w": 250.5,
            "power_average_w": 249.5,
            "energy_mj": 1000,
            "temperature_c": 40,
            "utilization_percent": 99,
            "memory_used_bytes": 1 << 30,
            "reasons": [],
            "sw_power_cap_ns": 0,
            "own_pids": [9, 10],
            "foreign_pids": [],
            "trouble": "",
        },
        {
            "record": 0,
            "run_id": "run-1",
            "cell_id": cell_id(1),
            "attempt": 1,
            "at_ns": 100_000_000,
            "sm_clock_mhz": None,
            "mem_clock_mhz": None,
            "power_w": None,
            "power_average_w": None,
            "energy_mj": None,
            "temperature_c": None,
            "utilization_percent": None,
            "memory_used_bytes": None,
            "reasons": None,
            "sw_power_cap_ns": None,
            "own_pids": [],
            "foreign_pids": [4242],
            "trouble": "the driver did not answer",
        },
    ]


def test_rows_join_their_records_whatever_the_chunks_and_parts(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = merge([results], tmp_path / "whole", traces=True)
    cells = pl.read_parquet(whole.tables["cells"])
    joined = rows(whole).join(cells, on="record", suffix="_of_record")
    assert joined.filter(pl.col("cell_id") != pl.col("cell_id_of_record")).is_empty()
    monkeypatch.setattr(chunk_module, "_NAMES", 2)
    monkeypatch.setattr(telemetry_module, "_ROWS", 3)
    split = merge([results, results / "nightly"], tmp_path / "split", traces=True, workers=1)
    assert split.tables["telemetry"].read_bytes() == whole.tables["telemetry"].read_bytes()
    assert sorted(p.name for p in (tmp_path / "split").iterdir()) == sorted(
        p.name for p in (tmp_path / "whole").iterdir()
    )


def test_without_one_trace_the_table_is_empty_and_there(tmp_path: Path) -> None:
    RecordStore(tmp_path / "results").save(make_record())
    report = merge([tmp_path / "results"], tmp_path / "out", traces=True)
    assert (dict(rows(report).schema), rows(report).height) == (TELEMETRY, 0)


def test_an_older_table_does_not_stay_beside_newer_records(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    merge([results], out, traces=True)
    merge([results], out)
    assert not (out / "telemetry.parquet").exists()


def test_bad_trace_is_rejected_and_its_record_stays(results: Path, tmp_path: Path) -> None:
    records = results / "nightly" / "records"
    traces = results / "nightly" / "traces"
    (traces / f"{cell_id(1)}.1.json.gz").unlink()
    (traces / f"{cell_id(2)}.1.json.gz").write_bytes(b"no gzip")
    rewrite(records, cell_id(3), run_id="run-of-somebody-else")
    report = merge([results], tmp_path / "out", traces=True)
    assert [(Path(r.path).name[31:-8], r.reason) for r in report.rejected] == [
        ("1.1", RejectionReason.UNREADABLE),
        ("2.1", RejectionReason.NOT_GZIP),
        ("3.1", RejectionReason.INCONSISTENT),
    ]
    assert (report.records, report.traces) == (7, 3)
    assert len((tmp_path / "out" / "rejected.jsonl").read_text().splitlines()) == 3


def test_copies_of_a_trace_count_once_and_one_copy_is_enough(results: Path, tmp_path: Path) -> None:
    alone = merge([results], tmp_path / "alone", traces=True)
    shutil.copytree(results, tmp_path / "copy")
    (tmp_path / "copy" / "nightly" / "traces" / f"{cell_id(4)}.1.json.gz").unlink()
    both = merge([tmp_path / "copy", results], tmp_path / "both", traces=True)
    assert (both.duplicates, both.rejected) == (7, ())
    assert both.tables["telemetry"].read_bytes() == alone.tables["telemetry"].read_bytes()


def test_copies_that_differ_are_put_aside_together(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    rewrite(tmp_path / "copy" / "nightly" / "records", cell_id(4), samples=9)
    for folders in ([tmp_path / "copy", results], [results, tmp_path / "copy"]):
        report = merge(folders, tmp_path / "both", traces=True)
        assert [r.reason for r in report.rejected] == [RejectionReason.CONFLICTING] * 2
        assert cell_id(4) not in set(rows(report)["cell_id"])


def test_telemetry_joins_blocks_by_time(tmp_path: Path) -> None:
    first = replace(block(Role.BASELINE, 0, (1, 2)), started_ns=0, ended_ns=90_000_000)
    second = replace(block(Role.CANDIDATE, 1, (3,)), started_ns=100_000_000, ended_ns=190_000_000)
    record = traced(make_record(sessions=(session(workloads=(workload(blocks=(first, second)),)),)))
    trace = trace_of((sample(n, sm_clock_mhz=1000 + n), (), (), "") for n in range(5))
    RecordStore(tmp_path / "results").save(record, trace)
    out = tmp_path / "out"
    merge([tmp_path / "results"], out, traces=True)
    with duckdb.connect() as connection:
        found = connection.sql(
            f"""
            select s.role, s.block, list(t.sm_clock_mhz order by t.at_ns)
            from (select distinct record, role, block, block_started_ns, block_ended_ns from '{out}/samples.parquet') s
            join '{out}/telemetry.parquet' t
              on t.record = s.record and t.at_ns between s.block_started_ns and s.block_ended_ns
            group by all order by s.block
            """
        ).fetchall()
    assert found == [("baseline", 0, [1000, 1001]), ("candidate", 1, [1002, 1003])]
    assert set(pl.read_parquet(out / "cells.parquet")["cell_id"]) == {CELL}


def _document() -> dict[str, Any]:
    return trace_to_json(make_trace(), run_id="run-1", cell_id=CELL, attempt=1)


PLACES = [
    *((key,) for key in _document()),
    *(("columns", name) for name in make_trace().columns),
    *(("columns", name, 0) for name in make_trace().columns),
    ("columns", "own_pids", 0, 0),
    ("columns", "reasons", 1, 0),
    ("reason_ns", "sw_power_cap"),
    ("reason_ns", "sw_power_cap", 1),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, min_size=2, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)


@settings(max_examples=300, deadline=None)
@given(place=st.sampled_from(PLACES), value=VALUES | st.sampled_from([3.0, [3.0], [[3.0], [], [4]], [1.0, 2, 3]]))
def test_any_trace_is_refused_or_becomes_rows(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[Any, ...], value: Any
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz-traces"
    (folder / "traces").mkdir(parents=True, exist_ok=True)
    document = json.loads(json.dumps(_document()))
    target = document
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    file = folder / "traces" / f"{CELL}.1.json.gz"
    file.write_bytes(pack(json.dumps(document, ensure_ascii=True).encode()))
    parts = TelemetryParts(lambda number: folder / f"{number}.arrow")
    parts.add(record_to_json(traced(make_record())), [str(folder / "records" / f"{CELL}.1.json")], key=0)
    parts.close()
    assert (len(parts.rejected), pl.read_ipc(parts.files[0]).height) in ((0, 3), (1, 0))


def test_the_examples_of_the_documentation_work(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "records.md").read_text().partition("## Traces")[2]
    (python,), (from_files, from_table) = (
        re.findall(rf"```{name}\n(.*?)```", text, re.DOTALL) for name in ("python", "sql")
    )
    RecordStore(results / "nightly").save(traced(make_record()), make_trace(4))
    merge([results], tmp_path / "tables", traces=True)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(python, scope)
    assert scope["snapshots"].height == 4
    assert scope["snapshots"]["sm_clock_mhz"].to_list() == [1785, 1785, 1785, None]
    with duckdb.connect() as connection:
        assert len(connection.sql(from_files).fetchall()) == 21 + 4
        found = connection.sql(from_table).fetchall()
    assert {row[3:] for row in found} == {(0, 250.5, 1)}
