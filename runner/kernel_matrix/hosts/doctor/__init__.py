"""Checks of everything that a cell needs on this host. No check changes a device.

A check is a module with a function ``check`` that takes a :class:`~kernel_matrix.hosts.doctor.host.Host` and returns
results. To add a check, add one file here and one line in :data:`CHECKS`.
"""

from __future__ import annotations

import importlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator

from kernel_matrix.errors import KernelMatrixError
from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, fail

Check = Callable[[Host], Iterable[CheckResult]]

CHECKS = {
    "Python": "kernel_matrix.hosts.doctor.python",
    "extensions": "kernel_matrix.hosts.doctor.extensions",
    "Docker": "kernel_matrix.hosts.doctor.daemon",
    "unpacked images": "kernel_matrix.hosts.doctor.unpacked",
    "local processes": "kernel_matrix.hosts.doctor.local",
    "trial": "kernel_matrix.hosts.doctor.trial",
    "drivers": "kernel_matrix.hosts.doctor.drivers",
    "GPUs in containers": "kernel_matrix.hosts.doctor.gpu_access",
    "container toolkit": "kernel_matrix.hosts.doctor.toolkit",
    "matrix": "kernel_matrix.hosts.doctor.matrix_selection",
    "toolchains": "kernel_matrix.hosts.doctor.toolchains",
    "images": "kernel_matrix.hosts.doctor.images",
    "right to lock clocks": "kernel_matrix.hosts.doctor.clocks",
    "persistence mode": "kernel_matrix.hosts.doctor.persistence",
    "sharing": "kernel_matrix.hosts.doctor.sharing",
    "ECC": "kernel_matrix.hosts.doctor.ecc",
    "peak rates": "kernel_matrix.hosts.doctor.peaks",
    "PID namespace": "kernel_matrix.hosts.doctor.namespace",
    "other processes": "kernel_matrix.hosts.doctor.other_processes",
    "leftovers": "kernel_matrix.hosts.doctor.leftovers",
    "disk": "kernel_matrix.hosts.doctor.disk",
    "CPU governor": "kernel_matrix.hosts.doctor.cpu",
}
"""Subject → module, which is imported when its check runs. The order is that of the report: sandboxes, GPUs, matrix,
state of each GPU, rest of the host."""

LIMIT_S = 30.0
"""Time limit of one check: a broken GPU or a dead network disk may never answer, and a slow one needs seconds."""
_LIMITS_S = {"trial": 240.0}
"""Checks with a limit of their own: from a cold disk, importing torch takes a minute."""


def examine(host: Host) -> Iterator[CheckResult]:
    """Yield the results of every check as soon as it has ended; a check that fails or hangs yields a result, too."""
    for subject, module in CHECKS.items():
        yield from bounded(subject, _lazy_check(module), host, _LIMITS_S.get(subject, LIMIT_S))


def bounded(subject: str, check: Check, host: Host, limit_s: float) -> list[CheckResult]:
    """Run ``check`` for at most ``limit_s`` seconds, and return its results."""
    answers: queue.SimpleQueue[list[CheckResult]] = queue.SimpleQueue()
    # A daemon thread, because a call into a hanging driver cannot be ended and must not keep the program from exiting.
    threading.Thread(target=lambda: answers.put(_answer(subject, check, host)), daemon=True).start()
    try:
        return answers.get(timeout=limit_s)
    except queue.Empty:
        found = f"no answer within {limit_s:g} s"
        return [fail(subject, found, "a driver, a daemon or a disk that it reads hangs; see `dmesg`")]


def _lazy_check(module: str) -> Check:
    """Return a check that first imports ``module``, so that a failing import becomes a result, too."""

    def check(host: Host) -> Iterable[CheckResult]:
        found: Iterable[CheckResult] = importlib.import_module(module).check(host)
        return found

    return check


def _answer(subject: str, check: Check, host: Host) -> list[CheckResult]:
    try:
        return list(check(host))
    except KernelMatrixError as error:
        return [fail(subject, error.what, error.next_step)]
    except Exception as error:  # noqa: BLE001  # a defect of one check must not hide the lines of the others
        found = f"the check itself failed: {type(error).__name__}: {error}"
        return [fail(subject, found, "check this by hand; the other lines are valid")]
