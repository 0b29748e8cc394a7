"""Messages between judge and host: frozen dataclasses that are written as strict JSON and checked when read.

Host → judge: :class:`JudgeJob`. Judge → host: :class:`SessionReport`, the inside half of a record. None of them is ever
read from a candidate; messages that cross that boundary are in :mod:`kernel_matrix.inside.wire`.
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

from kernel_matrix.model.enums import (
    CollectiveKind,
    Dtype,
    Fault,
    Implementation,
    InputMode,
    Regime,
    Role,
    Stage,
    Status,
    fault_of,
)
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
    Positive,
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
"""Label of a session whose Triton kernels ran through the interpreter: correctness is known, speed is not."""

DEVICE_STAYS_BUSY = "the device stays busy in the turns of others"
"""Start of the judge's message if it does. Where processes cannot be seen, the work may be another tenant's."""

CONTESTANTS = ("candidate", *(one.value for one in Implementation))
"""Names of the contestants, whose calls are timed."""

SESSION_PHASES = (
    *("import", "wait", "connect", "open", "load", "controls", "verify", "calibrate", "anchor", "warm_up", "time"),
    *("after", "trace", "health", "total"),
)
"""The judge's phases, in the order of a session."""

QUALITIES = ("cosine", "relative_l1", "rmse", "snr_db")
"""Similarity measures between a quantised problem's outputs and the reference's."""

T = TypeVar("T")
Json = Dict[str, Any]


def to_json(value: Any) -> Any:
    """Convert dataclasses, enums, tuples and mappings to values that :mod:`json` can write."""
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
    """Return ``value`` as strict JSON: no NaN, no infinity.

    Raises:
        ValueError: A float is not finite.
    """
    return json.dumps(to_json(value), allow_nan=False, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True)
class CollectiveSize:
    """Kind and size of the collective between the ranks of a call."""

    kind: Annotated[CollectiveKind, Column()]
    """Kind of the collective between the ranks of a call."""
    bytes: Annotated[Measured, Column()]
    """Its size as nccl-tests define it: see [bus bandwidth](problems.md#bus-bandwidth)."""


@dataclass(frozen=True)
class WorkloadSpec:
    """One shape set: module constants of the problem and the values they take."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    flops: Optional[float] = None
    """Floating point operations of one call; ``None`` if the problem does not give them."""
    bytes: Optional[float] = None
    """Bytes one call must move at least; ``None`` if the problem does not give them."""
    held_out: bool = False
    """``True``: it comes after the workloads that candidates are shown, and is verified only."""
    collective: Optional[CollectiveSize] = None
    """``None`` if the problem does not give it."""


@dataclass(frozen=True)
class ProtocolSpec:
    """Verification and timing of one session. Names give the unit of times: seconds or milliseconds."""

    trials: int = 5
    """Input sets per mode that verification draws."""
    modes: Tuple[InputMode, ...] = (InputMode.STANDARD, InputMode.OUTLIER, InputMode.EXACT)
    warmup_calls: int = 10
    """Calls before the first timed one; a random number of further calls is added."""
    min_samples: int = 40
    """Least number of timed calls per side, if the budget allows; a quarter of costly calls with precise medians."""
    max_samples: int = 400
    target_half_width: float = 0.005
    """Stop when the relative half-width of the median's 95 % interval is below this."""
    precision_s: float = 0.5
    """Time for calls beyond ``min_samples`` until the median is as precise as ``target_half_width``."""
    budget_s: float = 20.0
    """Time for the timed calls of one workload, both sides together."""
    block_calls: int = 10
    """Timed calls per block; blocks come in the order A B B A, A drawn at random."""
    inputs: str = "fresh"
    """``fresh``: new for each call, very large ones in part; ``rotating``: one of ``rotation`` sets, at random."""
    rotation: int = 8
    check_share: float = 0.2
    """Share of timed calls, drawn at random, whose outputs are compared with the reference; fewer of slow ones."""
    time: bool = True
    """``False``: verify only."""
    steady_cap_s: float = 2.0
    """Longest warm-up until clock and temperature are steady; 0 does not check them."""
    regimes: Tuple[Regime, ...] = (Regime.COLD,)
    """Regimes to time; always includes ``cold``, from which speed-ups are computed."""
    baselines: Tuple[Implementation, ...] = (Implementation.EAGER,)
    """Implementations to compare with; always includes ``eager``."""

    def __post_init__(self) -> None:
        if Regime.COLD not in self.regimes:
            raise ValueError("regimes must include 'cold'")
        if Implementation.EAGER not in self.baselines:
            raise ValueError("baselines must include 'eager'")


