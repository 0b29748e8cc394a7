"""Log of one attempt, filled while it runs; the record contains it for every outcome."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kernel_matrix.attempt.telemetry_join import ObservedSession
from kernel_matrix.model.instants import utc_now
from kernel_matrix.model.messages import SessionReport
from kernel_matrix.results.record import ExitInfo
from kernel_matrix.sandboxes import ProcessExit
from kernel_matrix.scan import SourceScan
from kernel_matrix.scan.code_measures import CodeMeasures

_NOTHING_READ = SourceScan(own_kernels=(), findings=())


@dataclass(slots=True)
class AttemptLog:
    """Observations of the host during an attempt, which starts when this object is made."""

    started_at: str = field(default_factory=utc_now)
    scan: SourceScan = _NOTHING_READ
    """Findings in the candidate's source."""
    code: CodeMeasures | None = None
    """Measures of the candidate's source; None until it was read."""
    seen: list[ObservedSession] = field(default_factory=list)
    exits: list[ExitInfo] = field(default_factory=list)
    isolation: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Role → how strongly its process was confined."""
    phases: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds spent so far, by phase."""
    _began: float = field(default_factory=time.monotonic)

    @property
    def reports(self) -> tuple[SessionReport, ...]:
        """The judges' reports, in the order of their sessions."""
        return tuple(session.report for session in self.seen if session.report is not None)

    def label_last(self, label: str) -> None:
        """Add a label to the last session's report, if there is one, for facts that its judge could not know."""
        last = self.seen[-1]
        if last.report is not None:
            report = replace(last.report, labels=(*last.report.labels, label))
            self.seen[-1] = replace(last, report=report)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time spent in this context to ``phase``."""
        started = time.monotonic()
        yield
        self.phases[phase] += time.monotonic() - started

    def saw_ends(self, exits: Sequence[ProcessExit], session: int) -> None:
        """Record how the processes of one session ended."""
        self.exits += [ExitInfo(session=session, **asdict(ended)) for ended in exits]

    def phases_s(self) -> dict[str, float]:
        """Return seconds per phase until now; ``overhead`` is outside of judges' reports and of the lease wait."""
        total = time.monotonic() - self._began
        inside = sum(report.durations_s.get("total", 0.0) for report in self.reports)
        overhead = max(0.0, total - inside - self.phases.get("lease_wait", 0.0))
        phases = {**self.phases, "inside": inside, "total": total, "overhead": overhead}
        return {name: round(seconds, 6) for name, seconds in phases.items()}
