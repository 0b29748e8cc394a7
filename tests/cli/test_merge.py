from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import polars as pl
import pytest

from kernel_matrix.results.descriptions import printable
from kernel_matrix.results.store import RecordStore
from tests.cli.terminal import piped
from tests.results.factory import cell_id, make_record, make_run, make_trace, put, traced


def merge(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return piped(folder, "merge", *arguments)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    store = RecordStore(tmp_path / "results" / "nightly")
    store.save(make_record())
    store.save_run(make_run())
    return tmp_path


def test_counts_and_places_are_printed(lab: Path) -> None:
    done = merge(lab)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 records with 12 samples from 1 files (0 duplicates, 0 put aside), 1 runs" in done.stdout
    assert "tables/cells.parquet" in done.stdout
    assert pl.read_parquet(lab / "tables" / "samples.parquet").height == 12


def test_json_is_one_document(lab: Path) -> None:
    put(lab / "results" / "nightly" / "records", make_record(cell_id(1)), schema_version=2)
    done = merge(lab, "results/nightly", "--out", "there", "--json")
    document = json.loads(done.stdout)
    assert (document["records"], document["files"], document["tables"]["hosts"]) == (1, 2, "there/hosts.parquet")
    assert [r["reason"] for r in document["rejected"]] == ["other_version"]


def test_traces_are_merged_only_where_they_are_asked_for(lab: Path) -> None:
    store = RecordStore(lab / "results" / "nightly")
    store.save(traced(make_record(cell_id(1))), make_trace(7))
    done = merge(lab, "--traces")
    assert "1 traces with 7 samples of telemetry" in done.stdout
    assert pl.read_parquet(lab / "tables" / "telemetry.parquet").height == 7
    document = json.loads(merge(lab, "--traces", "--json").stdout)
    assert (document["traces"], document["telemetry_samples"], document["clocks"]) == (1, 7, {"locked": 2})
    assert document["discarded"] == {"contended": 2, "other": 0, "throttled": 0}
    assert "telemetry" not in merge(lab).stdout
    assert not (lab / "tables" / "telemetry.parquet").exists()
    assert pl.read_parquet(lab / "tables" / "objections.parquet").columns == ["record", "workload", "checks"]


def test_rejections_are_shown_up_to_twenty_and_strict_exits_4(lab: Path) -> None:
    for number in range(25):
        put(lab / "results" / "nightly" / "records", make_record(cell_id(number)), schema_version=2)
    done = merge(lab)
    assert done.returncode == 0
    assert done.stdout.count("put aside (other_version): ") == 20
    assert "and 5 more, all in tables/rejected.jsonl" in done.stdout
    strict = merge(lab, "--strict")
    assert strict.returncode == 4
    assert "25 files were put aside" in strict.stderr
    assert "rejected.jsonl" in strict.stderr


def test_what_cannot_be_merged_exits_with_its_own_code(lab: Path) -> None:
    assert merge(lab, "absent").returncode == 2
    (lab / "empty" / "records").mkdir(parents=True)
    nothing = merge(lab, "empty")
    assert (nothing.returncode, "kernel-matrix run" in nothing.stderr) == (3, True)


def test_nothing_a_terminal_obeys_is_printed(lab: Path) -> None:
    name = b"\x1b[2J\xff[red].json"
    records = lab / "results" / "nightly" / "records"
    (records / os.fsdecode(name)).write_bytes(b"{")
    done = merge(lab)
    assert (done.returncode, "\x1b" in done.stdout) == (0, False)
    assert r"\x1b[2J\udcff[red].json" in done.stdout
    assert printable("a\nb\x07[bold]\u202e") == r"a b\x07[bold]\u202e"
