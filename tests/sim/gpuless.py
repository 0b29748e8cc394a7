"""Sandboxes on a machine whose only GPUs are simulated: cells of GPUs run their roles on the CPU.

One thing is played: the clock that a kernel of the judge would have read is what the simulated driver says. Everything
else is the real sandbox, and the driver lists its processes on the GPU for as long as they live.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_matrix.attempt.folders import JOB_FILE
from kernel_matrix.attempt.judge_report import read_report
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.model.enums import Role
from kernel_matrix.model.messages import SessionReport
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.sandboxes import Isolation, ProcessExit, ProcessLabels, RoleSpec, RunningProcess
from tests.sim.amd_smi import AmdWorld
from tests.sim.driver import World
from tests.sim.family import family
from tests.sim.nvml import World as NvidiaWorld

_WORLDS = {"cuda": NvidiaWorld, "rocm": AmdWorld}
_LOOK_S = 0.2


class ShowsNoGpu:
    """Mixin for a sandbox: its roles are shown no GPU."""

    def __init__(self) -> None:
        super().__init__()
        self._world = _WORLDS[_platform()].here()

    def isolation(self, spec: RoleSpec) -> Isolation:
        return super().isolation(replace(spec, gpu=None))

    def describe(self, spec: RoleSpec) -> dict[str, Any]:
        return super().describe(replace(spec, gpu=None))

    @contextmanager
    def launch(self, spec: RoleSpec) -> Iterator[RunningProcess]:
        on_cpu = ("--device", "cpu") if spec.role is Role.PROBE and "--device" not in spec.args else ()
        with super().launch(replace(spec, gpu=None, args=(*spec.args, *on_cpu))) as running:
            yield running if spec.gpu is None else _OnGpu(running, spec, self._world)


class _OnGpu:
    """A role whose processes the driver lists on the GPU, from when somebody waits for it in earnest.

    Those of a session open the device once their judge has its job, and not when they are started.
    """

    def __init__(self, running: RunningProcess, spec: RoleSpec, world: World) -> None:
        self._running = running
        self._spec = spec
        self._world = world
        self._listed: set[int] = set()
        self._next_look = 0.0
        self._ended = False

    def root_pid(self) -> int | None:
        return self._running.root_pid()

    def kill(self) -> None:
        self._running.kill()

    def pause(self) -> None:
        self._running.pause()

    def resume(self) -> None:
        self._running.resume()

    def wait(self, timeout_s: float) -> ProcessExit | None:
        if not self._ended and time.monotonic() >= self._next_look and _may_open(self._spec):
            self._next_look = time.monotonic() + _LOOK_S
            self._occupy()
        ended = self._running.wait(timeout_s)
        self._ended = ended is not None
        return ended

    def _occupy(self) -> None:
        root = self._running.root_pid()
        for pid in family([root] if root is not None else []) - self._listed:
            for uuid in _uuid(self._spec).split("+"):  # of all devices of a group
                self._world.occupy(uuid, pid)
            self._listed.add(pid)


def _may_open(spec: RoleSpec) -> bool:
    """Whether the role is at work: one of a session is when the job lies in its judge's folder."""
    folders = (folder for mount in spec.mounts for folder in mount.source.parents)
    sessions = {folder for folder in folders if folder.name.startswith("session-")}
    job = JOB_FILE
    if spec.role is Role.CANDIDATE:
        channel = next(mount.source for mount in spec.mounts if mount.target == "/channel")
        job = channel.name.replace(Role.CANDIDATE.value, "job") + ".json"  # each candidate of a judge has its own
    return all((session / "judge" / job).exists() for session in sessions)


def read_report_with_probes(path: Path, labels: ProcessLabels) -> tuple[SessionReport | None, str]:
    """Read a judge's report as the host does, after it was made to say that a kernel saw the driver's clock."""
    _add_clock_probes(path, labels.gpu_uuid.split("+")[0])
    return read_report(path, labels)


def _add_clock_probes(report: Path, uuid: str) -> None:
    clock = _sm_clock(uuid)
    if clock is None or not report.exists():
        return
    document = json.loads(report.read_text())
    blocks = [block for workload in document["workloads"] for block in workload["blocks"]]
    if blocks:
        before, after = blocks[0]["started_ns"], blocks[-1]["ended_ns"]
        document["clock_probes"] = [_clock_probe("before", before, clock), _clock_probe("after", after, clock)]
        report.write_text(json.dumps(document))


def _clock_probe(phase: str, at_ns: int, clock: int) -> dict[str, Any]:
    megahertz = {"sm_mhz": float(clock), "low_mhz": float(clock), "high_mhz": float(clock)}
    return {"phase": phase, "started_ns": at_ns, "ended_ns": at_ns, "sms": 132, **megahertz}


def _sm_clock(uuid: str) -> int | None:
    """What the driver says, MHz; null where the GPU is lost."""
    try:
        return get_platform(_platform()).clocks(Gpu(platform=_platform(), uuid=uuid, name=""))[0]
    except InfrastructureError:
        return None


def _platform() -> str:
    """The platform in whose world this program lives."""
    (name,) = (name for name, world in _WORLDS.items() if world.VARIABLE in os.environ)
    return name


def _uuid(spec: RoleSpec) -> str:
    assert spec.gpu is not None
    return spec.gpu.uuid
