"""Several folders of tables, and folders of another version."""

import polars as pl
import pytest

from kernel_matrix.analysis.tables import VERSION_KEY, open_tables
from kernel_matrix.errors import StoreError
from kernel_matrix.results.publishing import METADATA
from kernel_matrix.results.schema import TABLES_VERSION
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
