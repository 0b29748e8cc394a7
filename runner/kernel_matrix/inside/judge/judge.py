"""The judge's process: references, seeds, tolerances, verdict, report.

Run as ``python -m kernel_matrix.inside.judge.judge --job FILE --channel DIR --out DIR [--patience SECONDS]``. It
listens in every contestant's folder, imports what it needs, and waits for its job without opening the device. Then it
verifies, times, verifies again, then verifies workloads that are held out, and writes ``report.json``. If the job says
so, it keeps the baseline and rivals, and waits for another job beside the first, which is about another candidate. Of
all code of candidates and problems, only the reference runs here; the rest runs in the contestants' processes.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import signal
import socket
import struct
import time
import traceback
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Collection,
    ContextManager,
    Dict,
    Iterator,
    List,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.inside.hard_exit import leave
from kernel_matrix.inside.judge.earlier_cells import EarlierCells
from kernel_matrix.inside.judge.pause import open_pause
from kernel_matrix.inside.judge.session_ended import SessionEnded, excused, finding
from kernel_matrix.inside.phases import Phases
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.wire import AWAKE_S, MAX_FROM_WORKER, Channel, short_name
from kernel_matrix.inside.worker.worker import PATIENCE_S, SOCKET_NAME
from kernel_matrix.model.enums import Role, Stage, Status
from kernel_matrix.model.messages import (
    ContestantSpec,
    Evidence,
    HealthReport,
    JudgeJob,
    SessionReport,
    WorkloadReport,
    WorkloadSpec,
    dumps,
    from_json,
)

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.worker_client import WorkerClient
    from kernel_matrix.inside.judge.workload_runner import WorkloadRunner

REPORT_NAME = "report.json"  # name of the report in the output folder

WAITING_NAME = "waiting"  # name of an empty file beside a report: the judge waits for another job

SessionEnd = Tuple[Status, Stage, Evidence]

# Outcomes of a session after which the judge may serve another candidate: this one's outputs are right, or it is at
# fault in a way that leaves no work on the device. After a contradiction between clocks all processes must be new.
KEPT_AFTER = frozenset(
    {
        Status.PASSED,
        Status.COMPILE_ERROR,
        Status.LOAD_ERROR,
        Status.RUNTIME_ERROR,
        Status.INCORRECT_STRUCTURE,
        Status.INCORRECT_SHAPE,
        Status.INCORRECT_DTYPE,
        Status.INCORRECT_DEVICE,
        Status.INCORRECT_VALUES,
        Status.INPUT_MODIFIED,
        Status.OUTPUT_ALIASED,
        Status.NONFINITE,
        Status.NONDETERMINISTIC,
        Status.CONTRACT_BROKEN,
        Status.NO_OWN_KERNEL,
    }
)

_LOOK_S = 0.01  # interval of looking for the job
_HEALTH_WINDOW_S = 0.03
_FAREWELL_S = 1.0  # contestants get this long to end; if one stays, the device's health is not checked here


class SessionExpired(BaseException):
    """The session's deadline passed. Not an Exception, so that no handler on the way catches it."""


