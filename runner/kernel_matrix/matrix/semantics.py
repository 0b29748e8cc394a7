"""Checks of a matrix file beyond its shape: names, paths and protocol values that must fit together.

The checks read the raw document without its malformed values, so any key may be absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from kernel_matrix.bundled import BUNDLED_PROBLEMS
from kernel_matrix.config_files.config_text import resolve
from kernel_matrix.config_files.faults import ConfigFault, quote, unknown_word
from kernel_matrix.errors import suggestion
from kernel_matrix.matrix import TOOLKITS, VERSION_KEYS, Protocol
from kernel_matrix.matrix.globs import is_plain, one_or_many
from kernel_matrix.matrix.tiers import PUBLISH_SESSIONS, read_protocol, with_protocol
from kernel_matrix.model.enums import Tier
from kernel_matrix.platforms.registry import DEFAULT, PLATFORMS, platform_name, platforms
from kernel_matrix.sources import CANDIDATE_SOURCES, SOURCES
from kernel_matrix.toml_text import KeyPath

Table = Mapping[str, Any]

_SINGLE_FILE_SOURCES = frozenset({"kernelbenchx", "flashinfer", "table"})
"""Built-in sources whose path may be a single file; that of a source of another package always may."""


def tables(document: Table, key: str) -> list[tuple[int, Table]]:
    """Return the well-formed elements of the array of tables ``key``, with their index."""
    return [(index, item) for index, item in enumerate(document.get(key, ())) if item is not None]


_OF_EVERY_IMAGE = {"torch": "PyTorch", "triton": "Triton"}


def check_semantics(document: Table, malformed: Collection[KeyPath], root: Path) -> Iterator[ConfigFault]:
    """Yield every fault of axes, selections and protocol values.

    Args:
        document: the parsed file without its malformed values.
        malformed: paths of tables with a malformed key, which are not compared with others.
        root: folder that relative paths start from.
    """
    for key in ("gpus", "toolchains"):
        yield from _find_repeated_names(document, key)
    yield from _platforms(document)
    yield from _extensions(document)
    yield from _conditions_of_a_cpu(document)
    yield from _links(document)
    yield from _versions(document, malformed)
    for key in ("gpus", "problems", "candidates"):
        yield from _find_repeated_tables(
            key, [(i, table) for i, table in tables(document, key) if (key, i) not in malformed]
        )
    yield from _find_missing_paths(document)
    for key in ("problems", "candidates"):
        yield from _find_missing_folders(document, key, root)
    yield from _find_idle_overrides(document)
    yield from _check_protocols(document)


def _find_repeated_names(document: Table, key: str) -> Iterator[ConfigFault]:
    first: dict[str, int] = {}
    for index, table in tables(document, key):
        name = table.get("name")
        if name is None:
            continue
        if name in first:
            yield ConfigFault((key, index, "name"), f"{name!r} is also the name of {key}[{first[name]}]; rename one")
        first.setdefault(name, index)


def platform_of(table: Table) -> str:
    """Return the registry key of the platform that a table of ``gpus`` or ``toolchains`` names or leaves out."""
    return platform_name(table.get("platform", table.get("vendor", DEFAULT)))


def _platforms(document: Table) -> Iterator[ConfigFault]:
    for key in ("gpus", "toolchains"):
        for index, table in tables(document, key):
            for name in {"platform", "vendor"} & table.keys():
                vendors = [platform.VENDOR for name, platform in platforms().items() if name != platform.VENDOR]
                yield from _unknown_word((key, index, name), table[name], [*PLATFORMS, *vendors])
            if {"platform", "vendor"} <= table.keys():
                yield ConfigFault((key, index, "vendor"), "is another word for platform; take one out")


def _versions(document: Table, malformed: Collection[KeyPath]) -> Iterator[ConfigFault]:
    """Yield versions that the toolchain of an image lacks, and those that an environment decides by itself."""
    for index, table in tables(document, "toolchains"):
        path: KeyPath = ("toolchains", index)
        if "environment" in table:
            decided = [key for key in VERSION_KEYS if key in table]
            yield from (ConfigFault((*path, key), "the environment decides it; take it out") for key in decided)
        elif path not in malformed:
            for other in [key for key in TOOLKITS if key in table][1:]:
                yield ConfigFault((*path, other), "an image has one toolkit, and another is given; take one out")
            titles = {key: title for key, title in _OF_EVERY_IMAGE.items() if key not in table}
            yield from (ConfigFault((*path, key), f"missing; version of {titles[key]} in the image") for key in titles)


def _extensions(document: Table) -> Iterator[ConfigFault]:
    """Yield sources and rules that neither this program nor an installed package has."""
    for key, registry in (("problems", SOURCES), ("candidates", CANDIDATE_SOURCES)):
        for index, table in tables(document, key):
            if "source" in table:
                yield from _unknown_word((key, index, "source"), table["source"], tuple(registry))
    policies: list[tuple[KeyPath, Table]] = [(("policy",), document.get("policy", {}))]
    policies += [(("override", i, "policy"), rule.get("policy", {})) for i, rule in tables(document, "override")]
    for path, policy in policies:
        for index, word in enumerate(policy.get("reject_findings", ())):
            if word is not None:
                yield from _unknown_word((*path, "reject_findings", index), word, tuple(_rules()))


def _rules() -> Iterable[str]:
    from kernel_matrix.scan import RULES  # noqa: PLC0415  # loads every rule, which few matrices need

    return RULES


def _unknown_word(path: KeyPath, text: str, known: Sequence[str]) -> Iterator[ConfigFault]:
    if text not in known:
        yield ConfigFault(path, unknown_word(text, known))


def _conditions_of_a_cpu(document: Table) -> Iterator[ConfigFault]:
    for index, gpu in tables(document, "gpus"):
        platform = platforms().get(platform_of(gpu))
        if platform is not None and not platform.IS_ACCELERATOR:
            for key in gpu.keys() - {"name", "platform", "vendor"}:
                yield ConfigFault(("gpus", index, key), f"a {platform.TITLE} has no such condition; take it out")


def _links(document: Table) -> Iterator[ConfigFault]:
    for index, gpu in tables(document, "gpus"):
        platform = platforms().get(platform_of(gpu))
        if platform is not None and platform.IS_ACCELERATOR and "link" in gpu:
            yield from _unknown_word(("gpus", index, "link"), gpu["link"], platform.LINK_KINDS)


def _find_repeated_tables(key: str, found: Sequence[tuple[int, Table]]) -> Iterator[ConfigFault]:
    for (first, one), (second, other) in combinations(found, 2):
        if _without_name(one) == _without_name(other):
            yield ConfigFault((key, second), f"repeats {key}[{first}]; remove one")


def _without_name(table: Table) -> Table:
    return {key: value for key, value in table.items() if key != "name"}


def _find_missing_paths(document: Table) -> Iterator[ConfigFault]:
    for index, table in tables(document, "problems"):
        if "path" not in table and table.get("source", "aten") not in BUNDLED_PROBLEMS:
            bundled = ", ".join(sorted(BUNDLED_PROBLEMS))
            text = f"source {quote(table['source'])} needs a path; only {bundled} have bundled problems"
            yield ConfigFault(("problems", index, "path"), text)


def _find_missing_folders(document: Table, key: str, root: Path) -> Iterator[ConfigFault]:
    for index, table in tables(document, key):
        if "path" in table:
            source = table.get("source", "folder")
            of_files = source in _SINGLE_FILE_SOURCES or source not in SOURCES.built_in
            fault = _check_folder(resolve(root, table["path"]), of_files=of_files)
            if fault:
                yield ConfigFault((key, index, "path"), f"{quote(table['path'])} {fault}")


def _check_folder(folder: Path, *, of_files: bool) -> str:
    try:
        if folder.is_dir() or (of_files and folder.is_file()):
            return ""
        if folder.exists():
            return f"is not a folder; looked at {folder}"
        close = suggestion(folder.name, _list_folders(folder.parent))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return f"does not exist; looked for {folder}{close}"


def _list_folders(parent: Path) -> Sequence[str]:
    return sorted(path.name for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else ()


def _find_idle_overrides(document: Table) -> Iterator[ConfigFault]:
    for index, rule in tables(document, "override"):
        if not any(rule.get(key) for key in ("protocol", "policy", "workloads")):
            yield ConfigFault(("override", index), "changes nothing; give it protocol, policy or workloads")
        if "build_workers" in rule.get("policy", {}):
            text = "applies to the whole run, not to some cells; set it in [policy]"
            yield ConfigFault(("override", index, "policy", "build_workers"), text)


def _check_protocols(document: Table) -> Iterator[ConfigFault]:
    """Yield values that do not fit together in ``[protocol]``, in an override, or in two overrides of one cell.

    Combinations of three need no check: every rule is about two values, and each value comes from one table.
    """
    base = with_protocol(Protocol(), _read_scalars(document.get("protocol", {})))
    faults = dict(_check_protocol(base))
    yield from (ConfigFault(("protocol", key), text) for key, text in faults.items())
    if faults:
        return
    changes = [(i, rule, _read_scalars(rule.get("protocol", {}))) for i, rule in tables(document, "override")]
    alone = set()
    for index, _, values in changes:
        for key, text in _check_protocol(with_protocol(base, values)):
            alone.add(index)
            yield ConfigFault(("override", index, "protocol", key), text)
    for (i, one, first), (j, other, second) in combinations(changes, 2):
        if alone.isdisjoint((i, j)) and _may_overlap(one, other):
            for key, text in _check_protocol(with_protocol(with_protocol(base, first), second)):
                yield ConfigFault(("override", j, "protocol", key), f"{text} (override[{i}] matches the same cells)")


def _read_scalars(table: Table) -> dict[str, Any]:
    # Lists may have malformed elements, and no rule reads one.
    return read_protocol({key: value for key, value in table.items() if not isinstance(value, list)})


def _check_protocol(protocol: Protocol) -> Iterator[tuple[str, str]]:
    spec = protocol.spec
    if protocol.tier is Tier.PUBLISH and protocol.sessions < PUBLISH_SESSIONS:
        text = f"{protocol.sessions} is too few for tier 'publish'; must be at least {PUBLISH_SESSIONS}"
        yield "sessions", f"{text}, or use tier 'screen'"
    if protocol.max_sessions < protocol.sessions:
        yield "max_sessions", f"{protocol.max_sessions} is less than sessions, which is {protocol.sessions}"
    if spec.time is (protocol.tier is Tier.VALUES):
        yield "time", f"must be {str(not spec.time).lower()} for tier {protocol.tier.value!r}"
    if spec.min_samples > spec.max_samples:
        yield "min_samples", f"{spec.min_samples} is more than max_samples, which is {spec.max_samples}"


def _may_overlap(one: Table, other: Table) -> bool:
    """Return False only if no cell can match both rules: they have different plain names on one axis."""
    first, second = one.get("match", {}), other.get("match", {})
    return all(_globs_may_overlap(first[key], second[key]) for key in first.keys() & second.keys())


def _globs_may_overlap(one: str | list[str], other: str | list[str]) -> bool:
    first, second = set(one_or_many(one)) - {None}, set(one_or_many(other)) - {None}
    return bool(first & second) or not all(map(is_plain, first | second))
