"""Reader of untrusted record files: they may be truncated, huge, links, of another version, or hostile.

Every read ends with a checked document or with a :class:`RecordRefusedError` that gives the reason.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from kernel_matrix.errors import StoreError
from kernel_matrix.json_schemas import is_valid, load_schema
from kernel_matrix.measure.timed import CANDIDATE, EAGER
from kernel_matrix.model.enums import ClockPolicy, ClockState, Role, Status
from kernel_matrix.model.instants import parse_instant
from kernel_matrix.model.messages import SCHEMA_VERSION
from kernel_matrix.results.descriptions import clocks_match_policy
from kernel_matrix.untrusted_json import UntrustedJsonError, parse_object
from kernel_matrix.untrusted_json import read_bytes as read_regular_file

_EXPLAINED_BYTES = 1 << 20
"""Limit of a document for which the best message is sought; above it the search would take minutes."""
_DETAIL_CHARS = 300
"""Limit of a rejection's detail, which may quote a hostile file."""

Document = dict[str, Any]

_ROLES = {CANDIDATE: Role.CANDIDATE.value, EAGER: Role.BASELINE.value}
"""Contestant → role; all others are rivals."""
_RIVAL = Role.RIVAL.value


class RejectionReason(str, Enum):
    """Reason why a file is rejected."""

    UNREADABLE = "unreadable"
    """It cannot be opened or read, or it changed while being read."""
    NOT_A_FILE = "not_a_file"
    """A symbolic link, folder, pipe or device."""
    TOO_LARGE = "too_large"
    """Larger than :data:`kernel_matrix.untrusted_json.MAX_BYTES`."""
    NOT_GZIP = "not_gzip"
    """A trace that is not one whole gzip stream."""
    NOT_JSON = "not_json"
    """Not UTF-8, not JSON, not strict (NaN, infinity), nested too deeply, or not an object."""
    OTHER_VERSION = "other_version"
    """Its ``schema_version`` is not the one that this program reads."""
    SCHEMA = "schema"
    """It does not match the schema."""
    INCONSISTENT = "inconsistent"
    """It matches the schema but contradicts itself."""
    MISNAMED = "misnamed"
    """Its file name does not match its content."""
    CONFLICTING = "conflicting"
    """Another file claims the same run, cell and attempt with different content."""


class RecordRefusedError(StoreError):
    """Rejection of a file, with the reason."""

    def __init__(self, reason: RejectionReason, detail: str) -> None:
        detail = detail if len(detail) <= _DETAIL_CHARS else f"{detail[: _DETAIL_CHARS - 1]}…"
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail

    def of(self, path: str | Path) -> Rejection:
        """Return the rejection of ``path`` for this reason."""
        return Rejection(path=str(path), reason=self.reason, detail=self.detail)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Rejection:
    """A rejected file and the reason."""

    path: str
    reason: RejectionReason
    detail: str


def conflicts(claims: Sequence[tuple[str, Document]], what: str) -> list[Rejection]:
    """Return a rejection for each of ``claims`` if they differ, because there is no way to know which is right.

    Args:
        claims: Paths and their documents.
        what: Object of the verb "claim" in the message.
    """
    if all(document == claims[0][1] for _path, document in claims):
        return []
    detail = f"{len(claims)} files claim {what} with different content"
    return [Rejection(path=path, reason=RejectionReason.CONFLICTING, detail=detail) for path, _document in claims]


def read_record(path: str | Path) -> Document:
    """Return the record in the file ``path`` as a checked JSON document.

    Raises:
        RecordRefusedError: It is not a valid record.
    """
    data = read_bytes(path)
    document = current_names(parse(data))
    check_schema("record", document, len(data))
    check_consistency(document)
    check_name(path, f"{document['cell_id']}.{document['attempt']}.json")
    return document


def current_names(record: Document) -> Document:
    """Return ``record`` with the current names of fields that earlier versions named differently."""
    host = record.get("host")
    if isinstance(host, dict) and "core_sha256" in host and "measurement_version" not in host:
        host["measurement_version"] = host.pop("core_sha256")
    return record


def try_record(path: str | Path) -> Document | Rejection:
    """Return the record in the file ``path``, or its rejection."""
    try:
        return read_record(path)
    except RecordRefusedError as error:
        return error.of(path)


def read_run(path: str | Path) -> Document:
    """Return the run in the file ``path`` as a checked JSON document.

    Raises:
        RecordRefusedError: It is not a valid run.
    """
    data = read_bytes(path)
    document = parse(data)
    check_schema("run", document, len(data))
    _check_instants(document["started_at"], document["ended_at"])
    check_name(path, f"{document['run_id']}.json")
    return document


