"""The summary of a night, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from kernel_matrix.analysis.comparison import FLAGGED, Comparison
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.model.enums import Status
from kernel_matrix.nightly.baselines import Baseline
from kernel_matrix.results.descriptions import describe_shapes, printable

_MOST_ROWS: Final = 20
"""Flagged rows that the text lists."""
_MOST_TEXT: Final = 2000
"""Characters of the short text: it has to fit into an environment variable and a message."""
_ROW: Final = ("change", "gpu", "toolchain", "dtype", "problem", "ranks", "workload", "candidate")


class NightEnd(str, Enum):
    """End of a night."""

    COMPLETE = "complete"
    """Every cell that can run here was measured."""
    CUT = "cut"
    """The deadline came first; the next night begins with what is left."""
    STOPPED = "stopped"
    """A signal stopped it; the next night begins with what is left."""
    INCOMPLETE = "incomplete"
    """The machine failed some cells; the next night begins with them."""
    FAILED = "failed"
    """It could not continue; earlier measurements are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightProgress:
    """Progress of the measurements."""

    end: NightEnd
    planned: int
    left: int
    """Cells that did not end, or that the machine failed."""
    statuses: Mapping[Status, int] = field(default_factory=dict)
    """Status → cells that ended so."""
    exit_code: int = 0
    """Exit code that ``kernel-matrix run`` would have had."""
    error: str = ""
    """Reason why it could not continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightSummary:
    """The summary of a night."""

    matrix: str
    night: str
    folder: Path
    began_at: str
    ended_at: str
    until: str
    measured: NightProgress
    baseline: Baseline | None = None
    comparison: Comparison | None = None
    report: Path | None = None
    troubles: Sequence[str] = ()
    """Errors after the measurements, and parts left out, in sentences."""
    exit_code: int = 0

    @property
    def text(self) -> str:
        """A few lines, the most important first."""
        said = "\n".join(self._lines())
        return said if len(said) <= _MOST_TEXT else f"{said[: _MOST_TEXT - 1]}…"

    def document(self) -> dict[str, Any]:
        """Return the summary as JSON."""
        measured = self.measured
        return {
            "matrix": self.matrix,
            "night": self.night,
            "folder": str(self.folder.resolve()),
            "began_at": self.began_at,
            "ended_at": self.ended_at,
            "until": self.until,
            "end": measured.end.value,
            "planned": measured.planned,
            "measured": measured.planned - measured.left,
            "left": measured.left,
            "statuses": {status.value: number for status, number in measured.statuses.items()},
            "baseline": self.baseline and {"name": self.baseline.name, "content_sha256": self.baseline.content_sha256},
            "comparison": self.comparison and _comparison_document(self.comparison),
            "report": self.report and str(self.report.resolve()),
            "troubles": [*([measured.error] if measured.error else []), *self.troubles],
            "exit_code": self.exit_code,
            "text": self.text,
        }

    def _lines(self) -> Iterator[str]:
        measured, found = self.measured, self.comparison
        if found is not None:
            yield printable(f"{self.matrix} {self.night}: {found.headline}")
        elif self.baseline is not None:
            yield printable(f"{self.matrix} {self.night}: nothing could be compared with baseline {self.baseline.name}")
        else:
            yield printable(f"{self.matrix} {self.night}: not compared with any baseline")
        left = f", {measured.left} left for the next night" if measured.left else ""
        yield f"{measured.end.value}: {measured.planned - measured.left} of {measured.planned} cells measured{left}"
        if measured.error:
            yield printable(measured.error)
        if measured.statuses:
            counted = sorted(measured.statuses.items(), key=lambda item: (-item[1], item[0].value))
            yield ", ".join(f"{number} {status.value}" for status, number in counted)
        if found is not None:
            rest = ", ".join(f"{n} {change.value}" for change, n in found.counts().items() if change not in FLAGGED)
            yield printable(f"against {found.base}: {rest or 'nothing else'}")
            yield from (f"overall: {one}" for one in found.overall[:1])
            if found.event is not None:
                yield printable(str(found.event))
            yield from (_describe_row(row) for row in _flagged(found))
        yield from map(printable, self.troubles)
        if self.report is not None:
            yield printable(f"report: {self.report}")


def worst(codes: Sequence[int]) -> int:
    """Return the exit code of all: 4 where any is 4, else the first that is not 0, else 0."""
    bad = [code for code in codes if code]
    return InfrastructureError.exit_code if InfrastructureError.exit_code in bad else next(iter(bad), 0)


def _comparison_document(found: Comparison) -> dict[str, Any]:
    return {
        "base": found.base,
        "new": found.new,
        "answer": found.answer.value,
        "headline": found.headline,
        "rules": str(found.rules),
        "counts": {change.value: number for change, number in found.counts().items()},
        "flagged": [{name: row[name] for name in (*_ROW, "ratio", "reason")} for row in _flagged(found)],
        "event": found.event and str(found.event),
        "notes": list(found.notes),
    }


def _flagged(found: Comparison) -> list[dict[str, Any]]:
    return found.flagged().head(_MOST_ROWS).to_dicts()


def _describe_row(row: Mapping[str, Any]) -> str:
    change = "" if row["ratio"] is None else f" {100 * (row['ratio'] - 1):+.1f} %"
    work = " ".join(filter(None, (row["candidate"], describe_shapes(row))))
    where = f"{work} {row['dtype']} {row['gpu']}/{row['toolchain']}"
    return printable(f"{row['change']}: {where}{change} {row['reason'] or ''}")
