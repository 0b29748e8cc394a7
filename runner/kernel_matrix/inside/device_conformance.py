"""Measurements that show whether a platform's inside half works on the device: memory, cache, timers and rates.

A second process is started to share memory with; no candidate code runs in either.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any, List, Optional, Sequence, Tuple

import torch

from kernel_matrix.inside.device_measurements import ArenaProof, DeviceMeasurements, TimedWork
from kernel_matrix.inside.memory import Arena
from kernel_matrix.inside.peak_measurement import calibrate
from kernel_matrix.inside.platform import InsidePlatform, load_platform

ARENA_BYTES = (1, 4097, (8 << 20) + 3, 64 << 20)
"""Sizes that are no multiple of any page, and one of many pages."""

_WORKER_LIMIT_S = 60
_HEALTH_S = 0.03
_COPIES = 4
"""Copies of the shortest work: on a GPU of 3 TB/s they take 3 ms, a thousand times what starting them takes."""
_ROUNDS = 7
_READS = 31


def measure(platform: InsidePlatform, device: str, seconds: float) -> DeviceMeasurements:
    """Measure the device of ``platform``, which has the name ``device``; rates take about ``seconds``."""
    platform.open_device()
    health = platform.check_health(_HEALTH_S, 1)
    arenas, reason = prove_arenas(platform, device)
    cold_ns, warm_ns = _cold_and_warm_read(platform)
    works = _timed_works(platform)
    rates = calibrate(platform, seconds)
    return DeviceMeasurements(
        transport=platform.transport(),
        arenas=arenas,
        reason=reason,
        cache_bytes=platform.cache_bytes(),
        cold_read_ns=cold_ns,
        warm_read_ns=warm_ns,
        works=works,
        bytes_per_s=rates.bytes_per_s,
        flops_per_s=rates.flops_per_s,
        health=health,
    )


# ---- shared memory


def prove_arenas(platform: InsidePlatform, device: str) -> Tuple[Tuple[ArenaProof, ...], str]:
    """Share arenas with another process; return what each of the two read, and why they could not be shared."""
    arenas = [platform.create_arena(nbytes) for nbytes in ARENA_BYTES]
    try:
        written = [_write_pattern(arena) for arena in arenas]
        answer, reason = _ask_worker(device, arenas)
        if reason:
            return (), reason
        for arena in arenas:
            arena.fetch()
        proofs = zip(ARENA_BYTES, arenas, written, answer)
        return tuple(
            ArenaProof(nbytes, read_by_worker=said["read"] == digest, read_by_judge=said["wrote"] == _digest(arena))
            for nbytes, arena, digest, said in proofs
        ), ""
    finally:
        for arena in arenas:
            arena.close()
        platform.release_memory()


def _ask_worker(device: str, arenas: Sequence[Arena]) -> Tuple[List[Any], str]:
    """Start the worker; return its answer for each arena, or why there is none."""
    lent = [f"{arena.descriptor}:{nbytes}" for arena, nbytes in zip(arenas, ARENA_BYTES)]
    command = [sys.executable, "-m", __name__, device, *lent]
    try:
        done = subprocess.run(
            command,
            pass_fds=[arena.descriptor for arena in arenas],
            capture_output=True,
            text=True,
            timeout=_WORKER_LIMIT_S,
            check=True,
        )
        return list(json.loads(done.stdout)), ""
    except subprocess.CalledProcessError as error:
        return [], f"the worker ended with code {error.returncode}: {error.stderr.strip()[-500:]}"
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return [], f"the worker gave no answer: {error}"[:500]


def _write_pattern(arena: Arena) -> str:
    """Fill an arena with random bytes, and return their digest."""
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "little"))
    arena.tensor.copy_(torch.randint(0, 256, arena.tensor.shape, dtype=torch.uint8, generator=generator))
    arena.publish()
    return _digest(arena)


def _digest(arena: Arena) -> str:
    return hashlib.sha256(arena.tensor.cpu().numpy().tobytes()).hexdigest()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Be the worker: read each arena, then write another pattern into it; print the digests of both."""
    parser = argparse.ArgumentParser(prog="device_conformance")
    parser.add_argument("device", help="name of the platform")
    parser.add_argument("lent", nargs="+", metavar="DESCRIPTOR:BYTES")
    arguments = parser.parse_args(argv)
    platform = load_platform(arguments.device)
    platform.open_device()
    arenas = [platform.open_arena(*map(int, one.split(":"))) for one in arguments.lent]
    said = []
    for arena in arenas:
        arena.fetch()
        said.append({"read": _digest(arena), "wrote": _write_pattern(arena)})
    platform.synchronize()
    print(json.dumps(said))  # noqa: T201  # the answer
    return 0


# ---- times


def _cold_and_warm_read(platform: InsidePlatform) -> Tuple[Optional[int], Optional[int]]:
    """Return the median times of a read after a flush, as the judge flushes, and of the same read after it."""
    cache = platform.cache_bytes()
    if not cache:
        return None, None
    source = torch.ones(cache // 3 // 4, dtype=torch.float32, device=platform.TORCH_DEVICE)
    flush = torch.empty(2 * cache, dtype=torch.uint8, device=platform.TORCH_DEVICE)
    timer = platform.make_timer()
    timer(lambda: torch.sum(source))
    cold, warm = [], []
    for _ in range(_READS):
        flush.zero_()
        platform.synchronize()
        cold.append(timer(lambda: torch.sum(source))[1])
        warm.append(timer(lambda: torch.sum(source))[1])
    return round(statistics.median(cold)), round(statistics.median(warm))


def _timed_works(platform: InsidePlatform) -> Tuple[TimedWork, ...]:
    """Time one, two and four times the same copies; the shortest of some rounds counts, since nothing shortens work."""
    source = torch.ones(platform.buffer_bytes() // 4, dtype=torch.float32, device=platform.TORCH_DEVICE)
    target = torch.empty_like(source)
    timer = platform.make_timer()

    def work(copies: int) -> TimedWork:
        started = time.monotonic_ns()
        _, device_ns = timer(lambda: [target.copy_(source) for _ in range(copies)])
        return TimedWork(copies, device_ns, time.monotonic_ns() - started)

    work(1)
    rounds = [[work(_COPIES * factor) for factor in (1, 2, 4)] for _ in range(_ROUNDS)]
    return tuple(min(same, key=lambda one: one.device_ns) for same in zip(*rounds))


if __name__ == "__main__":
    sys.exit(main())
