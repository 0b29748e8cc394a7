"""JSON Schemas of records, runs and traces, generated from the descriptions of their fields."""

from __future__ import annotations

import json
import re
import textwrap
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

from kernel_matrix.model.enums import Fault, Status, fault_of
from kernel_matrix.model.fields import (
    INT64,
    AddedLater,
    Fragment,
    Items,
    JsonOf,
    Length,
    Name,
    Pattern,
    Range,
    Scalar,
    Words,
)
from kernel_matrix.model.messages import UNTIMED, SessionReport, WorkloadReport
from kernel_matrix.results.described_fields import Description, describe, described_fields, field_docs
from kernel_matrix.results.record import Outcome, Record
from kernel_matrix.results.run_info import RunInfo
from kernel_matrix.results.trace import MAX_SAMPLES, TraceFile, TraceSample

Json = dict[str, Any]

MAX_CHARS = 4096
"""Limit of a text whose field names no other; bounds what a hostile report can fill."""
MAX_ITEMS = 100_000
"""Limit of a tuple whose field names no other, likewise."""
_WIDTH = 120  # of a line in a schema file, as in the source code
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LIMITS = {int: Range(0, INT64), float: Range(0, 1e30)}

_UNTIMED = {"enum": [status.value for status in Status if status in UNTIMED]}
_NO_BLOCKS = {"properties": {"blocks": {"maxItems": 0}}}
_NO_BLOCKS_IN_WORKLOADS = {"properties": {"workloads": {"items": _NO_BLOCKS}}}


def _status_is(status: Json) -> Json:
    return {"properties": {"status": status}}


def _contains(name: str, items: Json) -> Json:
    return {"properties": {name: {"contains": items}}}


_TIMED = _contains(
    "sessions", _contains("workloads", _contains("blocks", {"properties": {"device_ns": {"minItems": 1}}}))
)
_RULES: Mapping[type, list[Json]] = {
    Record: [
        {"if": {"properties": {"outcome": _status_is({"const": Status.PASSED.value})}}, "then": _TIMED},
        {
            "if": {"properties": {"outcome": _status_is(_UNTIMED)}},
            "then": {"properties": {"sessions": {"items": _NO_BLOCKS_IN_WORKLOADS}}},
        },
    ],
    SessionReport: [
        {"if": _status_is({"const": Status.PASSED.value}), "then": {"properties": {"workloads": {"minItems": 1}}}},
        {"if": _status_is(_UNTIMED), "then": _NO_BLOCKS_IN_WORKLOADS},
    ],
    WorkloadReport: [{"if": _status_is(_UNTIMED), "then": _NO_BLOCKS}],
    Outcome: [
        {
            "if": _status_is({"enum": [status.value for status in Status if fault_of(status) is fault]}),
            "then": {"properties": {"fault": {"const": fault.value}}},
        }
        for fault in Fault
    ],
}
"""Conditions between two fields of an object."""


def schemas() -> dict[str, Json]:
    """Return the schema of every document that a dataclass describes, by name."""
    return {"record": schema_of(Record), "run": schema_of(RunInfo), "trace": trace_schema()}


def schema_of(kind: type) -> Json:
    """Return the JSON Schema of the document that a dataclass describes."""
    defs: Json = {}
    body = _object(kind, defs)
    return {**_head(kind), **body, "$defs": dict(sorted(defs.items()))}


def trace_schema() -> Json:
    """Return the JSON Schema of a trace, which has a column for each field of a sample."""
    defs: Json = {}
    schema = {**_head(TraceFile), **_object(TraceFile, defs)}
    columns = _object(TraceSample, defs)
    for name, one in columns["properties"].items():
        text = {"description": one.pop("description")} if "description" in one else {}
        columns["properties"][name] = {**text, "type": "array", "maxItems": MAX_SAMPLES, "items": one}
    schema["properties"]["columns"] = columns
    return {**schema, "$defs": dict(sorted(defs.items()))}


def _head(kind: type) -> Json:
    name = {Record: "record", RunInfo: "run", TraceFile: "trace"}.get(kind, kind.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://kernel-matrix.invalid/schemas/{name}.schema.json",
        "title": kind.__name__,
    }


