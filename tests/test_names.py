"""One name has one meaning: public classes, modules and the words of the glossary."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

import kernel_matrix

PACKAGE = Path(kernel_matrix.__file__).parent
GLOSSARY = Path(__file__).parents[1] / "docs" / "glossary.md"

REQUIRED_CLASSES = {"Model", "ModelNew"}
"""Names that KernelBench's form prescribes; every adapter of a source defines them."""

ONE_PROTOCOL = ("cli", "hosts/doctor", "sources", "platforms/cuda", "platforms/rocm")
"""Folders in which each module implements one protocol, so that its name may be that of another module: ``register`` of
a verb, ``check`` of the doctor, readers and adapters of formats, members of a platform."""

MOST_WORDS = 60


def duplicates(named: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in named.items() if len(places) > 1}


def test_public_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in REQUIRED_CLASSES:
                places[node.name].append(str(path.relative_to(PACKAGE)))
    assert duplicates(places) == {}


def test_module_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if path.stem not in ("__init__", "__main__") and not place.startswith(tuple(f"{one}/" for one in ONE_PROTOCOL)):
            places[path.stem].append(place)
    assert duplicates(places) == {}


def glossary() -> list[tuple[str, str]]:
    """Each word with the name that stands for it in the code."""
    rows = re.findall(r"^\| ([^|]+) \|.*\| `([\w.]+)` \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows
    return rows


def test_glossary_has_each_word_once() -> None:
    words = [word for word, _ in glossary()]
    assert len(words) == len(set(words)) <= MOST_WORDS
    lines = [line for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(lines) == len(words) + 2, "a line of the table has another form"


@pytest.mark.torch
def test_glossary_names_exist() -> None:
    assert [name for _, name in glossary() if not exists(f"kernel_matrix.{name}")] == []


def exists(name: str) -> bool:
    """Return whether ``name`` is a module of the package or an attribute of one."""
    place = PACKAGE.parent / name.replace(".", "/")
    if place.with_suffix(".py").is_file() or (place / "__init__.py").is_file():
        return True
    module, _, attribute = name.rpartition(".")
    return hasattr(import_module(module), attribute)
