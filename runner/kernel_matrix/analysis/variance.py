"""Variance of times by level, noise of cells and units, and the cost of a wanted precision.

All spreads are standard deviations of natural logarithms in percent: 1.0 means that one standard deviation is one
percent. The values are session medians; samples and blocks are analysed within sessions only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from kernel_matrix.analysis import grades, identical
from kernel_matrix.analysis.cell_noise import noise
from kernel_matrix.analysis.grades import by_grade
from kernel_matrix.analysis.identical import noise_floor
from kernel_matrix.analysis.levels import sums_of_cells
from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.analysis.parallel import map_threads
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.spread import heavy_tailed, of_cells, of_slices
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import ALL, SLICE, measured_in
from kernel_matrix.analysis.units import between_units
from kernel_matrix.analysis.within import within
from kernel_matrix.model.enums import Status


def variance(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Compute variance components, noise of cells, the noise floor of identical code, and differences between units.

    Raises:
        UsageError: A slice is unknown.
        NothingSelectedError: No session passed and was timed.
    """
    by = columns_of(request.by)
    measured = measured_in(tables.cells, by)
    sums = sums_of_cells(measured, within(tables, measured))
    heavy, labels = heavy_tailed(measured, sums), [*by] or [SLICE]

    def of_outcomes() -> list[Answer]:
        passed = _passed(tables.cells, by)
        return [by_grade(passed, labels), noise_floor(passed, labels)]

    parts: Sequence[Callable[[], list[Answer]]] = (
        lambda: [of_slices(measured, sums, by, heavy)],
        lambda: [of_cells(measured, sums, heavy)],
        lambda: [noise(tables.cells, measured, sums)],
        of_outcomes,
        lambda: between_units(measured),
    )
    return [answer for answers in map_threads(lambda part: part(), parts) for answer in answers]


def _passed(cells: pl.LazyFrame, by: Sequence[str]) -> pl.DataFrame:
    """Read outcomes that passed, with the columns of their slice."""
    passed = outcomes(cells).filter(pl.col("status") == Status.PASSED.value)
    found = passed.select(*dict.fromkeys((*grades.NEEDED, *identical.NEEDED, *by))).collect()
    return found if by else found.with_columns(pl.lit(ALL).alias(SLICE))
