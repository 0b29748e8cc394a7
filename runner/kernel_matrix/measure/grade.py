"""How far a time can be trusted, as a letter with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from kernel_matrix.measure.intervals import deviation
from kernel_matrix.model.enums import Grade

LIMITS = {Grade.A: 0.01, Grade.B: 0.02}
"""Grade → what each of spread within sessions, spread between them and drift may be."""
_QUARTILES_OF_NORMAL = 1.349
"""Interquartile range of a normal distribution with standard deviation 1."""


@dataclass(frozen=True, slots=True)
class GradedTime:
    """A grade, and what kept it from being better; empty for an A."""

    grade: Grade
    reason: str


def grade(
    *, sessions: int, within: float | None, between: float | None, drift: float | None, clocks_locked: bool
) -> GradedTime:
    """Grade a time. What is not known counts as bad.

    :param within: :func:`spread_within` of the worst session.
    :param between: :func:`spread_between` of its sessions.
    :param drift: :func:`kernel_matrix.measure.drift.machine_drift` over all of them.
    :param clocks_locked: they were, and were verified under load.
    """
    if sessions < 2:  # one session has nothing to be compared with
        return GradedTime(Grade.C, "one session")
    measured = {"spread within sessions": within, "spread between sessions": between, "machine drift": drift}
    reasons_not_b = list(_too_much(measured, LIMITS[Grade.B]))
    if reasons_not_b:
        return GradedTime(Grade.C, ", ".join(reasons_not_b))
    reasons_not_a = [*_too_much(measured, LIMITS[Grade.A]), *(() if clocks_locked else ("clocks not locked",))]
    return GradedTime(Grade.B, ", ".join(reasons_not_a)) if reasons_not_a else GradedTime(Grade.A, "")


def _too_much(measured: dict[str, float | None], limit: float) -> Iterator[str]:
    for name, value in measured.items():
        if value is None:
            yield f"{name} unknown"
        elif value > limit:
            yield f"{name} {100 * value:.1f} %"


def spread_within(samples: Sequence[float]) -> float | None:
    """Coefficient of variation of calls, from their quartiles; null for fewer than four.

    The quartiles leave out the few calls that a power state or an interrupt delays, as the median does that is graded.
    """
    if len(samples) < 4:  # quartiles of fewer are not between any two of them
        return None
    ordered = sorted(samples)
    low, middle, high = (_quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    return (high - low) / _QUARTILES_OF_NORMAL / middle if middle else None


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between the nearest two of ``ordered`` (definition 7 of Hyndman and Fan, The American Statistician 50, 1996).

    As :func:`statistics.quantiles` has it, which works in whole numbers: a merge would spend its time there.
    """
    place = share * (len(ordered) - 1)
    below = int(place)
    step = ordered[min(below + 1, len(ordered) - 1)] - ordered[below]
    return ordered[below] + step * (place - below)


def spread_between(medians: Sequence[float]) -> float | None:
    """Coefficient of variation of session medians; null for fewer than two."""
    if len(medians) < 2 or not fmean(medians):  # one value has no spread
        return None
    return deviation(medians) / fmean(medians)
