"""``kernel-matrix pairs`` as a person or a script meets it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from kernel_matrix.cli import build_app
from tests.made_sources import write_matrix, write_tables


@pytest.fixture
def arguments(tmp_path):
    matrix = write_matrix(tmp_path)
    return ["pairs", str(write_tables(tmp_path / "tables", matrix)), str(tmp_path / "out"), "--matrix", str(matrix)]


def test_counts_and_files_are_printed(arguments, tmp_path):
    (tmp_path / "problems" / "twice" / "candidates" / "bad.py").unlink()
    done = CliRunner().invoke(build_app(), arguments)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "kind: 1 optimisation",
        "split: 1 validation",
        "left out: 1 records: the source is not here as it was measured",
        *(str(tmp_path / "out" / name) for name in ("pairs.parquet", "pairs.jsonl", "README.md")),
    ]


def test_json_is_one_document(arguments):
    done = CliRunner().invoke(build_app(), [*arguments, "--json", "--nearest", "2"])
    document = json.loads(done.stdout)
    assert document["kinds"] == {"error_correction": 2, "optimisation": 1}
    assert len(document["files"]) == 3
