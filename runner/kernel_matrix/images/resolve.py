"""Find the image of a lock entry in a store, or explain why it may not be run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kernel_matrix.errors import ImageError
from kernel_matrix.images import LockEntry, LockState, ResolvedImage
from kernel_matrix.images.image_reference import ImageReference
from kernel_matrix.images.image_store import ImageStore, StoredImage

UNPINNED = "unpinned"


class ImagePresence(str, Enum):
    """Result of comparing the images of a store with a lock entry."""

    PRESENT = "present"
    """The store has exactly this image."""
    ABSENT = "absent"
    """The store has no image under this digest or name."""
    DIFFERENT = "different"
    """The store has another image under this name."""


@dataclass(frozen=True, slots=True)
class ImageStatus:
    """One entry, compared with one store."""

    presence: ImagePresence
    held: StoredImage | None
    """Image in the store, right or wrong; ``None`` if absent."""
    text: str = ""
    """Difference to the lock."""


def resolve_image(
    entry: LockEntry | None, toolchain: str, *, store: ImageStore, allow_unpinned: bool = False
) -> ResolvedImage:
    """Return the image to run for ``toolchain``, which is the image of its lock entry.

    Args:
        entry: the lock entry, if there is one.
        toolchain: name of the toolchain.
        store: where to look for it.
        allow_unpinned: without the pinned image, accept the image that the store has under the entry's name
            (``kernel-matrix/<toolchain>`` without an entry), with state ``unpinned``.

    Raises:
        ImageError: the toolchain is not in the lock, or the store does not have exactly that image.
    """
    status = image_status(entry, store) if entry else None
    if entry and status and status.held and status.presence is ImagePresence.PRESENT:
        return _make_resolved(toolchain, entry.reference, entry.state.value, status.held, store)
    name = ImageReference.parse(entry.reference).by_tag if entry else f"kernel-matrix/{toolchain}"
    held = store.find(name) if allow_unpinned else None
    if held:
        return _make_resolved(toolchain, name, UNPINNED, held, store)
    raise _resolve_error(entry, status, toolchain)


def image_status(entry: LockEntry, store: ImageStore) -> ImageStatus:
    """Compare ``entry`` with the images in ``store``."""
    local = entry.state is LockState.LOCAL
    pin = store.pin(entry) if local else ImageReference.parse(entry.reference).by_digest
    held = store.find(pin) if pin else None
    if held is None:
        return _find_by_name(entry, store, pin)
    wanted = store.id_of(entry)
    if wanted not in (None, held.id):
        return ImageStatus(ImagePresence.DIFFERENT, held, f"its config digest is {held.id}, the lock says {wanted}")
    return ImageStatus(ImagePresence.PRESENT, held)


def _find_by_name(entry: LockEntry, store: ImageStore, pin: str | None) -> ImageStatus:
    name = ImageReference.parse(entry.reference).by_tag
    named = store.find(name)
    if named is None:
        return ImageStatus(ImagePresence.ABSENT, None, f"{store.place} does not have it")
    if pin is None:
        return ImageStatus(
            ImagePresence.DIFFERENT, named, f"{name} was pinned on a daemon with another kind of image store"
        )
    return ImageStatus(ImagePresence.DIFFERENT, named, f"{name} of {store.place} is {named.id}, the lock says {pin}")


def next_step(entry: LockEntry | None, toolchain: str) -> str:
    """Return the command that repairs a missing or different image."""
    if entry is None:
        return f"`kernel-matrix images build {toolchain}`, or `kernel-matrix images lock {toolchain}`."
    if entry.state is not LockState.LOCAL:
        return f"`kernel-matrix images pull {toolchain}`."
    if entry.inputs_sha256:
        return f"`kernel-matrix images build {toolchain}`."
    return f"It was adopted on another daemon: `kernel-matrix images lock {toolchain} --adopt IMAGE --relock`."


def _resolve_error(entry: LockEntry | None, status: ImageStatus | None, toolchain: str) -> ImageError:
    if entry is None or status is None:
        return ImageError(
            f"Toolchain {toolchain!r} has no entry in the image lock.", next_step=next_step(None, toolchain)
        )
    return ImageError(
        f"Image of toolchain {toolchain!r} ({entry.reference}): {status.text}.", next_step=next_step(entry, toolchain)
    )


def _make_resolved(toolchain: str, reference: str, state: str, held: StoredImage, store: ImageStore) -> ResolvedImage:
    repository = ImageReference.parse(reference).repository
    mine = [digest for digest in held.repo_digests if digest.startswith(f"{repository}@")]
    wanted = ImageReference.parse(reference).by_digest
    return ResolvedImage(
        toolchain=toolchain,
        reference=reference,
        id=held.id,
        repo_digest=wanted if wanted in mine else next(iter(mine), None),
        store=store.name,
        state=state,
    )