def read_bytes(path: str | Path) -> bytes:
    """Read a file; see :func:`kernel_matrix.untrusted_json.read_bytes`.

    Raises:
        RecordRefusedError: It is not a regular file, is too large, or cannot be read.
    """
    try:
        return read_regular_file(path)
    except UntrustedJsonError as error:
        raise RecordRefusedError(RejectionReason(error.fault.value), error.reason) from None


def parse(data: bytes) -> Document:
    """Return the JSON object in ``data``; see :func:`kernel_matrix.untrusted_json.parse_object`.

    Raises:
        RecordRefusedError: It is anything else.
    """
    try:
        return parse_object(data)
    except UntrustedJsonError as error:
        raise RecordRefusedError(RejectionReason.NOT_JSON, error.reason) from None


@cache
def _validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    # The mask keeps values out of the messages: a value may be nearly the whole of a large file.
    return jsonschema_rs.Draft202012Validator(load_schema(schema), mask="the value")


def check_schema(schema: str, document: Document, size: int) -> None:
    """Check that ``document``, read from ``size`` bytes, matches ``schemas/<schema>.schema.json``.

    Raises:
        RecordRefusedError: It is of another version or does not match; the message says where.
    """
    version = document.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        said = f"{version!r}" if isinstance(version, (int, float, str)) else type(version).__name__
        raise RecordRefusedError(
            RejectionReason.OTHER_VERSION, f"schema version {said}, this program reads {SCHEMA_VERSION}"
        )
    if not is_valid(schema, document):
        raise RecordRefusedError(RejectionReason.SCHEMA, explain(schema, document, size=size))


def explain(schema: str, document: Document, *, size: int = 0) -> str:
    """Return one sentence that says where and how an invalid ``document`` breaks its schema.

    Args:
        schema: Name of the schema.
        document: The invalid document.
        size: Number of bytes it was read from. For a large document the first error is used instead of the best one.
    """
    if size > _EXPLAINED_BYTES:
        return _first_finding(schema, document)
    import jsonschema  # noqa: PLC0415  # needed only for the few documents that are refused
    from jsonschema.exceptions import best_match  # noqa: PLC0415  # see above

    try:
        best = best_match(jsonschema.Draft202012Validator(load_schema(schema)).iter_errors(document))
    except RecursionError:  # its message would quote the whole value
        best = None
    if best is None:
        return _first_finding(schema, document)
    return f"{best.json_path.removeprefix('$.').replace('$', 'document')}: {best.message}"


def _first_finding(schema: str, document: Document) -> str:
    try:
        _validator(schema).validate(document)
    except jsonschema_rs.ValidationError as error:
        return f"{'.'.join(map(str, error.instance_path)) or 'document'}: {error.message}"
    return "no fault found"


def check_consistency(document: Mapping[str, Any]) -> None:
    """Check what a schema cannot express: matching lengths, ids, instants, one row per session and workload.

    Raises:
        RecordRefusedError: On the first contradiction.
    """
    host, sessions = document["host"], document["sessions"]
    _check_instants(host["started_at"], host["ended_at"])
    _check_clocks(host, document["outcome"]["status"])
    _check_unique("session", [s["session"] for s in sessions])
    discarded = sum(_check_session(session, document["cell_id"]) for session in sessions)
    if host.get("telemetry") is not None:
        _check_telemetry(host["telemetry"], f"{document['cell_id']}.{document['attempt']}", discarded)


def _check_clocks(host: Mapping[str, Any], status: str) -> None:
    """Check that locked clocks have values, and that nothing passed unlocked if the policy requires locked clocks."""
    state, policy = host["clock_state"], host["clock_policy"]
    if state == ClockState.LOCKED.value and (policy == ClockPolicy.OBSERVE.value or host.get("clocks") is None):
        raise RecordRefusedError(
            RejectionReason.INCONSISTENT, f"clocks are locked under policy {policy} and nothing says to what"
        )
    required = policy == ClockPolicy.REQUIRE.value
    if required and status == Status.PASSED.value and not clocks_match_policy(state, policy):
        raise RecordRefusedError(
            RejectionReason.INCONSISTENT, f"passed with clocks {state} where the policy requires locked ones"
        )


