from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kernel_matrix.errors import StoreError
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.results.reading import Rejection, RejectionReason, read_run
from kernel_matrix.results.record import Record
from kernel_matrix.results.store import AttemptSummary, RecordStore
from kernel_matrix.results.trace import TelemetryTrace
from tests.results.factory import (
    CELL,
    CELL_KEY,
    HOST,
    cell_id,
    failed_record,
    make_record,
    make_run,
    make_trace,
    outcome,
    put,
    read_trace,
    session,
    traced,
    workload,
)


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "nightly")


def files(store: RecordStore) -> list[str]:
    return sorted(p.relative_to(store.root).as_posix() for p in store.root.rglob("*") if p.is_file())


def test_a_record_is_saved_and_loaded(store: RecordStore) -> None:
    record = make_record()
    path = store.save(record)
    assert files(store) == [f"records/{CELL}.1.json"]
    assert store.load(path) == record


def test_a_saved_record_is_synced_and_then_its_name(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []

    def fsync(descriptor: int) -> None:
        synced.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), files(store)))

    monkeypatch.setattr(os, "fsync", fsync)
    name = store.save(make_record()).relative_to(store.root).as_posix()
    (_, before), (folder, after) = synced
    assert folder == str(store.records)
    assert (name in before, name in after) == (False, True)


def test_a_trace_is_saved_beside_the_record_that_names_it(store: RecordStore) -> None:
    record = traced(make_record())
    path = store.save(record, make_trace())
    assert files(store) == [f"records/{CELL}.1.json", f"traces/{CELL}.1.json.gz"]
    loaded = store.load(path)
    assert loaded == record
    assert loaded.host.telemetry is not None
    assert read_trace(store.traces / str(loaded.host.telemetry.trace)) == make_trace()


@pytest.mark.parametrize(
    ("record", "trace", "said"),
    [
        (make_record(), make_trace(), "does not name the trace"),
        (failed_record(host=replace(HOST, telemetry=None)), make_trace(), "does not name the trace"),
        (traced(make_record()), None, "names a trace and has none"),
        (traced(make_record()), TelemetryTrace(columns={"at_ns": [1]}), "columns"),
        (traced(make_record()), replace(make_trace(), reason_ns={"idle": [1]}), "3 samples, 1 of them with idle"),
    ],
)
def test_a_record_and_its_trace_come_together_or_not_at_all(
    store: RecordStore, record: Record, trace: TelemetryTrace | None, said: str
) -> None:
    with pytest.raises(StoreError, match=said):
        store.save(record, trace)
    assert files(store) == []


