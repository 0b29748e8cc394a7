"""An artifact is unpacked as it was packed: content, modes and times to the nanosecond; nothing else is unpacked."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from kernel_matrix.inside import artifact
from kernel_matrix.inside.artifact import PLACES, ArtifactError, pack, unpack


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
    seen["triton"].mkdir(parents=True)  # an empty folder does not hinder
    unpack(tmp_path / "artifact.tar")
    for place in PLACES:
        before, after = made[place] / "kernel", seen[place] / "kernel"
        assert (after / "kernel.so").read_bytes() == (before / "kernel.so").read_bytes()
        assert stat.S_IMODE((after / "kernel.so").stat().st_mode) == 0o755
        for copy in ("latest", "twin.so"):
            assert not (after / copy).is_symlink()
            assert (after / copy).stat().st_nlink == 1
            assert (after / copy).read_bytes() == (before / "kernel.so").read_bytes()
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


def test_pack_special_files_leaves_them_out(places, tmp_path):
    folder = places("made")["triton"]
    fill(folder)
    os.mkfifo(folder / "pipe")
    (folder / "away").symlink_to(tmp_path)
    (folder / "broken").symlink_to("absent")
    packed(tmp_path / "artifact.tar")
    with tarfile.open(tmp_path / "artifact.tar", "r:") as archive:
        assert all(entry.isreg() or entry.isdir() for entry in archive)
        assert not {"triton/pipe", "triton/away", "triton/broken"} & set(archive.getnames())


def member(name, kind=tarfile.REGTYPE, **fields):
    entry = tarfile.TarInfo(name)
    entry.type = kind
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry


def write_archive(path: Path, *entries: tarfile.TarInfo, mode: str = "w:", content: bytes = b"") -> None:
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            entry.size = entry.size or len(content)
            archive.addfile(entry, io.BytesIO(content))


SPARSE = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(400 << 20), "GNU.sparse.numblocks": "1"}

HOSTILE = {
    "absolute": member("/triton/x"),
    "elsewhere": member("other/x"),
    "upwards": member("triton/../../x"),
    "empty part": member("triton//x"),
    "symbolic link": member("triton/x", tarfile.SYMTYPE, linkname="/etc/passwd"),
    "hard link": member("triton/x", tarfile.LNKTYPE, linkname="/etc/passwd"),
    "device": member("triton/x", tarfile.CHRTYPE, devmajor=1, devminor=3),
    "pipe": member("triton/x", tarfile.FIFOTYPE),
    "sparse file": member("triton/x", pax_headers=SPARSE),
    "too large": member("triton/x", pax_headers={"size": str(400 << 20)}),
    "negative": member("triton/x", pax_headers={"size": "-512"}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_unpack_hostile_entry_writes_nothing(what, places, tmp_path):
    seen = places("seen")
    write_archive(tmp_path / "artifact.tar", member("triton/good"), HOSTILE[what], content=b"x")
    with pytest.raises(ArtifactError):
        unpack(tmp_path / "artifact.tar")
    assert not any(folder.exists() for folder in seen.values())


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_unpack_compressed_archive_is_refused(mode, places, tmp_path):
    seen = places("seen")
    bomb = tmp_path / "artifact.tar"
    write_archive(bomb, member("triton/x"), mode=mode, content=bytes(64 << 20))
    assert bomb.stat().st_size < 1 << 18
    with pytest.raises(ArtifactError, match="ReadError"):
        unpack(bomb)
    assert not seen["triton"].exists()


def test_unpack_too_many_entries_is_refused(places, tmp_path, monkeypatch):
    places("seen")
    monkeypatch.setattr(artifact, "MAX_ENTRIES", 3)
    write_archive(tmp_path / "artifact.tar", *(member(f"triton/{number}") for number in range(4)))
    with pytest.raises(ArtifactError, match="more than 3 entries"):
        unpack(tmp_path / "artifact.tar")


def test_unpack_same_name_twice_is_refused(places, tmp_path):
    seen = places("seen")
    write_archive(tmp_path / "artifact.tar", member("triton/x"), member("triton/x"))
    with pytest.raises(ArtifactError, match="FileExistsError"):
        unpack(tmp_path / "artifact.tar")
    assert not seen["triton"].exists()


def test_unpack_grants_no_special_permissions(places, tmp_path):
    seen = places("seen")
    write_archive(tmp_path / "artifact.tar", member("triton/x", mode=0o6755), content=b"x")
    unpack(tmp_path / "artifact.tar")
    assert stat.S_IMODE((seen["triton"] / "x").stat().st_mode) == 0o755
