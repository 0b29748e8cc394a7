"""One problem tried in this process, as a judge tries it before its first candidate.

The process is the problem's own: see :mod:`kernel_matrix.inside.judge.problem_check_pool`, which ends it afterwards.
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
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Tuple

import torch

from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.input_generation import set_float32_precision
from kernel_matrix.inside.judge.problem_check_pool import (
    MOST_IMPORTED,
    ProblemCheckJob,
    ProblemCheckReport,
    ProblemCheckResult,
    ProblemCheckTask,
    is_large,
    one_line,
    out_of_memory,
    places,
    say_where_after,
)
from kernel_matrix.inside.judge.reference import ReferenceModel, guarded
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.verification import Verifier
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.wire import MAX_FROM_JUDGE, MAX_FROM_WORKER, CallFailure, Channel
from kernel_matrix.inside.worker.service import serve
from kernel_matrix.model.enums import Role, Stage, Status
from kernel_matrix.model.messages import ContestantSpec, JudgeJob, JudgeTimeouts

CHANGES_TORCH_STATE = "changes_torch_state"
"""Label: the problem changes a setting of torch's that holds for the whole process, and leaves it so."""

_LATER_S = 1.0
"""How much later the baseline says where it is: both at once would write into each other's lines."""

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
"""What is compared before and after, by the words for it."""


def try_out(task: ProblemCheckTask, folder: Path, orders: ProblemCheckJob) -> ProblemCheckReport:
    """Load the problem in ``folder`` and put it through its controls."""
    torch.set_num_threads(1)
    set_float32_precision(task.job.dtype)
    known, before = frozenset(sys.modules), _settings()
    tried = _tried(task, folder, orders)
    changed = _changed(before)
    if changed:
        told = one_line("; ".join(filter(None, (tried.reason, f"changes torch's {', '.join(changed)}"))))
        tried = replace(tried, reason=told, labels=(*tried.labels, CHANGES_TORCH_STATE))
    return ProblemCheckReport(tried, tuple(_imported_since(known)))


def _imported_since(known: FrozenSet[str]) -> Iterator[str]:
    """The first large modules that are here and were not."""
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
    except Exception as error:  # noqa: BLE001  # comparing takes memory too; all else is a fault of ours
        message = f"{type(error).__name__}: {error}"
        refused = out_of_memory(message, orders.memory_bytes)
        lacking = classify(error) is CallFailure.MEMORY  # of the host or of the device
        status = Status.PROBLEM_ERROR if lacking else Status.INFRA_ERROR
        return ProblemCheckResult(task.index, status, refused or one_line(f"the check failed: {message}"))


def _through_controls(job: JudgeJob, folder: Path, orders: ProblemCheckJob) -> Tuple[str, ...]:
    """The reference against itself in another process, and the rest of :meth:`Verifier.controls`; its labels.

    :raises Finding: as a judge would.
    """
    spec = job.workloads[0]
    contestant = next(one for one in job.contestants if one.role is Role.BASELINE)
    with _baseline(contestant, folder, job.device, orders.limit_s) as side:
        side.open()
        side.start_load(dict(spec.values))
        reference: ReferenceModel = guarded(
            "the reference",
            Stage.LOAD,
            lambda: ReferenceModel(
                folder / job.problem_file, spec.values, job.device, job.dtype, f"{job.seed}/{spec.name}"
            ),
        )
        side.finish_load()
        side.construct(reference, 0)
        verifier = Verifier(job, {side.name: side}, random.Random(job.seed))  # noqa: S311  # under the job's seed
        verifier.controls(reference)
    return tuple(verifier.labels)


@contextmanager
def _baseline(contestant: ContestantSpec, folder: Path, device: str, limit_s: float) -> Iterator[WorkerClient]:
    """The reference in a worker: a fork of this process, before anything of the problem is imported."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.fork() == 0:
        try:
            ours.close()
            say_where_after(limit_s + _LATER_S)
            serve(Channel(theirs, MAX_FROM_JUDGE), folder, device)
        finally:
            os._exit(0)
    theirs.close()
    say_where_after(limit_s)
    # Nothing is given up here: the parent does that, for both.
    timeouts = JudgeTimeouts(*[2 * limit_s] * 5)
    side = WorkerClient(contestant, Channel(ours, MAX_FROM_WORKER), device, timeouts)
    try:
        yield side
    finally:
        side.close()
        ours.close()


def _settings() -> Dict[str, Any]:
    return {name: _asked(ask) for name, ask in _SETTINGS.items()}


def _changed(before: Dict[str, Any]) -> List[str]:
    return [name for name, value in _settings().items() if value != before[name]]


def _asked(ask: Callable[[], Any]) -> Any:
    """What torch answers; that it refuses to is an answer as well."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001  # whatever a problem may have made of torch
        return type(error).__name__
