"""Strategies choose the parents of the next round."""

from __future__ import annotations

import pytest

from kernel_matrix.errors import PluginError
from kernel_matrix.generation import GeneratedCandidate, GenerationAttempt
from kernel_matrix.generation.strategies import STRATEGIES
from tests.generation.recording import MACHINE, WRONG, right


def attempt(sample, round_=0, result=None, *, has_code=True):
    name = f"r{round_}-s{sample}"
    candidate = GeneratedCandidate(problem="tiny", name=name, source="x") if has_code else None
    return GenerationAttempt(problem="tiny", name=name, sample=sample, round=round_, candidate=candidate, result=result)


def chosen(strategy, attempts, samples=2):
    return [parent and parent.name for parent in STRATEGIES.load(strategy)(attempts, samples)]


def test_repeated_begins_anew():
    assert chosen("repeated", [attempt(0, result=right())]) == [None, None]


def test_refine_continues_each_sample_from_its_latest():
    attempts = [attempt(0, result=WRONG), attempt(1, result=WRONG), attempt(1, 1, right())]
    assert chosen("refine", attempts, 3) == ["r0-s0", "r1-s1", None]


@pytest.mark.parametrize(
    ("attempts", "best"),
    [
        ([], None),
        ([attempt(0, has_code=False), attempt(1, result=WRONG)], "r0-s1"),
        ([attempt(0, result=WRONG), attempt(1, result=right(0.5))], "r0-s1"),
        ([attempt(0, result=right(3.0)), attempt(1, result=right(2.0))], "r0-s0"),
        ([attempt(0, result=right(2.0)), attempt(0, 1, right(2.0))], "r0-s0"),  # the first of equals
    ],
)
def test_best_first_continues_from_the_best(attempts, best):
    assert chosen("best-first", attempts) == [best, best]


def test_failure_of_the_machine_is_not_usable():
    assert not attempt(0, result=MACHINE).is_usable
    assert not attempt(0).is_usable
    assert attempt(0, result=WRONG).is_usable
    assert attempt(0, has_code=False).is_usable


def test_unknown_strategy_is_told():
    with pytest.raises(PluginError, match="unknown strategy 'genetic'"):
        STRATEGIES.load("genetic")
