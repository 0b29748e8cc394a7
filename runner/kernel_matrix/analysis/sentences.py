"""Text composed from columns and lists."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def sentence(template: str, *parts: pl.Expr | str) -> pl.Expr:
    """Replace each ``{}`` of ``template`` by a part, row by row. A row that lacks a part has no sentence.

    This is documented behaviour of :func:`polars.format`, which since polars 1.35 sometimes panics on frames of several
    chunks (pola-rs/polars issues 25339 and 25525). Parts are expressions or names of columns.

    Raises:
        ValueError: ``template`` has another number of ``{}`` than there are parts.
    """
    pieces = template.split("{}")
    if len(pieces) != len(parts) + 1:
        raise ValueError(f"{template!r} has {len(pieces) - 1} places for {len(parts)} parts")
    between = [each for part, piece in zip(parts, pieces[1:], strict=True) for each in (part, pl.lit(piece))]
    return pl.concat_str(pl.lit(pieces[0]), *between)


def rough_percent(share: float) -> str:
    """Write a share with two digits, and never with an exponent: ``0.0041`` as ``0.41 %``, ``1.32`` as ``130 %``."""
    return f"{float(f'{100 * share:.2g}'):,.10g} %"


def listed(words: Sequence[object], most: int) -> str:
    """Join the first ``most`` of ``words``: ``a, b and 3 more``."""
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(map(str, words[:most])) + more
