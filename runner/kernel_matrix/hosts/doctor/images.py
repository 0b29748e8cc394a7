"""The pinned image of each toolchain whose platform has a device on this host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_matrix.hosts.doctor.host import SUBPROCESS_TIMEOUT_S, Host
from kernel_matrix.images import LockEntry
from kernel_matrix.platforms.check_result import CheckResult, fail, ok, warn

if TYPE_CHECKING:
    from docker import DockerClient

    from kernel_matrix.images.image_store import ImageStore


def check(host: Host) -> Iterator[CheckResult]:
    """Check that each toolchain has an entry in the lock, and that the daemon has exactly that image."""
    if host.matrix is None or host.daemon is None:
        return
    import docker  # noqa: PLC0415  # the SDK takes 0.2 s to import

    from kernel_matrix.images.image_store import store_of  # noqa: PLC0415  # only where there is a matrix
    from kernel_matrix.images.lock import load_lock  # noqa: PLC0415  # same

    path = host.lock_path or host.matrix.lock_path
    entries: Mapping[str, LockEntry] = load_lock(path) if path.exists() else {}
    client = docker.from_env(timeout=SUBPROCESS_TIMEOUT_S)
    try:
        store = cache(partial(store_of, client))  # read once, and only if an image is pinned
        for toolchain in host.matrix.toolchains:
            if not toolchain.environment and host.has_device_for(toolchain.platform):
                yield _check_image(toolchain.name, entries.get(toolchain.name), path, client, store)
    finally:
        client.close()


def _check_image(
    toolchain: str, entry: LockEntry | None, lock: Path, client: DockerClient, store: Callable[[], ImageStore]
) -> CheckResult:
    from kernel_matrix.images.resolve import ImagePresence, image_status, next_step  # noqa: PLC0415  # see check

    subject, advice = f"image {toolchain}", next_step(entry, toolchain)
    if entry is None:
        return warn(subject, f"not pinned: no entry in {lock}, so its cells do not run here", advice)
    status = image_status(entry, client, store())
    if status.presence is ImagePresence.PRESENT:
        return ok(subject, f"{entry.reference} ({entry.state.value}) is here")
    if status.presence is ImagePresence.DIFFERENT:
        return fail(subject, f"{entry.reference}: {status.text}", advice)
    return warn(subject, f"{entry.reference} is not here, so its cells do not run", advice)
