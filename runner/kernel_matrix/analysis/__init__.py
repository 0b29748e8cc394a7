"""What the tables mean: portability, noise, differences, what broke, and what cannot be believed.

Every function here takes a :class:`polars.LazyFrame` and returns one, or a small frozen dataclass; nothing prints and
nothing runs a kernel. Reading order: :mod:`~kernel_matrix.analysis.tables` opens what ``merge`` and ``import`` wrote,
:mod:`~kernel_matrix.analysis.outcomes` makes two frames of it that all else starts from,
:mod:`~kernel_matrix.analysis.slices` names the columns that a person may slice by; the rest is one question per module.
"""

import polars as pl
from polars.lazyframe import opt_flags

if pl.__version__.startswith("2.0."):
    # Its planner panics over a join of which one side has no rows; 2.0 is the last for Python 3.10.
    opt_flags.DEFAULT_QUERY_OPT_FLAGS.row_estimate = False
