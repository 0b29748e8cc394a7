"""The head of a run over a fleet: one process at a time that sends the cells of a store and takes its records home."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from kernel_matrix.errors import GpuBusyError, InfrastructureError, StoreError

LOG_FILE: Final = "fleet.log"
"""What a detached head prints."""
_LOCK_FILE: Final = "fleet.lock"
_LOOK_EVERY_S: Final = 0.2
_START_LIMIT_S: Final = 120.0
_END_LIMIT_S: Final = 120.0
"""How long a head that was told to end may take to end its jobs and take their records home."""


@contextmanager
def leading(store: Path) -> Iterator[None]:
    """Be the head of a store's fleet while the context lasts.

    The lock is an ``flock``, which the kernel releases however its holder ends. Where a file system does not share
    locks between machines, two heads cost cells that are measured twice, and no record.

    Raises:
        GpuBusyError: Another process is.
        StoreError: The folder cannot be written to.
    """
    with _opened(store) as file:
        if _is_taken(file):
            what = f"a run over the fleet goes on in {store}, led by {_holder(file)}"
            raise GpuBusyError(what, next_step="let it end, or end it: kernel-matrix fleet cancel")
        file.seek(0)
        file.truncate()
        file.write(json.dumps({"hostname": platform.node(), "pid": os.getpid()}))
        file.flush()
        yield


def end_head(store: Path) -> None:
    """End the process that leads a store's fleet, if there is one; it ends its jobs and takes their records home.

    Raises:
        InfrastructureError: It is on another machine, or does not end.
    """
    with _opened(store) as file:
        if _is_taken(file):
            _interrupt(file, store)
        end_s = time.monotonic() + _END_LIMIT_S
        while _is_taken(file):
            if time.monotonic() > end_s:
                what = f"the run that is led by {_holder(file)} does not end"
                raise InfrastructureError(what, next_step="end that process, then try again")
            time.sleep(_LOOK_EVERY_S)


def detach(command: Sequence[str], store: Path) -> int:
    """Start a process that leads a store's fleet, and return when it does.

    Args:
        command: Its words.
        store: The folder of the store; what the process prints goes to the end of a file there.

    Returns:
        Its process id.

    Raises:
        InfrastructureError: It ended before.
    """
    log = store / LOG_FILE
    store.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        begin = out.tell()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    end_s = time.monotonic() + _START_LIMIT_S
    while process.poll() is None and time.monotonic() < end_s:
        with _opened(store) as file:
            if _holder(file) == f"process {process.pid} on {platform.node()}":
                return process.pid
        time.sleep(_LOOK_EVERY_S)
    if process.returncode == 0:  # nothing was left to do
        return process.pid
    process.kill()
    with log.open("rb") as said:
        said.seek(begin)
        text = said.read().decode(errors="replace").strip()
    raise InfrastructureError(f"the run ended at once; it said:\n{text}")


def _is_taken(file: IO[str]) -> bool:
    """Return whether another process has the lock; if not, this one has it until the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _opened(store: Path) -> IO[str]:
    try:
        store.mkdir(parents=True, exist_ok=True)
        return (store / _LOCK_FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{store / _LOCK_FILE} cannot be written: {error.strerror}") from None


def _read(file: IO[str]) -> tuple[str, int]:
    file.seek(0)
    try:
        found = json.loads(file.read())
        return str(found["hostname"]), int(found["pid"])
    except (ValueError, KeyError, TypeError):
        return "", 0


def _holder(file: IO[str]) -> str:
    hostname, pid = _read(file)
    return f"process {pid} on {hostname}" if pid else "another process"


def _interrupt(file: IO[str], store: Path) -> None:
    hostname, pid = _read(file)
    if not pid or hostname != platform.node():
        what = f"the run over the fleet in {store} is led by {_holder(file)}"
        raise InfrastructureError(what, next_step="end it there: kernel-matrix fleet cancel, or Ctrl-C")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
