"""Everything a cell needs on this host, looked at line by line. Nothing here changes a device.

A check is a module with a function ``check`` from :class:`~kernel_matrix.hosts.doctor.host.Host` to findings. To add
one: one file here and one line in :data:`CHECKS`.
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
    "local processes": "kernel_matrix.hosts.doctor.local",
    "drivers": "kernel_matrix.hosts.doctor.drivers",
    "GPUs in containers": "kernel_matrix.hosts.doctor.gpu_access",
    "container toolkit": "kernel_matrix.hosts.doctor.toolkit",
    "matrix": "kernel_matrix.hosts.doctor.selection",
    "toolchains": "kernel_matrix.hosts.doctor.toolchains",
    "images": "kernel_matrix.hosts.doctor.images",
    "right to lock clocks": "kernel_matrix.hosts.doctor.clocks",
    "persistence mode": "kernel_matrix.hosts.doctor.persistence",
    "sharing": "kernel_matrix.hosts.doctor.sharing",
    "ECC": "kernel_matrix.hosts.doctor.ecc",
    "peak rates": "kernel_matrix.hosts.doctor.peaks",
    "PID namespace": "kernel_matrix.hosts.doctor.namespace",
    "company": "kernel_matrix.hosts.doctor.company",
    "leftovers": "kernel_matrix.hosts.doctor.leftovers",
    "disk": "kernel_matrix.hosts.doctor.disk",
    "CPU governor": "kernel_matrix.hosts.doctor.cpu",
}
"""Subject → module, imported when it is its turn. The order of the report: what runs cells, on what, beside what."""

LIMIT_S = 30.0
"""How long one check may take: a broken GPU or a dead network disk may never answer."""


def examine(host: Host) -> Iterator[CheckResult]:
    """Every check's findings, each as soon as its check has ended; a check that fails or hangs is a finding too."""
    for subject, module in CHECKS.items():
        yield from bounded(subject, _imported_late(module), host, LIMIT_S)


def bounded(subject: str, check: Check, host: Host, limit_s: float) -> list[CheckResult]:
    """What ``check`` finds within ``limit_s`` seconds."""
    answers: queue.SimpleQueue[list[CheckResult]] = queue.SimpleQueue()
    # A daemon thread: nothing can end a call into a driver that hangs, and the program must be able to.
    threading.Thread(target=lambda: answers.put(_answer(subject, check, host)), daemon=True).start()
    try:
        return answers.get(timeout=limit_s)
    except queue.Empty:
        found = f"no answer within {limit_s:g} s"
        return [fail(subject, found, "something it asks hangs: a driver, a daemon or a disk; see `dmesg`")]


def _imported_late(module: str) -> Check:
    """The check of ``module``, which is imported as part of it: what cannot be imported is a finding as well."""

    def check(host: Host) -> Iterable[CheckResult]:
        found: Iterable[CheckResult] = importlib.import_module(module).check(host)
        return found

    return check


def _answer(subject: str, check: Check, host: Host) -> list[CheckResult]:
    try:
        return list(check(host))
    except KernelMatrixError as error:
        return [fail(subject, error.what, error.next_step)]
    except Exception as error:  # noqa: BLE001  # whatever a check runs into, the others' lines are still wanted
        found = f"the check itself failed: {type(error).__name__}: {error}"
        return [fail(subject, found, "look at that by hand; the other lines hold")]
