from __future__ import annotations

import json
import math
import os
import socket
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_matrix.json_schemas import is_valid, load_schema
from kernel_matrix.results.columns import SampleColumns, TableRows
from kernel_matrix.results.judged import times_of
from kernel_matrix.results.reading import (
    RecordRefusedError,
    Rejection,
    RejectionReason,
    read_record,
    read_run,
    try_record,
)
from kernel_matrix.results.record import record_to_json
from kernel_matrix.results.rows import cell_rows, host_row
from kernel_matrix.results.run_info import run_to_json
from kernel_matrix.results.schema import CELLS
from kernel_matrix.untrusted_json import MAX_BYTES
from tests.results.factory import CELL, HOST, make_record, make_run, put, session

NAME = f"{CELL}.1.json"


def refusal(path: Path) -> RecordRefusedError:
    with pytest.raises(RecordRefusedError) as caught:
        read_record(path)
    return caught.value


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / NAME
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def document() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(record_to_json(make_record())))
    return made


def changed(*keys: str | int, to: Any) -> dict[str, Any]:
    """A valid document with the value at ``keys`` replaced."""
    made = document()
    place: Any = made
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    return made


LIMITS = (0.0, 1.0, 1e6, float(2**63), 1e30, 1e300)


@pytest.mark.parametrize("field", ["flops", "temperature_c"])
@pytest.mark.parametrize("limit", [sign * limit for limit in LIMITS for sign in (1, -1)])
def test_limits_are_those_of_the_schema_file(field: str, limit: float) -> None:
    judge = jsonschema.Draft202012Validator(load_schema("record"))
    workload = ("sessions", 0, "workloads", 0)
    place = (*workload, field) if field == "flops" else (*workload, "blocks", 0, field)
    for value in (math.nextafter(limit, -math.inf), limit, math.nextafter(limit, math.inf), int(limit)):
        made = changed(*place, to=value)
        assert is_valid("record", made) is judge.is_valid(made), value


def test_a_valid_record_is_read(tmp_path: Path) -> None:
    assert read_record(put(tmp_path, make_record())) == document()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_truncated(tmp_path: Path, share: float) -> None:
    text = json.dumps(document())
    assert refusal(write(tmp_path, text[: int(len(text) * share)])).reason is RejectionReason.NOT_JSON


def test_enormous(tmp_path: Path) -> None:
    path = put(tmp_path, make_record())
    os.truncate(path, MAX_BYTES + (1 << 20))  # sparse: takes no space
    error = refusal(path)
    assert error.reason is RejectionReason.TOO_LARGE
    assert str(MAX_BYTES) in error.detail


def test_a_link_is_not_followed_even_to_a_valid_record(tmp_path: Path) -> None:
    real = put(tmp_path / "elsewhere", make_record())
    link = tmp_path / NAME
    link.symlink_to(real)
    assert refusal(link).reason is RejectionReason.NOT_A_FILE


def test_pipe_folder_and_socket_are_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert refusal(tmp_path / "pipe").reason is RejectionReason.NOT_A_FILE
    assert refusal(tmp_path / "folder").reason is RejectionReason.NOT_A_FILE
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        assert refusal(tmp_path / "s").reason is RejectionReason.UNREADABLE
    assert refusal(tmp_path / "absent").reason is RejectionReason.UNREADABLE


@pytest.mark.parametrize("version", [2, "1", True, 1.0, None, [1]])
def test_another_version_is_said_before_anything_else(tmp_path: Path, version: Any) -> None:
    path = write(tmp_path, json.dumps({"schema_version": version, "unknown": 1}))
    assert refusal(path).reason is RejectionReason.OTHER_VERSION


@pytest.mark.parametrize(
    "text",
    [
        b"NaN",
        b'{"schema_version":1,"x":NaN}',
        b'{"schema_version":1,"x":-Infinity}',
        b'{"schema_version":1,"x":1e999}',
        b'{"schema_version":1,"x":"\\ud800"}',
        b'{"schema_version":1,"x":"\xff"}',
        b"\xef\xbb\xbf{}",
        b"[]",
        b"1",
        b"{} {}",
        b"9" * 100_000,
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b"\x00" * 100,
    ],
)
def test_what_is_not_strict_json(tmp_path: Path, text: bytes) -> None:
    assert refusal(write(tmp_path, text)).reason is RejectionReason.NOT_JSON


