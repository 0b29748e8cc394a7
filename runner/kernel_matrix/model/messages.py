"""What judge and host tell each other: frozen dataclasses that become strict JSON and come back checked.

Host → judge: :class:`JudgeJob`. Judge → host: :class:`SessionReport`, the inside half of a record. Nothing in here is
ever read from a candidate: what crosses that boundary is in :mod:`kernel_matrix.inside.wire`.
"""

from __future__ import annotations

import json
import types
from collections import abc
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Dict,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from kernel_matrix.model.enums import Dtype, Fault, Implementation, InputMode, Regime, Role, Stage, Status, fault_of
from kernel_matrix.model.fields import (
    LATER,
    CellId,
    Celsius,
    Column,
    Columns,
    Count,
    Difference,
    Digest,
    Fragment,
    Items,
    KeyColumns,
    Measured,
    Name,
    Ordinal,
    Pattern,
    Range,
    Scalar,
    Signed,
    Small,
    Text,
    Words,
)

SCHEMA_VERSION = 1
"""Version of every document this program writes; a reader refuses any other."""

INTERPRETED = "interpreted"
"""Label of a session whose Triton kernels ran through the interpreter: right or wrong can be told, speed cannot."""

CONTESTANTS = ("candidate", *(one.value for one in Implementation))
"""Names of those whose calls are timed."""

SESSION_PHASES = (
    *("import", "wait", "connect", "open", "load", "controls", "verify", "calibrate", "anchor", "warm_up", "time"),
    *("after", "trace", "health", "total"),
)
"""The judge's phases, in the order of a session."""

QUALITIES = ("cosine", "relative_l1", "rmse", "snr_db")
"""Measures of how near a quantised problem's outputs are to the reference's."""

T = TypeVar("T")
Json = Dict[str, Any]


def to_json(value: Any) -> Any:
    """Turn dataclasses, enums, tuples and mappings into what :mod:`json` writes."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def dumps(value: Any) -> str:
    """Strict JSON: no NaN, no infinity.

    :raises ValueError: when a float is not finite.
    """
    return json.dumps(to_json(value), allow_nan=False, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True)
class WorkloadSpec:
    """One shape set: module constants of the problem and the values they take."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    flops: Optional[float] = None
    """Floating point operations of one call; ``None`` where the problem does not say."""
    bytes: Optional[float] = None
    """Bytes one call must move at least; ``None`` where the problem does not say."""


@dataclass(frozen=True)
class ProtocolSpec:
    """How one session verifies and times. Times are in seconds or milliseconds as the name says."""

    trials: int = 5
    """Input sets per mode that verification draws."""
    modes: Tuple[InputMode, ...] = (InputMode.STANDARD, InputMode.OUTLIER, InputMode.EXACT)
    warmup_calls: int = 10
    """Calls before the first timed one; a random number of further ones is added."""
    min_samples: int = 40
    """Timed calls per side at least, budget permitting."""
    max_samples: int = 400
    target_half_width: float = 0.005
    """Stop when the relative half-width of the median's 95 % interval is below this."""
    precision_s: float = 0.5
    """Time for calls beyond ``min_samples``, where the median is not yet as precise as ``target_half_width`` asks."""
    budget_s: float = 20.0
    """Time for the timed calls of one workload, both sides together."""
    block_calls: int = 10
    """Timed calls per block; blocks come in the order A B B A, A drawn at random."""
    inputs: str = "fresh"
    """``fresh``: new for each call, huge ones in part; ``rotating``: one of ``rotation`` sets, at random."""
    rotation: int = 8
    check_share: float = 0.2
    """Share of timed calls, drawn at random, whose outputs are compared with the reference; fewer of slow ones."""
    time: bool = True
    """False: verify only."""
    steady_cap_s: float = 2.0
    """Warm-up goes on until clock and temperature are steady, but for no longer than this; 0 does not look."""
    regimes: Tuple[Regime, ...] = (Regime.COLD,)
    """What is timed; ``cold`` is always among them, and speed-ups are of it."""
    baselines: Tuple[Implementation, ...] = (Implementation.EAGER,)
    """What the candidate is timed against; ``eager`` is always among them."""

    def __post_init__(self) -> None:
        if Regime.COLD not in self.regimes:
            raise ValueError("regimes must hold 'cold'")
        if Implementation.EAGER not in self.baselines:
            raise ValueError("baselines must hold 'eager'")