@dataclass(frozen=True)
class JudgeTimeouts:
    """Longest waits of the judge for a contestant, in seconds; shorter limits apply where less is needed."""

    connect_s: float = 60.0
    load_s: float = 120.0
    first_call_s: float = 120.0
    call_s: float = 30.0
    session_s: float = 600.0
    """Limit after which the judge ends by itself, even if its host is gone."""


@dataclass(frozen=True)
class ContestantSpec:
    """One process that receives calls from the judge."""

    name: str
    """``candidate``, or the value of an :class:`.Implementation`; also the folder of its socket."""
    role: Role
    file: str
    """Source, relative to its code folder."""
    entry: str
    """Name of the class to construct."""
    uid: Optional[int] = None
    """Only a peer with this uid is accepted; ``None`` accepts any (sandboxes with one uid)."""
    compile_mode: str = ""
    """Mode for ``torch.compile``; empty: the model is called as written."""
    may_compile: bool = False
    """``True``: loading it or its first call may compile, so the longer limit applies."""
    imports: Tuple[str, ...] = ()
    """Packages its kernels are written in, as the host found in its source; they must be importable."""


CLOCK_ROOM = 1.2
"""Arithmetic may be this much faster than at the boost clock: in bf16 an RTX 5090 reaches 1.14 times its rate."""


@dataclass(frozen=True)
class PeakSpec:
    """Rates of the device in the cell's dtype, as its data sheet gives them; ``None`` if unknown."""

    bytes_per_s: Optional[float] = None
    flops_per_s: Optional[float] = None
    """At the boost clock, which boards exceed by up to :data:`CLOCK_ROOM`."""


@dataclass(frozen=True)
class ContractSpec:
    """Contract for a quantised problem's outputs, which replaces the tolerance per element."""

    kind: str
    """``w8a8`` or ``w4a16``."""
    cosine_min: float
    relative_l1_max: float
    rmse_max: float
    """Greatest ratio of root mean square error to root mean square of the reference."""
    snr_db_min: float
    snr_db_max: float
    """Greatest SNR of quantised arithmetic: a candidate above it has not quantised."""


