"""The record: one frozen object per attempt at a cell, its two halves kept apart.

``sessions`` is what the inside (the judge) says; ``host`` is what only the host can know. :mod:`kernel_matrix.attempt`
derives
the one outcome from both, so that a container killed by the kernel counts as what it was, whatever the inside said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_matrix.model.enums import Dtype, Fault, Language, Role, Stage, Status, Tier, fault_of
from kernel_matrix.model.messages import SCHEMA_VERSION, UNTIMED, Evidence, SessionReport, from_json, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the attempt ended."""

    status: Status
    stage: Stage
    fault: Fault
    evidence: Evidence

    def __post_init__(self) -> None:
        if self.fault is not fault_of(self.status):
            right = fault_of(self.status)
            raise ValueError(f"{self.status.value} is the fault of {right.value}, not {self.fault.value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey:
    """Which cell it was, in words: enough to join tables without the matrix at hand."""

    gpu: str
    """Axis name, not the product name."""
    toolchain: str
    dtype: Dtype
    problem: str
    problem_sha256: str
    category: str
    level: int | None
    source: str
    candidate: str
    candidate_sha256: str
    language: Language
    tier: Tier
    workloads: tuple[str, ...]
    origin: Mapping[str, Any] = field(default_factory=dict)
    """The candidate's origin, only the fields that are known."""
    expect: Status | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """What image ran."""

    reference: str
    """As written: ``repo:tag@sha256:…`` or ``kernel-matrix/cpu``."""
    id: str
    """What the daemon calls it; config digest with the overlay2 store, manifest digest with the containerd one."""
    repo_digest: str | None
    store: str
    """The daemon's image store (storage driver)."""
    state: str
    """Lock state: ``locked``, ``declared``, ``local`` or ``unpinned``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitInfo:
    """How one process of the cell ended, as the engine saw it."""

    role: Role
    session: int
    code: int | None
    signal: int | None
    oom_killed: bool
    lost: bool
    killed: bool
    log_tail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClocksInfo:
    """What was done about the clocks, and what they then were under load. Frequencies in MHz."""

    requested: str
    """``none``, ``base``, ``max`` or a number of MHz, as the policy says for this GPU."""
    requested_memory: str
    """``off``, ``max`` or a number of MHz."""
    set_sm_mhz: int | None
    """What the request was snapped to and locked; null: nothing was, or a symbolic clock the driver does not name."""
    set_memory_mhz: int | None
    set_reason: str
    """What was set, or why nothing was, in words."""
    driver_sm_mhz: float | None
    """Median over the timed blocks by the driver's telemetry."""
    kernel_sm_mhz: float | None
    """From inside a kernel under load: ticks of ``clock64`` per nanosecond of ``globaltimer``."""
    reset: str
    """``not_needed``, ``confirmed`` (read back), ``unconfirmed`` (no reading could tell) or ``failed``."""
    reset_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpread:
    """Lowest, median and highest of a telemetry field."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySummary:
    """What the host's telemetry saw from the first to the last session. The whole of it is in the trace beside."""

    samples: int
    interval_s: float | None
    """Median time between two samples."""
    longest_gap_s: float | None
    spread: Mapping[str, FieldSpread]
    """Field → its spread over the timed blocks (over everything, where nothing was timed)."""
    energy_j: float | None
    """Over all sessions."""
    reasons: Mapping[str, float]
    """Clock event reason → share of the samples that showed it."""
    reason_s: Mapping[str, float]
    """Clock event reason → seconds that the driver counted under it."""
    own_pids: tuple[int, ...]
    """Processes of this cell that the driver listed."""
    discarded: Mapping[str, int]
    """Cause → timed calls that do not count because of it."""
    joined: str
    """``yes``, or why samples could not be joined to blocks."""
    trace: str | None
    """File name of the trace, in the folder ``traces`` beside ``records``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInfo:
    """How the GPU was left. Null: not looked at."""

    processes_gone: bool | None
    memory_back: bool | None
    probe: str
    """``passed``, ``failed`` or ``not_run``."""
    reason: str
    """In words."""
    quarantined: bool
    """True: nothing more runs on this GPU in this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernelInfo:
    """What a compiler made of one kernel of the candidate, as the builder says: a claim."""

    name: str
    arch: int
    """Compute capability × 10."""
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    stack_bytes: int
    sha256: str
    """Of the machine code: equal digests under two toolchains are a free A/A control."""
    launchable: bool
    reason: str
    """Why it could not be launched on that architecture, in words; empty where it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInfo:
    """What building the candidate came to."""

    seconds: float
    cached: bool
    """True: nothing was compiled, an artefact of equal content was at hand."""
    key: str
    """SHA-256 of what determines the artefact: source, flags, image, architecture."""
    arch: str
    """``9.0a``; empty where no architecture was named."""
    artifact_sha256: str | None
    kernels: tuple[CompiledKernelInfo, ...]
    log_tail: str
    """The compiler's own words about registers and memory, at most 8 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFinding:
    """Something in the candidate's source that a reader would want to know; a label with evidence."""

    rule: str
    """Name of the rule in :mod:`kernel_matrix.scan`."""
    line: int | None
    message: str
    evidence: str
    """The source line, cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRecord:
    """What only the host can know. Nothing in here comes from inside a container."""

    hostname: str
    machine: str
    """SHA-256 prefix of the machine id."""
    platform: str
    cpu: str
    cores: int
    version: str
    """kernel-matrix version."""
    measurement_version: str
    """Hash of the code that determines a measurement; see :mod:`kernel_matrix.hosts.code_versions`."""
    engine: str
    engine_version: str
    engine_details: Mapping[str, Any]
    image: ImageInfo | None
    device: Mapping[str, Any]
    """The GPU as the driver's library names it: uuid, name, compute_capability, memory_bytes, driver, cuda_driver."""
    device_before: Mapping[str, Any]
    """Clocks, power, temperature, used memory when the lease began; null values where not supported."""
    device_after: Mapping[str, Any]
    exclusive: str
    """``proven``, ``unproven`` or ``not_applicable``."""
    foreign_pids: tuple[int, ...]
    clock_policy: str
    clock_state: str
    """``locked``, ``unlocked``, ``throttled`` or ``not_applicable``."""
    clock_reason: str
    isolation: Mapping[str, Mapping[str, Any]]
    """Role → how confined it was."""
    exits: tuple[ExitInfo, ...]
    phases_s: Mapping[str, float]
    """Seconds: ``build``, ``lease_wait``, ``start``, ``inside``, ``teardown``, ``probe``, ``aftermath``, ``overhead``,
    ``total``. The probe and what follows it are part of the overhead."""
    started_at: str
    """UTC, RFC 3339."""
    ended_at: str
    warnings: tuple[str, ...] = ()
    device_details: Mapping[str, Any] = field(default_factory=dict)
    """Bus, VBIOS, ECC, MIG, power limits …: name → value, null where the driver does not say; ``missing`` says why."""
    peak: Mapping[str, Any] = field(default_factory=dict)
    """``source`` (``table``, ``calibration``, ``unknown``), ``reference``, ``bytes_per_s`` and ``flops_per_s``."""
    exclusive_reason: str = ""
    """What :attr:`exclusive` rests on, in words."""
    clocks: ClocksInfo | None = None
    """Null for a CPU, and where the device was never held."""
    telemetry: TelemetrySummary | None = None
    health: HealthInfo | None = None
    build: BuildInfo | None = None
    """Null where nothing was built ahead."""
    findings: tuple[SourceFinding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One attempt at one cell: one JSON file, valid against ``schemas/record.schema.json``."""

    run_id: str
    cell_id: str
    attempt: int
    cell: CellKey
    outcome: Outcome
    host: HostRecord
    sessions: tuple[SessionReport, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        timed = any(b.device_ns for s in self.sessions for w in s.workloads for b in w.blocks)
        if self.outcome.status is Status.PASSED and not timed:
            raise ValueError("a record cannot say passed without timed samples")
        if self.outcome.status in UNTIMED and timed:
            raise ValueError(f"a record that says {self.outcome.status.value} cannot hold timed samples")

    @property
    def stem(self) -> str:
        """File name without ending: ``<cell id>.<attempt>``."""
        return f"{self.cell_id}.{self.attempt}"


def record_to_json(record: Record) -> dict[str, Any]:
    """The record as the object that its file holds."""
    document: dict[str, Any] = to_json(record)
    return document


def record_from_json(document: Mapping[str, Any]) -> Record:
    """The record that :func:`record_to_json` made ``document`` of.

    :raises ValueError: for a missing or unknown key, a wrong enum value, or a record that cannot be.
    """
    for key, holder in (("sessions", document), ("expect", document.get("cell")), ("warnings", document.get("host"))):
        # Every record has had them, though the classes have defaults for them.
        if isinstance(holder, Mapping) and key not in holder:
            raise ValueError(f"Record: missing key {key!r}")
    return from_json(Record, document)
