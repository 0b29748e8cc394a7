"""Text made of columns."""

from __future__ import annotations

import polars as pl


def sentence(template: str, *parts: pl.Expr | str) -> pl.Expr:
    """``template`` with each ``{}`` replaced by a part, a row at a time; null where a part is null.

    What :func:`polars.format` says it does. That one panics now and then on frames of several chunks since polars
    1.35 (pola-rs/polars issues 25339 and 25525), and a panic is no exception that a caller could answer.

    :param parts: expressions, or names of columns.
    :raises ValueError: ``template`` has not as many ``{}`` as there are parts.
    """
    pieces = template.split("{}")
    if len(pieces) != len(parts) + 1:
        raise ValueError(f"{template!r} has {len(pieces) - 1} places for {len(parts)} parts")
    between = [each for part, piece in zip(parts, pieces[1:], strict=True) for each in (part, pl.lit(piece))]
    return pl.concat_str(pl.lit(pieces[0]), *between)