@dataclass(frozen=True)
class JudgeJob:
    """Job of one judge for one session; a file beside the problem's source."""

    cell_id: str
    session: int
    device: str
    """Name of the platform, for example ``cpu``; judge and workers load its inside half."""
    dtype: Dtype
    seed: str
    """Secret, 32 hex digits; the report holds only its SHA-256."""
    workloads: Tuple[WorkloadSpec, ...]
    protocol: ProtocolSpec
    timeouts: JudgeTimeouts
    contestants: Tuple[ContestantSpec, ...]
    """The candidate, the baseline, and any rivals."""
    problem_file: str = "problem.py"
    """Path of the problem's source, relative to the job file."""
    tolerance: Mapping[str, float] = field(default_factory=dict)
    """Overrides of ``rtol`` / ``atol`` for problems that the default does not suit."""
    outliers: bool = True
    """``False``: the problem's inputs must keep their range (probabilities, indices as floats, …)."""
    mutates_inputs: bool = False
    """``True``: the problem itself writes into its inputs."""
    ranks: int = 1
    """Number of processes that make a call together; each contestant has so many."""
    labels: Tuple[str, ...] = ()
    """Labels from the host that readers of the results need, e.g. :data:`INTERPRETED`."""
    gpu_uuid: str = ""
    """UUID of the GPU whose clock and temperature are read while warming up; empty for a CPU."""
    peak: PeakSpec = PeakSpec()
    contract: Optional[ContractSpec] = None
    """``None``: a tolerance per element applies."""
    random: bool = False
    """``True``: outputs are random numbers and are judged by their distribution."""
    own_kernels: Tuple[str, ...] = ()
    """Names of the kernels that the candidate's source defines, as the host found them."""
    require_own_kernel: bool = False
    """``True``: a session in which none of them was traced is ``no_own_kernel``."""
    check_health: bool = False
    """``True``: check the device's health after all contestants have ended."""
    sanitize: Tuple[str, ...] = ()
    """Tools of compute-sanitizer for the candidate's process; if any, nothing is timed."""
    device_memory_bytes: Optional[int] = None
    """Device memory that the cell may use; ``None``: all of it."""
    number: int = 0
    """Number of the candidate among those of this judge, by which its folder and the report are named."""
    keep: bool = False
    """``True``: after the report, the judge, the baseline and rivals wait for the candidate of another cell."""

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
    """Evidence for a verdict. All fields are optional; numbers that are not finite are given as text."""

    message: Annotated[Text, Column()] = ""
    """One or two sentences for a person."""
    log: Text = ""
    """Tail of a traceback or compiler output, at most 8 KiB."""
    output: Optional[Count] = None
    """Index of the output concerned."""
    index: Annotated[Tuple[Count, ...], Items(64)] = ()
    """Index of the worst element in that output."""
    expected: Text = ""
    got: Text = ""
    error: Optional[Signed] = None
    """Absolute error of the worst element."""
    allowed: Optional[Signed] = None
    """Greatest absolute error that the tolerance allows there."""
    mismatched: Optional[Count] = None
    """Elements beyond the tolerance."""
    elements: Optional[Count] = None
    workload: str = ""
    mode: Annotated[str, Words(("", *(mode.value for mode in InputMode)))] = ""
    trial: Optional[Count] = None
    held_out: Annotated[Optional[bool], LATER] = None
    """``True``: it ended in a workload that is held out, so those who write candidates are told nothing of this."""
    rank: Annotated[Optional[Count], LATER] = None
    """Rank that the output is of, if several ranks make a call together."""


@dataclass(frozen=True)
class Trial:
    """One verification call."""

    mode: InputMode
    index: Small
    phase: Annotated[str, Words(("before", "after", "timed"))]
    """``before`` or ``after`` timing, or ``timed`` for a checked timed call."""
    passed: bool
    max_error: Optional[Signed]
    """Largest absolute error over all outputs; `None` if it is not finite or nothing could be compared."""
    error_ratio: Optional[Signed]
    """Largest error, or statistic of a random output, as a share of the limit (≤ 1 passes)."""


_SAMPLES = ("samples",)
_TIMED_ROLES = (Role.CANDIDATE.value, Role.BASELINE.value, Role.RIVAL.value)


@dataclass(frozen=True)
class Block:
    """A run of timed calls of one side, in order."""

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
    """Mean SM clock while the block ran, from the host's telemetry; `None` without telemetry."""
    mem_clock_mhz: Annotated[Optional[Measured], LATER] = None
    power_w: Annotated[Optional[Measured], LATER] = None
    temperature_c: Annotated[Optional[Celsius], LATER] = None
    contestant: Annotated[str, Words(("", *CONTESTANTS)), LATER, Column(tables=_SAMPLES, words=CONTESTANTS)] = ""
    """`candidate` or an implementation's name; empty in records from before there were several baselines."""
    regime: Annotated[Regime, LATER, Column(tables=_SAMPLES)] = Regime.COLD
    """State of the device that the calls were timed in."""
    calls_per_sample: Annotated[Ordinal, LATER, Column(tables=_SAMPLES)] = 1
    """Number of calls whose mean is one sample; more than one where calls are replayed."""

    def __post_init__(self) -> None:
        if len(self.device_ns) != len(self.wall_ns):
            raise ValueError("a block needs as many wall times as device times")

    @property
    def kept_ns(self) -> Tuple[int, ...]:
        """Device times of the samples that count, nanoseconds."""
        gone = {index for index, _cause in self.discarded}
        return tuple(time_ns for index, time_ns in enumerate(self.device_ns) if index not in gone)


