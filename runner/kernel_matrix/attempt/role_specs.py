"""Process descriptions for each role of a cell, and the judge's job."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernel_matrix.attempt.contestants import CANDIDATE_FILE, PROBLEM_FILE, Contestant, labels_of
from kernel_matrix.attempt.folders import ARTIFACT_NAME, JOB_FILE, SessionFolders, judge_uid
from kernel_matrix.attempt.sanitizing import NO_SANITIZER, tools_for
from kernel_matrix.environments import PythonEnvironment
from kernel_matrix.images import ResolvedImage
from kernel_matrix.matrix import Policy
from kernel_matrix.model.enums import Dtype, Language, Role
from kernel_matrix.model.messages import (
    INTERPRETED,
    CollectiveSize,
    ContestantSpec,
    JudgeJob,
    JudgeTimeouts,
    PeakSpec,
    WorkloadSpec,
)
from kernel_matrix.plan import Cell
from kernel_matrix.platforms import Gpu, Platform
from kernel_matrix.platforms.peaks import TABLE, peak_of
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.sandboxes import Mount, ProcessLabels, ResourceLimits, RoleSpec
from kernel_matrix.scan import SourceScan
from kernel_matrix.sources import Workload

# Languages whose candidates must define kernels.
HAS_KERNELS = frozenset({Language.TRITON, Language.CUDA, Language.HIP})

GIB = 1 << 30

# Each builder has a user of its own: where only a user's processes can be limited, not a role's, builds that run at the
# same time, and candidates that are timed beside them, would fail for lack of processes. Debian reserves these numbers.
_BUILDER_UIDS = itertools.cycle(range(65000, 65500))

# Folders as seen inside.
JUDGE, CHANNEL, OUT, CODE, ARTIFACT = "/judge", "/channel", "/out", "/candidate", "/artifact"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlacement:
    """A cell with its device, its image, and the labels of its processes."""

    cell: Cell
    gpu: Gpu
    image: ResolvedImage | None
    labels: ProcessLabels
    sanitizer: str = ""
    """Tool of compute-sanitizer that the candidate runs under; empty for none."""
    beside_sessions: bool = False
    """It is built while sessions of other cells are timed on accelerators."""

    @property
    def image_id(self) -> str | None:
        """Id of the image to start, or the digest of the environment; None without either."""
        return self.image.id if self.image is not None else None

    @property
    def environment(self) -> PythonEnvironment | None:
        """Environment that takes the place of an image; None for an image, or for this program's own Python."""
        return self.image.environment if self.image is not None else None

    @property
    def platform(self) -> Platform:
        """The platform of the device."""
        return get_platform(self.gpu.platform)

    @property
    def ranks(self) -> int:
        """Number of processes of each contestant that make a call together."""
        return self.cell.problem.ranks

    @property
    def visible_gpu(self) -> Gpu | None:
        """The device to show inside; None for a CPU, which is always visible."""
        return self.gpu if self.platform.IS_ACCELERATOR else None


def judge_spec(place: CellPlacement, folders: SessionFolders) -> RoleSpec:
    """Describe the judge: it sees its job, the problem and all channels, and writes the report."""
    return RoleSpec(
        role=Role.JUDGE,
        labels=place.labels,
        platform=place.gpu.inside,
        image=place.image_id,
        environment=place.environment,
        module="kernel_matrix.inside.judge.judge",
        args=("--job", f"{JUDGE}/{JOB_FILE}", "--channel", CHANNEL, "--out", OUT),
        mounts=(
            Mount(source=folders.judge, target=JUDGE),
            Mount(source=folders.channel, target=CHANNEL, writable=True),
            Mount(source=folders.out, target=OUT, writable=True),
        ),
        env=_settings(place),
        gpu=place.visible_gpu,
        limits=lender_limits(place.cell.policy, place.ranks),
        lends_memory=True,
        uid=judge_uid(),
    )


