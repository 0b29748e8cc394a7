"""Checking one problem in this process, as a judge does before its first candidate.

The process belongs to the problem; :mod:`kernel_matrix.inside.problem_check.pool` ends it afterwards.
"""

from __future__ import annotations

import faulthandler
import os
import random
import socket
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Tuple

import torch

from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.input_generation import set_float32_precision
from kernel_matrix.inside.judge.reference import ReferenceModel, guarded
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.verification import Verifier
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.problem_check.job import (
    ProblemCheckLimits,
    ProblemCheckResult,
    describe_refused_memory,
    find_source_lines,
    one_line,
)
from kernel_matrix.inside.wire import MAX_FROM_JUDGE, MAX_FROM_WORKER, CallFailure, Channel
from kernel_matrix.inside.worker.rank_leader import serve_ranks
from kernel_matrix.inside.worker.service import serve
from kernel_matrix.model.enums import Role, Stage, Status
from kernel_matrix.model.messages import JudgeJob, JudgeTimeouts

CHANGES_TORCH_STATE = "changes_torch_state"  # label: the problem leaves a global setting of torch changed

_LATER_S = 1.0  # the baseline dumps its stacks this much later, so that the two dumps do not mix

# Description → setting of torch that is compared before and after.
_SETTINGS: Dict[str, Callable[[], Any]] = {
    "default dtype": lambda: torch.empty(0).dtype,
    "default device": lambda: torch.empty(0).device,
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "autocast": lambda: torch.is_autocast_enabled("cpu"),
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "number of threads": torch.get_num_threads,
    "precision of float32 products": torch.get_float32_matmul_precision,
    "TF32 in cuDNN": lambda: torch.backends.cudnn.allow_tf32,
    "cuDNN": lambda: torch.backends.cudnn.enabled,
    "cuDNN's benchmark mode": lambda: torch.backends.cudnn.benchmark,
    "cuDNN's deterministic mode": lambda: torch.backends.cudnn.deterministic,
}


def check_problem(job: JudgeJob, folder: Path, limits: ProblemCheckLimits) -> ProblemCheckResult:
    """Load the problem in ``folder`` and run its controls."""
    torch.set_num_threads(1)
    set_float32_precision(job.dtype)
    before = _read_settings()
    result = _try_controls(job, folder, limits)
    changed = [name for name, value in _read_settings().items() if value != before[name]]
    if changed:
        reason = "; ".join(filter(None, (result.reason, f"changes torch's {', '.join(changed)}")))
        result = replace(result, reason=one_line(reason), labels=(*result.labels, CHANGES_TORCH_STATE))
    return result


def _try_controls(job: JudgeJob, folder: Path, limits: ProblemCheckLimits) -> ProblemCheckResult:
    try:
        return ProblemCheckResult(job.cell_id, Status.PASSED, labels=_run_controls(job, folder, limits.limit_s))
    except SessionEnded as found:
        message, log = found.evidence.message, found.evidence.log
        reason = describe_refused_memory(f"{message} {log}", limits.memory_bytes) or one_line(message)
        # A check has a memory limit of its own; nothing else is on the device.
        status = Status.PROBLEM_ERROR if found.status is Status.DOES_NOT_FIT else found.status
        result = ProblemCheckResult(job.cell_id, status, reason)
        for place in find_source_lines(log, folder)[-1:]:
            result = replace(result, file=place.file, line=place.line)
        return result
    except Exception as error:  # noqa: BLE001  # comparisons take memory too; any other error is a fault of the tool
        message = f"{type(error).__name__}: {error}"
        reason = describe_refused_memory(message, limits.memory_bytes) or one_line(f"the check failed: {message}")
        lacking = classify(error) is CallFailure.MEMORY  # of the host or of the device
        return ProblemCheckResult(job.cell_id, Status.PROBLEM_ERROR if lacking else Status.INFRA_ERROR, reason)


def _run_controls(job: JudgeJob, folder: Path, limit_s: float) -> Tuple[str, ...]:
    """Compare the reference with itself in another process and run :meth:`Verifier.controls`; return the labels.

    Raises:
        SessionEnded: As in a judge.
    """
    spec = job.workloads[0]
    with _start_baseline(job, folder, limit_s) as client:
        client.open()
        client.start_load(dict(spec.values))
        reference: ReferenceModel = guarded(
            "the reference",
            Stage.LOAD,
            lambda: ReferenceModel(
                *(folder / job.problem_file, spec.values, job.device, job.dtype, f"{job.seed}/{spec.name}"),
                ranks=job.ranks,
            ),
        )
        client.finish_load()
        client.construct(reference, 0)
        verifier = Verifier(job, {client.name: client}, random.Random(job.seed))  # noqa: S311  # under the job's seed
        verifier.controls(reference)
    return tuple(verifier.labels)


@contextmanager
def _start_baseline(job: JudgeJob, folder: Path, limit_s: float) -> Iterator[WorkerClient]:
    """Start the reference in a worker, a fork of this process made before the problem is imported."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.fork() == 0:
        try:
            ours.close()
            _dump_stacks_after(limit_s + _LATER_S)
            channel = Channel(theirs, MAX_FROM_JUDGE)
            if job.ranks == 1:
                serve(channel, folder, job.device)
            else:
                serve_ranks(channel, folder, job.device, None, job.ranks)
        finally:
            os._exit(0)
    theirs.close()
    _dump_stacks_after(limit_s)
    contestant = next(one for one in job.contestants if one.role is Role.BASELINE)
    # The parent ends both processes in time, so no limit here needs to be reached.
    timeouts = JudgeTimeouts(*[2 * limit_s] * 5)
    client = WorkerClient(contestant, Channel(ours, MAX_FROM_WORKER), job.device, timeouts, ranks=job.ranks)
    try:
        yield client
    finally:
        client.close()
        ours.close()


def _dump_stacks_after(seconds: float) -> None:
    """Print the stack of every thread of this process after ``seconds``; its parent then ends it.

    Do not call this before a fork: the new process would wait forever for a thread that it does not have.
    """
    faulthandler.enable(2)
    faulthandler.dump_traceback_later(seconds, file=2)


def _read_settings() -> Dict[str, Any]:
    return {name: _read_setting(read) for name, read in _SETTINGS.items()}


def _read_setting(read: Callable[[], Any]) -> Any:
    """Return a setting of torch; the type of an error is an answer too."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001  # a problem may have changed torch in any way
        return type(error).__name__