def _check_session(session: Mapping[str, Any], cell_id: str) -> int:
    """Check one session.

    Returns:
        The number of its discarded samples: single calls and batches.
    """
    where = f"session {session['session']}"
    if session["cell_id"] != cell_id:
        raise RecordRefusedError(RejectionReason.INCONSISTENT, f"{where} is of cell {session['cell_id']}")
    _check_unique(f"{where}: workload", [w["name"] for w in session["workloads"]])
    for probe in session.get("clock_probes", ()):
        _check_ascending(f"{where}: clock probe", (probe["started_ns"], probe["ended_ns"]))
        _check_ascending(f"{where}: clock probe", (probe["low_mhz"], probe["sm_mhz"], probe["high_mhz"]))
    for workload in session["workloads"]:
        for block in workload["blocks"]:
            if fault := _fault_of_block(block):
                block_name = f"{where}, workload {workload['name']}, block {block['index']}"
                raise RecordRefusedError(RejectionReason.INCONSISTENT, f"{block_name}: {fault}")
        for reading in workload.get("energies", ()):
            what = f"{where}, workload {workload['name']}: energy"
            _check_ascending(what, (reading["started_ns"], reading["ended_ns"]))
            _check_ascending(what, (reading["shortest_ns"], reading["longest_ns"]))
    return sum(map(_discarded, session["workloads"]))


def _discarded(workload: Mapping[str, Any]) -> int:
    """Count the samples of a workload that are discarded: single calls and batches."""
    batches = sum(len(block["calls"]) for block in workload.get("batches", ()) if block.get("discarded"))
    return batches + sum(len(block["discarded"]) for block in workload["blocks"])


def _fault_of_block(block: Mapping[str, Any]) -> str | None:
    """Return how ``block`` contradicts itself, or ``None``."""
    calls = len(block["device_ns"])
    if calls != len(block["wall_ns"]):
        return f"{calls} device times and {len(block['wall_ns'])} wall times"
    if block["ended_ns"] < block["started_ns"]:
        return "ended before it started"
    # A rival must be named, because there may be several.
    role, contestant = block["role"], block.get("contestant", "")
    if contestant and role != _ROLES.get(contestant, _RIVAL):
        return f"{contestant} is timed as {role}"
    if not contestant and role == _RIVAL:
        return "nothing says which rival it is of"
    indices = [index for index, _cause in block["discarded"]]
    if max(indices, default=-1) >= calls:
        return f"discards sample {max(indices)} of {calls}"
    return "a discarded sample appears twice" if len(set(indices)) != len(indices) else None


def _check_telemetry(telemetry: Mapping[str, Any], stem: str, discarded: int) -> None:
    """Check the summary against the ``discarded`` timed calls that the blocks count."""
    said = sum(telemetry["discarded"].values())
    if said > discarded:
        raise RecordRefusedError(
            RejectionReason.INCONSISTENT, f"telemetry: {said} calls discarded, {discarded} of them in the blocks"
        )
    for name, spread in telemetry["spread"].items():
        _check_ascending(f"telemetry: spread of {name}", (spread["low"], spread["median"], spread["high"]))
    if telemetry["trace"] is not None and not telemetry["trace"].startswith(f"{stem}."):
        raise RecordRefusedError(
            RejectionReason.INCONSISTENT, f"telemetry: trace {telemetry['trace']} is another record's"
        )


def _check_ascending(what: str, values: Sequence[float]) -> None:
    if list(values) != sorted(values):
        raise RecordRefusedError(RejectionReason.INCONSISTENT, f"{what}: {values} is not in ascending order")


def _check_unique(what: str, values: Sequence[Any]) -> None:
    if len(set(values)) != len(values):
        raise RecordRefusedError(RejectionReason.INCONSISTENT, f"{what} appears twice")


def _check_instants(started_at: str, ended_at: str | None) -> None:
    try:
        parse_instant(started_at)
        if ended_at is not None:
            parse_instant(ended_at)
    except ValueError as error:
        raise RecordRefusedError(RejectionReason.INCONSISTENT, f"started_at or ended_at: {error}") from None


def whole(values: Sequence[int]) -> array[int]:
    """Return ``values`` as 64-bit integers; JSON and its schemas also accept ``3.0`` as an integer."""
    try:
        return array("q", values)
    except TypeError:
        return array("q", map(int, values))


def check_name(path: str | Path, name: str) -> None:
    """Check that the file ``path`` has the ``name`` that belongs to its content.

    Raises:
        RecordRefusedError: It has another name.
    """
    if os.path.basename(path) != name:  # noqa: PTH119  # called once per record: a Path costs more than the check
        raise RecordRefusedError(RejectionReason.MISNAMED, f"holds {name}")
