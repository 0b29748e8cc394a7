"""Sources on the page: found through a matrix, and only as they were measured."""

from pathlib import Path

import pytest

from kernel_matrix.report import source_texts
from kernel_matrix.report.source_texts import find_source_texts, matrices_of
from kernel_matrix.results.store import RecordStore
from kernel_matrix.sources import load_source
from tests.results.factory import cell_id, make_record


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    folder = tmp_path / "problems" / "twice"
    (folder / "candidates").mkdir(parents=True)
    (folder / "problem.toml").write_text(
        'category = "Math"\ndescription = "Twice."\ndtypes = ["fp32"]\nlevel = 1\ntags = []\n[workloads.default]\n'
    )
    (folder / "reference.py").write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n")
    (folder / "candidates" / "one.py").write_text("class ModelNew:\n    word = '</script>'\n")
    file = tmp_path / "matrix.toml"
    file.write_text(
        'name = "made"\ndtypes = ["fp32"]\n[[gpus]]\nname = "cpu"\nvendor = "cpu"\n[[toolchains]]\nname = "here"\n'
        'environment = "auto"\n[[problems]]\nsource = "folder"\npath = "problems"\n[[candidates]]\nselect = "*"\n'
    )
    return file


def digests(matrix: Path) -> dict[str, str]:
    loaded = load_source("folder", matrix.parent / "problems")
    return {item.id: item.digest for item in (*loaded.problems, *loaded.candidates)}


def test_sources_with_a_recorded_digest_are_found(matrix):
    known = digests(matrix)
    found = find_source_texts([matrix], known.values())
    assert found.note == ""
    assert dict(found.table.select("digest", "file").rows()) == {
        known["twice"]: "reference.py",
        known["twice/one"]: "one.py",
    }
    assert "'</script>'" in found.table.filter(file="one.py")["text"].item()


def test_a_changed_source_is_not_shown_as_the_measured_one(matrix):
    known = digests(matrix)
    (matrix.parent / "problems" / "twice" / "candidates" / "one.py").write_text("class ModelNew: ...\n")
    found = find_source_texts([matrix], known.values())
    assert found.table["file"].to_list() == ["reference.py"]
    assert found.note == "1 sources are not here as they were measured, or are too many for the page."


def test_sources_that_no_record_has_are_not_read(matrix):
    assert find_source_texts([matrix], ["0" * 64]).table.is_empty()


def test_sources_beyond_the_limit_are_left_out(matrix, monkeypatch):
    monkeypatch.setattr(source_texts, "MOST_IN_ALL", 40)
    found = find_source_texts([matrix], digests(matrix).values())
    assert found.table["file"].to_list() == ["one.py"]


def test_a_broken_matrix_is_a_note(tmp_path):
    file = tmp_path / "broken.toml"
    file.write_text("name = ")
    found = find_source_texts([file], ["0" * 64])
    assert (found.table.height, "broken.toml" in found.note) == (0, True)


def test_matrices_are_those_of_the_runs_that_are_here(tmp_path, matrix, monkeypatch):
    store = RecordStore(tmp_path / "results" / "made")
    store.save(make_record(cell_id(1)))
    runs = [{"matrix_path": str(matrix)}, {"matrix_path": str(tmp_path / "gone.toml")}]
    monkeypatch.setattr(source_texts, "read_runs", lambda _: (dict(enumerate(runs)), []))
    assert matrices_of([tmp_path / "results"]) == [matrix]
    assert matrices_of([]) == []
