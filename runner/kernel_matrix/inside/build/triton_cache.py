"""What Triton keeps beside the machine code in its cache."""

from __future__ import annotations

import json
from pathlib import Path


def shared_at_launch(beside: Path) -> int:
    """Return the bytes of shared memory that Triton launches a kernel with, from its metadata; 0 if there are none.

    Args:
        beside: another file of the same kernel.
    """
    try:
        return int(json.loads(beside.with_suffix(".json").read_text(encoding="utf-8"))["shared"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
