"""Data sheets of GPUs, present or not."""

from kernel_matrix.platforms.data_sheet_text import (
    describe_sheet,
    facts_of,
    format_bandwidth,
    format_bytes,
    format_count,
    format_memory,
    format_rate,
    format_with_unit,
    lacks,
)
from kernel_matrix.platforms.data_sheets import DataSheet, Vendor, all_sheets, sheets_of

__all__ = [
    "DataSheet",
    "Vendor",
    "all_sheets",
    "describe_sheet",
    "facts_of",
    "format_bandwidth",
    "format_bytes",
    "format_count",
    "format_memory",
    "format_rate",
    "format_with_unit",
    "lacks",
    "sheets_of",
]