@dataclass(frozen=True)
class BatchBlock:
    """Batches of one contestant in a row.

    A batch is a number of calls back to back, each on inputs that its process sees for the first time.
    """

    contestant: Annotated[str, Words(CONTESTANTS), Column(tables=("batches",), words=CONTESTANTS)]
    """`candidate` or an implementation's name."""
    started_ns: Annotated[Count, Column("block_started_ns", tables=("batches",))]
    """Judge's monotonic clock, nanoseconds."""
    ended_ns: Annotated[Count, Column("block_ended_ns", tables=("batches",))]
    """Judge's monotonic clock, nanoseconds."""
    captured: Annotated[bool, Column(tables=("batches",))]
    """The calls were replayed from graphs."""
    short: Annotated[bool, Column(tables=("batches",))]
    """Of few calls, by the baseline: they show what a batch takes besides its calls."""
    calls: Annotated[Tuple[Count, ...], Items(1000), Column(tables=("batches",), form="item")]
    """Number of calls of each batch."""
    delivered_ns: Annotated[Tuple[Count, ...], Items(1000), Column(tables=("batches",), form="item")]
    """The judge's clock from the first byte of the inputs of each batch until its worker says that the calls begin."""
    least_ns: Annotated[Tuple[Count, ...], Items(1000), Column(tables=("batches",), form="item")]
    """The part of `delivered_ns` in which no call can run: the judge writes inputs, and the device switches to the
    worker, which says how long that took. Only the baseline's counts."""
    wall_ns: Annotated[Tuple[Count, ...], Items(1000), Column(tables=("batches",), form="item")]
    """The judge's clock from then until all calls have ended, per batch."""
    handover_ns: Annotated[Tuple[Count, ...], Items(1000), Column(tables=("batches",), form="item")]
    """The judge's clock from then until it has taken all outputs, per batch."""
    in_place: Annotated[bool, LATER, Column(tables=("batches",))] = False
    """The calls wrote their outputs into the judge's memory, which takes them when the calls end."""
    discarded: Annotated[Optional[Name], LATER, Column(tables=("batches",))] = None
    """Cause for which the block does not count; judged by the host, from its telemetry."""
    sm_clock_mhz: Annotated[Optional[Measured], LATER, Column(tables=("batches",))] = None
    """Mean SM clock while the block ran, from the host's telemetry; `None` without telemetry."""

    def __post_init__(self) -> None:
        times = (self.delivered_ns, self.least_ns, self.wall_ns, self.handover_ns)
        if any(len(kind) != len(self.calls) for kind in times):
            raise ValueError("a block of batches needs as many times of each kind as batches")


@dataclass(frozen=True)
class EnergyReading:
    """Energy of the device while calls of one contestant were replayed back to back, by the driver's counter."""

    contestant: Annotated[str, Words(CONTESTANTS)]
    """`candidate` or an implementation's name."""
    calls: Ordinal
    """Calls that were asked for. Whether all of them were made is known as little as for other replayed calls."""
    started_ns: Count
    """Judge's monotonic clock when they began, nanoseconds."""
    ended_ns: Count
    """Judge's monotonic clock when the last one had ended."""
    energy_mj: Count
    """Millijoules between the first and the last change of the counter during these calls."""
    shortest_ns: Positive
    """Least time that can have passed between these two changes."""
    longest_ns: Positive
    """Most time that can have passed between them."""
    discarded: Annotated[Optional[Name], LATER] = None
    """Cause for which the reading does not count; judged by the host, from its telemetry."""


