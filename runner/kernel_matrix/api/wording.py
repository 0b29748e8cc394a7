"""Texts for values, labels and states of results."""

from kernel_matrix.results.descriptions import (
    clocks_as_wanted,
    clocks_said,
    discards,
    discards_said,
    label_said,
    printable,
    verdict_said,
)

__all__ = [
    "clocks_as_wanted",
    "clocks_said",
    "discards",
    "discards_said",
    "label_said",
    "printable",
    "verdict_said",
]
