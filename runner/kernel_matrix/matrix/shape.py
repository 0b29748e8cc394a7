"""The shape of a matrix file: keys, types and ranges, as ``schemas/matrix.schema.json`` has them.

The schema is the one place that knows the shape; here its findings become sentences.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time
from functools import cache
from math import isfinite
from typing import Any, cast

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from kernel_matrix.json_schemas import load_schema
from kernel_matrix.matrix.complaints import MatrixFault, closest, listed, quote, suggestion
from kernel_matrix.matrix.toml_lines import KeyPath

_TYPE_NAMES = {
    "string": "text in quotes",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table",
}


def shape_complaints(document: Mapping[str, Any]) -> list[MatrixFault]:
    """Everything the schema rejects, and numbers that are not finite."""
    not_finite = list(_not_finite(document, ()))
    skipped = {complaint.path for complaint in not_finite}
    found = (c for error in _validator().iter_errors(document) for c in _explain(error) if c.path not in skipped)
    return list(dict.fromkeys([*not_finite, *found]))


def without(document: Mapping[str, Any], complaints: Iterable[MatrixFault]) -> dict[str, Any]:
    """A copy of ``document`` with what was complained about taken out, so that the rest can be checked.

    A key goes away; an element of a list becomes ``None``, so that its neighbours keep their index.
    """
    rest = copy.deepcopy(dict(document))
    for complaint in complaints:
        if not complaint.usable:
            _take_out(rest, complaint.path)
    return rest


@cache
def _validator() -> Validator:
    kind = extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]  # jsonschema lacks it
    return cast("Validator", kind(load_schema("matrix")))


def _pattern(_validator: Validator, pattern: str, value: object, _schema: object) -> Iterator[ValidationError]:
    # Python's "$" lets a line end pass, a schema's does not; every pattern of ours is one from "^" to "$".
    if isinstance(value, str) and not re.fullmatch(pattern, value):
        yield ValidationError("does not match")


def _take_out(node: Any, path: KeyPath) -> None:
    *around, last = path
    for part in around:
        node = node[part]
    if isinstance(node, list):
        node[int(last)] = None
    else:
        node.pop(last, None)


def _not_finite(value: object, path: KeyPath) -> Iterator[MatrixFault]:
    if isinstance(value, float) and not isfinite(value):
        yield MatrixFault(path, f"{value} is no number one can use; must be finite")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_finite(item, (*path, index))


@dataclass(frozen=True, slots=True)
class _Finding:
    """One violated rule of the schema."""

    path: KeyPath
    rule: str
    wanted: Any
    """What the schema says under ``rule``."""
    got: Any
    schema: Mapping[str, Any]
    """The part of the schema that holds the rule."""


def _explain(error: ValidationError) -> Iterator[MatrixFault]:
    schema = cast("Mapping[str, Any]", error.schema)
    finding = _Finding(tuple(error.absolute_path), str(error.validator), error.validator_value, error.instance, schema)
    if finding.rule in _ABOUT_KEYS:
        yield from _ABOUT_KEYS[finding.rule](finding)
    else:
        yield MatrixFault(finding.path, _ABOUT_VALUES[finding.rule](finding))


def _unknown_keys(finding: _Finding) -> Iterator[MatrixFault]:
    allowed = list(finding.schema["properties"])
    for key in finding.got:
        if key not in allowed:
            yield MatrixFault(
                (*finding.path, key), f"unknown key; allowed: {listed(allowed)}{suggestion(key, allowed)}"
            )


def _missing_keys(finding: _Finding) -> Iterator[MatrixFault]:
    properties = finding.schema["properties"]
    misspelt = {closest(key, list(properties)) for key in finding.got if key not in properties}
    for key in finding.wanted:
        if key not in finding.got and key not in misspelt:
            purpose = properties[key]["description"]
            yield MatrixFault((*finding.path, key), f"missing; {purpose[0].lower()}{purpose[1:].rstrip('.')}")


def _repeated_elements(finding: _Finding) -> Iterator[MatrixFault]:
    for index, item in enumerate(finding.got):
        if item in finding.got[:index]:
            text = f"{quote(item)} is given twice, first as element {finding.got.index(item)}"
            yield MatrixFault((*finding.path, index), text, usable=True)


def _wrong_type(finding: _Finding) -> str:
    expected = [finding.wanted] if isinstance(finding.wanted, str) else finding.wanted
    text = f"must be {' or '.join(_TYPE_NAMES[name] for name in expected)}, got {_kind_of(finding.got)}"
    is_number = isinstance(finding.got, (int, float)) and not isinstance(finding.got, bool)
    return f'{text}; write "{finding.got}"' if "string" in expected and is_number else text


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"the number {quote(value)}"
    if isinstance(value, (date, time)):
        return f"the date or time {value}"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    return "a list" if isinstance(value, list) else "a table"


def _wrong_word(finding: _Finding) -> str:
    allowed = finding.wanted
    return f"{quote(finding.got)} is not known; allowed: {listed(allowed)}{suggestion(finding.got, allowed)}"


def _limit(words: str) -> Callable[[_Finding], str]:
    return lambda finding: f"{quote(finding.got)} is out of range; must be {words} {finding.wanted}"


_ABOUT_KEYS: Mapping[str, Callable[[_Finding], Iterator[MatrixFault]]] = {
    "additionalProperties": _unknown_keys,
    "required": _missing_keys,
    "uniqueItems": _repeated_elements,
}

_ABOUT_VALUES: Mapping[str, Callable[[_Finding], str]] = {
    "type": _wrong_type,
    "enum": _wrong_word,
    "minimum": _limit("at least"),
    "maximum": _limit("at most"),
    "exclusiveMinimum": _limit("more than"),
    "exclusiveMaximum": _limit("less than"),
    "pattern": lambda finding: f"{quote(finding.got)} does not fit; {finding.schema['description']}".rstrip("."),
    "minItems": lambda _: "the list is empty; give at least one value",
    "contains": lambda finding: f"{quote(finding.wanted['enum'][0])} is missing; it is always among them",
    "minLength": lambda _: "the text is empty",
    "maxLength": lambda finding: f"the text is too long; must have at most {finding.wanted} characters",
    "minProperties": lambda finding: f"the table is empty; allowed: {listed(finding.schema['properties'])}",
}
"""Every rule that the schema uses is in one of the two; a test holds them equal."""