DEEP: Any = []
for _ in range(900):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("outcome", "status"), "excellent", "excellent"),
        (("attempt",), 0, "attempt"),
        (("attempt",), 10**40, "attempt"),
        (("cell_id",), "../../etc/passwd", "cell_id"),
        (("run_id",), "..", "run_id"),
        (("host", "started_at"), "yesterday", "started_at"),
        (("host", "engine_details"), {"deep": DEEP}, "engine_details"),
        (("cell",), DEEP, "cell"),
        (("sessions", 0, "workloads", 0, "blocks", 0, "device_ns"), [-1, 2, 3], "device_ns"),
        (("sessions", 0, "workloads", 0, "blocks", 0, "device_ns"), [2**63, 2, 3], "device_ns"),
        (("sessions", 0, "workloads", 0, "flops"), 10**400, "flops"),
        (("sessions", 0, "workloads", 0, "colour"), 1, "colour"),
        (("cell", "gpu"), "x" * 100_000, "gpu"),
    ],
)
def test_what_breaks_the_schema_is_refused_with_the_place(tmp_path: Path, keys: Any, value: Any, said: str) -> None:
    made = changed(*keys, to=value)
    reason = refusal(write(tmp_path, json.dumps(made)))
    # a number too large for a double is not even strict JSON
    assert reason.reason is (RejectionReason.NOT_JSON if keys[-1] == "flops" else RejectionReason.SCHEMA)
    assert said in reason.detail or reason.reason is RejectionReason.NOT_JSON
    assert len(reason.detail) <= 300


def test_a_large_invalid_record_is_explained_without_quoting_it(tmp_path: Path) -> None:
    made = changed("sessions", 0, "workloads", 0, "blocks", 0, "device_ns", to=["x"] * 300_000)
    error = refusal(write(tmp_path, json.dumps(made)))
    assert error.reason is RejectionReason.SCHEMA
    assert error.detail == "sessions.0.workloads.0.blocks.0.device_ns: the value has more than 100000 items"


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("host", "ended_at"), "2026-13-41T25:00:00Z"),
        (("sessions", 0, "cell_id"), "f" * 32),
        (("sessions", 0, "workloads", 0, "blocks", 0, "wall_ns"), [1]),
        (("sessions", 0, "workloads", 0, "blocks", 0, "discarded"), [[3, "contended: pid 7"]]),
        (("sessions", 0, "workloads", 0, "blocks", 0, "discarded"), [[1, "contended: pid 7"], [1, "throttled: idle"]]),
        (("sessions", 0, "workloads", 0, "blocks", 3, "ended_ns"), 2999),
        (("sessions", 0, "workloads", 0, "blocks", 0, "contestant"), "candidate"),
        (("sessions", 0, "workloads", 0, "blocks", 0, "contestant"), "compile"),
        (("sessions", 0, "workloads", 0, "blocks", 0, "role"), "rival"),
        (("sessions", 0, "clock_probes", 1, "ended_ns"), 8999),
        (("sessions", 0, "clock_probes", 1, "low_mhz"), 1784.55),
        (("sessions", 0, "clock_probes", 1, "high_mhz"), 1784.45),
        (("host", "telemetry", "discarded"), {"contended: pid 4242": 1, "throttled: sw_power_cap": 1}),
        (("host", "telemetry", "spread", "power_w", "median"), 301.0),
        (("host", "telemetry", "trace"), f"{CELL}.2.json.gz"),
        (("host", "telemetry", "trace"), f"{CELL}.11.json.gz"),
        (("host", "telemetry", "trace"), f"{'f' * 32}.1.json.gz"),
        (("host", "clocks"), None),
        (("host", "clock_policy"), "observe"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, keys: Any, value: Any) -> None:
    path = write(tmp_path, json.dumps(changed(*keys, to=value)))
    assert refusal(path).reason is RejectionReason.INCONSISTENT


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (
            ("sessions", 0, "workloads", 0, "blocks", 0, "discarded"),
            [[0, "throttled: hw_thermal"], [2, "contended: 7"]],
        ),
        (("sessions", 0, "workloads", 0, "blocks", 0, "contestant"), "eager"),
        (("host", "telemetry", "discarded"), {"contended: pid 4242": 1}),
        (("host", "telemetry", "trace"), f"{CELL}.1.json.gz"),
        (("host", "clock_policy"), "require"),
        (("host", "clock_state"), "unlocked"),
    ],
)
def test_what_can_be_is_believed(tmp_path: Path, keys: Any, value: Any) -> None:
    read_record(write(tmp_path, json.dumps(changed(*keys, to=value))))


