"""Result folders as one file."""

from __future__ import annotations

import io
import json
import lzma
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace

import polars as pl
import pytest

from kernel_matrix.errors import NothingSelectedError, StoreError, UsageError
from kernel_matrix.results.merge import merge
from kernel_matrix.results.packed_set import unpack_set
from kernel_matrix.results.packing import NO_TRACE, NOT_ASKED_FOR, NOT_VALID, pack_folder
from kernel_matrix.results.store import RecordStore
from kernel_matrix.results.trace import read_trace_document
from tests.results.factory import cell_id, failed_record, make_record, make_run, make_trace, put, traced

SALT = b"s" * 32
UNIT = "GPU-28aa25ea-2fc5-e22a-c4a0-1cf43b233adb"


@pytest.fixture
def store(tmp_path):
    """A folder with two records, one of which has a trace, and a run."""
    made = RecordStore(tmp_path / "results" / "nightly")
    made.save(traced(make_record(cell_id(1))), make_trace())
    made.save(failed_record())
    made.save_run(make_run())
    return made


def files_of(data):
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def test_equal_content_gives_equal_bytes(store, tmp_path):
    for number in range(2, 12):
        store.save(make_record(cell_id(number)))
    RecordStore(store.root / "m").save(make_record(cell_id(1)))
    elsewhere = tmp_path / "z" / "moved"
    shutil.copytree(store.root, elsewhere)
    for path in elsewhere.rglob("*"):
        path.chmod(0o700)
        os.utime(path, (1, 1))
    first, second = (pack_folder(place, salt=SALT, traces=True)[1] for place in (store.root, elsewhere))
    assert first == second


def test_kept_fingerprints_keep_every_byte(store):
    description, data = pack_folder(store.root, traces=True)
    files = files_of(data)
    assert list(files) == ["set.json", *description.files]
    for name in description.files:
        assert files[name] == (store.root / name).read_bytes()
    assert (description.records, description.runs, description.traces, description.salted) == (2, 1, 1, False)
    assert description.matrices == ("nightly",)


def test_tar_unpacks_a_set_to_a_result_folder(store, tmp_path):
    (tmp_path / "set.kmz").write_bytes(pack_folder(store.root)[1])
    (tmp_path / "there").mkdir()
    subprocess.run(["tar", "xJf", "../set.kmz"], cwd=tmp_path / "there", check=True)
    assert merge([tmp_path / "there"], tmp_path / "tables").records == 2


def test_salted_set_names_no_machine(store):
    description, data = pack_folder(store.root, traces=True, salt=SALT)
    assert description.salted
    assert b"lab-1" in lzma.decompress(pack_folder(store.root)[1])
    assert b"lab-1" not in lzma.decompress(data)


def test_texts_of_traces_are_salted(tmp_path):
    store = RecordStore(tmp_path / "results")
    trace = make_trace()
    columns = {**trace.columns, "trouble": ["", f"{UNIT} is lost", "x" * 200]}
    store.save(traced(make_record()), replace(trace, columns=columns))
    (tmp_path / "set.kmz").write_bytes(pack_folder(store.root, traces=True, salt=SALT)[1])
    (tmp_path / "there").mkdir()
    unpack_set(tmp_path / "set.kmz", tmp_path / "there")
    (file,) = (tmp_path / "there" / "traces").iterdir()
    told = read_trace_document(file)["columns"]["trouble"]
    assert UNIT not in told[1]
    assert (told[0], told[1].endswith(" is lost"), told[2]) == ("", True, "x" * 200)


def test_what_is_left_out_is_counted(store):
    put(store.records, make_record(cell_id(2)), schema_version=2)
    (store.runs / "run-2.json").write_text("{}")
    description, data = pack_folder(store.root)
    assert description.left_out == {NOT_VALID: 2, NOT_ASKED_FOR: 1}
    assert len(files_of(data)) == 4
    next(store.traces.iterdir()).write_bytes(b"no trace")
    assert pack_folder(store.root, traces=True)[0].left_out == {NOT_VALID: 2, NO_TRACE: 1}


def test_several_matrices_keep_their_folders(store, tmp_path):
    RecordStore(tmp_path / "results" / "ünder way").save(make_record(cell_id(1)))
    (tmp_path / "set.kmz").write_bytes(pack_folder(tmp_path / "results")[1])
    (tmp_path / "there").mkdir()
    description = unpack_set(tmp_path / "set.kmz", tmp_path / "there")
    assert {name.split("/")[0] for name in description.files} == {"nightly", "ünder way"}
    assert {path.name for path in (tmp_path / "there").iterdir()} == {"nightly", "ünder way", "set.json"}


def test_folder_of_records_is_packed_like_its_parent(store):
    assert pack_folder(store.records)[1] == pack_folder(store.root)[1]


def test_folders_of_one_name_are_refused(store, tmp_path):
    RecordStore(tmp_path / "other" / "nightly").save(make_record(cell_id(1)))
    (tmp_path / "results" / "link").symlink_to(tmp_path / "other" / "nightly")
    with pytest.raises(StoreError, match="another folder has the same name"):
        pack_folder(tmp_path / "results")


def test_folder_without_valid_records_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        pack_folder(tmp_path / "absent")
    put(tmp_path / "results" / "records", make_record(), schema_version=2)
    with pytest.raises(NothingSelectedError, match="no valid record"):
        pack_folder(tmp_path / "results")


def test_merge_reads_a_set_like_its_folder(store, tmp_path):
    (tmp_path / "set.kmz").write_bytes(pack_folder(store.root, traces=True)[1])
    of_folder = merge([store.root], tmp_path / "one", traces=True)
    of_set = merge([tmp_path / "set.kmz"], tmp_path / "two", traces=True)
    assert (of_set.records, of_set.traces, of_set.rejected) == (2, 1, ())
    for table, file in of_folder.tables.items():
        assert pl.read_parquet(of_set.tables[table]).equals(pl.read_parquet(file))
    both = merge([store.root, tmp_path / "set.kmz"], tmp_path / "three")
    assert (both.files, both.records, both.duplicates) == (4, 2, 2)


def test_merge_names_rejected_files_by_their_set(store, tmp_path):
    (tmp_path / "set.kmz").write_bytes(pack_folder(store.root)[1])
    report = merge([tmp_path / "set.kmz"], tmp_path / "tables", traces=True)
    (name,) = (path.name for path in store.traces.iterdir())
    assert [one.path for one in report.rejected] == [str(tmp_path / "set.kmz" / "traces" / name)]
    (line,) = (tmp_path / "tables" / "rejected.jsonl").read_text().splitlines()
    assert json.loads(line)["path"] == report.rejected[0].path