@dataclass(frozen=True)
class JudgeTimeouts:
    """How long the judge waits for a contestant at most, in seconds; less for what need not take so long."""

    connect_s: float = 60.0
    load_s: float = 120.0
    first_call_s: float = 120.0
    call_s: float = 30.0
    session_s: float = 600.0
    """After this the judge gives up by itself, so that it ends even when its host is gone."""


@dataclass(frozen=True)
class ContestantSpec:
    """One process that takes calls from the judge."""

    name: str
    """``candidate``, or the value of an :class:`.Implementation`; also the folder of its socket."""
    role: Role
    file: str
    """Source, relative to its code folder."""
    entry: str
    """Class to construct."""
    uid: Optional[int] = None
    """Only a peer with this uid is taken; ``None`` takes any (same-uid sandboxes)."""
    compile_mode: str = ""
    """Mode for ``torch.compile``; empty: the model is called as it is."""
    may_compile: bool = False
    """Loading it or its first call may have to compile something, and is waited for accordingly."""
    imports: Tuple[str, ...] = ()
    """Packages that kernels are written in and its source must have, as the host's reading of it found them."""


@dataclass(frozen=True)
class PeakSpec:
    """What the device can do at most in the cell's dtype; ``None`` where it is not known."""

    bytes_per_s: Optional[float] = None
    flops_per_s: Optional[float] = None


@dataclass(frozen=True)
class ContractSpec:
    """What a quantised problem's outputs are held to, in place of a tolerance per element."""

    kind: str
    """``w8a8`` or ``w4a16``."""
    cosine_min: float
    relative_l1_max: float
    rmse_max: float
    """Root mean square error ÷ root mean square of the reference, at most."""
    snr_db_min: float
    snr_db_max: float
    """More than quantised arithmetic can reach: a candidate beyond it has not quantised."""


@dataclass(frozen=True)
class JudgeJob:
    """Everything one judge needs for one session; a file beside the problem's source."""

    cell_id: str
    session: int
    device: str
    """Name of the platform, ``cpu``: which inside half judge and workers load."""
    dtype: Dtype
    seed: str
    """Secret, 32 hex digits; the report holds only its SHA-256."""
    workloads: Tuple[WorkloadSpec, ...]
    protocol: ProtocolSpec
    timeouts: JudgeTimeouts
    contestants: Tuple[ContestantSpec, ...]
    """The candidate, the baseline, and any rivals."""
    problem_file: str = "problem.py"
    """Relative to the job file."""
    tolerance: Mapping[str, float] = field(default_factory=dict)
    """Overrides of ``rtol`` / ``atol`` where the default does not serve."""
    outliers: bool = True
    """False: the problem's inputs must keep their range (probabilities, indices as floats, …)."""
    mutates_inputs: bool = False
    """True: the problem itself writes into its inputs."""
    labels: Tuple[str, ...] = ()
    """What the host knows about the session and readers must know too, e.g. :data:`INTERPRETED`."""
    gpu_uuid: str = ""
    """UUID of the GPU, to read its clock and temperature by while warming up; empty for a CPU."""
    peak: PeakSpec = PeakSpec()
    contract: Optional[ContractSpec] = None
    """``None``: a tolerance per element."""
    random: bool = False
    """True: outputs are random numbers, and judged by their distribution."""
    own_kernels: Tuple[str, ...] = ()
    """Names of the kernels that the candidate's source defines, as the host's reading of it found them."""
    require_own_kernel: bool = False
    """True: a session in which none of them was seen to run is ``no_own_kernel``."""
    check_health: bool = False
    """True: ask the device, once all contestants are gone, whether it is well."""
    sanitize: Tuple[str, ...] = ()
    """Tools of compute-sanitizer that the candidate's process runs under; then nothing is timed."""

    def __post_init__(self) -> None:
        if not self.device.isidentifier():
            raise ValueError(f"device is {self.device!r}, must be the name of a platform")
        if not self.workloads:
            raise ValueError("a job needs at least one workload")
        if len(self.seed) != 32 or any(c not in "0123456789abcdef" for c in self.seed):
            raise ValueError("seed must be 32 lower-case hex digits")
        roles = [contestant.role for contestant in self.contestants]
        if roles.count(Role.CANDIDATE) != 1 or roles.count(Role.BASELINE) != 1:
            raise ValueError("a job needs one candidate and one baseline")


