"""Packed sets that are damaged or hostile are refused, and nothing is written outside of the folder."""

from __future__ import annotations

import io
import json
import lzma
import shutil
import tarfile
from types import SimpleNamespace

import pytest

from kernel_matrix.errors import StoreError
from kernel_matrix.results.packed_set import (
    LARGEST_SET_BYTES,
    SetRefusedError,
    SetWriter,
    _archived,
    unpack_set,
    unpacked_file,
)
from kernel_matrix.results.packing import pack_folder
from kernel_matrix.results.store import RecordStore
from kernel_matrix.untrusted_json import MAX_BYTES
from tests.results.factory import cell_id, make_record, make_run

END = bytes(1024)
FIRST, SECOND = (f"records/{cell_id(number)}.1.json" for number in (1, 2))


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The bytes of a set of two records and one run."""
    store = RecordStore(tmp_path_factory.mktemp("results"))
    for number in (1, 2):
        store.save(make_record(cell_id(number)))
    store.save_run(make_run())
    return pack_folder(store.root)[1]


@pytest.fixture
def contents(packed):
    """Its ``set.json``, and the other files by name."""
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:xz") as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}
    return json.loads(files.pop("set.json")), files


@pytest.fixture
def refuse(tmp_path):
    """Unpack some bytes, which must be refused; returns why."""

    def refused(data: bytes) -> str:
        folder = tmp_path / "above" / "there"
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        (tmp_path / "hostile.kmz").write_bytes(data)
        with pytest.raises(SetRefusedError) as caught:
            unpack_set(tmp_path / "hostile.kmz", folder)
        assert sorted(tmp_path.iterdir()) == [folder.parent, tmp_path / "hostile.kmz"]
        assert list(folder.parent.iterdir()) == [folder]
        assert all(
            path.is_dir() or path.relative_to(folder).parts[0] in ("records", "runs") for path in folder.rglob("*")
        )
        assert caught.value.next_step
        return caught.value.what

    return refused


def archive(description, members, end=END):
    """Make a set that is as hostile as its parts."""
    text = description if isinstance(description, bytes) else json.dumps(description).encode()
    return lzma.compress(_archived("set.json", text)) + lzma.compress(b"".join(members) + end)


def members_of(files):
    return [_archived(name, data) for name, data in files.items()]


def test_whole_set_is_unpacked(packed, contents, tmp_path):
    (tmp_path / "set.kmz").write_bytes(packed)
    (tmp_path / "there").mkdir()
    assert unpack_set(tmp_path / "set.kmz", tmp_path / "there").records == 2
    for name, data in contents[1].items():
        assert (tmp_path / "there" / name).read_bytes() == data
    assert json.loads((tmp_path / "there" / "set.json").read_bytes()) == contents[0]


def test_set_cut_off_anywhere_is_refused(packed, refuse):
    for size in range(0, len(packed), len(packed) // 40):
        assert "cut off" in refuse(packed[:size])


def test_set_with_any_byte_altered_is_refused(packed, refuse):
    for place in range(0, len(packed), len(packed) // 60):
        assert refuse(packed[:place] + bytes([packed[place] ^ 0x10]) + packed[place + 1 :])


def test_altered_record_is_refused(contents, refuse):
    description, files = contents
    files[FIRST] = files[FIRST].replace(b'"passed"', b'"crashed"'[:8], 1)
    assert f"{FIRST} was altered" in refuse(archive(description, members_of(files)))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"format_version": 2}, "version 2 of the format; this program reads 1"),
        ({"format": "other"}, "its format is 'other'"),
        ({"schema_version": 2}, "schema version 2, not 1"),
        ({"records": 3}, "contradicts itself"),
        ({"salted": "yes"}, "'salted' cannot be 'yes'"),
        ({"more": 1}, "unknown key 'more'"),
        ({"files": {"set.json": 1}}, "set.json is not valid"),
        ({"measurement_versions": ["f" * 64]}, "names measurement versions ffffffffffff, its records"),
    ],
)
def test_description_that_does_not_fit_is_refused(changes, why, contents, refuse):
    description, files = contents
    assert why in refuse(archive(description | changes, members_of(files)))


@pytest.mark.parametrize(
    "name",
    ["../out.json", "/etc/out", f"a/../{FIRST}", "records/../../out.json", f"../{FIRST}", f"/{FIRST}", f"./{FIRST}"],
)
def test_file_outside_of_the_set_is_refused(name, contents, refuse):
    description, files = contents
    description["files"] |= {name: description["files"][FIRST]}
    members = [*members_of(files), _archived(name, files[FIRST])]
    assert ("lies outside of the set" in refuse(archive(description, members))) is not name.startswith("./")


@pytest.mark.parametrize(
    "name",
    ["out.json", "matrix.toml/runs/r.json", "records/x.json", "a\\b/runs/r.json", ".a/runs/r.json", "a/b/runs/r.json"],
)
def test_file_of_another_kind_is_refused(name, contents, refuse):
    description, files = contents
    description["files"] |= {name: description["files"][FIRST]}
    assert "no file of a result folder" in refuse(archive(description, members_of(files)))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_link_or_device_is_refused(kind, contents, refuse):
    description, files = contents
    link = tarfile.TarInfo(FIRST)
    link.type, link.linkname = kind, "/etc/passwd"
    members = [link.tobuf(tarfile.USTAR_FORMAT), *members_of(files)]
    assert f"does not go on with the file {FIRST}" in refuse(archive(description, members))


def test_file_twice_is_refused(contents, refuse):
    description, files = contents
    assert "does not go on" in refuse(archive(description, [_archived(FIRST, files[FIRST]), *members_of(files)]))


def test_file_that_is_not_listed_is_refused(contents, refuse):
    description, files = contents
    members = [*members_of(files), _archived("runs/more.json", b"{}")]
    assert "more than set.json lists" in refuse(archive(description, members))
    assert "more than set.json lists" in refuse(archive(description, members_of(files)) + lzma.compress(b"more"))


def test_padding_that_says_something_is_refused(contents, refuse):
    description, files = contents
    members = members_of(files)
    members[0] = members[0][:-1] + b"x"
    assert "between two files" in refuse(archive(description, members))


@pytest.mark.parametrize(
    ("record", "why"),
    [(b"[]", "not_json"), (b"{}", "no measurement version"), (b'{"host": []}', "no measurement version")],
)
def test_record_without_version_is_refused(record, why, contents, refuse):
    description, files = contents
    writer = SetWriter()
    writer.add(FIRST, record)
    description["files"][FIRST] = {"size_bytes": len(record), "sha256": writer.files[FIRST].sha256}
    said = refuse(archive(description, members_of(files | {FIRST: record})))
    assert f"{FIRST} is no record" in said
    assert why in said or "array" in said or "list" in said


def test_sizes_that_no_set_has_are_refused(contents, refuse):
    description, _ = contents
    listed = {FIRST: {"size_bytes": MAX_BYTES + 1, "sha256": ""}}
    assert f"{MAX_BYTES + 1} bytes are not" in refuse(archive(description | {"files": listed}, []))
    many = LARGEST_SET_BYTES // MAX_BYTES + 1
    listed = {f"records/{cell_id(number)}.1.json": {"size_bytes": MAX_BYTES, "sha256": ""} for number in range(many)}
    assert "MiB unpacked; allowed are" in refuse(archive(description | {"files": listed}, []))


def test_bytes_without_end_are_not_unpacked(contents, refuse):
    endless = lzma.compress(bytes(256 << 20), preset=0)
    assert "no packed set" in refuse(endless)
    description, files = contents
    assert "more than set.json lists" in refuse(archive(description, members_of(files)) + endless)


@pytest.mark.parametrize(
    "data", [b"no set", b"PK\3\4" + bytes(99), lzma.compress(b"x" * 9999), b"\x1f\x8b" + bytes(99)]
)
def test_other_file_is_no_packed_set(data, refuse):
    assert "it is no packed set" in refuse(data)


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"format": NaN}', b"\xff", b"{}"])
def test_description_that_is_no_object_is_refused(text, refuse):
    assert "set.json is not valid" in (said := refuse(archive(text, []))) or "format is None" in said


def test_set_for_which_there_is_no_room_is_not_unpacked(packed, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    (tmp_path / "set.kmz").write_bytes(packed)
    (tmp_path / "there").mkdir()
    with pytest.raises(StoreError, match="has room for 0 MiB"):
        unpack_set(tmp_path / "set.kmz", tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []


def test_writer_refuses_what_the_reader_would():
    writer = SetWriter()
    writer.add(FIRST, b"{}")
    with pytest.raises(StoreError, match="another folder has the same name"):
        writer.add(FIRST, b"{}")
    with pytest.raises(StoreError, match="more than 155 bytes"):
        writer.add(f"{'ä' * 90}/{FIRST}", b"{}")


def test_file_in_a_set_is_provided_while_it_is_needed(packed, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "aside"))
    (tmp_path / "aside").mkdir()
    (tmp_path / "set.kmz").write_bytes(packed)
    with unpacked_file(tmp_path / "set.kmz" / FIRST) as file:
        assert file.is_file()
    assert list((tmp_path / "aside").iterdir()) == []
    with unpacked_file(tmp_path / "set.kmz") as file:
        assert file == tmp_path / "set.kmz"
