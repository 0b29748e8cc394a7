"""JSON Schemas of all documents that this program reads or writes; see :mod:`kernel_matrix.bundled`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from kernel_matrix.bundled import bundled_path


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