@dataclass(frozen=True)
class Evidence:
    """Why a verdict is what it is. All fields optional; numbers that are not finite are given as text."""

    message: Annotated[Text, Column()] = ""
    """One or two sentences for a person."""
    log: Text = ""
    """The tail of a traceback or compiler output, at most 8 KiB."""
    output: Optional[Count] = None
    """Index of the output concerned."""
    index: Annotated[Tuple[Count, ...], Items(64)] = ()
    """Index of the worst element in that output."""
    expected: Text = ""
    got: Text = ""
    error: Optional[Signed] = None
    """Absolute error of the worst element."""
    allowed: Optional[Signed] = None
    """What the tolerance allows there."""
    mismatched: Optional[Count] = None
    """Elements beyond the tolerance."""
    elements: Optional[Count] = None
    workload: str = ""
    mode: Annotated[str, Words(("", *(mode.value for mode in InputMode)))] = ""
    trial: Optional[Count] = None


@dataclass(frozen=True)
class Trial:
    """One verification call."""

    mode: InputMode
    index: Small
    phase: Annotated[str, Words(("before", "after", "timed"))]
    """``before`` or ``after`` timing, or ``timed`` for a checked timed call."""
    passed: bool
    max_error: Optional[Signed]
    """Largest absolute error over all outputs, ``None`` when it is not finite or nothing could be compared."""
    error_ratio: Optional[Signed]
    """Largest error, or statistic of a random output, as a share of what is allowed (≤ 1 passes)."""


_SAMPLES = ("samples",)
_TIMED_ROLES = (Role.CANDIDATE.value, Role.BASELINE.value, Role.RIVAL.value)


@dataclass(frozen=True)
class Block:
    """A run of timed calls of one side, in the order they were made."""

    role: Annotated[Role, Words(_TIMED_ROLES), Column(tables=_SAMPLES)]
    """Side: `candidate`, `baseline` or `rival`."""
    index: Annotated[Small, Column("block", tables=_SAMPLES)]
    """Position in the session, over both sides."""
    started_ns: Annotated[Count, Column("block_started_ns", tables=_SAMPLES)]
    """Judge's monotonic clock, nanoseconds."""
    ended_ns: Annotated[Count, Column("block_ended_ns", tables=_SAMPLES)]
    """Judge's monotonic clock, nanoseconds."""
    device_ns: Annotated[Tuple[Count, ...], Items(100_000), Column(tables=_SAMPLES, form="item")]
    """Device time of each call as the side's worker claims it, nanoseconds."""
    wall_ns: Annotated[Tuple[Count, ...], Items(100_000), Column(tables=_SAMPLES, form="item")]
    """The judge's own clock around each call, nanoseconds."""
    discarded: Annotated[Tuple[Tuple[Small, Name], ...], Items(100_000)] = ()
    """(sample index, cause) of samples that do not count; judged by the host, from its telemetry."""
    sm_clock_mhz: Annotated[Optional[Measured], LATER, Column(tables=_SAMPLES)] = None
    """Mean SM clock while the block ran, from the host's telemetry; ``None`` where it has none."""
    mem_clock_mhz: Annotated[Optional[Measured], LATER] = None
    power_w: Annotated[Optional[Measured], LATER] = None
    temperature_c: Annotated[Optional[Celsius], LATER] = None
    contestant: Annotated[str, Words(("", *CONTESTANTS)), LATER, Column(tables=_SAMPLES, words=CONTESTANTS)] = ""
    """Whose calls: ``candidate`` or an implementation's name; empty in records from before there were several."""
    regime: Annotated[Regime, LATER, Column(tables=_SAMPLES)] = Regime.COLD
    """State of the device that the calls were timed in."""
    calls_per_sample: Annotated[Ordinal, LATER, Column(tables=_SAMPLES)] = 1
    """Calls behind one sample, whose times are their mean; more than one where calls are replayed."""

    def __post_init__(self) -> None:
        if len(self.device_ns) != len(self.wall_ns):
            raise ValueError("a block needs as many wall times as device times")

    @property
    def kept_ns(self) -> Tuple[int, ...]:
        """Device times of the samples that count, nanoseconds."""
        gone = {index for index, _cause in self.discarded}
        return tuple(time_ns for index, time_ns in enumerate(self.device_ns) if index not in gone)


