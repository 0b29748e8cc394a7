"""Read and write ``images.lock``, which has one JSON object per toolchain, sorted for readable diffs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from kernel_matrix.errors import ImageError
from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.untrusted_json import NoSuchFileError, UntrustedJsonError, read_object

SCHEMA = 1  # version of the file's format
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_RESTORE = "Restore it from version control, or write a new one with `kernel-matrix images lock`."


def load_lock(path: Path) -> dict[str, LockEntry]:
    """Return toolchain → entry, sorted by name; a missing file is an empty lock.

    Raises:
        ImageError: the file cannot be read, or an entry is not valid.
    """
    try:
        document = read_object(path, follow_links=True)
    except NoSuchFileError:
        return {}
    except UntrustedJsonError as error:
        raise ImageError(f"{path} cannot be read: {error}.", next_step=_RESTORE) from error
    if document.get("schema") != SCHEMA or not isinstance(document.get("images"), dict):
        raise ImageError(f'{path} is not a lock: it must hold "schema": {SCHEMA} and "images".', next_step=_RESTORE)
    return {name: _entry(path, name, raw) for name, raw in sorted(document["images"].items())}


def save_lock(path: Path, entries: Mapping[str, LockEntry]) -> None:
    """Write the lock atomically.

    Raises:
        ImageError: the folder cannot be written.
    """
    images = {name: _to_json(entry) for name, entry in entries.items()}
    text = json.dumps({"schema": SCHEMA, "images": images}, indent=2, sort_keys=True) + "\n"
    try:
        replace_file(path, text)
    except OSError as error:
        raise ImageError(
            f"{path} cannot be written: {error}.", next_step="Make its folder writable, or name another with --lock."
        ) from error


def _to_json(entry: LockEntry) -> dict[str, Any]:
    raw = asdict(entry)
    del raw["toolchain"]
    return raw | {"state": entry.state.value, "packages": dict(entry.packages)}


def _entry(path: Path, name: str, raw: Any) -> LockEntry:
    fault = _check_entry(raw)
    if fault:
        raise ImageError(f"{path}: images.{name}: {fault}.", next_step=_RESTORE)
    return LockEntry(**{**raw, "toolchain": name, "state": LockState(raw["state"])})


def _check_entry(raw: Any) -> str:
    if not isinstance(raw, dict):
        return "must be an object"
    known = {field.name for field in fields(LockEntry)} - {"toolchain"}
    if unknown := sorted(raw.keys() - known):
        return f"unknown key {unknown[0]!r}, allowed are {', '.join(sorted(known))}"
    if missing := [key for key in ("reference", "state", "digest", "config_digest") if key not in raw]:
        return f"{missing[0]!r} is missing"
    if raw["state"] not in [state.value for state in LockState]:
        return f"state {raw['state']!r} must be one of {', '.join(state.value for state in LockState)}"
    return _check_types(raw) or _check_pin(raw)


def _check_types(raw: Mapping[str, Any]) -> str:
    for key in ("digest", "config_digest"):
        if raw[key] is not None and not (isinstance(raw[key], str) and _DIGEST.fullmatch(raw[key])):
            return f"{key} must be null or sha256: and 64 hex digits, not {raw[key]!r}"
    for key in raw.keys() - {"digest", "config_digest", "packages"}:
        if not isinstance(raw[key], str):
            return f"{key} must be text, not {raw[key]!r}"
    packages = raw.get("packages", {})
    if not isinstance(packages, dict) or not all(isinstance(version, str) for version in packages.values()):
        return "packages must map names to versions"
    return ""


def _check_pin(raw: Mapping[str, Any]) -> str:
    if raw["state"] == LockState.LOCAL.value:
        return "" if raw["digest"] or raw["config_digest"] else "a local image needs its digest or config_digest"
    if raw["digest"] is None or not raw["reference"].endswith(f"@{raw['digest']}"):
        return "the reference of a registry image must end in @ and its digest"
    return ""
