"""Only a platform's own package names its vendor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import kernel_matrix

PACKAGE = Path(kernel_matrix.__file__).parent
VENDOR = re.compile(r"cuda|nvml|nvidia|cupti|\bsm_\d", re.IGNORECASE)

READS_CANDIDATES = "reads or adapts sources that are written in CUDA, or results of programs that measure them"
A_LANGUAGE = "CUDA C++ as a candidate's language"
A_RECORDED_FIELD = "the name of a field of records, which stay as they are"
TORCH_OWN_NAME = "an interface that torch has under this name on every kind of GPU"

EXCEPTIONS = {
    "scan/": READS_CANDIDATES,
    "sources/": READS_CANDIDATES,
    "inside/native_extension.py": READS_CANDIDATES,
    "inside/exception_kinds.py": READS_CANDIDATES,
    "attempt/contestants.py": A_LANGUAGE,
    "attempt/role_specs.py": A_LANGUAGE,
    "model/enums.py": A_LANGUAGE,
    "plan/cost.py": A_LANGUAGE,
    "analysis/": A_RECORDED_FIELD,
    "report/": A_RECORDED_FIELD,
    "results/": A_RECORDED_FIELD,
    "model/messages.py": A_RECORDED_FIELD,
    "platforms/__init__.py": A_RECORDED_FIELD,
    "inside/environment.py": A_RECORDED_FIELD,
    "inside/peak_measurement.py": A_RECORDED_FIELD,
    "inside/input_generation.py": TORCH_OWN_NAME,
    "matrix/__init__.py": "the version of a toolchain that matrix files give under this name",
    "plan/cell_id.py": "the same version in the ids of cells",
    "platforms/registry.py": "the registry",
    "platforms/data_sheets.py": "the data sheets' words for products",
    "cli/data_sheet_tables.py": "the data sheets' words for products",
}
"""File or folder below the package → why it may name the vendor."""


def test_only_its_platform_and_the_exceptions_name_a_vendor():
    assert {path: words for path, words in naming_a_vendor().items() if exception_of(path) is None} == {}


def test_every_exception_is_needed():
    assert set(EXCEPTIONS) == {exception_of(path) for path in naming_a_vendor()} - {None}


@cache
def naming_a_vendor() -> dict[str, list[str]]:
    """Module outside the vendor's platform → the words with which it names the vendor, where it does."""
    found = (path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py")))
    outside = [path for path in found if not path.startswith("platforms/cuda/")]
    return {path: words for path in outside if (words := sorted(set(vendor_words(path))))}


def exception_of(path: str) -> str | None:
    return next((name for name in EXCEPTIONS if path == name or (name.endswith("/") and path.startswith(name))), None)


def vendor_words(path: str) -> Iterator[str]:
    """Names and texts of a module that name the vendor; comments and docstrings do not count."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) not in told:
            yield from filter(VENDOR.search, texts_of(node))


def texts_of(node: ast.AST) -> Iterator[str]:
    for field in ("id", "attr", "name", "arg", "module", "value"):
        text = getattr(node, field, None)
        if isinstance(text, str):
            yield text