@dataclass(frozen=True)
class TwoClocks:
    """How far claimed device times were held against the judge's clock and against physics. Nanoseconds."""

    resolution_ns: Annotated[Count, Column("wall_resolution_ns")]
    """The smallest hidden work that would have been noticed, per call."""
    unexplained_ns: Annotated[Difference, Column()]
    """What the candidate's calls took beyond its claims and beyond what the baseline's took beyond its own; negative:
    how much less that is than all others, empty calls included, take beyond theirs."""
    handover_ns: Annotated[Difference, Column()]
    """What handing over the candidate's outputs took beyond what handing over the baseline's took."""
    floor_ns: Annotated[Optional[Count], Column()]
    """The least time that the device's peak rates allow; ``None`` where neither rates nor work are known."""
    floor_reason: Annotated[Text, Column()]
    """``bytes``, ``flops``, ``outputs`` (bytes that must be written at least), or why there is none."""
    low_resolution: Annotated[bool, Column()]
    """True: the candidate's time is too short for the resolution to mean much."""


@dataclass(frozen=True)
class Traits:
    """What was found out about a problem and a candidate beyond right and wrong. ``None``: not looked at."""

    deterministic: Annotated[Optional[bool], Column()] = None
    """Two calls of the candidate on equal inputs gave equal bits."""
    sensitivity: Annotated[Tuple[Measured, ...], Items(1000), Column()] = ()
    """Per floating input: the reference's change when that input is drawn anew, as a share of its spread."""
    exact: Annotated[Optional[bool], Column()] = None
    """Equality was demanded on whole numbers; false: the answer to zeros and ones is not whole."""
    rejects_lower_precision: Annotated[Optional[bool], Column()] = None
    """The same computation one precision lower does not pass, on inputs as drawn or on whole numbers."""
    quality: Annotated[Mapping[Annotated[str, Words(QUALITIES)], Signed], KeyColumns.named("quality_{}", QUALITIES)] = (
        field(default_factory=dict)
    )
    """How near a quantised problem's outputs are to the reference's, at worst."""


@dataclass(frozen=True)
class WorkloadReport:
    """What happened on one workload."""

    name: Annotated[Name, Column("workload")]
    """Name of the shape set."""
    values: Annotated[Mapping[str, Scalar], Column("values_json", form="json")]
    """Constants of the problem, and their values."""
    flops: Annotated[Optional[Measured], Column()]
    """Floating point operations of one call; `None` where the problem does not say."""
    bytes: Annotated[Optional[Measured], Column()]
    """Bytes that one call must move at least; `None` where the problem does not say."""
    status: Annotated[Status, Column("workload_status")]
    """How the workload ended."""
    tolerance: Mapping[str, Signed]
    reference_dtype: Annotated[str, Column()]
    """Precision of the reference that outputs were compared with."""
    trials: Annotated[Tuple[Trial, ...], Items(100_000)]
    blocks: Annotated[Tuple[Block, ...], Items(100_000)]
    warmup_calls: Annotated[Small, Column()]
    """Calls before the first timed one."""
    flush_bytes: Annotated[Count, Column()]
    """Bytes written before each timed call, to empty the cache."""
    inputs: Annotated[str, Words(("fresh", "fresh-in-part", "rotating")), Column()]
    """Whether timed calls had inputs of their own."""
    checked_calls: Annotated[Small, Column()]
    """Calls of the candidate in the timed phase, warm-up included, whose outputs were compared."""
    wall_overhead_ns: Annotated[Optional[Count], Column()]
    """Median of the judge's clock around a call that does nothing, nanoseconds."""
    two_clocks: Annotated[Optional[TwoClocks], LATER, Columns()] = None
    """``None`` where nothing was timed."""
    traits: Annotated[Traits, LATER, Columns()] = Traits()

    def __post_init__(self) -> None:
        if self.status is not Status.PASSED and self.blocks and self.status in UNTIMED:
            raise ValueError(f"{self.status.value} cannot have timed blocks")


UNTIMED = frozenset(
    {
        *(Status.COMPILED, Status.COMPILE_ERROR, Status.LOAD_ERROR, Status.POLICY_VIOLATION),
        *(Status.PROBLEM_ERROR, Status.UNSUPPORTED, Status.IMAGE_ERROR),
    }
)
"""Statuses that end before anything can have been timed."""

ONCE_TIMED = {
    Status.COMPILE_ERROR: Status.RUNTIME_ERROR,
    Status.LOAD_ERROR: Status.RUNTIME_ERROR,
    Status.PROBLEM_ERROR: Status.INVALID_PROBLEM,
    # Not the fault that it had before. Who has run has what it needs: a candidate that lacks a package in a later
    # session of the same image has chosen to, and would else leave the denominators when its time does not please it.
    Status.UNSUPPORTED: Status.RUNTIME_ERROR,
}
"""What an attempt ends as where one of these comes after a timed call: what has run does compile and load."""