def contestant_spec(place: CellPlacement, folders: SessionFolders, contestant: Contestant) -> RoleSpec:
    """Describe a contestant: it sees its source and its channel to the judge. All are confined alike."""
    preloads = [part for module in contestant.preloads for part in ("--preload", module)]
    ranks = ("--ranks", str(place.ranks)) if place.ranks > 1 else ()
    return RoleSpec(
        role=contestant.role,
        labels=place.labels,
        platform=place.gpu.inside,
        image=place.image_id,
        environment=place.environment,
        module="kernel_matrix.inside.worker.worker",
        args=("--channel", CHANNEL, "--code", CODE, "--device", place.gpu.inside, *preloads, *ranks),
        mounts=(
            Mount(source=folders.code(contestant.name), target=CODE),
            Mount(source=folders.channel_to(contestant.name), target=CHANNEL),
        ),
        env=_settings(place),
        gpu=place.visible_gpu,
        limits=_limits(place.cell.policy, place.ranks),
        has_ranks=place.ranks > 1,
        uid=contestant.uid,
        contestant=contestant.name,
    )


def candidate_spec(place: CellPlacement, folders: SessionFolders, candidate: Contestant) -> RoleSpec:
    """Describe the candidate: a contestant that also sees its artifact."""
    spec = contestant_spec(place, folders, candidate)
    artifact = ("--artifact", f"{ARTIFACT}/{ARTIFACT_NAME}") if folders.has_artifact else ()
    args = (*spec.args, *artifact)
    return replace(
        spec,
        module=place.platform.SANITIZER if place.sanitizer else spec.module,
        args=("--tool", place.sanitizer, "--", *args) if place.sanitizer else args,
        mounts=(*spec.mounts, Mount(source=folders.artifact, target=ARTIFACT)),
        env={**spec.env, **_interpreter(place)},
    )


def builder_spec(place: CellPlacement, code: Mount, channel: Mount) -> RoleSpec:
    """Describe the builder: the same source and settings as the candidate, and no GPU."""
    # Triton compiles for specific calls, so the host sends these to the builder first.
    can_call = place.ranks == 1  # a builder has no other ranks that collectives could reach
    ahead = ("--ahead",) if place.cell.candidate.language is Language.TRITON and can_call else ()
    return RoleSpec(
        role=Role.BUILDER,
        labels=place.labels,
        platform=place.gpu.inside,
        image=place.image_id,
        environment=place.environment,
        module="kernel_matrix.inside.build.builder",
        args=(
            "--channel",
            channel.target,
            "--code",
            code.target,
            "--file",
            CANDIDATE_FILE,
            "--device",
            place.gpu.platform,
            *ahead,
        ),
        mounts=(code, channel),
        env=_settings(place),
        limits=_limits(place.cell.policy),
        uid=next(_BUILDER_UIDS),
        gives_way=place.beside_sessions,
    )


def probe_spec(place: CellPlacement, out: Mount) -> RoleSpec:
    """Describe the health probe: trusted, sees the GPU and the folder for its answer, and no candidate."""
    return RoleSpec(
        role=Role.PROBE,
        labels=place.labels,
        platform=place.gpu.inside,
        image=place.image_id,
        environment=place.environment,
        module="kernel_matrix.inside.probe",
        args=("health", "--out", out.target, "--device", place.gpu.inside, "--devices", str(len(place.gpu.members))),
        mounts=(out,),
        env=_settings(place),
        gpu=place.visible_gpu,
        limits=_limits(place.cell.policy, memory_factor=2),
        uid=judge_uid(),
    )


