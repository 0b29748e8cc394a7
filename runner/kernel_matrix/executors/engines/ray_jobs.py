"""Ray, through the job interface of its dashboard: JSON over HTTP, so that nothing of a node is unpickled here.

Neither this machine nor the nodes' kernel-matrix needs the package ``ray``. A job is a process on one node; where its
node dies, Ray tells it as failed without an exit code, and the dispatcher sends its cells again.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import requests

from kernel_matrix.config_files.faults import ConfigFault
from kernel_matrix.config_files.shape import check_shape
from kernel_matrix.executors.engines import LOG_FILE, EngineError, Job, JobState, JobStatus
from kernel_matrix.fleet import Site
from kernel_matrix.platforms import Gpu

CPU: Final = "cpu"
"""Resource of jobs without a GPU; a node takes as many as it has cores for."""
TOKEN_VARIABLE: Final = "RAY_AUTH_TOKEN"  # noqa: S105  # the name of a variable
"""Environment variable with the cluster's token, where it wants one; the same as for Ray's own commands."""
_PATIENCE_S: Final = 30.0
_DEFAULT_CPUS: Final = 4
_MODEL: Final = "accelerator_type:"
"""Begin of the resource that says which GPU model a node has; Ray finds it out by itself."""
_SHARE: Final = 0.001
"""How much of it a job takes: a node has 1 of it, however many GPUs it has."""
_STOP_WAIT_S: Final = 60
"""The runner gets a minute to end its cell and to give the GPU back before a job is killed."""
_NOT_YET: Final = "No available agent"
"""What a head says whose nodes have just been started."""
_STATES: Final = {"PENDING": JobState.WAITING, "RUNNING": JobState.RUNNING, "SUCCEEDED": JobState.ENDED}


def check_options(options: Mapping[str, Any]) -> Iterable[ConfigFault]:
    """Yield the faults of the table ``options`` of a site."""
    return check_shape(options, "fleet_ray")


def allocated(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the devices of this job; its CPUs if it has none.

    Ray sets ``CUDA_VISIBLE_DEVICES`` to the driver's indexes, or to UUIDs.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not listed:
        return tuple(gpu for gpu in gpus if gpu.minor is None)
    with_node = [gpu for gpu in gpus if gpu.minor is not None]
    named = {gpu.uuid: gpu for gpu in with_node} | {str(gpu.index): gpu for gpu in with_node}
    words = listed.split(",")
    if not set(words) <= set(named) or len({named[word] for word in words}) < len(words):
        here = ", ".join(f"{gpu.name} ({gpu.index})" for gpu in with_node) or "none"
        what = f"Ray gave this job GPU {listed}, and the driver knows: {here}"
        raise EngineError(what, next_step="start Ray on this node with all of its GPUs")
    return tuple(named[word] for word in words)


def open_session(site: Site, run_token: str) -> RaySession:
    """Return the jobs of a run; nothing is started."""
    return RaySession(site, run_token)


@dataclass(frozen=True, slots=True)
class RaySession:
    """The jobs of one run on one Ray cluster."""

    site: Site
    run_token: str

    def units(self) -> Mapping[str, int]:
        """Return GPU model → GPUs of the nodes that are alive, and for how many jobs without a GPU there are cores."""
        found: dict[str, int] = {}
        for node in self._nodes():
            if node["state"] != "ALIVE":
                continue
            has = node["resources_total"]
            models = [name.removeprefix(_MODEL) for name in has if name.startswith(_MODEL)]
            if models and has.get("GPU"):
                found[models[0].lower()] = found.get(models[0].lower(), 0) + int(has["GPU"])
            found[CPU] = found.get(CPU, 0) + int(has.get("CPU", 0)) // self._cpus
        return {model: number for model, number in found.items() if number}

    def submit(self, job: Job) -> None:
        """Submit a job; a name that the cluster knows already is refused by it."""
        options = self.site.options
        passed = {"KERNEL_MATRIX_GPU_SETTINGS": os.environ.get("KERNEL_MATRIX_GPU_SETTINGS")}
        document: dict[str, Any] = {
            "submission_id": job.token,
            # The runner replaces the shell, so that signals reach it.
            "entrypoint": f"cd {shlex.quote(str(job.folder))} && exec {shlex.join(job.command)} >>{LOG_FILE} 2>&1",
            "entrypoint_num_cpus": self._cpus,
            "runtime_env": {
                "env_vars": {
                    "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_WAIT_S),
                    **{name: value for name, value in passed.items() if value is not None},
                }
            },
        }
        if "memory_gib" in options:
            document["entrypoint_memory"] = round(options["memory_gib"] * 2**30)
        if job.resource != CPU:
            document["entrypoint_num_gpus"] = 1
            document["entrypoint_resources"] = {f"{_MODEL}{self._spelled(job.resource)}": _SHARE}
        end_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._call("POST", "/api/jobs/", document)
            except EngineError as error:  # noqa: PERF203  # a head whose nodes have just been started is asked again
                if _NOT_YET not in error.what or time.monotonic() > end_s:
                    raise
                time.sleep(1)
            else:
                return

    def statuses(self) -> Mapping[str, JobStatus]:
        """Return token → status of the run's jobs."""
        found = {}
        for job in self._call("GET", "/api/jobs/"):
            token = job["submission_id"] or ""
            if token.startswith(self.run_token):
                found[token] = _status(job)
        return found

    def cancel(self, tokens: Iterable[str]) -> None:
        """Stop jobs; the runner in one gets SIGTERM."""
        goes_on = {token for token, status in self.statuses().items() if status.state in _GOES_ON}
        for token in goes_on.intersection(tokens):
            self._call("POST", f"/api/jobs/{quote(token)}/stop")

    @property
    def _cpus(self) -> int:
        return int(self.site.options.get("cpus", _DEFAULT_CPUS))

    def _spelled(self, model: str) -> str:
        """Return a model as the cluster spells it; names in ``gpus`` and records are in lower case."""
        names = (name.removeprefix(_MODEL) for node in self._nodes() for name in node["resources_total"])
        return next((name for name in names if name.lower() == model), model.upper())

    def _nodes(self) -> list[dict[str, Any]]:
        """Return all nodes that the cluster knows, dead ones included."""
        found: list[dict[str, Any]] = self._call("GET", "/api/v0/nodes?detail=1&limit=10000")["data"]["result"][
            "result"
        ]
        return found

    def _call(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> Any:
        token = os.environ.get(TOKEN_VARIABLE)
        try:
            answer = requests.request(
                method,
                self.site.options["address"].rstrip("/") + path,
                json=document,
                headers={"Authorization": f"Bearer {token}"} if token else {},
                timeout=_PATIENCE_S,
                allow_redirects=False,
            )
            if answer.status_code == HTTPStatus.OK:
                return answer.json()
        except (requests.RequestException, ValueError) as error:
            what = f"site {self.site.name}: the dashboard of Ray does not answer: {type(error).__name__}"
            raise EngineError(what, next_step=f"see whether {self.site.options['address']} is reachable here") from None
        lines = answer.text.strip().splitlines() or [f"status {answer.status_code}"]
        said = next((line for line in reversed(lines) if len(line) > 1), lines[-1])
        raise EngineError(f"site {self.site.name}: Ray refuses: {said[:300]}", next_step=_hint(answer.status_code))


_GOES_ON: Final = (JobState.WAITING, JobState.RUNNING)


def _hint(status: int) -> str:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"put the cluster's token into the environment variable {TOKEN_VARIABLE}"
    return "the head's dashboard.log says more"


def _status(job: Mapping[str, Any]) -> JobStatus:
    state = _STATES.get(job["status"], JobState.LOST)
    if job["status"] == "FAILED" and job["driver_exit_code"] is not None and job["driver_exit_code"] >= 0:
        state = JobState.ENDED  # its process ended by itself
    reason = "" if state in (JobState.RUNNING, JobState.ENDED) else str(job["message"] or "").splitlines()[-1:]
    node = (job["driver_info"] or {}).get("node_ip_address") or str(job["driver_node_id"] or "")[:12]
    return JobStatus(state=state, reason=" ".join(reason)[:300], node=node)
