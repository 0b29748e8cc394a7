"""The platforms of this program: those that come with it, and those that other distributions add as entry points."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from kernel_matrix.errors import PlatformError
from kernel_matrix.platforms import Gpu, Platform, PlatformInventory

BUILT_IN = {"cpu": "kernel_matrix.platforms.cpu", "cuda": "kernel_matrix.platforms.cuda"}
"""Name → package, imported when asked for."""

DEFAULT = "cuda"
"""Platform of a value of the ``gpus`` axis that names none."""

GROUP = "kernel_matrix.platforms"
"""Entry points of other distributions: ``name = "package"``."""


@cache
def registered() -> Mapping[str, str]:
    """Return name → package of every platform, the built-in ones first; imports none of them."""
    return {**BUILT_IN, **{entry.name: entry.value for entry in _plugins() if _doubled(entry) is None}}


@cache
def get_platform(name: str) -> Platform:
    """Import the platform registered as ``name``.

    Raises:
        PlatformError: if there is none, it cannot be imported, or it lacks a member of the protocol.
    """
    package = registered().get(name)
    if package is None:
        raise PlatformError(
            f"unknown platform {name!r}", next_step=f"use one of {', '.join(registered())}, or install its package"
        )
    try:
        module: Platform = importlib.import_module(package)
    except Exception as error:
        raise PlatformError(
            f"platform {name!r} ({package}) cannot be imported: {type(error).__name__}: {error}",
            next_step="repair or uninstall the package that brings it; everything else works without it",
        ) from error
    missing = [member for member in _members() if not hasattr(module, member)]
    if missing:
        raise PlatformError(
            f"platform {name!r} ({package}) lacks {', '.join(missing)}",
            next_step="update the package that brings it to this version of kernel-matrix",
        )
    return module


def inside_folder(name: str) -> Path:
    """Return the folder of the inside half of the platform ``name``."""
    return Path(str(get_platform(name).__file__)).resolve().parent / "inside"


def platforms() -> Mapping[str, Platform]:
    """Return every platform that can be used, by name; :func:`problems` tells about the others."""
    found = {}
    for name in registered():
        try:
            found[name] = get_platform(name)
        except PlatformError:  # noqa: PERF203  # one broken plugin must not take the others with it
            continue
    return found


def problems() -> tuple[str, ...]:
    """Return one line for each platform that cannot be used."""
    found = [line for entry in _plugins() if (line := _doubled(entry)) is not None]
    for name in registered():
        try:
            get_platform(name)
        except PlatformError as error:  # noqa: PERF203  # as above
            found.append(error.what)
    return tuple(found)


def platform_name(text: str) -> str:
    """Return the registry key for ``text``, a platform's name or its vendor's; other texts as they are."""
    if text in registered():
        return text
    return next((name for name, platform in platforms().items() if text == platform.VENDOR), text)


def host_inventory() -> dict[str, PlatformInventory]:
    """Return every platform's inventory of this host."""
    return {name: platform.inventory() for name, platform in platforms().items()}


def gpu_document(gpu: Gpu) -> dict[str, Any]:
    """Return ``gpu`` as records have it, with its platform under the name of the vendor."""
    fields = asdict(gpu)
    return {"vendor": get_platform(fields.pop("platform")).VENDOR, **fields}


@cache
def _plugins() -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)))


def _doubled(entry: EntryPoint) -> str | None:
    """Return why ``entry`` does not count: its name is taken by the program or by an entry before it."""
    taken = BUILT_IN.get(entry.name) or next(other.value for other in _plugins() if other.name == entry.name)
    if taken == entry.value:
        return None
    return f"platform {entry.name!r} of {entry.value} is ignored: {taken} has that name already"


def _members() -> tuple[str, ...]:
    annotated = Platform.__annotations__
    return (*annotated, *(name for name in vars(Platform) if not name.startswith("_") and name not in annotated))
