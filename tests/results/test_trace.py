from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_matrix.json_schemas import is_valid
from kernel_matrix.platforms import EventReason, TelemetrySample
from kernel_matrix.results import trace as trace_module
from kernel_matrix.results.reading import RecordRefusedError, RejectionReason
from kernel_matrix.results.trace import (
    NUMBERS,
    TROUBLE_CHARS,
    TelemetryTrace,
    pack,
    read_trace_document,
    trace_name,
    trace_of,
    trace_to_json,
    unpack,
)
from tests.results.factory import CELL, make_trace, read_trace, sample

NAME = trace_name(f"{CELL}.1")


def document(trace: TelemetryTrace | None = None, **changes: Any) -> dict[str, Any]:
    return trace_to_json(make_trace() if trace is None else trace, run_id="run-1", cell_id=CELL, attempt=1) | changes


def write(folder: Path, content: Any, name: str = NAME) -> Path:
    path = folder / name
    path.write_bytes(pack(content if isinstance(content, bytes) else json.dumps(content).encode()))
    return path


def refusal(path: Path) -> RecordRefusedError:
    with pytest.raises(RecordRefusedError) as caught:
        read_trace(path)
    return caught.value


def test_samples_become_columns_with_one_entry_each() -> None:
    trace = make_trace(3)
    assert len(trace.columns["at_ns"]) == 3
    assert list(trace.columns) == [*NUMBERS, "reasons", "own_pids", "foreign_pids", "trouble"]
    assert trace.columns["at_ns"] == [0, 50_000_000, 150_000_000]
    assert trace.columns["sm_clock_mhz"] == [1785, 1785, None]
    assert trace.columns["reasons"] == [[], ["sw_power_cap"], None]
    assert (trace.columns["own_pids"], trace.columns["foreign_pids"]) == ([[9, 10], [9, 10], []], [[], [], [4242]])
    assert trace.columns["trouble"] == ["", "", "the driver did not answer"]
    assert trace.reason_ns == {"sw_power_cap": [0, 7_000, None]}


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    for trace in (make_trace(), make_trace(1), trace_of([])):
        assert is_valid("trace", document(trace))
        assert read_trace(write(tmp_path, document(trace))) == trace


def test_the_file_says_whose_trace_it_is(tmp_path: Path) -> None:
    read = read_trace_document(write(tmp_path, document()))
    assert (read["run_id"], read["cell_id"], read["attempt"]) == ("run-1", CELL, 1)


def test_trace_packed_twice_is_equal_gzip_bytes() -> None:
    text = json.dumps(document()).encode()
    assert pack(text) == pack(text)
    assert pack(text)[4:8] == bytes(4), "no time in the header"
    assert gzip.decompress(pack(text)) == text == unpack(pack(text))


def test_a_longer_trace_than_fits_keeps_every_nth_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "MAX_SAMPLES", 10)
    for taken, kept in ((0, 0), (9, 9), (10, 10), (11, 6), (20, 10), (21, 7)):
        trace = trace_of((sample(number), (), (), "") for number in range(taken))
        assert len(trace.columns["at_ns"]) == kept
    assert trace.columns["at_ns"] == [number * 50_000_000 for number in range(0, 21, 3)]


def test_what_the_driver_says_at_length_is_cut() -> None:
    trace = trace_of([(TelemetrySample(at_ns=1), (), (), "x" * 10_000)])
    assert trace.columns["trouble"] == ["x" * TROUBLE_CHARS]
    assert is_valid("trace", document(trace))


def test_every_reason_fits_the_schema() -> None:
    everything = sample(1, reasons=tuple(EventReason), reason_ns=dict.fromkeys(EventReason, 1))
    trace = trace_of([(everything, (), (), "")])
    assert set(trace.reason_ns) == {reason.value for reason in EventReason}
    assert is_valid("trace", document(trace))


def test_what_is_no_gzip_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path, document()).read_bytes()
    for data in (b"", b"{}", whole[:-9], whole[: len(whole) // 2], whole + b"x", whole[:-8] + bytes(8), whole + whole):
        (tmp_path / NAME).write_bytes(data)
        assert refusal(tmp_path / NAME).reason is RejectionReason.NOT_GZIP, data[:20]


def test_a_small_file_that_unpacks_to_a_huge_one_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_module, "MAX_UNPACKED_BYTES", 1 << 20)
    path = write(tmp_path, b" " * ((1 << 20) + 1))
    assert path.stat().st_size < 4096
    assert refusal(path).reason is RejectionReason.TOO_LARGE
    text = json.dumps(document()).encode()
    assert read_trace(write(tmp_path, text + b" " * ((1 << 20) - len(text)))) == make_trace()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", RejectionReason.NOT_JSON),
        (b"[]", RejectionReason.NOT_JSON),
        (document(schema_version=2), RejectionReason.OTHER_VERSION),
        (document(colour=1), RejectionReason.SCHEMA),
        (document(run_id=".."), RejectionReason.SCHEMA),
        (document(columns=dict(make_trace().columns) | {"mood": []}), RejectionReason.SCHEMA),
        (document(columns={"at_ns": []}), RejectionReason.SCHEMA),
        (document(columns=dict(make_trace().columns) | {"power_w": [-1, 1, 1]}), RejectionReason.SCHEMA),
        (document(columns=dict(make_trace().columns) | {"reasons": [["bored"], [], []]}), RejectionReason.SCHEMA),
        (document(reason_ns={"bored": [1, 2, 3]}), RejectionReason.SCHEMA),
        (document(reason_ns={"idle": [1, 2]}), RejectionReason.INCONSISTENT),
        (document(columns=dict(make_trace().columns) | {"power_w": [1.0]}), RejectionReason.INCONSISTENT),
        (document(columns=dict(make_trace().columns) | {"at_ns": [1, 3, 2]}), RejectionReason.INCONSISTENT),
        (document(attempt=2), RejectionReason.MISNAMED),
        (document(cell_id="f" * 32), RejectionReason.MISNAMED),
    ],
)
def test_what_is_no_trace_is_refused_with_its_reason(tmp_path: Path, content: Any, reason: RejectionReason) -> None:
    error = refusal(write(tmp_path, content))
    assert (error.reason, bool(error.detail)) == (reason, True)


def test_a_link_is_not_followed_and_an_absent_file_is_said(tmp_path: Path) -> None:
    real = write(tmp_path, document(), "elsewhere")
    (tmp_path / NAME).symlink_to(real)
    assert refusal(tmp_path / NAME).reason is RejectionReason.NOT_A_FILE
    (tmp_path / NAME).unlink()
    assert refusal(tmp_path / NAME).reason is RejectionReason.UNREADABLE
    os.mkfifo(tmp_path / NAME)
    assert refusal(tmp_path / NAME).reason is RejectionReason.NOT_A_FILE


@settings(max_examples=200, deadline=None)
@given(at=st.integers(min_value=0, max_value=10_000), value=st.integers(min_value=0, max_value=255))
def test_one_wrong_byte_is_found_or_harmless(tmp_path_factory: pytest.TempPathFactory, at: int, value: int) -> None:
    folder = tmp_path_factory.getbasetemp() / "bytes"
    folder.mkdir(exist_ok=True)
    data = bytearray(pack(json.dumps(document()).encode()))
    data[at % len(data)] = value
    (folder / NAME).write_bytes(data)
    try:
        assert read_trace(folder / NAME) == make_trace(), "the checksum lets nothing else pass"
    except RecordRefusedError as error:
        if error.reason is not RejectionReason.NOT_GZIP:
            raise
