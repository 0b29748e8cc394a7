"""Tokens that mark containers and folders with the runner process that owns them.

A process id alone is reused after a while. Together with the start time of the process and the id of the boot it names
one process for ever.
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
    """Return ``<pid>:<start time in clock ticks>:<boot id>`` of a running process.

    Args:
        pid: its process id; ``None`` for this process.

    Raises:
        ProcessLookupError: if there is no such process.
    """
    pid = os.getpid() if pid is None else pid
    start = _start_time(pid)
    if start is None:
        raise ProcessLookupError(f"no process {pid}")
    return f"{pid}:{start}:{_boot_id()}"


def owner_alive(token: str) -> bool:
    """Return whether the process of ``token`` still runs; False for a token of another boot or a malformed one."""
    pid, _, rest = token.partition(":")
    start, _, boot = rest.partition(":")
    return pid.isdecimal() and boot == _boot_id() and start == _start_time(int(pid))


@contextmanager
def own_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder that names this process as its owner; remove it when the context ends.

    It may be renamed meanwhile, and is kept then. ``parent`` is where it is made, by default that of temporary files.

    The owner is part of the folder's name. A file inside could fail to be written, or be deleted first if the removal
    of the folder is interrupted.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{owner_in_name(os.getpid())}", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def orphaned_folders(prefix: str, parent: Path | None = None) -> list[Path]:
    """Return folders of this user's whose names begin with ``prefix`` and :func:`owner_in_name` of an ended process.

    Args:
        prefix: as in :func:`own_folder`.
        parent: the folder to look into; ``None`` for that of temporary files.
    """
    folders = sorted((parent or Path(tempfile.gettempdir())).glob(f"{prefix}*"))
    return [folder for folder in folders if _is_orphan(folder, folder.name[len(prefix) :])]


def owner_in_name(pid: int) -> str | None:
    """Return process id, start time and the first digits of the boot id; ``None`` if the process has ended."""
    start = _start_time(pid)
    return None if start is None else f"{pid}.{start}.{_boot_id()[:8]}."


def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_time(pid: int) -> str | None:
    """Return the clock ticks between boot and the start of ``pid``; ``None`` if it has ended, reaped or not."""
    try:
        status = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may contain spaces and parentheses, so the fields are counted from its end; the first of
    # them is the state, field 3.
    state, *fields = status.rpartition(b")")[2].decode().split()
    return None if state in ("Z", "X") else fields[18]


def _is_orphan(folder: Path, name: str) -> bool:
    """Return whether ``folder`` belongs to this user and to a process that has ended.

    Args:
        folder: the folder.
        name: its name without the prefix.
    """
    owner = _OWNER_IN_NAME.match(name)
    if owner is None or owner[0] == owner_in_name(int(owner["pid"])):
        return False
    try:
        info = folder.lstat()
    except OSError:
        return False  # another process is removing it
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
