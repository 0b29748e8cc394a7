"""Files that readers find complete or not at all."""

import pytest

from kernel_matrix.inside.atomic_write import write_whole


def test_a_file_is_written_and_nothing_else_is_left(tmp_path):
    write_whole(tmp_path / "report.json", "größe")
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == {"report.json": "größe"}


def test_a_file_that_was_there_is_replaced_only_by_a_whole_one(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "cut off here: \ud800")
    assert path.read_text() == "old"
    write_whole(path, "new")
    assert path.read_text() == "new"
