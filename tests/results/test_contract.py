"""The schemas, the dataclasses, the enums and the tables say the same, field by field."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

import jsonschema
import polars as pl
import pytest

from kernel_matrix.json_schemas import load_schema
from kernel_matrix.model import enums, messages
from kernel_matrix.platforms import EventReason, TelemetrySample
from kernel_matrix.results import record, run_info
from kernel_matrix.results.kernel_rows import kernel_rows
from kernel_matrix.results.record import Record
from kernel_matrix.results.rows import cell_rows, host_row
from kernel_matrix.results.run_info import RunInfo
from kernel_matrix.results.schema import CELLS, HOSTS, KERNELS, ORIGIN, QUALITIES, TABLES, TELEMETRY
from kernel_matrix.results.trace import MAX_SAMPLES, NUMBERS, TROUBLE_CHARS, TelemetryTrace, trace_of, trace_to_json
from kernel_matrix.sandboxes import Isolation
from kernel_matrix.sources import Origin
from tests.results.factory import ADDED_LATER, QUANTISED, full_record, make_record, make_run, session, workload

NARROWER = {
    ("Block", "role"): {"candidate", "baseline", "rival"},  # a judge or builder is never timed
}
"""Where a schema allows fewer words than the type of the field has."""


def _resolve(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema


def _without_null(schema: dict[str, Any], root: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema of the value, and whether null is allowed beside it."""
    schema = _resolve(schema, root)
    if "anyOf" in schema and {"type": "null"} in schema["anyOf"]:
        return _resolve(schema["anyOf"][0], root), True
    if isinstance(schema.get("type"), list) and "null" in schema["type"]:
        rest = [t for t in schema["type"] if t != "null"]
        return {**schema, "type": rest[0] if len(rest) == 1 else rest}, True
    return schema, False


def _check_type(where: str, kind: Any, schema: dict[str, Any], root: dict[str, Any]) -> None:
    schema, nullable = _without_null(schema, root)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (kind,) = [a for a in typing.get_args(kind) if a is not type(None)]
        assert nullable, f"{where}: null is missing from the schema"
    else:
        assert not nullable, f"{where}: the schema allows null"
    if dataclasses.is_dataclass(kind):
        _check_dataclass(kind, schema, root)
    elif typing.get_origin(kind) is tuple:
        _check_tuple(where, typing.get_args(kind), schema, root)
    elif typing.get_origin(kind) is Mapping:
        assert schema["type"] == "object", where
        assert schema["additionalProperties"] is not True, f"{where}: takes anything"
        if isinstance(schema["additionalProperties"], dict) and dataclasses.is_dataclass(typing.get_args(kind)[1]):
            _check_type(f"{where}[]", typing.get_args(kind)[1], schema["additionalProperties"], root)
    elif issubclass(kind, Enum):
        owner, _, name = where.rpartition(".")
        assert set(schema["enum"]) == NARROWER.get((owner, name), {m.value for m in kind}), where
    else:
        _check_plain(where, kind, schema)


def _check_tuple(where: str, args: tuple[Any, ...], schema: dict[str, Any], root: dict[str, Any]) -> None:
    assert schema["type"] == "array", where
    assert "maxItems" in schema, f"{where}: unbounded"
    if args[-1] is Ellipsis:
        _check_type(where, args[0], schema["items"], root)
    else:
        assert schema["minItems"] == schema["maxItems"] == len(args), where
        for kind, inner in zip(args, schema["prefixItems"], strict=True):
            _check_type(where, kind, inner, root)


def _check_plain(where: str, kind: type, schema: dict[str, Any]) -> None:
    if "const" in schema:
        assert (where.rpartition(".")[2], schema["const"]) == ("schema_version", messages.SCHEMA_VERSION)
    elif "enum" in schema:
        assert kind is str, where
    else:
        assert schema["type"] == {str: "string", int: "integer", float: "number", bool: "boolean"}[kind], where
        assert kind is not str or {"maxLength", "pattern"} & set(schema), f"{where}: unbounded"
        assert kind not in (int, float) or {"minimum", "maximum"} <= set(schema), f"{where}: unbounded"


def _check_dataclass(kind: type, schema: dict[str, Any], root: dict[str, Any]) -> None:
    names = [f.name for f in dataclasses.fields(kind)]
    later = ADDED_LATER.get(kind.__name__, set())
    assert schema["additionalProperties"] is False, kind.__name__
    assert sorted(schema["properties"]) == sorted(names), kind.__name__
    assert sorted(schema["required"]) == sorted(set(names) - later), kind.__name__
    assert later <= {f.name for f in dataclasses.fields(kind) if _has_default(f)}, kind.__name__
    spaces = {**vars(typing), **vars(enums), **vars(messages), **vars(record), **vars(run_info)}
    hints = typing.get_type_hints(kind, globalns=spaces)
    for name in names:
        _check_type(f"{kind.__name__}.{name}", hints[name], schema["properties"][name], root)


def _has_default(one: dataclasses.Field[Any]) -> bool:
    return (one.default, one.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)


@pytest.mark.parametrize(("name", "kind"), [("record", Record), ("run", RunInfo)])
def test_schema_and_dataclasses_agree_recursively(name: str, kind: type) -> None:
    schema = load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    _check_dataclass(kind, schema, schema)


