"""Comparing tensors bit by bit, or by their fingerprints: NaN equals itself, and nothing is rounded."""

from __future__ import annotations

import secrets
from itertools import zip_longest
from typing import Iterable, Iterator, List, Tuple

import torch

WORD = 8
CHUNK = 1 << 25  # words compared at once; bounds the memory of a comparison
HASHED = 1 << 22  # words hashed at once, with the same secret numbers for each such piece

_SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if two tensors of one dtype have equal shapes and equal bits."""
    if one.shape != other.shape:
        return False
    if one.stride() == other.stride():  # the order does not matter then, and a transposed tensor need not be copied
        one, other = _in_memory_order(one), _in_memory_order(other)
    # Read once at the end, since a GPU would wait for the host after each chunk.
    differs = [(left != right).any() for left, right in _chunks(one, other)]
    return not differs or not bool(torch.stack(differs).any())


def fingerprint(tensor: torch.Tensor, seed: int) -> Tuple[int, ...]:
    """Return numbers that tell whether a tensor's bits have changed, without a copy of it.

    Each piece is hashed with the universal hash function NH (Black et al., UMAC, CRYPTO 1999), in signed arithmetic.
    For whoever does not know ``seed``, other bits have the same hash with a chance of one in 2^31.
    """
    flat = _flat(_in_memory_order(tensor)).view(torch.uint8)
    words = flat[: len(flat) // WORD * WORD].view(torch.int32)
    generator = torch.Generator(flat.device).manual_seed(seed)
    shape = (2 * min(HASHED, len(words) // 2),)
    secret = torch.randint(-(1 << 31), 1 << 31, shape, dtype=torch.int32, device=flat.device, generator=generator)
    hashes = [_hash(piece + secret[: len(piece)]) for piece in words.split(2 * HASHED)] if len(words) else []
    rest: List[int] = flat[len(words) * 4 :].tolist()
    return (*(torch.stack(hashes).tolist() if hashes else ()), *rest)


def _hash(words: torch.Tensor) -> torch.Tensor:
    pairs = words.view(-1, 2)
    return (pairs[:, 0].long() * pairs[:, 1]).sum()


class Fingerprints:
    """Fingerprints of some tensors under a secret of their own, to see later whether they have changed."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._seed = secrets.randbits(63)
        self._of = self._taken(tensors)

    def unchanged(self, now: Iterable[torch.Tensor]) -> List[bool]:
        """Return for each tensor whether its bits are the same ``now``; one that is missing or new has changed."""
        return [before == after for before, after in zip_longest(self._of, self._taken(now))]

    def _taken(self, tensors: Iterable[torch.Tensor]) -> List[Tuple[int, ...]]:
        return [fingerprint(tensor, self._seed) for tensor in tensors]


def all_bits_set(tensor: torch.Tensor) -> torch.Tensor:
    """Return which numbers have every bit set, as output buffers are filled; complex numbers become pairs."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.view(_SAME_SIZE[real.element_size()]) == -1


def _chunks(*tensors: torch.Tensor) -> Iterator[Tuple[torch.Tensor, ...]]:
    flat = [_flat(tensor) for tensor in tensors]
    kind = torch.int64 if flat[0].numel() * flat[0].element_size() % WORD == 0 else torch.uint8
    pieces = [f.view(kind) for f in flat]
    for start in range(0, pieces[0].numel(), CHUNK):
        yield tuple(piece[start : start + CHUNK] for piece in pieces)


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in the order of their memory if they fill it without gaps, else ``tensor``."""
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    dense = 0 not in tensor.stride() and reach + 1 == tensor.numel()
    return tensor.as_strided((tensor.numel(),), (1,)) if dense else tensor


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Flatten ``tensor``, and copy it if it does not begin at a whole word."""
    flat = tensor.contiguous().reshape(-1)
    return flat.clone() if flat.storage_offset() * flat.element_size() % WORD else flat
