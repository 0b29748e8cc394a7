"""Prices of models, from a dated TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernel_matrix.errors import UsageError
from kernel_matrix.generation.answers import TokenCounts
from kernel_matrix.toml_text import TomlSyntaxError, parse_toml

BUNDLED_PRICES: Final = Path(__file__).with_suffix(".toml")
_KEYS: Final = ("prompt", "cached", "completion")
_FORM: Final = 'write date = "2026-01-31" and, for each model, [models."NAME"] with prompt, cached and completion'


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrice:
    """Price of a model in US dollars per million tokens."""

    prompt: float
    cached: float
    """Tokens of the prompt that come from the endpoint's cache."""
    completion: float

    def cost_usd(self, tokens: TokenCounts) -> float:
        """Return the price of one answer."""
        uncached = tokens.prompt - tokens.cached
        millionths = uncached * self.prompt + tokens.cached * self.cached + tokens.completion * self.completion
        return millionths / 1e6


def read_price(path: Path, model: str) -> ModelPrice | None:
    """Return the price of a model; None if the file does not have it.

    Raises:
        UsageError: The file cannot be read, or is no price file.
    """
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, TomlSyntaxError) as error:
        raise UsageError(f"{path} cannot be read as prices: {error}", next_step=_FORM) from None
    models = document.get("models", {})
    if "date" not in document or not isinstance(models, dict):
        raise UsageError(f"{path} has no date, or models is no table", next_step=_FORM)
    return _price(path, model, models[model]) if model in models else None


def _price(path: Path, model: str, row: Any) -> ModelPrice:
    if not isinstance(row, dict) or set(row) != set(_KEYS) or not all(map(_is_price, row.values())):
        what = f"{path}: {model} needs {', '.join(_KEYS)}, each in USD per million tokens"
        raise UsageError(what, next_step=_FORM)
    return ModelPrice(**row)


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