@dataclass(frozen=True)
class TwoClocks:
    """Comparison of claimed device times with the judge's clock and with the device's limits, in nanoseconds."""

    resolution_ns: Annotated[Count, Column("wall_resolution_ns")]
    """The smallest hidden work per call that would have been noticed."""
    unexplained_ns: Annotated[Difference, Column()]
    """Judge's time of the candidate's calls minus their claimed time, less the same difference of the baseline's calls;
    negative where the candidate's calls leave less unexplained.
    """
    handover_ns: Annotated[Difference, Column()]
    """Time to hand over the candidate's outputs, less the time to hand over the baseline's."""
    floor_ns: Annotated[Optional[Count], Column()]
    """The least time that the device's peak rates allow; `None` if rates or work are unknown."""
    floor_reason: Annotated[Text, Column()]
    """``bytes``, ``flops``, ``outputs`` (bytes that must be written at least), or the reason why there is none."""
    low_resolution: Annotated[bool, Column()]
    """`True`: the candidate's time is too short compared with the resolution."""
    bound_ns: Annotated[Optional[Count], LATER, Column("wall_bound_ns")] = None
    """The longest that the candidate's calls can have taken by the judge's clock alone; `None` on a GPU where calls
    write to their inputs. `faster` needs this to beat the baseline too.
    """


@dataclass(frozen=True)
class Traits:
    """Further findings about a problem and a candidate. `None`: not checked."""

    deterministic: Annotated[Optional[bool], Column()] = None
    """Two calls of the candidate on equal inputs gave equal bits."""
    sensitivity: Annotated[Tuple[Measured, ...], Items(1000), Column()] = ()
    """Per floating input: change of the reference when that input is drawn anew, as a share of its spread."""
    exact: Annotated[Optional[bool], Column()] = None
    """Equality was required on whole numbers; `False`: the result for zeros and ones is not whole."""
    rejects_lower_precision: Annotated[Optional[bool], Column()] = None
    """The same computation one precision lower fails, on inputs as drawn or on whole numbers."""
    quality: Annotated[Mapping[Annotated[str, Words(QUALITIES)], Signed], KeyColumns.named("quality_{}", QUALITIES)] = (
        field(default_factory=dict)
    )
    """Worst similarity of a quantised problem's outputs to the reference's."""


@dataclass(frozen=True)
class WorkloadReport:
    """Result of one workload in one session."""

    name: Annotated[Name, Column("workload")]
    """Name of the shape set."""
    values: Annotated[Mapping[str, Scalar], Column("values_json", form="json")]
    """Constants of the problem, with their values."""
    flops: Annotated[Optional[Measured], Column()]
    """Floating point operations of one call; `None` if the problem does not give them."""
    bytes: Annotated[Optional[Measured], Column()]
    """Bytes that one call must move at least; `None` if the problem does not give them."""
    status: Annotated[Status, Column("workload_status")]
    """Result of the workload."""
    tolerance: Mapping[str, Signed]
    reference_dtype: Annotated[str, Column()]
    """Precision of the reference for comparisons."""
    trials: Annotated[Tuple[Trial, ...], Items(100_000)]
    blocks: Annotated[Tuple[Block, ...], Items(100_000)]
    warmup_calls: Annotated[Small, Column()]
    """Calls before the first timed one."""
    flush_bytes: Annotated[Count, Column()]
    """Bytes written before each timed call, to empty the cache."""
    inputs: Annotated[str, Words(("fresh", "fresh-in-part", "rotating")), Column()]
    """Inputs of timed calls: `fresh` or `fresh-in-part` for each call, or `rotating` sets."""
    checked_calls: Annotated[Small, Column()]
    """Calls of the candidate in the timed phase, including warm-up, whose outputs were compared."""
    wall_overhead_ns: Annotated[Optional[Count], Column()]
    """What a call takes beyond the claimed time by the judge's clock, median of the baseline's, nanoseconds."""
    two_clocks: Annotated[Optional[TwoClocks], LATER, Columns()] = None
    """`None` if nothing was timed."""
    traits: Annotated[Traits, LATER, Columns()] = Traits()
    batches: Annotated[Tuple[BatchBlock, ...], Items(1000), LATER] = ()
    """Batches of calls, from which speed-ups are computed where there are any."""
    energies: Annotated[Tuple[EnergyReading, ...], Items(1000), LATER] = ()
    """Empty unless `sustained` calls were timed on a device whose energy is counted in steps that are fine enough."""
    memory_bytes: Annotated[
        Mapping[Annotated[str, Words(CONTESTANTS)], Count],
        LATER,
        KeyColumns({"candidate": "candidate_memory_bytes", "eager": "baseline_memory_bytes"}),
    ] = field(default_factory=dict)
    """Most device memory that this contestant took before timing, beyond its parameters, inputs and outputs, by the
    driver's count; absent on a device without memory of its own.
    """
    needed_memory_bytes: Annotated[Optional[Count], LATER, Column()] = None
    """Least device memory with which the reference can be its own candidate: 2 GiB, the inputs, and the largest of
    three: the inputs again, the outputs twice, and parameters with what a call takes; `None` on a device without memory
    of its own, and where the baseline did not get so far.
    """
    reference_pieces: Annotated[Ordinal, LATER, Column()] = 1
    """In how many pieces, along the first dimension, the reference computed what it compares with; 1: in one call."""
    claimed_memory_bytes: Annotated[Mapping[Annotated[str, Words(CONTESTANTS)], Count], LATER] = field(
        default_factory=dict
    )
    """Most device memory that the contestant's allocator had in use beyond what it keeps, with outputs: a claim."""
    labels: Annotated[Tuple[Name, ...], Items(1000), LATER] = ()
    """Remarks on this workload that do not decide the status, e.g. ``low_resolution``, ``precision_blind``."""
    held_out: Annotated[bool, LATER, Column()] = False
    """`True`: those who write candidates are told nothing of this workload, and it was verified only."""
    collective: Annotated[Optional[CollectiveSize], LATER, Columns("collective_")] = None
    """`None` for one rank, and if the problem does not give it."""

    def __post_init__(self) -> None:
        if self.status is not Status.PASSED and self.blocks and self.status in UNTIMED:
            raise ValueError(f"{self.status.value} cannot have timed blocks")


