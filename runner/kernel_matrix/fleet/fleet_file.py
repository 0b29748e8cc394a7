"""Load ``fleet.toml`` as a :class:`~kernel_matrix.fleet.Fleet`, or report all of its faults at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_matrix.config_files.config_text import read_config, resolve
from kernel_matrix.config_files.faults import ConfigFault, quote, unknown_word
from kernel_matrix.config_files.shape import check_shape, remove_faulty
from kernel_matrix.fleet import Fleet, Site

OptionCheck = Callable[[Mapping[str, Any]], Iterable[ConfigFault]]
"""Yields the faults of a site's table ``options``; paths begin in that table."""


def load_fleet(path: Path, engines: Mapping[str, OptionCheck], sandboxes: Iterable[str]) -> Fleet:
    """Read and check a fleet file; ``-`` is standard input.

    Args:
        path: The file.
        engines: Name → check of a site's options.
        sandboxes: Names of sandboxes that may be there.

    Raises:
        kernel_matrix.errors.ConfigError: with one line per fault, ``file:line:column key: fault; allowed values``.
    """
    text = read_config(
        path,
        kind="a fleet",
        next_step="kernel-matrix docs fleet lists every key",
        if_missing="kernel-matrix init --example fleet writes one",
    )
    document, root = text.parse(), path.resolve().parent
    try:
        found = check_shape(document, "fleet")
        rest = remove_faulty(document, found)
        faults = [*found, *_check_sites(rest, root, engines, tuple(sandboxes))]
    except RecursionError:
        raise text.nested_too_deeply() from None
    if faults:
        raise text.error(faults)
    return Fleet(path=path.resolve(), sites=tuple(_site(table, root) for table in document["sites"]))


def _check_sites(
    document: Mapping[str, Any], root: Path, engines: Mapping[str, OptionCheck], sandboxes: tuple[str, ...]
) -> Iterator[ConfigFault]:
    names: dict[str, int] = {}
    workspaces: dict[Path, int] = {}
    for number, table in enumerate(document.get("sites", ())):
        if not isinstance(table, Mapping):
            continue
        place = ("sites", number)
        name, engine, sandbox, workspace = (table.get(key) for key in ("name", "engine", "sandbox", "workspace"))
        if name is not None and names.setdefault(name, number) != number:
            yield ConfigFault((*place, "name"), f"{quote(name)} is also the name of site {names[name]}")
        if workspace is not None and (first := workspaces.setdefault(resolve(root, workspace), number)) != number:
            text = f"{quote(workspace)} is also the workspace of site {first}; each needs a folder of its own"
            yield ConfigFault((*place, "workspace"), text)
        if sandbox is not None and sandbox not in sandboxes:
            yield ConfigFault((*place, "sandbox"), unknown_word(sandbox, sandboxes))
        if engine is None:
            continue
        if engine not in engines:
            yield ConfigFault((*place, "engine"), unknown_word(engine, tuple(engines)))
            continue
        for fault in engines[engine](table.get("options", {})):
            yield ConfigFault((*place, "options", *fault.path), fault.text)


def _site(table: Mapping[str, Any], root: Path) -> Site:
    values: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in table.items()}
    return Site(**{**values, "workspace": resolve(root, table["workspace"])})
