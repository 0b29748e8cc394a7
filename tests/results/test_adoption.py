"""Records of other stores are taken as further attempts, each once, and checked as files that anybody wrote."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from kernel_matrix.errors import StoreError
from kernel_matrix.results.adoption import AdoptionRefusedError, adopt
from kernel_matrix.results.record import record_to_json
from kernel_matrix.results.store import RecordStore
from kernel_matrix.results.trace import trace_name
from kernel_matrix.untrusted_json import MAX_BYTES
from tests.results.factory import CELL, HOST, cell_id, make_record, make_trace, outcome, put, read_trace, traced

OTHER = cell_id(7)


@pytest.fixture
def home(tmp_path):
    return RecordStore(tmp_path / "home")


@pytest.fixture
def chunk(tmp_path):
    """The store of a chunk."""
    return RecordStore(tmp_path / "chunk")


def files(store):
    """Name → content of every file."""
    return {str(path.relative_to(store.root)): path.read_bytes() for path in store.root.rglob("*") if not path.is_dir()}


def started(record, at):
    return replace(record, host=replace(record.host, started_at=at))


def test_record_comes_as_it_was(home, chunk):
    record = make_record()
    path = chunk.save(record)
    assert adopt(home, path) == record
    assert files(home) == files(chunk)


def test_record_becomes_the_next_attempt(home, chunk):
    own = home.save(make_record(run_id="own"))
    before = own.read_bytes()
    adopted = adopt(home, chunk.save(make_record(run_id="chunk")))
    assert adopted == make_record(run_id="chunk", attempt=2)
    assert own.read_bytes() == before
    assert home.load(home.records / f"{CELL}.2.json") == adopted


def test_number_of_a_broken_attempt_is_not_used_again(home, chunk):
    home.records.mkdir(parents=True)
    (home.records / f"{CELL}.3.json").write_text("{")
    adopted = adopt(home, chunk.save(make_record()))
    assert adopted is not None
    assert adopted.attempt == 4
    assert (home.records / f"{CELL}.3.json").read_text() == "{"


def test_attempts_of_one_run_are_all_taken(home, chunk):
    first, second = make_record(), started(make_record(attempt=2), "2026-01-02T03:09:00Z")
    for record in (first, second):
        adopt(home, chunk.save(record))
    assert [home.load(path) for path in sorted(home.records.iterdir())] == [first, second]


def test_attempts_of_two_hosts_are_both_taken(home, tmp_path):
    for machine in ("11111111", "22222222"):
        record = make_record(host=replace(HOST, machine=machine))
        assert adopt(home, RecordStore(tmp_path / machine).save(record)) is not None
    assert len(files(home)) == 2


@pytest.mark.parametrize("is_new", [False, True])
def test_record_is_taken_once(home, chunk, is_new):
    path = chunk.save(traced(make_record()), make_trace())
    adopt(home, path)
    before = files(home)
    store = RecordStore(home.root) if is_new else home
    assert adopt(store, path) is None
    assert files(home) == before


def test_record_that_is_there_as_another_attempt_stays_away(home, chunk):
    home.save(make_record(run_id="own"))
    adopt(home, chunk.save(make_record()))
    before = files(home)
    assert adopt(RecordStore(home.root), chunk.records / f"{CELL}.1.json") is None
    assert files(home) == before


def test_attempts_that_another_process_took_home_are_counted(home, chunk, tmp_path):
    assert home.next_attempt(CELL) == 1
    first = adopt(RecordStore(home.root), chunk.save(make_record()))
    second = adopt(home, RecordStore(tmp_path / "other").save(make_record(run_id="other")))
    assert second == make_record(run_id="other", attempt=2)
    assert home.load(home.records / f"{CELL}.1.json") == first
    assert adopt(home, chunk.save(started(make_record(attempt=2), "2026-01-02T03:09:00Z"))).attempt == 3


def test_forgery_cannot_replace_a_record(home, chunk):
    honest = adopt(home, chunk.save(make_record()))
    forged = put(chunk.root / "forged", make_record(outcome=outcome(message="faster than that")))
    assert adopt(home, forged) is None
    assert home.load(home.records / f"{CELL}.1.json") == honest


def test_trace_comes_along_under_the_new_number(home, chunk):
    home.save(make_record(run_id="own"))
    adopted = adopt(home, chunk.save(traced(make_record(run_id="chunk")), make_trace()))
    assert adopted == traced(make_record(run_id="chunk", attempt=2))
    assert read_trace(home.traces / trace_name(f"{CELL}.2")) == make_trace()
    assert sorted(files(home)) == [f"records/{CELL}.1.json", f"records/{CELL}.2.json", f"traces/{CELL}.2.json.gz"]


def test_measurement_version_of_the_node_stays(home, chunk):
    other = make_record(host=replace(HOST, measurement_version="0" * 64))
    adopted = adopt(home, chunk.save(other))
    assert adopted is not None
    assert adopted.host.measurement_version == "0" * 64


def document(**changes):
    return json.dumps(record_to_json(make_record()) | changes)


def replaced(*keys, value):
    """The text of a record in which one value differs."""
    whole = json.loads(document())
    inner = whole
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return json.dumps(whole)


TEXTS = {
    "not_json: ": ["", "{", "[]", "7", document()[:-1], '{"run_id": NaN}', "[" * 100_000, "\0"],
    "other_version: schema version 2, this program reads 1": [document(schema_version=2)],
    "misnamed: ": [json.dumps(record_to_json(make_record(OTHER))), document(attempt=2)],
    "inconsistent: session 0 is of cell": [replaced("sessions", 0, "cell_id", value=OTHER)],
    "schema: ": [
        document(cell_id="*"),
        document(cell_id="../../../etc/x"),
        document(attempt=0),
        document(more=1),
        replaced("outcome", "status", value="fastest"),
        replaced("host", "measurement_version", value="new"),
        replaced("host", "machine", value=["3f9a1c22"]),
    ],
    "inconsistent: ": [replaced("host", "started_at", value="2026-13-02T03:00:00Z")],
}


def refuse(home, path, reason):
    """Let ``path`` be refused, and take another record of its folder all the same."""
    good = put(path.parent, make_record(OTHER))
    with pytest.raises(AdoptionRefusedError) as caught:
        adopt(home, path)
    assert caught.value.what.startswith(f"{path} is refused: {reason}")
    assert len(caught.value.what) < 1000
    assert adopt(home, good) == make_record(OTHER)
    assert list(files(home)) == [f"records/{OTHER}.1.json"]


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in TEXTS.items() for text in texts], ids=lambda one: one[-20:]
)
def test_text_that_is_no_record_is_refused(home, chunk, reason, text):
    chunk.records.mkdir(parents=True)
    path = chunk.records / f"{CELL}.1.json"
    path.write_text(text)
    refuse(home, path, reason)


def as_link(path):
    target = path.parent / "elsewhere"
    target.write_text(document())
    path.symlink_to(target)


def as_huge_file(path):
    path.write_text(document())
    os.truncate(path, MAX_BYTES + 1)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (as_link, "not_a_file: is a symbolic link"),
        (os.mkfifo, "not_a_file: "),
        (os.mkdir, "not_a_file: "),
        (as_huge_file, "too_large: "),
        (lambda _path: None, "unreadable: there is no such file"),
    ],
)
def test_what_is_no_plain_file_is_refused(home, chunk, make, reason):
    chunk.records.mkdir(parents=True)
    path = chunk.records / f"{CELL}.1.json"
    make(path)
    refuse(home, path, reason)


def without(trace):
    trace.unlink()


def of_another_attempt(trace):
    trace.rename(trace.with_name(trace_name(f"{CELL}.2")))
    trace.symlink_to(trace.with_name(trace_name(f"{CELL}.2")))


def cut_short(trace):
    trace.write_bytes(trace.read_bytes()[:-9])


@pytest.mark.parametrize("damage", [without, of_another_attempt, cut_short])
def test_record_with_a_damaged_trace_is_refused(home, chunk, damage):
    path = chunk.save(traced(make_record()), make_trace())
    damage(chunk.traces / trace_name(f"{CELL}.1"))
    refuse(home, path, "")


def test_trace_that_is_another_records_is_refused(home, chunk):
    path = chunk.save(traced(make_record()), make_trace())
    stolen = RecordStore(chunk.root / "other").save(traced(make_record(OTHER)), make_trace())
    trace = stolen.parents[1] / "traces" / trace_name(f"{OTHER}.1")
    trace.replace(chunk.traces / trace_name(f"{CELL}.1"))
    refuse(home, path, "misnamed: ")


def test_home_that_cannot_be_written_is_told(home, chunk):
    path = chunk.save(make_record())
    home.root.mkdir()
    home.records.write_text("")
    with pytest.raises(StoreError, match="cannot be written") as caught:
        adopt(home, path)
    assert not isinstance(caught.value, AdoptionRefusedError)
    home.records.unlink()
    assert adopt(home, path) == make_record()
