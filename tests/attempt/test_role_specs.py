"""What the judge's job names."""

from __future__ import annotations

from dataclasses import replace

from kernel_matrix.attempt.role_specs import CellPlacement, judge_job
from kernel_matrix.attempt.source_findings import scan_of
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.model.messages import WorkloadSpec
from kernel_matrix.platforms import Gpu
from kernel_matrix.sandboxes import ProcessLabels
from kernel_matrix.sources import Workload
from tests.inside.sessions import CANDIDATE, EAGER

CPU = Gpu(platform="cpu", uuid="cpu", name="EPYC")
SECRET = Workload(name="secret", values={"N": 48613}, held_out=True)


def placed(stage, **changes):
    cell = stage.cell("any")
    cell = replace(cell, problem=replace(cell.problem, workloads=(SECRET, *cell.problem.workloads)), **changes)
    labels = ProcessLabels(run_id="r", cell_id=cell.id, session=0, gpu_uuid="", owner=owner_token())
    return CellPlacement(cell=cell, gpu=CPU, image=None, labels=labels)


def test_judge_job_names_held_out_workloads(stage):
    place = placed(stage)
    job = judge_job(place, "0" * 32, (CANDIDATE, EAGER), scan_of(place.cell))
    assert job.workloads == (WorkloadSpec("smoke"), WorkloadSpec("secret", {"N": 48613}, held_out=True))
    sanitized = judge_job(replace(place, sanitizer="memcheck"), "0" * 32, (CANDIDATE, EAGER), scan_of(place.cell))
    assert sanitized.workloads == (WorkloadSpec("smoke"),)
