"""The engine ``nice``: one process of low priority at a time on this machine, which ends with its run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernel_matrix.config_files.faults import ConfigFault
from kernel_matrix.executors.engines import EngineError, Job, JobState, JobStatus
from kernel_matrix.fleet import Site
from kernel_matrix.platforms import Gpu

JOB_VARIABLE = "NICE_ENGINE_JOB"


def check_options(options: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield the faults of the table ``options``."""
    for key, value in options.items():
        if key != "nice":
            yield ConfigFault((key,), "unknown key; allowed: nice")
        elif value not in range(20):
            yield ConfigFault((key,), f"{value!r} is out of range; must be from 0 to 19")


def allocated(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the processors of this machine."""
    if JOB_VARIABLE not in os.environ:
        raise EngineError("this process is no job of the engine nice")
    return tuple(gpu for gpu in gpus if gpu.minor is None)


def open_session(site: Site, run_token: str) -> NiceSession:
    """Return the jobs of a run."""
    return NiceSession(site, run_token)


class NiceSession:
    """Processes of one run."""

    def __init__(self, site: Site, run_token: str) -> None:
        self._site, self._run_token = site, run_token
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def units(self) -> Mapping[str, int]:
        """Return the one place that there is."""
        return {"core": 1}

    def submit(self, job: Job) -> None:
        """Start a process."""
        assert job.token.startswith(self._run_token)
        with (self._site.workspace / "jobs.txt").open("a") as jobs:
            jobs.write(f"{job.resource} {job.token}\n")
        with (job.folder / "log.txt").open("ab") as log:
            self._children[job.token] = subprocess.Popen(
                ("nice", "-n", str(self._site.options.get("nice", 0)), *job.command),
                cwd=job.folder,
                env={**os.environ, JOB_VARIABLE: job.token},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def statuses(self) -> Mapping[str, JobStatus]:
        """Return the states of all processes."""
        return {token: JobStatus(state=_state(child.poll()), node="core") for token, child in self._children.items()}

    def cancel(self, tokens: Iterable[str]) -> None:
        """Send SIGTERM."""
        for token in tokens:
            if token in self._children:
                self._children[token].terminate()


def _state(code: int | None) -> JobState:
    if code is None:
        return JobState.RUNNING
    return JobState.LOST if code < 0 else JobState.ENDED
