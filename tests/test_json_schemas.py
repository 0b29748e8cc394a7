from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import kernel_matrix
import kernel_matrix.json_schemas
from kernel_matrix.json_schemas import load_schema, schema_path


def test_a_checkout_reads_its_top_level_folder():
    assert (
        schema_path("matrix") == Path(kernel_matrix.json_schemas.__file__).parents[2] / "schemas" / "matrix.schema.json"
    )


def test_installed_package_reads_its_own_schemas(tmp_path):
    site = tmp_path / "site-packages"
    package = Path(kernel_matrix.__file__).parent
    shutil.copytree(package, site / "kernel_matrix", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "kernel_matrix" / "_schemas").mkdir()
    (site / "schemas").mkdir()
    (site / "kernel_matrix" / "_schemas" / "matrix.schema.json").write_text('{"title": "ours"}')
    (site / "schemas" / "matrix.schema.json").write_text('{"title": "somebody else\'s"}')
    code = "import json; from kernel_matrix.json_schemas import load_schema; print(json.dumps(load_schema('matrix')))"
    printed = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {code}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert json.loads(printed) == {"title": "ours"}


def test_an_absent_schema_is_named():
    with pytest.raises(FileNotFoundError, match="no schema 'nothing'"):
        load_schema("nothing")


def test_what_one_caller_changes_is_not_seen_by_the_next():
    load_schema("matrix")["title"] = "changed"
    assert load_schema("matrix")["title"] != "changed"


@pytest.mark.parametrize("path", sorted(schema_path("matrix").parent.glob("*.json")), ids=lambda path: path.stem)
def test_every_schema_is_one_and_knows_its_name(path):
    name = path.name.removesuffix(".schema.json")
    schema = load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert name in schema["$id"]
