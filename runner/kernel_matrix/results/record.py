"""The record: one frozen object per attempt at a cell.

``sessions`` comes from inside (the judge), ``host`` only from the host. :mod:`kernel_matrix.attempt` derives the single
outcome from both, so that for example a container killed by the kernel is ``out_of_memory``, whatever the inside said.
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
from kernel_matrix.scan.code_measures import CodeMeasures
from kernel_matrix.sources import Origin

PHASES = ("build", "lease_wait", "start", "inside", "teardown", "overhead", "total")
"""Host phases of an attempt that are columns of the tables."""

FAILS_HELD_OUT = "fails a shape that is held out"
"""All that those who write candidates are told of a failure in a held-out workload, beside status and stage."""

COMPUTE_CAPABILITY = "^([0-9]{1,2}\\.[0-9]|[a-z][a-z0-9]{2,15})$"
"""Version of a device's instruction set: ``9.0``, or a name such as ``gfx942``."""

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
    """Status, stage and fault of the attempt."""

    status: Annotated[Status, Column()]
    """Result of the attempt."""
    stage: Annotated[Stage, Column()]
    """Last stage that the attempt reached."""
    fault: Annotated[Fault, Column()]
    """Party at fault."""
    evidence: Annotated[Evidence, Columns()]

    def __post_init__(self) -> None:
        if self.fault is not fault_of(self.status):
            right = fault_of(self.status)
            raise ValueError(f"{self.status.value} is the fault of {right.value}, not {self.fault.value}")

    @property
    def is_specialised(self) -> bool:
        """True if the candidate passes all workloads that are shown, and fails one that is held out."""
        return bool(self.evidence.held_out) and self.fault is Fault.CANDIDATE


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey:
    """Names and properties of the cell, enough to join tables without the matrix."""

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
    """Status that an example is expected to end with; `None` for other candidates."""
    ranks: Annotated[Small, LATER, Column()] = 1
    """Number of processes that make a call together."""
    held_out: Annotated[tuple[Name, ...], Items(1000), LATER] = ()
    """Workloads that the problem holds out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """The image that the cell ran on, or the Python environment in its place."""

    reference: Annotated[Name, Column()]
    """As written: ``repo:tag@sha256:…`` or ``kernel-matrix/cpu``; the path of an environment."""
    id: Annotated[Name, Column()]
    """The daemon's id: config digest with the overlay2 store, manifest digest with the containerd store.

    For an environment, the digest of its content.
    """
    repo_digest: Annotated[str | None, Column()]
    """Reference by digest in its registry; `None` for a local image."""
    store: Annotated[str, Column()]
    """The daemon's image store (storage driver)."""
    state: Annotated[str, Words(("locked", "declared", "local", "unpinned", "environment")), Column()]
    """Lock state: ``locked``, ``declared``, ``local`` or ``unpinned``; ``environment`` for no image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentInfo:
    """Content of the Python environment that the cell ran in."""

    python: Name
    """Implementation and version."""
    distributions: Mapping[Name, Text]
    """Installed distribution → version."""
    programs: Mapping[Name, Text]
    """Compilers and drivers of the host that results depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitInfo:
    """End of one process of the cell, as the sandbox saw it."""

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
    """Clock settings and the clocks observed under load. Frequencies in MHz."""

    requested: Annotated[Name, Column("clock_requested")]
    """``none``, ``base``, ``max`` or a number of MHz, as the policy says for this GPU."""
    requested_memory: Name
    """``off``, ``max`` or a number of MHz."""
    set_sm_mhz: Annotated[Small | None, Column("clock_set_mhz")]
    """Supported clock that was locked; `None` if nothing was locked or the driver does not name the clock."""
    set_memory_mhz: Small | None
    set_reason: Text
    """Description of the setting, or the reason why nothing was set."""
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
    """Summary of the host's telemetry from the first to the last session; a file beside the record has the trace."""

    samples: Annotated[Small, Column("telemetry_samples")]
    """Number of telemetry samples."""
    interval_s: Measured | None
    """Median time between two samples."""
    longest_gap_s: Measured | None
    spread: Mapping[Name, FieldSpread]
    """Field → its spread over the timed blocks (over all samples, if nothing was timed)."""
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
    """``yes``, or the reason why samples could not be joined to blocks."""
    trace: Annotated[str, Pattern("^[0-9a-f]{32}\\.[1-9][0-9]*\\.json\\.gz$")] | None
    """File name of the trace, in the folder ``traces`` beside ``records``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInfo:
    """State in which the GPU was left. `None`: not checked."""

    processes_gone: bool | None
    memory_back: bool | None
    probe: Annotated[str, Words(("passed", "failed", "not_run")), Column("health_probe")]
    """``passed``, ``failed`` or ``not_run``."""
    reason: Text
    """Explanation of the states above."""
    quarantined: Annotated[bool, Column()]
    """`True`: nothing more runs on this GPU in this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernelInfo:
    """Compiler's figures for one kernel of the candidate, as reported by the builder: a claim."""

    name: str
    """Name of the kernel."""
    arch: Small | None
    """Compute capability × 10; null where it is a name, as on AMD GPUs."""
    registers: Small
    """Registers per thread."""
    spill_store_bytes: Count
    """Bytes of registers written to local memory."""
    spill_load_bytes: Count
    """Bytes of registers read back from local memory."""
    shared_bytes: Count
    """Shared memory of a block (AMD: the LDS of a workgroup) that is known at compile time."""
    stack_bytes: Count
    """Stack frame."""
    sha256: Digest
    """Digest of the machine code; equal digests under two toolchains are a free A/A control."""
    launchable: bool
    """`True` if a device of that architecture can launch it."""
    reason: Text
    """Reason why it cannot be launched on that architecture; empty if it can."""
    compute_capability: Annotated[str | None, Pattern(COMPUTE_CAPABILITY), LATER] = None
    """``9.0``, or a name such as ``gfx942``."""
    scalar_registers: Annotated[Small | None, LATER] = None
    """Registers per warp (AMD: SGPRs of a wavefront); null on devices without."""
    accumulator_registers: Annotated[Small | None, LATER] = None
    """Registers that only matrix instructions use (AMD: AGPRs), part of `registers`; null on devices without."""
    threads: Annotated[Small | None, LATER] = None
    """Threads per block; null if it is not known at compile time."""
    matrix_instructions: Annotated[tuple[Annotated[str, Pattern("^[a-z0-9_]{1,16}$")], ...] | None, Items(8), LATER] = (
        None
    )
    """Families of instructions for matrix products that it uses, such as `mma`, `wgmma`, `mfma`; null if its assembly
    is not known, as with CUDA C++."""
    occupancy: Annotated[Share | None, LATER] = None
    """Share of a multiprocessor's threads that it can occupy at most, limited by registers, shared memory and the size
    of a block; null if one of them is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInfo:
    """Result of building the candidate."""

    seconds: Annotated[Measured, Column("compile_s")]
    """Time that the build took."""
    cached: Annotated[bool, Column("build_cached")]
    """`True`: nothing was compiled, because the cache had an artefact with the same key."""
    key: Annotated[Digest, Column("build_key")]
    """SHA-256 of everything that determines the artefact: source, flags, image, architecture."""
    arch: Annotated[str, Pattern("^([0-9]{1,2}\\.[0-9][af]?|[a-z][a-z0-9]{2,15})?$"), Column("build_arch")]
    """``9.0a`` or ``gfx942``; empty if no architecture was named."""
    artifact_sha256: Annotated[Digest | None, Column()]
    """Digest of the artefact."""
    kernels: Annotated[tuple[CompiledKernelInfo, ...], Items(1000)]
    log_tail: Text
    """The compiler's own output about registers and memory, at most 8 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFinding:
    """A match of a scan rule in the candidate's source; a label with evidence."""

    rule: Name
    """Name of the rule in :mod:`kernel_matrix.scan`."""
    line: Small | None
    message: Text
    evidence: Text
    """The source line, truncated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationInfo:
    """Confinement of the processes of one role."""

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
    """Filter of system calls: `default`, the container runtime's; `own`, kernel-matrix's; or `none`."""
    limits: Annotated[tuple[Name, ...], Items(64)]
    notes: Annotated[tuple[Text, ...], Items(64)]
    """Weaknesses compared with the design, with reasons."""
    memory_limit: Annotated[str, LATER, Column()] = ""
    """What limits the memory of all processes together: `group`, a control group; `watch`, the runner, which sums it at
    intervals; empty if nothing does."""


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
    """Highest rates of the device, and their origin."""

    source: Annotated[str, Words(("table", "calibration", "unknown")), Column("peak_source")]
    """Origin of the peak rates: `table`, `calibration` or `unknown`."""
    reference: Text
    bytes_per_s: Annotated[Rate | None, Column("peak_bytes_per_s")]
    """Highest memory bandwidth of the device."""
    flops_per_s: Mapping[Name, Rate | None]
    """Dtype → highest rate of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInfo:
    """The weakest of the links between the devices of a group."""

    kind: Annotated[Name, Column()]
    """Kind of the link between the ranks' devices, in the platform's own word, such as `pcie`."""
    lanes: Annotated[Small | None, Column()] = None
    """Number of lanes of the link; `None` if the driver does not say."""
    bytes_per_s: Annotated[Rate | None, Column()] = None
    """Highest bandwidth of the link in one direction, by the driver, else by the data sheet; `None` if neither says."""
    peer: Annotated[bool | None, Column()] = None
    """`True`: a device can access the memory of the other one; `None` if the driver does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRecord:
    """Data that only the host can know; nothing in here comes from inside a container."""

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
    """Sandbox that confined the cell's processes: `docker`, `unpacked` or `process`."""
    engine_version: Annotated[str, Column(tables=_HOSTS)]
    """Version of the sandbox."""
    engine_details: Mapping[str, Detail]
    image: Annotated[ImageInfo | None, Columns("image_")]
    device: Annotated[Mapping[str, Any], JsonOf(DeviceInfo, partial=True, open=True), Columns()]
    """The device as its driver's library names it; a mapping, because other keys are kept too."""
    device_before: Mapping[str, Scalar]
    """Clocks, power, temperature and used memory at the start of the lease; null values where not supported."""
    device_after: Mapping[str, Scalar]
    exclusive: Annotated[str, Words(("proven", "unproven", "not_applicable")), Column()]
    """``proven``, ``unproven`` or ``not_applicable``."""
    foreign_pids: Annotated[Pids, Column(form="count")]
    """Number of foreign processes on the device."""
    clock_policy: Annotated[str, Words(tuple(policy.value for policy in ClockPolicy)), Column()]
    """Clock policy of the matrix."""
    clock_state: Annotated[str, Words(tuple(state.value for state in ClockState)), Column()]
    """``locked``, ``unlocked``, ``throttled`` or ``not_applicable``."""
    clock_reason: Annotated[Text, Column()]
    """Reason for the state of the clocks."""
    isolation: Annotated[
        Mapping[Annotated[str, Words(_ROLES)], Annotated[Mapping[str, Any], JsonOf(IsolationInfo)]],
        Columns("isolation_", key="candidate"),
    ]
    """Role → its confinement."""
    exits: Annotated[tuple[ExitInfo, ...], Items(100_000)]
    """Ends of the attempt's processes, without those that stay for another cell."""
    phases_s: Annotated[Mapping[Name, Signed], KeyColumns.named("{}_s", PHASES)]
    """Seconds by phase; ``overhead`` includes ``probe`` and ``aftermath``."""
    started_at: Annotated[Instant, Column(form="instant")]
    """Start of the attempt."""
    ended_at: Annotated[Instant, Column(form="instant")]
    """End of the attempt."""
    warnings: Annotated[tuple[Text, ...], Items(100_000), Column()] = ()
    """Warnings of the lease."""
    device_details: Annotated[Mapping[str, Detail], LATER] = field(default_factory=dict)
    """Bus, VBIOS, ECC, MIG, power limits …: name → value, null if unknown; ``missing`` gives the reasons."""
    peak: Annotated[Mapping[str, Any], JsonOf(PeakInfo, partial=True), LATER, Columns()] = field(default_factory=dict)
    """Highest rates of the device; empty if they were not looked up."""
    exclusive_reason: Annotated[Text, LATER, Column()] = ""
    """Evidence for `exclusive`."""
    clocks: Annotated[ClocksInfo | None, LATER, Columns()] = None
    """`None` for a CPU, and if the device was never held."""
    telemetry: Annotated[TelemetrySummary | None, LATER, Columns()] = None
    health: Annotated[HealthInfo | None, LATER, Columns()] = None
    build: Annotated[BuildInfo | None, LATER, Columns()] = None
    """`None` if nothing was built ahead of time."""
    findings: Annotated[tuple[SourceFinding, ...], Items(1000), LATER] = ()
    code: Annotated[CodeMeasures | None, LATER, Columns("code_")] = None
    """Measures of the candidate's source; `None` if it could not be read."""
    environment: Annotated[EnvironmentInfo | None, LATER] = None
    """`None` for an image, and for a toolchain that names no environment."""
    devices: Annotated[
        tuple[Annotated[Mapping[str, Any], JsonOf(DeviceInfo, partial=True, open=True)], ...], Items(64), LATER
    ] = ()
    """Devices of a group, in the order of ranks; empty for a single device. `device` has all their UUIDs in one."""
    link: Annotated[LinkInfo | None, LATER, Columns("link_")] = None
    """`None` for a single device, and if the driver does not say how devices are linked."""
    platform_proven: Annotated[bool, LATER, Column()] = True
    """`True`: the code of the device's platform was shown to work on real devices. The first records have no
    value: they are of platforms that were."""


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

    @property
    def shown_evidence(self) -> Evidence:
        """Evidence for those who write candidates, from which nothing of a held-out workload can be learned."""
        if self.outcome.is_specialised:
            return Evidence(message=FAILS_HELD_OUT)
        # Of a judge that left no report it is not known how far it came, and the log may be the candidate's.
        if self.outcome.evidence.held_out or (self.cell.held_out and self.outcome.fault is Fault.INFRA):
            return Evidence(message="not the candidate's fault; the record says more")
        return self.outcome.evidence


def record_to_json(record: Record) -> dict[str, Any]:
    """Return the record as the JSON object of its file."""
    document: dict[str, Any] = to_json(record)
    return document


def record_from_json(document: Mapping[str, Any]) -> Record:
    """Return the record from the JSON object of its file.

    Raises:
        ValueError: A key is missing or unknown, an enum value is wrong, or the values contradict each other.
    """
    for key, holder in (("sessions", document), ("expect", document.get("cell")), ("warnings", document.get("host"))):
        # The classes have defaults for these keys, but every record file has them.
        if isinstance(holder, Mapping) and key not in holder:
            raise ValueError(f"Record: missing key {key!r}")
    return from_json(Record, document)
