"""Exception that ends a session with a status, a stage and evidence."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Dict, Iterator, List

from kernel_matrix.model.enums import Role, Stage, Status
from kernel_matrix.model.messages import ONCE_TIMED, ContestantSpec, Evidence

MAX_LOG = 8 << 10  # characters of a log kept as evidence

# As ONCE_TIMED, within a session. A candidate that has answered a call is not believed to lack a package (see
# :class:`~kernel_matrix.inside.judge.worker_client.WorkerClient`), so here the reference lacks it, on a later workload.
_IN_ONE_SESSION = {**ONCE_TIMED, Status.UNSUPPORTED: Status.INVALID_PROBLEM}


class SessionEnded(Exception):
    """Error of the judge that ends a session; becomes the report's status, stage and evidence."""

    def __init__(self, status: Status, stage: Stage, evidence: Evidence) -> None:
        super().__init__(f"{status.value}: {evidence.message}")
        self.status = status
        self.stage = stage
        self.evidence = evidence

    def at(self, **where: Any) -> SessionEnded:
        """Return a copy with workload, mode or trial filled in."""
        return SessionEnded(self.status, self.stage, replace(self.evidence, **where))

    def once_timed(self) -> SessionEnded:
        """Return a copy for a session that has timed something, in which compile and load errors are impossible."""
        return SessionEnded(_IN_ONE_SESSION.get(self.status, self.status), self.stage, self.evidence)


def finding(status: Status, stage: Stage, message: str, log: str = "") -> SessionEnded:
    """Make an exception with a message and a log as evidence."""
    return SessionEnded(status, stage, Evidence(message=message, log=log[-MAX_LOG:]))


def lacking_memory(error: BaseException, stage: Stage) -> SessionEnded:
    """Make the exception for an error of the judge that says that there is too little memory."""
    message = f"the judge lacked memory: {type(error).__name__}: {error}"[:500]
    return finding(Status.DOES_NOT_FIT, stage, message, "".join(traceback.format_tb(error.__traceback__)))


def rival_failed(name: str) -> str:
    """Return the label of a session whose rival ``name`` failed."""
    return f"rival_failed:{name}"


@contextmanager
def excused(contestant: ContestantSpec, clients: Dict[str, Any], labels: List[str]) -> Iterator[None]:
    """Remove a rival that fails from ``clients`` and add a label; let other contestants' errors through."""
    try:
        yield
    except SessionEnded:
        if contestant.role is not Role.RIVAL:
            raise
        clients.pop(contestant.name, None)
        labels.append(rival_failed(contestant.name))
