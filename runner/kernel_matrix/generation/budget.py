"""Limits of what a generation may spend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationBudget:
    """Limits; None is none. Nothing is sent once one is reached, so that 0 sends nothing."""

    usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None

    @property
    def needs_usage(self) -> bool:
        """True if it can only be kept when the endpoint counts tokens."""
        return self.usd is not None or self.tokens is not None

    def why_exhausted(self, *, usd: float, tokens: int, seconds: float) -> str:
        """Return which limit is reached; empty if none is."""
        spent = (("USD", self.usd, usd), ("tokens", self.tokens, tokens), ("s", self.seconds, seconds))
        for name, limit, value in spent:
            if limit is not None and value >= limit:
                return f"the budget of {limit:g} {name} is spent"
        return ""
