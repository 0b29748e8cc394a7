"""Arithmetic with known answers: one chain of integers and one of fractions, in closed form and step by step."""

from __future__ import annotations

WORDS = 1 << 20
"""Number of answers that a device computes: enough that each of its cores computes many."""
ROUNDS = 256
"""Steps of either chain per answer."""

# A linear congruential generator modulo 2**32 (the multiplier and increment of Numerical Recipes).
MULTIPLIER, INCREMENT = 1664525, 1013904223
_MODULUS = 1 << 32
_LEAP = pow(MULTIPLIER, ROUNDS, _MODULUS)
_LEAP_INCREMENT = INCREMENT * sum(pow(MULTIPLIER, step, _MODULUS) for step in range(ROUNDS)) % _MODULUS


def right_answer(index: int) -> int:
    """Return the right answer number ``index``, in closed form."""
    integers = (_LEAP * index + _LEAP_INCREMENT) % _MODULUS
    fractions = (index & 0xFFFF) + ROUNDS
    return (integers + fractions) % _MODULUS


def worked_out(index: int) -> int:
    """Work out answer number ``index`` step by step, as a device does."""
    x, y = index, float(index & 0xFFFF)
    for _ in range(ROUNDS):
        x = (x * MULTIPLIER + INCREMENT) % _MODULUS
        y = (y * 4 + 3) * 0.25 + 0.25
    return (x + int(y)) % _MODULUS
