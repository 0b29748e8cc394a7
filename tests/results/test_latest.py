from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Status
from kernel_matrix.results.latest import FILTERS, explain_no_rows, filter_rows, overview
from kernel_matrix.results.merge import merge
from kernel_matrix.results.store import RecordStore
from tests.results.factory import (
    CELL,
    CELL_KEY,
    HOST,
    cell_id,
    failed_record,
    make_record,
    session,
    workload,
)


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "nightly")


def shown(store: RecordStore, *terms: str) -> list[dict[str, object]]:
    out = store.root.parent / "tables"
    merge([store.root], out)
    return filter_rows(overview(pl.read_parquet(out / "cells.parquet")), terms).to_dicts()


def test_only_the_latest_attempt_on_each_host_counts(store: RecordStore) -> None:
    later = replace(HOST, started_at="2026-01-03T00:00:00Z")
    elsewhere = replace(HOST, hostname="lab-2")
    store.save(failed_record(attempt=1, status=Status.CONTENDED))
    store.save(make_record(attempt=2, host=later))
    store.save(failed_record(attempt=3, host=elsewhere, status=Status.CRASHED))
    rows = shown(store)
    assert [(r["hostname"], r["status"], r["attempts"]) for r in rows] == [
        ("lab-1", "passed", 2),
        ("lab-2", "crashed", 1),
    ]


def test_sessions_are_summed_up_per_workload(store: RecordStore) -> None:
    both = (workload(), workload("large"))
    store.save(make_record(sessions=tuple(session(i, workloads=both) for i in range(3))))
    rows = shown(store)
    assert [(r["workload"], r["sessions"], r["samples"], r["speedup"]) for r in rows] == [
        ("default", 3, 15, 2.0),
        ("large", 3, 15, 2.0),
    ]


def test_clocks_discards_and_shares_of_the_peak_are_told(store: RecordStore) -> None:
    store.save(make_record(sessions=(session(0), session(1))))
    (row,) = shown(store)
    assert (row["clock_state"], row["clock_policy"], row["clock_set_mhz"], row["clock_reset"]) == (
        *("locked", "lock", 1785, "confirmed"),
    )
    assert (row["sm_clock_mhz"], row["quarantined"], row["exclusive"]) == (1785.0, False, "proven")
    assert (row["discarded_samples"], row["discarded_contended"], row["discarded_throttled"]) == (2, 2, 0)
    assert row["flops_share_of_peak"] == pytest.approx(1e10 / 989.5e12)
    assert row["bytes_share_of_peak"] == pytest.approx(5e9 / 4.8e12)


def test_rows_are_sorted_by_what_they_are_of(store: RecordStore) -> None:
    for number, (problem, candidate) in enumerate([("b", "b/x"), ("a", "a/y"), ("a", "a/x")]):
        store.save(make_record(cell_id(number), cell=replace(CELL_KEY, problem=problem, candidate=candidate)))
    assert [r["candidate"] for r in shown(store)] == ["a/x", "a/y", "b/x"]


@pytest.mark.parametrize(
    ("terms", "left"),
    [
        ((), 3),
        (("problem=soft*",), 2),
        (("problem!=soft*",), 1),
        (("status=passed,crashed",), 2),
        (("problem=soft*", "status=passed"), 1),
        ((f"id={CELL[:6]}",), 1),
        (("level=2",), 3),
        (("workload!=default",), 1),
        (("problem=[",), 0),
    ],
)
def test_terms_narrow(store: RecordStore, terms: tuple[str, ...], left: int) -> None:
    store.save(make_record())
    store.save(failed_record(cell_id(1)))
    store.save(make_record(cell_id(2), cell=replace(CELL_KEY, problem="matmul")))
    assert len(shown(store, *terms)) == left


@pytest.mark.parametrize("term", ["colour=red", "dtype", "dtype=", "=x", "dtype~fp16"])
def test_a_wrong_term_names_the_keys(term: str) -> None:
    with pytest.raises(UsageError, match=r"^--filter") as caught:
        filter_rows(pl.DataFrame(), [term])
    assert all(key in caught.value.next_step for key in FILTERS)


def test_unmatched_values_are_explained_by_the_closest(store: RecordStore) -> None:
    store.save(make_record())
    rows = pl.DataFrame(shown(store))
    terms = ["problem=Softmax,relu", "dtype=fp16", "gpu!=h300", "gpu=h*"]
    assert explain_no_rows(rows, terms) == "no problem is 'Softmax'; did you mean 'softmax'?, no problem is 'relu'"