def publish_by(link: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``link`` called for what a whole file is published by; not for the name that it first gets aside."""
    real = os.link

    def either(source: Path, target: Path, **naming: Any) -> None:
        (partial(real, **naming) if naming else link)(source, target)

    monkeypatch.setattr(os, "link", either)


def test_a_trace_whose_record_cannot_be_written_goes_again(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = os.link

    def only_traces(aside: Path, path: Path) -> None:
        if path.parent.name != "traces":
            raise KeyboardInterrupt
        publish(aside, path)

    publish_by(only_traces, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        store.save(traced(make_record()), make_trace())
    assert files(store) == []


def test_trace_without_record_keeps_its_attempt_number(store: RecordStore) -> None:
    path = store.save(traced(make_record()), make_trace())
    before = (store.traces / f"{CELL}.1.json.gz").read_bytes()
    path.unlink()  # as if the writer had been killed between the two
    again = RecordStore(store.root)
    with pytest.raises(StoreError, match="exists already"):
        again.save(traced(make_record(run_id="run-2")), make_trace(9))
    assert (store.traces / f"{CELL}.1.json.gz").read_bytes() == before
    assert again.next_attempt(CELL) == 2
    again.save(traced(make_record(attempt=2)), make_trace())
    assert files(store) == [f"records/{CELL}.2.json", f"traces/{CELL}.1.json.gz", f"traces/{CELL}.2.json.gz"]


def test_a_running_cell_need_not_load_polars() -> None:
    imports = "import sys, kernel_matrix.results.store, kernel_matrix.results.trace"
    code = f"{imports}; print(sorted({{'polars', 'pynvml'}} & set(sys.modules)))"
    printed = subprocess.run((sys.executable, "-c", code), check=True, capture_output=True, text=True).stdout
    assert printed == "[]\n"


def test_text_that_candidates_choose_never_costs_the_record(store: RecordStore) -> None:
    said = replace(outcome(Status.CRASHED), evidence=Evidence(message="\ud800 \0 \x1b[2J é 🙂 \u2028"))
    loaded = store.load(store.save(make_record(outcome=said)))
    assert loaded.outcome.evidence.message == "? \0 \x1b[2J é 🙂 \u2028"


def test_a_record_is_never_overwritten(store: RecordStore) -> None:
    path = store.save(make_record())
    before = path.read_bytes()
    with pytest.raises(StoreError, match="exists already"):
        store.save(failed_record())
    assert path.read_bytes() == before
    assert files(store) == [f"records/{CELL}.1.json"]


def test_without_hard_links_a_record_is_still_never_overwritten(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_paths: object, **_naming: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    record = make_record()
    assert store.load(store.save(record)) == record
    with pytest.raises(StoreError, match="exists already"):
        store.save(record)
    assert files(store) == [f"records/{CELL}.1.json"]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (make_record(host=replace(HOST, phases_s={"total": float("nan")})), "JSON"),
        (make_record(host=replace(HOST, clock_state="wobbly")), "host.clock_state: 'wobbly'"),
        (make_record(attempt=0), "attempt"),
        (make_record(sessions=(session(cell_id="f" * 32),)), "session 0 is of cell"),
    ],
)
def test_a_record_that_breaks_its_contract_is_not_written(store: RecordStore, record: Record, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        store.save(record)
    assert "report" in caught.value.next_step
    assert files(store) == []


def test_a_run_is_written_again_as_it_goes_on(store: RecordStore) -> None:
    store.save_run(make_run())
    path = store.save_run(make_run(ended_at="2026-01-02T04:00:00Z", interrupted=True))
    assert files(store) == ["runs/run-1.json"]
    assert (read_run(path)["ended_at"], read_run(path)["counts"]) == (
        "2026-01-02T04:00:00Z",
        {"passed": 2, "crashed": 1},
    )
    with pytest.raises(StoreError, match="planned"):
        store.save_run(make_run(planned=-1))


def test_loading_says_why_not(store: RecordStore) -> None:
    path = put(store.records, make_record(), schema_version=9)
    with pytest.raises(StoreError, match=r"other_version: schema version 9"):
        store.load(path)


def test_attempts_are_summarised_and_bad_files_reported(store: RecordStore) -> None:
    store.save(failed_record(attempt=1, status=Status.GPU_BUSY))
    store.save(make_record(attempt=2))
    store.save(failed_record(cell_id(7), host=replace(HOST, image=None, device={})))
    (store.records / f"{cell_id(8)}.1.json").write_text("{")
    bad: list[Rejection] = []
    attempts = store.attempts(bad.append)
    assert list(attempts) == [cell_id(7), CELL]
    assert [(a.attempt, a.status, a.fault) for a in attempts[CELL]] == [
        (1, Status.GPU_BUSY, Fault.INFRA),
        (2, Status.PASSED, Fault.NONE),
    ]
    assert attempts[cell_id(7)] == [
        AttemptSummary(
            cell_id=cell_id(7),
            attempt=1,
            status=Status.COMPILE_ERROR,
            fault=Fault.CANDIDATE,
            engine="docker",
            image_id=None,
            measurement_version="c" * 64,
            driver=None,
            gpu_uuid=None,
        )
    ]
    assert [r.reason for r in bad] == [RejectionReason.NOT_JSON]
    assert store.attempts() == attempts


def test_attempts_are_in_numeric_order(store: RecordStore) -> None:
    for attempt in (10, 2, 1):
        store.save(make_record(attempt=attempt))
    assert [a.attempt for a in store.attempts()[CELL]] == [1, 2, 10]


def test_the_next_attempt_counts_what_is_there_readable_or_not(store: RecordStore) -> None:
    assert store.next_attempt(CELL) == 1
    store.save(make_record())
    assert store.next_attempt(CELL) == 2
    (store.records / f"{CELL}.12.json").write_text("{")
    assert RecordStore(store.root).next_attempt(CELL) == 13
    assert RecordStore(store.root).next_attempt(cell_id(1)) == 1


def test_threads_that_save_the_same_attempt_leave_exactly_one(store: RecordStore) -> None:
    def save(number: int) -> bool:
        try:
            store.save(make_record(run_id=f"run-{number}"))
        except StoreError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        saved = list(pool.map(save, range(32)))
    assert saved.count(True) == 1
    assert files(store) == [f"records/{CELL}.1.json"]
    assert store.load(store.records / f"{CELL}.1.json").run_id == f"run-{saved.index(True)}"


def _save_many(root: Path, first: int) -> None:
    for number in range(first, first + 20):
        RecordStore(root).save(make_record(cell_id(number)))


def test_processes_save_side_by_side(store: RecordStore) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_save_many, args=(store.root, first)) for first in (0, 20)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [p.exitcode for p in processes] == [0, 0]
    assert len(store.attempts()) == 40


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "tiny"
    place.mkdir()
    mounted = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)), check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(("umount", str(place)), check=True)


def test_a_full_disk_leaves_nothing_partial_and_says_what_to_do(tiny_disk: Path) -> None:
    store = RecordStore(tiny_disk / "nightly")
    saved = store.save(make_record())
    filler = tiny_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * 65536)
    with pytest.raises(StoreError, match="No space left") as caught:
        store.save(make_record(attempt=2))
    assert "Make room" in caught.value.next_step
    assert files(store) == [f"records/{CELL}.1.json"]
    assert store.load(saved).attempt == 1
    assert store.next_attempt(CELL) == 2
    filler.unlink()
    store.save(make_record(attempt=2))
    assert sorted(a.attempt for a in store.attempts()[CELL]) == [1, 2]


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "nightly").write_text("a file in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        RecordStore(tmp_path / "nightly").save(make_record())


def test_what_a_killed_writer_left_is_no_record(store: RecordStore) -> None:
    store.save(make_record())
    (store.records / f".{cell_id(3)}.1.json.0011.tmp").write_text(json.dumps({"half": 1})[:5])
    bad: list[Rejection] = []
    assert list(store.attempts(bad.append)) == [CELL]
    assert bad == []


def test_a_failure_while_publishing_removes_the_file_aside(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_paths: object) -> None:
        raise KeyboardInterrupt

    publish_by(fail, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        store.save(make_record())
    assert list(store.records.iterdir()) == []


def test_footprints_are_lowest_by_problem_workload_and_dtype(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    for number, needed in enumerate((7 << 30, 5 << 30, None)):
        of = session(workloads=(replace(workload(), needed_memory_bytes=needed),), cell_id=cell_id(number))
        store.save(make_record(cell_id(number), sessions=(of,)))
    key = (CELL_KEY.problem_sha256, "default", CELL_KEY.dtype)
    assert store.footprints(0) == {key: 5 << 30}
    assert store.footprints(6 << 30) == {key: 5 << 30}
    assert store.footprints(7 << 30) == {}
