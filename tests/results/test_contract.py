"""Schemas, tables and docs are what the descriptions of the fields make of them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import jsonschema
import polars as pl
import pytest

from kernel_matrix.json_schemas import load_schema, schema_path
from kernel_matrix.model import enums, messages
from kernel_matrix.model.fields import LATER, AddedLater, Column, Columns, Count, Share
from kernel_matrix.model.messages import QUALITIES, to_json
from kernel_matrix.platforms import EventReason, Gpu, TelemetrySample
from kernel_matrix.results import record, run_info
from kernel_matrix.results.described_columns import RowReader, columns_of
from kernel_matrix.results.described_fields import Description, describe, described_fields, field_docs
from kernel_matrix.results.json_form import schema_of
from kernel_matrix.results.judged import times_of
from kernel_matrix.results.kernel_rows import kernel_rows
from kernel_matrix.results.record import Record
from kernel_matrix.results.rows import cell_rows, host_row
from kernel_matrix.results.run_info import RunInfo
from kernel_matrix.results.schema import CELLS, COLUMNS, HOSTS, KERNELS, TABLES, TELEMETRY
from kernel_matrix.results.trace import MAX_SAMPLES, NUMBERS, TROUBLE_CHARS, TelemetryTrace, trace_of, trace_to_json
from kernel_matrix.sandboxes import Isolation
from tests.results.factory import ADDED_LATER, QUANTISED, full_record, make_record, make_run, session, workload
from tools.describe_records import PAGE, column_table, page_text, schema_texts

DOCUMENTS = {"record": Record, "run": RunInfo}


def _objects(kind: type) -> Iterator[type]:
    """The dataclass ``kind`` and all that its fields hold."""
    yield kind
    for field in described_fields(kind).values():
        for inner in _inner_kinds(field):
            yield from _objects(inner)


def _inner_kinds(field: Description) -> Iterator[type]:
    if field.dataclass is not None:
        yield field.dataclass
    for hint in typing.get_args(field.kind):
        if hint is not Ellipsis:
            yield from _inner_kinds(describe(hint))


def _walk(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for one in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _walk(one)


@pytest.mark.parametrize("name", ["record", "run", "trace"])
def test_schema_file_is_what_the_fields_make(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema(name))
    path = schema_path(name)
    assert path.read_text(encoding="utf-8") == schema_texts()[path], "run tools/describe_records.py"


def test_columns_in_the_docs_are_what_the_fields_make() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page_text(text), "run tools/describe_records.py"


@pytest.mark.parametrize("table", COLUMNS)
def test_every_column_is_documented(table: str) -> None:
    for column in COLUMNS[table].values():
        assert field_docs(column.owner)[column.field], f"{column.owner.__name__}.{column.field}"


@pytest.mark.parametrize("name", ["record", "run", "trace"])
def test_every_value_in_a_schema_is_bounded(name: str) -> None:
    for schema in _walk(load_schema(name)):
        kinds = schema.get("type", [])
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            assert kind != "string" or {"maxLength", "pattern"} & set(schema), schema
            assert kind not in ("integer", "number") or {"minimum", "maximum"} <= set(schema) or len(kinds) == 4, schema
            assert kind != "array" or "maxItems" in schema, schema
            assert kind != "object" or schema.get("additionalProperties", True) is not True, schema


@pytest.mark.parametrize("name", DOCUMENTS)
def test_later_fields_are_those_known_and_have_a_default(name: str) -> None:
    for kind in set(_objects(DOCUMENTS[name])):
        later = {field for field, one in described_fields(kind).items() if one.mark(AddedLater) is not None}
        assert later == ADDED_LATER.get(kind.__name__, set()), kind.__name__
        assert later <= {field.name for field in dataclasses.fields(kind) if _has_default(field)}, kind.__name__


def _has_default(one: dataclasses.Field[Any]) -> bool:
    return (one.default, one.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)


@dataclasses.dataclass(frozen=True)
class Inner:
    """Part of a record."""

    share: Annotated[Share | None, Column("loss_share")] = None
    """Share of calls that were lost."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """A record with a metric of its own."""

    name: Annotated[str, Column()]
    """Name."""
    cold_ns: Annotated[Count, Column()]
    """The new metric, nanoseconds."""
    inner: Annotated[Inner | None, LATER, Columns()] = None
    """More of it."""


def test_described_field_becomes_schema_column_and_row() -> None:
    schema = schema_of(Measured)
    assert schema["required"] == ["name", "cold_ns"]
    assert schema["properties"]["cold_ns"] == {
        "description": "The new metric, nanoseconds.",
        "type": "integer",
        "minimum": 0,
        "maximum": 2**63 - 1,
    }
    columns = {column.name: column for column in columns_of(Measured)}
    assert {name: column.dtype for name, column in columns.items()} == {
        "name": pl.String(),
        "cold_ns": pl.Int64(),
        "loss_share": pl.Float64(),
    }
    assert list(column_table(columns.values()))[3] == "| `cold_ns` | Int64, ns | The new metric, nanoseconds. |"
    read = RowReader(Measured)
    assert read(to_json(Measured("a", 7, Inner(0.5)))) == {"name": "a", "cold_ns": 7, "loss_share": 0.5}
    assert read({"name": "a", "cold_ns": 7}) == {"name": "a", "cold_ns": 7}


def test_described_field_of_a_wrong_value_breaks_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(schema_of(Measured))
    assert validator.is_valid({"name": "a", "cold_ns": 7, "inner": None})
    for wrong in ({"cold_ns": -1}, {"cold_ns": None}, {"inner": {"share": 2}}, {"inner": {}}, {"colour": 1}):
        assert not validator.is_valid({"name": "a", "cold_ns": 7, **wrong})


def test_faults_in_the_schema_are_those_of_the_vocabulary() -> None:
    rules = load_schema("record")["$defs"]["outcome"]["allOf"]
    said = {
        status: rule["then"]["properties"]["fault"]["const"]
        for rule in rules
        for status in rule["if"]["properties"]["status"]["enum"]
    }
    assert said == {status.value: enums.fault_of(status).value for status in enums.Status}


def test_a_trace_has_a_column_for_everything_a_sample_has() -> None:
    schema = load_schema("trace")
    jsonschema.Draft202012Validator.check_schema(schema)
    columns = schema["properties"]["columns"]
    assert list(trace_of([]).columns) == list(columns["properties"]) == columns["required"]
    assert sorted(schema["required"]) == sorted(schema["properties"])
    assert set(trace_to_json(TelemetryTrace(columns={}), run_id="", cell_id="", attempt=1)) == set(schema["properties"])
    sample = {f.name for f in dataclasses.fields(TelemetrySample)}
    assert sample - {"reasons", "reason_ns", "pids"} == set(NUMBERS)
    assert {column["maxItems"] for column in columns["properties"].values()} == {MAX_SAMPLES}
    assert columns["properties"]["trouble"]["items"]["maxLength"] == TROUBLE_CHARS


def test_the_table_of_traces_has_every_column_of_a_trace() -> None:
    counters = {f"{reason.value}_ns" for reason in EventReason}
    assert set(TELEMETRY) - {"record", "run_id", "cell_id", "attempt"} - counters == set(trace_of([]).columns)
    assert TELEMETRY["reasons"] == pl.List(pl.Enum([reason.value for reason in EventReason]))


def test_isolation_info_has_the_fields_of_isolation() -> None:
    assert list(described_fields(record.IsolationInfo)) == [f.name for f in dataclasses.fields(Isolation)]


def test_device_info_has_the_fields_of_gpu() -> None:
    # Records name the platform's vendor, not the platform, and have the devices and the link of a group beside it.
    elsewhere = ("devices", "links")
    names = ["vendor" if f.name == "platform" else f.name for f in dataclasses.fields(Gpu) if f.name not in elsewhere]
    assert list(described_fields(record.DeviceInfo)) == names


def test_enum_columns_hold_exactly_the_words_of_the_vocabulary() -> None:
    for column, kind in (
        ("status", enums.Status),
        ("expect", enums.Status),
        ("session_status", enums.Status),
        ("workload_status", enums.Status),
        ("stage", enums.Stage),
        ("session_stage", enums.Stage),
        ("fault", enums.Fault),
        ("dtype", enums.Dtype),
        ("language", enums.Language),
        ("tier", enums.Tier),
    ):
        assert CELLS[column] == pl.Enum([m.value for m in kind])
    for column, kind in (
        *(("verdict", enums.Verdict), ("session_verdict", enums.Verdict), ("grade", enums.Grade)),
        *((name, enums.VerdictReason) for name in ("verdict_reason", "session_verdict_reason")),
    ):
        assert CELLS[column] == pl.Enum([m.value for m in kind])
    contestants = load_schema("record")["$defs"]["block"]["properties"]["contestant"]["enum"]
    assert TABLES["samples"]["contestant"] == pl.Enum(contestants[1:])
    assert contestants == ["", "candidate", *(one.value for one in enums.Implementation)]
    assert TABLES["samples"]["regime"] == pl.Enum([m.value for m in enums.Regime])
    assert TABLES["samples"]["role"] == pl.Enum([m.value for m in enums.Role])


def test_a_full_record_fills_every_column_and_no_other() -> None:
    document = record.record_to_json(full_record())
    host = host_row(document)
    row, second = cell_rows(document, times_of(document), key=0, host=host, run=run_info.run_to_json(make_run()))
    assert {name for name in row if row[name] != second[name]} == {"session"}
    assert set(row) == set(CELLS)
    assert set(host) == set(HOSTS)
    of_others = ["wall_bound_ns", *(f"quality_{name}" for name in QUALITIES)]  # a CPU's, and quantised problems'
    assert [name for name, value in row.items() if value is None] == of_others
    assert [name for name, value in host.items() if value is None] == []


def test_quantised_arithmetic_has_a_quality_and_no_peak() -> None:
    whole = make_record(sessions=(session(workloads=(dataclasses.replace(workload(), traits=QUANTISED),)),))
    document = record.record_to_json(whole)
    (row,) = cell_rows(document, times_of(document), key=0, host=host_row(document), run=None)
    assert [row[f"quality_{name}"] for name in QUALITIES] == [0.999, 0.01, 0.02, 35.0]
    assert (row["flops_per_s"], row["flops_share_of_peak"]) == (1e10, None)
    assert row["bytes_share_of_peak"] == row["share_of_peak"] > 0


def test_kernels_of_a_full_record_fill_every_column() -> None:
    rows = list(kernel_rows(record.record_to_json(full_record()), key=0))
    assert {name for row in rows for name in row} == set(KERNELS)
    built = {f.name for f in dataclasses.fields(record.CompiledKernelInfo)}
    seen = {f.name for f in dataclasses.fields(messages.TracedKernel)}
    assert {frozenset(row) for row in rows} == {
        frozenset({"record", "origin"} | built),
        frozenset({"record", "session", "origin"} | seen),
    }
