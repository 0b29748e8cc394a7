"""The record: one frozen object per attempt at a cell, its two halves kept apart.

``sessions`` is what the inside (the judge) says; ``host`` is what only the host can know. :mod:`kernel_matrix.attempt`
derives
the one outcome from both, so that a container killed by the kernel counts as what it was, whatever the inside said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from kernel_matrix.model.enums import (
    ClockPolicy,
    ClockState,
    Dtype,
    Fault,
    Language,
    Role,
    Stage,
    Status,
    Tier,
    fault_of,
)
from kernel_matrix.model.fields import (
    LATER,
    CellId,
    Column,
    Columns,
    Count,
    Digest,
    Fragment,
    Instant,
    Items,
    JsonOf,
    KeyColumns,
    Measured,
    Name,
    Ordinal,
    Pattern,
    Range,
    Rate,
    RunId,
    Scalar,
    Share,
    Signed,
    Small,
    Text,
    Words,
)
from kernel_matrix.model.messages import SCHEMA_VERSION, UNTIMED, Evidence, SessionReport, from_json, to_json
from kernel_matrix.platforms import EventReason
from kernel_matrix.sources import Origin

PHASES = ("build", "lease_wait", "start", "inside", "teardown", "overhead", "total")
"""The host's phases of an attempt that tables have."""

