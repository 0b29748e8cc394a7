"""Languages and dtypes that do not work on a platform's devices, from a TOML table of the platform."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.platforms.versions import is_older
from kernel_matrix.toml_text import parse_toml


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """Languages that do not run, or compute wrongly, in some dtypes or on some devices."""

    languages: tuple[str, ...]
    dtype: str | None = None
    """Dtype that is concerned; ``None`` for every dtype."""
    minimum_compute_capability: str | None = None
    """Oldest device on which they work; ``None`` if they work on no device that is concerned."""
    architectures: tuple[str, ...] = ()
    """Devices that are concerned, by the names of their instruction sets; empty for all of the platform."""
    why: str
    source: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageLimits:
    """Rows of one platform. A combination without a row works."""

    languages: tuple[LimitRow, ...]
    dtypes: tuple[LimitRow, ...]

    def language_skip_reason(self, *, language: Language, compute_capability: str | None) -> str | None:
        """Return why ``language`` does not run on such a device; ``None`` if it does."""
        rows = (row for row in self.languages if language.value in row.languages)
        return _first_skip_reason(rows, compute_capability)

    def dtype_skip_reason(self, *, dtype: Dtype, language: Language, compute_capability: str | None) -> str | None:
        """Return why ``language`` does not compute correctly in ``dtype`` on such a device; ``None`` if it does."""
        rows = (row for row in self.dtypes if row.dtype == dtype.value and language.value in row.languages)
        return _first_skip_reason(rows, compute_capability)


def read_language_limits(path: Path) -> LanguageLimits:
    """Read the ``[[languages]]`` and ``[[dtypes]]`` of a platform's table.

    Raises:
        TypeError: if a row has an unknown key or lacks one, such as its source.
    """
    document = parse_toml(path.read_text(encoding="utf-8"))
    return LanguageLimits(
        languages=read_rows(LimitRow, document.get("languages", ())),
        dtypes=read_rows(LimitRow, document.get("dtypes", ())),
    )


def read_rows(kind: Any, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Make a ``kind`` of each row, with tuples for lists."""
    return tuple(kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}) for row in rows)


def _first_skip_reason(rows: Iterable[LimitRow], compute_capability: str | None) -> str | None:
    return next((text for row in rows if (text := _limit(row, compute_capability))), None)


def _limit(row: LimitRow, compute_capability: str | None) -> str | None:
    if row.architectures and compute_capability not in row.architectures:
        return None
    if row.minimum_compute_capability is None:
        return row.why
    if compute_capability is None or not is_older(compute_capability, row.minimum_compute_capability):
        return None
    return f"{row.why}; this device has {compute_capability}"
