"""Slurm, through its commands; works without accounting, and from a login node without a GPU.

Jobs are found by their names, never by their numbers: a controller that lost its state hands out numbers again. A job
that the controller has forgotten may go on running, since the processes of a job outlive ``slurmd``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernel_matrix.config_files.faults import ConfigFault
from kernel_matrix.config_files.shape import check_shape
from kernel_matrix.errors import suggestion
from kernel_matrix.executors.engines import LOG_FILE, EngineError, Job, JobState, JobStatus
from kernel_matrix.fleet import Site
from kernel_matrix.platforms import Gpu

CPU: Final = "cpu"
"""Resource of jobs without a GPU, of which each usable node takes one."""
_PATIENCE_S: Final = 30.0
"""Commands hang while the controller is down."""
_DEFAULT_CPUS: Final = 4
_GRES: Final = re.compile(r"gpu:(?P<model>[^:(),]+):(?P<number>\d+)")
_GRES_FILES: Final = re.compile(r"^.*\bGres Name=gpu .*?\bFile=(\S+)", re.MULTILINE)
_SYSTEM_FOLDERS: Final = ("/usr/sbin", "/sbin", "/usr/local/sbin")
"""Where programs of the system are that are on no user's path."""
_USABLE: Final = ("idle", "mixed", "allocated", "completing", "planned", "reserved")
"""States of nodes that run jobs now or soon; a suffix says more, and ``*`` that the node does not answer."""
_STATES: Final = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"), JobState.WAITING),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"), JobState.RUNNING),
    "COMPLETED": JobState.ENDED,
}
"""Slurm's state → what it means; every other one is a way to be lost, but FAILED with an exit code of the process."""
_LAUNCH_FAILED: Final = "launch failed requeued held"
"""Why a job waits that a node could not start; Slurm holds it until somebody releases it."""
_PASSED: Final = ("PATH", "HOME", "LANG", "KERNEL_MATRIX_GPU_SETTINGS")
"""What jobs get of this environment: settings that are forbidden here stay forbidden there."""
_SIGNALLED_BEFORE_END: Final = "B:TERM@60"
"""The runner gets a minute to end its cell and to give the GPU back before a job's time is over."""


def check_options(options: Mapping[str, Any]) -> Iterable[ConfigFault]:
    """Yield the faults of the table ``options`` of a site."""
    return check_shape(options, "fleet_slurm")


