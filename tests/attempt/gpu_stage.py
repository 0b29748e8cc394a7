"""Cells on simulated GPUs: the driver is the simulated library, and the judge runs a script of the test.

Runs in its own process, which :func:`on_driver` starts, since the library is found through the environment.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_matrix.attempt import Assignment, AttemptResult, RunContext, SessionPrefetch, run_cell
from kernel_matrix.errors import GpuBusyError
from kernel_matrix.executors.local import Run, RunPolicy
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.inside.judge.judge import numbered
from kernel_matrix.inside.probe import PROBE_NAME
from kernel_matrix.lease.locks import LeaseWait, lock_file, lock_folder, locked
from kernel_matrix.matrix import GpuAxis, Policy, Protocol
from kernel_matrix.model.enums import Role
from kernel_matrix.model.messages import Block, HealthReport, SessionReport, dumps
from kernel_matrix.platforms import Gpu, TelemetrySample, cuda
from kernel_matrix.results.record import record_to_json
from kernel_matrix.results.store import RecordStore
from kernel_matrix.sandboxes import ProcessExit, RoleSpec
from tests.attempt.looking import with_probes
from tests.attempt.stage import WELL, Play, PlaySandbox, hangs, next_job, out_folder, report
from tests.results import factory
from tests.sim.nvml import H200, SimulatedDriver, World

UUID = str(H200["uuid"])
OTHER = {**H200, "uuid": "GPU-00000000-0000-0000-0000-0000000000ff", "minor": 7}
AXIS = GpuAxis(name="h200", model="NVIDIA H200*")

Step = Callable[[World], None]


def on_driver(driver: SimulatedDriver, folder: Path, program: str, **environment: str) -> Any:
    """Run ``program`` in its own process on ``driver``, and return what it printed, read as JSON.

    The program can use all names of this module, and ``stage``.
    """
    text = "from kernel_matrix.model.enums import ClockPolicy\nfrom tests.attempt.stage import *\n"
    text += f"from tests.attempt.gpu_stage import *\nstage = new_stage({str(folder)!r})\n{program}"
    names = {"STATE": "state", "LOCK": "locks", "CACHE": "cache"}
    places = {f"KERNEL_MATRIX_{name}_DIR": str(folder / place) for name, place in names.items()}
    return driver.ask(text, timeout_s=120, **places, **environment)


def new_stage(folder: str) -> PlaySandbox:
    """Make a sandbox for scripts, with its own folders in ``folder``."""
    sources, scratch = Path(folder, "sources"), Path(folder, "scratch")
    for made in (sources, scratch):
        made.mkdir()
    tempfile.tempdir = str(scratch)
    cuda.sampler = _LOOKS.counted(cuda.sampler)  # samples are taken as before
    return PlaySandbox(sources, scratch)


class _Looks:
    """Counts the samples that this process takes of its GPUs, so that a script can wait for some."""

    def __init__(self) -> None:
        self._taken = 0
        self._more = threading.Condition()

    def counted(
        self, sampler: Callable[[Gpu], Callable[[], TelemetrySample]]
    ) -> Callable[[Gpu], Callable[[], TelemetrySample]]:
        """Wrap ``sampler``, which makes functions that take samples."""

        def counting(gpu: Gpu) -> Callable[[], TelemetrySample]:
            take = sampler(gpu)

            def taking() -> TelemetrySample:
                taken = take()
                with self._more:
                    self._taken += 1
                    self._more.notify_all()
                return taken

            return taking

        return counting

    def await_more(self) -> None:
        """Wait until a sample has been taken that began after this call."""
        with self._more:
            wanted = self._taken + 2
            assert self._more.wait_for(lambda: self._taken >= wanted, timeout=20)


_LOOKS = _Looks()


def gpus() -> tuple[Gpu, ...]:
    """The GPUs of the simulated driver."""
    return cuda.inventory().gpus


def changes(**keys: Any) -> Step:
    """Change the state of the GPU."""
    return lambda world: world.change(UUID, **keys)


def times(
    steps: Mapping[int, tuple[Step, Step]] | None = None,
    *,
    probes: tuple[float, ...] = (1500.0,),
    health: HealthReport | None = None,
) -> Play:
    """Make a judge that times four blocks and passes.

    :param steps: index of a block → what happens at its beginning, and at its end.
    :param probes: SM clocks read inside a kernel.
    :param health: its result of the health check; None if it makes none.
    """

    def play(spec: RoleSpec) -> ProcessExit:
        world, uuid = World.here(), spec.labels.gpu_uuid
        world.change(uuid, compute=os.getpid())
        blocks = [
            _block(world, role, index, (steps or {}).get(index))
            for index, role in enumerate((Role.BASELINE, Role.CANDIDATE, Role.CANDIDATE, Role.BASELINE))
        ]
        world.change(uuid, compute="")
        said = replace(_timed(spec, blocks, probes), health=health)
        (out_folder(spec) / "report.json").write_text(dumps(said))
        return ProcessExit(role=spec.role, code=0)

    return play


def times_two(spec: RoleSpec) -> ProcessExit:
    """A judge that stays on the GPU while it times and passes two candidates, one after the other."""
    world, uuid, out = World.here(), spec.labels.gpu_uuid, out_folder(spec)
    folder = next(mount.source for mount in spec.mounts if mount.target == "/judge")
    for number in range(2):
        job = next_job(folder, number)
        world.change(uuid, compute=os.getpid())
        blocks = [_block(world, role, index, None) for index, role in enumerate((Role.BASELINE, Role.CANDIDATE) * 2)]
        labels = replace(spec.labels, cell_id=job["cell_id"])
        said = replace(_timed(replace(spec, labels=labels), blocks, (1500.0,)), health=WELL)
        (out / numbered("waiting", number)).touch()
        replace_file(out / numbered("report.json", number), dumps(said))
    return hangs(spec)


def _block(world: World, role: Role, index: int, step: tuple[Step, Step] | None) -> Block:
    started_ns = time.monotonic_ns()
    _LOOKS.await_more()
    for happens in step or ():
        happens(world)
        _LOOKS.await_more()
    times_ns = (1000,) * 10
    return Block(
        role=role,
        index=index,
        started_ns=started_ns,
        ended_ns=time.monotonic_ns(),
        device_ns=times_ns,
        wall_ns=times_ns,
    )


def _timed(spec: RoleSpec, blocks: list[Block], probes: tuple[float, ...]) -> SessionReport:
    said = replace(report(spec), workloads=(factory.workload(blocks=tuple(blocks)),))
    return with_probes(said, *probes)


def loses() -> Play:
    """Make a judge during whose work the GPU is lost, and which does not return."""

    def play(spec: RoleSpec) -> ProcessExit:
        World.here().change(spec.labels.gpu_uuid, lost="!15")
        threading.Event().wait(60)
        return ProcessExit(role=spec.role, code=0)

    return play


def answers(**said: Any) -> Play:
    """Make a health probe that leaves this answer."""

    def play(spec: RoleSpec) -> ProcessExit:
        (out_folder(spec) / PROBE_NAME).write_text(json.dumps({"kind": "health", "passed": True, "reason": "", **said}))
        return ProcessExit(role=spec.role, code=0)

    return play


def cell(
    stage: PlaySandbox,
    *judges: Play,
    probe: Play | None = None,
    name: str = "kernel",
    uuid: str = "",
    builder: Sequence[Play] = (),
    protocol: Protocol | None = None,
    **policy: Any,
) -> Any:
    """Make a cell for any H200, or for ``uuid``, whose GPU is healthy afterwards unless ``probe`` says otherwise."""
    axis = replace(AXIS, name=uuid, uuid=uuid) if uuid else AXIS
    held = Policy(gpu_wait_s=5, session_timeout_s=30, **policy)
    made = stage.cell(
        name, *judges, builder=builder, gpu=axis, policy=held, protocol=protocol or Protocol(), source=f"{name} = 1\n"
    )
    stage.plays[Role.PROBE, made.id] = [probe or answers()]
    return made


def attempt(stage: PlaySandbox, made: Any, gpu: Gpu | None = None) -> AttemptResult:
    """Run one attempt at a cell, on the first GPU unless told otherwise."""
    bench = RunContext(
        run_id="run-1", sandbox=stage, sandbox_status=stage.status(), owner=owner_token(), scratch=stage.scratch
    )
    return run_cell(Assignment(cell=made, gpu=gpu or gpus()[0]), bench)


def tell_shared(stage: PlaySandbox) -> None:
    """Run two cells of a problem with one judge, and print their records and whether the GPU was free after each."""
    stage.root_pid = os.getpid()
    first, second = (cell(stage, times_two, name=name) for name in ("first", "second"))
    cells = [first, replace(second, problem=first.problem)]
    stage.plays["eager", first.id] = [hangs]
    bench = RunContext(
        run_id="run-1", sandbox=stage, sandbox_status=stage.status(), owner=owner_token(), scratch=stage.scratch
    )
    locked, records = [], []
    with closing(SessionPrefetch(bench, lambda _count: [])) as ahead:
        for made in cells:
            records.append(record_to_json(run_cell(Assignment(cell=made, gpu=gpus()[0]), bench, ahead).record))
            locked.append(_is_locked())
    locked.append(_is_locked())
    launched = [role.value for role in stage.launched]
    scratch = [path.name for path in stage.scratch.iterdir()]
    told = {"records": records, "locked": locked, "launched": launched, "alive": stage.alive, "scratch": scratch}
    sys.stdout.write(json.dumps(told))


def _is_locked() -> bool:
    try:
        with locked(lock_file(lock_folder(), gpus()[0].uuid), LeaseWait("the GPU", limit_s=0.0)):
            return False
    except GpuBusyError:
        return True


def tell(ran: AttemptResult, stage: PlaySandbox) -> None:
    """Print the result of an attempt."""
    told = {
        "record": record_to_json(ran.record),
        "trace": None if ran.trace is None else len(ran.trace.columns["at_ns"]),
        "quarantine": ran.quarantine,
        "launched": [role.value for role in stage.launched],
        "alive": stage.alive,
        "scratch": [path.name for path in stage.scratch.iterdir()],
    }
    sys.stdout.write(json.dumps(told))


def tell_run(stage: PlaySandbox, cells: Sequence[Any]) -> None:
    """Run cells on all GPUs to the end, and print the events."""
    store = RecordStore(stage.scratch.parent / "results")
    session = Run(cells, stage.survey(*gpus()), store, RunPolicy(run_id="run-1"))
    with session.running() as events:
        happened = [(event.happening.value, _name(event.cell), event.lane) for event in events]
    attempts = {
        _name(made): [
            (seen.status.value, store.load(store.records / f"{made.id}.{seen.attempt}.json").host.device["uuid"])
            for seen in store.attempts().get(made.id, ())
        ]
        for made in cells
    }
    told = {
        "events": happened,
        "attempts": attempts,
        "left": session.left,
        "counts": {status.value: count for status, count in session.counts.items()},
        "quarantined": session.quarantined,
        "launched": [role.value for role in stage.launched],
        "alive": stage.alive,
        "scratch": [path.name for path in stage.scratch.iterdir()],
    }
    sys.stdout.write(json.dumps(told))


def _name(made: Any) -> str:
    return str(made.candidate.id.removeprefix("p/"))
