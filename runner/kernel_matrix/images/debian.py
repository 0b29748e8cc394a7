"""Make a Debian base image with debootstrap, from the mirror that apt uses on this host."""

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
    """Check that a base can be made on this host.

    Raises:
        ImageError: debootstrap is not installed, or the user is not root.
    """
    missing = [name for name in ("debootstrap", "unshare", "tar") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        reason = f"{', '.join(missing)} is not installed" if missing else "debootstrap needs root"
        raise ImageError(
            f"A Debian base cannot be made here: {reason}.",
            next_step="Install debootstrap and run this as root; or run cells without images: --sandbox process.",
        )


def host_mirror(suite: str) -> str | None:
    """Return ``$KERNEL_MATRIX_DEBIAN_MIRROR``, else apt's mirror for ``suite``, else ``None``."""
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
    """Make the base and return it as a tar file under ``scratch``; ``cache`` keeps the packages for later builds.

    Raises:
        ImageError: debootstrap failed; the message has the end of its log.
    """
    root = scratch / "root"
    cache.mkdir(parents=True, exist_ok=True)
    mirror = host_mirror(debian.suite)
    # Mounts that debootstrap makes disappear with its mount namespace, even if it is killed.
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
