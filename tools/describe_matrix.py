"""Write the tables of keys in ``docs/reference/matrix.md`` from ``schemas/matrix.schema.json``.

Run it after a change of the schema or of a tier: ``python -m tools.describe_matrix``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from kernel_matrix.matrix import Policy, Protocol
from kernel_matrix.matrix.tiers import TIERS
from kernel_matrix.model.enums import Tier
from tools.describe_records import between

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "matrix.md"
SCHEMA = json.loads((ROOT / "schemas" / "matrix.schema.json").read_text(encoding="utf-8"))

TABLES = ("axes", "gpu", "toolchain", "problemSet", "candidateSet", "protocol", "policy")


def page_text(text: str) -> str:
    """Return the page with its tables made anew."""
    for name in TABLES:
        text = between(text, f"<!-- keys of {name} -->", key_table(name), name)
    return text


def key_table(name: str) -> Iterator[str]:
    """Yield the lines of one table."""
    defaults = _defaults(name)
    if name == "protocol":
        columns = {tier.value: {**defaults, **TIERS[tier]} for tier in Tier}
    else:
        columns = {"default": defaults} if defaults else {}
    described = SCHEMA if name == "axes" else SCHEMA["$defs"][name]
    required = described.get("required", ())
    yield f"| {' | '.join(('key', *columns, 'meaning'))} |"
    yield f"| {' | '.join(['---'] * (len(columns) + 2))} |"
    for key, value in described["properties"].items():
        said = value.get("description", "").replace("|", "\\|").replace("<", "\\<")
        shown = (_shown(column.get(key)) for column in columns.values())
        needed = "Required. " if key in required else ""
        yield f"| {' | '.join((f'`{key}`', *shown, f'{needed}{said}'))} |"


def _defaults(name: str) -> Mapping[str, Any]:
    if name == "policy":
        return asdict(Policy())
    if name == "protocol":
        protocol = asdict(Protocol())
        return {**protocol.pop("spec"), **protocol, "tier": ""}
    return {}


def _shown(value: Any) -> str:
    if value is None or value == "":
        return ""
    plain = value.value if isinstance(value, Enum) else value
    if isinstance(plain, tuple):
        plain = [one.value if isinstance(one, Enum) else one for one in plain]
    if isinstance(plain, float):
        plain = int(plain) if plain.is_integer() else plain
    return f"`{json.dumps(plain, ensure_ascii=False)}`"


if __name__ == "__main__":
    PAGE.write_text(page_text(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
