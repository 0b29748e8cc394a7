"""What the judge's job names, and who builders run as."""

from __future__ import annotations

from dataclasses import replace

from kernel_matrix.attempt.contestants import BASELINE_UID, CANDIDATE_UID, RIVAL_UID
from kernel_matrix.attempt.role_specs import CellPlacement, builder_spec, judge_job
from kernel_matrix.attempt.source_findings import scan_of
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.model.enums import CollectiveKind, Dtype
from kernel_matrix.model.messages import CollectiveSize, WorkloadSpec
from kernel_matrix.platforms import Gpu
from kernel_matrix.sandboxes import Mount, ProcessLabels
from kernel_matrix.sources import Workload
from tests.inside.sessions import CANDIDATE, EAGER

CPU = Gpu(platform="cpu", uuid="cpu", name="EPYC")
SECRET = Workload(name="secret", values={"N": 48613}, held_out=True)


def placed(stage, **changes):
    cell = stage.cell("any")
    cell = replace(cell, problem=replace(cell.problem, workloads=(SECRET, *cell.problem.workloads)), **changes)
    labels = ProcessLabels(run_id="r", cell_id=cell.id, session=0, gpu_uuid="", owner=owner_token())
    return CellPlacement(cell=cell, gpu=CPU, image=None, labels=labels)


def test_judge_job_has_the_size_of_the_collective(stage):
    place = placed(stage)
    sizes = {Dtype.FP32: 400.0, Dtype.FP16: 200.0}
    reduced = replace(SECRET, flops=9.0, bytes={Dtype.FP32: 8.0}, held_out=False, collective_bytes=sizes)
    problem = replace(place.cell.problem, ranks=2, collective=CollectiveKind.ALL_REDUCE)
    place = replace(place, cell=replace(place.cell, problem=problem, workloads=(reduced, Workload(name="bare"))))
    job = judge_job(place, "0" * 32, (CANDIDATE, EAGER), scan_of(place.cell))
    first, bare, *_held_out = job.workloads
    assert (first.flops, first.bytes) == (9.0, 8.0)
    assert first.collective == CollectiveSize(CollectiveKind.ALL_REDUCE, 400.0)
    assert bare.collective is None


def test_judge_job_names_held_out_workloads(stage):
    place = placed(stage)
    job = judge_job(place, "0" * 32, (CANDIDATE, EAGER), scan_of(place.cell))
    assert job.workloads == (WorkloadSpec("smoke"), WorkloadSpec("secret", {"N": 48613}, held_out=True))
    sanitized = judge_job(replace(place, sanitizer="memcheck"), "0" * 32, (CANDIDATE, EAGER), scan_of(place.cell))
    assert sanitized.workloads == (WorkloadSpec("smoke"),)


def test_builders_share_their_user_with_nobody(stage, tmp_path):
    mount = Mount(source=tmp_path, target="/candidate")
    users = {builder_spec(placed(stage), mount, mount).uid for _ in range(100)}
    assert len(users) == 100
    assert users.isdisjoint({CANDIDATE_UID, BASELINE_UID, RIVAL_UID, 65533})
