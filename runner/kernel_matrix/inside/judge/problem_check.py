"""Checking one problem in this process, as a judge does before its first candidate.

The process belongs to the problem; :mod:`kernel_matrix.inside.judge.problem_check_pool` ends it afterwards.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, Iterator, Tuple

import torch

from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.input_generation import set_float32_precision
from kernel_matrix.inside.judge.problem_check_job import (
    MOST_IMPORTED,
    ProblemCheckJob,
    ProblemCheckReport,
    ProblemCheckResult,
    ProblemCheckTask,
    dump_stacks_after,
    is_large,
    one_line,
    out_of_memory,
    places,
)
from kernel_matrix.inside.judge.reference import ReferenceModel, guarded
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.verification import Verifier
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.wire import MAX_FROM_JUDGE, MAX_FROM_WORKER, CallFailure, Channel
from kernel_matrix.inside.worker.service import serve
from kernel_matrix.model.enums import Role, Stage, Status
from kernel_matrix.model.messages import ContestantSpec, JudgeJob, JudgeTimeouts

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


def try_out(task: ProblemCheckTask, folder: Path, orders: ProblemCheckJob) -> ProblemCheckReport:
    """Load the problem in ``folder`` and run its controls."""
    torch.set_num_threads(1)
    set_float32_precision(task.job.dtype)
    known, before = frozenset(sys.modules), _settings()
    tried = _tried(task, folder, orders)
    changed = [name for name, value in _settings().items() if value != before[name]]
    if changed:
        reasons = (tried.reason, f"changes torch's {', '.join(changed)}")
        reason = one_line("; ".join(filter(None, reasons)))
        tried = replace(tried, reason=reason, labels=(*tried.labels, CHANGES_TORCH_STATE))
    return ProblemCheckReport(tried, tuple(_imported_since(known)))


def _imported_since(known: FrozenSet[str]) -> Iterator[str]:
    """Yield the first large modules that were imported meanwhile."""
    new = (name for name in list(sys.modules) if name not in known and is_large(name))
    return itertools.islice(new, MOST_IMPORTED)


def _tried(task: ProblemCheckTask, folder: Path, orders: ProblemCheckJob) -> ProblemCheckResult:
    try:
        return ProblemCheckResult(task.index, Status.PASSED, labels=_through_controls(task.job, folder, orders))
    except SessionEnded as found:
        message, log, status = found.evidence.message, found.evidence.log, found.status
        place = next(reversed(places(log, folder)), None)
        reason = out_of_memory(f"{message} {log}", orders.memory_bytes) or message
        where = (place.file, place.line) if place else ("", None)
        return ProblemCheckResult(task.index, status, one_line(reason), *where)
    except Exception as error:  # noqa: BLE001  # comparisons take memory too; any other error is a fault of the tool
        message = f"{type(error).__name__}: {error}"
        refused = out_of_memory(message, orders.memory_bytes)
        lacking = classify(error) is CallFailure.MEMORY  # of the host or of the device
        status = Status.PROBLEM_ERROR if lacking else Status.INFRA_ERROR
        return ProblemCheckResult(task.index, status, refused or one_line(f"the check failed: {message}"))


def _through_controls(job: JudgeJob, folder: Path, orders: ProblemCheckJob) -> Tuple[str, ...]:
    """Compare the reference with itself in another process and run :meth:`Verifier.controls`; return the labels.

    Raises:
        SessionEnded: As in a judge.
    """
    spec = job.workloads[0]
    contestant = next(one for one in job.contestants if one.role is Role.BASELINE)
    with _baseline(contestant, folder, job.device, orders.limit_s) as client:
        client.open()
        client.start_load(dict(spec.values))
        reference: ReferenceModel = guarded(
            "the reference",
            Stage.LOAD,
            lambda: ReferenceModel(
                folder / job.problem_file, spec.values, job.device, job.dtype, f"{job.seed}/{spec.name}"
            ),
        )
        client.finish_load()
        client.construct(reference, 0)
        verifier = Verifier(job, {client.name: client}, random.Random(job.seed))  # noqa: S311  # under the job's seed
        verifier.controls(reference)
    return tuple(verifier.labels)


@contextmanager
def _baseline(contestant: ContestantSpec, folder: Path, device: str, limit_s: float) -> Iterator[WorkerClient]:
    """Start the reference in a worker, a fork of this process made before the problem is imported."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.fork() == 0:
        try:
            ours.close()
            dump_stacks_after(limit_s + _LATER_S)
            serve(Channel(theirs, MAX_FROM_JUDGE), folder, device)
        finally:
            os._exit(0)
    theirs.close()
    dump_stacks_after(limit_s)
    # The parent ends both processes in time, so no limit here needs to be reached.
    timeouts = JudgeTimeouts(*[2 * limit_s] * 5)
    client = WorkerClient(contestant, Channel(ours, MAX_FROM_WORKER), device, timeouts)
    try:
        yield client
    finally:
        client.close()
        ours.close()


def _settings() -> Dict[str, Any]:
    return {name: _asked(ask) for name, ask in _SETTINGS.items()}


def _asked(ask: Callable[[], Any]) -> Any:
    """Return torch's answer; the type of an error is an answer too."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001  # a problem may have changed torch in any way
        return type(error).__name__
