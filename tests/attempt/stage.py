"""A sandbox without processes, and cells to run on it: each cell's judge runs a script of the test."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_matrix.errors import SandboxError
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.inside.build.builder import SOCKET_NAME
from kernel_matrix.inside.judge.judge import numbered
from kernel_matrix.inside.wire import MAX_CHUNK, Channel, FrameKind
from kernel_matrix.matrix import GpuAxis, Policy, Protocol, Toolchain
from kernel_matrix.model.enums import Dtype, Language, Role, Status
from kernel_matrix.model.messages import HealthReport, SessionReport, dumps
from kernel_matrix.plan import Cell, HostInventory
from kernel_matrix.platforms import Gpu
from kernel_matrix.sandboxes import Isolation, ProcessExit, RoleSpec, RunningProcess, SandboxStatus
from kernel_matrix.sources import Candidate, Problem, Workload
from tests.results import factory

FIRST = Gpu(platform="cpu", uuid="cpu-0", name="one half")
SECOND = Gpu(platform="cpu", uuid="cpu-1", name="the other half")
AXES = {gpu.uuid: GpuAxis(name=gpu.uuid, platform="cpu", uuid=gpu.uuid) for gpu in (FIRST, SECOND)}
ANY = GpuAxis(name="cpu", platform="cpu")


Play = Callable[[RoleSpec], ProcessExit]


WELL = HealthReport(passed=True, reason="")


def report(spec: RoleSpec, status: Status = Status.PASSED, health: HealthReport | None = None) -> SessionReport:
    """Make an honest judge's report; only a cell that passed was timed."""
    workloads = None if status is Status.PASSED else ()
    said = factory.session(spec.labels.session, status, workloads, cell_id=spec.labels.cell_id)
    return replace(said, health=health)


def says(status: Status, health: HealthReport | None = None) -> Play:
    """Make a judge that reports ``status``, and ``health`` if it checked the device."""

    def play(spec: RoleSpec) -> ProcessExit:
        (out_folder(spec) / "report.json").write_text(dumps(report(spec, status, health)))
        return ProcessExit(role=spec.role, code=0)

    return play


def keeps(*statuses: Status) -> Play:
    """Make a judge that reports these, one for each candidate, and then waits for another candidate."""

    def play(spec: RoleSpec) -> ProcessExit:
        out, jobs = out_folder(spec), [mount.source for mount in spec.mounts if mount.target == "/judge"]
        for number, status in enumerate(statuses):
            labels = spec.labels
            for folder in jobs:
                told = next_job(folder, number)
                labels = replace(labels, cell_id=told["cell_id"], session=told["session"])
            (out / numbered("waiting", number)).touch()
            replace_file(out / numbered("report.json", number), dumps(report(replace(spec, labels=labels), status)))
        return hangs(spec)

    return play


def next_job(folder: Path, number: int) -> Any:
    """Wait for a job as long as the judge has its folder, and return it."""
    while folder.exists():
        with suppress(FileNotFoundError):
            return json.loads((folder / numbered("job.json", number)).read_text())
        time.sleep(0.005)
    raise FileNotFoundError(folder)


def vanishes(spec: RoleSpec) -> ProcessExit:
    """A judge whose container is removed from outside."""
    return ProcessExit(role=spec.role, code=None, lost=True)


def cannot_start(spec: RoleSpec) -> ProcessExit:
    raise SandboxError(f"{spec.title} cannot be started")


def hands_over(*chunks: bytes) -> Play:
    """A builder that sends these chunks."""

    def play(spec: RoleSpec) -> ProcessExit:
        with connected(spec) as connection:
            channel = Channel(connection, MAX_CHUNK)
            for chunk in chunks:
                channel.send(FrameKind.CHUNK, 0, chunk)
            channel.send(FrameKind.DONE)
        return ProcessExit(role=spec.role, code=0)

    return play


@contextmanager
def connected(spec: RoleSpec) -> Iterator[socket.socket]:
    """A builder's connection to the host."""
    with ExitStack() as undo:
        channel = os.open(next(mount.source for mount in spec.mounts if mount.target == "/channel"), os.O_RDONLY)
        undo.callback(os.close, channel)
        connection = undo.enter_context(socket.socket(socket.AF_UNIX))
        # Inside a container the folder's name is short; here it can be longer than the name of a socket may be.
        connection.connect(f"/proc/self/fd/{channel}/{SOCKET_NAME}")
        yield connection


def out_folder(spec: RoleSpec) -> Path:
    return next(mount.source for mount in spec.mounts if mount.target == "/out")


