"""Texts for values, labels and states of results."""

from kernel_matrix.results.descriptions import (
    clocks_match_policy,
    describe_clocks,
    describe_discards,
    describe_ranks,
    describe_reason,
    describe_shapes,
    describe_verdict,
    discards,
    explain_reason,
    printable,
    visible,
)
from kernel_matrix.results.labels import describe_label, labels_worth_printing, warns

__all__ = [
    "clocks_match_policy",
    "describe_clocks",
    "describe_discards",
    "describe_label",
    "describe_ranks",
    "describe_reason",
    "describe_shapes",
    "describe_verdict",
    "discards",
    "explain_reason",
    "labels_worth_printing",
    "printable",
    "visible",
    "warns",
]
