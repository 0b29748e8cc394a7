"""The schema, the dataclasses and their documentation page agree."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kernel_matrix import matrix
from kernel_matrix.config_files import shape
from kernel_matrix.json_schemas import load_schema
from kernel_matrix.model.enums import Dtype, InputMode, Language, Tier
from kernel_matrix.model.messages import ProtocolSpec, to_json

SCHEMA = load_schema("matrix")
DEFS = SCHEMA["$defs"]
MATCH = {f.name for f in fields(matrix.Match)}


def names(kind):
    return {f.name for f in fields(kind)}


def every_subschema(node):
    if isinstance(node, dict):
        yield node
        for item in node.values():
            yield from every_subschema(item)
    elif isinstance(node, list):
        for item in node:
            yield from every_subschema(item)


def test_it_is_a_valid_schema():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (SCHEMA, names(matrix.Matrix) - {"path", "overrides"} | {"override"}),
        (DEFS["gpu"], names(matrix.GpuAxis) | {"vendor"}),
        (DEFS["toolchain"], names(matrix.Toolchain)),
        (DEFS["problemSet"], names(matrix.ProblemSet)),
        (DEFS["candidateSet"], names(matrix.CandidateSet)),
        (DEFS["match"], MATCH),
        (DEFS["exclude"], names(matrix.Exclude) - {"match"} | MATCH),
        (DEFS["include"], names(matrix.Include) - {"match"} | MATCH - {"dtype"}),
        (DEFS["override"], names(matrix.Override)),
        (DEFS["protocol"], names(matrix.Protocol) - {"spec"} | names(ProtocolSpec)),
        (DEFS["policy"], names(matrix.Policy)),
    ],
    ids=[
        "matrix",
        "gpu",
        "toolchain",
        "problems",
        "candidates",
        "match",
        "exclude",
        "include",
        "override",
        "protocol",
        "policy",
    ],
)
def test_keys_are_the_fields_of_the_dataclass(schema, expected):
    assert set(schema["properties"]) == expected


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (DEFS["gpu"], matrix.GpuAxis),
        (DEFS["toolchain"], matrix.Toolchain),
        (DEFS["problemSet"], matrix.ProblemSet),
        (DEFS["candidateSet"], matrix.CandidateSet),
        (DEFS["policy"], matrix.Policy),
    ],
    ids=["gpu", "toolchain", "problems", "candidates", "policy"],
)
def test_required_keys_and_defaults_are_those_of_the_dataclass(schema, kind):
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    assert set(schema.get("required", ())) == needed
    known = {"vendor": None, **{f.name: to_json(f.default) for f in fields(kind)}}
    for key, entry in schema["properties"].items():
        if "default" in entry:
            assert entry["default"] == known[key], key
        elif key not in needed:
            assert known[key] in (None, [], ""), f"{key} has a default that the schema does not tell"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (DEFS["dtypes"]["items"], [dtype.value for dtype in Dtype]),
        (DEFS["protocol"]["properties"]["tier"], [tier.value for tier in Tier]),
        (DEFS["protocol"]["properties"]["modes"]["items"], [mode.value for mode in InputMode]),
        (
            DEFS["toolchain"]["properties"]["languages"]["items"],
            [language.value for language in Language if language in matrix.DECLARED_LANGUAGES],
        ),
    ],
    ids=["dtype", "tier", "mode", "language"],
)
def test_words_are_those_of_the_program(schema, expected):
    assert schema["enum"] == expected


@pytest.mark.parametrize("key", ["protocol", "policy"])
def test_the_defaults_of_the_program_are_allowed(key):
    values = to_json(ProtocolSpec() if key == "protocol" else matrix.Policy())
    Draft202012Validator({**DEFS[key], "$defs": DEFS}).validate(values)


def test_every_table_is_closed_and_every_key_described():
    for schema in every_subschema(SCHEMA):
        if "properties" in schema and "type" in schema:
            assert schema["additionalProperties"] is False
            for key, entry in schema["properties"].items():
                shared = entry.get("$ref", "").startswith("#/$defs/match/")
                assert shared or {"title", "description"} <= set(entry), key


def test_every_rule_of_the_schema_has_a_sentence():
    words = {"$schema", "$id", "$ref", "$defs", "title", "description", "default", "examples"}
    structure = {"properties", "items"}
    rules = set()
    for schema in every_subschema(SCHEMA):
        is_map_of_names = schema is DEFS or any(
            schema is parent.get("properties") for parent in every_subschema(SCHEMA)
        )
        rules |= set() if is_map_of_names else set(schema)
    assert rules - words - structure == set(shape._KEY_RULES) | set(shape._VALUE_RULES)


def test_every_pattern_speaks_of_the_whole_text():
    patterns = [schema["pattern"] for schema in every_subschema(SCHEMA) if isinstance(schema.get("pattern"), str)]
    assert patterns
    assert all(pattern.startswith("^") and pattern.endswith("$") for pattern in patterns)


def test_the_page_names_every_key():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "matrix.md").read_text()
    keys = {key for schema in every_subschema(SCHEMA) for key in schema.get("properties", {}) if "type" in schema}
    assert [key for key in sorted(keys) if not any(form in page for form in (f"`{key}`", f"[{key}]", f"{key} ="))] == []
