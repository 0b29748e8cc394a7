"""Several folders of tables, and folders of another version."""

import polars as pl
import pytest

from kernel_matrix.analysis.tables import VERSION_KEY, open_tables
from kernel_matrix.errors import StoreError
from kernel_matrix.results.publishing import METADATA
from kernel_matrix.results.schema import OBJECTIONS, OBJECTIONS_FILE, TABLES_VERSION
from tests.analysis.made import cell, write


def as_version(folder, version):
    path = folder / "cells.parquet"
    pl.read_parquet(path).write_parquet(path, metadata={VERSION_KEY: str(version)})
    return folder


def test_merge_says_the_version_under_the_name_that_is_read():
    assert {VERSION_KEY: str(TABLES_VERSION)} == METADATA


def test_folder_of_another_version_is_refused(tmp_path):
    ours = as_version(write(tmp_path / "ours", [cell()]), TABLES_VERSION)
    theirs = as_version(write(tmp_path / "theirs", [cell()]), TABLES_VERSION - 1)
    assert open_tables([ours]).cells.collect().height == 1
    with pytest.raises(StoreError, match=rf"theirs/cells.parquet is of version {TABLES_VERSION - 1}"):
        open_tables([ours, theirs])


def test_other_columns_are_refused(tmp_path):
    path = write(tmp_path / "there", [cell()]) / "cells.parquet"
    pl.read_parquet(path).drop("driver").write_parquet(path)
    with pytest.raises(StoreError, match="does not have the schema"):
        open_tables([path.parent])


def test_records_of_several_folders_keep_apart(tmp_path):
    folders = [write(tmp_path / name, [cell(), cell(candidate="softmax/b")]) for name in ("a", "b")]
    assert sorted(open_tables(folders).cells.collect()["record"].to_list()) == [0, 1, 2, 3]


VERDICT = {"verdict": "faster", "verdict_reason": "beyond_margin", "verdict_figure": 1.5, "verdict_chance": 0.001}


def objecting(folder, *rows):
    found = pl.DataFrame(rows, schema=OBJECTIONS, orient="row")
    found.write_parquet(folder / OBJECTIONS_FILE, metadata=METADATA)
    return folder


def test_verdicts_that_the_audit_withholds_are_inconclusive(tmp_path):
    rows = [cell(**VERDICT), cell(candidate="softmax/b", **VERDICT), cell(candidate="softmax/c", verdict=None)]
    kept = write(tmp_path / "kept", rows)
    folder = objecting(write(tmp_path / "audited", rows), (0, "default", ["one", "two"]), (2, "default", ["one"]))
    found = open_tables([kept, folder]).cells.select("record", *VERDICT).collect().rows()
    faster, none = tuple(VERDICT.values()), (None,) * 4
    assert found == [
        *((0, *faster), (1, *faster), (2, *none)),
        *((3, "inconclusive", "audit_objects", 2.0, None), (4, *faster), (5, *none)),
    ]


def test_verdicts_of_single_sessions_are_withheld_too(tmp_path):
    names = ("session_verdict", "session_verdict_reason")
    known, none = dict(zip(names, ("slower", "beyond_floor"), strict=True)), dict.fromkeys(names)
    rows = [cell(session=0, **VERDICT, **known), cell(session=1, **VERDICT, **none), cell(candidate="b", **known)]
    folder = objecting(write(tmp_path / "audited", rows), (0, "default", ["one"]))
    found = open_tables([folder]).cells.select(names).collect().rows()
    assert found == [("inconclusive", "audit_objects"), (None, None), ("slower", "beyond_floor")]


def test_an_audit_without_objections_changes_nothing(tmp_path):
    folder = objecting(write(tmp_path / "audited", [cell(**VERDICT)]))
    assert open_tables([folder]).cells.select(*VERDICT).collect().rows() == [tuple(VERDICT.values())]


def test_objections_of_another_version_are_refused(tmp_path):
    folder = write(tmp_path / "audited", [cell(**VERDICT)])
    pl.DataFrame({"record": [0]}).write_parquet(folder / OBJECTIONS_FILE, metadata=METADATA)
    with pytest.raises(StoreError, match="does not have the schema"):
        open_tables([folder])
