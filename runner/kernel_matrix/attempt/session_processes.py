"""The processes of one session: started together, given a job, and ended together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kernel_matrix.attempt.judge_report import read_report
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.model.enums import Role
from kernel_matrix.model.messages import SessionReport
from kernel_matrix.sandboxes import ProcessExit, ProcessLabels, RoleSpec, RunningProcess, Sandbox

_POLL_S = 0.02
_ORPHANED_JUDGE_S = 20.0  # after its candidate or baseline ended, a judge only has to notice and write its report
LINGERING_S = 0.5  # after the judge ended, honest workers exit at once
_LAST_MOMENTS_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """Result of a session: the judge's report, if there is one, and the exits of its processes, the judge's first."""

    report: SessionReport | None
    exits: tuple[ProcessExit, ...]
    """Exits of the processes that have ended; those of a judge that is kept have not."""
    called_off: bool = False
    trouble: str = ""
    """Reason if there is no usable report."""
    phases_s: dict[str, float] = field(default_factory=dict)


@contextmanager
def launched(sandbox: Sandbox, specs: Sequence[RoleSpec]) -> Iterator[list[Launch]]:
    """Start processes at once, without waiting; end them all on exit."""
    # The threads live as long as the processes: a process whose parent thread ends is killed (PR_SET_PDEATHSIG).
    with ThreadPoolExecutor(len(specs), thread_name_prefix="start") as threads:
        launches = [Launch(sandbox, spec, threads) for spec in specs]
        try:
            yield launches
        finally:
            end_all(launches)


def end_all(launches: Sequence[Launch]) -> None:
    """End all these processes at the same time."""
    for leaving in [launch.leave() for launch in launches]:
        leaving.result()


def are_waiting(launches: Sequence[Launch]) -> bool:
    """Wait until all have started; return True if none has ended yet."""
    try:
        return all(launch.running().wait(0) is None for launch in launches)
    except (InfrastructureError, OSError):
        return False


class SessionProcesses:
    """The processes of one session."""

    def __init__(
        self,
        judge: Launch,
        candidate: Launch,
        others: Sequence[Launch],
        *,
        labels: ProcessLabels,
        report: Path,
        is_kept: Callable[[], bool] = lambda: False,
        lingering_s: float = LINGERING_S,
    ) -> None:
        """Describe the session whose processes were launched.

        Args:
            judge: The judge.
            candidate: The candidate.
            others: The baseline and rivals.
            labels: Labels of the session, which the report must have.
            report: Path of the judge's report.
            is_kept: Returns True if judge, baseline and rivals wait for another session after this report.
            lingering_s: Seconds that contestants may run on after the session is over.
        """
        self._judge = judge
        self._candidate = candidate
        self._launches = [judge, candidate, *others]
        self._labels = labels
        self._report = report
        self._is_kept = is_kept
        self._lingering_s = lingering_s
        self.are_kept = False
        """True if the session is over, and judge, baseline and rivals wait for another one."""

    def are_waiting(self) -> bool:
        """Wait until all have started; return True if none has ended yet."""
        return are_waiting(self._launches)

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
        return self._candidate.running()

    def finish(self, deadline_s: float, called_off: Callable[[], bool]) -> SessionResult:
        """Wait up to ``deadline_s`` seconds for the judge, end all processes that are not kept, and read the report.

        If ``called_off``, which is polled meanwhile, returns true, all processes are ended at once.
        """
        is_called_off = self._until_judge_ends(deadline_s, called_off)
        leaving = [self._candidate] if self.are_kept else self._launches
        if self.are_kept or self._judge.running().wait(0) is not None:
            self._let_contestants_leave([launch for launch in leaving if launch is not self._judge])
        ending = time.monotonic()
        exits = _ends_of(leaving)
        end_all(leaving)
        phases = {"teardown": time.monotonic() - ending}
        if is_called_off:
            return SessionResult(report=None, exits=exits, called_off=True, phases_s=phases)
        report, trouble = read_report(self._report, self._labels)
        return SessionResult(report=report, exits=exits, trouble=trouble, phases_s=phases)

    def _until_judge_ends(self, deadline_s: float, called_off: Callable[[], bool]) -> bool:
        """Wait until the judge has ended or is kept, is too late, or has no contestants left; return if called off."""
        judge = self._judge.running()
        deadline = time.monotonic() + deadline_s
        orphaned_since: float | None = None
        while True:
            now = time.monotonic()
            if judge.wait(_POLL_S) is not None:
                return False
            if self._is_kept() and self._report.exists():
                self.are_kept = True
                return False
            if called_off():
                return True
            gone = self._indispensable_gone()
            if any(exit_.lost for exit_ in gone):
                return False  # the sandbox lost a process, so the judge's later findings would be wrong
            if orphaned_since is None and gone:
                orphaned_since = now
            if now > deadline or (orphaned_since is not None and now - orphaned_since > _ORPHANED_JUDGE_S):
                return False

    def _indispensable_gone(self) -> list[ProcessExit]:
        """Return the exits of candidate and baseline; a session can go on without a rival."""
        needed = [launch for launch in self._launches if launch.role in (Role.CANDIDATE, Role.BASELINE)]
        return [ended for launch in needed if (ended := launch.running().wait(0)) is not None]

    def _let_contestants_leave(self, launches: Sequence[Launch]) -> None:
        until = time.monotonic() + self._lingering_s
        for launch in launches:
            launch.running().wait(max(0.0, until - time.monotonic()))


def _ends_of(launches: Sequence[Launch]) -> tuple[ProcessExit, ...]:
    """Kill the processes that still run; return all exits that can be seen."""
    for launch in launches:
        if launch.running().wait(0) is None:
            launch.running().kill()
    ends = [launch.running().wait(_LAST_MOMENTS_S) for launch in launches]
    return tuple(end for end in ends if end is not None)


class Launch:
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
