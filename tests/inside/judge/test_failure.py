"""Failures of calls that several ranks make say which rank they are of."""

import pytest

pytest.importorskip("torch")  # the package of the checks needs it

from kernel_matrix.inside.judge.checks.failure import CheckFailure, with_rank
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence


def named(message, output=None, ranks=2):
    failed = CheckFailure(Status.INCORRECT_VALUES, Evidence(message=message, output=output))
    evidence = with_rank(failed, ranks, inputs=6, outputs=4).evidence
    return evidence.message, evidence.output, evidence.rank


def test_with_rank_output_has_index_of_its_rank():
    assert named("output 3: 4 of 5 elements are wrong", 3) == ("rank 1: output 1: 4 of 5 elements are wrong", 1, 1)
    assert named("output 1 has another shape", 1) == ("rank 0: output 1 has another shape", 1, 0)


def test_with_rank_input_has_index_of_its_rank():
    assert named("input 4 was written to") == ("rank 1: input 1 was written to", None, 1)


def test_with_rank_of_one_rank_or_unnamed_place_is_unchanged():
    assert named("output 3: wrong", 3, ranks=1) == ("output 3: wrong", 3, None)
    assert named("the call wrote outside", None) == ("the call wrote outside", None, None)


def test_with_rank_again_is_unchanged():
    failed = CheckFailure(Status.NONFINITE, Evidence(message="output 3 is not finite", output=3))
    once = with_rank(failed, 2, 2, 4)
    assert with_rank(once, 2, 2, 4) == once