def test_faults_in_the_schema_are_those_of_the_vocabulary() -> None:
    rules = load_schema("record")["$defs"]["outcome"]["allOf"]
    said = {
        status: rule["then"]["properties"]["fault"]["const"]
        for rule in rules
        for status in rule["if"]["properties"]["status"]["enum"]
    }
    assert said == {status.value: enums.fault_of(status).value for status in enums.Status}


def test_every_status_can_be_counted_in_a_run() -> None:
    assert load_schema("run")["$defs"]["status"] == load_schema("record")["$defs"]["status"]


def test_words_about_clocks_are_those_of_the_vocabulary() -> None:
    host = load_schema("record")["$defs"]["host"]["properties"]
    assert set(host["clock_policy"]["enum"]) == {policy.value for policy in enums.ClockPolicy}
    assert set(host["clock_state"]["enum"]) == {state.value for state in enums.ClockState}
    for name in ("record", "trace"):
        assert load_schema(name)["$defs"]["event_reason"]["enum"] == [reason.value for reason in EventReason]


def test_a_trace_has_a_column_for_everything_a_sample_has() -> None:
    schema = load_schema("trace")
    jsonschema.Draft202012Validator.check_schema(schema)
    columns = schema["properties"]["columns"]
    assert list(trace_of([]).columns) == list(columns["properties"]) == columns["required"]
    assert sorted(schema["required"]) == sorted(schema["properties"])
    assert set(trace_to_json(TelemetryTrace(columns={}), run_id="", cell_id="", attempt=1)) == set(schema["properties"])
    sample = {f.name for f in dataclasses.fields(TelemetrySample)}
    assert sample - {"reasons", "reason_ns", "pids"} == set(NUMBERS)
    for name, column in columns["properties"].items():
        resolved = _resolve(column, schema)
        assert resolved["maxItems"] == MAX_SAMPLES, name
    assert columns["properties"]["trouble"]["items"]["maxLength"] == TROUBLE_CHARS


def test_the_table_of_traces_has_every_column_of_a_trace() -> None:
    counters = {f"{reason.value}_ns" for reason in EventReason}
    assert set(TELEMETRY) - {"record", "run_id", "cell_id", "attempt"} - counters == set(trace_of([]).columns)
    assert TELEMETRY["reasons"] == pl.List(pl.Enum([reason.value for reason in EventReason]))


def test_untimed_statuses_in_the_schema_are_those_of_the_messages() -> None:
    assert set(load_schema("record")["$defs"]["untimed"]["enum"]) == {s.value for s in messages.UNTIMED}


def test_maps_of_a_known_form_agree_with_their_dataclass() -> None:
    definitions = load_schema("record")["$defs"]
    origin = [f.name for f in dataclasses.fields(Origin)]
    assert list(definitions["origin"]["properties"]) == origin == list(ORIGIN)
    assert list(definitions["isolation"]["properties"]) == [f.name for f in dataclasses.fields(Isolation)]


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
    for column, kind in (("verdict", enums.Verdict), ("grade", enums.Grade)):
        assert CELLS[column] == pl.Enum([m.value for m in kind])
    contestants = load_schema("record")["$defs"]["contestant"]["enum"]
    assert TABLES["samples"]["contestant"] == pl.Enum(contestants[1:])
    assert contestants == ["", "candidate", *(one.value for one in enums.Implementation)]
    assert TABLES["samples"]["regime"] == pl.Enum([m.value for m in enums.Regime])
    assert TABLES["samples"]["role"] == pl.Enum([m.value for m in enums.Role])


def test_a_full_record_fills_every_column_and_no_other() -> None:
    document = record.record_to_json(full_record())
    host = host_row(document)
    row, second = cell_rows(document, key=0, host=host, run=run_info.run_to_json(make_run()))
    assert {name for name in row if row[name] != second[name]} == {"session"}
    assert set(row) == set(CELLS)
    assert set(host) == set(HOSTS)
    of_quantised = [f"quality_{name}" for name in QUALITIES]
    assert [name for name, value in row.items() if value is None] == of_quantised
    assert [name for name, value in host.items() if value is None] == []


def test_quantised_arithmetic_has_a_quality_and_no_peak() -> None:
    whole = make_record(sessions=(session(workloads=(dataclasses.replace(workload(), traits=QUANTISED),)),))
    document = record.record_to_json(whole)
    (row,) = cell_rows(document, key=0, host=host_row(document), run=None)
    assert [row[f"quality_{name}"] for name in QUALITIES] == [0.999, 0.01, 0.02, 35.0]
    assert (row["flops_per_s"], row["flops_share_of_peak"]) == (1e10, None)
    assert row["bytes_share_of_peak"] == row["share_of_peak"] > 0


def test_the_kernels_of_a_full_record_fill_every_column_between_them() -> None:
    rows = list(kernel_rows(record.record_to_json(full_record()), key=0))
    assert {name for row in rows for name in row} == set(KERNELS)
    built = {f.name for f in dataclasses.fields(record.CompiledKernelInfo)}
    seen = {f.name for f in dataclasses.fields(messages.TracedKernel)}
    assert {frozenset(row) for row in rows} == {
        frozenset({"record", "origin"} | built),
        frozenset({"record", "session", "origin"} | seen),
    }
