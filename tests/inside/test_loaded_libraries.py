"""Libraries that a process has loaded."""

from pathlib import Path

import pytest

from kernel_matrix.inside.loaded_libraries import mapped_library


def test_a_mapped_library_is_told_by_its_real_path():
    libc = mapped_library(r"libc\.so.*")
    assert Path(libc).is_file()
    assert "libc" in Path(libc).name
    assert mapped_library("no-library-of-this-name") is None


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("7f00-7f01 r-xp 00000000 08:01 12  /opt/some folder/libx.so.1", Path("/opt/some folder/libx.so.1")),
        ("7f00-7f01 r-xp 00000000 08:01 12  /opt/libx.so.1/other.so", None),
        ("7f00-7f01 r-xp 00000000 08:01 12  /opt/libx.so.1 (deleted)", None),
        ("7ffc-7ffd rw-p 00000000 00:00 0  [stack]", None),
        ("7ffc-7ffd rw-p 00000000 00:00 0", None),
    ],
)
def test_the_whole_name_decides(line, found, monkeypatch, tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(f"{line}\n")
    monkeypatch.setattr("kernel_matrix.inside.loaded_libraries._MAPS", maps)
    assert mapped_library(r"libx\.so\S*") == found
