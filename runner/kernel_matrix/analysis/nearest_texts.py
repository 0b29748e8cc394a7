"""The most similar of many source texts, without comparing every text with every other one.

The similarity of two texts is :meth:`difflib.SequenceMatcher.ratio` of their lines. That is slow, so it is
computed only for the few texts whose counts of words are most alike, which a product of matrices finds.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

_DIMENSIONS: Final = 512
"""Counts of words per text; words share counts by their hash, which only makes the first choice a little coarser."""
_COMPARED: Final = 4
"""Texts whose lines are compared for each one that is wanted."""
_AT_ONCE: Final = 512
"""Rows of the product of matrices in memory together."""
_WORD: Final = re.compile(r"\w+|[^\w\s]")


Numbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RankedTexts:
    """Texts to compare, by their numbers, each with a rank; a number may come several times."""

    number: Numbers
    rank: NDArray[np.float64]


class NearestTexts:
    """Similarities of texts; the texts of one problem are asked for many times.

    Args:
        texts: The texts, without repetitions.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._lines = [text.splitlines() for text in texts]
        vectors = np.zeros((len(texts), _DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            places = [zlib.crc32(word.encode()) % _DIMENSIONS for word in _WORD.findall(text)]
            vectors[row] = np.sqrt(np.bincount(places, minlength=_DIMENSIONS)) if places else 0
        self._vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        self.similarity = cache(self._similarity)

    def nearest(self, of: RankedTexts, among: RankedTexts, most: int) -> list[list[int]]:
        """Find for each text of ``of`` the most similar ones of ``among`` with a lower rank.

        Returns:
            For each, places in ``among``, at most ``most``, the most similar first. The text itself is not found.
        """
        found: list[list[int]] = []
        for start in range(0, len(of.number) if len(among.number) else 0, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            scores = self._vectors[of.number[part]] @ self._vectors[among.number].T
            scores[of.number[part, None] == among.number] = -1
            scores[of.rank[part, None] <= among.rank] = -1
            found += [
                self._best(int(number), among.number, of_row, most)
                for number, of_row in zip(of.number[part], scores, strict=True)
            ]
        return found or [[] for _ in of.number]

    def _best(self, number: int, among: Numbers, scores: NDArray[np.float32], most: int) -> list[int]:
        count = min(_COMPARED * most, scores.size)
        first = np.argpartition(-scores, count - 1)[:count]
        likely = [int(place) for place in first if scores[place] >= 0]
        return sorted(likely, key=lambda place: (-self.similarity(number, int(among[place])), place))[:most]

    def _similarity(self, one: int, other: int) -> float:
        return SequenceMatcher(None, self._lines[one], self._lines[other], autojunk=False).ratio()
