"""Trust in a time, as a letter with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from kernel_matrix.measure.intervals import deviation
from kernel_matrix.model.enums import Grade

LIMITS = {Grade.A: 0.01, Grade.B: 0.02}
"""Grade → largest allowed spread within sessions, spread between sessions, and drift."""
NORMAL_IQR = 1.349
"""Interquartile range of a normal distribution with standard deviation 1."""


@dataclass(frozen=True, slots=True)
class GradedTime:
    """A grade, and the reason why it is not better; empty for an A."""

    grade: Grade
    reason: str


def grade(
    *,
    sessions: int,
    within: float | None,
    between: float | None,
    drift: float | None,
    clocks_locked: bool,
    pinned: bool = True,
    alone: bool = True,
    platform_proven: bool = True,
) -> GradedTime:
    """Grade a time. An unknown value counts as bad.

    Args:
        sessions: Number of sessions.
        within: :func:`spread_within` of the worst session.
        between: :func:`spread_between` of the session medians.
        drift: :func:`kernel_matrix.measure.drift.machine_drift` over all sessions.
        clocks_locked: The clocks were locked, and this was verified under load.
        alone: Exclusive use of the device was proven, or there is none to prove.
        platform_proven: The code of the device's platform was shown to work on real devices.
        pinned: The toolchain was an image, not an environment that others may change.
    """
    if sessions < 2:
        return GradedTime(Grade.C, "one session")
    if not alone:
        return GradedTime(Grade.C, "exclusive use of the device was not proven")
    if not platform_proven:
        return GradedTime(Grade.C, "the platform was not proven on real devices")
    measured = {"spread within sessions": within, "spread between sessions": between, "machine drift": drift}
    reasons_not_b = list(_excesses(measured, LIMITS[Grade.B]))
    if reasons_not_b:
        return GradedTime(Grade.C, ", ".join(reasons_not_b))
    reasons_not_a = list(_excesses(measured, LIMITS[Grade.A]))
    reasons_not_a += [] if clocks_locked else ["clocks not locked"]
    reasons_not_a += [] if pinned else ["an environment, not an image"]
    return GradedTime(Grade.B, ", ".join(reasons_not_a)) if reasons_not_a else GradedTime(Grade.A, "")


def _excesses(measured: dict[str, float | None], limit: float) -> Iterator[str]:
    for name, value in measured.items():
        if value is None:
            yield f"{name} unknown"
        elif value > limit:
            yield f"{name} {100 * value:.1f} %"


def spread_within(samples: Sequence[float]) -> float | None:
    """Compute the coefficient of variation of calls from their quartiles; None for fewer than four calls.

    Quartiles ignore the few calls that a power state or an interrupt delays, as the graded median does.
    """
    if len(samples) < 4:
        return None
    ordered = sorted(samples)
    low, middle, high = (_quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    return (high - low) / NORMAL_IQR / middle if middle else None


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Interpolate a quantile (definition 7 of Hyndman and Fan, The American Statistician 50, 1996).

    :func:`statistics.quantiles` gives the same value, but it is slow enough to dominate a merge.
    """
    place = share * (len(ordered) - 1)
    below = int(place)
    step = ordered[min(below + 1, len(ordered) - 1)] - ordered[below]
    return ordered[below] + step * (place - below)


def spread_between(medians: Sequence[float]) -> float | None:
    """Compute the coefficient of variation of session medians; None for fewer than two."""
    if len(medians) < 2 or not fmean(medians):
        return None
    return deviation(medians) / fmean(medians)
