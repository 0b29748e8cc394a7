"""What a matrix file means beyond its shape: names, paths and measuring values that must fit together.

Every check reads the raw document with what is malformed taken out, so each key may be absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from os.path import expanduser, normpath
from pathlib import Path
from typing import Any

from kernel_matrix.bundled import BUNDLED_PROBLEMS
from kernel_matrix.matrix import Protocol
from kernel_matrix.matrix.complaints import MatrixFault, quote, suggestion
from kernel_matrix.matrix.globs import is_plain, one_or_many
from kernel_matrix.matrix.tiers import PUBLISH_SESSIONS, read_protocol, with_protocol
from kernel_matrix.matrix.toml_lines import KeyPath
from kernel_matrix.model.enums import Tier

Table = Mapping[str, Any]

_OF_FILES = frozenset({"kernelbenchx", "flashinfer", "table"})
"""Sources that may be named a single file."""


def tables(document: Table, key: str) -> list[tuple[int, Table]]:
    """The readable elements of the array of tables ``key``, with their index."""
    return [(index, item) for index, item in enumerate(document.get(key, ())) if item is not None]


def meaning_complaints(document: Table, malformed: Collection[KeyPath], root: Path) -> Iterator[MatrixFault]:
    """Every fault of axes, selections and measuring values.

    :param malformed: paths of tables with a malformed key; what they mean is unknown, so they are not compared.
    :param root: the folder that relative paths start from.
    """
    for key in ("gpus", "toolchains"):
        yield from _repeated_names(document, key)
    yield from _conditions_of_a_cpu(document)
    for key in ("gpus", "problems", "candidates"):
        yield from _repeated_tables(
            key, [(i, table) for i, table in tables(document, key) if (key, i) not in malformed]
        )
    yield from _problems_without_a_path(document)
    for key in ("problems", "candidates"):
        yield from _missing_folders(document, key, root)
    yield from _overrides_without_effect(document)
    yield from _protocols(document)


def resolve(root: Path, written: str) -> Path:
    """The absolute path of what is written in the file; ``~`` is the home folder."""
    return Path(normpath(root / expanduser(written)))  # noqa: PTH111  # Path.expanduser raises for unknown users


def _repeated_names(document: Table, key: str) -> Iterator[MatrixFault]:
    first: dict[str, int] = {}
    for index, table in tables(document, key):
        name = table.get("name")
        if name is None:
            continue
        if name in first:
            yield MatrixFault((key, index, "name"), f"{name!r} is also the name of {key}[{first[name]}]; rename one")
        first.setdefault(name, index)


def _conditions_of_a_cpu(document: Table) -> Iterator[MatrixFault]:
    for index, gpu in tables(document, "gpus"):
        if gpu.get("vendor") == "cpu":
            for key in gpu.keys() - {"name", "vendor"}:
                yield MatrixFault(("gpus", index, key), "a device of vendor 'cpu' has no such condition; take it out")


def _repeated_tables(key: str, found: Sequence[tuple[int, Table]]) -> Iterator[MatrixFault]:
    for (first, one), (second, other) in combinations(found, 2):
        if _nameless(one) == _nameless(other):
            yield MatrixFault((key, second), f"says the same as {key}[{first}]; take one out")


def _nameless(table: Table) -> Table:
    return {key: value for key, value in table.items() if key != "name"}


def _problems_without_a_path(document: Table) -> Iterator[MatrixFault]:
    for index, table in tables(document, "problems"):
        if "path" not in table and table.get("source", "aten") not in BUNDLED_PROBLEMS:
            at_home = ", ".join(sorted(BUNDLED_PROBLEMS))
            text = f"source {quote(table['source'])} needs a path; only {at_home} bring problems of their own"
            yield MatrixFault(("problems", index, "path"), text)


def _missing_folders(document: Table, key: str, root: Path) -> Iterator[MatrixFault]:
    for index, table in tables(document, key):
        if "path" in table:
            fault = _folder_fault(resolve(root, table["path"]), of_files=table.get("source") in _OF_FILES)
            if fault:
                yield MatrixFault((key, index, "path"), f"{quote(table['path'])} {fault}")


def _folder_fault(folder: Path, *, of_files: bool) -> str:
    try:
        if folder.is_dir() or (of_files and folder.is_file()):
            return ""
        if folder.exists():
            return f"is not a folder; looked at {folder}"
        close = suggestion(folder.name, _folders_in(folder.parent))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return f"does not exist; looked for {folder}{close}"


def _folders_in(parent: Path) -> Sequence[str]:
    return sorted(path.name for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else ()


def _overrides_without_effect(document: Table) -> Iterator[MatrixFault]:
    for index, rule in tables(document, "override"):
        if not any(rule.get(key) for key in ("protocol", "policy", "workloads")):
            yield MatrixFault(("override", index), "changes nothing; give it protocol, policy or workloads")
        if "build_workers" in rule.get("policy", {}):
            text = "holds for the whole run, not for some cells; set it in [policy]"
            yield MatrixFault(("override", index, "policy", "build_workers"), text)


def _protocols(document: Table) -> Iterator[MatrixFault]:
    """Values that do not fit together, in ``[protocol]``, in each override, and in any two overrides of one cell.

    Two are enough: every rule below is about two values, each of which comes from one table.
    """
    base = with_protocol(Protocol(), _readable(document.get("protocol", {})))
    faults = dict(_protocol_faults(base))
    yield from (MatrixFault(("protocol", key), text) for key, text in faults.items())
    if faults:
        return
    changes = [(i, rule, _readable(rule.get("protocol", {}))) for i, rule in tables(document, "override")]
    alone = set()
    for index, _, values in changes:
        for key, text in _protocol_faults(with_protocol(base, values)):
            alone.add(index)
            yield MatrixFault(("override", index, "protocol", key), text)
    for (i, one, first), (j, other, second) in combinations(changes, 2):
        if alone.isdisjoint((i, j)) and _may_meet(one, other):
            for key, text in _protocol_faults(with_protocol(with_protocol(base, first), second)):
                yield MatrixFault(("override", j, "protocol", key), f"{text} (override[{i}] holds for the same cells)")


def _readable(table: Table) -> dict[str, Any]:
    # A list may have malformed elements.
    return read_protocol({key: value for key, value in table.items() if not isinstance(value, list)})


def _protocol_faults(protocol: Protocol) -> Iterator[tuple[str, str]]:
    spec = protocol.spec
    if protocol.tier is Tier.PUBLISH and protocol.sessions < PUBLISH_SESSIONS:
        text = f"{protocol.sessions} is too few for tier 'publish'; must be at least {PUBLISH_SESSIONS}"
        yield "sessions", f"{text}, or take tier 'screen'"
    if protocol.max_sessions < protocol.sessions:
        yield "max_sessions", f"{protocol.max_sessions} is less than sessions, which is {protocol.sessions}"
    if spec.min_samples > spec.max_samples:
        yield "min_samples", f"{spec.min_samples} is more than max_samples, which is {spec.max_samples}"


def _may_meet(one: Table, other: Table) -> bool:
    """Whether some cell could match both rules; different plain names on one axis cannot meet."""
    first, second = one.get("match", {}), other.get("match", {})
    return all(_share(first[key], second[key]) for key in first.keys() & second.keys())


def _share(one: str | list[str], other: str | list[str]) -> bool:
    first, second = set(one_or_many(one)) - {None}, set(one_or_many(other)) - {None}
    return bool(first & second) or not all(map(is_plain, first | second))
