"""Telemetry of a few records, read from their traces."""

import polars as pl
import pytest

from kernel_matrix.report.sampled_traces import read_sampled_traces
from kernel_matrix.results.schema import TELEMETRY
from kernel_matrix.results.store import RecordStore
from tests.results.factory import cell_id, make_record, make_trace, traced


@pytest.fixture
def results(tmp_path):
    store = RecordStore(tmp_path / "results" / "nightly")
    for number in (1, 2):
        store.save(traced(make_record(cell_id(number))), make_trace(5))
    return tmp_path / "results"


def read(results, *numbers, run_id=None):
    records = [make_record(cell_id(number)) for number in numbers]
    keys = [(run_id or record.run_id, record.cell_id, record.attempt) for record in records]
    schema = {name: TELEMETRY[name] for name in ("run_id", "cell_id", "attempt")}
    return read_sampled_traces([results], pl.DataFrame(keys, schema=schema, orient="row")).collect()


def test_traces_of_the_named_records_alone_are_read(results):
    found = read(results, 2)
    assert found["cell_id"].to_list() == [cell_id(2)] * 5
    assert found["at_ns"].is_sorted()
    assert dict(found.schema) == dict(TELEMETRY)


def test_traces_that_are_missing_or_of_another_run_are_none(results):
    assert read(results, 3).is_empty()
    assert read(results, 1, run_id="another").is_empty()
    assert read(results).is_empty()


def test_a_damaged_trace_is_none(results):
    (file,) = (results / "nightly" / "traces").glob(f"{cell_id(1)}*")
    file.write_bytes(b"not a trace")
    assert read(results, 1).is_empty()


def test_copies_that_differ_are_none(results, tmp_path):
    other = RecordStore(results / "copy")
    other.save(traced(make_record(cell_id(1))), make_trace(6))
    assert read(results, 1).is_empty()
    assert read(results, 2).height == 5
