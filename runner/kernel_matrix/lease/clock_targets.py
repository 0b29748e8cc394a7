"""Translation of the clocks that a policy asks for into clocks that the GPU supports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.platforms import ClockChoices, Gpu

BASE, MAX, AUTO, OFF, NONE = "base", "max", "auto", "off", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTarget:
    """A requested clock and the supported clock for it. Frequencies in MHz."""

    requested: str
    """``base``, ``max``, ``off`` or a number."""
    megahertz: int | None = None
    """The supported clock; ``None`` if it has no known number."""
    trouble: str = ""
    """Reason why the supported clock could not be determined."""


def sm_target(gpu: Gpu, terms: LeaseTerms, choices: ClockChoices) -> ClockTarget:
    """Return the SM clock that ``terms`` ask for on ``gpu``. ``base`` has no number if only the driver knows it."""
    asked = _for_model(terms.clock_target, gpu.name, otherwise=BASE)
    if asked == BASE:
        return ClockTarget(requested=BASE, megahertz=choices.base_sm_mhz)
    return _among(choices.sm_mhz, asked, "SM")


def memory_target(gpu: Gpu, terms: LeaseTerms, choices: ClockChoices) -> ClockTarget:
    """Return the memory clock that ``terms`` ask for on ``gpu``; ``off`` leaves it to the driver."""
    asked = _for_model(terms.memory_clock, gpu.name, otherwise=AUTO)
    if asked == AUTO:
        # The memory of a consumer card shares its power with the cores; and without a list there is no clock to choose.
        asked = OFF if choices.consumer or not choices.memory_mhz else MAX
    return ClockTarget(requested=OFF) if asked == OFF else _among(choices.memory_mhz, asked, "memory")


def nearest(supported: Sequence[int], megahertz: int) -> int:
    """Return the supported clock nearest to ``megahertz``, the lower of two; ``megahertz`` itself if none is listed."""
    return min(supported, key=lambda clock: (abs(clock - megahertz), clock), default=megahertz)


def _for_model(setting: str | int | Mapping[str, str | int], name: str, *, otherwise: str) -> str | int:
    """Return ``setting``, or if it is a table, its first value whose glob matches the product name."""
    if not isinstance(setting, Mapping):
        return setting
    matching = (value for glob, value in setting.items() if fnmatchcase(name.lower(), glob.lower()))
    return next(matching, otherwise)


def _among(supported: Sequence[int], asked: str | int, which: str) -> ClockTarget:
    if isinstance(asked, int):
        return ClockTarget(requested=str(asked), megahertz=nearest(supported, asked))
    if not supported:
        return ClockTarget(requested=MAX, trouble=f"the driver lists no {which} clocks, so the highest is not known")
    return ClockTarget(requested=MAX, megahertz=max(supported))
