"""Checks of include, exclude and override rules: they must match cells that exist and must not contradict."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from kernel_matrix.config_files.faults import ConfigFault, listed, quote
from kernel_matrix.errors import suggestion
from kernel_matrix.matrix.globs import is_within, matches, one_or_many
from kernel_matrix.matrix.semantics import Table, tables
from kernel_matrix.model.enums import Language
from kernel_matrix.toml_text import KeyPath

_MATCH_KEYS = ("gpu", "toolchain", "dtype", "problem", "candidate", "language", "category")

Names = Mapping[str, Sequence[str]]
"""Match key → all of its values. Lacks ``problem``, ``candidate`` and ``category``, which are not read yet."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One ``[[include]]``, ``[[exclude]]`` or ``[[override]]``."""

    path: KeyPath
    table: Table

    @property
    def kind(self) -> str:
        return str(self.path[0])

    @property
    def title(self) -> str:
        return f"{self.path[0]}[{self.path[1]}]"

    @property
    def match_path(self) -> KeyPath:
        return (*self.path, "match") if self.kind == "override" else self.path

    @property
    def match(self) -> Table:
        """Table with the globs: the rule itself, or ``match`` in an override."""
        inner: Table = self.table.get("match", {}) if self.kind == "override" else self.table
        return inner

    def globs(self, key: str) -> tuple[str, ...]:
        """Return the globs for one axis; none stand for everything."""
        return one_or_many(self.match[key]) if key in self.match else ()

    def effect(self) -> dict[str, Any]:
        """Return the effect of the rule, independent of its reason and of the order of its globs."""
        rest = {key: value for key, value in self.table.items() if key not in ("reason", "match", *_MATCH_KEYS)}
        return rest | {"match": {key: frozenset(self.globs(key)) for key in _MATCH_KEYS}}


def check_rules(document: Table, malformed: Collection[KeyPath]) -> Iterator[ConfigFault]:
    """Yield every fault of the rules.

    Args:
        document: the parsed file without its malformed values.
        malformed: paths of rules with a malformed key. It is unknown which cells those match, so they are not compared.
    """
    names = _collect_names(document)
    kinds = ("include", "exclude", "override")
    rules = [_Rule((kind, index), table) for kind in kinds for index, table in tables(document, kind)]
    for rule in rules:
        yield from _find_unknown_names(rule, names)
    whole = [rule for rule in rules if rule.path not in malformed]
    yield from _find_repeated_rules(whole)
    yield from _find_wrong_excludes(whole, names)


def _collect_names(document: Table) -> Names:
    """Return the values of each axis, without axes whose values are not all known because some are malformed."""
    dtypes = [*document.get("dtypes", ())]
    if dtypes:
        dtypes += [name for _, rule in tables(document, "include") for name in rule.get("dtypes", ())]
    found = {
        "gpu": _names(document, "gpus"),
        "toolchain": _names(document, "toolchains"),
        "dtype": dtypes,
        "language": [language.value for language in Language],
    }
    return {key: tuple(dict.fromkeys(names)) for key, names in found.items() if names and None not in names}


def _names(document: Table, key: str) -> list[str | None]:
    return [None if table is None else table.get("name") for table in document.get(key, ())]


def _find_unknown_names(rule: _Rule, names: Names) -> Iterator[ConfigFault]:
    for key in rule.match.keys() & names.keys():
        written = rule.match[key]
        for index, glob in enumerate(one_or_many(written)):
            if glob is None or any(matches(name, (glob,)) for name in names[key]):
                continue
            path = (*rule.match_path, key, index) if isinstance(written, list) else (*rule.match_path, key)
            text = f"{quote(glob)} matches no {key}; there are: {listed(names[key])}"
            yield ConfigFault(path, f"{text}{suggestion(glob, names[key])}")


def _find_repeated_rules(rules: Sequence[_Rule]) -> Iterator[ConfigFault]:
    for one, other in combinations(rules, 2):
        if one.kind == other.kind and one.effect() == other.effect():
            yield ConfigFault(other.path, f"repeats {one.title}; remove one")


def _find_wrong_excludes(rules: Sequence[_Rule], names: Names) -> Iterator[ConfigFault]:
    includes = [rule for rule in rules if rule.kind == "include"]
    for rule in rules:
        if rule.kind != "exclude":
            continue
        if all(_is_subset((), rule.globs(key), names.get(key)) for key in _MATCH_KEYS):
            yield ConfigFault(rule.path, f"excludes every cell; narrow it with {listed(_MATCH_KEYS)}")
            continue
        for include in includes:
            if _contradicts(rule, include, names):
                text = f"contradicts {include.title}, which runs every cell that this rule excludes; remove one"
                yield ConfigFault(rule.path, text)


def _contradicts(exclude: _Rule, include: _Rule, names: Names) -> bool:
    """Return True if ``include`` has every cell of ``exclude``; an exclude that has further cells is valid."""
    included = {key: include.globs(key) for key in _MATCH_KEYS} | {"dtype": tuple(include.table["dtypes"])}
    return all(_is_subset(exclude.globs(key), included[key], names.get(key)) for key in _MATCH_KEYS)


def _is_subset(globs: Sequence[str], wider: Sequence[str], names: Sequence[str] | None) -> bool:
    """Return True if ``globs`` match something and ``wider`` all of it; without known names, compare the globs."""
    if names is None:
        return is_within(globs, wider)
    matched = [name for name in names if matches(name, globs)]
    return bool(matched) and all(matches(name, wider) for name in matched)
