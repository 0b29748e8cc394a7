"""A Debian base without any registry: debootstrap, from the mirror this host's own apt uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kernel_matrix.errors import ImageError
from kernel_matrix.images.recipe import DebianBase

MIRROR_VARIABLE = "KERNEL_MATRIX_DEBIAN_MIRROR"


def check_debootstrap() -> None:
    """See that a base can be made here.

    :raises ImageError: debootstrap is not installed or this user is not root.
    """
    wanting = [name for name in ("debootstrap", "unshare", "tar") if shutil.which(name) is None]
    if wanting or os.geteuid() != 0:
        why = f"{', '.join(wanting)} is not installed" if wanting else "debootstrap needs root"
        raise ImageError(
            f"A Debian base cannot be made here: {why}.",
            next_step="Install debootstrap and run this as root; or run cells without images: --engine process.",
        )


def host_mirror(suite: str) -> str | None:
    """The mirror for ``suite``: ``$KERNEL_MATRIX_DEBIAN_MIRROR``, else what apt is configured with, else null."""
    if named := os.environ.get(MIRROR_VARIABLE):
        return named
    if shutil.which("apt-get") is None:
        return None
    argv = ("apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
    listed = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        release, component, uri = line.split(" ", 2)
        if (release, component) == (suite, "main"):
            return uri
    return None


def bootstrap(debian: DebianBase, scratch: Path, cache: Path) -> Path:
    """Make the base and return it as a tar file under ``scratch``.

    :param cache: where downloaded packages are kept for the next time.
    :raises ImageError: debootstrap failed; the message ends with the end of its log.
    """
    root = scratch / "root"
    cache.mkdir(parents=True, exist_ok=True)
    mirror = host_mirror(debian.suite)
    # A mount namespace of its own: whatever debootstrap mounts in the root is gone with it, however it ends.
    _run(
        (
            *("unshare", "--mount", "debootstrap", f"--variant={debian.variant}", f"--cache-dir={cache}"),
            *([f"--include={','.join(debian.include)}"] if debian.include else []),
            *(debian.suite, str(root), *([mirror] if mirror else [])),
        ),
        scratch / "debootstrap.log",
    )
    archive = scratch / "base.tar"
    _run(("tar", "-C", str(root), "--numeric-owner", "--xattrs", "-cf", str(archive), "."), scratch / "tar.log")
    shutil.rmtree(root)
    return archive


def _run(argv: Sequence[str], log: Path) -> None:
    with log.open("wb") as file:
        code = subprocess.run(
            argv, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
        ).returncode
    if code:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        raise ImageError(
            f"{argv[0]} failed with exit code {code}:\n" + "\n".join(f"    {line}" for line in tail),
            next_step=f"Check the network, the disk's space and the Debian mirror (${MIRROR_VARIABLE} names another).",
        )
