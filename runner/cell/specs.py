"""What is asked of an engine for each role of a cell, and what the judge is told."""

from __future__ import annotations

from dataclasses import dataclass

from runner.cell.building import ARTIFACT_NAME
from runner.cell.folders import CANDIDATE_FILE, PROBLEM_FILE, CellFolders, judge_uid
from runner.core.messages import INTERPRETED, JudgeJob, JudgeTimeouts, WorkloadSpec
from runner.core.vocab import Language, Role
from runner.engines import Labels, Limits, Mount, RoleSpec
from runner.gpus import Gpu
from runner.images import Resolved
from runner.matrix import Policy
from runner.plan import Cell

CANDIDATE_UID = 65534

JUDGE, CHANNEL, OUT, CODE, ARTIFACT = "/judge", "/channel", "/out", "/candidate", "/artifact"
"""Where folders are seen inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A cell, the device it runs on, the image it runs in, and whose it is."""

    cell: Cell
    gpu: Gpu
    image: Resolved | None
    labels: Labels

    @property
    def image_id(self) -> str | None:
        """What the engine is to start."""
        return self.image.id if self.image is not None else None

    @property
    def visible_gpu(self) -> Gpu | None:
        """The device to show inside; a CPU needs no showing."""
        return None if self.gpu.vendor == "cpu" else self.gpu


def judge_spec(place: Place, folders: CellFolders) -> RoleSpec:
    """The judge: reads job and problem, owns the channel, writes the report."""
    return RoleSpec(
        role=Role.JUDGE,
        labels=place.labels,
        image=place.image_id,
        module="runner.core.judge",
        args=("--job", f"{JUDGE}/job.json", "--channel", CHANNEL, "--out", OUT),
        mounts=(
            Mount(source=folders.judge, target=JUDGE),
            Mount(source=folders.channel, target=CHANNEL, writable=True),
            Mount(source=folders.out, target=OUT, writable=True),
        ),
        env=_settings(place),
        gpu=place.visible_gpu,
        limits=_limits(place.cell.policy, memory_factor=2),
        uid=judge_uid(),
    )


def candidate_spec(place: Place, folders: CellFolders) -> RoleSpec:
    """The candidate: its source, the judge's socket, and nothing else."""
    artifact = ("--artifact", f"{ARTIFACT}/{ARTIFACT_NAME}") if folders.has_artifact else ()
    return RoleSpec(
        role=Role.CANDIDATE,
        labels=place.labels,
        image=place.image_id,
        module="runner.core.worker",
        args=("--channel", CHANNEL, "--code", CODE, "--device", place.gpu.torch_device, *artifact),
        mounts=(
            Mount(source=folders.code, target=CODE),
            Mount(source=folders.channel, target=CHANNEL),
            Mount(source=folders.artifact, target=ARTIFACT),
        ),
        env={**_settings(place), **_interpreter(place)},
        gpu=place.visible_gpu,
        limits=_limits(place.cell.policy),
        uid=CANDIDATE_UID,
    )


def builder_spec(place: Place, code: Mount, channel: Mount) -> RoleSpec:
    """The builder: the same source and settings as the candidate, and no GPU."""
    return RoleSpec(
        role=Role.BUILDER,
        labels=place.labels,
        image=place.image_id,
        module="runner.core.build",
        args=("--channel", channel.target, "--code", code.target, "--file", CANDIDATE_FILE),
        mounts=(code, channel),
        env=_settings(place),
        limits=_limits(place.cell.policy),
        uid=CANDIDATE_UID,
    )


def probe_spec(place: Place, out: Mount) -> RoleSpec:
    """The health probe: trusted, sees the GPU and the folder for its answer, and no candidate."""
    return RoleSpec(
        role=Role.PROBE,
        labels=place.labels,
        image=place.image_id,
        module="runner.core.probe",
        args=("health", "--out", out.target),
        mounts=(out,),
        env=_settings(place),
        gpu=place.visible_gpu,
        limits=_limits(place.cell.policy, memory_factor=2),
        uid=judge_uid(),
    )


def judge_job(place: Place, seed: str, candidate_uid: int | None) -> JudgeJob:
    """What the judge of one session is told; ``seed`` is its secret."""
    cell, policy = place.cell, place.cell.policy
    return JudgeJob(
        cell_id=cell.id,
        session=place.labels.session,
        device=place.gpu.torch_device,
        dtype=cell.dtype,
        seed=seed,
        workloads=tuple(WorkloadSpec(w.name, dict(w.values), w.flops, w.bytes.get(cell.dtype)) for w in cell.workloads),
        protocol=cell.protocol.spec,
        timeouts=JudgeTimeouts(
            load_s=policy.load_timeout_s,
            first_call_s=policy.first_call_timeout_s,
            call_s=policy.call_timeout_s,
            session_s=policy.session_timeout_s,
        ),
        problem_file=PROBLEM_FILE,
        candidate_file=CANDIDATE_FILE,
        candidate_entry=cell.candidate.entry,
        tolerance=dict(cell.problem.tolerance),
        outliers=cell.problem.outliers,
        mutates_inputs=cell.problem.mutates_inputs,
        labels=(INTERPRETED,) if _interpreter(place) else (),
        candidate_uid=candidate_uid,
        gpu_uuid="" if place.visible_gpu is None else place.visible_gpu.uuid,
    )


def arch_list(gpu: Gpu) -> str:
    """What ``load_inline`` compiles for: exactly this device, from Hopper on with its architecture's own features."""
    capability = gpu.compute_capability or ""
    return f"{capability}a" if capability and int(capability.split(".")[0]) >= 9 else capability


def _settings(place: Place) -> dict[str, str]:
    # Judge, baseline and candidate take turns on the same cores: nobody may spin while another is timed.
    settings = {"TRITON_DEFAULT_FP_FUSION": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    if place.gpu.compute_capability:
        settings["TORCH_CUDA_ARCH_LIST"] = arch_list(place.gpu)
    return settings


def _interpreter(place: Place) -> dict[str, str]:
    """Triton has no CPU back end; without a GPU its interpreter runs the kernels."""
    interpreted = place.gpu.vendor == "cpu" and place.cell.candidate.language is Language.TRITON
    return {"TRITON_INTERPRET": "1"} if interpreted else {}


def _limits(policy: Policy, memory_factor: int = 1) -> Limits:
    return Limits(
        memory_bytes=policy.memory_mib * memory_factor << 20,
        pids=policy.pids,
        tmpfs_bytes=policy.tmpfs_mib << 20,
        file_bytes=policy.file_mib << 20,
    )
