"""Files that readers find complete or not at all."""

import errno
import os
import signal
import stat
import subprocess
import sys

import pytest

from kernel_matrix.inside import atomic_write
from kernel_matrix.inside.atomic_write import publish_file, replace_file


def test_a_file_is_written_and_nothing_else_is_left(tmp_path):
    replace_file(tmp_path / "report.json", "größe")
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == {"report.json": "größe"}


def test_a_file_that_was_there_is_replaced_only_by_a_whole_one(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "cut off here: \ud800")
    assert path.read_text() == "old"
    replace_file(path, "new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("write", [publish_file, replace_file])
def test_write_content_is_synced_before_it_has_its_name(tmp_path, monkeypatch, write):
    synced = []

    def fsync(descriptor):
        synced.append((os.fstat(descriptor).st_size, path.exists()))

    path = tmp_path / "file"
    monkeypatch.setattr("os.fsync", fsync)
    write(path, "content")
    assert synced == [(len("content"), False)]


def test_replace_file_mode_is_independent_of_umask(tmp_path):
    old = os.umask(0o077)
    try:
        replace_file(tmp_path / "public", "", mode=0o644)
        replace_file(tmp_path / "private", "")
    finally:
        os.umask(old)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("public", "private")] == [0o644, 0o600]


def test_publish_file_existing_file_stays(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(FileExistsError):
        publish_file(path, "new")
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("file", "old")]


KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from kernel_matrix.inside.atomic_write import publish_file
os.fsync = lambda _descriptor: os.kill(os.getpid(), signal.SIGKILL)
publish_file(Path(sys.argv[1]), b"half")
"""


def test_a_writer_that_is_killed_leaves_nothing(tmp_path):
    path = tmp_path / "record.json"
    done = subprocess.run((sys.executable, "-c", KILLED_WHILE_WRITING, str(path)), check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("refusal", [errno.EOPNOTSUPP, errno.EISDIR])
@pytest.mark.parametrize("write", [publish_file, replace_file])
def test_where_no_file_is_nameless_it_is_written_aside(tmp_path, monkeypatch, refusal, write):
    def refuse(*_arguments):
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(atomic_write, "_write_nameless", refuse)
    write(tmp_path / "file", "content")
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("file", "content")]
