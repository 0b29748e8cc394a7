"""``import kernel_matrix``: what it loads and what it offers."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_matrix

PACKAGE = Path(kernel_matrix.__file__).parent
HEAVY = ("torch", "triton", "polars", "docker", "numpy", "scipy", "typer", "rich", "jsonschema", "kernel_matrix.api")


def modules_after(statement: str) -> set[str]:
    """Names of all modules that are loaded after ``statement`` in a new process."""
    program = f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run((sys.executable, "-c", program), check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


def test_import_loads_nothing_heavy():
    assert modules_after("import kernel_matrix").isdisjoint(HEAVY)


def test_help_loads_neither_polars_nor_docker_nor_api_modules():
    loaded = modules_after("from kernel_matrix.cli import build_app; build_app()")
    assert loaded.isdisjoint({"torch", "polars", "docker", "rich.progress", "kernel_matrix.api.run_cells"})


def test_no_api_module_but_the_ones_that_need_it_loads_polars():
    assert "polars" not in modules_after("import kernel_matrix.api.plan")


def test_all_lists_the_names_that_can_be_imported():
    assert sorted(kernel_matrix.__all__) == sorted([*kernel_matrix._MODULE_OF, "__version__"])
    assert dir(kernel_matrix) == sorted(kernel_matrix.__all__)


@pytest.mark.parametrize("name", sorted(kernel_matrix._MODULE_OF))
def test_name_resolves_and_is_documented(name):
    found = getattr(kernel_matrix, name)
    assert name == "QUESTIONS" or found.__doc__ or name == "RunProgress"


def test_type_checkers_see_the_same_names_from_the_same_modules():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == {name: f"kernel_matrix.api.{module}" for name, module in kernel_matrix._MODULE_OF.items()}


def test_no_name_is_that_of_a_room():
    rooms = {path.stem for path in PACKAGE.iterdir()}
    assert rooms.isdisjoint(kernel_matrix._MODULE_OF)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'plan_everything'"):
        kernel_matrix.plan_everything  # noqa: B018


def test_contract_about_the_cli_forbids_every_other_room():
    allowed = {"api", "cli", "errors", "model", "version", "__init__", "__main__"}
    text = (PACKAGE.parents[1] / "pyproject.toml").read_text()
    contract = text[text.index('source_modules = ["kernel_matrix.cli"]') :].split("\n\n")[0]
    rooms = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    rooms = {room for room in rooms if not room.startswith("_")} - allowed
    assert [room for room in sorted(rooms) if f'"kernel_matrix.{room}"' not in contract] == []
