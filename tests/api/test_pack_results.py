"""Results as one file, read in place of their folder."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from kernel_matrix import Results, analyze, audit, compare, pack_results, reproduce, set_baseline, unpack_results
from kernel_matrix.errors import StoreError, UsageError
from kernel_matrix.results.store import RecordStore
from tests.results.factory import make_record, make_run

EXAMPLE = Path(__file__).resolve().parents[2] / "results" / "example-two-gpus.kmz"
HASHED = ("host_id", "hostname", "gpu_uuid")
QUESTIONS = ("scores", "portability", "gpus", "variance", "attribution", "drift")
MATRIX = b"# the matrix that was run\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The example set of two GPUs as a folder, as it was before hashes stood for what identifies machines."""
    folder = tmp_path_factory.mktemp("unpacked") / "two"
    unpack_results(EXAMPLE, folder)
    for file in folder.rglob("*.json"):
        file.write_text(file.read_text(encoding="utf-8").replace("salted-", "machine-"), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def packed(folder, tmp_path_factory):
    """That folder, packed with a random salt."""
    return pack_results(folder, tmp_path_factory.mktemp("packed") / "two.kmz").file


@pytest.fixture(scope="module")
def of_folder(folder):
    return Results(folder)


@pytest.fixture(scope="module")
def of_set(packed):
    return Results(packed)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A folder with results of a matrix, which is beside it."""
    (tmp_path / "matrix.toml").write_bytes(MATRIX)
    store = RecordStore(tmp_path / "results" / "nightly")
    store.save(make_record())
    store.save_run(make_run(matrix_path="matrix.toml", matrix_sha256=hashlib.sha256(MATRIX).hexdigest()))
    monkeypatch.chdir(tmp_path)
    return store.root


def test_example_packs_to_a_tenth(packed):
    assert packed.stat().st_size < 600_000


def test_tables_of_a_set_differ_only_in_hashes(of_folder, of_set):
    assert of_set.cells.drop(HASHED).equals(of_folder.cells.drop(HASHED))
    assert of_set.samples.equals(of_folder.samples)
    assert of_set.kernels.equals(of_folder.kernels)
    for column in HASHED:
        pairs = set(zip(of_folder.cells[column], of_set.cells[column], strict=True))
        assert len(pairs) == of_folder.cells[column].n_unique() == of_set.cells[column].n_unique()
    assert not set(of_set.cells["gpu_uuid"]) & set(of_folder.cells["gpu_uuid"])


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_about_a_set_are_those_of_its_folder(question, of_folder, of_set):
    for one, other in zip(analyze(question, of_folder), analyze(question, of_set), strict=True):
        assert (one.statements, one.notes) == (other.statements, other.notes)
        assert_frame_equal(one.table, other.table, rel_tol=1e-3)  # sums are in no fixed order


def test_audit_of_a_set_is_that_of_its_folder(of_folder, of_set):
    found = [[one.findings.drop("gpu_uuid") for one in audit(results)] for results in (of_folder, of_set)]
    assert sum(one.height for one in found[0])
    for one, other in zip(*found, strict=True):
        assert_frame_equal(one, other)


def test_set_is_compared_and_frozen_like_a_folder(packed, of_folder, of_set, tmp_path):
    assert compare(packed, of_set).counts() == compare(of_folder, of_folder).counts()
    assert set_baseline("two", packed, results=tmp_path).records == 91


def test_record_in_a_set_is_read(packed, folder):
    name = next((folder / "records").iterdir()).name
    with_itself = reproduce(packed / "records" / name, against=packed / "records" / name)
    assert (with_itself.record.name, with_itself.found.reproduced) == (name, True)
    with pytest.raises(UsageError, match="is no record: "):
        reproduce(packed / "records" / "absent.1.json", against=packed / "records" / name)


def test_results_unpack_aside_until_they_are_closed(packed, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Results(packed) as results:
        assert (results.folders, results.merged_aside) == ((packed,), (packed,))
        assert (results.record_folders[0] / "records").is_dir()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "bad").write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(StoreError, match="cut off"):
        Results(tmp_path / "bad")
    assert list(tmp_path.iterdir()) == [tmp_path / "bad"]


def test_random_salts_differ_and_a_salt_file_joins(lab, tmp_path):
    (tmp_path / "salt").write_bytes(b"s" * 32)
    names = []
    for number, salt in enumerate((None, None, "salt", "salt")):
        packed = pack_results(lab, f"{number}.kmz", salt_file=salt)
        with Results(packed.file) as results:
            names.append(results.hosts["hostname"].item())
    assert all(re.fullmatch("salted-[0-9a-f]{16}", name) for name in names)
    assert (len(set(names)), names[2]) == (3, names[3])
    assert Path("2.kmz").read_bytes() == Path("3.kmz").read_bytes()


def test_salt_that_cannot_be_used_is_refused(lab, tmp_path):
    (tmp_path / "salt").write_bytes(b"short")
    with pytest.raises(UsageError, match="5 bytes; a salt has at least 16"):
        pack_results(lab, salt_file="salt")
    with pytest.raises(UsageError, match="there is no such file"):
        pack_results(lab, salt_file="absent")
    with pytest.raises(UsageError, match="nothing to salt"):
        pack_results(lab, salt_file="salt", with_fingerprints=True)


def test_file_that_exists_is_kept_without_force(lab):
    first = pack_results(lab)
    assert (first.file, first.size_bytes) == (Path("nightly.kmz"), Path("nightly.kmz").stat().st_size)
    with pytest.raises(UsageError, match=r"nightly\.kmz exists already"):
        pack_results(lab)
    assert pack_results(lab, force=True).file == first.file


def test_unchanged_matrix_and_lock_are_packed(lab, tmp_path):
    assert "matrix.toml" in pack_results(lab, "1.kmz").description.files
    (tmp_path / "pins").write_bytes(b"a lock")
    description = unpack_results(pack_results(lab, "2.kmz", lock="pins").file, "there")
    assert [name for name in description.files if "/" not in name] == ["images.lock", "matrix.toml"]
    assert (tmp_path / "there" / "matrix.toml").read_bytes() == MATRIX
    (tmp_path / "matrix.toml").write_bytes(b"# changed since\n")
    assert "matrix.toml" not in pack_results(lab, "3.kmz").description.files
    with pytest.raises(UsageError, match=r"no run in .* was made with matrix\.toml as it is now"):
        pack_results(lab, "4.kmz", matrix="matrix.toml")


def test_matrix_that_names_a_user_is_packed_on_request(lab, tmp_path):
    (tmp_path / "matrix.toml").write_bytes(b'path = "/home/ada/kernels"\n')
    (run,) = (lab / "runs").iterdir()
    digest = hashlib.sha256((tmp_path / "matrix.toml").read_bytes()).hexdigest()
    run.write_text(json.dumps(json.loads(run.read_text()) | {"matrix_sha256": digest}))
    assert "matrix.toml" not in pack_results(lab, "1.kmz").description.files
    assert "matrix.toml" in pack_results(lab, "2.kmz", matrix="matrix.toml").description.files
    assert "matrix.toml" in pack_results(lab, "3.kmz", with_fingerprints=True).description.files


def test_unpacked_set_is_a_result_folder(packed, tmp_path):
    (tmp_path / "there").mkdir()
    assert unpack_results(packed, tmp_path / "there").records == 91
    assert {path.name for path in (tmp_path / "there").iterdir()} >= {"records", "runs", "set.json"}
    with pytest.raises(UsageError, match="is not an empty folder"):
        unpack_results(packed, tmp_path / "there")
    with pytest.raises(UsageError, match="is not an empty folder"):
        unpack_results(packed, packed)
    with pytest.raises(UsageError, match="there is no file"):
        unpack_results(tmp_path / "absent", tmp_path / "more")


def test_refused_set_leaves_nothing(packed, tmp_path):
    (tmp_path / "bad.kmz").write_bytes(packed.read_bytes()[:-9])
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "new", tmp_path / "empty"):
        with pytest.raises(StoreError, match="cut off"):
            unpack_results(tmp_path / "bad.kmz", folder)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["bad.kmz", "empty"]
