"""Remove old nights: the folders of this matrix's nights alone, and only what a night itself writes."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from stat import S_ISDIR
from typing import Final

from kernel_matrix.errors import StoreError, UsageError
from kernel_matrix.nightly.baselines import names, read_baseline, verified_tables
from kernel_matrix.nightly.paths import NightPaths, baselines_folder

_NIGHT: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:\.([0-9]{1,9}))?")
_HALF_REMOVED: Final = re.compile(rf"\.{_NIGHT.pattern}\.[0-9a-f]{{8}}\.old")
_WRITTEN: Final = frozenset({"records", "traces", "runs", "tables", "report.html", "fleet.json", "fleet.lock"})
"""What a night has in its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldNights:
    """The nights beyond those that are kept."""

    removable: Sequence[Path] = ()
    """Oldest first."""
    spared: Sequence[str] = ()
    """Nights that stay all the same, each in a sentence with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedNights:
    """The nights that were removed, and those that were not."""

    names: Sequence[str] = ()
    spared: Sequence[str] = ()
    """As in :class:`OldNights`."""
    error: str = ""
    """Why one could not be removed; it and all later ones stay."""


@dataclass(frozen=True, slots=True)
class _Need:
    """Folders or files that must stay, and the reason."""

    reason: str
    places: Sequence[Path]

    def concerns(self, night: Path) -> bool:
        """Return whether one of them is in the folder ``night``, or around it."""
        return any(place.is_relative_to(night) or night.is_relative_to(place) for place in self.places)


def check_keep(keep: int | None) -> None:
    """Check the number of nights to keep.

    Raises:
        UsageError: It is below 1.
    """
    if keep is not None and keep < 1:
        raise UsageError(f"--keep {keep}: at least the last night is kept", next_step="e.g. --keep 30")


def old_nights(places: NightPaths, keep: int, *, running: str = "") -> OldNights:
    """Find the nights that are older than the last ``keep`` nights.

    A night without a record is not one of those that are kept, so that a month of failures removes no results.

    Args:
        places: The nights of one matrix.
        keep: How many nights with records stay; 0 where one is yet to come.
        running: The night that is not over; it and all later ones stay.

    Raises:
        StoreError: The folders cannot be read.
    """
    try:
        found = sorted(_nights(places), key=_age)
        with_records = [night for night in found if any((night / "records").glob("*.json"))]
        if len(with_records) <= keep:
            return OldNights()
        stay = [*with_records[len(with_records) - keep :], *([places.nights / running] if running else [])]
        oldest = min(map(_age, stay), default=None)
        old = [night for night in found if oldest is None or _age(night) < oldest]
        needs = _needs(places) if old else []
        reasons = {night: _why_spared(night, needs) for night in old}
    except OSError as error:
        raise StoreError(f"{error.filename} cannot be read: {error.strerror}") from None
    return OldNights(
        removable=tuple(night for night, reason in reasons.items() if not reason),
        spared=tuple(f"night {night.name} is kept: {reason}" for night, reason in reasons.items() if reason),
    )


def remove_old_nights(places: NightPaths, keep: int, *, running: str) -> RemovedNights:
    """Remove what :func:`old_nights` finds; call it only while the lock on nights is held."""
    removed: list[str] = []
    spared: Sequence[str] = ()
    try:
        for place in _half_removed(places):
            shutil.rmtree(place)
        found = old_nights(places, keep, running=running)
        spared = found.spared
        for night in found.removable:
            # Renamed first: a removal that is killed leaves no half night among the others.
            aside = night.with_name(f".{night.name}.{secrets.token_hex(4)}.old")
            night.rename(aside)
            removed.append(night.name)
            shutil.rmtree(aside)
    except OSError as error:
        return RemovedNights(names=tuple(removed), spared=spared, error=f"--keep: {error.filename}: {error.strerror}")
    except StoreError as error:
        return RemovedNights(error=f"--keep: {error.what}")
    return RemovedNights(names=tuple(removed), spared=spared)


def _nights(places: NightPaths) -> Iterator[Path]:
    """Yield the folders that have the name of a night; links to folders are none."""
    for place in _folders(places):
        found = _NIGHT.fullmatch(place.name)
        if found and _is_date(found[1]):
            yield place


def _half_removed(places: NightPaths) -> list[Path]:
    return [place for place in _folders(places) if _HALF_REMOVED.fullmatch(place.name)]


def _folders(places: NightPaths) -> Iterator[Path]:
    if places.nights.is_dir():
        yield from (place for place in places.nights.iterdir() if S_ISDIR(place.lstat().st_mode))


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _age(night: Path) -> tuple[str, int]:
    """Return a key that is smaller for older nights; ``.10`` came after ``.9``."""
    day, _, number = night.name.partition(".")
    return day, int(number or 1)


def _why_spared(night: Path, needs: Sequence[_Need]) -> str:
    others = sorted({place.name for place in night.iterdir()} - _WRITTEN)
    if others:
        return f"it holds what no night writes: {', '.join(map(repr, others[:3]))}"
    if night.is_mount():
        return "it is a file system of its own"
    inside = night.resolve()
    return next((need.reason for need in needs if need.concerns(inside)), "")


def _needs(places: NightPaths) -> list[_Need]:
    """Return what baselines need: one that is whole needs nothing, since it is a copy."""
    found = []
    for name in names(places.results):
        folder = baselines_folder(places.results) / name
        files = tuple(file.resolve() for file in (folder, *folder.iterdir()))
        found.append(_Need(f"files of baseline {name} are links into it", files))
        try:
            source = Path(read_baseline(places.results, name).made_from)
        except (StoreError, UsageError):
            source = places.nights.resolve()  # perhaps: its description cannot be read
        try:
            verified_tables(places.results, name)
        except (StoreError, UsageError):
            found.append(_Need(f"baseline {name} is damaged, and may have to be made from it again", (source,)))
    return found
