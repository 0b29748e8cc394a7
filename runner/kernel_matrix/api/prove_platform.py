"""Show on a real device that the code of a platform works: the conformance suite, and its report."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernel_matrix.api.gpus import ask_device, named_gpu
from kernel_matrix.api.plan import RunPlan, load_matrix, make_plan
from kernel_matrix.api.run_cells import Listener, Record, RunProgress, RunResult, run
from kernel_matrix.api.written_matrix import newest_folder, quoted
from kernel_matrix.attempt.calibration import CONFORMANCE
from kernel_matrix.conformance import CheckState, ConformanceCheck, ConformancePart, ConformanceReport
from kernel_matrix.conformance.cheats import Cheat, bundled_cheats
from kernel_matrix.conformance.device_checks import check_memory, check_timing
from kernel_matrix.conformance.findings import PlatformFindings, make_parts
from kernel_matrix.conformance.record_checks import (
    PROBLEMS,
    ZEROS,
    check_cheats,
    check_clocks,
    check_controls,
    check_health,
)
from kernel_matrix.conformance.report_markdown import to_markdown
from kernel_matrix.errors import KernelMatrixError, NothingSelectedError, UsageError, suggestion
from kernel_matrix.executors.events import RunEvent
from kernel_matrix.hosts.code_versions import measurement_version
from kernel_matrix.hosts.identity import host_identity
from kernel_matrix.hosts.survey import AUTO
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.inside.device_measurements import DeviceMeasurements
from kernel_matrix.model.instants import utc_now
from kernel_matrix.model.messages import dumps, from_json, to_json
from kernel_matrix.platforms import DeviceModes, Gpu
from kernel_matrix.platforms.peaks import peak_in_table
from kernel_matrix.platforms.registry import PLATFORMS, get_platform, gpu_document, platform_name
from kernel_matrix.version import __version__

__all__ = [
    "CheckState",
    "ConformanceCheck",
    "ConformancePart",
    "ConformanceReport",
    "ProvenPlatform",
    "prove_platform",
]

_CHECKS = {
    "controls": check_controls,
    "cheats": check_cheats,
    "clocks": check_clocks,
    "memory": check_memory,
    "timing": check_timing,
    "health": check_health,
}
"""Part of the report → its checks."""

_SESSIONS, _QUICK_SESSIONS = 5, 2
"""Sessions of the comparison of equal code."""
_GPU_WAIT_S = 60
_ON_CPU = """
trials = 2
warmup_calls = 2
min_samples = 8
max_samples = 16
budget_s = 2
block_calls = 3
steady_cap_s = 0
"""
_ON_ACCELERATOR = """
trials = 2
min_samples = 16
max_samples = 60
budget_s = 2
"""
"""Less of everything that only makes times more precise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenPlatform:
    """The result of :func:`prove_platform`."""

    report: ConformanceReport
    document: Mapping[str, Any]
    """The report as JSON."""
    records: Path
    """Folder of the records that its checks ask."""
    run_exit_code: int
    """Exit code of the run of candidates."""

    @property
    def exit_code(self) -> int:
        """The exit code of ``kernel-matrix platform prove``: that of the run, else 1 if a check failed."""
        return self.run_exit_code or (0 if self.report.passed else 1)


def prove_platform(
    platform: str,
    *,
    gpu: str = "",
    toolchain: str = "",
    matrix: str | Path = "matrix.toml",
    out: str | Path | None = None,
    quick: bool = False,
    listener: Listener | None = None,
) -> ProvenPlatform:
    """Run the conformance suite on a device of this host. No setting of the device is changed.

    Args:
        platform: Name of the platform, or of its vendor.
        gpu: Index, UUID or its beginning; by default the platform's first device.
        toolchain: Name of a toolchain of ``matrix``; by default the PyTorch of this Python, in the sandbox ``process``.
        matrix: The matrix that has the toolchain, or its file.
        out: File of the report, JSON; the same as Markdown is written beside it.
        quick: Compare equal code over fewer sessions.
        listener: As for :func:`kernel_matrix.run`.

    Raises:
        UsageError: An argument cannot be used.
        NothingSelectedError: No device of the platform is here, or the toolchain cannot run on it.
        InfrastructureError: This host failed.
    """
    _check_out(out)
    device, started_at, began = _device(platform, gpu), utc_now(), time.monotonic()
    with newest_folder(Path("prove", device.platform)) as folder:
        cheats = [cheat for cheat in bundled_cheats() if cheat.runs_where(is_accelerator=_is_accelerator(device))]
        plan = _plan(device, cheats, folder, toolchain=toolchain, matrix=matrix, quick=quick)
        findings, ran = _observe(device, cheats, plan, folder, listener)
    report = ConformanceReport(
        platform=device.platform,
        device=gpu_document(device),
        toolchain=_versions(findings),
        sandbox=plan.engine,
        host=host_identity().platform,
        kernel_matrix=__version__,
        measurement_version=measurement_version(device.platform),
        started_at=started_at,
        seconds=round(time.monotonic() - began, 1),
        quick=quick,
        parts=make_parts(findings, _CHECKS),
    )
    document = {**to_json(report), "passed": report.passed}
    if out is not None:
        replace_file(Path(out), dumps(document))
        replace_file(Path(out).with_suffix(".md"), to_markdown(report))
    return ProvenPlatform(report=report, document=document, records=ran.records, run_exit_code=ran.exit_code)


