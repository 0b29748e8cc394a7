"""GPU names against the hardware they stand for.

A name that a person typed (``A100-80GB_modal``, ``h200``) is cut into words. Those words that data sheets know have to
be words of the board that was there: of the name its driver gave, or of that board's sheet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import listed, told
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.platforms.data_sheets import DataSheet, all_sheets

_VENDORS: Final = frozenset({"nvidia", "tesla", "geforce", "quadro", "rtx", "generation"})
_WORD: Final = re.compile(r"[a-z0-9]+")
_MEMORY: Final = re.compile(r"\d+gb|hbm\d?e?|gddr\d+x?|sxm\d?|pcie|nvl")
"""Words that say which of several boards of one model it is."""
_MODEL: Final = re.compile(r"[a-z]+\d+[a-z]*|\d{4}")


def words(name: str) -> frozenset[str]:
    """Its words in lower case, less the vendor's own."""
    return frozenset(_WORD.findall(name.lower())) - _VENDORS


def stands_for(name: str | None, hardware: str | None) -> bool | None:
    """Whether a typed name can mean the board whose driver calls it ``hardware``; null where nobody can tell."""
    if name is None or hardware is None:
        return None
    claims = words(_apart(name)) & _known_words()
    if not any(map(_is_model, claims)):
        return None
    return claims <= _words_of_board(hardware)


def wrong_board(tables: Tables) -> pl.LazyFrame:
    """Rows whose GPU name means another board than the one that was there."""
    seen = _boards(tables, "gpu")
    wrong = _where(seen, lambda gpu, board: stands_for(gpu, board) is False)
    meant = pl.col("gpu").map_elements(_meant, return_dtype=pl.String, skip_nulls=True)
    evidence = sentence("{} rows were measured on {}; the name means {}", "rows", "gpu_name", meant)
    return told(wrong, evidence, count=pl.col("rows"))


def two_boards(tables: Tables) -> pl.LazyFrame:
    """One GPU name under which rows of several boards lie."""
    seen = _boards(tables, "gpu").lazy().sort("rows", "gpu_name", descending=[True, False])
    by_gpu = seen.group_by("gpu", maintain_order=True).agg(
        pl.len().alias("boards"),
        sentence("{} rows on {}", "rows", "gpu_name").implode().list.join(", ").alias("each"),
        pl.col("rows").sort(descending=True).slice(1).sum().alias("others"),
    )
    evidence = sentence("{} boards in one name: {}", "boards", "each")
    return told(by_gpu.filter(pl.col("boards") > 1), evidence, count=pl.col("others"))


def one_board_two_names(tables: Tables) -> pl.LazyFrame:
    """One device, by its UUID, whose rows lie under several GPU names."""
    known = tables.cells.filter(pl.col("gpu_uuid").is_not_null())
    by_unit = known.group_by("gpu_uuid").agg(
        pl.col("gpu").n_unique().alias("names"), listed("gpu").alias("each"), pl.len().alias("rows")
    )
    evidence = sentence("{} has rows under {} names: {}", "gpu_uuid", "names", "each")
    return told(by_unit.filter(pl.col("names") > 1), evidence, count=pl.col("rows"))


def host_of_another(tables: Tables) -> pl.LazyFrame:
    """Hosts that are called after another board than the one in them."""
    seen = _boards(tables, "hostname")
    wrong = _where(seen, lambda host, board: stands_for(host, board) is False)
    evidence = sentence("host {} has {}: {} rows", "hostname", "gpu_name", "rows")
    return told(wrong, evidence, count=pl.col("rows"))


def no_name(tables: Tables) -> pl.LazyFrame:
    """GPU names that say nothing of a board, and rows that do not say what they ran on."""
    seen = tables.cells.group_by("gpu", "gpu_name").agg(pl.len().alias("rows")).collect(engine="streaming")
    told_not = _where(seen, lambda gpu, board: board is not None and stands_for(gpu, board) is None)
    silent = seen.lazy().filter(pl.col("gpu_name").is_null())
    no_model = sentence("the name says nothing of a board with a data sheet; its {} rows are of {}", "rows", "gpu_name")
    no_board = sentence("{} rows do not say which hardware they ran on", "rows")
    return pl.concat([told(told_not, no_model, count=pl.col("rows")), told(silent, no_board, count=pl.col("rows"))])


def _boards(tables: Tables, name: str) -> pl.DataFrame:
    """How many rows there are of each ``name`` and board; a handful of pairs, whatever the number of rows."""
    known = tables.cells.filter(pl.col(name).is_not_null() & pl.col("gpu_name").is_not_null())
    return known.group_by(name, "gpu_name").agg(pl.len().alias("rows")).collect(engine="streaming")


def _where(seen: pl.DataFrame, holds: Callable[[str, str | None], bool]) -> pl.LazyFrame:
    keep = [holds(name, board) for name, board, _rows in seen.iter_rows()]
    return seen.lazy().filter(pl.Series(keep, dtype=pl.Boolean))


def _apart(name: str) -> str:
    """Words that people write as one: ``rtx4090``."""
    return re.sub(r"(?i)(rtx|gtx)(?=\d)", r"\1 ", name)


def _is_model(word: str) -> bool:
    return _MODEL.fullmatch(word) is not None and _MEMORY.fullmatch(word) is None


@cache
def _known_words() -> frozenset[str]:
    return frozenset().union(*map(_words_of, all_sheets()))


@cache
def _words_of_board(hardware: str) -> frozenset[str]:
    own = words(hardware)
    sheets = (sheet for sheet in all_sheets() if hardware in sheet.product.names)
    return own.union(*map(_words_of, sheets))


def _words_of(sheet: DataSheet) -> frozenset[str]:
    p = sheet.product
    facts = (f"{p.memory_gb}gb", (p.memory_kind or "").lower(), sheet.architecture.architecture.lower())
    return frozenset().union(*map(words, p.names), words(" ".join(facts)))


def _meant(name: str) -> str:
    """The boards that a name may mean, as text."""
    return _joined(sheet.name for sheet in all_sheets() if stands_for(name, sheet.name))


def _joined(names: Iterable[str]) -> str:
    return " or ".join(names) or "no board with a data sheet"
