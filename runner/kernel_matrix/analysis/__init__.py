"""Analysis of merged tables: scores, portability, noise, comparisons, reproduction and audit.

Functions take tables and return frames or small frozen dataclasses; nothing here prints or runs a kernel. Reading
order: :mod:`~kernel_matrix.analysis.tables` opens the files of ``merge`` and ``import``,
:mod:`~kernel_matrix.analysis.outcomes` makes the two frames that every analysis starts from,
:mod:`~kernel_matrix.analysis.slices` names the columns to slice by; the other modules answer one question each.
"""

import polars as pl
from polars.lazyframe import opt_flags

if pl.__version__.startswith("2.0."):
    # The planner of 2.0 panics on a join with an empty side; 2.0 is the last version for Python 3.10.
    opt_flags.DEFAULT_QUERY_OPT_FLAGS.row_estimate = False
