"""Frozen copies of merged tables."""

from __future__ import annotations

import pytest

from kernel_matrix.errors import NothingSelectedError, StoreError, UsageError
from kernel_matrix.nightly.baselines import names, night_folder, set_baseline, verified_tables
from kernel_matrix.results.merge import merge
from tests.results.factory import cell_id, make_record, put

AT = "2026-03-01T06:00:00+00:00"


@pytest.fixture
def tables(tmp_path):
    for number in range(3):
        put(tmp_path / "measured" / "records", make_record(cell_id(number)))
    merge([tmp_path / "measured"], tmp_path / "tables", workers=1)
    return tmp_path / "tables"


def test_the_copy_stays_when_its_source_changes(tables, tmp_path):
    results = tmp_path / "results"
    made = set_baseline(results, "a", tables, made_at=AT)
    for file in tables.iterdir():
        file.write_text("changed")
    found, place = verified_tables(results, "a")
    assert found == made
    assert (found.records, found.cells, found.made_from) == (3, 3, str(tables))
    assert {file.name for file in place.iterdir()} == {*found.files, "baseline.json"}
    assert names(results) == ["a"]
    assert [path.name for path in (results / "baselines").iterdir()] == ["a"], "nothing is left beside it"


def test_the_digest_is_that_of_the_content_alone(tables, tmp_path):
    one = set_baseline(tmp_path / "one", "a", tables, made_at=AT)
    two = set_baseline(tmp_path / "two", "b", tmp_path / "measured", made_at="2026-04-01T06:00:00+00:00")
    assert one.content_sha256 == two.content_sha256
    put(tmp_path / "measured" / "records", make_record(cell_id(3)))
    three = set_baseline(tmp_path / "two", "c", tmp_path / "measured", made_at=AT)
    assert three.content_sha256 != one.content_sha256


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".a", "a b", "a\n", "x" * 65])
def test_a_name_that_is_none_is_refused(name, tables, tmp_path):
    with pytest.raises(UsageError, match="is no name of a baseline"):
        set_baseline(tmp_path / "results", name, tables, made_at=AT)


def test_a_name_that_is_taken_is_kept_unless_forced(tables, tmp_path):
    results = tmp_path / "results"
    first = set_baseline(results, "a", tables, made_at=AT)
    with pytest.raises(UsageError, match="already"):
        set_baseline(results, "a", tables, made_at="later")
    assert verified_tables(results, "a")[0] == first
    assert set_baseline(results, "a", tables, made_at="later", force=True).made_at == "later"
    assert verified_tables(results, "a")[0].made_at == "later"
    assert [path.name for path in (results / "baselines").iterdir()] == ["a"]


def test_forcing_with_a_source_that_is_none_keeps_what_was_there(tables, tmp_path):
    results = tmp_path / "results"
    first = set_baseline(results, "a", tables, made_at=AT)
    (tables / "samples.parquet").write_bytes(b"no table")
    with pytest.raises(StoreError, match=r"samples\.parquet"):
        set_baseline(results, "a", tables, made_at="later", force=True)
    with pytest.raises(UsageError, match="is not a folder"):
        set_baseline(results, "a", tmp_path / "nowhere", made_at="later", force=True)
    assert verified_tables(results, "a")[0] == first


def test_a_folder_without_a_valid_record_makes_none(tmp_path):
    records = tmp_path / "measured" / "records"
    records.mkdir(parents=True)
    (records / "x.1.json").write_text("{")
    with pytest.raises(NothingSelectedError, match="holds no cell"):
        set_baseline(tmp_path / "results", "a", tmp_path / "measured", made_at=AT)
    assert names(tmp_path / "results") == []


@pytest.mark.parametrize("file", ["cells.parquet", "samples.parquet"])
def test_a_table_that_is_not_what_was_frozen_is_told(file, tables, tmp_path):
    set_baseline(tmp_path / "results", "a", tables, made_at=AT)
    table = tmp_path / "results" / "baselines" / "a" / file
    table.chmod(0o644)
    table.write_bytes(table.read_bytes()[:-1] + b"!")
    with pytest.raises(StoreError, match=f"baseline a is damaged: {file} is not what was frozen"):
        verified_tables(tmp_path / "results", "a")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"version": 1', '"version": 2', "version 2"),
        ('"name": "a"', '"name": "b"', "of baseline 'b'"),
        ('"records": 3', '"records": "x"', "records"),
        ("cells.parquet", "../../x.parquet", "other tables"),
        ('"content_sha256": "', '"content_sha256": "0', "contradict each other"),
    ],
)
def test_facts_that_cannot_be_believed_are_told(old, new, words, tables, tmp_path):
    set_baseline(tmp_path / "results", "a", tables, made_at=AT)
    facts = tmp_path / "results" / "baselines" / "a" / "baseline.json"
    facts.chmod(0o644)
    assert old in facts.read_text()
    facts.write_text(facts.read_text().replace(old, new))
    with pytest.raises(StoreError, match=words):
        verified_tables(tmp_path / "results", "a")


def test_a_night_of_two_matrices_has_to_be_named(tmp_path):
    for matrix in ("one", "two"):
        (tmp_path / matrix / "nights" / "2026-03-01").mkdir(parents=True)
    with pytest.raises(UsageError, match="several matrices had a night 2026-03-01: one, two"):
        night_folder(tmp_path, "2026-03-01")
    assert night_folder(tmp_path, "2026-03-01", "two") == tmp_path / "two" / "nights" / "2026-03-01"