class JudgeSession:
    """One session of one cell, from the job to the report."""

    def __init__(
        self,
        job: JudgeJob,
        folder: Path,
        listeners: Mapping[str, socket.socket],
        phases: Phases,
        earlier: Optional[EarlierCells] = None,
    ) -> None:
        """Prepare the session; the contestants in ``earlier`` take part without connecting again."""
        self._job = job
        self._earlier = earlier or EarlierCells()
        self._folder = folder
        self._listeners = listeners
        self._phases = phases
        self._reports: List[WorkloadReport] = []
        self._labels: List[str] = list(job.labels)
        self._peer: Mapping[str, int] = {}
        self._admitted: List[WorkerClient] = list(self._earlier.clients.values())
        self._clients: Dict[str, WorkerClient] = {}  # without rivals that have failed
        self._runner: Optional[WorkloadRunner] = None
        self._health: Optional[HealthReport] = None
        self._end: SessionEnd = (Status.PASSED, Stage.DONE, Evidence())
        self._stage = Stage.START
        self._is_held_out = False
        self.is_kept = False
        """True if the session has ended, and another candidate can be judged with the same processes."""

    def run(self) -> SessionReport:
        """Run the session and return its report; errors of candidates and problems do not raise."""
        started = time.monotonic()
        failed = self._end_of(self._run_and_dismiss)
        status, stage, evidence = self._end if failed[0] is Status.PASSED else failed
        evidence = replace(evidence, held_out=self._is_held_out or None)
        durations = {**self._phases.ended(), "total": round(time.monotonic() - started, 6)}
        return self._report(status, stage, evidence, durations)

    def _run_and_dismiss(self) -> None:
        with ExitStack() as undo:
            self._end = self._end_of(lambda: self._run_within_limit(undo))
            self._dismiss()  # outside of the alarm, so that it cannot replace the verdict

    def _end_of(self, step: Callable[[], None]) -> SessionEnd:
        """Run ``step``; return how the session ended in it."""
        try:
            step()
        except SessionEnded as ended:
            return ended.status, ended.stage, ended.evidence
        except SessionExpired:
            return self._expired()
        except Exception as error:  # noqa: BLE001  # a fault of the judge is reported too
            message = f"the judge failed: {type(error).__name__}: {error}"[:500]
            return Status.INFRA_ERROR, self._stage, Evidence(message=message, log=traceback.format_exc()[-8192:])
        return Status.PASSED, Stage.DONE, Evidence()

    def _run_within_limit(self, undo: ExitStack) -> None:
        with _alarm(self._job.timeouts.session_s):
            self._run_workloads(undo)

    def _run_workloads(self, undo: ExitStack) -> None:
        # Imports torch, so not before the sockets are open.
        from kernel_matrix.inside.judge.workload_runner import WorkloadRunner  # noqa: PLC0415

        pause = undo.enter_context(open_pause(self._folder))
        self._phases.enter("connect")
        for contestant in self._job.contestants:
            with self._excused(contestant):
                client = self._earlier.clients.get(contestant.name) or self._admit(contestant, undo)
                self._clients[contestant.name] = client
        self._phases.enter("open")
        self._open([client for name, client in self._clients.items() if name not in self._earlier.clients])
        runner = self._runner = undo.enter_context(
            WorkloadRunner(self._job, self._folder, self._clients, self._phases, pause, earlier=self._earlier).open()
        )
        self._run_each(runner, [spec for spec in self._job.workloads if not spec.held_out])
        runner.trace()
        held_out = [spec for spec in self._job.workloads if spec.held_out]
        self._is_held_out = bool(held_out)  # from here on the candidate sees inputs of shapes that it must not tell
        self._run_each(runner, held_out)
        self._is_held_out = False

    def _run_each(self, runner: WorkloadRunner, specs: Sequence[WorkloadSpec]) -> None:
        for spec in specs:
            self._stage = Stage.VERIFY
            report, ended = runner.run(spec)
            self._reports.append(report)
            if ended is not None:
                raise ended

    def _admit(self, contestant: ContestantSpec, undo: ExitStack) -> WorkerClient:
        """Accept the contestant's connection, from the expected uid only."""
        from kernel_matrix.inside.judge.worker_client import WorkerClient  # noqa: PLC0415  # imports torch

        job, is_candidate = self._job, contestant.role is Role.CANDIDATE
        folder = numbered(contestant.name, job.number) if is_candidate else contestant.name
        if folder not in self._listeners:
            message = f"there is no folder for the contestant {folder!r} in the channel's"
            raise finding(Status.INFRA_ERROR, Stage.START, message)
        connection, peer = _accepted(self._listeners[folder], contestant, job.timeouts.connect_s)
        if is_candidate:
            self._peer = peer
        channel = Channel(connection, MAX_FROM_WORKER)
        if load_platform(job.device).IS_ACCELERATOR:
            channel.stay_awake(AWAKE_S)
        (undo if is_candidate else self._earlier.undo).callback(channel.close)
        client = WorkerClient(contestant, channel, job.device, job.timeouts, job.device_memory_bytes, ranks=job.ranks)
        self._admitted.append(client)
        return client

    def _open(self, clients: Sequence[WorkerClient]) -> None:
        """Let the processes of ``clients`` open the device at the same time."""
        from kernel_matrix.inside.environment import read_environment  # noqa: PLC0415  # imports torch

        for client in clients:
            with self._excused(client.contestant):
                client.start_open()
        platform = load_platform(self._job.device)
        os.environ.update(platform.judge_settings())
        platform.open_device()
        missing = platform.missing_path(self._job.ranks)
        if missing:
            raise finding(Status.UNSUPPORTED, Stage.START, missing)
        self._earlier.environment = self._earlier.environment or read_environment(platform)
        for client in clients:
            if client.name in self._clients:
                with self._excused(client.contestant):
                    client.finish_open()

    def _excused(self, contestant: ContestantSpec) -> ContextManager[None]:
        return excused(contestant, self._clients, self._labels)

    def _dismiss(self) -> None:
        """Dismiss the candidate, and all others that are not kept; once they are gone, check the device's health."""
        self.is_kept = self._keep_others()
        leaving = [client for client in self._admitted if not self.is_kept or client.role is Role.CANDIDATE]
        for client in leaving:
            client.close()
        if not self._job.check_health or not leaving:
            return
        self._phases.enter("health")
        deadline = time.monotonic() + _FAREWELL_S
        if all(client.gone(max(0.001, deadline - time.monotonic())) for client in leaving):
            found = load_platform(self._job.device).check_health(_HEALTH_WINDOW_S, self._job.ranks)
            self._health = HealthReport(found.passed, found.reason)

    def _keep_others(self) -> bool:
        """Keep all contestants but the candidate for another one, if the job says so and they wait for orders."""
        others = [self._clients.get(one.name) for one in self._job.contestants if one.role is not Role.CANDIDATE]
        kept = [client for client in others if client is not None and client.is_idle]
        if not self._job.keep or self._end[0] not in KEPT_AFTER or len(kept) < len(others):
            return False
        try:
            for client in kept:
                client.rest()
        except SessionEnded:
            return False
        self._earlier.clients = {client.name: client for client in kept}
        return True

    def _expired(self) -> Tuple[Status, Stage, Evidence]:
        """Decide the outcome: a candidate that has not answered in time is blamed, otherwise this machine."""
        message = f"the session did not end within {self._job.timeouts.session_s:g} s"
        awaited = [client for client in self._admitted if client.awaited]
        if any(client.role is Role.CANDIDATE for client in awaited):
            message = f"{message}, and the judge was waiting for the candidate"
            return Status.TIMEOUT, self._stage, Evidence(message=message)
        return Status.INFRA_ERROR, self._stage, Evidence(message=message)

    def _transport(self) -> str:
        try:
            return load_platform(self._job.device).transport()
        except ImportError:  # which has ended the session
            return "none"

    def _report(
        self, status: Status, stage: Stage, evidence: Evidence, durations: Mapping[str, float]
    ) -> SessionReport:
        runner = self._runner
        readings = runner.readings if runner is not None else None
        labels = [*self._labels, *(runner.labels if runner else ()), *(readings.labels if readings else ())]
        return SessionReport(
            cell_id=self._job.cell_id,
            session=self._job.session,
            status=status,
            stage=stage,
            evidence=evidence,
            environment=self._earlier.environment,
            seed_sha256=hashlib.sha256(self._job.seed.encode()).hexdigest(),
            transport=self._transport(),
            candidate_peer=self._peer,
            workloads=tuple(self._reports),
            durations_s=durations,
            labels=tuple(dict.fromkeys(labels)),
            clock_probes=readings.clock_probes if readings else (),
            anchors=readings.anchors if readings else (),
            kernels=runner.kernels if runner else (),
            launches=runner.launches if runner else {},
            health=self._health,
            earlier_cells=self._earlier.count,
        )


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise :class:`SessionExpired` in the main thread after ``seconds``, even if the host is gone."""

    def expire(_signum: int, _frame: Any) -> NoReturn:
        raise SessionExpired

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _listening(channel: Path) -> Iterator[Dict[str, socket.socket]]:
    """Open a listening socket in each folder of ``channel``; yield them by the folder's name."""
    with ExitStack() as undo:
        folders = sorted(path for path in channel.iterdir() if path.is_dir())
        yield {folder.name: undo.enter_context(_listen_at(folder / SOCKET_NAME)) for folder in folders}


