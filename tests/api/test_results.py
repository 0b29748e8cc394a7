"""``Results``: frames, filters and charts of folders."""

from __future__ import annotations

import polars as pl
import pytest

from kernel_matrix import Results, analyze, freeze_best_known
from kernel_matrix.errors import NothingSelectedError, StoreError, UsageError
from kernel_matrix.results.schema import TABLES
from kernel_matrix.results.store import RecordStore
from tests.results.factory import failed_record, make_record

pytestmark = pytest.mark.torch


@pytest.fixture
def records(tmp_path):
    """A folder with two records of one cell: it failed, then passed."""
    store = RecordStore(tmp_path / "records-of-two")
    store.save(failed_record())
    store.save(make_record(cell_id="b" * 32))
    return store.root


def test_records_are_merged_aside_and_removed_at_close(records, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    with Results(records) as results:
        cells = results.cells
        assert len(set(tmp_path.iterdir()) - before) == 1
    assert set(tmp_path.iterdir()) == before
    assert cells.height == 2
    assert results.record_folders == (records,)


def test_questions_are_answered_from_a_folder_of_records(records, tmp_path):
    (scores, *_) = analyze("scores", records)
    assert scores.table["cells"].to_list() == [2]
    with pytest.raises(NothingSelectedError, match="nothing passed and was timed"):
        freeze_best_known(records, tmp_path / "best.json")


def test_tables_are_read_where_they_are(example_tables, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    results = Results(example_tables)
    assert (results.record_folders, list(tmp_path.iterdir())) == ((), [])
    assert results.cells.height == results.cells_count()


def test_filter_keeps_whole_cells_and_their_samples(example_tables):
    results = Results(example_tables)
    chosen = results.filter("problem=softmax", "dtype=fp32,fp16", "workload=default")
    assert set(chosen.latest()["workload"]) == {"default"}
    assert chosen.latest().height == results.latest("problem=softmax", "dtype=fp32,fp16", "workload=default").height
    assert 0 < chosen.samples.height < results.samples.height
    assert set(chosen.samples["record"]) <= set(chosen.cells["record"])
    assert set(chosen.hosts["host_id"]) == set(chosen.cells["host_id"])
    assert chosen.filter("dtype=fp16").latest().height < chosen.latest().height


def test_filtered_results_keep_the_merged_files(records):
    chosen = Results(records).filter("status=passed")
    assert chosen.cells["status"].to_list() == ["passed"]


def test_filter_that_knows_no_key_names_them(example_tables):
    with pytest.raises(UsageError, match="unknown key 'colour'"):
        Results(example_tables).filter("colour=red")


def test_tables_of_another_schema_are_refused(records, tmp_path):
    with Results(records) as results:
        for name in TABLES:
            getattr(results, name).write_parquet(tmp_path / f"{name}.parquet")
    (tmp_path / "cells.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match="cannot be read"):
        Results(tmp_path)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "cells.parquet")
    with pytest.raises(StoreError, match="does not have the schema"):
        Results(tmp_path)


def test_chart_of_speedups_has_a_point_per_timed_outcome(example_tables):
    results = Results(example_tables).filter("problem=softmax")
    chart = results.chart_speedups()
    assert len(chart.spec["data"]["values"]) == results.outcomes()["speedup"].drop_nulls().len()
    assert "vnd.vegalite" in next(iter(chart._repr_mimebundle_()))


def test_chart_is_drawn_where_the_extra_is_installed(example_tables):
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed (the `report` extra)")
    assert Results(example_tables).filter("problem=softmax").chart_speedups().svg().startswith("<svg")


def test_chart_of_nothing_says_so(example_tables):
    with pytest.raises(NothingSelectedError):
        Results(example_tables).filter("problem=softmax").chart_axis("gpu", "h200", "nowhere")
    with pytest.raises(UsageError, match="no column"):
        Results(example_tables).chart_axis("colour", "red", "green")
