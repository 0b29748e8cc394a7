"""Hash files and contents."""

from __future__ import annotations

import hashlib
from pathlib import Path


def content_digest(content: bytes) -> str:
    """Return ``sha256:<hex>`` of ``content``, the form in which images and environments are named."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