@dataclass(frozen=True)
class InsideEnvironment:
    """What was read inside the judge's container. ``None`` where it is absent."""

    python: Annotated[str, Column()]
    """Version of Python."""
    torch: Annotated[Optional[str], Column()]
    """Version of PyTorch."""
    cuda: Annotated[Optional[str], Column()]
    """Version of the CUDA that PyTorch was built with."""
    cudnn: Annotated[Optional[str], Column()]
    """Version of cuDNN."""
    triton: Annotated[Optional[str], Column()]
    """Version of Triton."""
    ptxas: Annotated[Optional[str], Column()]
    """Version of Triton's `ptxas`."""
    nvcc: Annotated[Optional[str], Column()]
    """Version of `nvcc`."""
    cuda_driver: Optional[str]
    """The driver's CUDA version as ``cuDriverGetVersion`` gives it."""
    libcuda: Optional[str]
    """Path of the mapped ``libcuda.so.1``."""
    device_name: str
    compute_capability: Optional[str]
    l2_bytes: Optional[Count]
    platform: str
    libc: str
    threads: Small
    """CPU threads torch uses."""
    settings: Annotated[Mapping[str, str], Column("settings_json", form="json")] = field(default_factory=dict)
    """Environment settings that change results: ``TRITON_DEFAULT_FP_FUSION``, ``TRITON_INTERPRET``, TF32 flags, …"""


@dataclass(frozen=True)
class ClockProbeReading:
    """The SM clock as a kernel of the judge saw it: ticks of ``clock64`` per nanosecond of ``globaltimer``."""

    phase: Annotated[str, Words(("before", "after"))]
    """``before`` or ``after`` the timed calls."""
    started_ns: Count
    """Judge's monotonic clock, nanoseconds."""
    ended_ns: Count
    sm_mhz: Measured
    """Median over the SMs."""
    low_mhz: Measured
    """Slowest SM."""
    high_mhz: Measured
    """Fastest SM."""
    sms: Small
    """How many SMs were read."""


@dataclass(frozen=True)
class AnchorTimes:
    """The judge's own fixed kernels, at either end of a session: what they take tells how the machine has drifted."""

    phase: Annotated[str, Words(("before", "after"))]
    """``before`` or ``after`` the session's timed calls."""
    started_ns: Count
    """Judge's monotonic clock, nanoseconds."""
    compute_ns: Count
    """Median device time of the arithmetic kernel."""
    memory_ns: Count
    """Median device time of the copying kernel."""


@dataclass(frozen=True)
class TracedKernel:
    """A kernel that ran during one call of the candidate, as a tracer in its own process saw it: a claim."""

    name: str
    """Name of the kernel."""
    launches: Count
    """How often it was launched."""
    device_ns: Count
    """Its device time in all launches together, nanoseconds."""
    own: bool
    """Its name is one that the candidate's source defines."""


@dataclass(frozen=True)
class HealthReport:
    """What the judge found when it asked the device whether it is well."""

    passed: Annotated[Optional[bool], Column("device_healthy")]
    """Whether the device is well; ``None``: it could not be asked."""
    reason: Text


