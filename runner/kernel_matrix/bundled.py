"""Data files that come with the package: JSON Schemas and problems.

In a checkout they lie in ``schemas/`` and ``problems/`` at its top. A wheel carries the schemas and the problems of
:data:`BUNDLED_PROBLEMS` inside the package, as ``_schemas`` and ``_problems``. No candidate sees that folder: an image
has no copy of the package, and the sandbox ``process`` hides installed ones.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def bundled_path(folder: str, name: str) -> Path:
    """Return where ``name`` of a bundled folder should be; it may be absent from an incomplete installation.

    Args:
        folder: ``schemas`` or ``problems``.
        name: Path below that folder.
    """
    # The packaged copy comes first: a folder "schemas" beside an installed package may belong to anything.
    packaged = _PACKAGE / f"_{folder}"
    return (packaged if packaged.is_dir() else _PACKAGE.parents[1] / folder) / name


BUNDLED_PROBLEMS = {
    "aten": bundled_path("problems", "aten.json"),
    "vllm": bundled_path("problems", "vllm"),
    "cublas": bundled_path("problems", "cublas"),
}
"""Source → where its own problems are, for the sources that need no path in a matrix."""
