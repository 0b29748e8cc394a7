"""This machine, without a scheduler: one process per GPU, which goes on when the one that started it ends.

What is known of a process is in the folder of its job, so that a later run finds it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kernel_matrix.config_files.faults import ConfigFault
from kernel_matrix.executors.engines import LOG_FILE, EngineError, Job, JobState, JobStatus
from kernel_matrix.fleet import Site
from kernel_matrix.hosts.process_token import owner_alive, owner_token
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import host_inventory

DEVICE_VARIABLE: Final = "KERNEL_MATRIX_FLEET_DEVICE"
_PROCESS_FILE: Final = "process.json"
_EXIT_FILE: Final = "exit_code"
_UNNAMED: Final = re.compile(r"[^a-z0-9]+")


def check_options(options: Mapping[str, Any]) -> Iterable[ConfigFault]:
    """Yield the faults of the table ``options`` of a site: there are none to give."""
    return [ConfigFault((key,), "unknown key; this engine has no options") for key in options]


def allocated(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the device that this process was started for."""
    uuid = os.environ.get(DEVICE_VARIABLE, "")
    mine = tuple(gpu for gpu in gpus if gpu.uuid == uuid)
    if not mine:
        raise EngineError(
            f"the device {uuid or '(none)'} of this job is not here", next_step="kernel-matrix gpus list shows what is"
        )
    return mine


def open_session(site: Site, run_token: str) -> LocalSession:
    """Return the jobs of a run; nothing is started."""
    return LocalSession(site, run_token)


@dataclass(frozen=True, slots=True)
class LocalSession:
    """Processes of one run on this machine."""

    site: Site
    run_token: str
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def units(self) -> Mapping[str, int]:
        """Return model → devices."""
        return Counter(map(resource_of, _devices()))

    def submit(self, job: Job) -> None:
        """Start the process on a device of its model that no other job has."""
        taken = {found["device"] for _, found in self._started() if owner_alive(found["process"])}
        free = [gpu for gpu in _devices() if resource_of(gpu) == job.resource and gpu.uuid not in taken]
        if not free:
            what = f"site {self.site.name}: no {job.resource} is free"
            raise EngineError(what, next_step="wait for the jobs there, or end them: kernel-matrix fleet cancel")
        # The shell stays, to keep how the process ended where nobody waits for it.
        device = min(free, key=lambda gpu: gpu.uuid in job.avoid).uuid
        script = f'"$@"; echo $? > {_EXIT_FILE}'
        with (job.folder / LOG_FILE).open("ab") as log:
            process = subprocess.Popen(
                ("/bin/sh", "-c", script, "sh", *job.command),
                cwd=job.folder,
                env={**os.environ, DEVICE_VARIABLE: device},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children.append(process)
        token = ""  # of one that has ended already
        with suppress(ProcessLookupError):
            token = owner_token(process.pid)
        found = {"process": token, "pid": process.pid, "device": device}
        try:
            replace_file(job.folder / _PROCESS_FILE, json.dumps(found))
        except OSError as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # no later run would find it
            what = f"site {self.site.name}: {job.folder / _PROCESS_FILE} cannot be written: {error.strerror}"
            raise EngineError(what, next_step="make room there") from None

    def statuses(self) -> Mapping[str, JobStatus]:
        """Return token → status, of every job whose folder is there."""
        statuses = {folder.name: _status(folder, found) for folder, found in self._started()}
        for child in self._children:
            child.poll()  # afterwards, so that one that is told as ended was waited for
        return statuses

    def cancel(self, tokens: Iterable[str]) -> None:
        """Send SIGTERM to all processes of jobs."""
        wanted = set(tokens)
        for folder, found in self._started():
            if folder.name in wanted and owner_alive(found["process"]):
                with suppress(ProcessLookupError):
                    os.killpg(found["pid"], signal.SIGTERM)

    def _started(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        for path in self.site.workspace.glob(f"{self.run_token}*/*/{_PROCESS_FILE}"):
            with suppress(OSError, ValueError):
                yield path.parent, json.loads(path.read_bytes())


def resource_of(gpu: Gpu) -> str:
    """Return the name of a device's model in a fleet file: ``nvidia-h200``; ``cpu`` for the CPU."""
    return "cpu" if gpu.minor is None else _UNNAMED.sub("-", gpu.name.lower()).strip("-")


def _devices() -> list[Gpu]:
    return [gpu for inventory in host_inventory().values() for gpu in inventory.gpus]


def _status(folder: Path, found: Mapping[str, Any]) -> JobStatus:
    state, reason = JobState.RUNNING, ""
    if not owner_alive(found["process"]):
        ended = (folder / _EXIT_FILE).is_file()
        state, reason = (JobState.ENDED, "") if ended else (JobState.LOST, "killed")
    return JobStatus(state=state, reason=reason, node=os.uname().nodename, unit=str(found["device"]))