UNTIMED = frozenset(
    {
        *(Status.VERIFIED, Status.COMPILED, Status.COMPILE_ERROR, Status.LOAD_ERROR, Status.POLICY_VIOLATION),
        *(Status.PROBLEM_ERROR, Status.UNSUPPORTED, Status.IMAGE_ERROR),
    }
)
"""Statuses that end before anything is timed."""

ONCE_TIMED = {
    Status.COMPILE_ERROR: Status.RUNTIME_ERROR,
    Status.LOAD_ERROR: Status.RUNTIME_ERROR,
    Status.PROBLEM_ERROR: Status.INVALID_PROBLEM,
    # The fault changes too: code that has run once has everything it needs. A candidate that reports a missing package
    # in a later session of the same image does so on purpose, and would otherwise leave the denominators whenever its
    # time is bad.
    Status.UNSUPPORTED: Status.RUNTIME_ERROR,
}
"""Replacement for statuses that come after a timed call: a candidate that has run does compile and load."""


@dataclass(frozen=True)
class InsideEnvironment:
    """Versions and settings read inside the judge's container. `None` if absent."""

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
    """CUDA version of the driver, from ``cuDriverGetVersion``."""
    libcuda: Optional[str]
    """Path of the mapped ``libcuda.so.1``."""
    device_name: str
    compute_capability: Optional[str]
    l2_bytes: Optional[Count]
    platform: str
    libc: str
    threads: Small
    """Number of CPU threads of torch."""
    settings: Annotated[Mapping[str, str], Column("settings_json", form="json")] = field(default_factory=dict)
    """Environment settings that change results: ``TRITON_DEFAULT_FP_FUSION``, ``TRITON_INTERPRET``, TF32 flags, …"""


@dataclass(frozen=True)
class ClockProbeReading:
    """Core clock measured by a kernel of the judge: cycles per nanosecond of a timer of the device."""

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
    """Number of SMs that were read."""


@dataclass(frozen=True)
class AnchorTimes:
    """Times of the judge's own fixed kernels at one end of a session; their change is the machine's drift."""

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
    """A kernel that ran during one call of the candidate, according to a tracer in its own process: a claim."""

    name: str
    """Name of the kernel."""
    launches: Count
    """Number of launches."""
    device_ns: Count
    """Device time of all its launches together, nanoseconds."""
    own: bool
    """`True` if the candidate's source defines a kernel of this name."""


