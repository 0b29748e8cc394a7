"""A data set of pairs from results, with the sources of a matrix or those that a service kept."""

from __future__ import annotations

import json

import polars as pl
import pytest

import kernel_matrix
from kernel_matrix.api.judge_candidates import HostJudge, SentCandidate
from kernel_matrix.api.plan import load_matrix
from kernel_matrix.api.run_cells import sweep_before_run
from kernel_matrix.errors import NothingSelectedError, StoreError
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.hosts.survey import survey
from tests.baddays.field import new_field
from tests.made_sources import write_matrix, write_tables


@pytest.fixture
def matrix(tmp_path):
    return write_matrix(tmp_path)


@pytest.fixture
def results(tmp_path, matrix):
    return write_tables(tmp_path / "tables", matrix)


def test_files_hold_the_same_pairs_and_a_card(tmp_path, results, matrix):
    written = kernel_matrix.make_pairs(results, tmp_path / "out", matrix=matrix)
    parquet, lines, card = written.files
    assert pl.read_parquet(parquet).equals(written.table)
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert rows == json.loads(written.table.write_json())
    assert [(row["kind"], row["before"].split("'")[1], row["after"].split("'")[1]) for row in rows] == [
        *(("error_correction", "bad", "slow"), ("optimisation", "slow", "fast")),
    ]
    text = card.read_text()
    assert text.startswith("---\npretty_name: ")
    assert "| <code>optimisation</code> | 1 |" in text
    assert "It is unknown for 2 of\n  2 pairs" in text


def test_pairs_written_again_replace_those_before(tmp_path, results, matrix):
    out = tmp_path / "out"
    kernel_matrix.make_pairs(results, out, matrix=matrix, nearest=2)
    before = pl.read_parquet(out / "pairs.parquet").height
    kernel_matrix.make_pairs(results, out, matrix=matrix)
    assert (before, pl.read_parquet(out / "pairs.parquet").height) == (3, 2)
    assert sorted(file.name for file in out.iterdir()) == ["README.md", "pairs.jsonl", "pairs.parquet"]


def test_source_that_changed_since_is_left_out_and_counted(tmp_path, results, matrix):
    (tmp_path / "problems" / "twice" / "candidates" / "bad.py").write_text("class ModelNew: ...\n")
    written = kernel_matrix.make_pairs(results, tmp_path / "out", matrix=matrix)
    assert written.table["kind"].to_list() == ["optimisation"]
    assert written.records_left_out["the source is not here as it was measured"] == 1
    assert "| the source is not here as it was measured | 1 |" in written.files[2].read_text()


def test_no_pairs_is_an_error_that_counts_what_is_missing(tmp_path, results):
    with pytest.raises(NothingSelectedError, match="3 × the source is not here as it was measured") as raised:
        kernel_matrix.make_pairs(results, tmp_path / "out")
    assert "--matrix FILE" in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_broken_matrix_is_named(tmp_path, results):
    broken = tmp_path / "broken.toml"
    broken.write_text("name = ")
    with pytest.raises(NothingSelectedError, match=r"broken\.toml"):
        kernel_matrix.make_pairs(results, tmp_path / "out", matrix=broken)


def test_folder_that_cannot_be_written_is_one_error(tmp_path, results, matrix):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StoreError, match="cannot be written"):
        kernel_matrix.make_pairs(results, tmp_path / "out", matrix=matrix)


@pytest.mark.torch
@pytest.mark.usefixtures("forked_roles")
def test_sources_and_evidence_of_judged_candidates_are_found(tmp_path):
    with new_field(tmp_path) as field:
        matrix = load_matrix(field.root / "matrix.toml")
        host = survey(matrix, sandbox="process")
        judge = HostJudge(matrix, field.store, host)
        texts = {name: (field.candidates / f"{name}.py").read_text() for name in ("honest", "wrong")}
        cells = [judge.cell_of(SentCandidate(problem="tiny", source=text)) for text in texts.values()]
        sweep_before_run(host.sandbox)
        assert len(list(judge.judge(cells, RunPolicy(run_id="20260101T000000-000000")))) == 2
        written = kernel_matrix.make_pairs(field.results, tmp_path / "out")
    (row,) = written.table.to_dicts()
    assert (row["before"], row["after"], row["status_before"]) == (texts["wrong"], texts["honest"], "incorrect_values")
    evidence = json.loads(row["evidence_before"])
    assert evidence["mismatched"] > 0
    assert evidence["stage"] == "verify"
