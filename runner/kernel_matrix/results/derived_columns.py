"""Columns of tables that are computed and not stored in records.

Each class describes the columns that one function fills; most of these are in :mod:`kernel_matrix.results.rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from kernel_matrix.measure.roofline import COMPUTE, LINK, MEMORY
from kernel_matrix.model.enums import Grade, Implementation, Regime, Verdict, VerdictReason
from kernel_matrix.model.fields import Column, Count, Instant, KeyColumns, Small

RIVALS: Final = {one.value.replace("-", "_"): one.value for one in Implementation if one is not Implementation.EAGER}
"""Name of a further baseline in the columns of ``cells`` → its name in records. ``eager`` is *the* baseline."""

REGIMES: Final = tuple(regime.value for regime in Regime if regime is not Regime.COLD)
"""Regimes that have their own median columns in ``cells``; all other times there are cold."""

_SIDES: Final = ("candidate", "baseline")

BUILT: Final = "built"
TRACED: Final = "traced"

Number = Annotated[int, Column(form="unsigned")]


def _per_rival(name: str) -> KeyColumns:
    return KeyColumns.named(name, tuple(RIVALS))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordNumber:
    """The first column of most tables."""

    record: Number
    """Number of the record within the tables of one merge; joins the tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """Columns that join a row to ``cells``."""

    session: Small | None
    """Number of the session within the attempt, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionColumns:
    """Columns of ``cells`` about a session."""

    anchor_compute_ns: float | None
    """Time of the judge's own arithmetic kernel, mean of before and after the timed calls."""
    anchor_memory_ns: float | None
    """Time of the judge's own copying kernel, mean of before and after."""
    anchor_drift: float | None
    """Relative difference of the two ends of the session by these kernels."""
    kernels_seen: Small | None
    """Different kernels that a tracer saw during one call of the candidate."""
    launches_per_call: Count | None
    """Kernels that the candidate launched during that call, each launch counted; by a tracer in its own process."""
    own_kernel_share: float | None
    """Share of the traced time (of launches, where nothing was timed) in the candidate's own kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadColumns:
    """Columns of ``cells`` about a workload in one session."""

    trials: Small | None
    """Verification calls."""
    trials_passed: Small | None
    """Verification calls that passed."""
    worst_error_ratio: float | None
    """Largest error as a share of what the tolerance allows; at most 1 passes."""
    candidate_samples: Small | None
    """Timed samples of the candidate that count."""
    baseline_samples: Small | None
    """Timed samples of `eager` that count."""
    discarded_samples: Small | None
    """Timed samples of all sides that do not count."""
    discarded_throttled: Small | None
    """Of these, samples during which the GPU slowed down."""
    discarded_contended: Small | None
    """Of these, samples during which another process was on the GPU."""
    candidate_median_ns: float | None
    """Median time of a call of the candidate: in batches by the judge's clock if both sides have any, else claimed.
    Null in a session that was timed otherwise than most sessions of its record."""
    baseline_median_ns: float | None
    """Median time of a call of `eager`, likewise."""
    candidate_claimed_ns: float | None
    """Median device time of single calls, as the candidate's process claims it."""
    baseline_claimed_ns: float | None
    """Median device time of single calls of `eager`."""
    candidate_wall_median_ns: float | None
    """Median time of the candidate by the judge's own clock."""
    baseline_wall_median_ns: float | None
    """Median time of `eager` by the judge's own clock."""
    rival_medians: Annotated[Mapping[str, float], _per_rival("{}_median_ns")]
    """Median time of a call of this further baseline, as of the candidate."""
    regime_medians: Annotated[
        Mapping[str, float],
        KeyColumns(
            {f"{one}, {side}": f"{one}_{side}_median_ns" for one in REGIMES for side in ("candidate", "baseline")}
        ),
    ]
    """Median device time in this regime, of this side."""
    candidate_batch_ns: float | None
    """Time of a call of the candidate in batches, by the judge's own clock alone."""
    baseline_batch_ns: float | None
    """Time of a call of `eager` in batches, by the judge's own clock alone."""
    candidate_joules_per_call: float | None
    """Energy of a call of the candidate in a `sustained` replay, the board's idle power included; the number of calls
    is as much a claim as their time."""
    candidate_joules_low: float | None
    """Least energy that the counter's steps allow, mean of this session's readings."""
    candidate_joules_high: float | None
    """Most energy that they allow."""
    baseline_joules_per_call: float | None
    """Energy of a call of `eager`, likewise."""
    flops_per_joule: float | None
    """Floating point operations of a call ÷ `candidate_joules_per_call`: rate per watt."""
    energy_ratio: float | None
    """`baseline_joules_per_call` ÷ `candidate_joules_per_call`: above 1, the candidate takes less energy."""
    speedup_limit: float | None
    """The largest speed-up over `eager` that the judge's own clock allows: in batches, else by `wall_bound_ns`."""
    spread_within: float | None
    """Spread of the candidate's times in this session, relative, from quartiles."""
    baseline_spread_within: float | None
    """Spread of `eager`'s times in this session, likewise."""
    speedup: float | None
    """Median of `eager` ÷ median of the candidate; of claimed times at most `speedup_limit`; `None` unless the workload
    passed, and for interpreted kernels.
    """
    session_verdict: Verdict | None
    """Result of the comparison with `eager` by this session alone; `verdict` is that of all sessions."""
    session_verdict_reason: VerdictReason | None
    """Reason of `session_verdict`; see [verdicts](#verdicts)."""
    rival_speedups: Annotated[Mapping[str, float], _per_rival("speedup_over_{}")]
    """Median of this further baseline ÷ median of the candidate."""
    flops_per_s: float | None
    """Achieved rate."""
    bytes_per_s: float | None
    """Achieved bandwidth."""
    flops_share_of_peak: float | None
    """Achieved rate ÷ `peak_flops_per_s`."""
    bytes_share_of_peak: float | None
    """Achieved bandwidth ÷ `peak_bytes_per_s`."""
    share_of_peak: float | None
    """The larger of `flops_share_of_peak` and `bytes_share_of_peak`."""
    intensity: float | None
    """FLOPs per byte."""
    bound: Annotated[str | None, Column(words=(COMPUTE, MEMORY, LINK))]
    """The limit of the workload: `compute` or `memory` at this intensity; `link` where `link_share_of_peak` is the
    largest of the three shares."""
    algorithm_bytes_per_s: float | None
    """Algorithm bandwidth: `collective_bytes` ÷ time of a call."""
    bus_bytes_per_s: float | None
    """Bus bandwidth: `algorithm_bytes_per_s` × the factor for `collective_kind` and `ranks`; see
    [bus bandwidth](problems.md#bus-bandwidth)."""
    link_share_of_peak: float | None
    """`bus_bytes_per_s` ÷ `link_bytes_per_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptColumns:
    """Columns of ``cells`` with one value per workload for all sessions of an attempt."""

    specialised: bool | None
    """`True`: passed all workloads that candidates are shown, and failed a held-out one; `None`: there is none."""
    verdict: Verdict | None
    """Result of the comparison with `eager` over all sessions."""
    verdict_reason: VerdictReason | None
    """Reason of the verdict; see [verdicts](#verdicts)."""
    verdict_figure: float | None
    """The number that decided, as the reason says."""
    verdict_chance: float | None
    """Probability of a difference this large between equal implementations."""
    verdict_speedup: float | None
    """Geometric mean of the sessions' speed-ups."""
    verdict_low: float | None
    """Lower end of its 95 % interval; `None` for one session."""
    verdict_high: float | None
    """Upper end of its 95 % interval; `None` for one session."""
    energy_ratio_mean: float | None
    """Geometric mean of the sessions' `energy_ratio`."""
    energy_ratio_low: float | None
    """Lower end of its 95 % interval; `None` for one session."""
    energy_ratio_high: float | None
    """Upper end of its 95 % interval; `None` for one session."""
    verdict_sessions: Small | None
    """Sessions that were compared."""
    grade: Grade | None
    """Trustworthiness of the candidate's time."""
    grade_reason: str | None
    """Reason why the grade is not better."""
    spread_between: float | None
    """Variation of the session medians."""
    machine_drift: float | None
    """Largest relative difference between two readings of the judge's own kernels."""
    code_drift: float | None
    """Share of the medians' spread that machine drift does not explain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildColumns:
    """Columns of ``cells`` about the built kernels and the source."""

    registers_max: Small | None
    """Most registers of a built kernel."""
    spill_bytes_max: Count | None
    """Most bytes that a kernel spills, stores and loads together."""
    shared_bytes_max: Count | None
    """Most shared memory of a kernel."""
    stack_bytes_max: Count | None
    """Largest stack frame of a kernel."""
    code_sha256: str | None
    """Digest of the machine code of all kernels; equal only if every kernel's code is equal."""
    launchable: bool | None
    """`True` if all kernels can be launched on the device."""
    findings: tuple[str, ...] | None
    """Rules of the source scan that found something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceColumns:
    """Columns of ``cells`` about the device during the attempt."""

    host_id: str
    """Digest of host, sandbox and device; joins `hosts`."""
    peak_flops_per_s: float | None
    """Highest rate of the device in the cell's dtype."""
    sm_clock_mhz: float | None
    """Median SM clock over the timed blocks."""
    mem_clock_mhz: float | None
    """Median memory clock over the timed blocks."""
    power_w: float | None
    """Median power over the timed blocks."""
    temperature_max_c: float | None
    """Highest temperature over the timed blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSample:
    """Columns of ``samples`` beyond those of a block."""

    workload: str
    """Name of the shape set."""
    index: Small
    """Position of the sample in its block."""
    discarded: str | None
    """Reason why the sample does not count; `None` if it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedBatch:
    """Columns of ``batches`` beyond those of a block of batches."""

    workload: str
    """Name of the shape set."""
    block: Small
    """Position of the block among the session's blocks of batches."""
    index: Small
    """Position of the batch in its block."""
    call_ns: float | None
    """Time of a call in this batch, less what starting a batch costs. The session's time is the median of these; null
    where a batch does not count for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOrigin:
    """Column of ``kernels`` for the origin of a row."""

    origin: Annotated[str, Column(words=(BUILT, TRACED))]
    """`built` ahead of time, or `traced` in a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """Key of ``hosts``."""

    host_id: str
    """Digest of the columns below; joins `cells`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCounts:
    """Counts of ``hosts``."""

    records: Count
    """Records of this host in the tables."""
    first_started_at: Annotated[Instant, Column(form="instant")]
    """Start of its first attempt."""
    last_started_at: Annotated[Instant, Column(form="instant")]
    """Start of its last attempt."""
