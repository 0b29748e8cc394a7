"""Replace small files as a whole: write aside, sync, rename."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from kernel_matrix.errors import StoreError


def write_whole(path: Path, text: str) -> None:
    """Replace the content of ``path`` by ``text``.

    Raises:
        StoreError: It cannot be written; what was there before stays.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        next_step = f"Make room or give write access in {path.parent}; what was there before is untouched."
        raise StoreError(f"{path} cannot be written: {error.strerror}", next_step=next_step) from None
