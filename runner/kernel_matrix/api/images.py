"""Pinned images: what the lock says, and what the Docker daemon or this user's cache of unpacked images has of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.environments.unpacked_images import UnpackedImage
from kernel_matrix.errors import ImageError, UsageError
from kernel_matrix.hosts.survey import AUTO, check_sandbox
from kernel_matrix.images import LockEntry
from kernel_matrix.images.container_registry import accept_change, adopt_image, lock_tag, pull_image
from kernel_matrix.images.image_build import ImageBuildResult, build_image, ensure_local
from kernel_matrix.images.image_store import DaemonStore, ImageStore, Say, connect
from kernel_matrix.images.lock import load_lock, save_lock
from kernel_matrix.images.lock_check import LockCheck, audit
from kernel_matrix.images.resolve import ImagePresence
from kernel_matrix.images.stores import UNPACKED, open_store
from kernel_matrix.images.unpacked_store import UnpackedStore
from kernel_matrix.matrix import Matrix
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.sandboxes import open_sandbox

__all__ = [
    "ImageBuildResult",
    "ListedImage",
    "LockCheck",
    "LockEntry",
    "PulledLock",
    "UnpackedImage",
    "build_image",
    "build_missing_images",
    "list_images",
    "lock_images",
    "pull_images",
    "unpack_image",
    "verify_images",
]


@dataclass(frozen=True, slots=True)
class ListedImage:
    """An entry of the lock, and whether its image is here."""

    entry: LockEntry
    check: LockCheck | None
    """``None`` where the daemon could not be asked."""


def list_images(
    images: str | Path = "images", lock: str | Path | None = None, *, sandbox: str = AUTO
) -> tuple[list[ListedImage], str]:
    """List the lock's entries.

    Args:
        images: The folder with one folder per toolchain.
        lock: The lock; ``<images>/images.lock`` by default.
        sandbox: The sandbox whose images to look at; by default Docker's if a daemon answers, else unpacked ones.

    Returns:
        The entries, and why the daemon was not asked; empty where it was.

    Raises:
        ImageError: The lock is damaged.

    Examples:
        >>> import kernel_matrix
        >>> found, why_not_asked = kernel_matrix.list_images("images")
        >>> "cpu" in {status.entry.toolchain for status in found}
        True
    """
    entries = load_lock(lock_path(images, lock))
    try:
        with _store(sandbox) as store:
            checks = audit(entries.values(), Path(images), store)
    except ImageError as error:
        return [ListedImage(entry, None) for entry in entries.values()], str(error)
    by_name = {check.entry.toolchain: check for check in checks}
    return [ListedImage(entry, by_name.get(name)) for name, entry in entries.items()], ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledLock:
    """An image that was pulled."""

    name: str
    before: LockEntry
    entry: LockEntry
    size_bytes: int


def pull_images(names: Sequence[str], lock: str | Path, *, say: Say, sandbox: str = AUTO) -> Iterator[PulledLock]:
    """Pull images by digest; a digest that was only declared is confirmed by that.

    Args:
        names: Toolchains.
        lock: The lock file.
        say: Called with each line of progress.
        sandbox: The sandbox that shall run them; by default Docker if a daemon answers, else they are unpacked.

    Raises:
        UsageError: The lock has no such toolchain.
        ImageError: An image cannot be pulled, or is another.
    """
    lock = Path(lock)
    wanted = _entries(names, lock)
    with _store(sandbox) as store:
        for name, entry in wanted.items():
            pulled = pull_image(entry, store, say)
            if pulled.entry != entry:
                save_lock(lock, load_lock(lock) | {name: pulled.entry})
            yield PulledLock(name=name, before=entry, entry=pulled.entry, size_bytes=pulled.held.size_bytes)


def unpack_image(name: str, archive: str | Path, lock: str | Path, *, say: Say) -> UnpackedImage:
    """Unpack the image that the lock pins from a file that ``docker save`` wrote.

    Raises:
        UsageError: The lock has no such toolchain.
        ImageError: The file does not have that image, or it cannot be unpacked.
    """
    (entry,) = _entries([name], Path(lock)).values()
    return UnpackedStore().load(entry, Path(archive), say)


def lock_images(
    names: Sequence[str],
    lock: str | Path,
    *,
    reference: str | None = None,
    adopt: str | None = None,
    relock: bool = False,
    sandbox: str = AUTO,
) -> Iterator[tuple[LockEntry, Sequence[str]]]:
    """Pin what tags mean in their registry, or an image that the daemon here has.

    Args:
        names: Toolchains.
        lock: The lock file.
        reference: The tag to pin, for one toolchain; by default the locked one's.
        adopt: The daemon's image to pin instead, for one toolchain.
        relock: Let another image take the place of the locked one.
        sandbox: Docker lets its daemon ask the registry, else this program asks it.

    Returns:
        Each entry as it is locked, with what differs from the one before.

    Raises:
        UsageError: ``reference`` or ``adopt`` is given for several toolchains, or both are.
        ImageError: A tag cannot be resolved, or would change the lock without ``relock``.
    """
    if ((reference or adopt) and len(names) > 1) or (reference and adopt):
        raise UsageError(
            "--reference and --adopt each pin one image for one toolchain.",
            next_step="Name one toolchain and one of them.",
        )
    lock = Path(lock)
    for name in names:
        before = load_lock(lock).get(name)
        if adopt:
            with connect() as client:
                after = adopt_image(name, adopt, DaemonStore.of(client))
        else:
            with _store(sandbox) as store:
                after = lock_tag(name, before, reference, store)
        differences = accept_change(before, after, relock=relock)
        save_lock(lock, load_lock(lock) | {name: after})
        yield after, differences


def verify_images(
    names: Sequence[str] = (), images: str | Path = "images", lock: str | Path | None = None, *, sandbox: str = AUTO
) -> tuple[LockCheck, ...]:
    """Check that what is here is what the lock says.

    Args:
        names: Toolchains; all of the lock by default.
        images: The folder with one folder per toolchain.
        lock: The lock; ``<images>/images.lock`` by default.
        sandbox: The sandbox whose images to check; by default Docker's if a daemon answers, else unpacked ones.

    Raises:
        UsageError: The lock has no such toolchain.
        ImageError: The daemon cannot be asked.
    """
    entries = _entries(names, lock_path(images, lock))
    with _store(sandbox) as store:
        return audit(entries.values(), Path(images), store)


def require_verified(checks: Sequence[LockCheck], lock: Path, *, all_here: bool) -> None:
    """Check that nothing was complained of.

    Args:
        checks: From :func:`verify_images`.
        lock: The lock file.
        all_here: Every image must be there; else one may be absent.

    Raises:
        ImageError: An image is not what the lock says.
    """
    wrong = [
        (check, why)
        for check in checks
        for why in (*check.complaints, *(["absent"] if check.presence is ImagePresence.ABSENT and all_here else []))
    ]
    if wrong:
        text = "\n".join(f"    {check.entry.toolchain}: {why}" for check, why in wrong)
        raise ImageError(f"The images are not what {lock} says:\n{text}", next_step=wrong[0][0].next_step)


def build_missing_images(
    matrix: Matrix, *, sandbox: str = AUTO, lock: str | Path | None = None, say: Say = lambda _: None
) -> None:
    """Build the images that are built on this machine and missing; where that is impossible, say so and go on."""
    if sandbox not in (AUTO, "docker") or not open_sandbox("docker").status().available:
        return
    images, lock_file = matrix.root / "images", Path(lock) if lock else matrix.lock_path
    for toolchain in matrix.toolchains:
        if toolchain.environment or get_platform(toolchain.platform).NEEDS_IMAGES:
            continue  # there is no image, or its base comes from a registry: `images pull`
        try:
            ensure_local(toolchain.name, images_dir=images, lock_path=lock_file, say=say)
        except ImageError as error:
            say(f"{toolchain.name}: {error}")


def lock_path(images: str | Path, lock: str | Path | None) -> Path:
    """Return the lock file: ``lock``, or the one in ``images``."""
    return Path(lock) if lock else Path(images) / "images.lock"


def _store(sandbox: str) -> AbstractContextManager[ImageStore]:
    """Open the images of a sandbox.

    Raises:
        UsageError: There is no such sandbox, or it runs no images.
    """
    check_sandbox(sandbox)
    if sandbox == AUTO:
        return open_store("docker" if open_sandbox("docker").status().available else UNPACKED)
    if not open_sandbox(sandbox).uses_images:
        raise UsageError(f"sandbox {sandbox} runs no images", next_step="choose docker or unpacked")
    return open_store(sandbox)


def _entries(names: Sequence[str], lock: Path) -> dict[str, LockEntry]:
    entries = load_lock(lock)
    if not entries and not lock.exists():
        next_step = "`kernel-matrix init --example gpu DIR` writes the one of this release; or name one with --lock"
        raise UsageError(f"There is no lock {lock}.", next_step=next_step)
    if unknown := [name for name in names if name not in entries]:
        raise UsageError(
            f"{lock} has no toolchain {unknown[0]!r}.", next_step=f"It has {', '.join(entries) or 'none at all'}."
        )
    return {name: entries[name] for name in names} if names else entries