def _listen_at(path: Path) -> socket.socket:
    """Make a listening socket file that another uid may connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Bound under another name and then renamed, so that a peer that finds the file can already connect.
    aside = path.with_suffix(".new")
    before = os.umask(0o111)  # to make it with mode 666
    with short_name(aside) as name:
        listener.bind(name)
    os.umask(before)
    listener.listen(4)
    aside.rename(path)
    return listener


def numbered(name: str, number: int) -> str:
    """Return the name of a file or folder for a judge's candidate ``number``: ``job.json``, ``job-1.json``."""
    stem, dot, suffix = name.partition(".")
    return f"{stem}-{number}{dot}{suffix}" if number else name


def _accepted(
    listener: socket.socket, contestant: ContestantSpec, patience_s: float
) -> Tuple[socket.socket, Mapping[str, int]]:
    """Accept a connection of the expected uid; return it with the peer's ids according to the kernel.

    Raises:
        SessionEnded: If there is none within ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    while True:
        listener.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            connection, _ = listener.accept()
        except socket.timeout:
            message = f"the worker of {contestant.name} did not connect within {patience_s:g} s"
            raise finding(Status.INFRA_ERROR, Stage.START, message) from None
        pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if contestant.uid in (None, uid):
            listener.close()
            return connection, {"pid": pid, "uid": uid, "gid": gid}
        connection.close()


def _import_ahead() -> None:
    """Import modules and read versions that need no device, while waiting for the job."""
    from kernel_matrix.inside.environment import read_tools  # noqa: PLC0415
    from kernel_matrix.inside.judge import workload_runner  # noqa: F401, PLC0415  # imported early because it is slow

    read_tools()


def _next_job(first: Path, served: Collection[Path], patience_s: float) -> Optional[Path]:
    """Wait for a job beside the ``first`` that was not served; jobs are renamed into place when complete.

    None if there is none within ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() <= deadline:
        for path in first.parent.glob(f"{first.stem}*{first.suffix}"):
            if path not in served:
                return path
        time.sleep(_LOOK_S)
    return None


