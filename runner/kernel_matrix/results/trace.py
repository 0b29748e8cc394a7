"""Trace of an attempt: all its telemetry, as one gzipped JSON file beside its record.

It is stored by column, not by sample: tables need columns, and it takes a third of the space. This module does without
polars, because a running cell uses it.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

from kernel_matrix.model.fields import (
    CellId,
    Column,
    Columns,
    Count,
    Fragment,
    Items,
    JsonOf,
    KeyColumns,
    Length,
    Measured,
    Ordinal,
    Range,
    RunId,
)
from kernel_matrix.model.messages import SCHEMA_VERSION
from kernel_matrix.platforms import EventReason, TelemetrySample
from kernel_matrix.results.reading import (
    Document,
    RecordRefusedError,
    RejectionReason,
    check_name,
    check_schema,
    parse,
    read_bytes,
)

MAX_SAMPLES: Final = 250_000
"""Three and a half hours at 20 Hz; a longer trace keeps every second sample, every third, and so on."""
MAX_UNPACKED_BYTES: Final = 128 << 20
"""Limit of the unpacked size, which bounds the memory that a small hostile file can take."""
TROUBLE_CHARS: Final = 200
"""Limit of one explanation: a driver's message fits, and a quarter of a million of them stay readable."""

_TELEMETRY = ("telemetry",)
Whole = Annotated[int, Range(-(2**63), 2**63 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSample:
    """One reading of a device."""

    at_ns: Count
    """Monotonic clock of the host, ascending."""
    sm_clock_mhz: Whole | None
    """SM clock."""
    mem_clock_mhz: Whole | None
    """Memory clock."""
    power_w: Measured | None
    """Power at that moment."""
    power_average_w: Measured | None
    """Power over the driver's own window, a second on most boards."""
    energy_mj: Whole | None
    """Millijoules since the driver was loaded."""
    temperature_c: Whole | None
    """Temperature of the GPU."""
    utilization_percent: Whole | None
    """Share of the driver's own window in which a kernel ran."""
    memory_used_bytes: Whole | None
    """Memory in use."""
    reasons: Annotated[tuple[EventReason, ...] | None, Items(64)]
    """Clock event reasons that held; `None` where the driver did not say."""
    own_pids: tuple[Count, ...]
    """Processes of the cell on the device."""
    foreign_pids: tuple[Count, ...]
    """Processes of others on the device."""
    trouble: Annotated[str, Length(TROUBLE_CHARS)]
    """Reason why a sample is incomplete; empty if it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """All readings of the host's telemetry during one attempt, column by column, one entry per sample."""

    run_id: Annotated[RunId, Column(tables=_TELEMETRY)]
    """Run that made the record."""
    cell_id: Annotated[CellId, Column(tables=_TELEMETRY)]
    """Cell of the record."""
    attempt: Annotated[Ordinal, Column(tables=_TELEMETRY)]
    """Number of the attempt at the cell, from 1."""
    columns: Annotated[Mapping[str, Any], JsonOf(TraceSample), Columns(every=True)]
    """A list of values for each field of :class:`TraceSample`."""
    reason_ns: Annotated[
        Mapping[EventReason, Annotated[tuple[Whole | None, ...], Items(MAX_SAMPLES)]],
        KeyColumns.named("{}_ns", tuple(reason.value for reason in EventReason), _TELEMETRY),
    ]
    """Clock event reason to the driver's counter of nanoseconds under it, one entry per sample."""
    schema_version: Annotated[int, Fragment(const=SCHEMA_VERSION)]


_LISTS = ("reasons", "own_pids", "foreign_pids", "trouble")
NUMBERS: Final = tuple(field.name for field in fields(TraceSample) if field.name not in _LISTS)
"""Columns with one number or `None` per sample; names as in :class:`kernel_matrix.platforms.TelemetrySample`."""

_GZIP = 16 + zlib.MAX_WBITS
"""Window bits by which zlib selects gzip. Its header then has no time and no name, so equal traces are equal bytes."""

TraceEntry = tuple[TelemetrySample, tuple[int, ...], tuple[int, ...], str]
"""A sample, our PIDs on the device, foreign PIDs, and the reason why the sample is incomplete (empty if complete)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryTrace:
    """Telemetry samples by column, in the order they were taken."""

    columns: Mapping[str, Sequence[Any]]
    """Columns with one entry per sample: those of :data:`NUMBERS`; ``reasons`` (names, or ``None`` if unknown);
    ``own_pids`` and ``foreign_pids`` (lists); ``trouble`` (text).
    """
    reason_ns: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    """Clock event reason → the driver's counter of nanoseconds, one entry per sample; only reasons that it counts."""


def trace_of(samples: Iterable[TraceEntry]) -> TelemetryTrace:
    """Return the trace of ``samples``, given in the order they were taken."""
    entries = _thin(list(samples))
    seen = [sample for sample, _own, _foreign, _trouble in entries]
    counted = [reason for reason in EventReason if any(reason in sample.reason_ns for sample in seen)]
    return TelemetryTrace(
        columns={
            **{name: [getattr(sample, name) for sample in seen] for name in NUMBERS},
            "reasons": [None if s.reasons is None else [reason.value for reason in s.reasons] for s in seen],
            "own_pids": [list(own) for _sample, own, _foreign, _trouble in entries],
            "foreign_pids": [list(foreign) for _sample, _own, foreign, _trouble in entries],
            "trouble": [trouble[:TROUBLE_CHARS] for _sample, _own, _foreign, trouble in entries],
        },
        reason_ns={reason.value: [sample.reason_ns.get(reason) for sample in seen] for reason in counted},
    )


def _thin(entries: list[TraceEntry]) -> list[TraceEntry]:
    """Return every n-th entry, so that at most :data:`MAX_SAMPLES` are left."""
    step = math.ceil(len(entries) / MAX_SAMPLES) or 1
    return entries[::step]


def trace_name(record_stem: str) -> str:
    """Return the file name of the trace of the record ``<cell id>.<attempt>``, in the folder ``traces``."""
    return f"{record_stem}.json.gz"


def trace_to_json(trace: TelemetryTrace, *, run_id: str, cell_id: str, attempt: int) -> Document:
    """Return the trace as the JSON object of its file."""
    return {
        "run_id": run_id,
        "cell_id": cell_id,
        "attempt": attempt,
        "columns": dict(trace.columns),
        "reason_ns": dict(trace.reason_ns),
        "schema_version": SCHEMA_VERSION,
    }


def read_trace_document(path: str | Path) -> Document:
    """Return the checked JSON object of the trace file ``path``, which also names the record it belongs to.

    Raises:
        RecordRefusedError: It is not a valid trace; the message gives the reason.
    """
    data = unpack(read_bytes(path))
    document = parse(data)
    check_schema("trace", document, len(data))
    check_trace(document)
    check_name(path, trace_name(f"{document['cell_id']}.{document['attempt']}"))
    return document


def check_trace(document: Document) -> None:
    """Check what a schema cannot express: columns of equal length, and a clock that never goes back.

    Raises:
        RecordRefusedError: On the first contradiction.
    """
    instants = document["columns"]["at_ns"]
    for name, values in (*document["columns"].items(), *document["reason_ns"].items()):
        if len(values) != len(instants):
            raise RecordRefusedError(
                RejectionReason.INCONSISTENT, f"{len(instants)} samples, {len(values)} of them with {name}"
            )
    if any(later < earlier for earlier, later in pairwise(instants)):
        raise RecordRefusedError(RejectionReason.INCONSISTENT, "at_ns goes back")


def pack(data: bytes) -> bytes:
    """Return ``data`` gzipped; equal data gives equal bytes."""
    deflate = zlib.compressobj(wbits=_GZIP)
    return deflate.compress(data) + deflate.flush()


def unpack(data: bytes) -> bytes:
    """Return the data that :func:`pack` compressed, of at most :data:`MAX_UNPACKED_BYTES`.

    Raises:
        RecordRefusedError: It is larger, or not exactly one whole gzip stream.
    """
    inflate = zlib.decompressobj(wbits=_GZIP)
    try:
        unpacked = inflate.decompress(data, MAX_UNPACKED_BYTES + 1)
    except zlib.error as error:
        raise RecordRefusedError(RejectionReason.NOT_GZIP, str(error)) from None
    if len(unpacked) > MAX_UNPACKED_BYTES:
        raise RecordRefusedError(RejectionReason.TOO_LARGE, f"unpacks to more than {MAX_UNPACKED_BYTES} bytes")
    if not inflate.eof:
        raise RecordRefusedError(RejectionReason.NOT_GZIP, "ends in the middle of the stream")
    if inflate.unused_data:
        raise RecordRefusedError(RejectionReason.NOT_GZIP, "goes on after the end of the stream")
    return unpacked
