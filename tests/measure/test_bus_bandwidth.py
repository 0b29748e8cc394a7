"""Factors between algorithm and bus bandwidth."""

import pytest

from kernel_matrix.measure.bus_bandwidth import bus_factor
from kernel_matrix.model.enums import CollectiveKind

FACTORS = {
    "all_reduce": (1.0, 1.5, 1.75),
    "all_gather": (0.5, 0.75, 0.875),
    "reduce_scatter": (0.5, 0.75, 0.875),
    "all_to_all": (0.5, 0.75, 0.875),
    "broadcast": (1.0, 1.0, 1.0),
    "send": (1.0, 1.0, 1.0),
}
"""Kind → factors of 2, 4 and 8 ranks."""


@pytest.mark.parametrize("kind", CollectiveKind)
def test_bus_factor_of_each_kind_is_that_of_nccl_tests(kind):
    assert tuple(bus_factor(kind, ranks) for ranks in (2, 4, 8)) == FACTORS[kind.value]
