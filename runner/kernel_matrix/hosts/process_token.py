"""Whose a started thing or a folder is: a token that names one runner process for as long as this machine is up.

A process id alone comes back after a while; with the process's start time and the boot it names one process for ever.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROC = Path("/proc")
_OWNER_FILE = "owner"


def owner_token(pid: int | None = None) -> str:
    """``<pid>:<start time in clock ticks>:<boot id>`` of a running process; null means this one.

    :raises ProcessLookupError: when there is no such process.
    """
    pid = os.getpid() if pid is None else pid
    start = _start_time(pid)
    if start is None:
        raise ProcessLookupError(f"no process {pid}")
    return f"{pid}:{start}:{_boot_id()}"


def owner_alive(token: str) -> bool:
    """Whether the process that ``token`` names still runs. A token of another boot, or of no form, names none."""
    pid, _, rest = token.partition(":")
    start, _, boot = rest.partition(":")
    return pid.isdecimal() and boot == _boot_id() and start == _start_time(int(pid))


@contextmanager
def own_folder(prefix: str) -> Iterator[Path]:
    """A new temporary folder that names this process as its owner; removed whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        (folder / _OWNER_FILE).write_text(owner_token(), encoding="ascii")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def orphaned_folders(prefix: str) -> list[Path]:
    """Folders made by :func:`own_folder` under this user, whose owners are gone."""
    return [folder for folder in sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*")) if _is_orphan(folder)]


def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_time(pid: int) -> str | None:
    """Clock ticks between boot and the start of ``pid``; null when it has ended, reaped or not."""
    try:
        told = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything, so the fields are counted from its end; the state is field 3.
    state, *fields = told.rpartition(b")")[2].decode().split()
    return None if state in ("Z", "X") else fields[18]


def _is_orphan(folder: Path) -> bool:
    try:
        info = folder.lstat()
        ours = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
        return ours and not owner_alive((folder / _OWNER_FILE).read_text(encoding="ascii"))
    except OSError:
        return False  # being made or removed at this moment
