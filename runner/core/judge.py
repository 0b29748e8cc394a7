"""The trusted side of a session: references, seeds, tolerances, verdict, report.

``python -m runner.core.judge --job FILE --channel DIR --out DIR``. Listens in the channel folder for the candidate's
worker, forks a worker of its own for the baseline, verifies, times, verifies again, and leaves ``report.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import socket
import struct
import sys
import time
import traceback
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

from runner.core.finding import Finding, finding
from runner.core.messages import (
    ClockProbe,
    Evidence,
    InsideEnvironment,
    JudgeJob,
    SessionReport,
    WorkloadReport,
    dumps,
    from_json,
)
from runner.core.vocab import Stage, Status
from runner.core.wholefile import write_whole
from runner.core.wire import MAX_FROM_JUDGE, MAX_FROM_WORKER, Channel
from runner.core.worker import SOCKET_NAME, open_device, serve

REPORT_NAME = "report.json"
"""Name of the report in the output folder."""


class SessionExpired(BaseException):
    """The session's own deadline passed; not an Exception, so that no handler on the way swallows it."""


class Session:
    """One session of one cell, from listening to report."""

    def __init__(self, job: JudgeJob, folder: Path, channel: Path) -> None:
        self._job = job
        self._folder = folder
        self._channel = channel
        self._durations: Dict[str, float] = {}
        self._reports: List[WorkloadReport] = []
        self._labels: List[str] = list(job.labels)
        self._clock_probes: Tuple[ClockProbe, ...] = ()
        self._environment: Optional[InsideEnvironment] = None
        self._peer: Mapping[str, int] = {}
        self._stage = Stage.START

    def run(self) -> SessionReport:
        """Everything; never raises for what a candidate or a problem does."""
        started = time.monotonic()
        try:
            with ExitStack() as undo, _alarm(self._job.timeouts.session_s):
                self._everything(undo)
            status, stage, evidence = Status.PASSED, Stage.DONE, Evidence()
        except Finding as ended:
            status, stage, evidence = ended.status, ended.stage, ended.evidence
        except SessionExpired:
            message = f"the session did not end within {self._job.timeouts.session_s:g} s"
            status, stage, evidence = Status.INFRA_ERROR, self._stage, Evidence(message=message)
        except Exception as error:  # noqa: BLE001  # a fault of the judge is told as one, not lost with the process
            message = f"the judge failed: {type(error).__name__}: {error}"[:500]
            status, stage = Status.INFRA_ERROR, self._stage
            evidence = Evidence(message=message, log=traceback.format_exc()[-8192:])
        self._durations["total"] = time.monotonic() - started
        return self._report(status, stage, evidence)

    def _everything(self, undo: ExitStack) -> None:
        listener = undo.enter_context(_listening(self._channel / SOCKET_NAME))
        with self._clock("import"):
            # Listening first: the candidate's side starts at the same time.
            from runner.core.environment import read_environment  # noqa: PLC0415
            from runner.core.workload import Desk  # noqa: PLC0415

            baseline = undo.enter_context(_baseline(self._folder, self._job.device))
            open_device(self._job.device)
            self._environment = read_environment(self._job.device)
        with self._clock("connect"):
            candidate = undo.enter_context(self._accept(listener))
        with self._clock("load"):
            desk = undo.enter_context(Desk(self._job, self._folder, baseline, candidate).open())
        for spec in self._job.workloads:
            self._stage = Stage.VERIFY
            outcome = desk.run(spec, self._clock)
            self._reports.append(outcome.report)
            self._clock_probes = desk.clock_probes
            self._labels += [label for label in outcome.labels if label not in self._labels]
            if outcome.ended is not None:
                raise outcome.ended

    @contextmanager
    def _accept(self, listener: socket.socket) -> Iterator[Channel]:
        """The candidate's connection; only a peer with the expected uid is taken."""
        listener.settimeout(self._job.timeouts.connect_s)
        while True:
            try:
                connection, _ = listener.accept()
            except socket.timeout:
                message = f"the candidate's worker did not connect within {self._job.timeouts.connect_s:g} s"
                raise finding(Status.INFRA_ERROR, Stage.START, message) from None
            pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if self._job.candidate_uid in (None, uid):
                break
            connection.close()
        self._peer = {"pid": pid, "uid": uid, "gid": gid}
        listener.close()
        channel = Channel(connection, MAX_FROM_WORKER)
        try:
            yield channel
        finally:
            channel.close()

    @contextmanager
    def _clock(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to a phase, in seconds."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._durations[phase] = self._durations.get(phase, 0.0) + time.monotonic() - started

    def _report(self, status: Status, stage: Stage, evidence: Evidence) -> SessionReport:
        from runner.core.memory import transport_name  # noqa: PLC0415  # torch, imported by now or not to be had

        return SessionReport(
            cell_id=self._job.cell_id,
            session=self._job.session,
            status=status,
            stage=stage,
            evidence=evidence,
            environment=self._environment,
            seed_sha256=hashlib.sha256(self._job.seed.encode()).hexdigest(),
            transport=transport_name(self._job.device),
            candidate_peer=self._peer,
            workloads=tuple(self._reports),
            durations_s={name: round(seconds, 6) for name, seconds in self._durations.items()},
            labels=tuple(self._labels),
            clock_probes=self._clock_probes,
        )


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise :class:`SessionExpired` in the main thread after ``seconds``: the judge ends even if its host is gone."""

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
def _listening(path: Path) -> Iterator[socket.socket]:
    """A listening socket file that another uid may connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Bound under another name and then renamed: whoever sees the name can already connect.
        aside = path.with_suffix(".new")
        listener.bind(str(aside))
        aside.chmod(0o666)
        listener.listen(4)
        aside.rename(path)
        yield listener
    finally:
        listener.close()


@contextmanager
def _baseline(code: Path, device: str) -> Iterator[Channel]:
    """The baseline's worker: the same thin runner, in a child that has torch already.

    Forked after the import, which is most of a process's start, and before the device is opened: no child of a
    process that has opened CUDA can use it.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    child = os.fork()
    if child == 0:
        _serve_baseline(ours, theirs, code, device)
    theirs.close()
    channel = Channel(ours, MAX_FROM_WORKER)
    try:
        yield channel
    finally:
        channel.close()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _serve_baseline(ours: socket.socket, theirs: socket.socket, code: Path, device: str) -> NoReturn:
    """The child's whole life; it never returns into the judge's code."""
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        ours.close()
        open_device(device)
        serve(Channel(theirs, MAX_FROM_JUDGE), code)
    finally:
        os._exit(0)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one session. The exit code is 0 whenever a report was written, whatever it says."""
    parser = argparse.ArgumentParser(prog="judge")
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--channel", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(argv)
    job = from_json(JudgeJob, json.loads(arguments.job.read_text(encoding="utf-8")))
    report = Session(job, arguments.job.parent, arguments.channel).run()
    write_whole(arguments.out / REPORT_NAME, dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
