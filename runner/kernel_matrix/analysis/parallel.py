"""Arithmetic on several processors at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import polars as pl

_T = TypeVar("_T")
_R = TypeVar("_R")


def map_threads(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Return the results of ``work`` in order; of use where most of it is numpy, which needs no lock of Python."""
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        return list(pool.map(work, items))