class Played:
    """A role whose script runs in its own thread; killing it is only recorded."""

    def __init__(self, spec: RoleSpec, play: Play, root_pid: int | None) -> None:
        self._spec = spec
        self._root_pid = root_pid
        self._exit: ProcessExit | None = None
        self.killed = threading.Event()
        self._thread = threading.Thread(target=self._act, args=(play,), daemon=True)
        self._thread.start()

    def _act(self, play: Play) -> None:
        if not self._has_its_job():
            return
        try:
            self._exit = play(self._spec)
        except FileNotFoundError:
            # A thread outlives being killed; the folders of a killed process are gone.
            if not self.killed.wait(1.0):
                raise

    def _has_its_job(self) -> bool:
        """Wait, as judges do, for a job; return False if it was killed before."""
        folders = [mount.source for mount in self._spec.mounts if mount.target == "/judge"]
        while not all((folder / "job.json").exists() for folder in folders):
            if self.killed.wait(0.005):
                return False
        return True

    def wait(self, timeout_s: float) -> ProcessExit | None:
        if self.killed.is_set():
            return ProcessExit(role=self._spec.role, code=None, signal=9, killed=True)
        self._thread.join(timeout_s)
        return self._exit

    def kill(self) -> None:
        if self._exit is None:
            self.killed.set()

    def pause(self) -> None:
        """Do nothing: no judge of these scripts asks for it."""

    def resume(self) -> None:
        """Do nothing."""

    def root_pid(self) -> int | None:
        return self._root_pid


class _Launch:
    """A launch that ends only when it is closed, not with its last reference."""

    def __init__(self, sandbox: PlaySandbox, spec: RoleSpec) -> None:
        self._sandbox = sandbox
        self._spec = spec

    def __enter__(self) -> RunningProcess:
        self._sandbox.launched.append(self._spec.role)
        play = self._sandbox.next_play(self._spec)
        if play is cannot_start:
            cannot_start(self._spec)
        self._sandbox.count(1)
        self._played = self._sandbox.playing(self._spec, play)
        return self._played

    def __exit__(self, *error: object) -> None:
        self._played.kill()
        self._sandbox.count(-1)


class PlaySandbox:
    """Makes cells and runs their scripts: the first one at the first launch, and so on; the last one is repeated."""

    name = "process"
    uses_images = False

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self.scratch = scratch
        self.root_pid: int | None = None
        """What its processes say is their PID."""
        self.plays: dict[tuple[str, str], list[Play]] = {}
        """(what tells a process from the others of its session, cell) → what it does at each launch"""
        self.launched: list[Role] = []
        self.alive = 0
        self._played: list[Played] = []
        self._counting = threading.Lock()

    def playing(self, spec: RoleSpec, play: Play) -> Played:
        """Start a script, and remember it."""
        self._played.append(Played(spec, play, self.root_pid))
        return self._played[-1]

    def ended_roles(self) -> set[Role]:
        """Roles of which a script has ended by itself."""
        return {end.role for played in list(self._played) if (end := played.wait(0)) is not None}

    def count(self, more: int) -> None:
        """Count launches, which start and end in many threads."""
        with self._counting:
            self.alive += more

    def cell(
        self, name: str, *plays: Play, builder: Sequence[Play] = (), source: str = "x = 1\n", **changes: Any
    ) -> Cell:
        """Make a cell whose source exists, and the scripts of its judge for the first launch, the second …

        :param builder: the scripts of its builder; if given, the candidate must be built.
        """
        path = self._folder / f"{name}.py"
        path.write_text(source)
        digest = hashlib.sha256(source.encode()).hexdigest()
        language = Language.CUDA if builder else Language.TORCH
        made = Cell(
            id=hashlib.sha256(json.dumps([name, source]).encode()).hexdigest()[:32],
            gpu=ANY,
            toolchain=Toolchain(name="cpu", torch="2.13.0", triton="3.7.1"),
            dtype=Dtype.FP32,
            problem=Problem(
                id="p", source="folder", path=path, category="c", workloads=(Workload(name="smoke"),), digest="a" * 64
            ),
            candidate=Candidate(id=f"p/{name}", problem_id="p", path=path, language=language, digest=digest),
            workloads=(Workload(name="smoke"),),
            protocol=Protocol(),
            policy=Policy(gpu_wait_s=20, session_timeout_s=20),
            reason=None,
            expected_s=1.0,
        )
        made = replace(made, **changes)
        self.plays["judge", made.id] = list(plays or [says(Status.PASSED)])
        self.plays["builder", made.id] = list(builder)
        return made

    def launch(self, spec: RoleSpec) -> AbstractContextManager[RunningProcess]:
        return _Launch(self, spec)

    def next_play(self, spec: RoleSpec) -> Play:
        """Return the script for this launch of the role."""
        plays = self.plays.get((spec.title, spec.labels.cell_id), [_leaves])
        return plays.pop(0) if len(plays) > 1 else plays[0]

    def status(self) -> SandboxStatus:
        return SandboxStatus(name=self.name, available=True)

    def isolation(self, spec: RoleSpec) -> Isolation:
        return Isolation(**{**factory.ISOLATION, "limits": (), "notes": ()})

    def describe(self, spec: RoleSpec) -> dict[str, Any]:
        return {"module": spec.module}

    def sweep(self) -> list[str]:
        return []

    def survey(self, *gpus: Gpu) -> HostSurvey:
        """Return a host with these devices and this sandbox."""
        return HostSurvey(sandbox=self, status=self.status(), inventory=HostInventory(gpus=gpus or (FIRST,)), images={})


def _leaves(spec: RoleSpec) -> ProcessExit:
    return ProcessExit(role=spec.role, code=0)


def hangs(spec: RoleSpec) -> ProcessExit:
    threading.Event().wait(30)
    return ProcessExit(role=spec.role, code=0)
