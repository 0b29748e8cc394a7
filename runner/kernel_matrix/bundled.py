"""Paths of the data files that come with the package: schemas, problems, images, documentation and example projects.

In a checkout they are in ``schemas/``, ``problems/``, ``images/`` and ``docs/`` at its top. A wheel carries copies
inside the package, as ``_schemas``, ``_problems`` and so on. No candidate sees these folders: an image has no copy of
the package, and the sandbox ``process`` hides installed ones.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def bundled_path(folder: str, name: str = "") -> Path:
    """Return the path of ``name`` in a bundled folder; the file may be missing from an incomplete installation.

    Args:
        folder: ``schemas``, ``problems``, ``images`` or ``docs``.
        name: Path below that folder; empty for the folder itself.
    """
    # Prefer the packaged copy: a folder "schemas" beside an installed package may belong to another package.
    packaged = _PACKAGE / f"_{folder}"
    return (packaged if packaged.is_dir() else _PACKAGE.parents[1] / folder) / name


BUNDLED_PROBLEMS = {
    "folder": bundled_path("problems"),
    "aten": bundled_path("problems", "aten.json"),
    "vllm": bundled_path("problems", "vllm"),
    "cublas": bundled_path("problems", "cublas"),
}
"""Source → path of its bundled problems, for sources that need no path in a matrix."""
