"""Baselines: frozen tables that nights are compared with, and changes that are accepted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from kernel_matrix.analysis.accepted import Acceptance
from kernel_matrix.errors import StoreError, UsageError
from kernel_matrix.nightly import baselines as _baselines
from kernel_matrix.nightly.accept_changes import accept
from kernel_matrix.nightly.baselines import Baseline, verified_tables
from kernel_matrix.nightly.paths import accepted_file

__all__ = ["Acceptance", "Baseline", "BaselineList", "accept_change", "list_baselines", "set_baseline", "show_baseline"]

ACCEPTED_FOR: Final = timedelta(days=90)
"""Default time for which an accepted change holds; without an end it would be forgotten."""


@dataclass(frozen=True, slots=True)
class BaselineList:
    """All baselines of a results folder."""

    baselines: list[Baseline]
    damaged: dict[str, str]
    """Name → reason why it cannot be used."""


def set_baseline(
    name: str,
    folder: str | Path | None = None,
    *,
    night: str = "",
    matrix: str = "",
    results: str | Path = "results",
    force: bool = False,
) -> Baseline:
    """Freeze a copy of merged tables under a name.

    Args:
        name: What the baseline is called.
        folder: Merged tables, or a result folder.
        night: Instead of ``folder``: a night, as ``2026-12-31``.
        matrix: Whose night, where several matrices had one.
        results: The folder that all results are in.
        force: Replace the baseline that has this name.

    Raises:
        UsageError: The name or the night is not usable, or not exactly one of ``folder`` and ``night`` is given.
        StoreError: The tables are damaged, or the copy cannot be written.
    """
    if (folder is None) == (not night):
        raise UsageError("give either FOLDER or --night", next_step=f"baseline set {name} --night 2026-12-31")
    source = Path(folder) if folder is not None else _baselines.night_folder(Path(results), night, matrix)
    made_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return _baselines.set_baseline(Path(results), name, source, made_at=made_at, force=force)


def list_baselines(results: str | Path = "results") -> BaselineList:
    """List all baselines of a results folder; their tables are not read."""
    found = BaselineList([], {})
    for name in _baselines.names(Path(results)):
        try:
            found.baselines.append(_baselines.read_baseline(Path(results), name))
        except StoreError as error:  # noqa: PERF203  # there are few
            found.damaged[name] = error.what
    return found


def show_baseline(name: str, results: str | Path = "results") -> Baseline:
    """Return a baseline after every byte of its tables was checked.

    Raises:
        UsageError: There is none of that name.
        StoreError: Its tables are not what was frozen.
    """
    return verified_tables(Path(results), name)[0]


def accept_change(
    candidate: str, *, reason: str, until: str = "", results: str | Path = "results"
) -> tuple[Acceptance, Path]:
    """Accept regressions of matching candidates until a day.

    Args:
        candidate: A glob on candidate ids, ``softmax/triton_*``.
        reason: Why they are accepted.
        until: The last day, as ``YYYY-MM-DD``; by default in 90 days.
        results: The folder that all results are in.

    Returns:
        The entry, and the file it was added to.

    Raises:
        UsageError: The glob, the reason or the day is not usable, or the file has faults.
        StoreError: The file cannot be written.
    """
    file = accepted_file(Path(results))
    return accept(file, candidate, reason=reason, until=_day(until)), file


def _day(text: str) -> date:
    today = datetime.now().astimezone().date()
    if not text:
        return today + ACCEPTED_FOR
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007  # a day, local by intention
    except ValueError:
        raise UsageError(f"--until {text}: give a day as YYYY-MM-DD, e.g. {today + ACCEPTED_FOR}") from None
    if day < today:
        raise UsageError(f"--until {text} is over already", next_step=f"e.g. --until {today + ACCEPTED_FOR}")
    return day
