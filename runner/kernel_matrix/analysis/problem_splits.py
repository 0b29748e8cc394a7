"""Parts of a data set for training, validation and test; a problem is in one of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

SPLITS: Final = {"train": 80, "validation": 90, "test": 100}
"""Name of each part → the hundredths of all hashes that are below its end."""


def normalise_problems(references: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Give all names of one problem one identity: names whose references have the same source are one problem.

    Args:
        references: Name of a problem, and the digest of its reference's source, None where it is not known; a name
            may come several times, with different versions of its reference.

    Returns:
        Name → identity, which does not depend on the other problems. It is the lowest digest, or else the name.
    """
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    pairs = list(references)
    for name, digest in pairs:
        if digest is not None:
            parent[root(f"name {name}")] = root(f"digest {digest}")
    lowest: dict[str, str] = {}
    for name, digest in pairs:
        top, mark = root(f"name {name}"), f"digest {digest}" if digest else f"name {name}"
        lowest[top] = min(mark, lowest.get(top, mark))
    return {name: lowest[root(f"name {name}")] for name, _digest in pairs}


def split_of(identity: str) -> str:
    """Return the part of a problem: always the same for the same identity."""
    place = int(hashlib.sha256(identity.encode()).hexdigest(), 16) % 100
    return next(name for name, end in SPLITS.items() if place < end)


def count_splits(splits: Iterable[str]) -> Mapping[str, int]:
    """Count rows by part, in the order of :data:`SPLITS`."""
    found = list(splits)
    return {name: found.count(name) for name in SPLITS}
