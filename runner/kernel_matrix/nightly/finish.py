"""The end of a night: merge, compare and report, however the measuring ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final

from kernel_matrix.analysis.accepted import Acceptance
from kernel_matrix.analysis.audit import write_objections
from kernel_matrix.analysis.compare import compare
from kernel_matrix.analysis.comparison import Answered, Comparison
from kernel_matrix.analysis.tables import open_tables
from kernel_matrix.errors import InfrastructureError, KernelMatrixError, NothingComparedError, RegressionError
from kernel_matrix.model.instants import utc_now
from kernel_matrix.nightly.baselines import Baseline
from kernel_matrix.nightly.night_summary import NightEnd, NightProgress, NightSummary, worst
from kernel_matrix.nightly.paths import NightPaths, tables_of
from kernel_matrix.nightly.state import NightState, write_state
from kernel_matrix.report.formats import compose, format_of
from kernel_matrix.results.descriptions import printable
from kernel_matrix.results.merge import merge
from kernel_matrix.results.store import replace_document

QUICK: Final = 2_000
"""Records up to which a stopped night is still merged and reported: more would take longer than seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineChoice:
    """The baseline of a night, and the changes that are accepted."""

    baseline: Baseline
    tables: Path
    accepted: Sequence[Acceptance]


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One night, begun."""

    places: NightPaths
    name: str
    began_at: str
    until: str
    against: BaselineChoice | None
    report: Path | None
    """Path of the page; ``None``: in the night's folder."""

    @property
    def folder(self) -> Path:
        """Its records, tables and page."""
        return self.places.nights / self.name


def end_night(night: Night, measured: NightProgress, *, now: datetime) -> NightSummary:
    """Merge, compare and report; write down how far the night came; return its summary.

    A failure in here costs nothing that was measured: it is in the summary, and counts for the exit code.

    Args:
        night: The night.
        measured: How far the measuring came.
        now: Local time.
    """
    troubles: list[str] = []
    codes = [measured.exit_code]
    found, report = None, None
    if _is_merged(night, measured, troubles):
        with _failures_noted(troubles, codes, "merging"):
            _merge(night, troubles)
            with _failures_noted(troubles, codes, "comparing"):
                found = _compare(night, now.date())
            with _failures_noted(troubles, [], "the report"):
                report = _report(night, found, now)
    code = _exit_code(codes, found, night)
    ended_at = utc_now()
    with _failures_noted(troubles, codes, "the state file"):
        _write_down(night, measured, ended_at, code)
    return NightSummary(
        matrix=night.places.matrix,
        night=night.name,
        folder=night.folder,
        began_at=night.began_at,
        ended_at=ended_at,
        until=night.until,
        measured=measured,
        baseline=night.against.baseline if night.against else None,
        comparison=found,
        report=report,
        troubles=tuple(troubles),
        exit_code=_exit_code(codes, found, night),
    )


def begin_night(night: Night, planned: int) -> None:
    """Write down that the night has begun, so that the next one finds its folder, however this one ends.

    Raises:
        StoreError: That cannot be written.
    """
    write_state(night.places.state, NightState(night=night.name, began_at=night.began_at, planned=planned))


@contextmanager
def _failures_noted(troubles: list[str], codes: list[int], what: str) -> Iterator[None]:
    """Note and count a failure in the context; the night goes on to its end."""
    try:
        yield
    except KernelMatrixError as error:
        codes.append(error.exit_code if isinstance(error, InfrastructureError) else InfrastructureError.exit_code)
        troubles.append(printable(f"{what} failed: {error}"))
    except Exception as error:  # noqa: BLE001  # a defect here must not cost the notification
        codes.append(InfrastructureError.exit_code)
        troubles.append(printable(f"{what} failed: {type(error).__name__}: {error}"))


def _is_merged(night: Night, measured: NightProgress, troubles: list[str]) -> bool:
    records = sum(1 for _ in (night.folder / "records").glob("*.json"))
    if not records:
        troubles.append("Nothing was measured, so that there is nothing to compare or report.")
        return False
    if measured.end is NightEnd.STOPPED and records > QUICK:
        troubles.append(
            f"The night was stopped: its {records} records are kept, and were neither merged nor compared;"
            f" kernel-matrix merge {night.folder} --out {tables_of(night.folder)} does."
        )
        return False
    return True


def _merge(night: Night, troubles: list[str]) -> None:
    merged = merge([night.folder], tables_of(night.folder), traces=True)  # its page shows them
    write_objections(tables_of(night.folder))
    if merged.rejected:
        troubles.append(
            f"{len(merged.rejected)} files are no valid records; rejected.jsonl beside the tables says why."
        )


def _compare(night: Night, today: date) -> Comparison | None:
    if night.against is None:
        return None
    names = f"baseline {night.against.baseline.name}", f"night {night.name}"
    base, new = (open_tables([folder]).cells for folder in (night.against.tables, tables_of(night.folder)))
    return compare(base, new, names=names, accepted=night.against.accepted, today=today)


def _report(night: Night, found: Comparison | None, now: datetime) -> Path:
    file, folder = night.report or night.folder / "report.html", tables_of(night.folder)
    title = f"{night.places.matrix}, night {night.name}"
    text = compose(
        format_of(file), open_tables([folder]), title=title, made_at=now, folders=[str(folder)], comparison=found
    )
    replace_document(file, text)
    return file


def _write_down(night: Night, measured: NightProgress, ended_at: str, code: int) -> None:
    state = NightState(
        night=night.name,
        began_at=night.began_at,
        planned=measured.planned,
        ended_at=ended_at,
        measured=measured.planned - measured.left,
        left=measured.left,
        end=measured.end.value,
        exit_code=code,
    )
    write_state(night.places.state, state)


def _exit_code(codes: Sequence[int], found: Comparison | None, night: Night) -> int:
    """Return the exit code: of a regression, else of a machine that failed, of one that was busy, of no comparison."""
    if found is not None and found.answer is Answered.WORSE:
        return RegressionError.exit_code
    silent = night.against is not None and (found is None or found.answer is Answered.NOT_COMPARED)
    return worst([*codes, NothingComparedError.exit_code] if silent else codes)
