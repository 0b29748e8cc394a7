"""Arguments as JSON: everything a model may be called with comes back unchanged, everything else is refused."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import json
import math
import struct
from collections import namedtuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kernel_matrix.inside.arguments import NotTransferableError, decode_arguments, encode_arguments

pytestmark = pytest.mark.torch


def carry(arguments):
    """The arguments as a worker decodes them, and the tensors that crossed beside them."""
    tensors = []
    text = json.dumps(encode_arguments(arguments, tensors), allow_nan=False)
    return decode_arguments(json.loads(text), tensors), tensors


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NESTED = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(arguments=st.lists(NESTED))
def test_nested_values_come_back_equal_and_of_the_same_kind(arguments):
    back, tensors = carry(arguments)
    assert repr(back) == repr(arguments)  # repr tells 1 from 1.0 from True, a list from a tuple, and -0.0 from 0.0
    assert tensors == []


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan])
def test_a_float_comes_back_bit_for_bit(value):
    ((back,), _) = carry([value])
    assert struct.pack("<d", back) == struct.pack("<d", value)


def test_tensors_are_named_by_their_place_wherever_they_stand():
    one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
    back, tensors = carry([one, [two, {"x": (three, 4)}], "text"])
    assert [t.numel() for t in tensors] == [1, 2, 3]
    assert back[0] is one
    assert back[1][0] is two
    assert back[1][1]["x"][0] is three
    assert back[1][1]["x"][1] == 4
    assert back[2] == "text"


def test_a_tensor_that_comes_twice_crosses_twice():
    tensor = torch.ones(1)
    assert len(carry([tensor, tensor])[1]) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_a_dtype_comes_back_as_itself(dtype):
    assert carry([{"dtype": dtype}])[0] == [{"dtype": dtype}]


def test_a_named_tuple_becomes_a_plain_one():
    point = namedtuple("Point", "x y")  # noqa: PYI024  # the untyped kind is what is found in the field
    assert carry([point(1, 2), torch.Size((3, 4))])[0] == [(1, 2), (3, 4)]


REFUSED = {
    "a function": max,
    "a set": {1},
    "bytes": b"x",
    "a complex number": 1j,
    "a device": torch.device("cpu"),
    "a module": torch.nn.Identity(),
    "a dictionary with numbers for keys": {1: 2},
    "an object": object(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_everything_else_is_refused_and_named(name):
    value = REFUSED[name]
    with pytest.raises(NotTransferableError, match=f"type {type(value).__name__} cannot be handed"):
        encode_arguments([[{"a": value}]], [])
