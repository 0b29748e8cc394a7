"""Fetch hash-locked wheels into the user's cache, and check the hashes at every use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kernel_matrix.errors import ImageError
from kernel_matrix.file_hash import file_sha256

_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_REQUIREMENT = re.compile(r"^([A-Za-z0-9][\w.-]*==\S+)\s*\\?\s*((?:--hash=sha256:[0-9a-f]{64}\s*\\?\s*)+)$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def read_requirements(path: Path) -> dict[str, frozenset[str]]:
    """Return requirement → allowed SHA-256 digests of its wheel.

    Raises:
        ImageError: a line is not ``name==version`` with at least one ``--hash=sha256:``.
    """
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    locked = {}
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        match = _REQUIREMENT.match(line.strip())
        if match:
            locked[match[1]] = frozenset(_HASH.findall(match[2]))
        elif line.strip():
            raise ImageError(
                f"{path}: {line.strip()!r} is not locked by hash.",
                next_step="Write name==version --hash=sha256:… for every package.",
            )
    return locked


def fetch_wheels(requirements: Path, python: str, cache: Path) -> tuple[Path, ...]:
    """Return one wheel for Python ``python`` per requirement, and download those that the folder ``cache`` lacks.

    Raises:
        ImageError: the download failed, or no wheel with a locked hash exists.
    """
    locked = read_requirements(requirements)
    cache.mkdir(parents=True, exist_ok=True)
    if _missing(locked, _hashes(cache)):
        _download(requirements, python, cache)
    held = _hashes(cache)
    if missing := _missing(locked, held):
        raise ImageError(
            f"No wheel with a locked hash was found for {', '.join(missing)}.",
            next_step=f"Correct {requirements}, or its index.",
        )
    return tuple(next(held[value] for value in sorted(hashes) if value in held) for hashes in locked.values())


def link_wheels(wheels: tuple[Path, ...], folder: Path) -> None:
    """Put ``wheels`` into a new folder, as hard links if the file system allows it."""
    folder.mkdir()
    for wheel in wheels:
        try:
            os.link(wheel, folder / wheel.name)
        except OSError:  # noqa: PERF203  # a handful of wheels
            shutil.copyfile(wheel, folder / wheel.name)


def _missing(locked: Mapping[str, frozenset[str]], held: Mapping[str, Path]) -> list[str]:
    return [name for name, hashes in locked.items() if not hashes & held.keys()]


def _hashes(cache: Path) -> dict[str, Path]:
    return {file_sha256(path): path for path in sorted(cache.glob("*.whl"))}


def _download(requirements: Path, python: str, cache: Path) -> None:
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    argv = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--require-hashes", "--no-deps", "--only-binary=:all:", "--python-version", python, *platforms),
        *("--implementation", "cp", "--abi", f"cp{python.replace('.', '')}", "--abi", "abi3", "--abi", "none"),
        *("--dest", str(cache), "--requirement", str(requirements)),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(
            f"pip could not fetch the wheels of {requirements}:\n{_last_errors(done.stderr)}",
            next_step="Check the network and pip's index; torch's CPU wheel may need PyTorch's CPU index, "
            "given as PIP_EXTRA_INDEX_URL.",
        )


def _last_errors(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return "\n".join(f"    {line}" for line in lines[-5:])