_HOSTS = ("cells", "hosts")
_SCALAR_SCHEMA = {"type": ["string", "number", "boolean", "null"], "maxLength": 65536}
_SCALARS_SCHEMA = {"type": "array", "maxItems": 100_000, "items": _SCALAR_SCHEMA}
Detail = Annotated[
    Any,
    Fragment(
        anyOf=[
            _SCALAR_SCHEMA,
            _SCALARS_SCHEMA,
            {
                "type": "object",
                "propertyNames": {"type": "string", "minLength": 1, "maxLength": 1024},
                "additionalProperties": {"anyOf": [_SCALAR_SCHEMA, _SCALARS_SCHEMA]},
            },
        ]
    ),
]
"""A value, or a list or mapping of values, of bounded depth."""
_ROLES = tuple(role.value for role in Role)
_EVENT_REASONS = tuple(reason.value for reason in EventReason)
Pids = Annotated[tuple[Count, ...], Items(100_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the attempt ended."""

    status: Annotated[Status, Column()]
    """How the attempt ended."""
    stage: Annotated[Stage, Column()]
    """How far it came."""
    fault: Annotated[Fault, Column()]
    """Whose fault it is."""
    evidence: Annotated[Evidence, Columns()]

    def __post_init__(self) -> None:
        if self.fault is not fault_of(self.status):
            right = fault_of(self.status)
            raise ValueError(f"{self.status.value} is the fault of {right.value}, not {self.fault.value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey:
    """Which cell it was, in words: enough to join tables without the matrix at hand."""

    gpu: Annotated[Name, Column()]
    """GPU, by its name in the matrix."""
    toolchain: Annotated[Name, Column()]
    """Toolchain, by its name in the matrix."""
    dtype: Annotated[Dtype, Column()]
    """Dtype of the problem's tensors."""
    problem: Annotated[Name, Column()]
    """Id of the problem."""
    problem_sha256: Annotated[Digest, Column()]
    """Digest of the problem's source and metadata."""
    category: Annotated[str, Column()]
    """Category of the problem."""
    level: Annotated[Small | None, Column()]
    """Level of the problem, in suites that have levels."""
    source: Annotated[str, Column()]
    """Format that the problem was read from."""
    candidate: Annotated[Name, Column()]
    """Id of the candidate."""
    candidate_sha256: Annotated[Digest, Column()]
    """Digest of the candidate's source, language and entry."""
    language: Annotated[Language, Column()]
    """Language of the candidate."""
    tier: Annotated[Tier, Column()]
    """Effort of the measurement."""
    workloads: Annotated[tuple[Name, ...], Items(1000)]
    origin: Annotated[Mapping[str, Any], JsonOf(Origin, partial=True), Columns("origin_", every=True)] = field(
        default_factory=dict
    )
    """The candidate's origin, only the fields that are known."""
    expect: Annotated[Status | None, Column()] = None
    """Status that an example is meant to end with; `None` for other candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """What image ran."""

    reference: Annotated[Name, Column()]
    """As written: ``repo:tag@sha256:…`` or ``kernel-matrix/cpu``."""
    id: Annotated[Name, Column()]
    """What the daemon calls it; config digest with the overlay2 store, manifest digest with the containerd one."""
    repo_digest: Annotated[str | None, Column()]
    """Reference by digest in its registry; `None` for a local image."""
    store: Annotated[str, Column()]
    """The daemon's image store (storage driver)."""
    state: Annotated[str, Words(("locked", "declared", "local", "unpinned")), Column()]
    """Lock state: ``locked``, ``declared``, ``local`` or ``unpinned``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitInfo:
    """How one process of the cell ended, as the sandbox saw it."""

    role: Role
    session: Small
    code: Annotated[int | None, Range(-(2**31), 2**32 - 1)]
    signal: Annotated[int | None, Range(0, 255)]
    oom_killed: bool
    lost: bool
    killed: bool
    log_tail: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ClocksInfo:
    """What was done about the clocks, and what they then were under load. Frequencies in MHz."""

    requested: Annotated[Name, Column("clock_requested")]
    """``none``, ``base``, ``max`` or a number of MHz, as the policy says for this GPU."""
    requested_memory: Name
    """``off``, ``max`` or a number of MHz."""
    set_sm_mhz: Annotated[Small | None, Column("clock_set_mhz")]
    """What the request was snapped to and locked; ``None``: nothing, or a clock the driver does not name."""
    set_memory_mhz: Small | None
    set_reason: Text
    """What was set, or why nothing was, in words."""
    driver_sm_mhz: Annotated[Measured | None, Column("clock_driver_mhz")]
    """Median over the timed blocks by the driver's telemetry."""
    kernel_sm_mhz: Annotated[Measured | None, Column("clock_kernel_mhz")]
    """From inside a kernel under load: ticks of ``clock64`` per nanosecond of ``globaltimer``."""
    reset: Annotated[str, Words(("not_needed", "confirmed", "unconfirmed", "failed")), Column("clock_reset")]
    """``not_needed``, ``confirmed`` (read back), ``unconfirmed`` (no reading could tell) or ``failed``."""
    reset_reason: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpread:
    """Lowest, median and highest of a telemetry field."""

    low: Signed
    median: Signed
    high: Signed


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySummary:
    """What the host's telemetry saw from the first to the last session. The whole of it is in the trace beside."""

    samples: Annotated[Small, Column("telemetry_samples")]
    """How often the telemetry read the device."""
    interval_s: Measured | None
    """Median time between two samples."""
    longest_gap_s: Measured | None
    spread: Mapping[Name, FieldSpread]
    """Field → its spread over the timed blocks (over everything, where nothing was timed)."""
    energy_j: Annotated[Measured | None, Column()]
    """Energy of all sessions, joules."""
    reasons: Mapping[Annotated[str, Words(_EVENT_REASONS)], Share]
    """Clock event reason → share of the samples that showed it."""
    reason_s: Mapping[Annotated[str, Words(_EVENT_REASONS)], Measured]
    """Clock event reason → seconds that the driver counted under it."""
    own_pids: Pids
    """Processes of this cell that the driver listed."""
    discarded: Mapping[Name, Small]
    """Cause → timed calls that do not count because of it."""
    joined: Annotated[Text, Column("telemetry_joined")]
    """``yes``, or why samples could not be joined to blocks."""
    trace: Annotated[str, Pattern("^[0-9a-f]{32}\\.[1-9][0-9]*\\.json\\.gz$")] | None
    """File name of the trace, in the folder ``traces`` beside ``records``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInfo:
    """How the GPU was left. ``None``: not looked at."""

    processes_gone: bool | None
    memory_back: bool | None
    probe: Annotated[str, Words(("passed", "failed", "not_run")), Column("health_probe")]
    """``passed``, ``failed`` or ``not_run``."""
    reason: Text
    """In words."""
    quarantined: Annotated[bool, Column()]
    """True: nothing more runs on this GPU in this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernelInfo:
    """What a compiler made of one kernel of the candidate, as the builder says: a claim."""

    name: str
    """Name of the kernel."""
    arch: Small
    """Compute capability × 10."""
    registers: Small
    """Registers per thread."""
    spill_store_bytes: Count
    """Bytes of registers written to local memory."""
    spill_load_bytes: Count
    """Bytes of registers read back from local memory."""
    shared_bytes: Count
    """Static shared memory."""
    stack_bytes: Count
    """Stack frame."""
    sha256: Digest
    """Of the machine code: equal digests under two toolchains are a free A/A control."""
    launchable: bool
    """Whether a device of that architecture can launch it."""
    reason: Text
    """Why it could not be launched on that architecture, in words; empty where it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInfo:
    """What building the candidate came to."""

    seconds: Annotated[Measured, Column("compile_s")]
    """Time that the build took."""
    cached: Annotated[bool, Column("build_cached")]
    """True: nothing was compiled, an artefact of equal content was at hand."""
    key: Annotated[Digest, Column("build_key")]
    """SHA-256 of what determines the artefact: source, flags, image, architecture."""
    arch: Annotated[str, Pattern("^([0-9]{1,2}\\.[0-9][af]?)?$"), Column("build_arch")]
    """``9.0a``; empty where no architecture was named."""
    artifact_sha256: Annotated[Digest | None, Column()]
    """Digest of the artefact."""
    kernels: Annotated[tuple[CompiledKernelInfo, ...], Items(1000)]
    log_tail: Text
    """The compiler's own words about registers and memory, at most 8 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFinding:
    """Something in the candidate's source that a reader would want to know; a label with evidence."""

    rule: Name
    """Name of the rule in :mod:`kernel_matrix.scan`."""
    line: Small | None
    message: Text
    evidence: Text
    """The source line, cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationInfo:
    """How confined a role was."""

    engine: str
    user: Annotated[str, Column()]
    """`own`: another uid than judge and runner; `shared`: the same one."""
    network: Annotated[str, Column()]
    """`none`: no interface but loopback; `host`: the host's network."""
    filesystem: Annotated[str, Column()]
    """`read-only`: only a private tmpfs can be written; `shared`: the host's files."""
    processes: Annotated[str, Column()]
    """`private`: own PID namespace; `shared`."""
    capabilities: Annotated[str, Column()]
    """`none` or `some`."""
    seccomp: Annotated[str, Column()]
    """`default` or `none`."""
    limits: Annotated[tuple[Name, ...], Items(64)]
    notes: Annotated[tuple[Text, ...], Items(64)]
    """What is weaker than designed, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """The device as its driver's library names it."""

    vendor: str
    uuid: Annotated[str, Column("gpu_uuid", tables=_HOSTS)]
    """UUID of the device."""
    name: Annotated[str, Column("gpu_name", tables=_HOSTS)]
    """Product name of the device."""
    index: Small
    minor: Count | None
    compute_capability: Annotated[str | None, Column(tables=_HOSTS)]
    """Compute capability; `None` for a CPU."""
    memory_bytes: Annotated[Count, Column(tables=_HOSTS)]
    """Memory of the device."""
    driver: Annotated[str | None, Column(tables=_HOSTS)]
    """Version of the kernel driver."""
    cuda_driver: Annotated[str | None, Column(tables=_HOSTS)]
    """Newest CUDA that the driver runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakInfo:
    """The highest rates of the device, and where they are from."""

    source: Annotated[str, Words(("table", "calibration", "unknown")), Column("peak_source")]
    """Where the peak rates are from: `table`, `calibration` or `unknown`."""
    reference: Text
    bytes_per_s: Annotated[Rate | None, Column("peak_bytes_per_s")]
    """Highest memory bandwidth of the device."""
    flops_per_s: Mapping[Name, Rate | None]
    """Dtype → highest rate of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRecord:
    """What only the host can know. Nothing in here comes from inside a container."""

    hostname: Annotated[str, Column(tables=_HOSTS)]
    """Name of the host."""
    machine: Annotated[str, Column(tables=("hosts",))]
    """SHA-256 prefix of the machine id."""
    platform: Annotated[str, Column(tables=("hosts",))]
    """Kernel, architecture and distribution."""
    cpu: Annotated[str, Column(tables=("hosts",))]
    """Model name of the CPU."""
    cores: Annotated[Small, Column(tables=("hosts",))]
    """Logical CPUs that the program could use."""
    version: Annotated[str, Column()]
    """kernel-matrix version."""
    measurement_version: Annotated[Digest, Column()]
    """Hash of the code that determines a measurement; see :mod:`kernel_matrix.hosts.code_versions`."""
    engine: Annotated[Name, Column(tables=_HOSTS)]
    """What confined the cell's processes: `docker` or `process`."""
    engine_version: Annotated[str, Column(tables=_HOSTS)]
    """Version of the sandbox."""
    engine_details: Mapping[str, Detail]
    image: Annotated[ImageInfo | None, Columns("image_")]
    device: Annotated[Mapping[str, Any], JsonOf(DeviceInfo, partial=True, open=True), Columns()]
    """The device as its driver's library names it; a mapping, since other keys are kept too."""
    device_before: Mapping[str, Scalar]
    """Clocks, power, temperature, used memory when the lease began; null values where not supported."""
    device_after: Mapping[str, Scalar]
    exclusive: Annotated[str, Words(("proven", "unproven", "not_applicable")), Column()]
    """``proven``, ``unproven`` or ``not_applicable``."""
    foreign_pids: Annotated[Pids, Column(form="count")]
    """How many processes of others were on the device."""
    clock_policy: Annotated[str, Words(tuple(policy.value for policy in ClockPolicy)), Column()]
    """What the matrix wants done about the clocks."""
    clock_state: Annotated[str, Words(tuple(state.value for state in ClockState)), Column()]
    """``locked``, ``unlocked``, ``throttled`` or ``not_applicable``."""
    clock_reason: Annotated[Text, Column()]
    """Why the clocks were in that state."""
    isolation: Annotated[
        Mapping[Annotated[str, Words(_ROLES)], Annotated[Mapping[str, Any], JsonOf(IsolationInfo)]],
        Columns("isolation_", key="candidate"),
    ]
    """Role → how confined it was."""
    exits: Annotated[tuple[ExitInfo, ...], Items(100_000)]
    phases_s: Annotated[Mapping[Name, Signed], KeyColumns.named("{}_s", PHASES)]
    """Seconds: ``build``, ``lease_wait``, ``start``, ``inside``, ``teardown``, ``probe``, ``aftermath``, ``overhead``,
    ``total``. The probe and what follows it are part of the overhead."""
    started_at: Annotated[Instant, Column(form="instant")]
    """Start of the attempt."""
    ended_at: Annotated[Instant, Column(form="instant")]
    """End of the attempt."""
    warnings: Annotated[tuple[Text, ...], Items(100_000), Column()] = ()
    """Warnings of the lease."""
    device_details: Annotated[Mapping[str, Detail], LATER] = field(default_factory=dict)
    """Bus, VBIOS, ECC, MIG, power limits …: name → value, ``None`` where the driver is silent; ``missing`` says why."""
    peak: Annotated[Mapping[str, Any], JsonOf(PeakInfo, partial=True), LATER, Columns()] = field(default_factory=dict)
    """The highest rates of the device; empty where they were not looked up."""
    exclusive_reason: Annotated[Text, LATER, Column()] = ""
    """What :attr:`exclusive` rests on, in words."""
    clocks: Annotated[ClocksInfo | None, LATER, Columns()] = None
    """``None`` for a CPU, and where the device was never held."""
    telemetry: Annotated[TelemetrySummary | None, LATER, Columns()] = None
    health: Annotated[HealthInfo | None, LATER, Columns()] = None
    build: Annotated[BuildInfo | None, LATER, Columns()] = None
    """``None`` where nothing was built ahead."""
    findings: Annotated[tuple[SourceFinding, ...], Items(1000), LATER] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One attempt at one cell: one JSON file, valid against ``schemas/record.schema.json``."""

    run_id: Annotated[RunId, Column()]
    """Run that made the record."""
    cell_id: Annotated[CellId, Column()]
    """Cell; see [cell ids](plan.md#cell-ids)."""
    attempt: Annotated[Ordinal, Column()]
    """Number of the attempt at the cell, from 1."""
    cell: CellKey
    outcome: Outcome
    host: HostRecord
    sessions: Annotated[tuple[SessionReport, ...], Items(1000)] = ()
    schema_version: Annotated[int, Fragment(const=SCHEMA_VERSION)] = SCHEMA_VERSION

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
