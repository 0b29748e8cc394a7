"""The pinned image of each toolchain whose platform has a device on this host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.hosts.survey import AUTO
from kernel_matrix.images import LockEntry
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, fail, ok, warn
from kernel_matrix.sandboxes import open_sandbox

if TYPE_CHECKING:
    from kernel_matrix.images.image_store import ImageStore


def check(host: Host) -> Iterator[CheckResult]:
    """Check that each toolchain has an entry in the lock, and that exactly that image is here."""
    if host.matrix is None:
        return
    from kernel_matrix.images.lock import load_lock  # noqa: PLC0415  # only where there is a matrix
    from kernel_matrix.images.stores import UNPACKED, open_store  # noqa: PLC0415  # same

    may_unpack = host.sandbox in (AUTO, UNPACKED) and open_sandbox(UNPACKED).status().available
    sandboxes = [*(["docker"] if host.daemon is not None else []), *([UNPACKED] if may_unpack else [])]
    if not sandboxes:
        return
    path = host.lock_path or host.matrix.lock_path
    entries: Mapping[str, LockEntry] = load_lock(path) if path.exists() else {}
    with ExitStack() as stack:
        stores = [stack.enter_context(open_store(name)) for name in sandboxes]
        for toolchain in host.matrix.toolchains:
            if not toolchain.environment and host.has_device_for(toolchain.platform):
                found = [_check_image(toolchain.name, entries.get(toolchain.name), path, store) for store in stores]
                yield next((one for one in found if one.verdict is CheckVerdict.OK), found[0])


def _check_image(toolchain: str, entry: LockEntry | None, lock: Path, store: ImageStore) -> CheckResult:
    from kernel_matrix.images.resolve import ImagePresence, image_status, next_step  # noqa: PLC0415  # see check

    subject, advice = f"image {toolchain}", next_step(entry, toolchain)
    if entry is None:
        return warn(subject, f"not pinned: no entry in {lock}, so its cells do not run here", advice)
    status = image_status(entry, store)
    if status.presence is ImagePresence.PRESENT:
        return ok(subject, f"{entry.reference} ({entry.state.value}) is in {store.place}")
    if status.presence is ImagePresence.DIFFERENT:
        return fail(subject, f"{entry.reference}: {status.text}", advice)
    return warn(subject, f"{entry.reference} is not here, so its cells do not run", advice)
