"""Data sheets of GPUs, present or not."""

from kernel_matrix.platforms.data_sheets import (
    DTYPES,
    FEATURES,
    SHARED_BYTES_UNASKED,
    THREADS_PER_BLOCK,
    THREADS_PER_WARP,
    DataSheet,
    all_sheets,
    sheets_of,
)

__all__ = [
    "DTYPES",
    "FEATURES",
    "SHARED_BYTES_UNASKED",
    "THREADS_PER_BLOCK",
    "THREADS_PER_WARP",
    "DataSheet",
    "all_sheets",
    "sheets_of",
]
