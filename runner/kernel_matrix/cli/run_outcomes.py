"""How the cells of a run ended, against what their candidates declare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kernel_matrix.api.run_cells import Record, RunResult
from kernel_matrix.model.enums import Fault, Status

_MOST_NAMED = 5
"""Unexpected ends that the summary names one by one."""


@dataclass(slots=True)
class RunOutcomes:
    """Cells that ended, counted as they end."""

    passed: int = 0
    failed_as_expected: int = 0
    unexpected: list[str] = field(default_factory=list)
    """Cell and status of each that did not end as its candidate declares, or failed where nothing is declared."""

    def note(self, cell: str, record: Record) -> None:
        """Count one ended cell."""
        if not is_as_expected(record):
            self.unexpected.append(f"{cell} ({record.outcome.status.value})")
        elif record.outcome.fault is Fault.NONE:
            self.passed += 1
        else:
            self.failed_as_expected += 1

    def __str__(self) -> str:
        parts = ((self.failed_as_expected, "failed as expected"), (len(self.unexpected), "not as expected"))
        return ", ".join(f"{number} {what}" for number, what in parts if number)

    def lines(self, result: RunResult) -> Iterator[str]:
        """Yield for example ``53 cells ended: 42 passed, 11 timeout`` and ``52 as expected, 1 not: …``."""
        total = sum(result.counts.values())
        if not total:
            return
        statuses = ", ".join(f"{number} {status.value}" for status, number in result.counts.most_common())
        yield f"{'1 cell' if total == 1 else f'{total} cells'} ended: {statuses}"
        if not self.unexpected:
            yield "all as expected"
            return
        named = ", ".join(self.unexpected[:_MOST_NAMED])
        more = f", and {len(self.unexpected) - _MOST_NAMED} more" if len(self.unexpected) > _MOST_NAMED else ""
        yield f"{self.passed + self.failed_as_expected} as expected, {len(self.unexpected)} not: {named}{more}"


def is_as_expected(record: Record) -> bool:
    """Return whether a cell ended as its candidate declares; without a declaration it is expected to pass."""
    status = record.outcome.status
    return status in (record.cell.expect or Status.PASSED, Status.COMPILED, Status.VERIFIED)
