"""Data sheets of GPUs, present or not."""

from kernel_matrix.platforms.data_sheets import (
    DTYPES,
    FEATURES,
    THREADS_PER_BLOCK,
    DataSheet,
    Vendor,
    all_sheets,
    sheets_of,
)

__all__ = [
    "DTYPES",
    "FEATURES",
    "THREADS_PER_BLOCK",
    "DataSheet",
    "Vendor",
    "all_sheets",
    "sheets_of",
]
