"""Texts for values, labels and states of results."""

from kernel_matrix.results.descriptions import (
    clocks_match_policy,
    describe_clocks,
    describe_discards,
    describe_label,
    describe_verdict,
    discards,
    printable,
)

__all__ = [
    "clocks_match_policy",
    "describe_clocks",
    "describe_discards",
    "describe_label",
    "describe_verdict",
    "discards",
    "printable",
]
