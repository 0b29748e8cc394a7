"""The processes of one session: started together, given a job, and ended together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kernel_matrix.attempt.judge_report import read_report
from kernel_matrix.attempt.pausing import pausing_on_request
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.model.enums import Role
from kernel_matrix.model.messages import SessionReport
from kernel_matrix.sandboxes import ProcessExit, RoleSpec, RunningProcess, Sandbox

_POLL_S = 0.05
_ORPHANED_JUDGE_S = 20.0  # after its candidate or baseline ended, a judge only has to notice and write its report
_LINGERING_S = 0.5  # after the judge ended, honest workers exit at once
_LAST_MOMENTS_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpecs:
    """The processes to start for one session."""

    sandbox: Sandbox
    judge: RoleSpec
    contestants: tuple[RoleSpec, ...]
    judge_folder: Path
    """Folder that only the judge sees."""
    report: Path
    """Path of the judge's report."""
    lingering_s: float = _LINGERING_S
    """Seconds that contestants may run on after their judge ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """Result of a session: the judge's report, if there is one, and the exits of its processes, the judge's first."""

    report: SessionReport | None
    exits: tuple[ProcessExit, ...]
    called_off: bool = False
    trouble: str = ""
    """Reason if there is no usable report."""
    phases_s: dict[str, float] = field(default_factory=dict)


@contextmanager
def started(session_specs: SessionSpecs) -> Iterator[SessionProcesses]:
    """Start all processes at once, without waiting; end them all on exit."""
    specs = (session_specs.judge, *session_specs.contestants)
    # The threads live as long as the processes: a process whose parent thread ends is killed (PR_SET_PDEATHSIG).
    with ThreadPoolExecutor(len(specs), thread_name_prefix="start") as threads:
        processes = SessionProcesses(session_specs, [_Launch(session_specs.sandbox, spec, threads) for spec in specs])
        with pausing_on_request(session_specs.judge_folder, processes.candidate):
            try:
                yield processes
            finally:
                processes.leave()


class SessionProcesses:
    """The processes of one session. Made by :func:`started`."""

    def __init__(self, session_specs: SessionSpecs, launches: list[_Launch]) -> None:
        self._session_specs = session_specs
        self._launches = launches
        self._left = False

    def are_waiting(self) -> bool:
        """Wait until all have started; return True if none has ended yet."""
        try:
            return all(launch.running().wait(0) is None for launch in self._launches)
        except (InfrastructureError, OSError):
            return False

    def admit(self, admit: Callable[[RunningProcess], None]) -> None:
        """Wait until all have started, then call ``admit`` with each process, the judge first.

        Raises:
            InfrastructureError: If a process could not be started.
        """
        for running in [launch.running() for launch in self._launches]:
            admit(running)

    def candidate(self) -> RunningProcess:
        """Return the candidate's process.

        Raises:
            InfrastructureError: If it could not be started.
        """
        return next(launch for launch in self._launches if launch.role is Role.CANDIDATE).running()

    def finish(self, deadline_s: float, called_off: Callable[[], bool]) -> SessionResult:
        """Wait up to ``deadline_s`` seconds for the judge, end all processes, and read the report.

        If ``called_off``, which is polled meanwhile, returns true, all processes are ended at once.
        """
        judge_exit, is_called_off = self._until_judge_ends(deadline_s, called_off)
        if judge_exit is not None:
            self._let_contestants_leave()
        ending = time.monotonic()
        exits = self._end_all()
        self.leave()
        phases = {"teardown": time.monotonic() - ending}
        if is_called_off:
            return SessionResult(report=None, exits=exits, called_off=True, phases_s=phases)
        report, trouble = read_report(self._session_specs.report, self._session_specs.judge.labels)
        return SessionResult(report=report, exits=exits, trouble=trouble, phases_s=phases)

    def leave(self) -> None:
        """End all processes at the same time."""
        if not self._left:
            self._left = True
            leaving = [launch.leave() for launch in self._launches]
            for left in leaving:
                left.result()

    def _until_judge_ends(self, deadline_s: float, called_off: Callable[[], bool]) -> tuple[ProcessExit | None, bool]:
        """Wait for the judge's exit; return None if it is cancelled, is too late, or has no contestants left."""
        judge = self._launches[0].running()
        deadline = time.monotonic() + deadline_s
        orphaned_since: float | None = None
        while True:
            now = time.monotonic()
            ended = judge.wait(_POLL_S)
            if ended is not None:
                return ended, False
            if called_off():
                return None, True
            gone = self._indispensable_gone()
            if any(exit_.lost for exit_ in gone):
                return None, False  # the sandbox lost a process, so the judge's later findings would be wrong
            if orphaned_since is None and gone:
                orphaned_since = now
            if now > deadline or (orphaned_since is not None and now - orphaned_since > _ORPHANED_JUDGE_S):
                return None, False

    def _indispensable_gone(self) -> list[ProcessExit]:
        """Return the exits of candidate and baseline; a session can go on without a rival."""
        needed = [launch for launch in self._launches if launch.role in (Role.CANDIDATE, Role.BASELINE)]
        return [ended for launch in needed if (ended := launch.running().wait(0)) is not None]

    def _let_contestants_leave(self) -> None:
        until = time.monotonic() + self._session_specs.lingering_s
        for launch in self._launches[1:]:
            launch.running().wait(max(0.0, until - time.monotonic()))

    def _end_all(self) -> tuple[ProcessExit, ...]:
        """Kill the processes that still run; return all exits that can be seen."""
        for launch in self._launches:
            if launch.running().wait(0) is None:
                launch.running().kill()
        ends = [launch.running().wait(_LAST_MOMENTS_S) for launch in self._launches]
        return tuple(end for end in ends if end is not None)


class _Launch:
    """One process, started and ended by a thread."""

    def __init__(self, sandbox: Sandbox, spec: RoleSpec, threads: ThreadPoolExecutor) -> None:
        self.role = spec.role
        self._context = sandbox.launch(spec)
        self._threads = threads
        self._undo = ExitStack()
        self._entered: Future[RunningProcess] = threads.submit(self._enter)

    def running(self) -> RunningProcess:
        """Wait until the process is started, and return it.

        Raises:
            InfrastructureError: If it could not be started.
        """
        return self._entered.result()

    def leave(self) -> Future[None]:
        """End the process once it has been started."""
        return self._threads.submit(self._exit)

    def _enter(self) -> RunningProcess:
        with ExitStack() as undo:
            running = undo.enter_context(self._context)
            running.root_pid()  # some sandboxes query it once and then remember it; do that here, in this thread
            self._undo = undo.pop_all()
        return running

    def _exit(self) -> None:
        wait((self._entered,))
        self._undo.close()