def _object(kind: type, defs: Json, form: JsonOf | None = None) -> Json:
    described = described_fields(kind)
    docs = field_docs(kind)
    schema: Json = {
        "description": " ".join((kind.__doc__ or "").split("\n\n")[0].split()),
        "type": "object",
        "additionalProperties": False,
        "required": [name for name, field in described.items() if field.mark(AddedLater) is None],
        "properties": {name: _documented(_schema(field, defs), docs[name]) for name, field in described.items()},
    }
    if form is not None and form.partial:
        del schema["required"]
    if form is not None and form.open:
        schema |= {
            "propertyNames": _schema(describe(Name), defs),
            "additionalProperties": _schema(describe(Scalar), defs),
        }
    if kind in _RULES:
        schema["allOf"] = _RULES[kind]
    return schema


def _documented(schema: Json, doc: str) -> Json:
    return {"description": doc.replace("``", "`"), **schema} if doc else schema


def _schema(value: Description, defs: Json) -> Json:
    schema = _value_schema(value, defs)
    if not value.nullable:
        return schema
    if "type" in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _value_schema(value: Description, defs: Json) -> Json:
    """Return the schema of ``value`` without the case that it is null."""
    fragment, words = value.mark(Fragment), value.mark(Words)
    if fragment is not None:
        return fragment.schema
    if words is not None:
        return {"enum": list(words.allowed)}
    if value.dataclass is not None:
        return _reference(value.dataclass, defs, value.mark(JsonOf))
    if typing.get_origin(value.kind) is not None:
        return _container(value, defs)
    if issubclass(value.kind, Enum):
        defs[_name(value.kind)] = {"enum": [word.value for word in value.kind]}
        return {"$ref": f"#/$defs/{_name(value.kind)}"}
    return {"type": _TYPES[value.kind], **_limits(value)}


def _reference(kind: type, defs: Json, form: JsonOf | None) -> Json:
    if _name(kind) not in defs:
        defs[_name(kind)] = {}  # Reserve the place: a definition comes before those that it refers to.
        defs[_name(kind)] = _object(kind, defs, form)
    return {"$ref": f"#/$defs/{_name(kind)}"}


def _container(value: Description, defs: Json) -> Json:
    inner = typing.get_args(value.kind)
    if typing.get_origin(value.kind) is not tuple:
        keys = Name if inner[0] is str else inner[0]
        return {
            "type": "object",
            "propertyNames": _schema(describe(keys), defs),
            "additionalProperties": _schema(describe(inner[1]), defs),
        }
    if inner[-1] is not Ellipsis:
        items = [_schema(describe(one), defs) for one in inner]
        return {"type": "array", "minItems": len(inner), "maxItems": len(inner), "prefixItems": items}
    most = value.mark(Items)
    return {"type": "array", "maxItems": most.most if most else MAX_ITEMS, "items": _schema(describe(inner[0]), defs)}


def _limits(value: Description) -> Json:
    pattern, length, limits = value.mark(Pattern), value.mark(Length), value.mark(Range)
    if pattern is not None:
        return {"pattern": pattern.text}
    if value.kind is str:
        length = length or Length(MAX_CHARS)
        return ({"minLength": length.least} if length.least else {}) | {"maxLength": length.most}
    limits = limits or _LIMITS.get(value.kind)
    return {} if limits is None else {"minimum": limits.low, "maximum": limits.high}


def _name(kind: type) -> str:
    """Return ``block`` for ``Block``, ``clock_probe_reading`` for ``ClockProbeReading``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def format_schema(schema: Json) -> str:
    """Return a schema as the text of its file, with each value on one line if it fits."""
    return "\n".join(_lines(schema, indent=0)) + "\n"


def _lines(value: Any, *, indent: int, label: str = "") -> list[str]:
    """Return ``value`` behind ``label``, as lines that will be indented by ``indent``."""
    whole = label + json.dumps(value, ensure_ascii=False)
    if indent + len(whole) < _WIDTH or not isinstance(value, (dict, list)):
        return [whole]
    if isinstance(value, dict):
        inner = [_lines(one, indent=indent + 2, label=f"{json.dumps(key)}: ") for key, one in value.items()]
        return [f"{label}{{", *_separated(inner), "}"]
    if any(isinstance(one, (dict, list)) for one in value):
        return [f"{label}[", *_separated([_lines(one, indent=indent + 2) for one in value]), "]"]
    text = ", ".join(json.dumps(one, ensure_ascii=False) for one in value)
    wrapped = textwrap.wrap(text, _WIDTH - indent - 2, break_long_words=False, break_on_hyphens=False)
    return [f"{label}[", *(f"  {line}" for line in wrapped), "]"]


def _separated(values: list[list[str]]) -> list[str]:
    """Return the lines of several values, indented, with a comma behind each value but the last."""
    for lines in values[:-1]:
        lines[-1] += ","
    return [f"  {line}" for lines in values for line in lines]
