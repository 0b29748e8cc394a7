"""Comparing tensors bit by bit, independent of the numbers' meaning."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge import bits
from kernel_matrix.inside.judge.bits import Fingerprints, all_bits_set, fingerprint, same_bits

pytestmark = pytest.mark.torch

TENSORS = {
    "words": torch.randn(6, 8),
    "no whole words": torch.randn(3),
    "halves": torch.randn(5).half(),
    "NaN": torch.tensor([float("nan"), 1.0]),
    "integers": torch.arange(7, dtype=torch.int8),
    "booleans": torch.tensor([True, False, True]),
    "complex": torch.randn(4, dtype=torch.complex64),
    "8-bit floats": torch.randn(9).to(torch.float8_e4m3fn),
    "transposed": torch.randn(4, 6).T,
    "a part that begins between words": torch.randn(9)[1:],
    "a number": torch.tensor(2.5),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_a_copy_is_the_same_and_one_flipped_bit_is_not(name, chunk, monkeypatch):
    monkeypatch.setattr(bits, "CHUNK", chunk)
    tensor = TENSORS[name]
    copy = tensor.clone(memory_format=torch.contiguous_format)
    assert same_bits(tensor, copy)
    copy.reshape(-1).view(torch.uint8)[-1] ^= 1
    assert not same_bits(tensor, copy)


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("hashed", [1, 3, 1 << 20])
def test_fingerprint_is_of_every_bit(name, hashed, monkeypatch):
    monkeypatch.setattr(bits, "HASHED", hashed)
    tensor = TENSORS[name].contiguous()
    before = fingerprint(tensor, 7)
    assert fingerprint(tensor.clone(), 7) == before
    each = tensor.reshape(-1).view(torch.uint8)
    for place in range(len(each)):
        for bit in (1, 128):
            each[place] ^= bit
            assert fingerprint(tensor, 7) != before
            each[place] ^= bit
    assert fingerprint(tensor, 7) == before


def test_fingerprint_sees_words_that_changed_places():
    tensor = torch.arange(16.0)
    found = {fingerprint(tensor.roll(shift), 7) for shift in range(16)}
    assert len(found) == 16


def test_fingerprint_depends_on_its_secret():
    tensor = torch.arange(16.0)
    assert len({fingerprint(tensor, seed) for seed in range(16)}) == 16


def test_fingerprint_of_a_transposed_tensor_is_of_its_memory():
    tensor = torch.randn(6, 4)
    assert fingerprint(tensor.T, 7) == fingerprint(tensor, 7)


def test_fingerprints_tell_which_tensor_changed():
    tensors = [torch.arange(16.0), torch.zeros(3), torch.ones(2, 2)]
    before = Fingerprints(tensors)
    assert before.unchanged(tensors) == [True, True, True]
    tensors[1][2] = 1
    assert before.unchanged(tensors) == [True, False, True]
    assert before.unchanged(tensors[:1]) == [True, False, False]
    assert before.unchanged([*tensors, torch.zeros(1)]) == [True, False, True, False]


def test_same_bits_of_transposed_sees_each_element(monkeypatch):
    monkeypatch.setattr(bits, "CHUNK", 3)
    tensor = torch.randn(4, 6).T
    for place in range(tensor.numel()):
        copy = torch.empty_strided(tensor.shape, tensor.stride()).copy_(tensor)
        assert same_bits(tensor, copy)
        copy[place // 4, place % 4] += 1
        assert not same_bits(tensor, copy)


def test_nothing_is_the_same_as_nothing():
    assert same_bits(torch.empty(0, 3), torch.empty(0, 3))


def test_another_shape_is_not_the_same():
    assert not same_bits(torch.zeros(2, 3), torch.zeros(7))
    assert not same_bits(torch.zeros(2, 3), torch.zeros(3, 2))


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float8_e5m2, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_that_were_never_written_are_told_from_others(dtype):
    tensor = torch.zeros(6, dtype=torch.uint8).repeat(dtype.itemsize).view(dtype).clone()
    assert not all_bits_set(tensor).any()
    tensor[2:3].view(torch.uint8).fill_(0xFF)
    assert all_bits_set(tensor).tolist() == [False, False, True, False, False, False]


def test_of_a_complex_number_either_part_may_be_unwritten():
    tensor = torch.zeros(3, dtype=torch.complex64)
    torch.view_as_real(tensor)[1, 1:].view(torch.uint8).fill_(0xFF)
    assert all_bits_set(tensor).tolist() == [[False, False], [False, True], [False, False]]