def test_record_passed_unlocked_under_require_is_refused(tmp_path: Path) -> None:
    made = document()
    for state, fine in (("unlocked", False), ("throttled", False), ("not_applicable", True), ("locked", True)):
        made["host"] |= {"clock_policy": "require", "clock_state": state}
        read = try_record(write(tmp_path, json.dumps(made)))
        assert isinstance(read, Rejection) is not fine, state
    made["host"]["clock_state"] = "unlocked"
    made["outcome"] |= {"status": "clocks_not_held", "fault": "infra"}
    read_record(write(tmp_path, json.dumps(made)))


def test_a_session_or_workload_that_appears_twice_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, make_record(sessions=(session(), session())))
    assert refusal(path).reason is RejectionReason.INCONSISTENT
    made = document()
    made["sessions"][0]["workloads"] *= 2
    assert refusal(write(tmp_path, json.dumps(made))).reason is RejectionReason.INCONSISTENT


def test_the_file_name_must_be_the_contents_own(tmp_path: Path) -> None:
    path = put(tmp_path, make_record(attempt=2))
    moved = path.rename(tmp_path / NAME)
    error = refusal(moved)
    assert (error.reason, f"{CELL}.2" in error.detail) == (RejectionReason.MISNAMED, True)


def test_a_run_is_read_as_strictly(tmp_path: Path) -> None:
    path = tmp_path / "run-1.json"
    path.write_text(json.dumps(run_to_json(make_run())))
    assert read_run(path)["matrix"] == "nightly"
    for wrong in ({"counts": {"excellent": 1}}, {"schema_version": 3}, {"run_id": "run-2"}, {"started_at": "2026"}):
        path.write_text(json.dumps(run_to_json(make_run()) | wrong))
        with pytest.raises(RecordRefusedError):
            read_run(path)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner))


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for key, item in inner for p in ((*path, key), *_places(item, (*path, key)))]


PLACES = _places(document())


@settings(max_examples=400, deadline=None)
@given(place=st.sampled_from(PLACES), value=VALUES)
def test_any_record_is_refused_or_becomes_rows(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[Any, ...], value: Any
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    read = try_record(write(folder, json.dumps(changed(*place, to=value))))
    if isinstance(read, Rejection):
        assert read.detail
        return
    rows, samples = TableRows(CELLS), SampleColumns()
    for row in cell_rows(read, times_of(read), key=0, host=host_row(read), run=None):
        rows.append(row)
    samples.add(read, key=0)
    assert rows.frame().height == 1
    assert samples.frame().height == len(samples)


def test_read_record_core_sha256_becomes_measurement_version(tmp_path):
    document = record_to_json(make_record())
    document["host"]["core_sha256"] = document["host"].pop("measurement_version")
    path = tmp_path / f"{document['cell_id']}.1.json"
    path.write_text(json.dumps(document))
    assert read_record(path)["host"]["measurement_version"] == HOST.measurement_version
    document["host"]["measurement_version"] = "0" * 64
    path.write_text(json.dumps(document))
    with pytest.raises(RecordRefusedError, match="core_sha256"):
        read_record(path)


def test_discarded_batches_are_counted_as_samples(tmp_path: Path) -> None:
    times = {name: [9, 9] for name in ("calls", "delivered_ns", "least_ns", "wall_ns", "handover_ns")}
    batch = {"contestant": "eager", "started_ns": 0, "ended_ns": 1, "captured": False, "short": False, **times}
    made = changed("sessions", 0, "workloads", 0, "batches", to=[{**batch, "discarded": "throttled: sw_power_cap"}])
    made["host"]["telemetry"]["discarded"] = {"contended: pid 4242": 1, "throttled: sw_power_cap": 2}
    path = write(tmp_path, json.dumps(made))
    assert read_record(path)["host"]["telemetry"]["discarded"]["throttled: sw_power_cap"] == 2


@pytest.mark.parametrize("change", [{"ended_ns": -1}, {"longest_ns": 1}, {"calls": 0}, {"shortest_ns": 0}])
def test_an_energy_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, int]) -> None:
    times = {"started_ns": 5, "ended_ns": 9, "shortest_ns": 2, "longest_ns": 3}
    reading = {"contestant": "candidate", "calls": 10, "energy_mj": 3, "discarded": None, **times}
    place = ("sessions", 0, "workloads", 0, "energies")
    assert read_record(write(tmp_path, json.dumps(changed(*place, to=[reading]))))
    refusal(write(tmp_path, json.dumps(changed(*place, to=[reading | change]))))
