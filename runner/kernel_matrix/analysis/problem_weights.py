"""Weights of problems in a mean over problems, from a file.

::

    default = 0             # of problems that are not named; 1 if it is not given

    [category]
    MatrixMultiply = 3

    [problem]
    softmax = 2             # counts before its category
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from kernel_matrix.analysis.sentences import listed
from kernel_matrix.errors import UsageError
from kernel_matrix.toml_text import TomlSyntaxError, parse_toml

_TABLES: Final = ("problem", "category")
_FORM: Final = 'a file of weights reads `default = 1`, `[category]` with `NAME = 2`, `[problem]` with `"NAME" = 3`'
_LISTED: Final = 5
"""Unknown names that an error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemWeights:
    """Weights of problems; all are equal if none is given."""

    default: float = 1.0
    problem: Mapping[str, float] = field(default_factory=dict)
    category: Mapping[str, float] = field(default_factory=dict)

    def check_names(self, known: pl.DataFrame, where: object) -> None:
        """Check that ``known``, with the columns ``problem`` and ``category``, has every name.

        Raises:
            UsageError: It lacks some; names them and the nearest ones.
        """
        for table in _TABLES:
            names = known[table].drop_nulls().unique().sort().to_list()
            unknown = sorted(set(getattr(self, table)) - set(names))
            if unknown:
                raise UsageError(
                    f"{where}: the results have no {table} named {listed(list(map(repr, unknown)), _LISTED)}",
                    next_step=_nearest(unknown, names, table),
                )

    def of(self, problems: pl.DataFrame) -> pl.Series:
        """Return the weight of each row of ``problems``, which has the columns ``problem`` and ``category``."""
        each = (
            pl.col(table).replace_strict(dict(weights), default=None, return_dtype=pl.Float64)
            for table, weights in (("problem", self.problem), ("category", self.category))
            if weights
        )
        return problems.with_columns(_weight=pl.coalesce(*each, pl.lit(self.default)))["_weight"]


def read_weights(path: Path) -> ProblemWeights:
    """Read and check the file.

    Raises:
        UsageError: The file cannot be read or a value is invalid; names the first error.
    """
    try:
        document = parse_toml(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", next_step=_FORM) from None
    except TomlSyntaxError as error:
        raise UsageError(f"{path} is {error}", next_step=_FORM) from None
    unknown = sorted(set(document) - {"default", *_TABLES})
    if unknown:
        raise UsageError(f"{path}: unknown key {unknown[0]!r}", next_step=_FORM)
    if not document:
        raise UsageError(f"{path} gives no weight", next_step=_FORM)
    return ProblemWeights(
        default=_checked(f"{path}: default", document.get("default", 1)),
        **{table: _table(f"{path}: {table}", document.get(table, {})) for table in _TABLES},
    )


def _table(where: str, values: Any) -> dict[str, float]:
    if not isinstance(values, dict):
        raise UsageError(f"{where} is not a table of names with weights", next_step=_FORM)
    return {name: _checked(f"{where}.{name}", value) for name, value in values.items()}


def _checked(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        shown = "a table; quote a name with a dot" if isinstance(value, dict) else repr(value)
        raise UsageError(f"{where} is {shown}, not a number from 0 on", next_step=_FORM)
    return float(value)


def _nearest(unknown: Iterable[str], names: list[str], table: str) -> str:
    near = [one for name in unknown for one in difflib.get_close_matches(name, names, n=1)]
    return f"The nearest: {', '.join(near)}." if near else f"They have {listed(names, _LISTED) or f'no {table}'}."