def allocated(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the devices of this job, by ``SLURM_JOB_GPUS``: places among the node's device files; else its CPUs.

    ``CUDA_VISIBLE_DEVICES`` counts from 0 in each job where Slurm hides devices, and so does not identify one. Which
    files these are ``slurmd -G`` says; without it they are taken to be those of all devices.
    """
    listed = os.environ.get("SLURM_JOB_GPUS", "")
    if not listed:
        return tuple(gpu for gpu in gpus if gpu.minor is None)
    by_minor = {gpu.minor: gpu for gpu in gpus if gpu.minor is not None}
    minors = _minors_of_node() or sorted(by_minor)
    by_place = {str(place): by_minor[minor] for place, minor in enumerate(minors) if minor in by_minor}
    try:
        return tuple(by_place[place] for place in dict.fromkeys(listed.split(",")))
    except KeyError:
        here = ", ".join(f"{gpu.name} ({gpu.minor})" for _, gpu in sorted(by_minor.items())) or "none"
        what = f"Slurm gave this job GPU {listed}, and the driver knows: {here}"
        raise EngineError(what, next_step="compare gres.conf of this node with kernel-matrix gpus list") from None


def open_session(site: Site, run_token: str) -> SlurmSession:
    """Return the jobs of a run; nothing is started."""
    return SlurmSession(site, run_token)


@dataclass(frozen=True, slots=True)
class SlurmSession:
    """The jobs of one run on one cluster."""

    site: Site
    run_token: str

    def units(self) -> Mapping[str, int]:
        """Return GPU model → GPUs of the nodes that run jobs, and how many such nodes there are."""
        self._check_partition(self.site.options.get("partition"))
        found = sum((Counter(has) for has in self._nodes().values()), Counter())
        return {model: found[model] for model in sorted(found, key=lambda model: model == CPU)}

    def submit(self, job: Job) -> None:
        """Submit a batch job; it may come to be even if no answer arrives."""
        options = self.site.options
        elsewhere = bool(job.avoid) and any(
            job.resource in has for node, has in self._nodes().items() if node not in job.avoid
        )
        asked = {
            "job-name": job.token,
            "chdir": str(job.folder),
            "output": str(job.folder / LOG_FILE),
            "open-mode": "append",
            "export": "NIL",
            "signal": _SIGNALLED_BEFORE_END,
            "cpus-per-task": options.get("cpus", _DEFAULT_CPUS),
            "nodes": 1,
            "ntasks": 1,
            "gres": None if job.resource == CPU else f"gpu:{job.resource}:1",
            "time": None if self.site.hours is None else max(1, round(self.site.hours * 60)),
            "mem": f"{options['memory_gib'] * 1024:.0f}M" if "memory_gib" in options else None,
            "exclude": ",".join(sorted(job.avoid)) if elsewhere else None,
            **{key: options.get(key) for key in ("partition", "account", "qos", "constraint")},
        }
        words = [f"--{key}={value}" for key, value in asked.items() if value is not None]
        self._call("sbatch", "--parsable", "--requeue", *words, text=_script(job))

    def statuses(self) -> Mapping[str, JobStatus]:
        """Return token → status of the run's jobs; of jobs of one name the one that goes on."""
        listed = self._call("squeue", "-h", "--me", "-t", "all", "-o", "%T|%N|%r|%j")
        found: dict[str, JobStatus] = {}
        for line in listed.splitlines():
            state, node, reason, token = line.split("|", 3)
            if not token.startswith(self.run_token):
                continue
            why = [state.lower(), *([] if reason == "None" else [reason])]
            status = JobStatus(state=_state(state, reason), node=node, reason=": ".join(why))
            if token not in found or status.state in (JobState.WAITING, JobState.RUNNING):
                found[token] = status
        return found

    def cancel(self, tokens: Iterable[str]) -> None:
        """Cancel jobs; the runner in one gets SIGTERM."""
        wanted = set(tokens)
        listed = self._call("squeue", "-h", "--me", "-o", "%i|%j").splitlines() if wanted else ()
        numbers = [number for number, _, token in (line.partition("|") for line in listed) if token in wanted]
        if numbers:  # scancel takes one name only
            self._call("scancel", "--quiet", *numbers)

    def _nodes(self) -> Mapping[str, Mapping[str, int]]:
        """Return node that runs jobs → GPU model → its GPUs; each takes one job without a GPU."""
        partition = self.site.options.get("partition")
        asked = ("--partition", partition) if partition else ()
        found: dict[str, dict[str, int]] = {}
        for line in self._call("sinfo", "-h", "-N", *asked, "-o", "%N|%T|%G|%P|%f").splitlines():
            node, state, gres, its_partition, features = line.split("|")
            is_wanted = bool(partition) or its_partition.endswith("*")
            if node in found or not is_wanted or not self._is_usable(state, features):
                continue
            found[node] = {CPU: 1}
            for model in _GRES.finditer(gres):
                found[node][model["model"]] = found[node].get(model["model"], 0) + int(model["number"])
        return found

    def _check_partition(self, partition: str | None) -> None:
        """Raise if there is no such partition, of which ``sinfo`` says nothing."""
        if partition is None:
            return
        known = {name.rstrip("*") for name in self._call("sinfo", "-h", "-o", "%P").split()}
        if partition not in known:
            what = f"site {self.site.name}: no partition is {partition!r}{suggestion(partition, sorted(known))}"
            raise EngineError(what, next_step=f"the cluster has {', '.join(sorted(known))}")

    def _is_usable(self, state: str, features: str) -> bool:
        wanted = self.site.options.get("constraint", "")
        known = features.split(",")
        # Only a plain feature can be checked here; Slurm evaluates the rest.
        is_fitting = not re.fullmatch(r"[\w.-]+", wanted) or wanted in known
        return is_fitting and not state.endswith("*") and state.rstrip("+~#!%$@^-") in _USABLE

    def _call(self, *words: str, text: str = "") -> str:
        try:
            done = subprocess.run(
                words, input=text, capture_output=True, text=True, check=False, timeout=_PATIENCE_S, env=_environment()
            )
        except FileNotFoundError:
            what = f"site {self.site.name}: {words[0]} is not installed here"
            raise EngineError(what, next_step="run this on a login node of the cluster") from None
        except subprocess.TimeoutExpired:
            what = f"site {self.site.name}: {words[0]} does not answer within {_PATIENCE_S:.0f} s"
            raise EngineError(what, next_step="`scontrol ping` says whether the controller is there") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise EngineError(f"site {self.site.name}: {said}", next_step=f"the command was {shlex.join(words[:1])}")
        return done.stdout


def _minors_of_node() -> Sequence[int]:
    """Return the minor numbers of the device files of this node, in the order of ``gres.conf``; none if unknown."""
    node, path = os.environ.get("SLURMD_NODENAME"), os.pathsep.join((os.environ.get("PATH", ""), *_SYSTEM_FOLDERS))
    program = shutil.which("slurmd", path=path)
    if node is None or program is None:
        return ()
    try:
        done = subprocess.run(
            (program, "-G", "-N", node), capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
        files = [name for names in _GRES_FILES.findall(done.stdout + done.stderr) for name in _expanded(names)]
        return [os.minor(Path(name).stat().st_rdev) for name in files]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()


def _expanded(names: str) -> Iterator[str]:
    """Yield the files of a list in Slurm's form, such as ``/dev/nvidia[0-2,5]``."""
    before, _, inside = names.partition("[")
    if not inside:
        yield names
    for numbers in filter(None, inside.rstrip("]").split(",")):
        first, _, last = numbers.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield f"{before}{number}"


def _state(state: str, reason: str) -> JobState:
    if state == "FAILED" and reason == "NonZeroExitCode":
        return JobState.ENDED
    if reason.replace("_", " ") == _LAUNCH_FAILED:
        return JobState.LOST
    return _STATES.get(state, JobState.LOST)


def _script(job: Job) -> str:
    """Return the job's script; nothing in it is secret, since others can read it (``scontrol show job``)."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    exports = (f"export {name}={shlex.quote(value)}" for name, value in passed.items())
    # The runner replaces the shell, so that signals reach it.
    return "\n".join(("#!/bin/sh", *exports, f"exec {shlex.join(job.command)}", ""))


def _environment() -> dict[str, str]:
    """Return this environment without what changes the form of the commands' answers."""
    changed = ("SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_", "SLURM_TIME_FORMAT")
    return {name: value for name, value in os.environ.items() if not name.startswith(changed)}
