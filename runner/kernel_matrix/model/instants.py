"""Parser for the time stamps of records."""

from __future__ import annotations

from datetime import datetime, timezone


def utc_now() -> str:
    """Return the time, UTC, RFC 3339."""
    return instant_text(datetime.now(timezone.utc))


def instant_text(instant: datetime) -> str:
    """Return a UTC instant in the form of :func:`utc_now`; these are in order as texts too."""
    return instant.isoformat(timespec="milliseconds")


def parse_instant(text: str) -> datetime:
    """Read a UTC instant that ends in ``Z`` or ``+00:00``.

    Raises:
        ValueError: The text is no such instant.
    """
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not read ``Z``
