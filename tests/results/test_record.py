from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_matrix.json_schemas import is_valid, load_schema
from kernel_matrix.model.enums import Fault, Role, Stage, Status
from kernel_matrix.model.messages import Evidence
from kernel_matrix.results.packed_set import unpack_set
from kernel_matrix.results.reading import explain, read_record
from kernel_matrix.results.record import Outcome, record_from_json, record_to_json
from tests.results.factory import (
    BLOCKS,
    CELL_KEY,
    HOST,
    as_the_first_ones_were,
    block,
    failed_record,
    make_record,
    outcome,
    session,
    traced,
    workload,
)

EXAMPLES = Path(__file__).parents[2] / "results"


def test_a_record_comes_back_as_it_was() -> None:
    bare = make_record(host=replace(HOST, clock_state="unlocked", clocks=None, telemetry=None, health=None))
    for record in (make_record(), failed_record(), traced(make_record()), bare):
        assert record_from_json(record_to_json(record)) == record
        assert is_valid("record", record_to_json(record)), explain("record", record_to_json(record))


def test_records_without_telemetry_are_valid() -> None:
    old = as_the_first_ones_were(record_to_json(make_record()))
    assert is_valid("record", old), explain("record", old)
    record = record_from_json(old)
    assert (record.host.clocks, record.host.telemetry, record.host.health, record.host.peak) == (None, None, None, {})
    assert record.sessions[0].clock_probes == ()
    assert is_valid("record", record_to_json(record))


@pytest.mark.parametrize(("name", "records"), [("example-h200", 583), ("example-two-gpus", 91)])
def test_the_committed_examples_are_read_as_they_are(name: str, records: int, tmp_path: Path) -> None:
    unpack_set(EXAMPLES / f"{name}.kmz", tmp_path)
    files = sorted((tmp_path / "records").glob("*.json"))
    assert len(files) == records
    for file in files:
        assert record_from_json(read_record(file)).stem == file.stem


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("clocks", {"reset": "probably"}),
        ("clocks", {"set_sm_mhz": -1}),
        ("clocks", {"driver_sm_mhz": 1e31}),
        ("telemetry", {"reasons": {"bored": 0.5}}),
        ("telemetry", {"reasons": {"idle": 1.5}}),
        ("telemetry", {"trace": "../../etc/passwd"}),
        ("telemetry", {"discarded": {"": 1}}),
        ("telemetry", {"spread": {"power_w": {"low": 1.0, "median": 2.0}}}),
        ("health", {"probe": "unsure"}),
        ("health", {"colour": 1}),
        ("peak", {"source": "folklore"}),
        ("peak", {"bytes_per_s": 0}),
        ("device_details", {"deep": {"deeper": {"deepest": 1}}}),
    ],
)
def test_what_the_host_says_of_the_device_is_bounded(part: str, changes: dict[str, Any]) -> None:
    document = record_to_json(make_record())
    document["host"][part] = {**document["host"][part], **changes}
    assert not is_valid("record", document)


@pytest.mark.parametrize("status", [Status.THROTTLED, Status.CLOCKS_NOT_HELD, Status.GPU_LOST])
def test_a_machine_that_failed_may_leave_times(status: Status) -> None:
    record = make_record(outcome=outcome(status))
    assert record.outcome.fault is Fault.INFRA
    assert is_valid("record", record_to_json(record))
    assert record_from_json(record_to_json(record)) == record


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(ValueError, match="colour"):
        record_from_json({**record_to_json(make_record()), "colour": 1})


@pytest.mark.parametrize("key", ["cell", "outcome", "host", "sessions", "run_id"])
def test_a_missing_key_is_named(key: str) -> None:
    document = record_to_json(make_record())
    del document[key]
    with pytest.raises(ValueError, match=key):
        record_from_json(document)


@pytest.mark.parametrize(
    "sessions",
    [
        (),
        (session(workloads=(workload(blocks=()),)),),
        (session(workloads=(workload(blocks=(block(Role.CANDIDATE, 0, ()),)),)),),
    ],
)
def test_passed_without_samples_cannot_be_built_nor_written(sessions: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="passed"):
        make_record(sessions=sessions)
    document = record_to_json(make_record()) | {
        "sessions": record_to_json(failed_record(status=Status.CRASHED, sessions=sessions))["sessions"]
    }
    assert not is_valid("record", document)


def test_a_compile_error_with_a_time_cannot_be_built_nor_written() -> None:
    with pytest.raises(ValueError, match="compile_error"):
        make_record(outcome=outcome(Status.COMPILE_ERROR))
    document = record_to_json(make_record())
    assert is_valid("record", document)
    document["outcome"] |= {"status": "compile_error", "fault": "candidate"}
    assert not is_valid("record", document)


def test_untimed_status_with_a_time_cannot_be_written() -> None:
    document = record_to_json(make_record())
    document["sessions"][0]["status"] = "load_error"
    assert not is_valid("record", document)
    document = record_to_json(make_record())
    document["sessions"][0]["workloads"][0]["status"] = "load_error"
    assert not is_valid("record", document)
    with pytest.raises(ValueError, match="load_error"):
        workload(status=Status.LOAD_ERROR, blocks=BLOCKS)


def test_passed_session_without_workload_is_refused() -> None:
    with pytest.raises(ValueError, match="workload"):
        session(workloads=())
    document = record_to_json(make_record(sessions=(session(), session(1))))
    document["sessions"][1]["workloads"] = []
    assert not is_valid("record", document)


def test_fault_of_another_status_is_refused() -> None:
    said = outcome(Status.CRASHED)
    with pytest.raises(ValueError, match="fault"):
        replace(said, fault=Fault.INFRA)
    document = record_to_json(make_record(outcome=said))
    assert is_valid("record", document)
    document["outcome"]["fault"] = "infra"
    assert not is_valid("record", document)
    with pytest.raises(ValueError, match="fault"):
        Outcome(status=Status.GPU_BUSY, stage=Stage.LEASE, fault=Fault.CANDIDATE, evidence=said.evidence)


def test_a_judge_is_never_timed() -> None:
    document = record_to_json(make_record())
    document["sessions"][0]["workloads"][0]["blocks"][0]["role"] = "judge"
    assert not is_valid("record", document)
    assert "judge" in load_schema("record")["$defs"]["role"]["enum"]


@pytest.mark.parametrize(
    ("status", "ended_there", "message"),
    [
        (Status.INCORRECT_VALUES, True, "fails a shape that is held out"),
        (Status.INCORRECT_VALUES, None, "3 elements"),
        (Status.PROBLEM_ERROR, True, "not the candidate's fault; the record says more"),
        (Status.CONTAINER_LOST, None, "not the candidate's fault; the record says more"),
    ],
)
def test_shown_evidence_tells_nothing_of_held_out_shapes(status: Status, ended_there: Any, message: str) -> None:
    ended = outcome(status, "3 elements")
    ended = replace(ended, evidence=replace(ended.evidence, held_out=ended_there))
    record = make_record(outcome=ended, sessions=(), cell=replace(CELL_KEY, held_out=("secret",)))
    told = record.shown_evidence
    assert told.message == message
    assert told == (ended.evidence if message == "3 elements" else Evidence(message=message))
    assert record_from_json(record_to_json(record)) == record
    assert is_valid("record", record_to_json(record)), explain("record", record_to_json(record))
