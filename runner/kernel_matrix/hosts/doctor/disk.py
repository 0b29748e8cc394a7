"""Free space where cells stage, where records go, and where the daemon keeps images."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, fail, ok, warn

_MIB, _GIB = 1 << 20, 1 << 30


def check(host: Host) -> Iterator[CheckResult]:
    """There is room for scratch, records and images."""
    yield _room("scratch", Path(tempfile.gettempdir()), enough=4 * _GIB, least=256 * _MIB, move="TMPDIR")
    yield _room("results", host.results, enough=_GIB, least=64 * _MIB, move="--results")
    folder = Path(host.daemon.info.get("DockerRootDir") or "") if host.daemon is not None else None
    if folder is not None and folder.is_absolute() and folder.exists():
        yield _room("images", folder, enough=20 * _GIB, least=_GIB, move="`data-root` in /etc/docker/daemon.json")


def _room(what: str, folder: Path, *, enough: int, least: int, move: str) -> CheckResult:
    """Whether there is room in ``folder``, or where it would be made.

    :param enough: bytes below which it is a warning.
    :param least: bytes below which nothing can be expected to work.
    """
    subject, place = f"disk for {what}", _nearest(folder)
    free = shutil.disk_usage(place).free
    found = f"{free / _GIB:.1f} GiB free in {place}"
    if free >= enough:
        return ok(subject, found)
    advice = f"free some, or name another place: {move}"
    if free < least:
        return fail(subject, found, advice)
    return warn(subject, f"{found}, {enough / _GIB:g} GiB are wanted", advice)


def _nearest(folder: Path) -> Path:
    """``folder``, or the nearest one above it that exists."""
    folder = folder.resolve()
    return next(place for place in (folder, *folder.parents) if place.exists())