def _check_out(out: str | Path | None) -> None:
    """Refuse a file that could not be written when everything has run.

    Raises:
        UsageError: It is not the name of a JSON file in a folder.
    """
    if out is not None and (
        Path(out).suffix != ".json" or not os.access(Path(out).absolute().parent, os.W_OK | os.X_OK)
    ):
        raise UsageError(f"{out} cannot be the report", next_step="name a .json file in a folder that can be written")


def _is_accelerator(gpu: Gpu) -> bool:
    return get_platform(gpu.platform).IS_ACCELERATOR


def _device(platform: str, which: str) -> Gpu:
    name = platform_name(platform)
    if name not in PLATFORMS:
        what = f"there is no platform {platform!r}{suggestion(platform, list(PLATFORMS))}"
        raise UsageError(what, next_step=f"known: {', '.join(PLATFORMS)}")
    found = get_platform(name).inventory()
    if not found.gpus:
        what = f"this host has no {get_platform(name).TITLE}: {found.reason}"
        raise NothingSelectedError(what, next_step="kernel-matrix doctor says more")
    return named_gpu(which, found.gpus) if which else found.gpus[0]


# ---- what runs


def _plan(
    gpu: Gpu, cheats: Sequence[Cheat], folder: Path, *, toolchain: str, matrix: str | Path, quick: bool
) -> RunPlan:
    for cheat in cheats:
        place = folder / "candidates" / cheat.problem
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(cheat.path, place / cheat.path.name)
        side = place / cheat.path.with_suffix(".toml").name
        side.write_text(f"language = {quoted(cheat.language.value)}\n", encoding="utf-8")
    file = folder / "matrix.toml"
    file.write_text(_matrix_text(gpu, sessions=_QUICK_SESSIONS if quick else _SESSIONS), encoding="utf-8")
    made = load_matrix(file)
    made = replace(made, gpus=tuple(replace(one, uuid=gpu.uuid) for one in made.gpus))
    if not toolchain:
        plan = make_plan(made, sandbox="process")
    else:
        theirs = load_matrix(matrix)
        chosen = {one.name: one for one in theirs.toolchains}
        if toolchain not in chosen:
            what = f"{matrix} has no toolchain {toolchain!r}{suggestion(toolchain, list(chosen))}"
            raise UsageError(what, next_step=f"it has: {', '.join(chosen)}")
        plan = make_plan(replace(made, toolchains=(chosen[toolchain],)), sandbox=AUTO, lock=theirs.lock_path)
    plan.check_runnable()
    return plan


def _matrix_text(gpu: Gpu, *, sessions: int) -> str:
    is_accelerator = _is_accelerator(gpu)
    return f"""\
# Written by `kernel-matrix platform prove`.
name = "prove"
dtypes = ["fp32"]

[[gpus]]
name = {quoted(gpu.platform)}
platform = {quoted(gpu.platform)}

[[toolchains]]
name = "here"
environment = "auto"
platform = {quoted(gpu.platform)}

[[problems]]
source = "folder"
select = {json.dumps(PROBLEMS)}
workloads = "{"default" if is_accelerator else "smoke"}"

[[candidates]]
select = ["*/@reference", {quoted(ZEROS)}]

[[candidates]]
path = "candidates"

[[override]]
match = {{ candidate = "*/@reference" }}
protocol.sessions = {sessions}
protocol.max_sessions = {sessions}

[policy]
clocks = "observe"
gpu_wait_s = {_GPU_WAIT_S}

[protocol]
{_ON_ACCELERATOR if is_accelerator else _ON_CPU}
"""


def _observe(
    gpu: Gpu, cheats: Sequence[Cheat], plan: RunPlan, folder: Path, listener: Listener | None
) -> tuple[PlatformFindings, RunResult]:
    records: dict[str, Record] = {}

    def tell(progress: RunProgress) -> None:
        if isinstance(progress, RunEvent) and progress.record is not None:
            records[progress.record.cell.candidate] = progress.record
        if listener is not None:
            listener(progress)

    before = _modes(gpu)
    ran = run(plan, folder / "results", listener=tell)
    measured = _measure(gpu, plan)
    return PlatformFindings(
        gpu=gpu,
        is_accelerator=_is_accelerator(gpu),
        cheats=cheats,
        records=records,
        not_run={cell.candidate.id: cell.reason.text for cell in plan.skipped if cell.reason is not None},
        measured=measured,
        modes=(before, _modes(gpu)),
        peak=peak_in_table(gpu.name),
    ), ran


def _modes(gpu: Gpu) -> DeviceModes:
    platform = get_platform(gpu.platform)
    with platform.opened():
        return platform.modes(gpu)


def _measure(gpu: Gpu, plan: RunPlan) -> DeviceMeasurements | str:
    (toolchain,) = plan.matrix.toolchains
    try:
        document = ask_device(gpu, toolchain.name, plan.host, question=CONFORMANCE, wait_s=_GPU_WAIT_S)
        return from_json(DeviceMeasurements, document)
    except (KernelMatrixError, ValueError) as error:  # a check that failed, beside what the run has shown
        return f"the device could not be measured: {error}"


def _versions(findings: PlatformFindings) -> Mapping[str, str]:
    """Return the versions that the first judge read inside."""
    found = (session.environment for record in findings.records.values() for session in record.sessions)
    first = next(filter(None, found), None)
    named = {name: getattr(first, name, None) for name in ("python", "torch", "triton")}
    return {name: version for name, version in named.items() if version}
