"""What would be asked of the engine for a cell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.cell.preview import preview
from runner.core.messages import ProtocolSpec
from runner.core.vocab import Implementation
from runner.gpus import Gpu
from runner.matrix import GpuAxis, Policy, Protocol
from tests.cell.stage import FIRST, hands_over

H200 = Gpu(vendor="nvidia", uuid="GPU-1", name="NVIDIA H200", compute_capability="9.0")


@pytest.mark.parametrize(("probe", "extra"), [(True, ["probe"]), (False, [])])
def test_every_process_of_a_gpu_cell_is_shown(probe, extra, stage):
    cell = stage.cell("cuda", builder=[hands_over(b"artefact")], policy=Policy(health_probe=probe))
    shown = preview(replace(cell, gpu=GpuAxis(name="h200")), H200, stage, {})
    assert list(shown["processes"]) == ["builder", "judge", "candidate", "eager", *extra]


def test_a_cpu_is_not_probed(stage):
    shown = preview(stage.cell("good"), FIRST, stage, {})
    assert list(shown["processes"]) == ["judge", "candidate", "eager"]


def test_rivals_are_shown_by_their_names(stage):
    protocol = Protocol(spec=ProtocolSpec(baselines=(Implementation.EAGER, Implementation.COMPILE)))
    shown = preview(stage.cell("good", protocol=protocol), FIRST, stage, {})
    assert list(shown["processes"]) == ["judge", "candidate", "eager", "compile"]