def _listen_to_candidate(listeners: Dict[str, socket.socket], channel: Path, number: int) -> None:
    """Listen in the candidate's folder, if it was made after the judge had looked for folders."""
    folder = channel / numbered(Role.CANDIDATE.value, number)
    if folder.name not in listeners and folder.is_dir():
        listeners[folder.name] = _listen_at(folder / SOCKET_NAME)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one session. The exit code is 0 if a report was written, whatever its status."""
    parser = argparse.ArgumentParser(prog="judge")
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--channel", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--patience", type=float, default=PATIENCE_S)
    arguments = parser.parse_args(argv)
    phases = Phases()
    phases.enter("import")
    earlier = EarlierCells()
    with _listening(arguments.channel) as listeners, closing(earlier.undo):
        _import_ahead()
        served: Set[Path] = set()
        while True:
            phases.enter("wait")
            file = _next_job(arguments.job, served, arguments.patience)
            if file is None:
                return 0 if served else 1
            served.add(file)
            job = from_json(JudgeJob, json.loads(file.read_text(encoding="utf-8")))
            _listen_to_candidate(listeners, arguments.channel, job.number)
            session = JudgeSession(job, file.parent, listeners, phases, earlier)
            report = session.run()
            if session.is_kept:
                earlier.count += 1
                (arguments.out / numbered(WAITING_NAME, job.number)).touch()
            replace_file(arguments.out / numbered(REPORT_NAME, job.number), dumps(report))
            if not session.is_kept:
                return 0
            phases = Phases()
            del session, report  # with the reference, and all that was computed with it
            gc.collect()
            load_platform(job.device).release_memory()


if __name__ == "__main__":
    leave(main())
