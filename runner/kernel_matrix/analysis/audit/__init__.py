"""The audit: checks for rows that cannot be trusted. Correct tables give no findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.analysis.audit import (
    boards,
    consistency,
    copies,
    execution,
    gaps,
    harness,
    outliers,
    problem_versions,
    slow_units,
    speedups,
    summaries,
    times,
)
from kernel_matrix.analysis.audit.check import FINDINGS, SEVERITIES, AuditCheck, Severity
from kernel_matrix.analysis.audit.objected_rows import find_objections, objecting
from kernel_matrix.analysis.tables import Tables, open_tables
from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.plugins import Registry
from kernel_matrix.results.publishing import METADATA, aside
from kernel_matrix.results.schema import OBJECTIONS_FILE

__all__ = [
    "CHECKS",
    "FINDINGS",
    "SEVERITIES",
    "AuditCheck",
    "Severity",
    "audit",
    "chosen",
    "objections",
    "write_objections",
]

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

_BUILT_IN: Final = (
    AuditCheck(name="impossible_time", severity=_ERROR, look=times.impossible,
          about="A time is shorter than the work takes at the device's peak rate."),
    AuditCheck(name="impossible_rate", severity=_ERROR, look=times.impossible_rates,
          about="A file states a rate that the device cannot reach: the time is too short, or the work is miscounted."),
    AuditCheck(name="no_number", severity=_ERROR, look=times.no_numbers,
          about="A time or speed-up is NaN, infinite, zero or negative."),
    AuditCheck(name="wrong_board", severity=_ERROR, look=boards.wrong_board,
          about="The GPU's name means another board than the one that the driver named."),
    AuditCheck(name="two_boards", severity=_ERROR, look=boards.two_boards,
          about="Rows of several boards have one GPU name."),
    AuditCheck(name="copied_times", severity=_ERROR, look=copies.copied_times,
          about="Two GPU names share times, equal to the last digit, in at least half of their common cells."),
    AuditCheck(name="copied_samples", severity=_ERROR, look=copies.copied_samples,
          about="Several places hold the same list of timed calls."),
    AuditCheck(name="verdict_flip", severity=_ERROR, look=consistency.verdict_flips,
          about="Identical code under the same image and judge passed and failed on one GPU."),
    AuditCheck(name="never_ran", severity=_ERROR, look=execution.never_ran,
          about="A candidate passed, but no kernel of it was seen to run."),
    AuditCheck(name="summary_against_calls", severity=_ERROR, look=summaries.against_samples,
          about="A median or a number of calls contradicts the calls in the table samples."),
    AuditCheck(name="summary_against_rows", severity=_ERROR, look=summaries.against_rows,
          about="A speed-up or verdict contradicts its own medians, interval or sessions."),
    AuditCheck(name="time_order", severity=_ERROR, look=consistency.order_of_time,
          about="Something ended before it started, or started before what it follows."),
    AuditCheck(name="twice", severity=_ERROR, look=gaps.twice,
          about="A row occurs several times: joins multiply it."),
    AuditCheck(name="orphan", severity=_ERROR, look=gaps.orphans,
          about="Calls, kernels or hosts have no matching row: joins drop them."),
    AuditCheck(name="copied_code", severity=_WARNING, look=copies.copied_code,
          about="Machine code is the same for GPUs of different compute capability."),
    AuditCheck(name="one_board_two_names", severity=_WARNING, look=boards.one_board_two_names,
          about="One device has rows under several GPU names."),
    AuditCheck(name="host_of_another_board", severity=_WARNING, look=boards.host_of_another,
          about="A host is named after another board than the one in it."),
    AuditCheck(name="like_the_baseline", severity=_WARNING, look=copies.copy_of_baseline,
          about="A candidate has the baseline's content, or its times in every row, within the timer's step."),
    AuditCheck(name="implausible_speedup", severity=_WARNING, look=speedups.implausible,
          about="A speed-up of 10 or more that neither the roofline nor other candidates back."),
    AuditCheck(name="harness_fault", severity=_WARNING, look=harness.harness_faults,
          about="Failures that count as the candidates' say that the harness failed."),
    AuditCheck(name="same_for_any_size", severity=_WARNING, look=execution.same_for_any_size,
          about="A candidate's time does not depend on the workload, but the baseline's does."),
    AuditCheck(name="odd_gpu", severity=_WARNING, look=outliers.odd_gpu,
          about="A GPU is much faster or slower, relative to the others, than its data sheet says."),
    AuditCheck(name="odd_cell", severity=_WARNING, look=outliers.odd_cell,
          about="One time is far off, given the GPU's other times and other GPUs' times of the same cell."),
    AuditCheck(name="slow_unit", severity=_WARNING, look=slow_units.slow_unit,
          about="A board is slower than the other boards of its model."),
    AuditCheck(name="units_apart", severity=_WARNING, look=slow_units.units_apart,
          about="Of two boards of one model one is slower; there is no third to tell which is odd."),
    AuditCheck(name="baselines_apart", severity=_WARNING, look=consistency.baselines_apart,
          about="Baselines of one problem on one unit differ by more than 1.3× between candidates."),
    AuditCheck(name="accused_once", severity=_WARNING, look=consistency.accused_once,
          about="Clocks contradicted each other in one attempt, but not in others of identical code."),
    AuditCheck(name="mixed_problems", severity=_WARNING, look=problem_versions.mixed_problems,
          about="GPUs seem to have been timed on different versions of the problems."),
    AuditCheck(name="mixed_units", severity=_WARNING, look=consistency.mixed_units,
          about="One cell's times come from several units, drivers, clock states or images."),
    AuditCheck(name="mixed_versions", severity=_WARNING, look=consistency.mixed_versions,
          about="Several versions of the program wrote the rows, or a toolchain changed under its name."),
    AuditCheck(name="not_alone", severity=_WARNING, look=consistency.not_alone,
          about="The device was not proven to be free of other processes."),
    AuditCheck(name="drift", severity=_WARNING, look=times.drift,
          about="The machine or the code changed during the measurement by more than 2 %."),
    AuditCheck(name="scattered", severity=_WARNING, look=summaries.scattered,
          about="More than a fifth of the calls are 1.5× off their median: late launches, or differing work."),
    AuditCheck(name="few_samples", severity=_WARNING, look=times.few_samples,
          about="A median is of fewer than ten calls."),
    AuditCheck(name="few_values", severity=_WARNING, look=times.few_values,
          about="At least twenty calls have at most three different times."),
    AuditCheck(name="coarse_timer", severity=_WARNING, look=times.coarse_timer,
          about="Times are whole multiples of a step that is more than 1 % of them."),
    AuditCheck(name="no_partner", severity=_WARNING, look=gaps.no_partner,
          about="A candidate's or baseline's time lacks the other: joins of the two drop it."),
    AuditCheck(name="nothing_passed", severity=_WARNING, look=gaps.nothing_passed,
          about="Nothing passed on a GPU."),
    AuditCheck(name="hole", severity=_WARNING, look=gaps.holes,
          about="A GPU has no row of cells that other GPUs have."),
    AuditCheck(name="no_bound", severity=_NOTE, look=times.no_bound,
          about="No peak of the device is known, so impossible times cannot be found."),
    AuditCheck(name="no_board", severity=_NOTE, look=boards.no_name,
          about="A GPU's name cannot be checked against hardware."),
)  # fmt: skip

CHECKS: Registry[AuditCheck] = Registry(
    "audit check",
    "kernel_matrix.audits",
    {check.name: check for check in _BUILT_IN},
    members=[field.name for field in fields(AuditCheck)],
    name_member="name",
)
"""Checks by name, the worst severity first; other packages add theirs as entry points ``module:attribute``."""


def chosen(names: Sequence[str] = ()) -> tuple[AuditCheck, ...]:
    """Select the checks with these names; all if ``names`` is empty.

    Raises:
        UsageError: A name is unknown.
        PluginError: A check of another package cannot be used.
    """
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise UsageError(f"unknown check {unknown[0]!r}", next_step=f"Use one of {', '.join(CHECKS)}.")
    if not names:
        return tuple(CHECKS.usable().values())
    return tuple(CHECKS.load(name) for name in CHECKS if name in names)


def audit(tables: Tables, checks: Sequence[AuditCheck] | None = None) -> Iterator[tuple[AuditCheck, pl.DataFrame]]:
    """Run the checks, by default all; yields each with its findings in the columns :data:`FINDINGS`, the worst first.

    Raises:
        NothingSelectedError: The tables have no rows.
    """
    if tables.cells.select(pl.len()).collect().item() == 0:
        raise NothingSelectedError("the tables have no rows", next_step="Run or import something first, then merge it.")
    for check in chosen() if checks is None else checks:
        yield check, check.findings(tables)


def objections(tables: Tables, names: Sequence[str] = ()) -> pl.DataFrame:
    """Find the rows of ``cells`` about which no verdict should be given, because a check objects to them.

    Args:
        tables: Tables, which may be empty.
        names: Names of the checks to ask; by default all errors about rows, and the warnings that leave no ground for a
            verdict.

    Returns:
        One row per ``record`` and ``workload`` with an objection, and in ``checks`` the names of those that object.

    Raises:
        UsageError: A name is unknown.
    """
    return find_objections(tables, chosen(names) if names else objecting(chosen()))


def write_objections(folder: Path) -> None:
    """Write the table of :func:`objections` to the merged tables in ``folder``, which are read with it from then on.

    Raises:
        StoreError: It cannot be written, or the tables are damaged.
    """
    found = objections(open_tables([folder]))
    with aside(folder, untouched="the other tables") as temporary:
        file = temporary / OBJECTIONS_FILE
        found.write_parquet(file, metadata=METADATA)
        file.replace(folder / OBJECTIONS_FILE)
