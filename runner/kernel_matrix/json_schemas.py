"""JSON Schemas of all documents that this program reads or writes; see :mod:`kernel_matrix.bundled`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, cast

import jsonschema_rs

from kernel_matrix.bundled import bundled_path
from kernel_matrix.model.fields import INT64


def schema_path(name: str) -> Path:
    """Return the path of ``<name>.schema.json``.

    Raises:
        FileNotFoundError: The installation lacks it.
    """
    path = bundled_path("schemas", f"{name}.schema.json")
    if path.is_file():
        return path
    raise FileNotFoundError(f"no schema {name!r}: this installation of kernel-matrix is incomplete, install it again")


def load_schema(name: str) -> dict[str, Any]:
    """Return the schema ``<name>.schema.json`` as a new dictionary.

    Raises:
        FileNotFoundError: The installation lacks it.
    """
    return cast("dict[str, Any]", json.loads(schema_path(name).read_text(encoding="utf-8")))


def is_valid(schema: str, document: Any) -> bool:
    """Return whether ``document`` matches ``schemas/<schema>.schema.json``.

    Raises:
        ValueError: It holds what JSON has not, such as a date.
    """
    return _quick_validator(schema).is_valid(document)


@cache
def _quick_validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(_with_near_limits(load_schema(schema)))


def _with_near_limits(schema: Any) -> Any:
    """Return an equivalent of ``schema`` that tries limits of 64 bits before wider ones.

    The validator compares numbers with any other limit, like 1e30, in exact fractions, which takes 15 times as long.
    """
    if isinstance(schema, list):
        return [_with_near_limits(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _with_near_limits(value) for key, value in schema.items()}
    limits = {word: inner[word] for word in ("minimum", "maximum") if isinstance(inner.get(word), float)}
    near = {word: int(min(max(limit, -INT64), INT64)) for word, limit in limits.items() if limit.is_integer()}
    return {"anyOf": [inner | near, inner]} if near else inner
