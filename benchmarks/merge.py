"""How long ``kernel-matrix merge`` takes, how much memory, and whether the cost grows linearly.

::

    python benchmarks/merge.py                                  # 25,000, 50,000 and 100,000 records
    python benchmarks/merge.py --records 10000 --keep /tmp/set

Writes full records (100 samples each: 50 per side in blocks of 10) outside the timed part, then starts the command as a
user would and watches its whole process tree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_matrix.model.enums import Dtype, Fault, InputMode, Language, Role, Stage, Status, Tier
from kernel_matrix.model.messages import (
    Block,
    ClockProbeReading,
    Evidence,
    InsideEnvironment,
    SessionReport,
    Trial,
    WorkloadReport,
    dumps,
)
from kernel_matrix.results.record import (
    CellKey,
    ClocksInfo,
    ExitInfo,
    FieldSpread,
    HealthInfo,
    HostRecord,
    ImageInfo,
    Outcome,
    Record,
    TelemetrySummary,
)

BLOCK_CALLS = 10
POLL_S = 0.02

IMAGE = ImageInfo(
    reference="pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime@sha256:" + "5" * 64,
    id="sha256:" + "7" * 64,
    repo_digest="pytorch/pytorch@sha256:" + "5" * 64,
    store="overlay2",
    state="locked",
)
ISOLATION = {
    "engine": "docker",
    "user": "own",
    "network": "none",
    "filesystem": "read-only",
    "processes": "private",
    "capabilities": "none",
    "seccomp": "default",
    "limits": ["memory_bytes", "pids", "tmpfs_bytes", "shm_bytes", "file_bytes", "open_files"],
    "notes": [],
}
CLOCKS = ClocksInfo(
    requested="base",
    requested_memory="max",
    set_sm_mhz=1785,
    set_memory_mhz=3201,
    set_reason="the driver's TDP clock",
    driver_sm_mhz=1785.0,
    kernel_sm_mhz=1784.6,
    reset="confirmed",
    reset_reason="read back under load",
)
TELEMETRY = TelemetrySummary(
    samples=188,
    interval_s=0.05,
    longest_gap_s=0.081,
    spread={
        "sm_clock_mhz": FieldSpread(low=1785.0, median=1785.0, high=1785.0),
        "mem_clock_mhz": FieldSpread(low=3201.0, median=3201.0, high=3201.0),
        "power_w": FieldSpread(low=181.2, median=402.9, high=511.0),
        "temperature_c": FieldSpread(low=34.0, median=41.0, high=44.0),
    },
    energy_j=3781.4,
    reasons={"sw_power_cap": 0.01},
    reason_s={"sw_power_cap": 0.09},
    own_pids=(4211, 4302, 4303),
    discarded={},
    joined="yes",
    trace=None,
)
HEALTH = HealthInfo(processes_gone=True, memory_back=True, probe="passed", reason="as before", quarantined=False)
DETAILS = {
    "vbios": "96.00.A0.00.01",
    "bus_width_bits": 6144,
    "power_limit_w": 700.0,
    "supported_sm_mhz": [1980 - 15 * i for i in range(110)],
    "missing": {"fan_percent": "not supported by this device"},
}
PEAK = {
    "source": "table",
    "reference": "vendor data sheet",
    "bytes_per_s": 4.8e12,
    "flops_per_s": {"fp64": 33.5e12, "fp32": 66.9e12, "fp16": 989.5e12, "bf16": 989.5e12},
}
SNAPSHOT = {"sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "power_w": 121.4, "temperature_c": 34, "used_bytes": 0}
ENVIRONMENT = InsideEnvironment(
    python="3.11.13",
    torch="2.9.1+cu128",
    cuda="12.8",
    cudnn="9.10.2",
    triton="3.5.1",
    ptxas="12.8.93",
    nvcc=None,
    cuda_driver="13.0",
    libcuda="/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04",
    device_name="NVIDIA H200",
    compute_capability="9.0",
    l2_bytes=62914560,
    platform="Linux-6.8.0-x86_64",
    libc="glibc 2.35",
    threads=8,
    settings={"TRITON_DEFAULT_FP_FUSION": "1", "TRITON_INTERPRET": "", "allow_tf32": "False"},
)


@dataclass(frozen=True)
class Figure:
    """What one merge took."""

    records: int
    wall_s: float
    cpu_s: float
    peak_mib: float
    """Greatest sum of resident memory over the process tree."""


def records(number: int, samples: int) -> Iterator[Record]:
    """Yield ``number`` different records with ``samples`` samples each, the same ones each time."""
    draw = random.Random(1)
    host = _host()
    for i in range(number):
        cell_id = hashlib.sha256(str(i).encode()).hexdigest()[:32]
        yield Record(
            run_id=f"20260102T030405-{i % 7:04x}",
            cell_id=cell_id,
            attempt=1,
            cell=_cell(i),
            outcome=Outcome(status=Status.PASSED, stage=Stage.DONE, fault=Fault.NONE, evidence=Evidence()),
            host=replace(host, hostname=f"gpu-{i % 4:02d}"),
            sessions=(_session(cell_id, samples, draw),),
        )


def _cell(i: int) -> CellKey:
    problem = f"problem_{i // 40:05d}"
    return CellKey(
        gpu="h200",
        toolchain=("cu124", "cu128", "cu130")[i % 3],
        dtype=tuple(Dtype)[i % 3],
        problem=problem,
        problem_sha256=hashlib.sha256(problem.encode()).hexdigest(),
        category="reduction",
        level=2,
        source="folder",
        candidate=f"{problem}/sample_{i % 40:03d}",
        candidate_sha256=hashlib.sha256(str(i).encode()).hexdigest(),
        language=Language.TRITON,
        tier=Tier.SCREEN,
        workloads=("default",),
        origin={
            "method": "evolve",
            "model": "model-a",
            "sample": i % 40,
            "round": 3,
            "tokens_in": 9812,
            "cost_usd": 0.31,
        },
    )


def _session(cell_id: str, samples: int, draw: random.Random) -> SessionReport:
    return SessionReport(
        cell_id=cell_id,
        session=0,
        status=Status.PASSED,
        stage=Stage.DONE,
        evidence=Evidence(),
        environment=ENVIRONMENT,
        seed_sha256=hashlib.sha256(cell_id.encode()).hexdigest(),
        transport="cuda-vmm",
        candidate_peer={"uid": 65534, "gid": 65534, "pid": 41},
        workloads=(_workload(samples, draw),),
        durations_s={"import": 2.1, "connect": 0.4, "load": 0.8, "verify": 1.9, "time": 4.2, "total": 9.4},
        clock_probes=tuple(
            ClockProbeReading(
                phase=phase, started_ns=0, ended_ns=9, sm_mhz=1784.6, low_mhz=1784.0, high_mhz=1785.0, sms=132
            )
            for phase in ("before", "after")
        ),
    )


def _workload(samples: int, draw: random.Random) -> WorkloadReport:
    return WorkloadReport(
        name="default",
        values={"ROWS": 4096, "COLUMNS": 8192},
        flops=167772160.0,
        bytes=268435456.0,
        status=Status.PASSED,
        tolerance={"rtol": 1e-3, "atol": 1e-4},
        reference_dtype="fp64",
        trials=tuple(
            Trial(mode=m, index=i, phase="before", passed=True, max_error=draw.random(), error_ratio=draw.random())
            for m in InputMode
            for i in range(5)
        ),
        blocks=tuple(_block(i, draw) for i in range(samples // BLOCK_CALLS)),
        warmup_calls=13,
        flush_bytes=125829120,
        inputs="fresh",
        checked_calls=21,
        wall_overhead_ns=48211,
    )


def _block(index: int, draw: random.Random) -> Block:
    role = (Role.BASELINE, Role.CANDIDATE, Role.CANDIDATE, Role.BASELINE)[index % 4]
    typical = 91_000 if role is Role.BASELINE else 64_000
    device = tuple(int(draw.gauss(typical, typical / 100)) for _ in range(BLOCK_CALLS))
    started = 8_123_456_789_012 + index * 40_000_000
    return Block(
        role=role,
        index=index,
        started_ns=started,
        ended_ns=started + 39_000_000,
        device_ns=device,
        wall_ns=tuple(d + draw.randrange(40_000, 60_000) for d in device),
        sm_clock_mhz=1785.0,
        mem_clock_mhz=3201.0,
        power_w=402.9,
        temperature_c=41.0,
    )


def _host() -> HostRecord:
    return HostRecord(
        hostname="gpu-00",
        machine="3f9a1c22d7e0",
        platform="Linux-6.8.0-x86_64",
        cpu="AMD EPYC 9654",
        cores=192,
        version="0.1.0",
        measurement_version="c" * 64,
        engine="docker",
        engine_version="28.3.3",
        engine_details={"storage_driver": "overlay2", "cgroup": "2", "gpus": "cdi"},
        image=IMAGE,
        device={
            "vendor": "nvidia",
            "uuid": "GPU-3c1f0f4e-7d53-4b8c-9f4e-0a1b2c3d4e5f",
            "name": "NVIDIA H200",
            "compute_capability": "9.0",
            "memory_bytes": 150754820096,
            "driver": "580.159.04",
            "cuda_driver": "13.0",
        },
        device_before=SNAPSHOT,
        device_after=SNAPSHOT,
        exclusive="proven",
        foreign_pids=(),
        clock_policy="lock",
        clock_state="locked",
        clock_reason="1980 MHz held under load",
        isolation={"judge": ISOLATION, "candidate": ISOLATION},
        exits=tuple(
            ExitInfo(role=r, session=0, code=0, signal=None, oom_killed=False, lost=False, killed=False, log_tail="")
            for r in (Role.JUDGE, Role.CANDIDATE, Role.BASELINE)
        ),
        phases_s={"build": 0.0, "lease_wait": 0.0, "start": 0.6, "inside": 9.4, "teardown": 0.2, "total": 10.2},
        started_at="2026-01-02T03:04:05.000006+00:00",
        ended_at="2026-01-02T03:04:15.250006+00:00",
        device_details=DETAILS,
        peak=PEAK,
        exclusive_reason="188 looks, none with a process that is not ours",
        clocks=CLOCKS,
        telemetry=TELEMETRY,
        health=HEALTH,
    )


def write(folder: Path, number: int, samples: int) -> float:
    """Write the record set; returns the mean size of a record in kB."""
    target = folder / "bench" / "records"
    target.mkdir(parents=True)
    total = 0
    for record in records(number, samples):
        data = dumps(record).encode()
        (target / f"{record.stem}.json").write_bytes(data)
        total += len(data)
    return total / number / 1000


def measure(folder: Path, out: Path, number: int) -> Figure:
    """Merge ``folder`` into ``out`` with the real command."""
    before = os.times()
    start = time.perf_counter()
    command = (sys.executable, "-m", "kernel_matrix", "merge", str(folder), "--out", str(out), "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, _tree_rss(process.pid))
            time.sleep(POLL_S)
        wall_s = time.perf_counter() - start
        output = process.stdout.read() if process.stdout else b""
    after = os.times()
    report = json.loads(output)
    if process.returncode or report["records"] != number or report["rejected"]:
        raise SystemExit(f"merge failed ({process.returncode}): {output.decode()[:2000]}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Figure(records=number, wall_s=wall_s, cpu_s=cpu_s, peak_mib=peak / 2**20)


def _tree_rss(pid: int) -> int:
    """Resident bytes of ``pid`` and all its descendants; a process that just ended counts nothing."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(_tree_rss(int(child)) for child in children)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[25_000, 50_000, 100_000])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="write into this folder, which must not exist, and leave it there")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = []
    for number in options.records:
        place = nullcontext(str(options.keep / str(number))) if options.keep else tempfile.TemporaryDirectory()
        with place as folder:
            size_kb = write(Path(folder), number, options.samples)
            figures.append(measure(Path(folder), Path(folder) / "tables", number))
        if not options.json:
            f = figures[-1]
            print(
                f"{f.records:>7} records of {size_kb:.1f} kB: {f.wall_s:6.2f} s, {f.cpu_s:6.2f} CPU s, "
                f"{f.peak_mib:5.0f} MiB, {f.wall_s / f.records * 1e6:4.0f} µs per record"
            )
    if options.json:
        print(json.dumps([vars(f) for f in figures]))


if __name__ == "__main__":
    main()
