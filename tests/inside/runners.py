"""Runners of workloads whose contestants are threads of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kernel_matrix.inside.judge.pause import CandidatePause
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.judge.workload_runner import WorkloadRunner
from kernel_matrix.inside.phases import Phases
from kernel_matrix.model.messages import JudgeJob
from tests.inside.workers import TIMEOUTS, served


class WorkingPause(CandidatePause):
    """A pause whose host always obeys."""

    works = True

    def _ask(self, _kind: Any) -> None:
        pass


@contextmanager
def opened_runner(job: JudgeJob, folder: Path, pause: CandidatePause | None = None) -> Iterator[WorkloadRunner]:
    """Open a runner of ``job``, whose sources are in ``folder``; without a ``pause`` nobody can be paused."""
    with ExitStack() as undo:
        channels = {spec: undo.enter_context(served(folder, device=job.device)) for spec in job.contestants}
        clients = {
            spec.name: WorkerClient(spec, channel, job.device, TIMEOUTS, job.device_memory_bytes)
            for spec, channel in channels.items()
        }
        for client in clients.values():
            undo.callback(client.close)
            client.open()
        runner = WorkloadRunner(job, folder, clients, Phases(), pause or CandidatePause(None))
        yield undo.enter_context(runner.open())
