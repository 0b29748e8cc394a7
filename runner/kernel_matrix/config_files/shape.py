"""Check keys, types and ranges of a configuration file against its schema, and explain violations."""

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

from kernel_matrix.config_files.faults import ConfigFault, listed, quote
from kernel_matrix.errors import closest, suggestion
from kernel_matrix.json_schemas import load_schema
from kernel_matrix.toml_text import KeyPath

_TYPE_NAMES = {
    "string": "text in quotes",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table",
}


def check_shape(document: Mapping[str, Any], schema: str) -> list[ConfigFault]:
    """Return every violation of ``schemas/<schema>.schema.json``, and every number that is not finite."""
    infinite = list(_find_infinite(document, ()))
    skipped = {fault.path for fault in infinite}
    found = (fault for error in _validator(schema).iter_errors(document) for fault in _explain(error))
    return list(dict.fromkeys([*infinite, *(fault for fault in found if fault.path not in skipped)]))


def remove_faulty(document: Mapping[str, Any], faults: Iterable[ConfigFault]) -> dict[str, Any]:
    """Return a copy of ``document`` without its faulty values, so that the rest can be checked.

    A faulty key is removed; a faulty element of a list becomes ``None``, so that the others keep their index.
    """
    rest = copy.deepcopy(dict(document))
    for fault in faults:
        if not fault.usable:
            _remove(rest, fault.path)
    return rest


@cache
def _validator(schema: str) -> Validator:
    kind = extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]  # jsonschema lacks it
    return cast("Validator", kind(load_schema(schema)))


def _pattern(_validator: Validator, pattern: str, value: object, _schema: object) -> Iterator[ValidationError]:
    # Python's "$" also matches before a final newline, a schema's does not. All patterns of the schema are anchored.
    if isinstance(value, str) and not re.fullmatch(pattern, value):
        yield ValidationError("does not match")


def _remove(node: Any, path: KeyPath) -> None:
    *around, last = path
    for part in around:
        node = node[part]
    if isinstance(node, list):
        node[int(last)] = None
    else:
        node.pop(last, None)


def _find_infinite(value: object, path: KeyPath) -> Iterator[ConfigFault]:
    if isinstance(value, float) and not isfinite(value):
        yield ConfigFault(path, f"{value} is not allowed; must be finite")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _find_infinite(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_infinite(item, (*path, index))


@dataclass(frozen=True, slots=True)
class _SchemaViolation:
    """One violated rule of the schema."""

    path: KeyPath
    rule: str
    wanted: Any
    """Value of the schema's keyword ``rule``."""
    got: Any
    schema: Mapping[str, Any]
    """Part of the schema that holds the rule."""


def _explain(error: ValidationError) -> Iterator[ConfigFault]:
    schema = cast("Mapping[str, Any]", error.schema)
    violation = _SchemaViolation(
        tuple(error.absolute_path), str(error.validator), error.validator_value, error.instance, schema
    )
    if violation.rule in _KEY_RULES:
        yield from _KEY_RULES[violation.rule](violation)
    else:
        yield ConfigFault(violation.path, _VALUE_RULES[violation.rule](violation))


def _explain_unknown_keys(violation: _SchemaViolation) -> Iterator[ConfigFault]:
    allowed = list(violation.schema["properties"])
    for key in violation.got:
        if key not in allowed:
            yield ConfigFault(
                (*violation.path, key), f"unknown key; allowed: {listed(allowed)}{suggestion(key, allowed)}"
            )


def _explain_missing_keys(violation: _SchemaViolation) -> Iterator[ConfigFault]:
    properties = violation.schema["properties"]
    misspelt = {closest(key, list(properties)) for key in violation.got if key not in properties}
    for key in violation.wanted:
        if key not in violation.got and key not in misspelt:
            purpose = properties[key]["description"]
            yield ConfigFault((*violation.path, key), f"missing; {purpose[0].lower()}{purpose[1:].rstrip('.')}")


def _explain_repeats(violation: _SchemaViolation) -> Iterator[ConfigFault]:
    for index, item in enumerate(violation.got):
        if item in violation.got[:index]:
            text = f"{quote(item)} is given twice, first as element {violation.got.index(item)}"
            yield ConfigFault((*violation.path, index), text, usable=True)


def _explain_type(violation: _SchemaViolation) -> str:
    expected = [violation.wanted] if isinstance(violation.wanted, str) else violation.wanted
    text = f"must be {' or '.join(_TYPE_NAMES[name] for name in expected)}, got {_describe_value(violation.got)}"
    is_number = isinstance(violation.got, (int, float)) and not isinstance(violation.got, bool)
    return f'{text}; write "{violation.got}"' if "string" in expected and is_number else text


def _describe_value(value: object) -> str:
    if isinstance(value, bool):
        return _in_toml(value)
    if isinstance(value, (int, float)):
        return f"the number {quote(value)}"
    if isinstance(value, (date, time)):
        return f"the date or time {value}"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    return "a list" if isinstance(value, list) else "a table"


def _explain_word(violation: _SchemaViolation) -> str:
    allowed = [_in_toml(word) for word in violation.wanted]
    got = _in_toml(violation.got) if isinstance(violation.got, bool) else quote(violation.got)
    return f"{got} is not known; allowed: {listed(allowed)}{suggestion(violation.got, allowed)}"


def _in_toml(word: str | bool) -> str:  # noqa: FBT001  # either kind of value that a schema lists
    return str(word).lower() if isinstance(word, bool) else word


def _explain_limit(words: str) -> Callable[[_SchemaViolation], str]:
    return lambda violation: f"{quote(violation.got)} is out of range; must be {words} {violation.wanted}"


_KEY_RULES: Mapping[str, Callable[[_SchemaViolation], Iterator[ConfigFault]]] = {
    "additionalProperties": _explain_unknown_keys,
    "required": _explain_missing_keys,
    "uniqueItems": _explain_repeats,
}

_VALUE_RULES: Mapping[str, Callable[[_SchemaViolation], str]] = {
    "type": _explain_type,
    "enum": _explain_word,
    "minimum": _explain_limit("at least"),
    "maximum": _explain_limit("at most"),
    "exclusiveMinimum": _explain_limit("more than"),
    "exclusiveMaximum": _explain_limit("less than"),
    "pattern": lambda violation: f"{quote(violation.got)} does not fit; {violation.schema['description']}".rstrip("."),
    "minItems": lambda _: "the list is empty; give at least one value",
    "contains": lambda violation: f"{quote(violation.wanted['enum'][0])} is missing; the list must have it",
    "minLength": lambda _: "the text is empty",
    "maxLength": lambda violation: f"the text is too long; must have at most {violation.wanted} characters",
    "minProperties": lambda violation: f"the table is empty; allowed: {listed(violation.schema['properties'])}",
}
"""Together with ``_KEY_RULES``, every rule that the schemas use; a test compares them."""
