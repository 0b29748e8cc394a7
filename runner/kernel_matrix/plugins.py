"""Registries of what comes with this program, and of what other installed packages add to it.

A package adds something by an entry point in the group of its registry::

    [project.entry-points."kernel_matrix.sources"]
    acme = "acme_matrix.source"

An entry point that cannot be used is one line of :meth:`Registry.faults`, which ``kernel-matrix doctor`` prints;
everything else works without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from kernel_matrix.errors import PluginError

T = TypeVar("T")


class Registry(Generic[T]):
    """Everything of one kind, by name: first what is built in, then what other packages add, in order of their names.

    Args:
        kind: One word or two for messages, such as ``sandbox``.
        group: Group of the entry points.
        built_in: Name → ``module``, ``module:attribute``, or the object itself.
        members: Attributes that each must have.
        loader: Makes the object of an entry point; it may raise any exception.
        name_member: Attribute that must equal the name under which it is registered; empty for none.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        built_in: Mapping[str, Any],
        *,
        members: Sequence[str] = (),
        name_member: str = "",
        loader: Callable[[EntryPoint], T] = EntryPoint.load,
    ) -> None:
        self.kind = kind
        self.group = group
        self.built_in = dict(built_in)
        self._members = tuple(members)
        self._name_member = name_member
        self._loader = loader
        self._loaded: dict[str, T | PluginError] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def names(self) -> tuple[str, ...]:
        """Return every name; nothing is imported."""
        return (*self.built_in, *self._plugins())

    def load(self, name: str) -> T:
        """Import and check what is registered as ``name``.

        Raises:
            PluginError: Nothing is, it cannot be imported, or it lacks a member.
        """
        if name not in self._loaded:
            if name not in self:
                what = f"unknown {self.kind} {name!r}"
                raise PluginError(what, next_step=f"use one of {', '.join(self)}, or install the package that adds it")
            try:
                self._loaded[name] = self._import(name)
            except PluginError as error:
                self._loaded[name] = error
        found = self._loaded[name]
        if isinstance(found, PluginError):
            raise found
        return found

    def usable(self) -> dict[str, T]:
        """Return all that can be used, by name; :meth:`faults` has the others."""
        found = {}
        for name in self:
            try:
                found[name] = self.load(name)
            except PluginError:  # noqa: PERF203  # one broken plugin must not take the others with it
                continue
        return found

    def faults(self) -> tuple[str, ...]:
        """Return one line for each entry point that cannot be used."""
        lines = [
            f"{self.kind} {entry.name!r} of {entry.value} is ignored: that name is taken by {self._owner(entry.name)}"
            for entry in _entries(self.group)
            if self._owner(entry.name) != entry.value
        ]
        for name in self._plugins():
            try:
                self.load(name)
            except PluginError as error:  # noqa: PERF203  # as above
                lines.append(error.what)
        return tuple(lines)

    def _plugins(self) -> dict[str, EntryPoint]:
        """Return the entry points that count: the first of each name that is not built in."""
        found: dict[str, EntryPoint] = {}
        for entry in _entries(self.group):
            if entry.name not in self.built_in:
                found.setdefault(entry.name, entry)
        return found

    def _owner(self, name: str) -> str:
        return "kernel-matrix itself" if name in self.built_in else self._plugins()[name].value

    def _import(self, name: str) -> T:
        place = self.built_in.get(name) or self._plugins()[name]
        if isinstance(place, str):
            place = EntryPoint(name, place, self.group)
        if not isinstance(place, EntryPoint):
            found: T = place
            return found
        title = f"{self.kind} {name!r} ({place.value})"
        try:
            found = self._loader(place)
        except Exception as error:
            reason = error.what if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"
            raise PluginError(
                f"{title} cannot be loaded: {reason}",
                next_step="repair or uninstall the package that adds it; everything else works without it",
            ) from error
        missing = [member for member in self._members if not hasattr(found, member)]
        if missing:
            raise PluginError(
                f"{title} lacks {', '.join(missing)}",
                next_step="update the package that adds it to this version of kernel-matrix",
            )
        if self._name_member and getattr(found, self._name_member) != name:
            raise PluginError(
                f"{title} calls itself {getattr(found, self._name_member)!r}",
                next_step="give the entry point the name that the object has",
            )
        return found


@cache
def _entries(group: str) -> tuple[EntryPoint, ...]:
    return tuple(sorted(_all_entries().select(group=group), key=lambda entry: (entry.name, entry.value)))


@cache
def _all_entries() -> Any:
    """Read the metadata of all installed packages, which takes tens of milliseconds where there are many."""
    return entry_points()
