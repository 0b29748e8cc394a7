"""The JSON Schemas that hold every document this program reads or writes.

They live in ``schemas/`` at the top of a checkout and travel inside the package as ``runner/_schemas``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

_PACKAGE = Path(__file__).resolve().parent


def schema_path(name: str) -> Path:
    """Where ``<name>.schema.json`` is.

    :raises FileNotFoundError: when the installation lacks it.
    """
    # The packaged folder comes first: beside an installed package, "schemas" may be anybody's.
    for folder in (_PACKAGE / "_schemas", _PACKAGE.parent / "schemas"):
        path = folder / f"{name}.schema.json"
        if path.is_file():
            return path
    raise FileNotFoundError(f"no schema {name!r}: this installation of kernel-matrix is incomplete, install it again")


def load_schema(name: str) -> dict[str, Any]:
    """The schema ``<name>.schema.json`` as a dictionary of its own.

    :raises FileNotFoundError: when the installation lacks it.
    """
    return cast("dict[str, Any]", json.loads(schema_path(name).read_text(encoding="utf-8")))
