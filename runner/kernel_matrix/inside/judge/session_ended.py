"""A finding that ends a session: how it ended, where, and why."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Dict, Iterator, List

from kernel_matrix.model.enums import Role, Stage, Status
from kernel_matrix.model.messages import ONCE_TIMED, ContestantSpec, Evidence

MAX_LOG = 8 << 10
"""Longest log tail kept as evidence, characters."""

_IN_ONE_SESSION = {**ONCE_TIMED, Status.UNSUPPORTED: Status.INVALID_PROBLEM}
"""As :data:`ONCE_TIMED`, within a session. A candidate that has answered a call is not believed to lack a package (see
:class:`~kernel_matrix.inside.judge.worker_client.WorkerClient`), so that here it is the reference which does, on a
later workload: not the candidate's fault."""


class SessionEnded(Exception):
    """Raised by the judge where a session cannot go on; becomes the report's status, stage and evidence."""

    def __init__(self, status: Status, stage: Stage, evidence: Evidence) -> None:
        super().__init__(f"{status.value}: {evidence.message}")
        self.status = status
        self.stage = stage
        self.evidence = evidence

    def at(self, **where: Any) -> SessionEnded:
        """The same finding with workload, mode or trial filled in."""
        return SessionEnded(self.status, self.stage, replace(self.evidence, **where))

    def once_timed(self) -> SessionEnded:
        """The same finding where this session has timed something: no compile or load error can be told any more."""
        return SessionEnded(_IN_ONE_SESSION.get(self.status, self.status), self.stage, self.evidence)


def finding(status: Status, stage: Stage, message: str, log: str = "") -> SessionEnded:
    """A finding that needs no numbers."""
    return SessionEnded(status, stage, Evidence(message=message, log=log[-MAX_LOG:]))


def rival_failed(name: str) -> str:
    """Label of a session whose rival ``name`` could not be timed to the end."""
    return f"rival_failed:{name}"


@contextmanager
def excused(contestant: ContestantSpec, sides: Dict[str, Any], labels: List[str]) -> Iterator[None]:
    """What a rival does wrong costs it its place among ``sides`` and leaves a label; of others it goes on its way."""
    try:
        yield
    except SessionEnded:
        if contestant.role is not Role.RIVAL:
            raise
        sides.pop(contestant.name, None)
        labels.append(rival_failed(contestant.name))