def judge_job(place: CellPlacement, seed: str, contestants: Sequence[ContestantSpec], scan: SourceScan) -> JudgeJob:
    """Make the job of one session; ``seed`` is the judge's secret."""
    cell, policy = place.cell, place.cell.policy
    return JudgeJob(
        cell_id=cell.id,
        session=place.labels.session,
        device=place.gpu.inside,
        dtype=cell.dtype,
        seed=seed,
        workloads=tuple(
            _workload(cell, w)
            # A sanitizer's log does not tell which workload it is about, and may be shown.
            for w in (*cell.workloads, *(() if place.sanitizer else cell.problem.held_out_workloads))
        ),
        protocol=cell.protocol.spec,
        timeouts=_timeouts(policy),
        contestants=tuple(contestants),
        problem_file=PROBLEM_FILE,
        tolerance=dict(cell.problem.tolerance),
        outliers=cell.problem.outliers,
        mutates_inputs=cell.problem.mutates_inputs,
        labels=tuple(_labels(place)),
        gpu_uuid="" if place.visible_gpu is None else place.visible_gpu.members[0].uuid,
        peak=_peak(place),
        contract=cell.problem.contract,
        random=cell.problem.random,
        ranks=place.ranks,
        own_kernels=scan.own_kernels,
        require_own_kernel=policy.require_own_kernel and cell.candidate.language in HAS_KERNELS,
        check_health=policy.health_probe and place.visible_gpu is not None,
        sanitize=tuple(filter(None, (place.sanitizer,))),
        device_memory_bytes=int(policy.device_memory_gib * GIB) or None,
    )


def _workload(cell: Cell, workload: Workload) -> WorkloadSpec:
    kind, size = cell.problem.collective, workload.collective_bytes.get(cell.dtype)
    return WorkloadSpec(
        name=workload.name,
        values=dict(workload.values),
        flops=workload.flops,
        bytes=workload.bytes.get(cell.dtype),
        held_out=workload.held_out,
        collective=None if kind is None or size is None else CollectiveSize(kind, size),
    )


def _timeouts(policy: Policy) -> JudgeTimeouts:
    return JudgeTimeouts(
        load_s=policy.load_timeout_s,
        first_call_s=policy.first_call_timeout_s,
        call_s=policy.call_timeout_s,
        session_s=policy.session_timeout_s,
    )


def _labels(place: CellPlacement) -> Iterator[str]:
    if _interpreter(place):
        yield INTERPRETED
    yield from labels_of(place.cell)
    if place.cell.policy.sanitize and not tools_for(place.cell, place.gpu):
        yield NO_SANITIZER


def _peak(place: CellPlacement) -> PeakSpec:
    """Return the peak rates that no honest call can exceed; only a data sheet's, as a calibration may be too low."""
    peak = peak_of(place.gpu)
    if peak.source != TABLE:
        return PeakSpec()
    if place.cell.problem.contract is not None:  # quantised products run at the rates of narrower dtypes
        return PeakSpec(bytes_per_s=peak.bytes_per_s)
    rates = peak.flops_per_s
    flops_per_s = rates.get(place.cell.dtype.value)
    if place.cell.dtype is Dtype.FP32 and flops_per_s is not None:
        # Three TF32 products make one float32 product.
        flops_per_s = max(flops_per_s, rates.get(Dtype.TF32.value, 0.0) / 3)
    return PeakSpec(bytes_per_s=peak.bytes_per_s, flops_per_s=flops_per_s)


def _settings(place: CellPlacement) -> dict[str, str]:
    # Judge, baseline and candidate share the same cores, so none may spin while another one is timed.
    shared = {"TRITON_DEFAULT_FP_FUSION": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return {**shared, **place.platform.compile_settings(place.gpu)}


def _interpreter(place: CellPlacement) -> dict[str, str]:
    """Return settings of a candidate that is not compiled; Triton is the only language with an interpreter."""
    return {"TRITON_INTERPRET": "1"} if place.platform.interprets(place.cell.candidate.language) else {}


def lender_limits(policy: Policy, ranks: int = 1) -> ResourceLimits:
    """Return the limits of a role that lends memory, which is a file where processes share the host's memory."""
    limits = _limits(policy, memory_factor=2 * ranks)
    return replace(limits, file_bytes=max(limits.file_bytes, limits.memory_bytes))


def _limits(policy: Policy, memory_factor: int = 1) -> ResourceLimits:
    return ResourceLimits(
        memory_bytes=policy.memory_mib * memory_factor << 20,
        pids=policy.pids,
        tmpfs_bytes=policy.tmpfs_mib << 20,
        file_bytes=policy.file_mib << 20,
    )
