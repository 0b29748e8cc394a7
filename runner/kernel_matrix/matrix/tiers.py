"""Values of protocol and policy: the tiers' presets, reading the tables, and applying overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from enum import Enum
from typing import Any

from kernel_matrix.matrix import Policy, Protocol
from kernel_matrix.model.enums import ClockPolicy, Implementation, InputMode, Regime, Tier
from kernel_matrix.model.messages import ProtocolSpec

PUBLISH_SESSIONS = 5
"""Fewest sessions of tier ``publish``; intervals between fewer sessions are too wide to be useful."""

_QUICK: Mapping[str, object] = {
    "sessions": 1,
    "max_sessions": 1,
    "trials": 3,
    "time": True,
    "min_samples": 12,
    "max_samples": 100,
    "target_half_width": 0.02,
    "precision_s": 0.1,
    "budget_s": 4.0,
    "steady_cap_s": 0.0,  # no wait for steady clocks: both sides are timed in turns, after verification has warmed up
}
TIERS: Mapping[Tier, Mapping[str, object]] = {
    Tier.VALUES: {**_QUICK, "time": False},
    Tier.QUICK: _QUICK,
    Tier.SCREEN: {
        "sessions": 1,
        "max_sessions": 1,
        "trials": 5,
        "time": True,
        "min_samples": 40,
        "max_samples": 400,
        "target_half_width": 0.005,
        "precision_s": 0.5,
        "budget_s": 20.0,
        "steady_cap_s": 2.0,
    },
    Tier.PUBLISH: {
        "sessions": PUBLISH_SESSIONS,
        "max_sessions": 2 * PUBLISH_SESSIONS,
        "trials": 10,
        "time": True,
        "min_samples": 100,
        "max_samples": 1000,
        "target_half_width": 0.0025,
        "precision_s": 20.0,
        "budget_s": 60.0,
        "steady_cap_s": 2.0,
    },
}
"""Values that a tier sets. All tiers have the same keys, so that one replaces all values of another."""

_ENUMS: Mapping[str, type[Enum]] = {"modes": InputMode, "regimes": Regime, "baselines": Implementation}
"""Protocol keys with lists of words, and the type of their elements."""

_DEFAULTS: Mapping[str, object] = {
    f.name: getattr(owner, f.name) for owner in (ProtocolSpec(), Policy()) for f in fields(owner)
}


def read_protocol(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a ``protocol`` table sets: those of its tier, if it names one, then its own.

    Args:
        table: parsed TOML that was checked against the schema.
    """
    values = {key: _convert_number(key, value) for key, value in table.items()}
    if "tier" in values:
        values["tier"] = Tier(values["tier"])
        values = {**TIERS[values["tier"]], **values}
    if "sessions" in values and "max_sessions" not in table:
        values["max_sessions"] = max(values["sessions"], values.get("max_sessions", 1))
    for key, kind in _ENUMS.items():
        if key in values:
            values[key] = tuple(kind(name) for name in values[key])
    return values


def read_policy(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a ``policy`` table sets; the table was checked against the schema."""
    values = {
        key: tuple(value) if isinstance(value, list) else _convert_number(key, value) for key, value in table.items()
    }
    if "clocks" in values:
        values["clocks"] = ClockPolicy(values["clocks"])
    return values


def with_protocol(base: Protocol, values: Mapping[str, Any]) -> Protocol:
    """Return ``base`` with the values of an :class:`.Override` or of :func:`read_protocol`."""
    spec_keys = {f.name for f in fields(ProtocolSpec)}
    spec = {key: value for key, value in values.items() if key in spec_keys}
    rest = {key: value for key, value in values.items() if key not in spec_keys}
    return replace(base, spec=replace(base.spec, **spec), **rest)


def with_policy(base: Policy, values: Mapping[str, Any]) -> Policy:
    """Return ``base`` with the values of an :class:`.Override` or of :func:`read_policy`."""
    return replace(base, **values)


def _convert_number(key: str, value: Any) -> Any:
    """Convert a number to the type of its field, because the id of a cell must not depend on ``1`` or ``1.0``."""
    default = _DEFAULTS.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return float(value) if isinstance(default, float) else int(value)
