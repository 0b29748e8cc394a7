"""Pull images by digest, resolve tags, and adopt images that a daemon already has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernel_matrix.errors import ImageError
from kernel_matrix.images import LockEntry, LockState, PullError
from kernel_matrix.images.image_reference import ImageReference
from kernel_matrix.images.image_store import DaemonStore, ImageStore, Say, StoredImage, machine_of
from kernel_matrix.images.lock_diff import differences
from kernel_matrix.images.packages import read_packages
from kernel_matrix.images.resolve import ImagePresence, image_status, next_step

_UNKNOWN = ("manifest unknown", "not found", "name unknown")


@dataclass(frozen=True, slots=True)
class PulledImage:
    """A pulled image and its updated lock entry."""

    entry: LockEntry
    held: StoredImage


def pull_image(entry: LockEntry, store: ImageStore, say: Say) -> PulledImage:
    """Pull ``entry`` by its digest into ``store``, which confirms a declared digest.

    Raises:
        ImageError: the entry is a local image, or the registry lacks the digest or does not answer.
    """
    if entry.state is LockState.LOCAL:
        raise ImageError(
            f"{entry.toolchain} is a local image ({entry.reference}); no registry has it.",
            next_step=f"{next_step(entry, entry.toolchain)} Without Docker here, `docker save` it there, and "
            f"`kernel-matrix images pull {entry.toolchain} --archive FILE`.",
        )
    try:
        store.pull(entry, say)
    except PullError as error:
        raise _pull_error(entry, str(error)) from error
    status = image_status(entry, store)
    if status.held is None or status.presence is not ImagePresence.PRESENT:
        raise ImageError(
            f"{entry.reference} was pulled, yet {status.text}.",
            next_step=f"Find out why, then `kernel-matrix images lock {entry.toolchain} --relock`.",
        )
    seen = store.config_digest(status.held)
    confirmed = replace(entry, state=LockState.LOCKED, config_digest=entry.config_digest or seen)
    return PulledImage(confirmed, status.held)


def _pull_error(entry: LockEntry, reason: str) -> ImageError:
    unknown = any(word in reason.lower() for word in _UNKNOWN)
    verdict = "the registry does not have it" if unknown else "the registry could not be asked"
    digest = f"The declared digest (found in {entry.source})" if entry.state is LockState.DECLARED else "The digest"
    return ImageError(
        f"{digest} of {entry.toolchain}, {entry.reference}, was not pulled: {verdict}: {reason}.",
        next_step=f"`kernel-matrix images lock {entry.toolchain} --relock` pins the image that its tag names now."
        if unknown
        else f"Check the network; without a registry: `kernel-matrix images lock {entry.toolchain} --adopt IMAGE`, or "
        f"`kernel-matrix images pull {entry.toolchain} --archive FILE`.",
    )


def lock_tag(toolchain: str, before: LockEntry | None, reference: str | None, store: ImageStore) -> LockEntry:
    """Resolve ``reference``, or else the tag of the present entry, in the registry and pin its digest.

    Raises:
        ImageError: there is no tag to resolve, or the registry does not answer.
    """
    named = reference or (before.reference if before and before.state is not LockState.LOCAL else None)
    if named is None:
        raise ImageError(
            f"Toolchain {toolchain!r} names no registry image that could be resolved.",
            next_step="Give one with --reference REPOSITORY:TAG, or `--adopt IMAGE` for one the daemon has.",
        )
    wanted = ImageReference.parse(named)
    try:
        digest = store.resolve_tag(wanted)
    except PullError as error:
        raise ImageError(
            f"The registry did not resolve {wanted.by_tag}: {error}.",
            next_step=f"Check the network and the tag; without a registry: `kernel-matrix images lock {toolchain} "
            "--adopt IMAGE`.",
        ) from error
    same = before is not None and before.digest == digest
    return LockEntry(
        toolchain=toolchain,
        reference=wanted.pinned(digest),
        state=LockState.LOCKED,
        digest=digest,
        config_digest=before.config_digest if before and same else None,
        source=before.source if before and same else f"resolved from {wanted.by_tag}",
    )


def adopt_image(toolchain: str, image: str, store: DaemonStore) -> LockEntry:
    """Pin an image that the daemon has under the name or id ``image`` as the local image of ``toolchain``.

    Raises:
        ImageError: the daemon does not have the image, or it has no working ``python3``.
    """
    client, held = store.client, store.find(image)
    if held is None:
        raise ImageError(f"The daemon has no image {image!r} to adopt.", next_step="`docker images` lists what it has.")
    packages = read_packages(client, held.id)
    tag = held.id.partition(":")[2][:12]
    # A second tag protects the image from pruning if its first tag moves to another image.
    client.images.get(held.id).tag(f"kernel-matrix/{toolchain}", tag=tag)
    return LockEntry(
        toolchain=toolchain,
        reference=f"kernel-matrix/{toolchain}:{tag}",
        state=LockState.LOCAL,
        digest=held.id if store.containerd else None,
        config_digest=store.config_digest(held),
        built_on=machine_of(client),
        packages=packages,
        source=f"adopted from {image}",
    )


def accept_change(before: LockEntry | None, after: LockEntry, *, relock: bool) -> tuple[str, ...]:
    """Return the differences if ``after`` replaces ``before``; none if the image is the same.

    A declared digest or an image of another machine may be replaced; other entries only with ``relock``.

    Raises:
        ImageError: ``before`` may not be replaced; the message lists the differences.
    """
    found = differences(before, after) if before else ()
    if before and found and not relock and _needs_relock(before, after):
        lines = "\n".join(f"    {line}" for line in found)
        raise ImageError(
            f"The image of {after.toolchain} differs from the lock:\n{lines}",
            next_step="Repeat the command with --relock to accept it; records of the two images are not comparable.",
        )
    return found


def _needs_relock(before: LockEntry, after: LockEntry) -> bool:
    foreign = before.state is LockState.LOCAL and before.built_on != after.built_on
    return before.state is not LockState.DECLARED and not foreign
