"""Everything a cell needs on this host, looked at line by line. Nothing here changes a device.

A check is a module with a function ``check`` from :class:`~runner.doctor.host.Host` to findings. To add one: one file
here and one line in :data:`CHECKS`.
"""

from __future__ import annotations

import importlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator

from runner.doctor.finding import Finding, fail
from runner.doctor.host import Host
from runner.errors import KernelMatrixError

Check = Callable[[Host], Iterable[Finding]]

CHECKS = {
    "Python": "runner.doctor.python",
    "Docker": "runner.doctor.daemon",
    "local processes": "runner.doctor.local",
    "NVIDIA driver": "runner.doctor.devices",
    "GPUs in containers": "runner.doctor.gpu_access",
    "container toolkit": "runner.doctor.toolkit",
    "matrix": "runner.doctor.selection",
    "toolchains": "runner.doctor.toolchains",
    "images": "runner.doctor.images",
    "right to lock clocks": "runner.doctor.clocks",
    "persistence mode": "runner.doctor.persistence",
    "sharing": "runner.doctor.sharing",
    "ECC": "runner.doctor.ecc",
    "peak rates": "runner.doctor.peaks",
    "PID namespace": "runner.doctor.namespace",
    "company": "runner.doctor.company",
    "leftovers": "runner.doctor.leftovers",
    "disk": "runner.doctor.disk",
    "CPU governor": "runner.doctor.cpu",
}
"""Subject → module, imported when it is its turn. The order of the report: what runs cells, on what, beside what."""

LIMIT_S = 30.0
"""How long one check may take: a broken GPU or a dead network disk may never answer."""


def examine(host: Host) -> Iterator[Finding]:
    """Every check's findings, each as soon as its check has ended; a check that fails or hangs is a finding too."""
    for subject, module in CHECKS.items():
        yield from bounded(subject, _imported_late(module), host, LIMIT_S)


def bounded(subject: str, check: Check, host: Host, limit_s: float) -> list[Finding]:
    """What ``check`` finds within ``limit_s`` seconds."""
    answers: queue.SimpleQueue[list[Finding]] = queue.SimpleQueue()
    # A daemon thread: nothing can end a call into a driver that hangs, and the program must be able to.
    threading.Thread(target=lambda: answers.put(_answer(subject, check, host)), daemon=True).start()
    try:
        return answers.get(timeout=limit_s)
    except queue.Empty:
        found = f"no answer within {limit_s:g} s"
        return [fail(subject, found, "something it asks hangs: a driver, a daemon or a disk; see `dmesg`")]


def _imported_late(module: str) -> Check:
    """The check of ``module``, which is imported as part of it: what cannot be imported is a finding as well."""

    def check(host: Host) -> Iterable[Finding]:
        found: Iterable[Finding] = importlib.import_module(module).check(host)
        return found

    return check


def _answer(subject: str, check: Check, host: Host) -> list[Finding]:
    try:
        return list(check(host))
    except KernelMatrixError as error:
        return [fail(subject, error.what, error.next_step)]
    except Exception as error:  # noqa: BLE001  # whatever a check runs into, the others' lines are still wanted
        found = f"the check itself failed: {type(error).__name__}: {error}"
        return [fail(subject, found, "look at that by hand; the other lines hold")]
