"""Read ``images/<toolchain>/``, which describes the build of an image."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_matrix.errors import ImageError
from kernel_matrix.images.image_reference import ImageReference
from kernel_matrix.toml_text import parse_toml

_FROM = re.compile(r"^FROM\s+(\S+)", re.MULTILINE | re.IGNORECASE)
_PYTHON = re.compile(r"3\.\d+")
_FILES = ("Dockerfile", "requirements.lock", "image.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianBase:
    """A base made by debootstrap."""

    suite: str
    variant: str
    include: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecipe:
    """One toolchain's folder, read and checked."""

    toolchain: str
    folder: Path
    python: str
    """Python version of the wheels, ``3.11``."""
    debian: DebianBase | None
    """``None``: the Dockerfile's ``FROM`` names a registry image by digest."""
    base: str
    """Argument of ``FROM``."""
    inputs_sha256: str


def read_recipe(images_dir: Path, toolchain: str) -> ImageRecipe:
    """Read ``images_dir/toolchain``.

    Raises:
        ImageError: a file is missing or has a value that is not allowed.
    """
    folder = images_dir / toolchain
    absent = [name for name in _FILES if not (folder / name).is_file()]
    if absent:
        raise ImageError(
            f"{folder} lacks {', '.join(absent)}, needed to build toolchain {toolchain!r}.",
            next_step=f"{images_dir} (see --images) holds {', '.join(toolchains(images_dir)) or 'no toolchain'}.",
        )
    debian, python = _read_toml(folder / "image.toml")
    return ImageRecipe(
        toolchain=toolchain,
        folder=folder,
        python=python,
        debian=debian,
        base=_read_base(folder / "Dockerfile", pinned=debian is None),
        inputs_sha256=inputs_digest(folder),
    )


def toolchains(images_dir: Path) -> tuple[str, ...]:
    """List the toolchains that have a folder under ``images_dir``."""
    return tuple(sorted(path.parent.name for path in images_dir.glob("*/Dockerfile")))


def inputs_digest(folder: Path) -> str:
    """Return the SHA-256 over the names and contents of a recipe's files."""
    digest = hashlib.sha256()
    for name in sorted(_FILES):
        content = (folder / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _read_toml(path: Path) -> tuple[DebianBase | None, str]:
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ImageError(f"{path} cannot be read: {error}.", next_step="Correct it as TOML.") from error
    _refuse_unknown_keys(path, "", document, {"python", "debootstrap"})
    python = document.get("python")
    if not isinstance(python, str) or not _PYTHON.fullmatch(python):
        raise ImageError(f'{path}: python must be a version such as "3.11", not {python!r}.', next_step="Correct it.")
    table = document.get("debootstrap")
    return (_read_debian(path, table) if table is not None else None), python


def _read_debian(path: Path, table: Any) -> DebianBase:
    if not isinstance(table, dict):
        raise ImageError(f"{path}: debootstrap must be a table.", next_step="Write [debootstrap].")
    _refuse_unknown_keys(path, "debootstrap.", table, {"suite", "variant", "include"})
    suite, variant, include = table.get("suite"), table.get("variant", "minbase"), table.get("include", [])
    words = [suite, variant, *include] if isinstance(include, list) else [None]
    if not all(isinstance(word, str) and re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", word) for word in words):
        raise ImageError(
            f"{path}: debootstrap needs suite, variant (names) and include (a list of package names).",
            next_step='For example suite = "bookworm", variant = "minbase", include = ["python3"].',
        )
    return DebianBase(suite=str(suite), variant=str(variant), include=tuple(include))


def _refuse_unknown_keys(path: Path, where: str, table: Mapping[str, Any], allowed: set[str]) -> None:
    if unknown := sorted(table.keys() - allowed):
        raise ImageError(
            f"{path}: unknown key {where}{unknown[0]}.", next_step=f"Allowed are {', '.join(sorted(allowed))}."
        )


def _read_base(dockerfile: Path, *, pinned: bool) -> str:
    found = _FROM.findall(dockerfile.read_text(encoding="utf-8"))
    base = str(found[0]) if found else ""
    if pinned and not ImageReference.parse(base).digest:
        raise ImageError(
            f"{dockerfile}: its base {base!r} is not named by digest.", next_step="Write FROM repository:tag@sha256:…"
        )
    if not pinned and base != "${BASE}":
        raise ImageError(
            f"{dockerfile}: with [debootstrap] in image.toml its base must be ${{BASE}}, not {base!r}.",
            next_step="Write ARG BASE and FROM ${BASE}.",
        )
    return base
