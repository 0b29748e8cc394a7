"""Load ``fleet.toml`` as a :class:`~kernel_matrix.fleet.Fleet`, or report all of its faults at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_matrix.config_files.config_text import read_config
from kernel_matrix.config_files.faults import ConfigFault, listed, quote
from kernel_matrix.config_files.shape import check_shape, remove_faulty
from kernel_matrix.errors import suggestion
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
    document = text.parse()
    try:
        found = check_shape(document, "fleet")
        rest = remove_faulty(document, found)
        faults = [*found, *_check_sites(rest, engines, tuple(sandboxes))]
    except RecursionError:
        raise text.nested_too_deeply() from None
    if faults:
        raise text.error(faults)
    root = path.resolve().parent
    return Fleet(path=path.resolve(), sites=tuple(_site(table, root) for table in document["sites"]))


def _check_sites(
    document: Mapping[str, Any], engines: Mapping[str, OptionCheck], sandboxes: tuple[str, ...]
) -> Iterator[ConfigFault]:
    names: dict[str, int] = {}
    workspaces: dict[str, int] = {}
    for number, table in enumerate(document.get("sites", ())):
        if not isinstance(table, Mapping):
            continue
        place = ("sites", number)
        name, engine, sandbox, workspace = (table.get(key) for key in ("name", "engine", "sandbox", "workspace"))
        if name is not None and names.setdefault(name, number) != number:
            yield ConfigFault((*place, "name"), f"{quote(name)} is also the name of site {names[name]}")
        if workspace is not None and workspaces.setdefault(os.path.normpath(workspace), number) != number:
            text = f"{quote(workspace)} is also the workspace of site {workspaces[os.path.normpath(workspace)]}"
            yield ConfigFault((*place, "workspace"), f"{text}; each needs a folder of its own")
        if sandbox is not None and sandbox not in sandboxes:
            yield ConfigFault((*place, "sandbox"), _unknown(sandbox, sandboxes))
        if engine is None:
            continue
        if engine not in engines:
            yield ConfigFault((*place, "engine"), _unknown(engine, tuple(engines)))
            continue
        for fault in engines[engine](table.get("options", {})):
            yield ConfigFault((*place, "options", *fault.path), fault.text)


def _unknown(word: str, allowed: tuple[str, ...]) -> str:
    return f"{quote(word)} is not known; allowed: {listed(allowed)}{suggestion(word, list(allowed))}"


def _site(table: Mapping[str, Any], root: Path) -> Site:
    values: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in table.items()}
    return Site(**{**values, "workspace": root / Path(table["workspace"]).expanduser()})
