"""Preview of the processes of a cell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_matrix.attempt.preview import preview
from kernel_matrix.matrix import GpuAxis, Policy, Protocol
from kernel_matrix.model.enums import Implementation, Language
from kernel_matrix.model.messages import ProtocolSpec
from kernel_matrix.platforms import Gpu
from tests.attempt.stage import FIRST, hands_over

H200 = Gpu(platform="cuda", uuid="GPU-1", name="NVIDIA H200", compute_capability="9.0")


class Describer:
    """A sandbox that shows each specification as it is."""

    def describe(self, spec):
        return spec


def specs_shown(cell):
    return preview(cell, H200, Describer(), {})["processes"]


@pytest.mark.parametrize(("probe", "extra"), [(True, ["probe"]), (False, [])])
def test_every_process_of_a_gpu_cell_is_shown(probe, extra, stage):
    cell = stage.cell("cuda", builder=[hands_over(b"artefact")], policy=Policy(health_probe=probe))
    shown = preview(replace(cell, gpu=GpuAxis(name="h200")), H200, stage, {})
    assert list(shown["processes"]) == ["builder", "judge", "candidate", "eager", *extra]


def test_a_triton_builder_is_shown_as_it_is_started(stage):
    cell = stage.cell("kernel")
    cell = replace(cell, gpu=GpuAxis(name="h200"), candidate=replace(cell.candidate, language=Language.TRITON))
    shown = specs_shown(cell)
    assert "--ahead" in shown["builder"].args
    assert shown["builder"].labels.gpu_uuid == ""
    assert shown["builder"].gives_way
    assert "--artifact" in shown["candidate"].args


def test_a_candidate_is_shown_under_each_sanitizer_too(stage):
    cell = replace(stage.cell("good", policy=Policy(sanitize=("memcheck", "racecheck"))), gpu=GpuAxis(name="h200"))
    shown = specs_shown(cell)
    assert list(shown)[3:5] == ["candidate under memcheck", "candidate under racecheck"]
    assert shown["candidate under racecheck"].args[:2] == ("--tool", "racecheck")
    assert "candidate under memcheck" not in preview(cell, FIRST, stage, {})["processes"]


def test_preview_rejected_candidate_shows_no_process(stage):
    cell = stage.cell("good", policy=Policy(reject_findings=("entry",)))  # its source defines no ModelNew
    assert preview(cell, FIRST, stage, {})["processes"] == {}


def test_a_cpu_is_not_probed(stage):
    shown = preview(stage.cell("good"), FIRST, stage, {})
    assert list(shown["processes"]) == ["judge", "candidate", "eager"]


def test_rivals_are_shown_by_their_names(stage):
    protocol = Protocol(spec=ProtocolSpec(baselines=(Implementation.EAGER, Implementation.COMPILE)))
    shown = preview(stage.cell("good", protocol=protocol), FIRST, stage, {})
    assert list(shown["processes"]) == ["judge", "candidate", "eager", "compile"]
