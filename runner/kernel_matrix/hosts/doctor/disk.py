"""Free space for the scratch folders of cells, for records, and for the daemon's images."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.platforms.check_result import CheckResult, fail, ok, warn

_MIB, _GIB = 1 << 20, 1 << 30


def check(host: Host) -> Iterator[CheckResult]:
    """Check that there is enough space for scratch folders, records and images."""
    yield _check_space("scratch", Path(tempfile.gettempdir()), enough=4 * _GIB, least=256 * _MIB, move="TMPDIR")
    yield _check_space("results", host.results, enough=_GIB, least=64 * _MIB, move="--results")
    folder = Path(host.daemon.info.get("DockerRootDir") or "") if host.daemon is not None else None
    if folder is not None and folder.is_absolute() and folder.exists():
        # An image with torch and a CUDA toolkit takes 5 to 15 GiB.
        yield _check_space(
            "images", folder, enough=20 * _GIB, least=_GIB, move="`data-root` in /etc/docker/daemon.json"
        )


def _check_space(purpose: str, folder: Path, *, enough: int, least: int, move: str) -> CheckResult:
    """Check the free space in ``folder``, or in the nearest folder above it if it does not exist yet.

    Args:
        purpose: purpose of the folder.
        folder: the folder.
        enough: bytes below which the result is a warning.
        least: bytes below which cells cannot be expected to work.
        move: option or setting that names another folder.
    """
    subject, existing = f"disk for {purpose}", _nearest_existing(folder)
    free = shutil.disk_usage(existing).free
    found = f"{free / _GIB:.1f} GiB free in {existing}"
    if free >= enough:
        return ok(subject, found)
    advice = f"free some space, or choose another folder: {move}"
    if free < least:
        return fail(subject, found, advice)
    return warn(subject, f"{found}, {enough / _GIB:g} GiB are wanted", advice)


def _nearest_existing(folder: Path) -> Path:
    folder = folder.resolve()
    return next(candidate for candidate in (folder, *folder.parents) if candidate.exists())
