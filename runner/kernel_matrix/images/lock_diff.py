"""Describe the differences between two lock entries of one toolchain."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.images import LockEntry


def differences(before: LockEntry, after: LockEntry) -> tuple[str, ...]:
    """Return one line per difference; none if both entries pin the same image."""
    if _same_image(before, after):
        return ()
    known = (*_settings(before, after), *_packages(before, after))
    unexplained = ("inputs, base and packages are the same: files that belong to no package differ",)
    return (*_digests(before, after), *(known or unexplained))


def _same_image(before: LockEntry, after: LockEntry) -> bool:
    """Compare config digests, which cover all content, or manifest digests if a config digest is unknown."""
    if before.config_digest and after.config_digest:
        return before.config_digest == after.config_digest
    return before.digest is not None and before.digest == after.digest


def _digests(before: LockEntry, after: LockEntry) -> Iterator[str]:
    for name in ("digest", "config_digest"):
        if getattr(before, name) != getattr(after, name):
            yield f"{name}: {getattr(before, name) or 'none'} → {getattr(after, name) or 'none'}"


def _settings(before: LockEntry, after: LockEntry) -> Iterator[str]:
    names = {"inputs_sha256": "Dockerfile, requirements or image.toml", "source": "made from", "platform": "platform"}
    for name, text in names.items():
        if getattr(before, name) != getattr(after, name):
            yield f"{text}: {getattr(before, name) or 'unknown'} → {getattr(after, name) or 'unknown'}"


def _packages(before: LockEntry, after: LockEntry) -> Iterator[str]:
    for name in sorted(before.packages.keys() | after.packages.keys()):
        old, new = before.packages.get(name), after.packages.get(name)
        if old != new:
            yield f"{name}: {old or 'absent'} → {new or 'absent'}"
