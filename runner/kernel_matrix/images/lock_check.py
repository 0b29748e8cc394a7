"""Compare the entries of a lock with the images in a store and with the folders they were built from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.images.image_reference import ImageReference
from kernel_matrix.images.image_store import ImageStore
from kernel_matrix.images.recipe import read_recipe
from kernel_matrix.images.resolve import ImagePresence, image_status, next_step


@dataclass(frozen=True, slots=True, kw_only=True)
class LockCheck:
    """One entry after comparison."""

    entry: LockEntry
    presence: ImagePresence
    size_bytes: int | None
    """Size in the store; ``None`` if the image is absent."""
    complaints: tuple[str, ...]
    """Differences to the lock; an absent image is not one."""
    next_step: str = ""


def audit(entries: Iterable[LockEntry], images_dir: Path, store: ImageStore) -> tuple[LockCheck, ...]:
    """Compare ``entries`` with the images of ``store`` and with the folders under ``images_dir``."""
    findings = []
    for entry in entries:
        status = image_status(entry, store)
        wrong = (status.text,) if status.presence is ImagePresence.DIFFERENT else ()
        changed = store.complaints(status.held) if status.held else ()
        complaints = (*wrong, *changed, *folder_complaints(entry, images_dir))
        fine = status.presence is ImagePresence.PRESENT and not complaints
        findings.append(
            LockCheck(
                entry=entry,
                presence=status.presence,
                size_bytes=status.held.size_bytes if status.held else None,
                complaints=complaints,
                next_step="" if fine else next_step(entry, entry.toolchain),
            )
        )
    return tuple(findings)


def folder_complaints(entry: LockEntry, images_dir: Path) -> tuple[str, ...]:
    """Return the differences between ``entry`` and its folder; none if there is no folder."""
    folder = images_dir / entry.toolchain
    if not folder.is_dir():
        return ()
    recipe = read_recipe(images_dir, entry.toolchain)
    if entry.state is LockState.LOCAL:
        changed = entry.inputs_sha256 and entry.inputs_sha256 != recipe.inputs_sha256
        return (f"{folder} was changed after the image was built",) if changed else ()
    if ImageReference.parse(recipe.base).digest != entry.digest:
        return (f"the Dockerfile's base is {recipe.base}, the lock says {entry.reference}",)
    return ()
