"""Whose a started thing or a folder is: a token that names one runner process for as long as this machine is up.

A process id alone comes back after a while; with the process's start time and the boot it names one process for ever.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROC = Path("/proc")
_OWNER_IN_NAME = re.compile(r"(?P<pid>\d+)\.\d+\.[0-9a-f]{8}\.")


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
    """A new temporary folder that names this process as its owner; removed whatever happens.

    The owner is in the folder's name: a file inside may be impossible to write, or go first when removing is cut short.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{_owner_in_name(os.getpid())}"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def orphaned_folders(prefix: str) -> list[Path]:
    """Folders made by :func:`own_folder` under this user, whose owners are gone."""
    folders = sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*"))
    return [folder for folder in folders if _is_orphan(folder, folder.name[len(prefix) :])]


def _owner_in_name(pid: int) -> str | None:
    """Process id, start time and the first digits of the boot id; ``None`` when the process has ended."""
    start = _start_time(pid)
    return None if start is None else f"{pid}.{start}.{_boot_id()[:8]}."


def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_time(pid: int) -> str | None:
    """Clock ticks between boot and the start of ``pid``; ``None`` when it has ended, reaped or not."""
    try:
        told = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything, so the fields are counted from its end; the state is field 3.
    state, *fields = told.rpartition(b")")[2].decode().split()
    return None if state in ("Z", "X") else fields[18]


def _is_orphan(folder: Path, name: str) -> bool:
    """Whether ``folder`` is of this user and of a process that has ended.

    :param name: the folder's own without its prefix.
    """
    owner = _OWNER_IN_NAME.match(name)
    if owner is None or owner[0] == _owner_in_name(int(owner["pid"])):
        return False
    try:
        info = folder.lstat()
    except OSError:
        return False  # being removed at this moment
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