@dataclass(frozen=True)
class SessionReport:
    """The inside half of a record for one session: what the judge saw."""

    cell_id: CellId
    session: Annotated[Small, Column()]
    """Number of the session within the attempt, from 0."""
    status: Annotated[Status, Column("session_status")]
    """How the session ended."""
    stage: Annotated[Stage, Column("session_stage")]
    """How far the session came."""
    evidence: Evidence
    environment: Annotated[Optional[InsideEnvironment], Columns()]
    seed_sha256: Annotated[Digest, Column()]
    """Digest of the secret that inputs were drawn with."""
    transport: Annotated[str, Pattern("^[a-z][a-z0-9-]{0,63}$"), Column()]
    """How tensors crossed, as the platform names it: ``memfd``, ``cuda-vmm``, ``cuda-staged``."""
    candidate_peer: Mapping[Annotated[str, Words(("uid", "gid", "pid"))], Annotated[int, Range(-1, 2**63 - 1)]]
    """uid, gid and pid of the candidate's process as the kernel named them to the judge."""
    workloads: Annotated[Tuple[WorkloadReport, ...], Items(1000)]
    durations_s: Annotated[Mapping[Name, Measured], KeyColumns.named("inside_{}_s", SESSION_PHASES)]
    """Seconds in a phase of the session; ``total`` is from the job to the report."""
    labels: Annotated[Tuple[Name, ...], Items(1000), Column()] = ()
    """Findings that do not decide: e.g. ``low_resolution``, ``budget_reached``, ``unsteady``."""
    clock_probes: Annotated[Tuple[ClockProbeReading, ...], Items(1000), LATER] = ()
    """Empty where there is no GPU."""
    anchors: Annotated[Tuple[AnchorTimes, ...], Items(1000), LATER] = ()
    """Empty where there is no GPU."""
    kernels: Annotated[Tuple[TracedKernel, ...], Items(1000), LATER] = ()
    """Longest first; empty where nothing could be traced."""
    health: Annotated[Optional[HealthReport], LATER, Columns()] = None
    """``None``: not asked for, or the session did not come so far."""
    schema_version: Annotated[int, Fragment(const=SCHEMA_VERSION)] = SCHEMA_VERSION

    def __post_init__(self) -> None:
        timed = any(w.blocks for w in self.workloads)
        if self.status is Status.PASSED and not self.workloads:
            raise ValueError("a session cannot pass without a workload")
        if self.status in UNTIMED and timed:
            raise ValueError(f"{self.status.value} cannot have timed samples")

    @property
    def fault(self) -> Fault:
        """Whose fault it is."""
        return fault_of(self.status)


def from_json(kind: Type[T], data: Any) -> T:
    """Build the dataclass ``kind`` from what :func:`to_json` made of it, as its annotations say.

    :raises ValueError: for a missing or unknown key, a wrong enum value or a wrong type, naming the key.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{kind.__name__}: expected an object, got {type(data).__name__}")
    hints = _hints(kind)  # type: ignore[arg-type]  # every class can be hashed
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise ValueError(f"{kind.__name__}: unknown key {unknown[0]!r}")
    values = {name: _restored(value, hints[name]) for name, value in data.items()}
    for name, value in values.items():
        if not _fits(value, hints[name]):
            raise ValueError(f"{kind.__name__}: {name!r} cannot be {value!r:.80}")
    try:
        return kind(**values)
    except TypeError as error:  # a key is missing
        raise ValueError(f"{kind.__name__}: {error}") from None


@lru_cache(maxsize=None)
def _hints(kind: Any) -> Dict[str, Any]:
    return get_type_hints(kind)


_NUMBERS = (int, float)
_UNIONS = (Union, getattr(types, "UnionType", Union))


def _restored(value: Any, hint: Any) -> Any:
    """``value`` with the enums, dataclasses and tuples again that ``hint`` speaks of; all else is left alone."""
    if hint in _NUMBERS:  # most of a report
        return value
    inner = get_args(hint)
    if get_origin(hint) in _UNIONS:
        kinds = [one for one in inner if one is not type(None)]
        return value if value is None or len(kinds) > 1 else _restored(value, kinds[0])
    if get_origin(hint) is tuple and isinstance(value, (list, tuple)):
        hints = _each(inner, value)
        return value if hints is None else tuple(map(_restored, value, hints))
    if get_origin(hint) is abc.Mapping and isinstance(value, Mapping) and inner[1] is not Any:
        return {key: _restored(item, inner[1]) for key, item in value.items()}
    if is_dataclass(hint):
        return value if is_dataclass(value) else from_json(hint, value)  # type: ignore[arg-type]  # a hint is a class
    return hint(value) if isinstance(hint, type) and issubclass(hint, Enum) else value


def _each(inner: Tuple[Any, ...], value: Sequence[Any]) -> Optional[Tuple[Any, ...]]:
    """The hint of each item of ``value``, a tuple annotated with ``inner``; ``None`` where they are not as many."""
    hints = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
    return hints if len(hints) == len(value) else None


def _fits(value: Any, hint: Any) -> bool:
    """Whether a field annotated with ``hint`` can hold ``value``: a whole number fits a float, true fits no number."""
    if hint in _NUMBERS:
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    inner = get_args(hint)
    if hint is Any:
        return True
    if get_origin(hint) in _UNIONS:
        return any(_fits(value, one) for one in inner)
    if get_origin(hint) is tuple:
        hints = _each(inner, value) if isinstance(value, tuple) else None
        return hints is not None and all(map(_fits, value, hints))
    if inner:
        return isinstance(value, Mapping) and all(_fits(pair, Tuple[inner]) for pair in value.items())
    return isinstance(value, hint)