@dataclass(frozen=True)
class HealthReport:
    """Result of the judge's health check of the device."""

    passed: Annotated[Optional[bool], Column("device_healthy")]
    """`True` if the device is healthy; `None` if it could not be checked."""
    reason: Text


@dataclass(frozen=True)
class SessionReport:
    """The inside half of a record for one session: the judge's observations."""

    cell_id: CellId
    session: Annotated[Small, Column()]
    """Number of the session within the attempt, from 0."""
    status: Annotated[Status, Column("session_status")]
    """Result of the session."""
    stage: Annotated[Stage, Column("session_stage")]
    """Last stage that the session reached."""
    evidence: Evidence
    environment: Annotated[Optional[InsideEnvironment], Columns()]
    seed_sha256: Annotated[Digest, Column()]
    """Digest of the secret seed of the inputs."""
    transport: Annotated[str, Pattern("^[a-z][a-z0-9-]{0,63}$"), Column()]
    """Transport of tensors, named by the platform: ``memfd``, ``cuda-vmm``, ``rocm-staged`` …"""
    candidate_peer: Mapping[Annotated[str, Words(("uid", "gid", "pid"))], Annotated[int, Range(-1, 2**63 - 1)]]
    """uid, gid and pid of the candidate's process, as reported by the kernel."""
    workloads: Annotated[Tuple[WorkloadReport, ...], Items(1000)]
    durations_s: Annotated[Mapping[Name, Measured], KeyColumns.named("inside_{}_s", SESSION_PHASES)]
    """Seconds in each phase of the session; ``total`` is from the job to the report."""
    labels: Annotated[Tuple[Name, ...], Items(1000), Column()] = ()
    """Remarks that do not decide the status, e.g. ``interpreted``, ``no_trace``; in tables also those of the workload,
    e.g. ``low_resolution``.
    """
    clock_probes: Annotated[Tuple[ClockProbeReading, ...], Items(1000), LATER] = ()
    """Empty without a GPU."""
    anchors: Annotated[Tuple[AnchorTimes, ...], Items(1000), LATER] = ()
    """Empty without a GPU."""
    kernels: Annotated[Tuple[TracedKernel, ...], Items(1000), LATER] = ()
    """Longest first; empty if nothing could be traced."""
    launches: Annotated[
        Mapping[Annotated[str, Words(CONTESTANTS)], Count],
        LATER,
        KeyColumns({name: f"{name.replace('-', '_')}_launches" for name in CONTESTANTS if name != "candidate"}),
    ] = field(default_factory=dict)
    """Kernels that one call of this baseline launched; absent unless the candidate's were traced, too."""
    health: Annotated[Optional[HealthReport], LATER, Columns()] = None
    """`None`: not requested, or the session ended earlier."""
    earlier_cells: Annotated[Small, LATER, Column()] = 0
    """Number of cells that the same processes of judge, baseline and rivals served before."""
    schema_version: Annotated[int, Fragment(const=SCHEMA_VERSION)] = SCHEMA_VERSION

    def __post_init__(self) -> None:
        timed = any(w.blocks for w in self.workloads)
        if self.status is Status.PASSED and not self.workloads:
            raise ValueError("a session cannot pass without a workload")
        if self.status in UNTIMED and timed:
            raise ValueError(f"{self.status.value} cannot have timed samples")

    @property
    def fault(self) -> Fault:
        """Party at fault."""
        return fault_of(self.status)


def from_json(kind: Type[T], data: Any) -> T:
    """Return the dataclass ``kind`` from its JSON form, checked against its annotations.

    Raises:
        ValueError: A key is missing or unknown, an enum value or a type is wrong; the message names the key.
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
    """Return ``value`` with the enums, dataclasses and tuples that ``hint`` asks for; other values are unchanged."""
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
    """Return the hint of each item of ``value``, a tuple annotated with ``inner``; ``None`` if the lengths differ."""
    hints = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
    return hints if len(hints) == len(value) else None


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a field annotated with ``hint`` can hold ``value``; integers fit floats, booleans do not."""
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
