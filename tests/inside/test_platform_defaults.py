from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.inside import platform_defaults
from kernel_matrix.model.enums import Dtype


@pytest.mark.torch
def test_a_platform_that_compiles_nothing_ahead_says_so() -> None:
    from kernel_matrix.inside.build.call_forms import CompileTarget  # noqa: PLC0415  # brings torch

    done = platform_defaults.compile_ahead(Path("absent.py"), "ModelNew", [], Dtype.FP32, CompileTarget("1.0"))
    assert done.stopped == "nothing is compiled ahead for this platform"
