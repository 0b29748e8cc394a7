"""What became of a night."""

from __future__ import annotations

import pytest

from kernel_matrix.errors import InfrastructureError
from kernel_matrix.nightly.night_summary import worst

MACHINE = InfrastructureError.exit_code


@pytest.mark.parametrize(
    ("codes", "whole"), [((), 0), ((0, 0), 0), ((0, 6, 1), 6), ((6, MACHINE), MACHINE), ((MACHINE, 6), MACHINE)]
)
def test_the_machine_s_failure_counts_before_all_others(codes, whole):
    assert worst(codes) == whole
