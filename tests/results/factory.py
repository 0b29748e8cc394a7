"""Full records to test with: every optional field filled, unless a test says otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_matrix.model.enums import (
    CollectiveKind,
    Dtype,
    Implementation,
    InputMode,
    Language,
    Regime,
    Role,
    Stage,
    Status,
    Tier,
    fault_of,
)
from kernel_matrix.model.messages import (
    SESSION_PHASES,
    AnchorTimes,
    BatchBlock,
    Block,
    ClockProbeReading,
    CollectiveSize,
    EnergyReading,
    Evidence,
    HealthReport,
    InsideEnvironment,
    SessionReport,
    TracedKernel,
    Traits,
    Trial,
    TwoClocks,
    WorkloadReport,
)
from kernel_matrix.platforms import EventReason, TelemetrySample
from kernel_matrix.results.record import (
    BuildInfo,
    CellKey,
    ClocksInfo,
    CompiledKernelInfo,
    ExitInfo,
    FieldSpread,
    HealthInfo,
    HostRecord,
    ImageInfo,
    LinkInfo,
    Outcome,
    Record,
    SourceFinding,
    TelemetrySummary,
    record_to_json,
)
from kernel_matrix.results.run_info import RunHost, RunInfo
from kernel_matrix.results.trace import TelemetryTrace, read_trace_document, trace_name, trace_of
from kernel_matrix.scan.code_measures import CodeMeasures

ADDED_LATER = {
    "Block": {
        *("sm_clock_mhz", "mem_clock_mhz", "power_w", "temperature_c"),
        *("contestant", "regime", "calls_per_sample"),
    },
    "BatchBlock": {"in_place", "discarded", "sm_clock_mhz"},
    "TwoClocks": {"bound_ns"},
    "CellKey": {"held_out", "ranks"},
    "Evidence": {"held_out", "rank"},
    "WorkloadReport": {
        *("two_clocks", "traits", "batches", "energies", "labels", "held_out"),
        *("memory_bytes", "claimed_memory_bytes", "needed_memory_bytes", "reference_pieces", "collective"),
    },
    "EnergyReading": {"discarded"},
    "SessionReport": {"clock_probes", "anchors", "kernels", "launches", "health", "earlier_cells"},
    "IsolationInfo": {"memory_limit"},
    "RunInfo": {"clocks_ahead_s"},
    "CompiledKernelInfo": {
        *("compute_capability", "scalar_registers", "accumulator_registers"),
        *("threads", "matrix_instructions", "occupancy"),
    },
    "HostRecord": {
        *("device_details", "peak", "exclusive_reason", "clocks", "telemetry", "health"),
        *("build", "findings", "code", "environment", "platform_proven", "devices", "link"),
    },
}
"""Fields that the first records lack: not required by the schema, and with a default in the class."""

CELL = "0123456789abcdef0123456789abcdef"

ISOLATION = {
    "engine": "docker",
    "user": "own",
    "network": "none",
    "filesystem": "read-only",
    "processes": "private",
    "capabilities": "none",
    "seccomp": "default",
    "limits": ["memory_bytes", "pids"],
    "notes": ["no seccomp profile on this kernel"],
    "memory_limit": "group",
}

CELL_KEY = CellKey(
    gpu="h200",
    toolchain="cu128",
    dtype=Dtype.FP16,
    problem="softmax",
    problem_sha256="a" * 64,
    category="reduction",
    level=2,
    source="folder",
    candidate="softmax/online",
    candidate_sha256="b" * 64,
    language=Language.TRITON,
    tier=Tier.SCREEN,
    workloads=("default",),
    origin={
        "method": "evolve",
        "model": "m",
        "sample": 3,
        "round": 1,
        "parent": "sample-2",
        "prompt": "few-shot",
        "prompt_sha256": "9" * 64,
        "no_code": "the model refused",
        "tokens_in": 900,
        "tokens_cached": 600,
        "tokens_out": 400,
        "cost_usd": 0.25,
        "wall_s": 12.5,
    },
    expect=Status.PASSED,
)

CLOCKS = ClocksInfo(
    requested="base",
    requested_memory="max",
    set_sm_mhz=1785,
    set_memory_mhz=3201,
    set_reason="1785 MHz is the supported clock nearest to the driver's TDP clock",
    driver_sm_mhz=1785.0,
    kernel_sm_mhz=1784.6,
    reset="confirmed",
    reset_reason="the clock left 1785 MHz",
)

TELEMETRY = TelemetrySummary(
    samples=180,
    interval_s=0.05,
    longest_gap_s=0.08,
    spread={
        "sm_clock_mhz": FieldSpread(low=1780.0, median=1785.0, high=1785.0),
        "mem_clock_mhz": FieldSpread(low=3201.0, median=3201.0, high=3201.0),
        "power_w": FieldSpread(low=180.0, median=250.5, high=300.0),
        "temperature_c": FieldSpread(low=34.0, median=40.0, high=43.0),
    },
    energy_j=2250.5,
    reasons={"sw_power_cap": 0.25},
    reason_s={"sw_power_cap": 2.5},
    own_pids=(9, 10),
    discarded={},
    joined="yes",
    trace=None,
)
"""Without a trace: a record that names one is saved together with it, see :func:`traced`."""

HEALTH = HealthInfo(processes_gone=True, memory_back=True, probe="passed", reason="as it was before", quarantined=False)

BUILD = BuildInfo(
    seconds=29.5,
    cached=False,
    key="1" * 64,
    arch="9.0a",
    artifact_sha256="2" * 64,
    kernels=(
        CompiledKernelInfo(
            name="online_softmax",
            arch=90,
            registers=40,
            spill_store_bytes=0,
            spill_load_bytes=0,
            shared_bytes=4096,
            stack_bytes=0,
            sha256="3" * 64,
            launchable=True,
            reason="",
        ),
        CompiledKernelInfo(
            name="online_softmax_wide",
            arch=90,
            registers=255,
            spill_store_bytes=8,
            spill_load_bytes=16,
            shared_bytes=262144,
            stack_bytes=32,
            sha256="4" * 64,
            launchable=False,
            reason="262144 bytes of shared memory, 232448 are there",
        ),
    ),
    log_tail="ptxas info : Used 40 registers",
)

HOST = HostRecord(
    hostname="lab-1",
    machine="3f9a1c22",
    platform="Linux-6.8",
    cpu="EPYC",
    cores=64,
    version="0.1.0",
    measurement_version="c" * 64,
    engine="docker",
    engine_version="28.3.3",
    engine_details={"storage_driver": "overlay2", "security": ["seccomp"], "gpu_access": {"cdi": True}},
    image=ImageInfo(
        reference="r@sha256:1", id="sha256:" + "7" * 64, repo_digest="r@sha256:1", store="overlay2", state="locked"
    ),
    device={
        "vendor": "nvidia",
        "uuid": "GPU-1",
        "name": "NVIDIA H200",
        "index": 0,
        "minor": 0,
        "compute_capability": "9.0",
        "memory_bytes": 150754820096,
        "driver": "580.159.04",
        "cuda_driver": "13.0",
    },
    device_before={"sm_clock_mhz": 1980, "power_w": 120.5, "reasons": None},
    device_after={"sm_clock_mhz": 1980, "power_w": 130.5, "reasons": "none"},
    exclusive="proven",
    foreign_pids=(17,),
    clock_policy="lock",
    clock_state="locked",
    clock_reason="held under load",
    isolation={"candidate": ISOLATION, "judge": ISOLATION},
    exits=(
        ExitInfo(
            role=Role.JUDGE, session=0, code=0, signal=None, oom_killed=False, lost=False, killed=False, log_tail=""
        ),
    ),
    phases_s={
        "build": 1.5,
        "lease_wait": 0.0,
        "start": 0.5,
        "inside": 9.0,
        "teardown": 0.25,
        "overhead": 0.75,
        "total": 11.25,
    },
    started_at="2026-01-02T03:04:05.000006+00:00",
    ended_at="2026-01-02T03:04:16Z",
    warnings=("the driver is newer than the toolkit",),
    device_details={
        "vbios": "96.00.A0",
        "supported_sm_mhz": [1980, 1785],
        "ecc": None,
        "missing": {"ecc": "Not Supported"},
    },
    peak={
        "source": "table",
        "reference": "the vendor's data sheet",
        "bytes_per_s": 4.8e12,
        "flops_per_s": {"fp16": 989.5e12, "fp32": 66.9e12},
    },
    exclusive_reason="180 looks, none with a process that is not ours",
    clocks=CLOCKS,
    telemetry=TELEMETRY,
    health=HEALTH,
    build=BUILD,
    findings=(SourceFinding(rule="library_calls", line=12, message="calls a library", evidence="torch.sum(x)"),),
    code=CodeMeasures(lines=87, complexity=4, complexity_mean=2.25, maintainability=48.5),
)

ENVIRONMENT = InsideEnvironment(
    python="3.11.13",
    torch="2.9.1",
    cuda="12.8",
    cudnn="9.10",
    triton="3.5.1",
    ptxas="12.8",
    nvcc="12.8",
    cuda_driver="13.0",
    libcuda="/usr/lib/libcuda.so.1",
    device_name="NVIDIA H200",
    compute_capability="9.0",
    l2_bytes=62914560,
    platform="Linux",
    libc="glibc 2.35",
    threads=8,
    settings={"TRITON_DEFAULT_FP_FUSION": "1"},
)


def block(role: Role, index: int, times: tuple[int, ...], discarded: tuple[tuple[int, str], ...] = ()) -> Block:
    return Block(
        role=role,
        index=index,
        started_ns=1000 * index,
        ended_ns=1000 * index + 900,
        device_ns=times,
        wall_ns=tuple(t + 10 for t in times),
        discarded=discarded,
    )


BLOCKS = (
    block(Role.BASELINE, 0, (200, 210, 190)),
    block(Role.CANDIDATE, 1, (100, 9000, 101), discarded=((1, "contended: pid 4242"),)),
    block(Role.CANDIDATE, 2, (99, 100, 100)),
    block(Role.BASELINE, 3, (200, 200, 200)),
)


MEASURED = tuple(
    replace(one, sm_clock_mhz=1785.0 - one.index, mem_clock_mhz=3201.0, power_w=250.5, temperature_c=40.0)
    for one in BLOCKS
)
"""The same blocks joined to telemetry."""

PROBES = (
    ClockProbeReading(
        phase="before", started_ns=0, ended_ns=9, sm_mhz=1784.6, low_mhz=1784.0, high_mhz=1785.0, sms=132
    ),
    ClockProbeReading(
        phase="after", started_ns=9000, ended_ns=9009, sm_mhz=1784.5, low_mhz=1784.0, high_mhz=1785.0, sms=132
    ),
)


ANCHORS = (
    AnchorTimes(phase="before", started_ns=0, compute_ns=50_000, memory_ns=31_000),
    AnchorTimes(phase="after", started_ns=9_100, compute_ns=50_100, memory_ns=31_000),
)

KERNELS = (
    TracedKernel(name="online_softmax", launches=1, device_ns=75, own=True),
    TracedKernel(name="vectorized_elementwise_kernel", launches=2, device_ns=25, own=False),
)

LAUNCHES = {"eager": 6, "compile": 4, "compile-max-autotune": 3, "library": 2}


def energy(contestant: str, energy_mj: int, calls: int = 10_000) -> EnergyReading:
    """A second of calls, during nine tenths of which the counter is known to have moved by ``energy_mj``."""
    return EnergyReading(
        contestant=contestant,
        calls=calls,
        started_ns=0,
        ended_ns=1_000_000_000,
        energy_mj=energy_mj,
        shortest_ns=890_000_000,
        longest_ns=910_000_000,
    )


ENERGIES = (energy("candidate", 450_000), energy("eager", 540_000, calls=5000))

TWO_CLOCKS = TwoClocks(
    resolution_ns=2000, unexplained_ns=-150, handover_ns=90, floor_ns=80, floor_reason="bytes", low_resolution=True
)

TRAITS = Traits(
    deterministic=True,
    sensitivity=(0.5, 0.25),
    exact=False,
    rejects_lower_precision=True,
)
QUANTISED = replace(TRAITS, quality={"cosine": 0.999, "relative_l1": 0.01, "rmse": 0.02, "snr_db": 35.0})


def every_block() -> tuple[Block, ...]:
    """Blocks of every contestant, and of candidate and baseline in every regime."""
    blocks = list(MEASURED)
    for one in Implementation:
        if one is not Implementation.EAGER:
            blocks.append(replace(block(Role.RIVAL, len(blocks), (150, 160)), contestant=one.value))
    for regime in Regime:
        for role, name in ((Role.BASELINE, "eager"), (Role.CANDIDATE, "candidate")):
            if regime is not Regime.COLD:
                one_block = block(role, len(blocks), (90, 91))
                blocks.append(replace(one_block, contestant=name, regime=regime, calls_per_sample=20))
    return tuple(blocks)


def workload(
    name: str = "default",
    status: Status = Status.PASSED,
    blocks: tuple[Block, ...] = BLOCKS,
    batches: tuple[BatchBlock, ...] = (),
    energies: tuple[EnergyReading, ...] = (),
) -> WorkloadReport:
    return WorkloadReport(
        name=name,
        values={"ROWS": 64, "eps": 0.5, "causal": True, "mode": "x"},
        flops=1000.0,
        bytes=500.0,
        status=status,
        tolerance={"rtol": 1e-3},
        reference_dtype="fp64",
        trials=(
            Trial(mode=InputMode.STANDARD, index=0, phase="before", passed=True, max_error=0.1, error_ratio=0.2),
            Trial(mode=InputMode.OUTLIER, index=0, phase="after", passed=True, max_error=None, error_ratio=0.5),
        ),
        blocks=blocks,
        warmup_calls=12,
        flush_bytes=4096,
        inputs="fresh",
        checked_calls=2,
        wall_overhead_ns=7,
        two_clocks=TWO_CLOCKS,
        traits=TRAITS,
        memory_bytes={"candidate": 3 << 30, "eager": 1 << 20},
        claimed_memory_bytes={"candidate": 2 << 30, "eager": 1 << 20},
        needed_memory_bytes=5 << 30,
        batches=batches,
        energies=energies,
    )


def session(
    number: int = 0,
    status: Status = Status.PASSED,
    workloads: Any = None,
    cell_id: str = CELL,
    probes: tuple[ClockProbeReading, ...] = (),
) -> SessionReport:
    return SessionReport(
        cell_id=cell_id,
        session=number,
        status=status,
        stage=Stage.DONE if status is Status.PASSED else Stage.VERIFY,
        evidence=Evidence(),
        environment=ENVIRONMENT,
        seed_sha256="d" * 64,
        transport="cuda-vmm",
        candidate_peer={"uid": 65534, "gid": 65534, "pid": 9},
        workloads=(workload(),) if workloads is None else workloads,
        durations_s=dict.fromkeys(SESSION_PHASES, 0.5),
        labels=("low_resolution",),
        clock_probes=probes,
        anchors=ANCHORS,
        kernels=KERNELS,
        launches=LAUNCHES,
        health=HealthReport(passed=True, reason="the answer was right"),
    )


def outcome(status: Status = Status.PASSED, message: str = "") -> Outcome:
    stage = Stage.DONE if status is Status.PASSED else Stage.VERIFY
    evidence = Evidence(
        message=message,
        log="log",
        output=0,
        index=(1, 2),
        expected="1.0",
        got="nan",
        error=0.5,
        allowed=0.1,
        mismatched=1,
        elements=4,
        workload="default",
        mode="standard",
        trial=0,
    )
    return Outcome(status=status, stage=stage, fault=fault_of(status), evidence=evidence)


def make_record(cell_id: str = CELL, attempt: int = 1, **changes: Any) -> Record:
    record = Record(
        run_id="run-1",
        cell_id=cell_id,
        attempt=attempt,
        cell=CELL_KEY,
        outcome=outcome(),
        host=HOST,
        sessions=(session(workloads=(workload(blocks=MEASURED),), cell_id=cell_id, probes=PROBES),),
    )
    return replace(record, **changes)


def batches(contestant: str, call_ns: int, *, short: bool = False) -> BatchBlock:
    """Eight batches of ten calls, or of one, which start in 100 ns."""
    calls = (1,) * 8 if short else (10,) * 8
    return BatchBlock(
        contestant=contestant,
        started_ns=1,
        ended_ns=2,
        captured=True,
        short=short,
        calls=calls,
        delivered_ns=(50,) * 8,
        least_ns=(40,) * 8,
        wall_ns=tuple(100 + count * call_ns for count in calls),
        handover_ns=calls,
    )


def full_record() -> Record:
    """A record of two sessions with everything in it that a record can have."""
    in_batches = (batches("eager", 300, short=True), batches("eager", 300), batches("candidate", 100))
    timed = workload(blocks=every_block(), batches=in_batches, energies=ENERGIES)
    whole = (replace(timed, collective=CollectiveSize(CollectiveKind.ALL_REDUCE, 10.0)),)
    sessions = session(0, workloads=whole, probes=PROBES), session(1, workloads=whole)
    link = LinkInfo(kind="nvlink", lanes=18, bytes_per_s=450e9, peer=True)
    cell = replace(CELL_KEY, held_out=("secret",), ranks=2)
    return make_record(cell=cell, sessions=sessions, host=replace(HOST, link=link))


def failed_record(
    cell_id: str = CELL, attempt: int = 1, status: Status = Status.COMPILE_ERROR, **changes: Any
) -> Record:
    """A record that never got to a session."""
    said = outcome(status, message="expected ';'\nbefore '}'")
    return make_record(cell_id, attempt, **{"outcome": said, "sessions": (), **changes})


def sample(number: int, **changes: Any) -> TelemetrySample:
    """The GPU after ``number`` twentieths of a second."""
    seen = TelemetrySample(
        at_ns=number * 50_000_000,
        sm_clock_mhz=1785,
        mem_clock_mhz=3201,
        power_w=250.5,
        power_average_w=249.5,
        energy_mj=1000 + 12_500 * number,
        temperature_c=40,
        utilization_percent=99,
        memory_used_bytes=1 << 30,
        reasons=(EventReason.SW_POWER_CAP,) if number % 2 else (),
        reason_ns={EventReason.SW_POWER_CAP: 7_000 * number},
        pids=(9, 10),
    )
    return replace(seen, **changes)


def make_trace(samples: int = 3) -> TelemetryTrace:
    """Make a trace of ``samples`` samples; the driver did not answer for the last one."""
    whole = [(sample(number), (9, 10), (), "") for number in range(samples - 1)]
    return trace_of([*whole, (TelemetrySample(at_ns=samples * 50_000_000), (), (4242,), "the driver did not answer")])


def read_trace(path: Path) -> TelemetryTrace:
    """The trace in the file ``path``, checked."""
    document = read_trace_document(path)
    return TelemetryTrace(columns=document["columns"], reason_ns=document["reason_ns"])


def traced(record: Record) -> Record:
    """``record``, naming its trace."""
    telemetry = replace(TELEMETRY, trace=trace_name(record.stem))
    return replace(record, host=replace(record.host, telemetry=telemetry))


def make_run(run_id: str = "run-1", **changes: Any) -> RunInfo:
    info = RunInfo(
        run_id=run_id,
        matrix="nightly",
        matrix_sha256="e" * 64,
        matrix_path="/home/lab/matrix.toml",
        argv=("kernel-matrix", "run"),
        version="0.1.0",
        engine="docker",
        host=RunHost(hostname="lab-1", machine="3f9a1c22", platform="Linux-6.8", cpu="EPYC", cores=64),
        started_at="2026-01-02T03:00:00Z",
        ended_at=None,
        planned=3,
        counts={Status.PASSED: 2, Status.CRASHED: 1},
        interrupted=False,
    )
    return replace(info, **changes)


def cell_id(number: int) -> str:
    return f"{number:032x}"


def put(folder: Path, record: Record, **changes: Any) -> Path:
    """Write ``record`` as a file without the store's checks, with top-level keys replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.stem}.json"
    path.write_text(json.dumps(record_to_json(record) | changes), encoding="utf-8")
    return path


def as_the_first_ones_were(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a record as it was when neither telemetry nor health were in it."""
    _strip("HostRecord", document["host"])
    document["host"]["clock_state"] = "unlocked"
    for one in document["sessions"]:
        _strip("SessionReport", one)
        for part in one["workloads"]:
            for timed in part["blocks"]:
                _strip("Block", timed)
    return document


def _strip(name: str, part: dict[str, Any]) -> None:
    for key in ADDED_LATER[name]:
        del part[key]
