"""How much times vary, and at which level: what is noise, what is the unit, and what a wanted precision costs.

All spreads are standard deviations of natural logarithms, given in percent: 1.0 means that one standard deviation is
one percent. Sessions are values, medians of their samples; samples and blocks are looked at within sessions only.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from kernel_matrix.analysis import grades, identical
from kernel_matrix.analysis.cell_noise import noise
from kernel_matrix.analysis.grades import by_grade
from kernel_matrix.analysis.identical import noise_floor
from kernel_matrix.analysis.levels import sums_of_cells
from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.spread import of_cells, of_slices
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import ALL, SLICE, measured_in
from kernel_matrix.analysis.units import between_units
from kernel_matrix.analysis.within import within
from kernel_matrix.model.enums import Status


def variance(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Components of variance, the noise of cells, the noise floor of identical code, and how units of a model differ.

    :raises UsageError: for a name that is nothing to slice by.
    :raises NothingSelectedError: where no session passed and was timed.
    """
    by = columns_of(request.by)
    measured = measured_in(tables.cells, by)
    sums = sums_of_cells(measured, within(tables.samples, measured))
    passed, labels = _passed(tables.cells, by), [*by] or [SLICE]
    return [
        of_slices(measured, sums, by),
        of_cells(measured, sums),
        noise(tables.cells, measured, sums),
        by_grade(passed, labels),
        noise_floor(passed, labels),
        *between_units(measured),
    ]


def _passed(cells: pl.LazyFrame, by: Sequence[str]) -> pl.DataFrame:
    """Outcomes that passed, read once for all that is told from them, with the columns of their slice."""
    passed = outcomes(cells).filter(pl.col("status") == Status.PASSED.value)
    found = passed.select(*dict.fromkeys((*grades.NEEDED, *identical.NEEDED, *by))).collect()
    return found if by else found.with_columns(pl.lit(ALL).alias(SLICE))
