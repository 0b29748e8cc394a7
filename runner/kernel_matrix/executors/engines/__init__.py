"""Engines that start jobs at the sites of a fleet: ``local``, ``slurm`` and ``ray``.

An engine is a module with the members of :class:`Engine`. To add one, add a module here and a line in :data:`ENGINES`,
or an entry point of another package in the group ``kernel_matrix.engines``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol

from kernel_matrix.config_files.faults import ConfigFault
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.fleet import Site
from kernel_matrix.platforms import Gpu
from kernel_matrix.plugins import Registry

LOG_FILE: Final = "log.txt"
"""In the folder of a job: what it prints."""


class EngineError(InfrastructureError):
    """The engine of a site does not answer, or refuses what it is asked; the run goes on at the other sites."""


class JobState(str, Enum):
    """State of a job, as its engine reports it."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    """Its process ended by itself, whatever came of it."""
    LOST = "lost"
    """It was killed, its node died, or it could never begin."""

    @property
    def is_over(self) -> bool:
        """True if the job will not run any more."""
        return self in (JobState.ENDED, JobState.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """State of a job, and where it is or was."""

    state: JobState
    reason: str = ""
    """Why it waits or was lost, in the engine's words."""
    node: str = ""
    unit: str = ""
    """UUID of its GPU, where the engine chooses the GPU itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A process to start on one GPU of a site."""

    token: str
    """Unique name, which begins with the run's: engines may hand out a job's number twice, and never a name."""
    resource: str
    """GPU model, by the engine's name; empty for a CPU."""
    folder: Path
    """Its working folder, seen under this path on every node."""
    command: Sequence[str]
    avoid: frozenset[str] = frozenset()
    """Nodes or UUIDs of GPUs on which it has nothing to do; an engine that cannot choose takes no notice."""


class EngineSession(Protocol):
    """The jobs of one run at one site."""

    def units(self) -> Mapping[str, int]:
        """Return GPU model → GPUs that the site has now.

        Raises:
            EngineError: It does not answer.
        """
        ...

    def submit(self, job: Job) -> None:
        """Hand a job over. If this raises, the job may exist all the same: :meth:`statuses` tells.

        Raises:
            EngineError: It does not answer, or refuses the job.
        """
        ...

    def statuses(self) -> Mapping[str, JobStatus]:
        """Return token → status of the run's jobs. What is not in it, the engine does not know any more.

        Raises:
            EngineError: It does not answer.
        """
        ...

    def cancel(self, tokens: Iterable[str]) -> None:
        """End jobs; those that are gone already are none of its business.

        Raises:
            EngineError: It does not answer.
        """
        ...


class Engine(Protocol):
    """A module that knows an engine."""

    def check_options(self, options: Mapping[str, Any], /) -> Iterable[ConfigFault]:
        """Yield the faults of the table ``options`` of a site."""
        ...

    def allocated(self, gpus: Sequence[Gpu], /) -> tuple[Gpu, ...]:
        """Return those of this host's devices that the engine gave to this process, which runs in a job.

        Raises:
            EngineError: It gave none that is here.
        """
        ...

    def open_session(self, site: Site, run_token: str, /) -> EngineSession:
        """Return the jobs of a run, all of whose tokens begin with ``run_token``; nothing is started."""
        ...


ENGINES: Registry[Engine] = Registry(
    "engine",
    "kernel_matrix.engines",
    {
        "local": "kernel_matrix.executors.engines.local",
        "slurm": "kernel_matrix.executors.engines.slurm",
        "ray": "kernel_matrix.executors.engines.ray_jobs",
    },
    members=("check_options", "allocated", "open_session"),
)
"""Name → engine."""
