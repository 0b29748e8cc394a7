from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_matrix.matrix.globs import is_plain, is_within, matches, one_or_many

GLOBS = st.lists(st.text(alphabet="ab*?[]!", max_size=4), max_size=2)


def test_no_globs_match_everything_and_case_differs():
    assert matches("h200", ())
    assert matches("h200", ("cpu", "h*"))
    assert not matches("h200", ("H*",))


@pytest.mark.parametrize(
    ("globs", "wider", "expected"),
    [
        (("softmax",), (), True),
        ((), ("softmax",), False),
        ((), ("*",), True),
        (("soft*",), ("s*", "x"), True),
        (("s*",), ("soft*",), False),
        (("softmax", "gelu"), ("softmax",), False),
        (("[ab]",), ("*a*",), False),
        (("?x",), ("*x",), True),
    ],
)
def test_within(globs, wider, expected):
    assert is_within(globs, wider) is expected


@settings(deadline=None, max_examples=500)
@given(GLOBS, GLOBS, st.text(alphabet="ab!", max_size=4))
def test_what_is_within_is_matched_by_both(globs, wider, value):
    if is_within(globs, wider) and matches(value, globs):
        assert matches(value, wider)


@settings(deadline=None)
@given(st.text(alphabet="ab*?[]!", max_size=4), st.text(alphabet="ab*?[]!", max_size=4))
def test_plain_globs_match_only_themselves(glob, value):
    if is_plain(glob):
        assert matches(value, (glob,)) is (value == glob)


def test_one_or_many():
    assert one_or_many("a") == ("a",)
    assert one_or_many([1, 2]) == (1, 2)
