"""The store of images that belongs to a sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kernel_matrix.images.image_store import DaemonStore, ImageStore, connect
from kernel_matrix.images.unpacked_store import UnpackedStore

UNPACKED = "unpacked"
"""Name of the sandbox that runs unpacked images; all others that run images use a daemon's."""


@contextmanager
def open_store(sandbox: str) -> Iterator[ImageStore]:
    """Open the store from which ``sandbox`` runs images.

    Raises:
        ImageError: No daemon answers, or a request inside the ``with`` block failed.
    """
    if sandbox == UNPACKED:
        yield UnpackedStore()
        return
    with connect() as client:
        yield DaemonStore.of(client)
