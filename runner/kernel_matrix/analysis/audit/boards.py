"""Checks of GPU names against the hardware.

A name typed by a person (``A100-80GB_modal``, ``h200``) is split into words. Words that occur in data sheets have to
match the board that was measured: its driver's name, or its data sheet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import listed, make_findings
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.platforms.data_sheets import BRANDS, DataSheet, all_sheets

_IGNORED: Final = frozenset(
    {*(brand.lower() for brand in BRANDS), "rtx", "generation", "edition", "server", "workstation", "q", "v", "ac"}
)
"""Words that stand before or after the names of many models, or that hosts are named with."""
_WORD: Final = re.compile(r"[a-z0-9]+")
_MEMORY: Final = re.compile(r"\d+gb|hbm\d?e?|gddr\d+x?|sxm\d?|pcie|nvl")
"""Words that distinguish boards of one model."""
_MODEL: Final = re.compile(r"[a-z]+\d+[a-z]*|\d{4}")


def words(name: str) -> frozenset[str]:
    """Split a name into lower-case words, without those that name no model."""
    return frozenset(_WORD.findall(name.lower())) - _IGNORED


def stands_for(name: str | None, hardware: str | None) -> bool | None:
    """Return True if a typed name can mean the board that the driver calls ``hardware``; None if this is unknown."""
    if name is None or hardware is None:
        return None
    separated = re.sub(r"(?i)(rtx|gtx)(?=\d)", r"\1 ", name)  # people write rtx4090 as one word
    claims = words(separated) & _known_words()
    if not any(_MODEL.fullmatch(word) and not _MEMORY.fullmatch(word) for word in claims):
        return None
    if _has_variants(hardware):
        claims = frozenset(word for word in claims if not _MEMORY.fullmatch(word))
    return claims <= _words_of_board(hardware)


def wrong_board(tables: Tables) -> pl.LazyFrame:
    """Find rows whose GPU name means another board than the measured one."""
    seen = _boards(tables.cells, "gpu")
    wrong = _where(seen, lambda gpu, board: stands_for(gpu, board) is False)
    meant = pl.col("gpu").map_elements(_meant, return_dtype=pl.String, skip_nulls=True)
    evidence = sentence("{} rows were measured on {}; the name means {}", "rows", "gpu_name", meant)
    return make_findings(wrong, evidence, count=pl.col("rows"))


def two_boards(tables: Tables) -> pl.LazyFrame:
    """Find GPU names with rows of several boards."""
    seen = _boards(_without_absent(tables), "gpu").lazy().sort("rows", "gpu_name", descending=[True, False])
    by_gpu = seen.group_by("gpu", maintain_order=True).agg(
        pl.len().alias("boards"),
        sentence("{} rows on {}", "rows", "gpu_name").implode().list.join(", ").alias("each"),
        pl.col("rows").sort(descending=True).slice(1).sum().alias("others"),
    )
    evidence = sentence("{} boards under one name: {}", "boards", "each")
    return make_findings(by_gpu.filter(pl.col("boards") > 1), evidence, count=pl.col("others"))


def one_board_two_names(tables: Tables) -> pl.LazyFrame:
    """Find devices, by UUID, with rows under several GPU names."""
    known = tables.cells.filter(pl.col("gpu_uuid").is_not_null())
    by_unit = known.group_by("gpu_uuid").agg(
        pl.col("gpu").n_unique().alias("names"), listed("gpu").alias("each"), pl.len().alias("rows")
    )
    evidence = sentence("{} has rows under {} names: {}", "gpu_uuid", "names", "each")
    return make_findings(by_unit.filter(pl.col("names") > 1), evidence, count=pl.col("rows"))


def host_of_another(tables: Tables) -> pl.LazyFrame:
    """Find hosts that are named after another board than the one in them."""
    seen = _boards(_without_absent(tables), "hostname")
    wrong = _where(seen, lambda host, board: stands_for(host, board) is False)
    evidence = sentence("host {} has {}: {} rows", "hostname", "gpu_name", "rows")
    return make_findings(wrong, evidence, count=pl.col("rows"))


def no_name(tables: Tables) -> pl.LazyFrame:
    """Find GPU names without a known board, and rows without hardware."""
    seen = tables.cells.group_by("gpu", "gpu_name").agg(pl.len().alias("rows")).collect(engine="streaming")
    unknown = _where(seen, lambda gpu, board: board is not None and stands_for(gpu, board) is None)
    unnamed = seen.lazy().filter(pl.col("gpu_name").is_null())
    no_model = sentence("the name matches no board with a data sheet; its {} rows are of {}", "rows", "gpu_name")
    no_board = sentence("{} rows do not name their hardware", "rows")
    parts = ((unknown, no_model), (unnamed, no_board))
    return pl.concat([make_findings(found, evidence, count=pl.col("rows")) for found, evidence in parts])


def _without_absent(tables: Tables) -> pl.LazyFrame:
    """Return the rows without those that were only compiled, for a board that may be absent.

    Such a row has no driver, and the pattern of the matrix in place of the board's name.
    """
    never_held = pl.col("session").is_null() & pl.col("exclusive").eq_missing("not_applicable")
    return tables.cells.filter(~(never_held & pl.col("driver").is_null()))


def _boards(cells: pl.LazyFrame, name: str) -> pl.DataFrame:
    """Count the rows of each pair of ``name`` and board."""
    known = cells.filter(pl.col(name).is_not_null() & pl.col("gpu_name").is_not_null())
    return known.group_by(name, "gpu_name").agg(pl.len().alias("rows")).collect(engine="streaming")


def _where(seen: pl.DataFrame, holds: Callable[[str, str | None], bool]) -> pl.LazyFrame:
    keep = [holds(name, board) for name, board, _rows in seen.iter_rows()]
    return seen.lazy().filter(pl.Series(keep, dtype=pl.Boolean))


@cache
def _known_words() -> frozenset[str]:
    return frozenset().union(*map(_words_of, all_sheets()))


@cache
def _words_of_board(hardware: str) -> frozenset[str]:
    own = words(hardware)
    sheets = (sheet for sheet in all_sheets() if hardware in sheet.product.names)
    return own.union(*map(_words_of, sheets))


@cache
def _has_variants(hardware: str) -> bool:
    """Return whether boards with different memory have this name."""
    sheets = [sheet.product for sheet in all_sheets() if hardware in sheet.product.names]
    return any(it.memory_gb is None or it.memory_kind is None for it in sheets)


def _words_of(sheet: DataSheet) -> frozenset[str]:
    p = sheet.product
    memory = f"{p.memory_gb}gb" if p.memory_gb else ""
    facts = (memory, (p.memory_kind or "").lower(), sheet.architecture.architecture.lower())
    return frozenset().union(*map(words, p.names), words(" ".join(facts)))


@cache
def boards_meant(name: str | None) -> tuple[DataSheet, ...]:
    """Return the sheets of the boards that a typed name may mean; none if it has no model's number."""
    return tuple(sheet for sheet in all_sheets() if any(stands_for(name, each) for each in sheet.product.names))


def _meant(name: str) -> str:
    """List the boards that a name may mean."""
    return " or ".join(sheet.name for sheet in boards_meant(name)) or "no board with a data sheet"
