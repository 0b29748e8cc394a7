"""An artifact is unpacked as it was packed: content, modes, links and times to the nanosecond."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from kernel_matrix.inside.artifact import PLACES, pack, unpack


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Points the compilers' folders below a folder of the given name; returns them by their names in an artifact."""

    def point(name):
        for place, setting in PLACES.items():
            monkeypatch.setenv(setting, str(tmp_path / name / place))
        return {place: tmp_path / name / place for place in PLACES}

    monkeypatch.setenv("PYTORCH_NVCC", "")  # set by unpacking, and unset again afterwards
    return point


def fill(folder: Path) -> None:
    (folder / "kernel").mkdir(parents=True)
    (folder / "kernel" / "kernel.so").write_bytes(os.urandom(100))
    (folder / "kernel" / "kernel.so").chmod(0o755)
    (folder / "kernel" / "build.ninja").write_text("rule cc")
    (folder / "kernel" / "latest").symlink_to("kernel.so")
    os.link(folder / "kernel" / "kernel.so", folder / "kernel" / "twin.so")
    os.utime(folder / "kernel" / "kernel.so", ns=(7, 1_700_000_000_123_456_789))
    os.utime(folder / "kernel" / "build.ninja", ns=(7, 1_700_000_000_000_000_001))


def packed(path: Path) -> int:
    with path.open("wb") as file:
        return pack(file)


def test_what_was_packed_is_unpacked(places, tmp_path):
    made = places("made")
    for folder in made.values():
        fill(folder)
    assert packed(tmp_path / "artifact.tar") == 2 * 5
    seen = places("seen")
    seen["triton"].mkdir(parents=True)  # an empty folder is no obstacle
    unpack(tmp_path / "artifact.tar")
    for place in PLACES:
        before, after = made[place] / "kernel", seen[place] / "kernel"
        assert (after / "kernel.so").read_bytes() == (before / "kernel.so").read_bytes()
        assert (after / "twin.so").read_bytes() == (before / "kernel.so").read_bytes()
        assert stat.S_IMODE((after / "kernel.so").stat().st_mode) == 0o755
        assert (after / "latest").readlink() == Path("kernel.so")
        for name in ("kernel.so", "build.ninja", "."):
            assert (after / name).stat().st_mtime_ns == (before / name).stat().st_mtime_ns
    assert sorted(path.name for path in (tmp_path / "seen").iterdir()) == sorted(PLACES)


def test_unpack_one_compilers_files_keeps_other_folder(places, tmp_path):
    fill(places("made")["triton"])
    packed(tmp_path / "artifact.tar")
    seen = places("seen")
    unpack(tmp_path / "artifact.tar")
    assert (seen["triton"] / "kernel").is_dir()
    assert not seen["extensions"].exists()


def test_where_nothing_was_compiled_nothing_is_written(places, tmp_path):
    places("made")["triton"].mkdir(parents=True)
    assert packed(tmp_path / "artifact.tar") == 0
    assert (tmp_path / "artifact.tar").read_bytes() == b""


def test_an_artefact_is_a_plain_archive(places):
    fill(places("made")["extensions"])
    written = io.BytesIO()
    pack(written)
    with tarfile.open(fileobj=io.BytesIO(written.getvalue())) as archive:
        assert "extensions/kernel/kernel.so" in archive.getnames()
